"""IPv4 header without options (RFC 791). The codec reads and writes it; simulator and live are IPv6.

RoCEv2 packets carry no options (IBTA Annex A17: IHL = 5) and are never fragments, so other
headers are refused rather than half understood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from openmrc.errors import WireError
from openmrc.wire.layout import Header

DONT_FRAGMENT = 2


@dataclass(frozen=True, slots=True)
class IPv4(Header):
    """IPv4 header of 20 bytes. ``checksum`` is as on the wire; :meth:`with_checksum` computes it.

    >>> ip = IPv4(total_length=60, source=bytes([10, 0, 0, 1]), destination=bytes([10, 0, 0, 2]))
    >>> ip.with_checksum().checksum == ip.compute_checksum()
    True
    """

    NAME = "IPv4"
    LAYOUT = (
        "version=4:4 ihl=5:4 dscp:6 ecn:2 total_length:16 identification:16 flags:3 fragment_offset:13 "
        "ttl:8 protocol:8 checksum:16 source:b4 destination:b4"
    )
    dscp: int = 0
    ecn: int = 0
    total_length: int = 0
    identification: int = 0
    flags: int = DONT_FRAGMENT
    fragment_offset: int = 0
    ttl: int = 64
    protocol: int = 17
    checksum: int = 0
    source: bytes = bytes(4)
    destination: bytes = bytes(4)

    def compute_checksum(self) -> int:
        """Return the header checksum (RFC 1071) of these fields."""
        return header_checksum(replace(self, checksum=0).to_bytes())

    def with_checksum(self) -> IPv4:
        """Return a copy whose checksum is right."""
        return replace(self, checksum=self.compute_checksum())

    def verify(self) -> None:
        """Raise WireError when the checksum is wrong or the packet is a fragment."""
        if self.flags & 1 or self.fragment_offset:
            raise WireError(
                f"IPv4.fragment_offset: {self.fragment_offset} with flags {self.flags}: a fragment; "
                "MRC packets are never fragmented"
            )
        right = self.compute_checksum()
        if self.checksum != right:
            raise WireError(f"IPv4.checksum: 0x{self.checksum:04x} where 0x{right:04x} must stand")


def header_checksum(header: bytes) -> int:
    """Return the ones' complement checksum of ``header``, whose checksum field reads 0."""
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
