"""The message graph: the one representation under all traffic.

Every traffic pattern, htsim connection matrix and GOAL file becomes a graph whose nodes are messages
(RDMA WRITEs) and computations and whose edges say what must happen first. The graph knows NICs,
bytes and picoseconds; it knows no paths, packets or protocol.

A node is *released* when ``n_deps`` of the edges that lead to it (normally all) have fired and its
delay ``start_ps`` has passed; a message is then posted, a computation starts. An edge fires on one
event of its parent: ``STARTED`` (the parent was released), ``SENT`` (the requestor's completion, i.e.
the Transport ACK) or ``RECEIVED`` (the last byte was placed at the responder). A computation is SENT
and RECEIVED when its time has passed; one of zero duration is a join.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openmrc.errors import ScenarioError
from openmrc.limits import MAX_MESSAGE_BYTES, MAX_TIME_PS
from openmrc.units import format_duration, format_size

MESSAGE, COMPUTE = 0, 1
STARTED, SENT, RECEIVED = 0, 1, 2
#: what a part says of a node that waits for all edges that lead to it
ALL_EDGES = -1

_NODE_COLUMNS: dict[str, type] = {
    "kind": np.uint8,
    "src": np.int32,
    "dst": np.int32,
    "size_bytes": np.int64,
    "start_ps": np.int64,
    "duration_ps": np.int64,
    "imm": np.uint8,
    "job": np.int32,
    "step": np.int32,
    "channel": np.int32,
}
#: node ids are int32 and a node takes about 60 bytes here and more in a run: 4 GB of graph is enough
MAX_GRAPH_NODES = 1 << 26


@dataclass(frozen=True)
class MessageGraph:
    """Messages and computations with their dependencies, as NumPy arrays.

    Attributes
    ----------
    nics : int
        NICs of the fabric; every ``src`` and ``dst`` is below it.
    kind : uint8[n]
        ``MESSAGE`` or ``COMPUTE``.
    src, dst : int32[n]
        NIC ids of requestor and responder; -1 for a computation.
    size_bytes : int64[n]
        0 to 2^31 (one packet without payload for 0).
    start_ps : int64[n]
        Delay after the last dependency; for a node without dependencies the absolute time.
    duration_ps : int64[n]
        Time of a computation; 0 for a message.
    imm : uint8[n]
        1 for a WRITE_IMM.
    job : int32[n]
        Index into ``job_names``.
    step : int32[n]
        Training step or round of a collective's repetition; -1 where there is none.
    channel : int32[n]
        Tells several QPs between the same pair apart; 0 for a computation.
    n_deps : int32[n]
        Firings that release the node: all edges that lead to it, or fewer (a trigger that needs k of n).
        It is released when this many have fired; later ones change nothing.
    edge_first : int64[n+1]
        Edges of parent ``p`` are ``edge_first[p]:edge_first[p+1]``.
    edge_child : int32[e]
        Child of each edge.
    edge_on : uint8[e]
        ``STARTED``, ``SENT`` or ``RECEIVED``.
    qp : int32[n]
        QP of a message, -1 for a computation. QPs are numbered in the order of
        (job, src, dst, channel), so adding a job at the end moves none.
    qp_src, qp_dst : int32[q]
        NICs of every QP.
    job_names : tuple of str
        Name of every job.
    """

    nics: int
    kind: NDArray[np.uint8]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    start_ps: NDArray[np.int64]
    duration_ps: NDArray[np.int64]
    imm: NDArray[np.uint8]
    job: NDArray[np.int32]
    step: NDArray[np.int32]
    channel: NDArray[np.int32]
    n_deps: NDArray[np.int32]
    edge_first: NDArray[np.int64]
    edge_child: NDArray[np.int32]
    edge_on: NDArray[np.uint8]
    qp: NDArray[np.int32]
    qp_src: NDArray[np.int32]
    qp_dst: NDArray[np.int32]
    job_names: tuple[str, ...]

    @property
    def n_nodes(self) -> int:
        """Nodes, messages and computations together."""
        return len(self.kind)

    @property
    def n_edges(self) -> int:
        """Dependencies."""
        return len(self.edge_child)

    @property
    def n_qps(self) -> int:
        """Queue pairs that carry the messages."""
        return len(self.qp_src)

    @property
    def messages(self) -> NDArray[np.int64]:
        """Node ids of the messages, ascending. A message's place in it is its flow id."""
        return np.flatnonzero(self.kind == MESSAGE)

    @property
    def total_bytes(self) -> int:
        """Payload bytes of all messages."""
        return int(self.size_bytes.sum())

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        return sum(v.nbytes for f in fields(self) if isinstance(v := getattr(self, f.name), np.ndarray))

    def edge_parents(self) -> NDArray[np.int64]:
        """Return the parent of every edge, in edge order."""
        return np.repeat(np.arange(self.n_nodes), np.diff(self.edge_first))

    def parents_of(self, node: int) -> list[tuple[int, int]]:
        """Return ``(parent, on)`` of every dependency of ``node``; slow, for tests and messages."""
        edges = np.flatnonzero(self.edge_child == node)
        parents = self.edge_parents()[edges]
        return [(int(p), int(on)) for p, on in zip(parents, self.edge_on[edges], strict=True)]

    def describe(self) -> str:
        """Return one line: messages, bytes, QPs, computations, dependencies, jobs."""
        computes = self.kind == COMPUTE
        busy = computes & (self.duration_ps > 0)
        parts = [
            f"{self.n_nodes - int(computes.sum())} messages",
            format_size(self.total_bytes),
            f"{self.n_qps} QPs",
        ]
        if busy.any():
            longest = format_duration(int(self.duration_ps.max()))
            parts.append(f"{int(busy.sum())} computations of up to {longest}")
        if self.n_edges:
            parts.append(f"{self.n_edges} dependencies")
        if len(self.job_names) > 1:
            parts.append(f"{len(self.job_names)} jobs")
        return ", ".join(parts)


