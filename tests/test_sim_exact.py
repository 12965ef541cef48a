"""The exact port model by hand, and how far the fast one is from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.scenario import load_scenario
from openmrc.sim.build import Model, build, plan
from openmrc.sim.exact import dequeue, enqueue_exact
from openmrc.sim.layout import (
    CHUNK,
    D_CONTROL,
    D_QUEUE,
    E_DEQUEUE,
    E_PACKET,
    HOP_SHIFT,
    P_CE,
    P_CONTROL,
    P_TRIM_SHIFT,
    P_TRIMMED,
    P_TRIMMED_LASTHOP,
    SEQ_SHIFT,
    SIZE_SHIFT,
    I,
)
from openmrc.transport.state import CTRL_SACK
from sim_support import Table, simulate, statistics, with_model

DATA_PS = 4262 * 80  # a full packet on a line of 100 Gb/s
SACK_PS = 178 * 80
SIZE = 1024 << SIZE_SHIFT


class OnePort:
    """One output port in front of NIC 1 (or of a T1), driven by hand."""

    def __init__(self, hop: int = 1, **switch: Any):
        pairs = [[0, 1]] if hop == 1 else [[0, 2]]
        table: Table = {
            "fabric": {"nics": 4, "hosts_per_t0": 2, "nic_rate": "100Gbps"},
            "switch": {"ecn": False} | switch,
            "traffic": [{"pattern": "send", "pairs": pairs, "size": "1B"}],
        }
        self.model: Model = build(plan(load_scenario(with_model(table, "exact"))))
        self.rtt_ps = self.model.base_rtt_ps
        self.hops, self.layer = 2, 1  # T0 -> NIC
        self.link = int(self.model.topology.nic_down(1, 0))
        self.hop = 1

    def to_t1(self) -> OnePort:
        """Look at an uplink of the T0 instead: there ECN is on."""
        self.hops, self.layer, self.link = 4, 2, int(self.model.topology.t0_up(0, 0, 0))
        return self

    def put(self, psn: int, now: int, w1: int = SIZE) -> None:
        m = self.model
        w1 |= psn << SEQ_SHIFT | self.hop << HOP_SHIFT
        enqueue_exact(m.sim, m.config, 0, w1, self.link, self.layer, self.hop, self.hops, now, now)

    def put_sack(self, slot: int, now: int) -> None:
        self.put(slot, now, CTRL_SACK << SIZE_SHIFT | P_CONTROL)

    def serve(self, now: int) -> None:
        m = self.model
        dequeue(m.sim, m.state, m.profile, m.config, self.link, now)

    def events(self, wanted: int) -> list[tuple[int, int]]:
        """Return (time, word) of all events of a kind, in time order; packets leave without their delay."""
        sim, out = self.model.sim, []
        fabric = self.model.topology
        delay = int(fabric.layer_delay_ps[self.layer])
        delay += fabric.nic_latency_ps if self.layer == 1 else fabric.switch_latency_ps
        for chunk, n in sim.slots[sim.slots[:, 1] > 0]:
            words = [int(chunk) * CHUNK + i for i in range((int(n) - 1) % CHUNK + 1)]
            for place in words:
                w0, w1 = (int(w) for w in sim.chunk[place])
                if (w0 >> 29 & 7) == wanted:
                    out.append(((w0 >> 32) & 0xFFFFFFFF, w1))
        return sorted((t - delay if wanted == E_PACKET else t, w1) for t, w1 in out)

    def left(self) -> list[tuple[int, int]]:
        """Return (time, PSN or slot) of the packets that have left or will, by their last bit."""
        return [(t, w1 >> SEQ_SHIFT & 0xFFFFFF) for t, w1 in self.events(E_PACKET)]


def test_control_overtakes_what_waits_but_not_what_is_served() -> None:
    port = OnePort()
    port.put(1, 0)
    port.put(2, 1000)
    port.put_sack(77, 2000)
    port.put_sack(78, 3000)
    assert port.left() == [(DATA_PS, 1)], "what waits has no time yet"
    assert [t for t, _ in port.events(E_DEQUEUE)] == [DATA_PS], "one call for all that waits"
    port.serve(DATA_PS)
    port.put(3, DATA_PS + 10)
    port.serve(DATA_PS + SACK_PS)
    port.serve(DATA_PS + 2 * SACK_PS)
    port.serve(2 * DATA_PS + 2 * SACK_PS)
    first = DATA_PS
    assert port.left() == [
        (first, 1),
        (first + SACK_PS, 77),
        (first + 2 * SACK_PS, 78),
        (first + 2 * SACK_PS + DATA_PS, 2),
        (first + 2 * SACK_PS + 2 * DATA_PS, 3),
    ]
    assert port.model.sim.port[port.link]["data_free_ps"] == 3 * DATA_PS + 2 * SACK_PS
    assert port.model.sim.exact_port[port.link]["data_bytes"] == 0


def test_a_free_line_is_taken_at_once() -> None:
    port = OnePort()
    port.put(1, 0)
    port.put(2, DATA_PS)  # the line becomes free at this very picosecond
    assert port.left() == [(DATA_PS, 1), (2 * DATA_PS, 2)]
    assert port.events(E_DEQUEUE) == []


def test_trimming_counts_queued_bytes_at_arrival() -> None:
    """Room for exactly two full packets behind one in service that has just begun."""
    port = OnePort(trim_threshold_last_hop=2 * DATA_PS / OnePort().rtt_ps)
    for psn in (1, 2, 3, 4):
        port.put(psn, 0)
    assert port.model.sim.s[I["trimmed"]] == 1
    port.put(5, DATA_PS // 2)  # half of the first is sent: 2.5 packets are queued
    assert port.model.sim.s[I["trimmed"]] == 2
    port.serve(DATA_PS)
    trimmed = port.events(E_PACKET)[-1]
    assert (trimmed[1] >> P_TRIM_SHIFT) & 3 == P_TRIMMED_LASTHOP
    assert trimmed[1] >> SEQ_SHIFT == 4, "a trimmed packet waits with control packets, first of them"
    assert trimmed[0] == DATA_PS + port.model.config.trimmed_line_bytes * 80


def test_trimmed_before_the_last_hop() -> None:
    port = OnePort(hop=2, trim_threshold=0.5 * DATA_PS / OnePort().rtt_ps).to_t1()
    port.put(1, 0)
    port.put(2, 0)
    port.serve(DATA_PS)
    assert (port.events(E_PACKET)[-1][1] >> P_TRIM_SHIFT) & 3 == P_TRIMMED


def test_full_queues_drop() -> None:
    port = OnePort(trim=False, queue_capacity=1.5 * DATA_PS / OnePort().rtt_ps, control_capacity=1e-9)
    for psn in (1, 2, 3, 4):
        port.put(psn, 0)
    assert port.model.sim.drops[D_QUEUE] == 2, "3 and 4 found two packets queued"
    port.put_sack(5, 0)
    port.put_sack(6, 0)
    assert port.model.sim.drops[D_CONTROL] == 1


def test_marks_by_what_is_left_behind() -> None:
    """Every packet that leaves data waiting behind it is marked, and only those."""
    port = OnePort(hop=2, ecn=True, ecn_low=0, ecn_high=1e-6).to_t1()
    for psn in (1, 2, 3):
        port.put(psn, 0)
    port.put_sack(9, 0)
    port.serve(DATA_PS)
    port.serve(DATA_PS + SACK_PS)
    port.serve(2 * DATA_PS + SACK_PS)
    marks = [(w1 >> SEQ_SHIFT, bool(w1 & P_CE)) for _, w1 in port.events(E_PACKET)]
    assert marks == [(1, False), (9, False), (2, True), (3, False)]


# --- the fast model against it ------------------------------------------------------------------
# Two approximations make the difference. The fast model lets a control packet leave while a data packet is
# on the line, so answers are up to one packet time a hop early; and it charges control bytes to the data
# queue, so under heavy trimming every trimmed header makes the queue longer and trims a little more.
BIG = {"nics": 32, "hosts_per_t0": 8, "nic_rate": "100Gbps"}
TWO = {"nics": 16, "hosts_per_t0": 4, "nic_rate": "200Gbps", "planes": 2}
INCAST = {"fabric": BIG, "traffic": [{"pattern": "incast", "target": 0, "size": "500kB"}]}


def _apart(table: Table, seeds: range) -> tuple[float, float, float]:
    """Return by how many per cent exact is above fast: mean FCT, longest FCT (means over seeds), trims."""
    figures = {}
    for model in ("fast", "exact"):
        mean, longest, trims = [], [], 0
        for seed in seeds:
            run = simulate(with_model(table, model) | {"seed": seed})
            fct = run.model.sim.flow_end - run.model.sim.flow_start
            mean.append(fct.mean())
            longest.append(fct.max())
            trims += statistics(run)["trimmed"]
        figures[model] = np.array([np.mean(mean), np.mean(longest), max(trims, 1)])
    mean_fct, longest_fct, trims = 100 * (figures["exact"] / figures["fast"] - 1)
    return float(mean_fct), float(longest_fct), float(trims)


@pytest.mark.parametrize(("fabric", "size"), [(BIG, "1MB"), (TWO, "2MB")], ids=["1 plane", "2 planes"])
def test_permutations_agree(fabric: Table, size: str) -> None:
    """Measured over 8 seeds: mean FCT +0.24 % and +0.08 %, longest +0.15 % and +0.11 %."""
    traffic = [{"pattern": "permutation", "size": size, "start_window": "1us"}]
    mean, longest, _ = _apart({"fabric": fabric, "traffic": traffic}, range(1, 5))
    assert 0 < mean < 0.4, "answers are never earlier in the exact model"
    assert abs(longest) < 0.5


def test_incasts_agree() -> None:
    """Measured 31:1 over 8 seeds: trims -2.3 %, mean FCT +0.5 %, longest +0.8 %; 7:1: trims -5.9 %."""
    mean, longest, trims = _apart(INCAST, range(1, 5))
    assert -3.5 < trims < 0, "headers of trimmed packets are not data in the exact model"
    assert abs(mean) < 3
    assert abs(longest) < 5


def test_without_queues_only_answers_differ() -> None:
    """One message alone: no queue, no contention, the same times to the picosecond."""
    one = {"fabric": BIG, "traffic": [{"pattern": "send", "pairs": [[0, 31]], "size": "4kB"}]}
    fast, exact = (simulate(with_model(one, model)).model.sim for model in ("fast", "exact"))
    assert fast.flow_end.tolist() == exact.flow_end.tolist()
    assert fast.flow_received.tolist() == exact.flow_received.tolist()
