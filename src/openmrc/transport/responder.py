"""The receiving half of a QP: window, duplicates, completions in order, SACKs and reverse paths.

Every packet is placed at its own address when it arrives, in any order; there is no reorder
buffer. What is kept is one bit per PSN of the window, and with it which PSNs end a message, which
asked for a SACK and which carry an immediate.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import ctz64, inline_kernel, kernel, popcount64
from openmrc.limits import NEVER_PS
from openmrc.psn import psn_add, psn_after, psn_diff
from openmrc.transport.requestor import FLAG_ASK, FLAG_IMM, FLAG_LAST, FLAG_RTX
from openmrc.transport.state import (
    COUNTER_INDEX,
    CTRL_ACK,
    CTRL_EV_PROBE,
    CTRL_NACK,
    CTRL_RESPONSE,
    CTRL_SACK,
    ERR_INVALID_REQUEST,
    ERR_REMOTE_ACCESS,
    ERR_REMOTE_OP,
    ERR_UNEXPECTED,
    QP_ERROR,
    QP_RTS,
    W_ASKED,
    W_ENDS,
    W_IMMS,
    W_RECEIVED,
)

# what on_data() asks the driver to send, a bit mask; DELIVERED: the payload is new, place it
DO_SACK, DO_ACK, DO_NACK, DELIVERED, FAILED = 1, 2, 4, 8, 16

REASON_TRIMMED, REASON_TRIMMED_LASTHOP, REASON_OOR, REASON_UNEXPECTED = 0x01, 0x02, 0x0B, 0x19
SYNDROME_ACK, SYNDROME_INVALID, SYNDROME_ACCESS, SYNDROME_OPERATION = 0x1F, 0x61, 0x62, 0x63
SACK_SPAN = 64
PROBE_PATIENCE_RTTS = 4  # an EV probe has this many base RTTs before it counts as missed
NOT_TRIMMED, TRIMMED, TRIMMED_LASTHOP = range(3)

C_SACKS = COUNTER_INDEX["sacks"]
C_ACKS = COUNTER_INDEX["acks"]
C_NACKS = COUNTER_INDEX["nacks"]
C_DUP = COUNTER_INDEX["duplicates"]
C_OOW = COUNTER_INDEX["out_of_window"]
C_DELIVERED = COUNTER_INDEX["messages_delivered"]
C_IMMS = COUNTER_INDEX["imms_delivered"]
C_EV_PROBES = COUNTER_INDEX["ev_probes"]
C_ERRORS = COUNTER_INDEX["qp_errors"]


@inline_kernel
def _bit_is_set(st, pf, q, kind, psn):
    position = psn & (pf.words * 64 - 1)
    return (st.words[q, position >> 6, kind] >> np.uint64(position & 63)) & np.uint64(1) != np.uint64(0)


@inline_kernel
def _set_bit(st, pf, q, kind, psn):
    position = psn & (pf.words * 64 - 1)
    st.words[q, position >> 6, kind] |= np.uint64(1) << np.uint64(position & 63)


@kernel
def _advance(st, pf, q):
    """Move cack_psn over everything received in a row.

    Returns (messages ended, immediates, asked, refused). A WRITE_IMM without a posted receive is
    refused: neither it nor any message after it ends.
    """
    rsp = st.rsp[q]
    cack = np.int64(rsp["cack_psn"])
    before = cack
    ended = np.int64(0)
    imms = np.int64(0)
    asked = False
    refused = False
    while True:
        position = (cack + 1) & (pf.words * 64 - 1)
        word = position >> 6
        low = position & 63
        run = min(ctz64(~(st.words[q, word, W_RECEIVED] >> np.uint64(low))), 64 - low)
        if run == 0:
            break
        mask = (~np.uint64(0) >> np.uint64(64 - run)) << np.uint64(low)
        st.words[q, word, W_RECEIVED] &= ~mask
        if st.words[q, word, W_ENDS] & mask:
            if not refused:
                new_ends, new_imms, refused = _ends_of(st, q, word, mask, np.int64(rsp["recv_posted"]) - imms)
                ended += new_ends
                imms += new_imms
            st.words[q, word, W_ENDS] &= ~mask
            st.words[q, word, W_IMMS] &= ~mask
        if st.words[q, word, W_ASKED] & mask:
            asked = True
            st.words[q, word, W_ASKED] &= ~mask
        cack = psn_add(cack, run)
        rsp["ooo_count"] = np.int64(rsp["ooo_count"]) - run
    rsp["cack_psn"] = cack
    if psn_after(cack, np.int64(rsp["high_psn"])):
        rsp["high_psn"] = cack
    if np.int64(rsp["walk"]) > 0:  # the bitmap's place is a PSN: it does not move with cack_psn
        rsp["walk"] = max(np.int64(rsp["walk"]) - psn_diff(cack, before), 0)
    return ended, imms, asked, refused


@inline_kernel
def _ends_of(st, q, word, mask, posted):
    """Count the messages and immediates that end in `mask`, up to the first immediate without a receive."""
    ends = st.words[q, word, W_ENDS] & mask
    taken = st.words[q, word, W_IMMS] & mask
    refused = popcount64(taken) > posted
    if refused:
        first = taken
        for _ in range(posted):
            first = first & (first - np.uint64(1))
        below = (first & (~first + np.uint64(1))) - np.uint64(1)
        ends = ends & below
        taken = taken & below
    return popcount64(ends), popcount64(taken), refused


@inline_kernel
def _deliver(st, q, ended, imms):
    """Complete messages in order."""
    rsp = st.rsp[q]
    rsp["msn_done"] = np.int64(rsp["msn_done"]) + ended
    rsp["n_delivered"] = np.int64(rsp["n_delivered"]) + ended
    rsp["imm_done"] = np.int64(rsp["imm_done"]) + imms
    rsp["imm_held"] = np.int64(rsp["imm_held"]) - imms
    rsp["recv_posted"] = np.int64(rsp["recv_posted"]) - imms
    st.count[C_DELIVERED] += ended
    st.count[C_IMMS] += imms


@inline_kernel
def _fail(st, q, error):
    rsp = st.rsp[q]
    rsp["state"] = QP_ERROR
    rsp["error"] = error
    st.count[C_ERRORS] += 1


@inline_kernel
def _reverse_alive(st, pf, q, now):
    """Start EV probes, one per base RTT, when something arrives."""
    rsp = st.rsp[q]
    if rsp["rev_on"] == 0:
        rsp["rev_on"] = 1
        rsp["rev_probe_ps"] = now + pf.base_rtt_ps
        rsp["rev_rcvd_bytes"] = np.int64(rsp["rcvd_bytes"])


@inline_kernel
def _duplicate(st, pf, q, now):
    """Count a duplicate; our answers may be what got lost, so the reverse paths are looked after."""
    rsp = st.rsp[q]
    st.count[C_DUP] += 1
    rsp["n_dup"] = np.int64(rsp["n_dup"]) + 1
    if pf.reverse_probes:
        _reverse_alive(st, pf, q, now)
        rsp["rev_rcvd_bytes"] = -1  # something was received since the last EV probe
    return DO_SACK | DO_ACK


@inline_kernel
def _repeat_error(rsp):
    """Return what a half in ERROR says to every packet: its last word may have been lost."""
    if rsp["state"] != QP_ERROR:
        return 0
    return DO_NACK if rsp["error"] == ERR_UNEXPECTED else DO_ACK


@kernel
def on_data(st, pf, q, now, psn, size_bytes, flags, trimmed, marked, entropy):
    """Process a data packet that passed the identity checks of the layer below.

    Parameters
    ----------
    size_bytes
        Payload bytes that count towards the SACK threshold and rcvd_bytes.
    flags
        FLAG_LAST, FLAG_IMM, FLAG_ASK, FLAG_RTX of the packet.
    trimmed
        NOT_TRIMMED, TRIMMED or TRIMMED_LASTHOP (the DSCP).
    marked
        The packet carries CE.

    Returns
    -------
    int
        Bit mask of DO_SACK, DO_ACK, DO_NACK, DELIVERED (place the payload), FAILED.
    """
    rsp = st.rsp[q]
    if rsp["state"] != QP_RTS:
        return _repeat_error(rsp)
    ahead = psn_diff(psn, np.int64(rsp["cack_psn"]))
    if ahead <= 0 and ahead != -0x800000:
        return _duplicate(st, pf, q, now)
    if ahead > np.int64(rsp["window_psns"]) or ahead == -0x800000:
        st.count[C_OOW] += 1
        return DO_NACK if ahead > 0 else 0
    if _bit_is_set(st, pf, q, W_RECEIVED, psn):
        return _duplicate(st, pf, q, now)
    if trimmed != NOT_TRIMMED:
        return DO_NACK
    if pf.reverse_probes:
        _reverse_alive(st, pf, q, now)
    return _accept(st, pf, q, now, psn, size_bytes, flags, marked, entropy)


@inline_kernel
def _accept(st, pf, q, now, psn, size_bytes, flags, marked, entropy):
    """Record a new packet inside the window."""
    rsp = st.rsp[q]
    _set_bit(st, pf, q, W_RECEIVED, psn)
    if flags & (FLAG_LAST | FLAG_ASK):
        if flags & FLAG_LAST:
            _set_bit(st, pf, q, W_ENDS, psn)
        if flags & FLAG_IMM:
            _set_bit(st, pf, q, W_IMMS, psn)
            rsp["imm_held"] = np.int64(rsp["imm_held"]) + 1
            if np.int64(rsp["imm_held"]) > pf.imm_limit:
                _fail(st, q, ERR_UNEXPECTED)
                return DO_NACK | FAILED
        if flags & FLAG_ASK:
            _set_bit(st, pf, q, W_ASKED, psn)
    if psn_after(psn, np.int64(rsp["high_psn"])):
        rsp["high_psn"] = psn
    rsp["ooo_count"] = np.int64(rsp["ooo_count"]) + 1
    rsp["rcvd_bytes"] = np.int64(rsp["rcvd_bytes"]) + size_bytes
    rsp["unsacked_bytes"] = np.int64(rsp["unsacked_bytes"]) + max(size_bytes, pf.sack_min_packet)
    rsp["last_psn"] = psn
    rsp["last_entropy"] = entropy
    if np.int64(rsp["unsacked_since_ps"]) == NEVER_PS:
        rsp["unsacked_since_ps"] = now
    actions = DELIVERED
    if psn == psn_add(np.int64(rsp["cack_psn"]), 1):
        ended, imms, asked, refused = _advance(st, pf, q)
        if ended > 0:
            actions |= DO_ACK
            _deliver(st, q, ended, imms)
        if refused:
            _fail(st, q, ERR_REMOTE_OP)
            return actions | DO_ACK | FAILED
        if asked:
            actions |= DO_SACK
    if np.int64(rsp["unsacked_bytes"]) >= pf.sack_bytes or marked or flags & (FLAG_ASK | FLAG_RTX):
        actions |= DO_SACK
    return actions


@inline_kernel
def reverse_path(st, q):
    """Return the entropy for the next control packet, planes in turn; -1 when none is usable.

    Planes whose last EV probes went unanswered rest unless nothing else is left.
    """
    rsp = st.rsp[q]
    ports = np.int64(rsp["local_ports"]) & np.int64(rsp["peer_ports"])
    planes = np.int64(rsp["n_planes"])
    plane = np.int64(rsp["rev_cursor"])
    fallback = np.int64(-1)
    for _ in range(planes):
        plane += 1
        if plane >= planes:
            plane = 0
        if not (ports >> plane) & 1:
            continue
        if np.int64(st.rev[q, plane]["misses"]) < 2:
            rsp["rev_cursor"] = plane
            return np.int64(st.rev[q, plane]["entropy"])
        if fallback < 0:
            fallback = plane
    if fallback < 0:
        return np.int64(-1)
    rsp["rev_cursor"] = fallback
    return np.int64(st.rev[q, fallback]["entropy"])


@inline_kernel
def refresh_reverse(st, q, plane, entropy):
    """Note that one of our own packets was acknowledged on this path: the reverse path is known good."""
    row = st.rev[q, plane]
    row["entropy"] = entropy
    row["misses"] = 0


@inline_kernel
def _bitmap_at(st, pf, q, psn):
    """Return the 64 received-bits from `psn` on (two words of the ring of words)."""
    position = psn & (pf.words * 64 - 1)
    word = position >> 6
    low = position & 63
    bits = st.words[q, word, W_RECEIVED] >> np.uint64(low)
    if low != 0:
        word += 1
        if word == pf.words:
            word = 0
        bits |= st.words[q, word, W_RECEIVED] << np.uint64(64 - low)
    return bits


@inline_kernel
def _write_bitmap(st, pf, q, from_start, out):
    """Choose the bitmap's base: cack_psn + 1 when all fits in it, else walk the window by 64."""
    rsp = st.rsp[q]
    cack = np.int64(rsp["cack_psn"])
    span = psn_diff(np.int64(rsp["high_psn"]), cack)
    offset = np.int64(1)
    if span > SACK_SPAN and not from_start:
        walk = np.int64(rsp["walk"])
        if walk >= span:
            walk = 0
        offset = walk + 1
        rsp["walk"] = walk + SACK_SPAN
    else:
        rsp["walk"] = SACK_SPAN if span > SACK_SPAN else 0
    bits = _bitmap_at(st, pf, q, psn_add(cack, offset))
    # bits beyond the window belong to nothing: the ring of words wraps there
    room = np.int64(rsp["window_psns"]) - offset + 1
    if room < SACK_SPAN:
        bits &= ~np.uint64(0) >> np.uint64(SACK_SPAN - room)
    out["sack_offset"] = offset
    out["bitmap"] = bits
    out["psn"] = cack


