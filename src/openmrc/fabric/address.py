"""The address plan: EV <-> SRv6 uSID address <-> list of links, pure and invertible.

A uSID carrier address is a 32-bit locator block and up to six 16-bit uSIDs, zero filled
(RFC 9800, next-csid with lblen 32, nflen 16). It lists the switches that the packet visits and, last,
the downlink of the destination's T0::

    fcbb:bbbb:<T0>:<T1>:<T0>:<NIC downlink>::          over a T1
    fcbb:bbbb:<T0>:<NIC downlink>::                    T0-local
    fcbb:bbbb:<T0>:<T1>:<T2>:<T1>:<T0>:<NIC downlink>  over a T2

uSIDs are given out in one sequence from 1: the downlinks of a T0 (the same for every T0), then every
T0, plane by plane, then every T1, then the T2s. The address is therefore an affine function of plane
and uplink: :class:`CarrierTemplate` holds the constant part of a (source, destination) pair.

>>> from openmrc.fabric.settings import FabricSettings
>>> t = Topology(FabricSettings(nics=64, planes=8, hosts_per_t0=8))
>>> address = usid_address(t, src=12, dst=63, ev=0x3C005)
>>> str(address)
'fcbb:bbbb:22:66:28:8::'
>>> path_of_address(t, address)
AddressPath(src_t0=1, dst_t0=7, dst=63, plane=3, uplink=5, ev=245765)
>>> [t.link_name(link) for link in links_of_ev(t, 12, 63, 0x3C005)][1]
'p3/t0.1-t1.5:up'
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from ipaddress import IPv6Address
from typing import NamedTuple

from openmrc.errors import TopologyError
from openmrc.fabric import paths
from openmrc.fabric.paths import FabricParams, plain
from openmrc.fabric.topology import Layer, Topology
from openmrc.fabric.wiring import T2_BITS
from openmrc.limits import UPLINK_BITS, USID_MIN

#: the locator block, 32 bits; fcbb:bbbb::/32 is the example block of the SRv6 uSID documents
LOCATOR_BLOCK = 0xFCBB_BBBB
USID_BITS = 16
MAX_USIDS = 6  # (128 - 32) / 16
_BLOCK_SHIFT = 96
_USID_SHIFTS = (80, 64, 48, 32, 16, 0)
#: NICs' own (inner) addresses: a unique local /48 (RFC 4193), then port number and NIC number
NIC_PREFIX = 0xFD6D_7263_0000

_ev_encode = plain(paths.ev_encode)
_ev_plane = plain(paths.ev_plane)
_ev_uplink = plain(paths.ev_uplink)


class Role(IntEnum):
    """What a uSID names."""

    DOWNLINK = 0  # port of the T0 before it in the carrier
    T0 = 1
    T1 = 2
    T2 = 3


class UsidMeaning(NamedTuple):
    """What a uSID stands for; ``plane`` is 0 for downlinks, which all T0s number alike."""

    role: Role
    plane: int
    number: int


class AddressPath(NamedTuple):
    """What a carrier address says: from which T0, to which NIC, on which path."""

    src_t0: int
    dst_t0: int
    dst: int
    plane: int
    uplink: int
    ev: int


class CarrierTemplate(NamedTuple):
    """The carrier address of a pair as base + plane * plane_step + u * uplink_step + v * t2_step.

    ``u`` is the T0 uplink and ``v`` the T1 uplink of the EV; :func:`fill_template` does it.
    """

    base: int
    plane_step: int
    uplink_step: int
    t2_step: int


# --- uSIDs ---------------------------------------------------------------------------------


def _bases(p: FabricParams) -> tuple[int, int, int, int, int]:
    """Return the first uSID of each role, and the first unused one."""
    t0 = USID_MIN + p.hosts_per_t0
    t1 = t0 + p.planes * p.n_t0
    t2 = t1 + p.planes * p.n_t1
    return USID_MIN, t0, t1, t2, t2 + p.n_t2


def _role_size(p: FabricParams, role: Role) -> int:
    return (p.hosts_per_t0, p.n_t0, p.n_t1, p.n_t2)[role]


def usid_of(topology: Topology, role: Role, plane: int, index: int) -> int:
    """Return the uSID (16 bits) of a switch, or of a T0's downlink (plane 0).

    Raises
    ------
    TopologyError
        There is no such switch or downlink.
    """
    p = topology.params
    size = _role_size(p, role)
    planes = p.planes if role in (Role.T0, Role.T1) else 1
    if not (0 <= plane < planes and 0 <= index < size):
        raise TopologyError(
            f"uSID of {role.name} {index} in plane {plane}: this fabric has {size} "
            f"in each of {planes} planes; use one of them"
        )
    return _bases(p)[role] + plane * size + index


def usid_meaning(topology: Topology, usid: int) -> UsidMeaning:
    """Return what a uSID names; the inverse of :func:`usid_of`."""
    p = topology.params
    bases = _bases(p)
    if not bases[0] <= usid < bases[4]:
        raise TopologyError(
            f"uSID {usid:#06x}: this fabric uses {bases[0]:#06x}..{bases[4] - 1:#06x}; use one of them"
        )
    role = Role(sum(usid >= base for base in bases[1:4]))
    plane, index = divmod(usid - bases[role], _role_size(p, role))
    return UsidMeaning(role, plane, index)


def carrier(usids: Sequence[int]) -> IPv6Address:
    """Return the carrier address that lists ``usids`` (at most six)."""
    assert len(usids) <= MAX_USIDS
    value = LOCATOR_BLOCK << _BLOCK_SHIFT
    for usid, shift in zip(usids, _USID_SHIFTS, strict=False):
        value |= usid << shift
    return IPv6Address(value)


def carried_usids(address: IPv6Address) -> list[int]:
    """Return the uSIDs of a carrier address up to the zero fill."""
    value = int(address)
    if value >> _BLOCK_SHIFT != LOCATOR_BLOCK:
        raise TopologyError(
            f"address {address}: not in the locator block {_block_text()}; it is not a uSID carrier"
        )
    usids = [value >> shift & 0xFFFF for shift in _USID_SHIFTS]
    used = usids.index(0) if 0 in usids else MAX_USIDS
    if any(usids[used:]):
        raise TopologyError(f"address {address}: a uSID follows the zero fill; it is not a uSID carrier")
    return usids[:used]


def _block_text() -> str:
    return f"{IPv6Address(LOCATOR_BLOCK << _BLOCK_SHIFT)}/32"


# --- EV <-> address ------------------------------------------------------------------------


def split_ev(topology: Topology, src: int, dst: int, ev: int) -> tuple[int, int]:
    """Return (plane, uplink field) of an EV after checking that the pair has this path."""
    plane, uplink = _ev_plane(ev), _ev_uplink(ev)
    if ev < 0 or _ev_encode(plane, uplink) != ev:
        raise TopologyError(
            f"EV {ev:#x}: bits {UPLINK_BITS} and {UPLINK_BITS + 1} must be set; an EV is "
            "plane << 16 | 0xC000 | uplink"
        )
    topology.path_links(src, dst, plane, uplink)  # raises when there is no such path
    return plane, uplink


def carrier_template(topology: Topology, src: int, dst: int) -> CarrierTemplate:
    """Return the part of the carrier address that does not depend on the EV.

    Built once per destination of a QP; then each packet costs :func:`fill_template`.
    """
    p = topology.params
    src_t0, dst_t0 = topology.t0_of(src), topology.t0_of(dst)
    hops = topology.hop_count(src, dst)
    _, t0, t1, t2, _ = _bases(p)
    usids = [t0 + src_t0]
    per_plane, per_uplink, per_t2 = [p.n_t0], [0], [0]
    if hops >= 4:
        usids.append(t1 + topology.t1_above(src_t0, 0))
        per_plane.append(p.n_t1)
        per_uplink.append(1)
        per_t2.append(0)
    if hops == 6:
        usids += [t2, t1 + topology.t1_above(dst_t0, 0)]
        per_plane += [0, p.n_t1]
        per_uplink += [p.t1_uplinks, 1]
        per_t2 += [1, 0]
    if hops >= 4:
        usids.append(t0 + dst_t0)
        per_plane.append(p.n_t0)
    usids.append(USID_MIN + topology.downlink_of(dst))

    def spread(values: list[int]) -> int:
        return sum(value << shift for value, shift in zip(values, _USID_SHIFTS, strict=False))

    return CarrierTemplate(int(carrier(usids)), spread(per_plane), spread(per_uplink), spread(per_t2))


def fill_template(template: CarrierTemplate, tiers: int, ev: int) -> int:
    """Return the carrier address (as an integer) of a valid EV of the template's pair."""
    plane, uplink = _ev_plane(ev), _ev_uplink(ev)
    u, v = (uplink, 0) if tiers == 2 else (uplink >> T2_BITS, uplink & (1 << T2_BITS) - 1)
    return template.base + plane * template.plane_step + u * template.uplink_step + v * template.t2_step


