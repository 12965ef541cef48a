"""What must hold after every single event, of whatever the network has done (`transport_network`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.limits import NEVER_PS
from openmrc.psn import psn_diff
from openmrc.transport import acks, requestor, timers
from openmrc.transport.ev_states import ASSUMED_BAD, SKIP
from openmrc.transport.state import (
    COUNTER_INDEX,
    ERR_REMOTE_OP,
    QP_RTS,
    ROLE_ACTIVE,
    ROLE_BACKUP,
    ROLE_PROMOTED,
    ROLE_RETIRED,
    ROLE_UNUSED,
    SLOT_ACKED,
    SLOT_INFLIGHT,
    SLOT_LOST,
    SLOT_SUSPECT,
    W_ASKED,
    W_ENDS,
    W_IMMS,
    W_RECEIVED,
)

if TYPE_CHECKING:
    from transport_network import Direction, Network

C_FIFO, C_GUARD, C_TIMEOUT = (COUNTER_INDEX[f"lost_{name}"] for name in ("fifo", "guard", "timeout"))


def check(net: Network) -> None:
    """Assert every invariant of both halves of every direction."""
    inflight = np.zeros(len(net.st.cc), np.int64)
    listed = np.zeros(4, np.int64)
    for d in net.directions:
        check_requestor(net, d, inflight)
        check_paths(net, d, listed)
        check_responder(net, d)
        check_alive(net, d)
    assert (inflight == net.st.cc["inflight"]).all(), "bytes in flight are those sent, not acknowledged, not lost"
    assert (listed == net.st.ev_states).all()
    check_windows(net.st, net.profile)


def check_windows(st: Any, pf: Any) -> None:
    """Every congestion window lies between its floor and its ceiling."""
    cc = st.cc
    ceiling = cc["max_cwnd"].astype(np.int64) << 16
    assert (cc["cwnd_q16"] >= pf.min_cwnd_q16).all()
    assert (cc["cwnd_q16"] <= np.maximum(ceiling, pf.min_cwnd_q16)).all()
    assert (ceiling >> 16 <= pf.max_cwnd_bytes).all()
    assert (cc["inc_q16"] >= 0).all()
    assert (cc["received"] >= 0).all()
    assert (cc["achieved"] >= 0).all()


def window_slots(st: Any, pf: Any, q: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (PSNs from una to next, their ring slots)."""
    req = st.req[q]
    una, following = int(req["una_psn"]), int(req["next_psn"])
    n = psn_diff(following, una)
    assert 0 <= n <= pf.ring_mask + 1
    psns = (una + np.arange(n)) & 0xFFFFFF
    return psns, st.ring[q][psns & pf.ring_mask]


def check_requestor(net: Network, d: Direction, inflight: np.ndarray) -> None:
    """Sequence numbers, the ring, what is in flight and what is lost."""
    st, pf, req = net.st, net.profile, net.st.req[d.q]
    psns, slots = window_slots(st, pf, d.q)
    state = slots["state"]
    assert int(req["next_psn"]) == d.psn_of(d.sent)
    assert int(req["end_psn"]) == d.psn_of(d.end)
    flying = state == SLOT_INFLIGHT
    lost = state == SLOT_LOST
    assert (flying | lost | (state == SLOT_ACKED)).all()
    inflight[int(req["cc"])] += int(slots["size"][flying].sum())
    assert int(req["lost_count"]) == int(lost.sum())
    if lost.any():
        first = psn_diff(int(psns[int(np.argmax(lost))]), int(req["una_psn"]))
        assert 0 <= psn_diff(int(req["lost_hint_psn"]), int(req["una_psn"])) <= first
    bits = np.unpackbits(st.acked[d.q].view(np.uint8), bitorder="little")
    expected = np.zeros(pf.ring_mask + 1, np.uint8)
    expected[psns[state == SLOT_ACKED] & pf.ring_mask] = 1
    assert (bits == expected).all(), "acknowledged bits are those of acknowledged slots in the window"
    suspect = slots["flags"] & SLOT_SUSPECT != 0
    assert not (suspect & ~flying).any(), "only a packet in flight is overdue"
    assert not (net.st.ring[d.q]["flags"] & SLOT_SUSPECT).sum() > suspect.sum()
    per_ev = np.bincount(slots["ev"][suspect], minlength=st.ev.shape[1])
    assert (per_ev == st.ev[d.q]["suspects"]).all()
    check_messages(net, d)


