from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from openmrc.scenario.draws import random_derangement, random_permutation, random_times
from openmrc.scenario.graph import COMPUTE, MESSAGE, RECEIVED, SENT, STARTED
from scenario_support import FABRIC, graph_of, messages

# --- random streams ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 64, 1000])
def test_a_derangement_moves_everything(n):
    for seed in range(20):
        d = random_derangement(seed, "x", n)
        assert sorted(d.tolist()) == list(range(n))
        assert not (d == np.arange(n)).any()


def test_derangements_are_uniform():
    seen = Counter(tuple(random_derangement(seed, "x", 4).tolist()) for seed in range(1800))
    assert len(seen) == 9  # !4
    assert min(seen.values()) > 140  # 200 expected; 4.4 standard deviations
    assert max(seen.values()) < 260


def test_streams_depend_on_seed_and_name():
    a = random_permutation(1, "a", 50).tolist()
    assert a == random_permutation(1, "a", 50).tolist()
    assert a != random_permutation(2, "a", 50).tolist()
    assert a != random_permutation(1, "b", 50).tolist()


def test_raw_draws_do_not_depend_on_the_numpy_version():
    """Pinned: raw Philox words are the same everywhere, and a change here changes every scenario."""
    assert random_permutation(1, "traffic.0", 8).tolist() == [6, 2, 0, 7, 1, 3, 5, 4]
    assert random_times(1, "t", 3, 1000).tolist() == [662, 94, 683]


def test_times_fill_the_window():
    t = random_times(7, "w", 10_000, 1_000_000)
    assert t.min() >= 0
    assert t.max() < 1_000_000
    assert abs(t.mean() - 500_000) < 15_000
    assert random_times(7, "w", 3, 0).tolist() == [0, 0, 0]


# --- patterns ------------------------------------------------------------------------------


def test_permutation():
    g = graph_of({"pattern": "permutation", "size": "3MB", "start": "5us", "start_window": "1us"})
    m = messages(g)
    assert sorted(s for s, _, _ in m) == sorted(d for _, d, _ in m) == list(range(16))
    assert {size for _, _, size in m} == {3_000_000}
    assert all(s != d for s, d, _ in m)
    assert (g.start_ps >= 5_000_000).all()
    assert (g.start_ps < 6_000_000).all()
    assert len(set(g.start_ps.tolist())) == 16
    assert g.n_edges == 0


def test_permutation_among_some_nics():
    g = graph_of({"pattern": "permutation", "size": "1kB", "nics": "1-15:2"})
    assert sorted(g.src.tolist()) == sorted(g.dst.tolist()) == list(range(1, 16, 2))


def test_incast_from_all_others():
    g = graph_of({"pattern": "incast", "target": 3, "size": "1MB"})
    assert messages(g) == [(s, 3, 1_000_000) for s in range(16) if s != 3]


@pytest.mark.parametrize(
    ("senders", "expected"),
    [(3, [0, 1, 3]), ("7-9", [7, 8, 9]), ([5, 1], [5, 1]), (15, [*range(2), *range(3, 16)])],
)
def test_incast_from_some(senders, expected):
    g = graph_of({"pattern": "incast", "target": 2, "size": "1MB", "senders": senders})
    assert g.src.tolist() == expected


@pytest.mark.parametrize("parallel", [1, 3, 8, 100])
def test_all_to_all(parallel):
    n = 16
    g = graph_of({"pattern": "all_to_all", "size": "10kB", "parallel": parallel})
    pairs = [(s, d) for s, d, _ in messages(g)]
    assert sorted(pairs) == [(s, d) for s in range(n) for d in range(n) if s != d]
    assert pairs[:n] == [(i, (i + 1) % n) for i in range(n)]  # all targets differ at any time
    for nic in range(n):
        own = [m for m in range(g.n_nodes) if g.src[m] == nic]
        assert [int(g.dst[m]) for m in own] == [(nic + k) % n for k in range(1, n)]
        for k, m in enumerate(own):
            assert g.parents_of(m) == ([(own[k - parallel], SENT)] if k >= parallel else [])


