"""``mrc topo``: the arithmetic of a fabric."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from openmrc.errors import TopologyError
from openmrc.fabric.htsim_topo import read_htsim_topo
from openmrc.fabric.planner import FabricPlan, plan_fabric, plan_json, plan_rows
from openmrc.fabric.settings import PRESETS, FabricSettings, fabric_settings


def _read(path: Path) -> FabricSettings:
    """Return the fabric of a scenario file or of an htsim ``.topo`` file."""
    if path.suffix == ".topo":
        return read_htsim_topo(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(
            f"{path}: cannot be read ({error}); give a scenario or an htsim .topo file"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(f"{path}: is not TOML ({error}); an htsim file must end in .topo") from None
    table: Any = data.get("fabric")
    if isinstance(table, str):  # fabric = "leaf_spine.topo", beside the scenario
        return read_htsim_topo(path.parent / table)
    if not isinstance(table, dict):
        raise TopologyError(f'{path}: has no [fabric] table; add one, e.g. [fabric] preset = "openai-131k"')
    try:
        return fabric_settings(table)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def _print(plans: dict[str, FabricPlan]) -> None:
    table = Table()
    table.add_column("fabric", no_wrap=True)
    for title in plans:
        table.add_column(Path(title).name, justify="right", overflow="fold")
    columns = [plan_rows(plan) for plan in plans.values()]
    for row in zip(*columns, strict=True):  # the same label in every column
        table.add_row(row[0][0], *(value for _, value in row))
    console = Console()
    if not console.is_terminal:  # nobody's window to fit: keep every figure on its line
        console.width = max(80, 34 + 24 * len(plans))
    console.print(table)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice(list(PRESETS)),
    help="A named fabric instead of a file; give it again to compare.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; several fabrics make a list.")
def command(files: tuple[Path, ...], presets: tuple[str, ...], as_json: bool) -> None:
    """Print the arithmetic of a fabric: switches, links, optics, hops, what a failure costs.

    FILE is a scenario (its [fabric] table is read) or an htsim .topo file. Several stand side by side.

    \b
      mrc topo --preset openai-131k --preset clos3-64k
      mrc topo scenario.toml --json
    """
    if not files and not presets:
        raise click.UsageError(f"give a FILE or --preset {'|'.join(PRESETS)}")
    settings = {str(path): _read(path) for path in files}
    settings |= {name: FabricSettings(preset=name) for name in presets}
    plans: dict[str, FabricPlan] = {}
    for title, fabric in settings.items():
        try:
            plans[title] = plan_fabric(fabric)
        except TopologyError as error:
            raise TopologyError(f"{title}: {error}") from None
    if as_json:
        rows = [{"fabric": title} | plan_json(plan) for title, plan in plans.items()]
        click.echo(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
    else:
        _print(plans)
