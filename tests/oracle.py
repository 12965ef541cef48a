"""A slow and obvious twin of the simulator: heapq, deques, one object per packet, port and NIC.

It has its own code for paths, queues, times, faults, NICs and the message graph. What it shares with the
simulator is the transport engine (called packet by packet), the state that the engine starts from, and
the names of random draws. Both port models are here; up to about 1e5 packet-hops.

Time order is the simulator's canonical one: (time, kind, id, the packet's own number).
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any

import numpy as np

from openmrc.jit import draw32
from openmrc.limits import NEVER_PS
from openmrc.scenario.graph import MESSAGE, RECEIVED, SENT, STARTED
from openmrc.sim.build import Plan, build
from openmrc.sim.layout import FAR_PS
from openmrc.transport import acks, ports, requestor, responder, timers
from openmrc.transport.evset import choose, standby_planes
from openmrc.transport.state import (
    CONTROL,
    CTRL_ACK,
    CTRL_EV_PROBE,
    CTRL_NACK,
    CTRL_PORT_STATUS,
    CTRL_PROBE,
    CTRL_RESPONSE,
    CTRL_SACK,
    QP_ERROR,
)
from openmrc.wire.settings import Mode
from openmrc.wire.sizes import PacketKind, line_bytes
from oracle_network import (
    DAMAGED,
    DEQUEUE,
    DONE,
    KINDS,
    NIC,
    PORT,
    RELEASE,
    REQ_TIMER,
    RSP_TIMER,
    Network,
    Nic,
    Packet,
    Port,
    Stay,
)


class Oracle(Network):
    """Simulate a plan from start to end with `model` = "fast" or "exact"."""

    def __init__(self, p: Plan, model: str, true_stamps: bool = True):
        self.plan, self.exact, self.true_stamps = p, model == "exact", true_stamps
        self.sc, self.topology, self.graph = p.scenario, p.topology, p.graph
        fresh = build(p)  # only the transport's initial state is used
        self.st, self.pf = fresh.state, fresh.profile
        self.grain = 1 << fresh.config.shift  # the simulator looks at the clock only this often
        self.mode = Mode(self.sc.transport.mode)
        self.ecmp = self.mode is Mode.ECMP
        self.heap: list[tuple] = []
        self.now = self.scheduled = 0
        self.planes = self.topology.params.planes
        self.ports = [Port(int(self.topology.link_layer(i))) for i in range(self.topology.n_links)]
        self.nics = [Nic(ports=(1 << self.planes) - 1) for _ in range(self.topology.params.n_nics)]
        self.src, self.dst = self.graph.qp_src.tolist(), self.graph.qp_dst.tolist()
        qps = range(len(self.src))
        self.out_of = {n: [q for q in qps if self.src[q] == n] for n in range(len(self.nics))}
        self.into = {n: [q for q in qps if self.dst[q] == n] for n in range(len(self.nics))}
        pairs = [(self.src[q], self.dst[q]) for q in qps]
        self.sibling = [pairs.index((d, s)) if (d, s) in pairs else -1 for s, d in pairs]
        # one QP tells each peer NIC about our ports: a requestor half if there is one, else a responder half
        self.leads = [pairs.index(pairs[q]) == q for q in qps]
        self.leads_back = [self.leads[q] and self.sibling[q] < 0 for q in qps]
        self.timer = {REQ_TIMER: [NEVER_PS for _ in qps], RSP_TIMER: [NEVER_PS for _ in qps]}
        self.pending: list[deque] = [deque() for _ in qps]
        self.failed_qps: set[int] = set()
        self.free_slots = list(range(1 << 14))[::-1]
        self.paths: dict[tuple, list[int]] = {}
        self._limits()
        self._faults()
        self._records()

    def _records(self) -> None:
        n = self.graph.n_nodes
        self.start, self.received, self.end = ([-1] * n for _ in range(3))
        self.rtx, self.trims = [0] * n, [0] * n
        names = ("link_down", "grey", "blackhole", "corrupt", "queue_full", "control_full", "no_path")
        self.drops = dict.fromkeys(names, 0)
        self.trimmed = self.marked = self.failed = self.hops_data = self.hops_control = 0
        self.plane_bytes = [0] * self.planes
        self.waits = [int(d) for d in self.graph.n_deps]
        self.left = len(self.graph.messages)
        self.peak = [0] * 6
        self.worst = [(-1, 0)] * len(self.src)  # (link, wait) of each QP
        self.fault_lost = [0] * len(self.plan.schedule.infos)
        self.fault_back = [-1] * len(self.plan.schedule.infos)
        self.affected: dict[tuple[int, int], Stay] = {}  # (fault, QP)

    # --- the loop ----------------------------------------------------------------------------
    def at(self, time_ps: int, kind: int, ident: int, packet: Packet | None = None) -> None:
        """Schedule an event."""
        assert time_ps >= self.now
        number = packet.number() if packet else ()
        self.scheduled += 1  # only so that two events never compare further
        heapq.heappush(self.heap, (time_ps, kind, ident, number, self.scheduled, packet))

    def run(self) -> Oracle:
        g, events = self.graph, self.plan.schedule.port_events
        for node in range(g.n_nodes):
            if self.waits[node] == 0:
                self.at(int(g.start_ps[node]), RELEASE, node)
        for i, time_ps in enumerate(events.time_ps.tolist()):
            self.at(time_ps, PORT, i)
        until = self.sc.sim.until or 1 << 62
        stop_ps = 0 if self.left <= 0 else (until // self.grain + 1) * self.grain
        while self.heap and self.heap[0][0] < stop_ps:
            self.now, kind, ident, _, _, packet = heapq.heappop(self.heap)
            self._event(kind, ident, packet)
            if self.left <= 0:
                stop_ps = min(stop_ps, (self.now // self.grain + 1) * self.grain)
        return self

    def _event(self, kind: int, ident: int, packet: Packet | None) -> None:
        """Do one event, then what it set in motion: answers, the NIC it woke, timers it moved."""
        self.outbox: list[Packet] = []
        self.kick = self.touch_req = self.touch_rsp = -1
        if kind == DEQUEUE:
            self._dequeue(ident)
            return
        if packet is not None and packet.hop < self.topology.hop_count(self.src[ident], self.dst[ident]):
            self._forward(packet)
            return
        if packet is not None:
            (self._control_arrives if packet.kind else self._data_arrives)(packet)
        elif kind == NIC:
            self.kick = ident
        elif kind == REQ_TIMER:
            self._requestor_timer(ident)
        elif kind == RSP_TIMER:
            self._responder_timer(ident)
        elif kind == RELEASE:
            self._release(ident)
        elif kind == DONE:
            self.end[ident] = self.received[ident] = self.now
            self._fire(ident, SENT)
            self._fire(ident, RECEIVED)
        else:
            self._port_event(ident)
        for answer in self.outbox:
            self._send_control(answer)
        if self.kick >= 0:
            self._pump(self.kick)
        if self.touch_req >= 0:
            self._arm(REQ_TIMER, self.touch_req)
            self._note_error(self.touch_req)
        if self.touch_rsp >= 0:
            self._arm(RSP_TIMER, self.touch_rsp)

    # --- work --------------------------------------------------------------------------------
    def _fire(self, node: int, event: int) -> None:
        g = self.graph
        for e in range(int(g.edge_first[node]), int(g.edge_first[node + 1])):
            if g.edge_on[e] == event:
                child = int(g.edge_child[e])
                self.waits[child] -= 1
                if self.waits[child] == 0:
                    self.at(self.now + int(g.start_ps[child]), RELEASE, child)

    def _release(self, node: int) -> None:
        self.start[node] = self.now
        self._fire(node, STARTED)
        if self.graph.kind[node] != MESSAGE:
            self.at(self.now + int(self.graph.duration_ps[node]), DONE, node)
            return
        q = int(self.graph.qp[node])
        if self.st.req[q]["state"] == QP_ERROR:
            self.failed += 1
            self.left -= 1
        elif self.pending[q] or not self._post(q, node):
            self.pending[q].append(node)

    def _post(self, q: int, node: int) -> bool:
        size, imm = int(self.graph.size_bytes[node]), int(self.graph.imm[node])
        if not requestor.post(self.st, self.pf, q, self.now, size, imm, node):
            return False
        self._ready(q)
        self.kick, self.touch_req = self.src[q], q
        return True

    def _message(self, q: int, position: int) -> int:
        """Return the node of a QP's message number."""
        return int(self.st.sq[q, position % self.st.sq.shape[1]]["wr_id"])

    def _note_error(self, q: int) -> None:
        req = self.st.req[q]
        if req["state"] == QP_ERROR and req["error"] != 0 and q not in self.failed_qps:
            self.failed_qps.add(q)
            lost = int(req["sq_tail"] - req["sq_head"]) + len(self.pending[q])
            self.failed += lost
            self.left -= lost

    # --- the NIC -----------------------------------------------------------------------------
    def _ready(self, q: int) -> None:
        ready = self.nics[self.src[q]].ready
        if q not in ready:
            ready.append(q)

    def _has_data(self, q: int) -> bool:
        req = self.st.req[q]
        return req["lost_count"] > 0 or req["next_psn"] != req["end_psn"]

    def _has_room(self, nic: int, plane: int) -> bool:
        return self.ports[self.topology.nic_up(nic, plane)].data_free - self.now < self.room

    def _pump(self, nic: int) -> None:
        """Send while a QP in turn may and a port has room; look again one packet time later."""
        state = self.nics[nic]
        room = sum(1 << plane for plane in range(self.planes) if self._has_room(nic, plane))
        refused = 0
        while len(state.ready) > refused and room:
            q = state.ready[0]
            verdict, psn, row, size, position = map(
                int, requestor.select(self.st, self.pf, q, self.now, room)
            )
            if verdict == requestor.SEND:
                first_in_flight = psn == self.st.req[q]["una_psn"]
                plane = self._send_data(nic, q, psn, row, size, position)
                if not self._has_room(nic, plane):
                    room &= ~(1 << plane)
                state.ready.rotate(-1)
                refused = 0
                if first_in_flight:
                    self._arm(REQ_TIMER, q)
            elif verdict == requestor.NO_ROOM:
                state.ready.rotate(-1)
                refused += 1
            else:
                state.ready.popleft()
        if state.ready and state.wake <= self.now:
            state.wake = self.now + self.full_ser * max(1, self.sc.sim.nic_queue_packets // 2)
            self.at(state.wake, NIC, nic)

    def _send_data(self, nic: int, q: int, psn: int, row: int, size: int, position: int) -> int:
        entropy = int(self.st.ev[q, row]["entropy"])
        plane = entropy >> 16
        link = self.topology.nic_up(nic, plane)
        tx_ps = max(self.ports[link].data_free, self.now)
        flags = int(requestor.commit(self.st, self.pf, q, psn, row, size, position, tx_ps))
        # what rides in the packet besides addresses: the ImmDt counts as payload here
        payload = size - self.pf.overhead_bytes
        packet = Packet(q, False, 0, psn, plane, entropy & 0x1FFF, payload, flags, entropy)
        packet.stamp, packet.tx_ps = tx_ps // 128_000 % 65536, tx_ps
        packet.line = line_bytes(PacketKind.DATA, self.mode, payload, tseth=self.sc.transport.tseth)
        if flags & requestor.FLAG_RTX:
            self.rtx[self._message(q, position)] += 1
        self._enqueue(packet, link)
        return plane

    def _answer(self, q: int, reverse: bool, row: Any) -> None:
        """Queue a control packet that the current event has produced."""
        path = int(row["path"])
        packet = Packet(
            q, reverse, int(row["kind"]), self.free_slots.pop(), path >> 16, path & 0x1FFF, row=row
        )
        packet.line = line_bytes(KINDS[packet.kind], self.mode)
        self.outbox.append(packet)

    def _send_control(self, packet: Packet) -> None:
        if packet.row["path"] < 0:
            self._drop(packet, "no_path")
            return
        nic = self.dst[packet.q] if packet.reverse else self.src[packet.q]
        packet.tx_ps = self.now
        self._enqueue(packet, self.topology.nic_up(nic, packet.plane))

    def _arm(self, which: int, q: int) -> None:
        if which == REQ_TIMER:
            due = int(timers.requestor_deadline(self.st, self.pf, q, self.now))
        else:
            due = int(timers.responder_deadline(self.st, self.pf, q, self.now))
        if due >= NEVER_PS:
            return
        due = min(max(due, self.now), self.now + FAR_PS - 1)
        if due < self.timer[which][q]:
            self.timer[which][q] = due
            self.at(due, which, q)

    def _requestor_timer(self, q: int) -> None:
        if self.timer[REQ_TIMER][q] != self.now:
            return
        self.timer[REQ_TIMER][q] = NEVER_PS
        self.touch_req = q
        row = new_row()
        action = timers.on_requestor_timer(self.st, self.pf, q, self.now, row)
        if action == timers.T_SEND:
            self._answer(q, False, row)
        if action != timers.T_FAILED and self._has_data(q):
            self._ready(q)
            self.kick = self.src[q]

    def _responder_timer(self, q: int) -> None:
        if self.timer[RSP_TIMER][q] != self.now:
            return
        self.timer[RSP_TIMER][q] = NEVER_PS
        self.touch_rsp = q
        row = new_row()
        action = timers.on_responder_timer(self.st, self.pf, q, self.now, row)
        if action == timers.T_TRIAL:
            number = int(self.st.rsp[q]["rev_probe_id"])
            plane = (number - 1) % self.planes
            choices = self.topology.path_uplinks(self.dst[q], self.src[q])
            pick = choices[int(draw32(self.seeds["paths"], q, number)) % len(choices)]
            responder.try_path(self.st, q, plane, plane << 16 | 0xC000 | pick, row)
        if action in (timers.T_TRIAL, timers.T_SEND):
            self._answer(q, True, row)

    def _port_event(self, index: int) -> None:
        events = self.plan.schedule.port_events
        nic, plane, up = (int(column[index]) for column in (events.nic, events.plane, events.up))
        state = self.nics[nic]
        state.ports = state.ports | 1 << plane if up else state.ports & ~(1 << plane)
        for q in self.out_of[nic]:
            ports.requestor_ports(self.st, q, self.now, state.ports, True, self.leads[q])
            if self._has_data(q):
                self._ready(q)
        for q in self.into[nic]:
            ports.responder_ports(self.st, q, self.now, state.ports, True, self.leads_back[q])
        self.kick = nic
        for q in self.out_of[nic]:
            self._arm(REQ_TIMER, q)
        for q in self.into[nic]:
            self._arm(RSP_TIMER, q)

    # --- arrivals ----------------------------------------------------------------------------
    def _data_arrives(self, p: Packet) -> None:
        q = p.q
        if p.trim == DAMAGED:
            self.drops["corrupt"] += 1
            return
        before = int(self.st.rsp[q]["msn_done"])
        size = self.pf.overhead_bytes + p.payload
        if not self.true_stamps:
            self._reconstruct(p)
        carried = p.flags & ~requestor.FLAG_FIRST
        actions = responder.on_data(
            self.st, self.pf, q, self.now, p.seq, size, carried, p.trim, p.marked, p.entropy
        )
        if actions & responder.DELIVERED:
            self.plane_bytes[p.plane] += p.payload
        if actions & responder.DO_SACK:
            row = new_row()
            responder.write_sack(self.st, self.pf, q, p.seq, carried, p.marked, p.entropy, p.stamp, row)
            self._answer(q, True, row)
        if actions & responder.DO_ACK:
            self._acknowledge(q)
        if actions & responder.DO_NACK:
            row = new_row()
            responder.write_nack(self.st, q, p.seq, p.trim, p.entropy, p.stamp, row)
            self._answer(q, True, row)
        for position in range(before, int(self.st.rsp[q]["msn_done"])):
            node = self._message(q, position)
            self.received[node] = self.now
            self._fire(node, RECEIVED)
        self.touch_rsp = q

    def _reconstruct(self, p: Packet) -> None:
        """Replace entropy and timestamp by what the simulator's 16-byte packet tells of them.

        It looks them up where the sender wrote the newest transmission of that PSN. So it may take an older
        copy for the newest when both took the same path; where switches hash, it does not know the EV.
        """
        slot = self.st.ring[p.q, p.seq & self.pf.ring_mask]
        sent = int(self.st.ev[p.q, int(slot["ev"])]["entropy"])
        again = slot["count"] > 1
        stamp = int(slot["tx_ps"]) // 128_000 % 65536
        old = again != bool(p.flags & requestor.FLAG_RTX)
        if slot["count"] > 2 and not self.ecmp:  # a retransmission, but which one? only the path can tell
            old = old or sent != p.entropy
        p.stamp = stamp ^ 0x8000 if old else stamp
        p.entropy = sent if self.ecmp else p.entropy

    def _acknowledge(self, q: int) -> None:
        row = new_row()
        responder.write_ack(self.st, q, row)
        self._answer(q, True, row)

    def _control_arrives(self, p: Packet) -> None:
        q, row = p.q, p.row
        if p.kind == CTRL_SACK:
            acks.on_sack(self.st, self.pf, q, self.now, row, 0, False)
            if self.sibling[q] >= 0:
                entropy = int(row["entropy"])
                responder.refresh_reverse(self.st, self.sibling[q], entropy >> 16, entropy)
        elif p.kind == CTRL_ACK:
            self._transport_ack(q, row)
        elif p.kind == CTRL_NACK:
            trimmed = int(row["reason"]) in (acks.NACK_TRIMMED, acks.NACK_TRIMMED_LASTHOP)
            if acks.on_nack(self.st, self.pf, q, self.now, row) and trimmed:
                position = int(requestor.find_message(self.st, q, int(row["psn"])))
                self.trims[self._message(q, position)] += 1
        elif p.kind == CTRL_PROBE:
            self._probe_arrives(p)
        else:
            self._endpoint_packet(p)
        if p.kind in (CTRL_SACK, CTRL_ACK, CTRL_NACK):
            if self._has_data(q):
                self._ready(q)
                self.kick = self.src[q]
            self.touch_req = q
        elif p.kind != CTRL_PROBE:
            self.touch_req = q
        self.free_slots.append(p.seq)

    def _transport_ack(self, q: int, row: Any) -> None:
        before = int(self.st.req[q]["sq_head"])
        done = int(acks.on_transport_ack(self.st, self.pf, q, self.now, row))
        for position in range(before, before + done):
            node = self._message(q, position)
            self.end[node] = self.now
            self.left -= 1
            self._fire(node, SENT)
        while done and self.pending[q] and self._post(q, self.pending[q][0]):
            self.pending[q].popleft()

    def _probe_arrives(self, p: Packet) -> None:
        if self.st.rsp[p.q]["state"] == QP_ERROR:
            return
        row, probe = new_row(), p.row
        responder.write_probe_sack(
            self.st,
            self.pf,
            p.q,
            int(probe["probe_id"]),
            p.marked,
            int(probe["path"]),
            int(probe["tx_stamp"]),
            row,
        )
        self._answer(p.q, True, row)
        self._acknowledge(p.q)
        self.touch_rsp = p.q

    def _endpoint_packet(self, p: Packet) -> None:
        """Port status, EV probe, and the responses to both."""
        q, row, number = p.q, p.row, int(p.row["probe_id"])
        if p.kind == CTRL_RESPONSE:
            if row["reason"] == CTRL_EV_PROBE:
                responder.on_path_answer(self.st, q, number)
            else:
                ports.on_update_answered((self.st.req if p.reverse else self.st.rsp)[q], number)
            return
        if p.kind == CTRL_PORT_STATUS:
            self._peer_ports(p, int(row["mask"]) & 0xFF)
        answer = new_row()
        if p.reverse:
            chosen = int(choose(self.st, q, int(standby_planes(self.st.req[q]))))
            path = int(self.st.ev[q, chosen]["entropy"]) if chosen >= 0 else -1
        else:
            path = int(responder.reverse_path(self.st, q))
        responder.write_response(p.kind, number, path, answer)
        self._answer(q, not p.reverse, answer)

    def _peer_ports(self, p: Packet, mask: int) -> None:
        ours, peer = (self.src[p.q], self.dst[p.q]) if p.reverse else (self.dst[p.q], self.src[p.q])
        for q in self.out_of[ours]:
            if self.dst[q] == peer:
                ports.requestor_ports(self.st, q, self.now, mask, False, False)
                if self._has_data(q):
                    self._ready(q)
        for q in self.into[ours]:
            if self.src[q] == peer:
                ports.responder_ports(self.st, q, self.now, mask, False, False)
        self.kick = ours


def new_row() -> Any:
    """Return an empty control packet: nothing that an earlier one said shines through."""
    return np.zeros(1, CONTROL)[0]
