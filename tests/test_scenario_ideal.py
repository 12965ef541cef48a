from __future__ import annotations

import heapq
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.fabric.topology import Topology
from openmrc.scenario import build_graph, load_scenario
from openmrc.scenario.graph import MESSAGE, RECEIVED, SENT, GraphBuilder, MessageGraph
from openmrc.scenario.ideal import PacketCost, hops_between, ideal, line_bytes, packet_cost, packets_of
from openmrc.transport.settings import TransportSettings
from scenario_support import EXAMPLES, FABRIC, graph_of, scenario_of, topology

COST = PacketCost(4096, 166, 146)
FULL = 4096 + 166
PS = 80  # picoseconds for each byte at 100 Gb/s: FABRIC has 4 planes of them
LOCAL = 2 * 600_000 + 500_000 + 2 * 50_000  # NICs, one switch, two cables of 10 m
CROSS = 2 * 600_000 + 3 * 500_000 + 2 * 50_000 + 2 * 200_000


def one_message(size: int, dst: int = 5, **settings) -> int:
    builder = GraphBuilder(16)
    builder.add_messages(0, dst, size)
    return ideal(builder.build(), topology(**settings), COST).makespan_ps


def ack(hops: int) -> int:
    return (LOCAL if hops == 2 else CROSS) + hops * 146 * PS


# --- closed forms --------------------------------------------------------------------------


def test_packet_cost_follows_mode_pmtu_and_tseth():
    assert packet_cost(TransportSettings()) == COST
    assert packet_cost(TransportSettings(tseth=False)).overhead_line_bytes == 162
    assert packet_cost(TransportSettings(mode="stev")).overhead_line_bytes == 126
    assert packet_cost(TransportSettings(pmtu="1024B")).pmtu_bytes == 1024


def test_packets_and_line_bytes():
    sizes = np.array([0, 1, 4096, 4097, 1 << 31])
    assert packets_of(sizes, 4096).tolist() == [1, 1, 1, 2, 1 << 19]
    assert line_bytes(sizes, COST).tolist() == [166, 167, 4262, 4097 + 332, (1 << 31) + 166 * (1 << 19)]


def test_hops_agree_with_the_topology():
    for t in (
        topology(),
        topology(nics=128, planes=1, tiers=3, hosts_per_t0=4, t0_per_pod=4, uplinks_per_t0=4, t1_uplinks=4),
    ):
        n = t.params.n_nics
        src, dst = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(n)))
        far = src != dst
        expected = [t.hop_count(s, d) for s, d in zip(src[far].tolist(), dst[far].tolist(), strict=True)]
        assert hops_between(t, src[far], dst[far]).tolist() == expected


@pytest.mark.parametrize(("dst", "hops", "still"), [(1, 2, LOCAL), (5, 4, CROSS)])
def test_one_packet_takes_its_latency_and_that_of_the_ack(dst, hops, still):
    assert one_message(4096, dst) == still + hops * FULL * PS + ack(hops)
    assert one_message(0, dst) == still + hops * 166 * PS + ack(hops)


