"""The ``[[traffic]]`` entries of a scenario: one model per pattern, so that a key of another
pattern is an error and not silence. What they become is in :mod:`openmrc.scenario.patterns`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from openmrc.limits import MAX_MESSAGE_BYTES
from openmrc.scenario.graph import MAX_GRAPH_NODES
from openmrc.scenario.nicset import NicSet, parse_nics
from openmrc.units import DurationPs, SizeBytes, format_size

#: (key inside the entry, what is wrong and the remedy)
Problem = tuple[str, str]
Positive = Annotated[int, Field(strict=True, ge=1)]
NicId = Annotated[int, Field(strict=True, ge=0)]


def _parse_pairs(value: Any) -> tuple[tuple[int, int], ...]:
    how = "write a list of [from, to] pairs like [[0, 5], [1, 6]]"
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"{value!r} is not a list of pairs; {how}")
    pairs = []
    for pair in value:
        if (
            not isinstance(pair, (list, tuple))
            or len(pair) != 2
            or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in pair)
        ):
            raise ValueError(f"{pair!r} is not a pair of NIC numbers; {how}")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


Pairs = Annotated[
    tuple[tuple[int, int], ...],
    BeforeValidator(_parse_pairs),
    WithJsonSchema(
        {
            "title": "pairs of NICs",
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "minItems": 2,
                "maxItems": 2,
            },
            "examples": [[[0, 5], [1, 6]]],
        }
    ),
]


def _parse_senders(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(f"{value} senders; use 1 or more")
        return value
    return parse_nics(value)


Senders = Annotated[
    int | tuple[int, ...],
    BeforeValidator(_parse_senders),
    WithJsonSchema(
        {
            "title": "number or NICs",
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string"},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            ],
            "examples": [7, "1-127"],
        }
    ),
]


class TrafficEntry(BaseModel):
    """What every pattern has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: str
    job: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Name of the job it belongs to, for the report; entries of one job share QPs.",
    )
    start: DurationPs = Field(0, description="When the traffic (or its first computation) starts.")

    def problems(self, nics: int) -> Iterator[Problem]:
        """Yield what cannot work on a fabric of ``nics`` NICs."""
        count = self._node_count(nics)
        if count > MAX_GRAPH_NODES:
            yield "pattern", f"{count} messages and computations; the limit is 2^26; use fewer NICs or steps"
        yield from self._problems(nics)

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from ()

    def _node_count(self, nics: int) -> int:
        """Return the number of messages and computations; 0 where only a file knows it."""
        return 0


class SteppedEntry(TrafficEntry):
    """A pattern that may be repeated, with computation before each step."""

    steps: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = Field(
        1,
        description="How often it is repeated. A NIC starts its next step when all that it sent and received "
        "in this one is complete.",
    )
    compute: DurationPs = Field(0, description="Computation on every NIC before each step.")

    size: SizeBytes = Field(description="Size of each message.")

    def _step_messages(self, nics: int) -> int:
        raise NotImplementedError

    def _node_count(self, nics: int) -> int:
        return self.steps * self._step_messages(nics) + (self.steps * nics if self.compute else 0)

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from super()._problems(nics)
        if self.size > MAX_MESSAGE_BYTES and not isinstance(self, RingEntry):
            yield "size", f"{format_size(self.size)} is more than one message carries (2^31 B); send several"


class _NicsEntry(SteppedEntry):
    nics: NicSet | None = Field(None, description="NICs that take part; unset: all of the fabric.")

    def members(self, nics: int) -> tuple[int, ...] | range:
        """Return the NICs that take part."""
        return range(nics) if self.nics is None else self.nics

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from super()._problems(nics)
        yield from _outside("nics", self.nics or (), nics)
        if len(self.members(nics)) < 2:
            yield "nics", "one NIC has nobody to send to; name at least 2"


class PermutationEntry(_NicsEntry):
    """Every NIC sends one message and receives one: a random derangement drawn from the seed."""

    pattern: Literal["permutation"]
    start_window: DurationPs = Field(
        0, description="Each message starts at a random time inside this window, drawn from the seed."
    )

    def _step_messages(self, nics: int) -> int:
        return len(self.members(nics))


