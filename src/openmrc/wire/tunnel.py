"""The outer IPv6 header of SRv6 mode: put on by the sending NIC, taken off by the receiving one."""

from __future__ import annotations

from openmrc.errors import WireError
from openmrc.wire.dscp import Ecn
from openmrc.wire.ipv6 import NEXT_HEADER_IPV6, IPv6
from openmrc.wire.settings import DEFAULT_SETTINGS, WireSettings
from openmrc.wire.trim import with_traffic_class


def encapsulate(data: bytes, source: bytes, carrier: bytes, hop_limit: int = 64) -> bytes:
    """Return ``data`` (an IPv6 packet) behind an outer header with the uSID carrier as destination.

    Traffic class (RFC 6040, normal mode) and flow label (decision, cf. RFC 6438) are copied outwards.
    """
    inner = IPv6.parse(data)
    outer = IPv6(
        inner.dscp, inner.ecn, inner.flow_label, len(data), NEXT_HEADER_IPV6, hop_limit, source, carrier
    )
    return outer.to_bytes() + data


def decapsulate(data: bytes, settings: WireSettings = DEFAULT_SETTINGS) -> bytes:
    """Return the inner packet, with the marks that switches left on the outer header copied inwards.

    TRIMMED and TRIMMED_LASTHOP replace the inner DSCP; ECN combines as RFC 6040 section 4.2 says.

    Raises
    ------
    WireError
        No IPv6-in-IPv6, or CE on a packet that is not ECN-capable (RFC 6040: such a packet is dropped).

    Examples
    --------
    >>> inner = IPv6(ecn=Ecn.ECT_0).to_bytes()
    >>> marked = with_traffic_class(encapsulate(inner, bytes(16), bytes(16)), ecn=Ecn.CE)
    >>> IPv6.parse(decapsulate(marked)).ecn == Ecn.CE
    True
    """
    outer = IPv6.parse(data)
    if outer.next_header != NEXT_HEADER_IPV6:
        raise WireError(f"outer IPv6.next_header: {outer.next_header} where {NEXT_HEADER_IPV6} must stand")
    end = IPv6.SIZE + outer.payload_length
    if end > len(data):
        raise WireError(f"outer IPv6: says it ends at byte {end}, but the data does at {len(data)}")
    inner = IPv6.parse(data, IPv6.SIZE, end)
    dscp = outer.dscp if settings.dscp.is_trimmed(outer.dscp) else inner.dscp
    return with_traffic_class(data[IPv6.SIZE : end], dscp, _combined_ecn(outer.ecn, inner.ecn))


def _combined_ecn(outer: int, inner: int) -> int:
    """Return the outgoing ECN field of RFC 6040 section 4.2, figure 4."""
    if outer == Ecn.CE:
        if inner == Ecn.NOT_ECT:
            raise WireError("outer IPv6.ecn: CE around a packet that is not ECN-capable; RFC 6040 drops it")
        return Ecn.CE
    if outer == Ecn.ECT_1 and inner == Ecn.ECT_0:
        return Ecn.ECT_1
    return inner
