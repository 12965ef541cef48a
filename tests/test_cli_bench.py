"""``mrc bench``: figures over runs, digests that must agree, and what is said when it is stopped."""

from __future__ import annotations

import copy
import json
import sys
import tomllib

import pytest

from openmrc.cli import bench, main
from openmrc.errors import InputError
from openmrc.scenario import load_scenario

TINY = """
[fabric]
nics = 8
hosts_per_t0 = 4
[[traffic]]
pattern = "permutation"
size = "100kB"
"""


@pytest.fixture
def mrc(monkeypatch, capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mrc", "bench", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two tiny benchmarks instead of the real ones."""
    monkeypatch.setattr(bench, "SUITES", {"sim": ("one", "two")})
    monkeypatch.setattr(bench, "benchmarks_folder", lambda: tmp_path)
    monkeypatch.setattr(bench, "_compile_first", lambda: None)
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(TINY)
    return tmp_path


def run_of(digest: str = "d" * 64, cpu_s: float = 2.0, **more):
    engine = {
        "packet_hops_data": 6_000_000,
        "packet_hops_control": 2_000_000,
        "cpu_s": cpu_s,
        "wall_s": 4.0,
        "build_s": 0.5,
        "compile_s": 1.0,
        "peak_rss_bytes": 300_000_000,
    }
    return {
        "digest": digest,
        "status": "complete",
        "engine": engine,
        "bytes_delivered": 2_000_000_000,
        "p100_over_ideal": 1.25,
        "process_s": 6.0,
        "fabric": "8 NICs",
        "traffic": "8 messages",
        "version": "0.1.0",
    } | more


def test_real_runs_in_their_own_processes(mrc, folder):
    code, out, err = mrc("--runs", "2", "--only", "one", "--json", str(folder / "snapshot.json"))
    assert code == 0, err
    assert "one 2/2" in err
    assert "one, 2 runs" in out
    found = json.loads((folder / "snapshot.json").read_text())
    (measured,) = found["benchmarks"]
    assert found["machine"]["cores"] >= 1
    assert len(measured["digest"]) == 1
    assert [r["flows"]["completed"] for r in measured["runs"]] == [8, 8]
    assert [r["bytes_delivered"] for r in measured["runs"]] == [800_000, 800_000]
    figures = measured["figures"]
    engine = measured["runs"][0]["engine"]
    assert figures["data_hops_m"]["median"] == engine["packet_hops_data"] / 1e6
    assert figures["process_s"]["min"] >= max(r["engine"]["wall_s"] for r in measured["runs"])
    assert measured["digest"][0][:12] in out


def test_medians_and_spread(mrc, folder, monkeypatch):
    cpu = iter([1.0, 2.0, 4.0] * 2)
    monkeypatch.setattr(bench, "run_once", lambda path: copy.deepcopy(run_of(cpu_s=next(cpu))))
    code, out, _ = mrc("--runs", "3")
    assert code == 0
    lines = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    assert "4 (2-8)" in lines["M hops / CPU s"]  # 8 M hops in 2 (1-4) s
    assert "1 (0.5-2)" in lines["CPU s / GB"]
    assert "6 " in lines["M data hops"]
    assert lines["M control hops"].count("2") >= 2
    assert "0.5" in lines["build, s"]
    assert "300" in lines["peak memory, MB"]
    assert "dddddddddddd" in lines["digest"]


def test_different_digests_are_an_error(mrc, folder, monkeypatch):
    digests = iter("aab")
    monkeypatch.setattr(bench, "run_once", lambda path: run_of(digest=next(digests) * 64))
    code, out, err = mrc("--runs", "3", "--only", "two")
    assert code == 1
    assert "different digests from the same seed: two" in err
    assert "aaaaaaaaaaaa bbbbbbbbbbbb" in out


def test_ctrl_c_prints_what_is_done(mrc, folder, monkeypatch):
    answers = iter([run_of(), run_of(), run_of(), KeyboardInterrupt()])

    def run_once(path):
        answer = next(answers)
        if isinstance(answer, KeyboardInterrupt):
            raise answer
        return answer

    monkeypatch.setattr(bench, "run_once", run_once)
    code, out, err = mrc("--runs", "2")
    assert code == 130
    assert "one, 2 runs" in out
    assert "two, 1 run" in out
    assert "interrupted" in err


def test_a_run_that_was_interrupted_itself_is_not_counted(mrc, folder, monkeypatch):
    answers = iter([run_of(), run_of(status="partial")])
    monkeypatch.setattr(bench, "run_once", lambda path: next(answers))
    code, out, _ = mrc("--runs", "2")
    assert code == 130
    assert "one, 1 run" in out


def test_what_does_not_fit_is_said_and_the_others_run(mrc, folder, monkeypatch):
    def run_once(path):
        too_large = {"error": "this needs about 9 TB of memory", "exit_code": 3}
        return too_large if path.stem == "one" else run_of()

    monkeypatch.setattr(bench, "run_once", run_once)
    code, out, err = mrc("--runs", "1")
    assert code == 3
    assert "one: this needs about 9 TB of memory" in err
    assert "two, 1 run" in out


def test_a_child_reports_bad_input_and_its_death(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("[fabric]\nnics = 0\n")
    found = bench.run_once(bad)
    assert found["exit_code"] == 2
    assert "nics" in found["error"]


def test_a_child_that_dies_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "CHILD", "import sys; sys.exit('out of luck')")
    with pytest.raises(InputError, match="exit code 1: out of luck"):
        bench.run_once(tmp_path / "x.toml")


def test_names_are_checked(mrc, folder):
    code, _, err = mrc("--only", "three")
    assert code == 2
    assert "--only three: no such benchmark; use one, two" in err
    (folder / "two.toml").unlink()
    assert "is missing" in mrc()[2]
    code, _, err = mrc("--only", "one", "--json", str(folder / "no" / "x.json"))
    assert (code, "no such folder" in err) == (2, True)


def test_the_repositorys_benchmarks_are_what_they_say():
    """All defaults: nothing but fabric, traffic and a description; and each can be wired."""
    folder = bench.benchmarks_folder()
    assert {path.stem for path in folder.glob("sim_*.toml")} == set(bench.SUITES["sim"])
    for name in bench.SUITES["sim"]:
        path = folder / f"{name}.toml"
        assert set(tomllib.loads(path.read_text())) == {"description", "fabric", "traffic"}
        scenario = load_scenario(path)
        nics = scenario.fabric.nics
        assert str(nics) in name
        (entry,) = scenario.traffic
        assert (entry.pattern, entry.start_window) == ("permutation", 1_000_000)
        planes = 8 if "8x100g" in name or "131072" in name else 1
        assert (scenario.fabric.planes, scenario.fabric.nic_rate) == (planes, planes * 100_000_000_000)
