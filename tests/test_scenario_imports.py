from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import ScenarioError
from openmrc.fabric.topology import Topology
from openmrc.scenario import GraphBuilder, build_graph, load_scenario
from openmrc.scenario.connection_matrix import parse_connection_matrix, read_connection_matrix
from openmrc.scenario.goal import parse_goal, read_goal
from openmrc.scenario.graph import COMPUTE, MESSAGE, RECEIVED, SENT, STARTED
from scenario_support import DATA, execute, messages

HTSIM = DATA / "htsim"


def built(part, nics):
    builder = GraphBuilder(nics)
    builder.add_part(part)
    return builder.build()


def complaint(action) -> list[str]:
    """Return the lines of the ScenarioError that an action raises; nothing where it succeeds."""
    try:
        action()
    except ScenarioError as error:
        return str(error).splitlines()
    return []


# --- connection matrices -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nodes", "flows", "size"),
    [
        ("one.cm", 16, 1, 2_000_000),
        ("incast.cm", 16, 15, 2_000_000),
        ("incast_128.cm", 128, 127, 2_000_000),
        ("perm_128n_128c_2MB.cm", 128, 128, 2_000_000),
        ("perm_1024n_1024c_0u_2000000b.cm", 1024, 1024, 2_000_000),
        ("perm_8192n_8192c_1MB.cm", 8192, 8192, 1_000_000),
        ("alltoall_serial_16n.cm", 16, 240, 2_000_000),
    ],
)
def test_files_of_htsim(name, nodes, flows, size):
    cm = read_connection_matrix(HTSIM / name)
    assert cm.nodes == nodes
    assert len(cm.part.src) == flows
    assert (cm.part.size_bytes == size).all()
    text = (HTSIM / name).read_text()
    pairs = [line.split()[0] for line in text.splitlines() if "->" in line]
    assert [f"{s}->{d}" for s, d in zip(cm.part.src, cm.part.dst, strict=True)] == pairs
    g = built(cm.part, nodes)
    assert g.n_qps == flows
    if name.startswith("perm"):
        assert sorted(g.src.tolist()) == sorted(g.dst.tolist()) == list(range(nodes))


def test_the_serial_all_to_all_is_one_chain_for_each_source():
    cm = read_connection_matrix(HTSIM / "alltoall_serial_16n.cm")
    g = built(cm.part, 16)
    assert g.n_edges == 224
    assert (g.edge_on == SENT).all()
    for src in range(16):
        own = [m for m in range(240) if g.src[m] == src]
        assert sorted(int(g.dst[m]) for m in own) == [d for d in range(16) if d != src]
        assert [g.parents_of(m) for m in own] == [[]] + [[(m, SENT)] for m in own[:-1]]


def matrix(*lines: str, nodes: int = 8, flows: int | None = None, triggers: int | None = None) -> str:
    found = sum("->" in line for line in lines)
    fired = sum(line.startswith("trigger") for line in lines)
    head = [f"Nodes {nodes}", f"Connections {found if flows is None else flows}"]
    if fired or triggers is not None:
        head.append(f"Triggers {fired if triggers is None else triggers}")
    return "\n".join([*head, *lines])


def finish_times(text: str, durations: list[int]) -> list[int]:
    """Run a matrix with given flow times; SENT after all of it, RECEIVED after two thirds."""
    g = built(parse_connection_matrix(text).part, 8)
    return execute(g, np.array(durations))


def test_oneshot_starts_all_that_wait_and_only_once():
    text = matrix(
        "0->1 id 1 start 0 size 10 send_done_trigger 1",
        "1->2 id 2 start 0 size 10 send_done_trigger 1",
        "2->3 id 3 trigger 1 size 10",
        "3->4 id 4 trigger 1 size 10",
        "trigger id 1 oneshot",
    )
    assert finish_times(text, [30, 90, 1, 1]) == [0, 0, 30, 30]
    assert finish_times(text, [90, 30, 1, 1]) == [0, 0, 30, 30]


def test_recv_done_is_the_last_byte_placed():
    text = matrix(
        "0->1 start 5 size 10 recv_done_trigger 1 send_done_trigger 2",
        "1->2 trigger 1 size 10",
        "2->3 trigger 2 size 10",
        "trigger id 1 oneshot",
        "trigger id 2 oneshot",
    )
    assert finish_times(text, [30, 1, 1]) == [5, 25, 35]


