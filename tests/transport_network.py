"""Two real engines and a hostile network between them, in plain Python, without the simulator.

Ends 0 and 1 hold any number of QP directions. Every event is followed by `transport_checks.check`.
The network drops, duplicates, delays, reorders, trims, marks, corrupts and refuses packets, replays
old control packets, kills paths and ports; a model beside the engine knows what must be true.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import transport_checks
from openmrc.limits import NEVER_PS
from openmrc.packed import pack
from openmrc.transport import acks, evset, ports, requestor, responder, timers
from openmrc.transport.settings import Profile
from openmrc.transport.state import (
    COUNTER_INDEX,
    CTRL_ACK,
    CTRL_EV_PROBE,
    CTRL_NACK,
    CTRL_PORT_STATUS,
    CTRL_PROBE,
    CTRL_RESPONSE,
    CTRL_SACK,
    QP_ERROR,
    QP_RTS,
)
from transport_model import (
    ARRIVED,
    FLYING,
    LOST,
    REFUSED,
    TRIMMED,
    Direction,
    Message,
    Packet,
    Path,
    Weather,
)
from transport_support import ALL_ROOM, US, control_row, entropy_of, open_state
from transport_twins import ResponderTwin

DATA = 0
DATA_CLASS = (DATA, CTRL_PROBE, CTRL_EV_PROBE, CTRL_PORT_STATUS)
PS_PER_BYTE = 80  # 100 Gb/s a port
REFUSALS = (acks.NACK_NO_BITMAP, acks.NACK_NO_PKT_BUFFER, acks.NACK_NO_RESOURCE, acks.NACK_PSN_OOR_WINDOW)
GUARD_BYTES = 64  # between the regions of two messages: nobody may write there


class Network:
    """See the module. `routes` has one (source end, destination end) per direction."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        *,
        routes: tuple[tuple[int, int], ...] = ((0, 1), (1, 0)),
        planes: int = 2,
        active: int = 4,
        backups: int = 2,
        depth: int = 16,
        first_psn: int = 0xFFFF80,
        cc_row: list[int] | None = None,
        recv_posted: int = 1 << 60,
        responder_window: int | None = None,
        memory_bytes: int = 1 << 18,
        weather: Weather | None = None,
    ):
        self.seed, self.random, self.profile, self.pf = seed, random.Random(seed), profile, pack(profile)
        self.planes, self.per_plane, self.depth = planes, active + backups, depth
        self.st = open_state(
            profile,
            directions=len(routes),
            planes=planes,
            active=active,
            backups=backups,
            first_psn=first_psn,
            depth=depth,
            cc_row=cc_row,
        )
        self.st.rsp["recv_posted"] = recv_posted
        self.directions = [
            Direction(
                q,
                src,
                dst,
                int(self.st.req[q]["una_psn"]),
                ResponderTwin(profile, recv_posted=recv_posted),
                np.zeros(memory_bytes, np.uint8),
            )
            for q, (src, dst) in enumerate(routes)
        ]
        self.weather = weather or Weather()
        if responder_window is not None:  # smaller than the requestor believes
            self.st.rsp["window_psns"] = responder_window
            for d in self.directions:
                d.twin.window = responder_window
        self.now = 1000 * US
        self.queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.sequence = 0
        self.ports = [(1 << planes) - 1] * 2
        self.port_free = [[0] * planes for _ in range(2)]
        self.paths: dict[tuple[int, int], Path] = {}
        self.req_timer = [NEVER_PS] * len(routes)
        self.rsp_timer = [NEVER_PS] * len(routes)
        self.retry = [NEVER_PS] * len(routes)
        self.history: list[Packet] = []
        self.stats: Counter[str] = Counter()
        self.steps = 0
        self.checked_windows = b""
        self.counts_before = self.st.count.copy()
        self.ordered = self.weather.fifo  # for the whole run

    # --- what a test does ---------------------------------------------------------------------

    def before_wrap(self, size_bytes: int) -> None:
        """Start every responder `size_bytes` before CC_STATE.rcvd_bytes wraps (24 bit of 256 B)."""
        for d in self.directions:
            start = (1 << 32) - size_bytes // 256 * 256
            self.st.rsp[d.q]["rcvd_bytes"] = d.twin.rcvd_bytes = start

    def post(self, q: int, length: int, imm: int = 0) -> bool:
        """Post a message; False when the send queue or the memory of the model is full."""
        d = self.directions[q]
        address = GUARD_BYTES + (d.messages[-1].address + d.messages[-1].length if d.messages else 0)
        if address + length + GUARD_BYTES > d.memory.size:
            return False
        taken = bool(requestor.post(self.st, self.pf, q, self.now, length, imm, len(d.messages)))
        full = len(d.messages) - len(d.completed) >= self.depth
        ready = self.st.req[q]["state"] == QP_RTS
        assert taken == (ready and not full), "post fails only when the send queue is full"
        if taken:
            packets = max(1, -(-length // self.profile.pmtu_bytes))
            d.messages.append(Message(d.end, packets, length, imm, address))
            d.end += packets
            d.fates += [[] for _ in range(packets)]
            self.stats["zero_length"] += length == 0
            self.stats["imm"] += imm
        self._settle()
        return taken

    def port(self, end: int, plane: int, up: bool) -> None:
        """Take a port of one end down or bring it back."""
        mask = self.ports[end]
        mask = mask | 1 << plane if up else mask & ~(1 << plane)
        if mask == self.ports[end]:
            return
        self.ports[end] = mask
        self.stats["port_up" if up else "port_down"] += 1
        leader_req = leader_rsp = True
        for d in self.directions:
            if d.src == end:
                ports.requestor_ports(self.st, d.q, self.now, mask, True, leader_req)
                leader_req = False
            if d.dst == end:
                ports.responder_ports(self.st, d.q, self.now, mask, True, leader_rsp)
                leader_rsp = False
        self._settle()

    def path(self, end: int, entropy: int) -> Path:
        key = (end, entropy)
        if key not in self.paths:
            self.paths[key] = Path(self.random.randrange(3 * US, 5 * US))
        return self.paths[key]

    def kill(self, end: int, plane: int, index: int, *, alive: bool = False, loss: float = 0.0) -> None:
        """Make a path a black hole (or alive again), or lossy."""
        path = self.path(end, entropy_of(plane, index))
        path.alive, path.loss = alive, loss

    def heal(self) -> None:
        """Peace: every path and port works, nothing is lost any more."""
        self.weather = Weather()
        for path in self.paths.values():
            path.alive, path.loss = True, 0.0
        for end in range(2):
            for plane in range(self.planes):
                self.port(end, plane, True)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if not self.step():
                break

    def run_for(self, duration_ps: int) -> None:
        """Let time pass; something happens at its end at the latest."""
        self._push(self.now + duration_ps, self._nothing)
        until = self.now + duration_ps
        while self.now < until:
            self.step()

    def is_idle(self) -> bool:
        states = self.st.req["state"]
        return all(states[d.q] == QP_ERROR or len(d.completed) == len(d.messages) for d in self.directions)

    def drain(self, limit_ps: int = 100_000 * US, steps: int = 100_000) -> None:
        """Heal the network and see that everything completes, not much later than the timeouts allow."""
        self.heal()
        retries = int(self.st.req["retries"].max())
        limit_ps += 8 * int(timers.timeout_interval_ps(self.pf, retries))
        until = self.now + limit_ps
        for _ in range(steps):
            if self.is_idle():
                break
            assert self.queue, "messages wait and nothing is scheduled"
            assert self.now < until, f"not complete {limit_ps // US} us after the network was healed"
            self.step()
        assert self.is_idle(), f"not complete after {steps} events"
        transport_checks.check_finished(self)

    # --- the event loop -----------------------------------------------------------------------

    def _nothing(self) -> None:
        """An event that only lets time pass."""

    def _push(self, time: int, action: Callable[..., None], *args: Any) -> None:
        self.sequence += 1
        heapq.heappush(self.queue, (max(time, self.now), self.sequence, action, args))

    def step(self) -> bool:
        """Process one event; False when there is none."""
        if not self.queue:
            return False
        time, _, action, args = heapq.heappop(self.queue)
        assert time >= self.now
        self.now = time
        self.steps += 1
        if self.history and self.random.random() < self.weather.replay:
            self._replay()
        action(*args)
        self._settle()
        return True

    def _settle(self) -> None:
        transport_checks.check_losses(self)
        self._pump()
        for d in self.directions:
            self._arm(d)
        transport_checks.check(self)

    def _pump(self) -> None:
        """Send what may be sent, directions in turn."""
        todo = [d for d in self.directions if self.st.req[d.q]["state"] == QP_RTS]
        while todo:
            todo = [d for d in todo if self._send_one(d)]

    def _room(self, end: int) -> int:
        room = 0
        for plane in range(self.planes):
            if self.port_free[end][plane] - self.now < 2 * PS_PER_BYTE * self.profile.pmtu_bytes:
                room |= 1 << plane
        return room

    def _send_one(self, d: Direction) -> bool:
        answer = requestor.select(self.st, self.pf, d.q, self.now, self._room(d.src))
        verdict, psn, row, size, position = (int(x) for x in answer)
        d.verdict = verdict
        self.stats[f"verdict_{verdict}"] += 1
        if verdict == requestor.NO_ROOM and not self.now < self.retry[d.q] < NEVER_PS:
            self.retry[d.q] = self.now + 100_000  # look again when a port has sent something
            self._push(self.retry[d.q], self._nothing)
        if verdict != requestor.SEND:
            return False
        plane = int(self.st.ev[d.q, row]["plane"])
        tx_ps = max(self.port_free[d.src][plane], self.now)
        self.port_free[d.src][plane] = tx_ps + size * PS_PER_BYTE
        flags = int(requestor.commit(self.st, self.pf, d.q, psn, row, size, position, tx_ps))
        self._data(d, psn, row, size, position, flags, tx_ps)
        return True

    def _data(
        self, d: Direction, psn: int, row: int, size: int, position: int, flags: int, tx_ps: int
    ) -> None:
        """Compare what the engine sends with the messages posted, and put it on its path."""
        number = d.number_of(psn)
        again = number < d.sent
        if not again:
            assert number == d.sent, "new packets leave in order"
            d.sent += 1
        index = d.message_at(number)
        message = d.messages[index]
        assert index == position
        offset = (number - message.first) * self.profile.pmtu_bytes
        length = min(message.length - offset, self.profile.pmtu_bytes)
        last = number == message.first + message.packets - 1
        expected = requestor.FLAG_FIRST * (number == message.first) | requestor.FLAG_LAST * last
        expected |= requestor.FLAG_IMM * (last and message.imm) | requestor.FLAG_RTX * again
        assert flags & ~requestor.FLAG_ASK == expected
        wire = (
            self.profile.overhead_bytes
            + -(-length // 4) * 4
            + self.profile.imm_bytes * (last and message.imm)
        )
        assert size == wire
        assert (len(d.fates[number]) > 0) == again
        d.fates[number].append(FLYING)
        packet = Packet(DATA, d.q, d.src, int(self.st.ev[d.q, row]["entropy"]))
        packet.number, packet.transmission = number, len(d.fates[number]) - 1
        packet.flags, packet.size, packet.stamp = flags, size, int(acks.stamp_of(tx_ps))
        packet.offset, packet.length = offset, length
        self.stats["retransmitted" if again else "data"] += 1
        self._transmit(packet, tx_ps + size * PS_PER_BYTE)

    def _fate(self, packet: Packet, fate: str) -> None:
        fates = self.directions[packet.q].fates[packet.number]
        if fates[packet.transmission] != ARRIVED:
            fates[packet.transmission] = fate

    def _transmit(self, packet: Packet, depart_ps: int) -> None:
        """Decide what the network does to a packet."""
        w, draw, path = self.weather, self.random.random, self.path(packet.end, packet.entropy)
        ordered = packet.kind in DATA_CLASS
        up = self.ports[packet.end] >> (packet.entropy >> 16) & 1
        loss, jitter = (w.loss, w.jitter_ps) if ordered else (w.control_loss, w.control_jitter_ps)
        if not up or not path.alive or draw() < max(loss, path.loss):
            self.stats["black_hole" if not path.alive else "port_lost" if not up else f"lost_{ordered}"] += 1
            if packet.kind == DATA:
                self._fate(packet, LOST)
            return
        if packet.kind == DATA:
            self._mistreat(packet)
        elif ordered and draw() < w.mark:
            packet.marked = True
        arrival = depart_ps + path.delay_ps + (self.random.randrange(jitter) if jitter else 0)
        if ordered and w.fifo and packet.trim == 0:
            arrival = max(arrival, path.last_ps + 1)
            path.last_ps = arrival
        self._push(arrival, self._arrive, packet)
        if draw() < (w.duplicate if ordered else w.control_duplicate):
            self.stats[f"duplicated_{ordered}"] += 1
            later = arrival + self.random.randrange(20 * US)
            self._push(later, self._arrive, packet)

    def _mistreat(self, packet: Packet) -> None:
        """Trim, mark, or damage a data packet on its way."""
        w, draw = self.weather, self.random.random
        if draw() < w.trim:
            packet.trim = responder.TRIMMED
        elif draw() < w.trim_lasthop:
            packet.trim = responder.TRIMMED_LASTHOP
        elif draw() < w.corrupt:
            packet.trim = -1
        if packet.trim:  # whole it will never arrive
            self._fate(packet, TRIMMED if packet.trim > 0 else LOST)
        packet.marked = draw() < w.mark

    def _replay(self) -> None:
        """A control packet of the past arrives once more."""
        packet = self.random.choice(self.history)
        self.stats[f"replayed_{packet.kind}"] += 1
        self._push(self.now, self._control_arrives, packet)

    # --- arrivals -----------------------------------------------------------------------------

    def _arrive(self, packet: Packet) -> None:
        plane = packet.entropy >> 16
        if not self.ports[1 - packet.end] >> plane & 1 or not self.ports[packet.end] >> plane & 1:
            self.stats["port_lost"] += 1
            if packet.kind == DATA:
                self._fate(packet, LOST)
            return
        if packet.kind == DATA:
            self._data_arrives(packet)
        else:
            self._control_arrives(packet)

    def _data_arrives(self, p: Packet) -> None:
        d = self.directions[p.q]
        if p.trim == -1:  # the ICRC catches it: no answer
            self.stats["corrupted"] += 1
            self._fate(p, LOST)
            return
        draw = self.random.random()
        if p.trim == 0 and draw < self.weather.refuse + self.weather.fatal:
            reason = acks.NACK_UNEXP_EVENT if draw < self.weather.fatal else self.random.choice(REFUSALS)
            self._refuse(d, p, reason)
            return
        psn = d.psn_of(p.number)
        expected = d.twin.data(p.number, p.size, p.flags, p.trim != 0, p.marked)
        done = d.twin.msn_done
        actions = int(
            responder.on_data(
                self.st, self.pf, p.q, self.now, psn, p.size, p.flags, p.trim, p.marked, p.entropy
            )
        )
        if expected < 0:  # the half is in ERROR: it only repeats why
            assert actions & ~(responder.DO_ACK | responder.DO_NACK) == 0
        else:
            assert actions == expected, f"actions {actions} of packet {p.number}, the twin says {expected}"
        self._note_arrival(d, p, actions)
        if actions & responder.DO_SACK:
            row = control_row()
            from_start = p.flags & requestor.FLAG_ASK != 0
            responder.write_sack(self.st, self.pf, p.q, psn, p.flags, p.marked, p.entropy, p.stamp, row)
            transport_checks.check_sack(d, row, from_start)
            assert (row["trigger_psn"], row["entropy"], row["tx_stamp"]) == (psn, p.entropy, p.stamp)
            self._control(p.q, d.dst, row)
        if actions & responder.DO_ACK:
            self._ack(d)
        if actions & responder.DO_NACK:
            row = control_row()
            responder.write_nack(self.st, p.q, psn, p.trim, p.entropy, p.stamp, row)
            self._control(p.q, d.dst, row)
        d.delivered += range(len(d.delivered), int(self.st.rsp[p.q]["msn_done"]))
        assert len(d.delivered) >= done

    def _note_arrival(self, d: Direction, p: Packet, actions: int) -> None:
        self.stats[f"trimmed_{p.trim}"] += 1
        self.stats["marked"] += p.marked
        self.stats["out_of_window"] += bool(actions & responder.DO_NACK and p.trim == 0)
        if p.trim:
            self._fate(p, TRIMMED)
        elif actions & (responder.DELIVERED | responder.DO_SACK):
            self._fate(p, ARRIVED)
        else:
            self._fate(p, REFUSED)
        if actions & responder.FAILED:
            d.failed = True
            self.stats["responder_failed"] += 1
        if actions & responder.DELIVERED:
            message = d.messages[d.message_at(p.number)]
            at = message.address + p.offset
            assert p.offset + p.length <= message.length
            assert not d.memory[at : at + p.length].any(), "a byte is written twice"
            d.memory[at : at + p.length] = 1

    def _refuse(self, d: Direction, p: Packet, reason: int) -> None:
        """The peer has no room for the packet, or gives up."""
        self.stats[f"refused_{reason:#04x}"] += 1
        self._fate(p, REFUSED)
        d.refused.add(p.number)
        row = control_row()
        row["kind"], row["psn"], row["reason"] = CTRL_NACK, d.psn_of(p.number), reason
        row["entropy"], row["tx_stamp"] = p.entropy, p.stamp
        row["path"] = responder.reverse_path(self.st, p.q)
        self._control(p.q, d.dst, row)

    def _ack(self, d: Direction) -> None:
        row = control_row()
        responder.write_ack(self.st, d.q, row)
        transport_checks.check_ack(d, row)
        self._control(d.q, d.dst, row)

    def _control(self, q: int, end: int, row: Any) -> None:
        """Send a control packet from `end` on the path it names."""
        entropy = int(row["path"])
        if entropy < 0:
            self.stats["no_control_path"] += 1
            return
        packet = Packet(int(row["kind"]), q, end, entropy, row=row)
        if packet.kind in (CTRL_SACK, CTRL_ACK, CTRL_NACK):
            self.history = [*self.history[-63:], packet]
        depart = self.now
        if packet.kind in DATA_CLASS:
            plane = entropy >> 16
            depart = max(self.port_free[end][plane], self.now) + 100 * PS_PER_BYTE
            self.port_free[end][plane] = depart
        self._transmit(packet, depart)

    def _control_arrives(self, p: Packet) -> None:
        q, row, kind = p.q, p.row, p.kind
        d = self.directions[q]
        self.stats[f"control_{kind}"] += 1
        if kind == CTRL_SACK:
            acks.on_sack(self.st, self.pf, q, self.now, row, 0, False)
            self._refresh_siblings(d, int(row["entropy"]))
        elif kind == CTRL_ACK:
            self._complete(d, int(acks.on_transport_ack(self.st, self.pf, q, self.now, row)))
        elif kind == CTRL_NACK:
            acks.on_nack(self.st, self.pf, q, self.now, row)
        elif kind == CTRL_PROBE:
            answer = control_row()
            if self.st.rsp[q]["state"] == QP_RTS:
                stamp, entropy = int(row["tx_stamp"]), int(row["path"])
                probe_id = int(row["probe_id"])
                responder.write_probe_sack(self.st, self.pf, q, probe_id, p.marked, entropy, stamp, answer)
                transport_checks.check_sack(d, answer, True)
                self._control(q, d.dst, answer)
            self._ack(d)
        else:
            self._endpoint_packet_arrives(d, p)
        if self.st.req[q]["state"] == QP_ERROR and not d.failed:
            self.stats["requestor_failed"] += 1
            d.failed = True

    def _refresh_siblings(self, d: Direction, entropy: int) -> None:
        for other in self.directions:
            if other.dst == d.src:
                responder.refresh_reverse(self.st, other.q, entropy >> 16, entropy)
                break

    def _complete(self, d: Direction, n: int) -> None:
        """Messages complete at the requestor: each delivered whole, in posting order."""
        for _ in range(n):
            index = len(d.completed)
            message = d.messages[index]
            region = d.memory[message.address : message.address + message.length]
            assert region.all(), "a message completed that was not delivered"
            assert len(d.delivered) > index
            entry = self.st.sq[d.q, index & (self.depth - 1)]
            assert entry["wr_id"] == index, "completions are in posting order"
            d.completed.append(index)
        assert int(self.st.req[d.q]["sq_head"]) == len(d.completed)

    def _endpoint_packet_arrives(self, d: Direction, p: Packet) -> None:
        row, kind = p.row, p.kind
        from_requestor = p.end == d.src
        request_id = int(row["probe_id"])
        if kind == CTRL_RESPONSE:
            if int(row["reason"]) == CTRL_EV_PROBE:
                responder.on_path_answer(self.st, d.q, request_id)
            else:  # it answers an update of the half that lives at this end
                half = self.st.rsp[d.q] if from_requestor else self.st.req[d.q]
                ports.on_update_answered(half, request_id)
            return
        if kind == CTRL_PORT_STATUS:
            self._peer_ports(d, from_requestor, request_id, int(row["mask"]) & 0xFF)
        answer = control_row()
        if from_requestor:
            path = int(responder.reverse_path(self.st, d.q))
        else:
            chosen = int(evset.choose(self.st, d.q, int(evset.standby_planes(self.st.req[d.q])) & ALL_ROOM))
            path = int(self.st.ev[d.q, chosen]["entropy"]) if chosen >= 0 else -1
        responder.write_response(kind, request_id, path, answer)
        self._control(d.q, 1 - p.end, answer)

    def _peer_ports(self, d: Direction, from_requestor: bool, request_id: int, mask: int) -> None:
        """Apply a Port Status Update to every QP between the two NICs, unless it is an old one."""
        half = self.st.rsp[d.q] if from_requestor else self.st.req[d.q]
        if not ports.update_is_news(half, request_id):
            self.stats["stale_update"] += 1
            return
        end = d.dst if from_requestor else d.src  # the end that learns of it
        for other in self.directions:
            if other.src == end:
                ports.requestor_ports(self.st, other.q, self.now, mask, False, False)
            if other.dst == end:
                ports.responder_ports(self.st, other.q, self.now, mask, False, False)

    # --- timers -------------------------------------------------------------------------------

    def _arm(self, d: Direction) -> None:
        """Arm both timers; what is due must already have been done."""
        q = d.q
        due = int(timers.requestor_deadline(self.st, self.pf, q, self.now))
        if due < self.req_timer[q]:  # one lazy timer: a later deadline is found when it fires
            self.req_timer[q] = max(due, self.now)
            self._push(due, self._requestor_timer, d, self.req_timer[q])
        due = int(timers.responder_deadline(self.st, self.pf, q, self.now))
        if due < self.rsp_timer[q]:
            self.rsp_timer[q] = max(due, self.now)
            self._push(due, self._responder_timer, d, self.rsp_timer[q])

    def _requestor_timer(self, d: Direction, armed: int) -> None:
        if self.req_timer[d.q] != armed:
            return
        self.req_timer[d.q] = NEVER_PS
        for _ in range(64):
            row = control_row()
            action = int(timers.on_requestor_timer(self.st, self.pf, d.q, self.now, row))
            self.stats[f"timer_{action}"] += 1
            if action == timers.T_SEND:
                self._control(d.q, d.src, row)
            elif action == timers.T_FAILED:
                d.failed = True
                self.stats["requestor_failed"] += 1
            if action in (timers.T_NONE, timers.T_FAILED):
                break
        else:
            raise AssertionError(f"the requestor's timer never finds peace at {self.now} ps")
        due = int(timers.requestor_deadline(self.st, self.pf, d.q, self.now))
        assert due > self.now, "a deadline has passed and nothing was done"

    def _responder_timer(self, d: Direction, armed: int) -> None:
        if self.rsp_timer[d.q] != armed:
            return
        self.rsp_timer[d.q] = NEVER_PS
        for _ in range(64):
            row = control_row()
            action = int(timers.on_responder_timer(self.st, self.pf, d.q, self.now, row))
            if action == timers.T_TRIAL:
                rsp = self.st.rsp[d.q]
                plane = (int(rsp["rev_probe_id"]) - 1) % self.planes
                entropy = entropy_of(plane, self.random.randrange(self.per_plane))
                responder.try_path(self.st, d.q, plane, entropy, row)
            elif action == timers.T_SEND and int(row["kind"]) == CTRL_SACK:
                self.stats["delayed_sack"] += 1
                transport_checks.check_sack(d, row, False)
            if action in (timers.T_TRIAL, timers.T_SEND):
                self._control(d.q, d.dst, row)
            if action == timers.T_NONE:
                break
        else:
            raise AssertionError(f"the responder's timer never finds peace at {self.now} ps")
        assert int(timers.responder_deadline(self.st, self.pf, d.q, self.now)) > self.now

    def count(self, name: str) -> int:
        return int(self.st.count[COUNTER_INDEX[name]])
