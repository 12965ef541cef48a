"""Sizes: the published figures, and every size against bytes that were built."""

from __future__ import annotations

import pytest

from openmrc.errors import WireError
from openmrc.wire import (
    Aeth,
    Bth,
    Mode,
    Opcode,
    PacketKind,
    Seth,
    build_packet,
    ceiling_bps,
    ip_bytes,
    line_bytes,
)
from openmrc.wire.sizes import line_bytes_of_ip
from wire_support import sample

KIND_OF = {
    Opcode.SACK: PacketKind.SACK,
    Opcode.NACK: PacketKind.NACK,
    Opcode.TRANSPORT_ACK: PacketKind.TRANSPORT_ACK,
    Opcode.RELIABILITY_PROBE: PacketKind.RELIABILITY_PROBE,
    Opcode.ENDPOINT_REQUEST: PacketKind.ENDPOINT_REQUEST,
    Opcode.ENDPOINT_RESPONSE: PacketKind.ENDPOINT_RESPONSE,
}


def test_figures_of_the_specification():
    assert line_bytes(PacketKind.DATA, Mode.SRV6, 4096) == 4262
    assert line_bytes(PacketKind.DATA, Mode.SRV6, 4096, tseth=False) == 4258
    assert line_bytes(PacketKind.DATA, Mode.STEV, 4096) == 4222
    assert line_bytes(PacketKind.DATA, Mode.ECMP, 4096) == 4222
    assert line_bytes(PacketKind.SACK, Mode.SRV6) == 178
    assert line_bytes(PacketKind.TRIMMED, Mode.SRV6, 4096) == 138 + 24
    assert round(4096 / 4262, 3) == 0.961


def test_ceiling():
    assert ceiling_bps(800 * 10**9, Mode.SRV6) // 10**9 == 768
    assert ceiling_bps(4262, Mode.SRV6) == 4096
    assert ceiling_bps(4222, Mode.STEV) == 4096
    assert ceiling_bps(4258, Mode.SRV6, tseth=False) == 4096
    assert ceiling_bps(8262 + 96, Mode.SRV6, pmtu_bytes=8192) == 8192


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("opcode", [opcode for opcode in Opcode if opcode.is_data])
@pytest.mark.parametrize("ts", [0, 1])
@pytest.mark.parametrize("payload_bytes", [0, 1, 2, 3, 4, 1023, 4096, 8192])
def test_data_packets(mode, opcode, ts, payload_bytes):
    frame = sample(opcode, mode, bytes(payload_bytes), ts=ts)
    size = ip_bytes(PacketKind.DATA, mode, payload_bytes, tseth=bool(ts), imm=opcode.has_imm)
    assert size == len(frame) - 14
    line = line_bytes(PacketKind.DATA, mode, payload_bytes, tseth=bool(ts), imm=opcode.has_imm)
    assert line == len(frame) + 8 + 4 + 12


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("opcode", list(KIND_OF), ids=lambda opcode: opcode.name)
def test_control_packets(mode, opcode):
    frame = sample(opcode, mode)
    assert ip_bytes(KIND_OF[opcode], mode) == len(frame) - 14
    assert line_bytes(KIND_OF[opcode], mode) == len(frame) + 24


def test_sack_without_cc_state():
    data = build_packet(
        Mode.STEV, Bth(Opcode.SACK), Seth(cc_type=0), source=bytes(16), destination=bytes(16), entropy=0
    )
    assert ip_bytes(PacketKind.SACK, Mode.STEV, cc_state=False) == len(data)
    assert ip_bytes(PacketKind.SACK, Mode.STEV) == len(data) + 8


def test_short_frames_are_padded_on_the_line():
    ack = build_packet(
        Mode.ECMP, Bth(Opcode.TRANSPORT_ACK), Aeth(), source=bytes(4), destination=bytes(4), entropy=0
    )
    assert line_bytes_of_ip(len(ack)) == len(ack) + 14 + 24
    assert line_bytes_of_ip(20) == line_bytes_of_ip(46) == 84 == line_bytes_of_ip(47) - 1


def test_all_sizes_are_plain_integers():
    for kind in PacketKind:
        for mode in Mode:
            assert type(line_bytes(kind, mode)) is int
            assert type(ip_bytes(kind, mode)) is int


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (PacketKind.SACK, {"payload_bytes": 4}, "payload_bytes: 4 in a packet of kind sack"),
        (PacketKind.DATA, {"payload_bytes": -1}, "payload_bytes: -1"),
        (PacketKind.TRIMMED, {"trim_bytes": 121}, "trim_bytes: 121 cuts METH or TSETH; use at least 122"),
    ],
)
def test_sizes_that_cannot_be(kind, arguments, message):
    with pytest.raises(WireError, match=message):
        line_bytes(kind, Mode.SRV6, **arguments)
