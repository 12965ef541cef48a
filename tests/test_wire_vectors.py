"""Bytes that other implementations made. A missing file fails (FileNotFoundError); nothing skips."""

from __future__ import annotations

import json

import pytest

from openmrc.wire import (
    Aeth,
    Bth,
    CcState,
    Erth,
    IPv6,
    Meth,
    Neth,
    Peth,
    Reth,
    Seth,
    Tseth,
    Udp,
    append_icrc,
    compute_icrc,
    parse_ip_packet,
    verify_icrc,
)
from openmrc.wire.icrc import IcrcVerdict
from wire_support import VECTORS

BY_NAME = {h.NAME: h for h in (Meth, Tseth, Reth, Aeth, Seth, CcState, Neth, Peth, Erth)}


def load(name: str) -> list[dict]:
    return json.loads((VECTORS / name).read_text())


def test_vector_files_hold_what_they_held():
    assert len(load("mrc_headers.json")) == 16
    assert len(load("roce_icrc.json")) == 4
    assert {vector["header"] for vector in load("mrc_headers.json")} == set(BY_NAME)


@pytest.mark.parametrize("index", range(16))
def test_mrc_headers(index):
    vector = load("mrc_headers.json")[index]
    header, data = BY_NAME[vector["header"]], bytes.fromhex(vector["hex"])
    parsed = header.parse(data)
    assert len(data) == header.SIZE
    for name, value in vector["fields"].items():
        # the probe id is the same 16 bits, read unsigned
        assert getattr(parsed, name) == value, name
    assert header(**vector["fields"]).to_bytes() == data
    assert parsed.to_bytes() == data


@pytest.mark.parametrize("index", range(4))
def test_roce_icrc(index):
    vector = load("roce_icrc.json")[index]
    packet = bytes.fromhex(vector["ipv6_packet_hex"])
    assert packet[-4:].hex() == vector["icrc_hex"]
    assert compute_icrc(packet[:-4]).hex() == vector["icrc_hex"]
    assert verify_icrc(packet)
    assert not verify_icrc(packet[:-1] + bytes([packet[-1] ^ 1]))
    ip, udp, bth = IPv6.parse(packet), Udp.parse(packet, 40), Bth.parse(packet, 48)
    assert (ip.flow_label, ip.hop_limit, ip.payload_length) == (0x12345, 64, len(packet) - 40)
    assert (udp.source_port, udp.destination_port, udp.length) == (49152 + index, 4791, len(packet) - 40)
    assert (bth.opcode, bth.psn, bth.dest_qp) == (vector["opcode"], vector["psn"], 0x123)
    assert ip.to_bytes() + udp.to_bytes() + bth.to_bytes() == packet[:60]


def test_icrc_vector_of_two_independent_computations():
    ip = IPv6(
        flow_label=0x12345,
        payload_length=8 + 12 + 16 + 4,
        source=bytes.fromhex("fd000000000000000000000000000001"),
        destination=bytes.fromhex("fd000000000000000000000000000002"),
    )
    udp = Udp(49152, 4791, 8 + 12 + 16 + 4)
    bth = bytes.fromhex("ca40ffff0000012380fffffe")
    packet = append_icrc(ip.to_bytes() + udp.to_bytes() + bth + bytes(range(16)))
    assert packet[-4:].hex() == "d696db00"
    # an MRC opcode whose 16 bytes are too few for METH + RETH: refused after the identity fields
    with pytest.raises(ValueError, match="RETH"):
        parse_ip_packet(packet)


def test_icrc_of_the_vector_inside_a_whole_mrc_packet():
    """The same head in front of METH and RETH: the packet parser reaches the same verdict function."""
    body = Meth(1, 2).to_bytes() + Reth(3, 4, 8).to_bytes() + bytes(range(8))
    length = 8 + 12 + len(body) + 4
    head = IPv6(flow_label=0x12345, payload_length=length).to_bytes() + Udp(49152, 4791, length).to_bytes()
    good = append_icrc(head + bytes.fromhex("ca40ffff0000012380fffffe") + body)
    assert parse_ip_packet(good).icrc is IcrcVerdict.OK
    assert parse_ip_packet(good[:-1] + bytes([good[-1] ^ 0x80])).icrc is IcrcVerdict.BAD
