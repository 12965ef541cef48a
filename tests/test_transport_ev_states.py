"""The life of an EV: every pair of the table, backups, the floor, and which EV a packet takes."""

from __future__ import annotations

import pytest

from openmrc.limits import NEVER_PS
from openmrc.transport import evset, ports, requestor
from openmrc.transport.ev_states import TABLE, EvAction, EvEvent, EvState
from openmrc.transport.state import ROLE_ACTIVE, ROLE_BACKUP, ROLE_PROMOTED, ROLE_RETIRED
from transport_support import ALL_ROOM, BASE_RTT_PS, Sender, make

S, E, A = EvState, EvEvent, EvAction
GOOD, SKIP, BAD, DENIED = S.GOOD, S.SKIP, S.ASSUMED_BAD, S.DENIED

#: the EV states of MRC, written out once more: what is not here changes nothing
EXPECTED = {
    (GOOD, E.MARKED): (SKIP, A.NONE),
    (GOOD, E.TRIMMED): (SKIP, A.NONE),
    (GOOD, E.LOST): (BAD, A.RETIRE),
    (GOOD, E.PERSISTENT): (BAD, A.RETIRE),
    (GOOD, E.DENY): (DENIED, A.REMOVE),
    (SKIP, E.TURN): (GOOD, A.PASS_OVER),
    (SKIP, E.LOST): (BAD, A.RETIRE),
    (SKIP, E.PERSISTENT): (BAD, A.RETIRE),
    (SKIP, E.DENY): (DENIED, A.REMOVE),
    (BAD, E.RECOVERED): (GOOD, A.RESTORE),
    (BAD, E.RECOVERED_MARKED): (SKIP, A.RESTORE),
    (BAD, E.EXONERATED): (GOOD, A.RESTORE),
    (BAD, E.DENY): (DENIED, A.NONE),
    (DENIED, E.ALLOW): (GOOD, A.RESTORE),
}
REACH = {GOOD: (), SKIP: (E.MARKED,), BAD: (E.LOST,), DENIED: (E.DENY,)}


def happen(sender: Sender, row: int, *events: EvEvent) -> EvAction:
    action = A.NONE
    for event in events:
        action = A(int(evset.apply_event(sender.st, sender.pf, 0, row, int(event), sender.now)))
    return action


def states(sender: Sender) -> list[EvState]:
    return [S(int(s)) for s in sender.st.ev[0]["state"]]


def roles(sender: Sender) -> list[int]:
    return sender.st.ev[0]["role"].tolist()


def usable(sender: Sender, plane: int = 0) -> int:
    return int(sender.st.plane[0, plane]["usable"])


@pytest.mark.parametrize("state", list(EvState), ids=lambda s: s.name)
@pytest.mark.parametrize("event", list(EvEvent), ids=lambda e: e.name)
def test_every_pair_of_state_and_event(state, event):
    sender = Sender(make(), active=4, backups=2)
    happen(sender, 0, *REACH[state])
    assert states(sender)[0] == state
    after, action = EXPECTED.get((state, event), (state, A.NONE))
    assert happen(sender, 0, event) == action
    assert states(sender)[0] == after
    assert tuple(TABLE[state, event]) == (after, action)
    assert int(sender.req["bad_total"]) == (after == BAD)
    assert usable(sender) == 4  # a backup stands in whenever row 0 is out
    assert roles(sender)[0] == (ROLE_ACTIVE if after in (GOOD, SKIP) else ROLE_RETIRED)
    assert roles(sender)[4] == (ROLE_BACKUP if after in (GOOD, SKIP) else ROLE_PROMOTED)
    assert (int(sender.req["next_probe_ps"]) < NEVER_PS) == (BAD in (state, after))
    listed = [0] * 4
    for s, role in zip(states(sender), roles(sender), strict=True):
        listed[s] += role != ROLE_BACKUP or s == BAD
    assert sender.st.ev_states.tolist() == listed


def test_a_backup_of_the_same_plane_takes_the_place_and_goes_back():
    sender = Sender(make(), planes=2, active=2, backups=1)
    happen(sender, 0, E.LOST)
    assert roles(sender) == [ROLE_RETIRED, ROLE_ACTIVE, ROLE_PROMOTED, ROLE_ACTIVE, ROLE_ACTIVE, ROLE_BACKUP]
    happen(sender, 0, E.RECOVERED)
    assert roles(sender) == [ROLE_ACTIVE, ROLE_ACTIVE, ROLE_BACKUP, ROLE_ACTIVE, ROLE_ACTIVE, ROLE_BACKUP]
    assert [sender.count(n) for n in ("assumed_bad", "promoted", "demoted")] == [1, 1, 1]


def test_a_plane_without_spare_keeps_its_place_for_whoever_recovers():
    """A promoted EV that was condemned itself must come back into use, not into reserve."""
    sender = Sender(make(), planes=2, active=1, backups=1)
    happen(sender, 0, E.LOST)
    happen(sender, 1, E.LOST)
    assert usable(sender) == 0
    assert int(sender.req["good_planes"]) == 0b10
    happen(sender, 1, E.RECOVERED)
    assert usable(sender) == 1
    assert roles(sender)[1] == ROLE_PROMOTED
    happen(sender, 0, E.RECOVERED)
    assert roles(sender)[:2] == [ROLE_ACTIVE, ROLE_BACKUP]
    assert usable(sender) == 1


def test_a_marked_backup_can_still_be_promoted():
    """Nothing ever turns a backup from SKIP to GOOD: it is not in the rotation."""
    sender = Sender(make(), planes=2, active=1, backups=1)
    happen(sender, 1, E.LOST)
    happen(sender, 1, E.RECOVERED_MARKED)
    assert states(sender)[1] == SKIP
    assert roles(sender)[1] == ROLE_BACKUP
    happen(sender, 0, E.LOST)
    assert roles(sender)[1] == ROLE_PROMOTED
    assert usable(sender) == 1


