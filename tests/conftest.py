"""What all tests share: kernels are compiled once, not by every worker of pytest-xdist at the same time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _kernels_compiled_once():
    """In a worker, wait while another one compiles; alone, tests compile what they use."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    from openmrc.sim.warm import compile_kernels, kernels_are_cached

    lock = Path(tempfile.gettempdir()) / f"openmrc-kernels-{os.getuid()}.lock"
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not kernels_are_cached():
            compile_kernels()
