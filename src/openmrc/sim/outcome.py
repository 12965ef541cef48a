"""What a simulation found, read out of its arrays: plain dicts and NumPy arrays, no presentation."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from openmrc.fabric.topology import Layer
from openmrc.sim import layout as lay
from openmrc.sim.build import Model
from openmrc.sim.layout import I
from openmrc.transport.state import COUNTER_INDEX, COUNTERS, QP_ERROR
from openmrc.units import PS_PER_US

LAYER_NAMES = {
    Layer.NIC_UP: "nic_to_t0",
    Layer.NIC_DOWN: "t0_to_nic",
    Layer.T0_UP: "t0_to_t1",
    Layer.T1_DOWN: "t1_to_t0",
    Layer.T1_UP: "t1_to_t2",
    Layer.T2_DOWN: "t2_to_t1",
}


def us(ps: int | float | None) -> float | None:
    """Return picoseconds as microseconds; None and negative (never) stay None."""
    return None if ps is None or ps < 0 else float(ps) / PS_PER_US


def digest(model: Model) -> str:
    """Return the SHA-256 that equal runs share.

    Over little-endian int64 (flow id, start ps, end ps or -1, retransmissions) in id order, then the
    final counters (transport counters, drops by reason, trims, marks, hops).
    """
    sim, nodes = model.sim, model.graph.messages
    rows = np.empty((len(nodes), 4), "<i8")
    rows[:, 0] = np.arange(len(nodes))
    rows[:, 1] = sim.flow_start[nodes]
    rows[:, 2] = sim.flow_end[nodes]
    rows[:, 3] = sim.flow_rtx[nodes]
    s = sim.s
    final = [s[I[name]] for name in ("trimmed", "marked", "hops_data", "hops_control", "delivered_bytes")]
    tail = np.concatenate([model.state.count, sim.drops, np.array(final)]).astype("<i8")
    return hashlib.sha256(rows.tobytes() + tail.tobytes()).hexdigest()


def makespan_ps(model: Model) -> int:
    """Return when the last message or computation ended, counted from time 0; -1 when none did."""
    return int(model.sim.flow_end.max(initial=-1))


def flows(model: Model, ideal_ps: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of flows.parquet, one row per message in id order."""
    sim, graph, nodes = model.sim, model.graph, model.graph.messages
    start, end = sim.flow_start[nodes], sim.flow_end[nodes]
    fct = np.where(end >= 0, (end - start) / PS_PER_US, np.nan)
    ideal_us = ideal_ps / PS_PER_US
    failed = (model.state.req["state"][graph.qp[nodes]] == QP_ERROR) & (end < 0)
    names = np.array(graph.job_names)
    return {
        "flow": np.arange(len(nodes)),
        "job": names[graph.job[nodes]],
        "step": graph.step[nodes].astype(np.int64),
        "qp": graph.qp[nodes].astype(np.int64),
        "src": graph.src[nodes].astype(np.int64),
        "dst": graph.dst[nodes].astype(np.int64),
        "size_bytes": graph.size_bytes[nodes],
        "start_ps": start,
        "received_ps": sim.flow_received[nodes],
        "end_ps": end,
        "fct_us": fct,
        "ideal_us": ideal_us,
        "slowdown": fct / ideal_us,
        "retransmissions": sim.flow_rtx[nodes].astype(np.int64),
        "trimmed": sim.flow_trim[nodes].astype(np.int64),
        "status": np.where(end >= 0, "ok", np.where(failed, "failed", "unfinished")),
    }


