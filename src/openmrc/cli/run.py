"""``mrc run``: simulate a scenario, show the report, write the files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from openmrc.sim.build import Plan
    from openmrc.sim.simulation import Simulation

EPILOG = """\b
Examples:
  mrc run examples/link-flap.toml
  mrc run examples/link-flap.toml --seed 7 --out runs/flap
  mrc run examples/link-flap.toml --pcap flap.pcap --only flow=3
  mrc run examples/permutation.toml --set transport.ev_count=32 --set traffic.0.size=16MB

Exit codes: 0 ok, 1 flows failed, 2 bad input, 3 does not fit in memory, 130 interrupted
(what was simulated until then is reported and written, marked partial)."""


@click.command("run", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="FILE")
@click.option("--seed", type=click.IntRange(0), help="Replace the scenario's seed.")
@click.option(
    "--out", metavar="DIR", help="Folder for summary.json, flows.parquet, timeline.parquet, report.html."
)
@click.option("--force", is_flag=True, help="Write into an existing DIR, replace an existing capture.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenario.")
@click.option("--pcap", metavar="FILE", help="Write simulated packets as real bytes (mrc decode reads it).")
@click.option(
    "--only",
    multiple=True,
    metavar="WHAT",
    help="In the capture: flow=3, qp=0-7 or nic=5,9. May be repeated.",
)
@click.option(
    "--at",
    type=click.Choice(["nic", "all"]),
    default="nic",
    show_default=True,
    help="Where the capture sees packets: as sent and received by NICs, or on every link besides.",
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    file: str,
    seed: int | None,
    out: str | None,
    force: bool,
    changes: tuple[str, ...],
    pcap: str | None,
    only: tuple[str, ...],
    at: Literal["nic", "all"],
    quiet: bool,
) -> None:
    """Simulate the scenario FILE, packet by packet, and report."""
    from openmrc._run import run
    from openmrc.scenario import parse_set

    if only and pcap is None:
        raise click.UsageError("--only says what --pcap FILE captures; add it")
    show = _Progress(quiet)
    result = run(
        file,
        seed=seed,
        overrides=dict(parse_set(changes)),
        out=out,
        force=force,
        pcap=pcap,
        only=only,
        at=at,
        on_plan=show.plan,
        on_progress=show.progress,
    )
    show.close()
    if not quiet:
        result.print(directory=Path(out) if out else None)
    if result.summary["status"] == "partial":
        raise click.exceptions.Exit(130)
    if result.summary["flows"]["failed"]:
        raise click.exceptions.Exit(1)


class _Progress:
    """What the user sees before and during a run; a bar only on a terminal."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None
        self.task: Any = None

    def plan(self, prepared: Plan) -> None:
        """Say what will be simulated, and that kernels are compiled if they are."""
        if self.quiet:
            return
        from openmrc._run import describe_plan
        from openmrc.sim.warm import kernels_are_cached

        click.echo(
            f"simulating {prepared.scenario.name}, seed {prepared.scenario.seed}: {describe_plan(prepared)}",
            err=True,
        )
        if not kernels_are_cached():
            click.echo("compiling kernels, once per version (about a minute) ...", err=True)

    def progress(self, simulation: Simulation) -> None:
        """Move the bar: share of the bytes delivered, simulated time, ETA."""
        if self.quiet or not sys.stderr.isatty():
            return
        from openmrc.sim.layout import I
        from openmrc.units import format_duration

        done = int(simulation.model.sim.s[I["delivered_bytes"]])
        if self.bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("simulated {task.fields[now]}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %  ETA"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.task = self.bar.add_task("", total=max(simulation.plan.graph.total_bytes, 1), now="0")
            self.bar.start()
        self.bar.update(self.task, completed=done, now=format_duration(simulation.now_ps))

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
