from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_support import SMALL, fabrics, quick, small
from openmrc.errors import TopologyError
from openmrc.fabric import paths
from openmrc.fabric.elements import ElementKind
from openmrc.fabric.settings import PRESETS, FabricSettings
from openmrc.fabric.tables import switch_behind
from openmrc.fabric.topology import UP_LAYERS, Layer, Topology, ps_per_byte_q16, serialisation_ps


def wired_links(t: Topology) -> list[int]:
    """All links that have a cable (the ports of a last pod that is not full have none)."""
    found = []
    for link in range(t.n_links):
        try:
            t.reverse_link(link)
        except TopologyError:
            continue
        found.append(link)
    return found


@pytest.mark.parametrize("name", SMALL)
def test_every_link_has_a_number_a_name_and_a_reverse(name: str) -> None:
    t = small(name)
    p = t.params
    links = wired_links(t)
    missing = t.n_links - len(links)
    unfilled = (p.n_pods * p.t0_per_pod - p.n_t0) * p.t1_per_pod if p.tiers == 3 else 0
    assert missing == unfilled
    names = {t.link_name(link) for link in links}
    assert len(names) == len(links)
    for link in links:
        back = t.reverse_link(link)
        assert back != link
        assert t.reverse_link(back) == link
        assert (t.link_layer(link) in UP_LAYERS) != (t.link_layer(back) in UP_LAYERS)
        assert t.links_of_element(t.link_name(link))[0].tolist() == [link]
        assert switch_behind(t, link) != switch_behind(t, back)


def test_numbering_of_the_brief() -> None:
    t = small("planes")
    p = t.params
    assert t.nic_up(5, 3) == 5 * 4 + 3
    assert t.nic_down(5, 3) == p.base_nic_down + 5 * 4 + 3
    assert t.t0_up(2, 1, 2) == p.base_t0_up + (2 * p.n_t0 + 1) * 3 + 2
    assert t.t1_down(2, 1, 3) == p.base_t1_down + (2 * p.n_t1 + 1) * p.n_t0 + 3
    t = small("three-partial")
    p = t.params
    assert (p.n_t0, p.n_pods, p.n_t1, p.n_t2) == (6, 3, 9, 15)
    t1 = 2 * p.t1_per_pod + 1
    assert t.t1_down(0, t1, 5) == p.base_t1_down + t1 * p.t0_per_pod + 1
    assert t.t1_up(t1, 4) == p.base_t1_up + t1 * 5 + 4
    assert t.t2_down(1 * 5 + 4, 2) == p.base_t2_down + 9 * p.n_pods + 2
    assert t.reverse_link(t.t1_up(t1, 4)) == t.t2_down(9, 2)


@quick
@given(fabrics(), st.data())
def test_kernels_agree_with_the_plain_topology(t: Topology, data: st.DataObject) -> None:
    p = t.params
    src = data.draw(st.integers(0, p.n_nics - 1))
    dst = data.draw(st.integers(0, p.n_nics - 1))
    plane = data.draw(st.integers(0, p.planes - 1))
    src_t0, dst_t0 = t.t0_of(src), t.t0_of(dst)
    uplinks = t.path_uplinks(src, dst)
    count = paths.path_count(p, src_t0, dst_t0)
    assert count == len(uplinks) == len(set(uplinks)) == t.path_count(src, dst)
    assert [paths.path_uplink(p, src_t0, dst_t0, i) for i in range(count)] == uplinks
    assert [paths.path_index(p, u) for u in uplinks] == list(range(count))
    uplink = data.draw(st.sampled_from(uplinks))
    hops = paths.hop_count(p, src_t0, dst_t0)
    links = [paths.link_at(p, src, dst, src_t0, dst_t0, hops, plane, uplink, h) for h in range(hops)]
    assert links == t.path_links(src, dst, plane, uplink)
    packed = paths.pack_path(plane, uplink)
    assert 0 <= packed < 1 << 16
    assert (paths.path_plane(packed), paths.path_uplink_of(packed)) == (plane, uplink)
    ev = paths.ev_encode(plane, uplink)
    assert (paths.ev_plane(ev), paths.ev_uplink(ev), ev & 0xFFFF >= 0xC000) == (plane, uplink, True)


