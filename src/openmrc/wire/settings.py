"""What of the wire a deployment may choose: forwarding mode, UDP port, DSCP numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from openmrc.errors import InputError
from openmrc.wire.dscp import DscpMap

UDP_PORT = 4791  # RoCEv2; decision
ALTERNATE_UDP_PORT = 4971  # the specification is said to print this one: accepted and counted


class Mode(Enum):
    """How switches find the way. STEV and ECMP packets look alike: neither has an outer header."""

    SRV6 = "srv6"  # outer IPv6 whose destination is an SRv6 uSID carrier
    STEV = "stev"  # switches read bit fields of the entropy value
    ECMP = "ecmp"  # switches hash


@dataclass(frozen=True, slots=True)
class WireSettings:
    """Settings of parsing and building.

    Attributes
    ----------
    udp_port
        Destination port of MRC.
    dscp
        The number of every DSCP class.
    """

    udp_port: int = UDP_PORT
    dscp: DscpMap = field(default_factory=DscpMap)

    def __post_init__(self) -> None:
        if not 0 < self.udp_port <= 0xFFFF:
            raise InputError(f"udp_port: {self.udp_port} is no UDP port; use 1..65535 (4791 by default)")


DEFAULT_SETTINGS = WireSettings()