@dataclass(frozen=True)
class Part:
    """A piece of a graph with node numbers of its own, e.g. one step of a pattern or one imported file.

    Arrays are as in `MessageGraph`; an edge is (``edge_parent``, ``edge_child``, ``edge_on``). ``start_ps``
    of a node without dependencies counts from the start of the part. ``needs`` is ``ALL_EDGES``, or how many
    of its edges release the node.
    """

    kind: NDArray[np.int64]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    start_ps: NDArray[np.int64]
    duration_ps: NDArray[np.int64]
    imm: NDArray[np.int64]
    channel: NDArray[np.int64]
    edge_parent: NDArray[np.int64]
    edge_child: NDArray[np.int64]
    edge_on: NDArray[np.int64]
    needs: NDArray[np.int64]

    @classmethod
    def of_messages(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        size_bytes: ArrayLike,
        *,
        start_ps: ArrayLike = 0,
        imm: ArrayLike = 0,
        channel: ArrayLike = 0,
        edges: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        needs: ArrayLike = ALL_EDGES,
    ) -> Part:
        """Return a part of messages only; scalars are repeated to the length of ``src``."""
        n = np.asarray(src).size

        def column(values: ArrayLike) -> NDArray[np.int64]:
            return np.broadcast_to(np.asarray(values, np.int64), (n,))

        none = np.zeros(0, np.int64)
        parent, child, on = np.broadcast_arrays(
            *(np.asarray(e, np.int64) for e in edges or (none, none, none))
        )
        return cls(
            kind=column(MESSAGE),
            src=column(src),
            dst=column(dst),
            size_bytes=column(size_bytes),
            start_ps=column(start_ps),
            duration_ps=column(0),
            imm=column(imm),
            channel=column(channel),
            edge_parent=parent,
            edge_child=child,
            edge_on=on,
            needs=column(needs),
        )

    @property
    def roots(self) -> NDArray[np.int64]:
        """Nodes that wait for nothing inside the part."""
        waits = np.zeros(len(self.kind), bool)
        waits[self.edge_child] = True
        return np.flatnonzero(~waits)


