"""Percentiles by nearest rank, against the definition written out in exact fractions."""

from __future__ import annotations

import doctest
import importlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.report.stats import (
    PERCENTILES_PER_MILLE,
    distribution,
    fct_statistics,
    imbalance,
    percentile,
    rank_per_mille,
)

VALUES = st.lists(st.floats(0, 1e9), min_size=1, max_size=300)


@pytest.mark.parametrize(
    "module", ["", ".stats", ".format", ".result", ".html", ".table", ".figures", ".summary_model"]
)
def test_examples_in_docstrings_run(module):
    outcome = doctest.testmod(importlib.import_module(f"openmrc.report{module}"))
    assert outcome.failed == 0
    assert outcome.attempted > 0 or module == ".summary_model"


@given(VALUES, st.integers(1, 1000))
def test_percentile_is_the_definition(values, per_mille):
    # smallest observed value with at least per_mille/1000 of all values at or below it
    ordered = sorted(values)
    share = Fraction(per_mille, 1000)
    expected = next(v for i, v in enumerate(ordered, 1) if Fraction(i, len(ordered)) >= share)
    assert percentile(values, per_mille) == expected


@given(VALUES)
def test_fct_statistics_are_observed_ascending_and_do_not_depend_on_order(values):
    found = fct_statistics(values)
    ranks = [found[key] for key in PERCENTILES_PER_MILLE]
    assert ranks == sorted(ranks)
    assert set(ranks) <= set(values)
    assert found["p100"] == max(values)
    assert min(values) <= found["mean"] <= max(values)
    assert math.isclose(found["mean"], math.fsum(values) / len(values), rel_tol=1e-9, abs_tol=1e-12)
    assert found == fct_statistics(values[::-1])


@pytest.mark.parametrize(
    ("count", "rank"), [(1, 1), (999, 999), (1000, 999), (1001, 1000), (131_072, 130_941)]
)
def test_rank_of_p999_has_no_rounding_error(count, rank):
    assert rank_per_mille(count, 999) == rank


def test_p50_of_integers_is_one_of_them():
    assert fct_statistics(np.array([1, 2, 3, 4]))["p50"] == 2.0


def test_nothing_observed_gives_nulls():
    assert fct_statistics([]) == {"mean": None, "p50": None, "p99": None, "p999": None, "p100": None}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_unfinished_flows_must_be_left_out(bad):
    with pytest.raises(ValueError, match="leave out the flows that did not complete"):
        fct_statistics([1.0, bad])


@pytest.mark.parametrize("per_mille", [0, -1, 1001])
def test_not_a_percentile(per_mille):
    with pytest.raises(ValueError, match="not a percentile"):
        percentile([1.0], per_mille)


def test_percentile_of_nothing():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 500)


def test_imbalance():
    assert imbalance([]) is None
    assert imbalance([0, 0]) is None
    assert imbalance([5, 5, 5, 5]) == 1.0
    assert imbalance([8, 0]) == 2.0


@given(VALUES, st.integers(2, 20), st.integers(1, 40))
def test_distribution_keeps_the_tail_and_stays_on_the_curve(values, body, tail):
    x, rank = distribution(values, body, tail)
    ordered = np.sort(values)
    assert len(x) <= body + tail
    assert (np.diff(rank) > 0).all()
    assert rank[0] == 1
    assert rank[-1] == len(values)
    np.testing.assert_array_equal(x, ordered[rank - 1])
    kept = min(tail, len(values))
    np.testing.assert_array_equal(x[-kept:], ordered[-kept:])
