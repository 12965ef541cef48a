"""How a result shows itself in a notebook: key figures, a sparkline of goodput, the faults.

No script and no style sheet: it uses the notebook's own colours, so it is right in light and dark.
"""

from __future__ import annotations

from html import escape

import numpy as np

from openmrc.report import format as fmt
from openmrc.report.describe import verdict
from openmrc.report.html import pretty
from openmrc.report.result import Result

MAX_FAULTS = 10
SPARK_POINTS = 120


def render_notebook(result: Result) -> str:
    """Return a small HTML fragment with the outcome of ``result``."""
    s = result.summary
    fct, goodput, c = s["fct_us"], s["goodput_gbps"], s["counters"]
    scale = fmt.time_scale(fct["p100"] or 0.0)
    percentiles = (("mean", "mean"), ("p50", "P50"), ("p99", "P99"), ("p999", "P99.9"), ("p100", "P100"))
    rows = [
        ("FCT", " · ".join(f"{name} {fmt.in_scale(fct[key], scale)}" for key, name in percentiles)),
        (
            "Makespan",
            f"{fmt.microseconds(s['makespan_us'], 4)} (ideal {fmt.microseconds(s['ideal_fct_us'], 4)})",
        ),
        (
            "Goodput",
            f"{fmt.gbps(goodput['mean_per_nic'])} per NIC (ceiling {fmt.gbps(goodput['ceiling_per_nic'])})",
        ),
        (
            "Packets",
            f"{fmt.count(c['data_packets'])} sent, {fmt.count(c['retransmitted'])} retransmitted, "
            f"{fmt.count(c['trimmed'])} trimmed, {fmt.count(sum(c['dropped'].values()))} dropped",
        ),
    ]
    for fault in s["faults"][:MAX_FAULTS]:
        left = fmt.since(fault["last_left_us"], fault["at_us"])
        text = f"{fmt.words(fault['kind'])} {fault['element']} at {fmt.microseconds(fault['at_us'])}, "
        rows.append(
            (fmt.fault_label(fault["id"]), f"{text}left {left}, {fmt.count(fault['packets_lost'])} lost")
        )
    if len(s["faults"]) > MAX_FAULTS:
        rows.append(("", f"and {len(s['faults']) - MAX_FAULTS} more faults"))
    cell = "padding:1px 12px 1px 0;text-align:left;vertical-align:top"
    body = "".join(
        f'<tr><th scope="row" style="{cell};font-weight:600">{escape(name)}</th>'
        f'<td style="{cell}">{escape(pretty(text))}</td></tr>'
        for name, text in rows
    )
    partial = "" if result.complete else " · PARTIAL: interrupted"
    outcome = escape(pretty(verdict(result)))
    head = f"{s['scenario']} · seed {s['seed']} · openmrc {s['version']}{partial}"
    return (
        f'<div style="font-family:system-ui,sans-serif;line-height:1.5">'
        f'<div style="opacity:.75">{escape(head)}</div>'
        f'<div style="font-size:1.15em;font-weight:600;margin:2px 0 6px">{outcome}</div>'
        f'{sparkline(result)}<table style="border-collapse:collapse"><tbody>{body}</tbody></table></div>'
    )


def sparkline(result: Result, width: int = 480, height: int = 60) -> str:
    """Return goodput over time as a small SVG, faults as vertical lines; empty without a timeline."""
    goodput = result.timeline.column("goodput_gbps").to_numpy()
    if goodput.size == 0 or goodput.max() <= 0:
        return ""
    first = np.unique(
        np.linspace(0, goodput.size, min(SPARK_POINTS, goodput.size), endpoint=False).astype(int)
    )
    # the lowest bin of each group, so that a short dip stays visible
    lowest = np.minimum.reduceat(goodput, first)
    x = np.linspace(0, width, lowest.size)
    y = height - 2 - lowest / goodput.max() * (height - 8)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    last = result.timeline.num_rows - 1
    end = result.timeline.column("t_us")[last].as_py() + result.timeline.column("bin_us")[last].as_py()
    lines = "".join(
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}" stroke="#d0454c" stroke-dasharray="3 2"/>'
        for fault in result.summary["faults"][:100]
        if (at := fault["at_us"] / end * width) <= width
    )
    title = f"Goodput over time, peak {fmt.gbps(float(goodput.max()))}; red lines are faults"
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'style="display:block;max-width:100%;margin-bottom:6px"><title>{escape(title)}</title>'
        f'<polyline points="{points}" fill="none" stroke="#3d7eea" stroke-width="1.6"/>{lines}</svg>'
    )
