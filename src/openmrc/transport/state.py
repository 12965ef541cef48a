"""Where the engine keeps everything: NumPy structured arrays, allocated once by the driver.

One row per QP direction for the requestor and for the responder, one row per EV, one ring slot
per packet in flight. A direction `q` sends from its requestor row to the peer's responder row.
In the simulator both rows of a direction live in the same arrays; live, each side uses its half.

Kernels load fields through ``np.int64()`` so that the same source runs uncompiled and compiles for
one type only; bitmaps are uint64 and meet only uint64. Rows that every packet touches are a whole
number of 64-byte cache lines, hot fields first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openmrc.limits import NEVER_PS
from openmrc.packed import pack
from openmrc.transport.settings import Profile

# QP states (libmrc names; RESET to RTR matter to the live endpoint only)
QP_RESET, QP_INIT, QP_RTR, QP_RTS, QP_ERROR = range(5)
# why a QP is in ERROR
ERR_NONE, ERR_RETRY_EXCEEDED, ERR_REMOTE_ACCESS, ERR_REMOTE_OP, ERR_INVALID_REQUEST, ERR_UNEXPECTED = range(6)

# ring slot states
SLOT_FREE, SLOT_INFLIGHT, SLOT_LOST, SLOT_ACKED = range(4)

CACHE_LINE_BYTES = 64


def row_dtype(fields: list[tuple[str, str]]) -> np.dtype:
    """Return a packed dtype whose rows are a whole number of cache lines."""
    names = [name for name, _ in fields]
    formats = [kind for _, kind in fields]
    offsets = [0]
    for kind in formats:
        offsets.append(offsets[-1] + np.dtype(kind).itemsize)
    size = -(-offsets[-1] // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
    return np.dtype({"names": names, "formats": formats, "offsets": offsets[:-1], "itemsize": size})


#: The first 64 bytes are all that sending a packet touches; the second 64 are for SACKs.
REQUESTOR = row_dtype(
    [
        ("state", "u1"),
        ("no_path", "u1"),  # 1 while no plane can carry data
        ("n_planes", "u1"),
        # planes, bit = plane
        ("local_ports", "u1"),  # our ports that are up
        ("peer_ports", "u1"),  # ports the peer reports usable
        ("probation", "u1"),  # planes back up whose probes have not yet succeeded
        ("good_planes", "u1"),  # planes with at least one active EV that may carry data
        ("last_plane", "u1"),
        ("cc", "i4"),  # row of the congestion controller
        # sequence numbers
        ("una_psn", "i4"),  # oldest PSN not acknowledged (the peer's cack_psn + 1)
        ("next_psn", "i4"),  # next PSN never sent
        ("end_psn", "i4"),  # one past the last PSN of the posted messages
        ("window_psns", "i4"),  # the responder's window (MPR x 128)
        # retransmission
        ("lost_count", "i4"),  # packets declared lost and not sent again
        ("lost_hint_psn", "i4"),  # no lost packet is before this PSN
        # messages: send queue positions are message numbers (MSN) before they wrap at 2^16
        ("sq_head", "i4"),  # oldest message not completed
        ("sq_send", "i4"),  # message that next_psn belongs to
        ("sq_tail", "i4"),  # next message to be posted
        ("last_tx_ps", "i8"),  # when the last packet was sent, for pacing
        ("n_data", "i4"),
        ("n_rtx", "i4"),
        # --- 64: RTT and evidence
        ("srtt_ps", "i8"),
        ("rttdev_ps", "i8"),
        ("newest_tx_ps", "i8"),  # send time of the newest-sent packet known to have arrived
        ("heard_ps", "i8"),  # last time anything came from the peer, or sending began
        ("rto_base_ps", "i8"),  # last progress, start of the current timeout interval
        ("newest_rcvd", "i4"),  # rcvd_bytes (24 bit) of the newest-made SACK seen
        ("sack_seen", "u1"),  # 1 once a SACK has arrived
        ("error", "u1"),
        ("tail_count", "u1"),
        ("reserved", "u1"),
        # timers: absolute deadlines, NEVER_PS = off
        ("next_probe_ps", "i8"),  # earliest probe of a bad EV or a returning plane
        ("psu_next_ps", "i8"),  # next Port Status Update that we owe the peer
        # --- 128: what happens rarely
        ("last_probe_ps", "i8"),
        ("charged_ps", "i8"),  # start of the last interval that was charged to the budget
        ("retries", "i4"),
        ("probe_id", "i4"),
        ("probe_cursor", "i4"),
        ("psu_left", "i4"),
        ("psu_id", "i4"),
        ("active_total", "i4"),  # EVs in the active set when it was built
        ("bad_total", "i4"),  # EVs now ASSUMED_BAD
        ("rqmsn", "i4"),  # WRITE_IMMs posted so far
        ("imm_outstanding", "i4"),
        ("psu_seen", "i4"),  # id of the peer's newest update, see update_is_news
        ("n_trim_nacks", "i4"),
        ("n_timeouts", "i4"),
    ]
)

#: The first 64 bytes are all that most arrivals touch.
RESPONDER = row_dtype(
    [
        ("state", "u1"),
        ("error", "u1"),
        ("n_planes", "u1"),
        ("local_ports", "u1"),  # planes for what we send back, as the requestor's fields
        ("peer_ports", "u1"),
        ("rev_cursor", "u1"),
        ("rev_on", "u1"),  # 1 while EV probes keep the reverse path fresh
        ("psu_left", "u1"),
        ("cack_psn", "i4"),
        ("high_psn", "i4"),  # highest PSN received
        ("window_psns", "i4"),
        ("ooo_count", "i4"),  # PSNs received beyond cack_psn
        ("unsacked_bytes", "i4"),
        ("walk", "i4"),  # where the next SACK's bitmap stands, offset from cack_psn + 1
        ("unsacked_since_ps", "i8"),  # arrival of the first packet no SACK has reported; NEVER_PS
        ("rcvd_bytes", "i8"),  # wire bytes received once, never wraps here
        ("msn_done", "i4"),  # messages completed in order (the next MSN expected)
        ("last_psn", "i4"),  # the newest packet, echoed by a SACK that a timer sends
        ("last_entropy", "u4"),
        ("psu_id", "i4"),
        # --- 64
        ("rev_probe_ps", "i8"),  # when the next EV probe is due
        ("rev_rcvd_bytes", "i8"),  # rcvd_bytes when the last one was sent
        ("psu_next_ps", "i8"),
        ("recv_posted", "i8"),  # receives available to WRITE_IMMs
        ("imm_done", "i4"),
        ("imm_held", "i4"),  # immediates that wait for earlier messages
        ("rev_probe_id", "i4"),
        ("psu_seen", "i4"),
        ("n_dup", "i4"),
        ("n_delivered", "i4"),
    ]
)

CC = row_dtype(
    [
        ("cwnd_q16", "i8"),  # bytes, 16 fraction bits
        ("inflight", "i8"),  # wire bytes sent and neither acknowledged nor declared lost
        ("base_rtt_ps", "i8"),
        ("avg_delay_q16", "i8"),
        ("sample_ps", "i8"),  # time of the last RTT sample
        ("inc_q16", "i8"),  # accumulated increase, bytes x bytes
        ("qa_end_ps", "i8"),
        ("ignored", "i8"),  # bytes_ignored
        # --- 64
        ("ignore", "i8"),  # bytes_to_ignore
        ("last_adjust_ps", "i8"),
        ("last_decrease_ps", "i8"),
        ("saved_cwnd_q16", "i8"),
        ("max_cwnd", "i4"),
        ("received", "i4"),
        ("achieved", "i4"),
        ("fi_count", "i4"),
        ("increasing", "u1"),
        ("trigger_qa", "u1"),
    ]
)

#: One EV of a QP. `clock_ps` is, while the EV is GOOD or SKIP, the send time of its newest packet
#: known to have arrived; while ASSUMED_BAD, when its next probe is due.
EV = np.dtype(
    [
        ("entropy", "u4"),
        ("state", "u1"),
        ("role", "u1"),  # ROLE_*
        ("plane", "u1"),
        ("suspects", "u1"),  # packets in flight on it that are overdue
        ("sent", "u1"),  # ordinal of its newest data packet, modulo 256
        ("arrived", "u1"),  # ordinal of the newest known to have arrived
        ("streak", "u1"),  # probes answered in a row
        ("backoff", "u1"),  # probes missed in a row
        ("clock_ps", "i8"),
    ]
)
ROLE_UNUSED, ROLE_ACTIVE, ROLE_BACKUP, ROLE_PROMOTED, ROLE_RETIRED = range(5)  # zeroed rows are unused

#: One packet in flight, addressed by PSN modulo the ring size.
SLOT = np.dtype(
    [
        ("tx_ps", "i8"),
        ("ev", "u2"),  # EV row within the QP
        ("size", "u2"),  # wire bytes, outer IPv6 header to ICRC
        ("state", "u1"),
        ("count", "u1"),  # transmissions so far (saturates)
        ("ordinal", "u1"),  # which data packet of its EV this is, modulo 256
        ("flags", "u1"),  # SLOT_SUSPECT
    ]
)
SLOT_SUSPECT = 1

PLANE = np.dtype(
    [
        ("first", "i4"),  # first EV row of this plane
        ("count", "i4"),
        ("cursor", "i4"),
        ("usable", "i4"),  # active EVs that are GOOD or SKIP
    ]
)

MESSAGE = np.dtype(
    [
        ("first_psn", "i4"),
        ("packets", "i4"),
        ("length", "i8"),
        ("wr_id", "i8"),
        ("imm", "i4"),  # 1 = WRITE_IMM
        ("rqmsn", "i4"),
    ]
)

#: A reliability probe or EV probe under way, addressed by probe id modulo PROBES.
PROBE = np.dtype([("tx_ps", "i8"), ("id", "i4"), ("ev", "i2"), ("open", "i2")])
PROBES = 4

#: The responder's own path to the requestor, one row per plane.
REVERSE = np.dtype([("entropy", "u4"), ("trial", "u4"), ("misses", "u1"), ("waiting", "u1"), ("id", "u2")])

#: What a control packet says, frozen when it is generated. One layout for all kinds.
CONTROL = row_dtype(
    [
        ("bitmap", "u8"),
        ("kind", "i4"),  # CTRL_*
        ("psn", "i4"),  # cack_psn of SACK and ACK, refused PSN of a NACK, request id otherwise
        ("trigger_psn", "i4"),  # packet that triggered a SACK
        ("sack_offset", "i4"),
        ("entropy", "u4"),  # echoed EV
        ("tx_stamp", "i4"),  # echoed timestamp, 128 ns units
        ("rcvd", "i4"),  # rcvd_bytes, 256-byte units, 24 bit
        ("msn", "i4"),  # of a Transport ACK
        ("path", "i4"),  # own entropy, the path this packet itself takes
        ("reason", "i2"),  # NACK reason, ACK syndrome
        ("probe_id", "i4"),
        ("ooo", "i2"),
        ("mpr", "i2"),
        ("m", "i1"),  # SETH.m
        ("pr", "i1"),
        ("delayed", "i1"),  # cc_flags bit 0: sent by the timer, gives no RTT sample
        ("mask", "i1"),  # port status mask as int8 bits
    ]
)
(CTRL_NONE, CTRL_SACK, CTRL_ACK, CTRL_NACK, CTRL_PROBE, CTRL_PORT_STATUS, CTRL_EV_PROBE, CTRL_RESPONSE) = (
    range(8)
)

#: counters of the engine, one array per driver
COUNTERS = (
    "data_packets",
    "retransmitted",
    "sacks",
    "acks",
    "nacks",
    "probes",
    "ev_probes",
    "port_updates",
    "timeouts",
    "lost_fifo",
    "lost_guard",
    "lost_timeout",
    "suspected",
    "trim_nacks",
    "stale_nacks",
    "late_acks",
    "assumed_bad",
    "recovered",
    "promoted",
    "demoted",
    "false_condemned",
    "floor_held",
    "skips",
    "no_path",
    "duplicates",
    "out_of_window",
    "invalid_acks",
    "qp_errors",
    "messages_posted",
    "messages_completed",
    "messages_delivered",
    "imms_delivered",
)
COUNTER_INDEX = {name: i for i, name in enumerate(COUNTERS)}


class State(NamedTuple):
    """All arrays of one engine; kernels take it whole."""

    req: np.ndarray  # REQUESTOR[qps]
    rsp: np.ndarray  # RESPONDER[qps]
    cc: np.ndarray  # CC[controllers]
    ev: np.ndarray  # EV[qps, rows]
    plane: np.ndarray  # PLANE[qps, planes]
    ring: np.ndarray  # SLOT[qps, ring size]
    acked: np.ndarray  # uint64[qps, ring size / 64]: acknowledged PSNs of the ring
    sq: np.ndarray  # MESSAGE[qps, depth]
    probe: np.ndarray  # PROBE[qps, PROBES]
    words: np.ndarray  # uint64[qps, window / 64, 4]: received, ends, asked, imms of 64 PSNs
    rev: np.ndarray  # REVERSE[qps, planes]
    count: np.ndarray  # int64[len(COUNTERS)]
    ev_states: np.ndarray  # int64[4]: EVs in each state, all QPs (for the timeline)


W_RECEIVED, W_ENDS, W_ASKED, W_IMMS = range(4)


def aligned(shape: int | tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """Return a zeroed array that starts on a cache line, so that rows of 64 bytes touch one line."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + CACHE_LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE_BYTES
    return raw[start : start + size].view(dtype).reshape(shape)


