"""Whole packets: the parsed value, parsing, building.

``parse_packet`` reads a frame from its Ethernet header on, ``parse_ip_packet`` from its (outer) IP
header on. Both are total: whatever the bytes, they return a :class:`Packet` or raise
:class:`~openmrc.errors.WireError`, and never look past the length that the IP header states. A wrong
ICRC is no parse error but a verdict, so that it can be counted and shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Any

from openmrc.errors import WireError
from openmrc.wire.aeth import Aeth
from openmrc.wire.bth import Bth
from openmrc.wire.dscp import DscpClass, Ecn, default_class
from openmrc.wire.endpoint import Eeth, Erth
from openmrc.wire.entropy import entropy_to_fields, fields_to_entropy
from openmrc.wire.ethernet import ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, find_ip
from openmrc.wire.icrc import ICRC_BYTES, IcrcVerdict, append_icrc, compute_icrc
from openmrc.wire.ipv4 import IPv4
from openmrc.wire.ipv6 import NEXT_HEADER_IPV6, NEXT_HEADER_UDP, IPv6
from openmrc.wire.layout import Header
from openmrc.wire.meth import Meth, Tseth
from openmrc.wire.neth import Neth
from openmrc.wire.opcodes import BY_VALUE, Opcode
from openmrc.wire.peth import Peth
from openmrc.wire.reth import ImmDt, Reth
from openmrc.wire.seth import CC_TYPE_CC_STATE, CC_TYPE_NONE, CcState, Seth
from openmrc.wire.settings import ALTERNATE_UDP_PORT, DEFAULT_SETTINGS, Mode, WireSettings
from openmrc.wire.udp import Udp

#: attribute of Packet -> header class, in wire order
EXTENSIONS: dict[str, type[Header]] = {
    "meth": Meth,
    "tseth": Tseth,
    "reth": Reth,
    "immdt": ImmDt,
    "aeth": Aeth,
    "seth": Seth,
    "cc_state": CcState,
    "neth": Neth,
    "peth": Peth,
    "erth": Erth,
    "eeth": Eeth,
}
_ATTRIBUTE_OF = {header: name for name, header in EXTENSIONS.items()}

#: control opcode -> attribute of the one extension header that follows BTH
CONTROL_EXTENSION = {
    Opcode.TRANSPORT_ACK: "aeth",
    Opcode.SACK: "seth",
    Opcode.NACK: "neth",
    Opcode.RELIABILITY_PROBE: "peth",
    Opcode.ENDPOINT_REQUEST: "erth",
    Opcode.ENDPOINT_RESPONSE: "eeth",
}


class Oddity(IntFlag):
    """Things that are accepted but counted (see :mod:`openmrc.wire.counters`)."""

    NONE = 0
    ALTERNATE_PORT = 1  # UDP destination port 4971
    UNKNOWN_CC_TYPE = 2  # SETH.cc_type neither 0 nor 1: the length decided about CC_STATE
    TS_ON_CONTROL = 4  # BTH.ts set on an opcode that never carries TSETH


@dataclass(frozen=True, slots=True)
class Packet:
    """A parsed packet; headers that it does not have are None.

    Attributes
    ----------
    eth, outer, ip, udp, bth
        Link header (None when parsed from IP on), outer IPv6 (SRv6 only), inner IP, UDP, BTH.
    meth .. eeth
        The headers behind BTH.
    payload
        Without pad. Always empty in a trimmed packet.
    icrc
        The verdict; ABSENT in a trimmed packet, whose fields serve for a NACK only.
    trimmed
        The class that says so (TRIMMED or TRIMMED_LASTHOP), or None.
    remainder
        Trimmed packets: the unverified bytes kept behind the last whole header.
    oddities
        What was accepted but should be counted.
    """

    ip: IPv6 | IPv4
    udp: Udp
    bth: Bth
    eth: Ethernet | None = None
    outer: IPv6 | None = None
    meth: Meth | None = None
    tseth: Tseth | None = None
    reth: Reth | None = None
    immdt: ImmDt | None = None
    aeth: Aeth | None = None
    seth: Seth | None = None
    cc_state: CcState | None = None
    neth: Neth | None = None
    peth: Peth | None = None
    erth: Erth | None = None
    eeth: Eeth | None = None
    payload: bytes = b""
    icrc: IcrcVerdict = IcrcVerdict.OK
    trimmed: DscpClass | None = None
    remainder: bytes = b""
    oddities: Oddity = Oddity.NONE

    @property
    def opcode(self) -> Opcode:
        """BTH.opcode as a member of :class:`Opcode`."""
        return BY_VALUE[self.bth.opcode]

    @property
    def entropy(self) -> int:
        """The entropy value of the packet (over IPv4: the low half, zero filled)."""
        label = self.ip.flow_label if isinstance(self.ip, IPv6) else 0
        return fields_to_entropy(self.udp.source_port, label)

    @property
    def ecn_marked(self) -> bool:
        """True when a switch set CE on the outer header, or on the inner (RFC 6040)."""
        return self.ip.ecn == Ecn.CE or (self.outer is not None and self.outer.ecn == Ecn.CE)

    def to_bytes(self) -> bytes:
        """Return the packet's bytes: lengths, pad, IPv4 checksum, UDP checksum 0 and ICRC are made anew.

        A packet with a bad ICRC therefore becomes one with a right ICRC.

        Raises
        ------
        WireError
            A field out of range, or headers that do not belong to the opcode.
        """
        _check_composition(self)
        pad = -len(self.payload) % 4
        body = b"".join(
            header.to_bytes() for name in EXTENSIONS if (header := getattr(self, name)) is not None
        )
        if self.trimmed is None:
            bth = replace(self.bth, pad=pad)
            tail, icrc_bytes = self.payload + bytes(pad), ICRC_BYTES
        else:
            # BTH and after stay as sent, so pad still speaks of the untrimmed packet
            bth, tail, icrc_bytes = self.bth, self.remainder, 0
        udp_length = Udp.SIZE + Bth.SIZE + len(body) + len(tail) + icrc_bytes
        udp = replace(self.udp, length=udp_length, checksum=0)
        inner = _ip_bytes(self.ip, udp_length) + udp.to_bytes() + bth.to_bytes() + body + tail
        if icrc_bytes:
            inner = append_icrc(inner)
        head = b"" if self.eth is None else self.eth.to_bytes()
        if self.outer is not None:
            outer = replace(self.outer, payload_length=len(inner), next_header=NEXT_HEADER_IPV6)
            head += outer.to_bytes()
        return head + inner


def _ip_bytes(ip: IPv6 | IPv4, udp_length: int) -> bytes:
    if isinstance(ip, IPv6):
        return replace(ip, payload_length=udp_length, next_header=NEXT_HEADER_UDP).to_bytes()
    return (
        replace(ip, total_length=IPv4.SIZE + udp_length, protocol=NEXT_HEADER_UDP).with_checksum().to_bytes()
    )


def _check_composition(packet: Packet) -> None:
    """Raise WireError when the headers present are not those that the opcode calls for."""
    opcode = BY_VALUE.get(packet.bth.opcode)
    if opcode is None:
        raise _unknown_opcode(packet.bth.opcode)
    needed = set()
    if opcode.is_data:
        needed = {"meth", "reth"} | ({"tseth"} if packet.bth.ts else set())
        needed |= {"immdt"} if opcode.has_imm else set()
    else:
        needed.add(CONTROL_EXTENSION[opcode])
    if packet.seth is not None and packet.seth.cc_type == CC_TYPE_CC_STATE:
        needed.add("cc_state")
    allowed = set(needed)
    if packet.seth is not None and packet.seth.cc_type > CC_TYPE_CC_STATE:
        allowed.add("cc_state")
    present = {name for name in EXTENSIONS if getattr(packet, name) is not None}
    if packet.trimmed is not None:
        needed -= {"reth", "immdt"}  # the cut may have taken them
    if not needed <= present or not present <= allowed:
        raise WireError(
            f"{opcode.label}: headers {sorted(present)} where {sorted(allowed)} belong (ts = {packet.bth.ts})"
        )
    if not opcode.is_data and (packet.payload or packet.trimmed is not None or packet.remainder):
        raise WireError(f"{opcode.label}: carries no payload and is never trimmed; use a data opcode")
    if packet.outer is not None and not isinstance(packet.ip, IPv6):
        raise WireError("outer IPv6 around IPv4: SRv6 mode carries IPv6 only; use ECMP or STEV")
    if packet.trimmed is not None and packet.payload:
        raise WireError("trimmed packet with payload: put what the switch kept into remainder")


def _unknown_opcode(value: int) -> WireError:
    return WireError(f"BTH.opcode: 0x{value:02x} is not an MRC opcode")


def parse_packet(frame: bytes, settings: WireSettings = DEFAULT_SETTINGS) -> Packet:
    """Return the packet in an Ethernet frame (no preamble; a trailing FCS or padding is ignored).

    Raises
    ------
    WireError
        The bytes are not a packet of MRC; the only error there is, whatever the bytes.

    Examples
    --------
    >>> frame = build_packet(Mode.ECMP, Bth(opcode=Opcode.TRANSPORT_ACK, dest_qp=9, psn=4), Aeth(msn=1),
    ...     source=bytes(15) + b"1", destination=bytes(15) + b"2", entropy=0x3C005, eth=Ethernet())
    >>> packet = parse_packet(frame)
    >>> packet.opcode.label, hex(packet.entropy), packet.aeth.msn, packet.icrc.value
    ('Transport ACK', '0x3c005', 1, 'ok')
    """
    frame = bytes(frame)
    eth, offset = find_ip(frame)
    return _parse_ip(frame, offset, eth, settings)


def parse_ip_packet(data: bytes, settings: WireSettings = DEFAULT_SETTINGS) -> Packet:
    """Return the packet in ``data``, which starts with its (outer) IP header; see :func:`parse_packet`."""
    return _parse_ip(bytes(data), 0, None, settings)


def _parse_ip(data: bytes, offset: int, eth: Ethernet | None, settings: WireSettings) -> Packet:
    outer: IPv6 | None = None
    ip, start, end = _parse_one_ip(data, offset, len(data))
    if isinstance(ip, IPv6) and ip.next_header == NEXT_HEADER_IPV6:
        outer = ip
        offset = start
        ip, start, inner_end = _parse_one_ip(data, offset, end)
        if not isinstance(ip, IPv6) or inner_end != end:
            raise WireError(
                f"inner IP at byte {offset}: ends at byte {inner_end}, the outer IPv6 at {end}; "
                "they must be IPv6 and end together"
            )
    protocol = ip.next_header if isinstance(ip, IPv6) else ip.protocol
    if protocol != NEXT_HEADER_UDP:
        raise WireError(f"IP next header: {protocol} is not UDP (17); MRC rides in UDP")
    return _parse_udp(data, offset, start, end, eth, outer, ip, settings)


def _parse_one_ip(data: bytes, offset: int, limit: int) -> tuple[IPv6 | IPv4, int, int]:
    """Return the header at ``offset``, where its payload starts and where it ends."""
    version = data[offset] >> 4 if offset < limit else 0
    ip: IPv6 | IPv4
    if version == 6:
        ip = IPv6.parse(data, offset, limit)
        start = offset + IPv6.SIZE
        end = start + ip.payload_length
    elif version == 4:
        ip = IPv4.parse(data, offset, limit)
        ip.verify()
        start = offset + IPv4.SIZE
        end = offset + ip.total_length
    else:
        raise WireError(f"IP at byte {offset}: version {version} of {limit - offset} bytes is not IP")
    if not start <= end <= limit:
        raise WireError(f"IP at byte {offset}: says it ends at byte {end}, but the data does at {limit}")
    return ip, start, end


def _parse_udp(
    data: bytes,
    ip_offset: int,
    offset: int,
    end: int,
    eth: Ethernet | None,
    outer: IPv6 | None,
    ip: IPv6 | IPv4,
    settings: WireSettings,
) -> Packet:
    udp = Udp.parse(data, offset, end)
    if udp.length != end - offset:
        raise WireError(f"UDP.length: {udp.length} where the IP header leaves {end - offset} bytes")
    oddities = Oddity.NONE
    if udp.destination_port != settings.udp_port:
        if udp.destination_port != ALTERNATE_UDP_PORT:
            raise WireError(f"UDP.destination_port: {udp.destination_port} is not MRC's {settings.udp_port}")
        oddities |= Oddity.ALTERNATE_PORT
    offset += Udp.SIZE
    bth = Bth.parse(data, offset, end)
    opcode = BY_VALUE.get(bth.opcode)
    if opcode is None:
        raise _unknown_opcode(bth.opcode)
    offset += Bth.SIZE
    trimmed = _trimmed_class(outer, ip, settings)
    if trimmed is not None:
        parts = _parse_trimmed(data, offset, end, bth, opcode)
        icrc = IcrcVerdict.ABSENT
    else:
        body_end = end - ICRC_BYTES
        # all headers and the padded payload are multiples of 4, so anything else is damage
        if body_end < offset or (end - offset) % 4:
            raise WireError(
                f"{opcode.label}: {end - offset} bytes behind BTH; a multiple of 4 with the ICRC must stand"
            )
        if opcode.is_data:
            parts = _parse_data(data, offset, body_end, bth, opcode)
        else:
            parts, more = _parse_control(data, offset, body_end, bth, opcode)
            if more:
                oddities |= more
        right = compute_icrc(data[ip_offset:body_end]) == data[body_end:end]
        icrc = IcrcVerdict.OK if right else IcrcVerdict.BAD
    return Packet(
        ip=ip, udp=udp, bth=bth, eth=eth, outer=outer, icrc=icrc, trimmed=trimmed, oddities=oddities, **parts
    )


def _trimmed_class(outer: IPv6 | None, ip: IPv6 | IPv4, settings: WireSettings) -> DscpClass | None:
    """Return the class by which a switch says that it trimmed; the outermost header speaks first."""
    for header in (outer, ip):
        if header is not None and settings.dscp.is_trimmed(header.dscp):
            return settings.dscp.class_of(header.dscp)
    return None


def _parse_data(data: bytes, offset: int, end: int, bth: Bth, opcode: Opcode) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name in _data_extensions(bth, opcode):
        header = EXTENSIONS[name]
        parts[name] = header.parse(data, offset, end)
        offset += header.SIZE
    if end - offset < bth.pad:
        raise WireError(f"BTH.pad: {bth.pad} bytes of pad where {end - offset} bytes are left")
    parts["payload"] = data[offset : end - bth.pad]
    return parts


def _data_extensions(bth: Bth, opcode: Opcode) -> tuple[str, ...]:
    names = ("meth", "tseth", "reth") if bth.ts else ("meth", "reth")
    return (*names, "immdt") if opcode.has_imm else names


def _parse_control(
    data: bytes, offset: int, end: int, bth: Bth, opcode: Opcode
) -> tuple[dict[str, Any], Oddity]:
    name = CONTROL_EXTENSION[opcode]
    header = EXTENSIONS[name].parse(data, offset, end)
    parts: dict[str, Any] = {name: header}
    offset += header.SIZE
    oddities = Oddity.TS_ON_CONTROL if bth.ts else Oddity.NONE
    if isinstance(header, Seth) and header.cc_type != CC_TYPE_NONE:
        follows = header.cc_type == CC_TYPE_CC_STATE
        if not follows:
            oddities |= Oddity.UNKNOWN_CC_TYPE
            follows = end - offset == CcState.SIZE
        if follows:
            parts["cc_state"] = CcState.parse(data, offset, end)
            offset += CcState.SIZE
    if offset != end or bth.pad:
        raise WireError(
            f"{opcode.label}: {end - offset} bytes behind its headers and pad {bth.pad}; both must be 0"
        )
    return parts, oddities


def _parse_trimmed(data: bytes, offset: int, end: int, bth: Bth, opcode: Opcode) -> dict[str, Any]:
    """Return what a switch left of a data packet: METH and TSETH must be there, RETH may be cut."""
    if not opcode.is_data:
        raise WireError(f"{opcode.label}: trimmed by its DSCP, but only data packets are ever trimmed")
    parts: dict[str, Any] = {}
    for name in _data_extensions(bth, opcode):
        header = EXTENSIONS[name]
        if name in ("reth", "immdt") and end - offset < header.SIZE:
            break
        parts[name] = header.parse(data, offset, end)
        offset += header.SIZE
    parts["remainder"] = data[offset:end]
    return parts


def build_packet(
    mode: Mode,
    bth: Bth,
    *extensions: Header,
    source: bytes,
    destination: bytes,
    entropy: int,
    payload: bytes = b"",
    outer_source: bytes | None = None,
    outer_destination: bytes | None = None,
    dscp: int | None = None,
    ecn: int | None = None,
    hop_limit: int = 64,
    eth: Ethernet | None = None,
    settings: WireSettings = DEFAULT_SETTINGS,
) -> bytes:
    """Return the bytes of a packet: from Ethernet on when ``eth`` is given, else from IP on.

    Parameters
    ----------
    mode
        SRV6 needs ``outer_source`` and ``outer_destination`` (the uSID carrier); STEV and ECMP refuse them.
    bth, extensions
        BTH and the headers behind it, in any order. Pad is filled in; ``ts`` must say whether TSETH is there.
    source, destination
        Inner addresses, 16 bytes; 4 bytes make an IPv4 packet (which drops the high half of the entropy).
    entropy
        Entropy value, 32 bit.
    payload
        Data packets only.
    dscp, ecn
        Of all IP headers; default by opcode: data is ECT(0), control is not ECN-capable.

    Raises
    ------
    WireError
        A field out of range, or headers that do not belong to the opcode or mode.

    Examples
    --------
    >>> from openmrc.wire.usid import usid_address
    >>> nic = bytes.fromhex("fcbbbbbb") + bytes(11)
    >>> frame = build_packet(Mode.SRV6, Bth(opcode=Opcode.WRITE_ONLY, dest_qp=7, ts=1), Meth(), Tseth(),
    ...     Reth(dma_length=4096), payload=bytes(4096), source=nic + b"1", destination=nic + b"2",
    ...     outer_source=nic + b"1", outer_destination=usid_address(0xFCBBBBBB, (1, 2, 3, 4)),
    ...     entropy=0x3C005, eth=Ethernet())
    >>> len(frame) + 24  # with preamble, FCS and gap
    4262
    """
    settings_dscp, default_ecn = _default_marks(bth, settings)
    dscp = settings_dscp if dscp is None else dscp
    ecn = default_ecn if ecn is None else ecn
    source_port, flow_label = entropy_to_fields(entropy)
    ip: IPv6 | IPv4
    if len(source) == 4:
        ip = IPv4(dscp=dscp, ecn=ecn, ttl=hop_limit, source=source, destination=destination)
    else:
        ip = IPv6(dscp, ecn, flow_label, hop_limit=hop_limit, source=source, destination=destination)
    outer = _outer_header(mode, outer_source, outer_destination)
    if outer is not None:
        # RFC 6438 wants entropy in a tunnel's label too; ours is that of the inner header (decision)
        outer = replace(outer, dscp=dscp, ecn=ecn, flow_label=flow_label, hop_limit=hop_limit)
    if eth is not None:
        eth = replace(eth, ethertype=ETHERTYPE_IPV4 if isinstance(ip, IPv4) else ETHERTYPE_IPV6)
    parts: dict[str, Any] = {}
    for header in extensions:
        name = _ATTRIBUTE_OF.get(type(header))
        if name is None or name in parts:
            raise WireError(f"{header!r}: no extension header of MRC, or given twice")
        parts[name] = header
    udp = Udp(source_port, settings.udp_port)
    return Packet(ip=ip, udp=udp, bth=bth, eth=eth, outer=outer, payload=bytes(payload), **parts).to_bytes()


def _default_marks(bth: Bth, settings: WireSettings) -> tuple[int, int]:
    dscp_class = default_class(bth.opcode, bool(bth.rtx))
    ecn = Ecn.NOT_ECT if dscp_class == DscpClass.CONTROL else Ecn.ECT_0
    return settings.dscp.value_of(dscp_class), ecn


def _outer_header(mode: Mode, source: bytes | None, destination: bytes | None) -> IPv6 | None:
    if mode is Mode.SRV6:
        if source is None or destination is None:
            raise WireError("mode srv6: outer_source and outer_destination (the uSID carrier) are missing")
        return IPv6(source=source, destination=destination)
    if source is not None or destination is not None:
        raise WireError(
            f"mode {mode.value}: has no outer header; leave outer_source and outer_destination out"
        )
    return None