def test_barrier_waits_for_its_count():
    flows = [f"{i}->{i + 1} start 0 size 10 send_done_trigger 9" for i in range(3)]
    text = matrix(*flows, "4->5 trigger 9 size 10", "trigger id 9 barrier 2")
    assert finish_times(text, [30, 10, 20, 1])[3] == 20
    text = text.replace("barrier 2", "barrier 3")
    assert finish_times(text, [30, 10, 20, 1])[3] == 30


def test_multishot_starts_one_at_each_firing():
    flows = [f"{i}->{i + 1} start 0 size 10 send_done_trigger 9" for i in range(3)]
    waiting = [f"{i}->{i + 1} trigger 9 size 10" for i in range(4, 7)]
    text = matrix(*flows, *waiting, "trigger id 9 multishot")
    assert finish_times(text, [30, 10, 20, 1, 1, 1])[3:] == [10, 20, 30]


def test_multishot_may_be_fired_by_those_that_wait_on_it():
    """Two at a time: how htsim's generators limit what a source has outstanding."""
    flows = [
        f"0->{i + 1} {'start 0' if i < 2 else 'trigger 1'} size 10 send_done_trigger 1" for i in range(6)
    ]
    text = matrix(*flows, "trigger id 1 multishot")
    assert finish_times(text, [10, 25, 10, 10, 10, 10]) == [0, 0, 10, 20, 25, 30]


def test_flows_of_one_pair_are_connections_of_their_own():
    g = built(parse_connection_matrix(matrix("0->1 start 0 size 1", "0->1 start 7 size 1")).part, 8)
    assert g.n_qps == 2
    assert g.start_ps.tolist() == [0, 7]


def test_triggers_that_wait_for_each_other_are_refused():
    text = matrix(
        "0->1 trigger 1 size 10 send_done_trigger 2",
        "1->2 trigger 2 size 10 send_done_trigger 1",
        "trigger id 1 oneshot",
        "trigger id 2 oneshot",
    )
    with pytest.raises(ScenarioError, match="waits for itself"):
        built(parse_connection_matrix(text).part, 8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (matrix("0->1 start 0 size 1", flows=2), ":2: Connections says 2 but there are 1"),
        (matrix("0->1 start 0 size 1", triggers=3), ":3: Triggers says 3 but there are 0"),
        ("Connections 1\n0->1 start 0 size 1", "no Nodes line"),
        ("Nodes 4\n0->1 start 0 size 1", "no Connections line"),
        (matrix("0->9 start 0 size 1"), ":3: node 9 does not exist; Nodes 8 allows 0 to 7"),
        (matrix("3->3 start 0 size 1"), ":3: node 3 sends to itself"),
        (matrix("0->1 start 0"), ":3: the flow has no size"),
        (matrix("0->1 start 0 size 0"), "size 0 is not possible"),
        (matrix("0->1 start 0 size 3000000000"), "use 1 to 2147483648"),
        (matrix("0->1 start 0 size 1.5"), "size '1.5' is not a whole number"),
        (matrix("0->1 strat 0 size 1"), "unknown key 'strat' of a flow; did you mean 'start'?"),
        (matrix("0->1 start 0 size"), "'size' has no value"),
        (matrix("0->1 start 0 start 1 size 1"), "start appears twice"),
        (matrix("0->1 id 1 size 1", "1->2 id 1 size 1"), ":4: id 1 is used twice; see line 3"),
        (matrix("0->1 trigger 7 size 1"), "trigger 7 is not declared; add a line: trigger id 7 oneshot"),
        (matrix("0->1 size 1 trigger 1", "trigger id 1 oneshot"), "fired 0 times, not 1: 1 flows never"),
        (
            matrix("0->1 size 1 trigger 1", "1->2 size 1 send_done_trigger 1", "trigger id 1 barrier 2"),
            "barrier trigger 1 is fired 1 times, not 2",
        ),
        (
            matrix(*[f"0->{i} size 1 trigger 1" for i in (1, 2)], "1->2 size 1 send_done_trigger 1",
                   "trigger id 1 multishot"),
            "multishot trigger 1 is fired 1 times, not 2: 1 flows never start",
        ),
        (matrix("0->1 start 0 trigger 1 size 1", "trigger id 1 oneshot"), "has a start and a trigger"),
        (matrix("0->1 size 1", "trigger id 1 onceshot"), "did you mean 'oneshot'?"),
        (matrix("0->1 size 1", "trigger id 1 barrier"), "write trigger id N oneshot"),
        (matrix("0->1 size 1", "trigger 1 oneshot"), "is not a trigger"),
        (matrix("0->1 size 1", *["trigger id 1 oneshot"] * 2), ":6: trigger 1 is declared twice; see line 5"),
        (matrix("0->1 size 1", "Failures 1"), "'Failures 1' is not understood"),
        ("Nodes many\nConnections 0", ":1: 'Nodes many' is not a count"),
        ("Nodes 4\nNodes 4\nConnections 0", ":2: Nodes appears twice"),
        ("Nodes 4\nConections 0", "did you mean 'Connections'?"),
    ],
)  # fmt: skip
def test_mistakes_in_a_matrix_are_found_with_their_line(text, words):
    with pytest.raises(ScenarioError) as caught:
        parse_connection_matrix(text, "bad.cm")
    assert words in str(caught.value)
    assert "; " in str(caught.value)