def check_messages(net: Network, d: Direction) -> None:
    """The send queue and the WRITE_IMM limit."""
    req = net.st.req[d.q]
    head, send, tail = int(req["sq_head"]), int(req["sq_send"]), int(req["sq_tail"])
    assert head == len(d.completed)
    assert tail == len(d.messages)
    if d.sent < d.end:
        assert send == d.message_at(d.sent)
    started = sum(m.imm for m in d.messages[head:] if m.first < d.sent)
    assert int(req["imm_outstanding"]) == started
    assert started <= net.profile.imm_limit


def check_paths(net: Network, d: Direction, listed: np.ndarray) -> None:
    """EV rows against the counts kept of them."""
    st, req = net.st, net.st.req[d.q]
    ev = st.ev[d.q]
    used = ev["role"] != ROLE_UNUSED
    bad = used & (ev["state"] == ASSUMED_BAD)
    active = (ev["role"] == ROLE_ACTIVE) | (ev["role"] == ROLE_PROMOTED)
    good = active & (ev["state"] <= SKIP)
    assert int(req["bad_total"]) == int(bad.sum())
    for plane in range(net.planes):
        on_plane = ev["plane"] == plane
        usable = int((good & on_plane).sum())
        row = st.plane[d.q, plane]
        assert int(row["usable"]) == usable
        assert bool(int(req["good_planes"]) >> plane & 1) == (usable > 0)
        assert 0 <= int(row["cursor"]) < max(int(row["count"]), 1)
        target = int((on_plane & ((ev["role"] == ROLE_ACTIVE) | (ev["role"] == ROLE_RETIRED))).sum())
        healthy = int((on_plane & used & (ev["state"] <= SKIP)).sum())
        assert usable == min(target, healthy), "a plane uses as many EVs as it should, while it has them"
    counted = used & ((ev["role"] != ROLE_BACKUP) | bad)
    listed += np.bincount(ev["state"][counted], minlength=4)
    if bad.any():
        up = int(req["local_ports"]) & int(req["peer_ports"])
        probed = [int(p) for p in ev["plane"][bad] if up >> int(p) & 1]
        assert not probed or int(req["next_probe_ps"]) < NEVER_PS or req["state"] != QP_RTS, "bad EVs are probed"
    probation = int(req["probation"])
    assert probation & ~(int(req["local_ports"]) & int(req["peer_ports"])) == 0
    assert probation == 0 or int(req["next_probe_ps"]) < NEVER_PS or req["state"] != QP_RTS


def bits_of(st: Any, pf: Any, q: int, kind: int, start_psn: int) -> set[int]:
    """Return the distances from `start_psn` of the bits set in the responder's window."""
    bits = np.unpackbits(np.ascontiguousarray(st.words[q, :, kind]).view(np.uint8), bitorder="little")
    ring = pf.words * 64
    return {(int(position) - start_psn) % ring for position in np.flatnonzero(bits)}


def check_responder(net: Network, d: Direction) -> None:
    """Receive state against sets of packet numbers."""
    rsp, twin = net.st.rsp[d.q], d.twin
    if twin.failed:
        assert rsp["state"] != QP_RTS
        assert int(rsp["msn_done"]) == twin.msn_done
        return
    assert rsp["state"] == QP_RTS
    assert int(rsp["cack_psn"]) == d.psn_of(twin.cack)
    assert int(rsp["high_psn"]) == d.psn_of(twin.high)
    assert int(rsp["ooo_count"]) == len(twin.beyond)
    assert int(rsp["msn_done"]) == twin.msn_done
    assert int(rsp["imm_done"]) == twin.imm_done
    assert int(rsp["imm_held"]) == len(twin.imms)
    assert int(rsp["recv_posted"]) == twin.recv_posted - twin.imm_done
    assert (int(rsp["unsacked_since_ps"]) < NEVER_PS) == twin.unsacked
    assert int(rsp["unsacked_bytes"]) == twin.unsacked_bytes
    start = d.psn_of(twin.cack + 1)
    for kind, numbers in ((W_RECEIVED, twin.beyond), (W_ENDS, twin.ends), (W_IMMS, twin.imms), (W_ASKED, twin.asked)):
        held = bits_of(net.st, net.profile, d.q, kind, start)
        assert held == {n - twin.cack - 1 for n in numbers}


