"""Sentences about a result, shared by the terminal, the notebook and the HTML report."""

from __future__ import annotations

from typing import Any

from openmrc.report import format as fmt
from openmrc.report.result import Result


def _plural(number: int, noun: str) -> str:
    return f"{fmt.count(number)} {noun}{'' if number == 1 else 's'}"


def verdict(result: Result) -> str:
    """Return the outcome of the run in one or two sentences, for a reader in a hurry."""
    s = result.summary
    flows, faults = s["flows"], s["faults"]
    through = f" through {_plural(len(faults), 'fault')}" if faults else ""
    if flows["total"] == 0:
        return "The scenario has no flows: nothing was sent."
    if flows["completed"] == flows["total"]:
        head = "The flow" if flows["total"] == 1 else f"All {fmt.count(flows['total'])} flows"
        text = f"{head} completed{through}"
    else:
        text = f"{fmt.count(flows['completed'])} of {_plural(flows['total'], 'flow')} completed{through}"
        if flows["failed"]:
            text += f", {fmt.count(flows['failed'])} failed"
    if s["p100_over_ideal"] is not None:
        text += f" in {fmt.microseconds(s['makespan_us'], 4)}, {fmt.ratio(s['p100_over_ideal'])} x the ideal"
    if s["fct_us"]["p100"] is None:
        return text + "."
    return f"{text}; the slowest took {fmt.microseconds(s['fct_us']['p100'], 4)}."


def slowest_sentence(slowest: dict[str, Any]) -> str:
    """Return what is known about the slowest flow: who, how long, where its packets suffered."""
    text = f"flow {slowest['flow']}, NIC {slowest['src']} to NIC {slowest['dst']}, "
    text += f"{fmt.microseconds(slowest['fct_us'], 4)}"
    if slowest.get("ideal_us"):
        text += f" ({fmt.ratio(slowest['fct_us'] / slowest['ideal_us'])} x ideal)"
    if slowest["limited_by"]:
        return f"{text}: {slowest['limited_by']}"
    where = []
    if slowest["plane"] is not None:
        where.append(f"plane {slowest['plane']}")
    if slowest["link"] is not None:
        where.append(f"link {slowest['link']}")
    if slowest["ev"] is not None:
        where.append(f"EV {fmt.entropy_value(slowest['ev'])}")
    text += f"; {_plural(slowest['retransmissions'], 'retransmission')}"
    return f"{text}, most on {', '.join(where)}" if where else text
