"""Small helpers of the simulator's tests: run a scenario, compare it with the oracle, fingerprint it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from openmrc.scenario import load_scenario
from openmrc.sim.build import plan
from openmrc.sim.layout import DROP_REASONS, I
from openmrc.sim.simulation import Simulation
from openmrc.transport.state import COUNTERS
from oracle import Oracle
from oracle_network import Stay

Table = dict[str, Any]


def with_model(table: Table, model: str) -> Table:
    """Return the scenario with another port model."""
    return table | {"sim": table.get("sim", {}) | {"port_model": model}}


def simulate(table: Table) -> Simulation:
    """Run a scenario to its end."""
    simulation = Simulation(plan(load_scenario(table)))
    simulation.run()
    return simulation


def ask_oracle(table: Table, true_stamps: bool = True) -> Oracle:
    """Run the plain-Python twin on the same scenario."""
    return Oracle(
        plan(load_scenario(table)), table.get("sim", {}).get("port_model", "fast"), true_stamps
    ).run()


def arrays_of(packed: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a packed bundle by name."""
    return {name: getattr(packed, name) for name in packed._content._fields}


def statistics(simulation: Simulation) -> dict[str, int]:
    """Return every counter of a run by name."""
    s, sim = simulation.model.sim.s, simulation.model.sim
    out = dict(zip(COUNTERS, simulation.model.state.count.tolist(), strict=True))
    out |= {f"dropped_{n}": int(k) for n, k in zip(DROP_REASONS, sim.drops, strict=True)}
    return out | {n: int(s[I[n]]) for n in ("trimmed", "marked", "failed", "hops_data", "hops_control")}


def differences(simulation: Simulation, oracle: Oracle) -> list[str]:
    """Return what a compiled run and the oracle do not agree on: flows, counters, every state row."""
    sim, state = simulation.model.sim, simulation.model.state
    pairs: dict[str, tuple[Any, Any]] = {
        "start_ps": (sim.flow_start, oracle.start),
        "received_ps": (sim.flow_received, oracle.received),
        "end_ps": (sim.flow_end, oracle.end),
        "retransmissions": (sim.flow_rtx, oracle.rtx),
        "trims of flows": (sim.flow_trim, oracle.trims),
        "drops": (sim.drops, list(oracle.drops.values())),
        "bytes of planes": (sim.plane_bytes, oracle.plane_bytes),
        "longest waits": (sim.peak, oracle.peak),
        "worst links": (sim.route["worst_link"], [link for link, _ in oracle.worst]),
        "packets lost to faults": (sim.fault_lost, oracle.fault_lost),
        "elements used again": (sim.fault_back_ps, oracle.fault_back),
        "messages left": (sim.s[I["messages_left"]], oracle.left),
    }
    for name in ("trimmed", "marked", "failed", "hops_data", "hops_control"):
        pairs[name] = (sim.s[I[name]], getattr(oracle, name))
    out = [name for name, (a, b) in pairs.items() if not np.array_equal(np.asarray(a), np.asarray(b))]
    affected = {
        (int(row["key"] >> 32) - 1, int(row["key"] & 0xFFFFFFFF)): Stay(
            *(int(row[n]) for n in ("first_drop_ps", "last_tx_ps", "drops", "first_left_ps", "worst_ps"))
        )
        for row in sim.affected[sim.affected["key"] != 0]
    }
    if affected != oracle.affected:
        out.append("affected QPs")
    theirs = arrays_of(oracle.st)
    return out + [f"state.{n}" for n, a in arrays_of(state).items() if a.tobytes() != theirs[n].tobytes()]


#: what scratch memory holds, and the order of free lists, may differ between equal runs
SCRATCH = {
    "sort",
    "digit",
    "chunk",
    "chunk_next",
    "slots",
    "s",
    "queued",
    "control",
    "control_next",
    "far_ps",
    "far_key",
    "pushes",
    "out",
}


def fingerprint(simulation: Simulation) -> dict[str, bytes]:
    """Return the bytes of every state row, port, queue, record and counter of a run."""
    sim = {f"sim.{n}": a.tobytes() for n, a in arrays_of(simulation.model.sim).items() if n not in SCRATCH}
    state = {f"state.{n}": a.tobytes() for n, a in arrays_of(simulation.model.state).items()}
    scalars = {n: int(simulation.model.sim.s[I[n]]).to_bytes(8, "little", signed=True) for n in RESULTS}
    return sim | state | scalars


RESULTS = (
    "now_ps",
    "events_done",
    "hops_data",
    "hops_control",
    "trimmed",
    "marked",
    "messages_left",
    "failed",
    "delivered_bytes",
    "last_delivery_ps",
    "control_used",
    "control_peak",
    "bin",
    "bin_width_ps",
    "no_control_path",
)


# --- scenarios drawn at random ---------------------------------------------------------------
def _fabric(r: random.Random) -> Table:
    tiers = r.choice([2, 2, 2, 3])
    planes = r.choice([1, 2, 2, 4, 8]) if tiers == 2 else 1
    fabric = {
        "nics": r.choice([4, 6, 8, 12, 16]),
        "planes": planes,
        "nic_rate": f"{r.choice([50, 100, 200]) * planes}Gbps",
        "hosts_per_t0": r.choice([1, 2, 3, 4, 8]),
        "tiers": tiers,
    }
    if tiers == 3:
        more = {"t0_per_pod": [1, 2], "uplinks_per_t0": [1, 2, 3], "t1_uplinks": [1, 2]}
        fabric |= {key: r.choice(values) for key, values in more.items()}
    elif r.random() < 0.5:
        fabric["uplinks_per_t0"] = r.choice([1, 2, 3, 4])
    return fabric


