"""Whether the kernels of this version are already on disk, and compiling them ahead of time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from openmrc.jit import JIT_DISABLED, cache_dir

#: the smallest scenario that runs every entry point
WARM_UP = {
    "fabric": {"nics": 4, "hosts_per_t0": 2},
    "traffic": [{"pattern": "permutation", "size": "100kB"}],
}
LOCK_NAME = ".lock"
_loaded = False


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


@contextmanager
def compile_lock() -> Iterator[None]:
    """Hold the lock of this version's cache folder, waiting for whoever holds it.

    The lock is the kernel's (flock), so a process that dies gives it back. Without a folder, or on a
    system without flock, everybody compiles for himself.
    """
    folder = cache_dir()
    try:
        import fcntl
    except ImportError:
        folder = None
    if folder is None:
        yield
        return
    with (folder / LOCK_NAME).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def load_kernels() -> float:
    """Have every kernel in this process, compiled by one process only; returns the seconds it took.

    The second call in a process does nothing.
    """
    global _loaded
    if _loaded or JIT_DISABLED:
        return 0.0
    begin = time.perf_counter()
    if kernels_are_cached():
        compile_kernels()
    else:
        with compile_lock():
            compile_kernels()  # or loads, if another process has compiled meanwhile
    _loaded = True
    return time.perf_counter() - begin
