"""The EV set of a QP: which path the next packet takes, and how EVs leave and return.

Rows are grouped by plane, in the QP's own pseudo-random order (the driver fills them so); the
rotation walks them with a cursor per plane. Active rows first, then the backups.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel
from openmrc.limits import NEVER_PS
from openmrc.transport.ev_states import (
    ASSUMED_BAD,
    GOOD,
    LOST,
    PASS_OVER,
    REMOVE,
    RESTORE,
    RETIRE,
    SKIP,
    TABLE,
    TURN,
)
from openmrc.transport.state import (
    COUNTER_INDEX,
    ROLE_ACTIVE,
    ROLE_BACKUP,
    ROLE_PROMOTED,
    ROLE_RETIRED,
    ROLE_UNUSED,
)

NO_EV = -1  # nothing can be sent: no plane with room
NO_PATH = -2  # no plane can carry data at all

C_ASSUMED_BAD = COUNTER_INDEX["assumed_bad"]
C_PROMOTED = COUNTER_INDEX["promoted"]
C_DEMOTED = COUNTER_INDEX["demoted"]
C_FLOOR = COUNTER_INDEX["floor_held"]
C_SKIPS = COUNTER_INDEX["skips"]


@kernel
def fill_plane(st, q, plane, first, entropies, active, backups):
    """Lay out one plane's EV rows of direction `q`: `active` rows, then `backups`, all GOOD."""
    row = st.plane[q, plane]
    row["first"] = first
    row["count"] = active + backups
    row["cursor"] = 0
    row["usable"] = active
    for i in range(active + backups):
        ev = st.ev[q, first + i]
        ev["entropy"] = entropies[i]
        ev["plane"] = plane
        ev["state"] = GOOD
        ev["role"] = ROLE_ACTIVE if i < active else ROLE_BACKUP
        ev["clock_ps"] = -1
    req = st.req[q]
    req["active_total"] = np.int64(req["active_total"]) + active
    if active > 0:
        req["good_planes"] = np.int64(req["good_planes"]) | (1 << plane)
    st.ev_states[GOOD] += active


@inline_kernel
def _is_active(ev):
    role = ev["role"]
    return role == ROLE_ACTIVE or role == ROLE_PROMOTED


@inline_kernel
def usable_planes(req):
    """Return the planes (bit mask) that may carry data now."""
    ports = np.int64(req["local_ports"]) & np.int64(req["peer_ports"]) & ~np.int64(req["probation"])
    return ports & np.int64(req["good_planes"])


@inline_kernel
def standby_planes(req):
    """Return the planes with ports up, when none has a GOOD EV: used only as a last resort."""
    return np.int64(req["local_ports"]) & np.int64(req["peer_ports"]) & ~np.int64(req["probation"])


@inline_kernel
def ports_up(req):
    """Return the planes whose ports are up at both ends, those on probation included."""
    return np.int64(req["local_ports"]) & np.int64(req["peer_ports"])


@inline_kernel
def next_plane(mask, last, planes):
    """Return the first plane of `mask` after `last`, round-robin; `mask` is not empty."""
    plane = last
    for _ in range(planes):
        plane += 1
        if plane >= planes:
            plane = 0
        if (mask >> plane) & 1:
            break
    return plane


@inline_kernel
def _rotate(st, q, plane):
    """Return the EV row of the plane's next turn, or NO_EV when every active EV is suspect or bad.

    A SKIP row turns GOOD and is passed over, at most once per packet. Suspect rows (a packet on
    them is overdue) are passed over too.
    """
    prow = st.plane[q, plane]
    first = np.int64(prow["first"])
    count = np.int64(prow["count"])
    cursor = np.int64(prow["cursor"])
    turned = False
    chosen = np.int64(-1)
    for _ in range(count + 1):
        row = first + cursor
        cursor += 1
        if cursor >= count:
            cursor = 0
        ev = st.ev[q, row]
        state = ev["state"]
        if not _is_active(ev) or state >= ASSUMED_BAD:
            continue
        if state == SKIP:
            ev["state"] = TABLE[SKIP, TURN, 0]
            st.ev_states[SKIP] -= 1
            st.ev_states[GOOD] += 1
            if not turned and TABLE[SKIP, TURN, 1] == PASS_OVER:
                turned = True
                st.count[C_SKIPS] += 1
                continue
        if ev["suspects"] != 0:
            continue
        chosen = row
        break
    prow["cursor"] = cursor
    return chosen