def _switch(r: random.Random) -> Table:
    switch: Table = {"trim": r.random() < 0.7, "cut_through": r.random() < 0.2}
    if r.random() < 0.4:
        switch |= {key: r.choice([0.1, 0.3, 0.6]) for key in ("trim_threshold", "trim_threshold_last_hop")}
    if r.random() < 0.3:
        switch["queue_capacity"] = r.choice([0.2, 0.7, 1.2])
    if r.random() < 0.3:
        switch["ecn"] = False
    elif r.random() < 0.5:
        switch |= {"ecn_low": 0.05, "ecn_high": 0.3, "ecn_last_hop": r.random() < 0.5}
    if r.random() < 0.2:
        switch["control_capacity"] = r.choice([0.005, 0.02])
    return switch


def _transport(r: random.Random, tiers: int) -> Table:
    t: Table = {
        "mode": r.choice(["srv6", "srv6", "stev"] + (["ecmp"] if tiers == 2 else [])),
        "pmtu": r.choice(["1024B", "2048B", "4096B", "4096B", "8192B"]),
        "ev_count": r.choice([1, 2, 4, 8, 256]),
        "backup_per_plane": r.choice([0, 1, 8]),
        "tseth": r.random() < 0.7,
        "tail_probe": r.random() < 0.8,
        "reverse_probes": r.random() < 0.8,
        "mpr": r.choice([1, 2, 8, 8]),
    }
    if r.random() < 0.3:
        t |= {
            "timeout_exponent": r.choice([3, 5]),
            "linear_cnt": r.choice([1, 7]),
            "exp_cnt": r.choice([0, 2, 25]),
        }
    if r.random() < 0.3:
        profile = r.choice(["uet-1.0-nscc", "off"])
        t["nscc"] = {"profile": profile, "shared_per_destination": r.random() < 0.5}
    return t


def _traffic(r: random.Random, nics: int) -> Table:
    size = f"{r.randrange(1, 150_000)}B"
    pairs = [[a, (a + k) % nics] for a in range(min(4, nics)) for k in (1, 2)]
    imm, qps = r.random() < 0.5, r.choice([1, 2])
    return r.choice(
        [
            {
                "pattern": "permutation",
                "size": size,
                "steps": r.choice([1, 2]),
                "compute": r.choice(["0us", "3us"]),
            },
            {"pattern": "incast", "size": size, "target": r.randrange(nics), "start_window": "2us"},
            {"pattern": "all_to_all", "size": f"{r.randrange(1, 20_000)}B", "parallel": r.choice([1, 8])},
            {"pattern": "all_reduce", "size": f"{r.randrange(1000, 200_000)}B", "channels": r.choice([1, 2])},
            {"pattern": "send", "size": size, "pairs": pairs, "imm": imm, "bidirectional": r.random() < 0.3},
            {
                "pattern": "stream",
                "pairs": [[0, 1], [2, 3], [3, 0]],
                "count": r.randrange(5, 60),
                "imm": imm,
                "write_size": f"{r.randrange(0, 20_000)}B",
                "outstanding": r.choice([2, 32]),
                "qps": qps,
            },
        ]
    )


def _fault(r: random.Random, planes: int) -> Table:
    kind = r.choice(["down", "flap", "loss", "loss", "corrupt", "slow", "latency", "blackhole", "reboot"])
    elements = ["p0/t0.0-t1.0", "nic0/p0", "nic1/p0", "p0/t0.0", "p0/t1.0", "nic2", "p0/t0.0-t1.0:up", "p0"]
    if planes > 1:
        elements += ["p1", "nic1/p1"]
    if kind in ("blackhole", "reboot"):
        elements = ["p0/t0.0", "p0/t1.0"]
    fault: Table = {"kind": kind, "element": r.choice(elements), "at": f"{r.randrange(40)}us"}
    if r.random() < 0.8 or kind == "reboot":
        fault["for"] = f"{r.randrange(1, 80)}us"
    fault |= {
        "flap": {"period": f"{r.randrange(2, 20)}us", "count": r.randrange(1, 6)},
        "loss": {"probability": r.choice([0.01, 0.2, 0.7])},
        "corrupt": {"probability": r.choice([0.01, 0.2])},
        "slow": {"factor": r.choice([0.05, 0.5, 0.9])},
        "latency": {"extra": r.choice(["100ns", "20us"])},
    }.get(kind, {})
    return fault


def random_scenario(seed: int) -> Table:
    """Return a small scenario drawn from everything that a scenario can say."""
    r = random.Random(seed)
    fabric = _fabric(r)
    return {
        "seed": r.randrange(1000),
        "fabric": fabric,
        "switch": _switch(r),
        "transport": _transport(r, fabric["tiers"]),
        "traffic": [_traffic(r, fabric["nics"])],
        "fault": [_fault(r, fabric["planes"]) for _ in range(r.choice([0, 0, 1, 1, 2, 3]))],
        "sim": {
            "port_model": r.choice(["fast", "exact"]),
            "nic_queue_packets": r.choice([1, 2, 2, 4]),
            "until": f"{r.randrange(5, 60)}us" if r.random() < 0.15 else "2ms",
        },
    }
