"""What the requestor learns from SACKs, NACKs and Transport ACKs.

SACKs drive reliability, Transport ACKs drive completion; both advance the window.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import ctz64, inline_kernel, kernel
from openmrc.psn import msn_diff, psn_add, psn_after, psn_diff, rcvd_bytes_diff
from openmrc.transport import ev_states, nscc
from openmrc.transport.evset import NO_EV, apply_event, find_entropy
from openmrc.transport.loss import NO_PROBE, clear_suspicion, scan
from openmrc.transport.probes import on_probe_answer
from openmrc.transport.requestor import enter_error, mark_lost
from openmrc.transport.state import (
    COUNTER_INDEX,
    ERR_INVALID_REQUEST,
    ERR_REMOTE_ACCESS,
    ERR_REMOTE_OP,
    ERR_RETRY_EXCEEDED,
    ERR_UNEXPECTED,
    QP_RTS,
    SLOT_ACKED,
    SLOT_INFLIGHT,
    SLOT_LOST,
)
from openmrc.transport.timers import charge

ASSUMED_BAD = int(ev_states.ASSUMED_BAD)
EXONERATED = int(ev_states.EXONERATED)
MARKED = int(ev_states.MARKED)
TRIMMED = int(ev_states.TRIMMED)
PERSISTENT = int(ev_states.PERSISTENT)

# SETH.m
M_NONE, M_SKIP_ONCE, M_ALWAYS_SKIP = 0, 1, 2
# NACK reasons
NACK_TRIMMED, NACK_TRIMMED_LASTHOP = 0x01, 0x02
NACK_NO_BITMAP, NACK_NO_PKT_BUFFER, NACK_NO_RESOURCE = 0x06, 0x07, 0x0A
NACK_PSN_OOR_WINDOW, NACK_UNEXP_EVENT = 0x0B, 0x19
# Transport ACK syndromes
SYNDROME_ACK, SYNDROME_INVALID, SYNDROME_ACCESS, SYNDROME_OPERATION = 0x1F, 0x61, 0x62, 0x63

STAMP_PS = 128_000  # TSETH counts 128 ns

C_FALSE = COUNTER_INDEX["false_condemned"]
C_TRIM_NACKS = COUNTER_INDEX["trim_nacks"]
C_STALE_NACKS = COUNTER_INDEX["stale_nacks"]
C_LATE = COUNTER_INDEX["late_acks"]
C_INVALID = COUNTER_INDEX["invalid_acks"]
C_COMPLETED = COUNTER_INDEX["messages_completed"]


@inline_kernel
def stamp_of(tx_ps):
    """Return the 16-bit TSETH timestamp of a send time."""
    return (tx_ps // STAMP_PS) & 0xFFFF


@inline_kernel
def _exonerate(st, pf, q, row, now):
    """A packet declared lost on this EV arrived after all: count it and use the EV again."""
    st.count[C_FALSE] += 1
    if row >= 0 and st.ev[q, row]["state"] == ASSUMED_BAD:
        apply_event(st, pf, q, row, EXONERATED, now)


@inline_kernel
def _note_arrival(st, q, slot):
    """Record evidence from a PSN sent once; returns True when its EV shows a gap before it."""
    req = st.req[q]
    tx_ps = np.int64(slot["tx_ps"])
    if tx_ps > np.int64(req["newest_tx_ps"]):
        req["newest_tx_ps"] = tx_ps
    ev = st.ev[q, np.int64(slot["ev"])]
    ahead = (np.int64(slot["ordinal"]) - np.int64(ev["arrived"])) & 0xFF
    gap = False
    if 0 < ahead < 128:
        ev["arrived"] = slot["ordinal"]
        gap = ahead > 1
    if ev["state"] < ASSUMED_BAD and tx_ps > np.int64(ev["clock_ps"]):
        ev["clock_ps"] = tx_ps
    return gap


@inline_kernel
def _ack_packet(st, pf, q, psn, now, certain):
    """Acknowledge one packet. Returns (newly acknowledged wire bytes, an EV shows a gap).

    `certain`: the echo says that it is the newest transmission that arrived, so it is evidence
    although the PSN was sent more than once.
    """
    req = st.req[q]
    slot = st.ring[q, psn & pf.ring_mask]
    state = slot["state"]
    gap = False
    size = np.int64(slot["size"])
    if state == SLOT_INFLIGHT:
        cc = st.cc[np.int64(req["cc"])]
        cc["inflight"] = np.int64(cc["inflight"]) - size
        if slot["count"] == 1 or certain:
            gap = _note_arrival(st, q, slot)
    elif state == SLOT_LOST:  # declared lost, not sent again: the original arrived
        req["lost_count"] = np.int64(req["lost_count"]) - 1
        _exonerate(st, pf, q, np.int64(slot["ev"]), now)
    clear_suspicion(st, q, slot)
    slot["state"] = SLOT_ACKED
    return size, gap


@inline_kernel
def _word_range(low, count):
    """Return a uint64 with `count` (1..64) one bits from bit `low`; low + count <= 64."""
    ones = ~np.uint64(0) >> np.uint64(64 - count)
    return ones << np.uint64(low)


@inline_kernel
def _ack_bits(st, pf, q, start_psn, count, arrived, now):
    """Acknowledge the PSNs start_psn + i whose bit i is set in `arrived` and not yet acknowledged.

    All lie in one word of the ring's bitmap. Returns (bytes, gap).
    """
    position = start_psn & pf.ring_mask
    word = position >> 6
    low = position & 63
    new = (arrived << np.uint64(low)) & _word_range(low, count) & ~st.acked[q, word]
    st.acked[q, word] |= new
    total = np.int64(0)
    gap = False
    base = start_psn - low
    while new != np.uint64(0):
        bit = ctz64(new)
        new = new & (new - np.uint64(1))
        size, one_gap = _ack_packet(st, pf, q, psn_add(base, bit), now, False)
        total += size
        gap = gap or one_gap
    return total, gap


@kernel
def _advance(st, pf, q, cack, now):
    """Move the window's edge to `cack`, acknowledging everything up to it. Returns (bytes, gap)."""
    req = st.req[q]
    total = np.int64(0)
    gap = False
    una = np.int64(req["una_psn"])
    left = psn_diff(cack, una) + 1
    while left > 0:
        low = una & pf.ring_mask & 63
        count = min(left, 64 - low)
        size, one_gap = _ack_bits(st, pf, q, una, count, ~np.uint64(0), now)
        total += size
        gap = gap or one_gap
        st.acked[q, (una & pf.ring_mask) >> 6] &= ~_word_range(low, count)  # the slots are free again
        una = psn_add(una, count)
        left -= count
    req["una_psn"] = una
    req["rto_base_ps"] = now
    req["retries"] = 0
    if np.int64(req["lost_count"]) > 0 and psn_after(una, np.int64(req["lost_hint_psn"])):
        req["lost_hint_psn"] = una
    return total, gap


