from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import TopologyError
from openmrc.fabric.htsim_topo import parse_htsim_topo, read_htsim_topo
from openmrc.fabric.topology import Topology

DATA = Path(__file__).parent / "data" / "htsim"
TINY = (DATA / "leaf_spine_tiny.topo").read_text()
THREE = """
Nodes 32   # two pods of four T0s
Tiers 3
Podsize 16
Tier 0
downlink_speed_gbps 400
radix_down 4
radix_up 2
downlink_latency_ns 50
Tier 1
downlink_speed_gbps 800
radix_down 4
radix_up 2
downlink_latency_ns 200.5
oversubscribed 2
Tier 2
downlink_speed_gbps 800
radix_down 2
downlink_latency_ns 300
"""


@pytest.mark.parametrize(
    ("name", "n_nics", "n_t0", "n_t1", "hosts"),
    [
        ("leaf_spine_1024", 1024, 32, 32, 32),
        ("leaf_spine_8192_100g", 8192, 128, 64, 64),
        ("leaf_spine_tiny", 32, 4, 2, 8),
    ],
)
def test_files_of_htsim(name: str, n_nics: int, n_t0: int, n_t1: int, hosts: int) -> None:
    t = Topology(read_htsim_topo(DATA / f"{name}.topo"))
    p = t.params
    assert (p.n_nics, p.n_t0, p.n_t1, p.hosts_per_t0, p.planes, p.tiers) == (n_nics, n_t0, n_t1, hosts, 1, 2)
    assert t.layer_rate_bps.tolist()[:4] == [100 * 10**9] * 4
    assert t.layer_delay_ps.tolist()[:4] == [1_000_000] * 4
    assert (t.switch_latency_ps, t.nic_latency_ps) == (0, 0)


def test_three_tiers() -> None:
    t = Topology(parse_htsim_topo(THREE))
    p = t.params
    assert (p.n_nics, p.n_t0, p.n_t1, p.n_t2, p.n_pods) == (32, 8, 4, 4, 2)
    assert t.layer_rate_bps.tolist() == [400 * 10**9] * 2 + [800 * 10**9] * 4
    assert t.layer_delay_ps.tolist() == [50_000] * 2 + [200_500] * 2 + [300_000] * 2


def line_of(text: str, start: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if line.startswith(start))


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("Radix_Up 2", "Radix_Upp 2", 8, "unknown key 'Radix_Upp'"),
        ("Radix_Up 2", "Radix_Down 8", 8, "already given in line 7"),
        ("Radix_Up 2", "", 5, "Tier 0 has no Radix_Up"),
        ("Radix_Up 2", "Radix_Up 0", 8, "Radix_Up is 0"),
        ("Radix_Up 2", "Radix_Up two", 8, "sensible number"),
        ("Radix_Up 2", "Radix_Up -2", 8, "sensible number"),
        ("Radix_Up 2", "Radix_Up 1e99", 8, "sensible number"),
        ("Radix_Up 2", "Radix_Up 2.5", 8, "whole number"),
        ("Radix_Up 2", "Radix_Up", 8, "not a key and a number"),
        ("Radix_Up 2", "Radix_Up 4", 11, "Oversubscribed 4 but"),
        ("Radix_Up 2", "Queue_Up 20", 8, "remove it"),
        ("Radix_Up 2", "Nodes 20", 8, "does not belong inside a Tier"),
        ("Radix_Up 2", "Radix_Up 2\nBundle 2", 9, "Bundle 2"),
        ("Radix_Down 4", "Radix_Down 5", 15, "4 Tier 0 switches"),
        ("Radix_Down 4", "Radix_Down 4\nRadix_Up 2", 16, "no uplinks"),
        ("Nodes 32", "Nodes 33", 1, "multiple of 8"),
        ("Nodes 32", "Nodes 0", 1, "no Nodes"),
        ("Nodes 32", "", 1, "Nodes is missing"),
        ("Nodes 32", "Radix_Up 32", 1, "does not belong before"),
        ("Tiers 2", "Tiers 4", 2, "2 or 3"),
        ("Tiers 2", "Tiers 3", 2, "2 Tier sections"),
        ("Podsize 32", "Podsize 16", 3, "a pod has 32"),
        ("Tier 1", "Tier 2", 13, "Tier 1 comes next"),
        ("Downlink_speed_Gbps 100", "Downlink_speed_Gbps 0", 6, "a speed of 0"),
        ("Downlink_Latency_ns 1000", "Downlink_Latency_ns 0.0001", 9, "finer than 1 ps"),
        ("Switch_Latency_ns 0", "Switch_Latency_ns 5", 17, "differ"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, line: int, says: str) -> None:
    text = TINY.replace("\r", "")
    assert old in text
    changed = text.replace(old, new, 1)
    with pytest.raises(TopologyError) as error:
        parse_htsim_topo(changed, "x.topo")
    assert says in str(error.value)
    assert str(error.value).startswith(f"x.topo:{line}: "), str(error.value)
    assert "; " in str(error.value)


def test_a_pod_must_be_filled_in_three_tiers() -> None:
    with pytest.raises(TopologyError, match="multiple of 16"):
        parse_htsim_topo(THREE.replace("Nodes 32", "Nodes 40"))
    with pytest.raises(TopologyError, match="2 pods"):
        parse_htsim_topo(THREE.replace("radix_down 2", "radix_down 3"))
    with pytest.raises(TopologyError, match="Oversubscribed 3"):
        parse_htsim_topo(THREE.replace("oversubscribed 2", "oversubscribed 3"))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="cannot be read"):
        read_htsim_topo(tmp_path / "none.topo")
    (tmp_path / "binary.topo").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TopologyError, match="cannot be read"):
        read_htsim_topo(tmp_path / "binary.topo")
