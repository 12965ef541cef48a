from __future__ import annotations

from ipaddress import IPv6Address

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_support import SMALL, fabrics, quick, small
from openmrc.errors import TopologyError
from openmrc.fabric import paths
from openmrc.fabric.address import (
    Role,
    carried_usids,
    carrier,
    carrier_template,
    ev_of_links,
    fill_template,
    links_of_ev,
    nic_address,
    nic_of_address,
    path_of_address,
    usid_address,
    usid_meaning,
    usid_of,
)
from openmrc.fabric.settings import PRESETS, FabricSettings
from openmrc.fabric.topology import Topology
from openmrc.limits import USID_MAX, USID_MIN


def all_evs(t: Topology, src: int, dst: int) -> list[int]:
    return [
        int(paths.ev_encode(plane, uplink))
        for plane in range(t.params.planes)
        for uplink in t.path_uplinks(src, dst)
    ]


@pytest.mark.parametrize("name", SMALL)
def test_usids_are_distinct_and_invertible(name: str) -> None:
    t = small(name)
    p = t.params
    everything = [(Role.DOWNLINK, 0, i) for i in range(p.hosts_per_t0)]
    for role, planes, count in (
        (Role.T0, p.planes, p.n_t0),
        (Role.T1, p.planes, p.n_t1),
        (Role.T2, 1, p.n_t2),
    ):
        everything += [(role, plane, i) for plane in range(planes) for i in range(count)]
    usids = [usid_of(t, *what) for what in everything]
    assert usids == list(range(USID_MIN, USID_MIN + len(everything)))
    assert len(usids) == t.wiring.n_usids
    assert [usid_meaning(t, usid) for usid in usids] == everything
    for bad in (0, usids[-1] + 1):
        with pytest.raises(TopologyError, match="uSID"):
            usid_meaning(t, bad)
    for bad_what in ((Role.T0, 0, p.n_t0), (Role.T1, p.planes, 0), (Role.DOWNLINK, 1, 0), (Role.T0, 0, -1)):
        with pytest.raises(TopologyError, match="uSID"):
            usid_of(t, *bad_what)


def test_the_plan_of_the_full_fabric_fits_what_switches_accept() -> None:
    t = Topology(FabricSettings(preset="openai-131k"))
    assert usid_of(t, Role.T1, 7, 255) == 512 * 8 + 256 * 8 + 256 == t.wiring.n_usids
    assert t.wiring.n_usids <= USID_MAX


@pytest.mark.parametrize("name", SMALL)
def test_every_ev_of_small_fabrics_both_ways(name: str) -> None:
    t = small(name)
    addresses: set[tuple[int, IPv6Address]] = set()
    total = 0
    for src in range(t.params.n_nics):
        for dst in range(t.params.n_nics):
            template = carrier_template(t, src, dst)
            for ev in all_evs(t, src, dst):
                address = usid_address(t, src, dst, ev)
                assert int(address) == fill_template(template, t.params.tiers, ev)
                path = path_of_address(t, address)
                assert (path.src_t0, path.dst_t0) == (t.t0_of(src), t.t0_of(dst))
                assert (path.dst, path.ev) == (dst, ev)
                links = links_of_ev(t, src, dst, ev)
                assert ev_of_links(t, links) == (src, dst, ev)
                usids = carried_usids(address)
                assert carrier(usids) == address
                assert len(usids) == len(links)  # each link but the first leaves a switch; then the NIC
                addresses.add((src, address))
                total += 1
    assert len(addresses) == total


@pytest.mark.parametrize("preset", PRESETS)
def test_samples_at_full_scale_both_ways(preset: str) -> None:
    t = Topology(FabricSettings(preset=preset))
    rng = np.random.default_rng(7)
    for src, dst in rng.integers(0, t.params.n_nics, (100, 2)).tolist():
        plane = int(rng.integers(t.params.planes))
        uplink = int(rng.choice(t.path_uplinks(src, dst)))
        ev = paths.ev_encode(plane, uplink)
        path = path_of_address(t, usid_address(t, src, dst, ev))
        assert (path.src_t0, path.dst, path.plane, path.uplink) == (t.t0_of(src), dst, plane, uplink)
        assert ev_of_links(t, links_of_ev(t, src, dst, ev)) == (src, dst, ev)


@quick
@given(fabrics(), st.data())
def test_random_fabrics_both_ways(t: Topology, data: st.DataObject) -> None:
    src = data.draw(st.integers(0, t.params.n_nics - 1))
    dst = data.draw(st.integers(0, t.params.n_nics - 1))
    ev = data.draw(st.sampled_from(all_evs(t, src, dst)))
    path = path_of_address(t, usid_address(t, src, dst, ev))
    assert (path.src_t0, path.dst, path.ev) == (t.t0_of(src), dst, ev)


