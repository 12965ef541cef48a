"""DSCP classes: how switches treat a packet. The numbers are deployment settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from openmrc.errors import InputError
from openmrc.wire.opcodes import DATA_OPCODES, Opcode


class DscpClass(IntEnum):
    """What a switch may do with a packet."""

    NO_TRIM = 0  # data class, dropped when the queue is full
    TRIMMABLE = 1
    TRIMMABLE_RETX = 2  # a retransmission
    TRIMMED = 3
    TRIMMED_LASTHOP = 4
    CONTROL = 5  # strict priority, never trimmed, never ECN-marked


class Ecn(IntEnum):
    """ECN field (RFC 3168)."""

    NOT_ECT = 0
    ECT_1 = 1
    ECT_0 = 2
    CE = 3


#: classes that travel in the control queue
CONTROL_QUEUE = frozenset({DscpClass.TRIMMED, DscpClass.TRIMMED_LASTHOP, DscpClass.CONTROL})


@dataclass(frozen=True, slots=True)
class DscpMap:
    """The DSCP number of every class; the defaults are our decision.

    Examples
    --------
    >>> dscp = DscpMap(control=48)
    >>> dscp.value_of(DscpClass.CONTROL), dscp.class_of(16).name, dscp.class_of(63).name
    (48, 'TRIMMED', 'NO_TRIM')
    """

    no_trim: int = 0
    trimmable: int = 8
    trimmable_retx: int = 10
    trimmed: int = 16
    trimmed_lasthop: int = 18
    control: int = 46

    def __post_init__(self) -> None:
        seen: dict[int, str] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 63:
                raise InputError(f"dscp.{field.name}: {value!r} is not a DSCP; use 0..63")
            if value in seen:
                raise InputError(
                    f"dscp.{field.name}: {value} is already {seen[value]}; give every class its own number"
                )
            seen[value] = field.name

    def value_of(self, dscp_class: DscpClass) -> int:
        """Return the DSCP number of a class."""
        return int(getattr(self, dscp_class.name.lower()))

    def class_of(self, dscp: int) -> DscpClass:
        """Return the class of a DSCP number; an unknown number is plain data that may not be trimmed."""
        for dscp_class in DscpClass:
            if self.value_of(dscp_class) == dscp:
                return dscp_class
        return DscpClass.NO_TRIM

    def is_trimmed(self, dscp: int) -> bool:
        """Return whether the number says that the packet was trimmed."""
        return dscp in (self.trimmed, self.trimmed_lasthop)


def default_class(opcode: int, rtx: bool = False) -> DscpClass:
    """Return the class in which a packet of this opcode leaves its sender.

    >>> default_class(Opcode.SACK).name, default_class(Opcode.WRITE_LAST, rtx=True).name
    ('CONTROL', 'TRIMMABLE_RETX')
    """
    if opcode in DATA_OPCODES:
        return DscpClass.TRIMMABLE_RETX if rtx else DscpClass.TRIMMABLE
    if opcode in (Opcode.RELIABILITY_PROBE, Opcode.ENDPOINT_REQUEST):
        return DscpClass.NO_TRIM
    return DscpClass.CONTROL
