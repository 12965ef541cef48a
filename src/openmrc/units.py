"""Quantities with units, read once into integers: picoseconds, bytes, bits per second.

>>> parse_duration("50us"), parse_size("2MB"), parse_rate("800Gbps")
(50000000, 2000000, 800000000000)
>>> format_duration(1_500_000), format_size(4096), format_rate(769_000_000_000)
('1.5 us', '4.10 kB', '769 Gb/s')
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from openmrc.errors import UnitError

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000

_DURATION = {
    "ps": 1,
    "ns": PS_PER_NS,
    "us": PS_PER_US,
    "µs": PS_PER_US,
    "ms": PS_PER_MS,
    "s": PS_PER_S,
    "min": 60 * PS_PER_S,
    "h": 3600 * PS_PER_S,
}
_SIZE = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_RATE = {
    "bps": 1,
    "kbps": 10**3,
    "Mbps": 10**6,
    "Gbps": 10**9,
    "Tbps": 10**12,
    "kb/s": 10**3,
    "Mb/s": 10**6,
    "Gb/s": 10**9,
    "Tb/s": 10**12,
}
_QUANTITY = re.compile(r"^\s*([0-9](?:[0-9_]*[0-9])?(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]*)\s*$")


def _parse(value: Any, units: dict[str, int], kind: str, example: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UnitError(f"{value!r} is not a {kind}; write it with its unit, e.g. {example!r}")
    if isinstance(value, int):
        if value == 0:
            return 0
        raise UnitError(f"{value} has no unit; write a {kind} like {example!r}")
    match = _QUANTITY.match(value)
    if match is None:
        raise UnitError(f"{value!r} is not a {kind}; write it like {example!r}")
    number, unit = match.groups()
    if unit not in units:
        close = next((u for u in units if u.lower() == unit.lower()), None)
        hint = f"did you mean {close!r}?" if close else f"use one of {', '.join(units)}"
        if not unit:
            hint = f"write it like {example!r}"
        raise UnitError(
            f"{value!r}: unknown unit {unit!r} of a {kind}; {hint}"
            if unit
            else f"{value!r} has no unit; {hint}"
        )
    try:
        exact = Decimal(number.replace("_", "")) * units[unit]
    except InvalidOperation as error:  # pragma: no cover - the pattern admits only numbers
        raise UnitError(f"{value!r} is not a {kind}; write it like {example!r}") from error
    if exact != exact.to_integral_value():
        raise UnitError(f"{value!r} is finer than openmrc's resolution of 1 {next(iter(units))}; round it")
    if exact >= 1 << 62:
        raise UnitError(f"{value!r} is too large for a {kind}; the limit is 2^62 {next(iter(units))}")
    return int(exact)


def parse_duration(value: Any) -> int:
    """Return picoseconds of a duration such as ``"50us"``; ``0`` needs no unit."""
    return _parse(value, _DURATION, "duration", "50us")


def parse_size(value: Any) -> int:
    """Return bytes of a size such as ``"2MB"`` (10^6) or ``"16KiB"`` (2^14)."""
    return _parse(value, _SIZE, "size", "2MB")


def parse_rate(value: Any) -> int:
    """Return bits per second of a rate such as ``"800Gbps"``."""
    return _parse(value, _RATE, "rate", "800Gbps")


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    for factor, unit in steps:
        if abs(value) >= factor:
            x = value / factor
            digits = 0 if abs(x) >= 100 else 1 if abs(x) >= 10 else 2
            text = f"{x:.{digits}f}"
            return f"{text} {unit}"
    factor, unit = steps[-1]
    return f"{value / factor:g} {unit}"


def format_duration(ps: float) -> str:
    """Return ``ps`` picoseconds in the largest unit that keeps it at or above 1."""
    text = _scaled(ps, [(PS_PER_S, "s"), (PS_PER_MS, "ms"), (PS_PER_US, "us"), (PS_PER_NS, "ns"), (1, "ps")])
    number, unit = text.split(" ")
    return f"{float(number):g} {unit}" if "." in number else text


def format_size(size_bytes: float) -> str:
    """Return a number of bytes with a decimal unit."""
    return _scaled(size_bytes, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


def format_rate(bps: float) -> str:
    """Return a rate in bits per second with a decimal unit."""
    return _scaled(bps, [(1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1, "b/s")])


def _schema(kind: str, examples: list[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "integer"], "title": kind, "examples": examples})


#: pydantic field types: written with a unit, held as an integer
DurationPs = Annotated[int, BeforeValidator(parse_duration), _schema("duration", ["50us", "1.5ms"])]
SizeBytes = Annotated[int, BeforeValidator(parse_size), _schema("size", ["2MB", "16KiB"])]
RateBps = Annotated[int, BeforeValidator(parse_rate), _schema("rate", ["100Gbps", "800Gbps"])]
