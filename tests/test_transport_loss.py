"""Loss detection: rule (a) FIFO, rule (b) guard, evidence from probes, and losses that were none."""

from __future__ import annotations

import pytest

from openmrc.transport import acks, evset, loss, probes
from openmrc.transport.ev_states import ASSUMED_BAD, GOOD, SKIP
from openmrc.transport.state import SLOT_ACKED, SLOT_INFLIGHT, SLOT_LOST, SLOT_SUSPECT
from transport_support import BASE_RTT_PS, Sender, control_row, make

STEP_PS = 100_000
QUIET = {"loss_guard": False, "tail_probe": False}  # rule (a) alone
#: two planes with two EVs each: packets go to EV rows 2 0 3 1 2 0 3 1 ...
SETUP = {"planes": 2, "active": 2, "backups": 0}


def sender_with(packets: int, **changes) -> Sender:
    """Return a sender that has sent `packets` full packets, STEP_PS apart."""
    setup = SETUP | {k: changes.pop(k) for k in list(changes) if k in SETUP}
    sender = Sender(make(**changes), **setup)
    sender.post(1024 * packets)
    sender.send_all(step_ps=STEP_PS)
    assert len(sender.sent) == packets
    sender.now += BASE_RTT_PS
    return sender


def report(sender: Sender, arrived: list[int], *, trigger: int | None = None, **more) -> bool:
    """Hand in the SACK that says exactly these packets (by index) have arrived."""
    first = sender.sent[0]["psn"]
    cack = 0
    while cack in arrived:
        cack += 1
    psns = [(first + n) & 0xFFFFFF for n in arrived if n > cack]
    trigger = max(arrived) if trigger is None else trigger
    return sender.sack(sender.sent[trigger], (first + cack - 1) & 0xFFFFFF, *psns, **more)


def slot_states(sender: Sender, n: int) -> list[int]:
    return [int(sender.slot(sender.sent[0]["psn"] + i)["state"]) for i in range(n)]


def lost(sender: Sender) -> list[int]:
    """Return the packets that wait to be sent again, by index."""
    return [i for i, state in enumerate(slot_states(sender, sender.distinct)) if state == SLOT_LOST]


Sender.distinct = property(lambda self: len({p["psn"] for p in self.sent}))


# --- rule (a) -----------------------------------------------------------------------------------


def test_fifo_a_later_packet_of_the_same_ev_convicts_at_once():
    sender = sender_with(8, **QUIET)
    assert [p["row"] for p in sender.sent] == [2, 0, 3, 1, 2, 0, 3, 1]
    report(sender, [1, 2, 3, 4])  # 0 is missing, 4 took the same EV
    assert lost(sender) == [0]
    assert sender.count("lost_fifo") == 1
    assert int(sender.ev(2)["state"]) == ASSUMED_BAD
    assert int(sender.cc["inflight"]) == 3 * 1166


def test_fifo_packets_of_other_evs_convict_nobody():
    sender = sender_with(8, **QUIET)
    report(sender, [1, 2, 3])
    assert lost(sender) == []
    report(sender, [1, 2, 3, 5, 6, 7])
    assert lost(sender) == []


def test_fifo_convicts_when_the_hole_comes_into_view_later():
    """The evidence may have come with an earlier SACK whose bitmap did not show the hole."""
    sender = sender_with(8, **QUIET)
    first = sender.sent[0]["psn"]
    # packet 4 is acknowledged as the trigger of a SACK whose bitmap stands elsewhere
    sender.sack(sender.sent[4], (first - 1) & 0xFFFFFF, offset=65)
    assert lost(sender) == [0]  # for cack_psn + 1 is known to be missing wherever the bitmap stands
    sender = sender_with(8, **QUIET)
    report(sender, [0, 2, 3])
    sender.sack(sender.sent[5], first, offset=66)
    assert lost(sender) == [1]
    sender = sender_with(12, **QUIET)
    report(sender, [0, 1, 3, 4, 5])
    first_two = (first + 1) & 0xFFFFFF
    sender.sack(sender.sent[10], first_two, offset=66)  # 10 and 6 took the EV of 2; 6 is not in view
    assert lost(sender) == [2]


def test_fifo_an_older_sack_is_no_evidence():
    sender = sender_with(8, **QUIET)
    report(sender, [1, 2, 3], rcvd=50)
    newest = int(sender.req["newest_rcvd"])
    report(sender, [4], trigger=4, rcvd=newest)  # equal: unordered
    report(sender, [4], trigger=4, rcvd=newest - 1)
    assert lost(sender) == []
    report(sender, [1, 2, 3, 4], rcvd=newest + 1)
    assert lost(sender) == [0]


