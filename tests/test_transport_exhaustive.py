"""Small cases, all of them: every loss of 8 packets, every order of 4, every fate of 3 and their answers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from openmrc.transport.state import CTRL_ACK, CTRL_SACK
from transport_model import LOST, Packet
from transport_network import Network
from transport_support import US, make


class Chosen(Network):
    """A network that loses exactly the first transmissions and the answers that a test names."""

    def __init__(self, *setup: Any, lose: int = 0, lose_answers: int = 0, delays: Any = (), **options: Any):
        super().__init__(*setup, **options)
        self.lose, self.lose_answers, self.delays, self.answers = lose, lose_answers, delays, 0

    def _transmit(self, packet: Packet, depart_ps: int) -> None:
        if packet.kind == 0 and packet.transmission == 0:
            if self.lose >> packet.number & 1:
                self._fate(packet, LOST)
                return
            if self.delays:
                self._push(depart_ps + self.delays[packet.number], self._arrive, packet)
                return
        if packet.kind in (CTRL_SACK, CTRL_ACK):
            self.answers += 1
            if self.lose_answers >> (self.answers - 1) & 1:
                return
        super()._transmit(packet, depart_ps)


def one_way(seed: int = 0, **options: Any) -> Chosen:
    settings = options.pop("settings", {})
    setup = {"planes": 2, "active": 4, "backups": 2} | options
    return Chosen(seed, make(timeout_exponent=5, **settings), routes=((0, 1),), memory_bytes=1 << 14, **setup)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param((8 * 1024,), id="one"),
        pytest.param((1024,) * 8, id="eight", marks=pytest.mark.long),
        pytest.param((0, 3000, 1, 2048, 100), id="mixed", marks=pytest.mark.long),
    ],
)
def test_every_loss_of_eight_packets(lengths):
    """What is lost is sent again once, what is not is not, and every message completes once."""
    worst_ps = 0
    for lose in range(256):
        network = one_way(lose=lose)
        for length in lengths:
            network.post(0, length)
        start = network.now
        network.drain()
        worst_ps = max(worst_ps, network.now - start)
        again = {n for n, fates in enumerate(network.directions[0].fates) if len(fates) > 1}
        assert again == {n for n in range(8) if lose >> n & 1}, f"mask {lose:08b}"
        assert network.count("false_condemned") == 0
    assert worst_ps < 500 * US  # even when nothing at all arrives


@pytest.mark.parametrize("fifo", [True, pytest.param(False, marks=pytest.mark.long)])
def test_every_loss_of_eight_packets_on_few_paths(fifo):
    """Two EVs: almost every loss is seen by rule (a), or, without it, by the guard and the timeout."""
    for lose in range(256):
        network = one_way(lose=lose, planes=1, active=2, backups=0, settings={"loss_fifo": fifo})
        network.post(0, 8 * 1024)
        network.drain()
        again = {n for n, fates in enumerate(network.directions[0].fates) if len(fates) > 1}
        assert again == {n for n in range(8) if lose >> n & 1}, f"mask {lose:08b}"


@pytest.mark.parametrize("length", [4 * 1024, 1024])
def test_every_order_of_four_packets(length):
    """Reordering across EVs within half a base RTT loses nothing and convicts nobody."""
    for order in itertools.permutations(range(4)):
        network = one_way(delays=tuple(4 * US + rank * US for rank in order))
        for _ in range(4 * 1024 // length):
            network.post(0, length)
        network.drain()
        assert network.stats["retransmitted"] == 0, order
        assert network.count("suspected") == 0
        assert network.count("assumed_bad") == 0


def test_every_order_of_four_packets_far_apart():
    """Farther apart than the guard allows some are sent twice; nothing is written twice."""
    again = 0
    for order in itertools.permutations(range(4)):
        network = one_way(delays=tuple(4 * US + rank * 40 * US for rank in order))
        network.post(0, 4 * 1024)
        network.drain()
        again += network.stats["retransmitted"]
    assert again > 0


def test_every_fate_of_three_packets_and_their_first_answers():
    for lose, lose_answers in itertools.product(range(8), range(32)):
        network = one_way(lose=lose, lose_answers=lose_answers, settings={"sack_bytes": 1024})
        for imm in (0, 1, 0):
            network.post(0, 700, imm)
        network.drain()
        assert network.directions[0].completed == [0, 1, 2]


@pytest.mark.parametrize("psns_to_wrap", range(10))
def test_the_wrap_falls_on_every_packet(psns_to_wrap):
    for lose in (0, 0b1, 0b10000000, 0b01010101, 0b11111111):
        network = one_way(lose=lose, first_psn=-psns_to_wrap & 0xFFFFFF)
        network.before_wrap(psns_to_wrap * 1166)
        for _ in range(4):
            network.post(0, 2048)
        network.drain()
