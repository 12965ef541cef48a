"""Statistics of flow completion times: percentiles by nearest rank.

The P-th percentile of n values is the value at rank ceil(P/100 * n) of the sorted values (ranks
count from 1). So every percentile is a value that was observed, and P100 is the maximum. With
fewer than 1000 values P99.9 is the maximum too: the data hold nothing finer.

>>> fct_statistics([30.0, 10.0, 20.0, 40.0])
{'mean': 25.0, 'p50': 20.0, 'p99': 40.0, 'p999': 40.0, 'p100': 40.0}
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: key in ``summary.json`` -> percentile in thousandths (integers: 0.999 * n is not exact in floats)
PERCENTILES_PER_MILLE = {"p50": 500, "p99": 990, "p999": 999, "p100": 1000}


def rank_per_mille(count: int, per_mille: int) -> int:
    """Return the nearest rank, from 1 to ``count``, of a percentile given in thousandths.

    >>> rank_per_mille(1000, 999), rank_per_mille(1001, 999), rank_per_mille(4, 500)
    (999, 1000, 2)
    """
    if count < 1:
        raise ValueError("a percentile of no values is not defined")
    if not 0 < per_mille <= 1000:
        raise ValueError(f"{per_mille} per mille is not a percentile; use 1 to 1000")
    return -(-per_mille * count // 1000)


def _sorted_values(values: ArrayLike) -> NDArray[np.float64]:
    array = np.sort(np.asarray(values, dtype=np.float64).reshape(-1))
    if array.size and not np.isfinite(array).all():
        raise ValueError("flow completion times must be finite; leave out the flows that did not complete")
    return array


def percentile(values: ArrayLike, per_mille: int) -> float:
    """Return one percentile of ``values`` by nearest rank.

    >>> percentile([3, 1, 2], 500)
    2.0
    """
    array = _sorted_values(values)
    return float(array[rank_per_mille(array.size, per_mille) - 1])


def fct_statistics(fct_us: ArrayLike) -> dict[str, float | None]:
    """Return the ``fct_us`` block of ``summary.json``.

    Parameters
    ----------
    fct_us
        Completion times of the flows that completed, in microseconds, shape (n,), any order.

    Returns
    -------
    dict
        ``mean``, ``p50``, ``p99``, ``p999``, ``p100`` in microseconds; all None when n is 0. The
        result does not depend on the order of the flows (the mean is summed in sorted order).
    """
    array = _sorted_values(fct_us)
    if array.size == 0:
        return {"mean": None, **dict.fromkeys(PERCENTILES_PER_MILLE)}
    # rounding in the sum must not push the mean of equal values outside them
    mean = min(max(float(array.mean()), float(array[0])), float(array[-1]))
    result: dict[str, float | None] = {"mean": mean}
    for key, per_mille in PERCENTILES_PER_MILLE.items():
        result[key] = float(array[rank_per_mille(array.size, per_mille) - 1])
    return result


def imbalance(planes: Sequence[float]) -> float | None:
    """Return the load of the fullest plane over the mean load: 1.0 is perfect; None without load.

    >>> imbalance([100, 100, 100, 140])
    1.2727272727272727
    """
    total = sum(planes)
    if not planes or total <= 0:
        return None
    return max(planes) * len(planes) / total


def distribution(values: ArrayLike, body: int = 1000, tail: int = 2000) -> tuple[NDArray, NDArray]:
    """Return the empirical distribution in few points, with the slow tail exact.

    Parameters
    ----------
    values
        Shape (n,), any order.
    body, tail
        All of the ``tail`` largest values are kept, and of the rest ``body`` evenly spaced ranks
        (the smallest value among them). Up to ``body + tail`` values nothing is left out.

    Returns
    -------
    x, rank
        Values ascending, float64, and for each the number of values at or below it by rank (from
        1 to n), int64. ``rank / n`` is the cumulative fraction.
    """
    array = _sorted_values(values)
    n = array.size
    if n <= body + tail:
        ranks = np.arange(1, n + 1, dtype=np.int64)
    else:
        head = np.unique(np.linspace(1, n - tail, body).astype(np.int64))
        ranks = np.concatenate([head, np.arange(n - tail + 1, n + 1, dtype=np.int64)])
    return array[ranks - 1], ranks