def test_layout_of_the_specification() -> None:
    t = small("planes")
    t0_src, t1, t0_dst = usid_of(t, Role.T0, 2, 0), usid_of(t, Role.T1, 2, 1), usid_of(t, Role.T0, 2, 3)
    ev = 2 << 16 | 0xC000 | 1
    assert usid_address(t, 0, 7, ev) == IPv6Address(
        f"fcbb:bbbb:{t0_src:x}:{t1:x}:{t0_dst:x}:{usid_of(t, Role.DOWNLINK, 0, 1):x}::"
    )
    assert usid_address(t, 0, 1, 2 << 16 | 0xC000) == IPv6Address(f"fcbb:bbbb:{t0_src:x}:2::")
    three = small("three")
    address = usid_address(three, 0, 15, 0xC000 | 1 << 7 | 1)
    assert [usid_meaning(three, usid) for usid in carried_usids(address)] == [
        (Role.T0, 0, 0),
        (Role.T1, 0, 1),
        (Role.T2, 0, 3),
        (Role.T1, 0, 7),
        (Role.T0, 0, 7),
        (Role.DOWNLINK, 0, 1),
    ]


@quick
@given(st.data())
def test_an_address_with_one_usid_changed_is_never_misread(data: st.DataObject) -> None:
    t = small(data.draw(st.sampled_from(list(SMALL))))
    src = data.draw(st.integers(0, t.params.n_nics - 1))
    dst = data.draw(st.integers(0, t.params.n_nics - 1))
    address = usid_address(t, src, dst, data.draw(st.sampled_from(all_evs(t, src, dst))))
    usids = carried_usids(address)
    usids[data.draw(st.integers(0, len(usids) - 1))] = data.draw(st.integers(1, t.wiring.n_usids + 3))
    changed = carrier(usids)
    try:
        path = path_of_address(t, changed)
    except TopologyError:
        return
    # what is accepted is exactly what some NIC of that T0 would send
    assert usid_address(t, path.src_t0 * t.params.hosts_per_t0, path.dst, path.ev) == changed


@pytest.mark.parametrize(
    ("ev", "says"),
    [
        (0x0000, "bits 14 and 15"),
        (0x4001, "bits 14 and 15"),
        (-1, "bits 14 and 15"),
        (4 << 16 | 0xC000, "planes 0..3"),
        (0xC003, "uplinks 0..2"),
    ],
)
def test_evs_that_are_none(ev: int, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        usid_address(small("planes"), 0, 7, ev)


def test_a_local_pair_has_only_uplink_0() -> None:
    with pytest.raises(TopologyError, match=r"uplinks 0\.\.0"):
        links_of_ev(small("planes"), 0, 1, 0xC001)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fd00::1", "locator block"),
        ("fcbb:bbbb::", "lists nothing"),
        ("fcbb:bbbb:3::", "lists T0;"),
        ("fcbb:bbbb:3:0:1::", "zero fill"),
        ("fcbb:bbbb:1:3::", "lists DOWNLINK T0"),
        ("fcbb:bbbb:ffff:1::", "uSID 0xffff"),
    ],
)
def test_addresses_that_are_no_path(text: str, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        path_of_address(small("planes"), IPv6Address(text))


def test_links_that_are_no_path() -> None:
    t = small("planes")
    good = links_of_ev(t, 0, 7, 0xC001)
    other_plane = links_of_ev(t, 0, 7, 0x1C001)
    for bad in (good[:1], good[:3], good[::-1], good[:2] + other_plane[2:], [good[0], good[-1]]):
        with pytest.raises(TopologyError, match="links"):
            ev_of_links(t, bad)


@pytest.mark.parametrize("name", SMALL)
def test_nic_addresses(name: str) -> None:
    t = small(name)
    wanted = [(nic, plane) for nic in range(t.params.n_nics) for plane in (None, *range(t.params.planes))]
    addresses = [nic_address(t, nic, plane) for nic, plane in wanted]
    assert len(set(addresses)) == len(addresses)
    assert [nic_of_address(t, address) for address in addresses] == wanted
    for bad in (IPv6Address("fd00::1"), IPv6Address(int(nic_address(t, 0)) + t.params.n_nics)):
        with pytest.raises(TopologyError, match="not a NIC"):
            nic_of_address(t, bad)
    with pytest.raises(TopologyError, match="NICs 0"):
        nic_address(t, t.params.n_nics)


def test_nic_addresses_as_documented() -> None:
    t = small("planes")
    assert nic_address(t, 5) == IPv6Address("fd6d:7263::5")
    assert nic_address(t, 5, 2) == IPv6Address("fd6d:7263:0:3::5")
