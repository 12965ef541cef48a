"""Headers one by one: layout, round trips, ranges, reserved bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import WireError
from openmrc.wire import Aeth, Bth, CcState, Eeth, Erth, IPv4, IPv6, Meth, Neth, Seth, Tseth, timestamp_of
from openmrc.wire.ipv4 import header_checksum
from openmrc.wire.layout import check_layout, compile_layout, header_rows
from wire_support import HEADERS, headers

SIZES = {
    "Ethernet": 14, "IPv6": 40, "IPv4": 20, "UDP": 8, "BTH": 12, "METH": 4, "TSETH": 4, "RETH": 16,
    "ImmDt": 4, "AETH": 4, "SETH": 28, "CC_STATE": 8, "NETH": 20, "PETH": 16, "ERTH": 16, "EETH": 36,
}  # fmt: skip


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.NAME)
def test_size_and_layout(header):
    assert SIZES[header.NAME] == header.SIZE
    assert len(header().to_bytes()) == header.SIZE
    check_layout(header)


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.NAME)
def test_round_trip(header):
    @settings(max_examples=60, deadline=None)
    @given(headers(header), st.binary(max_size=5), st.binary(max_size=5))
    def check(value, before, after):
        data = value.to_bytes()
        assert header.parse(data) == value
        assert header.parse(before + data + after, len(before)) == value

    check()


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.NAME)
def test_any_bytes_parse_and_come_back_but_for_reserved_bits(header):
    """Reserved bits are ignored when read and 0 when written; every other bit survives."""
    known = sum(
        ((1 << bits) - 1) << (header.SIZE * 8 - first - bits) for _, first, bits in header_rows(header)
    )
    constants = {(spec.shift, spec.bits): spec.constant for spec in header._CONSTANTS}

    @settings(max_examples=60, deadline=None)
    @given(st.binary(min_size=header.SIZE, max_size=header.SIZE))
    def check(data):
        word = int.from_bytes(data, "big")
        for (shift, bits), constant in constants.items():
            word = word & ~(((1 << bits) - 1) << shift) | constant << shift
        again = header.parse(word.to_bytes(header.SIZE, "big")).to_bytes()
        assert int.from_bytes(again, "big") == word & known

    check()


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.NAME)
def test_every_field_checks_its_range_when_building(header):
    for spec in header._VALUES:
        if spec.kind == "b":
            bad = [bytes(spec.bits // 8 - 1), bytes(spec.bits // 8 + 1), 7]
        elif spec.kind == "s":
            bad = [1 << (spec.bits - 1), -(1 << (spec.bits - 1)) - 1, 0.5]
        else:
            bad = [1 << spec.bits, -1, 0.5, None]
        for value in bad:
            with pytest.raises(WireError, match=rf"{header.NAME}\.{spec.name}: "):
                header(**{spec.name: value}).to_bytes()


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.NAME)
def test_too_few_bytes_name_header_place_and_need(header):
    data = header().to_bytes()
    for size in range(header.SIZE):
        with pytest.raises(
            WireError, match=f"{header.NAME} at byte 0: needs {header.SIZE} bytes, {size} are"
        ):
            header.parse(data[:size])
        with pytest.raises(WireError, match=f"{size} are left"):
            header.parse(data, 0, size)  # the bytes are there, but belong to somebody else
    with pytest.raises(WireError):
        header.parse(data, -1)
    with pytest.raises(WireError, match="0 are left"):
        header.parse(data, header.SIZE + 3)


def test_constants_must_read_so():
    with pytest.raises(WireError, match=r"IPv6.version at byte 0: 4 where 6 must stand"):
        IPv6.parse(b"\x40" + bytes(39))
    with pytest.raises(WireError, match=r"IPv4.ihl at byte 0: 6 where 5 must stand"):
        IPv4.parse(b"\x46" + bytes(23))


def test_bits_stand_where_the_specification_says():
    assert header_rows(Bth)[-4:] == [("ack_request", 64, 1), ("rtx", 66, 1), ("ts", 67, 1), ("psn", 72, 24)]
    assert Bth(0xC6, se=1, m=1, pad=3, tver=15).to_bytes()[1] == 0xFF
    assert Bth(0xC6, ack_request=1).to_bytes()[8] == 0x80
    assert Bth(0xC6, rtx=1).to_bytes()[8] == 0x20
    assert Bth(0xC6, ts=1).to_bytes()[8] == 0x10
    assert Erth(op=3).to_bytes()[1] == 0b11
    assert Eeth(op=3).to_bytes()[1] == 0b1100
    assert Eeth(tx_timestamp=0xABCD).to_bytes()[28:30].hex() == "abcd"
    assert Neth(tx_timestamp=0xABCD).to_bytes()[18:].hex() == "abcd"
    assert CcState(restore_cwnd=1).to_bytes()[4] == 0x80
    assert Aeth(0x1F, 2).to_bytes().hex() == "1f000002"
    assert Tseth(ftype=1).to_bytes().hex() == "00000001"


def test_seth_names_psns_across_the_wrap():
    seth = Seth(cack_psn=0xFFFFFF, ack_psn_offset=2, sack_offset=-1, bitmap=0b101)
    assert seth.acked_psn == 1
    assert seth.base_psn == 0xFFFFFE
    assert seth.received_psns() == [0xFFFFFE, 0]
    assert Seth(cack_psn=0xFFFFFF, sack_offset=1).base_psn == 0
    assert Seth(cack_psn=0, sack_offset=-1).base_psn == 0xFFFFFF
    assert Seth(pr=1, ack_psn_offset=-1).probe_id == 0xFFFF


def test_numpy_integers_are_welcome():
    """The simulator's rows hold NumPy scalars; shifting those by 200 bits would not do."""
    seth = Seth(cack_psn=np.int64(5), bitmap=np.uint64(1 << 63), ack_psn_offset=np.int32(-3))
    assert seth.to_bytes() == Seth(cack_psn=5, bitmap=1 << 63, ack_psn_offset=-3).to_bytes()


def test_headers_are_frozen_values():
    assert Meth(1, 2) == Meth(1, 2) != Meth(2, 1)
    with pytest.raises(AttributeError):
        Meth(1, 2).msn = 3


def test_ipv4_checksum_of_a_known_header():
    # the worked example of many textbooks
    header = bytes.fromhex("450000730000400040110000c0a80001c0a800c7")
    assert header_checksum(header) == 0xB861
    ip = IPv4.parse(header).with_checksum()
    assert ip.checksum == 0xB861
    ip.verify()
    with pytest.raises(WireError, match=r"IPv4.checksum: 0x0000 where 0xb861"):
        IPv4.parse(header).verify()


@pytest.mark.parametrize("change", [{"flags": 1}, {"fragment_offset": 5}, {"flags": 3}])
def test_ipv4_fragments_are_refused(change):
    with pytest.raises(WireError, match="fragment"):
        IPv4(**change).with_checksum().verify()


@pytest.mark.parametrize("text", ["a:7", "a:4 b:b2 c:4"])
def test_a_bad_layout_is_our_own_mistake(text):
    with pytest.raises(AssertionError):
        compile_layout(text)


def test_timestamps_wrap_every_8_4_ms():
    assert timestamp_of(0) == 0
    assert timestamp_of(127_999) == 0
    assert timestamp_of(65_535 * 128_000) == 65_535
    assert timestamp_of(65_536 * 128_000) == 0