@kernel
def _ack_bitmap(st, pf, q, start_psn, bitmap, now):
    """Acknowledge what a SACK's bitmap shows. Returns (bytes, gap, missing).

    `missing` has the bits of PSNs that were sent and are clear in the bitmap.
    """
    req = st.req[q]
    una = np.int64(req["una_psn"])
    skip = psn_diff(una, start_psn)  # bits below the window's edge say nothing new
    limit = psn_diff(np.int64(req["next_psn"]), start_psn)  # never beyond what was sent
    limit = min(limit, 64)
    first = max(skip, 0)
    if first >= limit:
        return np.int64(0), False, np.uint64(0)
    total = np.int64(0)
    gap = False
    at = first
    while at < limit:
        psn = psn_add(start_psn, at)
        count = min(limit - at, 64 - (psn & pf.ring_mask & 63))
        size, one_gap = _ack_bits(st, pf, q, psn, count, bitmap >> np.uint64(at), now)
        total += size
        gap = gap or one_gap
        at += count
    missing = ~bitmap & _word_range(first, limit - first)
    return total, gap, missing


@inline_kernel
def _sample_rtt(st, now, q, rtt):
    """Fold one RTT into the smoothed RTT and its mean deviation (RFC 6298 weights)."""
    req = st.req[q]
    srtt = np.int64(req["srtt_ps"])
    error = rtt - srtt
    req["srtt_ps"] = srtt + (error >> 3)
    deviation = np.int64(req["rttdev_ps"])
    req["rttdev_ps"] = deviation + ((abs(error) - deviation) >> 2)


@inline_kernel
def _echoed(st, pf, q, psn, entropy, stamp):
    """Find what a SACK echoes. Returns (EV row or NO_EV, it is the slot's current transmission)."""
    slot = st.ring[q, psn & pf.ring_mask]
    row = np.int64(slot["ev"])
    current = False
    if np.int64(st.ev[q, row]["entropy"]) == entropy:
        current = stamp_of(np.int64(slot["tx_ps"])) == stamp
    elif pf.ecmp == 0:
        row = np.int64(NO_EV)
    return row, current


@inline_kernel
def _is_sane(st, q, cack, trigger_psn):
    """Return False when a SACK or ACK acknowledges what was never sent."""
    next_psn = np.int64(st.req[q]["next_psn"])
    return psn_diff(next_psn, cack) > 0 and psn_diff(next_psn, trigger_psn) > 0


