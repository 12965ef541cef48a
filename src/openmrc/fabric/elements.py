"""Names of the fabric's elements: NICs, ports, switches, cables, planes, transceivers.

The same names appear in scenario files, logs and reports. :data:`SYNTAX` lists them; ``:up`` (away
from NICs) or ``:down`` behind a name keeps one direction of its links.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from openmrc.errors import TopologyError
from openmrc.fabric import paths
from openmrc.fabric.paths import FabricParams, plain

Int64s = npt.NDArray[np.int64]

_t0_up = plain(paths.t0_up_link)
_t1_down = plain(paths.t1_down_link)
_t1_up = plain(paths.t1_up_link)
_t2_down = plain(paths.t2_down_link)


class ElementKind(StrEnum):
    """What a name names."""

    NIC = "nic"
    NIC_PORT = "nic-port"
    T0 = "t0"
    T1 = "t1"
    T2 = "t2"
    CABLE = "cable"
    TRANSCEIVER = "transceiver"
    PLANE = "plane"

    @property
    def is_switch(self) -> bool:
        """Whether it is one switch."""
        return self in (ElementKind.T0, ElementKind.T1, ElementKind.T2)


SYNTAX = (
    "write nic12 (NIC), nic12/p3 (NIC port), p3 (plane), p3/t0.7, p3/t1.5 or p0/t2.1 (switch), "
    "p3/t0.7-t1.5 or p0/t1.4-t2.9 (cable), p3/t0.7/up0-3 (transceiver), with :up or :down for one direction"
)

_PATTERN = re.compile(
    r"""(?:nic(?P<nic>\d+)(?:/p(?P<port>\d+))?
      | p(?P<plane>\d+)(?:/t(?P<tier>[012])\.(?P<index>\d+)
          (?:-t(?P<tier2>[12])\.(?P<index2>\d+) | /(?P<side>up|down)(?P<first>\d+)(?:-(?P<last>\d+))?)?)?)
      (?::(?P<direction>up|down))?""",
    re.VERBOSE | re.ASCII,
)


def reverse_link(fp: FabricParams, link: int, layer: int) -> int:
    """Return the other direction of the cable that ``link`` (of layer ``layer``) belongs to."""
    if layer == 0:
        return link + fp.base_nic_down
    if layer == 1:
        return link - fp.base_nic_down
    if layer == 2:
        plane, t0, uplink = split3(link - fp.base_t0_up, fp.n_t0, fp.uplinks)
        t1 = t0 // fp.t0_per_pod * fp.t1_per_pod + uplink
        return _t1_down(fp, plane, t1, t0 % fp.t0_per_pod)
    if layer == 3:
        plane, t1, t0 = t1_down_ends(fp, link)
        return _t0_up(fp, plane, t0, t1 % fp.t1_per_pod)
    if layer == 4:
        t1, v = divmod(link - fp.base_t1_up, fp.t1_uplinks)
        pod, u = divmod(t1, fp.t1_per_pod)
        return _t2_down(fp, u * fp.t1_uplinks + v, pod)
    t2, pod = divmod(link - fp.base_t2_down, fp.n_pods)
    u, v = divmod(t2, fp.t1_uplinks)
    return _t1_up(fp, pod * fp.t1_per_pod + u, v)


def link_name(fp: FabricParams, link: int, layer: int) -> str:
    """Return the name of a directed link, e.g. ``p3/t0.7-t1.5:up``."""
    if layer in (1, 3, 5):
        up = reverse_link(fp, link, layer)
        return link_name(fp, up, layer - 1).removesuffix(":up") + ":down"
    if layer == 0:
        nic, plane = divmod(link, fp.planes)
        return f"nic{nic}/p{plane}:up"
    if layer == 2:
        plane, t0, uplink = split3(link - fp.base_t0_up, fp.n_t0, fp.uplinks)
        return f"p{plane}/t0.{t0}-t1.{t0 // fp.t0_per_pod * fp.t1_per_pod + uplink}:up"
    t1, v = divmod(link - fp.base_t1_up, fp.t1_uplinks)
    return f"p0/t1.{t1}-t2.{t1 % fp.t1_per_pod * fp.t1_uplinks + v}:up"


def split3(number: int, middle: int, inner: int) -> tuple[int, int, int]:
    """Return (a, b, c) of ``number = (a * middle + b) * inner + c``."""
    rest, c = divmod(number, inner)
    a, b = divmod(rest, middle)
    return a, b, c


def t1_down_ends(fp: FabricParams, link: int) -> tuple[int, int, int]:
    """Return (plane, T1, T0) of a T1 -> T0 link."""
    plane, t1, local = split3(link - fp.base_t1_down, fp.n_t1, fp.t0_per_pod)
    t0 = t1 // fp.t1_per_pod * fp.t0_per_pod + local
    if t0 >= fp.n_t0:
        raise TopologyError(
            f"link {link}: port {local} of p{plane}/t1.{t1} has no cable, the last pod is not full; "
            f"there are T0s 0..{fp.n_t0 - 1}"
        )
    return plane, t1, t0


# --- links of an element --------------------------------------------------------------------


def links_of_element(fp: FabricParams, text: str) -> tuple[Int64s, ElementKind]:
    """Return the sorted directed links of the element named ``text``, and its kind."""
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise TopologyError(f"element {text!r}: not a name of an element; {SYNTAX}")
    part = match.groupdict()
    number = {key: int(value) for key, value in part.items() if value is not None and value.isdigit()}
    if part["nic"] is not None:
        ups, kind = _nic_links(fp, text, number)
    elif part["tier"] is None:
        _check(text, "plane", number["plane"], fp.planes)
        ups, kind = _plane_links(fp, number["plane"]), ElementKind.PLANE
    elif part["side"] is not None:
        ups, kind = _transceiver_links(fp, text, part["side"], number), ElementKind.TRANSCEIVER
    elif part["tier2"] is not None:
        ups, kind = _cable_links(fp, text, number), ElementKind.CABLE
    else:
        _check_switch(fp, text, number["plane"], number["tier"], number["index"])
        ups = switch_up_links(fp, number["plane"], number["tier"], number["index"])
        kind = ElementKind(f"t{number['tier']}")
    links = ups if part["direction"] == "up" else reverse_links(fp, ups)
    if part["direction"] is None:
        links = np.concatenate([ups, links])
    return np.sort(links), kind


def reverse_links(fp: FabricParams, ups: Int64s) -> Int64s:
    """Return the downward twin of every upward link (layers NIC_UP, T0_UP, T1_UP), vectorised."""
    out = ups + fp.base_nic_down  # right for NIC_UP
    middle = (ups >= fp.base_t0_up) & (ups < fp.base_t1_down)
    if middle.any():
        rest, u = np.divmod(ups[middle] - fp.base_t0_up, fp.uplinks)
        plane, t0 = np.divmod(rest, fp.n_t0)
        pod, local = np.divmod(t0, fp.t0_per_pod)
        t1 = pod * fp.t1_per_pod + u
        out[middle] = fp.base_t1_down + (plane * fp.n_t1 + t1) * fp.t0_per_pod + local
    top = ups >= fp.base_t1_up
    if top.any():
        t1, v = np.divmod(ups[top] - fp.base_t1_up, fp.t1_uplinks)
        pod, u = np.divmod(t1, fp.t1_per_pod)
        out[top] = fp.base_t2_down + (u * fp.t1_uplinks + v) * fp.n_pods + pod
    return out


def _check(text: str, what: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise TopologyError(
            f"element {text!r}: there is no {what} {value}; this fabric has {what} 0..{count - 1}"
        )


def _check_switch(fp: FabricParams, text: str, plane: int, tier: int, index: int) -> None:
    _check(text, "plane", plane, fp.planes)
    if tier == 2 and fp.tiers == 2:
        raise TopologyError(f"element {text!r}: a fabric of 2 tiers has no T2; name a T0 or T1")
    _check(text, f"T{tier}", index, (fp.n_t0, fp.n_t1, fp.n_t2)[tier])


def _nic_links(fp: FabricParams, text: str, number: dict[str, int]) -> tuple[Int64s, ElementKind]:
    nic = number["nic"]
    _check(text, "NIC", nic, fp.n_nics)
    if "port" in number:
        _check(text, "plane", number["port"], fp.planes)
        return np.array([nic * fp.planes + number["port"]], dtype=np.int64), ElementKind.NIC_PORT
    return np.arange(nic * fp.planes, (nic + 1) * fp.planes, dtype=np.int64), ElementKind.NIC


def _plane_links(fp: FabricParams, plane: int) -> Int64s:
    nics = np.arange(fp.n_nics, dtype=np.int64) * fp.planes + plane
    per_plane = fp.n_t0 * fp.uplinks
    t0_up = np.arange(per_plane, dtype=np.int64) + fp.base_t0_up + plane * per_plane
    t1_up = np.arange(fp.base_t1_up, fp.base_t2_down, dtype=np.int64)
    return np.concatenate([nics, t0_up, t1_up])


def switch_down_ports(fp: FabricParams, plane: int, tier: int, index: int) -> Int64s:
    """Return the upward links that end in a switch's downlinks, by port number."""
    if tier == 0:
        first = index * fp.hosts_per_t0
        nics = np.arange(first, min(first + fp.hosts_per_t0, fp.n_nics), dtype=np.int64)
        return nics * fp.planes + plane
    if tier == 1:
        pod, u = divmod(index, fp.t1_per_pod)
        first = pod * fp.t0_per_pod
        t0s = np.arange(first, min(first + fp.t0_per_pod, fp.n_t0), dtype=np.int64)
        return fp.base_t0_up + (plane * fp.n_t0 + t0s) * fp.uplinks + u
    u, v = divmod(index, fp.t1_uplinks)
    t1s = np.arange(fp.n_pods, dtype=np.int64) * fp.t1_per_pod + u
    return fp.base_t1_up + t1s * fp.t1_uplinks + v


