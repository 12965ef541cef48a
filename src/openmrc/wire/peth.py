"""PETH: the reliability probe, which asks for a SACK on one path."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.wire.layout import Header


@dataclass(frozen=True, slots=True)
class Peth(Header):
    """Reliability probe, 16 bytes. The answer is a SACK with pr = 1 that carries ``probe_id``.

    >>> Peth(vendor_info=1, probe_id=48879, source_qpn16=5, dest_qpn16=6).to_bytes().hex()
    '00000001beef00000005000600000001'
    """

    NAME = "PETH"
    LAYOUT = (
        "type:4 next:5 -:7 -:8 vendor_info:8 probe_id:16 -:16 source_qpn16:16 dest_qpn16:16 "
        "tx_timestamp:16 tsr:1 -:11 ftype:4"
    )
    type: int = 0
    next: int = 0
    vendor_info: int = 0
    probe_id: int = 0
    source_qpn16: int = 0
    dest_qpn16: int = 0
    tx_timestamp: int = 0
    tsr: int = 0
    ftype: int = 1
