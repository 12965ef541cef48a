"""The main loop: sweep buckets in time order, dispatch each event, then do what it set in motion.

The path of a packet: `nic.pump` asks `transport.requestor.select` and commits it; `ports.enqueue`
puts it on a link; `ports.forward` passes it on at every switch; `arrivals` hands it to the
responder; `nic.send_control` carries the SACK back; `arrivals` hands that to the requestor.
"""

from __future__ import annotations

import numpy as np

from openmrc.fabric.paths import ev_encode, path_count, path_uplink
from openmrc.jit import draw32, inline_kernel, kernel, merged_kernel
from openmrc.limits import NEVER_PS
from openmrc.sim.ahead import begin, look_ahead
from openmrc.sim.arrivals import control_arrives, data_arrives
from openmrc.sim.exact import dequeue
from openmrc.sim.layout import (
    E_DEQUEUE,
    E_DONE,
    E_NIC,
    E_PACKET,
    E_PORT,
    E_RELEASE,
    E_REQ_TIMER,
    E_RSP_TIMER,
    HOP_MASK,
    HOP_SHIFT,
    P_CONTROL,
    T_BAD,
    T_DROP,
    T_GOOD,
    T_MARK,
    T_PEAK,
    T_RTX,
    T_SKIP,
    T_TRIM,
    I,
)
from openmrc.sim.nic import arm_requestor, arm_responder, new_control, pump, ready, send_control
from openmrc.sim.packets import release_control
from openmrc.sim.ports import forward
from openmrc.sim.trace import trace_arrival, trace_has_room
from openmrc.sim.wheel import (
    EMPTY,
    LOADED,
    bring_near,
    event_id,
    event_kind,
    event_time,
    flush,
    load_bucket,
)
from openmrc.sim.workload import computed, on_failed, release
from openmrc.transport.ports import requestor_ports, responder_ports
from openmrc.transport.requestor import has_data
from openmrc.transport.responder import try_path
from openmrc.transport.state import COUNTER_INDEX, QP_ERROR
from openmrc.transport.timers import (
    T_FAILED,
    T_SEND,
    T_TRIAL,
    on_requestor_timer,
    on_responder_timer,
)

NOW, BUCKET, CUR, END, SWEPT = I["now_ps"], I["bucket"], I["cur"], I["end"], I["swept"]
EVENTS, FAR, OUT, KICK = I["events"], I["far"], I["n_out"], I["kick"]
TOUCH_REQ, TOUCH_RSP, DONE = I["touch_req"], I["touch_rsp"], I["events_done"]
BIN, BIN_END, BIN_WIDTH, BIN_PEAK = I["bin"], I["bin_end_ps"], I["bin_width_ps"], I["bin_peak"]
TRIMMED, MARKED, LEFT = I["trimmed"], I["marked"], I["messages_left"]
CONTROL_USED, AFFECTED_USED, N_QUEUED_FREE = I["control_used"], I["affected_used"], I["n_queued_free"]
C_RTX = COUNTER_INDEX["retransmitted"]

# why run_slice() returned
(
    R_SLICE,
    R_DONE,
    R_UNTIL,
    R_IDLE,
    R_GROW_SORT,
    R_GROW_CHUNKS,
    R_FOLD_BINS,
    R_GROW_CONTROL,
    R_AFFECTED,
    R_GROW_QUEUED,
    R_TRACE,
) = range(11)


@kernel
def _port_event(sm, st, index, now):
    """A NIC sees one of its ports go down or up; it tells every peer, one QP each."""
    nic_id = np.int64(sm.port_ev[1, index])
    plane = np.int64(sm.port_ev[2, index])
    nic = sm.nic[nic_id]
    mask = np.int64(nic["ports"])
    mask = mask | (1 << plane) if sm.port_ev[3, index] else mask & ~(1 << plane)
    nic["ports"] = mask
    for i in range(sm.nic_first[nic_id], sm.nic_first[nic_id + 1]):
        q = np.int64(sm.nic_qps[i])
        requestor_ports(st, q, now, mask, True, (np.int64(sm.linkage[q]["leader"]) & 1) != 0)
        if has_data(st.req[q]):
            ready(sm, q)
    for i in range(sm.nic_in_first[nic_id], sm.nic_in_first[nic_id + 1]):
        q = np.int64(sm.nic_in_qps[i])
        responder_ports(st, q, now, mask, True, (np.int64(sm.linkage[q]["leader"]) & 2) != 0)
    sm.s[KICK] = nic_id


