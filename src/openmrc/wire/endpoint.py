"""ERTH and EETH: endpoint operations (port status, EV probe), connectionless on QP 2."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from openmrc.wire.layout import Header


class EndpointOp(IntEnum):
    """What an endpoint request asks."""

    PORT_STATUS = 0
    EV_PROBE = 1


@dataclass(frozen=True, slots=True)
class Erth(Header):
    """Endpoint request, 16 bytes; bit p of ``port_status_mask`` = 1: port p is usable.

    >>> Erth(op=EndpointOp.EV_PROBE, tx_timestamp=30583).to_bytes().hex()
    '00010000000000000000000077770001'
    """

    NAME = "ERTH"
    LAYOUT = (
        "type:4 next:5 -:5 op:2 -:8 vendor_info:8 port_status_mask:32 -:32 tx_timestamp:16 tsr:1 -:11 ftype:4"
    )
    type: int = 0
    next: int = 0
    op: int = 0
    vendor_info: int = 0
    port_status_mask: int = 0
    tx_timestamp: int = 0
    tsr: int = 0
    ftype: int = 1


@dataclass(frozen=True, slots=True)
class Eeth(Header):
    """Endpoint response, 36 bytes; echoes the request's timestamp.

    ``op`` stands in bits 3:2 of byte 1 (decision: majority reading). What fills the other bytes is
    not known to us: written as 0, ignored when read.

    >>> Eeth(op=EndpointOp.EV_PROBE, tx_timestamp=0x7777).to_bytes()[:2].hex()
    '0004'
    """

    NAME = "EETH"
    LAYOUT = "type:4 next:5 -:3 op:2 -:2 -:208 tx_timestamp:16 -:48"
    type: int = 0
    next: int = 0
    op: int = 0
    tx_timestamp: int = 0
