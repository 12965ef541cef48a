"""Sizes of packets as plain integers: on the line, and from the outer IPv6 header to the ICRC.

The simulator takes its sizes from here, and a test compares every one with a packet that was built.
"Byte times" include all that a packet occupies on the line: preamble 8, Ethernet header 14, FCS 4 and
inter-frame gap 12.
"""

from __future__ import annotations

from enum import Enum

from openmrc.errors import WireError
from openmrc.wire.aeth import Aeth
from openmrc.wire.bth import Bth
from openmrc.wire.endpoint import Eeth, Erth
from openmrc.wire.ethernet import Ethernet
from openmrc.wire.icrc import ICRC_BYTES
from openmrc.wire.ipv6 import IPv6
from openmrc.wire.layout import Header
from openmrc.wire.meth import Meth, Tseth
from openmrc.wire.neth import Neth
from openmrc.wire.peth import Peth
from openmrc.wire.reth import ImmDt, Reth
from openmrc.wire.seth import CcState, Seth
from openmrc.wire.settings import Mode
from openmrc.wire.udp import Udp

PREAMBLE_BYTES = 8
FCS_BYTES = 4
GAP_BYTES = 12
MIN_FRAME_BYTES = 60  # without FCS; shorter frames are padded (IEEE 802.3)
LINE_OVERHEAD_BYTES = PREAMBLE_BYTES + FCS_BYTES + GAP_BYTES
DEFAULT_TRIM_BYTES = 138  # of the frame: through RETH under SRv6 with TSETH


class PacketKind(Enum):
    """The packets that cross a link, by what decides their size."""

    DATA = "data"
    SACK = "sack"
    NACK = "nack"
    TRANSPORT_ACK = "transport_ack"
    RELIABILITY_PROBE = "reliability_probe"
    ENDPOINT_REQUEST = "endpoint_request"
    ENDPOINT_RESPONSE = "endpoint_response"
    TRIMMED = "trimmed"


_CONTROL_HEADER: dict[PacketKind, type[Header]] = {
    PacketKind.SACK: Seth,
    PacketKind.NACK: Neth,
    PacketKind.TRANSPORT_ACK: Aeth,
    PacketKind.RELIABILITY_PROBE: Peth,
    PacketKind.ENDPOINT_REQUEST: Erth,
    PacketKind.ENDPOINT_RESPONSE: Eeth,
}


def data_header_bytes(mode: Mode, tseth: bool = True, imm: bool = False) -> int:
    """Return the bytes of a data packet from its outermost IPv6 header to the payload."""
    ip = IPv6.SIZE * (2 if mode is Mode.SRV6 else 1)
    body = Meth.SIZE + Reth.SIZE + (Tseth.SIZE if tseth else 0) + (ImmDt.SIZE if imm else 0)
    return ip + Udp.SIZE + Bth.SIZE + body


def ip_bytes(
    kind: PacketKind,
    mode: Mode,
    payload_bytes: int = 0,
    *,
    tseth: bool = True,
    imm: bool = False,
    cc_state: bool = True,
    trim_bytes: int = DEFAULT_TRIM_BYTES,
) -> int:
    """Return the bytes of a packet from its outermost IPv6 header to its ICRC.

    Parameters
    ----------
    kind, mode
        Which packet, in which forwarding mode.
    payload_bytes
        DATA and TRIMMED (of the untrimmed packet) only; padded to a multiple of 4 in DATA.
    tseth, imm
        DATA and TRIMMED: whether TSETH and ImmDt are there. First, Middle, Last and Only do not differ.
    cc_state
        SACK: whether CC_STATE follows.
    trim_bytes
        TRIMMED: what a switch keeps of the frame; a short packet loses only its pad and ICRC.

    Examples
    --------
    >>> ip_bytes(PacketKind.DATA, Mode.SRV6, 4096), ip_bytes(PacketKind.SACK, Mode.SRV6)
    (4224, 140)
    """
    if payload_bytes < 0 or (payload_bytes and kind not in (PacketKind.DATA, PacketKind.TRIMMED)):
        raise WireError(f"payload_bytes: {payload_bytes} in a packet of kind {kind.value}; use 0")
    if kind in (PacketKind.DATA, PacketKind.TRIMMED):
        unpadded = data_header_bytes(mode, tseth, imm) + payload_bytes
        if kind is PacketKind.TRIMMED:
            return _trimmed_ip_bytes(mode, unpadded, tseth, trim_bytes)
        return unpadded + -payload_bytes % 4 + ICRC_BYTES
    ip = IPv6.SIZE * (2 if mode is Mode.SRV6 else 1)
    body = _CONTROL_HEADER[kind].SIZE
    if kind is PacketKind.SACK and cc_state:
        body += CcState.SIZE
    return ip + Udp.SIZE + Bth.SIZE + body + ICRC_BYTES


def _trimmed_ip_bytes(mode: Mode, unpadded_bytes: int, tseth: bool, trim_bytes: int) -> int:
    least = min_trim_bytes(mode, tseth)
    if trim_bytes < least:
        raise WireError(f"trim_bytes: {trim_bytes} cuts METH or TSETH; use at least {least}")
    return min(trim_bytes - Ethernet.SIZE, unpadded_bytes)


def min_trim_bytes(mode: Mode, tseth: bool = True) -> int:
    """Return the least bytes of a frame from which a NACK can be made: through METH and TSETH.

    >>> min_trim_bytes(Mode.SRV6), min_trim_bytes(Mode.STEV)
    (122, 82)
    """
    return Ethernet.SIZE + data_header_bytes(mode, tseth) - Reth.SIZE


def line_bytes_of_ip(size_bytes: int) -> int:
    """Return the byte times on the line of an IP packet of ``size_bytes``.

    >>> line_bytes_of_ip(140), line_bytes_of_ip(28)
    (178, 84)
    """
    return max(size_bytes + Ethernet.SIZE, MIN_FRAME_BYTES) + LINE_OVERHEAD_BYTES


def line_bytes(
    kind: PacketKind,
    mode: Mode,
    payload_bytes: int = 0,
    *,
    tseth: bool = True,
    imm: bool = False,
    cc_state: bool = True,
    trim_bytes: int = DEFAULT_TRIM_BYTES,
) -> int:
    """Return the byte times that a packet occupies on the line; parameters as :func:`ip_bytes`.

    >>> line_bytes(PacketKind.DATA, Mode.SRV6, 4096), line_bytes(PacketKind.DATA, Mode.STEV, 4096)
    (4262, 4222)
    """
    return line_bytes_of_ip(
        ip_bytes(kind, mode, payload_bytes, tseth=tseth, imm=imm, cc_state=cc_state, trim_bytes=trim_bytes)
    )


def ceiling_bps(rate_bps: int, mode: Mode, pmtu_bytes: int = 4096, tseth: bool = True) -> int:
    """Return the payload rate of a line that carries nothing but full data packets.

    >>> ceiling_bps(800_000_000_000, Mode.SRV6)
    768840919755
    """
    return rate_bps * pmtu_bytes // line_bytes(PacketKind.DATA, mode, pmtu_bytes, tseth=tseth)