@quick
@given(fabrics(), st.data())
def test_a_path_is_connected_and_only_its_ends_are_shared(t: Topology, data: st.DataObject) -> None:
    p = t.params
    src = data.draw(st.integers(0, p.n_nics - 1))
    dst = data.draw(st.integers(0, p.n_nics - 1))
    plane = data.draw(st.integers(0, p.planes - 1))
    seen: set[tuple[int, ...]] = set()
    for uplink in t.path_uplinks(src, dst):
        links = t.path_links(src, dst, plane, uplink)
        for before, after in pairwise(links):
            # the cable back from `after` ends in the switch that `before` leads to
            assert switch_behind(t, before) == switch_behind(t, t.reverse_link(after))
        assert [t.link_layer(link) for link in links] == sorted_layers(len(links))
        seen.add(tuple(links))
    assert len(seen) == t.path_count(src, dst)


def sorted_layers(hops: int) -> list[Layer]:
    up = [Layer.NIC_UP, Layer.T0_UP, Layer.T1_UP][: hops // 2]
    return up + [Layer(layer + 1) for layer in reversed(up)]


def test_the_first_paths_share_no_uplink_of_the_t0() -> None:
    t = small("three")
    first = [t.path_links(0, 15, 0, u)[1] for u in t.path_uplinks(0, 15)[: t.params.uplinks]]
    assert len(set(first)) == t.params.uplinks


# --- elements ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("nic6", ElementKind.NIC, 2 * 4),
        ("nic6/p3", ElementKind.NIC_PORT, 2),
        ("p3", ElementKind.PLANE, 2 * (8 + 4 * 3)),
        ("p3/t0.2", ElementKind.T0, 2 * (2 + 3)),
        ("p3/t1.2", ElementKind.T1, 2 * 4),
        ("p3/t0.2-t1.1", ElementKind.CABLE, 2),
        ("p3/t0.2/up0-1", ElementKind.TRANSCEIVER, 4),
        ("p3/t0.2/down1", ElementKind.TRANSCEIVER, 2),
        ("p3/t1.0/down0-3:up", ElementKind.TRANSCEIVER, 4),
        ("p3/t0.2:down", ElementKind.T0, 5),
    ],
)
def test_links_of_elements(name: str, kind: ElementKind, count: int) -> None:
    t = small("planes")
    links, found = t.links_of_element(name)
    assert found == kind
    assert links.dtype == np.int64
    assert len(links) == count == len(set(links.tolist()))
    assert links.tolist() == sorted(links.tolist())
    if ":" not in name:
        assert {t.reverse_link(int(link)) for link in links} == set(links.tolist())


@quick
@given(fabrics(), st.data())
def test_a_switch_has_the_links_that_touch_it(t: Topology, data: st.DataObject) -> None:
    p = t.params
    tier = data.draw(st.integers(0, p.tiers - 1))
    index = data.draw(st.integers(0, (p.n_t0, p.n_t1, p.n_t2)[tier] - 1))
    plane = data.draw(st.integers(0, p.planes - 1))
    links, _ = t.links_of_element(f"p{plane}/t{tier}.{index}")
    me = (tier + 1, plane, index)
    touching = [
        link
        for link in wired_links(t)
        if me in (switch_behind(t, link), switch_behind(t, t.reverse_link(link)))
    ]
    assert links.tolist() == touching


def test_planes_partition_the_links() -> None:
    for name in SMALL:
        t = small(name)
        parts = [t.links_of_element(f"p{plane}")[0] for plane in range(t.params.planes)]
        assert np.sort(np.concatenate(parts)).tolist() == wired_links(t)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nic8", "NIC 0..7"),
        ("nic0/p4", "plane 0..3"),
        ("p4", "plane 0..3"),
        ("p0/t0.4", "T0 0..3"),
        ("p0/t1.3", "T1 0..2"),
        ("p0/t2.0", "2 tiers has no T2"),
        ("p0/t0.0-t1.7", "T1 0..2"),
        ("p0/t0.0-t2.0", "lower one first"),
        ("p0/t1.0/up0", "no uplinks"),
        ("p0/t0.0/up0-9", "up port 0..2"),
        ("p0/t0.0/up2-1", "lower one first"),
        ("t0.0", "write nic12"),
        ("", "write nic12"),
        ("nic1:sideways", "write nic12"),
        ("nic٣", "write nic12"),
    ],
)
def test_unknown_elements_say_what_exists(name: str, says: str) -> None:
    with pytest.raises(TopologyError) as error:
        small("planes").links_of_element(name)
    assert says in str(error.value)
    assert repr(name) in str(error.value)


