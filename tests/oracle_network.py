"""The oracle's network: ports of both models, paths, hashing switches, faults. See :mod:`oracle`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from openmrc.fabric.fault_spec import FaultSpec
from openmrc.fabric.faults import HEALTHY, LinkState, link_state_at
from openmrc.jit import draw32, mix32
from openmrc.sim.build import RETURN_GAP_RTTS, stream
from openmrc.transport import requestor
from openmrc.transport.state import (
    CTRL_ACK,
    CTRL_EV_PROBE,
    CTRL_NACK,
    CTRL_PORT_STATUS,
    CTRL_PROBE,
    CTRL_RESPONSE,
    CTRL_SACK,
)
from openmrc.wire.sizes import PacketKind, line_bytes

PORT, RELEASE, DONE, REQ_TIMER, RSP_TIMER, NIC, PACKET, DEQUEUE = range(8)  # order at one instant
WHOLE, TRIMMED, TRIMMED_LASTHOP, DAMAGED = range(4)
KINDS = {
    CTRL_SACK: PacketKind.SACK,
    CTRL_ACK: PacketKind.TRANSPORT_ACK,
    CTRL_NACK: PacketKind.NACK,
    CTRL_PROBE: PacketKind.RELIABILITY_PROBE,
    CTRL_PORT_STATUS: PacketKind.ENDPOINT_REQUEST,
    CTRL_EV_PROBE: PacketKind.ENDPOINT_REQUEST,
    CTRL_RESPONSE: PacketKind.ENDPOINT_RESPONSE,
}
DATA_CLASS = (CTRL_PROBE, CTRL_EV_PROBE, CTRL_PORT_STATUS)


@dataclass(eq=False)
class Packet:
    """One packet; `kind` is 0 for data, else CTRL_*, whose content is `row`."""

    q: int
    reverse: bool
    kind: int
    seq: int  # PSN, or the place in the pool of control packets
    plane: int
    uplink: int
    payload: int = 0
    flags: int = 0  # FLAG_* of the transport
    entropy: int = 0
    stamp: int = 0
    tx_ps: int = 0
    row: Any = None
    hop: int = 0
    marked: bool = False
    trim: int = WHOLE
    line: int = 0  # bytes on the line

    @property
    def strict(self) -> bool:
        if self.kind:
            return self.kind not in DATA_CLASS
        return self.trim in (TRIMMED, TRIMMED_LASTHOP)

    def number(self) -> tuple[int, ...]:
        """Return what orders packets of one QP that arrive at one instant."""
        seq = self.seq - (1 << 24) if self.seq >= 1 << 23 else self.seq
        size = self.kind or self.payload // 4
        f = self.flags
        bits = bool(self.kind) | self.marked << 1 | self.trim << 2
        bits |= bool(f & requestor.FLAG_LAST) << 4 | bool(f & requestor.FLAG_IMM) << 5
        bits |= bool(f & requestor.FLAG_ASK) << 6 | bool(f & requestor.FLAG_RTX) << 7
        return seq, size, self.plane, self.uplink, self.hop, self.reverse, bits


@dataclass
class Port:
    """An output port. The fast model needs the two clocks only, the exact one the rest."""

    layer: int
    data_free: int = 0  # in both models: when all that is queued will have been sent
    control_free: int = 0
    data: deque = field(default_factory=deque)
    control: deque = field(default_factory=deque)
    serving: Packet | None = None
    until: int = 0  # end of the packet in service


@dataclass
class Nic:
    ready: deque = field(default_factory=deque)  # QPs that may send; the first has its turn
    wake: int = -1
    ports: int = 0


@dataclass
class Stay:
    """How long a QP stayed on an element after it began to lose; there may be several stays."""

    first_drop: int = -1  # of the present stay
    last_tx: int = -1
    drops: int = 0
    first_left: int = -1  # end of the first stay
    worst: int = 0  # longest of the stays before

    @property
    def length(self) -> int:
        return max(self.last_tx - self.first_drop, 0) if self.first_drop >= 0 else 0


class Network:
    """What happens to a packet between two NICs; :class:`oracle.Oracle` is the rest."""

    # --- constants ---------------------------------------------------------------------------
    def _limits(self) -> None:
        sw, rtt, t = self.sc.switch, self.plan.base_rtt_ps, self.topology
        tseth, pmtu = self.sc.transport.tseth, self.sc.transport.pmtu
        self.mult = [int(m) for m in t.layer_mult_q16]
        self.link_delay = [int(d) for d in t.layer_delay_ps]
        self.after = [t.switch_latency_ps] * 6
        self.after[0] += t.nic_latency_ps
        self.after[1] = t.nic_latency_ps
        self.ecn_low, self.ecn_high = round(sw.ecn_low * rtt), round(sw.ecn_high * rtt)
        self.ecn_on = [sw.ecn and layer != 0 and (layer != 1 or sw.ecn_last_hop) for layer in range(6)]
        self.trim_at = [round(sw.trim_threshold * rtt)] * 6
        self.trim_at[1] = round(sw.trim_threshold_last_hop * rtt)
        self.capacity, self.control_capacity = (
            round(sw.queue_capacity * rtt),
            round(sw.control_capacity * rtt),
        )
        self.trimmed_line = line_bytes(
            PacketKind.TRIMMED, self.mode, pmtu, tseth=tseth, trim_bytes=sw.trim_bytes
        )
        full = line_bytes(PacketKind.DATA, self.mode, pmtu, tseth=tseth)
        self.full_ser = (full * self.mult[0]) >> 16
        self.room = self.full_ser * self.sc.sim.nic_queue_packets
        self.seeds = {name: stream(self.sc.seed, name) for name in ("ecn", "fault-loss", "paths", "ecmp")}

    def _faults(self) -> None:
        self.slots = {int(link): i for i, link in enumerate(self.plan.schedule.slot_links)}
        self.specs_of: dict[int, list[FaultSpec]] = {link: [] for link in self.slots}
        for spec in self.plan.schedule.specs:
            for link in spec.links.tolist():
                self.specs_of[link].append(spec)

    # --- the network -------------------------------------------------------------------------
    def _path(self, p: Packet) -> list[int]:
        a, b = (self.dst[p.q], self.src[p.q]) if p.reverse else (self.src[p.q], self.dst[p.q])
        key = (a, b, p.plane, p.uplink)
        if key not in self.paths:
            self.paths[key] = self.topology.path_links(*key)
        return self.paths[key]

    def _hash(self, p: Packet) -> bool:
        """Let a T0 choose among its live uplinks by hash; False when all are down."""
        a, b = (self.dst[p.q], self.src[p.q]) if p.reverse else (self.src[p.q], self.dst[p.q])
        t0 = self.topology.t0_of(a)
        first = self.topology.t0_up(p.plane, t0, 0)
        flow = mix32(self.src[p.q] * 131071 + self.dst[p.q])
        entropy = p.plane << 13 | p.uplink
        start = int(mix32(mix32(self.seeds["ecmp"] & 0xFFFFFFFF ^ flow) ^ entropy ^ first << 8))
        uplinks = len(self.topology.path_uplinks(a, b))
        for i in range(uplinks):
            pick = (start + i) % uplinks
            if not self._state(first + pick).down:
                p.uplink = pick
                return True
        return False

    def _forward(self, p: Packet) -> None:
        if self.ecmp and p.hop == 1 and self.topology.hop_count(self.src[p.q], self.dst[p.q]) > 2:
            if not self._hash(p):
                self._drop(p, "no_path")
                return
        self._enqueue(p, self._link(p))

    def _link(self, p: Packet) -> int:
        a, b = (self.dst[p.q], self.src[p.q]) if p.reverse else (self.src[p.q], self.dst[p.q])
        if self.topology.hop_count(a, b) == 2:
            return self.topology.nic_down(b, p.plane)
        return self._path(p)[p.hop]

    def _drop(self, p: Packet, reason: str) -> None:
        self.drops[reason] += 1
        if p.kind:
            self.free_slots.append(p.seq)

    def _state(self, link: int, time_ps: int | None = None) -> LinkState:
        if link not in self.slots:
            return HEALTHY
        return link_state_at(self.plan.schedule, self.slots[link], self.now if time_ps is None else time_ps)

    def _ser(self, p: Packet, port: Port, state: LinkState) -> int:
        return (p.line * (self.mult[port.layer] * state.rate_mult >> 16)) >> 16

    def _mark(self, p: Packet, link: int, queued_ps: int) -> None:
        """Mark with a probability that rises between the thresholds."""
        layer = self.ports[link].layer
        if not self.ecn_on[layer] or p.kind or p.marked or queued_ps <= self.ecn_low:
            return
        if queued_ps < self.ecn_high:
            share = int(draw32(self.seeds["ecn"] ^ link, p.q << 24 ^ p.seq, self.now)) >> 12
            if share * (self.ecn_high - self.ecn_low) >= (queued_ps - self.ecn_low) << 20:
                return
        p.marked = True
        self.marked += 1

    def _enqueue(self, p: Packet, link: int) -> None:
        """Put a packet into a port: trim it, drop it, or let it leave when its turn comes."""
        port, state, layer = self.ports[link], self._state(link), self.ports[link].layer
        if not p.strict:
            queued_ps = self._queued_ps(port, state, control=False)
            too_long = p.hop > 0 and queued_ps > self.trim_at[layer]
            if too_long and self.sc.switch.trim and not p.kind and p.trim == WHOLE:
                p.trim = TRIMMED_LASTHOP if layer == 1 else TRIMMED
                p.line = self.trimmed_line
                self.trimmed += 1
            else:
                if not self.exact:
                    self._mark(p, link, queued_ps)
                if p.hop > 0 and queued_ps > self.capacity:
                    self._drop(p, "queue_full")
                    return
        if p.strict and self._queued_ps(port, state, control=True) > self.control_capacity:
            self._drop(p, "control_full")
            return
        if p.kind or p.strict:
            self.hops_control += 1
        else:
            self.hops_data += 1
        if not p.strict:
            self._note_wait(p, link, max(port.data_free - self.now, 0))
        ser = self._ser(p, port, state)
        start = max(port.control_free if p.strict else port.data_free, self.now)
        port.data_free = max(port.data_free, self.now) + ser
        if not self.exact:
            if p.strict:
                port.control_free = start + ser
            self._cross(p, link, state, start, ser)
        elif port.until <= self.now and not port.data and not port.control:
            self._serve(p, link)
        else:
            (port.control if p.strict else port.data).append(p)

    def _queued_ps(self, port: Port, state: LinkState, control: bool) -> int:
        """Return how long a queue is, as the time its bytes take at the nominal rate."""
        if not self.exact:
            if control:  # control is served first: never scaled, its queue is short
                return max(port.control_free - self.now, 0)
            return (max(port.data_free - self.now, 0) << 16) // state.rate_mult
        unsent = 0
        if port.serving is not None and port.serving.strict == control:
            unsent = (max(port.until - self.now, 0) << 16) // state.rate_mult
        waiting = sum(p.line for p in (port.control if control else port.data))
        return unsent + (waiting * self.mult[port.layer] >> 16)

    def _serve(self, p: Packet, link: int) -> None:
        """Exact model: start to send a packet on the free line."""
        port, state = self.ports[link], self._state(link)
        if not p.strict:
            self._mark(p, link, sum(w.line for w in port.data) * self.mult[port.layer] >> 16)
        ser = self._ser(p, port, state)
        port.serving, port.until = p, self.now + ser
        if not port.data and not port.control:
            port.data_free = port.until
        self.at(port.until, DEQUEUE, link)
        self._cross(p, link, state, self.now, ser)

    def _dequeue(self, link: int) -> None:
        port = self.ports[link]
        if port.until == self.now and (port.control or port.data):
            self._serve((port.control or port.data).popleft(), link)

    def _note_wait(self, p: Packet, link: int, wait: int) -> None:
        layer = self.ports[link].layer
        self.peak[layer] = max(self.peak[layer], wait)
        if p.hop > 0 and not p.kind and wait > self.worst[p.q][1]:
            self.worst[p.q] = (link, wait)

    def _cross(self, p: Packet, link: int, state: LinkState, start: int, ser: int) -> None:
        """Send a packet over a link from `start` on."""
        layer = self.ports[link].layer
        arrive = start + ser + self.link_delay[layer] + state.latency_ps
        if link in self.slots:
            if not self.true_stamps and not p.kind:
                p.tx_ps = int(self.st.ring[p.q, p.seq & self.pf.ring_mask]["tx_ps"])
            reason = self._fate(p, link, start, arrive)
            if reason == "damaged" and not p.kind and p.trim == WHOLE:
                p.trim = DAMAGED
            elif reason:
                self._drop(p, "corrupt" if reason == "damaged" else reason)
                return
        p.hop += 1
        if self.sc.switch.cut_through and layer != 1:
            arrive += (
                min(self.sc.switch.trim_bytes * (self.mult[layer] * state.rate_mult >> 16) >> 16, ser) - ser
            )
        self.at(arrive + self.after[layer], PACKET, p.q, p)

    # --- faults ------------------------------------------------------------------------------
    def _fate(self, p: Packet, link: int, start: int, arrive: int) -> str:
        """Return why a packet is lost on a faulty link, "damaged", or nothing."""
        down = [s for s in self.specs_of[link] if s.down and s.at_ps <= arrive and not 0 <= s.end_ps <= start]
        if down:
            state = self._state(link, max(start, min(s.at_ps for s in down)))
            self.fault_lost[state.fault] += 1
            self._affect(state.fault, p, start, True)
            return "link_down"
        state = self._state(link, start)
        if state.fault < 0:
            self._note_return(p, link, start)
            return ""
        name = p.q << 24 ^ (1 << 60 | p.kind if p.kind else p.seq)
        chance = state.loss + min((p.line * state.ber) >> 18, 1 << 32)
        lost = int(draw32(self.seeds["fault-loss"] ^ link, name, start)) < chance
        if chance > 0:
            self._affect(state.fault, p, start, lost)
        if lost:
            self.fault_lost[state.fault] += 1
            return ("link_down", "grey", "blackhole", "grey")[state.reason]
        if int(draw32(self.seeds["fault-loss"] ^ link ^ 0x5A5A, name, start)) < state.corrupt:
            self.fault_lost[state.fault] += 1
            self._affect(state.fault, p, start, True)
            return "damaged"
        return ""

    def _affect(self, fault: int, p: Packet, start: int, lost: bool) -> None:
        if p.kind:
            return
        stay = self.affected.setdefault((fault, p.q), Stay())
        if (
            stay.last_tx >= 0 and p.tx_ps - stay.last_tx > RETURN_GAP_RTTS * self.plan.base_rtt_ps
        ):  # it had left, and came back
            stay.worst = max(stay.worst, stay.length)
            stay.first_drop = -1
            stay.first_left = stay.last_tx if stay.first_left < 0 else stay.first_left
        stay.last_tx = max(stay.last_tx, p.tx_ps)
        if lost:
            stay.drops += 1
            stay.first_drop = start if stay.first_drop < 0 else stay.first_drop

    def _note_return(self, p: Packet, link: int, start: int) -> None:
        """Note the first data packet sent and carried after the fault that ended last."""
        if p.kind:
            return
        edges = {e for s in self.specs_of[link] for e in (s.at_ps, s.end_ps) if 0 < e <= start}
        changes = [e for e in edges if self._state(link, e - 1) != self._state(link, e)]
        if changes:
            before = self._state(link, max(changes) - 1).fault
            if before >= 0 and self.fault_back[before] < 0 and p.tx_ps >= max(changes):
                self.fault_back[before] = p.tx_ps
