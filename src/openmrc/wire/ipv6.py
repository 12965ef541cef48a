"""IPv6 header (RFC 8200), used twice under SRv6: outer with the uSID carrier, and inner."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.wire.layout import Header

NEXT_HEADER_UDP = 17
NEXT_HEADER_IPV6 = 41  # IPv6-in-IPv6, RFC 2473


@dataclass(frozen=True, slots=True)
class IPv6(Header):
    """IPv6 header; the traffic class is split into DSCP (RFC 2474) and ECN (RFC 3168).

    ``payload_length`` counts the bytes after this header. Whole-packet building fills it in.

    >>> IPv6(dscp=46, flow_label=0x12345).to_bytes()[:4].hex()
    '6b812345'
    """

    NAME = "IPv6"
    LAYOUT = (
        "version=6:4 dscp:6 ecn:2 flow_label:20 payload_length:16 next_header:8 hop_limit:8 "
        "source:b16 destination:b16"
    )
    dscp: int = 0
    ecn: int = 0
    flow_label: int = 0
    payload_length: int = 0
    next_header: int = NEXT_HEADER_UDP
    hop_limit: int = 64
    source: bytes = bytes(16)
    destination: bytes = bytes(16)