def usid_address(topology: Topology, src: int, dst: int, ev: int) -> IPv6Address:
    """Return the outer destination address that takes a packet from ``src`` to ``dst`` on path ``ev``.

    Parameters
    ----------
    topology : Topology
    src, dst : int
        NIC numbers.
    ev : int
        ``plane << 16 | 0xC000 | uplink``.

    Raises
    ------
    TopologyError
        Not an EV, or a path that this pair does not have.
    """
    split_ev(topology, src, dst, ev)
    return IPv6Address(fill_template(carrier_template(topology, src, dst), topology.params.tiers, ev))


def path_of_address(topology: Topology, address: IPv6Address) -> AddressPath:
    """Return what an address made by :func:`usid_address` says: the inverse, up to the source's downlink.

    Raises
    ------
    TopologyError
        An address that this fabric never makes.
    """
    usids = carried_usids(address)
    means = [usid_meaning(topology, usid) for usid in usids]
    roles = tuple(m.role for m in means)
    shape = {
        (Role.T0, Role.DOWNLINK): 2,
        (Role.T0, Role.T1, Role.T0, Role.DOWNLINK): 4,
        (Role.T0, Role.T1, Role.T2, Role.T1, Role.T0, Role.DOWNLINK): 6,
    }.get(roles)
    if shape is None:
        listed = " ".join(role.name for role in roles) or "nothing"
        raise TopologyError(
            f"address {address}: lists {listed}; a full carrier lists T0 [T1 [T2 T1] T0] DOWNLINK"
        )
    p = topology.params
    first, last_t0 = means[0], means[-2]
    dst = last_t0.number * p.hosts_per_t0 + means[-1].number
    u = means[1].number % p.t1_per_pod if shape >= 4 else 0
    v = means[2].number % p.t1_uplinks if shape == 6 else 0
    uplink = u if p.tiers == 2 else u << T2_BITS | v
    path = AddressPath(
        first.number, last_t0.number, dst, first.plane, uplink, _ev_encode(first.plane, uplink)
    )
    # one equation checks the rest: same plane and pod all along, existing NIC, no detour
    src = first.number * p.hosts_per_t0
    if dst >= p.n_nics or usid_address(topology, src, dst, path.ev) != address:
        raise TopologyError(f"address {address}: its switches are not on one path to a NIC of this fabric")
    return path


