"""The fast port model: one event per hop.

A port is two clocks. When a packet enters, its departure is known at once: behind the data backlog,
or, for the control class, behind other control packets only. Control bytes are charged to later data
(data already scheduled is not pushed back). ECN and trimming are decided on the backlog at arrival.
"""

from __future__ import annotations

import numpy as np

from openmrc.fabric.paths import link_at, path_plane, path_uplink_of
from openmrc.jit import inline_kernel, kernel, merged_kernel, mix32
from openmrc.sim.exact import enqueue_exact
from openmrc.sim.faulty import DAMAGED, LOST, cross, is_down, rate_and_latency
from openmrc.sim.layout import (
    D_CONTROL,
    D_NO_PATH,
    D_QUEUE,
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
    PATH_MASK,
    PATH_SHIFT,
    REVERSE,
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
BIN_PEAK, CONTROL_FREE, CONTROL_USED = I["bin_peak"], I["control_free"], I["control_used"]
TRIM_FIELD = 3 << P_TRIM_SHIFT


@kernel
def hashed_uplink(sm, cfg, fp, route, w1, link_of_first, now):
    """Return the uplink that a T0 picks by hash among its live ones; -1 when all are down.

    The hash covers the addresses, the entropy (port and flow label) and the switch's salt.
    """
    h = mix32(cfg.hash_seed ^ mix32(np.int64(route["src"]) * 131071 + np.int64(route["dst"])))
    start = mix32(h ^ ((w1 >> PATH_SHIFT) & PATH_MASK) ^ (link_of_first << 8)) % fp.uplinks
    for i in range(fp.uplinks):
        uplink = start + i
        if uplink >= fp.uplinks:
            uplink -= fp.uplinks
        slot = np.int64(sm.port[link_of_first + uplink]["fault"])
        if slot < 0 or not is_down(sm, slot, now):
            return uplink
    return np.int64(-1)


@inline_kernel
def link_of_hop(sm, cfg, fp, q, w1, hop):
    """Return (directed link, hops of the path) of a packet's hop."""
    route = sm.route[q]
    path = (w1 >> PATH_SHIFT) & PATH_MASK
    hops = np.int64(route["hops"])
    src = np.int64(route["src"])
    dst = np.int64(route["dst"])
    src_t0 = np.int64(route["src_t0"])
    dst_t0 = np.int64(route["dst_t0"])
    if w1 & REVERSE:
        src, dst = dst, src
        src_t0, dst_t0 = dst_t0, src_t0
    return link_at(fp, src, dst, src_t0, dst_t0, hops, path_plane(path), path_uplink_of(path), hop), hops


@inline_kernel
def enqueue(sm, cfg, q, w1, link, layer, hop, hops, now, tx_ps):
    """Put a packet into an output port and schedule its arrival at the next node.

    `now` is when the packet is ready to be queued (NIC and switch latencies included).
    """
    if cfg.exact:
        enqueue_exact(sm, cfg, q, w1, link, layer, hop, hops, now, tx_ps)
        return
    port = sm.port[link]
    mult = sm.layer[layer, L_MULT]
    delay = sm.layer[layer, L_DELAY] + sm.layer[layer, L_AFTER]
    fault = np.int64(port["fault"])
    if fault >= 0:
        factor, extra = rate_and_latency(sm, fault, now)
        mult = (mult * factor) >> 16
        delay += extra
    control = w1 & P_CONTROL
    trim = (w1 >> P_TRIM_SHIFT) & 3
    strict = is_strict(w1)
    if not strict:
        backlog = max(np.int64(port["data_free_ps"]) - now, 0)
        if fault >= 0:
            backlog = (
                backlog << 16
            ) // factor  # thresholds are bytes: a slow link holds fewer in the same time
        if control == 0:
            if hop > 0 and backlog > sm.layer[layer, L_TRIM] and cfg.trim_on and trim == P_WHOLE:
                trim = P_TRIMMED_LASTHOP if hop == hops - 1 else P_TRIMMED
                w1 |= trim << P_TRIM_SHIFT
                strict = True
                sm.s[TRIMMED_COUNT] += 1
            elif sm.layer[layer, L_ECN_ON] and ecn_marks(sm, cfg, layer, backlog, link, q, w1, now):
                if not w1 & P_CE:
                    w1 |= P_CE
                    sm.s[MARKED_COUNT] += 1
        if not strict and hop > 0 and backlog > sm.layer[layer, L_CAPACITY]:
            drop(sm, w1, D_QUEUE)
            return
    line_bytes = line_bytes_of(sm, cfg, w1)
    ser = (line_bytes * mult) >> 16
    if strict:
        start = max(np.int64(port["control_free_ps"]), now)
        if start - now > sm.layer[layer, L_CONTROL_CAPACITY]:
            drop(sm, w1, D_CONTROL)
            return
        port["control_free_ps"] = start + ser
        port["data_free_ps"] = max(np.int64(port["data_free_ps"]), now) + ser
        sm.s[HOPS_CONTROL] += 1
    else:
        start = max(np.int64(port["data_free_ps"]), now)
        port["data_free_ps"] = start + ser
        record_wait(sm, layer, link, q, start - now, control, hop)
        if control:
            sm.s[HOPS_CONTROL] += 1
        else:
            sm.s[HOPS_DATA] += 1
    if cfg.trace and (hop > 0 or control):
        trace_hop(sm, cfg, q, w1, start)
    leave = start + ser
    if fault >= 0:
        arrive = leave + sm.layer[layer, L_DELAY] + extra
        fate, reason = cross(
            sm, cfg, fault, link, q, draw_name(w1), start, arrive, line_bytes, control == 0, tx_ps
        )
        if fate == LOST:
            drop(sm, w1, reason)
            return
        if fate == DAMAGED and trim == P_WHOLE and control == 0:
            w1 |= P_DAMAGED << P_TRIM_SHIFT
        elif fate == DAMAGED:
            drop(sm, w1, reason)
            return
    if cfg.cut_through and hop < hops - 1:
        leave = start + min((cfg.header_line_bytes * mult) >> 16, ser)
    w1 = (w1 & ~(HOP_MASK << HOP_SHIFT)) | ((hop + 1) << HOP_SHIFT)
    push(sm, cfg, leave + delay, (E_PACKET << KIND_SHIFT) | q, w1)


@merged_kernel
def forward(sm, st, pf, cfg, fp, q, w1, now):
    """Pass a packet that has arrived at a switch to its next port."""
    hop = (w1 >> HOP_SHIFT) & HOP_MASK
    link, hops = link_of_hop(sm, cfg, fp, q, w1, hop)
    if cfg.ecmp and hop == 1 and hops > 2:
        uplink = hashed_uplink(
            sm, cfg, fp, sm.route[q], w1, link - path_uplink_of((w1 >> PATH_SHIFT) & PATH_MASK), now
        )
        if uplink < 0:
            drop(sm, w1, D_NO_PATH)
            return
        w1 = (w1 & ~(np.int64(0x1FFF) << PATH_SHIFT)) | (uplink << PATH_SHIFT)
        link, hops = link_of_hop(sm, cfg, fp, q, w1, hop)
    tx_ps = now
    if np.int64(sm.port[link]["fault"]) >= 0 and not w1 & P_CONTROL:
        tx_ps = np.int64(st.ring[q, (w1 >> SEQ_SHIFT) & pf.ring_mask]["tx_ps"])
    enqueue(sm, cfg, q, w1, link, sm.layer_of[hops, hop], hop, hops, now, tx_ps)
