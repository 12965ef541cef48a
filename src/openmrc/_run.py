"""``openmrc.run``: a scenario in, a :class:`~openmrc.report.Result` out.

The command ``mrc run`` is this plus a terminal.
"""

from __future__ import annotations

import resource
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from openmrc.errors import DoesNotFitError
from openmrc.units import PS_PER_US, format_duration, format_rate, format_size

if TYPE_CHECKING:
    from openmrc.report.result import Result
    from openmrc.sim.build import Plan
    from openmrc.sim.simulation import Simulation

#: packet-hops per second that the estimate of the time assumes (``mrc bench sim`` measures it)
ASSUMED_HOPS_PER_S = 6e6
#: bytes of a capture that are made in a second, on the machine that measured the line above
ASSUMED_CAPTURE_BYTES_PER_S = 25e6


def run(
    scenario: str | Path | Mapping[str, Any],
    *,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    force: bool = False,
    pcap: str | Path | None = None,
    only: str | Sequence[str] = (),
    at: Literal["nic", "all"] = "nic",
    on_plan: Callable[[Plan], None] | None = None,
    on_progress: Callable[[Simulation], None] | None = None,
) -> Result:
    """Simulate a scenario and return what happened.

    Parameters
    ----------
    scenario : path or dict
        A TOML file, or the same as a dict.
    seed : int, optional
        Replaces the scenario's seed.
    overrides : dict, optional
        Dotted key -> value, as ``--set transport.ev_count=1``.
    out : path, optional
        Folder for summary.json, flows.parquet, timeline.parquet and report.html.
    force : bool
        Overwrite the result files of an existing folder, and an existing capture.
    pcap : path, optional
        Capture file for simulated packets as real bytes (nanosecond pcap; ``mrc decode`` reads it).
    only : str or sequence of str
        Which packets: ``flow=3``, ``qp=0-7``, ``nic=5,9``, or several of them; all by default.
    at : {"nic", "all"}
        As sent and as received by NICs, or on every link besides.
    on_plan, on_progress : callable, optional
        Called once before the run with what it will need, and after every slice of about 50 ms.

    Returns
    -------
    Result

    Raises
    ------
    ScenarioError
        The scenario is wrong; nothing was simulated or written.
    DoesNotFitError
        It needs more memory than there is.

    Examples
    --------
    >>> result = run({"fabric": {"nics": 8, "hosts_per_t0": 4},
    ...               "traffic": [{"pattern": "permutation", "size": "100kB"}]})
    >>> result.summary["flows"]
    {'total': 8, 'completed': 8, 'failed': 0}
    """
    from openmrc.report.files import check_directory
    from openmrc.scenario import load_scenario
    from openmrc.sim.build import plan
    from openmrc.sim.simulation import Simulation
    from openmrc.sim.warm import load_kernels

    if out is not None:
        check_directory(out, force)
    changes = dict(overrides or {})
    if seed is not None:
        changes["seed"] = seed
    source = "<dict>" if isinstance(scenario, Mapping) else str(scenario)
    begin = time.perf_counter()
    prepared = plan(load_scenario(scenario, changes))
    planned_s = time.perf_counter() - begin
    refuse_if_too_large(prepared)
    capture = None
    if pcap is not None:
        from openmrc.sim.capture import Capture

        capture = Capture(prepared, pcap, only, at, force)
        prepared.capture_bytes = capture.estimated_bytes
    with capture or nullcontext():
        if on_plan is not None:
            on_plan(prepared)
        compile_s = load_kernels()
        begin = time.perf_counter()
        simulation = Simulation(prepared, capture)
        built_s = planned_s + time.perf_counter() - begin
        interrupted = False
        try:
            simulation.run(on_progress)
        except KeyboardInterrupt:
            interrupted = True
        result = collect(simulation, command_line(source, changes), interrupted, built_s)
    result.summary["engine"]["compile_s"] = compile_s
    if capture is not None:
        result.summary["notes"].append(capture.describe())
    if out is not None:
        result.write(out, force=force)
    return result


def refuse_if_too_large(prepared: Plan) -> None:
    """Raise DoesNotFitError when the estimate exceeds the memory that is available."""
    import psutil

    available = psutil.virtual_memory().available
    if prepared.memory_bytes > available:
        qps = len(prepared.graph.qp_src)
        raise DoesNotFitError(
            f"this needs about {format_size(prepared.memory_bytes)} of memory and "
            f"{format_size(available)} are available: {qps} QPs of "
            f"{format_size(prepared.memory_bytes / max(qps, 1))} each; use fewer NICs or QPs, or a smaller "
            f"transport.ev_count or transport.nscc.max_cwnd"
        )


