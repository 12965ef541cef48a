"""``mrc run`` as a user meets it: exit codes, files, changes, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import namedtuple

import psutil
import pytest

import openmrc
from openmrc.cli import main
from scenario_support import EXAMPLES

SMALL = """# two racks
description = "small"
[fabric]
nics = 8
planes = 2
nic_rate = "200Gbps"
hosts_per_t0 = 4
[[traffic]]
pattern = "permutation"
size = "200kB"
"""
#: NIC 1 has one port; it goes down for good and the retry budget is small
HOPELESS = """
[fabric]
nics = 8
nic_rate = "100Gbps"
hosts_per_t0 = 4
[transport]
timeout_exponent = 4
linear_cnt = 1
exp_cnt = 1
[[traffic]]
pattern = "send"
pairs = [[0, 1], [2, 3]]
size = "1MB"
[[fault]]
kind = "down"
element = "nic1/p0"
at = "5us"
"""
LONG = """
[fabric]
nics = 32
planes = 4
nic_rate = "400Gbps"
hosts_per_t0 = 8
[[traffic]]
pattern = "permutation"
size = "1GB"
"""
#: the command, with a word on standard output as soon as the first slice has been simulated
TELLING = """
import sys
from openmrc.cli import main, run
before = run._Progress.progress
def progress(self, simulation):
    if self.bar is None and not getattr(self, "told", False):
        self.told = True
        print("simulating now", flush=True)
    before(self, simulation)
