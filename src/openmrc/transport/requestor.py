"""The sending half of a QP: posting messages, choosing the next packet, committing it.

The driver asks in two steps, because only it knows when a port really sends:
:func:`select` says which packet may go where (nothing changes but the EV rotation), and
:func:`commit` records that it went, with its send time.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel
from openmrc.psn import PSN_HALF, PSN_MASK, psn_add, psn_after, psn_diff
from openmrc.transport.evset import NO_EV, NO_PATH, choose
from openmrc.transport.state import (
    COUNTER_INDEX,
    QP_ERROR,
    QP_RTS,
    SLOT_FREE,
    SLOT_INFLIGHT,
    SLOT_LOST,
)

# what select() answers
SEND, IDLE, WINDOW, PACED, NO_ROOM, PATHLESS = range(6)
# flags of a data packet
FLAG_FIRST, FLAG_LAST, FLAG_IMM, FLAG_ASK, FLAG_RTX = 1, 2, 4, 8, 16

C_DATA = COUNTER_INDEX["data_packets"]
C_RTX = COUNTER_INDEX["retransmitted"]
C_POSTED = COUNTER_INDEX["messages_posted"]
C_NO_PATH = COUNTER_INDEX["no_path"]
C_ERRORS = COUNTER_INDEX["qp_errors"]


@inline_kernel
def packets_of(length, pmtu_bytes):
    """Return how many packets a message of `length` bytes takes; a zero-length one takes one."""
    return max((length + pmtu_bytes - 1) // pmtu_bytes, 1)


@kernel
def post(st, pf, q, now, length, imm, wr_id):
    """Queue a WRITE (or WRITE_IMM) of `length` bytes; False when the send queue is full."""
    req = st.req[q]
    depth = st.sq.shape[1]
    tail = np.int64(req["sq_tail"])
    if tail - np.int64(req["sq_head"]) >= depth or req["state"] != QP_RTS:
        return False
    packets = packets_of(length, pf.pmtu_bytes)
    queued = (np.int64(req["end_psn"]) - np.int64(req["una_psn"])) & PSN_MASK
    if queued + packets >= PSN_HALF:  # PSNs further apart have no order: the queue is full
        return False
    message = st.sq[q, tail & (depth - 1)]
    message["first_psn"] = np.int64(req["end_psn"])
    message["packets"] = packets
    message["length"] = length
    message["wr_id"] = wr_id
    message["imm"] = imm
    message["rqmsn"] = np.int64(req["rqmsn"]) & 0xFFFF
    if imm:
        req["rqmsn"] = np.int64(req["rqmsn"]) + 1
    if tail == np.int64(req["sq_head"]):  # the queue was empty: silence begins now
        req["heard_ps"] = now
        req["rto_base_ps"] = now
        req["tail_count"] = 0
    if np.int64(req["next_psn"]) == np.int64(req["end_psn"]):
        req["sq_send"] = tail  # all earlier messages are sent
    req["sq_tail"] = tail + 1
    req["end_psn"] = psn_add(np.int64(req["end_psn"]), packets)
    st.count[C_POSTED] += 1
    return True


@inline_kernel
def _payload(pf, message, index):
    """Return the payload bytes of packet `index` of a message."""
    length = np.int64(message["length"])
    return min(length - index * pf.pmtu_bytes, pf.pmtu_bytes)


@inline_kernel
def wire_bytes(pf, payload, imm_last):
    """Return a data packet's size from the outer IPv6 header to the ICRC (payload padded to 4)."""
    size = pf.overhead_bytes + ((payload + 3) & ~3)
    if imm_last:
        size += pf.imm_bytes
    return size


@inline_kernel
def find_message(st, q, psn):
    """Return the queue position (MSN, not wrapped) of the message that holds `psn`."""
    req = st.req[q]
    depth = st.sq.shape[1]
    position = np.int64(req["sq_send"])
    while position > np.int64(req["sq_head"]):
        if psn_diff(psn, np.int64(st.sq[q, position & (depth - 1)]["first_psn"])) >= 0:
            break
        position -= 1
    return position


@inline_kernel
def has_data(req):
    """Return True when the QP has packets to send, window or not."""
    return np.int64(req["lost_count"]) > 0 or np.int64(req["next_psn"]) != np.int64(req["end_psn"])


@kernel
def _next_lost(st, pf, q):
    """Return the oldest packet declared lost and move the hint there."""
    req = st.req[q]
    psn = np.int64(req["lost_hint_psn"])
    while st.ring[q, psn & pf.ring_mask]["state"] != SLOT_LOST:
        psn = psn_add(psn, 1)
        assert psn_diff(psn, np.int64(req["next_psn"])) < 0
    req["lost_hint_psn"] = psn
    return psn


