"""Parser fuzz: hostile bytes raise nothing but WireError; statistics show that each class occurred.

Half of the inputs are valid packets with 1-3 bytes mutated, the ICRC repaired in half of those; the
others are noise, truncations, splices and noise behind a valid head.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from openmrc.errors import WireError
from openmrc.wire import Mode, Oddity, Opcode, WireCounters, parse_ip_packet, parse_packet, trim_frame
from openmrc.wire.describe import packet_to_dict, packet_to_line
from openmrc.wire.icrc import compute_icrc
from wire_support import inner_span, sample

#: what the parser can complain about; each must occur
COMPLAINTS = {
    "Ethernet at byte", "Ethernet.ethertype", "VLAN tag at byte", "IP at byte", "IP next header",
    "inner IP at byte", "IPv6 at byte", "IPv4 at byte", "IPv4.checksum", "IPv4.fragment_offset",
    "IPv4.ihl at byte", "UDP at byte", "UDP.length", "UDP.destination_port", "BTH at byte", "BTH.opcode",
    "BTH.pad", "METH at byte", "RETH at byte", "CC_STATE at byte", "SETH at byte", "SACK", "Transport ACK",
    "WRITE First",
}  # fmt: skip


Base = tuple[bytes, int, int]


def base_frames(rng: random.Random) -> list[list[Base]]:
    """Valid frames of every kind, one list per opcode, with where the inner packet starts and ends."""
    groups: list[list[Base]] = []
    for opcode in Opcode:
        found: list[Base] = []
        groups.append(found)
        for mode in Mode:
            for ipv4 in {False, mode is Mode.ECMP}:
                for payload_bytes in {0, rng.randrange(1, 40), 256} if opcode.is_data else {0}:
                    payload = rng.randbytes(payload_bytes)
                    frame = sample(opcode, mode, payload, ts=rng.getrandbits(1), rng=rng, ipv4=ipv4)
                    found.append((frame, *inner_span(parse_packet(frame), frame)))
                    if opcode.is_data:
                        found.append((trim_frame(frame, rng.choice([128, 138])), 0, 0))
    return groups


def pick(rng: random.Random, groups: list[list[Base]]) -> Base:
    """Every opcode is equally likely, so that rare layouts are met often enough."""
    return rng.choice(rng.choice(groups))


def mutated(rng: random.Random, base: Base) -> tuple[str, bytes]:
    frame, start, end = base
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        # headers are where parsing decides; a third of the hits fall on the first 100 bytes behind Ethernet
        at = rng.randrange(len(data)) if rng.random() < 0.66 else min(14 + rng.randrange(100), len(data) - 1)
        data[at] = rng.getrandbits(8)
    if end and rng.getrandbits(1):
        version = data[start] >> 4
        if version == 6 or (version == 4 and end - start >= 44):
            try:
                data[end - 4 : end] = compute_icrc(bytes(data[start : end - 4]))
            except WireError:
                return "mutated", bytes(data)
            return "repaired", bytes(data)
    return "mutated", bytes(data)


def hostile(rng: random.Random, bases: list[list[Base]]) -> tuple[str, bytes]:
    kind = rng.randrange(5)
    frame = pick(rng, bases)[0]
    cut = rng.randrange(len(frame))
    if kind == 0:
        return "noise", rng.randbytes(rng.randrange(200))
    if kind == 1:
        return "truncated", frame[:cut]
    if kind == 2:
        return "noise behind a head", frame[:cut] + rng.randbytes(rng.randrange(100))
    if kind == 3:
        return "splice", frame[:cut] + pick(rng, bases)[0][cut:]
    # cut short with lengths that agree, so that the headers behind UDP run out of bytes
    return "shortened", shortened(frame, rng)


def shortened(frame: bytes, rng: random.Random) -> bytes:
    """A frame without outer header, or with tags, whose IP and UDP lengths were made to fit a cut."""
    if rng.random() < 0.2:
        return (frame[:12] + bytes.fromhex("8100000181000002"))[: rng.randrange(14, 21)]
    if frame[14] >> 4 != 6 or frame[20] != 17 or len(frame) < 80:
        return frame[: rng.randrange(len(frame))]
    size = 54 + 4 * rng.randrange(15)
    data = bytearray(frame[: min(size, len(frame))])
    length = (len(data) - 54).to_bytes(2, "big")
    data[18:20] = length
    data[58:60] = length[: max(len(data) - 58, 0)]
    return bytes(data)


def complaint(error: WireError) -> str:
    return re.sub(r"( \d+.*|:.*)", "", str(error))


def fuzz(count: int, seed: int) -> tuple[Counter, Counter, WireCounters, set]:
    rng = random.Random(seed)
    bases = base_frames(rng)
    kinds: Counter = Counter()
    complaints: Counter = Counter()
    counters = WireCounters()
    verdicts = set()
    for number in range(count):
        kind, data = mutated(rng, pick(rng, bases)) if number % 2 else hostile(rng, bases)
        kinds[kind] += 1
        try:
            packet = parse_packet(data)
            if number % 64 == 1:
                # whoever reads a packet must be able to show it and to build it anew
                assert packet_to_line(packet)
                assert packet_to_dict(packet)["icrc"] == packet.icrc.value
                again = parse_packet(packet.to_bytes())
                assert (again.bth.psn, again.payload, again.reth) == (
                    packet.bth.psn,
                    packet.payload,
                    packet.reth,
                )
        except WireError as error:
            counters.count_malformed()
            complaints[complaint(error)] += 1
            kinds[kind + " refused"] += 1
            continue
        except Exception as error:
            raise AssertionError(
                f"seed {seed}, input {number}: {error!r}; reproduce with: "
                f"python -c \"from openmrc.wire import *; parse_packet(bytes.fromhex('{data.hex()}'))\""
            ) from error
        counters.count(packet)
        verdicts.add((packet.opcode, packet.icrc.value))
        verdicts.add(packet.oddities)
    return kinds, complaints, counters, verdicts


def check(count: int, seed: int) -> None:
    kinds, complaints, counters, verdicts = fuzz(count, seed)
    assert counters.packets == count
    assert abs(kinds["mutated"] + kinds["repaired"] - count / 2) <= 1
    # trimmed bases have no ICRC to repair
    assert kinds["repaired"] > count / 8
    for kind in ("noise", "truncated", "noise behind a head", "splice", "shortened", "mutated", "repaired"):
        assert kinds[kind] > count / 20, kinds
        assert kinds[kind + " refused"] > 0, kinds
    assert kinds["mutated"] > kinds["mutated refused"]
    assert kinds["repaired"] > kinds["repaired refused"]
    assert not COMPLAINTS - set(complaints), (COMPLAINTS - set(complaints), complaints)
    for opcode in Opcode:
        assert (opcode, "ok") in verdicts
        assert (opcode, "bad") in verdicts
        assert ((opcode, "absent") in verdicts) == opcode.is_data
    assert min(counters.malformed, counters.icrc_bad, counters.trimmed, counters.ecn_marked) > count / 1000
    assert Oddity.UNKNOWN_CC_TYPE in verdicts
    assert Oddity.TS_ON_CONTROL in verdicts


def test_fuzz():
    check(20_000, seed=1)


@pytest.mark.long
def test_fuzz_long():
    check(1_000_000, seed=2)


def test_ip_packets_too():
    """The other entrance: the same hostile bytes without their link header."""
    rng = random.Random(3)
    bases = base_frames(rng)
    outcomes: Counter = Counter()
    for _ in range(2_000):
        _, data = mutated(rng, pick(rng, bases))
        try:
            outcomes[parse_ip_packet(data[14:]).icrc.value] += 1
        except WireError:
            outcomes["refused"] += 1
    assert set(outcomes) == {"ok", "bad", "absent", "refused"}


def test_trim_is_total_too():
    """A switch trims what it is given: the result parses, or the input was refused."""
    rng = random.Random(4)
    bases = base_frames(rng)
    outcomes: Counter = Counter()
    for _ in range(2_000):
        _, data = mutated(rng, pick(rng, bases))
        try:
            cut = trim_frame(data, rng.randrange(60, 160), bool(rng.getrandbits(1)))
        except WireError:
            outcomes["refused"] += 1
            continue
        assert parse_packet(cut).trimmed is not None
        assert len(cut) <= len(data)
        outcomes["trimmed"] += 1
    assert min(outcomes.values()) > 100
    assert len(outcomes) == 2
