"""The arithmetic of the presets, figure by figure."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from fabric_support import SMALL, small
from openmrc.fabric.planner import plan_fabric, plan_json, plan_rows
from openmrc.fabric.settings import FabricSettings
from openmrc.fabric.tables import switch_tables


def test_two_tiers_8_x_100g_radix_512() -> None:
    plan = plan_fabric(FabricSettings(preset="openai-131k"))
    assert plan.nics == 131_072
    assert (plan.planes, plan.port_rate_bps, plan.tiers) == (8, 100 * 10**9, 2)
    assert (plan.t0_per_plane, plan.t1_per_plane, plan.t2_per_plane) == (512, 256, 0)
    assert plan.switches == 6144
    assert (plan.t0_ports, plan.t1_ports) == (512, 512)
    assert plan.link_layers_per_nic == 2
    assert plan.longest_path_switches == 3
    assert plan.nics_one_hop_away == 256
    assert plan.share_lost_per_t0_t1_link == 1 / 256
    assert plan.share_lost_per_nic_port == 1 / 8
    assert plan.usids_used == 6144 + 256
    assert plan.paths_per_plane == 256


def test_three_tiers_1_x_800g_radix_64() -> None:
    plan = plan_fabric(FabricSettings(preset="clos3-64k"))
    assert plan.nics == 65_536
    assert (plan.planes, plan.port_rate_bps, plan.tiers) == (1, 800 * 10**9, 3)
    assert (plan.t0_per_plane, plan.t1_per_plane, plan.t2_per_plane) == (2048, 2048, 1024)
    assert plan.switches == 5120
    assert plan.switches_per_131072_nics == 10_240
    assert (plan.t0_ports, plan.t1_ports, plan.t2_ports) == (64, 64, 64)
    assert plan.link_layers_per_nic == 3
    assert plan.longest_path_switches == 5
    assert plan.nics_one_hop_away == 32
    assert plan.share_lost_per_t0_t1_link == 1 / 32
    assert plan.share_lost_per_nic_port == 1


def test_the_two_compared() -> None:
    two = plan_fabric(FabricSettings(preset="openai-131k"))
    three = plan_fabric(FabricSettings(preset="clos3-64k"))
    assert two.switches_per_131072_nics * 5 == three.switches_per_131072_nics * 3
    assert two.link_layers_per_nic * 3 == three.link_layers_per_nic * 2


def test_4_x_200g_on_the_same_switches() -> None:
    plan = plan_fabric(FabricSettings(preset="openai-4x200"))
    assert (plan.nics, plan.hosts_per_t0, plan.t1_per_plane) == (32_768, 128, 128)
    assert plan.t0_ports == plan.t1_ports == 256


def test_what_people_read() -> None:
    rows = dict(plan_rows(plan_fabric(FabricSettings(preset="openai-131k"))))
    assert rows["switches in all"] == "6 144"
    assert rows["T0 / T1 / T2 per plane"] == "512 / 256 / -"
    assert rows["T0 uplink lost with a link"] == "0.4 % (1/256)"
    assert rows["NIC rate lost with a port"] == "12.5 % (1/8)"
    assert rows["ports per NIC"] == "8 x 100 Gb/s"
    rows = dict(plan_rows(plan_fabric(FabricSettings(preset="clos3-64k"))))
    assert rows["- per 131 072 NICs"] == "10 240"
    assert rows["T0 / T1 / T2 in all"] == "2 048 / 2 048 / 1 024"
    assert rows["NIC rate lost with a port"] == "all"


@pytest.mark.parametrize("name", SMALL)
def test_counts_agree_with_the_wired_fabric(name: str) -> None:
    t = small(name)
    plan = plan_fabric(t.settings)
    tables = list(switch_tables(t))
    assert plan.switches == len(tables)
    roles = Counter(int(table.role) for table in tables)
    assert (plan.t0_total, plan.t1_total, plan.t2_total) == (roles[1], roles[2], roles[3])
    links = sum(len(table.routes) for table in tables) + plan.nics * plan.planes
    assert plan.transceivers == links  # one per direction of each cable, as there are two ends
    widest = {role: max(x.n_entries for x in tables if x.role == role) for role in roles}
    assert (plan.t0_table_entries, plan.t1_table_entries) == (widest[1], widest[2])
    most_paths = max(t.path_count(0, dst) for dst in range(plan.nics))
    assert plan.paths == most_paths * plan.planes
    assert plan.longest_path_switches == max(t.hop_count(0, dst) for dst in range(plan.nics)) - 1
    json.dumps(plan_json(plan))


def test_oversubscription_and_faster_uplinks() -> None:
    plan = plan_fabric(FabricSettings(nics=32, hosts_per_t0=8, nic_rate="400Gbps", oversubscription=2))
    assert (plan.uplinks_per_t0, plan.oversubscription, plan.link_layers_per_nic) == (4, 2, 1.5)
    plan = plan_fabric(
        FabricSettings(nics=32, hosts_per_t0=8, nic_rate="400Gbps", uplinks_per_t0=2, uplink_rate="800Gbps")
    )
    assert (plan.oversubscription, plan.link_layers_per_nic) == (2, 1.5)
