from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import ScenarioError
from openmrc.scenario.graph import COMPUTE, RECEIVED, SENT, STARTED, GraphBuilder, Part
from openmrc.scenario.release import release_times
from scenario_support import event_times, execute, graph_of


def test_columns_have_the_documented_types_and_lengths():
    g = graph_of({"pattern": "all_reduce", "size": "1MB", "steps": 2, "compute": "1us"})
    n = g.n_nodes
    types = {
        "kind": np.uint8, "src": np.int32, "dst": np.int32, "size_bytes": np.int64, "start_ps": np.int64,
        "duration_ps": np.int64, "imm": np.uint8, "job": np.int32, "step": np.int32, "channel": np.int32,
        "n_deps": np.int32, "qp": np.int32,
    }  # fmt: skip
    for name, dtype in types.items():
        assert getattr(g, name).dtype == dtype, name
        assert getattr(g, name).shape == (n,), name
    assert g.edge_first.dtype == np.int64
    assert g.edge_first.shape == (n + 1,)
    assert g.edge_child.dtype == np.int32
    assert g.edge_on.dtype == np.uint8
    assert g.edge_first[-1] == g.n_edges == g.n_deps.sum()
    assert (g.src[g.kind == COMPUTE] == -1).all()
    assert (g.qp[g.kind == COMPUTE] == -1).all()


def test_qps_are_numbered_by_job_source_destination_channel():
    b = GraphBuilder(4)
    b.add_messages([2, 0, 0, 2], [0, 3, 1, 0], 10, job=[0, 1, 0, 0], channel=[1, 0, 0, 0])
    g = b.build()
    assert g.qp.tolist() == [2, 3, 0, 1]
    assert g.qp_src.tolist() == [0, 2, 2, 0]
    assert g.qp_dst.tolist() == [1, 0, 0, 3]


def test_messages_of_one_pair_and_channel_share_a_qp():
    g = graph_of({"pattern": "send", "pairs": [[0, 1]], "size": "1kB", "steps": 5})
    assert g.n_qps == 1
    assert len(g.messages) == 5


def test_edges_are_grouped_by_parent_in_the_order_added():
    b = GraphBuilder(4)
    b.add_messages([0, 1, 2], [1, 2, 3], 1)
    b.add_edges(1, 2, RECEIVED)
    b.add_edges(0, [1, 2], [SENT, STARTED])
    g = b.build()
    assert g.edge_first.tolist() == [0, 2, 3, 3]
    assert g.edge_child.tolist() == [1, 2, 2]
    assert g.edge_on.tolist() == [SENT, STARTED, RECEIVED]
    assert g.parents_of(2) == [(0, STARTED), (1, RECEIVED)]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"src": 0, "dst": 0}, "NIC 0 sends to itself"),
        ({"src": 0, "dst": 4}, "NICs 0 to 3"),
        ({"src": -1, "dst": 1}, "NICs 0 to 3"),
        ({"src": 0, "dst": 1, "size_bytes": (1 << 31) + 1}, "0 to 2^31 B"),
        ({"src": 0, "dst": 1, "size_bytes": -1}, "0 to 2^31 B"),
        ({"src": 0, "dst": 1, "start_ps": -1}, "2^62 ps"),
    ],
)
def test_impossible_messages_are_refused(columns, words):
    b = GraphBuilder(4)
    b.add_messages(**{"size_bytes": 1, **columns})
    with pytest.raises(ScenarioError, match=words.replace("^", r"\^")):
        b.build()


def test_sizes_from_nothing_to_the_limit_are_allowed():
    b = GraphBuilder(4)
    b.add_messages([0, 0], [1, 2], [0, 1 << 31])
    assert b.build().total_bytes == 1 << 31


def test_a_cycle_is_refused_and_named():
    b = GraphBuilder(4)
    b.add_messages([0, 1, 2, 3], [1, 2, 3, 0], 1)
    b.add_edges([0, 1, 2, 3], [1, 2, 1, 0], [SENT, SENT, RECEIVED, STARTED])  # 1 -> 2 -> 1
    with pytest.raises(ScenarioError) as caught:
        b.build()
    text = str(caught.value)
    assert "node 1 (message 1 -> 2)" in text
    assert "node 2 (message 2 -> 3)" in text
    assert "node 0" not in text
    assert "remove one dependency" in text