@kernel
def _rearm_nic(sm, st, pf, cfg, nic_id, now):
    """After a port event every QP of the NIC may have an earlier deadline."""
    for i in range(sm.nic_first[nic_id], sm.nic_first[nic_id + 1]):
        arm_requestor(sm, st, pf, cfg, np.int64(sm.nic_qps[i]), now)
    for i in range(sm.nic_in_first[nic_id], sm.nic_in_first[nic_id + 1]):
        arm_responder(sm, st, pf, cfg, np.int64(sm.nic_in_qps[i]), now)


@kernel
def _requestor_timer(sm, st, pf, cfg, q, now):
    """Do what is due at the requestor half: one thing; the timer is armed again afterwards."""
    row = sm.linkage[q]
    if np.int64(row["req_timer_ps"]) != now:
        return  # an earlier timer took its place
    row["req_timer_ps"] = NEVER_PS
    sm.s[TOUCH_REQ] = q
    slot = new_control(sm, q, 0)
    if slot < 0:
        return
    action = on_requestor_timer(st, pf, q, now, sm.control[slot])
    if action != T_SEND:
        _take_back(sm, slot)
    if action != T_FAILED and has_data(st.req[q]):
        ready(sm, q)
        sm.s[KICK] = np.int64(sm.route[q]["src"])


@inline_kernel
def _take_back(sm, slot):
    """Return the control slot just taken, unused."""
    sm.s[OUT] -= 1
    release_control(sm, slot)


@kernel
def _responder_timer(sm, st, pf, cfg, fp, q, now):
    """Do what is due at the responder half."""
    row = sm.linkage[q]
    if np.int64(row["rsp_timer_ps"]) != now:
        return
    row["rsp_timer_ps"] = NEVER_PS
    sm.s[TOUCH_RSP] = q
    slot = new_control(sm, q, 1)
    if slot < 0:
        return
    out = sm.control[slot]
    action = on_responder_timer(st, pf, q, now, out)
    if action == T_TRIAL:
        rsp = st.rsp[q]
        probe_id = np.int64(rsp["rev_probe_id"])
        plane = (probe_id - 1) % np.int64(rsp["n_planes"])
        route = sm.route[q]
        src_t0 = np.int64(route["dst_t0"])
        dst_t0 = np.int64(route["src_t0"])
        choice = draw32(cfg.path_seed, q, probe_id) % path_count(fp, src_t0, dst_t0)
        try_path(st, q, plane, ev_encode(plane, path_uplink(fp, src_t0, dst_t0, choice)), out)
    elif action != T_SEND:
        _take_back(sm, slot)


@merged_kernel
def _finish_event(sm, st, pf, cfg, fp, now):
    """Send what the event produced, pump the NIC it woke, arm the timers it moved."""
    s = sm.s
    n = s[OUT]
    for i in range(n):
        send_control(sm, cfg, fp, i, now)
    s[OUT] = 0
    kick = s[KICK]
    if kick >= 0:
        s[KICK] = -1
        pump(sm, st, pf, cfg, fp, kick, now)
    touched = s[TOUCH_REQ]
    if touched >= 0:
        s[TOUCH_REQ] = -1
        arm_requestor(sm, st, pf, cfg, touched, now)
        if np.int64(st.req[touched]["state"]) == QP_ERROR and st.req[touched]["error"] != 0:
            _note_error(sm, st, touched)
    touched = s[TOUCH_RSP]
    if touched >= 0:
        s[TOUCH_RSP] = -1
        arm_responder(sm, st, pf, cfg, touched, now)


@kernel
def _note_error(sm, st, q):
    """Count the messages of a QP that a NACK or Transport ACK ended, once."""
    if np.int64(sm.linkage[q]["pending_tail"]) != -2:
        sm.linkage[q]["pending_tail"] = -2
        on_failed(sm, st, q)


@merged_kernel
def _dispatch(sm, st, pf, cfg, fp, w0, w1, now):
    """Process one event."""
    kind = event_kind(w0)
    ident = event_id(w0)
    if kind == E_PACKET:
        hop = (w1 >> HOP_SHIFT) & HOP_MASK
        if hop < np.int64(sm.route[ident]["hops"]):
            forward(sm, st, pf, cfg, fp, ident, w1, now)
            return
        if cfg.trace:
            trace_arrival(sm, ident, w1, now)
        if w1 & P_CONTROL:
            control_arrives(sm, st, pf, cfg, ident, w1, now)
        else:
            data_arrives(sm, st, pf, cfg, ident, w1, now)
    elif kind == E_DEQUEUE:
        dequeue(sm, st, pf, cfg, ident, now)
        return
    elif kind == E_NIC:
        sm.s[KICK] = ident
    elif kind == E_REQ_TIMER:
        _requestor_timer(sm, st, pf, cfg, ident, now)
    elif kind == E_RSP_TIMER:
        _responder_timer(sm, st, pf, cfg, fp, ident, now)
    elif kind == E_RELEASE:
        release(sm, st, pf, cfg, ident, now)
    elif kind == E_DONE:
        computed(sm, cfg, ident, now)
    elif kind == E_PORT:
        _port_event(sm, st, ident, now)
        _rearm_nic(sm, st, pf, cfg, np.int64(sm.port_ev[1, ident]), now)
    _finish_event(sm, st, pf, cfg, fp, now)


