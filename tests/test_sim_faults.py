"""How fast QPs leave what fails, and that they come back: the faults of a fabric under load."""

from __future__ import annotations

from typing import Any

import pytest

import openmrc

FABRIC = {"nics": 256, "planes": 8, "nic_rate": "800Gbps", "hosts_per_t0": 32, "uplinks_per_t0": 64}
LINK = "p3/t0.0-t1.5"


def run(fault: dict[str, Any], size: str = "12MB", overrides: dict[str, Any] | None = None) -> openmrc.Result:
    scenario = {
        "fabric": FABRIC,
        "traffic": [{"pattern": "permutation", "size": size, "start_window": "1us"}],
        "fault": [fault],
    }
    return openmrc.run(scenario, overrides=overrides or {})


def assert_all_delivered(result: openmrc.Result) -> None:
    flows = result.summary["flows"]
    assert flows["completed"] == flows["total"]
    counters = result.summary["counters"]
    assert counters["messages_delivered"] == counters["messages_posted"] == flows["total"]


@pytest.mark.parametrize("ev_count", [256, 128, 32])
def test_a_cut_link_is_left_within_three_rtts(ev_count: int) -> None:
    result = run(
        {"kind": "down", "element": LINK, "at": "60us", "for": "40us"},
        overrides={"transport.ev_count": ev_count},
    )
    fault = result.summary["faults"][0]
    assert fault["qps_affected"] > 0
    assert fault["packets_lost"] > 0
    assert fault["worst_leave_rtts"] <= 3
    assert_all_delivered(result)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "loss", "probability": 0.2, "element": LINK},
        {"kind": "blackhole", "element": "p3/t1.5"},
        {"kind": "down", "element": "p3/t1.5"},
    ],
    ids=["grey", "blackhole", "t1-down"],
)
def test_what_forwards_badly_is_left_within_three_rtts(fault: dict[str, Any]) -> None:
    result = run({**fault, "at": "60us", "for": "40us"})
    found = result.summary["faults"][0]
    assert found["qps_affected"] > 0
    assert found["worst_leave_rtts"] <= 3
    assert_all_delivered(result)


def test_a_link_that_returns_is_used_again_after_its_probes() -> None:
    fault = {"kind": "down", "element": LINK, "at": "50us", "for": "20us"}
    backs = []
    for probes in (1, 6):
        result = run(fault, size="16MB", overrides={"transport.recover_probes": probes})
        found = result.summary["faults"][0]
        assert found["back_us"] is not None
        assert found["back_us"] > found["end_us"]
        assert result.summary["paths"]["recovered"] > 0
        backs.append(found["back_us"])
    assert backs[1] > backs[0], "more probes in a row take longer"


def test_peers_stop_using_a_lost_nic_port_within_two_rtts() -> None:
    result = run({"kind": "down", "element": "nic7/p2", "at": "60us", "for": "40us"})
    fault = result.summary["faults"][0]
    rtt_us = 7.82
    assert fault["last_left_us"] - fault["at_us"] <= 2 * rtt_us
    assert result.summary["counters"]["port_updates"] > 0
    assert result.summary["paths"]["assumed_bad"] == 0, "a dead port is not its EVs' fault"
    assert_all_delivered(result)


SINGLE = {
    "fabric": {"nics": 4, "planes": 1, "nic_rate": "100Gbps", "hosts_per_t0": 2},
    "traffic": [{"pattern": "send", "pairs": [[0, 2]], "size": "4MB"}],
    "fault": [{"kind": "down", "element": "nic0/p0", "at": "50us", "for": "2ms"}],
}


def test_the_last_path_lost_is_reported_and_traffic_resumes() -> None:
    result = openmrc.run(SINGLE)
    summary = result.summary
    assert summary["flows"]["completed"] == 1
    assert summary["counters"]["no_path"] >= 1
    assert summary["faults"][0]["back_us"] > 2050
    assert any("no path" in note for note in summary["notes"])


def test_the_retry_budget_ends_a_qp_without_any_path() -> None:
    overrides = {"transport.linear_cnt": 2, "transport.exp_cnt": 1}
    result = openmrc.run(SINGLE, overrides=overrides)
    summary = result.summary
    assert summary["flows"]["failed"] == 1
    assert summary["counters"]["qp_errors"] == 1
    # 131 us x (1 + 1 + 2 + 4): two linear, one doubled, then spent
    assert 50 + 3 * 131 < summary["simulated_us"] < 2050
    assert not result.ok


def test_false_condemnation_is_rare_without_faults() -> None:
    scenario = {
        "fabric": {"nics": 256, "planes": 8, "nic_rate": "800Gbps", "hosts_per_t0": 32},
        "traffic": [{"pattern": "permutation", "size": "8MB", "start_window": "1us"}],
    }
    summary = openmrc.run(scenario).summary
    assert summary["paths"]["false_condemned"] * 10_000 < summary["counters"]["data_packets"]
