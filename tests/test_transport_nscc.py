"""NSCC against a twin in exact fractions, both profiles, and its rules one by one."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from openmrc.errors import InputError
from openmrc.limits import NEVER_PS
from openmrc.transport import nscc
from openmrc.transport.settings import NsccSettings
from transport_support import BASE_RTT_PS, OVERHEAD, RATE_BPS, US, Sender, make
from transport_twins import NsccTwin

MTU = 1024
WIRE_MTU = MTU + OVERHEAD
EVENTS = ("clear", "queue", "none", "trim", "loss", "penalty", "restore")


def twin_of(letter: bool, trimming: bool) -> NsccTwin:
    """Return the twin for the network of `transport_support`, its gains from the specification's table."""
    bdp = Fraction(RATE_BPS * BASE_RTT_PS, 8 * 10**12)
    a = bdp / 150_000
    target = BASE_RTT_PS * 3 // 4 if trimming else BASE_RTT_PS
    b = Fraction(target, 12 * US)
    return NsccTwin(
        mtu=MTU,
        wire_mtu=WIRE_MTU,
        base_rtt=BASE_RTT_PS,
        configured_rtt=BASE_RTT_PS,
        target=target,
        max_cwnd=bdp * 3 / 2,
        gamma=Fraction(8, 10),
        max_md_jump=Fraction(1, 2),
        fi=5 * MTU * a,
        fi_scale=a / 4,
        eta=Fraction(15, 100) * MTU * a,
        alpha=4 * a * b * MTU / target,
        adjust_bytes=8 * MTU,
        adjust_period=BASE_RTT_PS,
        qa_gate=3,
        qa_threshold=None if trimming else 4 * target,
        letter=letter,
        cwnd=bdp * 3 / 2,
        last_decrease=-BASE_RTT_PS,
    )


def copy_into(twin: NsccTwin, cc: Any) -> None:
    """Give the twin the engine's state, so that one event is compared and not the sum of all roundings."""
    twin.cwnd = Fraction(int(cc["cwnd_q16"]), 1 << 16)
    twin.max_cwnd = Fraction(int(cc["max_cwnd"]))
    twin.avg_delay = Fraction(int(cc["avg_delay_q16"]), 1 << 16)
    twin.inc_bytes = Fraction(int(cc["inc_q16"]), 1 << 16)
    twin.base_rtt, twin.inflight = int(cc["base_rtt_ps"]), int(cc["inflight"])
    for name in ("received", "achieved", "fi_count"):
        setattr(twin, name, int(cc[name]))
    saved = int(cc["saved_cwnd_q16"])
    twin.saved = Fraction(saved, 1 << 16) if saved else None


def compare(twin: NsccTwin, cc: Any, slack: Fraction) -> None:
    def close(field: str, exact: Fraction, scale: int, more: int) -> None:
        got = Fraction(int(cc[field]), scale)
        assert abs(got - exact) <= abs(exact) * slack + more, f"{field}: {float(got)}, exactly {float(exact)}"

    close("cwnd_q16", twin.cwnd, 1 << 16, 2)
    close("max_cwnd", twin.max_cwnd, 1, 2)
    close("avg_delay_q16", twin.avg_delay, 1 << 16, 1000)
    close("inc_q16", twin.inc_bytes, 1 << 16, 4)
    assert int(cc["base_rtt_ps"]) == twin.base_rtt
    assert (int(cc["received"]), int(cc["achieved"])) == (twin.received, twin.achieved)
    assert (int(cc["fi_count"]), bool(cc["increasing"])) == (twin.fi_count, twin.increasing)
    assert (bool(cc["trigger_qa"]), int(cc["qa_end_ps"])) == (twin.trigger_qa, twin.qa_end)
    assert (int(cc["ignore"]), int(cc["ignored"])) == (twin.to_ignore, twin.ignored)
    assert int(cc["last_adjust_ps"]) == twin.last_adjust
    assert int(cc["last_decrease_ps"]) == twin.last_decrease
    assert (int(cc["saved_cwnd_q16"]) != 0) == (twin.saved is not None)


