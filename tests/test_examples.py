"""Every example runs to its end, completes all flows, and is never faster than the ideal."""

from __future__ import annotations

import math

import pytest

import openmrc
from scenario_support import EXAMPLES

ALL = sorted(EXAMPLES.rglob("*.toml"))
NAMES = [path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in ALL]


def test_there_are_examples():
    assert {"link-flap", "permutation", "incast-128", "training-step", "goal"} <= set(NAMES)


@pytest.mark.parametrize("path", ALL, ids=NAMES)
def test_example_completes_and_never_beats_the_ideal(path):
    result = openmrc.run(path)
    s = result.summary
    assert result.ok
    assert s["flows"]["completed"] == s["flows"]["total"] > 0
    assert s["p100_over_ideal"] >= 1
    assert s["counters"]["messages_delivered"] == s["flows"]["total"]
    flows = result.flows.to_pydict()
    assert all(status == "ok" for status in flows["status"])
    assert min(flows["slowdown"]) >= 1
    assert all(
        a <= b <= c for a, b, c in zip(flows["start_ps"], flows["received_ps"], flows["end_ps"], strict=True)
    )
    assert s["goodput_gbps"]["mean_per_nic"] <= s["goodput_gbps"]["ceiling_per_nic"]


def test_link_flap_is_what_the_readme_says():
    s = openmrc.run(EXAMPLES / "link-flap.toml").summary
    delivered = s["flows"]["total"] * 16_000_000
    assert delivered >= 1e9
    assert len(s["planes"]) == 8
    assert min(s["planes"]) > 0.9 * max(s["planes"])
    kinds = {(fault["kind"], fault["element"]) for fault in s["faults"]}
    assert kinds == {("flap", "p3/t0.0-t1.2"), ("down", "nic12/p5")}
    lost = sum(fault["packets_lost"] for fault in s["faults"])
    assert lost > 0
    assert s["counters"]["dropped"]["link_down"] == lost
    for fault in s["faults"]:
        if fault["worst_leave_rtts"] is not None:
            assert fault["worst_leave_rtts"] <= 3
    assert any(fault["back_us"] is not None for fault in s["faults"])


def test_more_paths_do_better_on_the_htsim_permutation():
    many = openmrc.run(EXAMPLES / "htsim-perm-1024.toml").summary["fct_us"]
    one = openmrc.run(EXAMPLES / "htsim-perm-1024.toml", overrides={"transport.ev_count": 1}).summary[
        "fct_us"
    ]
    assert one["p100"] > 3 * many["p100"]
    # uet-htsim: mean 186 us, slowest 196 us
    assert 167 <= many["mean"] <= 205
    assert many["p100"] < 215


def test_wall_time_is_not_part_of_the_digest():
    runs = [openmrc.run(EXAMPLES / "incast.toml", seed=5).summary for _ in range(2)]
    assert runs[0]["digest"] == runs[1]["digest"]
    other = openmrc.run(EXAMPLES / "permutation.toml", overrides={"fabric.nics": 32}, seed=6).summary
    same_but_seed = openmrc.run(EXAMPLES / "permutation.toml", overrides={"fabric.nics": 32}, seed=7).summary
    assert other["digest"] != same_but_seed["digest"]
    assert math.isfinite(other["engine"]["wall_s"])
