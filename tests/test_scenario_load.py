from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError, ScenarioError
from openmrc.fabric.topology import Topology
from openmrc.scenario import build_graph, load_scenario, parse_set
from openmrc.scenario.explain import toml_value
from openmrc.scenario.lines import LineIndex
from openmrc.scenario.nicset import parse_nics
from openmrc.scenario.problems import did_you_mean
from scenario_support import DATA, EXAMPLES, FABRIC, scenario_of

PERMUTATION = {"pattern": "permutation", "size": "1MB"}


def test_defaults_are_those_of_the_models():
    s = scenario_of(PERMUTATION)
    assert (s.name, s.seed, s.description, s.fault) == ("scenario", 1, "", ())
    assert s.transport.ev_count == 256
    assert s.switch.trim
    assert s.sim.port_model == "fast"


def test_a_file_gives_its_name_and_its_folder(tmp_path):
    path = tmp_path / "my-run.toml"
    path.write_text(
        'fabric = {nics = 8, hosts_per_t0 = 4}\ntraffic = [{pattern = "permutation", size = "1MB"}]'
    )
    s = load_scenario(path)
    assert s.name == "my-run"
    assert s.folder == tmp_path
    path.write_text('name = "other"\n' + path.read_text())
    assert load_scenario(str(path)).name == "other"


def test_overrides_are_toml_values_or_text():
    s = scenario_of(PERMUTATION)
    assert s.seed == 1
    data = {"fabric": FABRIC, "traffic": [PERMUTATION]}
    changed = load_scenario(
        data,
        {
            "seed": "7",
            "traffic.0.size": "2MB",
            "traffic.0.nics": "0-7",
            "transport.nscc.gamma": "0.5",
            "switch.trim": "false",
            "fabric.nics": 32,
            "name": '"with quotes"',
            "fault": '[{kind = "down", element = "p1"}]',
        },
    )
    assert changed.seed == 7
    assert changed.traffic[0].size == 2_000_000
    assert changed.traffic[0].nics == tuple(range(8))
    assert changed.transport.nscc.gamma == 0.5
    assert changed.switch.trim is False
    assert changed.fabric.nics == 32
    assert changed.name == "with quotes"
    assert changed.fault[0].element == "p1"
    assert data == {"fabric": FABRIC, "traffic": [PERMUTATION]}, "the caller's dict is untouched"
    assert "seed" not in data


def test_parse_set():
    assert dict(parse_set(("a.b=1", "c = x=y "))) == {"a.b": "1", "c": "x=y"}
    with pytest.raises(InputError, match="write --set key=value"):
        dict(parse_set(("=3",)))


def test_a_topo_file_is_the_fabric_and_may_be_changed(tmp_path):
    (tmp_path / "leaf.topo").write_text((DATA / "htsim" / "leaf_spine_tiny.topo").read_text())
    path = tmp_path / "s.toml"
    path.write_text('fabric = "leaf.topo"\n[[traffic]]\npattern = "permutation"\nsize = "1MB"\n')
    s = load_scenario(path)
    assert (s.fabric.nics, s.fabric.hosts_per_t0, s.fabric.uplinks_per_t0) == (32, 8, 2)
    assert s.fabric.nic_latency == 0
    changed = load_scenario(path, {"fabric.nic_latency": "600ns", "fabric.nics": 24})
    assert (changed.fabric.nics, changed.fabric.nic_latency) == (24, 600_000)
    assert changed.fabric.nic_link_delay == s.fabric.nic_link_delay == 1_000_000
    with pytest.raises(ScenarioError, match=r"--set fabric\.nicks: unknown key; did you mean 'nics'"):
        load_scenario(path, {"fabric.nicks": 24})


def test_the_topo_of_the_paper_comparison_has_its_delays():
    s = load_scenario(EXAMPLES / "htsim-perm-1024.toml")
    t = Topology(s.fabric)
    assert t.params.n_nics == 1024
    assert t.path_count(0, 1023) == 32
    assert (t.switch_latency_ps, t.nic_latency_ps) == (0, 0)
    assert t.layer_delay_ps[:4].tolist() == [1_000_000] * 4
    assert t.nic_rate_bps == 100_000_000_000


def test_a_scenario_cannot_be_changed():
    s = scenario_of(PERMUTATION)
    with pytest.raises(ValueError, match="frozen"):
        s.seed = 2


@pytest.mark.parametrize("for_key", ["for", "for_"])
def test_for_is_spelled_without_underscore(for_key):
    faulty = {"kind": "down", "element": "p1", for_key: "1us"}
    if for_key == "for":
        assert scenario_of(PERMUTATION, fault=[faulty]).fault[0].for_ == 1_000_000
    else:
        with pytest.raises(ScenarioError, match=r"fault\.0\.for_: unknown key; did you mean 'for'"):
            scenario_of(PERMUTATION, fault=[faulty])


