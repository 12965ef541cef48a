"""Small fabrics for the fabric's tests."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from openmrc.fabric.settings import FabricSettings
from openmrc.fabric.topology import Topology

#: no deadline: the first call of a kernel compiles it
quick = settings(deadline=None, max_examples=60)

#: every shape once: planes, partial fill, oversubscription, one T0 only, a partial last pod, one pod only
SMALL: dict[str, dict[str, Any]] = {
    "planes": {"nics": 8, "planes": 4, "hosts_per_t0": 2, "uplinks_per_t0": 3},
    "partial": {"nics": 7, "planes": 2, "hosts_per_t0": 3, "uplinks_per_t0": 2},
    "oversubscribed": {"nics": 16, "planes": 1, "hosts_per_t0": 4, "oversubscription": 2.0},
    "one-t0": {"nics": 4, "planes": 8, "hosts_per_t0": 4},
    "three": {"nics": 16, "tiers": 3, "radix": 4},
    "three-partial": {
        "nics": 11,
        "tiers": 3,
        "hosts_per_t0": 2,
        "uplinks_per_t0": 3,
        "t0_per_pod": 2,
        "t1_uplinks": 5,
    },
    "three-one-pod": {"nics": 4, "tiers": 3, "hosts_per_t0": 1, "t0_per_pod": 4, "t1_uplinks": 2},
}


def small(name: str) -> Topology:
    return Topology(FabricSettings.model_validate(SMALL[name]))


@st.composite
def fabrics(draw: st.DrawFn) -> Topology:
    """Any small fabric."""
    tiers = draw(st.sampled_from([2, 2, 3]))
    values: dict[str, Any] = {
        "tiers": tiers,
        "nics": draw(st.integers(1, 40)),
        "hosts_per_t0": draw(st.integers(1, 6)),
        "uplinks_per_t0": draw(st.integers(1, 6)),
        "planes": draw(st.sampled_from([1, 2, 4, 8])) if tiers == 2 else 1,
    }
    if tiers == 3:
        values |= {"t0_per_pod": draw(st.integers(1, 4)), "t1_uplinks": draw(st.integers(1, 5))}
    return Topology(FabricSettings.model_validate(values))
