"""Strategies and sample packets shared by the wire tests."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import strategies as st

from openmrc.wire import (
    Aeth,
    Bth,
    CcState,
    Eeth,
    Erth,
    Ethernet,
    ImmDt,
    IPv4,
    IPv6,
    Meth,
    Mode,
    Neth,
    Opcode,
    Packet,
    Peth,
    Reth,
    Seth,
    Tseth,
    Udp,
    build_packet,
)
from openmrc.wire.layout import Header

VECTORS = Path(__file__).parent / "data" / "vectors"
HEADERS: tuple[type[Header], ...] = (
    Ethernet, IPv6, IPv4, Udp, Bth, Meth, Tseth, Reth, ImmDt, Aeth, Seth, CcState, Neth, Peth, Erth, Eeth,
)  # fmt: skip
NIC_A = bytes.fromhex("fd000000000000000000000000000001")
NIC_B = bytes.fromhex("fd000000000000000000000000000002")
CARRIER = bytes.fromhex("fcbbbbbb000100020003000400000000")
MAC = Ethernet(bytes.fromhex("020000000002"), bytes.fromhex("020000000001"))
CONTROL_HEADERS = {
    Opcode.TRANSPORT_ACK: Aeth,
    Opcode.SACK: Seth,
    Opcode.NACK: Neth,
    Opcode.RELIABILITY_PROBE: Peth,
    Opcode.ENDPOINT_REQUEST: Erth,
    Opcode.ENDPOINT_RESPONSE: Eeth,
}


def field_strategy(spec) -> st.SearchStrategy:
    if spec.kind == "b":
        return st.binary(min_size=spec.bits // 8, max_size=spec.bits // 8)
    if spec.kind == "s":
        return st.integers(-(1 << (spec.bits - 1)), (1 << (spec.bits - 1)) - 1)
    return st.integers(0, (1 << spec.bits) - 1)


def headers(header: type[Header], **fixed) -> st.SearchStrategy:
    """Every value of a header, each field over its whole range; ``fixed`` replaces strategies."""
    fields = {spec.name: field_strategy(spec) for spec in header._VALUES}
    return st.builds(header, **{**fields, **fixed})


@st.composite
def extensions(draw, opcode: Opcode, ts: int) -> list[Header]:
    """The headers that follow BTH under this opcode."""
    if opcode.is_data:
        found = [draw(headers(Meth)), draw(headers(Reth))]
        if ts:
            found.insert(1, draw(headers(Tseth)))
        if opcode.has_imm:
            found.append(draw(headers(ImmDt)))
        return found
    header = draw(headers(CONTROL_HEADERS[opcode]))
    found = [header]
    if isinstance(header, Seth) and (header.cc_type == 1 or (header.cc_type > 1 and draw(st.booleans()))):
        found.append(draw(headers(CcState)))
    return found


@st.composite
def packets(draw) -> dict:
    """Arguments of build_packet for any packet, in any mode, IPv4 included."""
    mode = draw(st.sampled_from(Mode))
    opcode = draw(st.sampled_from(Opcode))
    ts = draw(st.integers(0, 1)) if opcode.is_data else 0
    bth = draw(headers(Bth, opcode=st.just(opcode), ts=st.just(ts), pad=st.just(0)))
    ipv4 = mode is not Mode.SRV6 and draw(st.booleans())
    address = st.binary(min_size=4, max_size=4) if ipv4 else st.binary(min_size=16, max_size=16)
    outer = {}
    if mode is Mode.SRV6:
        outer = {"outer_source": draw(address), "outer_destination": draw(address)}
    return {
        "mode": mode,
        "bth": bth,
        "extensions": draw(extensions(opcode, ts)),
        "source": draw(address),
        "destination": draw(address),
        "entropy": draw(st.integers(0, 0xFFFF if ipv4 else 0xFFFFFFFF)),
        "payload": draw(st.binary(max_size=300)) if opcode.is_data else b"",
        # TRIMMED and TRIMMED_LASTHOP make a different packet of it
        "dscp": draw(st.integers(0, 63).filter(lambda dscp: dscp not in (16, 18))),
        "ecn": draw(st.integers(0, 3)),
        "hop_limit": draw(st.integers(0, 255)),
        "eth": draw(st.none() | headers(Ethernet)),
        **outer,
    }


def build(arguments: dict) -> bytes:
    """Call build_packet with what :func:`packets` drew."""
    rest = dict(arguments)
    return build_packet(rest.pop("mode"), rest.pop("bth"), *rest.pop("extensions"), **rest)


def sample(
    opcode: Opcode,
    mode: Mode = Mode.SRV6,
    payload: bytes = b"",
    *,
    ts: int = 1,
    rng: random.Random | None = None,
    eth: Ethernet | None = MAC,
    ipv4: bool = False,
    **marks: int,
) -> bytes:
    """A plain valid frame of this opcode; with ``rng``, its fields are drawn."""
    rng = rng or random.Random(1)
    ts = ts if opcode.is_data else 0
    bth = Bth(opcode, dest_qp=rng.getrandbits(24), ts=ts, psn=rng.getrandbits(24))
    if opcode.is_data:
        found: list[Header] = [Meth(rng.getrandbits(16), rng.getrandbits(16))]
        found += [Tseth(rng.getrandbits(16))] if ts else []
        found += [Reth(rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(31))]
        found += [ImmDt(rng.getrandbits(32))] if opcode.has_imm else []
    else:
        found = [CONTROL_HEADERS[opcode]()]
        if opcode is Opcode.SACK:
            found = [
                Seth(cack_psn=rng.getrandbits(24), bitmap=rng.getrandbits(64)),
                CcState(rng.getrandbits(16)),
            ]
    outer = {"outer_source": NIC_A, "outer_destination": CARRIER} if mode is Mode.SRV6 else {}
    source, destination = (b"\x0a\0\0\1", b"\x0a\0\0\2") if ipv4 else (NIC_A, NIC_B)
    return build_packet(
        mode, bth, *found, source=source, destination=destination, entropy=0x3C005, payload=payload,
        eth=eth, **outer, **marks,
    )  # fmt: skip


def inner_span(packet: Packet, frame: bytes) -> tuple[int, int]:
    """Return (start of the inner IP header, end of the ICRC) in a frame without VLAN tags."""
    start = (14 if packet.eth else 0) + (40 if packet.outer else 0)
    length = 40 + packet.ip.payload_length if isinstance(packet.ip, IPv6) else packet.ip.total_length
    assert start + length <= len(frame)
    return start, start + length