# --- NIC sets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5", (5,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-1, 8-9", (0, 1, 8, 9)),
        ("0-15:5", (0, 5, 10, 15)),
        ("7,0-2", (7, 0, 1, 2)),
        ([4, 2], (4, 2)),
    ],
)
def test_nic_sets(value, expected):
    assert parse_nics(value) == expected


@pytest.mark.parametrize(
    "value",
    ["", "a", "1-", "-3", "3-1", "0-3:0", "1,,2", "0-2,1", [], [1, 1], [True], [-1], 5, "0-99999999", "²"],
)
def test_bad_nic_sets(value):
    with pytest.raises(ValueError, match=r"; |end at"):
        parse_nics(value)


# --- lines ---------------------------------------------------------------------------------


def test_lines_of_keys():
    text = """\
# head
name = "x"  # comment
[fabric]
nics = 4
cable."odd key".b = 1

[[traffic]]
pattern = "send"
pairs = [
  [0, 1],  # first ] of them
  [2, 3],
]
text = '''
[fabric]
nics = 5
'''
size = "1MB"
[[traffic]]
pattern = "x[[y"
[traffic.inner]
key = 1
[[fault]]
random = {layer = "switches", duration = "1us"}
"""
    tomllib.loads(text)
    index = LineIndex(text)
    lines = {
        "name": 2,
        "fabric": 3,
        "fabric.nics": 4,
        "fabric.cable": 5,
        "fabric.cable.odd key.b": 5,
        "traffic.0": 7,
        "traffic.0.pairs": 9,
        "traffic.0.pairs.1.0": 9,
        "traffic.0.text": 13,
        "traffic.0.size": 17,
        "traffic.1": 18,
        "traffic.1.inner": 20,
        "traffic.1.inner.key": 21,
        "fault.0.random.layer": 23,
    }
    assert {key: index.line_of(key) for key in lines} == lines
    assert index.line_of("sim.until") is None
    assert index.line_of("traffic.1.size") == 18, "a missing key is in its table"


names = st.sampled_from(["a", "b", "key", "x-y", "z_1"])
scalars = st.one_of(st.integers(-9, 9), st.booleans(), st.text(alphabet="ab[]{}#='\" \\", max_size=6))
values = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(names, scalars, max_size=2))
tables = st.dictionaries(names, values, min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), tables), max_size=5))
def test_every_key_of_a_generated_file_is_found_on_its_line(sections):
    lines, expected, array = [], {}, 0
    for number, (is_array, table) in enumerate(sections):
        name = "list" if is_array else f"t{number}"
        lines.append(f"[[{name}]]" if is_array else f"[{name}]")
        prefix = f"list.{array}" if is_array else name
        array += is_array
        expected[prefix] = len(lines)
        for key, value in table.items():
            lines.append(f"{key} = {toml_value(value)}")
            expected[f"{prefix}.{key}"] = len(lines)
    text = "\n".join(lines)
    tomllib.loads(text)
    index = LineIndex(text)
    assert {key: index.line_of(key) for key in expected} == expected


def test_did_you_mean():
    assert did_you_mean("hosts_per_to", ["hosts_per_t0", "radix"]) == "did you mean 'hosts_per_t0'?"
    assert did_you_mean("Radix", ["radix"]) == "did you mean 'radix'?"
    assert did_you_mean("radix", ["radix"]) == ""
    assert did_you_mean("zzz", ["radix"]) == ""


# --- anything at all -----------------------------------------------------------------------

JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("1MB")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = [
    *[
        "seed",
        "name",
        "fabric",
        "fabric.nics",
        "fabric.planes",
        "fabric.nic_rate",
        "switch",
        "switch.ecn_low",
    ],
    *["transport", "transport.pmtu", "transport.nscc", "sim", "sim.until", "traffic", "traffic.0"],
    *[f"traffic.0.{key}" for key in ("pattern", "size", "nics", "steps", "start", "job")],
    *["fault", "fault.0", "fault.0.element", "fault.0.random", "fault.0.at"],
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), JUNK)
def test_junk_anywhere_is_accepted_or_a_scenario_error(place, junk):
    data = {"fabric": FABRIC, "traffic": [PERMUTATION], "fault": [{"kind": "down", "element": "p1"}]}
    try:
        s = load_scenario(data, {place: junk} if not isinstance(junk, str) else {place: toml_value(junk)})
    except ScenarioError as error:
        complaint = str(error)
    else:
        complaint = ""
        if s.traffic[0]._node_count(16) < 100_000:
            build_graph(s, Topology(s.fabric))
    assert len(complaint.splitlines()) <= 13
