"""``mrc bench``: how fast is the simulator, on the repository's own benchmarks?

Every run is a process of its own: peak memory is that of one run, and nothing is warm that a user
would not have warm. Kernels are compiled before, and loaded before the clock starts.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from openmrc.errors import InputError
from openmrc.units import format_size

SUITES = {
    "sim": ("sim_1024", "sim_8192_1x100g", "sim_8192_8x100g", "sim_131072"),
}
#: what a child process does: the same as ``mrc run``, and one line of JSON
CHILD = """
import json, sys
from openmrc import run
from openmrc.errors import OpenMrcError
try:
    result = run(sys.argv[1])
except OpenMrcError as error:
    print(json.dumps({"error": str(error), "exit_code": error.exit_code}))
    sys.exit(0)
s = result.summary
done = result.flows.filter([status == "ok" for status in result.flows["status"].to_pylist()])
bytes_delivered = sum(done["size_bytes"].to_pylist())
keys = ("scenario", "seed", "version", "digest", "status", "fabric", "traffic", "p100_over_ideal", "engine")
print(json.dumps({key: s[key] for key in keys} | {"bytes_delivered": bytes_delivered, "flows": s["flows"]}))
"""


def _hops_m(run: dict[str, Any]) -> float:
    return (run["engine"]["packet_hops_data"] + run["engine"]["packet_hops_control"]) / 1e6


#: figure -> (title, unit, its value in a run)
FIGURES: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "data_hops_m": ("M data hops", lambda r: r["engine"]["packet_hops_data"] / 1e6),
    "control_hops_m": ("M control hops", lambda r: r["engine"]["packet_hops_control"] / 1e6),
    "m_hops_per_cpu_s": ("M hops / CPU s", lambda r: _hops_m(r) / r["engine"]["cpu_s"]),
    "wall_s": ("simulated in, s", lambda r: r["engine"]["wall_s"]),
    "cpu_s": ("CPU s", lambda r: r["engine"]["cpu_s"]),
    "wall_s_per_gb": ("wall s / GB", lambda r: r["engine"]["wall_s"] / r["bytes_delivered"] * 1e9),
    "cpu_s_per_gb": ("CPU s / GB", lambda r: r["engine"]["cpu_s"] / r["bytes_delivered"] * 1e9),
    "build_s": ("build, s", lambda r: r["engine"]["build_s"]),
    "load_s": ("load kernels, s", lambda r: r["engine"]["compile_s"]),
    "process_s": ("whole process, s", lambda r: r["process_s"]),
    "peak_mb": ("peak memory, MB", lambda r: r["engine"]["peak_rss_bytes"] / 1e6),
    "p100_over_ideal": ("P100 / ideal", lambda r: r["p100_over_ideal"]),
}


@dataclass
class Benchmark:
    """One benchmark and its runs so far."""

    name: str
    path: Path
    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    exit_code: int = 0

    @property
    def digests(self) -> set[str]:
        """Digests of the runs: one, unless something is not deterministic."""
        return {run["digest"] for run in self.runs}

    def figures(self) -> dict[str, dict[str, float]]:
        """Return figure -> median, min and max over the runs."""
        found = {}
        for key, (_, value) in FIGURES.items():
            values = [value(run) for run in self.runs]
            found[key] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        return found


def benchmarks_folder() -> Path:
    """Return the folder of the benchmarks: inside an installed openmrc, or of a checkout."""
    import openmrc

    package = Path(openmrc.__file__).resolve().parent
    for folder in (package / "_benchmarks", package.parents[1] / "benchmarks"):
        if folder.is_dir():
            return folder
    raise InputError("the benchmarks are not installed; reinstall openmrc, or take them from its repository")


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    from importlib.metadata import version

    import psutil

    from openmrc.cli.doctor import cpu_name, usable_cores

    packages = {name: version(name) for name in ("numba", "llvmlite", "numpy")}
    return {
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": round(psutil.getloadavg()[0], 2),
        **packages,
    }


def run_once(path: Path) -> dict[str, Any]:
    """Run one scenario in a process of its own and return what it says about itself.

    Raises
    ------
    InputError
        The process died; its last words are in the message.
    """
    begin = time.perf_counter()
    call = [sys.executable, "-c", CHILD, str(path)]
    child = subprocess.run(call, capture_output=True, text=True, check=False)
    if child.returncode != 0 or not child.stdout.strip():
        words = child.stderr.strip().splitlines()[-1:] or ["no output"]
        raise InputError(f"{path}: the run ended with exit code {child.returncode}: {words[0]}")
    found: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    found["process_s"] = time.perf_counter() - begin
    return found


def measure(benchmark: Benchmark, runs: int) -> None:
    """Run a benchmark `runs` times, and say so."""
    for i in range(runs):
        found = run_once(benchmark.path)
        if "error" in found:
            benchmark.error, benchmark.exit_code = found["error"], found["exit_code"]
            click.echo(f"{benchmark.name}: {found['error']}", err=True)
            return
        if found["status"] != "complete":
            raise KeyboardInterrupt
        benchmark.runs.append(found)
        speed = FIGURES["m_hops_per_cpu_s"][1](found)
        wall = found["engine"]["wall_s"]
        click.echo(f"{benchmark.name} {i + 1}/{runs}: {wall:.2f} s, {speed:.1f} M hops/CPU s", err=True)


def report(benchmarks: list[Benchmark], where: dict[str, Any]) -> None:
    """Print one column per benchmark: medians, and in brackets least and most."""
    from rich.console import Console
    from rich.table import Table

    measured = [b for b in benchmarks if b.runs]
    click.echo(
        f"{where['cpu']}, {where['cores']} cores, {format_size(where['memory_bytes'])}; {where['system']}; "
        f"Python {where['python']}, numba {where['numba']}, numpy {where['numpy']}; "
        f"load average {where['load_average']}"
    )
    table = Table()
    table.add_column("median (least-most)", no_wrap=True)
    for b in measured:
        table.add_column(
            f"{b.name}, {len(b.runs)} run{'s' * (len(b.runs) > 1)}", justify="right", no_wrap=True
        )
    figures = [b.figures() for b in measured]
    for key, (title, _) in FIGURES.items():
        table.add_row(title, *(_spread(f[key]) for f in figures))
    table.add_row("digest", *(" ".join(sorted(d[:12] for d in b.digests)) for b in measured))
    console = Console()
    if not console.is_terminal:
        console.width = max(80, 30 + 36 * len(measured))
    if measured:
        console.print(table)
        for b in measured:
            first = b.runs[0]
            click.echo(f"{b.name}: {first['fabric']}; {first['traffic']}; openmrc {first['version']}")


def _spread(figure: dict[str, float]) -> str:
    def short(value: float) -> str:
        return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"

    text = short(figure["median"])
    if figure["min"] == figure["max"]:
        return text
    return f"{text} ({short(figure['min'])}-{short(figure['max'])})"


def to_json(benchmarks: list[Benchmark], where: dict[str, Any], compile_s: float | None) -> dict[str, Any]:
    """Return everything measured, for a snapshot in a file."""
    return {
        "schema": 1,
        "machine": where,
        "compile_s": compile_s,
        "benchmarks": [
            {
                "name": b.name,
                "error": b.error,
                "digest": sorted(b.digests),
                "figures": b.figures() if b.runs else None,
                "runs": b.runs,
            }
            for b in benchmarks
        ],
    }


def _compile_first() -> float | None:
    """Compile the kernels if they are not cached; returns the seconds, None when they were."""
    from openmrc.sim.warm import kernels_are_cached, load_kernels

    if kernels_are_cached():
        return None
    click.echo("compiling kernels, once per version (about a minute) ...", err=True)
    seconds = load_kernels()
    click.echo(f"compiled in {seconds:.1f} s", err=True)
    return seconds


def _chosen(suite: str, only: tuple[str, ...], folder: Path) -> list[Benchmark]:
    names = SUITES[suite]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise InputError(f"--only {unknown[0]}: no such benchmark; use {', '.join(names)}")
    chosen = [Benchmark(name, folder / f"{name}.toml") for name in names if not only or name in only]
    for benchmark in chosen:
        if not benchmark.path.is_file():
            raise InputError(f"{benchmark.path} is missing; take it from openmrc's repository")
    return chosen


@click.command("bench", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suite", type=click.Choice(list(SUITES)), default="sim")
@click.option("--runs", type=click.IntRange(1, 1000), default=5, show_default=True, help="Runs of each.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this benchmark. May be repeated.")
@click.option(
    "--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write figures and runs."
)
def command(suite: str, runs: int, only: tuple[str, ...], json_file: Path | None) -> None:
    """Run the repository's benchmarks and print medians; all defaults are on.

    Every run is a fresh process on one core. Wall and CPU seconds are those of the simulation alone;
    building the state, loading compiled kernels and compiling them stand apart.

    \b
    Examples:
      mrc bench
      mrc bench --only sim_1024 --runs 3 --json snapshot.json

    Exit codes: 0 ok, 1 two runs of one benchmark gave different digests, 2 bad input, 3 one does not
    fit in memory, 130 interrupted (what was measured until then is printed).
    """
    benchmarks = _chosen(suite, only, benchmarks_folder())
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise InputError(f"{json_file}: there is no such folder; choose another --json")
    where = machine()
    interrupted = False
    compile_s = _compile_first()
    try:
        for benchmark in benchmarks:
            measure(benchmark, runs)
    except KeyboardInterrupt:
        interrupted = True
    report(benchmarks, where)
    if json_file is not None:
        json_file.write_text(
            json.dumps(to_json(benchmarks, where, compile_s), indent=1) + "\n", encoding="utf-8"
        )
    different = [b.name for b in benchmarks if len(b.digests) > 1]
    if different:
        click.echo(f"mrc: different digests from the same seed: {', '.join(different)}", err=True)
    if interrupted:
        click.echo("interrupted: the figures are of the runs until then", err=True)
        raise click.exceptions.Exit(130)
    code = 1 if different else max(b.exit_code for b in benchmarks)
    if code:
        raise click.exceptions.Exit(code)
