"""When nodes of a message graph can be released: longest chains, and the check for cycles."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ScenarioError
from openmrc.limits import MAX_TIME_PS
from openmrc.scenario.graph import COMPUTE, MessageGraph
from openmrc.units import format_duration

#: below this many edges a level of the graph is walked in plain Python, above it in NumPy
_WIDE_LEVEL = 96
_CYCLE_SHOWN = 8


def release_times(
    graph: MessageGraph,
    event_ps: NDArray[np.int64],
    *,
    group_of_edge: NDArray[np.int64] | None = None,
    group_child: NDArray[np.int64] | None = None,
    group_ps: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return when every node is released if each event takes the given time: the longest chains.

    Parameters
    ----------
    graph : MessageGraph
    event_ps : int64[3, n]
        Time from a node's release to its STARTED, SENT and RECEIVED event.
    group_of_edge : int64[e], optional
        Group of every edge, or -1. A group's child is released no earlier than the first release of the
        group's parents plus ``group_ps``: what the parents need *together* (they share a NIC).
    group_child, group_ps : int64[g], optional
        Child and time of every group, in order of the child.

    Returns
    -------
    int64[n]
        Release times in picoseconds.

    Raises
    ------
    ScenarioError
        The graph has a cycle; the message lists its nodes.
    """
    n = graph.n_nodes
    release = np.zeros(n, np.int64)
    if graph.n_edges == 0:
        return graph.start_ps.copy()
    if int(graph.n_deps.sum()) < graph.n_edges:
        return _release_by_time(graph, event_ps)
    walk = _Walk(graph, event_ps, release, group_of_edge, group_child, group_ps)
    frontier = np.flatnonzero(graph.n_deps == 0)
    done = 0
    while frontier.size:
        done += frontier.size
        n_edges = int((graph.edge_first[frontier + 1] - graph.edge_first[frontier]).sum())
        frontier = walk.narrow(frontier) if n_edges + frontier.size < _WIDE_LEVEL else walk.wide(frontier)
    if done < n:
        raise ScenarioError(_cycle_message(graph, walk.waiting))
    return release


def _release_by_time(graph: MessageGraph, event_ps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Walk a graph with nodes that need k of their edges: in order of time, as the k-th firing counts."""
    waiting = graph.n_deps.tolist()
    release = [-1] * graph.n_nodes
    first, child, on = graph.edge_first.tolist(), graph.edge_child.tolist(), graph.edge_on.tolist()
    start, after = graph.start_ps.tolist(), event_ps.tolist()
    agenda = [(start[node], node, -1) for node in np.flatnonzero(graph.n_deps == 0).tolist()]
    heapq.heapify(agenda)  # (time, node, -1): a release; (time, node, edge): an edge fires
    while agenda:
        now, node, edge = heapq.heappop(agenda)
        if edge < 0:
            release[node] = now
            for e in range(first[node], first[node + 1]):
                heapq.heappush(agenda, (now + after[on[e]][node], node, e))
            continue
        target = child[edge]
        waiting[target] -= 1
        if waiting[target] == 0:
            heapq.heappush(agenda, (now + start[target], target, -1))
    if min(release) < 0:
        raise ScenarioError(_cycle_message(graph, np.array(waiting)))
    return np.array(release, np.int64)


class _Walk:
    """Kahn's algorithm, one level at a time, carrying the latest release along the edges."""

    def __init__(
        self,
        graph: MessageGraph,
        event_ps: NDArray[np.int64],
        release: NDArray[np.int64],
        group_of_edge: NDArray[np.int64] | None,
        group_child: NDArray[np.int64] | None,
        group_ps: NDArray[np.int64] | None,
    ) -> None:
        self.graph, self.release = graph, release
        self.waiting = graph.n_deps.astype(np.int64)
        self.edge_ps = event_ps[graph.edge_on, graph.edge_parents()]
        self.grouped = group_of_edge is not None
        if group_of_edge is not None and group_child is not None and group_ps is not None:
            self.group_of_edge, self.group_ps = group_of_edge, group_ps
            self.group_from = np.full(group_ps.size, MAX_TIME_PS, np.int64)
            self.group_first = np.searchsorted(group_child, np.arange(graph.n_nodes + 1))
        self._first = graph.edge_first.data
        self._child = graph.edge_child.data
        self._edge_ps = self.edge_ps.data

    def _settle(self, nodes: NDArray[np.int64]) -> None:
        """Add what groups and the nodes' own delays say about nodes that are about to be released."""
        if self.grouped:
            groups, owner = _ranges(self.group_first, nodes)
            if groups.size:
                np.maximum.at(self.release, nodes[owner], self.group_from[groups] + self.group_ps[groups])
        self.release[nodes] += self.graph.start_ps[nodes]

    def wide(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        self._settle(nodes)
        edges, owner = _ranges(self.graph.edge_first, nodes)
        if edges.size == 0:
            return edges
        child = self.graph.edge_child[edges].astype(np.int64)
        released = self.release[nodes][owner]
        np.maximum.at(self.release, child, released + self.edge_ps[edges])
        if self.grouped:
            group = self.group_of_edge[edges]
            inside = group >= 0
            np.minimum.at(self.group_from, group[inside], released[inside])
        np.subtract.at(self.waiting, child, 1)
        child = np.unique(child)
        return child[self.waiting[child] == 0]

    def narrow(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        self._settle(nodes)
        release, waiting = self.release.data, self.waiting.data
        ready = []
        for p in nodes.tolist():
            released = release[p]
            for e in range(self._first[p], self._first[p + 1]):
                c = self._child[e]
                t = released + self._edge_ps[e]
                if t > release[c]:
                    release[c] = t
                if self.grouped and (g := int(self.group_of_edge[e])) >= 0 and released < self.group_from[g]:
                    self.group_from[g] = released
                waiting[c] -= 1
                if waiting[c] == 0:
                    ready.append(c)
        return np.array(ready, np.int64)


def _ranges(first: NDArray[np.int64], at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all indices of the CSR rows ``at``, and for each the position of its row in ``at``."""
    count = first[at + 1] - first[at]
    owner = np.repeat(np.arange(at.size), count)
    before = np.cumsum(count) - count
    return np.arange(owner.size) - np.repeat(before - first[at], count), owner


def _cycle_message(graph: MessageGraph, waiting: NDArray[np.int64]) -> str:
    """Walk backwards among the nodes that never became ready until one repeats."""
    stuck = waiting > 0
    parents = graph.edge_parents()
    inside = stuck[parents] & stuck[graph.edge_child]
    parent_of = np.full(graph.n_nodes, -1, np.int64)
    parent_of[graph.edge_child[inside]] = parents[inside]
    node = int(np.argmax(stuck))
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        node = int(parent_of[node])
    cycle = [m for m, place in seen.items() if place >= seen[node]][::-1]
    shown = [_node_text(graph, m) for m in cycle[:_CYCLE_SHOWN]]
    if len(cycle) > _CYCLE_SHOWN:
        shown.append(f"... {len(cycle) - _CYCLE_SHOWN} more")
    chain = " -> ".join(shown)
    return f"the traffic waits for itself: {chain} -> back to the first; remove one dependency of this cycle"


def _node_text(graph: MessageGraph, node: int) -> str:
    if graph.kind[node] == COMPUTE:
        return f"node {node} (compute {format_duration(int(graph.duration_ps[node]))})"
    return f"node {node} (message {graph.src[node]} -> {graph.dst[node]})"