def random_event(r: random.Random, twin: NsccTwin, cc: Any, pf: Any, now: int) -> str:
    """Hand one random event to engine and twin; returns its name."""
    what = r.choice(EVENTS)
    cc["inflight"] = twin.inflight = r.randrange(0, 200_000)
    n = r.randrange(0, 20_000)
    if what == "trim":
        twin.trim(now, n)
        nscc.on_trim(pf, cc, now, n)
        return what
    if what == "loss":
        twin.loss(n)
        nscc.on_loss(pf, cc, n)
        return what
    marked = r.random() < 0.3
    rtt: int | None = twin.base_rtt + (r.randrange(0, 2 * US) if what == "clear" else r.randrange(0, 60 * US))
    if r.random() < 0.02:
        rtt = twin.base_rtt * 99 // 100
    if what == "none":
        rtt = None
    penalty = r.randrange(1, 128) if what == "penalty" and r.random() < 0.2 else 0
    restore = what == "restore"
    twin.sack(now, n, marked, rtt, penalty, restore)
    nscc.on_ack(pf, cc, now, n, marked, nscc.NO_SAMPLE if rtt is None else rtt, penalty, restore)
    return f"{what}_{marked}"


@pytest.mark.parametrize("trimming", [True, False])
@pytest.mark.parametrize("profile", ["mrc-nscc", "uet-1.0-nscc"])
def test_every_event_does_what_the_twin_does(profile, trimming):
    sender = Sender(make({"profile": profile}, trimming=trimming))
    pf, cc = sender.pf, sender.cc
    twin = twin_of(profile == "uet-1.0-nscc", trimming)
    r = random.Random(f"{profile} {trimming}")
    now, seen = 0, set()
    for _ in range(2500):
        now += r.choice((r.randrange(1, US), r.randrange(1, 30 * US)))
        copy_into(twin, cc)
        # the engine divides by whole bytes of window
        slack = Fraction(1, 2000) + 1 / min(twin.cwnd, twin.saved or twin.cwnd)
        name = random_event(r, twin, cc, pf, now)
        compare(twin, cc, slack)
        low, high = sender.profile.min_cwnd_q16, int(cc["max_cwnd"]) << 16
        assert low <= int(cc["cwnd_q16"]) <= high
        seen.add(name.partition("_")[0])
        seen |= {what for what, happened in rules_at_work(twin, now).items() if happened}
    assert seen == {*EVENTS, "decrease", "fast increase", "quick adapt", "penalty saved"}


def rules_at_work(twin: NsccTwin, now: int) -> dict[str, bool]:
    return {
        "decrease": twin.last_decrease == now,
        "fast increase": twin.increasing,
        "quick adapt": twin.to_ignore > 0 and twin.ignored == 0,
        "penalty saved": twin.saved is not None,
    }


@pytest.mark.parametrize("profile", ["mrc-nscc", "uet-1.0-nscc"])
def test_long_traces_stay_close_to_the_exact_twin(profile):
    """Roundings do not add up: 300 events without copying, apart by less than a percent."""
    for seed in range(12):
        sender = Sender(make({"profile": profile}))
        twin = twin_of(profile == "uet-1.0-nscc", True)
        r = random.Random(seed)
        now = 0
        for _ in range(300):
            now += r.randrange(1, 2 * US)
            n = r.randrange(1000, 6000)
            delay = r.randrange(0, 15 * US)
            marked = r.random() < 0.2
            twin.sack(now, n, marked, BASE_RTT_PS + delay)
            for field in ("cwnd", "inc_bytes", "avg_delay"):  # or the fractions grow without end
                setattr(twin, field, Fraction(float(getattr(twin, field))))
            nscc.on_ack(sender.pf, sender.cc, now, n, marked, BASE_RTT_PS + delay, 0, False)
            assert abs(int(sender.cc["cwnd_q16"]) / 65536 / float(twin.cwnd) - 1) < 0.01


def sample(sender: Sender, delay_ps: int, *, n: int = 1000, marked: bool = False) -> None:
    nscc.on_ack(sender.pf, sender.cc, sender.now, n, marked, BASE_RTT_PS + delay_ps, 0, False)


def cwnd(sender: Sender) -> int:
    return int(sender.cc["cwnd_q16"]) >> 16


@pytest.mark.parametrize(("profile", "shrinks"), [("mrc-nscc", True), ("uet-1.0-nscc", False)])
def test_change_1_unmarked_delay_above_target_decreases(profile, shrinks):
    sender = Sender(make({"profile": profile}))
    sender.cc["cwnd_q16"] = 100_000 << 16
    before = cwnd(sender)
    sample(sender, 20 * US)
    assert (cwnd(sender) < before) == shrinks
    assert cwnd(sender) >= before // 2  # max_md_jump