def timeline(model: Model) -> dict[str, np.ndarray]:
    """Return the columns of timeline.parquet: rates, queue peaks, EV states and counts per bin."""
    sim, s = model.sim, model.sim.s
    n, width = int(s[I["bin"]]) + 1, int(s[I["bin_width_ps"]])
    table = sim.timeline[:n].copy()
    table[-1, lay.T_PEAK] = s[I["bin_peak"]]
    table[-1, [lay.T_GOOD, lay.T_SKIP, lay.T_BAD]] = model.state.ev_states[:3]
    table[-1, lay.T_RTX] = model.state.count[COUNTER_INDEX["retransmitted"]]
    table[-1, lay.T_TRIM], table[-1, lay.T_MARK] = s[I["trimmed"]], s[I["marked"]]
    table[-1, lay.T_DROP] = sim.drops.sum()
    length = np.full(n, width, np.int64)
    length[-1] = max(int(s[I["now_ps"]]) - (n - 1) * width, 1)

    def gbps(column: int) -> np.ndarray:
        return table[:, column] * 8e3 / length

    def per_bin(column: int) -> np.ndarray:
        return np.diff(table[:, column], prepend=0)

    fastest = int(model.topology.layer_rate_bps.max())
    columns = {
        "t_us": np.arange(n) * width / PS_PER_US,
        "bin_us": length / PS_PER_US,
        "goodput_gbps": gbps(lay.T_DELIVERED),
    }
    for plane in range(model.fabric.planes):
        columns[f"plane{plane}_gbps"] = gbps(lay.T_PLANE0 + plane)
    columns |= {
        "queue_max_bytes": (table[:, lay.T_PEAK] * (fastest // 8) // 10**12),
        "evs_good": table[:, lay.T_GOOD],
        "evs_skip": table[:, lay.T_SKIP],
        "evs_assumed_bad": table[:, lay.T_BAD],
        "retransmitted": per_bin(lay.T_RTX),
        "trimmed": per_bin(lay.T_TRIM),
        "dropped": per_bin(lay.T_DROP),
        "ecn_marked": per_bin(lay.T_MARK),
    }
    return columns


def counters(model: Model) -> dict[str, Any]:
    """Return the `counters` block: the transport's, the network's, drops by reason."""
    c = {name: int(model.state.count[i]) for i, name in enumerate(COUNTERS)}
    s = model.sim.s
    listed = ("data_packets", "retransmitted", "sacks", "nacks", "timeouts")
    in_paths = ("assumed_bad", "recovered", "promoted", "false_condemned")
    block: dict[str, Any] = {name: c[name] for name in listed}
    block["trimmed"] = int(s[I["trimmed"]])
    block["ecn_marked"] = int(s[I["marked"]])
    block["probes"] = c["probes"] + c["ev_probes"]
    block["dropped"] = {name: int(n) for name, n in zip(lay.DROP_REASONS, model.sim.drops, strict=True) if n}
    block |= {name: n for name, n in c.items() if name not in block and name not in in_paths}
    return block


def paths(model: Model) -> dict[str, int]:
    """Return the `paths` block."""
    names = ("assumed_bad", "recovered", "promoted", "false_condemned")
    return {name: int(model.state.count[COUNTER_INDEX[name]]) for name in names}


def queues(model: Model) -> dict[str, int]:
    """Return the longest data queue of each layer of ports that exists, in bytes."""
    rate = model.topology.layer_rate_bps
    base = model.topology.layer_base
    return {
        LAYER_NAMES[layer]: int(model.sim.peak[layer]) * int(rate[layer] // 8) // 10**12
        for layer in Layer
        if base[layer + 1] > base[layer]
    }


def faults(model: Model) -> list[dict[str, Any]]:
    """Return the `faults` block: when each happened, who left it when, and when it was used again."""
    rows = model.sim.affected[model.sim.affected["key"] != 0]
    of_fault = (rows["key"] >> 32) - 1
    now = int(model.sim.s[I["now_ps"]])
    found = []
    for info in model.schedule.infos:
        if info.at_ps > now:
            continue
        mine = rows[of_fault == info.id]
        dropped = mine[mine["drops"] > 0]
        stay = np.where(mine["first_drop_ps"] < 0, 0, mine["last_tx_ps"] - mine["first_drop_ps"])
        leaving = np.maximum(stay, mine["worst_ps"]).max(initial=0)
        left = np.where(mine["first_left_ps"] < 0, mine["last_tx_ps"], mine["first_left_ps"])
        back = int(model.sim.fault_back_ps[info.id])
        found.append(
            {
                "id": info.id,
                "kind": info.kind,
                "element": info.element,
                "at_us": us(info.at_ps),
                "end_us": us(info.end_ps) if info.end_ps <= now else None,
                "first_left_us": us(int(left.min())) if len(mine) else None,
                "last_left_us": us(int(left.max())) if len(mine) else None,
                "worst_leave_rtts": max(int(leaving), 0) / model.base_rtt_ps if len(dropped) else None,
                "qps_affected": len(mine),
                "packets_lost": int(model.sim.fault_lost[info.id]),
                "back_us": us(back),
            }
        )
    return found


def slowest_flow(model: Model, columns: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """Return the slowest completed flow and where its packets waited longest."""
    done = np.flatnonzero(columns["end_ps"] >= 0)
    if not len(done):
        return None
    flow = int(done[np.argmax(columns["fct_us"][done])])
    qp = int(columns["qp"][flow])
    route = model.sim.route[qp]
    wait, link = int(route["worst_wait_ps"]), int(route["worst_link"])
    rtx, trimmed = int(columns["retransmissions"][flow]), int(columns["trimmed"][flow])
    name = model.topology.link_name(link) if link >= 0 else None
    text = "nothing: its packets met no queue behind the NIC"
    if name is not None:
        text = f"queues: its QP's packets waited up to {wait / PS_PER_US:.1f} us at {name}"
    if rtx:
        text += f"; {rtx} packets were sent again" + (f" ({trimmed} trimmed)" if trimmed else "")
    plane = int(name[1 : name.index("/")]) if name and name.startswith("p") else None
    if name and name.startswith("nic"):
        plane = int(name.split("/p")[1].split(":")[0])
    return {
        "flow": flow,
        "src": int(columns["src"][flow]),
        "dst": int(columns["dst"][flow]),
        "fct_us": float(columns["fct_us"][flow]),
        "ideal_us": float(columns["ideal_us"][flow]),
        "plane": plane,
        "link": name,
        "ev": None,
        "retransmissions": rtx,
        "limited_by": text,
    }


def notes(model: Model) -> list[str]:
    """Return which limits were reached and which floors were active: never silence."""
    s, count = model.sim.s, model.state.count
    found = []
    floor = int(count[COUNTER_INDEX["floor_held"]])
    if floor:
        found.append(f"ev_min_active held {floor} times: more than half of a QP's EVs were bad")
    if s[I["affected_full"]]:
        found.append(f"fault statistics: {int(s[I['affected_full']])} (fault, QP) pairs were not recorded")
    no_path = int(count[COUNTER_INDEX["no_path"]])
    if no_path:
        found.append(f"{no_path} times a QP had no path at all")
    errors = int((model.state.req["state"] == QP_ERROR).sum())
    if errors:
        found.append(f"{errors} QPs ended in ERROR")
    waiting = int((model.sim.flow_start[model.graph.messages] < 0).sum())
    if waiting:
        found.append(f"{waiting} messages were never released: what they wait for did not happen")
    return found