@pytest.mark.parametrize(("packets", "rounds"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_full_packets_spread_over_the_planes(packets, rounds):
    assert one_message(packets * 4096) == CROSS + (rounds + 3) * FULL * PS + ack(4)


def test_a_short_last_packet_costs_what_it_must():
    # four planes: 4 full packets and a short one end with the short one behind a full one
    short = 100 + 166
    with_short = one_message(4 * 4096 + 100)
    assert with_short == CROSS + max(FULL + 4 * short, 4 * FULL) * PS + ack(4)
    # 3 full and a short one in parallel: the full ones decide
    assert one_message(3 * 4096 + 100) == one_message(4096)


def test_the_flow_of_uet_htsim_alone():
    """2 MB alone over 100 Gb/s, links of 1 us: uet-htsim needs 176.2 us with larger headers of its own."""
    s = load_scenario(EXAMPLES / "htsim-perm-1024.toml")
    t = Topology(s.fabric)
    best = ideal(build_graph(s, t), t, packet_cost(s.transport))
    whole, rest = divmod(2_000_000, 4096)
    data = (whole * FULL + (rest + 166)) * PS + 3 * (rest + 166) * PS + 4_000_000
    crossing = hops_between(t, np.array([334]), np.array([395]))[0]
    assert crossing == 4
    full_last = (whole + 3) * FULL * PS + 4_000_000
    assert best.flow_ps[0] == max(data, full_last) + 4_000_000 + 4 * 146 * PS
    assert 165_000_000 < best.makespan_ps < 186_000_000


def test_incast_is_bound_by_the_receiver():
    g = graph_of({"pattern": "incast", "target": 0, "size": "409600B"})
    best = ideal(g, topology(), COST)
    # 15 x 100 packets over four ports; the nearest sender sits under the same T0
    assert best.bytes_ps == 15 * 100 * FULL * PS // 4 + LOCAL + FULL * PS + ack(2)
    assert best.makespan_ps == best.bytes_ps
    assert best.limited_by == "bytes received by NIC 0"


def test_an_outcast_is_bound_by_the_sender():
    pairs = [[3, d] for d in range(16) if d != 3]
    g = graph_of({"pattern": "send", "pairs": pairs, "size": "409600B"})
    best = ideal(g, topology(), COST)
    assert best.bytes_ps == 15 * 100 * FULL * PS // 4 + LOCAL + FULL * PS + ack(2)
    assert best.limited_by == "bytes sent by NIC 3"


def test_late_bytes_count_from_their_start():
    early = {"pattern": "send", "pairs": [[0, 5]], "size": "4096B"}
    late = {"pattern": "send", "pairs": [[1, 5]], "size": "409600B", "start": "1ms"}
    both = ideal(graph_of(early, late), topology(), COST).makespan_ps
    assert both == 10**9 + 25 * FULL * PS + CROSS + 3 * FULL * PS + ack(4)


@pytest.mark.parametrize(("pattern", "rounds"), [("all_reduce", 30), ("all_gather", 15)])
def test_a_ring_is_a_chain(pattern, rounds):
    """16 NICs in a line of T0s: three of four neighbours are local, a chain passes all of them."""
    g = graph_of({"pattern": pattern, "size": f"{16 * 4096}B"})
    best = ideal(g, topology(), COST)
    local, cross = LOCAL + 2 * FULL * PS, CROSS + 4 * FULL * PS
    chains = []
    for start in range(16):
        crossings = [(start + k) % 4 == 3 for k in range(rounds)]
        chain = sum(cross if c else local for c in crossings)
        chains.append(chain + ack(4 if crossings[-1] else 2))
    assert best.chain_ps == max(chains)
    assert best.makespan_ps == best.chain_ps
    assert "dependency chain" in best.limited_by


def test_a_training_step_is_computation_and_bytes_in_turn():
    steps, n = 3, 16
    g = graph_of(
        {"pattern": "all_to_all", "size": "40960B", "steps": steps, "compute": "1ms", "parallel": 15}
    )
    best = ideal(g, topology(), COST)
    exchange = (n - 1) * 10 * FULL * PS // 4
    floor = steps * (10**9 + exchange)
    assert floor < best.makespan_ps < floor + steps * 12_000_000


def test_sent_waits_for_the_ack_and_received_does_not():
    for on, extra in ((SENT, ack(4)), (RECEIVED, 0)):
        builder = GraphBuilder(16)
        builder.add_messages([0, 5], [5, 0], 4096)
        builder.add_edges(0, 1, on)
        one = CROSS + 4 * FULL * PS
        assert ideal(builder.build(), topology(), COST).chain_ps == 2 * one + extra + ack(4)


def test_computations_alone():
    builder = GraphBuilder(16)
    builder.add_computes([5, 7], start_ps=[1, 0])
    builder.add_edges(0, 1, SENT)
    best = ideal(builder.build(), topology(), COST)
    assert best.makespan_ps == 13
    assert best.limited_by == "the dependency chain that ends with a computation"


def test_cut_through_saves_the_serialisation_of_later_hops():
    builder = GraphBuilder(16)
    builder.add_messages(0, 5, 4096)
    best = ideal(builder.build(), topology(), COST, cut_through=True)
    assert best.makespan_ps == 2 * CROSS + (FULL + 146) * PS


# --- a lower bound of every execution ------------------------------------------------------


def perfect_network(graph: MessageGraph, t: Topology, cost: PacketCost) -> int:
    """Run a graph packet by packet over NIC ports that queue and a fabric that never does."""
    planes, mult = t.params.planes, t.layer_mult_q16
    up, down = np.zeros((t.params.n_nics, planes), np.int64), np.zeros((t.params.n_nics, planes), np.int64)
    missing, todo = graph.n_deps.copy(), []
    left: dict[int, int] = {}
    end = 0

    def fire(node: int, event: int, now: int) -> None:
        for e in range(graph.edge_first[node], graph.edge_first[node + 1]):
            if graph.edge_on[e] == event:
                child = int(graph.edge_child[e])
                missing[child] -= 1
                if missing[child] == 0:
                    heapq.heappush(todo, (now + int(graph.start_ps[child]), 0, child, 0, 0))

    for node in np.flatnonzero(graph.n_deps == 0).tolist():
        heapq.heappush(todo, (int(graph.start_ps[node]), 0, node, 0, 0))
    while todo:
        now, what, node, plane, size = heapq.heappop(todo)
        end = max(end, now)
        src, dst = int(graph.src[node]), int(graph.dst[node])
        if what == 0:  # released
            fire(node, 0, now)
            if graph.kind[node] != MESSAGE:
                heapq.heappush(todo, (now + int(graph.duration_ps[node]), 3, node, 0, 0))
                continue
            total = int(graph.size_bytes[node])
            count = max(1, -(-total // cost.pmtu_bytes))
            left[node] = count
            hops = t.hop_count(src, dst)
            for k in range(count):
                payload = min(cost.pmtu_bytes, total - k * cost.pmtu_bytes)
                wire = payload + cost.overhead_line_bytes
                port = (int(np.argmin(np.roll(up[src], -node))) + node) % planes  # not all begin with port 0
                up[src, port] = max(up[src, port], now + t.nic_latency_ps) + (wire * int(mult[0]) >> 16)
                arrive = int(up[src, port]) + int(t.layer_delay_ps[0])
                for layer in range(2, hops):
                    arrive += (
                        t.switch_latency_ps + (wire * int(mult[layer]) >> 16) + int(t.layer_delay_ps[layer])
                    )
                heapq.heappush(todo, (arrive + t.switch_latency_ps, 1, node, port, wire))
        elif what == 1:  # at the last switch
            down[dst, plane] = max(down[dst, plane], now) + (size * int(mult[1]) >> 16)
            placed = int(down[dst, plane]) + int(t.layer_delay_ps[1]) + t.nic_latency_ps
            heapq.heappush(todo, (placed, 2, node, 0, 0))
        elif what == 2:  # placed
            left[node] -= 1
            if left[node] == 0:
                fire(node, RECEIVED, now)
                back = t.unloaded_latency_ps(dst, src, cost.ack_line_bytes)
                heapq.heappush(todo, (now + back, 3, node, 0, 0))
        else:  # completed
            fire(node, SENT, now)
            if graph.kind[node] != MESSAGE:
                fire(node, RECEIVED, now)
    return end


WINDOWS = st.sampled_from([0, "9us"])
TRAFFIC = st.one_of(
    st.fixed_dictionaries(
        {"pattern": st.just("permutation"), "steps": st.integers(1, 3), "start_window": WINDOWS}
    ),
    st.fixed_dictionaries(
        {"pattern": st.just("incast"), "target": st.integers(0, 15), "steps": st.integers(1, 2)}
    ),
    st.fixed_dictionaries(
        {"pattern": st.just("all_to_all"), "nics": st.sampled_from(["0-4", "0-15:5"]),
         "parallel": st.integers(1, 4), "steps": st.integers(1, 2)}
    ),
    st.fixed_dictionaries(
        {"pattern": st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]), "nics": st.just("2-6"),
         "channels": st.integers(1, 2), "compute": st.sampled_from([0, "3us"])}
    ),
    st.fixed_dictionaries({"pattern": st.just("send"), "pairs": st.just([[0, 1], [0, 9], [8, 1]])}),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(TRAFFIC, st.sampled_from([64, 4096, 5000, 8192, 40_961, 90_000])), min_size=1, max_size=2
    ),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["100Gbps", "400Gbps", "1.2Tbps"]),
)
def test_no_execution_is_faster(entries, planes, rate):
    traffic = [entry | {"size": f"{size}B"} for entry, size in entries]
    s = scenario_of(*traffic, fabric=FABRIC | {"planes": planes, "nic_rate": rate})
    t = Topology(s.fabric)
    g = build_graph(s, t)
    best = ideal(g, t, COST)
    made = perfect_network(g, t, COST)
    assert best.makespan_ps <= made
    if len(entries) == 1:
        assert made <= 2.5 * best.makespan_ps, "a bound this loose says nothing"


