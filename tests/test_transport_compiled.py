"""The same source compiled and as plain Python leaves the same bytes in every state row."""

from __future__ import annotations

import hashlib

import pytest

from openmrc.jit import JIT_DISABLED
from transport_episodes import episode
from transport_support import run_python

CODE = """
from test_transport_compiled import digest_of
for seed in {seeds}:
    print(seed, digest_of(seed, {steps}))
"""


def digest_of(seed: int, steps: int) -> str:
    """Return a hash over all state after an episode, row by row."""
    network = episode(seed, steps)
    digest = hashlib.sha256()
    for name in network.st._content._fields:
        digest.update(getattr(network.st, name).tobytes())
    return f"{network.steps} {digest.hexdigest()}"


def compare(seeds: range, steps: int) -> None:
    here = [f"{seed} {digest_of(seed, steps)}" for seed in seeds]
    there = run_python(CODE.format(seeds=list(seeds), steps=steps), jit=JIT_DISABLED).split("\n")
    assert here == there[:-1]


def test_compiled_and_uncompiled_leave_equal_rows():
    compare(range(200, 206), 300)


@pytest.mark.long
def test_many_episodes_compiled_and_uncompiled():
    compare(range(300, 400), 1500)


SIGNATURES = """
import openmrc.jit
from transport_episodes import episode
episode(0, 200)
for kernel in openmrc.jit.KERNELS:
    if len(kernel.signatures) > 1:
        print(kernel.py_func.__name__)
"""
#: both take a row of either half
EITHER_HALF = {"on_update_answered", "update_is_news", "_start_update", "_write_update"}


def test_every_kernel_compiles_for_one_type_only():
    """A second signature means that some caller passes a narrow type, and all is compiled anew."""
    assert set(run_python(SIGNATURES, jit=True).split()) <= EITHER_HALF
