"""``mrc decode``: lines, JSON, errors and exit codes."""

from __future__ import annotations

import io
import json
import struct
import sys

import pytest

from openmrc.cli import main
from openmrc.wire import (
    Aeth,
    Bth,
    CcState,
    Ecn,
    Mode,
    NackReason,
    Neth,
    Opcode,
    PcapWriter,
    Seth,
    Syndrome,
    build_packet,
    trim_frame,
)
from wire_support import CARRIER, MAC, NIC_A, NIC_B, sample


def control(opcode: Opcode, *headers, **bth) -> bytes:
    return build_packet(
        Mode.SRV6, Bth(opcode, dest_qp=0x22, **bth), *headers, source=NIC_A, destination=NIC_B,
        outer_source=NIC_A, outer_destination=CARRIER, entropy=0x3C005, eth=MAC,
    )  # fmt: skip


def bad_icrc() -> bytes:
    frame = bytearray(sample(Opcode.WRITE_ONLY, Mode.ECMP, b"hello"))
    frame[-1] ^= 1
    return bytes(frame)


FRAMES = [
    sample(Opcode.WRITE_ONLY_IMM, payload=b"hello", ecn=Ecn.CE),
    trim_frame(sample(Opcode.WRITE_MIDDLE, payload=bytes(4096)), 128, last_hop=True),
    control(
        Opcode.SACK,
        Seth(m=1, ack_psn_offset=3, cack_psn=0xFFFFFE, sack_offset=1, bitmap=0b10111, mpr=8, entropy=7),
        CcState(tx_timestamp=99, ooo_count=2, rcvd_bytes_256=17),
        psn=0xFFFFFE,
    ),
    control(Opcode.NACK, Neth(reason=NackReason.TRIMMED, nack_psn=77, entropy=5), psn=77),
    control(Opcode.TRANSPORT_ACK, Aeth(Syndrome.NAK_REMOTE_ACCESS, 4)),
    bad_icrc(),
    b"\0" * 12 + b"\x08\x06" + bytes(46),
    sample(Opcode.RELIABILITY_PROBE),
    sample(Opcode.ENDPOINT_REQUEST),
    sample(Opcode.ENDPOINT_RESPONSE),
]


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "run.pcap"
    with PcapWriter(path) as writer:
        for number, frame in enumerate(FRAMES):
            writer.write(1_000_000_000 + number, frame)
    return path


@pytest.fixture
def mrc(monkeypatch, capsys):
    """Run ``mrc`` in this process; returns (exit code, stdout, stderr)."""

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mrc", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_lines(mrc, capture):
    code, out, err = mrc("decode", capture)
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == len(FRAMES)
    assert lines[0].startswith("1.000000000 fd00::1 > fd00::2 usid 1:2:3:4 EV 0x0003c005 WRITE Only+Imm psn ")
    assert " CE msn " in lines[0]
    assert " len 5 va 0x" in lines[0]
    assert lines[0].endswith(" icrc ok")
    assert "TRIMMED_LASTHOP" in lines[1]
    assert lines[1].endswith("reth cut icrc absent")
    assert (
        "SACK psn 16777214 qp 0x22 cack 16777214 acks 1 offset +1 got 16777215-1,3 "
        "m SKIP_ONCE mpr 8 echo 0x00000007 cc ts 99 ooo 2 pen 0 rcvd 17*256B icrc ok"
    ) in lines[2]
    assert "NACK psn 77 qp 0x22 reason TRIMMED nack_psn 77 echo 0x00000005 ts 0 icrc ok" in lines[3]
    assert "Transport ACK psn 0 qp 0x22 NAK_REMOTE_ACCESS msn 4 icrc ok" in lines[4]
    assert lines[5].endswith(" icrc BAD")
    assert "usid" not in lines[5]
    assert lines[6] == (
        "1.000000006 malformed: Ethernet.ethertype: 0x0806 is not IP; MRC rides in IPv6 (0x86dd)"
    )
    assert "Reliability Probe" in lines[7]
    assert "Endpoint Request id " in lines[8]
    assert "PORT_STATUS" in lines[8]
    assert "Endpoint Response id " in lines[9]
    assert err.strip().endswith("10 packets: 1 malformed, 1 icrc bad, 1 trimmed, 1 ecn marked")