@inline_kernel
def _reported(rsp):
    rsp["unsacked_bytes"] = 0
    rsp["unsacked_since_ps"] = NEVER_PS


@inline_kernel
def _write_sack_common(st, pf, q, from_start, out):
    rsp = st.rsp[q]
    _write_bitmap(st, pf, q, from_start, out)
    out["kind"] = CTRL_SACK
    out["rcvd"] = ((np.int64(rsp["rcvd_bytes"]) + 255) >> 8) & 0xFFFFFF
    out["ooo"] = min(np.int64(rsp["ooo_count"]), 0x7FFF)
    out["mpr"] = 0
    out["path"] = reverse_path(st, q)
    _reported(rsp)
    st.count[C_SACKS] += 1


@kernel
def write_sack(st, pf, q, psn, flags, marked, entropy, tx_stamp, out):
    """Write the SACK that packet `psn` drew; its content is frozen now."""
    _write_sack_common(st, pf, q, (flags & FLAG_ASK) != 0, out)
    out["trigger_psn"] = psn
    out["entropy"] = entropy
    out["tx_stamp"] = tx_stamp
    out["m"] = 1 if marked else 0
    out["pr"] = 0
    out["delayed"] = 0


@kernel
def write_delayed_sack(st, pf, q, out):
    """Write the SACK a timer draws: it echoes the newest packet but no timestamp, so no RTT sample."""
    rsp = st.rsp[q]
    _write_sack_common(st, pf, q, False, out)
    out["trigger_psn"] = rsp["last_psn"]
    out["entropy"] = np.int64(rsp["last_entropy"])
    out["tx_stamp"] = 0
    out["m"] = 0
    out["pr"] = 0
    out["delayed"] = 1


