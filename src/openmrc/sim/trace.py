"""Recording packets for a capture: what the kernels note, one row per packet and vantage point.

Off, it costs one comparison per event. On, rows of the chosen QPs go into an array that Python takes
away between slices (:mod:`openmrc.sim.capture` turns them into bytes); nothing that decides about a
packet reads it, so results are the same with and without.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import kernel
from openmrc.psn import psn_diff
from openmrc.sim.layout import HOP_MASK, HOP_SHIFT, P_CONTROL, SEQ_MASK, SEQ_SHIFT, I

USED, OVERFLOW, BUCKET = I["trace_used"], I["overflow"], I["bucket"]
TRACE_OFF, TRACE_NICS, TRACE_ALL = range(3)  # Config.trace
#: rows that must be free before a bucket is swept: this many, and so many per event in it
ROWS_SPARE, ROWS_PER_EVENT = 4096, 32


@kernel
def _note(sm, q, w1, time_ps):
    """Take a row; the content of a control packet is copied, for its slot will be used again."""
    at = sm.s[USED]
    if at >= sm.trace.shape[0]:
        sm.s[OVERFLOW] = 1
        return np.int64(0)
    sm.s[USED] = at + 1
    row = sm.trace[at]
    row["time_ps"] = time_ps
    row["w1"] = w1
    row["q"] = q
    row["node"] = -1
    if w1 & P_CONTROL:
        sm.trace_control[at] = sm.control[(w1 >> SEQ_SHIFT) & SEQ_MASK]
    return at


@kernel
def trace_sent(sm, st, q, w1, psn, position, tx_ps):
    """Note a data packet that a NIC sends, with what only its sender knows: its place in its message."""
    if sm.traced[q] == 0:
        return
    message = st.sq[q, position & (st.sq.shape[1] - 1)]
    row = sm.trace[_note(sm, q, w1, tx_ps)]
    row["node"] = np.int64(message["wr_id"])
    row["index"] = psn_diff(psn, np.int64(message["first_psn"]))
    row["msn"] = position & 0xFFFF
    row["rqmsn"] = np.int64(message["rqmsn"])


@kernel
def trace_hop(sm, cfg, q, w1, start_ps):
    """Note any other packet that is put on a link at `start_ps`: on its first, or on all."""
    if sm.traced[q] != 0 and (cfg.trace == TRACE_ALL or ((w1 >> HOP_SHIFT) & HOP_MASK) == 0):
        _note(sm, q, w1, start_ps)


@kernel
def trace_arrival(sm, q, w1, now):
    """Note a packet that reaches a NIC."""
    if sm.traced[q] != 0:
        _note(sm, q, w1, now)


@kernel
def trace_has_room(sm, cfg):
    """Return False when sweeping the next bucket might need more rows than are free."""
    events = np.int64(sm.slots[sm.s[BUCKET] & (cfg.buckets - 1), 1])
    return sm.s[USED] + ROWS_SPARE + ROWS_PER_EVENT * events <= sm.trace.shape[0]
