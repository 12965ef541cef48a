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
    from transport_model import Direction
    from transport_network import Network

SLOT_FIELDS = ("state", "ev", "size", "flags")
C_FIFO, C_GUARD, C_TIMEOUT = (COUNTER_INDEX[f"lost_{name}"] for name in ("fifo", "guard", "timeout"))


def check(net: Network) -> None:
    """Assert every invariant of both halves of every direction."""
    inflight = [0] * len(net.st.cc)
    listed = [0] * 4
    for d in net.directions:
        flying, states = check_requestor(net, d)
        inflight[int(net.st.req[d.q]["cc"])] += flying
        for state in range(4):
            listed[state] += states[state]
        check_responder(net, d)
        check_alive(net, d)
    assert inflight == net.st.cc["inflight"].tolist(), "in flight: sent, not acknowledged, not declared lost"
    assert listed == net.st.ev_states.tolist()
    key = net.st.cc.tobytes()
    if key != net.checked_windows:
        net.checked_windows = key
        for cc in net.st.cc:
            check_window(cc, net.profile)


def check_window(cc: Any, pf: Any) -> None:
    """A congestion window lies between its floor and its ceiling."""
    cwnd, ceiling = int(cc["cwnd_q16"]), int(cc["max_cwnd"]) << 16
    assert pf.min_cwnd_q16 <= cwnd <= max(ceiling, pf.min_cwnd_q16)
    assert pf.mtu_bytes + pf.overhead_bytes <= ceiling >> 16 <= pf.max_cwnd_bytes
    assert min(int(cc["inc_q16"]), int(cc["received"]), int(cc["achieved"]), int(cc["fi_count"])) >= 0


def window_slots(st: Any, pf: Any, q: int) -> list[tuple[int, ...]]:
    """Return (PSN, slot state, EV row, size, flags) of every packet from una to next."""
    req = st.req[q]
    una, n = int(req["una_psn"]), psn_diff(int(req["next_psn"]), int(req["una_psn"]))
    assert 0 <= n <= pf.ring_mask + 1
    at, ring = una & pf.ring_mask, st.ring[q]
    over = max(0, at + n - pf.ring_mask - 1)
    columns = [ring[name][at : at + n].tolist() + ring[name][:over].tolist() for name in SLOT_FIELDS]
    psns = [(una + i) & 0xFFFFFF for i in range(n)]
    return list(zip(psns, *columns, strict=True))


def check_requestor(net: Network, d: Direction) -> tuple[int, list[int]]:
    """Check the requestor half when it has changed; returns (bytes in flight, EVs listed by state)."""
    st, q = net.st, d.q
    arrays = (st.req[q], st.ring[q], st.ev[q], st.plane[q], st.acked[q])
    key = (*(a.tobytes() for a in arrays), d.sent, d.end, len(d.completed))
    if key != d.checked:
        flying = check_ring(net, d)
        check_messages(net, d)
        d.checked, d.found = key, (flying, check_paths(net, d))
    return d.found


def check_ring(net: Network, d: Direction) -> int:
    """Sequence numbers, the ring, what is in flight and what is lost; returns the bytes in flight."""
    st, pf, req = net.st, net.profile, net.st.req[d.q]
    assert int(req["next_psn"]) == d.psn_of(d.sent)
    assert int(req["end_psn"]) == d.psn_of(d.end)
    if req["state"] != QP_RTS:
        assert not any(state == SLOT_INFLIGHT for _, state, *_ in window_slots(st, pf, d.q))
        d.lost = set()
        return 0
    acked, lost, flying = 0, [], 0
    suspects: dict[int, int] = {}
    for psn, state, row, size, flags in window_slots(st, pf, d.q):
        if state == SLOT_INFLIGHT:
            flying += size
        elif state == SLOT_LOST:
            lost.append(psn)
        else:
            assert state == SLOT_ACKED
            acked |= 1 << (psn & pf.ring_mask)
        if flags & SLOT_SUSPECT:
            assert state == SLOT_INFLIGHT, "only a packet in flight is overdue"
            suspects[row] = suspects.get(row, 0) + 1
    assert int(req["lost_count"]) == len(lost)
    d.lost = {d.number_of(psn) for psn in lost}
    if lost:
        hint = psn_diff(int(req["lost_hint_psn"]), int(req["una_psn"]))
        assert 0 <= hint <= psn_diff(lost[0], int(req["una_psn"]))
    bits = int.from_bytes(st.acked[d.q].tobytes(), "little")
    assert bits == acked, "acknowledged bits are those of acknowledged slots in the window"
    assert int((st.ring[d.q]["flags"] & SLOT_SUSPECT).sum()) == sum(suspects.values())
    assert {row: n for row, n in enumerate(st.ev[d.q]["suspects"].tolist()) if n} == suspects
    return flying


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


