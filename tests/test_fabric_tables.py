from __future__ import annotations

from ipaddress import IPv6Address

import numpy as np
import pytest

from fabric_support import SMALL, small
from openmrc.errors import TopologyError
from openmrc.fabric import paths
from openmrc.fabric.address import Role, carrier, links_of_ev, usid_address, usid_of
from openmrc.fabric.settings import PRESETS, FabricSettings
from openmrc.fabric.tables import Drop, Forward, TableDrop, forward, switch_table, switch_tables, walk
from openmrc.fabric.topology import Topology


@pytest.mark.parametrize("name", SMALL)
def test_walking_by_tables_alone_takes_the_links_of_every_ev(name: str) -> None:
    t = small(name)
    for src in range(t.params.n_nics):
        for dst in range(t.params.n_nics):
            for plane in range(t.params.planes):
                for uplink in t.path_uplinks(src, dst):
                    ev = paths.ev_encode(plane, uplink)
                    result = walk(t, src, plane, usid_address(t, src, dst, ev))
                    assert result.drop is None
                    assert result.links == links_of_ev(t, src, dst, ev)
                    # what arrives names the NIC's downlink: a plain local address of the NIC
                    assert result.address == carrier([usid_of(t, Role.DOWNLINK, 0, t.downlink_of(dst))])


@pytest.mark.parametrize("preset", PRESETS)
def test_walks_at_full_scale(preset: str) -> None:
    t = Topology(FabricSettings(preset=preset))
    rng = np.random.default_rng(11)
    for src, dst in rng.integers(0, t.params.n_nics, (25, 2)).tolist():
        plane = int(rng.integers(t.params.planes))
        ev = paths.ev_encode(plane, int(rng.choice(t.path_uplinks(src, dst))))
        assert walk(t, src, plane, usid_address(t, src, dst, ev)).links == links_of_ev(t, src, dst, ev)


@pytest.mark.parametrize("name", SMALL)
def test_tables_hold_one_route_per_cable(name: str) -> None:
    t = small(name)
    p = t.params
    tables = list(switch_tables(t))
    assert len(tables) == p.planes * (p.n_t0 + p.n_t1) + p.n_t2
    assert len({table.own for table in tables}) == len(tables)
    links = [link for table in tables for link in table.routes.values()]
    assert len(links) == len(set(links))
    # every link that leaves a switch stands in exactly one table
    ports = p.n_nics * p.planes + 2 * p.planes * p.n_t0 * p.uplinks + 2 * p.n_t1 * p.t1_uplinks
    assert len(links) == ports
    for table in tables:
        if table.role is Role.T0 and (table.number + 1) * p.hosts_per_t0 <= p.n_nics:
            assert table.n_entries == 1 + p.uplinks + p.hosts_per_t0


def test_what_matches_nothing_is_dropped_with_a_reason() -> None:
    t = small("planes")
    t0 = switch_table(t, Role.T0, 1, 0)
    own = usid_of(t, Role.T0, 1, 0)

    def reason(address: IPv6Address) -> TableDrop:
        out = forward(t0, address)
        assert isinstance(out, Drop)
        return out.reason

    assert reason(IPv6Address("fd00::1")) is TableDrop.NOT_IN_LOCATOR
    assert reason(carrier([own])) is TableDrop.CARRIER_EMPTY
    assert reason(carrier([])) is TableDrop.CARRIER_EMPTY
    assert reason(carrier([own, usid_of(t, Role.T1, 0, 0)])) is TableDrop.NO_ROUTE  # another plane's T1
    assert reason(carrier([own, usid_of(t, Role.T0, 1, 1)])) is TableDrop.NO_ROUTE  # not a neighbour
    assert reason(carrier([0xDFFF])) is TableDrop.NO_ROUTE


def test_a_neighbour_is_reached_without_naming_oneself_and_own_usid_may_repeat() -> None:
    t = small("planes")
    t0 = switch_table(t, Role.T0, 1, 0)
    own, t1 = usid_of(t, Role.T0, 1, 0), usid_of(t, Role.T1, 1, 2)
    for usids in ([t1], [own, t1], [own, own, t1]):
        assert forward(t0, carrier(usids)) == Forward(t.t0_up(1, 0, 2), carrier([t1]))


def test_a_carrier_can_lead_back_to_its_sender() -> None:
    t = small("planes")
    own, t1 = usid_of(t, Role.T0, 1, 0), usid_of(t, Role.T1, 1, 2)
    result = walk(t, 1, 1, carrier([own, t1, own, usid_of(t, Role.DOWNLINK, 0, 1)]))
    assert result.drop is None
    assert [t.link_name(link) for link in result.links] == [
        "nic1/p1:up",
        "p1/t0.0-t1.2:up",
        "p1/t0.0-t1.2:down",
        "nic1/p1:down",
    ]


def test_a_packet_in_the_wrong_plane_is_dropped_at_once() -> None:
    t = small("planes")
    result = walk(t, 0, 2, usid_address(t, 0, 7, 1 << 16 | 0xC000))
    assert (result.links, result.drop) == ([t.nic_up(0, 2)], TableDrop.NO_ROUTE)


def test_a_nic_that_does_not_exist_is_dropped_by_its_t0() -> None:
    t = small("partial")  # 7 NICs, 3 per T0: T0 2 has one
    last = usid_of(t, Role.T0, 0, 2)
    assert walk(t, 6, 0, carrier([last, usid_of(t, Role.DOWNLINK, 0, 1)])).drop is TableDrop.NO_ROUTE


def test_only_switches_have_tables() -> None:
    t = small("planes")
    with pytest.raises(TopologyError, match="DOWNLINK"):
        switch_table(t, Role.DOWNLINK, 0, 0)
    with pytest.raises(TopologyError, match="T1 3"):
        switch_table(t, Role.T1, 0, 3)