@inline_kernel
def _any_active(st, q, plane):
    """Return the plane's next EV that may carry data although a packet on it is overdue."""
    prow = st.plane[q, plane]
    first = np.int64(prow["first"])
    count = np.int64(prow["count"])
    cursor = np.int64(prow["cursor"])
    chosen = np.int64(-1)
    for _ in range(count):
        row = first + cursor
        cursor += 1
        if cursor >= count:
            cursor = 0
        ev = st.ev[q, row]
        if _is_active(ev) and ev["state"] < ASSUMED_BAD:
            chosen = row
            break
    prow["cursor"] = cursor
    return chosen


@kernel
def _least_recently_failed(st, q, planes_mask):
    """Return the bad EV whose next probe is due first, on one of the planes; NO_EV if none."""
    best = np.int64(-1)
    best_clock = NEVER_PS
    for row in range(st.ev.shape[1]):
        ev = st.ev[q, row]
        if ev["state"] == ASSUMED_BAD and (planes_mask >> np.int64(ev["plane"])) & 1:
            clock = np.int64(ev["clock_ps"])
            if clock < best_clock:
                best_clock = clock
                best = row
    return best


@kernel
def _unusual_choice(st, q, room, usable):
    """Choose an EV when the rotation found none: every candidate is suspect, or no EV is good."""
    req = st.req[q]
    planes = np.int64(req["n_planes"])
    mask = usable & room
    for _ in range(planes):
        if mask == 0:
            break
        plane = next_plane(mask, np.int64(req["last_plane"]), planes)
        mask &= ~(1 << plane)
        row = _any_active(st, q, plane)
        if row >= 0:
            req["last_plane"] = plane
            return row
    if usable != 0:
        return NO_EV  # good planes exist, their ports are full
    standby = standby_planes(req)
    if standby == 0:
        return NO_PATH
    row = _least_recently_failed(st, q, standby & room)
    if row >= 0:
        req["last_plane"] = np.int64(st.ev[q, row]["plane"])
        return row
    return NO_EV if _least_recently_failed(st, q, standby) >= 0 else NO_PATH


@inline_kernel
def choose(st, q, room):
    """Return the EV row for the next packet of direction `q`, NO_EV or NO_PATH.

    `room` is a bit mask of the ports that can take a packet. Consecutive packets leave on
    different planes: round-robin, skipping ports without room.
    """
    req = st.req[q]
    usable = usable_planes(req)
    mask = usable & room
    planes = np.int64(req["n_planes"])
    row = np.int64(NO_EV)
    while mask != 0:
        plane = next_plane(mask, np.int64(req["last_plane"]), planes)
        row = _rotate(st, q, plane)
        if row >= 0:
            req["last_plane"] = plane
            break
        mask &= ~(1 << plane)
    if row < 0:
        row = _unusual_choice(st, q, room, usable)
    return row


@inline_kernel
def _count_usable(st, q, plane, change):
    prow = st.plane[q, plane]
    usable = np.int64(prow["usable"]) + change
    assert usable >= 0
    prow["usable"] = usable
    req = st.req[q]
    if usable > 0:
        req["good_planes"] = np.int64(req["good_planes"]) | (1 << plane)
    else:
        req["good_planes"] = np.int64(req["good_planes"]) & ~(1 << plane)


@kernel
def _promote(st, q, plane):
    """Let a backup of the plane that is not bad take an active place; True when there was one."""
    prow = st.plane[q, plane]
    first = np.int64(prow["first"])
    for i in range(np.int64(prow["count"])):
        ev = st.ev[q, first + i]
        if ev["role"] == ROLE_BACKUP and ev["state"] < ASSUMED_BAD:
            ev["role"] = ROLE_PROMOTED
            st.count[C_PROMOTED] += 1
            _count_usable(st, q, plane, 1)
            st.ev_states[np.int64(ev["state"])] += 1
            return True
    return False


@kernel
def _demote(st, q, plane):
    """Send one promoted EV of the plane back to the backups; True when there was one."""
    prow = st.plane[q, plane]
    first = np.int64(prow["first"])
    for i in range(np.int64(prow["count"])):
        ev = st.ev[q, first + i]
        if ev["role"] == ROLE_PROMOTED and ev["state"] < ASSUMED_BAD:
            st.ev_states[np.int64(ev["state"])] -= 1
            ev["role"] = ROLE_BACKUP
            ev["state"] = GOOD
            st.count[C_DEMOTED] += 1
            _count_usable(st, q, plane, -1)
            return True
    return False


@kernel
def may_condemn(st, pf, q):
    """Return False when so many EVs are bad already that loss cannot be the path's (the floor)."""
    req = st.req[q]
    return np.int64(req["bad_total"]) * 100 <= np.int64(req["active_total"]) * (100 - pf.ev_floor_percent)


