"""Synthetic results for the report's tests: shaped like real runs, made from a seed, no simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from openmrc.report.result import Result, timeline_schema
from openmrc.report.stats import fct_statistics

CEILING_GBPS = 769.0
IDEAL_US = 181.4

FAULTS: list[dict[str, Any]] = [
    {
        "id": 1,
        "kind": "link_down",
        "element": "plane2/T0-3/T1-17",
        "at_us": 40.0,
        "end_us": 95.0,
        "first_left_us": 44.1,
        "last_left_us": 55.9,
        "worst_leave_rtts": 1.96,
        "qps_affected": 16,
        "packets_lost": 203,
        "back_us": 121.3,
    },
    {
        "id": 2,
        "kind": "grey",
        "element": "plane5/T0-1/T1-9",
        "at_us": 70.0,
        "end_us": None,
        "first_left_us": 74.8,
        "last_left_us": 91.0,
        "worst_leave_rtts": 2.41,
        "qps_affected": 16,
        "packets_lost": 61,
        "back_us": None,
    },
    {
        "id": 3,
        "kind": "switch_down",
        "element": "plane6/T1-30",
        "at_us": 130.0,
        "end_us": 150.0,
        "first_left_us": None,
        "last_left_us": None,
        "packets_lost": 0,
        "back_us": None,
    },
]


def flow_table(
    count: int, seed: int, unfinished: int = 0, failed: int = 0, size_bytes: int = 16_000_000
) -> pa.Table:
    """Return ``count`` flows with a log-normal tail; the last ones failed or are unfinished."""
    rng = np.random.default_rng(seed)
    start_ps = rng.integers(0, 1_000_000, count)
    fct_ps = ((IDEAL_US - 5 + rng.lognormal(1.6, 0.55, count)) * 1e6).astype(np.int64)
    status = np.full(count, "ok", dtype=object)
    status[count - unfinished - failed : count - unfinished] = "failed"
    status[count - unfinished :] = "unfinished"
    done = status == "ok"
    fct_us = np.where(done, fct_ps / 1e6, np.nan)
    ideal_us = np.full(count, IDEAL_US - 6)
    return pa.table(
        {
            "flow": np.arange(count),
            "job": pa.array(["train"] * count, pa.string()),
            "step": np.zeros(count, np.int32),
            "qp": np.arange(count),
            "src": np.arange(count),
            "dst": (np.arange(count) + count // 2) % max(count, 1),
            "size_bytes": np.full(count, size_bytes),
            "start_ps": start_ps,
            "received_ps": np.where(done, start_ps + fct_ps - 2_000_000, -1),
            "end_ps": np.where(done, start_ps + fct_ps, -1),
            "fct_us": fct_us,
            "ideal_us": ideal_us,
            "slowdown": fct_us / ideal_us,
            "retransmissions": rng.poisson(4, count),
            "trimmed": rng.poisson(1, count),
            "status": pa.array(status.tolist(), pa.string()),
        }
    )


def timeline_table(bins: int, planes: int, nics: int, seed: int, end_us: float = 200.0) -> pa.Table:
    """Return a ramp, a plateau with dips after each fault, and a tail."""
    rng = np.random.default_rng(seed + 1)
    bin_us = end_us / max(bins, 1)
    t = np.arange(bins) * bin_us
    level = np.clip(t / 8, 0, 1) * np.clip((end_us - t) / 12, 0, 1)
    for at, depth in ((40, 0.12), (70, 0.07), (130, 0.01)):
        level = level * (1 - depth * np.exp(-np.maximum(t - at, 0) / 9) * (t >= at))
    columns: dict[str, Any] = {"t_us": t, "bin_us": np.full(bins, bin_us)}
    columns["goodput_gbps"] = level * CEILING_GBPS * nics * 0.985 + rng.normal(0, 20, bins) * (level > 0)
    columns["goodput_gbps"] = np.maximum(columns["goodput_gbps"], 0)
    for plane in range(planes):
        hit = 0.3 * np.exp(-np.maximum(t - 40, 0) / 20) * (t >= 40) * (plane == 2)
        columns[f"plane{plane}_gbps"] = np.maximum(level * nics * 98 * (1 - hit) + rng.normal(0, 12, bins), 0)
    bad = 60 * ((t >= 42) & (t < 121)) * np.clip((t - 42) / 12, 0, 1) + 44 * (t >= 73) * np.clip(
        (t - 73) / 15, 0, 1
    )
    skip = rng.poisson(9, bins) * (level > 0.1)
    columns["queue_max_bytes"] = (level * 90_000 + rng.gamma(2, 14_000, bins)).astype(np.int64)
    columns["evs_good"] = (nics * 256 - bad - skip).astype(np.int64)
    columns["evs_skip"] = skip.astype(np.int64)
    columns["evs_assumed_bad"] = bad.astype(np.int64)
    columns["retransmitted"] = rng.poisson(1, bins) + (60 * ((t >= 42) & (t < 60))).astype(int)
    columns["trimmed"] = rng.poisson(0.4, bins)
    columns["dropped"] = (40 * ((t >= 40) & (t < 48))).astype(int)
    columns["ecn_marked"] = rng.poisson(20, bins)
    return pa.table(columns) if bins else timeline_schema(planes).empty_table()


def sample(
    flows: int = 64,
    planes: int = 8,
    bins: int = 200,
    faults: list[dict[str, Any]] | None = None,
    status: str = "complete",
    seed: int = 7,
    unfinished: int = 0,
    failed: int = 0,
    **changes: Any,
) -> Result:
    """Return a synthetic result; ``changes`` replace top-level keys of the summary."""
    table = flow_table(flows, seed, unfinished, failed)
    done_us = table["fct_us"].to_numpy()[: flows - unfinished - failed]
    faults = FAULTS if faults is None else faults
    rng = np.random.default_rng(seed)
    makespan = float(done_us.max()) + 0.6 if done_us.size and not unfinished else None
    slowest = int(np.argmax(done_us)) if done_us.size else None
    summary: dict[str, Any] = {
        "scenario": "link-flap",
        "seed": seed,
        "version": "0.1.0",
        "digest": "5f3a" * 16,
        "status": status,
        "command": f"mrc run examples/link-flap.toml --seed {seed} --out results/link-flap",
        "fabric": f"{planes} planes x 100 Gb/s, 64 NICs under 16 T0, 32 T1 a plane, 2 tiers",
        "traffic": f"permutation, {flows} flows of 16 MB, random start within 1 us",
        "simulated_us": 200.0,
        "flows": {"total": flows, "completed": int(done_us.size), "failed": failed},
        "fct_us": fct_statistics(done_us),
        "ideal_fct_us": IDEAL_US,
        "makespan_us": makespan,
        "p100_over_ideal": None if makespan is None else makespan / IDEAL_US,
        "goodput_gbps": {"mean_per_nic": 716.2 if done_us.size else None, "ceiling_per_nic": CEILING_GBPS},
        "counters": {
            "data_packets": flows * 3907,
            "retransmitted": int(table["retransmissions"].to_numpy().sum()),
            "trimmed": 31,
            "ecn_marked": 4_021,
            "sacks": 64_102,
            "nacks": 31,
            "probes": 5_320,
            "timeouts": 2,
            "dropped": {"link_down": 203, "grey": 61, "switch_down": 0},
            "port_updates": 0,
            "no_good_path": 0,
        },
        "paths": {"assumed_bad": 104, "recovered": 60, "promoted": 104, "false_condemned": 1},
        "planes": [
            np.int64(254_000_000 * flows + int(rng.normal(0, 3e7) * (flows > 0))) for _ in range(planes)
        ],
        "faults": faults,
        "queues": {"NIC to T0": 61_440, "T0 to T1": 118_784, "T1 to T0": 147_456, "T0 to NIC": 204_800},
        "slowest_flow": None
        if slowest is None
        else {
            "flow": slowest,
            "src": slowest,
            "dst": (slowest + flows // 2) % flows,
            "fct_us": float(done_us.max()),
            "plane": 2,
            "link": "plane2/T0-3/T1-17",
            "ev": 0x2C011,
            "retransmissions": 27,
            "trimmed": 3,
            "ideal_us": IDEAL_US - 6,
        },
        "engine": {
            "packet_hops_data": flows * 3907 * 4,
            "packet_hops_control": 268_000,
            "wall_s": 0.083,
            "cpu_s": 0.081,
            "hops_per_s": 15_200_000.0,
            "peak_rss_bytes": 212_000_000,
            "build_s": 0.02,
            "compile_s": 0.0,
            "port_model": "fast",
        },
        "settings": {
            "fabric": {"planes": planes, "nic_rate": "800Gbps", "radix": 64},
            "transport": {"ev_count": 256, "pmtu_bytes": 4096, "trimming": True},
            "congestion": {"algorithm": "nscc", "target_delay_us": 9.0},
        },
        "notes": ["port model fast: control packets do not push back data already scheduled"],
    }
    return Result({**summary, **changes}, table, timeline_table(bins, planes, max(flows, 1), seed))
