"""From traffic entries to a message graph.

Each pattern yields one step as a `Part`; `build_graph` repeats it, with computations between the steps, and
puts the entries side by side. Node numbers and QPs follow the order of the entries and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ScenarioError
from openmrc.scenario.connection_matrix import ConnectionMatrix, read_connection_matrix
from openmrc.scenario.draws import random_derangement, random_permutation, random_times
from openmrc.scenario.goal import read_goal
from openmrc.scenario.graph import MESSAGE, RECEIVED, SENT, STARTED, GraphBuilder, MessageGraph, Part
from openmrc.scenario.traffic import (
    AllToAllEntry,
    ConnectionMatrixEntry,
    GoalEntry,
    IncastEntry,
    PermutationEntry,
    RingEntry,
    SendEntry,
    SteppedEntry,
    StreamEntry,
    TrafficEntry,
)

if TYPE_CHECKING:
    from openmrc.fabric.topology import Topology
    from openmrc.scenario.schema import Scenario


class Context:
    """What a pattern may know: the number of NICs, the seed, the name of its random streams, its folder."""

    def __init__(self, nics: int, seed: int, name: str, folder: Path) -> None:
        self.nics, self.seed, self.name, self.folder = nics, seed, name, folder


def permutation(entry: PermutationEntry, context: Context) -> Part:
    """Each member sends to another one: a uniformly random derangement."""
    member = np.asarray(entry.members(context.nics), np.int64)
    target = member[random_derangement(context.seed, f"{context.name}.derangement", member.size)]
    times = random_times(context.seed, f"{context.name}.start", member.size, entry.start_window)
    return Part.of_messages(member, target, entry.size, start_ps=times)


def incast(entry: IncastEntry, context: Context) -> Part:
    """Each sender sends one message to the target."""
    sender = np.asarray(entry.sender_nics(context.nics), np.int64)
    times = random_times(context.seed, f"{context.name}.start", sender.size, entry.start_window)
    return Part.of_messages(sender, np.full(sender.size, entry.target), entry.size, start_ps=times)


def all_to_all(entry: AllToAllEntry, context: Context) -> Part:
    """Member i sends to i+1, i+2, ...; message k waits until the one ``parallel`` before it is SENT."""
    member = np.asarray(entry.members(context.nics), np.int64)
    n = member.size
    shift, place = np.divmod(np.arange(n * (n - 1)), n)  # in rounds: all first messages, all second ones, ...
    target = member[(place + shift + 1) % n]
    child = np.arange(min(entry.parallel, n - 1) * n, n * (n - 1))
    edges = (child - entry.parallel * n, child, SENT)
    return Part.of_messages(member[place], target, entry.size, edges=edges)


def ring(entry: RingEntry, context: Context) -> Part:
    """Ring collective: in each round a member passes on the chunk that it received in the last one.

    A message waits until its chunk is RECEIVED at its sender, and until the sender's message of the round
    before is STARTED: writes are placed in any order, but posted in the order of rounds.
    """
    member = np.asarray(entry.members(context.nics), np.int64)
    n, channels = member.size, entry.channels
    if entry.order == "random":
        member = member[random_permutation(context.seed, f"{context.name}.ring", n)]
    rounds = entry.rounds(n)
    wide = n * channels
    index = np.arange(rounds * wide)
    k, channel, place = index // wide, index // n % channels, index % n
    # chunk (place - k) mod n leaves the place in round k; all_gather starts with the place's own chunk, too
    piece = (place - k) % n * channels + channel
    whole, longer = divmod(entry.size, wide)
    size = whole + (piece < longer)
    child = index[wide:]
    before = child - wide
    left = before - place[wide:] + (place[wide:] - 1) % n
    edges = (
        np.concatenate([left, before]),
        np.concatenate([child, child]),
        np.repeat([RECEIVED, STARTED], child.size),
    )
    target = member[(place + 1) % n]
    return Part.of_messages(member[place], target, size, channel=channel, edges=edges)


def send(entry: SendEntry, context: Context) -> Part:
    """One message for each pair."""
    pairs = np.asarray(entry.all_pairs(), np.int64)
    return Part.of_messages(pairs[:, 0], pairs[:, 1], entry.size, imm=int(entry.imm))


def stream(entry: StreamEntry, context: Context) -> Part:
    """Writes of each pair, dealt to its QPs in turn; on each QP ``outstanding`` are not yet SENT."""
    pairs = np.asarray(entry.all_pairs(), np.int64)
    writes = entry.writes()
    k, pair = np.divmod(np.arange(writes * len(pairs)), len(pairs))
    size = np.full(k.size, entry.write_size, np.int64)
    if entry.size is not None:
        size[k == writes - 1] = entry.size - (writes - 1) * entry.write_size
    window = entry.outstanding * entry.qps
    child = np.arange(min(window, writes) * len(pairs), k.size)
    edges = (child - window * len(pairs), child, SENT)
    return Part.of_messages(
        pairs[pair, 0], pairs[pair, 1], size, imm=int(entry.imm), channel=k % entry.qps, edges=edges
    )


def connection_matrix(entry: ConnectionMatrixEntry, context: Context) -> Part:
    """Flows of an htsim file; its Nodes must be the fabric's NICs."""
    matrix: ConnectionMatrix = read_connection_matrix(context.folder / entry.file)
    if matrix.nodes != context.nics:
        raise ScenarioError(
            f"{entry.file} is for {matrix.nodes} nodes but the fabric has {context.nics} NICs; "
            f"set fabric.nics = {matrix.nodes} or take another file"
        )
    return matrix.part


