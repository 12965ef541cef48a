"""Links that a fault touches: the slow path of a hop, and who used them until when.

All faults of a run are known before it starts, as time segments per link. So whether a packet is
lost is decided when it enters the link: it is lost if the link is down at any moment while it
crosses, and nothing needs to be taken out of the event wheel.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import draw32, inline_kernel, kernel, mix32
from openmrc.sim.layout import D_CORRUPT, D_DOWN, D_GREY, I

NOMINAL_MULT = 65536
CERTAIN = 1 << 32
OK, LOST, DAMAGED = range(3)
A_USED, A_FULL = I["affected_used"], I["affected_full"]


@kernel
def segment_at(sm, slot, time_ps):
    """Return the segment of a faulted link that holds `time_ps` (binary search)."""
    low = np.int64(sm.seg_first[slot])
    high = np.int64(sm.seg_first[slot + 1])
    while high - low > 1:
        middle = (low + high) >> 1
        if sm.seg_start_ps[middle] <= time_ps:
            low = middle
        else:
            high = middle
    return low


@kernel
def is_down(sm, slot, time_ps):
    """Return True when the faulted link is down at `time_ps`."""
    return sm.seg_down[segment_at(sm, slot, time_ps)] != 0


@kernel
def _down_while_crossing(sm, slot, from_ps, to_ps):
    """Return the segment in which the link is down during [from, to], or -1."""
    seg = segment_at(sm, slot, from_ps)
    end = np.int64(sm.seg_first[slot + 1])
    while seg < end and sm.seg_start_ps[seg] <= to_ps:
        if sm.seg_down[seg] != 0:
            return seg
        seg += 1
    return np.int64(-1)


@inline_kernel
def stay_ps(row):
    """Return the time from the first loss of the present stay on an element to the last packet sent there."""
    first = np.int64(row["first_drop_ps"])
    return np.int64(0) if first < 0 else max(np.int64(row["last_tx_ps"]) - first, 0)


@kernel
def _note_affected(sm, cfg, fault, q, tx_ps, now, lost):
    """Record that a data packet of `q`, sent at `tx_ps`, met this fault on its way."""
    key = ((fault + 1) << 32) | q
    at = mix32(key ^ (key >> 29)) & cfg.affected_mask
    for _ in range(cfg.affected_mask + 1):
        row = sm.affected[at]
        if np.int64(row["key"]) == key:
            break
        if np.int64(row["key"]) == 0:
            if sm.s[A_USED] * 4 > cfg.affected_mask * 3:
                sm.s[A_FULL] += 1
                return
            sm.s[A_USED] += 1
            row["key"] = key
            row["first_drop_ps"] = -1
            row["last_tx_ps"] = -1
            row["first_left_ps"] = -1
            break
        at = (at + 1) & cfg.affected_mask
    row = sm.affected[at]
    last_ps = np.int64(row["last_tx_ps"])
    if last_ps >= 0 and tx_ps - last_ps > cfg.return_gap_ps:  # it had left, and probes brought it back
        row["worst_ps"] = max(np.int64(row["worst_ps"]), stay_ps(row))
        row["first_drop_ps"] = -1
        if np.int64(row["first_left_ps"]) < 0:
            row["first_left_ps"] = last_ps
    if tx_ps > last_ps:
        row["last_tx_ps"] = tx_ps
    if lost:
        row["drops"] = np.int64(row["drops"]) + 1
        if np.int64(row["first_drop_ps"]) < 0:
            row["first_drop_ps"] = now


@kernel
def cross(sm, cfg, slot, link, q, name, enter_ps, leave_ps, line_bytes, is_data, tx_ps):
    """Decide the fate of a packet on a faulted link.

    Parameters
    ----------
    name
        What names this packet's random draws, see `packets.draw_name`.
    enter_ps, leave_ps
        When the packet starts to leave the port, and when its last bit arrives.
    tx_ps
        When its QP sent it (data only).

    Returns
    -------
    tuple of int
        ``(OK, LOST or DAMAGED, drop reason)``.
    """
    seg = _down_while_crossing(sm, slot, enter_ps, leave_ps)
    if seg >= 0:
        fault = np.int64(sm.seg_fault[seg])
        sm.fault_lost[fault] += 1
        if is_data:
            _note_affected(sm, cfg, fault, q, tx_ps, enter_ps, True)
        return LOST, np.int64(D_DOWN)
    seg = segment_at(sm, slot, enter_ps)
    fault = np.int64(sm.seg_fault[seg])
    if fault < 0:
        if is_data:
            _note_return(sm, slot, seg, tx_ps)
        return OK, np.int64(0)
    draw = draw32(cfg.fault_seed ^ link, (q << 24) ^ name, enter_ps)
    chance = np.int64(sm.seg_loss[seg]) + min((line_bytes * np.int64(sm.seg_ber[seg])) >> 18, CERTAIN)
    lost = draw < chance
    # whoever uses a lossy element is affected, lost or not; a slow or long one loses nothing
    if is_data and chance > 0:
        _note_affected(sm, cfg, fault, q, tx_ps, enter_ps, lost)
    if lost:
        sm.fault_lost[fault] += 1
        reason = np.int64(sm.seg_reason[seg])
        return LOST, reason if reason != D_CORRUPT else np.int64(D_GREY)
    corrupt = np.int64(sm.seg_corrupt[seg])
    if corrupt > 0 and draw32(cfg.fault_seed ^ link ^ 0x5A5A, (q << 24) ^ name, enter_ps) < corrupt:
        sm.fault_lost[fault] += 1
        if is_data:
            _note_affected(sm, cfg, fault, q, tx_ps, enter_ps, True)
        return DAMAGED, np.int64(D_CORRUPT)
    return OK, np.int64(0)


@inline_kernel
def _note_return(sm, slot, seg, tx_ps):
    """Record the first data packet that was sent after a fault ended and crosses its element."""
    if seg > np.int64(sm.seg_first[slot]):
        before = np.int64(sm.seg_fault[seg - 1])
        if before >= 0 and sm.fault_back_ps[before] < 0 and tx_ps >= sm.seg_start_ps[seg]:
            sm.fault_back_ps[before] = tx_ps


@kernel
def rate_and_latency(sm, slot, time_ps):
    """Return (serialisation multiplier in 1/65536, extra latency) of a faulted link."""
    seg = segment_at(sm, slot, time_ps)
    return np.int64(sm.seg_rate_mult[seg]), np.int64(sm.seg_latency_ps[seg])