@pytest.mark.parametrize(
    ("pattern", "rounds"), [("all_reduce", 2 * 7), ("reduce_scatter", 7), ("all_gather", 7)]
)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [800_000, 800_003])
def test_ring_collectives(pattern, rounds, channels, size):
    n = 8
    g = graph_of({"pattern": pattern, "size": f"{size}B", "nics": "4-11", "channels": channels})
    assert len(g.messages) == rounds * n * channels
    assert g.n_qps == n * channels
    assert (g.dst == 4 + (g.src - 4 + 1) % n).all()
    assert g.total_bytes == size * rounds  # each round moves the whole buffer once, in n x channels pieces
    assert g.size_bytes.max() - g.size_bytes.min() <= 1
    first = n * channels
    assert (g.n_deps[:first] == 0).all()
    for m in range(first, g.n_nodes):
        (own,) = [p for p, on in g.parents_of(m) if on == STARTED]
        (left,) = [p for p, on in g.parents_of(m) if on == RECEIVED]
        assert len(g.parents_of(m)) == 2
        assert g.src[own] == g.src[m]
        assert g.dst[left] == g.src[m]
        assert g.channel[own] == g.channel[left] == g.channel[m]
        assert g.size_bytes[left] == g.size_bytes[m]  # the piece that arrived is the piece passed on
        assert own // first == left // first == m // first - 1


def pieces_held(pattern: str, n: int) -> list[list[set[int]]]:
    """Carry the pieces around the ring of a graph: pieces[place][chunk] = places summed into it."""
    g = graph_of({"pattern": pattern, "size": f"{n * 10 + 3}B", "nics": f"0-{n - 1}"})
    held = [[{p} if pattern != "all_gather" or p == c else set() for c in range(n)] for p in range(n)]
    rounds = g.n_nodes // n
    for k in range(rounds):
        arriving = []
        for place in range(n):
            m = k * n + place
            chunk = (place - k) % n
            assert g.size_bytes[m] == (n * 10 + 3) // n + (chunk < 3)
            arriving.append(((place + 1) % n, chunk, set(held[place][chunk])))
        for place, chunk, sources in arriving:
            held[place][chunk] |= sources
    return held


def test_ring_collectives_compute_what_their_name_says():
    n = 6
    everyone = set(range(n))
    assert pieces_held("all_reduce", n) == [[everyone] * n] * n
    assert pieces_held("all_gather", n) == [[{c} for c in range(n)]] * n
    scattered = pieces_held("reduce_scatter", n)
    assert [[c for c in range(n) if scattered[p][c] == everyone] for p in range(n)] == [
        [(p + 1) % n] for p in range(n)
    ]


def test_ring_of_random_order_is_one_ring():
    g = graph_of({"pattern": "all_gather", "size": "1MB", "order": "random"})
    follow = dict(zip(g.src.tolist(), g.dst.tolist(), strict=True))
    nic, seen = 0, []
    for _ in range(16):
        seen.append(nic)
        nic = follow[nic]
    assert sorted(seen) == list(range(16))
    assert seen != list(range(16))
    assert nic == 0


def test_send():
    g = graph_of(
        {"pattern": "send", "pairs": [[0, 5], [1, 6]], "size": "2MB", "bidirectional": True, "imm": True}
    )
    assert [(s, d) for s, d, _ in messages(g)] == [(0, 5), (1, 6), (5, 0), (6, 1)]
    assert g.imm.tolist() == [1] * 4
    assert graph_of({"pattern": "send", "pairs": [[0, 5]], "size": 0}).size_bytes.tolist() == [0]


@pytest.mark.parametrize("qps", [1, 2, 3])
def test_stream(qps):
    g = graph_of(
        {
            "pattern": "stream",
            "pairs": [[0, 5], [1, 6]],
            "write_size": "32KB",
            "size": "330KB",
            "outstanding": 2,
            "qps": qps,
        }
    )
    assert g.n_qps == 2 * qps
    for src in (0, 1):
        own = [m for m in range(g.n_nodes) if g.src[m] == src]
        assert [int(g.size_bytes[m]) for m in own] == [32_000] * 10 + [10_000]
        for channel in range(qps):
            line = [m for m in own if g.channel[m] == channel]
            for k, m in enumerate(line):
                assert g.parents_of(m) == ([(line[k - 2], SENT)] if k >= 2 else [])


def test_stream_by_count_and_both_ways():
    g = graph_of(
        {"pattern": "stream", "pairs": [[0, 5]], "count": 5, "bidirectional": True, "write_size": "1kB"}
    )
    assert Counter(messages(g)) == {(0, 5, 1000): 5, (5, 0, 1000): 5}
    assert g.n_edges == 0  # 32 may be outstanding


# --- steps, jobs ---------------------------------------------------------------------------


