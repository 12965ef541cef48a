"""How faults are drawn into the plots over time: spans, lines, and labels that do not overlap."""

from __future__ import annotations

from typing import Any

from openmrc.report import format as fmt

#: more faults than this are not drawn (all stand in the table)
MAX_DRAWN = 200
#: labels closer than this share of the axis are merged
LABEL_DISTANCE = 0.12
#: up to this many faults, leaving and coming back are drawn too
MAX_DETAILED = 12
#: longer names are cut in the labels (the table and the hover text have them whole)
MAX_LABEL = 14


def _vertical(kind: str, x0: float, x1: float, **more: Any) -> dict[str, Any]:
    return {"type": kind, "xref": "x", "yref": "paper", "x0": x0, "x1": x1, "y0": 0, "y1": 1, **more}


def _span(x0: float, x1: float, color: str) -> dict[str, Any]:
    return _vertical("rect", x0, x1, fillcolor=color, line={"width": 0}, layer="below")


def _stroke(x: float, color: str, dash: str) -> dict[str, Any]:
    return _vertical("line", x, x, line={"color": color, "width": 1.2, "dash": dash}, layer="above")


def fault_marks(
    faults: list[dict[str, Any]], end: float, scale: tuple[float, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the shapes and the labels of ``faults`` on a time axis that ends at ``end``.

    Parameters
    ----------
    faults
        ``summary["faults"]``.
    end
        End of the axis, in the axis' unit.
    scale
        Microseconds per unit of the axis, and the unit.
    """
    shapes: list[dict[str, Any]] = []
    drawn = [fault for fault in sorted(faults, key=lambda f: f["at_us"]) if fault["at_us"] / scale[0] <= end]
    drawn = drawn[:MAX_DRAWN]
    detailed = len(drawn) <= MAX_DETAILED
    for fault in drawn:
        at = fault["at_us"] / scale[0]
        until_us = fault["end_us"] if fault["end_us"] is not None else fault["back_us"]
        until = end if until_us is None else min(until_us / scale[0], end)
        shapes.append(_span(at, until, "@c-fault-span"))
        if detailed and fault["last_left_us"] is not None:
            shapes.append(_span(at, min(fault["last_left_us"] / scale[0], end), "@c-fault-span"))
        shapes.append(_stroke(at, "@c-fault" if detailed else "@c-fault-fill", "solid"))
        if detailed and fault["back_us"] is not None and fault["back_us"] / scale[0] <= end:
            shapes.append(_stroke(fault["back_us"] / scale[0], "@c-ideal", "dot"))
    return shapes, _labels(drawn, end, scale)


def _labels(faults: list[dict[str, Any]], end: float, scale: tuple[float, str]) -> list[dict[str, Any]]:
    groups: list[list[dict[str, Any]]] = []
    for fault in faults:
        if groups and (fault["at_us"] - groups[-1][0]["at_us"]) / scale[0] < LABEL_DISTANCE * end:
            groups[-1].append(fault)
        else:
            groups.append([fault])
    labels = []
    for group in groups:
        first = fmt.fault_label(group[0]["id"])
        if len(first) > MAX_LABEL:
            first = first[: MAX_LABEL - 1] + "…"
        labels.append(
            {
                "x": group[0]["at_us"] / scale[0],
                "y": 1,
                "xref": "x",
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "text": _plotly_text(first if len(group) == 1 else f"{first} +{len(group) - 1}"),
                "font": {"color": "@c-fault", "size": 12},
                "hovertext": "<br>".join(_hover(fault) for fault in group[:10]),
            }
        )
    return labels


def _hover(fault: dict[str, Any]) -> str:
    at = fmt.microseconds(fault["at_us"]).replace("us", "µs")
    name = f"{fmt.fault_label(fault['id'])}: {fmt.words(fault['kind'])} {fault['element']}"
    text = f"{name} at {at}, {fmt.count(fault['packets_lost'])} packets lost"
    return _plotly_text(text)


def _plotly_text(text: str) -> str:
    # Plotly reads a little HTML in labels; names come from a scenario file
    return text.replace("&", "&amp;").replace("<", "&lt;")


def fault_note(faults: list[dict[str, Any]]) -> str:
    """Return how to read the marks, for a caption."""
    if not faults:
        return "No faults in this run."
    note = "Shaded: an element is broken"
    if len(faults) <= MAX_DETAILED:
        note += ", darker until the last affected QP has left it; green dots: it is used again"
    if len(faults) > MAX_DRAWN:
        note += f" (the first {MAX_DRAWN} of {fmt.count(len(faults))} faults are drawn)"
    return note + "."
