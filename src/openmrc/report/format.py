"""Figures as people read them: the same words in the terminal, the notebook and the HTML report.

>>> count(1234567), count(12.0), percent(0.0423), microseconds(1234.56)
('1,234,567', '12', '4.23 %', '1.23 ms')
>>> size(16_777_216), ratio(1.0797), rate(12_345_678.0, "hops/s")
('16.8 MB', '1.080', '12.3 M hops/s')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openmrc.units import format_size

#: what stands where there is no value
NONE = "-"
_SPELLING = {
    word: word.upper()
    for word in ("ecn", "ev", "qp", "nic", "icrc", "rto", "cpu", "psn", "mpr", "rtt", "nscc")
}
_SPELLING |= {
    "sacks": "SACKs",
    "nacks": "NACKs",
    "sack": "SACK",
    "nack": "NACK",
    "evs": "EVs",
    "qps": "QPs",
    "nics": "NICs",
}
_SCALES = ((1e6, "s"), (1e3, "ms"), (1.0, "us"))


def count(value: float | None) -> str:
    """Return an integer with thousands separators."""
    return NONE if value is None else f"{round(value):,}"


def digits(value: float, significant: int = 4) -> str:
    """Return ``value`` with at most ``significant`` digits (more before the point are kept).

    >>> digits(1.23456), digits(123456.7), digits(0.0), digits(769.04), digits(0.00012)
    ('1.235', '123,457', '0', '769.0', '0.00012')
    """
    if value == 0:
        return "0"
    size_of = abs(value)
    if size_of < 1e-3:
        return f"{value:.3g}"
    before = len(str(int(size_of))) if size_of >= 1 else 1
    return f"{value:,.{max(significant - before, 0)}f}"


def time_scale(largest_us: float) -> tuple[float, str]:
    """Return (microseconds per unit, unit) in which times up to ``largest_us`` read well.

    >>> time_scale(9_000), time_scale(20_000)
    ((1.0, 'us'), (1000.0, 'ms'))
    """
    for factor, unit in _SCALES:
        if largest_us >= 10_000 * factor / 1e3:
            return factor, unit
    return 1.0, "us"


def microseconds(value: float | None, significant: int = 3) -> str:
    """Return a time given in microseconds in its own best unit."""
    if value is None:
        return NONE
    # 0.9999996 us is 1.00 us, not 1,000 ns: choose the unit after rounding
    shown = abs(float(f"{value:.{significant}g}"))
    for factor, unit in _SCALES:
        if shown >= factor:
            return f"{digits(value / factor, significant)} {unit}"
    if value == 0:
        return "0 us"
    return f"{digits(value * 1e3, significant)} ns"


def in_scale(value_us: float | None, scale: tuple[float, str], significant: int = 4) -> str:
    """Return a time in a unit shared with others, e.g. all percentiles in us."""
    return NONE if value_us is None else f"{digits(value_us / scale[0], significant)} {scale[1]}"


def since(value_us: float | None, origin_us: float) -> str:
    """Return a time as a distance from ``origin_us``: ``+12.3 us``."""
    if value_us is None:
        return NONE
    delta = value_us - origin_us
    return f"{'-' if delta < 0 else '+'}{microseconds(abs(delta))}"


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage with three digits, never rounded to 0 or 100 unless it is.

    >>> percent(0.0), percent(0.999999), percent(1.0), percent(0.0000001)
    ('0 %', '> 99.99 %', '100 %', '< 0.01 %')
    """
    if fraction is None:
        return NONE
    value = fraction * 100
    if value == 0 or value == 100:
        return f"{value:.0f} %"
    if 99.99 < value < 100:
        return "> 99.99 %"
    if 0 < value < 0.01:
        return "< 0.01 %"
    if 99.9 <= value < 100:
        return f"{value:.2f} %"
    return f"{digits(value, 3)} %"


def ratio(value: float | None) -> str:
    """Return a ratio to the ideal with three decimals below 10."""
    return NONE if value is None else f"{value:.3f}" if value < 10 else digits(value)


def gbps(value: float | None) -> str:
    """Return a rate given in Gb/s."""
    return NONE if value is None else f"{digits(value)} Gb/s"


def size(value_bytes: float | None) -> str:
    """Return a number of bytes with a decimal unit."""
    return NONE if value_bytes is None else format_size(value_bytes)


def rate(value: float | None, unit: str) -> str:
    """Return a large rate with k, M or G before its unit."""
    if value is None:
        return NONE
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{digits(value / factor, 3)} {prefix} {unit}"
    return f"{digits(value, 3)} {unit}"


def entropy_value(ev: int | str | None) -> str:
    """Return an EV in hexadecimal, as the traces print it.

    >>> entropy_value(0x2C011)
    '0x2C011'
    """
    if ev is None:
        return NONE
    return f"0x{ev:05X}" if isinstance(ev, int) else ev


def fault_label(fault_id: int | str) -> str:
    """Return the short name of a fault in tables and plots: a number gets an F before it."""
    return f"F{fault_id}" if isinstance(fault_id, int) else fault_id


def by_name(items: dict[str, int], wanted: Iterable[str] = ()) -> list[tuple[str, int]]:
    """Return the entries that are not zero, largest first; those in ``wanted`` even when zero."""
    keep = set(wanted)
    rows = [(key, value) for key, value in items.items() if value or key in keep]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def words(key: str) -> str:
    """Return a key of the summary as words.

    >>> words("no_good_path"), words("ecn_marked"), words("sacks")
    ('no good path', 'ECN-marked', 'SACKs')
    """
    text = " ".join(_SPELLING.get(word, word) for word in key.split("_"))
    return text.replace("ECN marked", "ECN-marked")


def setting(value: Any) -> str:
    """Return a setting's value as text: lists are joined, booleans in lower case as in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return NONE
    if isinstance(value, (list, tuple)):
        return ", ".join(setting(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def flatten(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as dotted keys with their values as text.

    >>> flatten({"fabric": {"planes": 8, "ecn": True}, "seed": 1})
    [('fabric.planes', '8'), ('fabric.ecn', 'true'), ('seed', '1')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            rows += flatten(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", setting(value)))
    return rows
