"""Captures of simulated packets: what they show is what the simulator did, in bytes that anyone can check."""

from __future__ import annotations

import ipaddress
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import openmrc
from openmrc.cli import main
from openmrc.errors import InputError
from openmrc.fabric.address import Role, nic_of_address, path_of_address, split_ev, usid_meaning
from openmrc.fabric.paths import plain
from openmrc.fabric.tables import Forward, forward, switch_table
from openmrc.psn import psn_diff
from openmrc.scenario import load_scenario
from openmrc.sim.build import plan
from openmrc.sim.capture import Capture
from openmrc.sim.frames import FIRST_QPN, FIRST_R_KEY, HOP_LIMIT, NIC_ROLE, mac_of, pattern
from openmrc.sim.layout import I
from openmrc.sim.simulation import Simulation
from openmrc.wire import (
    IcrcVerdict,
    IPv6,
    Mode,
    Opcode,
    Packet,
    PacketKind,
    PcapReader,
    ip_bytes,
    parse_packet,
)
from openmrc.wire.dscp import DscpClass
from openmrc.wire.meth import TIMESTAMP_UNIT_NS

pytestmark = pytest.mark.usefixtures("warm_kernels")
diff = plain(psn_diff)

#: an incast that is trimmed and marked; messages with immediates; loss, damage and a port that goes down
SCENARIO = {
    "seed": 3,
    "fabric": {"nics": 8, "planes": 2, "nic_rate": "200Gbps", "hosts_per_t0": 2},
    "switch": {"trim_threshold_last_hop": 0.5, "trim_threshold": 0.5},
    "traffic": [
        {"pattern": "incast", "target": 7, "size": "100kB"},
        {"pattern": "send", "pairs": [[0, 5], [5, 1], [2, 3]], "size": "80001B", "imm": True},
    ],
    "fault": [
        {"kind": "loss", "element": "p0/t0.0-t1.1", "at": "2us", "for": "10us", "probability": 0.2},
        {"kind": "corrupt", "element": "p1/t0.1-t1.0", "at": "2us", "for": "40us", "probability": 0.2},
        {"kind": "down", "element": "nic3/p0", "at": "6us", "for": "20us"},
    ],
}


@dataclass
class Seen:
    """One record of a capture."""

    time_ns: int
    frame: bytes
    packet: Packet

    @property
    def link(self) -> tuple[bytes, bytes]:
        """MAC addresses: from, to."""
        return self.packet.eth.source, self.packet.eth.destination

    @property
    def sends(self) -> bool:
        return self.link[0][1] >> 4 == NIC_ROLE

    @property
    def q(self) -> int:
        return self.packet.bth.dest_qp - FIRST_QPN

    @property
    def hop(self) -> int:
        return HOP_LIMIT - (self.packet.outer or self.packet.ip).hop_limit


def read(path) -> list[Seen]:
    with path.open("rb") as stream:
        return [Seen(r.time_ns, r.data, parse_packet(r.data)) for r in PcapReader(stream)]


@dataclass
class Run:
    simulation: Simulation
    capture: Capture
    seen: list[Seen]

    @property
    def model(self):
        return self.simulation.model

    def data(self) -> list[Seen]:
        return [s for s in self.seen if s.packet.opcode.is_data]

    def of(self, opcode: Opcode) -> list[Seen]:
        return [s for s in self.seen if s.packet.opcode is opcode]


def record(path, scenario=SCENARIO, **how) -> Run:
    prepared = plan(load_scenario(scenario))
    with Capture(prepared, path, **how) as capture:
        simulation = Simulation(prepared, capture)
        simulation.run()
    return Run(simulation, capture, read(path))


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Run:
    """All packets on all links."""
    return record(tmp_path_factory.mktemp("capture") / "all.pcap", at="all")


@pytest.fixture(scope="module")
def at_nics(tmp_path_factory) -> Run:
    return record(tmp_path_factory.mktemp("capture") / "nic.pcap")