def test_fifo_an_older_probe_answer_convicts_only_by_its_own_probe():
    """What newer SACKs told had not arrived when the answer was made."""
    sender = sender_with(8, **QUIET)
    first = sender.sent[0]["psn"]
    sender.sack(sender.sent[6], first, offset=66, rcvd=100)  # 6 took the EV of 2; 2 is not in view
    probe_answer(sender, 1, sender.now, 0, rcvd=50)
    assert lost(sender) == [3, 7]  # those on EV 1, where the probe went
    probe_answer(sender, 0, sender.now, 0, rcvd=101)
    assert lost(sender) == [1, 2, 3, 5, 7]


def test_fifo_orders_sacks_across_the_wrap_of_rcvd_bytes():
    sender = sender_with(8, **QUIET)
    report(sender, [1, 2, 3], rcvd=0xFFFFFE)
    report(sender, [1, 2, 3, 4], rcvd=3)
    assert lost(sender) == [0]


def test_fifo_a_psn_sent_twice_is_evidence_only_when_the_echo_names_the_transmission():
    sender = sender_with(8, **QUIET, ev_min_active=0.0)
    report(sender, [1, 2, 3, 4])
    assert lost(sender) == [0]
    again = sender.send()  # packet 0 again, on another EV
    assert again["psn"] == sender.sent[0]["psn"]
    row = again["row"]
    assert row != 2
    before = int(sender.ev(row)["clock_ps"])
    first = sender.sent[0]["psn"]
    sender.sack(sender.sent[7], (first + 4) & 0xFFFFFF)  # cumulative: which transmission arrived?
    assert int(sender.ev(row)["clock_ps"]) in (before, sender.sent[7]["tx_ps"])
    assert int(sender.ev(row)["clock_ps"]) < again["tx_ps"]


def test_fifo_is_off_where_an_entropy_names_no_path():
    sender = sender_with(8, mode="ecmp", loss_guard=False)
    report(sender, [1, 2, 3, 4])
    assert lost(sender) == []


def test_without_exact_bitmaps_a_clear_bit_says_nothing():
    sender = sender_with(8, exact_bitmap=False)
    sender.now += 100 * BASE_RTT_PS
    report(sender, [1, 2, 3, 4, 5, 6, 7])
    assert lost(sender) == []


def test_all_holes_of_one_sack_are_judged():
    sender = sender_with(16, **QUIET, active=2)
    report(sender, [1, 3, 4, 5, 6, 7])  # 0 and 2 are missing on EVs 2 and 3; 4 and 6 arrived there
    assert lost(sender) == [0, 2]
    assert sender.count("assumed_bad") == 2


# --- rule (b) -----------------------------------------------------------------------------------


def guarded(age_ps: int) -> Sender:
    """Packet 0 is missing, and one sent `age_ps` later on another EV has arrived."""
    sender = Sender(make(loss_fifo=False, tail_probe=False), planes=2, active=2, backups=1)
    sender.post(1024 * 2)
    sender.send()
    sender.send(tx_ps=sender.now + age_ps)
    sender.req["rttdev_ps"] = BASE_RTT_PS // 40  # 4 deviations = 1 us
    sender.now += 3 * BASE_RTT_PS
    first = sender.sent[0]["psn"]
    sender.sack(sender.sent[1], (first - 1) & 0xFFFFFF, (first + 1) & 0xFFFFFF, delayed=1)
    return sender


SUSPECT_PS = BASE_RTT_PS // 2 + BASE_RTT_PS // 10
LOST_PS = BASE_RTT_PS + BASE_RTT_PS // 10


@pytest.mark.parametrize(
    ("age_ps", "suspect", "is_lost"),
    [
        (SUSPECT_PS, False, False),
        (SUSPECT_PS + 1, True, False),
        (LOST_PS, True, False),
        (LOST_PS + 1, False, True),
    ],
)
def test_guard_suspects_at_half_and_convicts_at_one_base_rtt_and_four_deviations(age_ps, suspect, is_lost):
    sender = guarded(age_ps)
    slot, row = sender.slot(sender.sent[0]["psn"]), sender.sent[0]["row"]
    assert bool(int(slot["flags"]) & SLOT_SUSPECT) == suspect
    assert int(sender.ev(row)["suspects"]) == suspect
    assert int(slot["state"]) == (SLOT_LOST if is_lost else SLOT_INFLIGHT)
    assert int(sender.ev(row)["state"]) == (ASSUMED_BAD if is_lost else GOOD)
    assert (sender.count("suspected"), sender.count("lost_guard")) == (suspect, is_lost)


def test_guard_a_suspected_ev_is_passed_over_until_its_packet_arrives():
    sender = guarded(SUSPECT_PS + 1)
    row = sender.sent[0]["row"]
    chosen = [int(evset.choose(sender.st, 0, 0xFF)) for _ in range(8)]
    assert row not in chosen
    report(sender, [0, 1], trigger=0)
    assert int(sender.ev(row)["suspects"]) == 0
    assert int(sender.ev(row)["state"]) == GOOD
    assert row in [int(evset.choose(sender.st, 0, 0xFF)) for _ in range(8)]