@kernel
def _trigger(st, pf, q, now, sack):
    """Account for the packet that drew a SACK. Returns (EV row, RTT sample, bytes, gap)."""
    req = st.req[q]
    psn = np.int64(sack["trigger_psn"])
    entropy = np.int64(sack["entropy"])
    row, current = _echoed(st, pf, q, psn, entropy, np.int64(sack["tx_stamp"]))
    rtt = np.int64(nscc.NO_SAMPLE)
    size = np.int64(0)
    gap = False
    inside = psn_diff(psn, np.int64(req["una_psn"])) >= 0
    if not inside:
        st.count[C_LATE] += 1
        if row < 0 and (np.int64(req["bad_total"]) > 0 or sack["m"] != 0):
            row = find_entropy(st, q, entropy)
        slot = st.ring[q, psn & pf.ring_mask]
        kept = np.int64(slot["count"]) > 1 and psn_diff(np.int64(req["next_psn"]), psn) <= pf.ring_mask + 1
        if (
            kept
            and row >= 0
            and not current
            and st.ev[q, row]["state"] == ASSUMED_BAD
            and sack["delayed"] == 0
        ):
            _exonerate(st, pf, q, row, now)  # the original of a packet since repaired
        return row, rtt, size, gap
    slot = st.ring[q, psn & pf.ring_mask]
    if slot["state"] == SLOT_INFLIGHT:
        if current and sack["delayed"] == 0 and np.int64(slot["count"]) <= 2:
            rtt = now - np.int64(slot["tx_ps"])
        if (
            not current and sack["delayed"] == 0 and np.int64(slot["count"]) > 1
        ):  # the original of a packet sent again
            row = find_entropy(st, q, entropy)
            _exonerate(st, pf, q, row, now)
    word = (psn & pf.ring_mask) >> 6
    if (st.acked[q, word] >> np.uint64(psn & 63)) & np.uint64(1) == np.uint64(0):
        st.acked[q, word] |= np.uint64(1) << np.uint64(psn & 63)
        size, gap = _ack_packet(st, pf, q, psn, now, current and sack["delayed"] == 0)
    return row, rtt, size, gap


@inline_kernel
def _is_fresh(req, sack):
    """Return True when this SACK was made after every other one seen (rcvd_bytes tells the order)."""
    rcvd = np.int64(sack["rcvd"])
    fresh = req["sack_seen"] == 0 or rcvd_bytes_diff(rcvd, np.int64(req["newest_rcvd"])) > 0
    if fresh:
        req["sack_seen"] = 1
        req["newest_rcvd"] = rcvd
    return fresh


@kernel
def on_sack(st, pf, q, now, sack, penalty, restore):
    """Process a SACK (a CONTROL row) for direction `q`; False when it was refused as impossible."""
    req = st.req[q]
    if req["state"] != QP_RTS:
        return False
    cack = np.int64(sack["psn"])
    is_probe_answer = sack["pr"] != 0
    trigger_psn = cack if is_probe_answer else np.int64(sack["trigger_psn"])
    if not _is_sane(st, q, cack, trigger_psn):
        st.count[C_INVALID] += 1
        return False
    req["heard_ps"] = now
    req["tail_count"] = 0
    fresh = _is_fresh(req, sack)
    probe_row = np.int64(NO_PROBE)
    probe_tx_ps = np.int64(-1)
    row = np.int64(NO_EV)
    rtt = np.int64(nscc.NO_SAMPLE)
    n = np.int64(0)
    gap = False
    if is_probe_answer:
        probe_row, probe_tx_ps = on_probe_answer(
            st, pf, q, now, np.int64(sack["probe_id"]), sack["m"] == M_SKIP_ONCE
        )
    else:
        row, rtt, n, gap = _trigger(st, pf, q, now, sack)
    if psn_diff(cack, np.int64(req["una_psn"])) >= 0:
        size, one_gap = _advance(st, pf, q, cack, now)
        n += size
        gap = gap or one_gap
    offset = np.int64(sack["sack_offset"])
    size, one_gap, missing = _ack_bitmap(st, pf, q, psn_add(cack, offset), np.uint64(sack["bitmap"]), now)
    n += size
    gap = gap or one_gap
    marked = sack["m"] == M_SKIP_ONCE and not is_probe_answer
    if row >= 0:
        if marked and pf.skip_on_ecn:
            apply_event(st, pf, q, row, MARKED, now)
        elif sack["m"] == M_ALWAYS_SKIP:
            apply_event(st, pf, q, row, PERSISTENT, now)
    holes = missing != np.uint64(0) or offset > 1
    if pf.exact_bitmap and (fresh or probe_row != NO_PROBE) and holes:
        scan(st, pf, q, now, cack, offset, missing, fresh, gap, probe_row, probe_tx_ps)
    if rtt != nscc.NO_SAMPLE:
        _sample_rtt(st, now, q, rtt)
    nscc.on_ack(pf, st.cc[np.int64(req["cc"])], now, n, marked, rtt, penalty, restore)
    if sack["mpr"] > 0:
        req["window_psns"] = min(np.int64(sack["mpr"]) * 128, 255 * 128)
    return True


