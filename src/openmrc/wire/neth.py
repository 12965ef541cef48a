"""NETH: why a packet was refused, and which transmission of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from openmrc.wire.layout import Header

CC_TYPE_NACK = 2


class NackReason(IntEnum):
    """NETH.reason. TRIMMED speaks of the path; the others do not; UNEXP_EVENT is fatal."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


@dataclass(frozen=True, slots=True)
class Neth(Header):
    """Negative acknowledgement, 20 bytes; ``tx_timestamp`` echoes the refused transmission's.

    >>> Neth(reason=NackReason.TRIMMED, nack_psn=7).to_bytes().hex()
    '0000010000000000000000000000000720000000'
    """

    NAME = "NETH"
    LAYOUT = (
        "type:4 next:5 -:7 reason:8 vendor_info:8 entropy:32 source_qpn16:16 dest_qpn16:16 "
        "-:8 nack_psn:24 cc_type:4 cc_flags:4 -:8 tx_timestamp:16"
    )
    type: int = 0
    next: int = 0
    reason: int = 0
    vendor_info: int = 0
    entropy: int = 0
    source_qpn16: int = 0
    dest_qpn16: int = 0
    nack_psn: int = 0
    cc_type: int = CC_TYPE_NACK
    cc_flags: int = 0
    tx_timestamp: int = 0


def reason_name(value: int) -> str:
    """Return the name of a NACK reason, or its number in hex when unknown.

    >>> reason_name(0x0B), reason_name(0x55)
    ('PSN_OOR_WINDOW', '0x55')
    """
    return NackReason(value).name if value in NackReason._value2member_map_ else f"0x{value:02x}"