def test_the_scenario_has_what_the_capture_must_show(everything):
    """Trims at both places, marks, retransmissions, damage, immediates, every control packet."""
    data = everything.data()
    assert {s.packet.trimmed for s in data} == {None, DscpClass.TRIMMED, DscpClass.TRIMMED_LASTHOP}
    assert any(s.packet.ecn_marked for s in data)
    assert any(s.packet.bth.rtx for s in data)
    assert any(s.packet.icrc is IcrcVerdict.BAD for s in data)
    assert {s.packet.opcode for s in everything.seen} == set(Opcode) - {
        Opcode.WRITE_ONLY,
        Opcode.WRITE_ONLY_IMM,
    }


@pytest.fixture(scope="module")
def plainly():
    """The same run without a capture."""
    return openmrc.run(SCENARIO)


@pytest.mark.parametrize("model", ["fast", "exact"])
def test_capturing_changes_nothing(tmp_path, plainly, model):
    scenario = SCENARIO | {"sim": {"port_model": model}}
    how = {"fast": {"at": "all"}, "exact": {"only": ("nic=7", "flow=2")}}[model]
    if model == "exact":
        plainly = openmrc.run(scenario)
    captured = openmrc.run(scenario, pcap=tmp_path / "c.pcap", **how)
    assert captured.summary["digest"] == plainly.summary["digest"]
    assert captured.flows.equals(plainly.flows)
    assert captured.timeline.equals(plainly.timeline)
    assert str(tmp_path / "c.pcap") in captured.summary["notes"][-1]


def test_every_link_crossing_is_there_once(everything, at_nics):
    """The simulator counts a hop for every packet it puts on a link; arrivals at NICs come on top."""
    s = everything.model.sim.s
    arrivals = sum(not seen.sends for seen in at_nics.seen)
    assert len(everything.seen) - arrivals == s[I["hops_data"]] + s[I["hops_control"]]


def test_times_never_run_backwards(everything, at_nics):
    for run in (everything, at_nics):
        times = [s.time_ns for s in run.seen]
        assert times == sorted(times)
        assert times[-1] <= run.simulation.now_ps // 1000 + 10_000


def test_icrcs_are_right_unless_damaged_or_trimmed(everything):
    for s in everything.seen:
        if s.packet.trimmed is not None:
            assert s.packet.icrc is IcrcVerdict.ABSENT
        elif s.packet.icrc is IcrcVerdict.BAD:  # only data crosses the damaging link while it damages
            assert s.packet.opcode.is_data
            assert s.hop > 0


def test_damaged_packets_are_those_the_simulator_dropped_as_corrupt(at_nics):
    dropped = dict(zip(("link_down", "grey", "blackhole", "corrupt"), at_nics.model.sim.drops, strict=False))
    arrived_bad = sum(s.packet.icrc is IcrcVerdict.BAD for s in at_nics.seen)
    assert 0 < arrived_bad <= dropped["corrupt"]


KIND = {
    Opcode.SACK: PacketKind.SACK,
    Opcode.NACK: PacketKind.NACK,
    Opcode.TRANSPORT_ACK: PacketKind.TRANSPORT_ACK,
    Opcode.RELIABILITY_PROBE: PacketKind.RELIABILITY_PROBE,
    Opcode.ENDPOINT_REQUEST: PacketKind.ENDPOINT_REQUEST,
    Opcode.ENDPOINT_RESPONSE: PacketKind.ENDPOINT_RESPONSE,
}


def test_sizes_are_those_the_simulator_counts(everything):
    for s in everything.seen:
        p = s.packet
        if p.trimmed is not None:
            assert len(s.frame) == 138
        else:
            kind = KIND.get(p.opcode, PacketKind.DATA)
            imm = p.immdt is not None
            assert len(s.frame) == 14 + ip_bytes(kind, Mode.SRV6, len(p.payload), imm=imm)


