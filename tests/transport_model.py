"""What a hostile network carries and what the model beside the engine knows (`transport_network`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openmrc.psn import psn_diff
from openmrc.transport import requestor
from transport_twins import ResponderTwin

FATES = FLYING, ARRIVED, LOST, TRIMMED, REFUSED = "flying", "arrived", "lost", "trimmed", "refused"


@dataclass
class Weather:
    """How hostile the network is: probabilities per packet, delays in ps."""

    loss: float = 0.0
    duplicate: float = 0.0
    trim: float = 0.0
    trim_lasthop: float = 0.0
    corrupt: float = 0.0
    mark: float = 0.0
    refuse: float = 0.0
    fatal: float = 0.0
    jitter_ps: int = 0
    control_loss: float = 0.0
    control_duplicate: float = 0.0
    control_jitter_ps: int = 0
    replay: float = 0.0
    fifo: bool = True  # the data class of one path keeps its order


@dataclass
class Path:
    delay_ps: int
    alive: bool = True
    loss: float = 0.0
    last_ps: int = 0


@dataclass
class Message:
    first: int  # number of its first packet; the first packet of the direction is 0
    packets: int
    length: int
    imm: int
    address: int


@dataclass
class Packet:
    kind: int
    q: int
    end: int  # where it starts
    entropy: int
    row: Any = None
    number: int = 0  # data: packets since the first of the direction
    transmission: int = 0
    flags: int = 0
    size: int = 0
    stamp: int = 0
    offset: int = 0
    length: int = 0
    trim: int = 0
    marked: bool = False


@dataclass
class Direction:
    """What the model knows of one QP direction."""

    q: int
    src: int
    dst: int
    first_psn: int
    twin: ResponderTwin
    memory: np.ndarray
    messages: list[Message] = field(default_factory=list)
    end: int = 0  # packets posted
    sent: int = 0  # packets sent at least once
    fates: list[list[str]] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)  # arrived and were not taken
    completed: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    verdict: int = requestor.IDLE
    failed: bool = False  # one half is in ERROR, as it should be
    lost: set[int] = field(default_factory=set)  # declared lost at the last check
    checked: Any = None  # the state that transport_checks saw last, and what it found
    found: tuple[int, list[int]] = (0, [])
    checked_responder: Any = None

    def number_of(self, psn: int) -> int:
        """Return the packet number of a PSN near what has been sent."""
        return self.sent + psn_diff(psn, self.psn_of(self.sent))

    def psn_of(self, number: int) -> int:
        return (self.first_psn + number) & 0xFFFFFF

    def message_at(self, number: int) -> int:
        low, high = 0, len(self.messages) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.messages[middle].first <= number:
                low = middle
            else:
                high = middle - 1
        return low