class IncastEntry(SteppedEntry):
    """Many NICs send one message each to the same NIC."""

    pattern: Literal["incast"]
    target: NicId = Field(description="NIC that receives.")
    senders: Senders | None = Field(
        None,
        description="How many (the lowest numbers besides the target) or which NICs send; unset: all others.",
    )
    start_window: DurationPs = Field(
        0, description="Each message starts at a random time inside this window, drawn from the seed."
    )

    def sender_nics(self, nics: int) -> tuple[int, ...]:
        """Return the NICs that send."""
        if isinstance(self.senders, tuple):
            return self.senders
        count = nics - 1 if self.senders is None else self.senders
        return tuple(n for n in range(min(nics, count + 1)) if n != self.target)[:count]

    def _step_messages(self, nics: int) -> int:
        return len(self.sender_nics(nics))

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from super()._problems(nics)
        yield from _outside("target", (self.target,), nics)
        if isinstance(self.senders, tuple):
            yield from _outside("senders", self.senders, nics)
            if self.target in self.senders:
                yield "senders", f"NIC {self.target} is the target and cannot send to itself; leave it out"
        elif (self.senders or 1) > nics - 1:
            yield "senders", f"{self.senders or 1} senders; the fabric has {nics - 1} NICs besides the target"


class AllToAllEntry(_NicsEntry):
    """Every NIC sends one message to every other; NIC i starts with i+1, so that targets differ."""

    pattern: Literal["all_to_all"]
    size: SizeBytes = Field(description="Size of the message from each NIC to each other.")
    parallel: Positive = Field(8, description="Messages that each NIC has outstanding at a time.")

    def _step_messages(self, nics: int) -> int:
        n = len(self.members(nics))
        return n * (n - 1)


