"""Sets of NICs as a scenario writes them: ``"0-63"``, ``"0-7,16-23"``, ``"0-63:8"`` or a list.

>>> parse_nics("0-3,8"), parse_nics("0-15:4"), parse_nics([5, 1])
((0, 1, 2, 3, 8), (0, 4, 8, 12), (5, 1))
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

#: no fabric has more NICs than this (the largest preset has 131 072), and a typo must not fill the memory
MAX_NICS = 1 << 20
_RANGE = re.compile(r"^([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?$")
_HOW = 'write a range like "0-63", "0-7,16-23" or "0-63:8" (every 8th), or a list like [0, 5, 9]'


def parse_nics(value: Any) -> tuple[int, ...]:
    """Return the NIC numbers of a range text or a list, in the order written.

    Raises
    ------
    ValueError
        Not a range or list, an empty range, a NIC named twice.
    """
    if isinstance(value, str):
        nics = [nic for piece in value.split(",") for nic in _piece(piece.strip(), value)]
    elif isinstance(value, (list, tuple)):
        wrong = [v for v in value if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < MAX_NICS]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not a NIC number; {_HOW}")
        nics = list(value)
    else:
        raise ValueError(f"{value!r} is not a set of NICs; {_HOW}")
    if not nics:
        raise ValueError(f"the set of NICs is empty; {_HOW}")
    if len(set(nics)) < len(nics):
        seen: set[int] = set()
        twice = next(n for n in nics if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise ValueError(f"NIC {twice} is named twice; name each NIC once")
    return tuple(nics)


def _piece(piece: str, whole: str) -> range:
    match = _RANGE.match(piece)
    if match is None:
        raise ValueError(f"{whole!r} is not a set of NICs; {_HOW}")
    low, high, stride = (int(g) if g is not None else None for g in match.groups())
    assert low is not None
    if high is None:
        high = low
    if high < low:
        raise ValueError(f"{piece!r} runs backwards; write {high}-{low}")
    if high >= MAX_NICS:
        raise ValueError(f"{piece!r}: NIC numbers end at {MAX_NICS - 1}")
    if stride == 0:
        raise ValueError(f"{piece!r}: a stride of 0; use 1 or more")
    return range(low, high + 1, stride or 1)


#: pydantic field type: written as a range or a list, held as a tuple of NIC numbers
NicSet = Annotated[
    tuple[int, ...],
    BeforeValidator(parse_nics),
    WithJsonSchema(
        {
            "title": "NICs",
            "anyOf": [
                {"type": "string", "pattern": r"^\s*\d+(-\d+(:\d+)?)?(\s*,\s*\d+(-\d+(:\d+)?)?)*\s*$"},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            ],
            "examples": ["0-63", [0, 5, 9]],
        }
    ),
]
