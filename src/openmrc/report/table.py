"""The report in the terminal: what ran, the figures with their units, the ideal and the ratio.

It fits :data:`WIDTH` columns and needs no terminal: into a file or a pipe it writes the same text
without colour codes, and without block characters where the encoding has none.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from openmrc.report import format as fmt
from openmrc.report.describe import slowest_sentence, verdict
from openmrc.report.result import Result
from openmrc.report.stats import imbalance

WIDTH = 100
BAR_WIDTH = 40
#: more faults than this are cut in the terminal; the HTML report and summary.json have them all
MAX_FAULTS = 25
RESULT_FILES = ("report.html", "summary.json", "flows.parquet", "timeline.parquet")


def print_report(result: Result, console: Console | None = None, directory: str | Path | None = None) -> None:
    """Print the report of ``result``.

    Parameters
    ----------
    console
        Where to; by default standard output, at most :data:`WIDTH` columns wide.
    directory
        Where the result files were written; named at the end.
    """
    if console is None:
        console = Console(highlight=False)
        console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    console.print(build_report(result, directory, unicode=_is_unicode(console)))


def report_text(result: Result, directory: str | Path | None = None, width: int = WIDTH) -> str:
    """Return the report as plain text, as a pipe gets it."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None, highlight=False)
    console.print(build_report(result, directory, unicode=True))
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def _is_unicode(console: Console) -> bool:
    return (console.encoding or "ascii").lower().replace("-", "").startswith("utf")


def build_report(result: Result, directory: str | Path | None, unicode: bool) -> RenderableType:
    """Return the report as one rich renderable."""
    parts = [*_head(result), _figures(result), *_traffic(result), *_planes(result, unicode)]
    parts += [*_faults(result, unicode), *_notes(result), *_engine(result)]
    if directory is not None:
        parts += _files(Path(directory))
    return Group(*parts)


def _section(title: str, note: str = "") -> Text:
    text = Text.assemble(("\n" + title, "bold cyan"))
    return text.append(f"  {note}", style="dim") if note else text


def _grid(rows: list[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=13)
    grid.add_column(overflow="fold")
    for key, value in rows:
        grid.add_row(key, value)
    return Padding(grid, (0, 0, 0, 2))


def _head(result: Result) -> Iterator[RenderableType]:
    s = result.summary
    title = Text.assemble((s["scenario"], "bold"), f"   seed {s['seed']}   openmrc {s['version']}   ")
    title.append(*_status(result))
    yield title
    for line in (s["fabric"], s["traffic"], s["command"]):
        if line:
            yield Text(line, style="dim", overflow="fold")
    if not result.complete:
        until = (
            ""
            if s["simulated_us"] is None
            else f" at {fmt.microseconds(s['simulated_us'], 4)} simulated time"
        )
        yield Text(
            f"\nPARTIAL RESULT: interrupted{until}. Every figure covers only what was simulated.",
            style="bold black on yellow",
        )
    yield Text("\n" + verdict(result), style="bold")


def _status(result: Result) -> tuple[str, str]:
    if not result.complete:
        return "PARTIAL", "bold yellow"
    if result.summary["flows"]["failed"]:
        return "FLOWS FAILED", "bold red"
    return "complete", "bold green"


def _figures(result: Result) -> RenderableType:
    s = result.summary
    flows, fct, goodput = s["flows"], s["fct_us"], s["goodput_gbps"]
    scale = fmt.time_scale(fct["p100"] or 0.0)
    unfinished = flows["total"] - flows["completed"] - flows["failed"]
    text = f"{fmt.count(flows['completed'])} of {fmt.count(flows['total'])} completed"
    text += f", [red bold]{fmt.count(flows['failed'])} failed[/]" if flows["failed"] else ", 0 failed"
    text += f", [yellow]{fmt.count(unfinished)} unfinished[/]" if unfinished else ""
    rows = [("Flows", text)]
    names = {"mean": "mean", "p50": "P50", "p99": "P99", "p999": "P99.9", "p100": "[bold]P100[/]"}
    values = [f"{name} {fmt.in_scale(fct[key], scale)}" for key, name in names.items()]
    rows.append(("FCT", "   ".join(values) if fct["p100"] is not None else "no flow completed"))
    rows.append(("Makespan", _makespan(s)))
    mean, ceiling = goodput["mean_per_nic"], goodput["ceiling_per_nic"]
    share = "" if mean is None or not ceiling else f" = {fmt.percent(mean / ceiling)}"
    rows.append(("Goodput", f"{fmt.gbps(mean)} per NIC{share} of the {fmt.gbps(ceiling)} line-rate ceiling"))
    if s["slowest_flow"]:
        rows.append(("Slowest flow", escape(slowest_sentence(s["slowest_flow"]))))
    return Group(Text(), _grid(rows))


def _makespan(s: dict[str, Any]) -> str:
    ideal = f"ideal {fmt.microseconds(s['ideal_fct_us'], 4)}" if s["ideal_fct_us"] is not None else "no ideal"
    if s["makespan_us"] is None:
        return f"not reached   {ideal}"
    text = f"{fmt.microseconds(s['makespan_us'], 4)}   {ideal}"
    if s["p100_over_ideal"] is not None:
        text += f"   ratio [bold]{fmt.ratio(s['p100_over_ideal'])}[/]"
    return text


def _traffic(result: Result) -> Iterator[RenderableType]:
    s = result.summary
    c, paths = s["counters"], s["paths"]
    first = c["data_packets"]

    def part(key: str) -> str:
        share = f" ({fmt.percent(c[key] / first)})" if first and c[key] else ""
        return f"{fmt.count(c[key])} {fmt.words(key)}{share}"

    total = sum(c["dropped"].values())
    reasons = ", ".join(f"{fmt.count(n)} {fmt.words(why)}" for why, n in fmt.by_name(c["dropped"]))
    rows = [
        (
            "Data packets",
            f"{fmt.count(first)} sent, {part('retransmitted')}, {part('trimmed')}, {part('ecn_marked')}",
        ),
        ("Dropped", f"{fmt.count(total)}{': ' + reasons if reasons else ''}"),
        (
            "Control",
            ", ".join(f"{fmt.count(c[k])} {fmt.words(k)}" for k in ("sacks", "nacks", "probes", "timeouts")),
        ),
    ]
    known = {
        "data_packets",
        "retransmitted",
        "trimmed",
        "ecn_marked",
        "sacks",
        "nacks",
        "probes",
        "timeouts",
        "dropped",
    }
    more = fmt.by_name({key: value for key, value in c.items() if key not in known})
    if more:
        rows.append(("Also", ", ".join(f"{fmt.count(value)} {fmt.words(key)}" for key, value in more)))
    evs = f"{fmt.count(paths['assumed_bad'])} retired, {fmt.count(paths['recovered'])} recovered, "
    evs += f"{fmt.count(paths['promoted'])} backups promoted, "
    evs += f"{fmt.count(paths['false_condemned'])} retired wrongly"
    rows.append(("EVs", evs))
    if s["queues"]:
        queues = "   ".join(f"{layer} {fmt.size(value)}" for layer, value in s["queues"].items())
        rows.append(("Queue maxima", escape(queues)))
    yield _section("Packets and paths")
    yield _grid([(key, value) for key, value in rows])


def _planes(result: Result, unicode: bool) -> Iterator[RenderableType]:
    planes = result.summary["planes"]
    total, largest = sum(planes), max(planes, default=0)
    uneven = imbalance(planes)
    yield _section("Load per plane", "" if uneven is None else f"fullest / mean = {fmt.ratio(uneven)}")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=13)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for plane, load in enumerate(planes):
        share = fmt.percent(load / total) if total else fmt.NONE
        grid.add_row(f"plane {plane}", Text(bar(load, largest, unicode), style="cyan"), fmt.size(load), share)
    yield Padding(grid, (0, 0, 0, 2))


