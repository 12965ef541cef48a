"""Whole packets: three modes, every opcode, mutations, ICRC, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from openmrc.errors import InputError, WireError
from openmrc.wire import (
    Aeth,
    Bth,
    CcState,
    DscpClass,
    DscpMap,
    Ecn,
    IcrcVerdict,
    ImmDt,
    IPv4,
    IPv6,
    Meth,
    Mode,
    Oddity,
    Opcode,
    Reth,
    Seth,
    Tseth,
    WireCounters,
    WireSettings,
    build_packet,
    default_class,
    entropy_to_fields,
    fields_to_entropy,
    parse_ip_packet,
    parse_packet,
    verify_icrc,
)
from openmrc.wire.icrc import append_icrc
from wire_support import CARRIER, MAC, NIC_A, NIC_B, build, inner_span, packets, sample

EVERY_KIND = [(mode, opcode) for mode in Mode for opcode in Opcode]


def kind_id(value) -> str:
    return value.name


@settings(max_examples=300, deadline=None)
@given(packets())
def test_round_trip_of_whole_packets(arguments):
    data = build(arguments)
    packet = (parse_ip_packet if arguments["eth"] is None else parse_packet)(data)
    assert packet.to_bytes() == data
    assert packet.icrc is IcrcVerdict.OK
    assert packet.trimmed is None
    assert packet.entropy == arguments["entropy"]
    assert packet.payload == arguments["payload"]
    assert packet.bth == replace(arguments["bth"], pad=-len(packet.payload) % 4)
    assert (packet.ip.source, packet.ip.destination) == (arguments["source"], arguments["destination"])
    assert (packet.outer is not None) == (arguments["mode"] is Mode.SRV6)
    for header in (packet.ip, packet.outer):
        if header is not None:
            assert (header.dscp, header.ecn) == (arguments["dscp"], arguments["ecn"])
    found = [packet.meth, packet.tseth, packet.reth, packet.immdt, packet.aeth, packet.seth, packet.cc_state]
    found += [packet.neth, packet.peth, packet.erth, packet.eeth]
    assert [header for header in found if header is not None] == arguments["extensions"]


@settings(max_examples=100, deadline=None)
@given(packets())
def test_what_follows_the_packet_is_not_looked_at(arguments):
    """Ethernet padding, an FCS, or somebody else's memory behind the IP length."""
    data = build(arguments)
    parse = parse_ip_packet if arguments["eth"] is None else parse_packet
    assert parse(data) == parse(data + b"\xa5" * 7) == parse(memoryview(data + bytes(60)))


@pytest.mark.parametrize(("mode", "opcode"), EVERY_KIND, ids=kind_id)
def test_every_truncation_is_a_wire_error(mode, opcode):
    frame = sample(opcode, mode, b"12345" if opcode.is_data else b"")
    assert parse_packet(frame).opcode is opcode
    for size in range(len(frame)):
        with pytest.raises(WireError):
            parse_packet(frame[:size])
        with pytest.raises(WireError):
            parse_ip_packet(frame[14 : 14 + max(size - 14, 0)])


def masked_bytes(ip_bytes: int) -> set[tuple[int, int]]:
    """(offset, bits) of the inner packet that the ICRC leaves out, written from RoCEv2 (IBTA Annex A17)."""
    if ip_bytes == 40:
        bits = {(0, 0x0F), (1, 0xFF), (2, 0xFF), (3, 0xFF), (7, 0xFF)}
    else:
        bits = {(1, 0xFF), (8, 0xFF), (10, 0xFF), (11, 0xFF)}
    return bits | {(ip_bytes + 6, 0xFF), (ip_bytes + 7, 0xFF), (ip_bytes + 12, 0xFF)}


