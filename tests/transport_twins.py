"""Slow and obvious models of what the engine does, written from the protocol, not from the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from openmrc.transport.requestor import FLAG_ASK, FLAG_IMM, FLAG_LAST, FLAG_RTX
from openmrc.transport.responder import DELIVERED, DO_ACK, DO_NACK, DO_SACK, FAILED
from openmrc.transport.settings import Profile

SPAN = 64


@dataclass
class ResponderTwin:
    """Receive state as sets of packet numbers that never wrap; the first packet is number 0."""

    profile: Profile
    recv_posted: int = 1 << 60
    window: int = 0
    cack: int = -1
    beyond: set[int] = field(default_factory=set)  # received, above cack
    ends: set[int] = field(default_factory=set)
    imms: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    rcvd_bytes: int = 0
    unsacked_bytes: int = 0
    unsacked: bool = False
    walk: int | None = None  # packet number where the next bitmap stands
    msn_done: int = 0
    imm_done: int = 0
    failed: bool = False

    def __post_init__(self) -> None:
        self.window = self.profile.window_psns

    @property
    def high(self) -> int:
        return max(self.beyond, default=self.cack)

    def data(self, n: int, size: int, flags: int, trimmed: bool, marked: bool) -> int:
        """Receive packet `n`; returns the actions that must follow."""
        if self.failed:
            return -1
        if n <= self.cack or n in self.beyond:
            return DO_SACK | DO_ACK
        if n - self.cack > self.window or trimmed:
            return DO_NACK
        return self._accept(n, size, flags, marked)

    def _accept(self, n: int, size: int, flags: int, marked: bool) -> int:
        self.beyond.add(n)
        for flag, numbers in ((FLAG_LAST, self.ends), (FLAG_IMM, self.imms), (FLAG_ASK, self.asked)):
            if flags & flag:
                numbers.add(n)
        if len(self.imms) > self.profile.imm_limit:
            self.failed = True
            return DO_NACK | FAILED
        self.rcvd_bytes += size
        self.unsacked_bytes += max(size, self.profile.sack_min_packet)
        self.unsacked = True
        actions = DELIVERED
        while self.cack + 1 in self.beyond:
            self.cack += 1
            self.beyond.remove(self.cack)
            if self.cack in self.asked:
                self.asked.remove(self.cack)
                actions |= DO_SACK
            if self.cack in self.ends and not self.failed:
                self.ends.remove(self.cack)
                actions |= DO_ACK
                if self.cack in self.imms:
                    self.imms.remove(self.cack)
                    if self.imm_done == self.recv_posted:
                        self.failed = True
                        actions |= FAILED
                        continue
                    self.imm_done += 1
                self.msn_done += 1
        if self.failed:
            return DELIVERED | DO_ACK | FAILED
        if self.unsacked_bytes >= self.profile.sack_bytes or marked or flags & (FLAG_ASK | FLAG_RTX):
            actions |= DO_SACK
        return actions

    def sack(self, from_start: bool) -> tuple[int, int]:
        """Make a SACK; returns (packet number of bit 0, bitmap)."""
        start = self.cack + 1
        span = self.high - self.cack
        if span > SPAN and not from_start and self.walk is not None and start < self.walk <= self.high:
            start = self.walk
        self.walk = start + SPAN if span > SPAN else None
        self.unsacked = False
        self.unsacked_bytes = 0
        bitmap = 0
        for bit in range(SPAN):
            if start + bit in self.beyond:
                bitmap |= 1 << bit
        return start, bitmap

    @property
    def rcvd_units(self) -> int:
        return -(-self.rcvd_bytes // 256) & 0xFFFFFF


@dataclass
class NsccTwin:
    """NSCC from UEC 1.0 s3.6.13 in exact fractions of bytes.

    `wire_mtu` is a full packet from the outer IPv6 header to the ICRC: the unit of cwnd and of the
    1-MTU floor; `mtu` the payload, the unit of the gains.
    """

    mtu: int
    wire_mtu: int
    base_rtt: int
    configured_rtt: int
    target: int
    max_cwnd: Fraction
    gamma: Fraction
    max_md_jump: Fraction
    fi: Fraction
    fi_scale: Fraction
    eta: Fraction
    alpha: Fraction  # already divided by the target: bytes^2 per byte and ps
    adjust_bytes: int
    adjust_period: int
    qa_gate: int
    qa_threshold: int | None
    letter: bool
    cwnd: Fraction = Fraction(0)
    inflight: int = 0
    avg_delay: Fraction = Fraction(0)
    last_sample: int = 0
    inc_bytes: Fraction = Fraction(0)
    received: int = 0
    achieved: int = 0
    fi_count: int = 0
    increasing: bool = False
    trigger_qa: bool = False
    qa_end: int = 0
    to_ignore: int = 0
    ignored: int = 0
    last_adjust: int = 0
    last_decrease: int = -(1 << 62)
    saved: Fraction | None = None

    def __post_init__(self) -> None:
        self.initial_cwnd = self.max_cwnd

    @property
    def floor(self) -> Fraction:
        return self.wire_mtu * (Fraction(1) if self.letter else Fraction(1, 10))

    def _set(self, cwnd: Fraction) -> None:
        self.cwnd = max(min(cwnd, self.max_cwnd), self.floor)

    def sack(
        self, now: int, n: int, marked: bool, rtt: int | None, penalty: int = 0, restore: bool = False
    ) -> None:
        """`n` newly acknowledged bytes, already out of `inflight`."""
        self.ignored += n
        self.received += n
        self.achieved += n
        if penalty > 0:
            if self.saved is None:
                self.saved = self.cwnd
            self.cwnd = max(
                min(self.cwnd, Fraction(self.inflight)) - ((penalty * n) >> 7), Fraction(self.wire_mtu)
            )
        elif restore and self.saved is not None:
            self._set(self.saved)
            self.saved = None
        if rtt is None:
            return
        if rtt < self.base_rtt:
            self.max_cwnd = max(
                self.initial_cwnd * Fraction(rtt, self.configured_rtt), Fraction(self.wire_mtu)
            )
            self.base_rtt = rtt
            self.cwnd = min(self.cwnd, self.max_cwnd)
        delay = rtt - self.base_rtt
        self._average(now, delay)
        if self._quick_adapt(now, False, marked, delay):
            self._clear()
            return
        self._react(now, n, marked, delay, penalty > 0)
        if penalty == 0:
            self._adjust(now)

    def _react(self, now: int, n: int, marked: bool, delay: int, held: bool) -> None:
        if delay >= self.target:
            if marked or not self.letter:  # change 1: decrease on delay
                self._decrease(now)
            elif not held:
                self.inc_bytes += self.fi * n
        elif not marked and not held and not self._fast_increase(n, delay):
            self.inc_bytes += self.alpha * n * (self.target - delay)

    def _average(self, now: int, delay: int) -> None:
        weight = (
            min(Fraction(now - self.last_sample, self.base_rtt), Fraction(1))
            if self.base_rtt
            else Fraction(1)
        )
        self.avg_delay += (delay - self.avg_delay) * weight
        self.last_sample = now

    def _clear(self) -> None:
        self.inc_bytes = Fraction(0)
        self.received = 0

    def _adjust(self, now: int) -> None:
        period = now - self.last_adjust >= self.adjust_period
        if not period and self.received <= self.adjust_bytes:
            return
        grown = self.cwnd + self.inc_bytes / self.cwnd
        if period:
            grown += self.eta
            self.last_adjust = now
        self._set(grown)
        self._clear()

    def _fast_increase(self, n: int, delay: int) -> bool:
        if delay >= 1_000_000:
            self.fi_count, self.increasing = 0, False
            return False
        self.fi_count += n
        if self.fi_count > self.cwnd or self.increasing:
            self._set(self.cwnd + n * self.fi_scale)
            self.increasing = True
            return True
        return False

    def _decrease(self, now: int) -> None:
        self.increasing, self.fi_count = False, 0
        if self.avg_delay > self.target and now - self.last_decrease > self.base_rtt:
            factor = 1 - self.gamma * (self.avg_delay - self.target) / self.avg_delay
            self._set(self.cwnd * max(factor, self.max_md_jump))
            self.last_decrease = now

    def _quick_adapt(self, now: int, loss: bool, marked: bool, delay: int) -> bool:
        if self.ignored < self.to_ignore and marked:
            return True
        if now < self.qa_end:
            return False
        handled = False
        over = self.qa_threshold is not None and delay > self.qa_threshold
        if (
            self.qa_end
            and (self.trigger_qa or loss or over)
            and self.achieved < self.max_cwnd / (1 << self.qa_gate)
        ):
            target = Fraction(max(self.achieved, self.wire_mtu))
            if not self.letter:  # change 3: never raises
                target = min(target, self.cwnd)
            self.cwnd = max(target, self.floor)
            self.to_ignore, self.ignored, self.trigger_qa, handled = self.inflight, 0, False, True
        self.achieved = 0
        self.qa_end = now + self.base_rtt + self.target
        return handled

    def trim(self, now: int, p: int) -> None:
        self._average(now, self.configured_rtt)
        self.ignored += p
        self.trigger_qa = True
        if self._quick_adapt(now, True, True, 0):
            self._clear()
        else:
            self._subtract(p)

    def _subtract(self, p: int) -> None:
        self.cwnd = max(self.cwnd - p, min(self.cwnd, Fraction(self.wire_mtu)))

    def loss(self, p: int) -> None:
        self._subtract(p)
        self.ignored += p