def test_steps_with_compute_are_a_training_step():
    g = graph_of(
        {
            "pattern": "permutation",
            "size": "1MB",
            "steps": 3,
            "compute": "1ms",
            "start": "7us",
            "start_window": "1us",
        }
    )
    gates = [[n for n in range(g.n_nodes) if g.kind[n] == COMPUTE and g.step[n] == s] for s in range(3)]
    sends = [[n for n in range(g.n_nodes) if g.kind[n] == MESSAGE and g.step[n] == s] for s in range(3)]
    assert [len(s) for s in gates] == [len(s) for s in sends] == [16] * 3
    assert (g.duration_ps[g.kind == COMPUTE] == 10**9).all()
    assert [int(g.start_ps[n]) for n in gates[0]] == [7_000_000] * 16
    assert all(g.n_deps[n] == 0 for n in gates[0])
    assert all(0 <= g.start_ps[n] < 1_000_000 for s in sends for n in s)  # after its computation
    for step in range(3):
        for nic, gate in enumerate(gates[step]):  # the gates of a step are in order of NICs
            (own,) = [m for m in sends[step] if g.src[m] == nic]
            assert g.parents_of(own) == [(gate, SENT)]
            if step:
                sent = [m for m in sends[step - 1] if g.src[m] == nic]
                received = [m for m in sends[step - 1] if g.dst[m] == nic]
                assert sorted(g.parents_of(gate)) == sorted([(sent[0], SENT), (received[0], RECEIVED)])


def test_steps_without_compute_are_joined():
    g = graph_of({"pattern": "incast", "target": 0, "senders": 3, "size": "1MB", "steps": 2, "start": "3us"})
    assert g.kind.tolist() == [MESSAGE] * 3 + [COMPUTE] * 4 + [MESSAGE] * 3
    assert g.duration_ps.tolist() == [0] * 10
    assert g.start_ps.tolist() == [3_000_000] * 3 + [0] * 7
    assert sorted(g.parents_of(3)) == [(0, RECEIVED), (1, RECEIVED), (2, RECEIVED)]  # the target
    assert g.parents_of(4) == [(0, SENT)]


def test_every_rank_of_a_stepped_ring_waits_for_its_own_computation():
    g = graph_of({"pattern": "all_reduce", "size": "1MB", "nics": "0-3", "steps": 2, "compute": "1us"})
    for node in range(g.n_nodes):
        if g.kind[node] == MESSAGE:
            ancestors, todo = set(), [node]
            while todo:
                for p, _ in g.parents_of(todo.pop()):
                    if p not in ancestors:
                        ancestors.add(p)
                        todo.append(p)
            gates = [a for a in ancestors if g.kind[a] == COMPUTE and g.step[a] == g.step[node]]
            own = [m for m in g.edge_child[np.isin(g.edge_parents(), gates)] if g.src[m] == g.src[node]]
            assert own, node


def test_jobs_run_side_by_side_with_their_own_qps():
    entry = {"pattern": "send", "pairs": [[0, 1]], "size": "1MB"}
    g = graph_of(entry | {"job": "a"}, entry | {"job": "b", "start": "1us"}, entry | {"job": "a"})
    assert g.job_names == ("a", "b")
    assert g.job.tolist() == [0, 1, 0]
    assert g.qp.tolist() == [0, 1, 0]
    assert g.start_ps.tolist() == [0, 1_000_000, 0]
    assert graph_of(entry, entry).job_names == ("traffic.0", "traffic.1")


def test_adding_traffic_moves_no_other_draw():
    perm = {"pattern": "permutation", "size": "1MB", "start_window": "1us"}
    ring = {"pattern": "all_gather", "size": "1MB", "order": "random"}
    alone, more = graph_of(perm), graph_of(perm, ring)
    assert more.dst[:16].tolist() == alone.dst.tolist()
    assert more.start_ps[:16].tolist() == alone.start_ps.tolist()
    named = perm | {"job": "mine"}
    alone, behind = graph_of(named), graph_of(ring, named)
    assert behind.dst[-16:].tolist() == alone.dst.tolist()
    twice = graph_of(named, named)  # two entries of one job do not repeat each other
    assert twice.dst[:16].tolist() == alone.dst.tolist()
    assert twice.dst[16:].tolist() != alone.dst.tolist()


def test_the_same_seed_gives_the_same_graph():
    traffic = [
        {"pattern": "permutation", "size": "1MB", "start_window": "1us", "steps": 2},
        {"pattern": "all_reduce", "size": "1MB", "order": "random"},
    ]
    a, b = graph_of(*traffic), graph_of(*traffic)
    for name in ("src", "dst", "start_ps", "edge_child", "edge_on", "qp"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert not np.array_equal(a.dst, graph_of(*traffic, seed=2).dst)


def test_fabric_size_bounds_the_pattern():
    g = graph_of({"pattern": "all_to_all", "size": "1kB"}, fabric=FABRIC | {"nics": 5})
    assert len(g.messages) == 20
