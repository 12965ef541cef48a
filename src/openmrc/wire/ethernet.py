"""Ethernet II, with up to two VLAN tags in front of the payload (IEEE 802.1Q)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from openmrc.errors import WireError
from openmrc.wire.layout import Header

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
VLAN_ETHERTYPES = (0x8100, 0x88A8)
_IP_VERSIONS = {ETHERTYPE_IPV6: 6, ETHERTYPE_IPV4: 4}
MAX_VLAN_TAGS = 2  # one customer and one service tag (802.1ad); more is not seen on fabric links


@dataclass(frozen=True, slots=True)
class Ethernet(Header):
    """Ethernet header without preamble and FCS.

    >>> Ethernet(b"\\x02\\0\\0\\0\\0\\x02", b"\\x02\\0\\0\\0\\0\\x01").to_bytes().hex()
    '02000000000202000000000186dd'
    """

    NAME = "Ethernet"
    LAYOUT = "destination:b6 source:b6 ethertype:16"
    destination: bytes = bytes(6)
    source: bytes = bytes(6)
    ethertype: int = ETHERTYPE_IPV6


def skip_vlan_tags(data: bytes, ethertype: int, offset: int) -> tuple[int, int]:
    """Return (ethertype, offset) behind any VLAN tags that start at ``offset``."""
    for _ in range(MAX_VLAN_TAGS):
        if ethertype not in VLAN_ETHERTYPES:
            break
        if offset + 4 > len(data):
            raise WireError(f"VLAN tag at byte {offset}: needs 4 bytes, {len(data) - offset} are left")
        ethertype = int.from_bytes(data[offset + 2 : offset + 4], "big")
        offset += 4
    return ethertype, offset


def find_ip(frame: bytes) -> tuple[Ethernet, int]:
    """Return the link header and the offset of the IP header behind it and any VLAN tags.

    The ethertype returned is that of the IP packet: VLAN tags are read past and not kept.

    Raises
    ------
    WireError
        The frame carries neither IPv6 nor IPv4, or ends in its link header.
    """
    eth = Ethernet.parse(frame)
    ethertype, offset = skip_vlan_tags(frame, eth.ethertype, Ethernet.SIZE)
    expected = _IP_VERSIONS.get(ethertype)
    if expected is None:
        raise WireError(f"Ethernet.ethertype: 0x{ethertype:04x} is not IP; MRC rides in IPv6 (0x86dd)")
    version = frame[offset] >> 4 if offset < len(frame) else 0
    if version != expected:
        raise WireError(
            f"Ethernet.ethertype: 0x{ethertype:04x}, but the packet at byte {offset} has IP version {version}"
        )
    return eth if ethertype == eth.ethertype else replace(eth, ethertype=ethertype), offset
