"""UDP header (RFC 768). Checksum 0 is allowed over IPv6 as in RoCEv2 (RFC 6935): the ICRC protects."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.wire.layout import Header


@dataclass(frozen=True, slots=True)
class Udp(Header):
    """UDP header; ``source_port`` carries the low half of the entropy value.

    A checksum other than 0 is not verified: the destination address it covered may have been an
    SRv6 carrier that was consumed on the way, and the ICRC masks the field for that reason.

    >>> Udp(49152, 4791, 24).to_bytes().hex()
    'c00012b700180000'
    """

    NAME = "UDP"
    LAYOUT = "source_port:16 destination_port:16 length:16 checksum:16"
    source_port: int = 0
    destination_port: int = 4791
    length: int = 0
    checksum: int = 0
