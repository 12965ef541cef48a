"""Named random streams: a draw depends on the seed and its own name, on nothing else.

>>> random_permutation(1, "traffic.0", 5).tolist() == random_permutation(1, "traffic.0", 5).tolist()
True
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def stream(seed: int, name: str) -> np.random.Philox:
    """Return the bit generator called ``name`` under ``seed``.

    Only its raw 64-bit words are used: they are the same in every NumPy version, the
    distributions of `numpy.random.Generator` are not.
    """
    digest = hashlib.sha256(f"openmrc:{seed}:{name}".encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"))


def random_permutation(seed: int, name: str, n: int) -> NDArray[np.int64]:
    """Return a uniformly random permutation of 0 .. n-1."""
    return np.argsort(stream(seed, name).random_raw(n), kind="stable")


def random_derangement(seed: int, name: str, n: int) -> NDArray[np.int64]:
    """Return a uniformly random permutation of 0 .. n-1 that leaves nothing in place (n >= 2)."""
    assert n >= 2
    bits = stream(seed, name)
    while True:  # a permutation has no fixed point with probability 1/e: about three tries
        candidate = np.argsort(bits.random_raw(n), kind="stable")
        if not (candidate == np.arange(n)).any():
            return candidate


def random_times(seed: int, name: str, n: int, window_ps: int) -> NDArray[np.int64]:
    """Return ``n`` uniform integers of picoseconds in [0, window_ps); zeros for an empty window."""
    if window_ps <= 0:
        return np.zeros(n, np.int64)
    return (stream(seed, name).random_raw(n) % np.uint64(window_ps)).astype(np.int64)
