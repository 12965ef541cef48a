"""``mrc examples``: list the examples that come with openmrc, show one, copy one."""

from __future__ import annotations

import re
from pathlib import Path

import click

import openmrc
from openmrc.errors import InputError

#: values of these keys are files that an example needs beside it
_FILE = re.compile(r'^\s*(?:file|fabric)\s*=\s*"([^"]+)"', re.MULTILINE)


def examples_folder() -> Path:
    """Return the folder of the examples: inside an installed openmrc, or ``examples/`` of a checkout."""
    package = Path(openmrc.__file__).resolve().parent
    for folder in (package / "_examples", package.parents[1] / "examples"):
        if folder.is_dir():
            return folder
    raise InputError("the examples are not installed; reinstall openmrc, or take them from its repository")


def example_names() -> dict[str, Path]:
    """Return name -> file of every example; the name is the path below the folder without ``.toml``."""
    folder = examples_folder()
    found = sorted(folder.rglob("*.toml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}


def first_comment(text: str) -> str:
    """Return the first comment line of a scenario.

    >>> first_comment("# Two jobs\\nseed = 1\\n")
    'Two jobs'
    """
    return next((line.lstrip("# ").rstrip() for line in text.splitlines() if line.startswith("#")), "")


@click.command("examples", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@click.option(
    "--copy-to",
    "target",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Copy the example NAME and the files it needs to DIR.",
)
def command(name: str | None, target: Path | None) -> None:
    """List the examples, print the one called NAME, or copy it."""
    from openmrc.scenario.problems import did_you_mean

    known = example_names()
    if name is None:
        if target is not None:
            raise click.UsageError("--copy-to needs the NAME of an example")
        width = max(map(len, known), default=0)
        for each, path in known.items():
            click.echo(f"{each:{width}}  {first_comment(path.read_text(encoding='utf-8'))}")
        click.echo(
            f"\nin {examples_folder()}; mrc run FILE runs one, mrc examples NAME --copy-to DIR copies it"
        )
        return
    wanted = name.removesuffix(".toml")
    if wanted not in known:
        hint = did_you_mean(wanted, known) or "`mrc examples` lists them"
        raise InputError(f"there is no example {name!r}; {hint}")
    if target is None:
        click.echo(known[wanted].read_text(encoding="utf-8"), nl=False)
        return
    written = copy_example(known[wanted], target)
    click.echo("\n".join(f"wrote {path}" for path in written) + f"\nnext: mrc run {written[0]}")


def copy_example(source: Path, target: Path) -> list[Path]:
    """Copy an example and the files it names to a folder; return what was written, the example first.

    Raises
    ------
    InputError
        A file exists already, or the folder cannot be written.
    """
    text = source.read_text(encoding="utf-8")
    copies = {source: target / source.name}
    for name in _FILE.findall(text):
        # files of examples/paper/ may lie above it: keep them below the new folder
        copies[source.parent / name] = target / name.removeprefix("../")
        text = text.replace(f'"{name}"', f'"{name.removeprefix("../")}"')
    taken = [str(path) for path in copies.values() if path.exists()]
    if taken:
        raise InputError(f"{', '.join(taken)} exists already; choose another folder")
    try:
        for old, new in copies.items():
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(text.encode() if old == source else old.read_bytes())
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}; choose another folder") from None
    return list(copies.values())
