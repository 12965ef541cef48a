"""The wired fabric: numbered links, their layers, rates and delays.

A *directed link* is one output port. Links are numbered layer by layer (:class:`Layer`), so the
layer of a link, and with it its rate and delay, follows from its number alone.

>>> from openmrc.fabric.settings import FabricSettings
>>> t = Topology(FabricSettings(nics=64, planes=8, hosts_per_t0=8))
>>> t.link_name(t.nic_up(12, 3)), t.t0_of(12)
('nic12/p3:up', 1)
>>> [t.link_name(link) for link in t.path_links(0, 63, plane=3, uplink=5)]
['nic0/p3:up', 'p3/t0.0-t1.5:up', 'p3/t0.7-t1.5:down', 'nic63/p3:down']
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from openmrc.errors import TopologyError
from openmrc.fabric import elements, paths
from openmrc.fabric.elements import ElementKind
from openmrc.fabric.paths import FabricParams, plain
from openmrc.fabric.settings import FabricSettings
from openmrc.fabric.wiring import T2_BITS, Wiring, resolve
from openmrc.units import PS_PER_S

Int64s = npt.NDArray[np.int64]

_nic_up = plain(paths.nic_up_link)
_nic_down = plain(paths.nic_down_link)
_t0_up = plain(paths.t0_up_link)
_t1_down = plain(paths.t1_down_link)
_t1_up = plain(paths.t1_up_link)
_t2_down = plain(paths.t2_down_link)
_hop_count = plain(paths.hop_count)


class Layer(IntEnum):
    """What a directed link connects."""

    NIC_UP = 0  # NIC -> T0
    NIC_DOWN = 1  # T0 -> NIC
    T0_UP = 2  # T0 -> T1
    T1_DOWN = 3  # T1 -> T0
    T1_UP = 4  # T1 -> T2
    T2_DOWN = 5  # T2 -> T1


UP_LAYERS = (Layer.NIC_UP, Layer.T0_UP, Layer.T1_UP)


def ps_per_byte_q16(rate_bps: int) -> int:
    """Return picoseconds per byte at ``rate_bps`` in units of 1/65536 ps, rounded to nearest.

    >>> ps_per_byte_q16(100_000_000_000) / 65536
    80.0
    """
    return (8 * PS_PER_S * 65536 + rate_bps // 2) // rate_bps


def serialisation_ps(size_bytes: int, rate_bps: int) -> int:
    """Return the time that ``size_bytes`` occupy a link of ``rate_bps``, by the kernels' own formula.

    >>> serialisation_ps(4096, 100_000_000_000)
    327680
    """
    return (size_bytes * ps_per_byte_q16(rate_bps)) >> 16


def _params(w: Wiring) -> FabricParams:
    ports = w.n_nics * w.planes
    base_t0_up = 2 * ports
    base_t1_down = base_t0_up + w.planes * w.n_t0 * w.uplinks
    base_t1_up = base_t1_down + w.planes * w.n_t1 * w.t0_per_pod
    base_t2_down = base_t1_up + w.n_t1 * w.t1_uplinks
    return FabricParams(
        planes=w.planes,
        tiers=w.tiers,
        n_nics=w.n_nics,
        hosts_per_t0=w.hosts_per_t0,
        n_t0=w.n_t0,
        n_t1=w.n_t1,
        uplinks=w.uplinks,
        t0_per_pod=w.t0_per_pod,
        t1_per_pod=w.t1_per_pod,
        t1_uplinks=w.t1_uplinks,
        n_t2=w.n_t2,
        n_pods=w.n_pods,
        base_nic_down=ports,
        base_t0_up=base_t0_up,
        base_t1_down=base_t1_down,
        base_t1_up=base_t1_up,
        base_t2_down=base_t2_down,
        n_links=base_t2_down + w.n_t2 * w.n_pods,
    )


class Topology:
    """A fabric that can be wired. Immutable.

    Parameters
    ----------
    settings : FabricSettings

    Attributes
    ----------
    params : FabricParams
        Plain integers for kernels.
    wiring : Wiring
        The same with rates and delays.
    layer_base : int64[7]
        First link of each layer, and the number of links.
    layer_rate_bps, layer_delay_ps : int64[6]
        Rate and propagation delay of each layer's links.
    layer_mult_q16 : int64[6]
        Serialisation multiplier of each layer, 1/65536 ps per byte.
    switch_latency_ps, nic_latency_ps : int
        Per switch passed; per NIC, each way.

    Raises
    ------
    TopologyError
        The fabric cannot be wired; the message names key, limit and remedy.
    """

    def __init__(self, settings: FabricSettings):
        self.settings = settings
        self.wiring = w = resolve(settings)
        self.params = p = _params(w)
        self.n_links = p.n_links
        self.layer_base = _frozen(
            [0, p.base_nic_down, p.base_t0_up, p.base_t1_down, p.base_t1_up, p.base_t2_down, p.n_links]
        )
        self.layer_rate_bps = _frozen(
            [w.port_rate_bps] * 2 + [w.uplink_rate_bps] * 2 + [w.t1_uplink_rate_bps] * 2
        )
        self.layer_delay_ps = _frozen([w.nic_delay_ps] * 2 + [w.t0_t1_delay_ps] * 2 + [w.t1_t2_delay_ps] * 2)
        self.layer_mult_q16 = _frozen([ps_per_byte_q16(int(rate)) for rate in self.layer_rate_bps])
        self.switch_latency_ps = w.switch_latency_ps
        self.nic_latency_ps = w.nic_latency_ps
        self.port_rate_bps = w.port_rate_bps
        self.nic_rate_bps = settings.nic_rate

    # --- numbering -------------------------------------------------------------------------
    def t0_of(self, nic: int) -> int:
        """Return the T0 index (the same in every plane) of a NIC."""
        return nic // self.params.hosts_per_t0

    def downlink_of(self, nic: int) -> int:
        """Return the number of the T0 port that leads to a NIC."""
        return nic % self.params.hosts_per_t0

    def pod_of(self, t0: int) -> int:
        """Return the pod of a T0; 0 in two tiers."""
        return t0 // self.params.t0_per_pod

    def nic_up(self, nic: int, plane: int) -> int:
        """Return the link NIC -> T0."""
        return _nic_up(self.params, nic, plane)

    def nic_down(self, nic: int, plane: int) -> int:
        """Return the link T0 -> NIC."""
        return _nic_down(self.params, nic, plane)

    def t0_up(self, plane: int, t0: int, uplink: int) -> int:
        """Return the link T0 -> T1 of uplink number ``uplink``."""
        return _t0_up(self.params, plane, t0, uplink)

    def t1_down(self, plane: int, t1: int, t0: int) -> int:
        """Return the link T1 -> T0, both by their index in the plane."""
        return _t1_down(self.params, plane, t1, t0 % self.params.t0_per_pod)

    def t1_up(self, t1: int, t1_uplink: int) -> int:
        """Return the link T1 -> T2 (three tiers)."""
        return _t1_up(self.params, t1, t1_uplink)

    def t2_down(self, t2: int, pod: int) -> int:
        """Return the link T2 -> T1 in ``pod`` (three tiers)."""
        return _t2_down(self.params, t2, pod)

    def t1_above(self, t0: int, uplink: int) -> int:
        """Return the T1 (index in its plane) that uplink number ``uplink`` of a T0 leads to."""
        return self.pod_of(t0) * self.params.t1_per_pod + uplink

    def link_layer(self, link: int) -> Layer:
        """Return the layer of a link."""
        self._check_link(link)
        return Layer(int(np.searchsorted(self.layer_base, link, side="right")) - 1)

    def reverse_link(self, link: int) -> int:
        """Return the other direction of the same cable."""
        return elements.reverse_link(self.params, link, self.link_layer(link))

    def link_rate_bps(self, link: int) -> int:
        """Return the nominal rate of a link."""
        return int(self.layer_rate_bps[self.link_layer(link)])

    def _check_link(self, link: int) -> None:
        if not 0 <= link < self.n_links:
            raise TopologyError(f"link {link}: there are links 0..{self.n_links - 1}; use one of them")

    # --- names -----------------------------------------------------------------------------
    def link_name(self, link: int) -> str:
        """Return the name of a directed link: its cable and ``:up`` or ``:down``."""
        return elements.link_name(self.params, link, self.link_layer(link))

    def links_of_element(self, text: str) -> tuple[Int64s, ElementKind]:
        """Return the directed links (sorted, both directions) of a named element, and its kind.

        Parameters
        ----------
        text : str
            ``nic12``, ``nic12/p3``, ``p3``, ``p3/t0.7``, ``p3/t1.5``, ``p0/t2.1``, ``p3/t0.7-t1.5``,
            ``p0/t1.4-t2.9``, ``p3/t0.7/up0-3``; with ``:up`` or ``:down`` behind it only that direction.

        Raises
        ------
        TopologyError
            Unknown syntax or an element that does not exist.
        """
        return elements.links_of_element(self.params, text)

    # --- paths: the plain twins of the kernels in paths.py ----------------------------------
    def hop_count(self, src: int, dst: int) -> int:
        """Return the number of links between two NICs."""
        return _hop_count(self.params, self.t0_of(src), self.t0_of(dst))

    def path_count(self, src: int, dst: int) -> int:
        """Return the number of distinct paths between two NICs in one plane."""
        p = self.params
        return {2: 1, 4: p.uplinks, 6: p.uplinks * p.t1_uplinks}[self.hop_count(src, dst)]

    def path_uplinks(self, src: int, dst: int) -> list[int]:
        """Return the uplink field of every path between two NICs in one plane.

        Neighbours differ in the T0's uplink: the first few share no link between switches.
        """
        p = self.params
        hops = self.hop_count(src, dst)
        if hops == 2:
            return [0]
        if p.tiers == 2:
            return list(range(p.uplinks))
        t2_choices = p.t1_uplinks if hops == 6 else 1
        return [u << T2_BITS | v for v in range(t2_choices) for u in range(p.uplinks)]

    def path_links(self, src: int, dst: int, plane: int, uplink: int) -> list[int]:
        """Return the directed links of a path, first to last.

        Raises
        ------
        TopologyError
            This pair has no such path.
        """
        self._check_path(src, dst, plane, uplink)
        src_t0, dst_t0 = self.t0_of(src), self.t0_of(dst)
        hops = self.hop_count(src, dst)
        u, v = (uplink, 0) if self.params.tiers == 2 else (uplink >> T2_BITS, uplink & (1 << T2_BITS) - 1)
        up, down = [self.nic_up(src, plane)], [self.nic_down(dst, plane)]
        if hops >= 4:
            up.append(self.t0_up(plane, src_t0, u))
            down.append(self.t1_down(plane, self.t1_above(dst_t0, u), dst_t0))
        if hops == 6:
            up.append(self.t1_up(self.t1_above(src_t0, u), v))
            down.append(self.t2_down(u * self.params.t1_uplinks + v, self.pod_of(dst_t0)))
        return up + down[::-1]

    def _check_path(self, src: int, dst: int, plane: int, uplink: int) -> None:
        p = self.params
        for nic in (src, dst):
            if not 0 <= nic < p.n_nics:
                raise TopologyError(f"NIC {nic}: this fabric has NICs 0..{p.n_nics - 1}; use one of them")
        if not 0 <= plane < p.planes:
            raise TopologyError(f"plane {plane}: this fabric has planes 0..{p.planes - 1}; use one of them")
        hops = self.hop_count(src, dst)
        u, v = (uplink, 0) if p.tiers == 2 else (uplink >> T2_BITS, uplink & (1 << T2_BITS) - 1)
        most_u = p.uplinks if hops > 2 else 1
        most_v = p.t1_uplinks if hops == 6 else 1
        if not (0 <= u < most_u and 0 <= v < most_v):
            what = f"uplinks 0..{most_u - 1}" + (f" with T1 uplinks 0..{most_v - 1}" if p.tiers == 3 else "")
            raise TopologyError(
                f"uplink {uplink:#x}: between nic{src} and nic{dst} there are {what}; use one of them"
            )

    # --- unloaded times --------------------------------------------------------------------
    def latency_of_hops_ps(self, hops: int, line_bytes: int) -> int:
        """Return the unloaded one-way time over 2, 4 or 6 links, store-and-forward, NIC times included.

        ``line_bytes`` is what the packet occupies on a link (preamble and gap included).
        """
        total = 2 * self.nic_latency_ps + (hops - 1) * self.switch_latency_ps
        for layer in range(hops):  # layers 0..hops-1 are exactly those of a path of that many links
            total += ((line_bytes * int(self.layer_mult_q16[layer])) >> 16) + int(self.layer_delay_ps[layer])
        return total

    def unloaded_latency_ps(self, src: int, dst: int, line_bytes: int) -> int:
        """Return the one-way time of a lone packet from NIC to NIC, store-and-forward."""
        return self.latency_of_hops_ps(self.hop_count(src, dst), line_bytes)

    @property
    def longest_hops(self) -> int:
        """Number of links of the longest path that this fabric has."""
        if self.params.n_t0 == 1:
            return 2
        return 4 if self.params.n_pods == 1 else 6

    def base_rtt_ps(self, data_line_bytes: int, ack_line_bytes: int) -> int:
        """Return the unloaded round trip of a data packet and its answer on the longest path."""
        return self.latency_of_hops_ps(self.longest_hops, data_line_bytes) + self.latency_of_hops_ps(
            self.longest_hops, ack_line_bytes
        )


def _frozen(values: list[int]) -> Int64s:
    array = np.array(values, dtype=np.int64)
    array.setflags(write=False)
    return array