class GraphBuilder:
    """Collects nodes and edges in bulk and makes a checked `MessageGraph` of them.

    Every ``add_*`` takes scalars or arrays of one length and returns the new node ids.

    Parameters
    ----------
    nics : int
        NICs of the fabric.

    Examples
    --------
    Two messages, the second sent when the first has arrived:

    >>> b = GraphBuilder(nics=4)
    >>> there = b.add_messages(src=0, dst=1, size_bytes=4096)
    >>> back = b.add_messages(src=1, dst=0, size_bytes=64)
    >>> b.add_edges(there, back, RECEIVED)
    >>> g = b.build()
    >>> g.describe()
    '2 messages, 4.16 kB, 2 QPs, 1 dependencies'
    >>> g.n_deps.tolist(), g.qp.tolist()
    ([0, 1], [0, 1])
    """

    def __init__(self, nics: int) -> None:
        self.nics = nics
        self._needs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._chunks: list[dict[str, NDArray[Any]]] = []
        self._edges: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]] = []
        self._n = 0
        self._jobs: dict[str, int] = {}

    def job(self, name: str) -> int:
        """Return the number of the job called ``name``, a new one for a new name."""
        return self._jobs.setdefault(name, len(self._jobs))

    def _append(self, columns: dict[str, ArrayLike], length: int | None = None) -> NDArray[np.int64]:
        arrays = {name: np.asarray(value, dtype=np.int64) for name, value in columns.items()}
        if length is None:
            length = max(a.size for a in arrays.values()) if any(a.ndim for a in arrays.values()) else 1
        chunk = {}
        for name, array in arrays.items():
            full = np.broadcast_to(array.ravel() if array.ndim else array, (length,))
            chunk[name] = full
        self._chunks.append(chunk)
        ids = np.arange(self._n, self._n + length, dtype=np.int64)
        self._n += length
        return ids

    def add_messages(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        size_bytes: ArrayLike,
        *,
        start_ps: ArrayLike = 0,
        imm: ArrayLike = 0,
        job: ArrayLike = 0,
        step: ArrayLike = -1,
        channel: ArrayLike = 0,
    ) -> NDArray[np.int64]:
        """Add messages from ``src`` to ``dst``; return their node ids."""
        return self._append(
            {
                "kind": MESSAGE,
                "src": src,
                "dst": dst,
                "size_bytes": size_bytes,
                "start_ps": start_ps,
                "duration_ps": 0,
                "imm": imm,
                "job": job,
                "step": step,
                "channel": channel,
            }
        )

    def add_computes(
        self,
        duration_ps: ArrayLike,
        *,
        count: int | None = None,
        start_ps: ArrayLike = 0,
        job: ArrayLike = 0,
        step: ArrayLike = -1,
    ) -> NDArray[np.int64]:
        """Add computations (joins where the duration is 0); return their node ids."""
        return self._append(
            {
                "kind": COMPUTE,
                "src": -1,
                "dst": -1,
                "size_bytes": 0,
                "start_ps": start_ps,
                "duration_ps": duration_ps,
                "imm": 0,
                "job": job,
                "step": step,
                "channel": 0,
            },
            count,
        )

    def add_part(
        self, part: Part, *, job: int = 0, step: int = -1, root_delay_ps: int = 0
    ) -> NDArray[np.int64]:
        """Add a part with its inner edges; its roots start ``root_delay_ps`` later. Return the node ids."""
        start = part.start_ps
        if root_delay_ps:
            start = start.copy()
            start[part.roots] += root_delay_ps
        columns: dict[str, ArrayLike] = {
            name: getattr(part, name) for name in _NODE_COLUMNS if hasattr(part, name)
        }
        ids = self._append(columns | {"start_ps": start, "job": job, "step": step}, len(part.kind))
        if part.edge_parent.size:
            self.add_edges(ids[part.edge_parent], ids[part.edge_child], part.edge_on)
        partial = part.needs != ALL_EDGES
        if partial.any():
            self._needs.append((ids[partial], part.needs[partial]))
        return ids

    def add_edges(self, parent: ArrayLike, child: ArrayLike, on: ArrayLike) -> None:
        """Let ``child`` wait for the event ``on`` of ``parent``."""
        p, c, o = np.broadcast_arrays(
            np.atleast_1d(np.asarray(parent, np.int64)), np.asarray(child, np.int64), np.asarray(on, np.uint8)
        )
        self._edges.append((p, c, o))

    def build(self) -> MessageGraph:
        """Check everything and return the graph.

        Raises
        ------
        ScenarioError
            A message to itself, a NIC that does not exist, an impossible size or time, a cycle.
        """
        if self._n > MAX_GRAPH_NODES:
            raise ScenarioError(
                f"{self._n} messages and computations; the limit is 2^26; use fewer or larger ones"
            )
        columns = {
            name: np.concatenate([c[name] for c in self._chunks]) if self._chunks else np.zeros(0, np.int64)
            for name in _NODE_COLUMNS
        }
        self._check(columns)
        node: dict[str, Any] = {name: columns[name].astype(dtype) for name, dtype in _NODE_COLUMNS.items()}
        first, child, on, n_deps, ordered = self._csr()
        qp, qp_src, qp_dst = _number_qps(node)
        graph = MessageGraph(
            nics=self.nics,
            **node,
            n_deps=n_deps,
            edge_first=first,
            edge_child=child,
            edge_on=on,
            qp=qp,
            qp_src=qp_src,
            qp_dst=qp_dst,
            job_names=tuple(self._jobs) or ("job",),
        )
        if not ordered:  # edges that all lead to a later node cannot close a cycle
            from openmrc.scenario.release import release_times  # it imports this module

            release_times(graph, np.zeros((3, graph.n_nodes), np.int64))
        return graph

    def _csr(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32], bool]:
        n = self._n
        if not self._edges:
            empty = np.zeros(n + 1, np.int64)
            return empty, np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(n, np.int32), True
        parent = np.concatenate([e[0] for e in self._edges])
        child = np.concatenate([e[1] for e in self._edges])
        on = np.concatenate([e[2] for e in self._edges])
        assert parent.size == 0 or (
            min(parent.min(), child.min()) >= 0 and max(parent.max(), child.max()) < n
        )
        assert on.size == 0 or on.max() <= RECEIVED
        order = np.argsort(parent, kind="stable")
        first = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(parent, minlength=n), out=first[1:])
        n_deps = np.bincount(child, minlength=n).astype(np.int32)
        for nodes, needs in self._needs:
            assert (needs >= 1).all()
            assert (needs <= n_deps[nodes]).all()
            n_deps[nodes] = needs
        return first, child[order].astype(np.int32), on[order], n_deps, bool((child > parent).all())

    def _check(self, c: dict[str, NDArray[np.int64]]) -> None:
        message = c["kind"] == MESSAGE
        for end in ("src", "dst"):
            bad = message & ((c[end] < 0) | (c[end] >= self.nics))
            if bad.any():
                at = int(np.argmax(bad))
                raise ScenarioError(
                    f"message {at}: {end} NIC {c[end][at]} does not exist; "
                    f"the fabric has NICs 0 to {self.nics - 1}"
                )
        bad = message & (c["src"] == c["dst"])
        if bad.any():
            at = int(np.argmax(bad))
            raise ScenarioError(
                f"message {at}: NIC {c['src'][at]} sends to itself; "
                "choose another src or dst (a local copy needs no fabric)"
            )
        bad = (c["size_bytes"] < 0) | (c["size_bytes"] > MAX_MESSAGE_BYTES)
        if bad.any():
            at = int(np.argmax(bad))
            raise ScenarioError(
                f"message {at}: a size of {c['size_bytes'][at]} B; "
                "one message carries 0 to 2^31 B, use several"
            )
        for name in ("start_ps", "duration_ps"):
            bad = (c[name] < 0) | (c[name] > MAX_TIME_PS)
            if bad.any():
                at = int(np.argmax(bad))
                raise ScenarioError(
                    f"node {at}: {name} = {c[name][at]}; times lie between 0 and 2^62 ps (53 days)"
                )


def _number_qps(
    node: dict[str, NDArray[Any]],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    qp = np.full(len(node["kind"]), -1, np.int32)
    ids = np.flatnonzero(node["kind"] == MESSAGE)
    if ids.size == 0:
        return qp, np.zeros(0, np.int32), np.zeros(0, np.int32)
    keys = [node[name][ids] for name in ("job", "src", "dst", "channel")]
    order = np.lexsort(keys[::-1])
    changed = np.zeros(ids.size, bool)
    for key in keys:
        changed[1:] |= np.diff(key[order]) != 0
    number = np.cumsum(changed)
    qp[ids[order]] = number
    first = np.flatnonzero(np.diff(number, prepend=-1))
    at = ids[order][first]
    return qp, node["src"][at].copy(), node["dst"][at].copy()