def bar(value: float, largest: float, unicode: bool = True, width: int = BAR_WIDTH) -> str:
    """Return a bar of at most ``width`` characters; an eighth of a character fine where possible.

    >>> bar(3, 4, unicode=False, width=8)
    '######'
    """
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(value / largest * width * 8))
    if not unicode:
        return "#" * max(1, round(eighths / 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _faults(result: Result, unicode: bool) -> Iterator[RenderableType]:
    faults = result.summary["faults"]
    if not faults:
        yield _section("Faults", "none")
        return
    yield _section(
        "Faults", "left = last data packet that the first or the last affected QP sent on the element"
    )
    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII2, header_style="bold", show_edge=False)
    table.add_column("", style="bold", no_wrap=True)
    table.add_column("fault and element", overflow="fold")
    for heading in ("at", "first left", "last left", "RTTs", "lost", "repaired", "used again"):
        table.add_column(heading, justify="right", no_wrap=True)
    for fault in faults[:MAX_FAULTS]:
        table.add_row(*(escape(cell) for cell in fault_cells(fault)))
    yield table
    if len(faults) > MAX_FAULTS:
        yield Text(f"  ... and {len(faults) - MAX_FAULTS} more in summary.json and report.html", style="dim")


def fault_cells(fault: dict[str, Any]) -> list[str]:
    """Return one row of the fault table: times after the first are distances from the fault."""
    at, rtts = fault["at_us"], fault["worst_leave_rtts"]
    return [
        fmt.fault_label(fault["id"]),
        f"{fmt.words(fault['kind'])}\n{fault['element']}",
        fmt.microseconds(at),
        fmt.since(fault["first_left_us"], at),
        fmt.since(fault["last_left_us"], at),
        fmt.NONE if rtts is None else f"{rtts:.1f}",
        fmt.count(fault["packets_lost"]),
        fmt.since(fault["end_us"], at),
        fmt.since(fault["back_us"], at),
    ]


def _notes(result: Result) -> Iterator[RenderableType]:
    if result.summary["notes"]:
        yield _section("Notes")
        for note in result.summary["notes"]:
            yield Padding(Text(f"- {note}", overflow="fold"), (0, 0, 0, 2))


def _engine(result: Result) -> Iterator[RenderableType]:
    e = result.summary["engine"]
    hops = (
        f"{fmt.count(e['packet_hops_data'])} data + {fmt.count(e['packet_hops_control'])} control packet-hops"
    )
    rows = [("Simulated", f"{hops} at {fmt.rate(e['hops_per_s'], 'hops/s')}")]
    rows.append(
        (
            "Cost",
            f"{fmt.digits(e['wall_s'], 3)} s wall, {fmt.digits(e['cpu_s'], 3)} s CPU, "
            f"{fmt.size(e['peak_rss_bytes'])} peak memory",
        )
    )
    rows.append(("Digest", result.summary["digest"]))
    yield _section("Engine")
    yield _grid(rows)


def _files(directory: Path) -> list[RenderableType]:
    return [
        _section("Files"),
        _grid([("report", escape(str(directory / RESULT_FILES[0]))), ("data", ", ".join(RESULT_FILES[1:]))]),
    ]
