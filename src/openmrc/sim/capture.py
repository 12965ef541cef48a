"""Packet capture of a simulation: which packets, seen where, written as a pcap file in order of time.

>>> import tempfile
>>> from openmrc import run
>>> from openmrc.wire import PcapReader, parse_packet
>>> scenario = {"fabric": {"nics": 4, "hosts_per_t0": 2}, "traffic": [{"pattern": "send",
...     "pairs": [[0, 3]], "size": "10kB"}]}
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = run(scenario, pcap=f"{folder}/a.pcap", only="flow=0")
...     with open(f"{folder}/a.pcap", "rb") as file:
...         packets = [parse_packet(record.data) for record in PcapReader(file)]
>>> [packet.opcode.label for packet in packets[:3]]
['WRITE First', 'WRITE Middle', 'WRITE Last']
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from openmrc.errors import InputError
from openmrc.limits import MAX_CAPTURE_BYTES, NEVER_PS
from openmrc.sim import layout as lay
from openmrc.sim.frames import FrameBuilder, hop_of
from openmrc.sim.layout import P_CONTROL, REVERSE, I
from openmrc.sim.trace import ROWS_PER_EVENT, ROWS_SPARE, TRACE_ALL, TRACE_NICS, TRACE_OFF
from openmrc.transport.state import CONTROL, aligned
from openmrc.units import PS_PER_US, format_size
from openmrc.wire import PcapWriter
from openmrc.wire.pcap import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from openmrc.sim.build import Model, Plan

At = Literal["nic", "all"]
# where a packet is seen, bits
AT_SOURCE, AT_DESTINATION, AT_SWITCHES = 1, 2, 4
FIRST_ROWS = 1 << 14
#: of the payload: headers and pcap record of a full packet, and its share of the SACKs, roughly
OVERHEAD = 1.08
PS_PER_NS = 1000


class Selection:
    """Which packets a capture takes: a union of flows, QPs and NICs; nothing named means everything.

    Parameters
    ----------
    only
        ``flow=3``, ``qp=0-7`` or ``nic=5,9``. A flow: its data packets, and all control packets of its QP
        while it is posted. A QP direction: all its packets. A NIC: with ``at="nic"`` what it sends
        and receives, with ``at="all"`` all packets of its QPs.
    at
        ``nic``: as sent and as received by NICs; ``all``: on every link besides.
    """

    def __init__(self, prepared: Plan, only: Sequence[str], at: At):
        graph = prepared.graph
        qps = len(graph.qp_src)
        everywhere = AT_SOURCE | AT_DESTINATION | (AT_SWITCHES if at == "all" else 0)
        self.level = TRACE_ALL if at == "all" else TRACE_NICS
        self.whole = np.full(qps, 0 if only else everywhere, np.uint8)
        self.nodes: dict[int, set[int]] = {}
        self.node_bits = everywhere
        limit = {"flow": len(graph.messages), "qp": qps, "nic": graph.nics}
        for text in only:
            kind, numbers = _parse(text, limit)
            if kind == "flow":
                for node in graph.messages[numbers].tolist():
                    self.nodes.setdefault(int(graph.qp[node]), set()).add(node)
            elif kind == "qp":
                self.whole[numbers] |= everywhere
            else:
                source = everywhere if at == "all" else AT_SOURCE
                destination = everywhere if at == "all" else AT_DESTINATION
                self.whole[np.isin(graph.qp_src, numbers)] |= source
                self.whole[np.isin(graph.qp_dst, numbers)] |= destination
        self.traced = (self.whole != 0).astype(np.uint8)
        self.traced[list(self.nodes)] = 1

    def estimate_bytes(self, prepared: Plan) -> int:
        """Return about how large the file will be."""
        graph, at_nics, at_all = (
            prepared.graph,
            AT_SOURCE | AT_DESTINATION,
            prepared.topology.longest_hops + 1,
        )
        views = np.array([bits.bit_count() if bits <= at_nics else at_all for bits in range(8)])
        per_node = views[self.whole[graph.qp[graph.messages]]]
        for nodes in self.nodes.values():
            at = np.searchsorted(graph.messages, sorted(nodes))
            per_node[at] = np.maximum(per_node[at], views[self.node_bits])
        return int((graph.size_bytes[graph.messages] * per_node).sum() * OVERHEAD)


def _parse(text: str, limit: dict[str, int]) -> tuple[str, np.ndarray]:
    """Return (kind, numbers) of one --only."""
    kind, _, rest = text.partition("=")
    how = "write flow=3, qp=0-7 or nic=5,9"
    if kind not in limit or not rest:
        raise InputError(f"--only {text}: {how}")
    numbers: list[int] = []
    for piece in rest.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InputError(f"--only {text}: {piece!r} is no number or range; {how}")
        first, last = int(low), int(high or low)
        if not first <= last < limit[kind]:
            raise InputError(
                f"--only {text}: this scenario has {kind} 0..{limit[kind] - 1}; name one of them"
            )
        numbers += range(first, last + 1)
    return kind, np.array(numbers)


class Capture:
    """A capture file being written. Made before the simulation, which attaches and feeds it.

    Attributes
    ----------
    packets, bytes_written
        So far.
    estimated_bytes
        What was expected before the run.
    stopped_ps
        Simulated time at which the file reached its limit and recording ended; None if it did not.

    Raises
    ------
    InputError
        A selection that names nothing, a file that exists (without ``force``) or cannot be
        written, or one that would be larger than the limit.
    """

    def __init__(
        self,
        prepared: Plan,
        path: str | Path,
        only: str | Sequence[str] = (),
        at: At = "nic",
        force: bool = False,
        limit_bytes: int = MAX_CAPTURE_BYTES,
    ):
        self.path = Path(path)
        if at not in ("nic", "all"):
            raise InputError(
                f"--at {at}: use nic (as sent and received by NICs) or all (on every link besides)"
            )
        self.selection = Selection(prepared, (only,) if isinstance(only, str) else only, at)
        self.estimated_bytes = self.selection.estimate_bytes(prepared)
        self.limit_bytes = limit_bytes
        if self.estimated_bytes > limit_bytes:
            raise InputError(
                f"--pcap {path}: about {format_size(self.estimated_bytes)} of packets; the limit is "
                f"{format_size(limit_bytes)}: name some of them with --only flow=N, qp=N or nic=N"
            )
        if self.path.is_file() and not force:
            raise InputError(f"{path}: exists already; choose another --pcap, or add --force to replace it")
        try:
            self._writer = PcapWriter(self.path)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}; choose another --pcap") from None
        self.packets = 0
        self.bytes_written = 0
        self.stopped_ps: int | None = None
        self._rows = np.empty(0, lay.TRACE)
        self._control = np.empty(0, CONTROL)
        self._model: Model | None = None
        self._frames: FrameBuilder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self._writer.discard()

    def attach(self, model: Model) -> None:
        """Make the kernels record what was selected."""
        self._model, self._frames = model, FrameBuilder(model)
        self._set_rows(FIRST_ROWS)
        model.sim = model.sim._replace(traced=self.selection.traced)
        model.config = model.config._replace(trace=self.selection.level)

    def _set_rows(self, n: int) -> None:
        assert self._model is not None, "attach() comes first"
        rows, control = np.zeros(n, lay.TRACE), aligned(n, CONTROL)
        self._model.sim = self._model.sim._replace(trace=rows, trace_control=control)

    def make_room(self) -> None:
        """Let the next bucket have the rows that it may need; call after :meth:`drain`."""
        assert self._model is not None, "attach() comes first"
        sim = self._model.sim
        need = 2 * (ROWS_SPARE + ROWS_PER_EVENT * int(sim.slots[:, 1].max()))
        if need > len(sim.trace):
            self._set_rows(need)

    def drain(self) -> None:
        """Take what was recorded, and write what no later row can precede."""
        model = self._model
        assert model is not None, "attach() comes first"
        sim = model.sim
        used, now_ps = int(sim.s[I["trace_used"]]), int(sim.s[I["now_ps"]])
        sim.s[I["trace_used"]] = 0
        if self.stopped_ps is not None:
            return
        with _uninterrupted():
            self._take(sim.trace[:used], sim.trace_control[:used])
            self._write_until(now_ps)  # what waits in a port is recorded before it leaves
        if self.bytes_written > self.limit_bytes:
            self.stopped_ps = now_ps
            model.config = model.config._replace(trace=TRACE_OFF)

    def _take(self, rows: np.ndarray, control: np.ndarray) -> None:
        rows = np.concatenate([self._rows, rows])
        order = np.argsort(rows["time_ps"], kind="stable")
        kept = len(self._control)
        joined = np.zeros(len(rows), CONTROL)  # np.concatenate would lose the padding of the rows
        joined[:kept], joined[kept:] = self._control, control
        self._rows, self._control = rows[order], joined[order]

    def _write_until(self, time_ps: int) -> None:
        frames = self._frames
        assert frames is not None, "attach() comes first"
        n = int(np.searchsorted(self._rows["time_ps"], time_ps, side="right"))
        for row, content in zip(self._rows[:n], self._control[:n], strict=True):
            hop = hop_of(int(row["w1"]))
            if hop == 0:
                frames.observe(row, content)
            if self._wants(frames, row, hop):
                frame = frames.frame(row, content)
                self._writer.write(int(row["time_ps"]) // PS_PER_NS, frame)
                self.packets += 1
                self.bytes_written += RECORD_HEADER_BYTES + len(frame)
        self._rows, self._control = self._rows[n:], self._control[n:]

    def _wants(self, frames: FrameBuilder, row: np.void, hop: int) -> bool:
        q, w1 = int(row["q"]), int(row["w1"])
        if 0 < hop < frames.hops[q]:
            place = AT_SWITCHES
        else:
            place = AT_SOURCE if (hop == 0) != bool(w1 & REVERSE) else AT_DESTINATION
        if int(self.selection.whole[q]) & place:
            return True
        nodes = self.selection.nodes.get(q)
        if not nodes or not self.selection.node_bits & place:
            return False
        if w1 & P_CONTROL:
            return any(self._is_posted(node, int(row["time_ps"])) for node in nodes)
        return frames.find(row).node in nodes

    def _is_posted(self, node: int, time_ps: int) -> bool:
        assert self._model is not None, "attach() comes first"
        start, end = int(self._model.sim.flow_start[node]), int(self._model.sim.flow_end[node])
        return 0 <= start <= time_ps and (end < 0 or time_ps <= end)

    def finish(self) -> None:
        """Write the rest and close the file: it gets its name now."""
        if self._model is not None:
            self.drain()
        if self.stopped_ps is None:
            self._write_until(NEVER_PS)
        self._writer.close()

    def describe(self) -> str:
        """Return one line about the file."""
        text = f"{self.packets} packets ({format_size(self.bytes_written)}) captured in {self.path}"
        if self.stopped_ps is not None:
            text += (
                f"; the capture ends at {self.stopped_ps // PS_PER_US} us, where it reached the limit of "
                f"{format_size(self.limit_bytes)}: use --only"
            )
        return text


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until what is being written is whole."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if arrived:
        before(*arrived[0])
