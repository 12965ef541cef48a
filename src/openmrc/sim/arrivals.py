"""What happens when a packet reaches a NIC: the transport decides, the answers are queued."""

from __future__ import annotations

import numpy as np

from openmrc.fabric.paths import ev_encode, path_plane, path_uplink_of
from openmrc.jit import inline_kernel, kernel, merged_kernel
from openmrc.sim.layout import (
    D_CORRUPT,
    P_ASK,
    P_CE,
    P_DAMAGED,
    P_IMM,
    P_LAST,
    P_RTX,
    P_TRIM_SHIFT,
    PATH_MASK,
    PATH_SHIFT,
    REVERSE,
    SEQ_MASK,
    SEQ_SHIFT,
    SIZE_MASK,
    SIZE_SHIFT,
    T_DELIVERED,
    T_PLANE0,
    I,
)
from openmrc.sim.nic import new_control, ready, wants_earlier_timer
from openmrc.sim.packets import release_control
from openmrc.sim.workload import on_acknowledged, on_delivered
from openmrc.transport.acks import (
    NACK_TRIMMED,
    NACK_TRIMMED_LASTHOP,
    on_nack,
    on_sack,
    on_transport_ack,
    stamp_of,
)
from openmrc.transport.evset import choose, standby_planes
from openmrc.transport.ports import on_update_answered, requestor_ports, responder_ports
from openmrc.transport.requestor import FLAG_ASK, FLAG_IMM, FLAG_LAST, FLAG_RTX, find_message, has_data
from openmrc.transport.responder import (
    DELIVERED,
    DO_ACK,
    DO_NACK,
    DO_SACK,
    on_data,
    on_path_answer,
    refresh_reverse,
    reverse_path,
    write_ack,
    write_nack,
    write_probe_sack,
    write_response,
    write_sack,
)
from openmrc.transport.state import (
    CTRL_ACK,
    CTRL_EV_PROBE,
    CTRL_NACK,
    CTRL_PORT_STATUS,
    CTRL_PROBE,
    CTRL_RESPONSE,
    CTRL_SACK,
    QP_ERROR,
)

KICK, TOUCH_REQ, TOUCH_RSP = I["kick"], I["touch_req"], I["touch_rsp"]
DELIVERED_BYTES, BIN, LAST_DELIVERY = I["delivered_bytes"], I["bin"], I["last_delivery_ps"]


@inline_kernel
def _entropy_of(st, cfg, q, psn, pf, w1):
    """Return the entropy that a packet carries; with ECMP the event names the path that switches chose."""
    if cfg.ecmp:
        return np.int64(st.ev[q, np.int64(st.ring[q, psn & pf.ring_mask]["ev"])]["entropy"])
    path = (w1 >> PATH_SHIFT) & PATH_MASK
    return ev_encode(path_plane(path), path_uplink_of(path))


@inline_kernel
def _flags_of(w1):
    flags = np.int64(0)
    if w1 & P_LAST:
        flags |= FLAG_LAST
    if w1 & P_IMM:
        flags |= FLAG_IMM
    if w1 & P_ASK:
        flags |= FLAG_ASK
    if w1 & P_RTX:
        flags |= FLAG_RTX
    return flags


