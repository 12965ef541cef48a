"""Finds the line of a key in TOML text, for error messages.

`tomllib` gives values without places. This scanner follows ``[table]`` and ``[[array]]`` headers, dotted keys
and multi-line values; it is used on text that `tomllib` has accepted, so it need not judge.

>>> index = LineIndex('a = 1\\n[fabric]\\nnics = 4\\n[[traffic]]\\nsize = 1\\n[[traffic]]\\nsize = 1\\n')
>>> index.line_of("fabric.nics"), index.line_of("traffic.1.size"), index.line_of("traffic.1.pairs")
(3, 7, 6)
"""

from __future__ import annotations

import re

_HEADER = re.compile(r"^\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


class LineIndex:
    """Lines (1-based) of all tables and keys of a TOML text."""

    def __init__(self, text: str) -> None:
        self._line: dict[tuple[str, ...], int] = {}
        self._arrays: dict[tuple[str, ...], int] = {}
        self._scan(text)

    def line_of(self, key: str) -> int | None:
        """Return the line of a dotted key, else of the table around it, else None."""
        parts = tuple(key.split("."))
        while parts:
            if parts in self._line:
                return self._line[parts]
            parts = parts[:-1]
        return None

    def _scan(self, text: str) -> None:
        table: tuple[str, ...] = ()
        inside = _Value()
        for number, line in enumerate(text.splitlines(), 1):
            if inside.open:
                inside.feed(line)
                continue
            if header := _HEADER.match(line):
                table = self._table(_parts(header[2]), header[1] == "[[")
                self._line.setdefault(table, number)
            elif key := _KEY.match(line):
                path = table + _parts(key[1])
                for length in range(len(table) + 1, len(path) + 1):
                    self._line.setdefault(path[:length], number)
                inside.feed(line[key.end() :])

    def _table(self, parts: tuple[str, ...], array: bool) -> tuple[str, ...]:
        path: tuple[str, ...] = ()
        for place, part in enumerate(parts):
            path = (*path, part)
            last = place == len(parts) - 1
            if array and last:
                self._arrays[path] = self._arrays.get(path, -1) + 1
            if path in self._arrays:
                path = (*path, str(self._arrays[path]))
        return path


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


class _Value:
    """Whether a value that has begun goes on in the next line."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""  # of a multi-line string

    @property
    def open(self) -> bool:
        return self._depth > 0 or self._quote != ""

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            if self._quote:
                end = text.find(self._quote, at)
                if end < 0:
                    return
                at, self._quote = end + 3, ""
            elif text.startswith(('"""', "'''"), at):
                self._quote, at = text[at : at + 3], at + 3
            elif text[at] in "\"'":
                at = _end_of_string(text, at)
            elif text[at] == "#":
                return
            else:
                self._depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(text[at], 0)
                at += 1


def _end_of_string(text: str, at: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote == '"' else 1
    return at + 1
