"""Where the engine keeps everything: NumPy structured arrays, allocated once by the driver.

One row per QP direction for the requestor and for the responder, one row per EV, one ring slot
per packet in flight. A direction `q` sends from its requestor row to the peer's responder row.
In the simulator both rows of a direction live in the same arrays; live, each side uses its half.

Fields that are counted are int64 so that the same source runs uncompiled (uint64 op int64 would
be float64 in NumPy); bitmaps are uint64 and meet only uint64.
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

REQUESTOR = np.dtype(
    [
        ("state", "i8"),
        ("error", "i8"),
        ("cc", "i8"),  # row of the congestion controller
        ("n_planes", "i8"),
        # sequence numbers
        ("una_psn", "i8"),  # oldest PSN not acknowledged (the peer's cack_psn + 1)
        ("next_psn", "i8"),  # next PSN never sent
        ("end_psn", "i8"),  # one past the last PSN of the posted messages
        ("window_psns", "i8"),  # the responder's window (MPR x 128)
        # messages: send queue positions are message numbers (MSN), modulo 2^16
        ("sq_head", "i8"),  # oldest message not completed
        ("sq_send", "i8"),  # message that next_psn belongs to
        ("sq_tail", "i8"),  # next message to be posted
        ("rqmsn", "i8"),  # WRITE_IMMs posted so far
        ("imm_outstanding", "i8"),
        # retransmission
        ("lost_count", "i8"),  # packets declared lost and not sent again
        ("lost_hint_psn", "i8"),  # no lost packet is before this PSN
        # planes, bit = plane
        ("local_ports", "i8"),  # our ports that are up
        ("peer_ports", "i8"),  # ports the peer reports usable
        ("probation", "i8"),  # planes back up whose probes have not yet succeeded
        ("good_planes", "i8"),  # planes with at least one active EV that may carry data
        ("last_plane", "i8"),
        ("active_total", "i8"),  # EVs in the active set when it was built
        ("bad_total", "i8"),  # EVs now ASSUMED_BAD
        # evidence
        ("sack_seen", "i8"),  # 1 once a SACK has arrived
        ("newest_rcvd", "i8"),  # rcvd_bytes (24 bit) of the newest-made SACK seen
        ("newest_tx_ps", "i8"),  # send time of the newest-sent packet known to have arrived
        # RTT
        ("srtt_ps", "i8"),
        ("rttdev_ps", "i8"),
        # timers: absolute deadlines, NEVER_PS = off
        ("rto_base_ps", "i8"),  # last progress, start of the current timeout interval
        ("heard_ps", "i8"),  # last time anything came from the peer, or sending began
        ("last_tx_ps", "i8"),
        ("next_probe_ps", "i8"),  # earliest probe of a bad EV
        ("last_probe_ps", "i8"),
        ("pace_ps", "i8"),  # paced below 1 MTU: not before
        ("retries", "i8"),
        ("charged_ps", "i8"),  # start of the last interval that was charged to the budget
        ("tail_count", "i8"),
        ("probe_id", "i8"),
        ("probe_cursor", "i8"),
        # port status updates that we owe the peer
        ("psu_left", "i8"),
        ("psu_next_ps", "i8"),
        ("psu_id", "i8"),
        ("no_path", "i8"),  # 1 while no plane can carry data
        # statistics of this QP
        ("n_data", "i8"),
        ("n_rtx", "i8"),
        ("n_trim_nacks", "i8"),
        ("n_timeouts", "i8"),
    ]
)

RESPONDER = np.dtype(
    [
        ("state", "i8"),
        ("error", "i8"),
        ("n_planes", "i8"),
        ("cack_psn", "i8"),
        ("high_psn", "i8"),  # highest PSN received
        ("window_psns", "i8"),
        ("rcvd_bytes", "i8"),  # payload + headers received, never wraps here
        ("ooo_count", "i8"),  # PSNs received beyond cack_psn
        ("unsacked_bytes", "i8"),
        ("unsacked_since_ps", "i8"),  # arrival of the first packet no SACK has reported; NEVER_PS
        ("walk", "i8"),  # where the next SACK's bitmap stands, offset from cack_psn + 1
        ("msn_done", "i8"),  # messages completed in order (the next MSN expected)
        ("imm_done", "i8"),
        ("imm_held", "i8"),  # immediates that wait for earlier messages
        ("recv_posted", "i8"),  # receives available to WRITE_IMMs
        # the newest packet, echoed by a SACK that a timer sends
        ("last_psn", "i8"),
        ("last_entropy", "i8"),
        ("last_tx_stamp", "i8"),
        # reverse path
        ("local_ports", "i8"),  # planes for what we send back, as the requestor's fields
        ("peer_ports", "i8"),
        ("rev_cursor", "i8"),
        ("rev_probe_ps", "i8"),  # when the next EV probe is due
        ("rev_probe_id", "i8"),
        ("rev_active_ps", "i8"),  # last data arrival
        ("psu_left", "i8"),
        ("psu_next_ps", "i8"),
        ("psu_id", "i8"),
        ("n_dup", "i8"),
        ("n_delivered", "i8"),
    ]
)

CC = np.dtype(
    [
        ("cwnd_q16", "i8"),  # bytes, 16 fraction bits
        ("inflight", "i8"),  # wire bytes sent and neither acknowledged nor declared lost
        ("base_rtt_ps", "i8"),
        ("max_cwnd", "i8"),
        ("avg_delay_q16", "i8"),
        ("sample_ps", "i8"),  # time of the last RTT sample
        ("inc_q16", "i8"),  # accumulated increase, bytes x bytes
        ("received", "i8"),
        ("achieved", "i8"),
        ("fi_count", "i8"),
        ("increasing", "i8"),
        ("trigger_qa", "i8"),
        ("qa_end_ps", "i8"),
        ("ignore", "i8"),  # bytes_to_ignore
        ("ignored", "i8"),  # bytes_ignored
        ("last_adjust_ps", "i8"),
        ("last_decrease_ps", "i8"),
        ("saved_cwnd_q16", "i8"),
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
CONTROL = np.dtype(
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
(CTRL_NONE, CTRL_SACK, CTRL_ACK, CTRL_NACK, CTRL_PROBE, CTRL_PORT_STATUS, CTRL_EV_PROBE, CTRL_RESPONSE) = range(8)

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
    words: np.ndarray  # uint64[qps, 4, window / 64]: received, ends, asked, imms
    rev: np.ndarray  # REVERSE[qps, planes]
    count: np.ndarray  # int64[len(COUNTERS)]
    ev_states: np.ndarray  # int64[4]: EVs in each state, all QPs (for the timeline)


W_RECEIVED, W_ENDS, W_ASKED, W_IMMS = range(4)


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


def allocate(profile: Profile, qps: int, ev_rows: int, planes: int, sq_depth: int, controllers: int = 0) -> State:
    """Return zeroed arrays for `qps` directions; `sq_depth` is a power of two."""
    assert sq_depth & (sq_depth - 1) == 0, "the send queue's depth is a power of two"
    ring = profile.ring_mask + 1
    state = State(
        req=np.zeros(qps, REQUESTOR),
        rsp=np.zeros(qps, RESPONDER),
        cc=np.zeros(controllers or qps, CC),
        ev=np.zeros((qps, ev_rows), EV),
        plane=np.zeros((qps, planes), PLANE),
        ring=np.zeros((qps, ring), SLOT),
        acked=np.zeros((qps, ring // 64), np.uint64),
        sq=np.zeros((qps, sq_depth), MESSAGE),
        probe=np.zeros((qps, PROBES), PROBE),
        words=np.zeros((qps, 4, profile.words), np.uint64),
        rev=np.zeros((qps, planes), REVERSE),
        count=np.zeros(len(COUNTERS), np.int64),
        ev_states=np.zeros(4, np.int64),
    )
    return pack(state)


def open_directions(state: State, profile: Profile, first_psn: np.ndarray, planes: int, cc_row: np.ndarray) -> None:
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
    req["last_probe_ps"] = req["charged_ps"] = -NEVER_PS
    rsp["cack_psn"] = rsp["high_psn"] = rsp["last_psn"] = (first_psn - 1) & 0xFFFFFF
    rsp["recv_posted"] = NEVER_PS
    for name in ("unsacked_since_ps", "rev_probe_ps", "psu_next_ps"):
        rsp[name] = NEVER_PS
    cc["cwnd_q16"] = profile.max_cwnd_bytes << 16
    cc["max_cwnd"] = profile.max_cwnd_bytes
    cc["base_rtt_ps"] = profile.base_rtt_ps
    cc["last_decrease_ps"] = -profile.base_rtt_ps