@merged_kernel
def data_arrives(sm, st, pf, cfg, q, w1, now):
    """Hand a data packet to the responder half of its QP and queue the answers."""
    trim = (w1 >> P_TRIM_SHIFT) & 3
    if trim == P_DAMAGED:  # the ICRC catches it: counted, no answer
        sm.drops[D_CORRUPT] += 1
        return
    psn = (w1 >> SEQ_SHIFT) & SEQ_MASK
    payload = ((w1 >> SIZE_SHIFT) & SIZE_MASK) * 4
    marked = (w1 & P_CE) != 0
    entropy = _entropy_of(st, cfg, q, psn, pf, w1)
    flags = _flags_of(w1)
    size = cfg.data_ip_overhead + payload
    before = np.int64(st.rsp[q]["msn_done"])
    actions = on_data(st, pf, q, now, psn, size, flags, trim, marked, entropy)
    if actions & DELIVERED:
        plane = path_plane((w1 >> PATH_SHIFT) & PATH_MASK)
        sm.plane_bytes[plane] += payload
        sm.timeline[sm.s[BIN], T_DELIVERED] += payload
        sm.timeline[sm.s[BIN], T_PLANE0 + plane] += payload
        sm.s[DELIVERED_BYTES] += payload
        sm.s[LAST_DELIVERY] = now
    stamp = np.int64(0)
    if actions & (DO_SACK | DO_NACK):
        stamp = _stamp_of(st, pf, q, psn, entropy, w1)
    if actions & DO_SACK:
        slot = new_control(sm, q, 1)
        if slot >= 0:
            write_sack(st, pf, q, psn, flags, marked, entropy, stamp, sm.control[slot])
    if actions & DO_ACK:
        slot = new_control(sm, q, 1)
        if slot >= 0:
            write_ack(st, q, sm.control[slot])
    if actions & DO_NACK:
        slot = new_control(sm, q, 1)
        if slot >= 0:
            write_nack(st, q, psn, trim, entropy, stamp, sm.control[slot])
    done = np.int64(st.rsp[q]["msn_done"]) - before
    if done > 0:
        on_delivered(sm, st, cfg, q, before, done, now)
    rsp = st.rsp[q]
    if np.int64(rsp["unsacked_since_ps"]) == now or np.int64(rsp["rev_probe_ps"]) == now + pf.base_rtt_ps:
        sm.s[TOUCH_RSP] = q  # a deadline that is new; else its timer is early enough already


@inline_kernel
def _stamp_of(st, pf, q, psn, entropy, w1):
    """Return the TSETH timestamp that this packet carries.

    The event has no room for it. The send time table of the QP has it while this is the newest
    transmission of the PSN, which path and rtx flag tell; an older copy gets a stamp that matches none.
    """
    slot = st.ring[q, psn & pf.ring_mask]
    stamp = stamp_of(np.int64(slot["tx_ps"]))
    count = np.int64(slot["count"])
    current = (count > 1) == ((w1 & P_RTX) != 0)
    if count > 2 and current:  # the second transmission or a later one: only the path can tell
        current = np.int64(st.ev[q, np.int64(slot["ev"])]["entropy"]) == entropy
    if not current:
        stamp = (stamp + 0x8000) & 0xFFFF
    return stamp


@kernel
def _probe_arrives(sm, st, pf, cfg, q, w1, slot, now):
    """A reliability probe: answer with a SACK (pr = 1) and a Transport ACK."""
    if np.int64(st.rsp[q]["state"]) == QP_ERROR:
        return
    row = sm.control[slot]
    answer = new_control(sm, q, 1)
    if answer >= 0:
        write_probe_sack(
            st,
            pf,
            q,
            np.int64(row["probe_id"]),
            (w1 & P_CE) != 0,
            np.int64(row["path"]),
            np.int64(row["tx_stamp"]),
            sm.control[answer],
        )
    answer = new_control(sm, q, 1)
    if answer >= 0:
        write_ack(st, q, sm.control[answer])
    sm.s[TOUCH_RSP] = q


@inline_kernel
def _answer_path(st, q, reverse_request):
    """Return the path of an endpoint response: that of the half which received the request."""
    if reverse_request:
        row = choose(st, q, standby_planes(st.req[q]))
        return np.int64(st.ev[q, row]["entropy"]) if row >= 0 else np.int64(-1)
    return reverse_path(st, q)


