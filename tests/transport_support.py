"""Small helpers of the transport tests: one engine without a simulator around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.packed import pack
from openmrc.transport import acks, requestor
from openmrc.transport.evset import fill_plane
from openmrc.transport.settings import NsccSettings, Profile, TransportSettings, make_profile
from openmrc.transport.state import CONTROL, COUNTER_INDEX, State, allocate, open_directions
from openmrc.units import PS_PER_US

US = PS_PER_US
OVERHEAD = 142  # outer IPv6 header to ICRC under SRv6 with TSETH
BASE_RTT_PS = 10 * US
RATE_BPS = 100_000_000_000
FIRST_PSN = 0xFFFFF0  # 16 packets before the wrap
ALL_ROOM = 0xFF


def make(nscc: dict[str, Any] | None = None, *, trimming: bool = True, **changes: Any) -> Profile:
    """Return a profile; `changes` named like a Profile field override it, others are settings."""
    fields = {k: v for k, v in changes.items() if k in Profile._fields}
    settings = {"pmtu": "1024B", "mpr": 1} | {k: v for k, v in changes.items() if k not in fields}
    made = make_profile(
        TransportSettings(nscc=NsccSettings(**(nscc or {})), **settings),
        rate_bps=RATE_BPS,
        base_rtt_ps=BASE_RTT_PS,
        overhead_bytes=OVERHEAD,
        trimming=trimming,
    )
    return made._replace(**fields)


def entropy_of(plane: int, path: int) -> int:
    return plane << 16 | 0xC000 | path


def open_state(
    profile: Profile,
    *,
    directions: int = 1,
    planes: int = 2,
    active: int = 4,
    backups: int = 2,
    first_psn: int = FIRST_PSN,
    depth: int = 16,
    cc_row: list[int] | None = None,
) -> State:
    """Return an engine with `directions` QP directions in RTS; every plane has the same EVs."""
    state = allocate(profile, directions, max(planes * (active + backups), 1), planes, depth)
    first = np.array([(first_psn + 1000 * q) & 0xFFFFFF for q in range(directions)])
    open_directions(state, profile, first, planes, np.array(cc_row or range(directions)))
    for q in range(directions):
        for plane in range(planes):
            entropies = np.array([entropy_of(plane, i) for i in range(active + backups)], np.int64)
            fill_plane(state, q, plane, plane * (active + backups), entropies, active, backups)
            state.rev[q, plane]["entropy"] = entropy_of(plane, 0)
    return state


def control_row() -> Any:
    """Return one CONTROL row that kernels can write to."""
    return np.zeros(1, CONTROL)[0]


def count(state: State, name: str) -> int:
    return int(state.count[COUNTER_INDEX[name]])


class Sender:
    """A requestor half driven by hand: post, send, and answer it with rows made here."""

    def __init__(self, profile: Profile, **options: Any):
        self.profile = profile
        self.pf = pack(profile)
        self.st = open_state(profile, **options)
        self.now = 100 * US
        self.sent: list[dict[str, int]] = []
        self.rcvd = 0
        self.wr_id = 0

    @property
    def req(self) -> Any:
        return self.st.req[0]

    @property
    def cc(self) -> Any:
        return self.st.cc[0]

    def ev(self, row: int) -> Any:
        return self.st.ev[0, row]

    def slot(self, psn: int) -> Any:
        return self.st.ring[0, psn & self.profile.ring_mask]

    def count(self, name: str) -> int:
        return count(self.st, name)

    def post(self, length: int, imm: int = 0) -> bool:
        self.wr_id += 1
        return bool(requestor.post(self.st, self.pf, 0, self.now, length, imm, self.wr_id))

    def select(self, room: int = ALL_ROOM) -> tuple[int, ...]:
        return tuple(int(x) for x in requestor.select(self.st, self.pf, 0, self.now, room))

    def send(self, room: int = ALL_ROOM, tx_ps: int | None = None) -> dict[str, int] | None:
        """Send one packet if select allows; returns what it carries."""
        verdict, psn, row, size, position = self.select(room)
        if verdict != requestor.SEND:
            return None
        tx_ps = self.now if tx_ps is None else tx_ps
        flags = int(requestor.commit(self.st, self.pf, 0, psn, row, size, position, tx_ps))
        packet = {
            "psn": psn,
            "row": row,
            "size": size,
            "flags": flags,
            "tx_ps": tx_ps,
            "entropy": int(self.ev(row)["entropy"]),
            "stamp": int(acks.stamp_of(tx_ps)),
            "position": position,
        }
        self.sent.append(packet)
        return packet

    def send_all(self, step_ps: int = 0, limit: int = 10_000) -> list[dict[str, int]]:
        """Send until select refuses, `step_ps` apart."""
        packets = []
        while len(packets) < limit:
            packet = self.send()
            if packet is None:
                break
            packets.append(packet)
            self.now += step_ps
        return packets

    def sack(self, trigger: dict[str, int], cack: int, *received: int, offset: int = 1, **more: int) -> bool:
        """Hand in a SACK drawn by packet `trigger`; `received` are PSNs inside the bitmap."""
        row = control_row()
        bitmap = 0
        for psn in received:
            bit = (psn - cack - offset) & 0xFFFFFF
            assert bit < 64
            bitmap |= 1 << bit
        self.rcvd += 8
        fields = {
            "psn": cack,
            "trigger_psn": trigger["psn"],
            "entropy": trigger["entropy"],
            "tx_stamp": trigger["stamp"],
            "sack_offset": offset,
            "rcvd": self.rcvd,
        } | more
        for name, value in fields.items():
            row[name] = value
        row["bitmap"] = np.uint64(bitmap)
        return bool(acks.on_sack(self.st, self.pf, 0, self.now, row, 0, False))

    def nack(self, packet: dict[str, int], reason: int, **more: int) -> bool:
        row = control_row()
        fields = {
            "psn": packet["psn"],
            "reason": reason,
            "entropy": packet["entropy"],
            "tx_stamp": packet["stamp"],
        } | more
        for name, value in fields.items():
            row[name] = value
        return bool(acks.on_nack(self.st, self.pf, 0, self.now, row))

    def ack(self, cack: int, msn: int, syndrome: int = acks.SYNDROME_ACK) -> int:
        row = control_row()
        row["psn"], row["msn"], row["reason"] = cack, msn & 0xFFFF, syndrome
        return int(acks.on_transport_ack(self.st, self.pf, 0, self.now, row))


def run_python(code: str, *, jit: bool) -> str:
    """Run `code` in a fresh interpreter, compiled or not, and return what it prints."""
    root = Path(__file__).parent
    env = dict(os.environ)
    env["NUMBA_DISABLE_JIT"] = "0" if jit else "1"
    env["PYTHONPATH"] = os.pathsep.join([str(root), str(root.parent / "src"), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
