"""Results of a run and how they are shown: model, statistics, terminal, files, HTML, notebook.

>>> sorted(__all__)
['Result', 'check_directory', 'fct_statistics', 'load_result', 'print_report', 'render_html', 'write_results']

Names are loaded when first used, so that ``import openmrc.report`` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openmrc.report.files import check_directory, load_result, write_results
    from openmrc.report.html import render_html
    from openmrc.report.result import Result
    from openmrc.report.stats import fct_statistics
    from openmrc.report.table import print_report

_HOME = {
    "Result": "result",
    "check_directory": "files",
    "fct_statistics": "stats",
    "load_result": "files",
    "print_report": "table",
    "render_html": "html",
    "write_results": "files",
}
__all__ = [
    "Result",
    "check_directory",
    "fct_statistics",
    "load_result",
    "print_report",
    "render_html",
    "write_results",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"openmrc.report.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
