"""Kernels that turn (source, destination, plane, uplink) into links, and back into EVs.

A *link* is directed: it is one output port and has one number, see
:mod:`openmrc.fabric.topology`. An *uplink field* names a path inside a plane: the T0's uplink
number, and in three tiers ``T0 uplink << 7 | T1 uplink``. An EV is
``plane << 16 | 0xC000 | uplink field``: the low 16 bits are a UDP source port of the dynamic range.

>>> hex(ev_encode(3, 17)), ev_plane(0x3C011), ev_uplink(0x3C011)
('0x3c011', 3, 17)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from openmrc.jit import inline_kernel


class FabricParams(NamedTuple):
    """The fabric in plain integers, as kernels want it. Counts are per plane."""

    planes: int
    tiers: int
    n_nics: int
    hosts_per_t0: int
    n_t0: int
    n_t1: int
    uplinks: int
    t0_per_pod: int
    t1_per_pod: int
    t1_uplinks: int
    n_t2: int
    n_pods: int
    base_nic_down: int
    base_t0_up: int
    base_t1_down: int
    base_t1_up: int
    base_t2_down: int
    n_links: int


@inline_kernel
def nic_up_link(fp, nic, plane):
    """Return the link from a NIC port to its T0."""
    return nic * fp.planes + plane


@inline_kernel
def nic_down_link(fp, nic, plane):
    """Return the link from a T0 to a NIC port."""
    return fp.base_nic_down + nic * fp.planes + plane


@inline_kernel
def t0_up_link(fp, plane, t0, uplink):
    """Return the link from T0 ``t0`` through its uplink number ``uplink`` to a T1."""
    return fp.base_t0_up + (plane * fp.n_t0 + t0) * fp.uplinks + uplink


@inline_kernel
def t1_down_link(fp, plane, t1, t0):
    """Return the link from T1 ``t1`` to T0 ``t0``; three tiers: ``t0`` counted within its pod."""
    return fp.base_t1_down + (plane * fp.n_t1 + t1) * fp.t0_per_pod + t0


@inline_kernel
def t1_up_link(fp, t1, t1_uplink):
    """Return the link from T1 ``t1`` to the T2 above its uplink (three tiers)."""
    return fp.base_t1_up + t1 * fp.t1_uplinks + t1_uplink


@inline_kernel
def t2_down_link(fp, t2, pod):
    """Return the link from T2 ``t2`` to its T1 in ``pod`` (three tiers)."""
    return fp.base_t2_down + t2 * fp.n_pods + pod


@inline_kernel
def hop_count(fp, src_t0, dst_t0):
    """Return the number of links between two NICs: 2 under one T0, 4 over a T1, 6 over a T2."""
    if src_t0 == dst_t0:
        return 2
    if fp.tiers == 2:
        return 4
    if src_t0 // fp.t0_per_pod == dst_t0 // fp.t0_per_pod:
        return 4
    return 6


@inline_kernel
def path_count(fp, src_t0, dst_t0):
    """Return the number of distinct paths between two T0s in one plane."""
    hops = hop_count(fp, src_t0, dst_t0)
    if hops == 2:
        return 1
    if hops == 4:
        return fp.uplinks
    return fp.uplinks * fp.t1_uplinks


@inline_kernel
def path_uplink(fp, src_t0, dst_t0, i):
    """Return the uplink field of the ``i``-th path, 0 <= i < path_count.

    Neighbouring ``i`` differ in the T0's uplink, so the first few paths share no link between switches.
    """
    if src_t0 == dst_t0:
        return 0
    if fp.tiers == 2:
        return i
    return ((i % fp.uplinks) << 7) | (i // fp.uplinks)


@inline_kernel
def path_index(fp, uplink):
    """Return ``i`` such that ``path_uplink(..., i) == uplink``."""
    if fp.tiers == 2:
        return uplink
    return (uplink >> 7) + (uplink & 127) * fp.uplinks


@inline_kernel
def link_at(fp, src, dst, src_t0, dst_t0, hops, plane, uplink, hop):
    """Return the directed link of hop ``hop`` (0 .. hops-1) of a path.

    Parameters
    ----------
    fp : FabricParams
    src, dst : int
        NIC numbers.
    src_t0, dst_t0 : int
        ``nic // hosts_per_t0``, carried along so that nothing is divided here.
    hops : int
        ``hop_count(fp, src_t0, dst_t0)``.
    plane, uplink : int
        The path, ``uplink`` as in the EV.
    hop : int
        Which link.
    """
    if hop == 0:
        return nic_up_link(fp, src, plane)
    if hop == hops - 1:
        return nic_down_link(fp, dst, plane)
    if fp.tiers == 2:
        if hop == 1:
            return t0_up_link(fp, plane, src_t0, uplink)
        return t1_down_link(fp, plane, uplink, dst_t0)
    u = uplink >> 7
    v = uplink & 127
    if hop == 1:
        return t0_up_link(fp, 0, src_t0, u)
    if hop == hops - 2:
        pod = dst_t0 // fp.t0_per_pod
        return t1_down_link(fp, 0, pod * fp.t1_per_pod + u, dst_t0 - pod * fp.t0_per_pod)
    if hop == 2:
        return t1_up_link(fp, (src_t0 // fp.t0_per_pod) * fp.t1_per_pod + u, v)
    return t2_down_link(fp, u * fp.t1_uplinks + v, dst_t0 // fp.t0_per_pod)


@inline_kernel
def ev_encode(plane, uplink):
    """Return the EV of (plane, uplink field)."""
    return (plane << 16) | 0xC000 | uplink


@inline_kernel
def ev_plane(ev):
    """Return the plane of an EV."""
    return ev >> 16


@inline_kernel
def ev_uplink(ev):
    """Return the uplink field of an EV."""
    return ev & 0x3FFF


@inline_kernel
def pack_path(plane, uplink):
    """Return plane and uplink field in 16 bits, as a simulated packet carries them.

    wiring.py refuses fabrics whose uplink field needs more than 13 bits.
    """
    return (plane << 13) | uplink


@inline_kernel
def path_plane(path):
    """Return the plane of a packed path."""
    return path >> 13


@inline_kernel
def path_uplink_of(path):
    """Return the uplink field of a packed path."""
    return path & 0x1FFF


@inline_kernel
def ser_ps(size_bytes, ps_per_byte_q16):
    """Return the serialisation time in picoseconds; the multiplier is in 1/65536 ps per byte."""
    return (size_bytes * ps_per_byte_q16) >> 16


def plain(leaf_kernel: Any) -> Callable[..., int]:
    """Return the Python function of a kernel that calls no other kernel.

    Python code outside of kernels uses it, so that it neither waits for a compilation nor loses NumPy's
    broadcasting.
    """
    return getattr(leaf_kernel, "py_func", leaf_kernel)