@kernel
def _peer_ports_changed(sm, st, q, reverse_request, mask, now):
    """Apply a Port Status Update to every QP between the two NICs."""
    route = sm.route[q]
    ours = np.int64(route["src"]) if reverse_request else np.int64(route["dst"])
    peer = np.int64(route["dst"]) if reverse_request else np.int64(route["src"])
    for i in range(sm.nic_first[ours], sm.nic_first[ours + 1]):
        other = np.int64(sm.nic_qps[i])
        if np.int64(sm.route[other]["dst"]) == peer:
            requestor_ports(st, other, now, mask, False, False)
            if has_data(st.req[other]):
                ready(sm, other)
    for i in range(sm.nic_in_first[ours], sm.nic_in_first[ours + 1]):
        other = np.int64(sm.nic_in_qps[i])
        if np.int64(sm.route[other]["src"]) == peer:
            responder_ports(st, other, now, mask, False, False)
    sm.s[KICK] = ours


@kernel
def _endpoint_packet_arrives(sm, st, pf, q, w1, slot, now):
    """Endpoint requests (port status, EV probe) and their responses."""
    row = sm.control[slot]
    kind = np.int64(row["kind"])
    reverse = (w1 & REVERSE) != 0
    if kind == CTRL_RESPONSE:
        if np.int64(row["reason"]) == CTRL_EV_PROBE:
            on_path_answer(st, q, np.int64(row["probe_id"]))
        elif reverse:
            on_update_answered(st.req[q], np.int64(row["probe_id"]))
        else:
            on_update_answered(st.rsp[q], np.int64(row["probe_id"]))
        return
    if kind == CTRL_PORT_STATUS:
        _peer_ports_changed(sm, st, q, reverse, np.int64(row["mask"]) & 0xFF, now)
    answer = new_control(sm, q, 0 if reverse else 1)
    if answer >= 0:
        write_response(kind, np.int64(row["probe_id"]), _answer_path(st, q, reverse), sm.control[answer])


@merged_kernel
def control_arrives(sm, st, pf, cfg, q, w1, now):
    """Hand a control packet to the half of the QP that it is for, and free its slot."""
    slot = (w1 >> SEQ_SHIFT) & SEQ_MASK
    row = sm.control[slot]
    kind = np.int64(row["kind"])
    if kind == CTRL_SACK:
        on_sack(st, pf, q, now, row, 0, False)
        _after_ack(sm, st, pf, q, now)
        _refresh_sibling(sm, st, q, np.int64(row["entropy"]))
    elif kind == CTRL_ACK:
        before = np.int64(st.req[q]["sq_head"])
        done = on_transport_ack(st, pf, q, now, row)
        if done > 0:
            on_acknowledged(sm, st, pf, cfg, q, before, done, now)
        _after_ack(sm, st, pf, q, now)
    elif kind == CTRL_NACK:
        _nack_arrives(sm, st, pf, q, row, now)
        _after_ack(sm, st, pf, q, now)
    elif kind == CTRL_PROBE:
        _probe_arrives(sm, st, pf, cfg, q, w1, slot, now)
    else:
        _endpoint_packet_arrives(sm, st, pf, q, w1, slot, now)
        sm.s[TOUCH_REQ] = q
    release_control(sm, slot)


@inline_kernel
def _after_ack(sm, st, pf, q, now):
    """Windows may have opened: let the NIC try."""
    if has_data(st.req[q]):
        ready(sm, q)
        sm.s[KICK] = np.int64(sm.route[q]["src"])
    if wants_earlier_timer(sm, st, pf, q, now):
        sm.s[TOUCH_REQ] = q


@inline_kernel
def _refresh_sibling(sm, st, q, entropy):
    """A SACK proves a path of ours: the responder half of the other direction can use it."""
    sibling = np.int64(sm.linkage[q]["sibling"])
    if sibling >= 0:
        refresh_reverse(st, sibling, entropy >> 16, entropy)


@kernel
def _nack_arrives(sm, st, pf, q, row, now):
    """A NACK; trims are counted on the message they hit."""
    psn = np.int64(row["psn"])
    reason = np.int64(row["reason"])
    if on_nack(st, pf, q, now, row) and (reason == NACK_TRIMMED or reason == NACK_TRIMMED_LASTHOP):
        position = find_message(st, q, psn)
        sm.flow_trim[st.sq[q, position & (st.sq.shape[1] - 1)]["wr_id"]] += 1
