"""Bad scenarios: each a one-screen error that names the key and the remedy, exit code 2, nothing written."""

from __future__ import annotations

import re
import shutil
import sys

import pytest

from openmrc.cli import main
from scenario_support import DATA

FABRIC = "[fabric]\nnics = 16\nplanes = 4\nnic_rate = '400Gbps'\nhosts_per_t0 = 4\n"
TRAFFIC = "[[traffic]]\npattern = 'permutation'\nsize = '2MB'\n"
BAD_CM = "Nodes 16\nConnections 2\n0->1 start 0 size 10\n"


def fabric(line: str, drop: str = "") -> str:
    kept = "\n".join(x for x in FABRIC.splitlines() if not drop or not x.startswith(drop))
    return f"{kept}\n{line}\n{TRAFFIC}"


def traffic(pattern: str, *lines: str) -> str:
    return FABRIC + f"[[traffic]]\npattern = '{pattern}'\n" + "\n".join(lines) + "\n"


def fault(*lines: str) -> str:
    return FABRIC + TRAFFIC + "[[fault]]\n" + "\n".join(lines) + "\n"


def table(name: str, *lines: str) -> str:
    return FABRIC + f"[{name}]\n" + "\n".join(lines) + "\n" + TRAFFIC


#: kind -> (scenario, line, words that name the key, words of the remedy)
BAD: dict[str, list[tuple[str, int, str, str]]] = {
    "syntax": [
        (
            FABRIC + "[[traffic]]\npattern = 'permutation'\nsize = 2MB\n",
            8,
            "2MB",
            'stands in quotes; write "2MB"',
        ),
        (FABRIC + "[[traffic]\n", 6, "not valid TOML", "the line is: [[traffic]"),
        (FABRIC + "nics = 8\n" + TRAFFIC, 6, "not valid TOML", "the line is: nics = 8"),
        ("name = 'x\n" + FABRIC, 1, "not valid TOML", "the line is: name = 'x"),
    ],
    "unknown key": [
        ("sede = 3\n" + FABRIC + TRAFFIC, 1, "sede: unknown key", "did you mean 'seed'?"),
        (fabric("plans = 4"), 6, "fabric.plans: unknown key", "did you mean 'planes'?"),
        (table("transport", "evcount = 3"), 7, "transport.evcount: unknown key", "did you mean 'ev_count'?"),
        (table("transport.nscc", "gama = 3"), 7, "transport.nscc.gama: unknown key", "did you mean 'gamma'?"),
        (table("switsch", "ecn = true"), 6, "switsch: unknown key", "did you mean 'switch'?"),
        (
            fault("kind = 'down'", "element = 'p0'", "zap = '1us'"),
            12,
            "fault.0.zap: unknown key",
            "keys here: kind",
        ),
    ],
    "key of another table": [
        (fabric("ev_count = 4"), 6, "fabric.ev_count: unknown key", "it belongs in [transport]"),
        (
            table("transport", "gamma = 0.5"),
            7,
            "transport.gamma: unknown key",
            "it belongs in [transport.nscc]",
        ),
        ("planes = 4\n" + FABRIC + TRAFFIC, 1, "planes: unknown key", "it belongs in [fabric]"),
    ],
    "key without effect": [
        (
            traffic("permutation", "size = '1MB'", "target = 3"),
            9,
            "traffic.0.target: has no effect",
            "belongs to incast",
        ),
        (traffic("goal", "file = 'x'", "steps = 3"), 9, "traffic.0.steps: has no effect", "remove it"),
        (fault("kind = 'down'", "element = 'p0'", "period = '1us'"), 12, "fault.0.period", "use kind flap"),
        (fabric("t1_uplinks = 4"), 6, "fabric.t1_uplinks: has no meaning with 2 tiers", "remove it"),
    ],
    "missing key": [
        (TRAFFIC, 0, "fabric: missing", "add a [fabric] table"),
        (FABRIC, 0, "traffic: missing", "add a [[traffic]] table"),
        (traffic("permutation"), 6, "traffic.0.size: missing", 'size = "2MB"'),
        (traffic("incast", "size = '1MB'"), 6, "traffic.0.target: missing", "NIC that receives"),
        (traffic("send", "size = '1MB'"), 6, "traffic.0.pairs: missing", "pairs = [[0, 5], [1, 6]]"),
        (FABRIC + "[[traffic]]\nsize = '1MB'\n", 6, "`pattern` is missing", "use one of permutation"),
        (fault("element = 'p0'"), 9, "fault.0.kind: missing", 'kind = "down"'),
        (fault("kind = 'flap'", "element = 'p0'"), 9, "fault.0.period", "add it"),
        (fault("kind = 'down'"), 9, "fault.0: needs either `element` or `random`", "exactly one"),
    ],
    "wrong type": [
        (
            fabric("nics = 'many'", drop="nics"),
            5,
            'fabric.nics: "many" has the wrong type',
            "a whole number, e.g. 8",
        ),
        (fabric("planes = 4.5", drop="planes"), 5, "fabric.planes: 4.5", "a whole number"),
        (table("switch", "ecn = 3"), 7, "switch.ecn: 3", "true or false"),
        (table("transport", "nscc = 3"), 7, "transport.nscc: 3 has the wrong type", "a table"),
        ("seed = 'x'\n" + FABRIC + TRAFFIC, 1, 'seed: "x" has the wrong type', "a whole number"),
        ("name = 5\n" + FABRIC + TRAFFIC, 1, "name: 5 has the wrong type", "text in quotes"),
        ("switch = 5\n" + FABRIC + TRAFFIC, 1, "switch: 5 is not a table", "write [switch]"),
        (FABRIC + "[traffic]\npattern = 'incast'\n", 6, "traffic: must be a list of tables", "[[traffic]]"),
        (
            traffic("send", "size = '1MB'", "pairs = [[0, 1, 2]]"),
            9,
            "traffic.0.pairs: [0, 1, 2] is not a pair",
            "[[0, 5], [1, 6]]",
        ),
        (traffic("permutation", "size = '1MB'", "nics = 'all'"), 9, "traffic.0.nics: 'all'", "write a range"),
    ],
    "wrong unit": [
        (traffic("permutation", "size = '2 apples'"), 8, "traffic.0.size: '2 apples'", "use one of B"),
        (
            traffic("permutation", "size = 2000000"),
            8,
            "traffic.0.size: 2000000 has no unit",
            "write a size like",
        ),
        (traffic("permutation", "size = '2mb'"), 8, "unknown unit 'mb'", "did you mean 'MB'?"),
        (traffic("permutation", "size = '1MB'", "start = '5MB'"), 9, "traffic.0.start", "use one of ps, ns"),
        (fabric("nic_rate = '400GB'", drop="nic_rate"), 5, "fabric.nic_rate", "use one of bps"),
        (table("sim", "until = '0.1ps'"), 7, "sim.until: '0.1ps' is finer", "round it"),
    ],
    "out of range": [
        (
            table("transport", "ev_count = 300"),
            7,
            "transport.ev_count: 300 is out of range",
            "use at most 256",
        ),
        (table("transport", "ev_count = 0"), 7, "transport.ev_count: 0 is out of range", "use at least 1"),
        (
            table("transport", "pmtu = '1500B'"),
            7,
            "transport.pmtu: 1500 B",
            "use 1024B, 2048B, 4096B or 8192B",
        ),
        (table("switch", "ecn_low = 0.9"), 6, "switch: ecn_high (0.8)", "must be above ecn_low"),
        ("seed = -1\n" + FABRIC + TRAFFIC, 1, "seed: -1 is out of range", "use at least 0"),
        (traffic("permutation", "size = '3GB'"), 8, "traffic.0.size: 3.00 GB", "send several"),
        (
            traffic("all_reduce", "size = '10B'"),
            8,
            "traffic.0.size: 10 B cannot be cut into 16",
            "at least 16B",
        ),
        (
            traffic("all_to_all", "size = '1B'", "steps = 1000000"),
            7,
            "traffic.0.pattern: 240000000",
            "limit is 2^26",
        ),
    ],
    "wrong choice": [
        (
            traffic("permutaton", "size = '1MB'"),
            7,
            "traffic.0.pattern: 'permutaton'",
            "did you mean 'permutation'?",
        ),
        (table("transport", "mode = 'srv7'"), 7, 'transport.mode: "srv7"', "did you mean 'srv6'?"),
        (table("sim", "port_model = 'best'"), 7, 'sim.port_model: "best"', "use one of 'fast', 'exact'"),
        (
            fault("kind = 'exploded'", "element = 'p0'"),
            10,
            'fault.0.kind: "exploded"',
            "use one of 'down', 'flap'",
        ),
        (fabric("preset = 'openai'"), 6, "fabric.preset: 'openai' is unknown", "use one of openai-131k"),
    ],
    "fabric that cannot be wired": [
        (fabric("planes = 3", drop="planes"), 3, "fabric.nic_rate", "use 1, 2, 4 or 8"),
        (fabric("planes = 16", drop="planes"), 5, "fabric.planes: 16", "use at most 8"),
        (fabric("radix = 6"), 5, "fabric.hosts_per_t0: 4 NIC ports", "use at most 2"),
        (fabric("nic_cable_m = 5.0\nnic_link_delay = '1us'"), 6, "fabric.nic_cable_m", "keep one of the two"),
    ],
    "NIC that does not exist": [
        (
            traffic("incast", "size = '1MB'", "target = 16"),
            9,
            "traffic.0.target: NIC 16 does not exist",
            "NICs 0 to 15",
        ),
        (
            traffic("permutation", "size = '1MB'", "nics = '8-23'"),
            9,
            "traffic.0.nics: NIC 23",
            "NICs 0 to 15",
        ),
        (traffic("send", "size = '1MB'", "pairs = [[0, 99]]"), 9, "traffic.0.pairs: NIC 99", "NICs 0 to 15"),
        (
            traffic("incast", "size = '1MB'", "target = 0", "senders = 20"),
            10,
            "traffic.0.senders: 20 senders",
            "15 NICs besides",
        ),
    ],
    "traffic that contradicts itself": [
        (
            traffic("send", "size = '1MB'", "pairs = [[3, 3]]"),
            9,
            "traffic.0.pairs: [3, 3]",
            "choose two NICs",
        ),
        (traffic("stream", "pairs = [[0, 1]]"), 6, "traffic.0.size: a stream ends", "neither is given"),
        (
            traffic("stream", "pairs = [[0, 1]]", "count = 2", "qps = 4"),
            10,
            "traffic.0.qps: 4 QPs but only 2",
            "fewer",
        ),
        (
            traffic("stream", "pairs = [[0, 1], [0, 1]]", "count = 2"),
            8,
            "[0, 1] streams twice",
            "use qps = 2",
        ),
        (
            traffic("incast", "size = '1MB'", "target = 1", "senders = '1-3'"),
            10,
            "NIC 1 is the target",
            "leave it out",
        ),
        (
            traffic("permutation", "size = '1MB'", "nics = [3]"),
            9,
            "traffic.0.nics: one NIC",
            "name at least 2",
        ),
        (traffic("permutation", "size = '1MB'", "nics = [3, 3]"), 9, "NIC 3 is named twice", "each NIC once"),
        (traffic("permutation", "size = '1MB'", "nics = '9-3'"), 9, "'9-3' runs backwards", "write 3-9"),
    ],
    "fault on an element that does not exist": [
        (fault("kind = 'down'", "element = 'p3/t0.9-t1.0'"), 11, "fault.0.element", "p3/t0.9"),
        (fault("kind = 'down'", "element = 'p7'"), 11, "fault.0.element", "p7"),
        (fault("kind = 'down'", "element = 'nic16/p0'"), 11, "fault.0.element", "nic16"),
        (fault("kind = 'down'", "element = 'spine 3'"), 11, "fault.0.element", "write nic12 (NIC)"),
        (
            fault("kind = 'reboot'", "element = 'nic3/p0'", "for = '1ms'"),
            11,
            "fault.0.element",
            "not a switch",
        ),
    ],
    "imported file": [
        (
            traffic("connection_matrix", "file = 'none.cm'"),
            8,
            "traffic.0.file",
            "give the path of a .cm file",
        ),
        (traffic("goal", "file = 'none.goal'"), 8, "traffic.0.file", "give the path of a .goal file"),
        (
            traffic("connection_matrix", "file = 'bad.cm'"),
            8,
            "traffic.0.file: bad.cm:2: Connections says 2",
            "write Connections 1",
        ),
        (traffic("connection_matrix", "file = 'incast_128.cm'"), 8, "for 128 nodes", "set fabric.nics = 128"),
        ("fabric = 'none.topo'\n" + TRAFFIC, 1, "fabric", "give an htsim .topo file"),
        ("fabric = 'bad.cm'\n" + TRAFFIC, 1, "fabric", "bad.cm"),
    ],
}
CASES = [(kind, *case) for kind, cases in BAD.items() for case in cases]