@pytest.mark.parametrize("ipv4", [False, True], ids=["ipv6", "ipv4"])
def test_icrc_covers_every_bit_but_the_mutable_ones(ipv4):
    frame = sample(Opcode.WRITE_LAST_IMM, Mode.ECMP, b"seven b", ipv4=ipv4)
    inner = frame[14:]
    allowed = dict(masked_bytes(20 if ipv4 else 40))
    for offset in range(len(inner)):
        for bit in range(8):
            damaged = bytearray(inner)
            damaged[offset] ^= 1 << bit
            if offset == 0 and bit >= 4:
                continue  # the IP version: no longer a packet that has an ICRC
            assert verify_icrc(bytes(damaged)) == bool(allowed.get(offset, 0) >> bit & 1), (offset, bit)


@pytest.mark.parametrize(("mode", "opcode"), EVERY_KIND, ids=kind_id)
def test_one_flipped_bit_never_passes_for_a_good_packet(mode, opcode):
    """Each bit of each kind: refused, verdict BAD, or a bit that the ICRC leaves to the network."""
    frame = sample(opcode, mode, b"abcd" if opcode.is_data else b"")
    good = parse_packet(frame)
    start, end = inner_span(good, frame)
    verdicts = set()
    for offset in range(14, end):
        damaged = bytearray(frame)
        damaged[offset] ^= 1 << (offset % 8)
        try:
            packet = parse_packet(bytes(damaged))
        except WireError:
            verdicts.add("refused")
            continue
        verdicts.add(packet.icrc.value)
        if packet.icrc is IcrcVerdict.OK:
            mutable = {at for at, _ in masked_bytes(40)}
            assert offset < start or offset - start in mutable, offset
            assert packet.payload == good.payload
            assert packet.bth == good.bth
    assert {"refused", "bad", "ok"} <= verdicts


def test_icrc_survives_marking_and_shifting_and_hops():
    frame = bytearray(sample(Opcode.WRITE_ONLY, Mode.SRV6, b"x" * 100, ecn=Ecn.ECT_0))
    for ip_offset in (14, 54):
        frame[ip_offset + 1] |= 0x30  # CE in both headers
        frame[ip_offset + 7] -= 3
    frame[38:54] = CARRIER[:4] + CARRIER[6:] + bytes(2)
    packet = parse_packet(bytes(frame))
    assert packet.icrc is IcrcVerdict.OK
    assert packet.ecn_marked
    assert packet.outer.hop_limit == 61


def test_the_inner_destination_is_covered():
    frame = bytearray(sample(Opcode.WRITE_ONLY, Mode.SRV6, b"x"))
    frame[54 + 39] ^= 1
    assert parse_packet(bytes(frame)).icrc is IcrcVerdict.BAD


def test_pad_is_covered_and_cut_off():
    frame = sample(Opcode.WRITE_ONLY, payload=b"12345")
    packet = parse_packet(frame)
    assert (packet.bth.pad, packet.payload) == (3, b"12345")
    damaged = bytearray(frame)
    damaged[-5] ^= 1  # last pad byte
    assert parse_packet(bytes(damaged)).icrc is IcrcVerdict.BAD


def test_pad_longer_than_what_is_left():
    inner = bytearray(sample(Opcode.WRITE_ONLY, Mode.ECMP, b"", eth=None))
    inner[49] |= 0x30
    with pytest.raises(WireError, match=r"BTH.pad: 3 bytes of pad where 0 bytes are left"):
        parse_ip_packet(append_icrc(bytes(inner[:-4])))


def test_default_marks_follow_the_class():
    data = parse_packet(sample(Opcode.WRITE_MIDDLE, payload=bytes(8)))
    sack = parse_packet(sample(Opcode.SACK))
    probe = parse_packet(sample(Opcode.RELIABILITY_PROBE))
    assert (data.outer.dscp, data.ip.ecn) == (8, Ecn.ECT_0)
    assert (sack.outer.dscp, sack.ip.ecn) == (46, Ecn.NOT_ECT)
    assert (probe.outer.dscp, probe.ip.ecn) == (0, Ecn.ECT_0)
    assert default_class(Opcode.WRITE_FIRST, rtx=True) is DscpClass.TRIMMABLE_RETX
    assert default_class(Opcode.ENDPOINT_RESPONSE) is DscpClass.CONTROL


