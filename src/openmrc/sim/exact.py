"""The exact port model: two real queues per output port, one packet in service, dequeue events.

Data and control wait in a FIFO each; whenever the line is free the head of the control queue goes
first, else that of the data queue. A packet in service is never interrupted. Thus 1 to 2 events a hop:
one for the packet, and a dequeue where it had to wait.

What is decided when:

* at arrival: room and trimming, on the bytes really queued: those that wait and what is still unsent of
  the packet in service;
* when service starts: the ECN mark, on the data bytes left waiting behind (marking at dequeue), and the
  fate on a faulty link, for the interval in which the packet really crosses it. A link that is down
  goes on draining its queue: those packets are lost.

The layer table holds thresholds as times at the nominal rate; bytes are compared as their nominal time.

``PORT.data_free_ps`` is kept in this model, too: when the line will have sent all that is queued. The
order of service does not change it, so the NIC's rule for room and its estimate of a packet's
departure are those of the fast model (control packets that overtake later delay it by their own time).
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel, merged_kernel
from openmrc.sim.faulty import DAMAGED, LOST, cross, rate_and_latency
from openmrc.sim.layout import (
    D_CONTROL,
    D_QUEUE,
    E_DEQUEUE,
    E_PACKET,
    HOP_MASK,
    HOP_SHIFT,
    KIND_SHIFT,
    L_AFTER,
    L_CAPACITY,
    L_CONTROL_CAPACITY,
    L_DELAY,
    L_ECN_ON,
    L_MULT,
    L_TRIM,
    P_CE,
    P_CONTROL,
    P_DAMAGED,
    P_TRIM_SHIFT,
    P_TRIMMED,
    P_TRIMMED_LASTHOP,
    P_WHOLE,
    SEQ_SHIFT,
    I,
)
from openmrc.sim.packets import draw_name, drop, ecn_marks, is_strict, line_bytes_of, record_wait
from openmrc.sim.trace import trace_hop
from openmrc.sim.wheel import push

HOPS_DATA, HOPS_CONTROL, TRIMMED_COUNT, MARKED_COUNT = (
    I["hops_data"],
    I["hops_control"],
    I["trimmed"],
    I["marked"],
)
QUEUED_FREE, N_QUEUED_FREE, OVERFLOW = I["queued_free"], I["n_queued_free"], I["overflow"]


@inline_kernel
def _line_free_ps(row):
    """Return when the packet in service, if any, has left."""
    return max(np.int64(row["data_until_ps"]), np.int64(row["control_until_ps"]))


@inline_kernel
def _anything_waits(row):
    # PFC, when it comes, is asked here and in `dequeue`: a paused class does not count
    return row["data_head"] >= 0 or row["control_head"] >= 0


@inline_kernel
def _queued_ps(sm, fault, waiting_bytes, until_ps, layer, now):
    """Return a queue's length as the time it takes at the nominal rate."""
    unsent = max(until_ps - now, 0)
    if fault >= 0:
        factor, _ = rate_and_latency(sm, fault, now)
        unsent = (unsent << 16) // factor
    return unsent + ((waiting_bytes * sm.layer[layer, L_MULT]) >> 16)


@merged_kernel
def _wait(sm, link, q, w1, line_bytes, strict):
    """Append a packet to its queue; False when the pool is dry."""
    s = sm.s
    slot = s[QUEUED_FREE]
    if slot < 0:
        s[OVERFLOW] = 1
        return False
    entry = sm.queued[slot]
    s[QUEUED_FREE] = np.int64(entry["next"])
    s[N_QUEUED_FREE] -= 1
    entry["w1"] = w1
    entry["q"] = q
    entry["next"] = -1
    row = sm.exact_port[link]
    if strict:
        if row["control_head"] < 0:
            row["control_head"] = slot
        else:
            sm.queued[np.int64(row["control_tail"])]["next"] = slot
        row["control_tail"] = slot
        row["control_bytes"] = np.int64(row["control_bytes"]) + line_bytes
    else:
        if row["data_head"] < 0:
            row["data_head"] = slot
        else:
            sm.queued[np.int64(row["data_tail"])]["next"] = slot
        row["data_tail"] = slot
        row["data_bytes"] = np.int64(row["data_bytes"]) + line_bytes
    return True