def test_all_mistakes_are_listed_up_to_a_screen():
    text = matrix(*[f"{i % 8}->{i % 8} start 0 size 1" for i in range(40)])
    with pytest.raises(ScenarioError) as caught:
        parse_connection_matrix(text, "bad.cm")
    lines = str(caught.value).splitlines()
    assert len(lines) == 13
    assert lines[0].startswith("bad.cm:3: ")
    assert lines[-1] == "... and 28 more problems"


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_a_mutated_matrix_is_read_or_refused_never_a_crash(data):
    text = (HTSIM / "alltoall_serial_16n.cm").read_text()
    cut = text[: data.draw(st.integers(0, 800))] + text[-data.draw(st.integers(0, 200)) :]
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(cut)))
        cut = (
            cut[:at]
            + data.draw(st.sampled_from(["\n", "-", "x", "9", " ", "->", "\x00", "²"]))
            + cut[at + 1 :]
        )
    assert len(complaint(lambda: built(parse_connection_matrix(cut).part, 20))) <= 13


def test_the_matrix_must_fit_the_fabric(tmp_path):
    shutil.copy(HTSIM / "one.cm", tmp_path)
    scenario = tmp_path / "s.toml"
    scenario.write_text(
        'fabric = {nics = 17, hosts_per_t0 = 4}\n[[traffic]]\npattern = "connection_matrix"\nfile = "one.cm"'
    )
    with pytest.raises(
        ScenarioError, match=r"for 16 nodes but the fabric has 17 NICs; set fabric\.nics = 16"
    ):
        load_scenario(scenario)
    s = load_scenario(scenario, {"fabric.nics": 16, "traffic.0.start": "2us"})
    g = build_graph(s, Topology(s.fabric))
    assert g.start_ps.tolist() == [2_000_000]


# --- GOAL ----------------------------------------------------------------------------------


def test_the_goal_all_reduce_of_32_ranks():
    program = read_goal(DATA / "goal" / "chained_1.goal")
    g = built(program.part, 32)
    assert program.ranks == 32
    m = messages(g)
    # five sends from each rank, to ranks 1, 2, 4, 8, 16 further; every one has its recv
    assert len(m) == 32 * 5
    assert sorted((s, d) for s, d, _ in m) == sorted(
        (r, (r + k) % 32) for r in range(32) for k in (1, 2, 4, 8, 16)
    )
    assert {size for _, _, size in m} == {100_000}
    joins = np.flatnonzero(g.kind == COMPUTE)
    assert len(joins) == 32  # the generator's end markers: no packet
    assert (g.duration_ps[joins] == 0).all()
    for join in joins:
        assert sorted(on for _, on in g.parents_of(join)) == [SENT] * 5 + [RECEIVED]
    for node in g.messages:  # the k-th send waits for the (k-1)-th recv of its rank
        shift = (int(g.dst[node]) - int(g.src[node])) % 32
        parents = g.parents_of(node)
        if shift == 1:
            assert parents == []
        else:
            ((parent, on),) = parents
            assert on == RECEIVED
            assert g.dst[parent] == g.src[node]
            assert (int(g.dst[parent]) - int(g.src[parent])) % 32 == shift // 2


