"""The ideal: how fast the traffic could be at best, from scenario and topology alone.

`ideal` returns a lower bound on the makespan that no transport, however good, can beat: the larger of

* any NIC's line bytes sent or received over its rate, from the earliest time these bytes can exist, and
* any dependency chain of unloaded message times and computations, where messages that share a NIC
  and that the same computation waits for share its rate,

each with the unloaded latency of the path and of the final Transport ACK. A message's packets may spread
over all planes; faults, other QPs, windows and SACKs cost nothing here.

Serialisation times are rounded down for every packet, as the simulator does, so that the bound holds to the
picosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.scenario.graph import COMPUTE, MESSAGE, RECEIVED, SENT, MessageGraph
from openmrc.scenario.release import release_times
from openmrc.transport.settings import TransportSettings
from openmrc.wire import sizes
from openmrc.wire.settings import Mode

if TYPE_CHECKING:
    from openmrc.fabric.topology import Topology

Int64s = NDArray[np.int64]


class PacketCost(NamedTuple):
    """What packets occupy on a line: preamble, gap and FCS included.

    Attributes
    ----------
    pmtu_bytes : int
        Payload of a full packet.
    overhead_line_bytes : int
        Line bytes of a data packet besides its payload.
    ack_line_bytes : int
        Line bytes of a Transport ACK.
    """

    pmtu_bytes: int
    overhead_line_bytes: int
    ack_line_bytes: int


def packet_cost(settings: TransportSettings) -> PacketCost:
    """Return the line bytes that packets cost in a forwarding mode, with this PMTU and TSETH.

    >>> packet_cost(TransportSettings())
    PacketCost(pmtu_bytes=4096, overhead_line_bytes=166, ack_line_bytes=146)
    """
    mode = Mode(settings.mode)
    full = sizes.line_bytes(sizes.PacketKind.DATA, mode, settings.pmtu, tseth=settings.tseth)
    ack = sizes.line_bytes(sizes.PacketKind.TRANSPORT_ACK, mode)
    return PacketCost(settings.pmtu, full - settings.pmtu, ack)


@dataclass(frozen=True)
class Ideal:
    """Lower bounds of a run.

    Attributes
    ----------
    makespan_ps : int
        No run ends earlier (last completion, or end of the last computation, counted from time 0).
    bytes_ps, chain_ps : int
        The two bounds that it is the larger of.
    limited_by : str
        What decides, e.g. ``bytes received by NIC 33``.
    flow_ps : int64[messages]
        Per message, in the order of `MessageGraph.messages`: release to completion, alone in the fabric.
    """

    makespan_ps: int
    bytes_ps: int
    chain_ps: int
    limited_by: str
    flow_ps: Int64s


class _Times(NamedTuple):
    """Per message, in picoseconds."""

    port: Int64s  # on one port, all packets one after the other
    data: Int64s  # release to last byte placed, unloaded
    fixed: Int64s  # part of `data` that is not the NIC port's serialisation
    ack: Int64s  # last byte placed to completion


def line_bytes(size_bytes: NDArray[np.int64], cost: PacketCost) -> Int64s:
    """Return the line bytes of messages: payload and one overhead for each packet.

    >>> line_bytes(np.array([0, 4096, 4097]), PacketCost(4096, 166, 150)).tolist()
    [166, 4262, 4429]
    """
    return size_bytes + packets_of(size_bytes, cost.pmtu_bytes) * cost.overhead_line_bytes


def packets_of(size_bytes: NDArray[np.int64], pmtu_bytes: int) -> Int64s:
    """Return the packets of messages; a message of 0 bytes has one."""
    return np.maximum(1, -(-size_bytes // pmtu_bytes))


def hops_between(topology: Topology, src: NDArray[np.int32], dst: NDArray[np.int32]) -> Int64s:
    """Return the links between NICs, for arrays."""
    p = topology.params
    src_t0, dst_t0 = src // p.hosts_per_t0, dst // p.hosts_per_t0
    far = 4 if p.tiers == 2 else 6
    hops = np.where(src_t0 // p.t0_per_pod == dst_t0 // p.t0_per_pod, 4, far)
    return np.where(src_t0 == dst_t0, 2, hops).astype(np.int64)


def _message_times(graph: MessageGraph, topology: Topology, cost: PacketCost, cut_through: bool) -> _Times:
    m = graph.messages
    size, hops = graph.size_bytes[m], hops_between(topology, graph.src[m], graph.dst[m])
    planes = topology.params.planes
    mult = topology.layer_mult_q16
    packets = packets_of(size, cost.pmtu_bytes)
    full_bytes = cost.pmtu_bytes + cost.overhead_line_bytes
    last_bytes = size - (packets - 1) * cost.pmtu_bytes + cost.overhead_line_bytes
    full = int(full_bytes * mult[0] >> 16)
    last = last_bytes * mult[0] >> 16
    # full packets dealt to the ports, the last one where there is most room
    rows = -(-(packets - 1) // planes)
    even = (packets - 1) % planes == 0
    spread = rows * full + np.where(even, last, 0)
    # packets that end a port's share: the last may be the short one, or not count at all
    fixed, full_rest, ack = np.zeros((3, m.size), np.int64)
    for n in (2, 4, 6):
        at = hops == n
        if not at.any():
            continue
        still = 2 * topology.nic_latency_ps + (n - 1) * topology.switch_latency_ps
        still += int(topology.layer_delay_ps[:n].sum())
        forward = np.zeros(int(at.sum()), np.int64)
        full_forward = 0
        if not cut_through:
            for layer in range(1, n):
                forward += last_bytes[at] * mult[layer] >> 16
                full_forward += int(full_bytes * mult[layer] >> 16)
        fixed[at], full_rest[at] = still + forward, still + full_forward
        ack[at] = topology.latency_of_hops_ps(n, cost.ack_line_bytes)
        if cut_through:
            ack[at] -= sum(int(cost.ack_line_bytes * mult[layer] >> 16) for layer in range(1, n))
    data = np.maximum(spread + fixed, np.where(packets > 1, rows * full + full_rest, 0))
    return _Times((packets - 1) * full + last, data, fixed, ack)


def ideal(graph: MessageGraph, topology: Topology, cost: PacketCost, *, cut_through: bool = False) -> Ideal:
    """Return lower bounds on the makespan and on every message's completion time.

    Parameters
    ----------
    graph : MessageGraph
    topology : Topology
    cost : PacketCost
    cut_through : bool
        Whether switches forward before a packet has fully arrived.

    Examples
    --------
    Two NICs under one T0 of a 100 Gb/s plane; one packet of 1000 B on the line, an ACK of 100 B:

    >>> from openmrc.fabric.settings import FabricSettings
    >>> from openmrc.fabric.topology import Topology
    >>> from openmrc.scenario.graph import GraphBuilder
    >>> t = Topology(FabricSettings(nics=2, hosts_per_t0=2, nic_rate="100Gbps", switch_latency=0,
    ...                             nic_latency=0, nic_link_delay="1us"))
    >>> b = GraphBuilder(2)
    >>> _ = b.add_messages(0, 1, 900)
    >>> ideal(b.build(), t, PacketCost(4096, 100, 100)).makespan_ps  # 2 x (80 ns + 1 us) + 2 x (8 ns + 1 us)
    4176000
    """
    m = graph.messages
    times = _message_times(graph, topology, cost, cut_through)
    event_ps = np.zeros((3, graph.n_nodes), np.int64)
    event_ps[SENT] = event_ps[RECEIVED] = graph.duration_ps
    event_ps[SENT, m] = times.data + times.ack
    event_ps[RECEIVED, m] = times.data
    planes = topology.params.planes
    release = _releases(graph, event_ps, times, planes)
    ends = release + event_ps[SENT]
    chain_ps = int(ends.max(initial=0))
    bytes_ps, limited_by = 0, "nothing"
    for word, end in (("sent", graph.src), ("received", graph.dst)):
        bound, nic = _nic_bound(end[m], release[m], times, planes)
        if bound > bytes_ps:
            bytes_ps, limited_by = bound, f"bytes {word} by NIC {nic}"
    if chain_ps > bytes_ps or (chain_ps == bytes_ps and graph.n_edges == 0):
        last = int(np.argmax(ends))
        limited_by = _chain_text(graph, last)
    return Ideal(max(bytes_ps, chain_ps), bytes_ps, chain_ps, limited_by, times.data + times.ack)


def _chain_text(graph: MessageGraph, last: int) -> str:
    end = (
        "a computation"
        if graph.kind[last] == COMPUTE
        else f"the message from NIC {graph.src[last]} to NIC {graph.dst[last]}"
    )
    if graph.n_deps[last] == 0:
        return f"{end}, alone"
    return f"the dependency chain that ends with {end}"


def _releases(graph: MessageGraph, event_ps: Int64s, times: _Times, planes: int) -> Int64s:
    """Return the earliest release of every node.

    A join that waits for several messages of one NIC waits for their bytes together: they leave (or
    enter) through the same ports, after the first of them was released.
    """
    if graph.n_edges == 0:
        return graph.start_ps.copy()
    parent = graph.edge_parents()
    on = graph.edge_on
    shared = (graph.kind[graph.edge_child] == COMPUTE) & (graph.kind[parent] == MESSAGE) & (on >= SENT)
    edges = np.flatnonzero(shared)
    if edges.size == 0:
        return release_times(graph, event_ps)
    p = parent[edges]
    nic = np.where(on[edges] == SENT, graph.src[p], graph.dst[p]).astype(np.int64)
    child = graph.edge_child[edges].astype(np.int64)
    key = (child * 2 + (on[edges] == RECEIVED)) * graph.nics + nic
    groups, first, group = np.unique(key, return_index=True, return_inverse=True)
    place = np.full(graph.n_nodes, -1, np.int64)
    place[graph.messages] = np.arange(len(times.port))
    p = place[p]
    load = np.zeros(groups.size, np.int64)
    np.add.at(load, group, times.port[p])
    tail = np.full(groups.size, np.iinfo(np.int64).max)
    np.minimum.at(tail, group, times.fixed[p] + np.where(on[edges] == SENT, times.ack[p], 0))
    group_of_edge = np.full(graph.n_edges, -1, np.int64)
    group_of_edge[edges] = group
    return release_times(
        graph,
        event_ps,
        group_of_edge=group_of_edge,
        group_child=child[first],  # np.unique sorted by key, so by child
        group_ps=-(-load // planes) + tail,
    )


def _nic_bound(nic: NDArray[np.int32], release: Int64s, times: _Times, planes: int) -> tuple[int, int]:
    """Return (bound, NIC): when the busiest NIC's bytes are through at the earliest, completion included.

    What is released at time t or later needs its bytes over the rate after t: the bound is the largest
    over all t. The last packet still has the shortest of the NIC's remaining paths before it.
    """
    if nic.size == 0:
        return 0, -1
    order = np.lexsort((release, nic))
    nic, release, port = nic[order], release[order], times.port[order]
    tail = (times.fixed + times.ack)[order]
    first = np.flatnonzero(np.diff(nic, prepend=-1))
    count = np.diff(np.append(first, nic.size))
    before = np.cumsum(port) - port
    total = np.add.reduceat(port, first)
    left = np.repeat(total + before[first], count) - before  # this message's and all later ones'
    bound = release - (-left // planes) + np.repeat(np.minimum.reduceat(tail, first), count)
    worst = int(np.argmax(bound))
    return int(bound[worst]), int(nic[worst])