@kernel
def enqueue_exact(sm, cfg, q, w1, link, layer, hop, hops, now, tx_ps):
    """Put a packet into an output port: into service when the line is free, else into its queue."""
    row = sm.exact_port[link]
    port = sm.port[link]
    fault = np.int64(port["fault"])
    control = w1 & P_CONTROL
    strict = is_strict(w1)
    if not strict:
        backlog = _queued_ps(
            sm, fault, np.int64(row["data_bytes"]), np.int64(row["data_until_ps"]), layer, now
        )
        whole = (w1 >> P_TRIM_SHIFT) & 3 == P_WHOLE
        if control == 0 and hop > 0 and backlog > sm.layer[layer, L_TRIM] and cfg.trim_on and whole:
            w1 |= (P_TRIMMED_LASTHOP if hop == hops - 1 else P_TRIMMED) << P_TRIM_SHIFT
            strict = True
            sm.s[TRIMMED_COUNT] += 1
        elif hop > 0 and backlog > sm.layer[layer, L_CAPACITY]:
            drop(sm, w1, D_QUEUE)
            return
    line_bytes = line_bytes_of(sm, cfg, w1)
    if strict:
        backlog = _queued_ps(
            sm, fault, np.int64(row["control_bytes"]), np.int64(row["control_until_ps"]), layer, now
        )
        if backlog > sm.layer[layer, L_CONTROL_CAPACITY]:
            drop(sm, w1, D_CONTROL)
            return
    mult = sm.layer[layer, L_MULT]
    if fault >= 0:
        factor, _ = rate_and_latency(sm, fault, now)
        mult = (mult * factor) >> 16
    all_sent = max(np.int64(port["data_free_ps"]), now)
    port["data_free_ps"] = all_sent + ((line_bytes * mult) >> 16)
    if control or strict:
        sm.s[HOPS_CONTROL] += 1
    else:
        sm.s[HOPS_DATA] += 1
    if not strict:
        record_wait(sm, layer, link, q, all_sent - now, control, hop)
    free_ps = _line_free_ps(row)
    waits = _anything_waits(row)
    if free_ps <= now and not waits:
        _serve(sm, cfg, q, w1, link, layer, hop, hops, now, tx_ps)
    elif _wait(sm, link, q, w1, line_bytes, strict) and not waits:
        push(sm, cfg, free_ps, (E_DEQUEUE << KIND_SHIFT) | link, np.int64(0))


@kernel
def _serve(sm, cfg, q, w1, link, layer, hop, hops, now, tx_ps):
    """Start to send a packet: mark it, occupy the line, schedule its arrival at the next node."""
    row = sm.exact_port[link]
    port = sm.port[link]
    control = w1 & P_CONTROL
    strict = is_strict(w1)
    mult = sm.layer[layer, L_MULT]
    extra = np.int64(0)
    fault = np.int64(port["fault"])
    if fault >= 0:
        factor, extra = rate_and_latency(sm, fault, now)
        mult = (mult * factor) >> 16
    line_bytes = line_bytes_of(sm, cfg, w1)
    ser = (line_bytes * mult) >> 16
    leave = now + ser
    if strict:
        row["control_until_ps"] = leave
    else:
        row["data_until_ps"] = leave
        left_behind = (np.int64(row["data_bytes"]) * sm.layer[layer, L_MULT]) >> 16
        if control == 0 and sm.layer[layer, L_ECN_ON] and not w1 & P_CE:
            if ecn_marks(sm, cfg, layer, left_behind, link, q, w1, now):
                w1 |= P_CE
                sm.s[MARKED_COUNT] += 1
    if not _anything_waits(row):
        port["data_free_ps"] = leave  # the rate may have changed since it was estimated
    if cfg.trace and (hop > 0 or control):
        trace_hop(sm, cfg, q, w1, now)
    if fault >= 0:
        arrive = leave + sm.layer[layer, L_DELAY] + extra
        fate, reason = cross(
            sm, cfg, fault, link, q, draw_name(w1), now, arrive, line_bytes, control == 0, tx_ps
        )
        whole = (w1 >> P_TRIM_SHIFT) & 3 == P_WHOLE and control == 0
        if fate == LOST or (fate == DAMAGED and not whole):
            drop(sm, w1, reason)
            return
        if fate == DAMAGED:
            w1 |= P_DAMAGED << P_TRIM_SHIFT
    if cfg.cut_through and hop < hops - 1:
        leave = now + min((cfg.header_line_bytes * mult) >> 16, ser)
    w1 = (w1 & ~(HOP_MASK << HOP_SHIFT)) | ((hop + 1) << HOP_SHIFT)
    at = leave + sm.layer[layer, L_DELAY] + sm.layer[layer, L_AFTER] + extra
    push(sm, cfg, at, (E_PACKET << KIND_SHIFT) | q, w1)


@kernel
def dequeue(sm, st, pf, cfg, link, now):
    """Serve the next packet of a port whose line has become free; ask to be called again for the rest."""
    s = sm.s
    row = sm.exact_port[link]
    strict = row["control_head"] >= 0
    slot = np.int64(row["control_head"]) if strict else np.int64(row["data_head"])
    entry = sm.queued[slot]
    w1 = np.int64(entry["w1"])
    q = np.int64(entry["q"])
    line_bytes = line_bytes_of(sm, cfg, w1)
    if strict:
        row["control_head"] = entry["next"]
        row["control_bytes"] = np.int64(row["control_bytes"]) - line_bytes
    else:
        row["data_head"] = entry["next"]
        row["data_bytes"] = np.int64(row["data_bytes"]) - line_bytes
    entry["next"] = s[QUEUED_FREE]
    s[QUEUED_FREE] = slot
    s[N_QUEUED_FREE] += 1
    hop = (w1 >> HOP_SHIFT) & HOP_MASK
    hops = np.int64(sm.route[q]["hops"])
    tx_ps = now
    if np.int64(sm.port[link]["fault"]) >= 0 and not w1 & P_CONTROL:
        tx_ps = np.int64(st.ring[q, (w1 >> SEQ_SHIFT) & pf.ring_mask]["tx_ps"])
    _serve(sm, cfg, q, w1, link, sm.layer_of[hops, hop], hop, hops, now, tx_ps)
    if _anything_waits(row):
        push(sm, cfg, _line_free_ps(row), (E_DEQUEUE << KIND_SHIFT) | link, np.int64(0))