@inline_kernel
def _window_is_open(st, pf, q, psn):
    """Return True when `psn` is inside the responder's window and the send ring has its slot."""
    req = st.req[q]
    ahead = psn_diff(psn, np.int64(req["una_psn"]))
    return ahead < np.int64(req["window_psns"]) and ahead <= pf.ring_mask


@inline_kernel
def pace_deadline(st, pf, q):
    """Return when pacing lets the next packet go: srtt x MTU / cwnd after the last, by the window of now."""
    req = st.req[q]
    cwnd = np.int64(st.cc[np.int64(req["cc"])]["cwnd_q16"]) >> 16
    mtu = pf.mtu_bytes + pf.overhead_bytes
    if cwnd >= mtu:
        return np.int64(0)
    return np.int64(req["last_tx_ps"]) + np.int64(req["srtt_ps"]) * mtu // max(cwnd, 1)


@inline_kernel
def _congestion_allows(st, pf, q, now, size):
    """Return SEND, WINDOW or PACED for a packet of `size` wire bytes."""
    cc = st.cc[np.int64(st.req[q]["cc"])]
    cwnd = np.int64(cc["cwnd_q16"]) >> 16
    inflight = np.int64(cc["inflight"])
    if inflight + size <= cwnd:
        return SEND
    # nothing in flight: one packet may always go (a full one with ImmDt is larger than 1 MTU of window);
    # below one packet of window the next waits srtt x MTU / cwnd after the last
    if inflight <= 0:
        return PACED if now < pace_deadline(st, pf, q) else SEND
    return WINDOW


@inline_kernel
def select(st, pf, q, now, room):
    """Say what direction `q` may send now.

    Parameters
    ----------
    room
        Bit mask of the local ports that can take a packet.

    Returns
    -------
    tuple of int
        ``(verdict, psn, ev_row, size, position)``: verdict is SEND, IDLE (nothing queued), WINDOW
        (cwnd, responder window or WRITE_IMM limit), PACED (see :func:`pace_deadline`), NO_ROOM, or
        PATHLESS (no plane can carry data). `size` is in wire bytes from the outer IPv6 header to
        the ICRC, `position` the message's place in the send queue.
    """
    req = st.req[q]
    depth = st.sq.shape[1]
    if req["state"] != QP_RTS:
        return IDLE, np.int64(0), np.int64(NO_EV), np.int64(0), np.int64(0)
    if np.int64(req["lost_count"]) > 0:
        psn = _next_lost(st, pf, q)
        size = np.int64(st.ring[q, psn & pf.ring_mask]["size"])
        position = find_message(st, q, psn)
    else:
        psn = np.int64(req["next_psn"])
        if psn == np.int64(req["end_psn"]):
            return IDLE, psn, np.int64(NO_EV), np.int64(0), np.int64(0)
        if not _window_is_open(st, pf, q, psn):
            return WINDOW, psn, np.int64(NO_EV), np.int64(0), np.int64(0)
        position = np.int64(req["sq_send"])
        message = st.sq[q, position & (depth - 1)]
        index = psn_diff(psn, np.int64(message["first_psn"]))
        imm = message["imm"] != 0
        if imm and index == 0 and np.int64(req["imm_outstanding"]) >= pf.imm_limit:
            return WINDOW, psn, np.int64(NO_EV), np.int64(0), np.int64(0)
        last = index == np.int64(message["packets"]) - 1
        size = wire_bytes(pf, _payload(pf, message, index), imm and last)
    verdict = _congestion_allows(st, pf, q, now, size)
    if verdict != SEND:
        return verdict, psn, np.int64(NO_EV), size, position
    row = choose(st, q, room)
    if row == NO_PATH:
        if req["no_path"] == 0:
            req["no_path"] = 1
            st.count[C_NO_PATH] += 1
        return PATHLESS, psn, row, size, position
    if row < 0:
        return NO_ROOM, psn, row, size, position
    return SEND, psn, row, size, position


@inline_kernel
def _asks_for_sack(st, pf, q):
    """Return True when this packet carries the A bit: the last one we may send for now."""
    req = st.req[q]
    cc = st.cc[np.int64(req["cc"])]
    next_new = np.int64(req["next_psn"])
    nothing_more = np.int64(req["lost_count"]) == 0 and next_new == np.int64(req["end_psn"])
    full = np.int64(cc["inflight"]) + pf.mtu_bytes > np.int64(cc["cwnd_q16"]) >> 16
    return nothing_more or full or not _window_is_open(st, pf, q, next_new)


