"""``mrc doctor``: what it finds, what it removes, and that kernels are compiled by one process at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from openmrc.cli import doctor
from openmrc.jit import source_key

MAIN = "import sys; from openmrc.cli import main; sys.argv = ['mrc', *sys.argv[1:]]; main()"


def mrc(*arguments: str, cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: the cache folder is chosen when openmrc is imported."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache)} | environment
    call = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(call, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_a_healthy_installation(tmp_path):
    done = mrc("doctor", "--no-compile", cache=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "all is in place"
    assert f"kernel cache {tmp_path / source_key()}, 0 B" in done.stdout
    for name in ("numba", "numpy", "pyarrow", "plotly"):
        assert any(line.startswith(f"ok    {name} {metadata.version(name)}") for line in lines)
    assert f"numba {metadata.version('numba')} (==" in done.stdout
    assert " cores; " in done.stdout


def test_json(tmp_path):
    done = mrc("doctor", "--no-compile", "--json", cache=tmp_path)
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert {check["status"] for check in found["checks"]} == {"ok"}
    assert found["kernels"]["folder"] == str(tmp_path / source_key())
    assert found["kernels"]["old_versions"] == []


def test_clear_removes_other_versions_of_ours_and_nothing_else(tmp_path):
    ours = tmp_path / "0123456789abcdef"
    (ours / "sim_1").mkdir(parents=True)
    (ours / "sim_1/loop.nbi").write_bytes(bytes(2000))
    (ours / ".lock").touch()
    theirs = [
        tmp_path / name for name in ("0123456789abcde", "0123456789ABCDEF", "fedcba9876543210", "notes")
    ]
    for folder in theirs:
        folder.mkdir()
    (theirs[2] / "thesis.txt").write_text("not a kernel")
    (tmp_path / "aaaaaaaaaaaaaaaa").symlink_to(theirs[3])
    (tmp_path / "bbbbbbbbbbbbbbbb").write_text("a file")
    told = mrc("doctor", "--no-compile", cache=tmp_path).stdout
    assert "kernels of 1 other versions, 2.00 kB; mrc doctor --clear removes them" in told
    assert ours.is_dir()
    done = mrc("doctor", "--no-compile", "--clear", cache=tmp_path)
    assert done.returncode == 0
    assert "removed kernels of 1 other versions, 2.00 kB" in done.stdout
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {path.name for path in theirs} | {"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", source_key()}


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").touch()
    done = mrc("doctor", "--no-compile", cache=tmp_path / "file" / "below")
    assert done.returncode == 0
    assert "warn  kernel cache" in done.stdout
    assert "cannot be written: every process compiles anew" in done.stdout
    assert "set NUMBA_CACHE_DIR" in done.stdout


def test_without_jit_there_is_nothing_to_compile(tmp_path):
    done = mrc("doctor", cache=tmp_path, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0
    assert "warn  NUMBA_DISABLE_JIT is set" in done.stdout
    assert "nothing to compile" in done.stdout


def test_what_is_missing_or_too_old_must_be_repaired(monkeypatch):
    monkeypatch.setattr(
        doctor, "requirements", lambda: {"numpy": "<1.0", "no-such-package": ">=3", "click": ""}
    )
    checks, _ = doctor.examine(clear=False, compile_them=False)
    by_name = {check.name: check for check in checks}
    assert by_name["numpy"].status == doctor.FAIL
    assert by_name["numpy"].remedy == "pip install 'numpy<1.0'"
    assert by_name["no-such-package"].text == "no-such-package is missing (>=3)"
    assert by_name["click"].status == doctor.OK
    assert "machine" not in by_name  # what needs the missing package is not tried


@pytest.mark.parametrize(
    ("version", "wanted", "good"),
    [
        ("0.68.1", "==0.68.1", True),
        ("0.68.2", "==0.68.1", False),
        ("2.5.0", ">=2.0,<2.5", False),
        ("2.4.9", ">=2.0,<2.5", True),
        ("13", ">=13", True),
        ("13.0.0", "==13", True),
        ("1.9", ">=1.10", False),
        ("3.0rc1", ">=3", True),
    ],
)
def test_versions(version, wanted, good):
    assert doctor.satisfies(version, wanted) is good


def test_one_process_compiles_at_a_time(tmp_path):
    """Whoever comes second waits until the first has let go, also when the first is killed."""
    holder = (
        "import time\nfrom openmrc.sim.warm import compile_lock\n"
        "with compile_lock():\n    print('held', flush=True)\n    time.sleep(60)"
    )
    waiter = "from openmrc.sim.warm import compile_lock\nwith compile_lock():\n    print('mine')"
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def start(code: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)

    with start(holder) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with start(waiter) as second:
            time.sleep(2)
            assert second.poll() is None
            first.kill()
            assert second.communicate(timeout=60)[0] == "mine\n"
