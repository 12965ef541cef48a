"""Reader of htsim connection matrices (``.cm``).

``Nodes N``, ``Connections N``, optional ``Triggers N``, then one line for each flow

    src->dst [id N] [start T] [trigger N] size BYTES [send_done_trigger N] [recv_done_trigger N]

(start in picoseconds) and one for each trigger, ``trigger id N oneshot|multishot|barrier N``.
send_done is the requestor's completion, recv_done the last byte placed.

* A *oneshot* starts everything that waits on it at its first firing; later ones change nothing.
* A *barrier N* does so at its N-th firing.
* A *multishot* starts one flow at each firing: the flows that wait on it in file order.

All three are nodes that need k of the edges that lead to them: 1, N, and the flow's place in the queue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from openmrc.errors import ScenarioError
from openmrc.limits import MAX_MESSAGE_BYTES, MAX_TIME_PS
from openmrc.scenario.graph import ALL_EDGES, RECEIVED, SENT, Part
from openmrc.scenario.problems import FileProblems, did_you_mean, whole_number

_FLOW = re.compile(r"^([0-9]{1,9})->([0-9]{1,9})(\s.*)?$")
_FLOW_KEYS = ("id", "start", "trigger", "size", "send_done_trigger", "recv_done_trigger")
_HEADERS = ("Nodes", "Connections", "Triggers")
#: edges of one trigger; a multishot that serialises a whole all-to-all of 1 024 nodes needs fewer
MAX_TRIGGER_EDGES = 1 << 22
_KINDS = ("oneshot", "multishot", "barrier")


@dataclass(frozen=True)
class ConnectionMatrix:
    """A connection matrix that has been read and checked."""

    nodes: int
    part: Part
    flow_ids: tuple[int, ...]


@dataclass
class _Flow:
    line: int
    src: int
    dst: int
    values: dict[str, int] = field(default_factory=dict)


@dataclass
class _Trigger:
    line: int
    kind: str
    count: int
    fired_by: list[tuple[int, int]] = field(default_factory=list)  # (flow index, event)
    waiting: list[int] = field(default_factory=list)


def read_connection_matrix(path: Path) -> ConnectionMatrix:
    """Read a ``.cm`` file.

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
        raise ScenarioError(f"{path} cannot be read ({reason}); give the path of a .cm file") from error


@lru_cache(maxsize=8)
def _read_cached(path: Path, mtime_ns: int, size_bytes: int) -> ConnectionMatrix:
    return parse_connection_matrix(path.read_text(encoding="utf-8"), path.name)


def parse_connection_matrix(text: str, name: str = "connection matrix") -> ConnectionMatrix:
    """Return the flows and dependencies that the text of a ``.cm`` file describes.

    Examples
    --------
    >>> cm = parse_connection_matrix('''Nodes 4
    ... Connections 2
    ... Triggers 1
    ... 0->1 id 1 start 0 size 1000 send_done_trigger 1
    ... 1->2 id 2 trigger 1 size 1000
    ... trigger id 1 oneshot''')
    >>> cm.nodes, cm.part.edge_parent.tolist(), cm.part.edge_child.tolist()
    (4, [0], [1])
    """
    return _Reader(name).read(text)