def check_paths(net: Network, d: Direction) -> list[int]:
    """EV rows against the counts kept of them; returns how many are listed in each state."""
    st, req = net.st, net.st.req[d.q]
    up = int(req["local_ports"]) & int(req["peer_ports"])
    names = st.ev.dtype.names
    rows = [dict(zip(names, row, strict=True)) for row in st.ev[d.q].tolist()]
    rows = [row for row in rows if row["role"] != ROLE_UNUSED]
    listed = [0] * 4
    probed = False
    for plane in range(net.planes):
        usable = wanted = healthy = 0
        for row in rows:
            if row["plane"] != plane:
                continue
            role, state = row["role"], row["state"]
            usable += role in (ROLE_ACTIVE, ROLE_PROMOTED) and state <= SKIP
            wanted += role in (ROLE_ACTIVE, ROLE_RETIRED)
            healthy += state <= SKIP
            listed[state] += role != ROLE_BACKUP or state == ASSUMED_BAD
            probed |= state == ASSUMED_BAD and bool(up >> plane & 1)
        record = st.plane[d.q, plane]
        assert int(record["usable"]) == usable
        assert bool(int(req["good_planes"]) >> plane & 1) == (usable > 0)
        assert 0 <= int(record["cursor"]) < max(int(record["count"]), 1)
        assert usable == min(wanted, healthy), "a plane uses as many EVs as it should, while it has them"
    assert int(req["bad_total"]) == sum(row["state"] == ASSUMED_BAD for row in rows)
    probation = int(req["probation"])
    assert probation & ~up == 0
    if (probed or probation) and req["state"] == QP_RTS:
        assert int(req["next_probe_ps"]) < NEVER_PS, "bad EVs and returning planes are probed"
    return listed


def bits_of(st: Any, pf: Any, q: int, kind: int, start_psn: int) -> int:
    """Return the bits set in the responder's window, rotated so that bit 0 is `start_psn`."""
    ring = pf.words * 64
    bits = int.from_bytes(st.words[q, :, kind].tobytes(), "little")
    shift = start_psn % ring
    return (bits >> shift | bits << (ring - shift)) & ((1 << ring) - 1)


def check_responder(net: Network, d: Direction) -> None:
    """Receive state against sets of packet numbers."""
    rsp, twin = net.st.rsp[d.q], d.twin
    if twin.failed:
        assert rsp["state"] != QP_RTS
        assert int(rsp["msn_done"]) == twin.msn_done
        return
    key = (rsp.tobytes(), net.st.words[d.q].tobytes())
    if key == d.checked_responder:
        return
    d.checked_responder = key
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
    kinds = {W_RECEIVED: twin.beyond, W_ENDS: twin.ends, W_IMMS: twin.imms, W_ASKED: twin.asked}
    for kind, numbers in kinds.items():
        expected = sum(1 << (n - twin.cack - 1) for n in numbers)
        assert bits_of(net.st, net.profile, d.q, kind, start) == expected


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
    blocked = d.verdict in (requestor.WINDOW, requestor.PACED)
    assert all((blocked, flying, waiting)), (
        f"direction {d.q} has unfinished messages, verdict {d.verdict}, and nothing is scheduled"
    )


def check_losses(net: Network) -> None:
    """Rule (a) is exact: on paths that keep their order it never condemns a packet that arrives.

    Called right after an event, before anything is sent again.
    """
    before, net.counts_before = net.counts_before, net.st.count.copy()
    grown = net.counts_before - before
    by_order = grown[C_FIFO] > 0 and grown[C_GUARD] == 0 and grown[C_TIMEOUT] == 0
    if not by_order or not net.ordered:
        return
    for d in net.directions:
        slots = window_slots(net.st, net.profile, d.q)
        numbers = {d.number_of(slot[0]) for slot in slots if slot[1] == SLOT_LOST}
        for number in numbers - d.lost - d.refused:
            fate = d.fates[number][-1]
            assert fate not in ("flying", "arrived"), f"rule (a) condemned packet {number}, which is {fate}"


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