def describe_plan(prepared: Plan) -> str:
    """Return one line: what will be simulated, with an estimate of time and memory."""
    w = prepared.topology.wiring
    seconds = prepared.packet_hops / ASSUMED_HOPS_PER_S
    captured = ""
    if prepared.capture_bytes:
        more = format_duration(prepared.capture_bytes / ASSUMED_CAPTURE_BYTES_PER_S * 1e12)
        captured = f"; a capture of about {format_size(prepared.capture_bytes)}, {more} more"
    return (
        f"{w.n_nics} NICs, {w.planes} x {format_rate(w.port_rate_bps)}; {prepared.graph.describe()}; "
        f"about {prepared.packet_hops / 1e6:.3g} M packet-hops, {format_duration(seconds * 1e12)}, "
        f"{format_size(prepared.memory_bytes)} of memory{captured}"
    )


def command_line(source: str, changes: Mapping[str, Any]) -> str:
    """Return the command that repeats a run."""
    words = ["mrc", "run", source]
    for key, value in changes.items():
        words += ["--seed", str(value)] if key == "seed" else ["--set", f"{key}={value}"]
    return shlex.join(words)


def _goodput(simulation: Simulation, columns: dict[str, np.ndarray]) -> dict[str, float | None]:
    from openmrc.wire.settings import Mode
    from openmrc.wire.sizes import ceiling_bps

    m = simulation.model
    t = m.scenario.transport
    ceiling = ceiling_bps(m.topology.nic_rate_bps, Mode(t.mode), t.pmtu, t.tseth) / 1e9
    started = columns["start_ps"][columns["start_ps"] >= 0]
    ended = columns["received_ps"].max(initial=-1)
    mean = None
    if len(started) and ended > started.min():
        from openmrc.sim.layout import I

        delivered = int(m.sim.s[I["delivered_bytes"]])
        sides = min(len(np.unique(columns["src"])), len(np.unique(columns["dst"])))
        mean = delivered * 8e3 / (int(m.sim.s[I["last_delivery_ps"]]) - int(started.min())) / sides
    return {"mean_per_nic": mean, "ceiling_per_nic": ceiling}


def collect(simulation: Simulation, command: str, interrupted: bool, built_s: float) -> Result:
    """Read the result of a finished or interrupted simulation."""
    import pyarrow as pa

    from openmrc import __version__
    from openmrc.report.result import Result
    from openmrc.report.stats import fct_statistics
    from openmrc.scenario.ideal import ideal, packet_cost
    from openmrc.sim import outcome
    from openmrc.sim.layout import I

    m = simulation.model
    best = ideal(
        m.graph, m.topology, packet_cost(m.scenario.transport), cut_through=m.scenario.switch.cut_through
    )
    columns = outcome.flows(m, best.flow_ps)
    done = columns["status"] == "ok"
    complete = bool(done.all()) and not interrupted
    end_ps = outcome.makespan_ps(m)
    makespan = end_ps / PS_PER_US if complete and end_ps >= 0 else None
    ideal_us = best.makespan_ps / PS_PER_US if best.makespan_ps > 0 else None
    hops_data, hops_control = int(m.sim.s[I["hops_data"]]), int(m.sim.s[I["hops_control"]])
    wall = simulation.wall_s
    w = m.topology.wiring
    switches = f"{w.n_t0} T0, {w.n_t1} T1" + (f", {w.n_t2} T2" if w.tiers == 3 else "")
    summary = {
        "schema": 1,
        "scenario": m.scenario.name,
        "seed": m.scenario.seed,
        "version": __version__,
        "digest": outcome.digest(m),
        "status": "partial" if interrupted else "complete",
        "command": command,
        "fabric": f"{w.n_nics} NICs, {w.planes} x {format_rate(w.port_rate_bps)}, {switches} in each plane, "
        f"base RTT {format_duration(m.base_rtt_ps)}",
        "traffic": m.graph.describe(),
        "simulated_us": simulation.now_ps / PS_PER_US,
        "flows": {
            "total": len(done),
            "completed": int(done.sum()),
            "failed": int((columns["status"] == "failed").sum()),
        },
        "fct_us": fct_statistics(columns["fct_us"][done]),
        "ideal_fct_us": ideal_us,
        "makespan_us": makespan,
        "p100_over_ideal": makespan / ideal_us if makespan is not None and ideal_us else None,
        "goodput_gbps": _goodput(simulation, columns),
        "counters": outcome.counters(m),
        "paths": outcome.paths(m),
        "planes": [int(n) for n in m.sim.plane_bytes],
        "faults": outcome.faults(m),
        "queues": outcome.queues(m),
        "slowest_flow": outcome.slowest_flow(m, columns),
        "engine": {
            "packet_hops_data": hops_data,
            "packet_hops_control": hops_control,
            "wall_s": wall,
            "cpu_s": simulation.cpu_s,
            "hops_per_s": (hops_data + hops_control) / wall if wall > 0 else None,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "build_s": built_s,
            "estimated_bytes": simulation.plan.memory_bytes,
            "control_slots_peak": int(m.sim.s[I["control_peak"]]),
            "port_model": m.scenario.sim.port_model,
        },
        "settings": m.scenario.model_dump(mode="json", by_alias=True, exclude={"traffic", "fault"}),
        "notes": [*outcome.notes(m), f"ideal limited by {best.limited_by}"],
    }
    return Result(summary, pa.table(columns), pa.table(outcome.timeline(m)))