@kernel
def write_probe_sack(st, pf, q, probe_id, marked, entropy, tx_stamp, out):
    """Write the SACK that answers a reliability probe: pr = 1, the bitmap from cack_psn + 1."""
    _write_sack_common(st, pf, q, True, out)
    rsp = st.rsp[q]
    if pf.reverse_probes:  # the peer has not heard us for a while
        if rsp["rev_on"] == 0:
            rsp["rev_on"] = 1
            rsp["rev_probe_ps"] = 0  # at once
        rsp["rev_rcvd_bytes"] = -1
    # back the way it came: that path has just delivered, ours may be what is dead
    out["path"] = entropy
    out["trigger_psn"] = out["psn"]
    out["entropy"] = entropy
    out["tx_stamp"] = tx_stamp
    out["probe_id"] = probe_id
    out["m"] = 1 if marked else 0
    out["pr"] = 1
    out["delayed"] = 0


@kernel
def write_ack(st, q, out):
    """Write a Transport ACK: the newest message completed, or the error that ended the QP."""
    rsp = st.rsp[q]
    out["kind"] = CTRL_ACK
    out["psn"] = rsp["cack_psn"]
    out["msn"] = (np.int64(rsp["msn_done"]) - 1) & 0xFFFF
    error = np.int64(rsp["error"])
    syndrome = SYNDROME_ACK
    if error == ERR_REMOTE_OP:
        syndrome = SYNDROME_OPERATION
    elif error == ERR_REMOTE_ACCESS:
        syndrome = SYNDROME_ACCESS
    elif error == ERR_INVALID_REQUEST:
        syndrome = SYNDROME_INVALID
    out["reason"] = syndrome
    out["path"] = reverse_path(st, q)
    st.count[C_ACKS] += 1


