from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fabric_support import quick, small
from openmrc.errors import InputError, ScenarioError, TopologyError
from openmrc.fabric.fault_spec import MAX_FAULT_EVENTS, expand_faults
from openmrc.fabric.faults import (
    MAX_SEG_BER,
    DropReason,
    FaultSchedule,
    FaultSettings,
    LinkState,
    compile_faults,
    link_state_at,
)
from openmrc.fabric.settings import FabricSettings
from openmrc.fabric.topology import Layer, Topology

US, MS, HOUR = 10**6, 10**9, 3600 * 10**12
P32 = 1 << 32


def fault(**values: Any) -> FaultSettings:
    return FaultSettings.model_validate(values)


def schedule(t: Topology, *faults: FaultSettings, seed: int = 1, horizon_ps: int = 10 * MS) -> FaultSchedule:
    return compile_faults(t, list(faults), seed, horizon_ps)


def state(s: FaultSchedule, link: int, time_ps: int) -> LinkState:
    """What a kernel reads: the last segment that has started."""
    slot = s.slot_of(link)
    assert slot >= 0
    first, last = int(s.seg_first[slot]), int(s.seg_first[slot + 1])
    seg = first + int(np.searchsorted(s.seg_start_ps[first:last], time_ps, side="right")) - 1
    columns = s.arrays[3:]
    return LinkState(*(int(column[seg]) for column in columns))


def ports_at(s: FaultSchedule, planes: int, n_nics: int, time_ps: int) -> np.ndarray:
    up = np.ones((n_nics, planes), dtype=bool)
    e = s.port_events
    for k in range(e.time_ps.size):
        if e.time_ps[k] <= time_ps:
            assert up[e.nic[k], e.plane[k]] != bool(e.up[k]), "an event must change something"
            up[e.nic[k], e.plane[k]] = bool(e.up[k])
    return up


# --- kinds ---------------------------------------------------------------------------------


def test_no_fault_no_slot() -> None:
    s = schedule(small("planes"))
    assert s.slot_links.size == s.seg_start_ps.size == s.port_events.time_ps.size == len(s.infos) == 0
    assert s.seg_first.tolist() == [0]