def goal(*ranks: list[str]) -> str:
    blocks = [f"rank {i} {{\n" + "\n".join(lines) + "\n}" for i, lines in enumerate(ranks)]
    return "\n".join([f"num_ranks {len(ranks)}", *blocks])


def goal_times(text: str, duration: int, nics: int = 4) -> tuple[list[int], np.ndarray]:
    g = built(parse_goal(text).part, nics)
    return execute(g, np.where(g.kind == MESSAGE, duration, g.duration_ps)), g.kind


def test_requires_waits_for_the_end_and_irequires_for_the_start():
    text = goal(
        ["a: calc 1000", "b: calc 10", "b requires a", "c: calc 10", "c irequires a"],
        [],
    )
    times, _ = goal_times(text, 0)
    assert times == [0, 1_000_000, 0]  # calc is in ns


def test_a_send_is_complete_at_the_requestor_and_a_recv_at_the_last_byte():
    text = goal(
        ["s: send 10b to 1 tag 3", "after: calc 0", "after requires s"],
        ["r: recv 10b from 0 tag 3", "then: calc 0", "then requires r"],
    )
    times, _ = goal_times(text, 900)
    assert times == [0, 900, 600]


def test_a_recv_that_requires_something_is_complete_after_both():
    base = ["w: calc {}", "r: recv 10b from 0 tag 3", "r requires w", "then: calc 0", "then requires r",
            "posted: calc 0", "posted irequires r"]  # fmt: skip
    for wait_ns, expected in ((0, 600), (5, 5000)):
        text = goal(["s: send 10b to 1 tag 3"], [line.format(wait_ns) for line in base])
        g = built(parse_goal(text).part, 4)
        times = execute(g, np.where(g.kind == MESSAGE, 900, g.duration_ps))
        send, wait, then, posted = times[0], times[1], times[2], times[3]
        assert (send, wait) == (0, 0)
        assert then == expected
        assert posted == wait_ns * 1000


def test_receives_match_source_and_tag_in_order():
    text = goal(
        ["a: send 10b to 1 tag 1", "b: send 20b to 1 tag 2", "c: send 30b to 1 tag 1", "c requires b"],
        ["x: recv 20b from 0 tag 2", "y: recv 10b from 0 tag 1", "z: recv 30b from 0 tag 1",
         "after: send 1b to 0 tag 9", "after requires z"],
        ["e: calc 1"],
    ).replace("num_ranks 3", "num_ranks 3")  # fmt: skip
    text = text.replace("rank 0 {", "rank 0 {\nback: recv 1b from 1 tag 9")
    g = built(parse_goal(text).part, 4)
    (after,) = [m for m in g.messages if g.size_bytes[m] == 1]
    ((parent, on),) = g.parents_of(after)
    assert g.size_bytes[parent] == 30
    assert on == RECEIVED


def test_comments_labels_and_local_ends():
    text = """num_ranks 2
rank 0 {
/* a comment
   over lines */
send 5b to 1 tag 1
l2: send 0b to 9999 tag 1 /* end marker */
l3: send 7b to 0 tag 2
l4: recv 7b from 0 tag 2
l5: calc 3 cpu 0
l5 requires l4
}
rank 1 {
recv 5 from 0 tag 1
}
"""
    g = built(parse_goal(text).part, 2)
    assert messages(g) == [(0, 1, 5)]
    assert g.kind.tolist() == [MESSAGE, COMPUTE, COMPUTE, COMPUTE]
    assert g.parents_of(3) == [(2, RECEIVED)]


