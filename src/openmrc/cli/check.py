"""``mrc check``: validate a scenario without running it, or print the schema of scenario files."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click


@click.command("check", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", required=False, metavar="FILE")
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key, e.g. transport.ev_count=1."
)
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of scenario files (for editors) and stop."
)
def command(file: str | None, changes: tuple[str, ...], schema: bool) -> None:
    """Check the scenario FILE: every key, every element, every imported file, and what follows from them.

    All problems are shown at once, each with its line and a remedy; the exit code is then 2.
    """
    if schema:
        from openmrc.scenario import json_schema

        click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    if file is None:
        raise click.UsageError("give a scenario FILE, or --schema")
    click.echo(summary(file, changes))


def summary(file: str, changes: tuple[str, ...]) -> str:
    """Return what a valid scenario consists of, in a few lines."""
    from openmrc.fabric.topology import Topology
    from openmrc.scenario import build_graph, load_scenario, parse_set
    from openmrc.scenario.ideal import ideal, packet_cost
    from openmrc.units import format_duration, format_rate

    scenario = load_scenario(file, dict(parse_set(changes)))
    topology = Topology(scenario.fabric)
    graph = build_graph(scenario, topology)
    best = ideal(graph, topology, packet_cost(scenario.transport), cut_through=scenario.switch.cut_through)
    wiring = topology.wiring
    switches = f"{wiring.n_t0} T0 and {wiring.n_t1} T1" + (
        f" and {wiring.n_t2} T2" if wiring.tiers == 3 else ""
    )
    planes = f"{wiring.planes} plane{'s' if wiring.planes > 1 else ''} x {format_rate(wiring.port_rate_bps)}"
    lines = [
        f"{Path(file).name}: ok  (openmrc {_version()}, seed {scenario.seed})",
        f"  fabric   {wiring.n_nics} NICs, {planes}, {switches} in each plane",
        f"  traffic  {graph.describe()}",
    ]
    lines += [f"           {entry.pattern} {entry.job or ''}".rstrip() for entry in scenario.traffic]
    for fault in scenario.fault:
        where = fault.element or (f"random {fault.random.layer}" if fault.random else "")
        lasting = f" for {format_duration(fault.for_)}" if fault.for_ is not None else ""
        lines.append(f"  fault    {fault.kind} {where} at {format_duration(fault.at)}{lasting}")
    lines.append(f"  ideal    {format_duration(best.makespan_ps)}, limited by {best.limited_by}")
    return "\n".join(lines)


def _version() -> str:
    try:
        return version("openmrc")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "not installed"
