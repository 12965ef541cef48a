"""The NIC of the simulator: which QP sends next, on which port, and what it sends back.

A port has room while its backlog is below `room_ps`. A pump fills all ports that have room, QPs in
turn, and asks to be woken after half of that room while there is more to send: one wake-up serves all
planes, and no port runs dry in between.
"""

from __future__ import annotations

import numpy as np

from openmrc.fabric.paths import ev_plane, ev_uplink, nic_up_link, pack_path
from openmrc.jit import inline_kernel, kernel, merged_kernel
from openmrc.limits import NEVER_PS
from openmrc.sim.layout import (
    D_NO_PATH,
    E_NIC,
    E_REQ_TIMER,
    E_RSP_TIMER,
    FAR_PS,
    KIND_SHIFT,
    P_ASK,
    P_CONTROL,
    P_IMM,
    P_LAST,
    P_RTX,
    PATH_SHIFT,
    REVERSE,
    SEQ_SHIFT,
    SIZE_SHIFT,
    I,
)
from openmrc.sim.packets import release_control
from openmrc.sim.ports import enqueue
from openmrc.sim.trace import trace_sent
from openmrc.sim.wheel import push
from openmrc.transport.requestor import (
    FLAG_ASK,
    FLAG_IMM,
    FLAG_LAST,
    FLAG_RTX,
    NO_ROOM,
    SEND,
    commit,
    select,
)
from openmrc.transport.state import QP_RTS
from openmrc.transport.timers import requestor_deadline, responder_deadline

OUT, TOUCH_REQ = I["n_out"], I["touch_req"]
CONTROL_FREE, CONTROL_USED, CONTROL_PEAK = I["control_free"], I["control_used"], I["control_peak"]
OVERFLOW = I["overflow"]


@inline_kernel
def ready(sm, q):
    """Put a QP into its NIC's circular list of those that may send."""
    row = sm.linkage[q]
    if row["next"] >= 0:
        return
    nic = sm.nic[np.int64(sm.route[q]["src"])]
    head = np.int64(nic["ready"])
    if head < 0:
        row["next"] = q
        row["prev"] = q
        nic["ready"] = q
    else:  # behind all others: just before the one whose turn is next
        last = np.int64(sm.linkage[head]["prev"])
        row["next"] = head
        row["prev"] = last
        sm.linkage[last]["next"] = q
        sm.linkage[head]["prev"] = q
    nic["n_ready"] = np.int64(nic["n_ready"]) + 1


@inline_kernel
def _unready(sm, nic, q):
    """Take a QP out of the list; its successor has the next turn if it was the head."""
    row = sm.linkage[q]
    following = np.int64(row["next"])
    previous = np.int64(row["prev"])
    if following == q:
        nic["ready"] = -1
    else:
        sm.linkage[previous]["next"] = following
        sm.linkage[following]["prev"] = previous
        if np.int64(nic["ready"]) == q:
            nic["ready"] = following
    row["next"] = -1
    row["prev"] = -1
    nic["n_ready"] = np.int64(nic["n_ready"]) - 1


@inline_kernel
def _room(sm, cfg, fp, nic_id, now):
    """Return the ports (bit mask) that can take a packet."""
    room = np.int64(0)
    first = nic_up_link(fp, nic_id, 0)
    for plane in range(cfg.planes):
        if np.int64(sm.port[first + plane]["data_free_ps"]) - now < cfg.room_ps:
            room |= 1 << plane
    return room


@inline_kernel
def _flags_of(flags):
    """Translate the transport's packet flags into those of an event."""
    w1 = np.int64(0)
    if flags & FLAG_LAST:
        w1 |= P_LAST
    if flags & FLAG_IMM:
        w1 |= P_IMM
    if flags & FLAG_ASK:
        w1 |= P_ASK
    if flags & FLAG_RTX:
        w1 |= P_RTX
    return w1


@merged_kernel
def _send_data(sm, st, pf, cfg, fp, q, nic_id, psn, row, size, position, now):
    """Send the packet that `select` chose; returns its plane."""
    entropy = np.int64(st.ev[q, row]["entropy"])
    plane = ev_plane(entropy)
    link = nic_up_link(fp, nic_id, plane)
    tx_ps = max(np.int64(sm.port[link]["data_free_ps"]), now)
    flags = commit(st, pf, q, psn, row, size, position, tx_ps)
    units = (size - cfg.data_ip_overhead) >> 2
    w1 = (psn << SEQ_SHIFT) | (units << SIZE_SHIFT) | (pack_path(plane, ev_uplink(entropy)) << PATH_SHIFT)
    w1 |= _flags_of(flags)
    if flags & FLAG_RTX:
        sm.flow_rtx[st.sq[q, position & (st.sq.shape[1] - 1)]["wr_id"]] += 1
    hops = np.int64(sm.route[q]["hops"])
    if cfg.trace:
        trace_sent(sm, st, q, w1, psn, position, tx_ps)
    enqueue(sm, cfg, q, w1, link, np.int64(0), np.int64(0), hops, now, tx_ps)
    return plane


