"""openmrc: MRC (Multipath Reliable Connection), simulated and live.

>>> import openmrc
>>> sorted(openmrc.__all__)
['Result', '__version__', 'load_scenario', 'run']

`run` simulates a scenario (file or dict) and returns a `Result`; `load_scenario` only reads and
checks one. The packages below are documented for those who need parts: `openmrc.wire` (bytes),
`openmrc.fabric` (topology, addresses), `openmrc.transport` (the protocol engine), `openmrc.sim`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openmrc._run import run
    from openmrc.report.result import Result
    from openmrc.scenario.load import load_scenario

try:
    __version__ = version("openmrc")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+source"

__all__ = ["Result", "__version__", "load_scenario", "run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from openmrc._run import run

        return run
    if name == "Result":
        from openmrc.report.result import Result

        return Result
    if name == "load_scenario":
        from openmrc.scenario.load import load_scenario

        return load_scenario
    raise AttributeError(f"module 'openmrc' has no attribute {name!r}")
