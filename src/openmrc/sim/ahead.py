"""Looking ahead in the sorted bucket: bring the rows that coming events touch into the cache.

A large fabric's state does not fit the caches, and its events touch it in random order. While one
event is processed, the rows of the events some places further on are fetched, in three stages
because the address of one row often stands in another. Hints only: results do not change.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel, merged_kernel, prefetch
from openmrc.sim.layout import (
    E_NIC,
    E_PACKET,
    HOP_MASK,
    HOP_SHIFT,
    P_CONTROL,
    SEQ_MASK,
    SEQ_SHIFT,
    I,
)
from openmrc.sim.ports import link_of_hop
from openmrc.sim.wheel import event_id, event_kind
from openmrc.transport.state import CTRL_SACK, EV, SLOT

END = I["end"]
FIRST, SECOND, THIRD, FOURTH = 32, 22, 13, 5  # places ahead of each stage
SLOT_BYTES, EV_BYTES, WORD_BYTES = SLOT.itemsize, EV.itemsize, 32
ACKED_PER_SACK = 4  # packets that a SACK usually acknowledges


@inline_kernel
def _first(sm, w0, w1):
    """Fetch what names the rest: the QP's route, the control packet, the NIC."""
    kind = event_kind(w0)
    ident = event_id(w0)
    if kind == E_PACKET:
        prefetch(sm.route, ident, 0)
        if w1 & P_CONTROL:
            prefetch(sm.control, (w1 >> SEQ_SHIFT) & SEQ_MASK, 0)
    elif kind == E_NIC:
        prefetch(sm.nic, ident, 0)


@inline_kernel
def _arrives(sm, q, w1):
    """Return True when a packet event is its arrival at a NIC (the route is in the cache by now)."""
    return ((w1 >> HOP_SHIFT) & HOP_MASK) == np.int64(sm.route[q]["hops"])


@inline_kernel
def _second(sm, st, pf, cfg, fp, w0, w1):
    """Fetch the port of a hop, or the QP rows of an arrival or of a NIC's next sender."""
    kind = event_kind(w0)
    q = event_id(w0)
    if kind == E_PACKET:
        if not _arrives(sm, q, w1):
            link, _ = link_of_hop(sm, cfg, fp, q, w1, (w1 >> HOP_SHIFT) & HOP_MASK)
            prefetch(sm.port, link, 0)
        elif w1 & P_CONTROL:
            prefetch(st.req, q, 0)
            prefetch(st.req, q, 64)
            prefetch(st.acked, q, 0)
            prefetch(sm.linkage, q, 0)
        else:
            psn = (w1 >> SEQ_SHIFT) & SEQ_MASK
            prefetch(st.rsp, q, 0)
            prefetch(st.words, q, ((psn & (pf.words * 64 - 1)) >> 6) * WORD_BYTES)
            prefetch(st.ring, q, (psn & pf.ring_mask) * SLOT_BYTES)
    elif kind == E_NIC:
        first = np.int64(sm.nic[q]["ready"])
        for plane in range(0, cfg.planes, 2):  # two ports a line
            prefetch(sm.port, q * cfg.planes + plane, 0)
        if first >= 0:
            prefetch(st.req, first, 0)
            prefetch(st.plane, first, 0)
            prefetch(st.plane, first, 64)
            prefetch(sm.linkage, first, 0)
            prefetch(sm.route, first, 0)


@inline_kernel
def _third(sm, st, pf, cfg, w0, w1):
    """Fetch the ring slots of a SACK, the port of the SACK an arrival may draw, a sender's EVs."""
    kind = event_kind(w0)
    q = event_id(w0)
    if kind == E_PACKET:
        if not _arrives(sm, q, w1):
            return
        if w1 & P_CONTROL:
            row = sm.control[(w1 >> SEQ_SHIFT) & SEQ_MASK]
            if np.int64(row["kind"]) == CTRL_SACK:
                cc = np.int64(st.req[q]["cc"])
                prefetch(st.cc, cc, 0)
                prefetch(st.cc, cc, 64)
                prefetch(st.ring, q, (np.int64(row["trigger_psn"]) & pf.ring_mask) * SLOT_BYTES)
                prefetch(st.ring, q, (np.int64(st.req[q]["una_psn"]) & pf.ring_mask) * SLOT_BYTES)
                prefetch(sm.nic, np.int64(sm.route[q]["src"]), 0)
        else:
            plane = np.int64(st.rsp[q]["rev_cursor"]) + 1
            plane = plane if plane < cfg.planes else np.int64(0)
            prefetch(sm.port, np.int64(sm.route[q]["dst"]) * cfg.planes + plane, 0)
            prefetch(st.rev, q, 0)
    elif kind == E_NIC:
        first = np.int64(sm.nic[q]["ready"])
        if first >= 0:
            req = st.req[first]
            prefetch(st.cc, np.int64(req["cc"]), 0)
            prefetch(st.sq, first, 0)
            for plane in range(cfg.planes):
                prow = st.plane[first, plane]
                prefetch(st.ev, first, (np.int64(prow["first"]) + np.int64(prow["cursor"])) * EV_BYTES)
            slot = (np.int64(req["next_psn"]) & pf.ring_mask) * SLOT_BYTES
            prefetch(st.ring, first, slot)
            prefetch(st.ring, first, slot + 64)


@inline_kernel
def _fourth(sm, st, pf, w0, w1):
    """Fetch the EVs of the packets that a SACK acknowledges."""
    q = event_id(w0)
    if event_kind(w0) == E_PACKET and w1 & P_CONTROL and _arrives(sm, q, w1):
        row = sm.control[(w1 >> SEQ_SHIFT) & SEQ_MASK]
        if np.int64(row["kind"]) == CTRL_SACK:
            psn = np.int64(row["trigger_psn"])
            for i in range(ACKED_PER_SACK):
                slot = st.ring[q, (psn - i) & pf.ring_mask]
                prefetch(st.ev, q, np.int64(slot["ev"]) * EV_BYTES)


@merged_kernel
def look_ahead(sm, st, pf, cfg, fp, at):
    """Run all stages for the events ahead of position `at` of the sorted bucket."""
    end = sm.s[END]
    if at + FIRST < end:
        _first(sm, sm.sort[0, at + FIRST, 0], sm.sort[0, at + FIRST, 1])
    if at + SECOND < end:
        _second(sm, st, pf, cfg, fp, sm.sort[0, at + SECOND, 0], sm.sort[0, at + SECOND, 1])
    if at + THIRD < end:
        _third(sm, st, pf, cfg, sm.sort[0, at + THIRD, 0], sm.sort[0, at + THIRD, 1])
    if at + FOURTH < end:
        _fourth(sm, st, pf, sm.sort[0, at + FOURTH, 0], sm.sort[0, at + FOURTH, 1])


@kernel
def begin(sm, st, pf, cfg, fp):
    """Run the stages for the first events of a bucket, which no earlier event looked ahead to."""
    end = sm.s[END]
    for i in range(min(FIRST, end)):
        _first(sm, sm.sort[0, i, 0], sm.sort[0, i, 1])
    for i in range(min(SECOND, end)):
        _second(sm, st, pf, cfg, fp, sm.sort[0, i, 0], sm.sort[0, i, 1])
    for i in range(min(THIRD, end)):
        _third(sm, st, pf, cfg, sm.sort[0, i, 0], sm.sort[0, i, 1])
    for i in range(min(FOURTH, end)):
        _fourth(sm, st, pf, sm.sort[0, i, 0], sm.sort[0, i, 1])
