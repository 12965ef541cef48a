"""Collects what is wrong with an input, so that one run of ``mrc check`` shows everything."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from openmrc.errors import ScenarioError

#: problems shown of one input; the rest is counted (a message fits on one screen)
MAX_SHOWN = 12


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'size'?`` for a near miss, else the empty string.

    >>> did_you_mean("plans", ["planes", "radix"])
    "did you mean 'planes'?"
    """
    choices = list(known)
    if word in choices:
        return ""
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if not close:
        close = [c for c in choices if c.lower().replace("-", "_") == word.lower().replace("-", "_")][:1]
    return f"did you mean {close[0]!r}?" if close else ""


def whole_number(word: str) -> int | None:
    """Return the value of a word of ASCII digits (at most 19), else None.

    >>> whole_number("12"), whole_number("1.5"), whole_number("\u00b2")
    (12, None, None)
    """
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 19 else None


class FileProblems:
    """Problems of an imported file, each with its line.

    >>> p = FileProblems("a.cm")
    >>> p.add(3, "size 0", "give bytes")
    >>> p.lines()
    ['a.cm:3: size 0; give bytes']
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._found: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, line: int, what: str, remedy: str) -> None:
        """Note a problem on ``line`` (1-based; 0: the file as a whole)."""
        where = f"{self.name}:{line}" if line else self.name
        self._found.append((line, f"{where}: {what}; {remedy}"))

    def lines(self) -> list[str]:
        """Return the messages in order of their lines."""
        return [text for _, text in sorted(self._found, key=lambda found: found[0])]

    def raise_if_any(self) -> None:
        """Raise one ScenarioError with everything found."""
        if self._found:
            raise ScenarioError(join_problems(self.lines()))


def join_problems(lines: list[str]) -> str:
    """Return problems one per line, cut to one screen."""
    shown = lines[:MAX_SHOWN]
    if len(lines) > MAX_SHOWN:
        shown.append(f"... and {len(lines) - MAX_SHOWN} more problems")
    return "\n".join(shown)
