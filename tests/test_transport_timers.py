"""Deadlines: timeout and retry budget, tail probe, pacing. No deadline is left in the past."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from openmrc.limits import NEVER_PS
from openmrc.transport import acks, ports, requestor, timers
from openmrc.transport.state import (
    CTRL_PROBE,
    ERR_RETRY_EXCEEDED,
    QP_ERROR,
    QP_RTS,
    SLOT_INFLIGHT,
    SLOT_LOST,
)
from transport_model import Weather
from transport_network import Network
from transport_support import BASE_RTT_PS, US, Sender, control_row, make

TIMEOUT_PS = 1_024_000 << 5
FOR_EVER = 25


def deadline(sender: Sender) -> int:
    return int(timers.requestor_deadline(sender.st, sender.pf, 0, sender.now))


def fire(sender: Sender, limit: int = 50) -> list[tuple[int, Any]]:
    """Do all that is due now; returns what was done. Fails when it never ends."""
    done = []
    for _ in range(limit):
        row = control_row()
        action = int(timers.on_requestor_timer(sender.st, sender.pf, 0, sender.now, row))
        if action == timers.T_NONE:
            return done
        done.append((action, row))
        if action == timers.T_FAILED:
            return done
    raise AssertionError("the timer never finds peace")


def silent(**changes: Any) -> Sender:
    """Return a sender whose only packet is never answered; no tail probe unless asked for."""
    sender = Sender(make(**({"tail_probe": False, "timeout_exponent": 5} | changes)))
    sender.post(1000)
    sender.send()
    return sender


def expiries(sender: Sender, n: int) -> list[int]:
    """Let `n` timeouts expire; returns the intervals between them, in units of the timeout."""
    intervals, last = [], sender.now
    while len(intervals) < n:
        sender.now = deadline(sender)
        assert sender.now < NEVER_PS
        before = int(sender.req["n_timeouts"])
        fire(sender)
        sender.send()
        if int(sender.req["n_timeouts"]) > before:  # else it was a probe of the condemned EV
            intervals.append((sender.now - last) // TIMEOUT_PS)
            last = sender.now
    return intervals


@pytest.mark.parametrize("linear", [0, 2, 7])
def test_timeouts_are_linear_and_then_double(linear):
    sender = silent(linear_cnt=linear, exp_cnt=FOR_EVER, ev_min_active=1.0)
    assert expiries(sender, linear + 5) == [1] * (linear + 1) + [2, 4, 8, 16]
    assert int(sender.req["state"]) == QP_RTS
    assert sender.count("lost_timeout") == linear + 5


def test_the_expiry_that_spends_the_budget_says_so():
    sender = silent(linear_cnt=0, exp_cnt=0)
    sender.now = deadline(sender)
    assert [action for action, _ in fire(sender)] == [timers.T_FAILED]


@pytest.mark.parametrize(("linear", "exponential"), [(0, 0), (2, 0), (0, 3), (7, 7)])
def test_a_spent_budget_fails_the_qp(linear, exponential):
    sender = silent(linear_cnt=linear, exp_cnt=exponential)
    expiries(sender, linear + exponential)
    assert int(sender.req["state"]) == QP_RTS
    expiries(sender, 1)
    assert (int(sender.req["state"]), int(sender.req["error"])) == (QP_ERROR, ERR_RETRY_EXCEEDED)
    assert deadline(sender) == NEVER_PS
    assert sender.select()[0] == requestor.IDLE
    assert not sender.post(1)
    assert int(sender.cc["inflight"]) == 0


def test_for_ever_never_fails():
    sender = silent(linear_cnt=0, exp_cnt=FOR_EVER)
    expiries(sender, 12)
    assert int(sender.req["state"]) == QP_RTS


def test_any_advance_of_cack_resets_the_budget():
    sender = silent(linear_cnt=1, exp_cnt=1)
    sender.post(1000)
    sender.send()
    expiries(sender, 2)
    assert int(sender.req["retries"]) == 2
    sender.sack(sender.sent[0], sender.sent[0]["psn"])
    assert int(sender.req["retries"]) == 0
    assert int(sender.req["rto_base_ps"]) == sender.now


def test_losses_inferred_and_trims_do_not_count():
    sender = silent()
    sender.nack(sender.sent[0], acks.NACK_TRIMMED)
    assert int(sender.req["retries"]) == 0


@pytest.mark.parametrize(
    ("reason", "charged"),
    [(0x01, 0), (0x02, 0), (0x06, 1), (0x07, 1), (0x0A, 1), (0x0B, 1)],
)
def test_which_nacks_count(reason, charged):
    sender = silent()
    packet = sender.sent[0]
    assert sender.nack(packet, reason)
    assert int(sender.req["retries"]) == charged


def test_one_charge_an_interval_whatever_its_cause():
    """Refused at once, always: expiries and NACKs together charge once per timeout."""
    sender = silent(linear_cnt=3, exp_cnt=2, ev_min_active=1.0)
    start = sender.now
    charged = []
    for _ in range(10_000):
        before = int(sender.req["retries"])
        if int(sender.req["state"]) != QP_RTS:
            break
        sender.now += TIMEOUT_PS // 10
        if sender.sent and int(sender.slot(sender.sent[-1]["psn"])["state"]) == SLOT_INFLIGHT:
            sender.nack(sender.sent[-1], acks.NACK_NO_RESOURCE)
        fire(sender)
        sender.send()
        if int(sender.req["retries"]) > before:
            charged.append(sender.now - start)
    assert int(sender.req["error"]) == ERR_RETRY_EXCEEDED
    gaps = [(b - a) / TIMEOUT_PS for a, b in itertools.pairwise(charged)]
    assert len(charged) == 6  # linear_cnt + exp_cnt, and the one that was too many
    assert all(gap >= 0.99 for gap in gaps)
    assert gaps[-1] >= 1.99  # the intervals of the second half doubled


def test_a_timeout_declares_lost_what_is_older_than_the_interval():
    sender = Sender(make(tail_probe=False, timeout_exponent=5))
    sender.post(3 * 1024)
    sender.send(tx_ps=sender.now)
    sender.send(tx_ps=sender.now)
    sender.send(tx_ps=sender.now + 1)  # still in the port when the interval began
    sender.now = deadline(sender)
    fire(sender)
    states = [int(sender.slot(p["psn"])["state"]) for p in sender.sent]
    assert states == [SLOT_LOST, SLOT_LOST, SLOT_INFLIGHT]


def test_nothing_is_due_when_all_is_done():
    sender = Sender(make())
    assert deadline(sender) == NEVER_PS
    sender.post(1000)
    sender.send()
    assert deadline(sender) < NEVER_PS
    sender.ack(sender.sent[0]["psn"], 0)
    assert deadline(sender) == NEVER_PS


# --- the tail probe -----------------------------------------------------------------------------


def test_the_tail_probe_follows_two_smoothed_rtts_of_silence_on_another_plane():
    sender = silent(tail_probe=True, timeout_exponent=24)
    plane = int(sender.ev(sender.sent[0]["row"])["plane"])
    sent_ps = sender.now
    gaps = []
    for _ in range(4):
        sender.now = deadline(sender)
        gaps.append((sender.now - sent_ps) // BASE_RTT_PS)
        ((action, row),) = fire(sender)
        assert action == timers.T_SEND
        assert int(row["kind"]) == CTRL_PROBE
        assert int(row["path"]) >> 16 != plane
        plane = int(row["path"]) >> 16
    assert gaps == [2, 6, 14, 2 * 15]


def test_a_long_silence_never_leaves_the_tail_probe_in_the_past():
    """The interval grows to 1024 smoothed RTTs and then repeats."""
    sender = silent(tail_probe=True, timeout_exponent=24)
    times = []
    for _ in range(20):
        sender.now = deadline(sender)
        assert [action for action, _ in fire(sender)] == [timers.T_SEND]
        assert deadline(sender) > sender.now
        times.append(sender.now)
    gaps = [(b - a) // BASE_RTT_PS for a, b in itertools.pairwise(times)]
    assert gaps[:4] == [4, 8, 16, 32]
    assert gaps[10:] == [2048] * 9


def test_anything_heard_begins_the_silence_anew():
    for answer in ("sack", "nack", "ack"):
        sender = silent(tail_probe=True, timeout_exponent=24)
        sender.post(1000)
        sender.send()
        sender.now = deadline(sender)
        fire(sender)
        sender.now += US
        if answer == "sack":
            sender.sack(sender.sent[0], sender.sent[0]["psn"])
        elif answer == "nack":
            sender.nack(sender.sent[0], acks.NACK_TRIMMED)
        else:
            sender.ack(sender.sent[0]["psn"], 0)
        assert int(sender.req["tail_count"]) == 0
        srtt = int(sender.req["srtt_ps"])
        assert deadline(sender) == sender.now + 2 * srtt


def test_a_lost_transport_ack_is_repaired_by_the_tail_probe():
    sender = silent(tail_probe=True)
    sender.sack(sender.sent[0], sender.sent[0]["psn"])
    assert deadline(sender) < NEVER_PS  # all is acknowledged, but the message is not complete
    sender.now = deadline(sender)
    assert [action for action, _ in fire(sender)] == [timers.T_SEND]


def test_a_lost_transport_ack_is_repaired_without_tail_probe_too():
    sender = silent()
    sender.sack(sender.sent[0], sender.sent[0]["psn"])
    sender.now = deadline(sender)
    ((action, row),) = fire(sender)
    assert action == timers.T_SEND
    assert int(row["kind"]) == CTRL_PROBE


def test_a_write_imm_that_waits_for_the_limit_is_not_forgotten():
    """Everything is SACKed, but the Transport ACKs that would free the limit were lost."""
    sender = Sender(make(), depth=64)
    for _ in range(33):
        sender.post(10, 1)
    packets = sender.send_all()
    assert len(packets) == 32
    sender.now += BASE_RTT_PS
    sender.sack(packets[-1], packets[-1]["psn"])
    assert sender.select()[0] == requestor.WINDOW
    assert deadline(sender) < NEVER_PS
    assert sender.ack(packets[-1]["psn"], 31) == 32
    assert sender.select()[0] == requestor.SEND


# --- pacing -------------------------------------------------------------------------------------


def paced(cwnd_bytes: int, **changes: Any) -> Sender:
    sender = Sender(make(**changes))
    sender.cc["cwnd_q16"] = cwnd_bytes << 16
    sender.post(10_000)
    return sender


def test_below_one_mtu_one_packet_is_out_and_the_next_waits():
    sender = paced(1166 // 4)
    first = sender.send()
    assert first is not None
    assert sender.select()[0] == requestor.WINDOW
    sender.now += BASE_RTT_PS
    sender.cc["increasing"] = 0
    sender.sack(first, first["psn"], delayed=1)
    assert sender.select()[0] == requestor.PACED
    expected = first["tx_ps"] + BASE_RTT_PS * 1166 // (1166 // 4)
    assert deadline(sender) == expected
    sender.now = expected - 1
    assert sender.select()[0] == requestor.PACED
    sender.now = expected
    assert fire(sender) == []
    assert sender.select()[0] == requestor.SEND


def test_a_pacing_time_that_has_passed_is_no_deadline():
    """With no path or no room the time passes; the driver must not be called again and again."""
    sender = paced(1166 // 4)
    assert deadline(sender) == NEVER_PS
    ports.requestor_ports(sender.st, 0, sender.now, 0, True, False)
    assert sender.select()[0] == requestor.PATHLESS
    fire(sender)
    assert deadline(sender) > sender.now


def test_a_window_of_one_mtu_lets_the_largest_packet_pass():
    """A full last packet of a WRITE_IMM is 4 bytes larger than the unit of the window's floor."""
    sender = Sender(make({"profile": "uet-1.0-nscc"}))
    sender.cc["cwnd_q16"] = sender.profile.min_cwnd_q16
    sender.post(1024, 1)
    assert sender.select()[0] == requestor.SEND


