"""The timing wheel against heapq: same events out in the same order, whatever the order of insertion."""

from __future__ import annotations

import heapq
from functools import lru_cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.scenario import load_scenario
from openmrc.sim.build import Model, build, plan
from openmrc.sim.layout import E_PACKET, E_RELEASE, FAR_PS, KIND_SHIFT, I
from openmrc.sim.loop import _next_bucket
from openmrc.sim.wheel import EMPTY, LOADED, bring_near, event_time, flush, load_bucket, push, push_far

Event = tuple[int, int, int]  # time, kind << 29 | id, second word
PLACES = 16  # buckets of the test's wheel: small, so that events lie beyond it


@lru_cache(maxsize=1)
def _model() -> Model:
    table = {
        "fabric": {"nics": 2, "hosts_per_t0": 2, "nic_rate": "100Gbps"},
        "traffic": [{"pattern": "send", "pairs": [[0, 1]], "size": "1B"}],
    }
    model = build(plan(load_scenario(table)))
    model.sim = model.sim._replace(far_ps=np.zeros(4096, np.int64), far_key=np.zeros(4096, np.int64))
    return model


class Wheel:
    """An empty wheel at `start_ps` whose buckets are 1 << shift ps wide."""

    def __init__(self, shift: int, start_ps: int):
        model = _model()
        self.sm, self.cfg = model.sim, model.config._replace(buckets=PLACES, shift=shift)
        s = self.s = self.sm.s
        s[:] = 0
        s[I["bucket"]], s[I["now_ps"]] = start_ps >> shift, start_ps
        s[I["n_free_chunks"]] = len(self.sm.chunk_next)
        self.sm.chunk_next[:] = np.arange(1, len(self.sm.chunk_next) + 1)
        self.sm.chunk_next[-1] = -1
        self.sm.slots[:] = (-1, 0)

    def add(self, event: Event) -> None:
        time_ps, key, w1 = event
        if w1:
            push(self.sm, self.cfg, time_ps, key, w1)
        else:
            push_far(self.sm, self.cfg, time_ps, key)

    def drain(self, react) -> list[Event]:
        """Take everything out in order; `react(event)` returns what each event sets off."""
        s, out = self.s, []
        while s[I["events"]] or s[I["far"]]:
            bring_near(self.sm, self.cfg, (int(s[I["bucket"]]) + 1) << self.cfg.shift)
            loaded = load_bucket(self.sm, self.cfg)
            assert loaded in (LOADED, EMPTY)
            if loaded == LOADED:
                while s[I["cur"]] < s[I["end"]]:
                    w0, w1 = (int(w) for w in self.sm.sort[0, s[I["cur"]]])
                    s[I["cur"]] += 1
                    s[I["now_ps"]] = event_time(self.sm, self.cfg, w0)
                    out.append((int(s[I["now_ps"]]), w0 & 0xFFFFFFFF, w1))
                    for event in react(out[-1]):
                        self.add(event)
                flush(self.sm, self.cfg)
                s[I["events"]] -= s[I["end"]]
                s[I["swept"]] = 0
            _next_bucket(self.sm, self.cfg)
        assert s[I["overflow"]] == 0
        assert s[I["n_free_chunks"]] == len(self.sm.chunk_next), "every chunk came back"
        return out


def heap_order(events: list[Event], react) -> list[Event]:
    """Do the same with heapq."""
    heap, out = list(events), []
    heapq.heapify(heap)
    while heap:
        out.append(heapq.heappop(heap))
        for event in react(out[-1]):
            heapq.heappush(heap, event)
    return out


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, list[Event], int]:
    """Bucket width, start, events at every distance, and a seed of what they set off."""
    shift = draw(st.sampled_from([8, 12, 17]))
    # also across the places where the low 32 bits of time change sign or wrap
    start = draw(st.sampled_from([0, 1 << 20, (1 << 31) - 3000, (1 << 32) - 3000, (7 << 32) + 5, 1 << 40]))
    width = 1 << shift
    far = min(FAR_PS - 1, 3000 * width)  # how far the test's loop can walk in reasonable time
    near = st.integers(0, 3 * width)
    distance = st.one_of(near, near, st.integers(0, PLACES * width), st.integers(0, far))
    # negative words, too: PSNs of 2^23 and more
    word = st.sampled_from([-(1 << 63) + 1, -(1 << 40) + 2, 3, (1 << 62) + 4])
    packet = st.tuples(distance, st.integers(0, 3), word)
    timer = st.tuples(st.one_of(distance, st.integers(FAR_PS, 5 * FAR_PS)), st.integers(0, 3), st.just(0))
    drawn = draw(st.lists(st.one_of(packet, packet, timer), max_size=120))
    events = [(start + a, (E_PACKET if w1 else E_RELEASE) << KIND_SHIFT | i, w1) for a, i, w1 in drawn]
    return shift, start, events, draw(st.integers(0, 1 << 30))


def _reaction(seed: int, shift: int):
    """Let some events set off others: now, in the same bucket, in the next, beyond the wheel."""

    def react(event: Event) -> list[Event]:
        time_ps, key, w1 = event
        depth = w1 & 0xFF0
        if not w1 or depth >= 0x20:
            return []
        x = (time_ps * 0x9E3779B1 ^ key * 0x85EBCA6B ^ w1 ^ seed) & 0xFFFFFFFF
        ahead = (0, x >> 8 & 7, x % (1 << shift), x % (PLACES + 2 << shift))[x >> 3 & 3]
        return [(time_ps + ahead, key, w1 + 0x10)] * (x & 1)

    return react


@settings(deadline=None, max_examples=60)
@given(cases(), st.randoms(use_true_random=False))
def test_the_wheel_is_a_priority_queue(case: tuple[int, int, list[Event], int], shuffled) -> None:
    shift, start, events, seed = case
    react = _reaction(seed, shift)
    expected = heap_order(events, react)
    for _ in range(2):  # another order of insertion, the same order out
        wheel = Wheel(shift, start)
        for event in events:
            wheel.add(event)
        assert wheel.drain(react) == expected
        shuffled.shuffle(events)


def test_crowded_bucket_is_sorted_by_digits() -> None:
    """More events in one bucket than insertion sort takes, many at the same picosecond."""
    rng = np.random.default_rng(5)
    for shift in (3, 8, 12, 17):
        events = [
            (int(t), E_PACKET << KIND_SHIFT | int(q), int(w) + 1)
            for t, q, w in zip(
                rng.integers(0, min(1 << shift, 300), 900),
                rng.integers(0, 50, 900),
                rng.integers(0, 1 << 60, 900),
                strict=True,
            )
        ]
        wheel = Wheel(shift, 0)
        for event in events:
            wheel.add(event)
        assert wheel.drain(lambda _: []) == sorted(events)