@kernel
def _close_bin(sm, st):
    """Complete the current timeline bin and start the next."""
    s = sm.s
    row = s[BIN]
    sm.timeline[row, T_PEAK] = s[BIN_PEAK]
    sm.timeline[row, T_GOOD] = st.ev_states[0]
    sm.timeline[row, T_SKIP] = st.ev_states[1]
    sm.timeline[row, T_BAD] = st.ev_states[2]
    # cumulative here, differences are taken afterwards
    sm.timeline[row, T_RTX] = st.count[C_RTX]
    sm.timeline[row, T_TRIM] = s[TRIMMED]
    sm.timeline[row, T_MARK] = s[MARKED]
    total = np.int64(0)
    for i in range(sm.drops.shape[0]):
        total += sm.drops[i]
    sm.timeline[row, T_DROP] = total
    s[BIN_PEAK] = 0
    s[BIN] = row + 1
    s[BIN_END] += s[BIN_WIDTH]


@kernel
def _next_bucket(sm, cfg):
    """Go to the next bucket; over an empty wheel straight to the first far event."""
    s = sm.s
    s[BUCKET] += 1
    if s[EVENTS] == 0 and s[FAR] > 0:
        s[BUCKET] = max(s[BUCKET], sm.far_ps[0] >> cfg.shift)


@merged_kernel
def _sweep(sm, st, pf, cfg, fp):
    """Process all events of the loaded bucket."""
    s = sm.s
    if cfg.prefetch:
        begin(sm, st, pf, cfg, fp)
    while s[CUR] < s[END]:
        at = s[CUR]
        s[CUR] = at + 1
        if cfg.prefetch:
            look_ahead(sm, st, pf, cfg, fp, at)
        w0 = sm.sort[0, at, 0]
        w1 = sm.sort[0, at, 1]
        now = event_time(sm, cfg, w0)
        s[NOW] = now
        _dispatch(sm, st, pf, cfg, fp, w0, w1, now)
    flush(sm, cfg)
    s[EVENTS] -= s[END]
    s[DONE] += s[END]
    s[SWEPT] = 0


@kernel
def run_slice(sm, st, pf, cfg, fp, max_events, until_ps):
    """Simulate about `max_events` events; results do not depend on how a run is cut into slices.

    Returns
    -------
    int
        R_SLICE, or why the caller must act: all messages done, time is up, nothing left to happen, or
        a pool must grow before the next bucket.
    """
    s = sm.s
    stop_at = s[DONE] + max_events
    while True:
        start_ps = s[BUCKET] << cfg.shift
        if s[LEFT] <= 0:
            return R_DONE
        if start_ps > until_ps:
            return R_UNTIL
        if s[EVENTS] == 0 and s[FAR] == 0:
            return R_IDLE
        if s[DONE] >= stop_at:
            return R_SLICE
        while start_ps >= s[BIN_END]:
            if s[BIN] >= cfg.max_bins - 1:
                return R_FOLD_BINS
            _close_bin(sm, st)
        if s[CONTROL_USED] + 4096 > sm.control.shape[0]:
            return R_GROW_CONTROL
        if s[AFFECTED_USED] * 2 > sm.affected.shape[0]:
            return R_AFFECTED
        if cfg.exact and 32 * np.int64(sm.slots[s[BUCKET] & (cfg.buckets - 1), 1]) + 4096 > s[N_QUEUED_FREE]:
            return R_GROW_QUEUED
        bring_near(sm, cfg, start_ps + (np.int64(1) << cfg.shift))
        if cfg.trace and not trace_has_room(sm, cfg):
            return R_TRACE
        loaded = load_bucket(sm, cfg)
        if loaded == LOADED:
            _sweep(sm, st, pf, cfg, fp)
        elif loaded != EMPTY:
            return R_GROW_SORT if loaded == 2 else R_GROW_CHUNKS
        _next_bucket(sm, cfg)
