"""What both port models know of a packet: its class, its bytes on the line, marks, its end.

The port models are :mod:`openmrc.sim.ports` (fast) and :mod:`openmrc.sim.exact`.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import draw32, inline_kernel
from openmrc.sim.layout import (
    L_ECN_HIGH,
    L_ECN_LOW,
    P_CONTROL,
    P_TRIM_SHIFT,
    P_TRIMMED,
    P_TRIMMED_LASTHOP,
    SEQ_MASK,
    SEQ_SHIFT,
    SIZE_MASK,
    SIZE_SHIFT,
    I,
)
from openmrc.transport.state import CTRL_EV_PROBE, CTRL_PORT_STATUS, CTRL_PROBE

BIN_PEAK, CONTROL_FREE, CONTROL_USED = I["bin_peak"], I["control_free"], I["control_used"]


@inline_kernel
def is_data_class(kind):
    """Return True for control packets that queue with data: probes and endpoint requests."""
    return kind == CTRL_PROBE or kind == CTRL_EV_PROBE or kind == CTRL_PORT_STATUS


@inline_kernel
def is_strict(w1):
    """Return True for a packet of the strict-priority class: answers and trimmed data."""
    if w1 & P_CONTROL:
        return not is_data_class((w1 >> SIZE_SHIFT) & SIZE_MASK)
    trim = (w1 >> P_TRIM_SHIFT) & 3
    return trim == P_TRIMMED or trim == P_TRIMMED_LASTHOP


@inline_kernel
def draw_name(w1):
    """Return what names a packet's fate beside its QP, link and time: its PSN, or a control packet's kind.

    Not the place of a control packet in the pool: that depends on what all others do, and a fault
    elsewhere must not move this packet's draws.
    """
    if w1 & P_CONTROL:
        return (np.int64(1) << 60) | ((w1 >> SIZE_SHIFT) & SIZE_MASK)
    return (w1 >> SEQ_SHIFT) & SEQ_MASK


@inline_kernel
def release_control(sm, slot):
    """Give a control packet's slot back."""
    sm.control_next[slot] = sm.s[CONTROL_FREE]
    sm.s[CONTROL_FREE] = slot
    sm.s[CONTROL_USED] -= 1


@inline_kernel
def drop(sm, w1, reason):
    """Count a packet as dropped and free what it holds."""
    sm.drops[reason] += 1
    if w1 & P_CONTROL:
        release_control(sm, (w1 >> SEQ_SHIFT) & SEQ_MASK)


@inline_kernel
def line_bytes_of(sm, cfg, w1):
    """Return what a packet occupies on the line."""
    size = (w1 >> SIZE_SHIFT) & SIZE_MASK
    if w1 & P_CONTROL:
        return sm.line[size]
    trim = (w1 >> P_TRIM_SHIFT) & 3
    if trim == P_TRIMMED or trim == P_TRIMMED_LASTHOP:
        return np.int64(cfg.trimmed_line_bytes)
    return cfg.data_line_overhead + size * 4


@inline_kernel
def ecn_marks(sm, cfg, layer, backlog, link, q, w1, now):
    """Return True when the packet is to be marked: probability rises between two thresholds."""
    low = sm.layer[layer, L_ECN_LOW]
    if backlog <= low:
        return False
    high = sm.layer[layer, L_ECN_HIGH]
    if backlog >= high:
        return True
    draw = draw32(cfg.ecn_seed ^ link, (q << 24) ^ ((w1 >> SEQ_SHIFT) & SEQ_MASK), now)
    return (draw >> 12) * (high - low) < (backlog - low) << 20


@inline_kernel
def record_wait(sm, layer, link, q, wait, control, hop):
    """Keep the longest data backlog of each layer, of the bin, and where this QP waited longest."""
    if wait > sm.peak[layer]:
        sm.peak[layer] = wait
    if hop > 0:
        if wait > sm.s[BIN_PEAK]:
            sm.s[BIN_PEAK] = wait
        route = sm.route[q]
        if control == 0 and wait > np.int64(route["worst_wait_ps"]):
            route["worst_wait_ps"] = wait
            route["worst_link"] = link
