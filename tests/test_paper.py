"""Published experiments as scenarios in examples/paper, each held to its "expect".

Every check is computed from summary.json's and timeline.parquet's content, not read off a picture.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import openmrc

PAPER = Path(__file__).parent.parent / "examples" / "paper"
CEILING_GBPS = 768.84


@cache
def result(name: str) -> openmrc.Result:
    return openmrc.run(PAPER / f"{name}.toml")


def timeline(name: str) -> tuple[np.ndarray, np.ndarray]:
    table = result(name).timeline
    return table.column("t_us").to_numpy(), table.column("goodput_gbps").to_numpy()


def mean_gbps(name: str, from_us: float, to_us: float) -> float:
    time_us, gbps = timeline(name)
    inside = (time_us >= from_us) & (time_us < to_us)
    assert inside.sum() >= 1, f"{name}: no bins between {from_us} and {to_us} us"
    return float(gbps[inside].mean())


def base_rtt_us(name: str) -> float:
    text = result(name).summary["fabric"].split("base RTT ")[1]
    value, unit = text.split(" ")
    assert unit == "us"
    return float(value)


@pytest.mark.parametrize("name", sorted(p.stem for p in PAPER.glob("*.toml")))
def test_no_message_is_lost_and_the_ideal_is_a_bound(name: str) -> None:
    summary = result(name).summary
    flows = summary["flows"]
    assert flows["completed"] == flows["total"] > 0
    assert summary["p100_over_ideal"] >= 1


def test_ceiling() -> None:
    goodput = result("ceiling").summary["goodput_gbps"]
    assert 765 <= goodput["mean_per_nic"] <= 770
    assert goodput["ceiling_per_nic"] == pytest.approx(CEILING_GBPS, abs=0.1)


@pytest.mark.parametrize("event_ms", range(16))
def test_fig9a_each_port_is_an_eighth_and_the_dip_is_short(event_ms: int) -> None:
    """Port i is down from (i + 1) ms to (15 - i) ms."""
    up = 8 - sum(i + 1 <= event_ms < 15 - i for i in range(7))
    settled_us = event_ms * 1000 + 10 * base_rtt_us("fig9a")
    rate = mean_gbps("fig9a", settled_us, event_ms * 1000 + 990)
    assert rate == pytest.approx(CEILING_GBPS * up / 8, abs=CEILING_GBPS * 0.01)
    # over within 10 RTTs: already the next 100 us hold the new rate
    soon = mean_gbps("fig9a", settled_us, settled_us + 100)
    assert soon >= CEILING_GBPS * up / 8 * 0.97


def test_fig9b_half_the_rate_then_all_of_it() -> None:
    for start_us, share in ((500, 1), (2100, 0.5), (4300, 1), (6100, 0.5), (8300, 1)):
        rate = mean_gbps("fig9b", start_us, start_us + 1500)
        assert rate == pytest.approx(CEILING_GBPS * share, rel=0.01)


@pytest.mark.parametrize("name", ["fig9c", "fig9d"])
def test_fig9c_9d_no_bin_below_95_percent(name: str) -> None:
    time_us, gbps = timeline(name)
    bins = np.diff(time_us)
    assert np.allclose(bins, 1000), "bins of 1 ms"
    before = gbps[1]  # bin 0 has the start in it, faults begin at 2 ms
    assert gbps[1:-1].min() >= 0.95 * before
    faults = result(name).summary["faults"]
    lost = [f for f in faults if f["packets_lost"] > 0]
    assert len({f["element"] for f in lost}) == (20 if name == "fig9c" else 8), "the links were in use"


def test_fig10_a_t0_costs_its_plane() -> None:
    before = mean_gbps("fig10", 1000, 3000)
    during = mean_gbps("fig10", 3200, 6000)
    after = mean_gbps("fig10", 6300, 8500)
    assert before - during == pytest.approx(before / 8, rel=0.03)  # -100 Gb/s of 800, both ways
    assert after == pytest.approx(before, rel=0.01)


def test_fig11_a_t1_costs_nothing() -> None:
    before = mean_gbps("fig11", 1000, 3000)
    assert mean_gbps("fig11", 3000, 6000) == pytest.approx(before, rel=0.01)
    assert mean_gbps("fig11", 6000, 8500) == pytest.approx(before, rel=0.01)
    assert result("fig11").summary["faults"][0]["packets_lost"] > 0


def test_fig19_the_rate_follows_what_remains() -> None:
    """Links 0, 1, 2 are removed at 2, 4, 6 ms and restored at 12, 10, 8 ms."""
    full = 4 * 100 * CEILING_GBPS / 800
    for start_us, links in ((500, 4), (2200, 3), (4200, 2), (6200, 1), (8300, 2), (10300, 3)):
        rate = mean_gbps("fig19", start_us, start_us + 1400)
        assert rate == pytest.approx(full * links / 4, rel=0.03)
