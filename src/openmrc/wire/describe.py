"""A parsed packet in words: a dictionary for JSON, and one line of text (``mrc decode``)."""

from __future__ import annotations

import ipaddress
from dataclasses import asdict
from typing import Any

from openmrc.wire.aeth import Aeth, syndrome_name
from openmrc.wire.dscp import Ecn
from openmrc.wire.endpoint import EndpointOp
from openmrc.wire.icrc import IcrcVerdict
from openmrc.wire.neth import Neth, reason_name
from openmrc.wire.opcodes import Opcode
from openmrc.wire.packet import EXTENSIONS, Oddity, Packet
from openmrc.wire.seth import PSN_MASK, PathMark, Seth
from openmrc.wire.settings import DEFAULT_SETTINGS, WireSettings
from openmrc.wire.usid import address_usids


def address_text(address: bytes) -> str:
    """Return an IP address (4 or 16 bytes) as people write it."""
    return str(ipaddress.ip_address(address))


def psn_ranges(psns: list[int]) -> list[tuple[int, int]]:
    """Return runs of consecutive PSNs as (first, last), across the wrap; ``psns`` in serial order.

    >>> psn_ranges([0xFFFFFF, 0, 1, 5])
    [(16777215, 1), (5, 5)]
    """
    runs: list[tuple[int, int]] = []
    for psn in psns:
        if runs and psn == (runs[-1][1] + 1) & PSN_MASK:
            runs[-1] = (runs[-1][0], psn)
        else:
            runs.append((psn, psn))
    return runs


def _mark_name(value: int) -> str:
    return PathMark(value).name if value in PathMark._value2member_map_ else str(value)


def _op_name(value: int) -> str:
    return EndpointOp(value).name if value in EndpointOp._value2member_map_ else str(value)


def packet_to_dict(packet: Packet, settings: WireSettings = DEFAULT_SETTINGS) -> dict[str, Any]:
    """Return everything known about a packet, ready for JSON.

    64-bit fields (``reth.va``, ``seth.bitmap``) are hexadecimal strings, since JSON numbers lose them.

    Examples
    --------
    >>> from openmrc.wire import Bth, Mode, build_packet, parse_ip_packet
    >>> data = build_packet(Mode.STEV, Bth(opcode=Opcode.SACK), Seth(cc_type=0, sack_offset=1, bitmap=7),
    ...     source=bytes(16), destination=bytes(16), entropy=5)
    >>> packet_to_dict(parse_ip_packet(data))["seth"]["received"]
    [[1, 3]]
    """
    outermost = packet.outer or packet.ip
    out: dict[str, Any] = {
        "src": address_text(packet.ip.source),
        "dst": address_text(packet.ip.destination),
        "outer_src": None,
        "outer_dst": None,
        "usids": [],
        "ev": packet.entropy,
        "udp_destination_port": packet.udp.destination_port,
        "dscp": outermost.dscp,
        "dscp_class": settings.dscp.class_of(outermost.dscp).name,
        "ecn": Ecn(outermost.ecn).name,
        "ecn_marked": packet.ecn_marked,
        "opcode": packet.bth.opcode,
        "opcode_name": packet.opcode.label,
        "psn": packet.bth.psn,
        "dest_qp": packet.bth.dest_qp,
        "ack_request": bool(packet.bth.ack_request),
        "rtx": bool(packet.bth.rtx),
        "payload_bytes": len(packet.payload),
        "trimmed": None if packet.trimmed is None else packet.trimmed.name,
        "icrc": packet.icrc.value,
        "oddities": [flag.name for flag in Oddity if flag and flag in packet.oddities],
    }
    if packet.outer is not None:
        out["outer_src"] = address_text(packet.outer.source)
        out["outer_dst"] = address_text(packet.outer.destination)
        out["usids"] = list(address_usids(packet.outer.destination))
    for name in EXTENSIONS:
        header = getattr(packet, name)
        if header is not None:
            out[name] = asdict(header)
    _add_derived(out, packet)
    return out


def _add_derived(out: dict[str, Any], packet: Packet) -> None:
    """Add what people want to read besides the raw fields."""
    if packet.reth is not None:
        out["reth"]["va"] = f"0x{packet.reth.va:x}"
    if packet.seth is not None:
        seth = packet.seth
        out["seth"].update(
            bitmap=f"0x{seth.bitmap:016x}",
            m_name=_mark_name(seth.m),
            received=[list(run) for run in psn_ranges(seth.received_psns())],
            probe_id=seth.probe_id if seth.pr else None,
            acked_psn=None if seth.pr else seth.acked_psn,
        )
    if packet.neth is not None:
        out["neth"]["reason_name"] = reason_name(packet.neth.reason)
    if packet.aeth is not None:
        out["aeth"]["syndrome_name"] = syndrome_name(packet.aeth.syndrome)
    for name in ("erth", "eeth"):
        if name in out:
            out[name]["op_name"] = _op_name(out[name]["op"])


