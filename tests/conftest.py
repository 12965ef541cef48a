"""What all tests share: kernels are compiled once, not by every worker of pytest-xdist at the same time."""

from __future__ import annotations

import re

import pytest

#: a test module that runs the simulator
_SIMULATES = re.compile(r"openmrc\.(sim\.(?!warm)|run\b)|from openmrc import .*\brun\b|\bwarm_kernels\b")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile before the first test if any runs the simulator; other workers wait for it, and load."""
    modules = {item.path for item in session.items}
    if any(_SIMULATES.search(path.read_text(encoding="utf-8")) for path in modules):
        from openmrc.sim.warm import load_kernels

        load_kernels()


@pytest.fixture(scope="session")
def warm_kernels() -> None:
    """Have compiled kernels in this process."""
    from openmrc.sim.warm import load_kernels

    load_kernels()
