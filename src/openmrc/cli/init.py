"""``mrc init``: write a commented scenario to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from openmrc.errors import InputError


@click.command("init", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", default="scenario.toml", metavar="[FILE]", type=click.Path(path_type=Path))
def command(file: Path) -> None:
    """Write a commented scenario to FILE (default scenario.toml). An existing file is left alone."""
    text = files("openmrc.scenario").joinpath("starter.toml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise InputError(f"{file} exists already; give another name: mrc init FILE") from None
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}; choose another folder") from None
    click.echo(f"wrote {file}; next: mrc check {file}, then mrc run {file}")