@merged_kernel
def pump(sm, st, pf, cfg, fp, nic_id, now):
    """Send what can be sent from a NIC, and arrange the next wake-up."""
    nic = sm.nic[nic_id]
    room = _room(sm, cfg, fp, nic_id, now)
    tried = np.int64(0)
    first = nic_up_link(fp, nic_id, 0)
    while np.int64(nic["n_ready"]) > tried and room != 0:
        q = np.int64(nic["ready"])
        verdict, psn, row, size, position = select(st, pf, q, now, room)
        if verdict == SEND:
            fresh = psn == np.int64(st.req[q]["una_psn"])
            plane = _send_data(sm, st, pf, cfg, fp, q, nic_id, psn, row, size, position, now)
            if np.int64(sm.port[first + plane]["data_free_ps"]) - now >= cfg.room_ps:
                room &= ~(1 << plane)
            nic["ready"] = sm.linkage[q]["next"]
            tried = np.int64(0)
            if fresh:
                arm_requestor(sm, st, pf, cfg, q, now)
        elif verdict == NO_ROOM:
            nic["ready"] = sm.linkage[q]["next"]
            tried += 1
        else:
            _unready(sm, nic, q)
    if np.int64(nic["n_ready"]) > 0:
        wake = now + cfg.wake_ps
        if np.int64(nic["wake_ps"]) <= now:
            nic["wake_ps"] = wake
            push(sm, cfg, wake, (E_NIC << KIND_SHIFT) | nic_id, np.int64(0))


@inline_kernel
def new_control(sm, q, reverse):
    """Take a slot for a control packet that the current event produces; -1 when the pool is dry."""
    s = sm.s
    slot = s[CONTROL_FREE]
    if slot < 0 or s[OUT] >= sm.out.shape[0]:
        s[OVERFLOW] = 1
        return np.int64(-1)
    s[CONTROL_FREE] = sm.control_next[slot]
    s[CONTROL_USED] += 1
    if s[CONTROL_USED] > s[CONTROL_PEAK]:
        s[CONTROL_PEAK] = s[CONTROL_USED]
    n = s[OUT]
    sm.out[n, 0] = slot
    sm.out[n, 1] = q
    sm.out[n, 2] = reverse
    s[OUT] = n + 1
    return slot


@kernel
def send_control(sm, cfg, fp, n, now):
    """Send the n-th control packet that the current event produced."""
    slot = sm.out[n, 0]
    q = sm.out[n, 1]
    reverse = sm.out[n, 2]
    row = sm.control[slot]
    entropy = np.int64(row["path"])
    if entropy < 0:
        sm.drops[D_NO_PATH] += 1
        release_control(sm, slot)
        return
    plane = ev_plane(entropy)
    route = sm.route[q]
    nic_id = np.int64(route["dst"]) if reverse else np.int64(route["src"])
    w1 = (slot << SEQ_SHIFT) | (np.int64(row["kind"]) << SIZE_SHIFT)
    w1 |= (pack_path(plane, ev_uplink(entropy)) << PATH_SHIFT) | P_CONTROL
    if reverse:
        w1 |= REVERSE
    enqueue(
        sm,
        cfg,
        q,
        w1,
        nic_up_link(fp, nic_id, plane),
        np.int64(0),
        np.int64(0),
        np.int64(route["hops"]),
        now,
        now,
    )


@inline_kernel
def wants_earlier_timer(sm, st, pf, q, now):
    """Return False when the requestor's armed timer is early enough whatever has just been learned.

    An answer starts silence and timeout anew; it brings their deadlines nearer where they had backed off or
    the RTT shrank. So can a probe, an update, pacing, an error.
    """
    req = st.req[q]
    armed = np.int64(sm.linkage[q]["req_timer_ps"])
    if armed >= NEVER_PS or np.int64(req["next_probe_ps"]) < armed or np.int64(req["psu_next_ps"]) < armed:
        return True
    if req["state"] != QP_RTS or armed > np.int64(req["rto_base_ps"]) + pf.timeout_ps:
        return True
    if pf.tail_probe and armed > now + 2 * np.int64(req["srtt_ps"]):
        return True
    cc = st.cc[np.int64(req["cc"])]
    small = np.int64(cc["cwnd_q16"]) >> 16 < pf.mtu_bytes + pf.overhead_bytes
    return small and np.int64(cc["inflight"]) <= 0


@kernel
def arm_requestor(sm, st, pf, cfg, q, now):
    """Make sure the requestor's timer fires no later than its deadline (one lazy timer per QP)."""
    due = requestor_deadline(st, pf, q, now)
    if due >= NEVER_PS:
        return
    due = min(max(due, now), now + FAR_PS - 1)  # far deadlines are looked at again on the way
    if due < np.int64(sm.linkage[q]["req_timer_ps"]):
        sm.linkage[q]["req_timer_ps"] = due
        push(sm, cfg, due, (E_REQ_TIMER << KIND_SHIFT) | q, np.int64(0))


@kernel
def arm_responder(sm, st, pf, cfg, q, now):
    """The same for the responder half."""
    due = responder_deadline(st, pf, q, now)
    if due >= NEVER_PS:
        return
    due = min(max(due, now), now + FAR_PS - 1)
    if due < np.int64(sm.linkage[q]["rsp_timer_ps"]):
        sm.linkage[q]["rsp_timer_ps"] = due
        push(sm, cfg, due, (E_RSP_TIMER << KIND_SHIFT) | q, np.int64(0))