# --- last path lost -----------------------------------------------------------------------------


def test_the_last_path_lost_respects_the_budget():
    network = Network(3, make(exp_cnt=1, linear_cnt=1, timeout_exponent=5), routes=((0, 1),))
    network.post(0, 100_000)
    network.run(20)
    for plane in range(2):
        network.port(0, plane, False)
    assert network.directions[0].verdict == requestor.PATHLESS
    assert network.count("no_path") == 1  # reported at once
    network.run_for(10_000 * US)
    assert int(network.st.req[0]["error"]) == ERR_RETRY_EXCEEDED


def test_the_last_path_lost_resumes_when_one_returns():
    network = Network(4, make(timeout_exponent=5), routes=((0, 1),))
    network.post(0, 200_000)
    network.run(20)
    for plane in range(2):
        network.port(0, plane, False)
    network.run_for(3000 * US)
    assert not network.is_idle()
    network.port(0, 1, True)
    network.run_for(3000 * US)
    assert network.is_idle()
    network.drain()


def test_black_silence_of_a_tenth_of_a_second_is_survived():
    network = Network(5, make(timeout_exponent=5), weather=Weather())
    network.post(0, 50_000)
    network.run(30)
    network.weather = Weather(loss=1.0, control_loss=1.0)
    network.run_for(100_000 * US)
    assert network.count("timeouts") > 5
    network.drain()


def test_an_error_frees_a_shared_window():
    """Two QPs share a controller; one fails with packets in flight."""
    profile = make({"max_cwnd": 0.02}, exp_cnt=0, linear_cnt=0)
    network = Network(6, profile, routes=((0, 1), (0, 1)), cc_row=[0, 0])
    network.post(0, 20_000)
    network.post(1, 20_000)
    assert int(network.st.cc[0]["inflight"]) > 0
    requestor.enter_error(network.st, 0, ERR_RETRY_EXCEEDED)
    network.directions[0].failed = True
    network.drain()
    assert len(network.directions[1].completed) == 1
