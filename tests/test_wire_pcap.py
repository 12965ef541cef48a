"""Capture files: both byte orders, both resolutions, streaming, damage."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapReader

from openmrc.errors import WireError
from openmrc.wire import PcapReader, PcapRecord, PcapWriter

RECORDS = [
    PcapRecord(0, b"", 0),
    PcapRecord(1, b"a", 1),
    PcapRecord(1_700_000_000_123_456_789, bytes(range(256)), 4262),
    PcapRecord((2**32 - 1) * 10**9 + 999_999_999, b"end", 3),
]


def written(records=RECORDS, **options) -> bytes:
    buffer = io.BytesIO()
    with PcapWriter(buffer, **options) as writer:
        for record in records:
            writer.write(*record)
    return buffer.getvalue()


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_round_trip(byteorder):
    data = written(byteorder=byteorder)
    assert data[:4].hex() == {"little": "4d3cb2a1", "big": "a1b23c4d"}[byteorder]
    reader = PcapReader(io.BytesIO(data))
    assert (reader.byteorder, reader.nanoseconds, reader.linktype) == (byteorder, True, 1)
    assert list(reader) == RECORDS
    assert reader.offset == len(data)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.builds(
            PcapRecord, st.integers(0, 2**32 * 10**9 - 1), st.binary(max_size=64), st.integers(0, 2**32 - 1)
        )
    ),
    st.sampled_from(["little", "big"]),
)
def test_round_trip_of_any_records(records, byteorder):
    assert list(PcapReader(io.BytesIO(written(records, byteorder=byteorder)))) == records


@pytest.mark.parametrize("prefix", ["<", ">"])
def test_microsecond_files(prefix):
    data = struct.pack(prefix + "IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    data += struct.pack(prefix + "IIII", 7, 999_999, 2, 60) + b"hi"
    reader = PcapReader(io.BytesIO(data))
    assert not reader.nanoseconds
    assert list(reader) == [PcapRecord(7_999_999_000, b"hi", 60)]


def test_another_reader_reads_what_we_write(tmp_path):
    path = tmp_path / "a.pcap"
    with PcapWriter(path) as writer:
        for record in RECORDS[1:3]:
            writer.write(*record)
    with RawPcapReader(str(path)) as reader:
        found = [(data, meta.sec * 10**9 + meta.usec, meta.wirelen) for data, meta in reader]
    assert found == [(record.data, record.time_ns, record.original_bytes) for record in RECORDS[1:3]]


def test_every_truncation_gives_whole_records_first_then_names_the_offset():
    data = written()
    ends = [24]
    for record in RECORDS:
        ends.append(ends[-1] + 16 + len(record.data))
    assert ends[-1] == len(data)
    for size in range(len(data)):
        found = []
        if size < 24:
            with pytest.raises(WireError, match="pcap at byte 0: truncated file header: 24 bytes needed"):
                PcapReader(io.BytesIO(data[:size]))
            continue
        reader = iter(PcapReader(io.BytesIO(data[:size])))
        whole = sum(end <= size for end in ends[1:])
        found = [next(reader) for _ in range(whole)]
        assert found == RECORDS[:whole]
        if size in ends:
            with pytest.raises(StopIteration):
                next(reader)
        else:
            with pytest.raises(WireError, match=r"pcap at byte \d+: truncated record") as caught:
                next(reader)
            start = ends[whole]
            at = int(str(caught.value).split()[3].rstrip(":"))
            assert at in (start + 1, start + 16)


class Trickle(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def read(self, size=-1):
        return self._inner.read(min(size, 1))


def test_a_pipe_may_give_less_than_asked():
    assert list(PcapReader(Trickle(written()))) == RECORDS


class Counting(io.BytesIO):
    largest = 0

    def read(self, size=-1):
        self.largest = max(self.largest, size)
        return super().read(size)


def test_reading_streams():
    stream = Counting(written([PcapRecord(i, bytes(100), 100) for i in range(1000)]))
    reader = PcapReader(stream)
    assert next(iter(reader)).time_ns == 0
    assert stream.tell() == 24 + 16 + 100
    assert sum(1 for _ in reader) == 999
    assert stream.largest == 100


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\x0d\x0d\x0a" + bytes(20), "this is pcapng; convert it with: editcap -F nsecpcap IN OUT"),
        (b"#!/bin/sh\n" + bytes(20), "pcap at byte 0: magic 23212f62 is none of pcap's"),
        (struct.pack("<IHHiIII", 0xA1B23C4D, 2, 3, 0, 0, 65535, 1), "pcap at byte 4: version 2.3"),
        (struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 113), "pcap at byte 20: link type 113"),
    ],
)
def test_what_is_no_capture(data, message):
    with pytest.raises(WireError, match=message):
        PcapReader(io.BytesIO(data))


def test_a_monstrous_record_is_damage_and_nothing_is_allocated():
    data = written([]) + struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 0xFFFFFFFF)
    stream = Counting(data)
    with pytest.raises(WireError, match="pcap at byte 24: a record of 4294967295 bytes; the limit is 262144"):
        list(PcapReader(stream))
    assert stream.largest == 24


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.booleans())
def test_hostile_files_raise_only_wire_errors(tail, with_header):
    data = (written([]) if with_header else b"") + tail
    try:
        records = list(PcapReader(io.BytesIO(data)))
    except WireError:
        return
    assert sum(16 + len(record.data) for record in records) == len(data) - 24


@pytest.mark.parametrize("time_ns", [-1, 2**32 * 10**9])
def test_times_that_do_not_fit(time_ns):
    with pytest.raises(WireError, match="does not fit"):
        PcapWriter(io.BytesIO()).write(time_ns, b"")


def test_too_large_to_write():
    with pytest.raises(WireError, match="262145 bytes; the limit is 262144"):
        PcapWriter(io.BytesIO()).write(0, bytes(262_145))


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(b"old")

    def fail() -> None:
        with PcapWriter(path) as writer:
            writer.write(0, b"x")
            assert path.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with PcapWriter(path) as writer:
        writer.write(0, b"x")
    assert list(tmp_path.iterdir()) == [path]
    assert list(PcapReader(io.BytesIO(path.read_bytes()))) == [PcapRecord(0, b"x", 1)]
    writer.close()  # twice does no harm
    writer.discard()
    assert path.exists()


def test_devices_are_written_in_place():
    with PcapWriter("/dev/null") as writer:
        writer.write(0, b"x")