def check_addresses(run: Run) -> None:
    """Static switch tables, followed hop by hop, must lead where the MAC addresses say the packet is."""
    topology = run.model.topology
    tables = {}
    for s in run.seen:
        usids = [
            int.from_bytes(s.packet.outer.destination[at : at + 2], "big")
            for at in range(4, 16, 2)
            if any(s.packet.outer.destination[at : at + 2])
        ]
        src, _ = nic_of_address(topology, ipaddress.IPv6Address(s.packet.ip.source))
        dst, _ = nic_of_address(topology, ipaddress.IPv6Address(s.packet.ip.destination))
        plane, uplink = split_ev(topology, src, dst, s.packet.entropy)
        links = topology.path_links(src, dst, plane, uplink)
        assert len(usids) == len(links) - s.hop  # one uSID is consumed by every switch passed
        first = usid_meaning(topology, usids[0])
        if s.hop == 0:
            said = path_of_address(topology, ipaddress.IPv6Address(s.packet.outer.destination))
            assert (said.dst, said.plane, said.uplink) == (dst, plane, uplink)
            assert s.link[0] == mac_of(NIC_ROLE, plane, src)
        if s.hop == len(links) - 1:
            assert first.role is Role.DOWNLINK
            assert s.link[1] == mac_of(NIC_ROLE, plane, dst)
            continue
        assert s.link[1] == mac_of(first.role, first.plane, first.number)
        key = (first.role, first.plane, first.number)
        if key not in tables:
            tables[key] = switch_table(topology, *key)
        out = forward(tables[key], ipaddress.IPv6Address(s.packet.outer.destination))
        assert isinstance(out, Forward)
        assert out.link == links[s.hop + 1]


def test_the_address_takes_every_packet_over_the_links_of_its_ev(everything):
    check_addresses(everything)


def test_the_same_over_three_tiers(tmp_path):
    scenario = {
        "fabric": {"nics": 16, "tiers": 3, "radix": 4, "nic_rate": "100Gbps"},
        "traffic": [{"pattern": "send", "pairs": [[0, 15], [1, 5], [2, 3]], "size": "20kB"}],
    }
    run = record(tmp_path / "t.pcap", scenario, at="all")
    assert {s.hop for s in run.seen} == set(range(6))
    check_addresses(run)


def test_headers_say_where_every_byte_belongs(everything):
    """Opcode, PSN, MSN, RETH and payload agree with the message graph, for every data packet."""
    graph, profile = everything.model.graph, everything.model.profile
    flows = graph.messages
    first_psn: dict[int, int] = {}
    for s in everything.data():
        p = s.packet
        if p.reth is None:
            continue
        flow = (p.reth.va >> 32) - 1
        node = int(flows[flow])
        offset, size = p.reth.va & 0xFFFFFFFF, int(graph.size_bytes[node])
        assert graph.qp[node] == s.q
        assert p.reth.dma_length == size
        assert p.reth.r_key == FIRST_R_KEY + flow
        index, remainder = divmod(offset, profile.pmtu_bytes)
        assert remainder == 0
        last = offset + profile.pmtu_bytes >= size
        assert p.opcode is (
            Opcode.WRITE_FIRST
            if index == 0
            else Opcode.WRITE_MIDDLE
            if not last
            else Opcode.WRITE_LAST_IMM
            if graph.imm[node]
            else Opcode.WRITE_LAST
        )
        assert first_psn.setdefault(flow, (p.bth.psn - index) & 0xFFFFFF) == (p.bth.psn - index) & 0xFFFFFF
        assert (p.meth.msn, p.meth.rqmsn) == (0, 0)  # one message a QP here
        if p.immdt is not None:
            assert p.immdt.imm == flow
        if p.trimmed is None and p.icrc is IcrcVerdict.OK:
            assert p.payload == pattern(flow, offset, min(profile.pmtu_bytes, size - offset))


