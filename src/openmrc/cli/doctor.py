"""``mrc doctor``: is everything in place? Compiles the kernels, so that the first run does not."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from openmrc.units import format_size

OK, WARN, FAIL = "ok", "warn", "FAIL"
#: what the sub-folders of the kernel cache are called: openmrc.jit.source_key
VERSION_FOLDER = re.compile(r"[0-9a-f]{16}")
CACHE_SUFFIXES = (".nbi", ".nbc")
PYTHON_NEEDED = (3, 11)
NEEDED_HERE = ("numba", "numpy", "psutil", "platformdirs")
LITTLE_MEMORY_BYTES = 1 << 30
_REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)\s*\(?([^;)]*)\)?\s*(;.*)?$")


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: str
    text: str
    remedy: str | None = None


# --- installed packages ----------------------------------------------------------------------
def release_of(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> release_of("0.68.1"), release_of("2.0rc1")
    ((0, 68, 1), (2, 0))
    """
    parts: list[int] = []
    for piece in version.split("."):
        digits = re.match(r"\d+", piece)
        if digits is None:
            break
        parts.append(int(digits.group()))
        if digits.group() != piece:
            break
    return tuple(parts)


def satisfies(version: str, wanted: str) -> bool:
    """Return whether a version meets comma-separated bounds with ``==``, ``>=`` and ``<``.

    >>> satisfies("2.3.1", ">=2.0,<2.5"), satisfies("0.68.0", "==0.68.1"), satisfies("8.2", "")
    (True, False, True)
    """
    have = release_of(version)
    for bound in filter(None, (piece.strip() for piece in wanted.split(","))):
        operator, number = re.match(r"([<>=!~]*)\s*(.*)", bound).groups()  # type: ignore[union-attr]
        limit = release_of(number)
        width = max(len(have), len(limit))
        a, b = (numbers + (0,) * (width - len(numbers)) for numbers in (have, limit))
        if not {"==": a == b, ">=": a >= b, "<": a < b}.get(operator, True):
            return False
    return True


def requirements() -> dict[str, str]:
    """Return package -> bounds: of the installed openmrc, or of the checkout it runs from."""
    try:
        lines = metadata.requires("openmrc") or []
    except metadata.PackageNotFoundError:
        import tomllib

        import openmrc

        project = Path(openmrc.__file__).resolve().parents[2] / "pyproject.toml"
        if not project.is_file():
            return {}
        lines = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    found = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match and "extra ==" not in (match.group(3) or ""):
            found[match.group(1)] = match.group(2).strip()
    return found


def _python() -> Check:
    text = f"Python {platform.python_version()} ({sys.executable})"
    if sys.version_info[:2] >= PYTHON_NEEDED:
        return Check("python", OK, text)
    return Check("python", FAIL, text, "install Python 3.11 or newer")


def _openmrc() -> Check:
    import openmrc

    return Check("openmrc", OK, f"openmrc {openmrc.__version__} in {Path(openmrc.__file__).parent}")


def _packages() -> Iterator[Check]:
    needed = requirements()
    if not needed:
        yield Check("packages", WARN, "no list of requirements: openmrc is not installed", "pip install .")
    for name, wanted in needed.items():
        remedy = f"pip install '{name}{wanted}'"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Check(name, FAIL, f"{name} is missing ({wanted or 'any version'})", remedy)
            continue
        good = satisfies(version, wanted)
        text = f"{name} {version}" + (f" ({wanted})" if wanted else "")
        yield Check(name, OK if good else FAIL, text, None if good else remedy)


