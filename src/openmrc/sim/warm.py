"""Whether the kernels of this version are already on disk, and compiling them ahead of time."""

from __future__ import annotations

import time

from openmrc.jit import JIT_DISABLED, cache_dir

#: the smallest scenario that runs every entry point
WARM_UP = {
    "fabric": {"nics": 4, "hosts_per_t0": 2},
    "traffic": [{"pattern": "permutation", "size": "100kB"}],
}


def kernels_are_cached() -> bool:
    """Return True when running needs no compilation."""
    folder = cache_dir()
    if JIT_DISABLED:
        return True
    return folder is not None and any(folder.rglob("loop.run_slice-*.nbi"))


def compile_kernels() -> float:
    """Compile (or load) every kernel by a tiny run; returns the seconds it took."""
    from openmrc.scenario import load_scenario
    from openmrc.sim.build import plan
    from openmrc.sim.simulation import Simulation

    begin = time.perf_counter()
    Simulation(plan(load_scenario(WARM_UP))).run()
    return time.perf_counter() - begin