def test_the_floor_condemns_no_more_when_over_half_are_bad():
    sender = Sender(make(ev_min_active=0.5), planes=1, active=8, backups=0)
    for row in range(8):
        happen(sender, row, E.LOST)
    assert states(sender) == [BAD] * 5 + [GOOD] * 3  # 5 of 8 is the first count above half
    assert sender.count("floor_held") == 3
    happen(sender, 0, E.RECOVERED)
    assert happen(sender, 7, E.LOST) == A.RETIRE


def test_the_first_probe_waits_one_rtt_unless_the_plane_has_no_spare():
    sender = Sender(make(ev_min_active=0.0), planes=2, active=1, backups=1)
    happen(sender, 0, E.LOST)
    assert int(sender.req["next_probe_ps"]) == sender.now + BASE_RTT_PS
    happen(sender, 1, E.LOST)
    assert int(sender.req["next_probe_ps"]) == sender.now
    sender.req["last_probe_ps"] = sender.now + 1  # but never two probes within one base RTT
    sender.req["next_probe_ps"] = NEVER_PS
    happen(sender, 2, E.LOST)
    happen(sender, 3, E.LOST)
    assert int(sender.req["next_probe_ps"]) == sender.now + 1 + BASE_RTT_PS


def test_deny_and_allow_belong_to_the_controller():
    sender = Sender(make(), planes=2, active=1, backups=0)
    happen(sender, 0, E.DENY)
    for event in EvEvent:
        if event != E.ALLOW:
            happen(sender, 0, event)
    assert states(sender)[0] == DENIED
    assert int(sender.req["good_planes"]) == 0b10
    happen(sender, 0, E.ALLOW)
    assert int(sender.req["good_planes"]) == 0b11
    assert sender.st.ev_states.tolist() == [2, 0, 0, 0]


def take(sender: Sender, n: int, room: int = ALL_ROOM) -> list[int]:
    return [int(evset.choose(sender.st, 0, room)) for _ in range(n)]


def test_consecutive_packets_leave_on_different_planes_in_a_fixed_order():
    sender = Sender(make(), planes=2, active=3, backups=1)
    assert take(sender, 12) == [4, 0, 5, 1, 6, 2] * 2


def test_ports_without_room_are_skipped():
    sender = Sender(make(), planes=4, active=1, backups=0)
    assert take(sender, 4, room=0b0101) == [2, 0, 2, 0]
    assert take(sender, 1, room=0) == [evset.NO_EV]


def test_a_skipped_ev_misses_one_turn():
    sender = Sender(make(), planes=1, active=3, backups=0)
    happen(sender, 1, E.MARKED)
    assert take(sender, 5) == [0, 2, 0, 1, 2]
    assert sender.count("skips") == 1


def test_at_most_one_turn_is_passed_over_for_one_packet():
    sender = Sender(make(), planes=1, active=3, backups=0)
    for row in range(3):
        happen(sender, row, E.MARKED)
    assert take(sender, 1) == [1]  # 0 turns GOOD and is passed, 1 turns GOOD and is taken
    assert states(sender) == [GOOD, GOOD, SKIP]


def test_a_lone_marked_ev_is_used_all_the_same():
    sender = Sender(make(), planes=1, active=1, backups=0)
    happen(sender, 0, E.MARKED)
    assert take(sender, 2) == [0, 0]


def test_suspect_evs_are_passed_over_while_another_is_not():
    sender = Sender(make(), planes=2, active=2, backups=0)
    sender.ev(2)["suspects"] = 1
    assert take(sender, 4) == [3, 0, 3, 1]
    sender.ev(3)["suspects"] = 2
    assert take(sender, 2) == [0, 1]  # a plane of suspects only waits for the other
    sender.ev(0)["suspects"] = sender.ev(1)["suspects"] = 1
    assert all(row >= 0 for row in take(sender, 4))


def test_a_plane_without_good_ev_gets_no_data_while_another_has_one():
    sender = Sender(make(ev_min_active=0.0), planes=2, active=1, backups=0)
    happen(sender, 0, E.LOST)
    assert take(sender, 3) == [1, 1, 1]
    assert take(sender, 1, room=0b01) == [evset.NO_EV]
    sender.now += 5
    happen(sender, 1, E.LOST)
    assert take(sender, 2) == [0, 0]  # all bad: the one that failed longest ago
    assert take(sender, 1, room=0b10) == [1]


def test_no_port_no_path():
    sender = Sender(make(), planes=2, active=1, backups=0)
    ports.requestor_ports(sender.st, 0, sender.now, 0, True, False)
    sender.post(100)
    assert sender.select()[0] == requestor.PATHLESS
    assert sender.count("no_path") == 1
    sender.select()
    assert sender.count("no_path") == 1  # reported once


def test_a_live_port_without_any_ev_is_no_path():
    """With fewer EVs than planes the last EV's port may go down while others are up."""
    sender = Sender(make(), planes=2, active=1, backups=0)
    happen(sender, 1, E.DENY)
    ports.requestor_ports(sender.st, 0, sender.now, 0b10, True, False)
    sender.post(100)
    assert sender.select()[0] == requestor.PATHLESS


def test_an_ambiguous_entropy_is_found():
    sender = Sender(make(), planes=2, active=2, backups=1)
    for row in range(6):
        assert int(evset.find_entropy(sender.st, 0, int(sender.ev(row)["entropy"]))) == row
    assert int(evset.find_entropy(sender.st, 0, 0x7FFFF)) == evset.NO_EV