@pytest.mark.parametrize(("profile", "floor"), [("mrc-nscc", WIRE_MTU // 10), ("uet-1.0-nscc", WIRE_MTU)])
def test_change_2_the_floor_of_the_window(profile, floor):
    sender = Sender(make({"profile": profile}))
    for _ in range(100):
        sample(sender, 100 * US, marked=True)
        sender.now += 2 * BASE_RTT_PS
    assert floor <= cwnd(sender) <= floor + 2 * sender.profile.eta_bytes  # added once per period


@pytest.mark.parametrize(("profile", "after"), [("mrc-nscc", 2000), ("uet-1.0-nscc", 9000)])
def test_change_3_quick_adapt_never_raises(profile, after):
    sender = Sender(make({"profile": profile}))
    sender.cc["cwnd_q16"] = 3000 << 16
    sample(sender, 0)  # arms quick adapt
    sender.now += 10 * BASE_RTT_PS
    sender.cc["cwnd_q16"] = 2000 << 16
    sender.cc["achieved"] = 9000
    nscc.on_trim(sender.pf, sender.cc, sender.now, 1000)
    assert cwnd(sender) == after


@pytest.mark.parametrize(("profile", "changes"), [("mrc-nscc", False), ("uet-1.0-nscc", True)])
def test_change_4_a_nack_that_matches_nothing(profile, changes):
    sender = Sender(make({"profile": profile}))
    sender.post(5000)
    packet = sender.send()
    before = cwnd(sender), int(sender.cc["inflight"])
    assert not sender.nack(packet | {"stamp": packet["stamp"] ^ 1}, 0x01)
    assert (cwnd(sender) != before[0]) == changes
    assert int(sender.cc["inflight"]) == before[1]
    assert sender.count("stale_nacks") == 1


def test_an_inferred_loss_takes_its_bytes_off_but_never_below_one_mtu():
    sender = Sender(make())
    sender.cc["cwnd_q16"] = 5000 << 16
    nscc.on_loss(sender.pf, sender.cc, 1166)
    assert cwnd(sender) == 5000 - 1166
    nscc.on_loss(sender.pf, sender.cc, 5000)
    assert cwnd(sender) == WIRE_MTU
    assert int(sender.cc["ignored"]) == 6166


def test_a_shorter_rtt_rescales_base_rtt_and_the_ceiling():
    sender = Sender(make())
    before = int(sender.cc["max_cwnd"])
    sample(sender, -BASE_RTT_PS // 2)
    assert int(sender.cc["base_rtt_ps"]) == BASE_RTT_PS // 2
    assert abs(int(sender.cc["max_cwnd"]) - before // 2) <= before // 10_000
    assert cwnd(sender) <= int(sender.cc["max_cwnd"])


def test_a_penalty_is_lifted_to_the_saved_window_but_not_above_the_ceiling():
    sender = Sender(make())
    sender.cc["inflight"] = 50_000
    before = cwnd(sender)
    nscc.on_ack(sender.pf, sender.cc, sender.now, 1280, False, nscc.NO_SAMPLE, 64, False)
    assert cwnd(sender) == 50_000 - 640
    nscc.on_ack(sender.pf, sender.cc, sender.now, 1280, False, BASE_RTT_PS * 3 // 4, 0, True)
    assert cwnd(sender) == int(sender.cc["max_cwnd"]) < before
    nscc.on_ack(sender.pf, sender.cc, sender.now, 1 << 20, False, nscc.NO_SAMPLE, 127, False)
    assert cwnd(sender) == WIRE_MTU


def test_congestion_control_can_be_off():
    sender = Sender(make({"profile": "off"}))
    before = cwnd(sender)
    sample(sender, 500 * US, marked=True)
    nscc.on_trim(sender.pf, sender.cc, sender.now, 1000)
    nscc.on_loss(sender.pf, sender.cc, 1000)
    assert cwnd(sender) == before == sender.profile.max_cwnd_bytes


def test_counts_saturate_and_never_wrap():
    sender = Sender(make({"alpha": 64.0, "fi": 64.0, "max_cwnd": 8.0}, base_rtt="100us"))
    for _ in range(200):
        nscc.on_ack(sender.pf, sender.cc, sender.now, 40_000_000, False, 100 * US + 2 * US, 0, False)
        for field in ("inc_q16", "received", "achieved", "fi_count", "cwnd_q16"):
            assert int(sender.cc[field]) >= 0
        sender.cc["received"] = 0
        sender.cc["last_adjust_ps"] = sender.now


def test_profile_numbers_of_the_reference_network():
    p = make()
    assert p.max_cwnd_bytes == 187_500
    assert p.target_ps == 7_500_000
    assert p.qa_threshold_ps == NEVER_PS
    assert make(trimming=False).qa_threshold_ps == 4 * BASE_RTT_PS
    assert p.min_cwnd_q16 == int(0.1 * WIRE_MTU * 65536)


def test_a_window_of_too_many_packets_is_refused():
    with pytest.raises(InputError, match=r"max_cwnd.*32768"):
        make({"max_cwnd": 8.0}, base_rtt="10ms")


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="gama"):
        NsccSettings(gama=0.5)
