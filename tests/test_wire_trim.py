"""Trimming of real bytes, the tunnel, uSID shifts."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import WireError
from openmrc.wire import (
    DscpClass,
    DscpMap,
    Ecn,
    IcrcVerdict,
    IPv6,
    Mode,
    Opcode,
    WireSettings,
    address_usids,
    decapsulate,
    encapsulate,
    parse_ip_packet,
    parse_packet,
    shift_usid,
    trim_frame,
    trim_ip_packet,
    usid_address,
)
from openmrc.wire.sizes import PacketKind, ip_bytes, min_trim_bytes
from openmrc.wire.trim import with_traffic_class
from wire_support import CARRIER, NIC_A, NIC_B, build, packets, sample

DATA = [opcode for opcode in Opcode if opcode.is_data]


def without_traffic_class_and_length(frame: bytes, ip_offsets: list[int]) -> bytes:
    """The frame with what trimming must correct blanked out: traffic class, IP and UDP length, checksum."""
    blank = bytearray(frame)
    for offset in ip_offsets:
        blank[offset : offset + 2] = bytes(2)
        blank[offset + 4 : offset + 6] = bytes(2)
    udp = ip_offsets[-1] + 40
    blank[udp + 4 : udp + 8] = bytes(4)
    return bytes(blank)


@pytest.mark.parametrize("last_hop", [False, True])
def test_trim_under_srv6_keeps_through_reth(last_hop):
    frame = sample(Opcode.WRITE_MIDDLE, payload=bytes(range(256)) * 16, ecn=Ecn.CE)
    whole = parse_packet(frame)
    cut = trim_frame(frame, last_hop=last_hop)
    packet = parse_packet(cut)
    assert len(cut) == 138
    assert packet.trimmed is (DscpClass.TRIMMED_LASTHOP if last_hop else DscpClass.TRIMMED)
    assert packet.icrc is IcrcVerdict.ABSENT
    assert (packet.outer.dscp, packet.outer.ecn) == (18 if last_hop else 16, Ecn.CE)
    assert packet.ip.dscp == 8  # switches mark the outermost header only
    assert (packet.bth, packet.meth, packet.tseth, packet.reth) == (
        whole.bth, whole.meth, whole.tseth, whole.reth,
    )  # fmt: skip
    assert (packet.payload, packet.remainder) == (b"", b"")
    assert packet.outer.payload_length == 138 - 14 - 40
    assert packet.ip.payload_length == packet.udp.length == 138 - 14 - 80
    assert packet.udp.checksum == 0
    assert without_traffic_class_and_length(cut, [14, 54]) == without_traffic_class_and_length(
        frame[:138], [14, 54]
    )
    assert packet.to_bytes() == cut


def test_trim_bytes_128_cuts_reth():
    packet = parse_packet(trim_frame(sample(Opcode.WRITE_FIRST, payload=bytes(4096)), 128))
    assert packet.reth is None
    assert len(packet.remainder) == 6
    assert packet.tseth is not None
    assert packet.icrc is IcrcVerdict.ABSENT


@settings(max_examples=200, deadline=None)
@given(packets(), st.integers(60, 200), st.booleans())
def test_trim_of_any_packet(arguments, trim_bytes, last_hop):
    frame = build(arguments)
    parse, trim = parse_packet, trim_frame
    if arguments["eth"] is None:
        parse, trim = parse_ip_packet, trim_ip_packet
    whole = parse(frame)
    pad_and_icrc = whole.bth.pad + 4
    if not whole.opcode.is_data:
        with pytest.raises(WireError, match="only data packets are trimmed"):
            trim(frame, trim_bytes, last_hop)
        return
    needed = len(frame) - pad_and_icrc - len(whole.payload) - 16 - (4 if whole.immdt else 0)
    if trim_bytes < needed:
        with pytest.raises(WireError, match=f"raise it by {needed - trim_bytes}"):
            trim(frame, trim_bytes, last_hop)
        return
    cut = trim(frame, trim_bytes, last_hop)
    packet = parse(cut)
    assert len(cut) == min(trim_bytes, len(frame) - pad_and_icrc)
    assert packet.icrc is IcrcVerdict.ABSENT
    assert packet.trimmed is (DscpClass.TRIMMED_LASTHOP if last_hop else DscpClass.TRIMMED)
    assert (packet.bth, packet.meth, packet.tseth) == (whole.bth, whole.meth, whole.tseth)
    assert packet.reth in (whole.reth, None)
    assert packet.entropy == whole.entropy
    assert packet.ecn_marked == whole.ecn_marked
    assert packet.to_bytes() == cut
    # a packet trimmed earlier keeps what it says, whatever the later hop is
    assert trim(cut, trim_bytes, not last_hop) == cut


@pytest.mark.parametrize("ipv4", [False, True])
def test_trim_without_outer_header(ipv4):
    frame = sample(Opcode.WRITE_ONLY, Mode.ECMP, b"p" * 500, ipv4=ipv4)
    packet = parse_packet(trim_frame(frame, 138))
    assert len(packet.remainder) == 138 - 14 - (20 if ipv4 else 40) - 8 - 12 - 4 - 4 - 16
    assert set(packet.remainder) == {ord("p")}
    assert packet.payload == b""  # what a switch kept is never payload
    assert packet.ip.dscp == 16


def test_trim_behind_vlan_tags_counts_them_as_frame():
    frame = sample(Opcode.WRITE_ONLY, payload=bytes(500))
    tagged = frame[:12] + bytes.fromhex("81000001") + frame[12:]
    cut = trim_frame(tagged, 138)
    assert len(cut) == 138
    assert cut[12:16].hex() == "81000001"
    assert len(parse_packet(cut).remainder) == 12  # RETH lost its last 4 bytes


def test_short_packets_lose_pad_and_icrc_only():
    frame = sample(Opcode.WRITE_ONLY, payload=b"abcde")
    cut = trim_frame(frame, 200)
    assert len(cut) == len(frame) - 3 - 4
    assert parse_packet(cut).remainder == b"abcde"
    assert parse_packet(cut).bth.pad == 3  # BTH as sent


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("ts", [0, 1])
@pytest.mark.parametrize("payload_bytes", [0, 1, 37, 38, 39, 40, 4096])
@pytest.mark.parametrize("trim_bytes", [128, 138])
def test_sizes_of_trimmed_packets(mode, ts, payload_bytes, trim_bytes):
    cut = trim_frame(sample(Opcode.WRITE_ONLY, mode, bytes(payload_bytes), ts=ts), trim_bytes)
    assert len(cut) - 14 == ip_bytes(
        PacketKind.TRIMMED, mode, payload_bytes, tseth=bool(ts), trim_bytes=trim_bytes
    )


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("ts", [0, 1])
def test_least_trim_bytes(mode, ts):
    frame = sample(Opcode.WRITE_ONLY, mode, bytes(100), ts=ts)
    least = min_trim_bytes(mode, bool(ts))
    packet = parse_packet(trim_frame(frame, least))
    assert packet.reth is None
    assert packet.remainder == b""
    with pytest.raises(WireError, match="through METH and TSETH"):
        trim_frame(frame, least - 1)


def test_a_control_packet_whose_dscp_says_trimmed_is_refused():
    frame = sample(Opcode.SACK)
    with pytest.raises(WireError, match="only data packets are ever trimmed"):
        parse_ip_packet(with_traffic_class(frame[14:], dscp=16))


def test_deployment_numbers():
    settings_17 = WireSettings(dscp=DscpMap(trimmed=17))
    cut = trim_frame(sample(Opcode.WRITE_ONLY, payload=bytes(500)), settings=settings_17)
    assert parse_packet(cut, settings_17).trimmed is DscpClass.TRIMMED
    # with other numbers it is a whole packet without a valid ICRC, or none at all
    with pytest.raises(WireError):
        parse_packet(cut)


def test_building_a_trimmed_packet_with_payload_or_control_opcode_is_refused():
    packet = parse_packet(trim_frame(sample(Opcode.WRITE_ONLY, payload=bytes(500))))
    with pytest.raises(WireError, match="remainder"):
        replace(packet, payload=b"x").to_bytes()
    sack = parse_packet(sample(Opcode.SACK))
    with pytest.raises(WireError, match="never trimmed"):
        replace(sack, trimmed=DscpClass.TRIMMED).to_bytes()


# --- the tunnel ---------------------------------------------------------------------------------


def test_encapsulation_is_what_srv6_building_makes():
    inner = sample(Opcode.WRITE_ONLY, Mode.STEV, b"abc", eth=None)
    outer = sample(Opcode.WRITE_ONLY, Mode.SRV6, b"abc", eth=None)
    assert encapsulate(inner, NIC_A, CARRIER) == outer
    assert decapsulate(outer) == inner


@pytest.mark.parametrize("dscp", [16, 18])
def test_decapsulation_copies_trimmed_inwards(dscp):
    cut = trim_ip_packet(sample(Opcode.WRITE_ONLY, payload=bytes(300), eth=None), last_hop=dscp == 18)
    inner = parse_ip_packet(decapsulate(cut))
    assert inner.outer is None
    assert inner.trimmed is parse_ip_packet(cut).trimmed is DscpMap().class_of(dscp)
    assert inner.reth == parse_ip_packet(cut).reth


RFC_6040_FIGURE_4 = {  # (inner, outer) -> outgoing; None = drop
    (Ecn.NOT_ECT, Ecn.NOT_ECT): Ecn.NOT_ECT, (Ecn.NOT_ECT, Ecn.ECT_0): Ecn.NOT_ECT,
    (Ecn.NOT_ECT, Ecn.ECT_1): Ecn.NOT_ECT, (Ecn.NOT_ECT, Ecn.CE): None,
    (Ecn.ECT_0, Ecn.NOT_ECT): Ecn.ECT_0, (Ecn.ECT_0, Ecn.ECT_0): Ecn.ECT_0,
    (Ecn.ECT_0, Ecn.ECT_1): Ecn.ECT_1, (Ecn.ECT_0, Ecn.CE): Ecn.CE,
    (Ecn.ECT_1, Ecn.NOT_ECT): Ecn.ECT_1, (Ecn.ECT_1, Ecn.ECT_0): Ecn.ECT_1,
    (Ecn.ECT_1, Ecn.ECT_1): Ecn.ECT_1, (Ecn.ECT_1, Ecn.CE): Ecn.CE,
    (Ecn.CE, Ecn.NOT_ECT): Ecn.CE, (Ecn.CE, Ecn.ECT_0): Ecn.CE,
    (Ecn.CE, Ecn.ECT_1): Ecn.CE, (Ecn.CE, Ecn.CE): Ecn.CE,
}  # fmt: skip


@pytest.mark.parametrize(("inner", "outer"), list(RFC_6040_FIGURE_4))
def test_ecn_combines_as_rfc_6040_says(inner, outer):
    packet = encapsulate(IPv6(ecn=inner).to_bytes(), NIC_A, NIC_B)
    packet = with_traffic_class(packet, ecn=outer)
    expected = RFC_6040_FIGURE_4[inner, outer]
    if expected is None:
        with pytest.raises(WireError, match="RFC 6040 drops it"):
            decapsulate(packet)
    else:
        assert IPv6.parse(decapsulate(packet)).ecn == expected


def test_decapsulation_of_something_else():
    with pytest.raises(WireError, match=r"outer IPv6.next_header: 17 where 41"):
        decapsulate(IPv6().to_bytes())
    with pytest.raises(WireError, match="says it ends at byte 140, but the data does at 40"):
        decapsulate(IPv6(next_header=41, payload_length=100).to_bytes())


# --- uSIDs --------------------------------------------------------------------------------------


def test_shift_walks_the_carrier():
    address = ipaddress.IPv6Address("fcbb:bbbb:a:b:c:d:e:f").packed
    seen = []
    for _ in range(7):
        seen.append(str(ipaddress.IPv6Address(address)))
        address = shift_usid(address)
    assert seen == [
        "fcbb:bbbb:a:b:c:d:e:f", "fcbb:bbbb:b:c:d:e:f:0", "fcbb:bbbb:c:d:e:f::", "fcbb:bbbb:d:e:f::",
        "fcbb:bbbb:e:f::", "fcbb:bbbb:f::", "fcbb:bbbb::",
    ]  # fmt: skip


@given(st.integers(0, 0xFFFFFFFF), st.lists(st.integers(1, 0xFFFF), max_size=6))
def test_shift_removes_the_first_usid(block, usids):
    address = usid_address(block, tuple(usids))
    assert address_usids(address) == tuple(usids)
    assert address_usids(shift_usid(address)) == tuple(usids[1:])
    assert shift_usid(address)[:4] == address[:4]


@pytest.mark.parametrize(("block", "usids"), [(1 << 32, ()), (0, (0,)), (0, (1 << 16,)), (0, (1,) * 7)])
def test_addresses_that_cannot_be(block, usids):
    with pytest.raises(WireError):
        usid_address(block, usids)


def test_shift_of_no_address():
    with pytest.raises(WireError, match="4 bytes where 16"):
        shift_usid(bytes(4))
