"""Deadlines of both halves. The driver keeps one timer per half and calls with the deadline's time.

:func:`requestor_deadline` and :func:`responder_deadline` name the next moment something is due;
:func:`on_requestor_timer` and :func:`on_responder_timer` do one due thing and say what it was,
and are called again until they answer T_NONE.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel
from openmrc.limits import NEVER_PS
from openmrc.psn import psn_add
from openmrc.transport.evset import choose, standby_planes
from openmrc.transport.loss import declare_lost
from openmrc.transport.ports import write_requestor_update, write_responder_update
from openmrc.transport.probes import send_due_probe, write_probe
from openmrc.transport.requestor import enter_error, has_data, is_waiting, pace_deadline
from openmrc.transport.responder import next_probe_plane, write_delayed_sack
from openmrc.transport.state import (
    COUNTER_INDEX,
    ERR_RETRY_EXCEEDED,
    QP_RTS,
    SLOT_INFLIGHT,
)

# what a timer call did
T_NONE, T_SEND, T_KICK, T_FAILED, T_TRIAL = range(5)
FOR_EVER = 25  # exp_cnt: never give up
MAX_BACKOFF = 24
MAX_TAIL = 10

C_TIMEOUTS = COUNTER_INDEX["timeouts"]
C_LOST = COUNTER_INDEX["lost_timeout"]


@inline_kernel
def timeout_interval_ps(pf, retries):
    """Return the timeout after `retries` expiries: linear_cnt at the base interval, then doubling."""
    return np.int64(pf.timeout_ps) << min(max(retries - pf.linear_cnt, 0), MAX_BACKOFF)


@inline_kernel
def _rto_deadline(st, pf, q):
    req = st.req[q]
    return np.int64(req["rto_base_ps"]) + timeout_interval_ps(pf, np.int64(req["retries"]))


@inline_kernel
def _tail_deadline(st, pf, q):
    """Return when silence calls for a tail probe: 2 smoothed RTTs, then 4 more, 8 more, ..."""
    req = st.req[q]
    rounds = (2 << min(np.int64(req["tail_count"]), MAX_TAIL)) - 1
    return np.int64(req["heard_ps"]) + 2 * np.int64(req["srtt_ps"]) * rounds


@kernel
def requestor_deadline(st, pf, q, now):
    """Return when the requestor half next needs a call, NEVER_PS if it does not.

    Pacing counts only while its time is to come: afterwards the driver asks `select` when a port has room.
    """
    req = st.req[q]
    if req["state"] != QP_RTS:
        return np.int64(NEVER_PS)
    due = min(np.int64(req["next_probe_ps"]), np.int64(req["psu_next_ps"]))
    if is_waiting(req):
        due = min(due, _rto_deadline(st, pf, q))
        if pf.tail_probe:
            due = min(due, _tail_deadline(st, pf, q))
    paced_ps = pace_deadline(st, pf, q)
    if now < paced_ps and np.int64(st.cc[np.int64(req["cc"])]["inflight"]) <= 0 and has_data(req):
        due = min(due, paced_ps)
    return due


@kernel
def _tail_probe(st, pf, q, now, out):
    """Probe after silence, on another plane than the last packet; True when one is sent."""
    req = st.req[q]
    rounds = np.int64(req["tail_count"])
    if rounds < MAX_TAIL:
        req["tail_count"] = rounds + 1
    else:  # the interval grows no more: the next round begins here
        req["heard_ps"] = now - 2 * np.int64(req["srtt_ps"]) * ((1 << MAX_TAIL) - 1)
    row = choose(st, q, standby_planes(req))
    if row < 0:
        return False
    write_probe(st, pf, q, now, row, out)
    return True


@inline_kernel
def charge(st, pf, q, now):
    """Charge the retry budget, at most once per timeout interval; True when it is spent."""
    req = st.req[q]
    retries = np.int64(req["retries"])
    if now - np.int64(req["charged_ps"]) >= timeout_interval_ps(pf, retries):
        req["charged_ps"] = now
        retries += 1
        req["retries"] = retries
    return pf.exp_cnt != FOR_EVER and retries > pf.linear_cnt + pf.exp_cnt


@kernel
def _expire(st, pf, q, now, out):
    """The local ACK timeout: charge the budget, declare what is overdue lost. Returns an action."""
    req = st.req[q]
    interval = timeout_interval_ps(pf, np.int64(req["retries"]))
    req["n_timeouts"] = np.int64(req["n_timeouts"]) + 1
    req["rto_base_ps"] = now
    st.count[C_TIMEOUTS] += 1
    if charge(st, pf, q, now):
        enter_error(st, q, ERR_RETRY_EXCEEDED)
        return T_FAILED
    overdue = False
    psn = np.int64(req["una_psn"])
    while psn != np.int64(req["next_psn"]):
        slot = st.ring[q, psn & pf.ring_mask]
        if slot["state"] == SLOT_INFLIGHT and np.int64(slot["tx_ps"]) <= now - interval:
            declare_lost(st, pf, q, psn, now, C_LOST)
            overdue = True
        psn = psn_add(psn, 1)
    if not overdue and _tail_probe(st, pf, q, now, out):  # it is an answer that is missing: ask for it
        return T_SEND
    return T_KICK


@kernel
def on_requestor_timer(st, pf, q, now, out):
    """Do one thing that is due at `now`; returns T_SEND (content in `out`), T_KICK, T_FAILED, T_NONE."""
    req = st.req[q]
    if req["state"] != QP_RTS:
        return T_NONE
    if now >= np.int64(req["psu_next_ps"]):
        return T_SEND if write_requestor_update(st, pf, q, now, out) else T_KICK
    if now >= np.int64(req["next_probe_ps"]):
        return T_SEND if send_due_probe(st, pf, q, now, out) else T_KICK
    if not is_waiting(req):
        return T_NONE
    if now >= _rto_deadline(st, pf, q):
        return _expire(st, pf, q, now, out)
    if pf.tail_probe and now >= _tail_deadline(st, pf, q):
        return T_SEND if _tail_probe(st, pf, q, now, out) else T_KICK
    return T_NONE


@kernel
def responder_deadline(st, pf, q, now):
    """Return when the responder half next needs a call, NEVER_PS if it does not."""
    rsp = st.rsp[q]
    if rsp["state"] != QP_RTS:
        return np.int64(NEVER_PS)
    due = np.int64(rsp["psu_next_ps"])
    since = np.int64(rsp["unsacked_since_ps"])
    if since != NEVER_PS:
        due = min(due, since + pf.sack_delay_ps)
    return min(due, np.int64(rsp["rev_probe_ps"]))


@kernel
def on_responder_timer(st, pf, q, now, out):
    """Do one thing that is due; T_TRIAL asks for an entropy to probe, see `responder.try_path`."""
    rsp = st.rsp[q]
    if rsp["state"] != QP_RTS:
        return T_NONE
    since = np.int64(rsp["unsacked_since_ps"])
    if since != NEVER_PS and now >= since + pf.sack_delay_ps:
        write_delayed_sack(st, pf, q, out)
        return T_SEND
    if now >= np.int64(rsp["psu_next_ps"]):
        return T_SEND if write_responder_update(st, pf, q, now, out) else T_KICK
    if now >= np.int64(rsp["rev_probe_ps"]):
        return T_TRIAL if next_probe_plane(st, pf, q, now) >= 0 else T_KICK
    return T_NONE
