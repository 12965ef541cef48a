"""Small helpers of the scenario tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from openmrc.fabric.settings import FabricSettings
from openmrc.fabric.topology import Topology
from openmrc.scenario import MessageGraph, build_graph, load_scenario
from openmrc.scenario.graph import MESSAGE

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parent.parent / "examples"
FABRIC = {"nics": 16, "planes": 4, "nic_rate": "400Gbps", "hosts_per_t0": 4}


def scenario_of(*traffic: dict[str, Any], **more: Any):
    return load_scenario({"fabric": FABRIC, "traffic": list(traffic)} | more)


def graph_of(*traffic: dict[str, Any], **more: Any) -> MessageGraph:
    scenario = scenario_of(*traffic, **more)
    return build_graph(scenario, Topology(scenario.fabric))


def topology(**settings: Any) -> Topology:
    return Topology(FabricSettings(**{**FABRIC, **settings}))


def messages(graph: MessageGraph) -> list[tuple[int, int, int]]:
    """Return (src, dst, size) of every message."""
    m = graph.messages
    return list(zip(graph.src[m].tolist(), graph.dst[m].tolist(), graph.size_bytes[m].tolist(), strict=True))


def execute(graph: MessageGraph, duration: np.ndarray) -> list[int]:
    """Run a graph with an event queue of its own: the slow twin of `release_times`. Return release times.

    ``duration[node]`` is the time from release to SENT; RECEIVED comes at two thirds of it for messages.
    """
    import heapq

    parents: dict[int, list[int]] = {n: [] for n in range(graph.n_nodes)}
    release: dict[int, int] = {}
    fired = dict.fromkeys(parents, 0)
    queue: list[tuple[int, int, int]] = []
    for node in range(graph.n_nodes):
        if graph.n_deps[node] == 0:
            heapq.heappush(queue, (int(graph.start_ps[node]), 0, node))
    while queue:
        now, what, node = heapq.heappop(queue)
        if what == 1:
            fired[node] += 1
            if fired[node] == graph.n_deps[node]:
                heapq.heappush(queue, (now + int(graph.start_ps[node]), 0, node))
            continue
        assert node not in release
        release[node] = now
        for edge in range(graph.edge_first[node], graph.edge_first[node + 1]):
            after = event_times(graph, duration)[graph.edge_on[edge], node]
            heapq.heappush(queue, (now + int(after), 1, int(graph.edge_child[edge])))
    return [release[n] for n in range(graph.n_nodes)]


def event_times(graph: MessageGraph, duration: np.ndarray) -> np.ndarray:
    received = np.where(graph.kind == MESSAGE, duration * 2 // 3, duration)
    return np.stack([np.zeros_like(duration), duration, received])
