"""Cross-check with scapy: another reading of IPv6, UDP, BTH, AETH and the ICRC (tests only)."""

from __future__ import annotations

import random

import pytest
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6 as ScapyIPv6
from scapy.packet import Raw

from openmrc.wire import Aeth, Bth, Ethernet, IPv4, IPv6, Mode, Opcode, Udp, parse_packet, verify_icrc
from wire_support import NIC_A, NIC_B, inner_span, sample


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ipv4", [False, True])
def test_scapy_packets_have_our_layout_and_icrc(seed, ipv4):
    rng = random.Random(seed)
    ip = (
        IP(
            src="10.0.0.1",
            dst="10.0.0.2",
            ttl=rng.getrandbits(8),
            tos=rng.getrandbits(8),
            id=rng.getrandbits(16),
        )
        if ipv4
        else ScapyIPv6(src="fd00::1", dst="fd00::2", fl=rng.getrandbits(20), tc=rng.getrandbits(8), hlim=9)
    )
    fields = {
        "opcode": rng.getrandbits(8), "solicited": rng.getrandbits(1), "migreq": rng.getrandbits(1),
        "padcount": rng.getrandbits(2), "version": rng.getrandbits(4), "pkey": rng.getrandbits(16),
        "dqpn": rng.getrandbits(24), "ackreq": rng.getrandbits(1), "psn": rng.getrandbits(24),
        "resv7": 0, "fecn": rng.getrandbits(1), "becn": rng.getrandbits(1),
    }  # fmt: skip
    packet = ip / UDP(sport=rng.getrandbits(16), dport=4791, chksum=rng.getrandbits(16)) / BTH(**fields)
    data = bytes(packet / Raw(rng.randbytes(4 * rng.randrange(8))))
    ours = (IPv4 if ipv4 else IPv6).parse(data)
    udp = Udp.parse(data, ours.SIZE)
    bth = Bth.parse(data, ours.SIZE + 8)
    assert (
        bth.opcode,
        bth.se,
        bth.m,
        bth.pad,
        bth.tver,
        bth.pkey,
        bth.dest_qp,
        bth.ack_request,
        bth.psn,
    ) == tuple(
        fields[name]
        for name in ("opcode", "solicited", "migreq", "padcount", "version", "pkey", "dqpn", "ackreq", "psn")
    )
    assert (udp.source_port, udp.destination_port) == (packet[UDP].sport, 4791)
    assert udp.length == len(data) - ours.SIZE
    if isinstance(ours, IPv6):
        assert (ours.dscp << 2 | ours.ecn, ours.flow_label) == (packet.tc, packet.fl)
        assert (ours.source, ours.destination) == (NIC_A, NIC_B)
    else:
        ours.verify()
        assert (ours.dscp << 2 | ours.ecn, ours.ttl, ours.identification) == (
            packet.tos,
            packet.ttl,
            packet.id,
        )
    assert verify_icrc(data)


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.name)
def test_scapy_computes_the_icrc_that_we_append(mode, opcode):
    frame = sample(opcode, mode, b"some payload" if opcode.is_data else b"", rng=random.Random(7))
    packet = parse_packet(frame)
    start, end = inner_span(packet, frame)
    ip = ScapyIPv6(frame[start : start + 40])
    udp = UDP(frame[start + 40 : start + 48])
    bth = frame[start + 48 : end]
    # scapy's BTH has its ICRC as the last field; the rest goes in as raw bytes
    head = BTH(
        opcode=bth[0], solicited=bth[1] >> 7, migreq=bth[1] >> 6 & 1, padcount=bth[1] >> 4 & 3,
        pkey=int.from_bytes(bth[2:4], "big"), dqpn=int.from_bytes(bth[5:8], "big"), ackreq=bth[8] >> 7,
        resv7=bth[8] & 0x7F, psn=int.from_bytes(bth[9:12], "big"),
    )  # fmt: skip
    for layer in (ip, udp):
        layer.remove_payload()
    theirs = bytes(ip / udp / head / Raw(bth[12:-4]))
    assert theirs[-4:] == frame[end - 4 : end]


def test_scapy_reads_our_transport_ack():
    frame = sample(Opcode.TRANSPORT_ACK, Mode.ECMP)
    ours = parse_packet(frame)
    theirs = AETH(frame[14 + 40 + 8 + 12 : -4])
    assert theirs.syndrome == ours.aeth.syndrome == 0x1F
    assert theirs.msn == ours.aeth.msn
    assert isinstance(ours.aeth, Aeth)
    assert isinstance(ours.eth, Ethernet)
