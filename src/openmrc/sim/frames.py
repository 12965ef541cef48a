"""Simulated packets as real bytes: a trace row in, an Ethernet frame out.

What a simulated packet does not carry is made up from its number, so that it can be checked:

- payload: every 8 bytes are the flow's number and the offset in the message, 32 bits each
  (:func:`pattern`); the immediate is the flow's number;
- memory: the region of flow f starts at address (f + 1) << 32 and has R_Key 0x1000 + f;
- QP numbers: 0x100 + the number of the QP direction, the same at both ends;
- MAC addresses: 02, role and plane, number (:func:`mac_of`), so a frame tells the link it is on.

Everything else is the simulator's: PSN, MSN, marks, stamps, the content of every SACK, the address
shifted by each switch passed, what trimming left.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from openmrc import psn as serial
from openmrc.fabric import paths
from openmrc.fabric.address import Role, nic_address, usid_address
from openmrc.fabric.paths import plain
from openmrc.fabric.wiring import T2_BITS
from openmrc.sim.build import Model
from openmrc.sim.layout import (
    HOP_MASK,
    HOP_SHIFT,
    P_ASK,
    P_CE,
    P_CONTROL,
    P_DAMAGED,
    P_RTX,
    P_TRIM_SHIFT,
    P_TRIMMED,
    P_TRIMMED_LASTHOP,
    PATH_MASK,
    PATH_SHIFT,
    REVERSE,
    SEQ_MASK,
    SEQ_SHIFT,
    SIZE_MASK,
    SIZE_SHIFT,
)
from openmrc.transport.state import (
    CONTROL,
    CTRL_ACK,
    CTRL_EV_PROBE,
    CTRL_NACK,
    CTRL_PORT_STATUS,
    CTRL_PROBE,
    CTRL_RESPONSE,
    CTRL_SACK,
)
from openmrc.wire import (
    ENDPOINT_QP,
    Aeth,
    Bth,
    CcState,
    Ecn,
    Eeth,
    EndpointOp,
    Erth,
    Ethernet,
    Meth,
    Mode,
    Neth,
    Opcode,
    Peth,
    Reth,
    Seth,
    Tseth,
    build_packet,
    shift_usid,
    timestamp_of,
    trim_frame,
)
from openmrc.wire.icrc import ICRC_BYTES
from openmrc.wire.layout import Header
from openmrc.wire.reth import ImmDt
from openmrc.wire.seth import signed16
from openmrc.wire.trim import with_traffic_class

FIRST_QPN = 0x100
FIRST_R_KEY = 0x1000
REGION_SHIFT = 32
HOP_LIMIT = 64
NIC_ROLE = 0xF  # in MAC addresses, where switches have their fabric.address.Role
_HOP_LIMIT_AT = Ethernet.SIZE + 7  # of the outermost IPv6 header
_CARRIER_AT = Ethernet.SIZE + 24  # its destination
FRAMES_KEPT = 4096
#: transmissions of a QP that are remembered, in send rings: more than can be under way at once
REMEMBERED_RINGS = 16

ev_encode, ev_plane = plain(paths.ev_encode), plain(paths.ev_plane)
path_plane, path_uplink_of = plain(paths.path_plane), plain(paths.path_uplink_of)
psn_diff = plain(serial.psn_diff)


class Sent(NamedTuple):
    """What the sender of a data packet knew."""

    node: int
    index: int
    msn: int
    rqmsn: int
    tx_ps: int
    path: int
    rtx: bool


def qpn_of(q: int) -> int:
    """Return the QP number that stands for QP direction ``q``."""
    return (FIRST_QPN + q) & 0xFFFFFF


def pattern(flow: int, offset: int, size: int) -> bytes:
    """Return ``size`` payload bytes of a flow from ``offset`` of its message on.

    >>> pattern(3, 8, 12).hex()
    '000000030000000800000003'
    """
    first, end = offset // 8, -(-(offset + size) // 8)
    words = np.empty((end - first, 2), ">u4")
    words[:, 0] = flow & 0xFFFFFFFF
    words[:, 1] = np.arange(first, end, dtype=np.uint32) * 8
    return words.tobytes()[offset - 8 * first :][:size]


def mac_of(role: int, plane: int, number: int) -> bytes:
    """Return the MAC address (locally administered) of a switch or NIC port.

    >>> mac_of(Role.T1, 3, 7).hex(":"), mac_of(NIC_ROLE, 3, 12).hex(":")
    ('02:23:00:00:00:07', '02:f3:00:00:00:0c')
    """
    return bytes((2, role << 4 | plane)) + number.to_bytes(4, "big")


def hop_of(w1: int) -> int:
    """Return how many links a traced packet has behind it."""
    return w1 >> HOP_SHIFT & HOP_MASK


class FrameBuilder:
    """Turn trace rows into frames, in order of time: a packet's first row tells what later ones need."""

    def __init__(self, model: Model):
        self.model = model
        self.topology = model.topology
        transport = model.scenario.transport
        self.mode = Mode(transport.mode)
        self.tseth = transport.tseth
        self.pmtu = model.profile.pmtu_bytes
        self.trim_bytes = model.scenario.switch.trim_bytes
        self._overhead = Ethernet.SIZE + model.config.data_ip_overhead
        route = model.sim.route
        self.src, self.dst, self.hops = (route[name].tolist() for name in ("src", "dst", "hops"))
        graph = model.graph
        self.flow_of_node = np.full(graph.n_nodes, -1, np.int64)
        self.flow_of_node[graph.messages] = np.arange(len(graph.messages))
        self._sent: dict[int, dict[int, list[Sent]]] = {}
        self._most = REMEMBERED_RINGS * (model.profile.ring_mask + 1)
        self._request_stamp: dict[tuple[int, bool, int, int], int] = {}
        self._carrier = lru_cache(1 << 16)(self._make_carrier)
        self._mac = lru_cache(1 << 16)(self._make_mac)
        # a packet is seen at several places, and building it is what takes time
        self._data_frame = lru_cache(FRAMES_KEPT)(self._make_data_frame)
        self._control_frame = lru_cache(FRAMES_KEPT)(self._make_control_frame)

    # --- what the first row of a packet tells -----------------------------------------------
    def observe(self, row: Any, content: Any) -> None:
        """Note what the row of a packet that leaves its NIC tells about it; rows come in order of time."""
        w1, now = int(row["w1"]), int(row["time_ps"])
        seq = w1 >> SEQ_SHIFT & SEQ_MASK
        if w1 & P_CONTROL:
            kind = int(content["kind"])
            if kind in _OPS:
                key = (int(row["q"]), bool(w1 & REVERSE), kind, int(content["probe_id"]) & 0xFFFF)
                self._request_stamp[key] = timestamp_of(now)
            return
        path, rtx = w1 >> PATH_SHIFT & PATH_MASK, bool(w1 & P_RTX)
        sent = Sent(int(row["node"]), int(row["index"]), int(row["msn"]), int(row["rqmsn"]), now, path, rtx)
        of_qp = self._sent.setdefault(int(row["q"]), {})
        if rtx:
            of_qp.setdefault(seq, []).append(sent)
            return
        of_qp.pop(seq, None)  # 2^24 packets later the PSN is another packet's, and the newest
        of_qp[seq] = [sent]
        if len(of_qp) > self._most:
            del of_qp[next(iter(of_qp))]

    def find(self, row: Any) -> Sent:
        """Return what the sender of a data packet knew: its newest transmission on this path until now."""
        w1 = int(row["w1"])
        path = w1 >> PATH_SHIFT & PATH_MASK
        rtx, now = bool(w1 & P_RTX), int(row["time_ps"])
        hashed = self.mode is Mode.ECMP  # a switch has replaced the entropy by the uplink it chose
        for sent in reversed(self._sent[int(row["q"])][w1 >> SEQ_SHIFT & SEQ_MASK]):
            same = path_plane(sent.path) == path_plane(path) if hashed else sent.path == path
            if same and sent.rtx == rtx and sent.tx_ps <= now:
                return sent
        raise AssertionError("a packet on a link was sent before")

    # --- addresses --------------------------------------------------------------------------
    def _make_carrier(self, src: int, dst: int, entropy: int, hop: int) -> bytes:
        if hop:
            return shift_usid(self._carrier(src, dst, entropy, hop - 1))
        return usid_address(self.topology, src, dst, entropy).packed

    def _make_mac(self, src: int, dst: int, plane: int, uplink: int, hops: int, place: int) -> bytes:
        """Return the MAC address of the place-th node of a path: 0 the sender, `hops` the receiver."""
        t, p = self.topology, self.topology.params
        if place in (0, hops):
            return mac_of(NIC_ROLE, plane, dst if place else src)
        if place in (1, hops - 1):
            return mac_of(Role.T0, plane, t.t0_of(src if place == 1 else dst))
        u, v = (uplink, 0) if p.tiers == 2 else (uplink >> T2_BITS, uplink & (1 << T2_BITS) - 1)
        if place == 3:  # of 6 hops
            return mac_of(Role.T2, plane, u * p.t1_uplinks + v)
        return mac_of(Role.T1, plane, t.t1_above(t.t0_of(src if place == 2 else dst), u))

    # --- frames -----------------------------------------------------------------------------
    def frame(self, row: Any, content: Any) -> bytes:
        """Return the frame of a trace row; ``content`` says what it says if it is a control packet."""
        q, w1 = int(row["q"]), int(row["w1"])
        if w1 & P_CONTROL:
            as_sent, entropy = self._control_frame(q, bool(w1 & REVERSE), content.tobytes())
            return self._on_link(q, w1, entropy, as_sent)
        sent = self.find(row)
        as_sent, entropy = self._data_frame(q, w1 >> SEQ_SHIFT & SEQ_MASK, bool(w1 & P_ASK), sent)
        words = w1 >> SIZE_SHIFT & SIZE_MASK
        assert len(as_sent) == self._overhead + 4 * words, "the simulator's packet has another size"
        return self._changed_by_switches(w1, self._on_link(q, w1, entropy, as_sent))

    def _on_link(self, q: int, w1: int, entropy: int, as_sent: bytes) -> bytes:
        """Return a frame as it is on the link of this row; at a NIC, on the last one."""
        src, dst = self._ends(q, bool(w1 & REVERSE))
        hops = self.hops[q]
        link = min(hop_of(w1), hops - 1)
        path = w1 >> PATH_SHIFT & PATH_MASK
        plane, uplink = path_plane(path), path_uplink_of(path)
        to, by = (self._mac(src, dst, plane, uplink, hops, place) for place in (link + 1, link))
        head = as_sent[len(to) + len(by) : _HOP_LIMIT_AT] + bytes((HOP_LIMIT - link,))
        if self.mode is not Mode.SRV6:
            return to + by + head + as_sent[_HOP_LIMIT_AT + 1 :]
        outer_source = as_sent[_HOP_LIMIT_AT + 1 : _CARRIER_AT]
        carrier = self._carrier(src, dst, entropy, link)
        return to + by + head + outer_source + carrier + as_sent[_CARRIER_AT + len(carrier) :]

    def _ends(self, q: int, reverse: bool) -> tuple[int, int]:
        return (self.dst[q], self.src[q]) if reverse else (self.src[q], self.dst[q])

    def _changed_by_switches(self, w1: int, frame: bytes) -> bytes:
        if w1 & P_CE:
            frame = frame[: Ethernet.SIZE] + with_traffic_class(frame[Ethernet.SIZE :], ecn=Ecn.CE)
        trim = w1 >> P_TRIM_SHIFT & 3
        if trim in (P_TRIMMED, P_TRIMMED_LASTHOP):
            return trim_frame(frame, self.trim_bytes, last_hop=trim == P_TRIMMED_LASTHOP)
        if trim == P_DAMAGED:  # one bit of the last byte before the ICRC
            at = len(frame) - ICRC_BYTES - 1
            frame = frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :]
        return frame

    def _build(
        self, src: int, dst: int, entropy: int, bth: Bth, extensions: tuple[Header, ...], payload: bytes = b""
    ) -> bytes:
        """Return a frame with its ICRC; MAC addresses are those of nobody yet."""
        srv6 = self.mode is Mode.SRV6
        source, destination = nic_address(self.topology, src).packed, nic_address(self.topology, dst).packed
        return build_packet(
            self.mode,
            bth,
            *extensions,
            source=source,
            destination=destination,
            entropy=entropy,
            payload=payload,
            outer_source=nic_address(self.topology, src, ev_plane(entropy)).packed if srv6 else None,
            outer_destination=self._carrier(src, dst, entropy, 0) if srv6 else None,
            hop_limit=HOP_LIMIT,
            eth=Ethernet(),
        )

    def _make_data_frame(self, q: int, psn: int, ask: bool, sent: Sent) -> tuple[bytes, int]:
        """Return a data packet as its NIC made it, and its entropy."""
        graph = self.model.graph
        length, flow = int(graph.size_bytes[sent.node]), int(self.flow_of_node[sent.node])
        offset = sent.index * self.pmtu
        size = min(length - offset, self.pmtu)
        first, last = sent.index == 0, offset + self.pmtu >= length
        imm = last and bool(graph.imm[sent.node])
        bth = Bth(
            opcode=_data_opcode(first, last, imm),
            dest_qp=qpn_of(q),
            ack_request=int(ask),
            rtx=int(sent.rtx),
            ts=int(self.tseth),
            psn=psn,
        )
        headers: list[Header] = [Meth(rqmsn=sent.rqmsn, msn=sent.msn)]
        if self.tseth:
            headers.append(Tseth(tx_timestamp=timestamp_of(sent.tx_ps)))
        va = (flow + 1 << REGION_SHIFT) + offset
        headers.append(Reth(va=va, r_key=(FIRST_R_KEY + flow) & 0xFFFFFFFF, dma_length=length))
        if imm:
            headers.append(ImmDt(flow & 0xFFFFFFFF))
        entropy = ev_encode(path_plane(sent.path), path_uplink_of(sent.path))
        payload = pattern(flow, offset, size)
        return self._build(self.src[q], self.dst[q], entropy, bth, tuple(headers), payload), entropy

    def _make_control_frame(self, q: int, reverse: bool, content_bytes: bytes) -> tuple[bytes, int]:
        """Return a control packet as its NIC made it, and its entropy."""
        content = np.frombuffer(content_bytes, CONTROL)[0]
        bth, extensions = self._control(q, reverse, content)
        src, dst = self._ends(q, reverse)
        entropy = int(content["path"])
        return self._build(src, dst, entropy, bth, extensions), entropy

    def _control(self, q: int, reverse: bool, content: Any) -> tuple[Bth, tuple[Header, ...]]:
        kind, qpn, psn = int(content["kind"]), qpn_of(q), int(content["psn"])
        qpn16 = qpn & 0xFFFF
        stamp = int(content["tx_stamp"]) & 0xFFFF
        if kind == CTRL_SACK:
            return Bth(opcode=Opcode.SACK, dest_qp=qpn, psn=psn), _sack(content, qpn16)
        if kind == CTRL_ACK:
            ack = Aeth(int(content["reason"]), int(content["msn"]))
            return Bth(opcode=Opcode.TRANSPORT_ACK, dest_qp=qpn, psn=psn), (ack,)
        if kind == CTRL_NACK:
            nack = Neth(
                reason=int(content["reason"]),
                entropy=int(content["entropy"]),
                source_qpn16=qpn16,
                dest_qpn16=qpn16,
                nack_psn=psn,
                tx_timestamp=stamp,
            )
            return Bth(opcode=Opcode.NACK, dest_qp=qpn, psn=psn), (nack,)
        if kind == CTRL_PROBE:
            number = int(content["probe_id"])
            probe = Peth(probe_id=number, source_qpn16=qpn16, dest_qpn16=qpn16, tx_timestamp=stamp)
            return Bth(opcode=Opcode.RELIABILITY_PROBE, dest_qp=qpn), (probe,)
        return self._endpoint(q, content, kind, reverse)

    def _endpoint(self, q: int, content: Any, kind: int, reverse: bool) -> tuple[Bth, tuple[Header, ...]]:
        """Endpoint requests carry when they were sent; a response echoes it."""
        number = int(content["probe_id"]) & 0xFFFF
        if kind == CTRL_RESPONSE:
            asked = int(content["reason"])
            stamp = self._request_stamp[q, not reverse, asked, number]
            bth = Bth(opcode=Opcode.ENDPOINT_RESPONSE, dest_qp=ENDPOINT_QP, psn=number)
            return bth, (Eeth(op=_OPS[asked], tx_timestamp=stamp),)
        stamp = self._request_stamp[q, reverse, kind, number]
        mask = int(content["mask"]) & 0xFF if kind == CTRL_PORT_STATUS else 0
        bth = Bth(opcode=Opcode.ENDPOINT_REQUEST, dest_qp=ENDPOINT_QP, psn=number)
        return bth, (Erth(op=_OPS[kind], port_status_mask=mask, tx_timestamp=stamp),)


