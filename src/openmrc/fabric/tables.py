"""Static tables of the switches, written once: SRv6 uN with next-csid (RFC 9800 s4.1).

A switch matches the leading 48 bits (locator block + uSID) of the destination. Its own uSID: shift the
uSID part left by 16 bits, zero fill, look up again. A neighbour's uSID: send it out there. Anything else
is dropped, with a reason. No routing protocol is involved anywhere.

>>> from openmrc.fabric.settings import FabricSettings
>>> t = Topology(FabricSettings(nics=64, planes=8, hosts_per_t0=8))
>>> table = switch_table(t, Role.T0, plane=3, index=1)
>>> len(table.routes)  # one /48 per uplink, one per downlink
16
>>> out = forward(table, IPv6Address("fcbb:bbbb:22:66:28:8::"))
>>> t.link_name(out.link), str(out.address)
('p3/t0.1-t1.5:up', 'fcbb:bbbb:66:28:8::')
>>> forward(table, IPv6Address("fcbb:bbbb:22::"))
Drop(reason=<TableDrop.CARRIER_EMPTY: 'carrier-empty'>)
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from ipaddress import IPv6Address
from typing import NamedTuple

from openmrc.errors import TopologyError
from openmrc.fabric import elements
from openmrc.fabric.address import LOCATOR_BLOCK, MAX_USIDS, USID_BITS, Role, usid_of
from openmrc.fabric.topology import Layer, Topology

_PREFIX_SHIFT = 80  # 128 - 48
_USID_PART = (1 << 96) - 1


class TableDrop(StrEnum):
    """Why a switch has no way for a destination."""

    NOT_IN_LOCATOR = "not-in-locator"  # another block than ours
    NO_ROUTE = "no-route"  # a uSID that is neither this switch nor a neighbour
    CARRIER_EMPTY = "carrier-empty"  # own uSID was the last one


class Forward(NamedTuple):
    """Send the packet to ``link`` with destination ``address``."""

    link: int
    address: IPv6Address


class Drop(NamedTuple):
    """Drop the packet."""

    reason: TableDrop


class SwitchTable(NamedTuple):
    """The static table of a switch.

    Attributes
    ----------
    role, plane, number
        Which switch.
    own : int
        Locator block and own uSID, 48 bits.
    routes : dict of int to int
        48-bit prefix of each neighbour -> directed link to it.
    """

    role: Role
    plane: int
    number: int
    own: int
    routes: dict[int, int]

    @property
    def n_entries(self) -> int:
        """Entries that the switch must hold: its own uSID and one route per neighbour."""
        return 1 + len(self.routes)


def _prefix(usid: int) -> int:
    return LOCATOR_BLOCK << USID_BITS | usid


def switch_table(topology: Topology, role: Role, plane: int, index: int) -> SwitchTable:
    """Return the table of one switch. In three tiers ``plane`` is 0.

    Raises
    ------
    TopologyError
        There is no such switch.
    """
    if role is Role.DOWNLINK:
        raise TopologyError("role DOWNLINK: a NIC's downlink is no switch; use T0, T1 or T2")
    own = _prefix(usid_of(topology, role, plane, index))
    p = topology.params
    routes: dict[int, int] = {}

    def add(neighbour: Role, neighbour_index: int, link: int) -> None:
        neighbour_plane = 0 if neighbour is Role.DOWNLINK else plane
        routes[_prefix(usid_of(topology, neighbour, neighbour_plane, neighbour_index))] = link

    if role is Role.T0:
        first = index * p.hosts_per_t0
        for nic in range(first, min(first + p.hosts_per_t0, p.n_nics)):
            add(Role.DOWNLINK, nic - first, topology.nic_down(nic, plane))
        for u in range(p.uplinks):
            add(Role.T1, topology.t1_above(index, u), topology.t0_up(plane, index, u))
    elif role is Role.T1:
        pod, u = divmod(index, p.t1_per_pod)
        for t0 in range(pod * p.t0_per_pod, min((pod + 1) * p.t0_per_pod, p.n_t0)):
            add(Role.T0, t0, topology.t1_down(plane, index, t0))
        for v in range(p.t1_uplinks):
            add(Role.T2, u * p.t1_uplinks + v, topology.t1_up(index, v))
    else:
        u = index // p.t1_uplinks
        for pod in range(p.n_pods):
            add(Role.T1, pod * p.t1_per_pod + u, topology.t2_down(index, pod))
    return SwitchTable(role, plane, index, own, routes)


def switch_tables(topology: Topology) -> Iterator[SwitchTable]:
    """Yield the table of every switch: per plane the T0s, then the T1s; then the T2s."""
    p = topology.params
    for role, planes, count in (
        (Role.T0, p.planes, p.n_t0),
        (Role.T1, p.planes, p.n_t1),
        (Role.T2, 1, p.n_t2),
    ):
        for plane in range(planes):
            for index in range(count):
                yield switch_table(topology, role, plane, index)


def forward(table: SwitchTable, address: IPv6Address) -> Forward | Drop:
    """Return what a switch does with a packet to ``address``."""
    value = int(address)
    block = LOCATOR_BLOCK << 96
    if value & ~_USID_PART != block:
        return Drop(TableDrop.NOT_IN_LOCATOR)
    # own uSID may stand there more than once: each shift is followed by a new lookup
    for _ in range(MAX_USIDS):
        if value >> _PREFIX_SHIFT != table.own:
            break
        value = block | (value << USID_BITS & _USID_PART)
    if value == block:
        return Drop(TableDrop.CARRIER_EMPTY)
    link = table.routes.get(value >> _PREFIX_SHIFT)
    if link is None:
        return Drop(TableDrop.NO_ROUTE)
    return Forward(link, IPv6Address(value))


class Walk(NamedTuple):
    """Where a packet went: the links it crossed, and how that ended.

    ``drop`` is None when it reached a NIC; ``address`` is its destination there or where it was dropped.
    """

    links: list[int]
    address: IPv6Address
    drop: TableDrop | None


def walk(topology: Topology, src: int, plane: int, address: IPv6Address) -> Walk:
    """Send a packet from port ``plane`` of NIC ``src`` and follow it by the switches' tables alone."""
    links = [topology.nic_up(src, plane)]
    while True:
        switch = switch_behind(topology, links[-1])
        if switch is None:
            return Walk(links, address, None)
        step = forward(switch_table(topology, *switch), address)
        if isinstance(step, Drop):
            return Walk(links, address, step.reason)
        links.append(step.link)
        address = step.address


def switch_behind(topology: Topology, link: int) -> tuple[Role, int, int] | None:
    """Return (role, plane, index) of the switch that a link leads to, or None for a NIC."""
    p = topology.params
    layer = topology.link_layer(link)
    if layer is Layer.NIC_DOWN:
        return None
    if layer is Layer.NIC_UP:
        nic, plane = divmod(link, p.planes)
        return Role.T0, plane, topology.t0_of(nic)
    if layer is Layer.T0_UP:
        plane, t0, u = elements.split3(link - p.base_t0_up, p.n_t0, p.uplinks)
        return Role.T1, plane, topology.t1_above(t0, u)
    if layer is Layer.T1_DOWN:
        plane, _, t0 = elements.t1_down_ends(p, link)
        return Role.T0, plane, t0
    if layer is Layer.T1_UP:
        t1, v = divmod(link - p.base_t1_up, p.t1_uplinks)
        return Role.T2, 0, t1 % p.t1_per_pod * p.t1_uplinks + v
    t2, pod = divmod(link - p.base_t2_down, p.n_pods)
    return Role.T1, 0, pod * p.t1_per_pod + t2 // p.t1_uplinks
