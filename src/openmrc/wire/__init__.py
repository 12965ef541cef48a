"""Bytes to fields and back: headers, whole packets, ICRC, trimming, sizes, capture files.

One file per header family; :mod:`openmrc.wire.packet` puts them together.

>>> from openmrc.wire import Bth, Meth, Mode, Opcode, Reth, build_packet, parse_ip_packet
>>> data = build_packet(Mode.ECMP, Bth(opcode=Opcode.WRITE_ONLY, dest_qp=7, psn=1), Meth(msn=3),
...     Reth(dma_length=5), payload=b"hello", source=bytes(15) + b"1", destination=bytes(15) + b"2",
...     entropy=0x3C005)
>>> packet = parse_ip_packet(data)
>>> packet.opcode.label, packet.meth.msn, packet.payload, packet.icrc.value
('WRITE Only', 3, b'hello', 'ok')
"""

from openmrc.wire.aeth import Aeth, Syndrome
from openmrc.wire.bth import ENDPOINT_QP, Bth
from openmrc.wire.counters import WireCounters
from openmrc.wire.dscp import DscpClass, DscpMap, Ecn, default_class
from openmrc.wire.endpoint import Eeth, EndpointOp, Erth
from openmrc.wire.entropy import entropy_to_fields, fields_to_entropy
from openmrc.wire.ethernet import Ethernet
from openmrc.wire.icrc import IcrcVerdict, append_icrc, compute_icrc, verify_icrc
from openmrc.wire.ipv4 import IPv4
from openmrc.wire.ipv6 import IPv6
from openmrc.wire.meth import Meth, Tseth, timestamp_of
from openmrc.wire.neth import NackReason, Neth
from openmrc.wire.opcodes import Opcode
from openmrc.wire.packet import Oddity, Packet, build_packet, parse_ip_packet, parse_packet
from openmrc.wire.pcap import PcapReader, PcapRecord, PcapWriter
from openmrc.wire.peth import Peth
from openmrc.wire.reth import ImmDt, Reth
from openmrc.wire.seth import CcState, PathMark, Seth
from openmrc.wire.settings import Mode, WireSettings
from openmrc.wire.sizes import PacketKind, ceiling_bps, ip_bytes, line_bytes
from openmrc.wire.trim import trim_frame, trim_ip_packet
from openmrc.wire.tunnel import decapsulate, encapsulate
from openmrc.wire.udp import Udp
from openmrc.wire.usid import address_usids, shift_usid, usid_address

__all__ = [
    "ENDPOINT_QP",
    "Aeth",
    "Bth",
    "CcState",
    "DscpClass",
    "DscpMap",
    "Ecn",
    "Eeth",
    "EndpointOp",
    "Erth",
    "Ethernet",
    "IPv4",
    "IPv6",
    "IcrcVerdict",
    "ImmDt",
    "Meth",
    "Mode",
    "NackReason",
    "Neth",
    "Oddity",
    "Opcode",
    "Packet",
    "PacketKind",
    "PathMark",
    "PcapReader",
    "PcapRecord",
    "PcapWriter",
    "Peth",
    "Reth",
    "Seth",
    "Syndrome",
    "Tseth",
    "Udp",
    "WireCounters",
    "WireSettings",
    "address_usids",
    "append_icrc",
    "build_packet",
    "ceiling_bps",
    "compute_icrc",
    "decapsulate",
    "default_class",
    "encapsulate",
    "entropy_to_fields",
    "fields_to_entropy",
    "ip_bytes",
    "line_bytes",
    "parse_ip_packet",
    "parse_packet",
    "shift_usid",
    "timestamp_of",
    "trim_frame",
    "trim_ip_packet",
    "usid_address",
    "verify_icrc",
]