# --- machine ---------------------------------------------------------------------------------
def cpu_name() -> str:
    """Return the processor's name as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _machine() -> Check:
    import psutil

    memory = psutil.virtual_memory()
    text = (
        f"{cpu_name()}, {usable_cores()} cores; {format_size(memory.total)} of memory, "
        f"{format_size(memory.available)} available"
    )
    if memory.available < LITTLE_MEMORY_BYTES:
        return Check("machine", WARN, text, "large scenarios will not fit: close other programs")
    return Check("machine", OK, text)


# --- kernel cache ----------------------------------------------------------------------------
def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def is_ours(folder: Path) -> bool:
    """Return whether openmrc made this cache folder: by its name, and nothing but kernels is in it."""
    from openmrc.sim.warm import LOCK_NAME

    if folder.is_symlink() or not folder.is_dir() or not VERSION_FOLDER.fullmatch(folder.name):
        return False
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return all(path.suffix in CACHE_SUFFIXES or path.name == LOCK_NAME for path in files)


def old_versions() -> list[Path]:
    """Return the cache folders of other versions of the kernels."""
    from openmrc.jit import cache_parent, source_key

    parent = cache_parent()
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.name != source_key() and is_ours(path))


def _cache(clear: bool, facts: dict[str, Any]) -> Iterator[Check]:
    from openmrc.jit import JIT_DISABLED, cache_dir, cache_parent

    folder, parent = cache_dir(), cache_parent()
    old = old_versions()
    old_bytes = sum(map(folder_bytes, old))
    facts.update(
        folder=str(folder) if folder else None,
        parent=str(parent),
        bytes=folder_bytes(folder) if folder else 0,
        old_versions=[path.name for path in old],
        old_bytes=old_bytes,
    )
    if JIT_DISABLED:
        yield Check("kernels", WARN, "NUMBA_DISABLE_JIT is set: kernels run as plain Python", "unset it")
    if folder is None:
        text = f"kernel cache {parent} cannot be written: every process compiles anew, about a minute"
        yield Check("cache", WARN, text, "set NUMBA_CACHE_DIR to a folder that can be written")
    else:
        yield Check("cache", OK, f"kernel cache {folder}, {format_size(facts['bytes'])}")
    if old and clear:
        for path in old:
            shutil.rmtree(path)
        text = f"removed kernels of {len(old)} other versions, {format_size(old_bytes)}"
        yield Check("old kernels", OK, text)
    elif old:
        text = f"kernels of {len(old)} other versions, {format_size(old_bytes)}"
        yield Check("old kernels", OK, text, "mrc doctor --clear removes them")


def _compile(facts: dict[str, Any]) -> Check:
    from openmrc.jit import JIT_DISABLED
    from openmrc.sim.warm import kernels_are_cached, load_kernels

    if JIT_DISABLED:
        return Check("compile", OK, "nothing to compile")
    cached = kernels_are_cached()
    if not cached:
        click.echo("compiling kernels, once per version (about a minute) ...", err=True)
    try:
        seconds = load_kernels()
    except Exception as error:  # whatever goes wrong in numba or LLVM is what the doctor is for
        return Check("compile", FAIL, f"kernels do not compile: {type(error).__name__}: {error}", "report it")
    facts.update(compiled=not cached, compile_s=round(seconds, 3))
    word = "loaded from the cache" if cached else "compiled"
    return Check("compile", OK, f"kernels {word} in {seconds:.1f} s")


def examine(clear: bool, compile_them: bool) -> tuple[list[Check], dict[str, Any]]:
    """Return all checks, and facts about the kernel cache."""
    facts: dict[str, Any] = {}
    checks = [_openmrc(), _python(), *_packages()]
    if any(check.status == FAIL and check.name in NEEDED_HERE for check in checks):
        return checks, facts
    checks += [_machine(), *_cache(clear, facts)]
    if compile_them:
        checks.append(_compile(facts))
        facts["bytes"] = folder_bytes(Path(facts["folder"])) if facts["folder"] else 0
    return checks, facts


@click.command("doctor", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--no-compile", is_flag=True, help="Do not compile the kernels.")
@click.option("--clear", is_flag=True, help="Remove compiled kernels of other versions.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(no_compile: bool, clear: bool, as_json: bool) -> None:
    """Check the installation and compile the kernels, so that the first run starts at once.

    Exit codes: 0 everything is in place (warnings included), 1 something must be repaired.
    """
    checks, facts = examine(clear, not no_compile)
    good = all(check.status != FAIL for check in checks)
    if as_json:
        found = {"ok": good, "checks": [asdict(check) for check in checks], "kernels": facts}
        click.echo(json.dumps(found, indent=1))
    else:
        for check in checks:
            click.echo(f"{check.status:4}  {check.text}" + (f"; {check.remedy}" if check.remedy else ""))
        click.echo("all is in place" if good else "repair the lines that say FAIL, then run mrc doctor again")
    if not good:
        raise click.exceptions.Exit(1)
