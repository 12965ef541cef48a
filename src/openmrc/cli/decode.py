"""``mrc decode``: the packets of a capture, one per line."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import click

from openmrc.errors import InputError, WireError
from openmrc.wire.counters import WireCounters
from openmrc.wire.describe import packet_to_dict, packet_to_line
from openmrc.wire.dscp import DscpMap
from openmrc.wire.packet import parse_ip_packet, parse_packet
from openmrc.wire.pcap import LINKTYPES_IP, NS_PER_S, PcapReader, PcapRecord
from openmrc.wire.settings import UDP_PORT, WireSettings


def _dscp_map(assignments: tuple[str, ...]) -> DscpMap:
    dscp = DscpMap()
    names = [field.name for field in fields(dscp)]
    changes: dict[str, int] = {}
    for assignment in assignments:
        name, _, number = assignment.partition("=")
        if name not in names or not number.isdecimal():
            raise InputError(f"--dscp {assignment}: write CLASS=NUMBER with a class of {', '.join(names)}")
        changes[name] = int(number)
    return replace(dscp, **changes)


def _print_record(
    number: int,
    record: PcapRecord,
    starts_at_ip: bool,
    settings: WireSettings,
    as_json: bool,
    counters: WireCounters,
) -> None:
    seconds, nanoseconds = divmod(record.time_ns, NS_PER_S)
    fields_out: dict[str, Any] = {
        "n": number,
        "time_ns": record.time_ns,
        "frame_bytes": record.original_bytes,
    }
    try:
        packet = (parse_ip_packet if starts_at_ip else parse_packet)(record.data, settings)
    except WireError as error:
        counters.count_malformed()
        cut = record.original_bytes - len(record.data)
        reason = f"{error} (the capture cut {cut} bytes off)" if cut > 0 else str(error)
        fields_out["error"] = reason
        text = f"malformed: {reason}"
    else:
        counters.count(packet)
        if as_json:
            fields_out.update(packet_to_dict(packet, settings))
        text = "" if as_json else packet_to_line(packet, settings)
    print(json.dumps(fields_out) if as_json else f"{seconds}.{nanoseconds:09d} {text}")


def _decode(
    stream: BinaryIO, name: str, settings: WireSettings, as_json: bool, limit: int | None
) -> WireCounters:
    counters = WireCounters()
    try:
        reader = PcapReader(stream)
        starts_at_ip = reader.linktype in LINKTYPES_IP
        for number, record in enumerate(reader, start=1):
            if limit is not None and number > limit:
                break
            _print_record(number, record, starts_at_ip, settings, as_json, counters)
    except WireError as error:
        sys.stdout.flush()
        read = f" ({counters.packets} packets before it were read)" if counters.packets else ""
        raise InputError(f"{name}: {error}{read}") from error
    return counters


def _open(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}; name a capture file") from error


def _version() -> str:
    try:
        return version("openmrc")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "(not installed)"


@click.command(name="decode")
@click.argument("file", metavar="FILE.pcap", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N packets.")
@click.option(
    "--udp-port",
    type=click.IntRange(1, 65535),
    default=UDP_PORT,
    show_default=True,
    help="MRC's UDP destination port; 4971 is accepted besides and counted.",
)
@click.option(
    "--dscp",
    "dscp_assignments",
    multiple=True,
    metavar="CLASS=N",
    help="DSCP number of a class where it differs from the default, e.g. trimmed=17. May be repeated.",
)
def command(
    file: Path, as_json: bool, limit: int | None, udp_port: int, dscp_assignments: tuple[str, ...]
) -> None:
    """Print the packets of a capture, one per line; "-" reads standard input.

    A line has the time, source > destination, the uSIDs of the outer destination, the entropy value,
    opcode and PSN, what the headers say (for a SACK: cack, offset, and the PSNs of the bitmap as ranges)
    and the ICRC verdict: ok, BAD, or absent (trimmed). What is no MRC packet is a line too, with
    the reason. Counts go to standard error.

    \b
    Examples:
      mrc decode run.pcap
      mrc decode run.pcap --json | jq -c 'select(.opcode_name == "NACK") | .neth'
      mrc decode run.pcap --dscp trimmed=17 --dscp trimmed_lasthop=19
      tcpdump -i eth0 -w - ip6 | mrc decode -

    Exit codes: 0 ok, 2 when FILE is missing, is no capture or is damaged.
    """
    settings = WireSettings(udp_port=udp_port, dscp=_dscp_map(dscp_assignments))
    if str(file) == "-":
        counters = _decode(sys.stdin.buffer, "standard input", settings, as_json, limit)
    else:
        with _open(file) as stream:
            counters = _decode(stream, str(file), settings, as_json, limit)
    sys.stdout.flush()
    click.echo(f"mrc {_version()} decode: {file}: {counters}", err=True)