@pytest.mark.parametrize("entropy", [0, 1, 0xFFFF, 0x10000, 0x3C005, 0xFFFFFFFF])
def test_entropy_rides_in_port_and_label(entropy):
    port, label = entropy_to_fields(entropy)
    assert (port, label) == (entropy & 0xFFFF, entropy >> 16)
    assert fields_to_entropy(port, label) == entropy
    assert fields_to_entropy(port, label | 0xF0000) == entropy  # the top 4 bits of the label are not EV


@pytest.mark.parametrize("entropy", [-1, 1 << 32])
def test_entropy_out_of_range(entropy):
    with pytest.raises(WireError, match="does not fit 32 bits"):
        entropy_to_fields(entropy)


def test_ipv4_carries_the_low_half():
    packet = parse_packet(sample(Opcode.SACK, Mode.ECMP, ipv4=True))
    assert isinstance(packet.ip, IPv4)
    assert packet.entropy == 0xC005


def plain(mode: Mode, bth: Bth, *headers, **more) -> bytes:
    return build_packet(mode, bth, *headers, source=NIC_A, destination=NIC_B, entropy=1, **more)


def test_mode_and_outer_addresses_must_agree():
    with pytest.raises(WireError, match="mode srv6: outer_source and outer_destination"):
        plain(Mode.SRV6, Bth(Opcode.TRANSPORT_ACK), Aeth())
    for mode in (Mode.STEV, Mode.ECMP):
        with pytest.raises(WireError, match=f"mode {mode.value}: has no outer header"):
            plain(mode, Bth(Opcode.TRANSPORT_ACK), Aeth(), outer_destination=CARRIER)
    with pytest.raises(WireError, match="outer IPv6 around IPv4"):
        build_packet(
            Mode.SRV6, Bth(Opcode.TRANSPORT_ACK), Aeth(), source=bytes(4), destination=bytes(4), entropy=1,
            outer_source=NIC_A, outer_destination=CARRIER,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("bth", "headers", "payload"),
    [
        (Bth(Opcode.WRITE_ONLY), [Meth()], b""),  # no RETH
        (Bth(Opcode.WRITE_ONLY), [Meth(), Reth(), Tseth()], b""),  # TSETH, but ts = 0
        (Bth(Opcode.WRITE_ONLY, ts=1), [Meth(), Reth()], b""),  # ts = 1, but no TSETH
        (Bth(Opcode.WRITE_ONLY), [Meth(), Reth(), ImmDt()], b""),
        (Bth(Opcode.WRITE_ONLY_IMM), [Meth(), Reth()], b""),
        (Bth(Opcode.WRITE_ONLY), [Meth(), Meth(), Reth()], b""),
        (Bth(Opcode.SACK), [Seth(cc_type=1)], b""),  # CC_STATE must follow
        (Bth(Opcode.SACK), [Seth(cc_type=0), CcState()], b""),
        (Bth(Opcode.SACK), [Aeth()], b""),
        (Bth(Opcode.SACK), [Seth(cc_type=0)], b"x"),
        (Bth(Opcode.TRANSPORT_ACK), [], b""),
        (Bth(0x0A), [], b""),  # RoCEv2's WRITE Only is none of MRC's
        (Bth(Opcode.TRANSPORT_ACK), [Aeth(), IPv6()], b""),
    ],
)
def test_headers_that_do_not_belong_to_the_opcode(bth, headers, payload):
    with pytest.raises(WireError):
        plain(Mode.ECMP, bth, *headers, payload=payload)


def reframed(frame: bytes, cut: int, put: bytes) -> bytes:
    """A STEV packet (from IP on), ``put`` for the last ``cut`` bytes before the ICRC, lengths right."""
    inner = bytearray(frame[: len(frame) - 4 - cut] + put)
    length = (len(inner) - 40 + 4).to_bytes(2, "big")
    inner[4:6] = inner[44:46] = length
    return append_icrc(bytes(inner))


