"""BTH opcodes of MRC and what follows each (OCP MRC 1.0)."""

from __future__ import annotations

from enum import IntEnum


class Opcode(IntEnum):
    """BTH.opcode values that MRC uses.

    >>> Opcode.WRITE_ONLY_IMM.label, hex(Opcode.WRITE_ONLY_IMM)
    ('WRITE Only+Imm', '0xcb')
    """

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    TRANSPORT_ACK = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    RELIABILITY_PROBE = 0xDE

    @property
    def label(self) -> str:
        """The name as people write it."""
        return LABELS[self]

    @property
    def is_data(self) -> bool:
        """True for the opcodes that carry METH, RETH and payload."""
        return self in DATA_OPCODES

    @property
    def has_imm(self) -> bool:
        """True when ImmDt follows RETH."""
        return self in IMM_OPCODES


LABELS = {
    Opcode.WRITE_FIRST: "WRITE First",
    Opcode.WRITE_MIDDLE: "WRITE Middle",
    Opcode.WRITE_LAST: "WRITE Last",
    Opcode.WRITE_LAST_IMM: "WRITE Last+Imm",
    Opcode.WRITE_ONLY: "WRITE Only",
    Opcode.WRITE_ONLY_IMM: "WRITE Only+Imm",
    Opcode.TRANSPORT_ACK: "Transport ACK",
    Opcode.ENDPOINT_REQUEST: "Endpoint Request",
    Opcode.ENDPOINT_RESPONSE: "Endpoint Response",
    Opcode.SACK: "SACK",
    Opcode.NACK: "NACK",
    Opcode.RELIABILITY_PROBE: "Reliability Probe",
}
DATA_OPCODES = frozenset(
    {
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_LAST,
        Opcode.WRITE_LAST_IMM,
        Opcode.WRITE_ONLY,
        Opcode.WRITE_ONLY_IMM,
    }
)
IMM_OPCODES = frozenset({Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM})
#: value -> member, quicker than ``Opcode(value)`` and without its ValueError
BY_VALUE = {int(opcode): opcode for opcode in Opcode}
