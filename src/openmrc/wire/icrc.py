"""ICRC: the invariant CRC over the inner packet (RoCEv2, IBTA Annex A17).

CRC-32 with the Ethernet polynomial over 8 bytes of 0xFF and the packet from its (inner) IP header
on, with the fields that may change on the way masked to ones, pad bytes included. Appended least
significant byte first. It survives ECN marking, SRv6 shifting and decapsulation.
"""

from __future__ import annotations

import zlib
from enum import Enum

from openmrc.errors import WireError

ICRC_BYTES = 4
_LRH_MASK = b"\xff" * 8  # stands for InfiniBand's local route header
_UDP_AND_BTH_BYTES = 8 + 12


class IcrcVerdict(Enum):
    """What the ICRC of a packet says; a trimmed packet carries none."""

    OK = "ok"
    BAD = "bad"
    ABSENT = "absent"


def _masked_head(packet: bytes) -> tuple[bytes, int]:
    """Return the masked bytes through BTH, and the offset behind them."""
    version = packet[0] >> 4 if packet else 0
    ip_bytes = {6: 40, 4: 20}.get(version, 0)
    if not ip_bytes:
        raise WireError(f"ICRC: starts with IP version {version}; give the packet from its IP header on")
    bth = ip_bytes + 8
    end = ip_bytes + _UDP_AND_BTH_BYTES
    if len(packet) < end:
        raise WireError(f"ICRC: {len(packet)} bytes end before BTH does; {end} are needed")
    if version == 6:
        # traffic class and flow label, hop limit
        ip = bytes((packet[0] | 0x0F,)) + b"\xff\xff\xff" + packet[4:7] + b"\xff" + packet[8:40]
    else:
        # TOS; TTL; header checksum
        ip = packet[0:1] + b"\xff" + packet[2:8] + b"\xff" + packet[9:10] + b"\xff\xff" + packet[12:20]
    udp = packet[ip_bytes : ip_bytes + 6] + b"\xff\xff"
    masked_bth = packet[bth : bth + 4] + b"\xff" + packet[bth + 5 : end]
    return _LRH_MASK + ip + udp + masked_bth, end


def compute_icrc(packet: bytes) -> bytes:
    """Return the 4 ICRC bytes to append to ``packet``.

    Parameters
    ----------
    packet
        The inner packet from its IP header on, pad included, without ICRC.

    Raises
    ------
    WireError
        The packet is not IP or ends before BTH does.

    Examples
    --------
    >>> ip = bytes.fromhex("60012345" "00181140" "fd" + "00" * 14 + "01" + "fd" + "00" * 14 + "02")
    >>> compute_icrc(ip + bytes.fromhex("c00012b7001800000a00ffff0000012380000000")).hex()
    '771683e0'
    """
    head, offset = _masked_head(packet)
    return zlib.crc32(memoryview(packet)[offset:], zlib.crc32(head)).to_bytes(ICRC_BYTES, "little")


def append_icrc(packet: bytes) -> bytes:
    """Return ``packet`` with its ICRC behind it."""
    return packet + compute_icrc(packet)


def verify_icrc(packet: bytes) -> bool:
    """Return whether the last 4 bytes of ``packet`` (from its IP header on) are its ICRC.

    Link-layer padding must have been cut off before.
    """
    return len(packet) > ICRC_BYTES and compute_icrc(packet[:-ICRC_BYTES]) == packet[-ICRC_BYTES:]