class _Reader:
    def __init__(self, name: str) -> None:
        self.problems = FileProblems(name)
        self.headers: dict[str, tuple[int, int]] = {}
        self.flows: list[_Flow] = []
        self.triggers: dict[int, _Trigger] = {}
        self.name = name

    def read(self, text: str) -> ConnectionMatrix:
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.strip()
            if line:
                self._line(number, line)
        self._check_headers()
        ids = self._check_ids()
        self._connect()
        self.problems.raise_if_any()
        return ConnectionMatrix(self.headers["Nodes"][0], self._part(), ids)

    def _line(self, number: int, line: str) -> None:
        flow = _FLOW.match(line)
        words = line.split()
        if flow:
            self._flow(number, int(flow[1]), int(flow[2]), (flow[3] or "").split())
        elif words[0] == "trigger":
            self._trigger(number, words)
        elif words[0] in _HEADERS:
            count = whole_number(words[1]) if len(words) == 2 else None
            if count is None:
                self.problems.add(number, f"{line!r} is not a count", f"write {words[0]} and a number")
            elif words[0] in self.headers:
                self.problems.add(number, f"{words[0]} appears twice", "keep one")
            else:
                self.headers[words[0]] = (count, number)
        else:
            hint = did_you_mean(words[0], [*_HEADERS, "trigger"])
            self.problems.add(
                number,
                f"{line[:40]!r} is not understood",
                hint or "write src->dst ... or trigger id N oneshot",
            )

    def _flow(self, number: int, src: int, dst: int, words: list[str]) -> None:
        flow = _Flow(number, src, dst)
        for key, value in zip(words[::2], words[1::2], strict=False):
            if key not in _FLOW_KEYS:
                hint = did_you_mean(key, _FLOW_KEYS) or f"a flow takes {', '.join(_FLOW_KEYS)}"
                self.problems.add(number, f"unknown key {key!r} of a flow", hint)
            elif whole_number(value) is None:
                self.problems.add(number, f"{key} {value!r} is not a whole number", "write digits only")
            elif key in flow.values:
                self.problems.add(number, f"{key} appears twice", "keep one")
            else:
                flow.values[key] = int(value)
        if len(words) % 2:
            self.problems.add(number, f"{words[-1]!r} has no value", "write key and value in turn")
        if src == dst:
            self.problems.add(number, f"node {src} sends to itself", "choose two nodes")
        self._check_values(number, flow.values)
        self.flows.append(flow)

    def _check_values(self, number: int, values: dict[str, int]) -> None:
        size = values.get("size")
        if size is None:
            self.problems.add(number, "the flow has no size", "add size BYTES")
        elif not 1 <= size <= MAX_MESSAGE_BYTES:
            self.problems.add(number, f"size {size} is not possible", "use 1 to 2147483648 bytes")
        if "start" in values and "trigger" in values:
            self.problems.add(number, "the flow has a start and a trigger", "keep one of them")
        if values.get("start", 0) > MAX_TIME_PS:
            self.problems.add(number, f"start {values['start']} is too late", "use picoseconds below 2^62")

    def _trigger(self, number: int, words: list[str]) -> None:
        how = "write trigger id N oneshot, trigger id N multishot or trigger id N barrier COUNT"
        ident = whole_number(words[2]) if len(words) >= 4 and words[1] == "id" else None
        if ident is None:
            self.problems.add(number, f"{' '.join(words)[:40]!r} is not a trigger", how)
            return
        kind, rest = words[3], words[4:]
        count = whole_number(rest[0]) if len(rest) == 1 else None
        good = bool(count) if kind == "barrier" else not rest
        if kind not in _KINDS or not good:
            hint = did_you_mean(kind, _KINDS) if kind not in _KINDS else ""
            self.problems.add(number, f"{' '.join(words[3:])[:40]!r} is not a kind of trigger", hint or how)
        elif ident in self.triggers:
            first = self.triggers[ident].line
            self.problems.add(number, f"trigger {ident} is declared twice", f"see line {first}; keep one")
        else:
            self.triggers[ident] = _Trigger(number, kind, count or 1)

    def _check_headers(self) -> None:
        for header, found in (("Connections", len(self.flows)), ("Triggers", len(self.triggers))):
            declared, line = self.headers.get(header, (0, 0))
            if header not in self.headers and (header == "Connections" or found):
                self.problems.add(0, f"there is no {header} line", f"add {header} {found}")
            elif declared != found:
                self.problems.add(
                    line, f"{header} says {declared} but there are {found}", f"write {header} {found}"
                )
        if "Nodes" not in self.headers:
            self.problems.add(0, "there is no Nodes line", "add Nodes N with the number of NICs")
            return
        nodes = self.headers["Nodes"][0]
        for flow in self.flows:
            if max(flow.src, flow.dst) >= nodes:
                what = f"node {max(flow.src, flow.dst)} does not exist"
                self.problems.add(flow.line, what, f"Nodes {nodes} allows 0 to {nodes - 1}")

    def _check_ids(self) -> tuple[int, ...]:
        seen: dict[int, int] = {}
        for flow in self.flows:
            number = flow.values.get("id")
            if number is not None and seen.setdefault(number, flow.line) != flow.line:
                self.problems.add(flow.line, f"id {number} is used twice", f"see line {seen[number]}")
        return tuple(flow.values.get("id", -1) for flow in self.flows)

    def _connect(self) -> None:
        for index, flow in enumerate(self.flows):
            for key, event in (("send_done_trigger", SENT), ("recv_done_trigger", RECEIVED)):
                if key in flow.values and (trigger := self._known(flow, flow.values[key])):
                    trigger.fired_by.append((index, event))
            if "trigger" in flow.values and (trigger := self._known(flow, flow.values["trigger"])):
                trigger.waiting.append(index)
        for number, trigger in self.triggers.items():
            self._check_trigger(number, trigger)

    def _known(self, flow: _Flow, number: int) -> _Trigger | None:
        if number not in self.triggers:
            self.problems.add(
                flow.line, f"trigger {number} is not declared", f"add a line: trigger id {number} oneshot"
            )
        return self.triggers.get(number)

    def _check_trigger(self, number: int, t: _Trigger) -> None:
        fired, waiting = len(t.fired_by), len(t.waiting)
        needed = waiting if t.kind == "multishot" else t.count
        if waiting and fired < needed:
            stuck = waiting - fired if t.kind == "multishot" else waiting
            self.problems.add(
                t.line,
                f"{t.kind} trigger {number} is fired {fired} times, not {needed}: {stuck} flows never start",
                "add send_done_trigger or recv_done_trigger to the flows that fire it",
            )
        if fired * waiting > MAX_TRIGGER_EDGES:
            self.problems.add(
                t.line,
                f"trigger {number}: {fired} firings for {waiting} waiting flows",
                f"their product may be {MAX_TRIGGER_EDGES}; use several triggers",
            )

    def _part(self) -> Part:
        edges: list[tuple[int, int, int]] = []
        needs = [ALL_EDGES] * len(self.flows)
        for t in self.triggers.values():
            for place, child in enumerate(t.waiting, 1):
                # a flow cannot start itself: its own firing comes after its start
                others = [(parent, child, event) for parent, event in t.fired_by if parent != child]
                edges.extend(others)
                need = place if t.kind == "multishot" else t.count
                needs[child] = ALL_EDGES if need == len(others) else need
        table = np.array(edges, np.int64).reshape(-1, 3)
        pairs_seen: dict[tuple[int, int], int] = {}
        channel = []
        for flow in self.flows:  # every line of a matrix is a connection of its own
            number = pairs_seen.get((flow.src, flow.dst), 0)
            pairs_seen[flow.src, flow.dst] = number + 1
            channel.append(number)
        return Part.of_messages(
            [f.src for f in self.flows],
            [f.dst for f in self.flows],
            [f.values["size"] for f in self.flows],
            start_ps=[f.values.get("start", 0) for f in self.flows],
            channel=channel,
            edges=(table[:, 0], table[:, 1], table[:, 2]),
            needs=needs,
        )
