"""METH and TSETH: message numbers and the transmission timestamp of a data packet."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.wire.layout import Header

TIMESTAMP_UNIT_NS = 128  # of every tx_timestamp when tsr = 0; 16 bits wrap every 8.4 ms
TIMESTAMP_MASK = 0xFFFF


@dataclass(frozen=True, slots=True)
class Meth(Header):
    """Message header: RQMSN counts WRITE_IMM messages, MSN counts messages (both 16 bit, serial).

    >>> Meth.parse(bytes.fromhex("0102fffe"))
    Meth(rqmsn=258, msn=65534)
    """

    NAME = "METH"
    LAYOUT = "rqmsn:16 msn:16"
    rqmsn: int = 0
    msn: int = 0


@dataclass(frozen=True, slots=True)
class Tseth(Header):
    """Timestamp header: ``tx_timestamp`` in 128 ns units unless ``tsr`` = 1; ``ftype`` = 1.

    >>> Tseth(tx_timestamp=0xABCD, tsr=1).to_bytes().hex()
    'abcd8001'
    """

    NAME = "TSETH"
    LAYOUT = "tx_timestamp:16 tsr:1 -:11 ftype:4"
    tx_timestamp: int = 0
    tsr: int = 0
    ftype: int = 1


def timestamp_of(time_ps: int) -> int:
    """Return the 16-bit tx_timestamp of a time in picoseconds.

    >>> timestamp_of(128_000), timestamp_of(65_536 * 128_000 + 1)
    (1, 0)
    """
    return time_ps // (TIMESTAMP_UNIT_NS * 1000) & TIMESTAMP_MASK