def test_every_byte_of_every_message_was_received(at_nics):
    """Put together from the packets that arrived, the messages are whole."""
    graph, profile = at_nics.model.graph, at_nics.model.profile
    arrived: dict[int, set[int]] = {}
    for s in at_nics.data():
        if not s.sends and s.packet.trimmed is None and s.packet.icrc is IcrcVerdict.OK:
            va = s.packet.reth.va
            arrived.setdefault((va >> 32) - 1, set()).add(va & 0xFFFFFFFF)
    for flow, node in enumerate(graph.messages):
        assert arrived[flow] == set(range(0, int(graph.size_bytes[node]), profile.pmtu_bytes))


def test_counts_are_those_of_the_summary(at_nics, plainly):
    count = plainly.summary["counters"]
    sent = [s for s in at_nics.seen if s.sends]
    kinds = Counter(s.packet.opcode for s in sent)
    data = [s for s in sent if s.packet.opcode.is_data]
    assert sum(s.packet.bth.rtx for s in data) == count["retransmitted"]
    assert len(data) == count["data_packets"] + count["retransmitted"]
    assert kinds[Opcode.SACK] == count["sacks"]
    assert kinds[Opcode.NACK] == count["nacks"]
    assert kinds[Opcode.TRANSPORT_ACK] == count["acks"]
    assert (
        kinds[Opcode.RELIABILITY_PROBE] + kinds[Opcode.ENDPOINT_REQUEST]
        == count["probes"] + count["port_updates"]
    )


def test_sacks_say_what_has_arrived(at_nics):
    """A SACK's cumulative and selective acknowledgements name PSNs received before it, and only those."""
    received: dict[int, set[int]] = {}
    checked = 0
    for s in at_nics.seen:
        p = s.packet
        if p.opcode.is_data and not s.sends and p.trimmed is None and p.icrc is IcrcVerdict.OK:
            received.setdefault(s.q, set()).add(p.bth.psn)
        elif p.opcode is Opcode.SACK and s.sends:
            have = received[s.q]
            assert set(p.seth.received_psns()) <= have
            assert p.bth.psn == p.seth.cack_psn
            beyond = [psn for psn in have if diff(psn, p.seth.cack_psn) > 0]
            first = p.seth.base_psn
            window = {psn for psn in beyond if 0 <= diff(psn, first) < 64}
            assert window == set(p.seth.received_psns())  # an exact snapshot
            assert p.cc_state.ooo_count == len(beyond)
            if not p.seth.pr:
                assert p.seth.acked_psn in have or diff(p.seth.acked_psn, p.seth.cack_psn) <= 0
            checked += 1
    assert checked > 100


