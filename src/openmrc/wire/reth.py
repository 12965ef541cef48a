"""RETH and ImmDt: where the payload of a data packet belongs, and the immediate of a WRITE_IMM."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.wire.layout import Header


@dataclass(frozen=True, slots=True)
class Reth(Header):
    """RDMA header, in *every* data packet: address of this payload, R_Key, length of the whole message.

    >>> Reth(va=0x7F00123456789ABC, r_key=0xDEADBEEF, dma_length=1 << 31).to_bytes().hex()
    '7f00123456789abcdeadbeef80000000'
    """

    NAME = "RETH"
    LAYOUT = "va:64 r_key:32 dma_length:32"
    va: int = 0
    r_key: int = 0
    dma_length: int = 0


@dataclass(frozen=True, slots=True)
class ImmDt(Header):
    """Immediate data, on the last packet of a WRITE_IMM.

    >>> ImmDt(7).to_bytes().hex()
    '00000007'
    """

    NAME = "ImmDt"
    LAYOUT = "imm:32"
    imm: int = 0
