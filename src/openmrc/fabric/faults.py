"""Faults compiled for kernels: per link, a list of time segments in which nothing changes.

Only links that any fault touches have a slot. Overlapping faults compose: down if any is; losses as
independent chances; the slowest rate; latencies add up.

>>> from openmrc.fabric.settings import FabricSettings
>>> t = Topology(FabricSettings(nics=64, planes=8, hosts_per_t0=8))
>>> faults = [FaultSettings(kind="down", element="p3/t0.1-t1.5", at="10us", for_="5us")]
>>> s = compile_faults(t, faults, seed=1, horizon_ps=10**9)
>>> [t.link_name(link) for link in s.slot_links], s.seg_start_ps[:3].tolist(), s.seg_down[:3].tolist()
(['p3/t0.1-t1.5:up', 'p3/t0.1-t1.5:down'], [0, 10000000, 15000000], [0, 1, 0])
>>> s.infos[0].text
'p3/t0.1-t1.5 down'
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import ScenarioError
from openmrc.fabric.fault_spec import (
    NOMINAL_MULT,
    PROBABILITY_ONE,
    DropReason,
    FaultInfo,
    FaultSettings,
    FaultSpec,
    RandomFaults,
    expand_faults,
)
from openmrc.fabric.topology import Topology

__all__ = [
    "DropReason",
    "FaultInfo",
    "FaultSchedule",
    "FaultSettings",
    "FaultSpec",
    "LinkState",
    "PortEvents",
    "RandomFaults",
    "SegmentArrays",
    "compile_faults",
    "link_state_at",
]

Int64s = npt.NDArray[np.int64]

#: seg_ber = bit error rate * 8 bits * 2^50: (bytes * seg_ber) >> 18 is a chance in 2^-32
BER_SCALE = 8 << 50
#: keeps bytes * seg_ber inside int64 for frames up to 2^14 bytes, also when several rates add up
MAX_SEG_BER = (1 << 49) - 1
#: 72 bytes each: 1.2 GB
MAX_SEGMENTS = 1 << 24


class SegmentArrays(NamedTuple):
    """The part of a schedule that kernels read: link ``slot_links[i]`` has the segments
    ``seg_first[i] .. seg_first[i+1]``, the first of which starts at 0 without a fault.
    """

    slot_links: Int64s
    seg_first: Int64s
    seg_start_ps: Int64s
    seg_down: Int64s
    seg_loss: Int64s
    seg_ber: Int64s
    seg_corrupt: Int64s
    seg_rate_mult: Int64s
    seg_latency_ps: Int64s
    seg_fault: Int64s
    seg_reason: Int64s


class PortEvents(NamedTuple):
    """What NICs see of their ports: at ``time_ps`` port (nic, plane) goes up (1) or down (0).

    Sorted by time, NIC, plane. All int64.
    """

    time_ps: Int64s
    nic: Int64s
    plane: Int64s
    up: Int64s


class FaultSchedule(NamedTuple):
    """The faults of a run.

    Attributes
    ----------
    slot_links : int64[n_slots]
        Links that have any fault, ascending.
    seg_first : int64[n_slots + 1]
        First segment of each slot, and the number of segments.
    seg_start_ps : int64[n_segs]
        When a segment starts; it ends where the slot's next one starts.
    seg_down : int64[n_segs]
        1 while the link is down.
    seg_loss : int64[n_segs]
        Chance of losing a packet in units of 2^-32; a blackhole is 2^32.
    seg_ber : int64[n_segs]
        ``(frame_bytes * seg_ber) >> 18`` is a further chance of loss in units of 2^-32.
    seg_corrupt : int64[n_segs]
        Chance of damage that the frame checksum does not find, in units of 2^-32.
    seg_rate_mult : int64[n_segs]
        Multiplier of serialisation times in units of 2^-16; 65536 is nominal.
    seg_latency_ps : int64[n_segs]
        Added to the propagation delay.
    seg_fault : int64[n_segs]
        Id of the fault to charge with losses; -1 where there is none.
    seg_reason : int64[n_segs]
        DropReason of that fault.
    port_events : PortEvents
        What NICs see.
    infos : tuple of FaultInfo
        By id.
    specs : tuple of FaultSpec
        By id; the effects that the segments were composed of.
    """

    slot_links: Int64s
    seg_first: Int64s
    seg_start_ps: Int64s
    seg_down: Int64s
    seg_loss: Int64s
    seg_ber: Int64s
    seg_corrupt: Int64s
    seg_rate_mult: Int64s
    seg_latency_ps: Int64s
    seg_fault: Int64s
    seg_reason: Int64s
    port_events: PortEvents
    infos: tuple[FaultInfo, ...]
    specs: tuple[FaultSpec, ...]

    @property
    def arrays(self) -> SegmentArrays:
        """The arrays alone: what a kernel can take as one argument."""
        return SegmentArrays(*(getattr(self, field) for field in SegmentArrays._fields))

    def slot_of(self, link: int) -> int:
        """Return the slot of a link, or -1."""
        slot = int(np.searchsorted(self.slot_links, link))
        return slot if slot < self.slot_links.size and self.slot_links[slot] == link else -1


class LinkState(NamedTuple):
    """What faults do to a link at one time; the fields of a segment."""

    down: int
    loss: int
    ber: int
    corrupt: int
    rate_mult: int
    latency_ps: int
    fault: int
    reason: int


HEALTHY = LinkState(0, 0, 0, 0, NOMINAL_MULT, 0, -1, int(DropReason.LINK_DOWN))


def _blame(fault_id: int, spec: FaultSpec) -> tuple[int, int, int]:
    """Return the rank of a fault as the one to charge: what loses for certain, then the latest."""
    if spec.down:
        severity = 3
    elif spec.loss32 == PROBABILITY_ONE:
        severity = 2
    else:
        severity = 1 if spec.loss32 or spec.ber or spec.corrupt32 else 0
    return severity, spec.at_ps, fault_id


def compose(specs: list[FaultSpec], active: list[int]) -> LinkState:
    """Return the joint effect of the faults ``active`` (ids, ascending)."""
    if not active:
        return HEALTHY
    kept = kept_whole = PROBABILITY_ONE
    ber = 0
    for i in active:
        kept = kept * (PROBABILITY_ONE - specs[i].loss32) >> 32
        kept_whole = kept_whole * (PROBABILITY_ONE - specs[i].corrupt32) >> 32
        ber += round(specs[i].ber * BER_SCALE)
    culprit = max(active, key=lambda i: _blame(i, specs[i]))
    return LinkState(
        down=int(any(specs[i].down for i in active)),
        loss=PROBABILITY_ONE - kept,
        ber=min(ber, MAX_SEG_BER),
        corrupt=PROBABILITY_ONE - kept_whole,
        rate_mult=max(specs[i].rate_mult for i in active),
        latency_ps=sum(specs[i].latency_ps for i in active),
        fault=culprit,
        reason=int(specs[culprit].reason),
    )


def _segments(specs: list[FaultSpec], ids: list[int]) -> list[tuple[int, ...]]:
    """Return (start, *LinkState) rows of a link that the faults ``ids`` touch."""
    edges: dict[int, list[tuple[int, bool]]] = {}
    for i in ids:
        edges.setdefault(specs[i].at_ps, []).append((i, True))
        if specs[i].end_ps >= 0:
            edges.setdefault(specs[i].end_ps, []).append((i, False))
    rows: list[tuple[int, ...]] = [(0, *HEALTHY)]
    active: set[int] = set()
    for time_ps in sorted(edges):
        for i, starts in edges[time_ps]:
            (active.add if starts else active.discard)(i)
        state = compose(specs, sorted(active))
        if state != LinkState(*rows[-1][1:]):
            rows.append((time_ps, *state))
    return rows


def _compile_segments(specs: list[FaultSpec]) -> SegmentArrays:
    if not specs:
        empty = np.empty(0, dtype=np.int64)
        return SegmentArrays(empty, np.zeros(1, dtype=np.int64), *[empty] * 9)
    # the events of a flap share one array of links: sort that once, not once per cycle
    batches: dict[int, list[int]] = {}
    for i, spec in enumerate(specs):
        batches.setdefault(id(spec.links), []).append(i)
    ids_of = list(batches.values())
    parts = [specs[ids[0]].links for ids in ids_of]
    links = np.concatenate(parts)
    batch = np.repeat(np.arange(len(parts)), [part.size for part in parts])
    order = np.lexsort((batch, links))
    links, batch = links[order], batch[order]
    slot_links, first = np.unique(links, return_index=True)
    bounds = np.append(first, links.size)
    # links with the same faults have the same segments: compose each such group once
    groups: dict[bytes, int] = {}
    tables: list[list[tuple[int, ...]]] = []
    group_of_slot = np.empty(slot_links.size, dtype=np.int64)
    for slot in range(slot_links.size):
        mine = batch[bounds[slot] : bounds[slot + 1]]
        key = mine.tobytes()
        group = groups.get(key)
        if group is None:
            group = groups[key] = len(tables)
            tables.append(_segments(specs, [i for b in mine.tolist() for i in ids_of[b]]))
        group_of_slot[slot] = group
    table = np.array([row for rows in tables for row in rows], dtype=np.int64)
    size = np.array([len(rows) for rows in tables], dtype=np.int64)
    if size[group_of_slot].sum() > MAX_SEGMENTS:
        raise ScenarioError(
            f"fault: {len(specs)} fault events on {slot_links.size} links make more than the limit of "
            f"{MAX_SEGMENTS} changes; use fewer flap cycles (`count`, `period`) or smaller elements"
        )
    start = np.append(0, np.cumsum(size))
    seg_first = np.append(0, np.cumsum(size[group_of_slot])).astype(np.int64)
    within = np.arange(seg_first[-1]) - np.repeat(seg_first[:-1], size[group_of_slot])
    rows = np.repeat(start[group_of_slot], size[group_of_slot]) + within
    columns = [np.ascontiguousarray(table[rows, column]) for column in range(table.shape[1])]
    return SegmentArrays(slot_links, seg_first, *columns)


def _compile_ports(specs: list[FaultSpec], planes: int) -> PortEvents:
    """Compose overlapping faults per NIC port: it is down while any fault that its NIC sees is active."""
    seen = [s for s in specs if s.ports is not None]
    if not seen:
        return PortEvents(*[np.empty(0, dtype=np.int64)] * 4)
    parts = []
    for s in seen:
        assert s.ports is not None
        for time_ps, step in ((s.at_ps, 1), (s.end_ps, -1)):
            if time_ps >= 0:
                parts.append(np.stack([s.ports, np.full_like(s.ports, time_ps), np.full_like(s.ports, step)]))
    port, time, step = np.concatenate(parts, axis=1)
    order = np.lexsort((time, port))
    port, time, step = port[order], time[order], step[order]
    # number of active faults after all steps of one (port, time); each port's steps start from 0
    running = np.cumsum(step)
    last_of_time = np.append((port[1:] != port[:-1]) | (time[1:] != time[:-1]), True)
    port, time, running = port[last_of_time], time[last_of_time], running[last_of_time]
    first_of_port = np.append(True, port[1:] != port[:-1])
    ended = np.append(0, running[:-1])  # faults that never end leave their count behind: take it off
    offset = ended[first_of_port][np.cumsum(first_of_port) - 1]
    down = running - offset > 0
    before = np.append(False, down[:-1]) & ~first_of_port
    change = down != before
    port, time, up = port[change], time[change], (~down[change]).astype(np.int64)
    order = np.lexsort((port, time))
    port, time, up = port[order], time[order], up[order]
    return PortEvents(time, port // planes, port % planes, up)


def compile_faults(
    topology: Topology, faults: list[FaultSettings], seed: int, horizon_ps: int
) -> FaultSchedule:
    """Compile the faults of a scenario for kernels.

    Parameters
    ----------
    topology : Topology
    faults : list of FaultSettings
    seed : int
        The scenario's seed.
    horizon_ps : int
        Until when random faults are drawn and endless flaps go on.

    Returns
    -------
    FaultSchedule

    Raises
    ------
    ScenarioError, TopologyError
        The message names the fault, the element and the remedy.
    """
    specs = expand_faults(topology, faults, seed, horizon_ps)
    infos = tuple(
        FaultInfo(i, s.kind, s.element, s.at_ps, s.end_ps, s.links, s.text) for i, s in enumerate(specs)
    )
    segments = _compile_segments(specs)  # refuses what is too large
    ports = _compile_ports(specs, topology.params.planes)
    return FaultSchedule(*segments, ports, infos, tuple(specs))


def link_state_at(schedule: FaultSchedule, slot: int, time_ps: int) -> LinkState:
    """Return the state of a slot's link straight from the faults: the slow twin of the segments."""
    link = int(schedule.slot_links[slot])
    state = HEALTHY._asdict()
    kept = kept_whole = Fraction(1)
    ber = Fraction(0)
    worst = (-1, -1, -1)
    for fault_id, s in enumerate(schedule.specs):
        if link not in s.links or not s.active_at(time_ps):
            continue
        state["down"] |= s.down
        kept *= 1 - Fraction(s.loss32, PROBABILITY_ONE)
        kept_whole *= 1 - Fraction(s.corrupt32, PROBABILITY_ONE)
        ber += s.ber
        state["rate_mult"] = max(state["rate_mult"], s.rate_mult)
        state["latency_ps"] += s.latency_ps
        rank = _blame(fault_id, s)
        if rank > worst:
            worst = rank
            state["fault"], state["reason"] = fault_id, int(s.reason)
    state["loss"] = round((1 - kept) * PROBABILITY_ONE)
    state["corrupt"] = round((1 - kept_whole) * PROBABILITY_ONE)
    state["ber"] = min(round(ber * BER_SCALE), MAX_SEG_BER)
    return LinkState(**state)