def test_echoes_name_a_transmission_that_was_sent(at_nics):
    """Entropy and timestamp of SACKs and NACKs are those of a packet with that PSN."""
    sent: dict[tuple[int, int], set[tuple[int, int]]] = {}
    probes: dict[tuple[int, int], int] = {}
    stale = total = 0
    for s in at_nics.seen:
        p = s.packet
        if s.sends and p.opcode.is_data:
            sent.setdefault((s.q, p.bth.psn), set()).add((p.entropy, p.tseth.tx_timestamp))
            assert (s.time_ns // TIMESTAMP_UNIT_NS) & 0xFFFF == p.tseth.tx_timestamp
        elif s.sends and p.opcode is Opcode.RELIABILITY_PROBE:
            probes[s.q, p.peth.probe_id] = p.entropy
        elif s.sends and p.opcode is Opcode.NACK:
            total += 1
            stale += (p.neth.entropy, p.neth.tx_timestamp) not in sent[s.q, p.neth.nack_psn]
            assert p.neth.entropy in {entropy for entropy, _ in sent[s.q, p.neth.nack_psn]}
        elif s.sends and p.opcode is Opcode.SACK and p.seth.pr:
            assert probes[s.q, p.seth.probe_id] == p.seth.entropy
        elif s.sends and p.opcode is Opcode.SACK:
            assert p.seth.entropy in {entropy for entropy, _ in sent[s.q, p.seth.acked_psn]}
    # a copy older than the newest transmission is answered with a stamp that matches none
    assert stale <= total // 20


def test_responses_echo_the_request(at_nics):
    asked = {}
    for s in at_nics.seen:
        p = s.packet
        if s.sends and p.opcode is Opcode.ENDPOINT_REQUEST:
            asked[p.ip.source, p.ip.destination, p.erth.op, p.bth.psn] = p.erth.tx_timestamp
        elif s.sends and p.opcode is Opcode.ENDPOINT_RESPONSE:
            assert asked[p.ip.destination, p.ip.source, p.eeth.op, p.bth.psn] == p.eeth.tx_timestamp
    assert asked


def test_only_a_flow(tmp_path, at_nics):
    run = record(tmp_path / "f.pcap", only="flow=3")
    graph = run.model.graph
    node = int(graph.messages[3])
    assert {s.q for s in run.seen if s.packet.bth.dest_qp >= FIRST_QPN} == {int(graph.qp[node])}
    assert {(s.packet.reth.va >> 32) - 1 for s in run.data() if s.packet.reth} == {3}
    start, end = (int(a[node]) // 1000 for a in (run.model.sim.flow_start, run.model.sim.flow_end))
    assert all(start <= s.time_ns <= end for s in run.seen if not s.packet.opcode.is_data)
    frames = Counter((s.time_ns, s.frame) for s in at_nics.seen)
    assert not Counter((s.time_ns, s.frame) for s in run.seen) - frames  # a part of the whole capture


def test_only_a_qp_and_only_a_nic(tmp_path, at_nics):
    whole = Counter((s.time_ns, s.frame) for s in at_nics.seen)
    by_qp = record(tmp_path / "q.pcap", only=("qp=0-1", "qp=8"))
    assert {s.q for s in by_qp.data()} == {0, 1, 8}
    assert not Counter((s.time_ns, s.frame) for s in by_qp.seen) - whole
    by_nic = record(tmp_path / "n.pcap", only="nic=5")
    assert Counter((s.time_ns, s.frame) for s in by_nic.seen) == Counter(
        {key: n for key, n in whole.items() if is_nic(key[1][0:6], 5) or is_nic(key[1][6:12], 5)}
    )


def is_nic(mac: bytes, number: int) -> bool:
    return mac[1] >> 4 == NIC_ROLE and mac[2:] == number.to_bytes(4, "big")


def test_ecmp_shows_the_uplink_that_the_switch_chose(tmp_path):
    scenario = SCENARIO | {"transport": {"mode": "ecmp"}}
    run = record(tmp_path / "e.pcap", scenario, at="all")
    assert all(s.packet.outer is None and isinstance(s.packet.ip, IPv6) for s in run.seen)
    assert all(s.packet.icrc is not IcrcVerdict.BAD or s.packet.opcode.is_data for s in run.seen)
    by_flow: dict[tuple[bytes, int, int], set[bytes]] = {}
    for s in run.seen:
        if s.hop == 1 and s.link[1][1] >> 4 == Role.T1:
            by_flow.setdefault((s.link[0], s.packet.entropy, s.packet.ip.destination), set()).add(s.link[1])
    assert len({mac for macs in by_flow.values() for mac in macs}) > 1
    assert np.mean([len(macs) == 1 for macs in by_flow.values()]) > 0.9  # a link down moves some


def test_slices_do_not_change_the_file(tmp_path, monkeypatch):
    from openmrc.sim import simulation

    first = record(tmp_path / "a.pcap")
    monkeypatch.setattr(simulation, "FIRST_SLICE_EVENTS", 37)
    monkeypatch.setattr(simulation, "SLICE_S", 0.0)
    record(tmp_path / "b.pcap")
    assert (tmp_path / "a.pcap").read_bytes() == (tmp_path / "b.pcap").read_bytes()
    assert first.capture.packets == len(first.seen)
    assert first.capture.bytes_written == (tmp_path / "a.pcap").stat().st_size - 24


def test_the_estimate_is_about_right(at_nics, everything):
    for run in (at_nics, everything):
        assert 0.5 < run.capture.estimated_bytes / run.capture.bytes_written < 2


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"only": "flow=10"}, "--only flow=10: this scenario has flow 0..9; name one of them"),
        ({"only": "qp=x"}, "--only qp=x: 'x' is no number or range; write flow=3, qp=0-7 or nic=5,9"),
        ({"only": "nic=3-1"}, "--only nic=3-1: this scenario has nic 0..7; name one of them"),
        ({"only": "link=3"}, "--only link=3: write flow=3, qp=0-7 or nic=5,9"),
        ({"only": "flow="}, "--only flow=: write flow=3"),
        ({"at": "moon"}, "--at moon: use nic"),
        ({"limit_bytes": 1000}, "the limit is 1.00 kB: name some of them with --only"),
    ],
)
def test_refusals(tmp_path, how, words):
    with pytest.raises(InputError, match=words.replace("(", "\\(")):
        Capture(plan(load_scenario(SCENARIO)), tmp_path / "c.pcap", **how)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_unless_forced(tmp_path):
    path = tmp_path / "c.pcap"
    path.write_bytes(b"precious")
    with pytest.raises(InputError, match="exists already"):
        openmrc.run(SCENARIO, pcap=path)
    assert path.read_bytes() == b"precious"
    openmrc.run(SCENARIO, pcap=path, only="flow=1", force=True)
    assert read(path)
    with pytest.raises(InputError, match="cannot be written"):
        openmrc.run(SCENARIO, pcap=tmp_path / "none" / "c.pcap")