@kernel
def on_nack(st, pf, q, now, nack):
    """Process a NACK (a CONTROL row); False when it matches no transmission in flight."""
    req = st.req[q]
    reason = np.int64(nack["reason"])
    if req["state"] != QP_RTS:
        return False
    if reason == NACK_UNEXP_EVENT:
        enter_error(st, q, ERR_UNEXPECTED)
        return True
    req["heard_ps"] = now
    req["tail_count"] = 0
    psn = np.int64(nack["psn"])
    trimmed = reason == NACK_TRIMMED or reason == NACK_TRIMMED_LASTHOP
    inside = psn_diff(psn, np.int64(req["una_psn"])) >= 0 and psn_diff(np.int64(req["next_psn"]), psn) > 0
    slot = st.ring[q, psn & pf.ring_mask]
    row, current = _echoed(st, pf, q, psn, np.int64(nack["entropy"]), np.int64(nack["tx_stamp"]))
    if not inside or not current or slot["state"] != SLOT_INFLIGHT:
        st.count[C_STALE_NACKS] += 1
        if inside and slot["state"] == SLOT_LOST and current and trimmed:
            _exonerate(st, pf, q, row, now)  # it was trimmed, not lost: the path is fine
        if pf.nack_must_match == 0 and trimmed:
            nscc.on_trim(pf, st.cc[np.int64(req["cc"])], now, pf.mtu_bytes + pf.overhead_bytes)
        return False
    clear_suspicion(st, q, slot)
    size = mark_lost(st, pf, q, psn)
    if trimmed:
        st.count[C_TRIM_NACKS] += 1
        req["n_trim_nacks"] = np.int64(req["n_trim_nacks"]) + 1
        nscc.on_trim(pf, st.cc[np.int64(req["cc"])], now, size)
        if reason == NACK_TRIMMED:
            apply_event(st, pf, q, row, TRIMMED, now)
    elif charge(st, pf, q, now):
        enter_error(st, q, ERR_RETRY_EXCEEDED)
    return True


@inline_kernel
def _error_of(syndrome):
    if syndrome == SYNDROME_INVALID:
        return ERR_INVALID_REQUEST
    if syndrome == SYNDROME_ACCESS:
        return ERR_REMOTE_ACCESS
    return ERR_REMOTE_OP


@kernel
def on_transport_ack(st, pf, q, now, ack):
    """Process a Transport ACK (a CONTROL row); returns how many messages completed, oldest first.

    Their send queue entries are those at ``sq_head - n .. sq_head - 1`` afterwards.
    """
    req = st.req[q]
    if req["state"] != QP_RTS:
        return np.int64(0)
    cack = np.int64(ack["psn"])
    head = np.int64(req["sq_head"])
    position = head + msn_diff(np.int64(ack["msn"]), head & 0xFFFF)
    depth = st.sq.shape[1]
    sane = _is_sane(st, q, cack, cack) and position < np.int64(req["sq_tail"])
    if sane and position >= head:
        message = st.sq[q, position & (depth - 1)]
        end = psn_add(np.int64(message["first_psn"]), np.int64(message["packets"]))
        sane = psn_diff(cack, end) >= -1
    if not sane:
        st.count[C_INVALID] += 1
        return np.int64(0)
    req["heard_ps"] = now
    req["tail_count"] = 0
    if psn_diff(cack, np.int64(req["una_psn"])) >= 0:
        n, _ = _advance(st, pf, q, cack, now)
        nscc.on_ack(pf, st.cc[np.int64(req["cc"])], now, n, False, nscc.NO_SAMPLE, 0, False)
    done = max(position - head + 1, 0)
    for i in range(done):
        if st.sq[q, (head + i) & (depth - 1)]["imm"] != 0:
            req["imm_outstanding"] = np.int64(req["imm_outstanding"]) - 1
    if done > 0:
        req["sq_head"] = head + done
        req["rto_base_ps"] = now
        req["retries"] = 0
        st.count[C_COMPLETED] += done
    syndrome = np.int64(ack["reason"])
    if syndrome != SYNDROME_ACK:
        enter_error(st, q, _error_of(syndrome))
    return done
