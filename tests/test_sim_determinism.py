"""The same scenario and seed give the same bytes: again, in other slices, with other pools, uncompiled."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openmrc.scenario import load_scenario
from openmrc.sim.build import plan
from openmrc.sim.layout import QUEUED, I
from openmrc.sim.loop import R_UNTIL
from openmrc.sim.simulation import Simulation
from sim_support import Table, fingerprint, simulate, statistics, with_model

#: a small case that has loss, trims, timeouts and a port down
EVERYTHING: Table = {
    "fabric": {"nics": 8, "hosts_per_t0": 2, "nic_rate": "200Gbps", "planes": 2},
    "switch": {"trim_threshold": 0.2, "trim_threshold_last_hop": 0.2, "ecn_low": 0.05, "ecn_high": 0.2},
    "transport": {"timeout_exponent": 4, "ev_count": 8, "backup_per_plane": 1},
    "traffic": [
        {"pattern": "incast", "target": 0, "size": "30kB"},
        {"pattern": "permutation", "size": "60kB", "start_window": "1us"},
    ],
    "fault": [
        {"kind": "loss", "element": "p0/t0.0-t1.0", "probability": 0.2},
        {"kind": "down", "element": "nic5/p1", "at": "4us", "for": "20us"},
        {"kind": "down", "element": "nic2", "at": "5us", "for": "60us"},
    ],
}
HAPPENED = ("dropped_grey", "dropped_link_down", "trimmed", "marked", "timeouts", "port_updates", "probes")


def digests(table: Table) -> dict[str, str]:
    """Return the SHA-256 of every array of a run."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in fingerprint(simulate(table)).items()}


def unequal(a: dict, b: dict) -> list[str]:
    assert a.keys() == b.keys()
    return [name for name in a if a[name] != b[name]]


@pytest.mark.parametrize("model", ["fast", "exact"])
def test_two_runs_are_equal(model: str) -> None:
    table = with_model(EVERYTHING, model)
    first = simulate(table)
    happened = statistics(first)
    assert [name for name in HAPPENED if not happened[name]] == []
    assert unequal(fingerprint(first), fingerprint(simulate(table))) == []
    assert "sim.flow_end" in unequal(fingerprint(first), fingerprint(simulate(table | {"seed": 2})))


@pytest.mark.parametrize("model", ["fast", "exact"])
def test_slices_do_not_matter(model: str) -> None:
    whole = simulate(with_model(EVERYTHING, model))
    for events in (1, 37, 1000):
        run = Simulation(plan(load_scenario(with_model(EVERYTHING, model))))
        steps = 0
        while not run.finished:
            run._events_per_slice = events
            run.step()
            steps += 1
        assert steps >= 3
        assert unequal(fingerprint(whole), fingerprint(run)) == []


def _with_small_pools(table: Table) -> Simulation:
    """Return a simulation whose pools hold so little that they must grow on the way."""
    run = Simulation(plan(load_scenario(table)))
    sim = run.model.sim
    s = sim.s
    following = np.arange(1, 4101, dtype=np.int32)
    following[-1] = -1
    used = int(s[I["queued_free"]])
    assert used == s[I["control_free"]] == 0, "nothing is taken before the start"
    queued = np.zeros(4100, QUEUED)
    queued["next"] = following
    control = np.zeros(4100, sim.control.dtype)
    run.model.sim = sim._replace(queued=queued, control=control, control_next=following)
    s[I["n_queued_free"]] = 4100
    return run


def test_pools_grow_without_a_trace() -> None:
    table = with_model(EVERYTHING, "exact")
    run = _with_small_pools(table)
    run.run()
    sim = run.model.sim
    assert len(sim.queued) > 4100
    assert len(sim.control) > 4100
    # nothing got lost on the way: as many places are free as there are, but for packets still on their way
    free, at = 0, int(sim.s[I["queued_free"]])
    while at >= 0:
        free, at = free + 1, int(sim.queued["next"][at])
    assert free == sim.s[I["n_queued_free"]]
    # the rows of ports name places in the pool
    assert unequal(fingerprint(simulate(table)), fingerprint(run)) == ["sim.exact_port"]


@pytest.mark.parametrize("model", ["fast", "exact"])
def test_uncompiled_kernels_do_the_same(model: str) -> None:
    """The same source, compiled and as plain Python: every state row equal."""
    table = with_model(EVERYTHING, model)
    script = (
        "import json, sys; from test_sim_determinism import digests; "
        "print(json.dumps(digests(json.loads(sys.argv[1]))))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    answer = subprocess.run(
        [sys.executable, "-c", script, json.dumps(table)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert unequal(digests(table), json.loads(answer.stdout)) == []


def _island(faults: list[Table]) -> Simulation:
    """Two groups of NICs that share no link: 0-3 below T0 0 and 1, 4-7 below T0 2 and 3."""
    here = [[0, 2], [1, 3], [2, 1], [3, 0]]
    there = [[a + 4, b + 4] for a, b in here]
    return simulate(
        {
            "fabric": {"nics": 8, "hosts_per_t0": 2, "nic_rate": "100Gbps", "uplinks_per_t0": 4},
            "traffic": [{"pattern": "send", "pairs": here + there, "size": "300kB"}],
            "switch": {"ecn_low": 0.01, "ecn_high": 0.3},
            "fault": faults,
            "sim": {"until": "40us"},  # in the middle: both stop at the same time
        }
    )


def test_a_fault_elsewhere_moves_no_draw() -> None:
    """Losses, marks and paths of the first group are those without the second group's trouble."""
    grey: Table = {"kind": "loss", "element": "p0/t0.0", "probability": 0.05}
    elsewhere: list[Table] = [
        {"kind": "loss", "element": "p0/t0.2", "probability": 0.3},
        {"kind": "down", "element": "nic5", "at": "3us", "for": "30us"},
        {"kind": "down", "random": {"layer": "t0-t1", "rate_per_hour": 1e-3, "duration": "5us"}},
    ]
    alone, both = _island([grey]), _island([grey, *elsewhere])
    a, b = alone.model, both.model
    group = np.flatnonzero(a.sim.route["src"] < 4)
    other = np.flatnonzero(a.sim.route["src"] >= 4)
    flows = np.flatnonzero(a.graph.src < 4)
    assert alone.reason == both.reason == R_UNTIL
    assert a.sim.drops[1] > 10, "the first group loses packets, of data and of control"
    assert a.sim.fault_lost[0] == b.sim.fault_lost[0]
    assert np.array_equal(a.sim.flow_rtx[flows], b.sim.flow_rtx[flows])
    for name in ("req", "ev", "ring", "cc"):
        mine, theirs = getattr(a.state, name), getattr(b.state, name)
        assert np.array_equal(mine[group], theirs[group]), name
        assert not np.array_equal(mine[other], theirs[other]), name