_OPS = {CTRL_PORT_STATUS: EndpointOp.PORT_STATUS, CTRL_EV_PROBE: EndpointOp.EV_PROBE}


def _data_opcode(first: bool, last: bool, imm: bool) -> Opcode:
    if first and last:
        return Opcode.WRITE_ONLY_IMM if imm else Opcode.WRITE_ONLY
    if last:
        return Opcode.WRITE_LAST_IMM if imm else Opcode.WRITE_LAST
    return Opcode.WRITE_FIRST if first else Opcode.WRITE_MIDDLE


def _sack(content: Any, qpn16: int) -> tuple[Header, ...]:
    """Return SETH and CC_STATE of a SACK's content."""
    cack = int(content["psn"])
    drawn_by = int(content["probe_id"]) if content["pr"] else psn_diff(int(content["trigger_psn"]), cack)
    seth = Seth(
        m=int(content["m"]),
        pr=int(content["pr"]),
        ack_psn_offset=signed16(drawn_by),
        entropy=int(content["entropy"]),
        source_qpn16=qpn16,
        dest_qpn16=qpn16,
        cack_psn=cack,
        cc_flags=int(content["delayed"]),
        mpr=int(content["mpr"]),
        sack_offset=int(content["sack_offset"]),
        bitmap=int(content["bitmap"]),
    )
    state = CcState(
        tx_timestamp=int(content["tx_stamp"]) & 0xFFFF,
        ooo_count=int(content["ooo"]),
        rcvd_bytes_256=int(content["rcvd"]),
    )
    return seth, state