def test_every_kind_sets_its_own_field() -> None:
    t = small("planes")
    cable = "p1/t0.0-t1.2"
    up, down = t.t0_up(1, 0, 2), t.t1_down(1, 2, 0)
    cases: list[tuple[dict[str, Any], dict[str, int], DropReason]] = [
        ({"kind": "down"}, {"down": 1}, DropReason.LINK_DOWN),
        ({"kind": "loss", "probability": 0.25}, {"loss": P32 // 4}, DropReason.GREY),
        ({"kind": "loss", "bit_error_rate": 2**-20}, {"ber": 2**33}, DropReason.GREY),
        ({"kind": "corrupt", "probability": 1}, {"corrupt": P32}, DropReason.CORRUPT),
        ({"kind": "slow", "factor": 0.5}, {"rate_mult": 131_072}, DropReason.GREY),
        ({"kind": "latency", "extra": "3us"}, {"latency_ps": 3 * US}, DropReason.GREY),
    ]
    healthy = LinkState(0, 0, 0, 0, 65_536, 0, -1, 0)
    for values, changed, reason in cases:
        s = schedule(t, fault(element=cable, at="10us", **values, **{"for": "5us"}))
        assert s.slot_links.tolist() == [up, down]
        for link in (up, down):
            slot = s.slot_of(link)
            segments = slice(int(s.seg_first[slot]), int(s.seg_first[slot + 1]))
            assert s.seg_start_ps[segments].tolist() == [0, 10 * US, 15 * US]
            expected = healthy._replace(fault=0, reason=int(reason), **changed)
            assert state(s, link, 10 * US - 1) == healthy
            assert state(s, link, 10 * US) == state(s, link, 15 * US - 1) == expected
            assert state(s, link, 15 * US) == healthy


def test_bit_errors_give_the_chance_of_a_frame() -> None:
    t = small("planes")
    s = schedule(t, fault(kind="loss", bit_error_rate=1e-6, element="nic0/p0"))
    threshold = (4200 * int(s.seg_ber[1])) >> 18
    assert threshold / P32 == pytest.approx(4200 * 8e-6, rel=1e-6)
    many = [fault(kind="loss", bit_error_rate=0.01, element="nic0/p0") for _ in range(20)]
    assert state(schedule(t, *many), t.nic_up(0, 0), 0).ber == MAX_SEG_BER
    assert MAX_SEG_BER * (1 << 14) < 1 << 63


def test_to_the_end_and_from_the_start() -> None:
    t = small("planes")
    s = schedule(t, fault(kind="down", element="nic3/p2"))
    assert s.seg_start_ps.tolist() == [0, 0] * 2  # a segment without fault comes first, however short
    assert s.seg_down.tolist() == [0, 1] * 2
    assert state(s, t.nic_up(3, 2), 1 << 61).down == 1
    info = s.infos[0]
    assert (info.id, info.kind, info.element, info.at_ps, info.end_ps) == (0, "down", "nic3/p2", 0, -1)
    assert info.links.tolist() == s.slot_links.tolist()


def test_directions() -> None:
    t = small("planes")
    for direction, link in (("up", t.t0_up(1, 0, 2)), ("down", t.t1_down(1, 2, 0))):
        for values in (
            {"element": "p1/t0.0-t1.2", "direction": direction},
            {"element": f"p1/t0.0-t1.2:{direction}"},
        ):
            assert schedule(t, fault(kind="down", **values)).slot_links.tolist() == [link]


def test_blackhole_swallows_what_enters_the_switch() -> None:
    t = small("three")
    wanted = {
        "p0/t0.1": {Layer.NIC_UP, Layer.T1_DOWN},
        "p0/t1.1": {Layer.T0_UP, Layer.T2_DOWN},
        "p0/t2.1": {Layer.T1_UP},
        "p0": set(Layer) - {Layer.NIC_DOWN},
    }
    for element, layers in wanted.items():
        s = schedule(t, fault(kind="blackhole", element=element))
        assert {t.link_layer(link) for link in s.slot_links.tolist()} == layers
        whole = t.links_of_element(element)[0].tolist()
        assert s.slot_links.tolist() == [link for link in whole if t.link_layer(link) in layers]
        assert set(s.seg_loss.tolist()) == {0, P32}
        assert set(s.seg_reason[s.seg_fault >= 0].tolist()) == {DropReason.BLACKHOLE}
        assert s.seg_down.sum() == 0
        assert s.port_events.time_ps.size == 0


def test_flap_has_one_info_per_cycle() -> None:
    t = small("planes")
    flap = fault(kind="flap", element="nic0/p0", at="10us", period="4us", duty=0.25, count=3)
    s = schedule(t, flap)
    assert [(i.id, i.at_ps, i.end_ps) for i in s.infos] == [
        (0, 10 * US, 11 * US),
        (1, 14 * US, 15 * US),
        (2, 18 * US, 19 * US),
    ]
    assert [i.text for i in s.infos][1] == "nic0/p0 down, cycle 2 of 3"
    assert [state(s, t.nic_up(0, 0), x * US).fault for x in (9, 10, 11, 14, 18, 19)] == [-1, 0, -1, 1, 2, -1]
    assert s.port_events.time_ps.tolist() == [x * US for x in (10, 11, 14, 15, 18, 19)]
    assert s.port_events.up.tolist() == [0, 1] * 3


def test_flap_ends_with_for_or_with_the_run() -> None:
    t = small("planes")
    base = {"kind": "flap", "element": "nic0/p0", "at": "10us", "period": "4us", "duty": 0.5}
    s = schedule(t, fault(**base, **{"for": "9us"}))  # the third down period is cut short
    assert [(i.at_ps, i.end_ps) for i in s.infos] == [
        (x * US, y * US) for x, y in ((10, 12), (14, 16), (18, 19))
    ]
    assert len(schedule(t, fault(**base), horizon_ps=50 * US).infos) == 10
    assert len(schedule(t, fault(**base, count=2, **{"for": "9us"})).infos) == 2


def test_reboot_is_a_switch_that_is_down_for_a_time() -> None:
    t = small("planes")
    a = schedule(t, fault(kind="reboot", element="p1/t0.1", at="1us", **{"for": "2us"}))
    b = schedule(t, fault(kind="down", element="p1/t0.1", at="1us", **{"for": "2us"}))
    for x, y in zip(a.arrays + a.port_events, b.arrays + b.port_events, strict=True):
        assert x.tolist() == y.tolist()


# --- what NICs see -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ({"kind": "down", "element": "nic1/p2"}, {(1, 2)}),
        ({"kind": "down", "element": "nic1"}, {(1, p) for p in range(4)}),
        ({"kind": "down", "element": "p2/t0.1"}, {(2, 2), (3, 2)}),
        ({"kind": "down", "element": "p2/t0.1/down1"}, {(3, 2)}),
        ({"kind": "reboot", "element": "p2/t0.1", "for": "1us"}, {(2, 2), (3, 2)}),
        ({"kind": "down", "element": "p2"}, {(n, 2) for n in range(8)}),
        ({"kind": "down", "element": "p2/t1.1"}, set()),
        ({"kind": "down", "element": "p2/t0.1-t1.1"}, set()),
        ({"kind": "loss", "probability": 1.0, "element": "nic1/p2"}, set()),
        ({"kind": "blackhole", "element": "p2/t0.1"}, set()),
        ({"kind": "down", "element": "nic1/p2", "seen": False}, set()),
        ({"kind": "down", "element": "nic1/p2:up"}, set()),
        ({"kind": "down", "element": "nic1/p2", "direction": "down"}, set()),
        ({"kind": "down", "element": "nic1/p2", "direction": "down", "seen": True}, {(1, 2)}),
    ],
)
def test_what_nics_see(values: dict[str, Any], seen: set[tuple[int, int]]) -> None:
    e = schedule(small("planes"), fault(at="5us", **values)).port_events
    down = e.up == 0
    assert set(zip(e.nic[down].tolist(), e.plane[down].tolist(), strict=True)) == seen
    assert set(e.time_ps[down].tolist()) <= {5 * US}


