"""A run in slices: the kernels simulate for about 50 ms, then Python looks around.

Between slices pools grow, bins fold, signals and progress are served. Results do not depend on the
slices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from openmrc.limits import MAX_TIME_PS
from openmrc.sim import layout as lay
from openmrc.sim.build import Model, Plan, build
from openmrc.sim.layout import I
from openmrc.sim.loop import (
    R_AFFECTED,
    R_DONE,
    R_FOLD_BINS,
    R_GROW_CHUNKS,
    R_GROW_CONTROL,
    R_GROW_QUEUED,
    R_GROW_SORT,
    R_IDLE,
    R_SLICE,
    R_TRACE,
    R_UNTIL,
    run_slice,
)
from openmrc.transport.state import aligned

if TYPE_CHECKING:
    from openmrc.sim.capture import Capture

SLICE_S = 0.05
FIRST_SLICE_EVENTS = 20_000


class Simulation:
    """One simulation: build, step, read.

    Examples
    --------
    >>> from openmrc.scenario import load_scenario
    >>> from openmrc.sim.build import plan
    >>> s = Simulation(plan(load_scenario({"fabric": {"nics": 8, "hosts_per_t0": 4},
    ...     "traffic": [{"pattern": "permutation", "size": "100kB"}]})))
    >>> s.run()
    >>> s.finished, s.model.sim.s[I["messages_left"]]
    (True, np.int64(0))
    """

    def __init__(self, p: Plan, capture: Capture | None = None):
        self.plan = p
        self.model: Model = build(p)
        self.capture = capture
        if capture is not None:
            capture.attach(self.model)
        self.reason = R_SLICE
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self._events_per_slice = FIRST_SLICE_EVENTS

    @property
    def now_ps(self) -> int:
        """Simulated time so far."""
        return int(self.model.sim.s[I["now_ps"]])

    @property
    def finished(self) -> bool:
        """True when there is nothing left to simulate."""
        return self.reason in (R_DONE, R_UNTIL, R_IDLE)

    def step(self) -> bool:
        """Simulate one slice; False when the run is over."""
        m = self.model
        until = m.scenario.sim.until or MAX_TIME_PS
        wall, cpu = time.perf_counter(), time.process_time()
        before = int(m.sim.s[I["events_done"]])
        self.reason = int(
            run_slice(m.sim, m.state, m.profile, m.config, m.fabric, self._events_per_slice, until)
        )
        elapsed = time.perf_counter() - wall
        self.wall_s += elapsed
        self.cpu_s += time.process_time() - cpu
        assert m.sim.s[I["overflow"]] == 0, "an event pool ran dry inside a bucket"
        if self.capture is not None:
            self.capture.drain()
            elapsed = time.perf_counter() - wall  # the caller waits for both
        done = int(m.sim.s[I["events_done"]]) - before
        if self.reason == R_SLICE and elapsed > 0:
            self._events_per_slice = int(min(max(done * SLICE_S / elapsed, 1000), 50_000_000))
        else:
            self._make_room()
        return not self.finished

    def run(self, between: Callable[[Simulation], None] | None = None) -> None:
        """Simulate to the end, calling `between` after every slice."""
        while self.step():
            if between is not None:
                between(self)

    def _make_room(self) -> None:
        """Do what the kernels asked for."""
        m = self.model
        if self.reason == R_GROW_SORT:
            need = int(m.sim.slots[:, 1].max()) * 4 + 8192
            m.sim = m.sim._replace(sort=np.zeros((2, max(need, m.sim.sort.shape[1] * 2), 2), np.int64))
        elif self.reason == R_GROW_CHUNKS:
            m.sim = _grow_chunks(m.sim)
        elif self.reason == R_GROW_CONTROL:
            m.sim = _grow_control(m.sim)
        elif self.reason == R_FOLD_BINS:
            fold_bins(m.sim)
        elif self.reason == R_GROW_QUEUED:
            m.sim = _grow_queued(m.sim)
        elif self.reason == R_TRACE and self.capture is not None:
            self.capture.make_room()
        elif self.reason == R_AFFECTED:
            m.sim, m.config = _grow_affected(m.sim, m.config)


def _grown_list(following: np.ndarray, first_free: int, extra: int) -> tuple[np.ndarray, int]:
    """Return a free list with `extra` more places, and its new head."""
    n = len(following)
    more = np.arange(n + 1, n + extra + 1, dtype=np.int32)
    more[-1] = first_free
    return np.concatenate([following, more]), n


def _grow_chunks(sim: lay.Sim) -> lay.Sim:
    n = len(sim.chunk_next)
    extra = max(n // 4, 2 * (4 * int(sim.slots[:, 1].max()) + 4096))
    following, first = _grown_list(sim.chunk_next, int(sim.s[I["free_chunk"]]), extra)
    sim.s[I["free_chunk"]] = first
    sim.s[I["n_free_chunks"]] += extra
    chunk = np.zeros(((n + extra) * lay.CHUNK, 2), np.int64)
    chunk[: n * lay.CHUNK] = sim.chunk
    return sim._replace(chunk_next=following, chunk=chunk)


def _grow_control(sim: lay.Sim) -> lay.Sim:
    n = len(sim.control_next)
    extra = max(n // 4, 1 << 14)
    following, first = _grown_list(sim.control_next, int(sim.s[I["control_free"]]), extra)
    sim.s[I["control_free"]] = first
    control = aligned(n + extra, sim.control.dtype)
    control[:n] = sim.control
    return sim._replace(control_next=following, control=control)


def _grow_queued(sim: lay.Sim) -> lay.Sim:
    n = len(sim.queued)
    extra = max(n, 64 * int(sim.slots[:, 1].max()) + 8192)
    following, first = _grown_list(sim.queued["next"], int(sim.s[I["queued_free"]]), extra)
    sim.s[I["queued_free"]] = first
    sim.s[I["n_queued_free"]] += extra
    queued = np.zeros(n + extra, lay.QUEUED)
    queued[:n] = sim.queued
    queued["next"] = following
    return sim._replace(queued=queued)


def _grow_affected(sim: lay.Sim, config: lay.Config) -> tuple[lay.Sim, lay.Config]:
    """Double the table of (fault, QP) and enter every row again."""
    from openmrc.jit import mix32

    old = sim.affected[sim.affected["key"] != 0]
    size = 4 * len(sim.affected)
    table = np.zeros(size, lay.AFFECTED)
    for row in old:
        key = int(row["key"])
        at = int(mix32(key ^ (key >> 29))) & (size - 1)
        while table[at]["key"] != 0:
            at = (at + 1) & (size - 1)
        table[at] = row
    return sim._replace(affected=table), config._replace(affected_mask=size - 1)


def fold_bins(sim: lay.Sim) -> None:
    """Join timeline bins in pairs: sums add up, peaks keep the larger, states and totals the later."""
    s, table = sim.s, sim.timeline
    n = int(s[I["bin"]])
    half = n // 2
    first, second = table[0 : 2 * half : 2].copy(), table[1 : 2 * half : 2].copy()
    joined = second  # states and running totals: the later of the two
    summed = [lay.T_DELIVERED, *range(lay.T_PLANE0, table.shape[1])]
    joined[:, summed] += first[:, summed]
    joined[:, lay.T_PEAK] = np.maximum(first[:, lay.T_PEAK], second[:, lay.T_PEAK])
    rest = table[2 * half : n + 1].copy()  # an odd bin and the open one
    table[:] = 0
    table[:half] = joined
    table[half : half + len(rest)] = rest
    width = int(s[I["bin_width_ps"]]) * 2
    s[I["bin_width_ps"]] = width
    if len(rest) == 2:  # the odd bin grows into the first wide one: what is open belongs to it
        table[half, summed] += table[half + 1, summed]
        table[half + 1] = 0
    s[I["bin"]] = half
    s[I["bin_end_ps"]] = (half + 1) * width
