"""The simulator's own memory: ports, NICs, routes, the event wheel, what is recorded.

A packet *is* its event: two int64 words. Word 0 is ``time (low 32 bits of ps) << 32 | kind << 29 |
id``, word 1 of a packet is ``psn or control slot << 40 | size << 28 | path << 12 | hop << 9 |
reverse << 8 | flags``. Sorting by (word 0, word 1) is the canonical order (time, kind, flow, seq), so
results do not depend on the order of insertion.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# --- events --------------------------------------------------------------------------------
# what happens first at one instant: faults, releases, computations, timers, NICs, packets, queues
E_PORT, E_RELEASE, E_DONE, E_REQ_TIMER, E_RSP_TIMER, E_NIC, E_PACKET, E_DEQUEUE = range(8)
KIND_SHIFT = 29
ID_MASK = (1 << 29) - 1

SEQ_SHIFT, SIZE_SHIFT, PATH_SHIFT, HOP_SHIFT = 40, 28, 12, 9
SEQ_MASK, SIZE_MASK, PATH_MASK, HOP_MASK = 0xFFFFFF, 0xFFF, 0xFFFF, 7
REVERSE = 1 << 8  # travels from the responder to the requestor
# flags, bits 0..7
P_CONTROL = 1  # content in the control pool; seq is its slot
P_CE = 2
P_TRIM_SHIFT = 2  # two bits: whole, trimmed, trimmed at the last hop, damaged
P_WHOLE, P_TRIMMED, P_TRIMMED_LASTHOP, P_DAMAGED = range(4)
P_LAST, P_IMM, P_ASK, P_RTX = 16, 32, 64, 128

CHUNK = 32  # events per chunk of the wheel
PUSHES = 16  # pushes under way while their memory is fetched
FAR_PS = 1 << 30  # events further away wait in the heap: 1.07 ms, well under the 4.29 ms that 32 bits hold

# --- rows ----------------------------------------------------------------------------------
#: One output port: two clocks. Backlog = free - now; nothing else is needed in the fast model.
PORT = np.dtype(
    [
        ("data_free_ps", "i8"),
        ("control_free_ps", "i8"),
        ("fault", "i4"),
        ("reserved", "i4"),
        ("reserved2", "i8"),
    ]
)

#: The queues of one output port in the exact model: packets that wait, and until when the packet in
#: service of each class occupies the line.
EXACT_PORT = np.dtype(
    [
        ("data_head", "i4"),  # places in the pool `queued`, -1 = empty
        ("data_tail", "i4"),
        ("control_head", "i4"),
        ("control_tail", "i4"),
        ("data_bytes", "i8"),  # line bytes that wait
        ("control_bytes", "i8"),
        ("data_until_ps", "i8"),
        ("control_until_ps", "i8"),
        ("reserved", "i8", 2),  # a cache line
    ]
)
#: A packet that waits in a port.
QUEUED = np.dtype([("w1", "i8"), ("q", "i4"), ("next", "i4")])

#: One QP direction as the network sees it.
ROUTE = np.dtype(
    [
        ("src", "i4"),
        ("dst", "i4"),
        ("src_t0", "i4"),
        ("dst_t0", "i4"),
        ("hops", "i4"),
        ("worst_link", "i4"),  # where its packets waited longest
        ("worst_wait_ps", "i8"),
    ]
)

NIC = np.dtype(
    [
        ("ready", "i4"),  # a QP of the circular list that may send, -1 if none
        ("n_ready", "i4"),
        ("wake_ps", "i8"),
        ("ports", "i8"),  # bit mask of ports that are up
    ]
)

#: QP bookkeeping of the driver.
LINKAGE = np.dtype(
    [
        ("next", "i4"),  # neighbours in the NIC's ready list; -1 = not ready
        ("prev", "i4"),
        ("pending_head", "i4"),  # messages released while the send queue was full
        ("pending_tail", "i4"),
        ("leader", "i4"),  # bit 0: requestor half carries port updates to its peer; bit 1: responder half
        ("sibling", "i4"),  # the direction the other way between the same NICs, -1 if none
        ("req_timer_ps", "i8"),
        ("rsp_timer_ps", "i8"),
    ]
)

#: One (fault, QP): who used a faulted element, and until when.
AFFECTED = np.dtype(
    [
        ("key", "i8"),
        ("first_drop_ps", "i8"),  # in the present stay: from a return to the next leaving
        ("last_tx_ps", "i8"),
        ("first_left_ps", "i8"),  # last packet of the first stay
        ("worst_ps", "i8"),  # longest time from a stay's first loss to its last packet
        ("drops", "i8"),
    ]
)

#: One packet at one vantage point, see `openmrc.sim.trace`. What is behind `q` only a sent data packet has.
TRACE = np.dtype(
    [
        ("time_ps", "i8"),
        ("w1", "i8"),  # word 1 of its event
        ("q", "i4"),
        ("node", "i4"),  # of the message graph, -1 = unknown here
        ("index", "i4"),  # which packet of its message
        ("msn", "u2"),
        ("rqmsn", "u2"),
    ]
)

# --- columns of the layer table --------------------------------------------------------------
L_MULT, L_DELAY, L_ECN_LOW, L_ECN_HIGH, L_TRIM, L_CAPACITY, L_CONTROL_CAPACITY, L_AFTER, L_ECN_ON = range(9)
L_COLUMNS = 9

# --- scalars that kernels change ------------------------------------------------------------
SCALARS = (
    "now_ps",
    "bucket",  # absolute number of the bucket being swept
    "swept",  # 1 while the current bucket is in the scratch arrays
    "cur",
    "end",  # current position and end in the scratch arrays
    "events",  # in the wheel
    "waiting",  # pushes under way, see wheel.push
    "free_chunk",
    "n_free_chunks",
    "far",  # events in the heap
    "control_free",
    "control_used",
    "control_peak",
    "affected_used",
    "affected_full",
    "messages_left",
    "failed",
    "hops_data",
    "hops_control",
    "events_done",
    "trimmed",
    "marked",
    "delivered_bytes",
    "bin",  # current timeline bin
    "bin_end_ps",
    "bin_width_ps",
    "bin_peak",
    "last_delivery_ps",
    "overflow",  # a pool ran dry in the middle of a bucket: our mistake
    "no_control_path",
    "n_out",  # control packets the current event has produced
    "kick",  # NIC to be pumped after the current event, -1
    "touch_req",  # QP whose requestor timer may have changed, -1
    "touch_rsp",
    "trace_used",  # rows of the trace that wait to be taken
    "queued_free",  # head of the free list of waiting packets (exact model)
    "n_queued_free",
)
I = {name: i for i, name in enumerate(SCALARS)}  # noqa: E741 - reads as the index it is

# --- drop reasons (first four as fabric.faults.DropReason) -----------------------------------
DROP_REASONS = ("link_down", "grey", "blackhole", "corrupt", "queue_full", "control_full", "no_path")
D_DOWN, D_GREY, D_BLACKHOLE, D_CORRUPT, D_QUEUE, D_CONTROL, D_NO_PATH = range(7)

# --- timeline columns ------------------------------------------------------------------------
T_DELIVERED, T_PEAK, T_GOOD, T_SKIP, T_BAD, T_RTX, T_TRIM, T_DROP, T_MARK, T_PLANE0 = range(10)
MAX_OUT = 16


class Config(NamedTuple):
    """What kernels need to know and never change: all int64."""

    buckets: int  # power of two
    shift: int  # bucket width = 1 << shift ps
    ecn_on: int
    trim_on: int
    cut_through: int
    ecmp: int
    ecn_seed: int
    fault_seed: int
    path_seed: int
    hash_seed: int
    nic_latency_ps: int
    switch_latency_ps: int
    room_ps: int  # a NIC port has room below this backlog
    wake_ps: int  # a NIC with more to send is woken after this
    return_gap_ps: int  # a QP silent on an element for so long had left it and has come back
    full_ser_ps: int
    data_line_overhead: int  # line bytes of a data packet beyond its padded payload
    data_ip_overhead: int
    trimmed_line_bytes: int
    header_line_bytes: int  # what cut-through waits for
    pmtu_bytes: int
    planes: int
    affected_mask: int
    heap_size: int
    max_bins: int
    prefetch: int
    trace: int  # TRACE_OFF, or which packets of traced QPs are recorded
    exact: int  # port model


class Sim(NamedTuple):
    """The simulator's arrays; kernels take it whole."""

    s: np.ndarray  # int64 scalars, see SCALARS
    port: np.ndarray  # PORT[links]
    exact_port: np.ndarray  # EXACT_PORT[links], one unused row in the fast model
    queued: np.ndarray  # QUEUED[packets that can wait]
    route: np.ndarray  # ROUTE[qps]
    linkage: np.ndarray  # LINKAGE[qps]
    nic: np.ndarray  # NIC[nics]
    layer: np.ndarray  # int64[6, L_COLUMNS]
    layer_of: np.ndarray  # int64[7, 6]: (hops, hop) -> layer
    line: np.ndarray  # int64[8]: line bytes of a control packet by kind
    peak: np.ndarray  # int64[6]: longest data backlog of each layer, ps
    # the wheel
    slots: np.ndarray  # int32[buckets, 2]: newest chunk, number of events
    pushes: np.ndarray  # int64[PUSHES, 3]: bucket, word 0, word 1 of pushes under way
    chunk_next: np.ndarray  # int32[chunks]
    chunk: np.ndarray  # int64[chunks * CHUNK, 2]
    sort: np.ndarray  # int64[2, capacity, 2] scratch
    digit: np.ndarray  # int64[257] counting sort
    far_ps: np.ndarray  # heap of far events: time
    far_key: np.ndarray  # kind << 29 | id
    # control packets
    control: np.ndarray  # CONTROL[slots]
    control_next: np.ndarray  # int32[slots]
    out: np.ndarray  # int64[MAX_OUT, 3]: slot, qp, reverse
    # NIC -> QPs
    nic_first: np.ndarray  # int32[nics + 1], directions that start at a NIC
    nic_qps: np.ndarray
    nic_in_first: np.ndarray  # directions that end at a NIC
    nic_in_qps: np.ndarray
    # work
    node_kind: np.ndarray
    node_size: np.ndarray
    node_start: np.ndarray
    node_duration: np.ndarray
    node_imm: np.ndarray
    node_qp: np.ndarray
    node_waits: np.ndarray  # dependencies not yet met
    node_next: np.ndarray  # pending list of its QP
    edge_first: np.ndarray
    edge_child: np.ndarray
    edge_on: np.ndarray
    # faults
    seg_first: np.ndarray
    seg_start_ps: np.ndarray
    seg_down: np.ndarray
    seg_loss: np.ndarray
    seg_ber: np.ndarray
    seg_corrupt: np.ndarray
    seg_rate_mult: np.ndarray
    seg_latency_ps: np.ndarray
    seg_fault: np.ndarray
    seg_reason: np.ndarray
    port_ev: np.ndarray  # int64[4, n]: time, nic, plane, up
    fault_lost: np.ndarray  # int64[faults]
    fault_back_ps: np.ndarray
    affected: np.ndarray  # AFFECTED[power of two]
    # records
    drops: np.ndarray  # int64[reasons]
    flow_start: np.ndarray  # int64[nodes]
    flow_received: np.ndarray
    flow_end: np.ndarray
    flow_rtx: np.ndarray  # int32[nodes]
    flow_trim: np.ndarray
    plane_bytes: np.ndarray  # int64[planes], delivered payload
    timeline: np.ndarray  # int64[bins, T_PLANE0 + planes]
    traced: np.ndarray  # uint8[qps]: 1 = record its packets
    trace: np.ndarray  # TRACE[rows]
    trace_control: np.ndarray  # CONTROL[rows]: content, where the row is a control packet