@pytest.mark.parametrize(
    ("cc_type", "follows", "oddity"),
    [(0, False, None), (1, True, None), (2, True, "cc"), (2, False, "cc"), (15, True, "cc")],
)
def test_cc_type_says_what_follows_seth_and_others_are_counted(cc_type, follows, oddity):
    headers = [Seth(cc_type=cc_type, bitmap=1), *([CcState(7)] if follows else [])]
    packet = parse_ip_packet(plain(Mode.STEV, Bth(Opcode.SACK), *headers))
    assert packet.cc_state == (CcState(7) if follows else None)
    assert packet.oddities == (Oddity.UNKNOWN_CC_TYPE if oddity else Oddity.NONE)
    counters = WireCounters()
    counters.count(packet)
    assert counters.unknown_cc_type == (oddity is not None)


@pytest.mark.parametrize(
    ("cc_type", "put"), [(0, b"1234"), (1, b""), (1, bytes(4)), (2, bytes(4)), (2, bytes(12))]
)
def test_sack_of_another_length_is_refused(cc_type, put):
    data = plain(Mode.STEV, Bth(Opcode.SACK), Seth(cc_type=0))
    body = bytearray(reframed(data, 0, put))
    body[40 + 8 + 12 + 16] = cc_type << 4
    with pytest.raises(WireError, match=r"SACK: .* behind its headers|CC_STATE at byte"):
        parse_ip_packet(append_icrc(bytes(body[:-4])))


def test_ts_bit_on_a_control_packet_is_ignored_and_counted():
    data = plain(Mode.STEV, Bth(Opcode.TRANSPORT_ACK, ts=1), Aeth())
    packet = parse_ip_packet(data)
    assert packet.oddities == Oddity.TS_ON_CONTROL
    assert packet.aeth == Aeth()


def test_the_port_that_the_specification_is_said_to_print():
    inner = bytearray(sample(Opcode.SACK, Mode.STEV, eth=None))
    inner[42:44] = (4971).to_bytes(2, "big")
    data = append_icrc(bytes(inner[:-4]))
    packet = parse_ip_packet(data)
    assert packet.oddities == Oddity.ALTERNATE_PORT
    assert packet.to_bytes() == data
    counters = WireCounters()
    counters.count(packet)
    assert str(counters) == "1 packet: 1 alternate port"
    assert parse_ip_packet(data, WireSettings(udp_port=4971)).oddities == Oddity.NONE
    with pytest.raises(WireError, match=r"UDP.destination_port: 4791 is not MRC's 5000"):
        parse_ip_packet(sample(Opcode.SACK, Mode.STEV, eth=None), WireSettings(udp_port=5000))


@pytest.mark.parametrize(
    ("offset", "put", "message"),
    [
        (4, b"\x00\x00", "UDP at byte 40: needs 8 bytes, 0 are left"),
        (4, b"\xff\xff", r"IP at byte 0: says it ends at byte 65575, but the data does at"),
        (6, b"\x06", r"IP next header: 6 is not UDP"),
        (6, b"\x29", r"IP at byte 40: version 12"),  # IPv6-in-IPv6 that is none
        (0, b"\x50", r"IP at byte 0: version 5"),
        (44, b"\x00\x08", r"UDP.length: 8 where the IP header leaves"),
        (42, b"\x00\x35", r"UDP.destination_port: 53 is not MRC's 4791"),
        (48, b"\x0a", r"BTH.opcode: 0x0a is not an MRC opcode"),
        (48, b"\xd1", r"Transport ACK: 32 bytes behind its headers and pad 0"),
    ],
)
def test_errors_name_the_field_and_what_was_expected(offset, put, message):
    inner = bytearray(sample(Opcode.SACK, Mode.STEV, eth=None))
    inner[offset : offset + len(put)] = put
    with pytest.raises(WireError, match=message):
        parse_ip_packet(bytes(inner))


