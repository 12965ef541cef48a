"""Probes of the requestor: bad EVs back to health, planes that returned, the tail after silence.

A reliability probe travels in the data class on one EV, so by its answer everything sent before
it on that EV must have arrived too: it is evidence like a data packet, with its own send time.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel
from openmrc.limits import NEVER_PS
from openmrc.transport import ev_states
from openmrc.transport.evset import apply_event, ports_up
from openmrc.transport.state import (
    COUNTER_INDEX,
    CTRL_PROBE,
    PROBES,
    ROLE_ACTIVE,
    ROLE_PROMOTED,
)

ASSUMED_BAD = int(ev_states.ASSUMED_BAD)
RECOVERED = int(ev_states.RECOVERED)
RECOVERED_MARKED = int(ev_states.RECOVERED_MARKED)
NO_ROW = -1
STAMP_PS = 128_000

C_PROBES = COUNTER_INDEX["probes"]
C_RECOVERED = COUNTER_INDEX["recovered"]


@kernel
def write_probe(st, pf, q, now, row, out):
    """Send a reliability probe on EV `row`: remember it and write its content to `out`."""
    req = st.req[q]
    probe_id = (np.int64(req["probe_id"]) + 1) & 0xFFFF
    req["probe_id"] = probe_id
    probe = st.probe[q, probe_id & (PROBES - 1)]
    probe["tx_ps"] = now
    probe["id"] = probe_id
    probe["ev"] = row
    probe["open"] = 1
    out["kind"] = CTRL_PROBE
    out["probe_id"] = probe_id
    out["path"] = np.int64(st.ev[q, row]["entropy"])
    out["tx_stamp"] = (now // STAMP_PS) & 0xFFFF
    st.count[C_PROBES] += 1


@inline_kernel
def probe_wait_ps(st, pf, q):
    """Return how long an answer to a probe may take before the probe counts as missed."""
    req = st.req[q]
    return max(np.int64(req["srtt_ps"]) + 4 * np.int64(req["rttdev_ps"]), np.int64(pf.base_rtt_ps))


@kernel
def _schedule(st, pf, q, now):
    """Set the time of the next probe: the earliest due bad EV or returning plane, one per base RTT."""
    req = st.req[q]
    due = np.int64(NEVER_PS)
    if np.int64(req["bad_total"]) > 0:
        ports = ports_up(req)
        for row in range(st.ev.shape[1]):
            ev = st.ev[q, row]
            if ev["state"] == ASSUMED_BAD and (ports >> np.int64(ev["plane"])) & 1:
                due = min(due, np.int64(ev["clock_ps"]))
    if np.int64(req["probation"]) & np.int64(req["good_planes"]) != 0:
        due = min(due, now)
    if due < NEVER_PS:
        due = max(due, np.int64(req["last_probe_ps"]) + pf.base_rtt_ps)
    req["next_probe_ps"] = due


@kernel
def _returning_row(st, q):
    """Return an EV of a plane on probation, planes in turn; NO_ROW if none.

    A plane whose EVs are all bad returns when one of them recovers.
    """
    req = st.req[q]
    planes = np.int64(req["n_planes"])
    cursor = np.int64(req["probe_cursor"])
    for i in range(planes):
        plane = (cursor + i) % planes
        if not (np.int64(req["probation"]) >> plane) & 1:
            continue
        req["probe_cursor"] = plane + 1
        prow = st.plane[q, plane]
        for j in range(np.int64(prow["count"])):
            row = np.int64(prow["first"]) + j
            ev = st.ev[q, row]
            if (ev["role"] == ROLE_ACTIVE or ev["role"] == ROLE_PROMOTED) and ev["state"] < ASSUMED_BAD:
                return row
    return np.int64(NO_ROW)


@kernel
def _due_row(st, q, now):
    """Return the bad EV whose probe has been due longest; NO_ROW if none is due."""
    ports = ports_up(st.req[q])
    best = np.int64(NO_ROW)
    earliest = now + 1
    for row in range(st.ev.shape[1]):
        ev = st.ev[q, row]
        if ev["state"] == ASSUMED_BAD and (ports >> np.int64(ev["plane"])) & 1:
            clock = np.int64(ev["clock_ps"])
            if clock < earliest:
                earliest = clock
                best = row
    return best


@kernel
def send_due_probe(st, pf, q, now, out):
    """Send the health probe that is due, if any; True when `out` holds one."""
    req = st.req[q]
    sent = False
    row = _returning_row(st, q) if np.int64(req["probation"]) != 0 else np.int64(NO_ROW)
    if row == NO_ROW and np.int64(req["bad_total"]) > 0:
        row = _due_row(st, q, now)
        if row != NO_ROW:
            ev = st.ev[q, row]
            missed = np.int64(ev["backoff"])
            if missed > 0:
                ev["streak"] = 0  # the probe before this one was not answered
            ev["clock_ps"] = now + min(probe_wait_ps(st, pf, q) << min(missed, 24), pf.probe_cap_ps)
            ev["backoff"] = min(missed + 1, 24)
    if row != NO_ROW:
        req["last_probe_ps"] = now
        write_probe(st, pf, q, now, row, out)
        sent = True
    _schedule(st, pf, q, now)
    return sent


@kernel
def on_probe_answer(st, pf, q, now, probe_id, marked):
    """Account for the answer to a reliability probe.

    Returns ``(EV row, send time)`` of the probe, or ``(-1, -1)`` when it is not one of ours.
    """
    req = st.req[q]
    probe = st.probe[q, probe_id & (PROBES - 1)]
    if probe["open"] == 0 or np.int64(probe["id"]) != probe_id:
        return np.int64(NO_ROW), np.int64(-1)
    probe["open"] = 0
    row = np.int64(probe["ev"])
    ev = st.ev[q, row]
    plane = np.int64(ev["plane"])
    streak = min(np.int64(ev["streak"]) + 1, 255)
    if ev["state"] == ASSUMED_BAD:
        ev["streak"] = streak
        ev["backoff"] = 0
        if streak >= pf.recover_probes:
            st.count[C_RECOVERED] += 1
            req["probation"] = np.int64(req["probation"]) & ~(1 << plane)
            apply_event(st, pf, q, row, RECOVERED_MARKED if marked else RECOVERED, now)
        else:
            ev["clock_ps"] = now + pf.base_rtt_ps
        _schedule(st, pf, q, now)
    elif (np.int64(req["probation"]) >> plane) & 1:
        ev["streak"] = streak
        if streak >= pf.recover_probes:
            req["probation"] = np.int64(req["probation"]) & ~(1 << plane)
            ev["streak"] = 0
        _schedule(st, pf, q, now)
    return row, np.int64(probe["tx_ps"])
