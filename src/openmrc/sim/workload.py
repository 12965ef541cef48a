"""The graph of messages at run time: what is released when, and what its events set free.

Every node waits for its dependencies, then for its own delay. A message is posted to its QP; a
computation just takes its time. Events of a node: started, sent (the requestor's completion),
received (the last byte placed at the responder).
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inline_kernel, kernel
from openmrc.sim.layout import E_DONE, E_RELEASE, KIND_SHIFT, I
from openmrc.sim.nic import ready
from openmrc.sim.wheel import push_far
from openmrc.transport.requestor import post
from openmrc.transport.state import QP_ERROR

ON_STARTED, ON_SENT, ON_RECEIVED = range(3)
MESSAGE = 0
NOW, KICK, LEFT, FAILED, TOUCH_REQ = I["now_ps"], I["kick"], I["messages_left"], I["failed"], I["touch_req"]


@kernel
def fire(sm, cfg, node, event, now):
    """Tell a node's dependents that one of its events has happened."""
    for e in range(sm.edge_first[node], sm.edge_first[node + 1]):
        if sm.edge_on[e] != event:
            continue
        child = np.int64(sm.edge_child[e])
        sm.node_waits[child] -= 1
        if sm.node_waits[child] == 0:
            push_far(sm, cfg, now + sm.node_start[child], (E_RELEASE << KIND_SHIFT) | child)


@inline_kernel
def _has_dependents(sm, node):
    return sm.edge_first[node] != sm.edge_first[node + 1]


@kernel
def _try_post(sm, st, pf, q, node, now):
    """Post a message to its QP's send queue; False when the queue is full."""
    if not post(st, pf, q, now, np.int64(sm.node_size[node]), np.int64(sm.node_imm[node]), node):
        return False
    ready(sm, q)
    sm.s[KICK] = np.int64(sm.route[q]["src"])
    sm.s[TOUCH_REQ] = q
    return True


@kernel
def release(sm, st, pf, cfg, node, now):
    """Start a node whose dependencies and delay are over."""
    sm.flow_start[node] = now
    if _has_dependents(sm, node):
        fire(sm, cfg, node, ON_STARTED, now)
    if sm.node_kind[node] != MESSAGE:
        push_far(sm, cfg, now + sm.node_duration[node], (E_DONE << KIND_SHIFT) | node)
        return
    q = np.int64(sm.node_qp[node])
    if st.req[q]["state"] == QP_ERROR:
        sm.s[FAILED] += 1
        sm.s[LEFT] -= 1
        return
    row = sm.linkage[q]
    if np.int64(row["pending_head"]) < 0 and _try_post(sm, st, pf, q, node, now):
        return
    sm.node_next[node] = -1
    if np.int64(row["pending_head"]) < 0:
        row["pending_head"] = node
    else:
        sm.node_next[np.int64(row["pending_tail"])] = node
    row["pending_tail"] = node


@kernel
def computed(sm, cfg, node, now):
    """A computation is over: it counts as sent and as received."""
    sm.flow_end[node] = now
    sm.flow_received[node] = now
    fire(sm, cfg, node, ON_SENT, now)
    fire(sm, cfg, node, ON_RECEIVED, now)


@kernel
def on_delivered(sm, st, cfg, q, first, count, now):
    """Messages `first` .. `first + count - 1` of a QP are complete at the responder."""
    depth = st.sq.shape[1]
    for i in range(count):
        node = np.int64(st.sq[q, (first + i) & (depth - 1)]["wr_id"])
        sm.flow_received[node] = now
        if _has_dependents(sm, node):
            fire(sm, cfg, node, ON_RECEIVED, now)


@kernel
def on_acknowledged(sm, st, pf, cfg, q, first, count, now):
    """Messages of a QP are complete at the requestor; post what waited for room."""
    depth = st.sq.shape[1]
    for i in range(count):
        node = np.int64(st.sq[q, (first + i) & (depth - 1)]["wr_id"])
        sm.flow_end[node] = now
        sm.s[LEFT] -= 1
        if _has_dependents(sm, node):
            fire(sm, cfg, node, ON_SENT, now)
    row = sm.linkage[q]
    while np.int64(row["pending_head"]) >= 0:
        node = np.int64(row["pending_head"])
        if not _try_post(sm, st, pf, q, node, now):
            break
        row["pending_head"] = sm.node_next[node]


@kernel
def on_failed(sm, st, q):
    """A QP is in ERROR: its messages will never complete. They stay unfinished; count them."""
    req = st.req[q]
    lost = np.int64(req["sq_tail"]) - np.int64(req["sq_head"])
    row = sm.linkage[q]
    node = np.int64(row["pending_head"])
    while node >= 0:
        lost += 1
        node = np.int64(sm.node_next[node])
    sm.s[FAILED] += lost
    sm.s[LEFT] -= lost