def test_cables_that_do_not_exist_in_three_tiers() -> None:
    t = small("three")
    with pytest.raises(TopologyError, match=r"not connected; t0\.0 has cables to t1\.0\.\.t1\.1"):
        t.links_of_element("p0/t0.0-t1.2")
    with pytest.raises(TopologyError, match=r"not connected; t1\.0 has cables to t2\.0\.\.t2\.1"):
        t.links_of_element("p0/t1.0-t2.2")
    assert t.links_of_element("p0/t1.0-t2.1")[0].tolist() == [t.t1_up(0, 1), t.t2_down(1, 0)]


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.link_layer(-1),
        lambda t: t.link_layer(t.n_links),
        lambda t: t.path_links(0, 8, 0, 0),
        lambda t: t.path_links(0, 7, 4, 0),
        lambda t: t.path_links(0, 7, 0, 3),
        lambda t: t.path_links(0, 1, 0, 1),
    ],
)
def test_numbers_out_of_range_are_refused(call) -> None:
    with pytest.raises(TopologyError):
        call(small("planes"))


# --- rates and times -----------------------------------------------------------------------


def test_layers_have_rates_delays_and_multipliers() -> None:
    t = Topology(
        FabricSettings(
            nics=16, planes=4, hosts_per_t0=4, uplink_rate="400Gbps", t0_t1_cable_m=100, nic_cable_m=2
        )
    )
    assert t.params.uplinks == 2  # 4 x 200G down, 2 x 400G up
    assert t.layer_rate_bps.tolist()[:4] == [200 * 10**9] * 2 + [400 * 10**9] * 2
    assert t.layer_delay_ps.tolist()[:4] == [10_000] * 2 + [500_000] * 2
    assert t.layer_mult_q16.tolist()[:4] == [40 * 65536] * 2 + [20 * 65536] * 2
    assert t.link_rate_bps(t.t0_up(0, 0, 0)) == 400 * 10**9
    for array in (t.layer_base, t.layer_rate_bps, t.layer_delay_ps):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@quick
@given(st.integers(0, 10_000), st.integers(10**9, 10**13))
def test_serialisation_is_the_exact_time_within_a_few_ps(size_bytes: int, rate_bps: int) -> None:
    ours = serialisation_ps(size_bytes, rate_bps)
    assert ours == paths.ser_ps(size_bytes, ps_per_byte_q16(rate_bps))
    exact = size_bytes * 8 * 10**12 / rate_bps
    assert abs(ours - exact) <= 1 + size_bytes / 131072


def test_unloaded_latency_by_hand() -> None:
    t = Topology(FabricSettings(nics=64, planes=8, hosts_per_t0=8))
    frame = 4096 + 100
    one = frame * 80  # ps at 100 Gb/s
    local = 2 * 600_000 + 500_000 + 2 * (one + 50_000)
    cross = 2 * 600_000 + 3 * 500_000 + 4 * one + 2 * 50_000 + 2 * 200_000
    assert t.unloaded_latency_ps(0, 1, frame) == local
    assert t.unloaded_latency_ps(0, 63, frame) == cross
    assert t.base_rtt_ps(frame, 100) == cross + (cross - 4 * one + 4 * 8000)
    three = Topology(FabricSettings(preset="clos3-64k"))
    fixed = 2 * 600_000 + 5 * 500_000 + 2 * 50_000 + 4 * 200_000
    assert three.unloaded_latency_ps(0, 65_535, 1000) == fixed + 6 * 10_000
    assert three.unloaded_latency_ps(0, 33, 0) == 2 * 600_000 + 3 * 500_000 + 2 * 50_000 + 2 * 200_000


def test_the_longest_path_is_one_that_exists() -> None:
    assert small("one-t0").longest_hops == 2
    assert small("three-one-pod").longest_hops == 4
    assert small("three").longest_hops == 6


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_at_full_scale(preset: str) -> None:
    t = Topology(FabricSettings(preset=preset))
    rng = np.random.default_rng(5)
    for link in rng.integers(0, t.n_links, 200).tolist():
        assert t.links_of_element(t.link_name(link))[0].tolist() == [link]
        assert t.reverse_link(t.reverse_link(link)) == link