@kernel
def refuse(st, q, error):
    """End the responder half: a packet that passed the identity checks may not do what it asks.

    `error` is ERR_REMOTE_ACCESS or ERR_INVALID_REQUEST; :func:`write_ack` then says so, now and to
    every later packet.
    """
    if st.rsp[q]["state"] == QP_RTS:
        _fail(st, q, error)


@kernel
def write_nack(st, q, psn, trimmed, entropy, tx_stamp, out):
    """Write the NACK a refused packet draws."""
    out["kind"] = CTRL_NACK
    out["psn"] = psn
    out["entropy"] = entropy
    out["tx_stamp"] = tx_stamp
    if trimmed == TRIMMED:
        out["reason"] = REASON_TRIMMED
    elif trimmed == TRIMMED_LASTHOP:
        out["reason"] = REASON_TRIMMED_LASTHOP
    elif np.int64(st.rsp[q]["error"]) == ERR_UNEXPECTED:
        out["reason"] = REASON_UNEXPECTED
    else:
        out["reason"] = REASON_OOR
    out["path"] = reverse_path(st, q)
    st.count[C_NACKS] += 1


@kernel
def next_probe_plane(st, pf, q, now):
    """Choose the plane of the EV probe that is due; -1 when nothing was received since the last one.

    The driver draws a path of that plane and passes it to :func:`try_path`.
    """
    rsp = st.rsp[q]
    if np.int64(rsp["rev_rcvd_bytes"]) == np.int64(rsp["rcvd_bytes"]):
        rsp["rev_probe_ps"] = NEVER_PS
        rsp["rev_on"] = 0
        return np.int64(-1)
    rsp["rev_rcvd_bytes"] = np.int64(rsp["rcvd_bytes"])
    rsp["rev_probe_ps"] = now + pf.base_rtt_ps
    planes = np.int64(rsp["n_planes"])
    ports = np.int64(rsp["local_ports"]) & np.int64(rsp["peer_ports"])
    start = np.int64(rsp["rev_probe_id"])
    up = np.int64(0)
    for plane in range(planes):
        up += (ports >> plane) & 1
    patience = PROBE_PATIENCE_RTTS // max(up, 1)
    for i in range(planes):
        plane = (start + i) % planes
        if (ports >> plane) & 1:
            rsp["rev_probe_id"] = start + i + 1
            row = st.rev[q, plane]
            waiting = np.int64(row["waiting"])
            if 0 < waiting < patience:  # its last EV probe may still be answered
                row["waiting"] = waiting + 1
                return np.int64(-1)
            return plane
    return np.int64(-1)


@kernel
def try_path(st, q, plane, entropy, out):
    """Write an EV probe for `entropy`; the path is adopted when it is answered."""
    row = st.rev[q, plane]
    if row["waiting"] != 0:
        row["misses"] = min(np.int64(row["misses"]) + 1, 255)
    row["trial"] = entropy
    row["waiting"] = 1
    row["id"] = (np.int64(row["id"]) + 1) & 0x0FFF
    out["kind"] = CTRL_EV_PROBE
    out["probe_id"] = np.int64(row["id"]) << 3 | plane
    out["path"] = entropy
    st.count[C_EV_PROBES] += 1


@kernel
def on_path_answer(st, q, probe_id):
    """Adopt the probed path when the answer matches the plane's last EV probe."""
    row = st.rev[q, probe_id & 7]
    if row["waiting"] != 0 and np.int64(row["id"]) == probe_id >> 3:
        row["waiting"] = 0
        row["misses"] = 0
        row["entropy"] = row["trial"]


@inline_kernel
def write_response(request_kind, request_id, path, out):
    """Write an Endpoint Response to a port status update or an EV probe."""
    out["kind"] = CTRL_RESPONSE
    out["reason"] = request_kind
    out["probe_id"] = request_id
    out["path"] = path