def goal(entry: GoalEntry, context: Context) -> Part:
    """Ranks of a GOAL file on the entry's NICs."""
    program = read_goal(context.folder / entry.file)
    if entry.nics is not None and len(entry.nics) != program.ranks:
        raise ScenarioError(
            f"{entry.file} has {program.ranks} ranks but nics names {len(entry.nics)}; "
            f"name {program.ranks} NICs"
        )
    if program.ranks > context.nics:
        raise ScenarioError(
            f"{entry.file} has {program.ranks} ranks but the fabric has {context.nics} NICs; "
            f"set fabric.nics = {program.ranks} or more"
        )
    return program.on_nics(entry.nics)


_MAKERS: dict[type[TrafficEntry], Callable[[Any, Context], Part]] = {
    PermutationEntry: permutation,
    IncastEntry: incast,
    AllToAllEntry: all_to_all,
    RingEntry: ring,
    SendEntry: send,
    StreamEntry: stream,
    ConnectionMatrixEntry: connection_matrix,
    GoalEntry: goal,
}


def one_step(entry: TrafficEntry, context: Context) -> Part:
    """Return one step of an entry: its messages and what waits for what."""
    return _MAKERS[type(entry)](entry, context)


def build_graph(scenario: Scenario, topology: Topology) -> MessageGraph:
    """Return the message graph of all traffic of a scenario.

    Parameters
    ----------
    scenario : Scenario
    topology : Topology
        Of ``scenario.fabric``; only its number of NICs is used.

    Raises
    ------
    ScenarioError
        A file that cannot be read, NICs that do not exist, a dependency cycle.

    Examples
    --------
    >>> from openmrc.fabric.topology import Topology
    >>> from openmrc.scenario import load_scenario
    >>> s = load_scenario({
    ...     "name": "ring", "fabric": {"nics": 8, "hosts_per_t0": 4},
    ...     "traffic": [{"pattern": "all_reduce", "size": "8MB"}],
    ... })
    >>> build_graph(s, Topology(s.fabric)).describe()
    '112 messages, 112 MB, 8 QPs, 208 dependencies'
    """
    nics = topology.params.n_nics
    builder = GraphBuilder(nics)
    for entry, name, job in zip(scenario.traffic, stream_names(scenario), job_names(scenario), strict=True):
        context = Context(nics, scenario.seed, name, scenario.folder)
        part = one_step(entry, context)
        if isinstance(entry, SteppedEntry) and (entry.steps > 1 or entry.compute):
            _add_steps(builder, part, builder.job(job), entry)
        else:
            builder.add_part(part, job=builder.job(job), root_delay_ps=entry.start)
    return builder.build()


def job_names(scenario: Scenario) -> list[str]:
    """Return the job of every traffic entry: its own name, or its place in the file."""
    return [entry.job or f"traffic.{i}" for i, entry in enumerate(scenario.traffic)]


def stream_names(scenario: Scenario) -> list[str]:
    """Return the name of every entry's random streams: its job and its place among the job's entries.

    A named job draws the same wherever it stands in the file, whatever stands beside it.
    """
    seen: dict[str, int] = {}
    names = []
    for job in job_names(scenario):
        seen[job] = seen.get(job, -1) + 1
        names.append(f"{job}.{seen[job]}")
    return names


def _add_steps(builder: GraphBuilder, part: Part, job: int, entry: SteppedEntry) -> None:
    """Add ``entry.steps`` copies of a part with a computation on every NIC before each.

    A NIC's computation waits until all it sent (SENT) and received (RECEIVED) in the step before is done, and
    the roots of the next step wait for the computation of their sender.
    """
    message = part.kind == MESSAGE
    assert message.all(), "only patterns of messages are repeated"
    members = np.union1d(part.src, part.dst)
    src, dst = np.searchsorted(members, part.src), np.searchsorted(members, part.dst)
    roots = part.roots
    last: NDArray[np.int64] | None = None
    for step in range(entry.steps):
        if step == 0 and entry.compute == 0:
            last = builder.add_part(part, job=job, step=step, root_delay_ps=entry.start)
            continue
        start = entry.start if step == 0 else 0
        gate = builder.add_computes(entry.compute, count=members.size, start_ps=start, job=job, step=step)
        if last is not None:
            builder.add_edges(last, gate[src], SENT)
            builder.add_edges(last, gate[dst], RECEIVED)
        last = builder.add_part(part, job=job, step=step)
        builder.add_edges(gate[src[roots]], last[roots], SENT)
