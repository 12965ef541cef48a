"""The self-contained HTML report: one file, no network, light and dark, phone and print.

Plotly's script is inlined from the installed plotly package; the page's own Content-Security-Policy
forbids it to load anything. The same result always gives the same bytes.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from openmrc.report import format as fmt
from openmrc.report.describe import slowest_sentence, verdict
from openmrc.report.figures import Figure, all_figures
from openmrc.report.result import Result
from openmrc.report.stats import imbalance

MAX_FAULT_ROWS = 500
_UNIT_US = re.compile(r"(?<=\d )us\b")
_UNIT_ENDING = re.compile(r"(?<!_per)_s$|_bytes$")
_TIMES = re.compile(r"(?<=\d )x(?= (?:the )?ideal)")


def pretty(text: str) -> str:
    """Return text with µ and × where the terminal has u and x.

    >>> pretty("in 191.9 us, 1.058 x the ideal")
    'in 191.9 µs, 1.058 × the ideal'
    """
    return _TIMES.sub("×", _UNIT_US.sub("µs", text))


def embedded_json(value: Any) -> Markup:
    """Return JSON that is safe inside a ``<script>`` element whatever the strings hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("openmrc.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["pretty"] = pretty
    return environment


def _asset(name: str) -> Markup:
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


@lru_cache(maxsize=1)
def plotly_script() -> Markup:
    """Return Plotly's JavaScript, safe to stand inside a ``<script>`` element."""
    from plotly.offline import get_plotlyjs

    return Markup(re.sub(r"</(script)", r"<\\/\1", get_plotlyjs(), flags=re.IGNORECASE))


def render_html(result: Result) -> str:
    """Return the report of ``result`` as one HTML document."""
    figures = all_figures(result)
    template = _environment().get_template("report.html.j2")
    return template.render(
        s=result.summary,
        title=f"{result.summary['scenario']} · openmrc report",
        verdict=verdict(result),
        status=_status(result),
        cards=_cards(result),
        figures=figures,
        groups=_groups(figures),
        figure_json=embedded_json({f.id: _plot(f) for f in figures.values()}),
        faults=_fault_rows(result),
        faults_left_out=max(0, len(result.summary["faults"]) - MAX_FAULT_ROWS),
        slowest=_slowest(result),
        tables=_tables(result),
        settings=fmt.flatten(result.summary["settings"]),
        until=fmt.microseconds(result.summary["simulated_us"], 4),
        css=_asset("report.css"),
        script=_asset("report.js"),
        plotly=plotly_script(),
    )


def _plot(figure: Figure) -> dict[str, Any]:
    return {
        "data": figure.data,
        "layout": figure.layout,
        "height": figure.height_px,
        "overTime": figure.over_time,
    }


def _groups(figures: dict[str, Figure]) -> list[dict[str, Any]]:
    """Return the sections of plots; a pair stands side by side where there is room."""
    plan = (
        ("Throughput", [["goodput"]], "No timeline was recorded, so there is no goodput over time."),
        ("Flow completion", [["fct-cdf", "fct-tail"]], "No flow completed, so there is no distribution."),
        ("Planes", [["plane-bytes", "plane-rates"]], "No data was sent on any plane."),
        ("Paths and queues", [["ev-states"], ["queues", "losses"]], "No timeline was recorded."),
    )
    groups = []
    for name, rows, empty in plan:
        present = [[figures[key] for key in row if key in figures] for row in rows]
        groups.append({"name": name, "rows": [row for row in present if row], "empty": empty})
    return groups


def _status(result: Result) -> tuple[str, str]:
    if not result.complete:
        return "warn", "partial"
    if result.summary["flows"]["failed"]:
        return "bad", "flows failed"
    return "good", "complete"


def _card(label: str, value: str, sub: str, share: float | None = None, tone: str = "") -> dict[str, Any]:
    number, _, unit = pretty(value).partition(" ")
    return {"label": label, "number": number, "unit": unit, "sub": pretty(sub), "share": share, "tone": tone}


def _cards(result: Result) -> list[dict[str, Any]]:
    s = result.summary
    fct, flows, goodput, c = s["fct_us"], s["flows"], s["goodput_gbps"], s["counters"]
    cards = []
    sub = (
        f"mean {fmt.microseconds(fct['mean'])}, median {fmt.microseconds(fct['p50'])}" if fct["p100"] else ""
    )
    cards.append(_card("Slowest flow (P100)", fmt.microseconds(fct["p100"], 4), sub or "no flow completed"))
    ideal = (
        f"makespan {fmt.microseconds(s['makespan_us'], 4)}, ideal {fmt.microseconds(s['ideal_fct_us'], 4)}"
    )
    value = fmt.NONE if s["p100_over_ideal"] is None else f"{fmt.ratio(s['p100_over_ideal'])} ×"
    cards.append(_card("Time over ideal", value, ideal))
    mean, ceiling = goodput["mean_per_nic"], goodput["ceiling_per_nic"]
    share = None if mean is None or not ceiling else mean / ceiling
    sub = (
        f"{fmt.percent(share)} of the {fmt.gbps(ceiling)} ceiling"
        if share is not None
        else f"ceiling {fmt.gbps(ceiling)}"
    )
    cards.append(_card("Goodput per NIC", fmt.gbps(mean), sub, share))
    unfinished = flows["total"] - flows["completed"] - flows["failed"]
    sub = f"of {fmt.count(flows['total'])}; {fmt.count(flows['failed'])} failed"
    sub += f", {fmt.count(unfinished)} unfinished" if unfinished else ""
    tone = "bad" if flows["failed"] else "warn" if unfinished else "good"
    share = flows["completed"] / flows["total"] if flows["total"] else None
    cards.append(_card("Flows completed", fmt.count(flows["completed"]), sub, share, tone))
    cards.append(_fault_card(s))
    first = c["data_packets"]
    again = (
        f"{fmt.count(c['retransmitted'])} of {fmt.count(first)} packets, {fmt.count(c['timeouts'])} timeouts"
    )
    cards.append(_card("Sent again", fmt.percent(c["retransmitted"] / first) if first else fmt.NONE, again))
    return cards


def _fault_card(s: dict[str, Any]) -> dict[str, Any]:
    faults = s["faults"]
    if not faults:
        return _card("Faults", "0", "none in this run")
    lost = sum(fault["packets_lost"] for fault in faults)
    rtts = [fault["worst_leave_rtts"] for fault in faults if fault["worst_leave_rtts"] is not None]
    sub = f"{fmt.count(lost)} packets lost"
    if rtts:
        sub += f", left within {max(rtts):.1f} RTTs"
    return _card("Faults", fmt.count(len(faults)), sub)


def _fault_rows(result: Result) -> list[dict[str, str]]:
    rows = []
    for fault in result.summary["faults"][:MAX_FAULT_ROWS]:
        at, rtts = fault["at_us"], fault["worst_leave_rtts"]
        row = {
            "id": fmt.fault_label(fault["id"]),
            "kind": fmt.words(fault["kind"]),
            "element": fault["element"],
            "at": fmt.microseconds(at, 4),
            "first": fmt.since(fault["first_left_us"], at),
            "last": fmt.since(fault["last_left_us"], at),
            "rtts": fmt.NONE if rtts is None else f"{rtts:.1f}",
            "qps": fmt.count(fault["qps_affected"]),
            "lost": fmt.count(fault["packets_lost"]),
            "end": fmt.since(fault["end_us"], at),
            "back": fmt.since(fault["back_us"], at),
        }
        rows.append(
            {key: value if key in ("id", "kind", "element") else pretty(value) for key, value in row.items()}
        )
    return rows


def _slowest(result: Result) -> dict[str, Any] | None:
    slowest = result.summary["slowest_flow"]
    if slowest is None:
        return None
    sentence = slowest_sentence(slowest)
    return {"sentence": sentence[0].upper() + sentence[1:] + ("" if sentence.endswith(".") else ".")}


def _tables(result: Result) -> list[dict[str, Any]]:
    """Return the tables of figures: title and rows of (name, value, share or remark)."""
    s = result.summary
    c, p, e, fct = s["counters"], s["paths"], s["engine"], s["fct_us"]
    scale = fmt.time_scale(fct["p100"] or 0.0)
    names = {"mean": "mean", "p50": "P50 (median)", "p99": "P99", "p999": "P99.9", "p100": "P100 (slowest)"}
    fct_rows = [(name, fmt.in_scale(fct[key], scale), "") for key, name in names.items()]
    fct_rows += [
        ("makespan", fmt.microseconds(s["makespan_us"], 4), "release of the first to the end of the last")
    ]
    fct_rows += [("ideal", fmt.microseconds(s["ideal_fct_us"], 4), "lower bound, computed before the run")]
    first = c["data_packets"]
    packets = [("data packets", fmt.count(first), "first transmissions")]
    for key, value in c.items():
        if key not in ("data_packets", "dropped"):
            of_data = key in ("retransmitted", "trimmed", "ecn_marked") and first
            packets.append((fmt.words(key), fmt.count(value), fmt.percent(value / first) if of_data else ""))
    dropped = c["dropped"]
    drops = [
        (fmt.words(why), fmt.count(n), "") for why, n in sorted(dropped.items(), key=lambda row: -row[1])
    ]
    drops.append(("in all", fmt.count(sum(dropped.values())), ""))
    paths = [
        ("retired", fmt.count(p["assumed_bad"]), "state ASSUMED_BAD"),
        ("recovered", fmt.count(p["recovered"]), "after successful probes"),
        ("promoted", fmt.count(p["promoted"]), "backups that took a place"),
        ("retired wrongly", fmt.count(p["false_condemned"]), "no element of the path was broken"),
    ]
    uneven = imbalance(s["planes"])
    planes = [
        (f"plane {i}", fmt.size(n), fmt.percent(n / sum(s["planes"])) if n else "")
        for i, n in enumerate(s["planes"])
    ]
    planes.append(("fullest / mean", fmt.ratio(uneven), ""))
    tables = [
        ("Completion times", fct_rows),
        ("Packets", packets),
        ("Dropped, by reason", drops),
        ("EVs", paths),
    ]
    tables.append(("Data per plane", planes))
    if s["queues"]:
        tables.append(("Queue maxima", [(layer, fmt.size(n), "") for layer, n in s["queues"].items()]))
    tables.append(("Simulation", _engine_rows(e)))
    pretty_rows = [(title, [(a, pretty(b), remark) for a, b, remark in rows]) for title, rows in tables]
    return [{"title": title, "rows": rows} for title, rows in pretty_rows]


def _engine_rows(e: dict[str, Any]) -> list[tuple[str, str, str]]:
    rows = [
        ("packet-hops, data", fmt.count(e["packet_hops_data"]), ""),
        ("packet-hops, control", fmt.count(e["packet_hops_control"]), ""),
        ("speed", fmt.rate(e["hops_per_s"], "hops/s"), ""),
        ("wall time", f"{fmt.digits(e['wall_s'], 3)} s", ""),
        ("CPU time", f"{fmt.digits(e['cpu_s'], 3)} s", ""),
        ("peak memory", fmt.size(e["peak_rss_bytes"]), ""),
    ]
    known = {"packet_hops_data", "packet_hops_control", "hops_per_s", "wall_s", "cpu_s", "peak_rss_bytes"}
    for key, value in e.items():
        if key not in known:
            rows.append((fmt.words(_UNIT_ENDING.sub("", key)), _engine_value(key, value), ""))
    return rows


def _engine_value(key: str, value: Any) -> str:
    """Return an extra figure of the engine; its name's ending says the unit."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return fmt.setting(value)
    if key.endswith("_bytes"):
        return fmt.size(value)
    if key.endswith("_s") and not key.endswith("per_s"):
        return f"{fmt.digits(value, 3)} s"
    return fmt.count(value) if isinstance(value, int) else fmt.digits(value)
