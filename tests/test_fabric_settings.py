from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from openmrc.errors import TopologyError
from openmrc.fabric.settings import PRESETS, FabricSettings, fabric_settings
from openmrc.fabric.topology import Topology
from openmrc.fabric.wiring import resolve


def wire(**values: Any):
    return resolve(fabric_settings(values))


def test_the_message_of_the_style_guide() -> None:
    with pytest.raises(TopologyError) as error:
        wire(nics=8, hosts_per_t0=4, planes=7)
    assert str(error.value) == "fabric.nic_rate: 800Gbps is not divisible by 7 planes; use 1, 2, 4 or 8"


@pytest.mark.parametrize(
    ("values", "key", "says"),
    [
        ({"nics": 8}, "hosts_per_t0", "radix"),
        ({"hosts_per_t0": 8}, "nics", "missing"),
        ({"nics": 8, "hosts_per_t0": 4, "planes": 9}, "planes", "at most 8"),
        ({"nics": 8, "hosts_per_t0": 4, "nic_rate": 0}, "nic_rate", "not divisible"),
        ({"nics": 8, "hosts_per_t0": 4, "nic_rate": "8kbps", "planes": 8}, "nic_rate", "100Gbps"),
        ({"nics": 8, "hosts_per_t0": 4, "tiers": 3, "planes": 2, "radix": 8}, "planes", "one plane"),
        ({"nics": 8, "hosts_per_t0": 4, "tiers": 3}, "t0_per_pod", "missing"),
        ({"nics": 8, "hosts_per_t0": 4, "t0_per_pod": 4}, "t0_per_pod", "2 tiers"),
        ({"nics": 8, "hosts_per_t0": 4, "t1_t2_cable_m": 4}, "t1_t2_cable_m", "2 tiers"),
        ({"nics": 8, "hosts_per_t0": 4, "oversubscription": 3}, "oversubscription", "uplinks_per_t0"),
        (
            {"nics": 8, "hosts_per_t0": 4, "uplinks_per_t0": 4, "oversubscription": 2},
            "oversubscription",
            "contradicts",
        ),
        ({"nics": 8, "radix": 9}, "radix", "shared out"),
        ({"nics": 8, "radix": 8, "uplinks_per_t0": 8}, "uplinks_per_t0", "at most 7"),
        ({"nics": 8, "radix": 8, "hosts_per_t0": 6, "uplinks_per_t0": 3}, "hosts_per_t0", "at most 5"),
        ({"nics": 40, "radix": 8}, "nics", "at most 32 NICs"),
        ({"nics": 200, "radix": 8, "tiers": 3}, "nics", "at most 128 NICs"),
        ({"nics": 8, "radix": 8, "tiers": 3, "t0_per_pod": 6}, "t0_per_pod", "radix of 8"),
        ({"nics": 8, "hosts_per_t0": 4, "uplinks_per_t0": 8193}, "uplinks_per_t0", "at most 8192"),
        (
            {"nics": 8, "tiers": 3, "hosts_per_t0": 65, "t0_per_pod": 4},
            "uplinks_per_t0",
            "64 T0 uplinks",
        ),
        (
            {"nics": 8, "tiers": 3, "hosts_per_t0": 4, "t0_per_pod": 4, "t1_uplinks": 129},
            "t1_uplinks",
            "128 T1",
        ),
        ({"nics": 100_000, "planes": 1, "hosts_per_t0": 1}, "nics", "uSIDs"),
        ({"nics": 8, "hosts_per_t0": 4, "nic_cable_m": 3, "nic_link_delay": "1us"}, "nic_cable_m", "one of"),
        ({"nics": 8, "hosts_per_t0": 4, "switch_latency": "2s"}, "switch_latency", "1s"),
        ({"nics": 8, "hosts_per_t0": 4, "fibre_delay": "1s"}, "fibre_delay", "limit"),
        ({"preset": "meta"}, "preset", "openai-131k"),
        ({"nics": 8, "host_per_t0": 4}, "host_per_t0", "did you mean hosts_per_t0"),
        ({"nics": 8, "hosts_per_t0": 4, "tiers": 4}, "tiers", "Switch tiers"),
        ({"nics": 0, "hosts_per_t0": 4}, "nics", "greater than or equal"),
        ({"nics": "8", "hosts_per_t0": 4}, "nics", "'8'"),
        ({"nics": True, "hosts_per_t0": 4}, "nics", "True"),
        ({"nics": 8, "hosts_per_t0": 4, "nic_cable_m": -1}, "nic_cable_m", "metres"),
    ],
)
def test_what_cannot_be_wired_is_refused(values: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(TopologyError) as error:
        wire(**values)
    assert str(error.value).startswith(f"fabric.{key}: ")
    assert says in str(error.value)


@pytest.mark.parametrize("value", ["8", "800", 800, 1.5])
def test_quantities_without_a_unit_are_refused(value: Any) -> None:
    with pytest.raises(TopologyError, match=r"fabric\.nic_rate: .*write"):
        fabric_settings({"nics": 8, "hosts_per_t0": 4, "nic_rate": value})


def test_radix_alone_gives_a_full_fabric() -> None:
    w = wire(radix=8)
    assert (w.hosts_per_t0, w.uplinks, w.n_t0, w.n_t1, w.n_nics) == (4, 4, 8, 4, 32)
    w = wire(radix=8, tiers=3)
    assert (w.n_pods, w.n_t0, w.n_t1, w.n_t2, w.n_nics) == (8, 32, 32, 16, 128)
    w = wire(radix=12, oversubscription=2)
    assert (w.hosts_per_t0, w.uplinks, w.n_t0) == (8, 4, 12)
    w = wire(radix=12, uplinks_per_t0=3)
    assert (w.hosts_per_t0, w.uplinks) == (9, 3)


def test_partial_fill_keeps_all_t1s() -> None:
    w = wire(nics=9, radix=8)
    assert (w.n_t0, w.n_t1, w.n_nics) == (3, 4, 9)


def test_oversubscription_counts_bandwidth() -> None:
    assert wire(nics=8, hosts_per_t0=8, nic_rate="400Gbps", uplink_rate="800Gbps").uplinks == 4
    assert wire(nics=8, hosts_per_t0=8, oversubscription=1.6).uplinks == 5


def test_explicit_delays_win_over_cables() -> None:
    w = wire(nics=8, hosts_per_t0=4, nic_link_delay="1us", fabric_link_delay="2us")
    assert (w.nic_delay_ps, w.t0_t1_delay_ps, w.t1_t2_delay_ps) == (10**6, 2 * 10**6, 2 * 10**6)
    w = wire(nics=8, hosts_per_t0=4, fibre_delay="4ns", nic_cable_m=2.5)
    assert (w.nic_delay_ps, w.t0_t1_delay_ps) == (10_000, 160_000)


@pytest.mark.parametrize("preset", PRESETS)
def test_keys_beside_a_preset_win(preset: str) -> None:
    whole = Topology(FabricSettings(preset=preset))
    part = Topology(FabricSettings(preset=preset, nics=1000))
    assert whole.params.n_nics == PRESETS[preset]["nics"]
    assert part.params.n_nics == 1000
    assert part.params.uplinks == whole.params.uplinks
    assert part.params.n_t0 == -(-1000 // whole.params.hosts_per_t0)


def test_settings_cannot_be_changed_and_describe_every_key() -> None:
    settings = FabricSettings(nics=8, hosts_per_t0=4)
    with pytest.raises(ValidationError):
        settings.nics = 9  # type: ignore[misc]
    for name, field in FabricSettings.model_json_schema()["properties"].items():
        assert field.get("description"), name
        assert not isinstance(field.get("default"), int) or name in ("planes", "tiers"), name
