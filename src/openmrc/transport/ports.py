"""Ports going down and up, on our side and the peer's, and the updates that tell the peer.

A local port's plane is out at once. The peer NIC learns it by a Port Status Update over the other
planes, repeated until answered; one QP per peer NIC carries it (the driver names that leader). A
plane comes back after its port is up and probes on it succeed.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel
from openmrc.limits import NEVER_PS, PORT_UPDATE_REPEATS
from openmrc.psn import msn_diff
from openmrc.transport import ev_states
from openmrc.transport.evset import choose, ports_up, standby_planes
from openmrc.transport.responder import reverse_path
from openmrc.transport.state import COUNTER_INDEX, CTRL_PORT_STATUS

ASSUMED_BAD = int(ev_states.ASSUMED_BAD)

C_UPDATES = COUNTER_INDEX["port_updates"]


@inline_kernel
def _start_update(row, now):
    """Begin telling the peer about our ports."""
    row["psu_left"] = PORT_UPDATE_REPEATS
    row["psu_next_ps"] = now
    row["psu_id"] = (np.int64(row["psu_id"]) + 1) & 0xFFFF


@kernel
def _probed_planes(st, q, returned):
    """Return the planes that have an EV to probe; those of `returned` begin to count answers anew."""
    planes = np.int64(st.req[q]["good_planes"])
    for row in range(st.ev.shape[1]):
        ev = st.ev[q, row]
        plane = np.int64(ev["plane"])
        if ev["state"] == ASSUMED_BAD:
            planes |= 1 << plane
        if (returned >> plane) & 1:
            ev["streak"] = 0
    return planes


@kernel
def requestor_ports(st, q, now, mask, ours, leader):
    """Set the requestor half's usable ports: `ours` or the peer's; returned planes go on probation."""
    req = st.req[q]
    before = standby_planes(req) | np.int64(req["probation"])
    if ours:
        req["local_ports"] = mask
        if leader:
            _start_update(req, now)
    else:
        req["peer_ports"] = mask
    up = ports_up(req)
    returned = up & ~before
    if returned != 0:
        returned &= _probed_planes(st, q, returned)
    req["probation"] = (np.int64(req["probation"]) | returned) & up
    if returned != 0:
        req["next_probe_ps"] = min(np.int64(req["next_probe_ps"]), now)


@kernel
def responder_ports(st, q, now, mask, ours, leader):
    """Set the responder half's usable ports for what it sends back."""
    rsp = st.rsp[q]
    if ours:
        rsp["local_ports"] = mask
        if leader:
            _start_update(rsp, now)
    else:
        rsp["peer_ports"] = mask


@inline_kernel
def _write_update(row, pf, now, mask, entropy, out):
    """Write one Port Status Update, or give up after the last repeat; True when written."""
    left = np.int64(row["psu_left"])
    if left <= 0:
        row["psu_next_ps"] = NEVER_PS
        return False
    row["psu_left"] = left - 1
    row["psu_next_ps"] = now + 2 * np.int64(pf.base_rtt_ps)
    if entropy < 0:
        return False  # no path now; the repeat may find one
    out["kind"] = CTRL_PORT_STATUS
    out["mask"] = mask if mask < 128 else mask - 256
    out["probe_id"] = row["psu_id"]
    out["path"] = entropy
    return True


@kernel
def write_requestor_update(st, pf, q, now, out):
    """Write the requestor half's next Port Status Update to `out`; False when there is none."""
    req = st.req[q]
    row = choose(st, q, standby_planes(req))
    entropy = np.int64(st.ev[q, row]["entropy"]) if row >= 0 else np.int64(-1)
    written = _write_update(req, pf, now, np.int64(req["local_ports"]), entropy, out)
    if written:
        st.count[C_UPDATES] += 1
    return written


@kernel
def write_responder_update(st, pf, q, now, out):
    """Write the responder half's next Port Status Update to `out`; False when there is none."""
    rsp = st.rsp[q]
    entropy = reverse_path(st, q)
    written = _write_update(rsp, pf, now, np.int64(rsp["local_ports"]), entropy, out)
    if written:
        st.count[C_UPDATES] += 1
    return written


@inline_kernel
def update_is_news(row, update_id):
    """Return True when a Port Status Update is newer than all others that this half has received.

    Repeats take different planes and overtake each other: an old one must not undo a new one.
    """
    news = msn_diff(update_id, np.int64(row["psu_seen"])) > 0
    if news:
        row["psu_seen"] = update_id
    return news


@inline_kernel
def on_update_answered(row, update_id):
    """Stop repeating an update that the peer has answered."""
    if np.int64(row["psu_id"]) == update_id:
        row["psu_left"] = 0
        row["psu_next_ps"] = NEVER_PS