def test_overlapping_port_faults_are_seen_once() -> None:
    e = schedule(
        small("planes"),
        fault(kind="down", element="nic1/p2", at="1us", **{"for": "4us"}),
        fault(kind="down", element="p2/t0.0", at="3us", **{"for": "4us"}),
        fault(kind="down", element="nic1/p2", at="7us"),
    ).port_events
    rows = list(zip(*(column.tolist() for column in e), strict=True))
    # NIC 1 sees no gap at 7us: one fault ends as the next starts; NIC 0 shares the T0 fault only
    assert rows == [(1 * US, 1, 2, 0), (3 * US, 0, 2, 0), (7 * US, 0, 2, 1)]


def test_a_port_that_stays_down_does_not_hold_others_down() -> None:
    e = schedule(
        small("planes"),
        fault(kind="down", element="nic0/p0", at="1us"),
        fault(kind="down", element="nic1/p2", at="2us", **{"for": "1us"}),
    ).port_events
    rows = list(zip(*(column.tolist() for column in e), strict=True))
    assert rows == [(1 * US, 0, 0, 0), (2 * US, 1, 2, 0), (3 * US, 1, 2, 1)]


# --- composition ---------------------------------------------------------------------------


def test_overlapping_faults_compose_by_hand() -> None:
    t = small("planes")
    link = t.nic_up(0, 0)
    s = schedule(
        t,
        fault(kind="loss", probability=0.5, element="nic0/p0", at="1us", **{"for": "10us"}),
        fault(kind="loss", probability=0.5, element="nic0/p0", at="2us", **{"for": "10us"}),
        fault(kind="slow", factor=0.5, element="nic0/p0", at="3us", **{"for": "10us"}),
        fault(kind="slow", factor=0.25, element="nic0/p0", at="4us", **{"for": "10us"}),
        fault(kind="latency", extra="1us", element="nic0/p0", at="5us", **{"for": "10us"}),
        fault(kind="latency", extra="2us", element="nic0/p0", at="6us", **{"for": "10us"}),
        fault(kind="down", element="nic0/p0", at="7us", **{"for": "1us"}),
        fault(kind="corrupt", probability=0.5, element="nic0/p0", at="9us", **{"for": "10us"}),
    )
    full = state(s, link, 6 * US)
    assert full == LinkState(0, P32 * 3 // 4, 0, 0, 4 * 65_536, 3 * US, 1, DropReason.GREY)
    assert state(s, link, 7 * US) == full._replace(down=1, fault=6, reason=DropReason.LINK_DOWN)
    assert state(s, link, 8 * US) == full
    nine = state(s, link, 9 * US)
    assert (nine.corrupt, nine.fault, nine.reason) == (P32 // 2, 7, DropReason.CORRUPT)
    # a loss is never charged to what only slows
    assert state(s, link, 11 * US + 1).fault == 7
    assert state(s, link, 20 * US).fault == -1


def test_blame_goes_to_what_is_down_then_to_what_swallows_all() -> None:
    t = small("planes")
    s = schedule(
        t,
        fault(kind="down", element="p0/t0.0", at="1us", **{"for": "9us"}),
        fault(kind="blackhole", element="p0/t0.0", at="2us", **{"for": "19us"}),
        fault(kind="loss", probability=0.9, element="nic0/p0", at="3us"),
        fault(kind="down", element="nic0/p0", at="4us", **{"for": "1us"}),
    )
    link = t.nic_up(0, 0)
    assert [state(s, link, x * US).fault for x in (1, 3, 4, 5, 10, 21)] == [0, 0, 3, 0, 1, 2]


SWITCHES = ["p0/t0.0", "p0/t1.1", "p1"]
ELEMENTS = [*SWITCHES, "nic0/p0", "nic0", "nic1/p1", "p0/t0.0-t1.1", "p0/t0.1/up0-1", "p0/t1.0:up"]
KINDS = ["down", "flap", "loss", "corrupt", "slow", "latency", "blackhole", "reboot"]
TIMES = st.integers(0, 12)


@st.composite
def faults(draw: st.DrawFn) -> FaultSettings:
    kind = draw(st.sampled_from(KINDS))
    values: dict[str, Any] = {
        "kind": kind,
        "element": draw(st.sampled_from(SWITCHES if kind in ("blackhole", "reboot") else ELEMENTS)),
        "at": f"{draw(TIMES)}ps" if draw(st.booleans()) else 0,
    }
    if kind == "reboot" or draw(st.booleans()):
        values["for"] = f"{draw(st.integers(1, 8))}ps"
    if kind not in ("blackhole", "reboot") and ":" not in values["element"]:
        values["direction"] = draw(st.sampled_from(["both", "both", "up", "down"]))
    if kind == "flap":
        values |= {"period": f"{draw(st.integers(1, 5))}ps", "duty": draw(st.sampled_from([0.2, 0.5, 0.9]))}
        values["count"] = draw(st.integers(1, 4))
    elif kind == "loss" and draw(st.booleans()):
        values["bit_error_rate"] = draw(st.floats(1e-12, 0.01))
    elif kind in ("loss", "corrupt"):
        values["probability"] = draw(st.floats(0, 1))
    elif kind == "slow":
        values["factor"] = draw(st.floats(0.001, 1))
    elif kind == "latency":
        values["extra"] = f"{draw(st.integers(1, 100))}ns"
    return fault(**values)


@quick
@given(st.lists(faults(), max_size=6), st.sampled_from(["partial", "three"]))
def test_segments_agree_with_the_slow_twin(items: list[FaultSettings], name: str) -> None:
    if name == "three":  # one plane only
        items = [f for f in items if "p1" not in (f.element or "")]
    t = small(name)
    s = schedule(t, *items, horizon_ps=40)
    n = len(s.infos)
    touched = {int(link) for info in s.infos for link in info.links}
    assert set(s.slot_links.tolist()) == touched
    for slot, link in enumerate(s.slot_links.tolist()):
        first, last = int(s.seg_first[slot]), int(s.seg_first[slot + 1])
        starts = s.seg_start_ps[first:last].tolist()
        assert starts[0] == 0
        assert s.seg_fault[first] == -1
        assert starts[1:] == sorted(set(starts[1:]))
        rows = [tuple(int(column[seg]) for column in s.arrays[3:]) for seg in range(first, last)]
        assert all(before != after for before, after in pairwise(rows)), "segments that could be one"
        for time_ps in range(35):
            fast, slow = state(s, link, time_ps), link_state_at(s, slot, time_ps)
            assert fast._replace(loss=0, corrupt=0, ber=0) == slow._replace(loss=0, corrupt=0, ber=0)
            for a, b in ((fast.loss, slow.loss), (fast.corrupt, slow.corrupt), (fast.ber, slow.ber)):
                assert abs(a - b) <= n
                assert a >= 0


@quick
@given(st.lists(faults(), max_size=6))
def test_port_events_agree_with_direct_composition(items: list[FaultSettings]) -> None:
    t = small("partial")
    p = t.params
    s = schedule(t, *items, horizon_ps=40)
    e = s.port_events
    order = list(zip(e.time_ps.tolist(), e.nic.tolist(), e.plane.tolist(), strict=True))
    assert order == sorted(set(order))
    for time_ps in range(35):
        up = np.ones((p.n_nics, p.planes), dtype=bool)
        for spec in s.specs:
            if spec.ports is not None and spec.active_at(time_ps):
                up[spec.ports // p.planes, spec.ports % p.planes] = False
        assert (ports_at(s, p.planes, p.n_nics, time_ps) == up).all()


# --- random faults -------------------------------------------------------------------------

RANDOM = {"layer": "t0-t1", "rate_per_hour": 40.0, "duration": "1s"}


def events(s: FaultSchedule, fault_ids: slice = slice(None)) -> list[tuple[str, int, int]]:
    return [(i.element, i.at_ps, i.end_ps) for i in s.infos[fault_ids]]


def test_random_faults_follow_seed_and_rate() -> None:
    t = small("planes")  # 4 planes x 4 T0 x 3 uplinks = 48 cables
    f = fault(kind="down", random=RANDOM)
    s = schedule(t, f, horizon_ps=HOUR)
    assert events(s) == events(schedule(t, f, horizon_ps=HOUR))
    assert events(s) != events(schedule(t, f, horizon_ps=HOUR, seed=2))
    assert abs(len(s.infos) - 48 * 40) < 5 * (48 * 40) ** 0.5
    assert len({i.element for i in s.infos}) == 48
    times = [i.at_ps for i in s.infos]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < HOUR
    assert all(i.end_ps == i.at_ps + 10**12 and i.text.endswith("down, drawn at random") for i in s.infos)


def test_a_longer_run_only_adds_random_faults() -> None:
    t = small("planes")
    f = fault(kind="down", random=RANDOM)
    short = events(schedule(t, f, horizon_ps=HOUR // 4))
    assert short == events(schedule(t, f, horizon_ps=HOUR))[: len(short)]


@pytest.mark.parametrize("name", [None, "mine"])
def test_other_faults_do_not_move_a_random_one(name: str | None) -> None:
    t = small("planes")
    f = fault(kind="down", random=RANDOM, name=name)
    alone = events(schedule(t, f, horizon_ps=HOUR))
    other = fault(kind="loss", probability=0.1, random=RANDOM | {"rate_per_hour": 100.0})
    exact = fault(kind="down", element="nic0")
    for before, after in (([other], []), ([exact], [other]), ([other, exact], [exact])):
        together = schedule(t, *before, f, *after, horizon_ps=HOUR)
        mine = [i for i in together.infos if i.kind == "down" and "random" in i.text]
        assert [(i.element, i.at_ps, i.end_ps) for i in mine] == alone


def test_equal_random_faults_draw_differently() -> None:
    t = small("planes")
    f = fault(kind="down", random=RANDOM)
    both = events(schedule(t, f, f, horizon_ps=HOUR))
    one = events(schedule(t, f, horizon_ps=HOUR))
    assert both[: len(one)] == one
    assert both[len(one) :] != one


def test_at_and_for_bound_the_drawing() -> None:
    t = small("planes")
    f = fault(kind="down", random=RANDOM, at="10min", **{"for": "5min"})
    times = [i.at_ps for i in schedule(t, f, horizon_ps=HOUR).infos]
    assert times
    assert min(times) >= HOUR // 6
    assert max(times) < HOUR // 4


@pytest.mark.parametrize(
    ("layer", "name", "elements"),
    [
        ("nic-t0", "partial", {f"nic{n}/p{p}" for n in range(7) for p in range(2)}),
        ("t0-t1", "one-t0", {f"p{p}/t0.0-t1.{u}" for p in range(8) for u in range(4)}),
        ("t1-t2", "three", {f"p0/t1.{x}-t2.{x % 2 * 2 + v}" for x in range(8) for v in range(2)}),
        (
            "switches",
            "three",
            {f"p0/t{tier}.{i}" for tier, n in ((0, 8), (1, 8), (2, 4)) for i in range(n)},
        ),
        (
            "switches",
            "one-t0",
            {f"p{p}/{name}" for p in range(8) for name in ("t0.0", "t1.0", "t1.1", "t1.2", "t1.3")},
        ),
    ],
)
def test_random_layers_draw_from_all_their_elements(layer: str, name: str, elements: set[str]) -> None:
    f = fault(kind="down", random={"layer": layer, "rate_per_hour": 200.0, "duration": "1ms"})
    assert {i.element for i in schedule(small(name), f, horizon_ps=HOUR).infos} == elements


# --- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"kind": "down"}, "either `element` or `random`"),
        ({"kind": "down", "element": "p0", "random": RANDOM}, "either `element` or `random`"),
        ({"kind": "down", "element": "p9"}, "plane 0..3"),
        ({"kind": "down", "element": "spine3"}, "write nic12"),
        ({"kind": "down", "element": "p0", "probability": 0.5}, "use kind corrupt or loss"),
        ({"kind": "down", "element": "p0", "duty": 0.2}, "use kind flap"),
        ({"kind": "down", "element": "p0", "for": 0}, "`for` is 0"),
        ({"kind": "flap", "element": "p0"}, "`period` is missing"),
        ({"kind": "flap", "element": "p0", "period": 0}, "`period` is 0"),
        ({"kind": "flap", "random": RANDOM, "period": "1us"}, "cannot be drawn"),
        ({"kind": "flap", "element": "p0/t0.0", "period": "1ns"}, "`count` or `for`"),
        ({"kind": "loss", "element": "p0"}, "either `probability` or `bit_error_rate`"),
        ({"kind": "loss", "element": "p0", "probability": 0.1, "bit_error_rate": 1e-9}, "exactly one"),
        ({"kind": "corrupt", "element": "p0"}, "`probability` is missing"),
        ({"kind": "corrupt", "element": "p0", "bit_error_rate": 1e-9, "probability": 0.1}, "use kind loss"),
        ({"kind": "slow", "element": "p0"}, "`factor` is missing"),
        ({"kind": "latency", "element": "p0"}, "`extra` is missing"),
        ({"kind": "latency", "element": "p0", "extra": "2ms"}, "at most 1 ms"),
        ({"kind": "latency", "element": "p0", "extra": 0}, "outside"),
        ({"kind": "reboot", "element": "p0/t0.0"}, "`for` is missing"),
        ({"kind": "reboot", "element": "nic0", "for": "1us"}, "not a switch"),
        ({"kind": "blackhole", "element": "p0/t0.0-t1.1"}, "not a switch"),
        ({"kind": "blackhole", "element": "p0/t0.0:up"}, "both directions"),
        ({"kind": "blackhole", "element": "p0/t0.0", "direction": "up"}, "both directions"),
        ({"kind": "blackhole", "random": RANDOM}, 'layer = "switches"'),
        ({"kind": "down", "random": RANDOM | {"layer": "switches"}, "direction": "up"}, "both directions"),
        ({"kind": "down", "random": RANDOM | {"layer": "t1-t2"}}, "has no t1-t2"),
        ({"kind": "down", "random": RANDOM | {"duration": 0}}, "`random.duration` is 0"),
        ({"kind": "down", "random": RANDOM | {"rate_per_hour": 1e12}}, "rate_per_hour"),
        ({"kind": "down", "element": "p0/t1.0", "seen": True}, "no NIC port"),
        ({"kind": "loss", "element": "nic0", "probability": 1, "seen": True}, "use kind down"),
        ({"kind": "down", "element": "nic0/p0:up", "direction": "up"}, "already names a direction"),
    ],
)
def test_faults_that_make_no_sense(values: dict[str, Any], says: str) -> None:
    with pytest.raises((ScenarioError, TopologyError)) as error:
        schedule(small("planes"), fault(kind="down", element="nic0"), fault(**values))
    assert says in str(error.value)
    assert str(error.value).startswith(f"fault[1] ({values['kind']}")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"kind": "melt", "element": "p0"}, "kind"),
        ({"kind": "down", "elemnt": "p0"}, "elemnt"),
        ({"kind": "loss", "element": "p0", "probability": 1.5}, "probability"),
        ({"kind": "loss", "element": "p0", "bit_error_rate": 0.5}, "bit_error_rate"),
        ({"kind": "slow", "element": "p0", "factor": 0}, "factor"),
        ({"kind": "slow", "element": "p0", "factor": 2}, "factor"),
        ({"kind": "flap", "element": "p0", "period": "1us", "duty": 1}, "duty"),
        ({"kind": "flap", "element": "p0", "period": "1us", "count": 0}, "count"),
        ({"kind": "down", "element": "p0", "at": 5}, "at"),
        ({"kind": "down", "random": {"layer": "t0", "rate_per_hour": 1, "duration": "1s"}}, "layer"),
    ],
)
def test_values_out_of_range(values: dict[str, Any], key: str) -> None:
    with pytest.raises((ValidationError, InputError), match=key):
        fault(**values)


def test_too_many_events_or_changes_are_refused() -> None:
    t = small("planes")
    f = fault(kind="flap", element="nic0/p0", period="2ns", count=MAX_FAULT_EVENTS + 1)
    with pytest.raises(ScenarioError, match="fault events"):
        expand_faults(t, [f], 1, MS)
    big = Topology(FabricSettings(nics=16_384, planes=8, hosts_per_t0=128))
    flapping = fault(kind="flap", element="p0", period="1us", count=400)
    with pytest.raises(ScenarioError, match="smaller elements"):
        compile_faults(big, [flapping], 1, MS)


def test_arrays_are_what_kernels_want() -> None:
    s = schedule(small("planes"), fault(kind="down", element="p1", at="1us"))
    for array in (*s.arrays, *s.port_events):
        assert array.dtype == np.int64
        assert array.flags["C_CONTIGUOUS"]
    assert s.slot_of(int(s.slot_links[0]) - 1) == -1


def test_settings_describe_every_key() -> None:
    schema = FaultSettings.model_json_schema()
    assert "for" in schema["properties"]
    for name, field in (schema["properties"] | schema["$defs"]["RandomFaults"]["properties"]).items():
        assert field.get("description"), name