def test_json(mrc, capture):
    code, out, _ = mrc("decode", capture, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["n"] for row in rows] == list(range(1, 11))
    assert rows[3]["time_ns"] == 1_000_000_003
    write, trimmed, sack, nack, ack, bad, malformed = rows[:7]
    assert (write["src"], write["dst"], write["usids"]) == ("fd00::1", "fd00::2", [1, 2, 3, 4])
    assert (write["outer_dst"], write["ev"]) == ("fcbb:bbbb:1:2:3:4::", 0x3C005)
    assert (write["opcode"], write["opcode_name"], write["payload_bytes"]) == (0xCB, "WRITE Only+Imm", 5)
    assert write["ecn_marked"] is True
    assert write["reth"]["va"].startswith("0x")
    assert "imm" in write["immdt"]
    assert (trimmed["trimmed"], trimmed["icrc"]) == ("TRIMMED_LASTHOP", "absent")
    assert "reth" not in trimmed
    assert sack["seth"]["received"] == [[0xFFFFFF, 1], [3, 3]]
    assert (sack["seth"]["cack_psn"], sack["seth"]["m_name"], sack["seth"]["acked_psn"]) == (
        0xFFFFFE,
        "SKIP_ONCE",
        1,
    )
    assert sack["seth"]["bitmap"] == "0x0000000000000017"
    assert sack["cc_state"]["tx_timestamp"] == 99
    assert nack["neth"]["reason_name"] == "TRIMMED"
    assert ack["aeth"]["syndrome_name"] == "NAK_REMOTE_ACCESS"
    assert (bad["icrc"], bad["usids"], bad["outer_dst"]) == ("bad", [], None)
    assert malformed["error"].startswith("Ethernet.ethertype")
    assert rows[8]["erth"]["op_name"] == "PORT_STATUS"


def test_a_probe_drawn_sack_names_the_probe(mrc, tmp_path):
    path = tmp_path / "a.pcap"
    with PcapWriter(path) as writer:
        writer.write(0, control(Opcode.SACK, Seth(pr=1, ack_psn_offset=-2, cc_type=0)))
    assert "cack 0 probe 65534 offset +0 got none m NONE" in mrc("decode", path)[1]
    row = json.loads(mrc("decode", path, "--json")[1])
    assert (row["seth"]["probe_id"], row["seth"]["acked_psn"]) == (65534, None)


def test_raw_ip_captures(mrc, tmp_path):
    path = tmp_path / "a.pcap"
    with PcapWriter(path, linktype=101) as writer:
        writer.write(0, FRAMES[0][14:])
    assert " WRITE Only+Imm " in mrc("decode", path)[1]


def test_a_cut_record_says_so(mrc, tmp_path):
    path = tmp_path / "a.pcap"
    with PcapWriter(path) as writer:
        writer.write(0, FRAMES[0][:100], len(FRAMES[0]))
    cut = len(FRAMES[0]) - 100
    assert f"(the capture cut {cut} bytes off)" in mrc("decode", path)[1]


def test_limit(mrc, capture):
    assert len(mrc("decode", capture, "--limit", 2)[1].splitlines()) == 2


def test_standard_input(mrc, capture, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(capture.read_bytes())))
    code, out, _ = mrc("decode", "-")
    assert (code, len(out.splitlines())) == (0, len(FRAMES))


def test_other_dscp_numbers_and_port(mrc, tmp_path):
    path = tmp_path / "a.pcap"
    with PcapWriter(path) as writer:
        writer.write(0, sample(Opcode.WRITE_ONLY, dscp=33))
    assert "TRIMMED" in mrc("decode", path, "--dscp", "trimmed=33")[1]
    assert "TRIMMED" not in mrc("decode", path)[1]
    assert "4791 is not MRC's 5000" in mrc("decode", path, "--udp-port", 5000)[1]


@pytest.mark.parametrize(
    "assignment", ["trimmed", "trimmed=x", "colour=3", "trimmed=64", "trimmed=8", "trimmed=-1"]
)
def test_bad_dscp_option(mrc, capture, assignment):
    code, out, err = mrc("decode", capture, "--dscp", assignment)
    assert (code, out) == (2, "")
    assert "dscp" in err


def test_missing_file(mrc, tmp_path):
    code, out, err = mrc("decode", tmp_path / "none.pcap")
    assert (code, out) == (2, "")
    assert "none.pcap: cannot be read: No such file or directory; name a capture file" in err


def test_a_folder_is_no_capture(mrc, tmp_path):
    code, _, err = mrc("decode", tmp_path)
    assert code == 2
    assert "Is a directory" in err


@pytest.mark.parametrize("content", [b"", b"hello", b"# a scenario, not a capture at all"])
def test_not_a_capture(mrc, tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    code, out, err = mrc("decode", path)
    assert (code, out) == (2, "")
    assert f"mrc: {path}: pcap at byte 0: " in err


def test_a_truncated_capture_prints_what_there_is_and_names_the_offset(mrc, capture):
    whole = capture.read_bytes()
    capture.write_bytes(whole[:-3])
    code, out, err = mrc("decode", capture)
    assert code == 2
    assert len(out.splitlines()) == len(FRAMES) - 1
    start = len(whole) - len(FRAMES[-1])
    assert f"pcap at byte {start}: truncated record: {len(FRAMES[-1])} bytes needed" in err
    assert "(9 packets before it were read)" in err


def test_microsecond_capture(mrc, tmp_path):
    path = tmp_path / "a.pcap"
    frame = FRAMES[0]
    head = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    path.write_bytes(head + struct.pack(">IIII", 5, 6, len(frame), len(frame)) + frame)
    assert mrc("decode", path)[1].startswith("5.000006000 fd00::1 ")


def test_help_has_examples(mrc):
    code, out, _ = mrc("decode", "--help")
    assert code == 0
    assert "Examples:\n    mrc decode run.pcap\n" in out
    assert "Exit codes: 0 ok, 2" in out
