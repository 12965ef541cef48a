"""The error family: what users and peers can do wrong, each with its remedy.

Assertions are for our own mistakes; these classes are for everybody else's. A message names
what, where, the limit and the remedy, e.g.
``fabric.nic_rate: 800Gbps is not divisible by 7 planes; use 1, 2, 4 or 8``.
"""

from __future__ import annotations


class OpenMrcError(Exception):
    """Base of every error that openmrc raises on purpose."""

    exit_code = 1


class InputError(OpenMrcError):
    """Bad input from the user: a file, a flag, a value. ``mrc`` exits with 2."""

    exit_code = 2


class UnitError(InputError, ValueError):
    """A quantity that cannot be read, e.g. ``"8 apples"``."""


class WireError(OpenMrcError, ValueError):
    """Bytes that are not a packet we understand. The only error that parsing ever raises."""


class TopologyError(InputError):
    """A fabric that cannot be wired, or an element that it does not have."""


class ScenarioError(InputError):
    """A scenario file that is wrong: names the key, the line where known, and the remedy."""


class DoesNotFitError(OpenMrcError):
    """The run needs more memory than there is. ``mrc`` exits with 3."""

    exit_code = 3
