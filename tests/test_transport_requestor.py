"""The sending half: the send queue, what may be sent, the A bit, NACKs and completions."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.transport import acks, requestor, timers
from openmrc.transport.ev_states import GOOD, SKIP
from openmrc.transport.requestor import FLAG_ASK, FLAG_FIRST, FLAG_IMM, FLAG_LAST, FLAG_RTX
from openmrc.transport.settings import TransportSettings, make_profile
from openmrc.transport.state import (
    ERR_INVALID_REQUEST,
    ERR_REMOTE_ACCESS,
    ERR_REMOTE_OP,
    ERR_UNEXPECTED,
    QP_ERROR,
    QP_RTS,
    SLOT_INFLIGHT,
    SLOT_LOST,
)
from transport_support import BASE_RTT_PS, FIRST_PSN, US, Sender, control_row, make

FULL = 1166


def test_packets_of_messages_their_sizes_and_flags():
    sender = Sender(make(), depth=8)
    for length, imm in ((0, 0), (1, 0), (1024, 1), (1025, 0), (2049, 1)):
        assert sender.post(length, imm)
    packets = sender.send_all()
    assert [p["size"] - 142 for p in packets] == [0, 4, 1028, 1024, 4, 1024, 1024, 4 + 4]
    only, first, last, imm, rtx = FLAG_FIRST | FLAG_LAST, FLAG_FIRST, FLAG_LAST, FLAG_IMM, FLAG_ASK
    assert [p["flags"] for p in packets] == [only, only, only | imm, first, last, first, 0, last | imm | rtx]
    assert [p["psn"] for p in packets] == [(FIRST_PSN + i) & 0xFFFFFF for i in range(8)]
    assert [p["position"] for p in packets] == [0, 1, 2, 3, 3, 4, 4, 4]
    assert sender.select()[0] == requestor.IDLE


def test_rqmsn_counts_the_write_imms_posted_before():
    sender = Sender(make(), depth=8)
    for imm in (0, 1, 1, 0, 1):
        sender.post(1, imm)
    assert sender.st.sq[0]["rqmsn"][:5].tolist() == [0, 0, 1, 2, 2]


def test_post_fails_only_when_the_queue_is_full():
    sender = Sender(make(), depth=4)
    assert [sender.post(10) for _ in range(5)] == [True] * 4 + [False]
    packets = sender.send_all()
    sender.ack(packets[-1]["psn"], 0)
    assert sender.post(10)
    assert not sender.post(10)


def test_the_queue_never_holds_more_psns_than_have_an_order():
    """Eight messages of 2 GiB at a PMTU of 1 KiB would be 2^24 packets: all the PSNs there are."""
    sender = Sender(make(), depth=16)
    taken = [sender.post(1 << 31) for _ in range(8)]
    assert taken == [True] * 3 + [False] * 5
    assert requestor.has_data(sender.req)
    assert sender.select()[0] == requestor.SEND


def test_the_responder_window_and_the_ring_end_new_data():
    sender = Sender(make({"max_cwnd": 8.0}))
    sender.cc["cwnd_q16"] = 1 << 50
    sender.post(1 << 20)
    assert len(sender.send_all()) == 128  # MPR 1
    assert sender.select()[0] == requestor.WINDOW
    assert sender.sent[-1]["flags"] & FLAG_ASK
    sender.sack(sender.sent[0], sender.sent[0]["psn"], delayed=1)
    assert len(sender.send_all()) == 1
    small = Sender(make({"max_cwnd": 0.1}, mpr=8))
    small.cc["cwnd_q16"] = 1 << 50
    small.post(1 << 20)
    assert len(small.send_all()) == 64 == small.profile.ring_mask + 1


def test_cwnd_counts_the_packet_that_would_go():
    sender = Sender(make())
    sender.cc["cwnd_q16"] = (3 * FULL) << 16
    sender.post(1 << 20)
    assert len(sender.send_all()) == 3
    assert int(sender.cc["inflight"]) == 3 * FULL
    sender = Sender(make())
    sender.cc["cwnd_q16"] = (3 * FULL - 1) << 16
    sender.post(1 << 20)
    assert len(sender.send_all()) == 2


def test_the_a_bit_is_on_the_last_packet_that_may_go_for_now():
    sender = Sender(make())
    sender.cc["cwnd_q16"] = (5 * FULL) << 16
    sender.post(1 << 20)
    assert [bool(p["flags"] & FLAG_ASK) for p in sender.send_all()] == [False] * 4 + [True]
    sender = Sender(make())
    sender.post(3 * 1024)
    sender.post(1024)
    assert [bool(p["flags"] & FLAG_ASK) for p in sender.send_all()] == [False] * 3 + [True]


def test_write_imms_wait_while_the_limit_is_unacknowledged():
    sender = Sender(make(), depth=64)
    for i in range(40):
        sender.post(10, imm=int(i != 3))
    packets = sender.send_all()
    assert len(packets) == 33  # 32 WRITE_IMMs and the one plain WRITE
    assert sender.select()[0] == requestor.WINDOW
    sender.ack(packets[-1]["psn"], 4)  # five messages, four of them WRITE_IMMs
    assert len(sender.send_all()) == 4


def test_retransmissions_go_first_oldest_first_and_carry_rtx():
    sender = Sender(make(tail_probe=False))
    sender.post(20 * 1024)
    sender.send_all(limit=10)
    for n in (7, 2, 5):
        assert sender.nack(sender.sent[n], acks.NACK_TRIMMED_LASTHOP)
    again = sender.send_all(limit=5)
    first = sender.sent[0]["psn"]
    assert [(p["psn"] - first) & 0xFFFFFF for p in again] == [2, 5, 7, 10, 11]
    assert [bool(p["flags"] & FLAG_RTX) for p in again] == [True] * 3 + [False] * 2
    assert sender.count("retransmitted") == 3
    assert sender.count("data_packets") == 12


def test_retransmissions_obey_cwnd():
    sender = Sender(make())
    sender.post(20 * 1024)
    sender.send_all(limit=10)
    sender.nack(sender.sent[0], acks.NACK_NO_RESOURCE)
    sender.cc["cwnd_q16"] = (9 * FULL + FULL - 1) << 16
    assert sender.select()[0] == requestor.WINDOW
    sender.cc["cwnd_q16"] = (10 * FULL) << 16
    assert sender.send()["psn"] == sender.sent[0]["psn"]


# --- NACKs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "ev_state", "window_changes"),
    [
        (0x01, SKIP, True),
        (0x02, GOOD, True),
        (0x06, GOOD, False),
        (0x07, GOOD, False),
        (0x0A, GOOD, False),
        (0x0B, GOOD, False),
    ],
)
def test_what_each_nack_does(reason, ev_state, window_changes):
    sender = Sender(make())
    sender.post(10 * 1024)
    sender.send_all()
    sender.cc["cwnd_q16"] = 50_000 << 16
    packet = sender.sent[3]
    inflight = int(sender.cc["inflight"])
    assert sender.nack(packet, reason)
    assert int(sender.slot(packet["psn"])["state"]) == SLOT_LOST
    assert int(sender.cc["inflight"]) == inflight - FULL
    assert int(sender.ev(packet["row"])["state"]) == ev_state
    assert (int(sender.cc["cwnd_q16"]) != 50_000 << 16) == window_changes
    assert sender.send()["psn"] == packet["psn"]


def test_an_unexpected_event_is_fatal():
    sender = Sender(make())
    sender.post(10 * 1024)
    sender.send_all()
    assert sender.nack(sender.sent[0], acks.NACK_UNEXP_EVENT)
    assert (int(sender.req["state"]), int(sender.req["error"])) == (QP_ERROR, ERR_UNEXPECTED)
    assert int(sender.cc["inflight"]) == 0
    assert not sender.sack(sender.sent[0], sender.sent[0]["psn"])
    assert not sender.nack(sender.sent[0], 0x01)
    assert sender.ack(sender.sent[0]["psn"], 0) == 0


@pytest.mark.parametrize("change", ["stamp", "entropy", "psn_below", "psn_above", "acked"])
def test_a_nack_that_matches_no_transmission_in_flight_is_ignored(change):
    sender = Sender(make())
    sender.post(10 * 1024)
    packets = sender.send_all(limit=5)
    packet = dict(packets[2])
    if change == "stamp":
        packet["stamp"] ^= 0x8000
    elif change == "entropy":
        packet["entropy"] ^= 1
    elif change == "psn_below":
        packet["psn"] = (packets[0]["psn"] - 1) & 0xFFFFFF
    elif change == "psn_above":
        packet["psn"] = (packets[-1]["psn"] + 1) & 0xFFFFFF
    else:
        sender.sack(packets[2], packets[2]["psn"])
    before = sender.cc.tobytes()
    assert not sender.nack(packet, 0x01)
    assert sender.cc.tobytes() == before
    assert sender.count("stale_nacks") == 1
    assert int(sender.req["lost_count"]) == 0


def test_a_second_nack_of_the_same_transmission_is_ignored():
    sender = Sender(make())
    sender.post(10 * 1024)
    packet = sender.send()
    assert sender.nack(packet, 0x02)
    assert not sender.nack(packet, 0x02)
    again = sender.send()
    assert not sender.nack(packet, 0x02)  # of the first transmission: the second is on its way
    assert int(sender.slot(again["psn"])["state"]) == SLOT_INFLIGHT


# --- SACKs --------------------------------------------------------------------------------------


def test_impossible_sacks_are_counted_and_ignored():
    sender = Sender(make())
    sender.post(10 * 1024)
    packets = sender.send_all(limit=5)
    following = (packets[-1]["psn"] + 1) & 0xFFFFFF
    before = sender.req.tobytes(), sender.cc.tobytes()
    assert not sender.sack(packets[0], following)
    assert not sender.sack(packets[0] | {"psn": following}, packets[0]["psn"])
    assert (sender.req.tobytes(), sender.cc.tobytes()) == before
    assert sender.count("invalid_acks") == 2


def test_the_trigger_is_acknowledged_outside_the_bitmap():
    sender = Sender(make(loss_guard=False))
    sender.post(1 << 20)
    packets = sender.send_all(limit=100)
    sender.sack(packets[90], (packets[0]["psn"] - 1) & 0xFFFFFF)
    assert int(sender.cc["inflight"]) == 99 * FULL


def test_bits_below_the_window_and_beyond_what_was_sent_say_nothing():
    sender = Sender(make())
    sender.post(1 << 20)
    packets = sender.send_all(limit=10)
    first = packets[0]["psn"]
    sender.sack(packets[4], (first + 4) & 0xFFFFFF)
    assert int(sender.cc["inflight"]) == 5 * FULL
    stale = {"sack_offset": 1, "rcvd": 1, "delayed": 1}
    row = control_row()
    row["psn"], row["trigger_psn"] = (first - 1) & 0xFFFFFF, packets[4]["psn"]
    row["entropy"], row["tx_stamp"] = packets[4]["entropy"], packets[4]["stamp"]
    for name, value in stale.items():
        row[name] = value
    row["bitmap"] = np.uint64(0xFFFFFFFFFFFFFFFF)
    assert acks.on_sack(sender.st, sender.pf, 0, sender.now, row, 0, False)
    assert int(sender.cc["inflight"]) == 0
    assert int(sender.req["una_psn"]) == (first + 5) & 0xFFFFFF  # only cack_psn moves the window


@pytest.mark.parametrize(
    ("count", "current", "delayed", "counts"),
    [(1, True, 0, True), (2, True, 0, True), (3, True, 0, False), (1, True, 1, False), (2, False, 0, False)],
)
def test_an_rtt_sample_must_be_unambiguous(count, current, delayed, counts):
    sender = Sender(make(tail_probe=False))
    sender.post(1024)
    packet = original = sender.send()
    for _ in range(count - 1):
        sender.now += BASE_RTT_PS
        sender.nack(packet, 0x02)
        packet = sender.send()
    sender.now += 3 * BASE_RTT_PS
    sender.sack(packet if current else original, packet["psn"], delayed=delayed)
    assert (int(sender.req["srtt_ps"]) != BASE_RTT_PS) == counts
    assert (int(sender.cc["sample_ps"]) == sender.now) == counts


def test_srtt_and_deviation_follow_rfc_6298():
    sender = Sender(make())
    sender.post(4 * 1024)
    srtt, deviation = float(BASE_RTT_PS), BASE_RTT_PS / 8
    for wait_us in (12, 30, 11, 10):
        packet = sender.send()
        sender.now += wait_us * US
        sender.sack(packet, packet["psn"])
        deviation += (abs(wait_us * US - srtt) - deviation) / 4
        srtt += (wait_us * US - srtt) / 8
        assert abs(int(sender.req["srtt_ps"]) - srtt) < 4
        assert abs(int(sender.req["rttdev_ps"]) - deviation) < 4


def test_the_window_of_the_responder_can_be_changed_by_a_sack():
    sender = Sender(make())
    sender.post(4 * 1024)
    packet = sender.send()
    sender.sack(packet, packet["psn"], mpr=3)
    assert int(sender.req["window_psns"]) == 384
    sender.sack(packet, packet["psn"], mpr=0)
    assert int(sender.req["window_psns"]) == 384


# --- Transport ACKs -----------------------------------------------------------------------------


def test_transport_acks_complete_in_order_and_several_at_once():
    sender = Sender(make(), depth=8)
    for _ in range(6):
        sender.post(2048)
    packets = sender.send_all()
    assert sender.ack(packets[3]["psn"], 0xFFFF) == 0  # none complete
    assert sender.ack(packets[7]["psn"], 3) == 4
    assert sender.ack(packets[7]["psn"], 3) == 0
    assert sender.ack(packets[3]["psn"], 1) == 0  # an old one
    assert sender.ack(packets[11]["psn"], 5) == 2
    assert int(sender.cc["inflight"]) == 0
    assert requestor.is_idle(sender.req)


def test_message_numbers_wrap_at_16_bits():
    sender = Sender(make(), depth=8)
    for name in ("sq_head", "sq_send", "sq_tail"):
        sender.req[name] = 0xFFFE
    for _ in range(4):
        sender.post(100)
    packets = sender.send_all()
    assert sender.ack(packets[1]["psn"], 0xFFFF) == 2
    assert sender.ack(packets[3]["psn"], 1) == 2


def test_an_ack_of_a_message_whose_packets_are_not_covered_is_impossible():
    sender = Sender(make(), depth=8)
    sender.post(2048)
    sender.post(2048)
    packets = sender.send_all()
    assert sender.ack(packets[0]["psn"], 0) == 0  # cack_psn is in the middle of message 0
    assert sender.ack(packets[3]["psn"], 2) == 0  # a message that was never posted
    assert sender.count("invalid_acks") == 2
    assert sender.ack(packets[3]["psn"], 1) == 2


@pytest.mark.parametrize(
    ("syndrome", "error"),
    [(0x61, ERR_INVALID_REQUEST), (0x62, ERR_REMOTE_ACCESS), (0x63, ERR_REMOTE_OP)],
)
def test_an_error_completes_what_precedes_it_and_ends_the_qp(syndrome, error):
    sender = Sender(make(), depth=8)
    for _ in range(4):
        sender.post(1024)
    packets = sender.send_all()
    assert sender.ack(packets[2]["psn"], 1, syndrome) == 2
    assert (int(sender.req["state"]), int(sender.req["error"])) == (QP_ERROR, error)
    assert sender.select()[0] == requestor.IDLE
    assert int(timers.requestor_deadline(sender.st, sender.pf, 0, sender.now)) == 1 << 62
    assert int(sender.cc["inflight"]) == 0


def test_an_acknowledged_packet_may_still_be_refused():
    sender = Sender(make())
    sender.post(1024)
    packet = sender.send()
    sender.sack(packet, packet["psn"])
    assert int(sender.req["sq_head"]) == 0
    assert sender.ack(packet["psn"], 0xFFFF, 0x62) == 0
    assert int(sender.req["error"]) == ERR_REMOTE_ACCESS


# --- settings -----------------------------------------------------------------------------------


def test_the_ring_holds_one_and_a_half_windows():
    settings = TransportSettings()
    profile = make_profile(
        settings, rate_bps=800_000_000_000, base_rtt_ps=12 * US, overhead_bytes=142, trimming=True
    )
    assert profile.max_cwnd_bytes == 1_800_000
    assert profile.ring_mask + 1 >= 1.5 * profile.max_cwnd_bytes / 4096
    assert profile.window_psns == 1024
    assert profile.words == 16


def test_gains_saturate_so_that_no_product_wraps():
    """The largest product is gain x a ring full of bytes x 2^16."""
    for target in ("10us", "1s"):
        nscc = {"alpha": 64.0, "fi": 64.0, "target_delay": target, "max_cwnd": 8.0}
        profile = make(nscc, base_rtt="200us", pmtu="8192B")
        ring_bytes = (profile.ring_mask + 1) * (profile.pmtu_bytes + profile.overhead_bytes + 4)
        assert max(profile.alpha_bytes, profile.fi_bytes) * ring_bytes * 65536 < 1 << 62


def test_an_open_qp_is_ready_and_idle():
    sender = Sender(make())
    assert int(sender.req["state"]) == QP_RTS
    assert sender.select()[0] == requestor.IDLE
    assert not requestor.has_data(sender.req)