class RingEntry(_NicsEntry):
    """A ring collective: each NIC passes chunks to its neighbour, a step when the last one has arrived.

    all_reduce takes 2(n-1) rounds of size / n bytes per NIC, reduce_scatter and all_gather n-1.
    """

    pattern: Literal["all_reduce", "reduce_scatter", "all_gather"]
    size: SizeBytes = Field(description="Buffer of each NIC: what is reduced, or for all_gather the result.")
    channels: Annotated[int, Field(strict=True, ge=1, le=64)] = Field(
        1, description="Rings side by side, each with its own QP and its share of the buffer."
    )
    order: Literal["given", "random"] = Field(
        "given", description="Neighbours in the ring: NICs in the order given, or shuffled by the seed."
    )

    def rounds(self, n: int) -> int:
        """Return the rounds of the collective among ``n`` NICs."""
        return 2 * (n - 1) if self.pattern == "all_reduce" else n - 1

    def _step_messages(self, nics: int) -> int:
        n = len(self.members(nics))
        return n * self.rounds(n) * self.channels

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from super()._problems(nics)
        n = len(self.members(nics))
        pieces = n * self.channels
        if self.size < pieces:
            yield (
                "size",
                f"{self.size} B cannot be cut into {n} chunks x {self.channels} channels; "
                f"use at least {pieces}B",
            )
        elif -(-self.size // pieces) > MAX_MESSAGE_BYTES:
            need = -(-self.size // (n * MAX_MESSAGE_BYTES))
            yield (
                "size",
                f"chunks of more than 2^31 B, which one message carries; use channels = {need} or more",
            )


class SendEntry(SteppedEntry):
    """One message for each pair of NICs."""

    pattern: Literal["send"]
    pairs: Pairs = Field(description="[from, to] of every message.")
    bidirectional: bool = Field(False, strict=True, description="Send the same the other way, too.")
    imm: bool = Field(False, strict=True, description="Messages are WRITE_IMMs.")

    def all_pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs, both ways where asked for."""
        return _both_ways(self.pairs, self.bidirectional)

    def _step_messages(self, nics: int) -> int:
        return len(self.all_pairs())

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from super()._problems(nics)
        yield from _bad_pairs(self.pairs, nics)


class StreamEntry(TrafficEntry):
    """Each pair keeps a number of writes outstanding until its bytes are sent."""

    pattern: Literal["stream"]
    pairs: Pairs = Field(description="[from, to] of every stream.")
    bidirectional: bool = Field(False, strict=True, description="Stream the same the other way, too.")
    write_size: SizeBytes = Field(32_000, description="Size of each write; the last one may be shorter.")
    outstanding: Positive = Field(32, description="Writes of one QP that are not completed yet.")
    size: SizeBytes | None = Field(None, description="Bytes of each pair; give this or count.")
    count: Positive | None = Field(None, description="Writes of each pair; give this or size.")
    qps: Annotated[int, Field(strict=True, ge=1, le=64)] = Field(
        1, description="QPs of each pair; writes are dealt to them in turn."
    )
    imm: bool = Field(False, strict=True, description="Writes are WRITE_IMMs.")

    def all_pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs, both ways where asked for."""
        return _both_ways(self.pairs, self.bidirectional)

    def writes(self) -> int:
        """Return the writes of each pair."""
        if self.count is not None:
            return self.count
        return max(1, -(-(self.size or 0) // max(1, self.write_size)))

    def _node_count(self, nics: int) -> int:
        return self.writes() * len(self.all_pairs())

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from super()._problems(nics)
        yield from _bad_pairs(self.pairs, nics)
        pairs = self.all_pairs()
        if len(set(pairs)) < len(pairs):
            twice = next(p for i, p in enumerate(pairs) if p in pairs[:i])
            yield "pairs", f"{list(twice)} streams twice; name it once and use qps = 2 for two QPs"
        if (self.size is None) == (self.count is None):
            given = "both are given" if self.size is not None else "neither is given"
            yield (
                "size",
                f'a stream ends after size bytes or count writes, {given}; keep one, e.g. size = "1GB"',
            )
        if self.write_size == 0 and self.size:
            yield "write_size", 'writes of 0 B never send size bytes; use e.g. "32KB"'
        if self.write_size > MAX_MESSAGE_BYTES:
            yield "write_size", f"{format_size(self.write_size)} is more than one message carries (2^31 B)"
        if self.qps > self.writes():
            yield "qps", f"{self.qps} QPs but only {self.writes()} writes for each pair; use fewer QPs"


class ConnectionMatrixEntry(TrafficEntry):
    """An htsim connection matrix (.cm), with its triggers."""

    pattern: Literal["connection_matrix"]
    file: str = Field(description="Path of the .cm file, relative to the scenario file.")


class GoalEntry(TrafficEntry):
    """A GOAL file: ranks that send, receive and compute, with dependencies."""

    pattern: Literal["goal"]
    file: str = Field(description="Path of the .goal file, relative to the scenario file.")
    nics: NicSet | None = Field(None, description="NIC of rank 0, 1, ...; unset: rank r is NIC r.")

    def _problems(self, nics: int) -> Iterator[Problem]:
        yield from super()._problems(nics)
        yield from _outside("nics", self.nics or (), nics)


Traffic = Annotated[
    PermutationEntry
    | IncastEntry
    | AllToAllEntry
    | RingEntry
    | SendEntry
    | StreamEntry
    | ConnectionMatrixEntry
    | GoalEntry,
    Field(discriminator="pattern"),
]

#: pattern -> its model
PATTERNS: dict[str, type[TrafficEntry]] = {
    "permutation": PermutationEntry,
    "incast": IncastEntry,
    "all_to_all": AllToAllEntry,
    "all_reduce": RingEntry,
    "reduce_scatter": RingEntry,
    "all_gather": RingEntry,
    "send": SendEntry,
    "stream": StreamEntry,
    "connection_matrix": ConnectionMatrixEntry,
    "goal": GoalEntry,
}


def _outside(key: str, members: tuple[int, ...], nics: int) -> Iterator[Problem]:
    worst = max(members, default=-1)
    if worst >= nics:
        yield key, f"NIC {worst} does not exist; the fabric has NICs 0 to {nics - 1}"


def _bad_pairs(pairs: tuple[tuple[int, int], ...], nics: int) -> Iterator[Problem]:
    yield from _outside("pairs", tuple(n for pair in pairs for n in pair), nics)
    for src, dst in pairs:
        if src == dst:
            yield "pairs", f"[{src}, {dst}]: a NIC cannot send to itself; choose two NICs"
            return


def _both_ways(pairs: tuple[tuple[int, int], ...], bidirectional: bool) -> tuple[tuple[int, int], ...]:
    return pairs + tuple((dst, src) for src, dst in pairs) if bidirectional else pairs
