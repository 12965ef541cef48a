"""AETH, the only extension of a Transport ACK: message completion or refusal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from openmrc.wire.layout import Header


class Syndrome(IntEnum):
    """AETH.syndrome values (credits are not used: ACK is always 0x1F)."""

    ACK = 0x1F
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATIONAL = 0x63


@dataclass(frozen=True, slots=True)
class Aeth(Header):
    """Syndrome and MSN of the newest message completed (16 bits, zero extended to 24).

    >>> Aeth(Syndrome.ACK, 5).to_bytes().hex()
    '1f000005'
    """

    NAME = "AETH"
    LAYOUT = "syndrome:8 msn:24"
    syndrome: int = Syndrome.ACK
    msn: int = 0


def syndrome_name(value: int) -> str:
    """Return the name of a syndrome, or its number in hex when unknown.

    >>> syndrome_name(0x62), syndrome_name(0x20)
    ('NAK_REMOTE_ACCESS', '0x20')
    """
    return Syndrome(value).name if value in Syndrome._value2member_map_ else f"0x{value:02x}"
