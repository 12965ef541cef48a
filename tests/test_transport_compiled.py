"""The same source compiled and as plain Python leaves the same bytes in every state row."""

from __future__ import annotations

import hashlib

import pytest
from transport_episodes import episode
from transport_support import run_python

import openmrc.jit
from openmrc.jit import JIT_DISABLED

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


@pytest.mark.skipif(JIT_DISABLED, reason="only compiled kernels have signatures")
def test_every_kernel_compiles_for_one_type_only():
    """A second signature means that some caller passes a narrow type: it compiles all anew."""
    episode(0, 200)
    several = {k.py_func.__name__: k.signatures for k in openmrc.jit.KERNELS if len(k.signatures) > 1}
    several = {name: s for name, s in several.items() if "transport" in str(name) or True}
    assert not {name for name in several if name not in ALLOWED}


ALLOWED: set[str] = set()
