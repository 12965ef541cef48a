"""The plots of the HTML report, as plain Plotly figures (data and layout, ready for JSON).

A colour is written ``@name`` and stands for the CSS variable ``--name``: the page's script fills
it in, so one figure serves the light theme, the dark theme and print.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from openmrc.report import format as fmt
from openmrc.report.marks import fault_marks, fault_note
from openmrc.report.result import Result, plane_columns
from openmrc.report.stats import PERCENTILES_PER_MILLE, distribution, imbalance, rank_per_mille

#: more bins than this are merged for the plots (the Parquet file keeps them all)
MAX_BINS = 1500
PLANE_COLORS = 8


@dataclass(frozen=True)
class Figure:
    """One plot: what it is called, how to read it, what it shows in words, and the plot itself."""

    id: str
    title: str
    caption: str
    alt: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height_px: int = 320
    over_time: bool = False
    values: dict[str, Any] = field(default_factory=dict)


def rounded(values: Any, significant: int = 6) -> list[Any]:
    """Return numbers with few digits, so the file stays small; integers stay exact, NaN becomes None."""
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return array.tolist()
    array = array.astype(np.float64)
    return [None if x != x else float(f"{x:.{significant}g}") for x in array.tolist()]


@dataclass(frozen=True)
class Timeline:
    """The timeline as arrays for plotting: at most :data:`MAX_BINS` bins, times in ``unit``."""

    edge: NDArray  # bin starts and the end of the last bin, in `unit`
    columns: dict[str, NDArray]
    lowest_goodput: NDArray
    merged: int  # bins of the file in one bin of the plot
    scale: tuple[float, str]

    @property
    def unit(self) -> str:
        """The unit of time on the axes."""
        return self.scale[1].replace("us", "µs")

    def step(self, values: NDArray) -> list[Any]:
        """Return a column for a step plot over ``edge``: the last value also closes the last bin."""
        return rounded(np.append(values, values[-1:]))


def merge_bins(timeline: pa.Table) -> Timeline | None:
    """Return the timeline in at most :data:`MAX_BINS` bins, or None when it is empty.

    Rates are averaged over time, queues keep their maximum, EV states the worst bin, events are
    added up.
    """
    n = timeline.num_rows
    if n == 0:
        return None
    column = {name: timeline.column(name).to_numpy() for name in timeline.column_names}
    order = np.argsort(column["t_us"], kind="stable")
    column = {name: values[order] for name, values in column.items()}
    start, width = column["t_us"], column["bin_us"]
    merged = -(-n // MAX_BINS)
    first = np.arange(0, n, merged)
    weight = np.add.reduceat(width, first)
    columns: dict[str, NDArray] = {}
    for name in ["goodput_gbps", *plane_columns(timeline)]:
        columns[name] = np.add.reduceat(column[name] * width, first) / np.where(weight > 0, weight, 1)
    for name in ("queue_max_bytes", "evs_skip", "evs_assumed_bad"):
        columns[name] = np.maximum.reduceat(column[name], first)
    columns["evs_good"] = np.minimum.reduceat(column["evs_good"], first)
    for name in ("retransmitted", "trimmed", "dropped", "ecn_marked"):
        columns[name] = np.add.reduceat(column[name], first)
    end = start[-1] + width[-1]
    scale = fmt.time_scale(float(end))
    edge = np.append(start[first], end) / scale[0]
    return Timeline(edge, columns, np.minimum.reduceat(column["goodput_gbps"], first), merged, scale)


def all_figures(result: Result) -> dict[str, Figure]:
    """Return the plots that the result has data for, by id, in the order of the page."""
    figures: list[Figure | None] = []
    timeline = merge_bins(result.timeline)
    if timeline is not None:
        figures.append(goodput(result, timeline))
    figures += [fct_cdf(result), fct_tail(result), plane_bytes(result)]
    if timeline is not None:
        figures += [plane_rates(result, timeline), ev_states(result, timeline)]
        figures += [queues(result, timeline), losses(result, timeline)]
    return {figure.id: figure for figure in figures if figure is not None}


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "automargin": True, **more}


def _line(x: Any, y: Any, name: str, color: str, **more: Any) -> dict[str, Any]:
    line = {"color": color, "width": 2, **more.pop("line", {})}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": line, **more}


def _time_layout(result: Result, timeline: Timeline, y_title: str, **more: Any) -> dict[str, Any]:
    edge = timeline.edge
    shapes, annotations = fault_marks(result.summary["faults"], float(edge[-1]), timeline.scale)
    return {
        "xaxis": _axis(
            f"simulated time ({timeline.unit})",
            range=rounded([edge[0], edge[-1]]),
            unifiedhovertitle={"text": f"%{{x:.4~g}} {timeline.unit}"},
        ),
        "yaxis": _axis(y_title, rangemode="tozero", **more.pop("yaxis", {})),
        "hovermode": "x unified",
        "shapes": shapes,
        "annotations": annotations,
        "showlegend": True,
        **more,
    }


def _rate_scale(largest_gbps: float) -> tuple[float, str]:
    if largest_gbps >= 10_000_000:
        return 1e6, "Pb/s"
    return (1e3, "Tb/s") if largest_gbps >= 10_000 else (1.0, "Gb/s")


def _size_scale(largest_bytes: float) -> tuple[float, str]:
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if largest_bytes >= factor:
            return factor, unit
    return 1.0, "B"


def active_nics(result: Result) -> int:
    """Return how many NICs can be busy at once: the smaller number of senders and of receivers."""
    return min(len(result.flows.column(end).unique()) for end in ("src", "dst"))


def goodput(result: Result, timeline: Timeline) -> Figure:
    """Return the plot of payload delivered over time, under the line-rate ceiling."""
    values = timeline.columns["goodput_gbps"]
    nics = active_nics(result)
    per_nic = result.summary["goodput_gbps"]["ceiling_per_nic"]
    ceiling = nics * per_nic
    factor, unit = _rate_scale(max(ceiling, float(values.max())))
    x = rounded(timeline.edge)
    hover = f"%{{y:.4~g}} {unit}"
    data = [
        _line(
            x,
            timeline.step(values / factor),
            "goodput",
            "@c-goodput",
            fill="tozeroy",
            fillcolor="@c-goodput-fill",
            hovertemplate=hover,
            line={"shape": "hv"},
        )
    ]
    if timeline.merged > 1:
        data.append(
            _line(
                x,
                timeline.step(timeline.lowest_goodput / factor),
                f"lowest of {timeline.merged} bins",
                "@c-muted",
                hovertemplate=hover,
                line={"shape": "hv", "width": 1},
            )
        )
    if ceiling > 0:
        data.append(
            _line(
                [x[0], x[-1]],
                rounded([ceiling / factor] * 2),
                f"line-rate ceiling: {fmt.count(nics)} NIC{'' if nics == 1 else 's'} x {fmt.gbps(per_nic)}",
                "@c-muted",
                hoverinfo="skip",
                line={"dash": "dash", "width": 1.5},
            )
        )
    busy = values[values > 0]
    peak = f"{fmt.digits(float(values.max()) / factor)} {unit}"
    mean = f"{fmt.digits(float(busy.mean() if busy.size else 0.0) / factor)} {unit}"
    return Figure(
        "goodput",
        "Goodput over time",
        "Payload delivered to all NICs together. " + fault_note(result.summary["faults"]),
        f"Line chart of goodput over simulated time. Peak {peak}, mean while busy {mean}, ceiling "
        f"{fmt.digits(ceiling / factor)} {unit}. {len(result.summary['faults'])} faults marked.",
        data,
        _time_layout(result, timeline, f"goodput ({unit})"),
        360,
        True,
    )


def _distributions(result: Result) -> tuple[tuple[float, str], list[tuple[str, str, str, NDArray, NDArray]]]:
    """Return the time scale, and name, colour, dash, values and ranks of the FCT and the ideal."""
    fct = result.completed_fct_us()
    scale = fmt.time_scale(float(fct.max()) if fct.size else 0.0)
    done = result.flows.filter(pc.equal(result.flows.column("status"), "ok"))
    ideal = done.column("ideal_us").drop_null().to_numpy()
    found = []
    if fct.size:
        x, rank = distribution(fct)
        found.append(("FCT", "@c-goodput", "solid", x / scale[0], rank))
    if fct.size and ideal.size:
        x, rank = distribution(ideal)
        found.append(("ideal: each flow alone in the fabric", "@c-ideal", "dash", x / scale[0], rank))
    return scale, found


def _x_range(found: list[tuple[str, str, str, NDArray, NDArray]]) -> list[float]:
    low = min(float(x[0]) for *_, x, _ in found)
    high = max(float(x[-1]) for *_, x, _ in found)
    room = 0.06 * (high - low) or 0.05 * high or 1.0
    return rounded([max(low - room, 0.0), high + room])


def fct_cdf(result: Result) -> Figure | None:
    """Return the cumulative distribution of the flow completion times."""
    scale, found = _distributions(result)
    if not found:
        return None
    unit = scale[1].replace("us", "µs")
    data = []
    for name, color, dash, x, rank in found:
        # from 0 % straight up at the fastest flow: a distribution is a staircase
        xs, ys = np.append(x[:1], x), np.append(0, rank) / rank[-1] * 100
        hover = f"{name.split(':')[0]}: %{{y:.4~g}} % of flows within %{{x:.5~g}} {unit}<extra></extra>"
        data.append(
            _line(
                rounded(xs), rounded(ys), name, color, hovertemplate=hover, line={"shape": "hv", "dash": dash}
            )
        )
    fct = result.summary["fct_us"]
    return Figure(
        "fct-cdf",
        "Flow completion time",
        "The share of flows that completed within a time. The closer to the dashed line, the better.",
        f"Cumulative distribution of the completion times of {fmt.count(int(found[0][4][-1]))} flows: "
        f"median {fmt.microseconds(fct['p50'], 4)}, P99 {fmt.microseconds(fct['p99'], 4)}, "
        f"slowest {fmt.microseconds(fct['p100'], 4)}.",
        data,
        {
            "xaxis": _axis(f"flow completion time ({unit})", range=_x_range(found)),
            "yaxis": _axis("flows completed (%)", range=[0, 102], ticksuffix=" %"),
            "hovermode": "closest",
            "showlegend": True,
        },
    )


def percentile_marks(fct_us: dict[str, float], total: int) -> list[tuple[str, float, float]]:
    """Return (label, value in us, share of flows at or above in percent); equal values share a mark.

    >>> percentile_marks({"p50": 3.0, "p99": 9.0, "p999": 9.0, "p100": 9.0}, 10)
    [('P50', 3.0, 60.0), ('P99 = P99.9 = P100', 9.0, 10.0)]
    """
    names = {"p50": "P50", "p99": "P99", "p999": "P99.9", "p100": "P100"}
    merged: dict[float, list[str]] = {}
    for key in names:
        merged.setdefault(fct_us[key], []).append(key)
    marks = []
    for value, keys in merged.items():
        rank = rank_per_mille(total, PERCENTILES_PER_MILLE[keys[-1]])
        marks.append((" = ".join(names[key] for key in keys), value, 100 * (total - rank + 1) / total))
    return marks


def _percentile_trace(
    marks: list[tuple[str, float, float]], scale: tuple[float, str], x_range: list[float]
) -> dict[str, Any]:
    middle = sum(x_range) / 2
    x = [value / scale[0] for _, value, _ in marks]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": rounded(x),
        "y": rounded([share for *_, share in marks]),
        "text": [f"{label}  {fmt.in_scale(value, scale).replace('us', 'µs')}" for label, value, _ in marks],
        # above right and below left of a falling curve nothing is drawn
        "textposition": ["top right" if at < middle else "bottom left" for at in x],
        "name": "percentiles",
        "marker": {"color": "@c-fault", "size": 9, "symbol": "diamond"},
        "textfont": {"color": "@fg", "size": 12},
        "hovertemplate": "%{text}<extra></extra>",
        "cliponaxis": False,
    }


def fct_tail(result: Result) -> Figure | None:
    """Return the slow tail: the share of flows that took at least a time, on a logarithmic axis."""
    scale, found = _distributions(result)
    if not found:
        return None
    unit = scale[1].replace("us", "µs")
    data = []
    for name, color, dash, x, rank in found:
        share = (rank[-1] - rank + 1) / rank[-1] * 100
        hover = f"{name.split(':')[0]}: %{{y:.3~g}} % of flows took %{{x:.5~g}} {unit} or more<extra></extra>"
        data.append(
            _line(
                rounded(x),
                rounded(share),
                name,
                color,
                hovertemplate=hover,
                line={"shape": "vh", "dash": dash},
            )
        )
    total = int(found[0][4][-1])
    marks = _percentile_trace(percentile_marks(result.summary["fct_us"], total), scale, _x_range(found))
    data.append(marks)
    lowest = 100 / total
    ticks = [100 / 10**k for k in range(9) if 100 / 10**k >= lowest / 3]
    slowest = f"slowest {fmt.microseconds(result.summary['fct_us']['p100'], 4)}"
    return Figure(
        "fct-tail",
        "The slow tail",
        "The share of flows that took at least a time, on a logarithmic scale. Steep means no stragglers.",
        f"Complementary distribution of the completion times on a logarithmic axis; {slowest}. "
        + "; ".join(marks["text"])
        + ".",
        data,
        {
            "xaxis": _axis(f"flow completion time ({unit})", range=_x_range(found)),
            "yaxis": _axis(
                "flows at least as slow (%)",
                type="log",
                range=[float(np.log10(lowest)) - 0.4, 2.12],
                tickvals=ticks,
                ticktext=[f"{tick:g} %" for tick in ticks],
            ),
            "hovermode": "closest",
            "showlegend": True,
        },
    )


def _plane_color(plane: int) -> str:
    return f"@p{plane % PLANE_COLORS}"


def plane_bytes(result: Result) -> Figure | None:
    """Return the bars of data bytes per plane with their distance from the mean."""
    planes = np.array(result.summary["planes"], dtype=np.float64)
    uneven = imbalance(result.summary["planes"])
    if uneven is None:
        return None
    mean = float(planes.mean())
    factor, unit = _size_scale(float(planes.max()))
    off = [round((float(load) / mean - 1) * 100, 1) for load in planes]
    text = [f"{distance:+.1f}%" if distance else "0.0%" for distance in off]
    names = [str(p) for p in range(planes.size)]
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "x": names,
            "y": rounded(planes / factor),
            "text": text,
            "textposition": "inside",
            "insidetextanchor": "end",
            "textangle": 0,
            "textfont": {"size": 12, "color": "@on-bar"},
            "marker": {"color": [_plane_color(p) for p in range(planes.size)]},
            "hovertemplate": f"plane %{{x}}: %{{y:.5~g}} {unit} (%{{text}} from the mean)<extra></extra>",
            "name": "bytes",
        }
    ]
    loads = ", ".join(f"plane {p} {fmt.size(load)}" for p, load in enumerate(planes))
    return Figure(
        "plane-bytes",
        "Bytes per plane",
        f"Payload per plane and the distance from the mean. Fullest over mean: {fmt.ratio(uneven)}.",
        f"Bar chart of bytes per plane: {loads}.",
        data,
        {
            "xaxis": _axis("plane", type="category"),
            "yaxis": _axis(f"data sent ({unit})", rangemode="tozero"),
            "bargap": 0.25,
            "uniformtext": {"mode": "hide", "minsize": 8},
            "showlegend": False,
        },
    )


def plane_rates(result: Result, timeline: Timeline) -> Figure:
    """Return the rate of each plane over time."""
    names = [name for name in timeline.columns if name.startswith("plane")]
    largest = max((float(timeline.columns[name].max()) for name in names), default=0.0)
    factor, unit = _rate_scale(largest)
    x = rounded(timeline.edge)
    data = [
        _line(
            x,
            timeline.step(timeline.columns[name] / factor),
            f"plane {p}",
            _plane_color(p),
            hovertemplate=f"%{{y:.4~g}} {unit}",
            line={"shape": "hv", "width": 1.6, "dash": "solid" if p < PLANE_COLORS else "dot"},
        )
        for p, name in enumerate(names)
    ]
    return Figure(
        "plane-rates",
        "Rate per plane over time",
        "Payload of each plane, all NICs together. A plane that dips alone was avoided by its QPs.",
        f"Line chart of the data rate of {len(names)} planes over simulated time; the highest is "
        f"{fmt.digits(largest / factor)} {unit}.",
        data,
        _time_layout(result, timeline, f"rate ({unit})"),
        over_time=True,
    )


def ev_states(result: Result, timeline: Timeline) -> Figure:
    """Return the plot of EVs that are not GOOD, with the GOOD ones in a strip above."""
    columns, x = timeline.columns, rounded(timeline.edge)
    data = [
        _line(x, timeline.step(columns["evs_good"]), "GOOD", "@c-ideal", yaxis="y2", line={"shape": "hv"}),
        _line(
            x,
            timeline.step(columns["evs_assumed_bad"]),
            "ASSUMED_BAD",
            "@c-fault",
            stackgroup="not good",
            fillcolor="@c-fault-fill",
            line={"shape": "hv", "width": 1.2},
        ),
        _line(
            x,
            timeline.step(columns["evs_skip"]),
            "SKIP",
            "@c-skip",
            stackgroup="not good",
            fillcolor="@c-skip-fill",
            line={"shape": "hv", "width": 1.2},
        ),
    ]
    for trace in data:
        trace["hovertemplate"] = "%{y:,d} EVs"
    layout = _time_layout(result, timeline, "not GOOD (EVs)", yaxis={"domain": [0, 0.64]})
    # the strip above shares the axis of time and answers to the same pointer
    layout["hoversubplots"] = "axis"
    layout["yaxis2"] = _axis("GOOD", domain=[0.72, 1.0], anchor="x", nticks=3)
    most, skipped, fewest = (
        fmt.count(int(value))
        for value in (columns["evs_assumed_bad"].max(), columns["evs_skip"].max(), columns["evs_good"].min())
    )
    return Figure(
        "ev-states",
        "EV states over time",
        "EVs of all QPs by state: ASSUMED_BAD are retired after losses, SKIP sit out one turn after a mark.",
        f"Area chart of EV states over simulated time: at most {most} ASSUMED_BAD and "
        f"{skipped} SKIP at once, at least {fewest} GOOD.",
        data,
        layout,
        380,
        True,
    )


def queues(result: Result, timeline: Timeline) -> Figure:
    """Return the largest queue in the fabric over time."""
    values = timeline.columns["queue_max_bytes"].astype(np.float64)
    factor, unit = _size_scale(float(values.max()))
    data = [
        _line(
            rounded(timeline.edge),
            timeline.step(values / factor),
            "largest queue",
            "@c-queue",
            fill="tozeroy",
            fillcolor="@c-queue-fill",
            hovertemplate=f"%{{y:.4~g}} {unit}",
            line={"shape": "hv"},
        )
    ]
    layers = ", ".join(f"{layer} {fmt.size(size)}" for layer, size in result.summary["queues"].items())
    return Figure(
        "queues",
        "Largest queue over time",
        "The fullest data queue of any switch port." + (f" Largest per layer: {layers}." if layers else ""),
        f"Line chart of the largest data queue over simulated time; maximum {fmt.size(float(values.max()))}.",
        data,
        _time_layout(result, timeline, f"queue ({unit})", showlegend=False),
        over_time=True,
    )


def losses(result: Result, timeline: Timeline) -> Figure:
    """Return packets dropped, trimmed, marked and sent again per bin of time."""
    x = rounded(timeline.edge)
    series = (
        ("dropped", "dropped", "@c-fault", True),
        ("trimmed", "trimmed", "@c-skip", True),
        ("retransmitted", "sent again", "@c-goodput", True),
        ("ecn_marked", "ECN-marked", "@c-muted", "legendonly"),
    )
    data = [
        _line(
            x,
            timeline.step(timeline.columns[column]),
            name,
            color,
            visible=visible,
            hovertemplate="%{y:,d} packets",
            line={"shape": "hv", "width": 1.6},
        )
        for column, name, color, visible in series
    ]
    bin_us = float(np.diff(timeline.edge).mean()) * timeline.scale[0]
    totals = ", ".join(f"{fmt.count(int(timeline.columns[c].sum()))} {name}" for c, name, *_ in series)
    return Figure(
        "losses",
        "Losses and repairs over time",
        f"Packets in each bin of {fmt.microseconds(bin_us)}. Select ECN-marked in the legend to add it.",
        f"Line chart of packets per bin over simulated time. In all: {totals}.",
        data,
        _time_layout(result, timeline, "packets per bin"),
        over_time=True,
    )