def test_irequires_of_a_send_is_started():
    text = goal(["s: send 10b to 1 tag 3", "n: calc 0", "n irequires s"], ["recv 10b from 0 tag 3"])
    g = built(parse_goal(text).part, 4)
    assert g.parents_of(1) == [(0, STARTED)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (goal(["send 10b to 1 tag 1"], []), "x.goal:3: rank 0 sends 10 B to 1 tag 1, never received"),
        (goal([], ["recv 10b from 0 tag 1"]), "x.goal:6: rank 1 receives 10 B from 0 tag 1, never sent"),
        (goal(["send 10b to 1 tag 1"], ["recv 10b from 0 tag 2"]), "never received"),
        (goal(["send 10b to 1 tag 1"], ["recv 11b from 0 tag 1"]), "receives 11 B but line 3 sends 10 B"),
        (goal(["a: calc 1", "a requires b"], []), "label b does not exist in this rank"),
        (goal(["a: calc 1", "a: calc 2"], []), "label a is used twice in rank 0"),
        (goal(["send 10b to 5 tag 1"], []), "rank 5 does not exist; num_ranks 2 allows 0 to 1"),
        (goal(["snd 10b to 1 tag 1"], []), "did you mean 'send'?"),
        (goal(["send 10b from 1 tag 1"], []), "is not understood"),
        (goal(["send 10b to 1 tag 1 cpu 3"], ["recv 10b from 0 tag 1"]), "'cpu 3' is not modelled"),
        (goal(["send 9999999999b to 1 tag 1"], []), "use at most 2147483648"),
        ("rank 0 {\n}", "no num_ranks line"),
        ("num_ranks 1\nrank 1 {\n}", "rank 1 does not exist"),
        ("num_ranks 1\nrank 0 {\n", "x.goal:2: rank 0 is never closed; end it with }"),
        ("num_ranks 1\nrank 0 {\nrank 0 {\n}", "rank 0 is still open"),
        ("num_ranks 1\ncalc 5\n", "stands outside a rank; write rank N { first"),
        ("num_ranks none\n", "is not a number of ranks"),
        ("num_ranks 1\n/* never closed", "x.goal:2: the comment never ends"),
    ],
)
def test_mistakes_in_a_goal_file_are_found_with_their_line(text, words):
    with pytest.raises(ScenarioError) as caught:
        parse_goal(text, "x.goal")
    assert words in str(caught.value)
    assert "; " in str(caught.value)


def test_unmatched_ends_are_all_listed():
    text = goal(["send 1b to 1 tag 1", "send 2b to 1 tag 2"], ["recv 3b from 0 tag 3"])
    with pytest.raises(ScenarioError) as caught:
        parse_goal(text, "x.goal")
    assert len(str(caught.value).splitlines()) == 3


def test_a_goal_cycle_is_refused():
    text = goal(["a: calc 1", "b: calc 2", "a requires b", "b requires a"], [])
    with pytest.raises(ScenarioError, match="waits for itself"):
        built(parse_goal(text).part, 2)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_mutated_goal_file_is_read_or_refused_never_a_crash(data):
    text = "\n".join((DATA / "goal" / "chained_1.goal").read_text().splitlines()[:52])
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(st.sampled_from(["\n", "}", "x", "9", " ", "/*", "²", "l1"]))
            + text[at + 1 :]
        )
    assert len(complaint(lambda: parse_goal(text))) <= 13


def test_ranks_are_placed_on_the_nics_named(tmp_path):
    shutil.copy(DATA / "goal" / "chained_1.goal", tmp_path)
    base = {"fabric": {"nics": 64, "hosts_per_t0": 8}}
    path = str(tmp_path / "chained_1.goal")
    s = load_scenario(base | {"traffic": [{"pattern": "goal", "file": path, "nics": "1-63:2"}]})
    g = build_graph(s, Topology(s.fabric))
    assert set(g.src[g.messages].tolist()) == set(range(1, 64, 2))
    assert (g.src[g.kind == COMPUTE] == -1).all()
    with pytest.raises(ScenarioError, match="has 32 ranks but nics names 31"):
        load_scenario(base | {"traffic": [{"pattern": "goal", "file": path, "nics": "0-30"}]})
    with pytest.raises(ScenarioError, match="32 ranks but the fabric has 16 NICs"):
        load_scenario(
            {"fabric": {"nics": 16, "hosts_per_t0": 8}, "traffic": [{"pattern": "goal", "file": path}]}
        )