def switch_up_ports(fp: FabricParams, plane: int, tier: int, index: int) -> Int64s:
    """Return the upward links that start in a switch's uplinks, by port number."""
    if tier == 0:
        first = _t0_up(fp, plane, index, 0)
        return np.arange(first, first + fp.uplinks, dtype=np.int64)
    if tier == 1 and fp.tiers == 3:
        first = _t1_up(fp, index, 0)
        return np.arange(first, first + fp.t1_uplinks, dtype=np.int64)
    return np.empty(0, dtype=np.int64)


def switch_up_links(fp: FabricParams, plane: int, tier: int, index: int) -> Int64s:
    """Return all upward links that touch a switch."""
    return np.concatenate(
        [switch_down_ports(fp, plane, tier, index), switch_up_ports(fp, plane, tier, index)]
    )


def _cable_links(fp: FabricParams, text: str, number: dict[str, int]) -> Int64s:
    plane, tier, index, upper = number["plane"], number["tier"], number["index"], number["index2"]
    if number["tier2"] != tier + 1:
        raise TopologyError(
            f"element {text!r}: a cable joins a T0 and a T1 or a T1 and a T2, lower one first; {SYNTAX}"
        )
    _check_switch(fp, text, plane, tier, index)
    _check_switch(fp, text, plane, tier + 1, upper)
    common = np.intersect1d(
        switch_up_ports(fp, plane, tier, index), switch_down_ports(fp, plane, tier + 1, upper)
    )
    if common.size == 0:
        if tier == 0:
            first = index // fp.t0_per_pod * fp.t1_per_pod
            reach = f"t0.{index} has cables to t1.{first}..t1.{first + fp.uplinks - 1}"
        else:
            first = index % fp.t1_per_pod * fp.t1_uplinks
            reach = f"t1.{index} has cables to t2.{first}..t2.{first + fp.t1_uplinks - 1}"
        raise TopologyError(f"element {text!r}: these two are not connected; {reach}")
    return common.astype(np.int64)


def _transceiver_links(fp: FabricParams, text: str, side: str, number: dict[str, int]) -> Int64s:
    plane, tier, index = number["plane"], number["tier"], number["index"]
    _check_switch(fp, text, plane, tier, index)
    find: Callable[[FabricParams, int, int, int], Int64s]
    find = switch_up_ports if side == "up" else switch_down_ports
    ports = find(fp, plane, tier, index)
    first, last = number["first"], number.get("last", number["first"])
    if ports.size == 0:
        raise TopologyError(f"element {text!r}: the top switches have no uplinks; name a side that it has")
    if first > last:
        raise TopologyError(f"element {text!r}: ports {first}-{last} run backwards; lower one first")
    for port in (first, last):
        _check(text, f"{side} port", port, ports.size)
    return ports[first : last + 1]
