"""Probes of bad EVs, ports down and up, Port Status Updates, and the responder's own paths."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from openmrc.limits import NEVER_PS, PORT_UPDATE_REPEATS
from openmrc.packed import pack
from openmrc.transport import acks, evset, ports, probes, responder, timers
from openmrc.transport.ev_states import ASSUMED_BAD, GOOD, LOST, SKIP
from openmrc.transport.state import CTRL_EV_PROBE, CTRL_PORT_STATUS, CTRL_PROBE, CTRL_RESPONSE
from transport_model import Weather
from transport_network import Network
from transport_support import BASE_RTT_PS, US, Sender, control_row, entropy_of, make, open_state

WAIT_PS = BASE_RTT_PS + 4 * BASE_RTT_PS // 8  # smoothed RTT + 4 deviations at the start


def condemn(sender: Sender, *rows: int) -> None:
    for row in rows:
        evset.apply_event(sender.st, sender.pf, 0, row, LOST, sender.now)


def next_probe(sender: Sender) -> tuple[int, Any]:
    """Wait for the next health probe; returns (its time, the row)."""
    for _ in range(1000):
        sender.now = max(sender.now, int(sender.req["next_probe_ps"]))
        row = control_row()
        action = int(timers.on_requestor_timer(sender.st, sender.pf, 0, sender.now, row))
        if action == timers.T_SEND and int(row["kind"]) == CTRL_PROBE:
            return sender.now, row
        assert int(sender.req["next_probe_ps"]) > sender.now or action == timers.T_KICK
        assert int(sender.req["next_probe_ps"]) < NEVER_PS, "no probe is due any more"
    raise AssertionError("no probe is ever sent")


def answer(sender: Sender, probe: Any, *, marked: bool = False, after_ps: int = BASE_RTT_PS) -> None:
    sender.now += after_ps
    row = control_row()
    row["psn"] = row["trigger_psn"] = (int(sender.req["una_psn"]) - 1) & 0xFFFFFF
    row["sack_offset"], row["pr"], row["probe_id"] = 1, 1, int(probe["probe_id"])
    row["m"] = acks.M_SKIP_ONCE if marked else acks.M_NONE
    assert acks.on_sack(sender.st, sender.pf, 0, sender.now, row, 0, False)


# --- bad EVs ------------------------------------------------------------------------------------


def test_an_ev_recovers_after_three_answers_one_rtt_apart():
    sender = Sender(make())
    condemn(sender, 0)
    start = sender.now
    times = []
    for n in range(3):
        assert int(sender.ev(0)["state"]) == ASSUMED_BAD
        time, probe = next_probe(sender)
        assert int(probe["path"]) == int(sender.ev(0)["entropy"])
        times.append((time - start) // BASE_RTT_PS)
        answer(sender, probe, marked=n < 2)
    assert times == [1, 3, 5]  # one RTT until the first; then answer (1) and pause (1)
    assert int(sender.ev(0)["state"]) == GOOD
    assert sender.count("recovered") == 1
    assert int(sender.req["next_probe_ps"]) == NEVER_PS


@pytest.mark.parametrize("needed", [1, 7])
def test_the_number_of_answers_is_a_setting(needed):
    sender = Sender(make(recover_probes=needed))
    condemn(sender, 0)
    for _ in range(needed):
        answer(sender, next_probe(sender)[1])
    assert int(sender.ev(0)["state"]) == GOOD
    assert sender.count("probes") == needed


def test_a_marked_last_answer_leads_to_skip():
    sender = Sender(make(recover_probes=2))
    condemn(sender, 0)
    answer(sender, next_probe(sender)[1])
    answer(sender, next_probe(sender)[1], marked=True)
    assert int(sender.ev(0)["state"]) == SKIP


def test_misses_double_the_interval_up_to_a_cap():
    sender = Sender(make(probe_cap="1ms"))
    condemn(sender, 0)
    times = [next_probe(sender)[0] for _ in range(12)]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps == [min(WAIT_PS << n, 1000 * US) for n in range(11)]


def test_answers_must_be_in_a_row():
    sender = Sender(make())
    condemn(sender, 0)
    for _ in range(4):
        answer(sender, next_probe(sender)[1])
        answer(sender, next_probe(sender)[1])
        next_probe(sender)  # never answered
        next_probe(sender)  # so it counts as missed when this one leaves
        assert int(sender.ev(0)["state"]) == ASSUMED_BAD
    for _ in range(3):
        answer(sender, next_probe(sender)[1])
    assert int(sender.ev(0)["state"]) == GOOD


def test_at_most_one_probe_per_base_rtt_and_qp():
    sender = Sender(make(ev_min_active=0.0), planes=2, active=4, backups=2)
    condemn(sender, *range(9))
    times, probed = [], set()
    for _ in range(40):
        time, probe = next_probe(sender)
        times.append(time)
        probed.add(int(probe["path"]))
    assert min(b - a for a, b in itertools.pairwise(times)) >= BASE_RTT_PS
    assert len(probed) == 9  # none is forgotten


def test_an_exonerated_ev_is_probed_no_more():
    sender = Sender(make())
    condemn(sender, 0)
    evset.apply_event(sender.st, sender.pf, 0, 0, acks.EXONERATED, sender.now)
    sender.now = int(sender.req["next_probe_ps"])
    assert int(timers.on_requestor_timer(sender.st, sender.pf, 0, sender.now, control_row())) == timers.T_KICK
    assert int(sender.req["next_probe_ps"]) == NEVER_PS
    assert sender.count("probes") == 0


def test_evs_of_a_dead_port_are_not_probed_until_it_is_back():
    sender = Sender(make())
    condemn(sender, 0)
    ports.requestor_ports(sender.st, 0, sender.now, 0b10, True, False)
    sender.now = int(sender.req["next_probe_ps"])
    timers.on_requestor_timer(sender.st, sender.pf, 0, sender.now, control_row())
    assert int(sender.req["next_probe_ps"]) == NEVER_PS
    ports.requestor_ports(sender.st, 0, sender.now, 0b11, True, False)
    assert next_probe(sender)[0] == sender.now


# --- ports --------------------------------------------------------------------------------------


def usable(sender: Sender) -> int:
    return int(evset.usable_planes(sender.req))


@pytest.mark.parametrize("ours", [True, False])
def test_a_port_down_takes_its_evs_out_at_once_and_back_after_probes(ours):
    sender = Sender(make(), planes=4)
    ports.requestor_ports(sender.st, 0, sender.now, 0b1011, ours, False)
    assert usable(sender) == 0b1011
    assert 2 not in {int(sender.ev(int(evset.choose(sender.st, 0, 0xFF)))["plane"]) for _ in range(16)}
    ports.requestor_ports(sender.st, 0, sender.now, 0b1111, ours, False)
    assert usable(sender) == 0b1011  # up, but not yet proven
    for _ in range(3):
        assert usable(sender) == 0b1011
        _, probe = next_probe(sender)
        assert int(probe["path"]) >> 16 == 2
        answer(sender, probe)
    assert usable(sender) == 0b1111


def test_a_port_that_flaps_begins_its_proof_anew():
    sender = Sender(make())
    for mask in (0b10, 0b11):
        ports.requestor_ports(sender.st, 0, sender.now, mask, True, False)
    answer(sender, next_probe(sender)[1])
    answer(sender, next_probe(sender)[1])
    for mask in (0b10, 0b11):
        ports.requestor_ports(sender.st, 0, sender.now, mask, True, False)
    answer(sender, next_probe(sender)[1])
    assert usable(sender) == 0b10
    answer(sender, next_probe(sender)[1])
    answer(sender, next_probe(sender)[1])
    assert usable(sender) == 0b11


def test_a_plane_whose_evs_are_all_bad_returns_when_one_recovers():
    """Its EVs were condemned before the update came; the port goes down and up again."""
    sender = Sender(make(ev_min_active=0.0), planes=2, active=1, backups=1)
    condemn(sender, 0, 1)
    for mask in (0b10, 0b11):
        ports.requestor_ports(sender.st, 0, sender.now, mask, True, False)
    for _ in range(20):
        if usable(sender) == 0b11:
            break
        answer(sender, next_probe(sender)[1])
    assert usable(sender) == 0b11


def test_a_plane_without_any_ev_needs_no_proof():
    sender = Sender(make(), planes=2, active=1, backups=0)
    evset.apply_event(sender.st, sender.pf, 0, 0, acks.ev_states.DENY, sender.now)
    for mask in (0b10, 0b11):
        ports.requestor_ports(sender.st, 0, sender.now, mask, True, False)
    assert int(sender.req["probation"]) == 0
    assert int(sender.req["next_probe_ps"]) == NEVER_PS


def updates(sender: Sender, limit: int = 40) -> list[tuple[int, Any]]:
    """Let time pass until no update is due any more."""
    sent = []
    for _ in range(limit):
        if int(sender.req["psu_next_ps"]) == NEVER_PS:
            break
        sender.now = max(sender.now, int(sender.req["psu_next_ps"]))
        row = control_row()
        if int(timers.on_requestor_timer(sender.st, sender.pf, 0, sender.now, row)) == timers.T_SEND:
            sent.append((sender.now, row))
    return sent


def test_an_update_is_repeated_every_two_rtts_sixteen_times_over_the_other_planes():
    sender = Sender(make(), planes=8)
    start = sender.now
    ports.requestor_ports(sender.st, 0, sender.now, 0b01111111, True, True)
    sent = updates(sender)
    assert [(time - start) / BASE_RTT_PS for time, _ in sent] == [2 * n for n in range(PORT_UPDATE_REPEATS)]
    assert {int(row["kind"]) for _, row in sent} == {CTRL_PORT_STATUS}
    assert {int(row["mask"]) & 0xFF for _, row in sent} == {0b01111111}
    assert {int(row["path"]) >> 16 for _, row in sent} == set(range(7))
    assert len({int(row["probe_id"]) for _, row in sent}) == 1


def test_an_answered_update_is_not_repeated_and_only_the_newest_counts():
    sender = Sender(make())
    ports.requestor_ports(sender.st, 0, sender.now, 0b01, True, True)
    old = int(sender.req["psu_id"])
    ports.requestor_ports(sender.st, 0, sender.now, 0b11, True, True)
    ports.on_update_answered(sender.req, old)
    assert int(sender.req["psu_next_ps"]) == sender.now
    ports.on_update_answered(sender.req, int(sender.req["psu_id"]))
    assert updates(sender) == []


def test_only_the_leader_speaks_for_the_nic():
    sender = Sender(make())
    ports.requestor_ports(sender.st, 0, sender.now, 0b01, True, False)
    # the peer's ports are not ours to tell
    ports.requestor_ports(sender.st, 0, sender.now, 0b01, False, True)
    assert updates(sender) == []


def test_an_old_update_does_not_undo_a_new_one():
    """Repeats take different planes and overtake each other."""
    sender = Sender(make())
    news = [bool(ports.update_is_news(sender.req, i)) for i in (1, 3, 2, 3, 4)]
    assert news == [True, True, False, False, True]
    sender.req["psu_seen"] = 0xFFFF
    assert ports.update_is_news(sender.req, 2)
    assert not ports.update_is_news(sender.req, 0xFFFF)


def test_a_nic_port_lost_costs_its_share_and_returns():
    network = Network(1, make(timeout_exponent=7), routes=((0, 1),), planes=4, active=2, backups=0)
    for _ in range(16):
        network.post(0, 12_000)
    network.run(40)
    network.port(1, 2, False)
    network.run_for(10 * BASE_RTT_PS)
    req = network.st.req[0]
    assert int(req["peer_ports"]) == 0b1011  # learned by the update
    assert int(network.st.rsp[0]["psu_next_ps"]) == NEVER_PS  # and answered
    network.port(1, 2, True)
    network.run_for(10 * BASE_RTT_PS)
    assert int(req["peer_ports"]) == 0b1111
    assert int(req["probation"]) == 0
    network.drain()


# --- the responder's own paths ------------------------------------------------------------------


class Back:
    """A responder half and its reverse paths."""

    def __init__(self, planes: int = 2, **changes: Any):
        self.profile = make(**changes)
        self.pf = pack(self.profile)
        self.st = open_state(self.profile, planes=planes)
        self.planes, self.now, self.n = planes, 100 * US, 0

    @property
    def rsp(self) -> Any:
        return self.st.rsp[0]

    def data(self, n: int | None = None) -> None:
        n = self.n if n is None else n
        self.n = max(self.n, n + 1)
        psn = (0xFFFFF0 + n) & 0xFFFFFF
        responder.on_data(self.st, self.pf, 0, self.now, psn, 1166, 0, 0, False, 0xC000)

    def tick(self, index: int = 3) -> Any | None:
        """Do what is due at the next EV probe time; returns the probe, if one is sent."""
        self.now = max(self.now, int(self.rsp["rev_probe_ps"]))
        self.rsp["unsacked_since_ps"] = NEVER_PS
        row = control_row()
        action = int(timers.on_responder_timer(self.st, self.pf, 0, self.now, row))
        if action != timers.T_TRIAL:
            return None
        plane = (int(self.rsp["rev_probe_id"]) - 1) % self.planes
        responder.try_path(self.st, 0, plane, entropy_of(plane, index), row)
        assert int(row["kind"]) == CTRL_EV_PROBE
        return row

    def paths(self, n: int) -> list[int]:
        return [int(responder.reverse_path(self.st, 0)) for _ in range(n)]


def test_control_packets_rotate_over_the_planes_that_are_up():
    back = Back(planes=4)
    assert [p >> 16 for p in back.paths(8)] == [1, 2, 3, 0] * 2
    ports.responder_ports(back.st, 0, back.now, 0b0101, True, False)
    assert [p >> 16 for p in back.paths(4)] == [2, 0, 2, 0]
    ports.responder_ports(back.st, 0, back.now, 0b0100, False, False)
    assert [p >> 16 for p in back.paths(2)] == [2, 2]
    ports.responder_ports(back.st, 0, back.now, 0, False, False)
    assert back.paths(1) == [-1]


def test_one_ev_probe_per_base_rtt_while_something_is_received():
    back = Back(planes=4)
    back.data()
    times, planes = [], []
    for _ in range(8):
        probe = back.tick()
        times.append(back.now)
        planes.append(int(probe["path"]) >> 16)
        responder.on_path_answer(back.st, 0, int(probe["probe_id"]))
        back.data()
    assert {b - a for a, b in itertools.pairwise(times)} == {BASE_RTT_PS}
    assert planes == [0, 1, 2, 3] * 2
    assert back.tick() is not None
    assert back.tick() is None  # nothing was received since
    assert int(back.rsp["rev_probe_ps"]) == NEVER_PS


def test_an_answered_path_is_adopted_and_an_old_answer_is_not():
    back = Back(planes=1)
    back.data()
    probe = back.tick(index=3)
    assert back.paths(1) == [entropy_of(0, 0)]
    old = int(probe["probe_id"])
    responder.on_path_answer(back.st, 0, old + 8)
    assert back.paths(1) == [entropy_of(0, 0)]
    responder.on_path_answer(back.st, 0, old)
    assert back.paths(1) == [entropy_of(0, 3)]
    back.data()
    back.tick(index=4)
    responder.on_path_answer(back.st, 0, old)
    assert back.paths(1) == [entropy_of(0, 3)]


def test_a_plane_whose_probes_go_unanswered_rests_until_one_is_answered():
    back = Back(planes=2)
    for _ in range(20):
        back.data()
        probe = back.tick()
        if probe is not None and int(probe["path"]) >> 16 == 1:
            responder.on_path_answer(back.st, 0, int(probe["probe_id"]))
    assert {p >> 16 for p in back.paths(6)} == {1}
    while True:
        back.data()
        probe = back.tick()
        if probe is not None and int(probe["path"]) >> 16 == 0:
            responder.on_path_answer(back.st, 0, int(probe["probe_id"]))
            break
    assert {p >> 16 for p in back.paths(6)} == {0, 1}


def test_when_every_plane_rests_control_packets_still_leave():
    back = Back(planes=2)
    for _ in range(40):
        back.data()
        back.tick()
    assert {p >> 16 for p in back.paths(6)} <= {0, 1}
    assert -1 not in back.paths(6)


def test_on_one_plane_an_answer_may_take_longer_than_one_base_rtt():
    """The base RTT is the unloaded one; under load the answer to a probe must not come too late for ever."""
    back = Back(planes=1)
    back.data()
    probe = back.tick(index=3)
    for _ in range(2):
        back.data()
        assert back.tick(index=4) is None
    responder.on_path_answer(back.st, 0, int(probe["probe_id"]))
    assert back.paths(1) == [entropy_of(0, 3)]
    assert int(back.st.rev[0, 0]["misses"]) == 0


def test_own_data_that_was_acknowledged_refreshes_the_reverse_path():
    back = Back(planes=2)
    back.st.rev[0, 1]["misses"] = 2
    responder.refresh_reverse(back.st, 0, 1, entropy_of(1, 5))
    assert entropy_of(1, 5) in back.paths(2)


def test_duplicates_and_probes_look_for_a_way_back_too():
    """All data may have arrived while every SACK is lost: what is heard then is not new."""
    back = Back(planes=1)
    back.data()
    back.tick()
    while back.tick() is not None or int(back.rsp["rev_probe_ps"]) < NEVER_PS:
        pass
    back.data(0)  # a retransmission of what has arrived
    assert int(back.rsp["rev_probe_ps"]) == back.now + BASE_RTT_PS
    back = Back(planes=1)
    responder.write_probe_sack(back.st, back.pf, 0, 1, False, 0xC000, 0, control_row())
    assert int(back.rsp["rev_probe_ps"]) <= back.now


@pytest.mark.parametrize("planes", [1, 2])
def test_a_dead_way_back_is_left(planes):
    """All that the responder knows is dead; only EV probes find another way."""
    network = Network(7, make(timeout_exponent=5), routes=((0, 1),), planes=planes, active=2, backups=2)
    for plane in range(planes):
        network.kill(1, plane, 0)
    network.post(0, 3000)
    network.run_for(5000 * US)
    assert network.is_idle()
    assert network.stats["black_hole"] > 0
    network.drain()


def test_requests_are_answered_by_both_halves():
    network = Network(8, make(), weather=Weather(), routes=((0, 1), (1, 0)))
    for q in range(2):
        network.post(q, 20_000)
    network.port(0, 1, False)
    network.run_for(20 * BASE_RTT_PS)
    assert network.stats[f"control_{CTRL_RESPONSE}"] > 4
    for half in (network.st.req, network.st.rsp):
        assert (half["psu_next_ps"] == NEVER_PS).all()
    assert (network.st.req["peer_ports"][1], network.st.rsp["peer_ports"][0]) == (0b01, 0b01)
    network.drain()


def test_probe_ids_tell_more_than_one_answer_apart():
    sender = Sender(make(), planes=2, active=2, backups=0)
    rows = [control_row() for _ in range(3)]
    for ev_row, row in enumerate(rows):
        probes.write_probe(sender.st, sender.pf, 0, sender.now + ev_row, ev_row, row)
    for ev_row in (2, 0, 1):
        got = probes.on_probe_answer(
            sender.st, sender.pf, 0, sender.now, int(rows[ev_row]["probe_id"]), False
        )
        assert [int(x) for x in got] == [ev_row, sender.now + ev_row]