@inline_kernel
def commit(st, pf, q, psn, row, size, position, tx_ps):
    """Record that the packet `select` named was sent at `tx_ps`; returns its flags."""
    req = st.req[q]
    depth = st.sq.shape[1]
    slot = st.ring[q, psn & pf.ring_mask]
    message = st.sq[q, position & (depth - 1)]
    index = psn_diff(psn, np.int64(message["first_psn"]))
    flags = np.int64(0)
    if index == 0:
        flags |= FLAG_FIRST
    if index == np.int64(message["packets"]) - 1:
        flags |= FLAG_LAST
        if message["imm"] != 0:
            flags |= FLAG_IMM
    if psn == np.int64(req["next_psn"]):
        req["next_psn"] = psn_add(psn, 1)
        if psn == np.int64(req["una_psn"]):  # nothing was in flight: silence and timeout begin here
            req["rto_base_ps"] = tx_ps
            req["heard_ps"] = tx_ps
            req["tail_count"] = 0
        slot["count"] = 1
        slot["flags"] = 0
        if index == 0 and message["imm"] != 0:
            req["imm_outstanding"] = np.int64(req["imm_outstanding"]) + 1
        if (flags & FLAG_LAST) and np.int64(req["next_psn"]) != np.int64(req["end_psn"]):
            req["sq_send"] = position + 1
        st.count[C_DATA] += 1
        req["n_data"] = np.int64(req["n_data"]) + 1
    else:
        flags |= FLAG_RTX
        req["lost_count"] = np.int64(req["lost_count"]) - 1
        slot["count"] = min(np.int64(slot["count"]) + 1, 255)
        st.count[C_RTX] += 1
        req["n_rtx"] = np.int64(req["n_rtx"]) + 1
    _enter_flight(st, pf, q, slot, row, size, tx_ps)
    if _asks_for_sack(st, pf, q):
        flags |= FLAG_ASK
    return flags


@inline_kernel
def _enter_flight(st, pf, q, slot, row, size, tx_ps):
    """Fill the ring slot and charge window, EV and timers."""
    req = st.req[q]
    cc = st.cc[np.int64(req["cc"])]
    ev = st.ev[q, row]
    ordinal = (np.int64(ev["sent"]) + 1) & 0xFF
    ev["sent"] = ordinal
    slot["state"] = SLOT_INFLIGHT
    slot["tx_ps"] = tx_ps
    slot["ev"] = row
    slot["size"] = size
    slot["ordinal"] = ordinal
    cc["inflight"] = np.int64(cc["inflight"]) + size
    req["no_path"] = 0
    req["last_tx_ps"] = tx_ps


@inline_kernel
def mark_lost(st, pf, q, psn):
    """Take one packet out of flight and queue it for retransmission; its size is returned."""
    req = st.req[q]
    slot = st.ring[q, psn & pf.ring_mask]
    cc = st.cc[np.int64(req["cc"])]
    size = np.int64(slot["size"])
    assert slot["state"] == SLOT_INFLIGHT
    slot["state"] = SLOT_LOST
    cc["inflight"] = np.int64(cc["inflight"]) - size
    if np.int64(req["lost_count"]) == 0 or psn_after(np.int64(req["lost_hint_psn"]), psn):
        req["lost_hint_psn"] = psn
    req["lost_count"] = np.int64(req["lost_count"]) + 1
    return size


@inline_kernel
def is_idle(req):
    """Return True when every posted message has completed."""
    return np.int64(req["sq_head"]) == np.int64(req["sq_tail"])


@inline_kernel
def is_waiting(req):
    """Return True while the peer owes us something, or no path lets us send what we owe.

    It owes SACKs of what is in flight, and a Transport ACK of every message that has left completely.
    """
    in_flight = np.int64(req["una_psn"]) != np.int64(req["next_psn"])
    left = np.int64(req["sq_head"]) != np.int64(req["sq_send"]) or not has_data(req)
    return not is_idle(req) and (in_flight or left or req["no_path"] != 0)


@kernel
def enter_error(st, q, error):
    """Put the requestor into ERROR. Nothing of it is in flight any more: a shared window is free again."""
    req = st.req[q]
    if req["state"] != QP_RTS:
        return
    req["state"] = QP_ERROR
    req["error"] = error
    st.count[C_ERRORS] += 1
    cc = st.cc[np.int64(req["cc"])]
    psn = np.int64(req["una_psn"])
    while psn != np.int64(req["next_psn"]):
        slot = st.ring[q, psn & (st.ring.shape[1] - 1)]
        if slot["state"] == SLOT_INFLIGHT:
            cc["inflight"] = np.int64(cc["inflight"]) - np.int64(slot["size"])
            slot["state"] = SLOT_FREE
        psn = psn_add(psn, 1)
