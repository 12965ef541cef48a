"""The command ``mrc``: one file per sub-command, loaded only when called (start-up stays short)."""

from __future__ import annotations

import importlib
import sys

import click

from openmrc import __version__
from openmrc.errors import OpenMrcError

#: command -> one-line help; the module ``openmrc.cli.<command>`` holds a click command ``command``
COMMANDS = {
    "run": "simulate a scenario file and report",
    "check": "validate a scenario file without running it",
    "init": "write a new scenario file to start from",
    "examples": "list the examples, or copy one",
    "topo": "print the arithmetic of a fabric: switches, links, optics, hops",
    "decode": "print the packets of a capture, one per line",
    "bench": "run the repository's benchmarks",
    "doctor": "check the installation and compile the kernels",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"openmrc.cli.{name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mrc")
def group() -> None:
    """openmrc: MRC (Multipath Reliable Connection), simulated and live.

    \b
    Start here:
      mrc run examples/link-flap.toml     a transfer over 8 planes that survives failures
      mrc examples                        what else there is
      mrc doctor                          is everything in place?

    Exit codes: 0 ok, 1 flows failed, 2 bad input, 3 does not fit in memory, 130 interrupted.
    """


def main() -> None:
    """Run the command line; turn our own errors into one message and an exit code."""
    try:
        # without standalone mode click returns what Exit(code) carried instead of leaving
        if code := group(standalone_mode=False):
            sys.exit(code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except OpenMrcError as error:
        click.echo(f"mrc: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
