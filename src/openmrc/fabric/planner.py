"""The arithmetic of a fabric: what it takes to build, what it gives, what a failure costs.

>>> from openmrc.fabric.settings import FabricSettings
>>> plan = plan_fabric(FabricSettings(preset="openai-131k"))
>>> plan.switches, plan.longest_path_switches, plan.link_layers_per_nic
(6144, 3, 2.0)
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from openmrc.fabric.settings import FabricSettings
from openmrc.fabric.topology import Topology
from openmrc.limits import USID_MAX, USID_MIN
from openmrc.units import format_duration, format_rate

#: the size to which switch counts are scaled, so that fabrics of different size compare
REFERENCE_NICS = 131_072


class FabricPlan(NamedTuple):
    """The figures of a fabric. Counts are exact; shares are fractions of 1.

    Attributes
    ----------
    link_layers_per_nic : float
        Capacity of all cables divided by that of all NICs: how many times a NIC's bandwidth is cabled, and
        so how many pairs of optics it needs.
    switches_per_131072_nics : float
        ``switches`` scaled to 131 072 NICs.
    nics_one_hop_away : int
        NICs under one T0.
    share_lost_per_t0_t1_link : float
        Of the uplink capacity of one T0 in one plane.
    share_lost_per_nic_port : float
        Of one NIC's rate.
    """

    nics: int
    planes: int
    tiers: int
    nic_rate_bps: int
    port_rate_bps: int
    uplink_rate_bps: int
    hosts_per_t0: int
    uplinks_per_t0: int
    oversubscription: float
    t0_per_plane: int
    t1_per_plane: int
    t2_per_plane: int
    t0_total: int
    t1_total: int
    t2_total: int
    pods: int
    switches: int
    switches_per_131072_nics: float
    t0_ports: int
    t1_ports: int
    t2_ports: int
    cables_nic_t0: int
    cables_t0_t1: int
    cables_t1_t2: int
    transceivers: int
    link_layers_per_nic: float
    longest_path_switches: int
    nics_one_hop_away: int
    paths_per_plane: int
    paths: int
    share_lost_per_t0_t1_link: float
    share_lost_per_nic_port: float
    usids_used: int
    usids_available: int
    t0_table_entries: int
    t1_table_entries: int
    t2_table_entries: int
    t0_local_latency_ps: int
    longest_latency_ps: int


def plan_fabric(settings: FabricSettings) -> FabricPlan:
    """Return the figures of a fabric.

    Raises
    ------
    TopologyError
        It cannot be wired; the message names key, limit and remedy.
    """
    topology = Topology(settings)
    w = topology.wiring
    three = w.tiers == 3
    totals = w.planes * w.n_t0, w.planes * w.n_t1, w.n_t2
    nic_t0, t0_t1, t1_t2 = w.n_nics * w.planes, totals[0] * w.uplinks, w.n_t1 * w.t1_uplinks
    capacity = nic_t0 * w.port_rate_bps + t0_t1 * w.uplink_rate_bps + t1_t2 * w.t1_uplink_rate_bps
    paths = {2: 1, 4: w.uplinks, 6: w.uplinks * w.t1_uplinks}[topology.longest_hops]
    switches = sum(totals)
    return FabricPlan(
        nics=w.n_nics,
        planes=w.planes,
        tiers=w.tiers,
        nic_rate_bps=settings.nic_rate,
        port_rate_bps=w.port_rate_bps,
        uplink_rate_bps=w.uplink_rate_bps,
        hosts_per_t0=w.hosts_per_t0,
        uplinks_per_t0=w.uplinks,
        oversubscription=float(Fraction(w.hosts_per_t0 * w.port_rate_bps, w.uplinks * w.uplink_rate_bps)),
        t0_per_plane=w.n_t0,
        t1_per_plane=w.n_t1,
        t2_per_plane=w.n_t2,
        t0_total=totals[0],
        t1_total=totals[1],
        t2_total=totals[2],
        pods=w.n_pods,
        switches=switches,
        switches_per_131072_nics=float(Fraction(switches * REFERENCE_NICS, w.n_nics)),
        t0_ports=w.hosts_per_t0 + w.uplinks,
        t1_ports=w.t0_per_pod + w.t1_uplinks,
        t2_ports=w.n_pods if three else 0,
        cables_nic_t0=nic_t0,
        cables_t0_t1=t0_t1,
        cables_t1_t2=t1_t2,
        transceivers=2 * (nic_t0 + t0_t1 + t1_t2),
        link_layers_per_nic=float(Fraction(capacity, w.n_nics * settings.nic_rate)),
        longest_path_switches=topology.longest_hops - 1,
        nics_one_hop_away=min(w.hosts_per_t0, w.n_nics),
        paths_per_plane=paths,
        paths=paths * w.planes,
        share_lost_per_t0_t1_link=1 / w.uplinks,
        share_lost_per_nic_port=1 / w.planes,
        usids_used=w.n_usids,
        usids_available=USID_MAX - USID_MIN + 1,
        t0_table_entries=1 + w.hosts_per_t0 + w.uplinks,
        t1_table_entries=1 + w.t0_per_pod + w.t1_uplinks,
        t2_table_entries=1 + w.n_pods if three else 0,
        t0_local_latency_ps=topology.latency_of_hops_ps(2, 0),
        longest_latency_ps=topology.latency_of_hops_ps(topology.longest_hops, 0),
    )


def _share(share: float) -> str:
    if share == 1:
        return "all"
    digits = 1 if share < 0.01 or share * 1000 % 10 else 0
    return f"{100 * share:.{digits}f} % (1/{round(1 / share)})"


def _count(value: float) -> str:
    text = f"{value:,.1f}" if value != int(value) else f"{int(value):,}"
    return text.replace(",", " ")


def plan_rows(plan: FabricPlan) -> list[tuple[str, str]]:
    """Return the figures as (what, value) for people; the same rows for every fabric."""
    three = plan.tiers == 3

    def tiers(t0: int, t1: int, t2: int) -> str:
        return f"{_count(t0)} / {_count(t1)} / {_count(t2) if three else '-'}"

    return [
        ("NICs", _count(plan.nics)),
        ("ports per NIC", f"{plan.planes} x {format_rate(plan.port_rate_bps)}"),
        ("switch tiers", str(plan.tiers)),
        ("T0 downlinks (NIC ports)", _count(plan.hosts_per_t0)),
        ("T0 uplinks", f"{_count(plan.uplinks_per_t0)} x {format_rate(plan.uplink_rate_bps)}"),
        ("oversubscription of a T0", f"{plan.oversubscription:.4g} : 1"),
        ("T0 / T1 / T2 per plane", tiers(plan.t0_per_plane, plan.t1_per_plane, plan.t2_per_plane)),
        ("T0 / T1 / T2 in all", tiers(plan.t0_total, plan.t1_total, plan.t2_total)),
        ("switches in all", _count(plan.switches)),
        ("- per 131 072 NICs", _count(plan.switches_per_131072_nics)),
        ("ports used per T0 / T1 / T2", tiers(plan.t0_ports, plan.t1_ports, plan.t2_ports)),
        ("link layers per NIC (optics)", f"{plan.link_layers_per_nic:.4g}"),
        ("cables NIC-T0", _count(plan.cables_nic_t0)),
        ("cables T0-T1", _count(plan.cables_t0_t1)),
        ("cables T1-T2", _count(plan.cables_t1_t2) if three else "-"),
        ("link ends (transceivers)", _count(plan.transceivers)),
        ("longest path, switches", _count(plan.longest_path_switches)),
        ("NICs one hop away", _count(plan.nics_one_hop_away)),
        ("paths of the farthest pair", _count(plan.paths)),
        ("- per plane", _count(plan.paths_per_plane)),
        ("T0 uplink lost with a link", _share(plan.share_lost_per_t0_t1_link)),
        ("NIC rate lost with a port", _share(plan.share_lost_per_nic_port)),
        ("uSIDs used", _count(plan.usids_used)),
        ("- of", _count(plan.usids_available)),
        (
            "entries per T0 / T1 / T2",
            tiers(plan.t0_table_entries, plan.t1_table_entries, plan.t2_table_entries),
        ),
        ("fixed latency T0-local", format_duration(plan.t0_local_latency_ps)),
        ("fixed latency longest path", format_duration(plan.longest_latency_ps)),
    ]


def plan_json(plan: FabricPlan) -> dict[str, Any]:
    """Return the figures for machines; units are in the names."""
    return plan._asdict()