def test_a_capture_that_reaches_its_limit_ends_and_says_so(tmp_path, monkeypatch):
    prepared = plan(load_scenario(SCENARIO))
    whole = Simulation(plan(load_scenario(SCENARIO)))
    whole.run()
    with Capture(prepared, tmp_path / "c.pcap") as capture:
        capture.limit_bytes = 100_000
        simulation = Simulation(prepared, capture)
        simulation._events_per_slice = 100
        simulation.run()
    assert 100_000 < capture.bytes_written < 2_000_000
    assert "reached the limit of 100 kB: use --only" in capture.describe()
    assert len(read(tmp_path / "c.pcap")) == capture.packets
    assert np.array_equal(simulation.model.sim.flow_end, whole.model.sim.flow_end)


def test_ctrl_c_leaves_a_whole_file(tmp_path):
    def stop(simulation):
        raise KeyboardInterrupt

    result = openmrc.run(SCENARIO, pcap=tmp_path / "c.pcap", on_progress=stop)
    assert result.summary["status"] in ("partial", "complete")
    assert read(tmp_path / "c.pcap")
    with pytest.raises(ZeroDivisionError):
        openmrc.run(SCENARIO, pcap=tmp_path / "d.pcap", on_progress=lambda s: 1 / 0, on_plan=lambda p: 1 / 0)
    assert [p.name for p in tmp_path.iterdir()] == ["c.pcap"]


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    file = tmp_path / "s.toml"
    file.write_text(
        '[fabric]\nnics = 8\nhosts_per_t0 = 4\n[[traffic]]\npattern = "permutation"\nsize = "100kB"\n'
    )
    pcap = tmp_path / "c.pcap"

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mrc", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    code, out, err = call("run", str(file), "--pcap", str(pcap), "--only", "flow=3", "--only", "nic=1")
    assert code == 0
    assert "a capture of about" in err
    assert f"{len(read(pcap))} packets" in out
    code, out, err = call("decode", str(pcap))
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == len(read(pcap)) > 50
    assert all(line.endswith("icrc ok") for line in lines)
    assert "malformed" not in err
    assert call("run", str(file), "--only", "flow=3")[0] == 2
    assert call("run", str(file), "--pcap", str(pcap))[0] == 2


def test_the_pattern_names_flow_and_offset():
    assert pattern(7, 4096, 16).hex() == "00000007000010000000000700001008"
    assert pattern(1, 4096, 0) == b""
    assert pattern(1, 5, 6) == pattern(1, 0, 16)[5:11]
