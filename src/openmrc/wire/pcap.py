"""Capture files: classic pcap, nanosecond (magic 0xa1b23c4d) or microsecond (0xa1b2c3d4), both byte orders.

Reading and writing stream: one record is in memory at a time. A file that ends inside a record gives
all whole records first and then a WireError that names the offset.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, NamedTuple, Self

from openmrc.errors import WireError

MAGIC_NANO = 0xA1B23C4D
MAGIC_MICRO = 0xA1B2C3D4
MAGIC_PCAPNG = 0x0A0D0D0A
LINKTYPE_ETHERNET = 1
LINKTYPE_RAW = 101  # starts with an IP header
LINKTYPE_IPV6 = 229
LINKTYPES_IP = (LINKTYPE_RAW, LINKTYPE_IPV6)
MAX_RECORD_BYTES = 262_144  # tcpdump's largest snapshot length; more is damage, not a packet
FILE_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16
NS_PER_S = 1_000_000_000


class PcapRecord(NamedTuple):
    """One captured frame: time in ns since the file's epoch, bytes, and its length on the line."""

    time_ns: int
    data: bytes
    original_bytes: int


class PcapReader:
    """Iterate over the records of a capture.

    Parameters
    ----------
    stream
        Binary stream at the start of the file.

    Attributes
    ----------
    linktype
        LINKTYPE_ETHERNET, or an IP link type; others are refused.
    nanoseconds, byteorder, snaplen
        As the file says.
    offset
        Bytes read so far.

    Raises
    ------
    WireError
        No pcap, or (while iterating) damage; names the offset.

    Examples
    --------
    >>> import io
    >>> buffer = io.BytesIO()
    >>> PcapWriter(buffer).write(1_500_000_000, b"frame")
    >>> list(PcapReader(io.BytesIO(buffer.getvalue())))
    [PcapRecord(time_ns=1500000000, data=b'frame', original_bytes=5)]
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.offset = 0
        header = self._read(FILE_HEADER_BYTES, "file header")
        self.byteorder, self.nanoseconds = _magic(header[:4])
        self._prefix = "<" if self.byteorder == "little" else ">"
        major, minor, _, _, self.snaplen, network = struct.unpack(self._prefix + "HHiIII", header[4:])
        if (major, minor) != (2, 4):
            raise WireError(f"pcap at byte 4: version {major}.{minor}; only 2.4 exists")
        # the upper bits say whether frames carry an FCS, which parsing ignores anyway
        self.linktype = network & 0xFFFF
        if self.linktype not in (LINKTYPE_ETHERNET, *LINKTYPES_IP):
            raise WireError(f"pcap at byte 20: link type {self.linktype}; use Ethernet (1) or IP (101, 229)")

    def _read(self, size: int, what: str) -> bytes:
        """Return exactly ``size`` bytes, however the stream portions them (pipes give less at a time)."""
        start = self.offset
        pieces: list[bytes] = []
        left = size
        while left:
            piece = self._stream.read(left)
            if not piece:
                raise WireError(
                    f"pcap at byte {start}: truncated {what}: {size} bytes needed, the file ends after "
                    f"{size - left}"
                )
            pieces.append(piece)
            left -= len(piece)
            self.offset += len(piece)
        return b"".join(pieces)

    def __iter__(self) -> Iterator[PcapRecord]:
        while True:
            start = self.offset
            first = self._stream.read(1)
            if not first:
                return
            self.offset += 1
            header = first + self._read(RECORD_HEADER_BYTES - 1, "record header")
            seconds, fraction, size, original = struct.unpack(self._prefix + "IIII", header)
            if size > MAX_RECORD_BYTES:
                raise WireError(
                    f"pcap at byte {start}: a record of {size} bytes; the limit is {MAX_RECORD_BYTES}, "
                    "so this is no record header"
                )
            data = self._read(size, "record")
            fraction_ns = fraction if self.nanoseconds else fraction * 1000
            yield PcapRecord(seconds * NS_PER_S + fraction_ns, data, original)


def _magic(data: bytes) -> tuple[Literal["little", "big"], bool]:
    for byteorder in ("little", "big"):
        magic = int.from_bytes(data, byteorder)
        if magic in (MAGIC_NANO, MAGIC_MICRO):
            return byteorder, magic == MAGIC_NANO
    if int.from_bytes(data, "big") == MAGIC_PCAPNG:
        raise WireError("pcap at byte 0: this is pcapng; convert it with: editcap -F nsecpcap IN OUT")
    raise WireError(f"pcap at byte 0: magic {data.hex()} is none of pcap's; is this a capture file?")


class PcapWriter:
    """Write nanosecond captures, to a stream or (whole or not at all) to a path.

    Given a path, the file appears under its name only when closed without an error: it is written
    beside it as ``NAME.partial`` and then renamed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with PcapWriter(folder + "/a.pcap") as writer:
    ...         writer.write(0, b"frame")
    ...     Path(folder + "/a.pcap").stat().st_size
    45
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        linktype: int = LINKTYPE_ETHERNET,
        byteorder: Literal["little", "big"] = "little",
    ) -> None:
        self._path: Path | None = None
        if isinstance(target, (str, os.PathLike)):
            self._path = Path(target)
            # a device or pipe cannot be renamed over; it is written as it is
            special = self._path.exists() and not self._path.is_file()
            self._partial = self._path if special else self._path.with_name(self._path.name + ".partial")
            self._stream: BinaryIO = self._partial.open("wb")
        else:
            self._stream = target
        self._prefix = "<" if byteorder == "little" else ">"
        self._stream.write(
            struct.pack(self._prefix + "IHHiIII", MAGIC_NANO, 2, 4, 0, 0, MAX_RECORD_BYTES, linktype)
        )

    def write(self, time_ns: int, data: bytes, original_bytes: int | None = None) -> None:
        """Append one record; ``original_bytes`` says how long the frame was when ``data`` is cut.

        Raises
        ------
        WireError
            A time that does not fit (32 bits of seconds), or a record above the limit.
        """
        seconds, fraction = divmod(time_ns, NS_PER_S)
        if not 0 <= seconds <= 0xFFFFFFFF:
            raise WireError(f"pcap record: time {time_ns} ns does not fit; use 0 ns to 2^32 s")
        if len(data) > MAX_RECORD_BYTES:
            raise WireError(f"pcap record: {len(data)} bytes; the limit is {MAX_RECORD_BYTES}")
        original = len(data) if original_bytes is None else original_bytes
        self._stream.write(struct.pack(self._prefix + "IIII", seconds, fraction, len(data), original))
        self._stream.write(data)

    def close(self) -> None:
        """Finish the file; a path gets its name now."""
        if self._path is None:
            self._stream.flush()
        elif not self._stream.closed:
            self._stream.close()
            if self._partial != self._path:
                self._partial.replace(self._path)

    def discard(self) -> None:
        """Give up: a path keeps what it was before."""
        if self._path is not None and not self._stream.closed:
            self._stream.close()
            if self._partial != self._path:
                self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
