"""Reader of GOAL files: ranks that send, receive and compute.

    num_ranks 2
    rank 0 {
    l1: calc 1000                     /* ns */
    l2: send 4096b to 1 tag 7
    l2 requires l1                    /* after completion; irequires: after start */
    }
    rank 1 {
    l1: recv 4096b from 0 tag 7
    }

A send completes at the requestor (SENT); a recv matches (source, tag) in file order and completes when the
last byte is placed (RECEIVED) and all that the recv itself requires is complete. Unmatched ends are an
error. A 0-byte send to a rank >= num_ranks is the generator's end marker: a local join, no packet. A rank
that sends to itself copies in no time (our decision).
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from openmrc.errors import ScenarioError
from openmrc.limits import MAX_MESSAGE_BYTES, MAX_TIME_PS
from openmrc.scenario.graph import ALL_EDGES, COMPUTE, MESSAGE, RECEIVED, SENT, STARTED, Part
from openmrc.scenario.problems import FileProblems, did_you_mean, whole_number
from openmrc.units import PS_PER_NS

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NUMBER = "([0-9]{1,19})"
_OP = re.compile(
    rf"^(?:(\w+)\s*:)?\s*(?:(send|recv)\s+{_NUMBER}\s*b?\s+(to|from)\s+{_NUMBER}(?:\s+tag\s+{_NUMBER})?"
    rf"|calc\s+{_NUMBER})((?:\s+(?:cpu|nic)\s+[0-9]+)*)$"
)
_DEPENDENCY = re.compile(r"^(\w+)\s+(i?requires)\s+(\w+)$")
_RANK = re.compile(rf"^rank\s+{_NUMBER}\s*\{{$")
_WORDS = ("send", "recv", "calc", "requires", "irequires", "rank", "num_ranks")
_UNMATCHED_SHOWN = 6


@dataclass(frozen=True)
class GoalProgram:
    """A GOAL file that has been read and checked; ``part`` has ranks where a fabric has NICs."""

    ranks: int
    part: Part

    def on_nics(self, nics: Sequence[int] | None) -> Part:
        """Return the part with rank r on NIC ``nics[r]``."""
        if nics is None:
            return self.part
        place = np.append(np.asarray(nics, np.int64), -1)  # the last one keeps -1 of computations
        fields = dict(vars(self.part))
        return Part(**{**fields, "src": place[self.part.src], "dst": place[self.part.dst]})


@dataclass
class _Op:
    line: int
    kind: str
    amount: int
    peer: int
    tag: int
    node: int = -1  # what completes it
    done_on: int = SENT
    posted: int = -1  # join of what a recv requires
    requires: list[int] = field(default_factory=list)
    irequires: list[int] = field(default_factory=list)


def read_goal(path: Path) -> GoalProgram:
    """Read a ``.goal`` file.

    Raises
    ------
    ScenarioError
        The file is missing or wrong; the message has one line for each problem, with its line number.
    """
    try:
        stat = path.stat()
        return _read_cached(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ScenarioError(f"{path} cannot be read ({reason}); give the path of a .goal file") from error


@lru_cache(maxsize=4)
def _read_cached(path: Path, mtime_ns: int, size_bytes: int) -> GoalProgram:
    return parse_goal(path.read_text(encoding="utf-8"), path.name)


def parse_goal(text: str, name: str = "goal") -> GoalProgram:
    """Return the messages and dependencies that the text of a GOAL file describes.

    Examples
    --------
    >>> program = parse_goal('''num_ranks 2
    ... rank 0 {
    ... l1: send 100b to 1 tag 5
    ... }
    ... rank 1 {
    ... l1: recv 100b from 0 tag 5
    ... l2: send 50b to 0 tag 6
    ... l2 requires l1
    ... }
    ... rank 0 {
    ... l1: recv 50b from 1 tag 6
    ... }''')
    >>> program.ranks, program.part.size_bytes.tolist(), program.part.edge_on.tolist()
    (2, [100, 50], [2])
    """
    return _Reader(name).read(text)


class _Reader:
    def __init__(self, name: str) -> None:
        self.problems = FileProblems(name)
        self.ranks = -1
        self.ops: list[tuple[int, _Op]] = []  # (rank, op) in file order
        self.nodes: list[tuple[int, int, int, int, int]] = []  # kind, src, dst, size, duration
        self.edges: dict[tuple[int, int, int], None] = {}  # a set that keeps its order

    def read(self, text: str) -> GoalProgram:
        text = _COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
        if "/*" in text:
            line = text.count("\n", 0, text.index("/*")) + 1
            self.problems.add(line, "the comment never ends", "close it with */")
            self.problems.raise_if_any()
        self._lines(text)
        self.problems.raise_if_any()
        self._make_nodes()
        self._match()
        self.problems.raise_if_any()
        self._make_edges()
        return GoalProgram(self.ranks, self._part())

    # --- lines -----------------------------------------------------------------------------
    def _lines(self, text: str) -> None:
        rank, opened = -1, 0
        labels: dict[str, _Op] = {}
        pending: list[tuple[int, str, str, str]] = []
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.strip()
            if not line:
                continue
            if match := _RANK.match(line):
                if rank >= 0:
                    self.problems.add(number, f"rank {rank} is still open", "close it with }")
                rank, opened, labels, pending = int(match[1]), number, {}, []
                if rank >= self.ranks:
                    self.problems.add(
                        number, f"rank {rank} does not exist", f"num_ranks is {max(self.ranks, 0)}"
                    )
            elif line.startswith("num_ranks"):
                self._num_ranks(number, line)
            elif rank < 0:
                hint = did_you_mean(line.split()[0], _WORDS)
                self.problems.add(
                    number, f"{line[:40]!r} stands outside a rank", hint or "write rank N { first"
                )
            elif line == "}":
                self._resolve(labels, pending)
                rank = -1
            elif match := _DEPENDENCY.match(line):
                pending.append((number, match[1], match[2], match[3]))
            else:
                self._op(number, line, rank, labels)
        if rank >= 0:
            self.problems.add(opened, f"rank {rank} is never closed", "end it with }")
        if self.ranks < 0:
            self.problems.add(0, "there is no num_ranks line", "begin with num_ranks N")

    def _num_ranks(self, number: int, line: str) -> None:
        words = line.split()
        count = whole_number(words[1]) if len(words) == 2 else None
        if not count:
            self.problems.add(number, f"{line[:40]!r} is not a number of ranks", "write num_ranks N")
        elif self.ranks >= 0:
            self.problems.add(number, "num_ranks appears twice", "keep one")
        self.ranks = count or self.ranks

    def _op(self, number: int, line: str, rank: int, labels: dict[str, _Op]) -> None:
        match = _OP.match(line)
        if match is None or ((match[2] == "send") != (match[4] == "to") and match[2]):
            known = [w for w in re.findall(r"[a-z]+", line) if did_you_mean(w, _WORDS) and w not in _WORDS]
            hint = did_you_mean(known[0], _WORDS) if known else ""
            how = "write send Bb to RANK tag T, recv Bb from RANK tag T, calc NS or A requires B"
            self.problems.add(number, f"{line[:50]!r} is not understood", hint or how)
            return
        label, kind, size, _, peer, tag, calc, where = match.groups()
        if where and set(re.findall("[0-9]+", where)) != {"0"}:
            self.problems.add(
                number, f"{where.strip()!r} is not modelled", "leave it out, or use cpu 0 and nic 0"
            )
        if kind is None:
            op = _Op(number, "calc", int(calc) * PS_PER_NS, -1, 0)
            if op.amount > MAX_TIME_PS:
                self.problems.add(number, f"calc {calc} is too long", "use nanoseconds below 4.6e15")
        else:
            op = _Op(number, kind, int(size), int(peer), int(tag or 0))
            self._check_peer(op)
        if label is not None and labels.setdefault(label, op) is not op:
            self.problems.add(number, f"label {label} is used twice in rank {rank}", "rename one")
        self.ops.append((rank, op))

    def _check_peer(self, op: _Op) -> None:
        end_marker = op.kind == "send" and op.amount == 0
        if op.peer >= self.ranks and not end_marker:
            self.problems.add(
                op.line,
                f"rank {op.peer} does not exist",
                f"num_ranks {self.ranks} allows 0 to {self.ranks - 1}",
            )
        if op.amount > MAX_MESSAGE_BYTES:
            self.problems.add(op.line, f"{op.amount} B in one message", "use at most 2147483648")

    def _resolve(self, labels: dict[str, _Op], pending: list[tuple[int, str, str, str]]) -> None:
        index = {id(op): i for i, (_, op) in enumerate(self.ops)}
        for number, child, word, parent in pending:
            for label in (child, parent):
                if label not in labels:
                    hint = did_you_mean(label, labels)
                    self.problems.add(
                        number, f"label {label} does not exist in this rank", hint or "define it"
                    )
            if child in labels and parent in labels:
                target = labels[child].requires if word == "requires" else labels[child].irequires
                target.append(index[id(labels[parent])])

    # --- nodes -----------------------------------------------------------------------------
    def _node(self, kind: int, src: int = -1, dst: int = -1, size: int = 0, duration: int = 0) -> int:
        self.nodes.append((kind, src, dst, size, duration))
        return len(self.nodes) - 1

    def _make_nodes(self) -> None:
        for rank, op in self.ops:
            if op.kind == "calc":
                op.node = self._node(COMPUTE, duration=op.amount)
            elif op.kind == "send":
                local = op.peer == rank or op.peer >= self.ranks
                op.node = self._node(COMPUTE) if local else self._node(MESSAGE, rank, op.peer, op.amount)

    def _match(self) -> None:
        sends: dict[tuple[int, int, int], deque[_Op]] = defaultdict(deque)
        for rank, op in self.ops:
            if op.kind == "send" and op.peer < self.ranks:
                sends[rank, op.peer, op.tag].append(op)
        lonely: list[tuple[_Op, str]] = []
        for rank, op in self.ops:
            if op.kind != "recv":
                continue
            waiting = sends.get((op.peer, rank, op.tag))
            if not waiting:
                lonely.append(
                    (op, f"rank {rank} receives {op.amount} B from {op.peer} tag {op.tag}, never sent")
                )
                continue
            sent = waiting.popleft()
            if sent.amount != op.amount:
                what = f"rank {rank} receives {op.amount} B but line {sent.line} sends {sent.amount} B"
                self.problems.add(op.line, what, "make both sizes equal")
            op.node, op.done_on = sent.node, RECEIVED
        for (rank, peer, tag), left in sends.items():
            lonely.extend(
                (o, f"rank {rank} sends {o.amount} B to {peer} tag {tag}, never received") for o in left
            )
        for op, what in sorted(lonely, key=lambda found: found[0].line)[:_UNMATCHED_SHOWN]:
            self.problems.add(op.line, what, "add the other end or correct rank or tag")
        if len(lonely) > _UNMATCHED_SHOWN:
            more = len(lonely) - _UNMATCHED_SHOWN
            self.problems.add(1 << 60, f"{more} more sends and receives have no other end", "see above")

    # --- edges -----------------------------------------------------------------------------
    def _make_edges(self) -> None:
        for _, op in self.ops:  # a recv that waits for something is posted later, and complete no earlier
            if op.kind == "recv" and (op.requires or op.irequires):
                op.posted = self._node(COMPUTE)
                done = self._node(COMPUTE)
                self.edges[op.node, done, RECEIVED] = None
                self.edges[op.posted, done, SENT] = None
                op.node, op.done_on = done, SENT
        for _, op in self.ops:
            child = op.posted if op.kind == "recv" else op.node
            for i in op.requires:
                parent = self.ops[i][1]
                self.edges[parent.node, child, parent.done_on] = None
            for i in op.irequires:
                parent = self.ops[i][1]
                if parent.kind != "recv":
                    self.edges[parent.node, child, STARTED] = None
                elif parent.posted >= 0:  # a recv that waits for nothing has started at once
                    self.edges[parent.posted, child, SENT] = None

    def _part(self) -> Part:
        node = np.array(self.nodes, np.int64).reshape(-1, 5)
        edge = np.array(list(self.edges), np.int64).reshape(-1, 3)
        zero = np.zeros(len(node), np.int64)
        return Part(
            kind=node[:, 0],
            src=node[:, 1],
            dst=node[:, 2],
            size_bytes=node[:, 3],
            start_ps=zero,
            duration_ps=node[:, 4],
            imm=zero,
            channel=zero,
            edge_parent=edge[:, 0],
            edge_child=edge[:, 1],
            edge_on=edge[:, 2],
            needs=np.full(len(node), ALL_EDGES),
        )
