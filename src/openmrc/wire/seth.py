"""SETH and CC_STATE: the selective acknowledgement and the congestion state that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from openmrc.limits import PSN_BITS
from openmrc.wire.layout import Header

PSN_MASK = (1 << PSN_BITS) - 1  # from limits: openmrc.psn would import numba, half a second of start-up
CC_TYPE_NONE = 0
CC_TYPE_CC_STATE = 1
RCVD_BYTES_UNIT = 256


class PathMark(IntEnum):
    """SETH.m: what the responder says about the forward path."""

    NONE = 0
    SKIP_ONCE = 1  # the path was ECN-marked
    ALWAYS_SKIP = 2  # the responder judges it persistently bad


@dataclass(frozen=True, slots=True)
class Seth(Header):
    """Selective acknowledgement, 28 bytes.

    Attributes
    ----------
    m
        See :class:`PathMark`.
    pr, ack_psn_offset
        pr = 0: cack_psn + offset names the packet that drew this SACK (signed); pr = 1: the 16 bits
        are the id of the probe that did, see :attr:`probe_id`.
    entropy, source_qpn16, dest_qpn16
        Echoed entropy value; low halves of the QP numbers.
    cack_psn, sack_offset, bitmap
        Cumulative acknowledgement; bit i of the bitmap = PSN cack_psn + sack_offset + i arrived.
    cc_type, cc_flags, mpr
        cc_type 1: CC_STATE follows; window in units of 128 PSNs, 0 = ignore.

    >>> Seth(cack_psn=0xFFFFFE, sack_offset=1, bitmap=0b1011).received_psns()
    [16777215, 0, 2]
    """

    NAME = "SETH"
    LAYOUT = (
        "type:4 next:5 m:2 -:3 pr:1 -:1 ack_psn_offset:s16 entropy:32 source_qpn16:16 dest_qpn16:16 "
        "-:8 cack_psn:24 cc_type:4 cc_flags:4 mpr:8 sack_offset:s16 bitmap:64"
    )
    type: int = 0
    next: int = 0
    m: int = 0
    pr: int = 0
    ack_psn_offset: int = 0
    entropy: int = 0
    source_qpn16: int = 0
    dest_qpn16: int = 0
    cack_psn: int = 0
    cc_type: int = CC_TYPE_CC_STATE
    cc_flags: int = 0
    mpr: int = 0
    sack_offset: int = 0
    bitmap: int = 0

    @property
    def probe_id(self) -> int:
        """The 16 bits of ack_psn_offset as the probe id they are when ``pr`` = 1."""
        return self.ack_psn_offset & 0xFFFF

    @property
    def acked_psn(self) -> int:
        """The PSN that drew this SACK (meaningless when ``pr`` = 1)."""
        return (self.cack_psn + self.ack_psn_offset) & PSN_MASK

    @property
    def base_psn(self) -> int:
        """The PSN of bit 0 of the bitmap."""
        return (self.cack_psn + self.sack_offset) & PSN_MASK

    def received_psns(self) -> list[int]:
        """Return the PSNs of all set bits, in bit order."""
        return [(self.base_psn + i) & PSN_MASK for i in range(64) if self.bitmap >> i & 1]


def signed16(value: int) -> int:
    """Return a 16-bit pattern as the signed number that SETH.ack_psn_offset holds.

    >>> signed16(0xFFFD)
    -3
    """
    return ((value & 0xFFFF) ^ 0x8000) - 0x8000


@dataclass(frozen=True, slots=True)
class CcState(Header):
    """Congestion state behind SETH, 8 bytes; ``rcvd_bytes_256`` counts 256-byte units, rounded up.

    >>> CcState(0, 5, 0, 64, 17).to_bytes().hex()
    '0000000540000011'
    """

    NAME = "CC_STATE"
    LAYOUT = "tx_timestamp:16 -:1 ooo_count:15 restore_cwnd:1 rcv_cwnd_pen:7 rcvd_bytes_256:24"
    tx_timestamp: int = 0
    ooo_count: int = 0
    restore_cwnd: int = 0
    rcv_cwnd_pen: int = 0
    rcvd_bytes_256: int = 0