# --- EV <-> links --------------------------------------------------------------------------


def links_of_ev(topology: Topology, src: int, dst: int, ev: int) -> list[int]:
    """Return the directed links that EV ``ev`` takes from NIC ``src`` to NIC ``dst``, first to last."""
    plane, uplink = split_ev(topology, src, dst, ev)
    return topology.path_links(src, dst, plane, uplink)


def ev_of_links(topology: Topology, links: Sequence[int]) -> tuple[int, int, int]:
    """Return (src, dst, ev) of a path given as links; the inverse of :func:`links_of_ev`.

    Raises
    ------
    TopologyError
        The links are not a path from a NIC to a NIC.
    """
    p = topology.params
    names = [topology.link_name(link) for link in links]
    if len(links) not in (2, 4, 6) or topology.link_layer(links[0]) is not Layer.NIC_UP:
        raise TopologyError(f"links {names}: a path has 2, 4 or 6 links and starts at a NIC")
    if topology.link_layer(links[-1]) is not Layer.NIC_DOWN:
        raise TopologyError(f"links {names}: a path ends at a NIC")
    src, plane = divmod(links[0], p.planes)
    dst = (links[-1] - p.base_nic_down) // p.planes
    u = v = 0
    if len(links) >= 4:
        u = (links[1] - p.base_t0_up) % p.uplinks
    if len(links) == 6 and p.t1_uplinks:
        v = (links[2] - p.base_t1_up) % p.t1_uplinks
    uplink = u if p.tiers == 2 else u << T2_BITS | v
    if len(links) != topology.hop_count(src, dst) or topology.path_links(src, dst, plane, uplink) != list(
        links
    ):
        raise TopologyError(f"links {names}: they do not follow one another on a shortest path")
    return src, dst, _ev_encode(plane, uplink)


# --- NIC addresses -------------------------------------------------------------------------


def nic_address(topology: Topology, nic: int, plane: int | None = None) -> IPv6Address:
    """Return a NIC's own address, ``fd6d:7263:0:<port>::<nic>``, the inner source and destination.

    Parameters
    ----------
    topology : Topology
    nic : int
    plane : int, optional
        For the address of one port (port number plane + 1). Without it the address of the NIC itself
        (port number 0), which packets carry whatever plane they take.
    """
    p = topology.params
    if not 0 <= nic < p.n_nics or not (plane is None or 0 <= plane < p.planes):
        raise TopologyError(
            f"NIC {nic}, plane {plane}: this fabric has NICs 0..{p.n_nics - 1} and planes 0..{p.planes - 1}"
        )
    port = 0 if plane is None else plane + 1
    return IPv6Address(NIC_PREFIX << 80 | port << 64 | nic)


def nic_of_address(topology: Topology, address: IPv6Address) -> tuple[int, int | None]:
    """Return (NIC, plane or None) of an address made by :func:`nic_address`."""
    value = int(address)
    port, nic = value >> 64 & 0xFFFF, value & (1 << 64) - 1
    p = topology.params
    if value >> 80 != NIC_PREFIX or nic >= p.n_nics or port > p.planes:
        raise TopologyError(
            f"address {address}: not a NIC of this fabric; they are {nic_address(topology, 0)} to "
            f"{nic_address(topology, p.n_nics - 1)}, ports from {nic_address(topology, 0, 0)}"
        )
    return nic, port - 1 if port else None