run._Progress.progress = progress
sys.argv = ["mrc", *sys.argv[1:]]
main()
"""


@pytest.fixture
def mrc(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mrc", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    return "small.toml"


def test_a_run_reports_and_writes_four_files(mrc, small, tmp_path):
    code, out, err = mrc("run", small, "--out", "r")
    assert code == 0
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [
        "flows.parquet",
        "report.html",
        "summary.json",
        "timeline.parquet",
    ]
    assert "All 8 flows completed" in out
    for word in ("seed 1", f"openmrc {openmrc.__version__}", "mrc run small.toml", "ideal", "r/report.html"):
        assert word in out
    # what it will do comes first, with an estimate; no progress bar where there is no terminal
    assert err.startswith("simulating small, seed 1: 8 NICs, 2 x 100 Gb/s; 8 messages, 1.60 MB")
    assert "packet-hops" in err
    assert "of memory" in err
    assert "\x1b" not in out + err


def test_summary_has_the_keys_that_others_rely_on(mrc, small, tmp_path):
    assert mrc("run", small, "--out", "r", "--quiet") == (0, "", "")
    s = json.loads((tmp_path / "r/summary.json").read_text())
    paths = """
        scenario seed version digest flows.total flows.completed flows.failed
        fct_us.mean fct_us.p50 fct_us.p99 fct_us.p100 ideal_fct_us makespan_us p100_over_ideal
        goodput_gbps.mean_per_nic goodput_gbps.ceiling_per_nic
        counters.data_packets counters.retransmitted counters.trimmed counters.ecn_marked counters.sacks
        counters.nacks counters.probes counters.timeouts counters.dropped
        paths.assumed_bad paths.recovered paths.promoted paths.false_condemned planes faults
        engine.packet_hops_data engine.packet_hops_control engine.wall_s engine.cpu_s engine.hops_per_s
        engine.peak_rss_bytes
    """
    for path in paths.split():
        value = s
        for key in path.split("."):
            assert key in value, path
            value = value[key]
        assert value is not None, path
    assert s["schema"] == 1
    assert s["counters"]["data_packets"] == 8 * -(-200_000 // 4096)
    assert sum(s["planes"]) == 8 * 200_000
    again = openmrc.run("small.toml").summary
    assert again["digest"] == s["digest"]


def test_faults_have_the_keys_that_others_rely_on(tmp_path):
    s = openmrc.run(EXAMPLES / "link-flap.toml", out=tmp_path / "r").summary
    on_disk = json.loads((tmp_path / "r/summary.json").read_text())
    assert on_disk["faults"] == s["faults"]
    keys = {"id", "kind", "element", "at_us", "first_left_us", "last_left_us", "packets_lost", "back_us"}
    assert all(keys <= set(fault) for fault in s["faults"])
    assert [f["at_us"] for f in s["faults"]] == [120, 180, 240, 300, 360, 420]


def test_seed_and_changes(mrc, small):
    code, out, _ = mrc(
        "run", small, "--seed", "7", "--set", "traffic.0.size=100kB", "--set", "fabric.planes=1"
    )
    assert code == 0
    assert "seed 7" in out
    assert "8 NICs, 1 x 200 Gb/s" in out
    assert "8 messages, 800 kB" in out
    # the command that repeats it
    assert "mrc run small.toml --set traffic.0.size=100kB --set fabric.planes=1 --seed 7" in out


def test_an_existing_folder_is_refused_before_anything_runs(mrc, small, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r/mine.txt").write_text("keep")
    code, out, err = mrc("run", small, "--out", "r")
    assert (code, out) == (2, "")
    assert "r: exists already" in err
    assert "--force" in err
    assert [p.name for p in (tmp_path / "r").iterdir()] == ["mine.txt"]
    assert mrc("run", small, "--out", "r", "--force", "--quiet")[0] == 0
    assert (tmp_path / "r/mine.txt").read_text() == "keep"
    assert (tmp_path / "r/summary.json").exists()


def test_failed_flows_exit_with_1(mrc, tmp_path):
    (tmp_path / "hopeless.toml").write_text(HOPELESS)
    code, out, _ = mrc("run", "hopeless.toml", "--out", "r")
    assert code == 1
    s = json.loads((tmp_path / "r/summary.json").read_text())
    assert s["flows"] == {"total": 2, "completed": 1, "failed": 1}
    assert s["makespan_us"] is None
    assert s["counters"]["timeouts"] > 0
    assert "1 failed" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.toml"], ["missing.toml"]),
        (["small.toml", "--set", "fabric.planes=7"], ["planes", "200Gbps"]),
        (["small.toml", "--set", "fabric.plans=2"], ["fabric.plans", "planes"]),
        (["small.toml", "--set", "traffic.0.size=lots"], ["traffic", "size"]),
        (["small.toml", "--set", "seed"], ["seed"]),
        (["small.toml", "--sed", "1"], ["--sed"]),
        (["small.toml", "--seed", "-1"], ["--seed"]),
        ([], ["FILE"]),
    ],
)
def test_bad_input_exits_with_2_and_writes_nothing(mrc, small, tmp_path, arguments, words):
    before = sorted(tmp_path.iterdir())
    code, out, err = mrc("run", *arguments, "--out", "r")
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert "Traceback" not in err
    assert len(err.splitlines()) < 24
    assert sorted(tmp_path.iterdir()) == before


def test_what_does_not_fit_exits_with_3(mrc, small, tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: namedtuple("Memory", "available")(1 << 20))
    code, out, err = mrc("run", small, "--out", "r")
    assert (code, out) == (3, "")
    assert "1.05 MB are available" in err
    assert "fewer NICs" in err
    assert not (tmp_path / "r").exists()


def test_ctrl_c_leaves_partial_results(tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, "run", "long.toml", "--out", "r"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        # a job in the background ignores Ctrl-C, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "simulating now\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "PARTIAL" in out
    assert "Traceback" not in err
    result = openmrc.Result.load(tmp_path / "r")
    assert not result.complete
    s = result.summary
    assert s["status"] == "partial"
    assert s["flows"]["completed"] < s["flows"]["total"] == 32
    assert s["p100_over_ideal"] is None
    assert s["counters"]["data_packets"] > 0
    assert set(result.flows.column("status").to_pylist()) <= {"ok", "unfinished"}


def test_python_dash_m(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "openmrc", "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert done.stdout == f"mrc, version {openmrc.__version__}\n"