def packet_to_line(packet: Packet, settings: WireSettings = DEFAULT_SETTINGS) -> str:
    """Return one line of text: addresses, uSIDs, EV, opcode, PSN, what the headers say, ICRC verdict."""
    bth = packet.bth
    parts = [f"{address_text(packet.ip.source)} > {address_text(packet.ip.destination)}"]
    if packet.outer is not None:
        usids = address_usids(packet.outer.destination)
        parts.append("usid " + (":".join(f"{usid:x}" for usid in usids) or "none"))
    parts.append(f"EV 0x{packet.entropy:08x}")
    parts.append(packet.opcode.label)
    if packet.opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE):
        parts.append(f"id {bth.psn & 0xFFFF}")
    else:
        parts.append(f"psn {bth.psn}")
    parts.append(f"qp 0x{bth.dest_qp:x}")
    parts += _flags(packet, settings)
    parts += _details(packet)
    verdict = "BAD" if packet.icrc is IcrcVerdict.BAD else packet.icrc.value
    parts.append(f"icrc {verdict}")
    parts += [f"[{flag.name.lower()}]" for flag in Oddity if flag and flag in packet.oddities and flag.name]
    return " ".join(parts)


def _flags(packet: Packet, settings: WireSettings) -> list[str]:
    flags = []
    if packet.bth.ack_request:
        flags.append("A")
    if packet.bth.rtx:
        flags.append("rtx")
    if packet.ecn_marked:
        flags.append("CE")
    if packet.trimmed is not None:
        flags.append(packet.trimmed.name)
    return flags


def _details(packet: Packet) -> list[str]:
    parts: list[str] = []
    if packet.meth is not None:
        parts.append(f"msn {packet.meth.msn} rqmsn {packet.meth.rqmsn}")
    if packet.tseth is not None:
        parts.append(f"ts {packet.tseth.tx_timestamp}")
    if packet.opcode.is_data and packet.trimmed is None:
        parts.append(f"len {len(packet.payload)}")
    if packet.reth is not None:
        reth = packet.reth
        parts.append(f"va 0x{reth.va:x} rkey 0x{reth.r_key:x} dmalen {reth.dma_length}")
    elif packet.opcode.is_data:
        parts.append("reth cut")
    if packet.immdt is not None:
        parts.append(f"imm 0x{packet.immdt.imm:08x}")
    if packet.seth is not None:
        parts += _seth_details(packet.seth)
    if packet.cc_state is not None:
        cc = packet.cc_state
        restore = " restore" if cc.restore_cwnd else ""
        parts.append(
            f"cc ts {cc.tx_timestamp} ooo {cc.ooo_count} pen {cc.rcv_cwnd_pen}{restore} "
            f"rcvd {cc.rcvd_bytes_256}*256B"
        )
    if packet.neth is not None:
        parts += _neth_details(packet.neth)
    if packet.aeth is not None:
        parts += _aeth_details(packet.aeth)
    if packet.peth is not None:
        parts.append(f"probe {packet.peth.probe_id} ts {packet.peth.tx_timestamp}")
    if packet.erth is not None:
        erth = packet.erth
        parts.append(f"{_op_name(erth.op)} ports 0x{erth.port_status_mask:08x} ts {erth.tx_timestamp}")
    if packet.eeth is not None:
        parts.append(f"{_op_name(packet.eeth.op)} ts {packet.eeth.tx_timestamp}")
    return parts


def _seth_details(seth: Seth) -> list[str]:
    drawn_by = f"probe {seth.probe_id}" if seth.pr else f"acks {seth.acked_psn}"
    runs = psn_ranges(seth.received_psns())
    got = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return [
        f"cack {seth.cack_psn} {drawn_by} offset {seth.sack_offset:+d} got {got or 'none'}",
        f"m {_mark_name(seth.m)} mpr {seth.mpr} echo 0x{seth.entropy:08x}",
    ]


def _neth_details(neth: Neth) -> list[str]:
    return [
        f"reason {reason_name(neth.reason)} nack_psn {neth.nack_psn} "
        f"echo 0x{neth.entropy:08x} ts {neth.tx_timestamp}"
    ]


def _aeth_details(aeth: Aeth) -> list[str]:
    return [f"{syndrome_name(aeth.syndrome)} msn {aeth.msn}"]
