"""Counters of what was parsed, so that nothing is accepted or refused in silence (style rule 5)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from openmrc.wire.icrc import IcrcVerdict
from openmrc.wire.packet import Oddity, Packet


@dataclass(slots=True)
class WireCounters:
    """Counts over parsed packets.

    Examples
    --------
    >>> counters = WireCounters()
    >>> counters.count_malformed()
    >>> str(counters)
    '1 packet: 1 malformed'
    """

    packets: int = 0
    malformed: int = 0
    icrc_bad: int = 0
    trimmed: int = 0
    ecn_marked: int = 0
    alternate_port: int = 0
    unknown_cc_type: int = 0
    ts_on_control: int = 0

    def count(self, packet: Packet) -> None:
        """Count a packet that could be parsed."""
        self.packets += 1
        self.icrc_bad += packet.icrc is IcrcVerdict.BAD
        self.trimmed += packet.trimmed is not None
        self.ecn_marked += packet.ecn_marked
        self.alternate_port += Oddity.ALTERNATE_PORT in packet.oddities
        self.unknown_cc_type += Oddity.UNKNOWN_CC_TYPE in packet.oddities
        self.ts_on_control += Oddity.TS_ON_CONTROL in packet.oddities

    def count_malformed(self) -> None:
        """Count bytes that raised WireError."""
        self.packets += 1
        self.malformed += 1

    def __str__(self) -> str:
        parts = [
            f"{value} {field.name.replace('_', ' ')}"
            for field in fields(self)[1:]
            if (value := getattr(self, field.name))
        ]
        noun = "packet" if self.packets == 1 else "packets"
        return f"{self.packets} {noun}" + (": " + ", ".join(parts) if parts else "")
