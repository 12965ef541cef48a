"""Two real engines on a hostile network: every invariant holds after every event.

The invariants are in `transport_checks`; a failing seed is repeated with
`python tests/transport_episodes.py SEED`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as hs
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import transport_checks
from openmrc.transport import acks, requestor, timers
from openmrc.transport.state import CTRL_SACK, QP_RTS
from transport_episodes import LENGTHS, ROUTES, episode
from transport_model import Weather
from transport_network import Network
from transport_support import US, Sender, control_row, make

EPISODES = 30
LONG_EPISODES = 3000

#: what must have happened at least once over a run of episodes
HAPPENED = (
    *("data", "retransmitted", "imm", "zero_length", "marked", "corrupted", "black_hole", "port_lost"),
    *("lost_True", "lost_False", "duplicated_True", "duplicated_False", "trimmed_1", "trimmed_2"),
    *("refused_0x06", "refused_0x07", "refused_0x0a", "refused_0x0b", "refused_0x19", "out_of_window"),
    *("replayed_1", "replayed_2", "replayed_3", "delayed_sack", "stale_update", "path_killed", "silence"),
    *("port_down", "port_up", "requestor_failed", "responder_failed"),
    *(f"control_{kind}" for kind in range(1, 8)),
    *(f"verdict_{verdict}" for verdict in range(6)),
    *(f"timer_{action}" for action in (timers.T_NONE, timers.T_SEND, timers.T_KICK, timers.T_FAILED)),
)
COUNTED = (
    *("lost_fifo", "lost_guard", "lost_timeout", "suspected", "trim_nacks", "stale_nacks", "late_acks"),
    *("assumed_bad", "recovered", "promoted", "demoted", "false_condemned", "floor_held", "skips", "no_path"),
    *("duplicates", "timeouts", "probes", "ev_probes", "port_updates", "out_of_window"),
)


def run_episodes(seeds: range) -> tuple[Counter[str], Counter[str]]:
    happened: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for seed in seeds:
        try:
            network = episode(seed)
        except AssertionError as error:
            command = f"python tests/transport_episodes.py {seed}"
            raise AssertionError(f"{error}; repeat it with: {command}") from error
        happened += network.stats
        counted += Counter({name: network.count(name) for name in COUNTED})
    return happened, counted


def test_episodes_keep_every_invariant_and_meet_every_kind_of_trouble():
    happened, counted = run_episodes(range(EPISODES))
    assert not [name for name in HAPPENED if happened[name] == 0]
    assert not [name for name in COUNTED if counted[name] == 0]


@pytest.mark.long
def test_many_episodes():
    run_episodes(range(1_000_000, 1_000_000 + LONG_EPISODES))


class TwoEngines(RuleBasedStateMachine):
    """Hypothesis chooses what happens; `Network` checks after each event."""

    @initialize(
        seed=hs.integers(0, 2**32 - 1),
        routes=hs.sampled_from(ROUTES),
        shared=hs.booleans(),
        planes=hs.sampled_from((1, 2, 3)),
        active=hs.integers(1, 3),
        backups=hs.integers(0, 2),
        depth=hs.sampled_from((2, 64)),
        psns_to_wrap=hs.integers(0, 200),
        letter=hs.booleans(),
        max_cwnd=hs.sampled_from((0.02, 0.2, 1.5)),
    )
    def open(self, seed, routes, shared, planes, active, backups, depth, psns_to_wrap, letter, max_cwnd):
        profile = "uet-1.0-nscc" if letter else "mrc-nscc"
        self.network = Network(
            seed,
            make({"profile": profile, "max_cwnd": max_cwnd}, timeout_exponent=5),
            routes=routes,
            planes=planes,
            active=active,
            backups=backups,
            depth=depth,
            first_psn=-psns_to_wrap & 0xFFFFFF,
            cc_row=[0, 0, 1] if shared and len(routes) == 3 else None,
        )
        self.network.before_wrap(seed & 0xFFFF)

    @rule(
        q=hs.integers(0, 2),
        lengths=hs.lists(hs.sampled_from(LENGTHS), min_size=1, max_size=8),
        imm=hs.booleans(),
    )
    def post(self, q, lengths, imm):
        for length in lengths:
            self.network.post(q % len(self.network.directions), length, int(imm))

    @rule(steps=hs.integers(1, 60))
    def run(self, steps):
        self.network.run(steps)

    @rule(
        loss=hs.sampled_from((0.0, 0.02, 0.3)),
        duplicate=hs.sampled_from((0.0, 0.1)),
        trim=hs.sampled_from((0.0, 0.2)),
        mark=hs.sampled_from((0.0, 0.3)),
        refuse=hs.sampled_from((0.0, 0.1)),
        jitter_ps=hs.sampled_from((0, 20 * US)),
        control_loss=hs.sampled_from((0.0, 0.3)),
        control_jitter_ps=hs.sampled_from((0, 50 * US)),
        replay=hs.sampled_from((0.0, 0.1)),
    )
    def weather(self, **changes):
        self.network.weather = Weather(trim_lasthop=changes["trim"], corrupt=changes["duplicate"], **changes)

    @rule(end=hs.integers(0, 1), plane=hs.integers(0, 2), index=hs.integers(0, 4), alive=hs.booleans())
    def path(self, end, plane, index, alive):
        self.network.kill(end, plane % self.network.planes, index % self.network.per_plane, alive=alive)

    @rule(end=hs.integers(0, 1), plane=hs.integers(0, 2), up=hs.booleans())
    def port(self, end, plane, up):
        self.network.port(end, plane % self.network.planes, up)

    @precondition(lambda self: self.network.history)
    @rule(back=hs.integers(0, 63))
    def replay(self, back):
        packet = self.network.history[-1 - back % len(self.network.history)]
        self.network._push(self.network.now, self.network._control_arrives, packet)
        self.network.step()

    @rule(duration_us=hs.sampled_from((20, 300)))
    def silence(self, duration_us):
        calm, self.network.weather = self.network.weather, Weather(loss=1.0, control_loss=1.0)
        self.network.run_for(duration_us * US)
        self.network.weather = calm

    def teardown(self):
        if hasattr(self, "network"):
            self.network.drain()


TestTwoEngines = TwoEngines.TestCase
TestTwoEngines.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def lie(r: np.random.Generator, sender: Sender) -> np.ndarray:
    """Return a control packet that says anything at all, near the truth in its PSNs half of the time."""
    row = control_row()
    next_psn = int(sender.req["next_psn"])
    near = [(next_psn + int(r.integers(-200, 50))) & 0xFFFFFF, int(r.integers(0, 1 << 24))]
    row["psn"], row["trigger_psn"] = near[int(r.random() < 0.3)], near[int(r.random() < 0.3)]
    row["sack_offset"] = int(r.integers(-100, 300) if r.random() < 0.7 else r.integers(-(1 << 15), 1 << 15))
    row["bitmap"] = np.uint64(r.integers(0, 1 << 64, dtype=np.uint64))
    row["rcvd"] = int(r.integers(0, 1 << 24))
    row["m"], row["pr"], row["delayed"] = int(r.integers(0, 4)), int(r.integers(0, 2)), int(r.integers(0, 2))
    row["probe_id"], row["msn"] = int(r.integers(0, 1 << 16)), int(r.integers(0, 1 << 16))
    row["mpr"] = int(r.integers(0, 256)) if r.random() < 0.1 else 0
    if sender.sent and r.random() < 0.8:
        packet = sender.sent[int(r.integers(max(0, len(sender.sent) - 64), len(sender.sent)))]
        row["entropy"], row["tx_stamp"] = packet["entropy"], packet["stamp"]
        row["psn"] = packet["psn"] if r.random() < 0.5 else row["psn"]
    else:
        row["entropy"], row["tx_stamp"] = int(r.integers(0, 1 << 32)), int(r.integers(0, 1 << 16))
    return row


@pytest.mark.parametrize("seed", range(6))
def test_a_lying_peer_breaks_no_bookkeeping(seed):
    """Control packets of any content leave windows, ring and EV counts consistent."""
    r = np.random.default_rng(seed)
    sender = Sender(make({"max_cwnd": 0.2}), planes=2, active=2, backups=1)
    reasons = (0x01, 0x02, 0x06, 0x07, 0x0A, 0x0B, 0x33)
    for _ in range(600):
        if r.random() < 0.3:
            sender.post(int(r.integers(0, 20_000)), int(r.integers(0, 2)))
        sender.send_all(step_ps=100_000, limit=int(r.integers(0, 6)))
        sender.now += int(r.integers(0, 10 * US))
        row = lie(r, sender)
        what = r.random()
        if what < 0.6:
            row["kind"] = CTRL_SACK
            penalty, restore = int(r.integers(0, 128)), bool(r.random() < 0.5)
            acks.on_sack(sender.st, sender.pf, 0, sender.now, row, penalty, restore)
        elif what < 0.8:
            row["reason"] = int(r.choice(reasons))
            acks.on_nack(sender.st, sender.pf, 0, sender.now, row)
        else:
            row["reason"] = acks.SYNDROME_ACK
            acks.on_transport_ack(sender.st, sender.pf, 0, sender.now, row)
        timers.on_requestor_timer(sender.st, sender.pf, 0, sender.now, control_row())
        check_books(sender)
    assert sender.req["state"] == QP_RTS
    assert sender.count("invalid_acks") > 0


def check_books(sender: Sender) -> None:
    """The invariants that do not depend on the truth of what the peer says."""
    d = Bookkeeper(sender)
    assert transport_checks.check_ring(d, d) == int(sender.cc["inflight"])
    assert transport_checks.check_paths(d, d) == sender.st.ev_states.tolist()
    assert sender.profile.min_cwnd_q16 <= int(sender.cc["cwnd_q16"]) <= sender.profile.max_cwnd_bytes << 16
    assert requestor.find_message(sender.st, 0, int(sender.req["una_psn"])) <= int(sender.req["sq_tail"])


class Bookkeeper:
    """Just enough of a network and a direction for the checks."""

    def __init__(self, sender: Sender):
        self.st, self.profile, self.q, self.planes = sender.st, sender.profile, 0, 2
        self.sent, self.end = int(sender.req["next_psn"]), int(sender.req["end_psn"])

    def psn_of(self, number: int) -> int:
        return number

    number_of = psn_of