def test_guard_follows_the_base_rtt_that_was_measured():
    sender = Sender(make(loss_fifo=False, tail_probe=False), planes=2, active=2, backups=1)
    sender.cc["base_rtt_ps"] = BASE_RTT_PS // 2
    sender.req["rttdev_ps"] = 0
    sender.post(2048)
    sender.send()
    sender.send(tx_ps=sender.now + BASE_RTT_PS // 2 + 1)
    sender.now += 3 * BASE_RTT_PS
    report(sender, [1], delayed=1)
    assert lost(sender) == [0]


def test_a_psn_outside_the_bitmap_is_no_evidence():
    sender = sender_with(100, loss_fifo=False, nscc={"max_cwnd": 1.5})
    first = sender.sent[0]["psn"]
    late = sender.sent[99]
    sender.slot(late["psn"])["tx_ps"] = late["tx_ps"] + 10 * BASE_RTT_PS
    late["stamp"] = int(acks.stamp_of(late["tx_ps"] + 10 * BASE_RTT_PS))
    sender.now += 20 * BASE_RTT_PS
    sender.sack(late, (first + 9) & 0xFFFFFF, offset=65)  # the bitmap shows 74..., all missing
    assert lost(sender) == [10, *range(74, 99)]  # and cack + 1; 11..73 are not in view


def test_stale_sacks_condemn_nobody_by_the_guard():
    sender = sender_with(40)
    report(sender, list(range(20)), rcvd=100)
    sender.now += 100 * BASE_RTT_PS
    report(sender, list(range(5)), rcvd=99)
    assert lost(sender) == []


# --- probes as evidence -------------------------------------------------------------------------


def probe_answer(sender: Sender, row: int, tx_ps: int, arrived_up_to: int, *, rcvd: int = 0) -> None:
    """A data-class probe leaves on EV `row` at `tx_ps` and is answered now."""
    out = control_row()
    probes.write_probe(sender.st, sender.pf, 0, tx_ps, row, out)
    first = sender.sent[0]["psn"]
    answer = control_row()
    answer["psn"] = (first + arrived_up_to) & 0xFFFFFF
    answer["sack_offset"], answer["pr"], answer["probe_id"] = 1, 1, int(out["probe_id"])
    answer["rcvd"] = rcvd
    assert acks.on_sack(sender.st, sender.pf, 0, sender.now, answer, 0, False)


def test_a_probe_convicts_what_was_sent_before_it_on_its_ev():
    sender = sender_with(8, **QUIET)
    report(sender, [0, 1, 2, 3], rcvd=9)
    probe_answer(sender, 2, sender.now, 3, rcvd=9)  # at equal rcvd_bytes: its order is known all the same
    assert lost(sender) == [4]  # the one that took EV 2


def test_a_probe_sent_before_the_packet_is_no_evidence():
    sender = sender_with(8, **QUIET)
    report(sender, [0, 1, 2, 3])
    probe_answer(sender, 2, sender.sent[4]["tx_ps"] - 1, 3)
    assert lost(sender) == []


def test_a_probe_is_a_send_time_for_the_guard():
    sender = sender_with(8, loss_fifo=False)
    report(sender, [0, 1, 2, 3])
    sender.req["rttdev_ps"] = 0
    probe_answer(sender, 0, sender.sent[4]["tx_ps"] + BASE_RTT_PS + 1, 3)
    assert lost(sender) == [4]


def test_an_answer_counts_once_and_only_for_our_own_probe():
    sender = sender_with(4, **QUIET)
    out = control_row()
    probes.write_probe(sender.st, sender.pf, 0, sender.now, 1, out)
    probe_id = int(out["probe_id"])
    assert int(probes.on_probe_answer(sender.st, sender.pf, 0, sender.now, probe_id + 4, False)[0]) == -1
    assert int(probes.on_probe_answer(sender.st, sender.pf, 0, sender.now, probe_id, False)[0]) == 1
    assert int(probes.on_probe_answer(sender.st, sender.pf, 0, sender.now, probe_id, False)[0]) == -1


# --- losses that were none ----------------------------------------------------------------------


def condemned() -> Sender:
    """Packet 0 has been declared lost by rule (a) and its EV condemned."""
    sender = sender_with(8, **QUIET)
    report(sender, [1, 2, 3, 4])
    assert lost(sender) == [0]
    return sender


def test_a_late_sack_before_the_retransmission_exonerates():
    sender = condemned()
    inflight, cwnd = int(sender.cc["inflight"]), int(sender.cc["cwnd_q16"])
    report(sender, [0, 1, 2, 3, 4], trigger=0, delayed=1)
    assert sender.count("false_condemned") == 1
    assert int(sender.ev(2)["state"]) == GOOD
    assert int(sender.req["bad_total"]) == 0
    assert lost(sender) == []
    assert (int(sender.cc["inflight"]), int(sender.cc["cwnd_q16"])) == (inflight, cwnd)  # nothing twice


def test_a_late_sack_of_the_original_after_the_retransmission_exonerates():
    sender = condemned()
    again = sender.send()
    assert again["psn"] == sender.sent[0]["psn"]
    report(sender, [0, 1, 2, 3, 4], trigger=0)  # it echoes the first transmission
    assert sender.count("false_condemned") == 1
    assert int(sender.ev(2)["state"]) == GOOD
    assert int(sender.cc["inflight"]) == 3 * 1166


def test_a_sack_of_the_retransmission_exonerates_nobody():
    sender = condemned()
    sender.send()
    report(sender, [0, 1, 2, 3, 4], trigger=len(sender.sent) - 1)
    assert sender.count("false_condemned") == 0
    assert int(sender.ev(2)["state"]) == ASSUMED_BAD


def test_a_late_sack_of_the_original_below_the_window_exonerates():
    sender = condemned()
    again = sender.send()
    first = sender.sent[0]["psn"]
    sender.sack(again, (first + 7) & 0xFFFFFF)
    assert int(sender.ev(2)["state"]) == ASSUMED_BAD
    sender.sack(sender.sent[0], (first + 7) & 0xFFFFFF)
    assert sender.count("false_condemned") == 1
    assert int(sender.ev(2)["state"]) == GOOD


def test_a_late_sack_of_another_packet_on_the_bad_ev_exonerates_nobody():
    sender = condemned()
    first = sender.sent[0]["psn"]
    sender.sack(sender.sent[7], (first + 7) & 0xFFFFFF)
    before = sender.count("false_condemned")
    assert not any(p["row"] == 2 for p in sender.sent[5:])
    sender.sack(sender.sent[4], (first + 7) & 0xFFFFFF)  # 4 took EV 2, was sent once and did arrive
    assert sender.count("false_condemned") == before


def test_a_late_nack_trimmed_exonerates():
    sender = condemned()
    cwnd = int(sender.cc["cwnd_q16"])
    assert not sender.nack(sender.sent[0], acks.NACK_TRIMMED)
    assert sender.count("false_condemned") == 1
    assert int(sender.ev(2)["state"]) == GOOD
    assert lost(sender) == [0]  # it still has to be sent again
    assert int(sender.cc["cwnd_q16"]) == cwnd


def test_a_loss_on_a_dead_port_is_not_the_evs_fault():
    sender = sender_with(8, **QUIET)
    sender.req["local_ports"] = 0b01
    report(sender, [1, 2, 3, 4])
    assert lost(sender) == [0]
    assert int(sender.ev(2)["state"]) == GOOD


def test_an_inferred_loss_lowers_the_window_by_its_bytes():
    sender = sender_with(8, **QUIET)
    before = int(sender.cc["cwnd_q16"]) >> 16
    ignored = int(sender.cc["ignored"])
    report(sender, [1, 2, 3, 4], delayed=1)
    assert int(sender.cc["cwnd_q16"]) >> 16 == before - 1166
    assert int(sender.cc["ignored"]) == ignored + 5 * 1166


# --- marks and trims on the EV ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "skip_on_ecn", "state"),
    [
        (acks.M_NONE, 1, GOOD),
        (acks.M_SKIP_ONCE, 1, SKIP),
        (acks.M_SKIP_ONCE, 0, GOOD),
        (acks.M_ALWAYS_SKIP, 1, ASSUMED_BAD),
    ],
)
def test_what_a_sack_says_of_its_path(m, skip_on_ecn, state):
    sender = sender_with(8, skip_on_ecn=skip_on_ecn)
    report(sender, [0, 1], m=m)
    assert int(sender.ev(sender.sent[1]["row"])["state"]) == state
    sender = sender_with(8, skip_on_ecn=skip_on_ecn)
    report(sender, [0, 1])
    report(sender, [0, 1], trigger=0, m=m)  # below the window by now
    assert int(sender.ev(sender.sent[0]["row"])["state"]) == state


def test_suspicion_is_counted_per_packet():
    sender = sender_with(8)
    for n in (0, 4):
        loss._suspect(sender.st, 0, sender.slot(sender.sent[n]["psn"]))
        loss._suspect(sender.st, 0, sender.slot(sender.sent[n]["psn"]))
    assert int(sender.ev(2)["suspects"]) == 2
    report(sender, [0, 1])
    assert int(sender.ev(2)["suspects"]) == 1
    assert slot_states(sender, 2) == [SLOT_ACKED] * 2
