"""BTH, the base transport header, with MRC's use of byte 8 (docs/reference/wire.md)."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.wire.layout import Header

ENDPOINT_QP = 2  # endpoint operations are connectionless: dest QP 0x2
DEFAULT_PKEY = 0xFFFF


@dataclass(frozen=True, slots=True)
class Bth(Header):
    """Base transport header, 12 bytes.

    Attributes
    ----------
    opcode
        See :class:`openmrc.wire.opcodes.Opcode`.
    se, m, pad, tver
        Solicited event, migration state, pad bytes behind the payload, version; IBTA order (decision).
    pkey, dest_qp
        Partition key and destination queue pair (24 bit).
    ack_request, rtx, ts
        A bit; retransmission; TSETH present.
    psn
        Packet sequence number (24 bit). In endpoint operations its low half is the request id.

    >>> Bth(opcode=0xCA, dest_qp=0x123, ack_request=1, psn=0xFFFFFE, m=1).to_bytes().hex()
    'ca40ffff0000012380fffffe'
    """

    NAME = "BTH"
    LAYOUT = "opcode:8 se:1 m:1 pad:2 tver:4 pkey:16 -:8 dest_qp:24 ack_request:1 -:1 rtx:1 ts:1 -:4 psn:24"
    opcode: int = 0
    se: int = 0
    m: int = 0
    pad: int = 0
    tver: int = 0
    pkey: int = DEFAULT_PKEY
    dest_qp: int = 0
    ack_request: int = 0
    rtx: int = 0
    ts: int = 0
    psn: int = 0
