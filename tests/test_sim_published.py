"""Figures of other simulators and of the prototype that ours must meet (connection matrices by others)."""

from __future__ import annotations

from pathlib import Path

import pytest

import openmrc

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_htsim_permutation_with_all_paths() -> None:
    """uet-htsim: mean 186 us, max 196 us with every path; 850 us with one."""
    fct = openmrc.run(EXAMPLES / "htsim-perm-1024.toml").summary["fct_us"]
    assert 167 <= fct["mean"] <= 205
    assert fct["p100"] < 215


def test_htsim_permutation_with_one_ev_per_qp() -> None:
    all_paths = openmrc.run(EXAMPLES / "htsim-perm-1024.toml").summary
    one = openmrc.run(EXAMPLES / "htsim-perm-1024.toml", overrides={"transport.ev_count": 1}).summary
    assert one["fct_us"]["p100"] > 3 * all_paths["fct_us"]["p100"]


@pytest.mark.parametrize(("size", "limit"), [("2MB", 1.25), ("16MB", 1.15)])
def test_permutation_over_eight_planes(size: str, limit: float) -> None:
    scenario = {
        "fabric": {"nics": 1024, "planes": 8, "nic_rate": "800Gbps", "hosts_per_t0": 32},
        "traffic": [{"pattern": "permutation", "size": size, "start_window": "1us"}],
    }
    summary = openmrc.run(scenario).summary
    assert 1 <= summary["p100_over_ideal"] <= limit
    assert summary["paths"]["false_condemned"] * 10_000 < summary["counters"]["data_packets"]


def test_incast_127_to_1() -> None:
    """Prototype: 1.026 of ideal, 0.19 retransmissions per packet."""
    summary = openmrc.run(EXAMPLES / "incast-128.toml").summary
    counters = summary["counters"]
    assert summary["p100_over_ideal"] <= 1.05
    assert counters["retransmitted"] < counters["data_packets"] / 2
    assert summary["paths"]["false_condemned"] * 100 < counters["data_packets"]


def test_incast_by_the_letter_needs_more_retransmissions() -> None:
    ours = openmrc.run(EXAMPLES / "incast-128.toml").summary
    letter = openmrc.run(
        EXAMPLES / "incast-128.toml", overrides={"transport.nscc.profile": "uet-1.0-nscc"}
    ).summary
    assert letter["counters"]["retransmitted"] > 2 * ours["counters"]["retransmitted"]