def test_the_bound_is_tight_where_nothing_competes():
    for entry in (
        {"pattern": "permutation", "size": "409600B"},
        {"pattern": "all_reduce", "size": "6553600B"},
        {"pattern": "incast", "target": 3, "size": "409600B"},
    ):
        g = graph_of(entry)
        best, made = ideal(g, topology(), COST).makespan_ps, perfect_network(g, topology(), COST)
        assert best <= made <= 1.02 * best, entry


def test_every_flow_alone_takes_its_own_ideal():
    g = graph_of({"pattern": "permutation", "size": "100kB"})
    best = ideal(g, topology(), COST)
    for flow, node in enumerate(g.messages.tolist()):
        builder = GraphBuilder(16)
        builder.add_messages(g.src[node], g.dst[node], g.size_bytes[node])
        alone = builder.build()
        assert ideal(alone, topology(), COST).makespan_ps == best.flow_ps[flow]
        assert best.flow_ps[flow] <= perfect_network(alone, topology(), COST)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.stem)
def test_examples_have_an_ideal(path):
    s = load_scenario(path)
    t = Topology(s.fabric)
    g = build_graph(s, t)
    best = ideal(g, t, packet_cost(s.transport))
    assert len(best.flow_ps) == len(g.messages)
    assert best.makespan_ps >= best.flow_ps.max() > 0


def test_large_scenarios_take_less_than_a_second():
    big = {"nics": 131_072, "hosts_per_t0": 256, "planes": 8, "nic_rate": "800Gbps"}
    s = scenario_of({"pattern": "permutation", "size": "1MB", "start_window": "1us"}, fabric=big)
    t = Topology(s.fabric)
    g = build_graph(s, t)
    begin = time.process_time()
    best = ideal(g, t, COST)
    assert time.process_time() - begin < 1
    assert 10_000_000 < best.makespan_ps < 25_000_000