def run_check(monkeypatch, capsys, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["mrc", "check", *arguments])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out + err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "bad.cm").write_text(BAD_CM)
    shutil.copy(DATA / "htsim" / "incast_128.cm", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_enough_cases():
    assert len(CASES) >= 40
    assert len(BAD) >= 12


@pytest.mark.parametrize(("kind", "text", "line", "key", "remedy"), CASES)
def test_bad_scenario(folder, monkeypatch, capsys, kind, text, line, key, remedy):
    (folder / "bad.toml").write_text(text)
    before = sorted(p.name for p in folder.rglob("*"))
    code, shown = run_check(monkeypatch, capsys, "bad.toml")
    assert code == 2, shown
    assert key in shown
    assert remedy in shown
    assert f"bad.toml:{line}:" in shown if line else "bad.toml: " in shown
    assert "Traceback" not in shown
    lines = shown.splitlines()
    assert sum(1 + len(x) // 80 for x in lines) <= 25
    assert all("; " in x or "must be above" in x for x in lines), "every line says what to do"
    assert sorted(p.name for p in folder.rglob("*")) == before


def test_all_errors_are_shown_at_once_in_the_order_of_lines(folder, monkeypatch, capsys):
    bad_fault = fault("kind = 'down'", "element = 'p9'").removeprefix(FABRIC + TRAFFIC)
    bad_traffic = traffic("incast", "size = 5", "traget = 1").removeprefix(FABRIC)
    text = "sede = 1\n" + fabric("nics = '8'", drop="nics") + bad_fault + bad_traffic
    (folder / "bad.toml").write_text(text)
    code, shown = run_check(monkeypatch, capsys, "bad.toml")
    assert code == 2
    found = [int(x) for x in re.findall(r"bad\.toml:(\d+):", shown)]
    assert found == sorted(found)
    for key in ("sede", "fabric.nics", "traffic.1.size", "traffic.1.traget", "traffic.1.target"):
        assert f"{key}: " in shown


def test_faults_and_traffic_are_checked_even_if_the_other_is_wrong(folder, monkeypatch, capsys):
    text = traffic("incast", "size = '1MB'", "target = 99") + "[[fault]]\nkind = 'down'\nelement = 'p9'\n"
    (folder / "bad.toml").write_text(text)
    _, shown = run_check(monkeypatch, capsys, "bad.toml")
    assert "traffic.0.target" in shown
    assert "fault.0.element" in shown


def test_hundreds_of_errors_fit_on_a_screen(folder, monkeypatch, capsys):
    (folder / "bad.toml").write_text(FABRIC + "[[traffic]]\nsize = 1\n" * 300)
    _, shown = run_check(monkeypatch, capsys, "bad.toml")
    assert "... and 288 more problems" in shown
    assert len(shown.splitlines()) <= 25


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("transport.ev_count=0", "--set transport.ev_count: 0 is out of range; use at least 1"),
        ("transport.evcount=4", "--set transport.evcount: unknown key; did you mean 'ev_count'?"),
        (
            "traffic.3.size=1MB",
            "--set traffic.3.size: traffic.3 does not exist; there are 1, numbered from 0",
        ),
        ("traffic.0.size=lots", "--set traffic.0.size: 'lots' is not a size"),
        ("fault.0.at=1us", "--set fault.0.at: fault.0 does not exist; there are none"),
        ("seed.x=1", "--set seed.x: seed is a value, not a table"),
        ("fabric.planes=3", "nic_rate"),
        ("nonsense", "write --set key=value"),
    ],
)
def test_bad_overrides(folder, monkeypatch, capsys, change, words):
    (folder / "good.toml").write_text("seed = 1\n" + FABRIC + TRAFFIC)
    code, shown = run_check(monkeypatch, capsys, "good.toml", "--set", change)
    assert code == 2
    assert words in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [("other-name.toml", "does not exist; `mrc init` writes one"), ("god.toml", "did you mean 'good.toml'?"),
     (".", "is a folder"), ("binary.toml", "is not text in UTF-8")],
)  # fmt: skip
def test_bad_files(folder, monkeypatch, capsys, name, words):
    (folder / "good.toml").write_text(FABRIC + TRAFFIC)
    (folder / "binary.toml").write_bytes(bytes(range(128, 256)))
    code, shown = run_check(monkeypatch, capsys, name)
    assert code == 2
    assert words in shown


def test_the_good_ones_of_these_helpers_are_good(folder, monkeypatch, capsys):
    """Otherwise a case above could fail for a reason of its own."""
    for text in (
        fabric(""),
        traffic("incast", "size = '1MB'", "target = 3"),
        table("transport", "ev_count = 4"),
        fault("kind = 'down'", "element = 'p3/t0.1-t1.0'", "at = '1us'"),
    ):
        (folder / "good.toml").write_text(text)
        code, shown = run_check(monkeypatch, capsys, "good.toml")
        assert code == 0, shown