@kernel
def _retire(st, pf, q, row, now):
    """Take a condemned EV out of the active set and arrange for its first probe."""
    req = st.req[q]
    ev = st.ev[q, row]
    plane = np.int64(ev["plane"])
    st.count[C_ASSUMED_BAD] += 1
    req["bad_total"] = np.int64(req["bad_total"]) + 1
    was_active = _is_active(ev)
    spare = True
    if was_active:
        _count_usable(st, q, plane, -1)
        spare = _promote(st, q, plane)
    if ev["role"] == ROLE_PROMOTED:
        ev["role"] = ROLE_BACKUP  # it came from the backups and recovers into them
    elif ev["role"] == ROLE_ACTIVE and spare:
        ev["role"] = ROLE_RETIRED
    ev["streak"] = 0
    ev["backoff"] = 0
    # without a spare the plane keeps this EV and wants it back: probe at once
    due = now + np.int64(pf.base_rtt_ps) if spare else now
    ev["clock_ps"] = due
    due = max(due, np.int64(req["last_probe_ps"]) + pf.base_rtt_ps)  # at most one per base RTT
    req["next_probe_ps"] = min(np.int64(req["next_probe_ps"]), due)


@kernel
def _wanted(st, q, plane):
    """Return how many EVs the plane uses when all is well: those it began with."""
    prow = st.plane[q, plane]
    first = np.int64(prow["first"])
    wanted = np.int64(0)
    for i in range(np.int64(prow["count"])):
        role = st.ev[q, first + i]["role"]
        if role == ROLE_ACTIVE or role == ROLE_RETIRED:
            wanted += 1
    return wanted


@kernel
def _restore(st, q, row):
    """Return an EV to the set it came from, a backup to use where the plane is short of one."""
    ev = st.ev[q, row]
    plane = np.int64(ev["plane"])
    ev["clock_ps"] = -1
    ev["arrived"] = ev["sent"]  # what was in flight then is no evidence now
    ev["streak"] = 0
    ev["backoff"] = 0
    wanted = _wanted(st, q, plane)
    if ev["role"] == ROLE_BACKUP:
        if np.int64(st.plane[q, plane]["usable"]) >= wanted:
            return
        ev["role"] = ROLE_PROMOTED
        st.count[C_PROMOTED] += 1
    elif ev["role"] == ROLE_RETIRED:
        ev["role"] = ROLE_ACTIVE
    _count_usable(st, q, plane, 1)
    if np.int64(st.plane[q, plane]["usable"]) > wanted:
        _demote(st, q, plane)


@kernel
def apply_event(st, pf, q, row, event, now):
    """Drive one EV through the state table; returns the action that was taken."""
    ev = st.ev[q, row]
    before = np.int64(ev["state"])
    after = np.int64(TABLE[before, event, 0])
    action = np.int64(TABLE[before, event, 1])
    if action == RETIRE and event == LOST and not may_condemn(st, pf, q):
        st.count[C_FLOOR] += 1
        return np.int64(0)
    listed = ev["role"] != ROLE_BACKUP or before == ASSUMED_BAD
    ev["state"] = after
    if before == ASSUMED_BAD and after != ASSUMED_BAD:
        st.req[q]["bad_total"] = np.int64(st.req[q]["bad_total"]) - 1
    if action == RETIRE:
        _retire(st, pf, q, row, now)
    elif action == RESTORE:
        _restore(st, q, row)
        if (np.int64(st.req[q]["probation"]) >> np.int64(ev["plane"])) & 1:  # its plane can be probed again
            st.req[q]["next_probe_ps"] = min(np.int64(st.req[q]["next_probe_ps"]), now)
    elif action == REMOVE and _is_active(ev):
        _count_usable(st, q, np.int64(ev["plane"]), -1)
        if _promote(st, q, np.int64(ev["plane"])) and ev["role"] == ROLE_ACTIVE:
            ev["role"] = ROLE_RETIRED
    # a backup in reserve is in no statistics, a bad one is
    if listed:
        st.ev_states[before] -= 1
    if ev["role"] != ROLE_BACKUP or after == ASSUMED_BAD:
        st.ev_states[after] += 1
    return action


@kernel
def find_entropy(st, q, entropy):
    """Return the EV row that carries `entropy`, or NO_EV. Linear: for the rare ambiguous echo."""
    for row in range(st.ev.shape[1]):
        ev = st.ev[q, row]
        if np.int64(ev["entropy"]) == entropy and ev["role"] != ROLE_UNUSED:
            return row
    return NO_EV