def test_a_long_cycle_is_shortened():
    b = GraphBuilder(200)
    ids = b.add_messages(np.arange(100), np.arange(100) + 100, 1)
    b.add_edges(ids, np.roll(ids, -1), SENT)
    with pytest.raises(ScenarioError, match="92 more"):
        b.build()


def test_a_self_dependency_is_a_cycle():
    b = GraphBuilder(2)
    b.add_messages(0, 1, 1)
    b.add_edges(0, 0, SENT)
    with pytest.raises(ScenarioError, match="waits for itself"):
        b.build()


def test_a_node_may_need_fewer_edges_than_lead_to_it():
    part = Part.of_messages(
        [0, 1, 2, 3], [1, 2, 3, 0], 1, edges=([0, 1, 2], [3, 3, 3], SENT), needs=[-1, -1, -1, 2]
    )
    b = GraphBuilder(4)
    b.add_part(part)
    g = b.build()
    assert g.n_deps.tolist() == [0, 0, 0, 2]
    times = np.zeros((3, 4), np.int64)
    times[SENT] = [30, 10, 20, 0]
    assert release_times(g, times)[3] == 20  # the second of three firings


@st.composite
def graphs(draw, partial: bool):
    n = draw(st.integers(2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    b = GraphBuilder(n + 1)
    message = rng.random(n) < 0.6
    src = np.arange(n)
    needs = np.full(n, -1)
    edges = [(p, c) for c in range(1, n) for p in range(c) if rng.random() < 2.5 / c]
    if partial and edges:
        counts = np.bincount([c for _, c in edges], minlength=n)
        needs = np.where(counts > 1, rng.integers(1, np.maximum(counts, 1) + 1), -1)
    renumber = rng.permutation(n)  # edges shall lead to lower numbers, too
    table = np.array([(renumber[p], renumber[c]) for p, c in edges], np.int64).reshape(-1, 2)
    column = np.zeros(n, np.int64)
    part = Part(
        kind=np.where(message, 0, 1), src=np.where(message, src, -1), dst=np.where(message, src + 1, -1),
        size_bytes=column, start_ps=rng.integers(0, 50, n), duration_ps=np.where(message, 0, 7),
        imm=column, channel=column, edge_parent=table[:, 0], edge_child=table[:, 1],
        edge_on=rng.integers(0, 3, len(table)), needs=needs[np.argsort(renumber)],
    )  # fmt: skip
    b.add_part(part)
    return b.build(), rng.integers(0, 100, n)


@settings(max_examples=60, deadline=None)
@given(graphs(partial=False))
def test_release_times_agree_with_an_event_queue(case):
    graph, duration = case
    assert release_times(graph, event_times(graph, duration)).tolist() == execute(graph, duration)


@settings(max_examples=40, deadline=None)
@given(graphs(partial=True))
def test_release_times_agree_where_k_of_n_edges_release(case):
    graph, duration = case
    assert release_times(graph, event_times(graph, duration)).tolist() == execute(graph, duration)


def test_wide_levels_agree_with_an_event_queue():
    g = graph_of({"pattern": "all_to_all", "size": "1kB", "steps": 2, "compute": "1us", "parallel": 3})
    duration = (np.arange(g.n_nodes) * 7919) % 1009
    assert release_times(g, event_times(g, duration)).tolist() == execute(g, duration)


def test_describe_counts_everything():
    g = graph_of({"pattern": "all_to_all", "nics": "0-3", "size": "1MB", "steps": 2, "compute": "2ms"})
    assert g.describe() == ("24 messages, 24.0 MB, 12 QPs, 8 computations of up to 2 ms, 48 dependencies")


def test_large_graphs_build_within_a_second():
    big = {"nics": 131_072, "hosts_per_t0": 256, "planes": 8, "nic_rate": "800Gbps"}
    begin = time.process_time()
    g = graph_of({"pattern": "permutation", "size": "1MB", "start_window": "1us"}, fabric=big)
    assert len(g.messages) == g.n_qps == 131_072
    assert time.process_time() - begin < 1.5
    begin = time.process_time()
    g = graph_of({"pattern": "all_to_all", "nics": "0-255", "size": "1MB"}, fabric=big)
    assert len(g.messages) == 256 * 255
    assert time.process_time() - begin < 1.5
