"""The receiving half: window and duplicates, when a SACK is sent and what it says, completions in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from openmrc.limits import NEVER_PS
from openmrc.packed import pack
from openmrc.transport import acks, responder, timers
from openmrc.transport.requestor import FLAG_ASK, FLAG_IMM, FLAG_LAST, FLAG_RTX
from openmrc.transport.responder import DELIVERED, DO_ACK, DO_NACK, DO_SACK, FAILED
from openmrc.transport.state import (
    CONTROL,
    CTRL_SACK,
    ERR_INVALID_REQUEST,
    ERR_REMOTE_ACCESS,
    ERR_REMOTE_OP,
    ERR_UNEXPECTED,
    QP_ERROR,
)
from transport_support import BASE_RTT_PS, FIRST_PSN, US, control_row, count, make, open_state
from transport_twins import ResponderTwin

SIZE = 1166
EV = 0xC000


class Receiver:
    """A responder half driven by hand; packet 0 is the first expected."""

    def __init__(self, first_psn: int = FIRST_PSN, **changes: Any):
        self.profile = make(**changes)
        self.pf = pack(self.profile)
        self.st = open_state(self.profile, first_psn=first_psn)
        self.twin = ResponderTwin(self.profile)
        self.first_psn = first_psn
        self.now = 100 * US

    @property
    def rsp(self) -> Any:
        return self.st.rsp[0]

    def data(
        self,
        n: int,
        flags: int = 0,
        *,
        size: int = SIZE,
        trimmed: int = 0,
        marked: bool = False,
        psn: int | None = None,
    ) -> int:
        psn = (self.first_psn + n) & 0xFFFFFF if psn is None else psn
        return int(responder.on_data(self.st, self.pf, 0, self.now, psn, size, flags, trimmed, marked, EV))

    def sack(self, n: int = 0, flags: int = 0, *, marked: bool = False) -> Any:
        row = control_row()
        psn = (self.first_psn + n) & 0xFFFFFF
        responder.write_sack(self.st, self.pf, 0, psn, flags, marked, EV, 77, row)
        return row

    def ack(self) -> Any:
        row = control_row()
        responder.write_ack(self.st, 0, row)
        return row

    def nack(self, n: int, trimmed: int = 0) -> Any:
        row = control_row()
        responder.write_nack(self.st, 0, (self.first_psn + n) & 0xFFFFFF, trimmed, EV, 77, row)
        return row

    def received(self, row: Any) -> list[int]:
        """Return the packet numbers a SACK reports above cack_psn."""
        start = (int(row["psn"]) - self.first_psn + 0x800000 & 0xFFFFFF) - 0x800000 + int(row["sack_offset"])
        return [start + bit for bit in range(64) if int(row["bitmap"]) >> bit & 1]

    def timer(self) -> tuple[int, Any]:
        row = control_row()
        return int(timers.on_responder_timer(self.st, self.pf, 0, self.now, row)), row

    def deadline(self) -> int:
        return int(timers.responder_deadline(self.st, self.pf, 0, self.now))


@settings(max_examples=60, deadline=None)
@given(
    arrivals=hs.lists(
        hs.tuples(
            hs.integers(0, 40),  # how far from the window's edge, or behind it
            hs.sampled_from((0, FLAG_LAST, FLAG_LAST | FLAG_IMM, FLAG_ASK, FLAG_LAST | FLAG_ASK, FLAG_RTX)),
            hs.sampled_from((142, 143, 500, SIZE)),
            hs.sampled_from((0, 0, 0, 0, 1, 2)),
            hs.booleans(),
        ),
        max_size=120,
    ),
    stretch=hs.sampled_from((1, 4)),
    threshold=hs.sampled_from((1024, 4096, 16384)),
)
def test_answers_and_sacks_are_those_of_the_twin(arrivals, stretch, threshold):
    r = Receiver(sack_bytes=threshold, write_imm_limit=64)
    for distance, flags, size, trimmed, marked in arrivals:
        n = r.twin.cack - 3 + distance * stretch
        if n < 0:
            continue
        expected = r.twin.data(n, size, flags, trimmed != 0, marked)
        assert r.data(n, flags, size=size, trimmed=trimmed, marked=marked) == expected
        if expected & DO_SACK:
            row = r.sack(n, flags, marked=marked)
            start, bitmap = r.twin.sack(flags & FLAG_ASK != 0)
            assert (int(row["psn"]) - r.first_psn) & 0xFFFFFF == r.twin.cack & 0xFFFFFF
            assert (int(row["sack_offset"]), int(row["bitmap"])) == (start - r.twin.cack, bitmap)
            assert (int(row["rcvd"]), int(row["ooo"])) == (r.twin.rcvd_units, len(r.twin.beyond))
            assert int(row["m"]) == marked
        if expected & DO_ACK:
            assert int(r.ack()["msn"]) == (r.twin.msn_done - 1) & 0xFFFF


@pytest.mark.parametrize(
    ("distance", "actions", "counter"),
    [
        (-(1 << 23), 0, "out_of_window"),  # exactly half the circle: unordered, no answer
        (-(1 << 23) + 1, DO_SACK | DO_ACK, "duplicates"),
        (-1, DO_SACK | DO_ACK, "duplicates"),
        (0, DO_SACK | DO_ACK, "duplicates"),
        (1, DELIVERED, None),
        (128, DELIVERED, None),
        (129, DO_NACK, "out_of_window"),
        ((1 << 23) - 1, DO_NACK, "out_of_window"),
    ],
)
def test_the_window_and_what_lies_around_it(distance, actions, counter):
    r = Receiver()
    cack = int(r.rsp["cack_psn"])
    assert r.data(0, psn=(cack + distance) & 0xFFFFFF) == actions
    if counter:
        assert count(r.st, counter) == 1
    if actions == DO_NACK:
        assert int(r.nack(distance)["reason"]) == acks.NACK_PSN_OOR_WINDOW


def test_every_fourth_full_packet_draws_a_sack_by_default():
    r = Receiver(pmtu="4096B")
    answers = []
    for n in range(12):
        answers.append(r.data(n, size=4096))
        if answers[-1] & DO_SACK:
            r.sack(n)
    assert [a & DO_SACK for a in answers] == [0, 0, 0, 1] * 3


def test_small_packets_count_at_least_1_kib():
    r = Receiver()
    answers = [r.data(n, size=142) for n in range(16)]
    assert [a & DO_SACK for a in answers] == [0] * 15 + [1]


@pytest.mark.parametrize(("flags", "marked"), [(FLAG_ASK, False), (FLAG_RTX, False), (0, True)])
def test_the_a_bit_a_retransmission_and_a_mark_draw_a_sack_at_once(flags, marked):
    r = Receiver()
    assert r.data(3, flags, marked=marked) == DELIVERED | DO_SACK
    row = r.sack(3, flags, marked=marked)
    assert r.received(row) == [3]
    assert int(row["m"]) == (acks.M_SKIP_ONCE if marked else acks.M_NONE)
    assert (int(row["entropy"]), int(row["tx_stamp"]), int(row["trigger_psn"])) == (
        EV,
        77,
        (FIRST_PSN + 3) & 0xFFFFFF,
    )


def test_a_sack_when_cack_passes_a_packet_that_asked():
    r = Receiver()
    r.data(1, FLAG_ASK)
    r.sack(1, FLAG_ASK)
    assert r.data(0) == DELIVERED | DO_SACK
    assert r.data(2) == DELIVERED


def test_the_latest_sack_comes_a_quarter_rtt_after_the_first_unreported_packet():
    r = Receiver(reverse_probes=0)
    assert r.deadline() == NEVER_PS
    first = r.now
    r.data(0)
    r.now += US
    r.data(2)
    assert r.deadline() == first + BASE_RTT_PS // 4
    r.now = r.deadline() - 1
    assert r.timer()[0] == timers.T_NONE
    r.now += 1
    action, row = r.timer()
    assert action == timers.T_SEND
    assert int(row["kind"]) == CTRL_SACK
    assert (int(row["delayed"]), int(row["m"]), int(row["trigger_psn"])) == (1, 0, (FIRST_PSN + 2) & 0xFFFFFF)
    assert r.received(row) == [2]
    assert r.deadline() == NEVER_PS


def test_successive_sacks_walk_a_wide_window_and_start_again():
    r = Receiver(mpr=2)
    for n in (10, 70, 130, 200):
        r.data(n)
    assert [r.received(r.sack(200)) for _ in range(5)] == [[10], [70], [130], [200], [10]]
    assert r.received(r.sack(200, FLAG_ASK)) == [10]  # the A bit starts at cack_psn + 1
    assert r.received(r.sack(200)) == [70]


def test_the_walk_misses_nothing_while_cack_moves():
    """The whole window is reported every ceil(span / 64) SACKs although its edge advances."""
    r = Receiver(mpr=2)
    high = 230
    for n in range(1, high, 2):
        r.data(n)
    edge = 0
    reported: set[int] = set()
    for _ in range(4):
        row = r.sack(high)
        reported |= set(r.received(row))
        for n in range(edge, edge + 16, 2):  # eight holes are filled between two SACKs
            r.data(n)
        edge += 16
    assert {n for n in range(1, high, 2) if n >= edge} <= reported


def test_bits_beyond_the_window_are_never_set():
    r = Receiver(mpr=1)
    for n in range(1, 128):
        r.data(n)
    r.sack(127)
    row = r.sack(127)
    assert r.received(row) == list(range(64, 128))
    r.data(0)
    assert r.received(r.sack(0)) == []
    assert int(r.rsp["ooo_count"]) == 0


@pytest.mark.parametrize(("trimmed", "reason"), [(1, acks.NACK_TRIMMED), (2, acks.NACK_TRIMMED_LASTHOP)])
def test_a_trimmed_packet_changes_no_receive_state(trimmed, reason):
    r = Receiver()
    before = r.rsp.tobytes() + r.st.words.tobytes()
    assert r.data(5, FLAG_LAST, trimmed=trimmed) == DO_NACK
    assert r.rsp.tobytes() + r.st.words.tobytes() == before
    assert int(r.nack(5, trimmed)["reason"]) == reason
    r.data(5, FLAG_LAST)
    assert r.data(5, FLAG_LAST, trimmed=trimmed) == DO_SACK | DO_ACK  # a trimmed duplicate


def test_rcvd_bytes_are_units_of_256_rounded_up_and_wrap_at_24_bits():
    r = Receiver()
    r.data(0, size=257)
    assert int(r.sack(0)["rcvd"]) == 2
    r.rsp["rcvd_bytes"] = (1 << 32) - 256
    r.data(1, size=257)
    assert int(r.sack(1)["rcvd"]) == 1


def test_a_probe_is_answered_from_the_start_with_its_id():
    r = Receiver(mpr=2)
    for n in (1, 100):
        r.data(n)
    r.sack(100)
    row = control_row()
    responder.write_probe_sack(r.st, r.pf, 0, 4711, True, 0x1C003, 99, row)
    assert r.received(row) == [1]
    assert (int(row["pr"]), int(row["probe_id"]), int(row["m"])) == (1, 4711, acks.M_SKIP_ONCE)
    assert (int(row["entropy"]), int(row["tx_stamp"])) == (0x1C003, 99)


def test_messages_and_immediates_complete_in_order():
    r = Receiver()
    assert r.data(2, FLAG_LAST | FLAG_IMM) == DELIVERED  # stashed: message 1 waits for message 0
    assert int(r.rsp["imm_held"]) == 1
    assert r.data(1) == DELIVERED
    assert int(r.ack()["msn"]) == 0xFFFF  # none yet
    assert r.data(0, FLAG_LAST) == DELIVERED | DO_ACK
    assert (int(r.rsp["msn_done"]), int(r.rsp["imm_done"]), int(r.rsp["imm_held"])) == (2, 1, 0)
    assert int(r.ack()["msn"]) == 1
    assert count(r.st, "imms_delivered") == 1


@pytest.mark.parametrize("posted", [0, 1, 2, 3])
def test_an_immediate_without_a_posted_receive_ends_the_qp_after_what_precedes_it(posted):
    """Five messages become complete at once; only those before the refused one are."""
    r = Receiver()
    r.rsp["recv_posted"] = posted
    kinds = [FLAG_LAST, FLAG_LAST | FLAG_IMM, FLAG_LAST, FLAG_LAST | FLAG_IMM, FLAG_LAST | FLAG_IMM]
    for n in (1, 2, 3, 4):
        r.data(n, kinds[n])
    actions = r.data(0, kinds[0])
    if posted == 3:
        assert actions == DELIVERED | DO_ACK
        assert int(r.rsp["msn_done"]) == 5
        return
    assert actions == DELIVERED | DO_ACK | FAILED
    complete = {0: 1, 1: 3, 2: 4}[posted]
    assert (int(r.rsp["msn_done"]), int(r.rsp["imm_done"])) == (complete, posted)
    assert (int(r.rsp["state"]), int(r.rsp["error"])) == (QP_ERROR, ERR_REMOTE_OP)
    row = r.ack()
    assert (int(row["reason"]), int(row["msn"])) == (acks.SYNDROME_OPERATION, complete - 1)


def test_more_immediates_than_agreed_are_an_unexpected_event():
    r = Receiver()
    for n in range(1, 33):
        assert r.data(n, FLAG_LAST | FLAG_IMM) == DELIVERED | (
            DO_SACK if r.rsp["unsacked_bytes"] >= 16384 else 0
        )
        r.sack(n)
    assert r.data(33, FLAG_LAST | FLAG_IMM) == DO_NACK | FAILED
    assert int(r.rsp["error"]) == ERR_UNEXPECTED
    assert int(r.nack(33)["reason"]) == acks.NACK_UNEXP_EVENT
    assert r.data(0) == DO_NACK  # and whatever comes later hears it again


@pytest.mark.parametrize(
    ("error", "syndrome"),
    [(ERR_REMOTE_ACCESS, acks.SYNDROME_ACCESS), (ERR_INVALID_REQUEST, acks.SYNDROME_INVALID)],
)
def test_a_refused_access_is_said_until_it_is_heard(error, syndrome):
    r = Receiver()
    r.data(0, FLAG_LAST)
    responder.refuse(r.st, 0, error)
    assert int(r.rsp["state"]) == QP_ERROR
    for n in (0, 1, 5):
        assert r.data(n) == DO_ACK
        row = r.ack()
        assert (int(row["reason"]), int(row["msn"])) == (syndrome, 0)
    responder.refuse(r.st, 0, ERR_REMOTE_OP)
    assert int(r.rsp["error"]) == error  # the first error stays
    assert count(r.st, "qp_errors") == 1


def test_a_qp_that_is_not_ready_says_nothing():
    r = Receiver()
    r.rsp["state"] = 0
    assert r.data(0) == 0
    assert r.timer()[0] == timers.T_NONE
    assert r.deadline() == NEVER_PS


def test_the_ooo_count_saturates_on_the_wire():
    r = Receiver()
    r.rsp["ooo_count"] = 40_000
    assert int(r.sack(0)["ooo"]) == 0x7FFF


SACK_FIELDS = (
    "kind",
    "psn",
    "trigger_psn",
    "sack_offset",
    "bitmap",
    "entropy",
    "rcvd",
    "m",
    "pr",
    "delayed",
    "mpr",
    "path",
)
#: what the requestor reads of each kind of answer
READ = {
    "sack": (*SACK_FIELDS, "tx_stamp"),
    "probe_sack": (*SACK_FIELDS, "probe_id", "tx_stamp"),
    "delayed": SACK_FIELDS,
    "ack": ("kind", "psn", "msn", "reason", "path"),
    "nack": ("kind", "psn", "reason", "entropy", "tx_stamp", "path"),
}


@pytest.mark.parametrize("kind", list(READ))
def test_a_row_that_was_used_before_shows_nothing_of_its_past(kind):
    rows = []
    for filler in (0x00, 0xFF):
        r = Receiver()
        r.data(1)
        room = np.zeros(1, CONTROL)
        room.view(np.uint8)[:] = filler
        row = room[0]
        if kind == "sack":
            responder.write_sack(r.st, r.pf, 0, FIRST_PSN, 0, False, EV, 1, row)
        elif kind == "probe_sack":
            responder.write_probe_sack(r.st, r.pf, 0, 9, False, EV, 1, row)
        elif kind == "delayed":
            responder.write_delayed_sack(r.st, r.pf, 0, row)
        elif kind == "ack":
            responder.write_ack(r.st, 0, row)
        else:
            responder.write_nack(r.st, 0, FIRST_PSN, 0, EV, 1, row)
        rows.append([int(row[name]) for name in READ[kind]])
    assert rows[0] == rows[1]
