"""Trimming of real bytes: what a switch does to a data packet that finds its queue full.

The first ``trim_bytes`` of the frame stay (default 138 = through RETH under SRv6 with TSETH), BTH and
after as sent; both IPv6 payload lengths and the UDP length are corrected, the UDP checksum is 0, ICRC
and pad go, and the outermost DSCP says that it happened, and where.
"""

from __future__ import annotations

from dataclasses import replace

from openmrc.errors import WireError
from openmrc.wire.bth import Bth
from openmrc.wire.dscp import DscpClass
from openmrc.wire.ethernet import Ethernet, find_ip
from openmrc.wire.icrc import ICRC_BYTES
from openmrc.wire.ipv4 import IPv4
from openmrc.wire.ipv6 import IPv6
from openmrc.wire.meth import Meth, Tseth
from openmrc.wire.packet import Packet, parse_ip_packet
from openmrc.wire.settings import DEFAULT_SETTINGS, WireSettings
from openmrc.wire.sizes import DEFAULT_TRIM_BYTES
from openmrc.wire.udp import Udp


def trim_frame(
    frame: bytes,
    trim_bytes: int = DEFAULT_TRIM_BYTES,
    last_hop: bool = False,
    settings: WireSettings = DEFAULT_SETTINGS,
) -> bytes:
    """Return what a switch leaves of a data packet's frame.

    Parameters
    ----------
    frame
        A whole frame from its Ethernet header on.
    trim_bytes
        How much of the frame to keep, Ethernet header included, FCS not. 128 cuts RETH under SRv6.
    last_hop
        True on the port that faces the NIC: TRIMMED_LASTHOP instead of TRIMMED.

    Returns
    -------
    bytes
        The trimmed frame; a frame that was trimmed before comes back as it is (it keeps TRIMMED).

    Raises
    ------
    WireError
        No MRC data packet, or ``trim_bytes`` cuts METH or TSETH, without which no NACK can be made.
    """
    frame = bytes(frame)
    _, ip_offset = find_ip(frame)
    kept = trim_ip_packet(frame[ip_offset:], trim_bytes - ip_offset, last_hop, settings)
    return frame[:ip_offset] + kept


def trim_ip_packet(
    data: bytes,
    keep_bytes: int = DEFAULT_TRIM_BYTES - Ethernet.SIZE,
    last_hop: bool = False,
    settings: WireSettings = DEFAULT_SETTINGS,
) -> bytes:
    """Return what is left of a packet that starts with its (outer) IP header; see :func:`trim_frame`.

    ``keep_bytes`` counts from that IP header on.
    """
    packet = parse_ip_packet(data, settings)
    if packet.trimmed is not None:
        return bytes(data)
    if not packet.opcode.is_data:
        raise WireError(f"{packet.opcode.label}: only data packets are trimmed; drop it or send it whole")
    headers_end, udp_offset = _header_ends(packet)
    if keep_bytes < headers_end:
        raise WireError(
            f"trim_bytes: keeps {keep_bytes} bytes from the IP header on, "
            f"but a NACK needs {headers_end} (through METH and TSETH); raise it by {headers_end - keep_bytes}"
        )
    ip_end = udp_offset + packet.udp.length
    kept = bytearray(data[: min(keep_bytes, ip_end - ICRC_BYTES - packet.bth.pad)])
    _correct_lengths(kept, packet, udp_offset)
    trimmed = DscpClass.TRIMMED_LASTHOP if last_hop else DscpClass.TRIMMED
    return with_traffic_class(bytes(kept), dscp=settings.dscp.value_of(trimmed))


def _header_ends(packet: Packet) -> tuple[int, int]:
    """Return (end of METH and TSETH, start of UDP), from the outermost IP header on."""
    udp_offset = packet.ip.SIZE + (IPv6.SIZE if packet.outer is not None else 0)
    tseth_bytes = Tseth.SIZE if packet.tseth is not None else 0
    return udp_offset + Udp.SIZE + Bth.SIZE + Meth.SIZE + tseth_bytes, udp_offset


def _correct_lengths(kept: bytearray, packet: Packet, udp_offset: int) -> None:
    udp_length = len(kept) - udp_offset
    kept[udp_offset + 4 : udp_offset + 8] = udp_length.to_bytes(2, "big") + bytes(2)
    inner_offset = udp_offset - packet.ip.SIZE
    if isinstance(packet.ip, IPv4):
        ip = replace(packet.ip, total_length=len(kept) - inner_offset).with_checksum()
        kept[inner_offset:udp_offset] = ip.to_bytes()
    else:
        kept[inner_offset + 4 : inner_offset + 6] = udp_length.to_bytes(2, "big")
    if packet.outer is not None:
        kept[4:6] = (len(kept) - IPv6.SIZE).to_bytes(2, "big")


def with_traffic_class(data: bytes, dscp: int | None = None, ecn: int | None = None) -> bytes:
    """Return a packet whose outermost IP header has other DSCP or ECN bits; None leaves them.

    The ICRC stays right: it does not cover them.
    """
    header = (IPv6 if data[:1] and data[0] >> 4 == 6 else IPv4).parse(data)
    changed = replace(
        header, dscp=header.dscp if dscp is None else dscp, ecn=header.ecn if ecn is None else ecn
    )
    if isinstance(changed, IPv4):
        changed = changed.with_checksum()
    return changed.to_bytes() + data[changed.SIZE :]