def test_lengths_must_be_multiples_of_four():
    inner = sample(Opcode.WRITE_ONLY, Mode.STEV, b"1234", eth=None)
    with pytest.raises(WireError, match="multiple of 4"):
        parse_ip_packet(reframed(inner, 0, b"5"))


def test_outer_and_inner_must_end_together_and_nest_once():
    frame = sample(Opcode.SACK, Mode.SRV6, eth=None)
    longer = bytearray(frame + b"1234")
    longer[4:6] = (len(longer) - 40).to_bytes(2, "big")
    with pytest.raises(WireError, match="they must be IPv6 and end together"):
        parse_ip_packet(bytes(longer))
    outer = IPv6(payload_length=len(frame), next_header=41)
    with pytest.raises(WireError, match="IP next header: 41 is not UDP"):
        parse_ip_packet(outer.to_bytes() + frame)
    v4 = sample(Opcode.SACK, Mode.ECMP, eth=None, ipv4=True)
    with pytest.raises(WireError, match="they must be IPv6"):
        parse_ip_packet(IPv6(payload_length=len(v4), next_header=41).to_bytes() + v4)


def test_vlan_tags_are_read_past():
    frame = sample(Opcode.SACK)
    tagged = frame[:12] + bytes.fromhex("88a8000181000002") + frame[12:]
    assert parse_packet(tagged) == parse_packet(frame)
    with pytest.raises(WireError, match="0x8100 is not IP"):
        parse_packet(frame[:12] + bytes.fromhex("810000018100000281000003") + frame[12:])
    with pytest.raises(WireError, match="VLAN tag at byte 14: needs 4 bytes, 2 are left"):
        parse_packet(frame[:12] + bytes.fromhex("81000001"))


def test_ethertype_and_version_must_agree():
    frame = bytearray(sample(Opcode.SACK))
    frame[12:14] = b"\x08\x00"
    with pytest.raises(WireError, match="0x0800, but the packet at byte 14 has IP version 6"):
        parse_packet(bytes(frame))
    frame[12:14] = b"\x08\x06"
    with pytest.raises(WireError, match="0x0806 is not IP"):
        parse_packet(bytes(frame))


def test_a_bad_icrc_is_made_right_by_building_anew():
    frame = bytearray(sample(Opcode.WRITE_ONLY, payload=b"abc"))
    frame[-1] ^= 0xFF
    packet = parse_packet(bytes(frame))
    assert packet.icrc is IcrcVerdict.BAD
    assert parse_packet(packet.to_bytes()).icrc is IcrcVerdict.OK


def test_link_header_follows_the_ip_version():
    assert parse_packet(sample(Opcode.SACK, Mode.ECMP, ipv4=True)).eth == replace(MAC, ethertype=0x0800)
    assert parse_packet(sample(Opcode.SACK)).eth == MAC


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"control": 64}, "dscp.control: 64 is not a DSCP; use 0..63"),
        ({"trimmed": -1}, "dscp.trimmed"),
        ({"trimmed": "16"}, "dscp.trimmed"),
        ({"trimmed": 8}, "dscp.trimmed: 8 is already trimmable"),
    ],
)
def test_dscp_numbers_are_checked(change, message):
    with pytest.raises(InputError, match=message):
        DscpMap(**change)


def test_udp_port_is_checked():
    with pytest.raises(InputError, match="udp_port: 0"):
        WireSettings(udp_port=0)


def test_dscp_map_is_a_bijection_on_its_classes():
    dscp = DscpMap()
    assert [dscp.class_of(dscp.value_of(c)) for c in DscpClass] == list(DscpClass)
    known = {dscp.value_of(c) for c in DscpClass}
    assert all(dscp.class_of(n) is DscpClass.NO_TRIM for n in range(64) if n not in known)
    assert [n for n in range(64) if dscp.is_trimmed(n)] == [16, 18]