def check_sack(d: Direction, row: Any, from_start: bool) -> None:
    """A SACK just made says exactly what has arrived."""
    start, bitmap = d.twin.sack(from_start)
    cack = d.twin.cack
    assert int(row["psn"]) == d.psn_of(cack)
    assert int(row["sack_offset"]) == start - cack
    assert int(row["bitmap"]) == bitmap
    assert int(row["ooo"]) == len(d.twin.beyond)
    assert int(row["rcvd"]) == d.twin.rcvd_units


def check_ack(d: Direction, row: Any) -> None:
    """A Transport ACK names the newest message completed in order."""
    assert int(row["msn"]) == (d.twin.msn_done - 1) & 0xFFFF
    if not d.twin.failed:
        assert int(row["psn"]) == d.psn_of(d.twin.cack)
        assert int(row["reason"]) == acks.SYNDROME_ACK


def check_alive(net: Network, d: Direction) -> None:
    """Whoever waits has something scheduled of his own: the network may drop all that flies."""
    req = net.st.req[d.q]
    if req["state"] != QP_RTS or len(d.completed) == len(d.messages):
        return
    if int(timers.requestor_deadline(net.st, net.pf, d.q, net.now)) < NEVER_PS:
        return
    if d.verdict == requestor.NO_ROOM and net.now <= net.retry[d.q] < NEVER_PS:
        return
    shared = [o for o in net.directions if o is not d and net.st.req[o.q]["cc"] == req["cc"]]
    flying = int(net.st.cc[int(req["cc"])]["inflight"]) > 0
    waiting = any(int(timers.requestor_deadline(net.st, net.pf, o.q, net.now)) < NEVER_PS for o in shared)
    assert d.verdict == requestor.WINDOW and flying and waiting, (
        f"direction {d.q} has unfinished messages, verdict {d.verdict}, and nothing is scheduled"
    )


def check_losses(net: Network) -> None:
    """Rule (a) is exact: on paths that keep their order it never condemns a packet that arrives.

    Called right after an event, before anything is sent again.
    """
    before, net.counts_before = net.counts_before, net.st.count.copy()
    grown = net.counts_before - before
    by_order = grown[C_FIFO] > 0 and grown[C_GUARD] == 0 and grown[C_TIMEOUT] == 0
    for d in net.directions:
        psns, slots = window_slots(net.st, net.profile, d.q)
        numbers = {d.number_of(int(p)) for p in psns[slots["state"] == SLOT_LOST]}
        if by_order and net.ordered:
            for number in numbers - net.lost_before[d.q]:
                fate = d.fates[number][-1]
                assert fate not in ("flying", "arrived"), f"rule (a) condemned packet {number}, which is {fate}"
        net.lost_before[d.q] = numbers


def check_finished(net: Network) -> None:
    """At the end every byte lies in its region, once, and nothing lies between the regions."""
    for d in net.directions:
        expected = np.zeros(d.memory.size, bool)
        for message in d.messages:
            expected[message.address : message.address + message.length] = True
        if d.failed:
            assert not d.memory[~expected].any()
            continue
        assert (d.memory.astype(bool) == expected).all()
        assert d.completed == list(range(len(d.messages)))
        assert d.delivered == list(range(len(d.messages)))
        assert d.twin.imm_done == sum(m.imm for m in d.messages)
        assert int(net.st.rsp[d.q]["error"]) != ERR_REMOTE_OP
        assert int(net.st.cc[int(net.st.req[d.q]["cc"])]["inflight"]) >= 0