def row_bytes(profile: Profile, ev_rows: int, planes: int, sq_depth: int) -> int:
    """Return the bytes of state of one QP direction, both halves."""
    ring = profile.ring_mask + 1
    return (
        REQUESTOR.itemsize
        + RESPONDER.itemsize
        + CC.itemsize
        + ev_rows * EV.itemsize
        + planes * (PLANE.itemsize + REVERSE.itemsize)
        + ring * SLOT.itemsize
        + ring // 8
        + sq_depth * MESSAGE.itemsize
        + PROBES * PROBE.itemsize
        + 4 * profile.words * 8
    )


def allocate(
    profile: Profile, qps: int, ev_rows: int, planes: int, sq_depth: int, controllers: int = 0
) -> State:
    """Return zeroed arrays for `qps` directions; `sq_depth` is a power of two."""
    assert sq_depth & (sq_depth - 1) == 0, "the send queue's depth is a power of two"
    ring = profile.ring_mask + 1
    state = State(
        req=aligned(qps, REQUESTOR),
        rsp=aligned(qps, RESPONDER),
        cc=aligned(controllers or qps, CC),
        ev=np.zeros((qps, ev_rows), EV),
        plane=aligned((qps, planes), PLANE),
        ring=aligned((qps, ring), SLOT),
        acked=aligned((qps, ring // 64), np.uint64),
        sq=np.zeros((qps, sq_depth), MESSAGE),
        probe=np.zeros((qps, PROBES), PROBE),
        words=aligned((qps, profile.words, 4), np.uint64),
        rev=np.zeros((qps, planes), REVERSE),
        count=np.zeros(len(COUNTERS), np.int64),
        ev_states=np.zeros(4, np.int64),
    )
    return pack(state)


def open_directions(
    state: State, profile: Profile, first_psn: np.ndarray, planes: int, cc_row: np.ndarray
) -> None:
    """Bring every direction to RTS: windows open, nothing sent, all ports up.

    `first_psn` and `cc_row` have one entry per direction. EV rows are filled by
    :func:`openmrc.transport.evset.fill`.
    """
    req, rsp, cc = state.req, state.rsp, state.cc
    all_ports = (1 << planes) - 1
    req["state"] = rsp["state"] = QP_RTS
    req["cc"] = cc_row
    req["n_planes"] = rsp["n_planes"] = planes
    req["una_psn"] = req["next_psn"] = req["end_psn"] = req["lost_hint_psn"] = first_psn
    req["window_psns"] = rsp["window_psns"] = profile.window_psns
    req["local_ports"] = req["peer_ports"] = rsp["local_ports"] = rsp["peer_ports"] = all_ports
    req["srtt_ps"] = profile.base_rtt_ps
    req["rttdev_ps"] = profile.base_rtt_ps // 8
    req["newest_tx_ps"] = -1
    for name in ("next_probe_ps", "psu_next_ps"):
        req[name] = NEVER_PS
    req["last_probe_ps"] = req["charged_ps"] = req["last_tx_ps"] = -NEVER_PS
    rsp["cack_psn"] = rsp["high_psn"] = rsp["last_psn"] = (first_psn - 1) & 0xFFFFFF
    rsp["recv_posted"] = NEVER_PS
    for name in ("unsacked_since_ps", "rev_probe_ps", "psu_next_ps"):
        rsp[name] = NEVER_PS
    cc["cwnd_q16"] = profile.max_cwnd_bytes << 16
    cc["max_cwnd"] = profile.max_cwnd_bytes
    cc["base_rtt_ps"] = profile.base_rtt_ps
    cc["last_decrease_ps"] = -profile.base_rtt_ps
