"""The life of one EV as a table: (state, event) -> (state, action).

Documentation diagrams are generated from this table and every pair of it is tested. Kernels
read it as the constant array `TABLE`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class EvState(IntEnum):
    """What the requestor thinks of one path (docs/explanation/how-the-engine-works.md)."""

    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3


class EvEvent(IntEnum):
    """What can happen to an EV."""

    MARKED = 0  # SACK with m = SKIP_ONCE
    TRIMMED = 1  # NACK TRIMMED
    TURN = 2  # the rotation reached it
    LOST = 3  # a packet on it was lost without a trim
    PERSISTENT = 4  # SACK with m = ALWAYS_SKIP
    RECOVERED = 5  # enough probes in a row answered
    RECOVERED_MARKED = 6  # the same, the last answer marked SKIP_ONCE
    EXONERATED = 7  # a packet declared lost on it arrived after all
    DENY = 8  # controller
    ALLOW = 9  # controller


class EvAction(IntEnum):
    """What the engine does besides changing the state."""

    NONE = 0
    PASS_OVER = 1  # this packet takes the next EV
    RETIRE = 2  # leave the active set, promote a backup of the same plane, start probing
    RESTORE = 3  # return to the active set, demote what was promoted
    REMOVE = 4  # leave the active set without probing


_S, _E, _A = EvState, EvEvent, EvAction

#: every pair that changes something; all others keep the state and do nothing
TRANSITIONS: dict[tuple[EvState, EvEvent], tuple[EvState, EvAction]] = {
    (_S.GOOD, _E.MARKED): (_S.SKIP, _A.NONE),
    (_S.GOOD, _E.TRIMMED): (_S.SKIP, _A.NONE),
    (_S.SKIP, _E.TURN): (_S.GOOD, _A.PASS_OVER),
    (_S.GOOD, _E.LOST): (_S.ASSUMED_BAD, _A.RETIRE),
    (_S.SKIP, _E.LOST): (_S.ASSUMED_BAD, _A.RETIRE),
    (_S.GOOD, _E.PERSISTENT): (_S.ASSUMED_BAD, _A.RETIRE),
    (_S.SKIP, _E.PERSISTENT): (_S.ASSUMED_BAD, _A.RETIRE),
    (_S.ASSUMED_BAD, _E.RECOVERED): (_S.GOOD, _A.RESTORE),
    (_S.ASSUMED_BAD, _E.RECOVERED_MARKED): (_S.SKIP, _A.RESTORE),
    (_S.ASSUMED_BAD, _E.EXONERATED): (_S.GOOD, _A.RESTORE),
    (_S.GOOD, _E.DENY): (_S.DENIED, _A.REMOVE),
    (_S.SKIP, _E.DENY): (_S.DENIED, _A.REMOVE),
    (_S.ASSUMED_BAD, _E.DENY): (_S.DENIED, _A.NONE),
    (_S.DENIED, _E.ALLOW): (_S.GOOD, _A.RESTORE),
}

#: TABLE[state, event] = (next state, action), for kernels
TABLE = np.zeros((len(EvState), len(EvEvent), 2), np.int8)
for _state in EvState:
    for _event in EvEvent:
        TABLE[_state, _event] = TRANSITIONS.get((_state, _event), (_state, EvAction.NONE))
TABLE.setflags(write=False)

GOOD, SKIP, ASSUMED_BAD, DENIED = (int(s) for s in EvState)
MARKED, TRIMMED, TURN, LOST, PERSISTENT, RECOVERED, RECOVERED_MARKED, EXONERATED, DENY, ALLOW = (
    int(e) for e in EvEvent
)
NONE, PASS_OVER, RETIRE, RESTORE, REMOVE = (int(a) for a in EvAction)
