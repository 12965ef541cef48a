"""Loss detection, made possible by source routing (our own decision, docs/explanation/decisions.md).

By a SACK, a packet "has not arrived" when its bit is clear inside the bitmap, or it is
cack_psn + 1 and something above it has arrived. Then

(a) FIFO: it is lost when a packet sent later on the same EV is known to have arrived;
(b) guard: it is suspect when it was sent more than base_rtt/2 + k x deviation before the
    newest-sent packet known to have arrived, and lost at base_rtt + k x deviation.

To find (a) without looking at every hole, each EV numbers its packets (`ordinal`): only when an
acknowledged packet is not the successor of the EV's newest arrived one can an older one be
missing. (b) only ever needs the oldest holes: the scan stops at the first one young enough.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import ctz64, inline_kernel, kernel
from openmrc.psn import psn_add, psn_diff
from openmrc.transport import ev_states
from openmrc.transport.evset import apply_event, standby_planes
from openmrc.transport.nscc import on_loss
from openmrc.transport.requestor import mark_lost
from openmrc.transport.state import COUNTER_INDEX, SLOT_INFLIGHT, SLOT_SUSPECT

ASSUMED_BAD = int(ev_states.ASSUMED_BAD)
LOST = int(ev_states.LOST)
NO_PROBE = -1

C_FIFO = COUNTER_INDEX["lost_fifo"]
C_GUARD = COUNTER_INDEX["lost_guard"]
C_SUSPECTED = COUNTER_INDEX["suspected"]


@inline_kernel
def clear_suspicion(st, q, slot):
    """Forget that a packet was overdue (it arrived, or was declared lost)."""
    if slot["flags"] & SLOT_SUSPECT:
        slot["flags"] = 0
        ev = st.ev[q, np.int64(slot["ev"])]
        ev["suspects"] = np.int64(ev["suspects"]) - 1


@kernel
def declare_lost(st, pf, q, psn, now, counter):
    """Declare a packet in flight lost: window, EV and retransmission queue learn of it."""
    slot = st.ring[q, psn & pf.ring_mask]
    clear_suspicion(st, q, slot)
    size = mark_lost(st, pf, q, psn)
    on_loss(pf, st.cc[np.int64(st.req[q]["cc"])], size)
    st.count[counter] += 1
    row = np.int64(slot["ev"])
    if (
        standby_planes(st.req[q]) >> np.int64(st.ev[q, row]["plane"])
    ) & 1:  # a dead port is not the EV's fault
        apply_event(st, pf, q, row, LOST, now)


@inline_kernel
def _suspect(st, q, slot):
    """Pass over the EV of an overdue packet until the packet is acknowledged."""
    if not slot["flags"] & SLOT_SUSPECT:
        ev = st.ev[q, np.int64(slot["ev"])]
        if np.int64(ev["suspects"]) < 255:
            slot["flags"] = SLOT_SUSPECT
            ev["suspects"] = np.int64(ev["suspects"]) + 1
            st.count[C_SUSPECTED] += 1


@inline_kernel
def _guard_time(st, pf, q):
    return pf.guard_deviations * np.int64(st.req[q]["rttdev_ps"])


@kernel
def _judge(st, pf, q, psn, now, newest_ps, fresh, fifo, probe_row, probe_tx_ps):
    """Judge one packet that has not arrived; False when all younger ones can be left alone."""
    slot = st.ring[q, psn & pf.ring_mask]
    if slot["state"] != SLOT_INFLIGHT:
        return True
    tx_ps = np.int64(slot["tx_ps"])
    row = np.int64(slot["ev"])
    if pf.loss_fifo:
        ev = st.ev[q, row]
        overtaken = fresh and ev["state"] < ASSUMED_BAD and tx_ps < np.int64(ev["clock_ps"])
        if overtaken or (row == probe_row and tx_ps < probe_tx_ps):
            declare_lost(st, pf, q, psn, now, C_FIFO)
            return True
    base = np.int64(st.cc[np.int64(st.req[q]["cc"])]["base_rtt_ps"])
    age = newest_ps - tx_ps
    suspect_age = (base >> 1) + _guard_time(st, pf, q)
    if pf.loss_guard and age > suspect_age + (base >> 1):
        declare_lost(st, pf, q, psn, now, C_GUARD)
        return True
    if pf.loss_guard and age > suspect_age:
        _suspect(st, q, slot)
        return True
    # sent once and young: every later first transmission is younger still
    return fifo or slot["count"] > 1 or probe_row != NO_PROBE


@kernel
def scan(st, pf, q, now, cack, offset, missing, fresh, fifo, probe_row, probe_tx_ps):
    """Judge every packet that a SACK shows as not arrived.

    Parameters
    ----------
    missing : uint64
        Bit i: PSN cack + offset + i is inside the bitmap, was sent, and has not arrived.
    fresh
        This SACK was made after every other one seen, so what we know had all arrived by then.
    fifo
        Some EV shows a gap in its ordinals.
    probe_row, probe_tx_ps
        The data-class probe this SACK answers: its EV and send time; ``NO_PROBE`` if none.
    """
    req = st.req[q]
    newest_ps = np.int64(req["newest_tx_ps"]) if fresh else np.int64(-1)
    if probe_row != NO_PROBE:
        newest_ps = max(newest_ps, probe_tx_ps)
    first = psn_add(cack, 1)
    if offset > 1 and psn_diff(first, np.int64(req["una_psn"])) >= 0:
        # cack + 1 has not arrived, wherever the bitmap stands
        _judge(st, pf, q, first, now, newest_ps, fresh, fifo, probe_row, probe_tx_ps)
    while missing != np.uint64(0):
        bit = ctz64(missing)
        missing = missing & (missing - np.uint64(1))
        psn = psn_add(cack, offset + bit)
        if psn_diff(psn, np.int64(req["una_psn"])) < 0:
            continue
        if not _judge(st, pf, q, psn, now, newest_ps, fresh, fifo, probe_row, probe_tx_ps):
            break
