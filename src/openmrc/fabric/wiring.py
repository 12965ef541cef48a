"""From :class:`FabricSettings` to the numbers of a fabric, or to the reason why it cannot be wired.

Every refusal is a :class:`~openmrc.errors.TopologyError` that names the key, the limit and the remedy.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from openmrc.errors import TopologyError
from openmrc.fabric.settings import FabricSettings
from openmrc.limits import MAX_PATHS_TOTAL, MAX_PLANES, USID_MAX, USID_MIN
from openmrc.units import PS_PER_S

#: plane and uplink share the 16 bits of a packed path: 3 bits of plane leave 13 (paths.pack_path)
PATH_UPLINK_BITS = 13
#: three tiers: uplink = T0 uplink << 7 | T1 uplink (our decision), so a T1 has at most 2^7 uplinks
T2_BITS = 7
MAX_UPLINKS = 1 << PATH_UPLINK_BITS
MAX_UPLINKS_3_TIERS = 1 << (PATH_UPLINK_BITS - T2_BITS)
MAX_T1_UPLINKS = 1 << T2_BITS
#: link numbers stay inside an int32, so tables over links may use 4 bytes
MAX_LINKS = 1 << 30
MAX_DELAY_PS = PS_PER_S

_ONLY_3_TIERS = ("t0_per_pod", "t1_uplinks", "t1_uplink_rate", "t1_t2_cable_m", "t1_t2_link_delay")


class Wiring(NamedTuple):
    """The sizes, rates and delays of a fabric that can be wired. Counts of T0/T1/T2 are per plane."""

    planes: int
    tiers: int
    n_nics: int
    hosts_per_t0: int
    uplinks: int
    n_t0: int
    n_t1: int
    n_t2: int
    n_pods: int
    t0_per_pod: int
    t1_per_pod: int
    t1_uplinks: int
    port_rate_bps: int
    uplink_rate_bps: int
    t1_uplink_rate_bps: int
    nic_delay_ps: int
    t0_t1_delay_ps: int
    t1_t2_delay_ps: int
    switch_latency_ps: int
    nic_latency_ps: int

    @property
    def n_usids(self) -> int:
        """Number of uSIDs the address plan needs: one per switch, one per downlink of a T0."""
        return self.planes * (self.n_t0 + self.n_t1) + self.n_t2 + self.hosts_per_t0


def refuse(key: str, problem: str, remedy: str) -> TopologyError:
    """Return the error for ``fabric.<key>``: what is wrong, and what to do about it."""
    return TopologyError(f"fabric.{key}: {problem}; {remedy}")


def rate_text(rate_bps: int) -> str:
    """Return a rate as one writes it in a scenario, e.g. ``800Gbps``."""
    return f"{rate_bps / 1e9:g}Gbps"


def resolve(settings: FabricSettings) -> Wiring:
    """Return the numbers of the fabric, or raise why it cannot be wired.

    >>> resolve(FabricSettings(preset="openai-131k")).n_t0
    512
    >>> resolve(FabricSettings(nics=8, hosts_per_t0=4, planes=7))
    Traceback (most recent call last):
    ...
    openmrc.errors.TopologyError: fabric.nic_rate: 800Gbps is not divisible by 7 planes; use 1, 2, 4 or 8
    """
    _check_unused(settings)
    port_rate = _port_rate(settings)
    uplink_rate = _rate(settings, "uplink_rate", port_rate)
    t1_uplink_rate = _rate(settings, "t1_uplink_rate", uplink_rate)
    hosts, uplinks = _t0_ports(settings, port_rate, uplink_rate)
    t0_per_pod, t1_uplinks = _pod_shape(settings, uplinks)
    n_nics = _nics(settings, hosts, t0_per_pod)
    n_t0 = -(-n_nics // hosts)
    three = settings.tiers == 3
    n_pods = -(-n_t0 // t0_per_pod) if three else 1
    wiring = Wiring(
        planes=settings.planes,
        tiers=settings.tiers,
        n_nics=n_nics,
        hosts_per_t0=hosts,
        uplinks=uplinks,
        n_t0=n_t0,
        n_t1=n_pods * uplinks,
        n_t2=uplinks * t1_uplinks if three else 0,
        n_pods=n_pods,
        t0_per_pod=t0_per_pod if three else n_t0,
        t1_per_pod=uplinks,
        t1_uplinks=t1_uplinks if three else 0,
        port_rate_bps=port_rate,
        uplink_rate_bps=uplink_rate,
        t1_uplink_rate_bps=t1_uplink_rate,
        **_delays(settings),
    )
    _check_radix(settings, wiring)
    _check_limits(wiring)
    return wiring


def _check_unused(s: FabricSettings) -> None:
    written = s.model_fields_set
    if s.tiers == 2:
        for key in _ONLY_3_TIERS:
            if key in written and getattr(s, key) is not None:
                raise refuse(key, "has no meaning with 2 tiers", "remove it, or set fabric.tiers = 3")
    for delay, cable in (("nic_link_delay", "nic_cable_m"), ("fabric_link_delay", "t0_t1_cable_m")):
        if getattr(s, delay) is not None and cable in written:
            raise refuse(cable, f"is not used when fabric.{delay} is given", "keep one of the two")


def _port_rate(s: FabricSettings) -> int:
    if s.planes > MAX_PLANES:
        raise refuse(
            "planes", f"{s.planes} is more than the limit of {MAX_PLANES}", f"use at most {MAX_PLANES}"
        )
    if s.tiers == 3 and s.planes != 1:
        raise refuse(
            "planes", f"a fabric of 3 tiers has one plane, not {s.planes}", "use planes = 1, or tiers = 2"
        )
    if s.nic_rate % s.planes or s.nic_rate == 0:
        fitting = [str(p) for p in (1, 2, 4, 8) if s.nic_rate % p == 0]
        choice = " or ".join(filter(None, [", ".join(fitting[:-1]), fitting[-1]]))
        problem = f"{rate_text(s.nic_rate)} is not divisible by {s.planes} planes"
        raise refuse("nic_rate", problem, f"use {choice}")
    return _sane_rate("nic_rate", s.nic_rate // s.planes)


def _rate(s: FabricSettings, key: str, default: int) -> int:
    value = getattr(s, key)
    return default if value is None else _sane_rate(key, value)


def _sane_rate(key: str, rate_bps: int) -> int:
    if not 10**6 <= rate_bps <= 10**14:
        raise refuse(
            key, f"gives a link of {rate_text(rate_bps)}", "a link takes 1 Mb/s to 100 Tb/s, e.g. 100Gbps"
        )
    return rate_bps


def _t0_ports(s: FabricSettings, port_rate: int, uplink_rate: int) -> tuple[int, int]:
    """Return (NIC ports, uplinks) of one T0."""
    # uplinks per host port that oversubscription asks for
    per_host = Fraction(port_rate, uplink_rate) / Fraction(s.oversubscription).limit_denominator(10_000)
    hosts, uplinks = s.hosts_per_t0, s.uplinks_per_t0
    if hosts is None:
        hosts = _hosts_from_radix(s, per_host)
    if uplinks is None:
        exact = hosts * per_host
        if exact.denominator != 1:
            raise refuse(
                "oversubscription",
                f"{s.oversubscription:g} with {hosts} NIC ports of {rate_text(port_rate)} asks for "
                f"{float(exact):.3f} uplinks of {rate_text(uplink_rate)} per T0",
                "give fabric.uplinks_per_t0, or change fabric.hosts_per_t0 so that it divides",
            )
        return hosts, int(exact)
    if "oversubscription" in s.model_fields_set and hosts * per_host != uplinks:
        ratio = Fraction(hosts, uplinks) * Fraction(port_rate, uplink_rate)
        raise refuse(
            "oversubscription",
            f"{s.oversubscription:g} contradicts {hosts} NIC ports over {uplinks} uplinks ({float(ratio):g})",
            "remove it, or fabric.uplinks_per_t0",
        )
    return hosts, uplinks


def _hosts_from_radix(s: FabricSettings, per_host: Fraction) -> int:
    if s.radix is None:
        raise refuse("hosts_per_t0", "is missing", "give it, or fabric.radix, or fabric.preset")
    if s.uplinks_per_t0 is not None:
        if s.uplinks_per_t0 >= s.radix:
            raise refuse(
                "uplinks_per_t0",
                f"{s.uplinks_per_t0} leaves no port for NICs on a switch of radix {s.radix}",
                f"use at most {s.radix - 1}",
            )
        return s.radix - s.uplinks_per_t0
    hosts = s.radix / (1 + per_host)
    if hosts.denominator != 1 or hosts < 1:
        raise refuse(
            "radix",
            f"{s.radix} ports cannot be shared out between NICs and uplinks at oversubscription "
            f"{s.oversubscription:g}",
            "use a radix that divides (even when 1:1), or give fabric.hosts_per_t0 and fabric.uplinks_per_t0",
        )
    return int(hosts)


def _pod_shape(s: FabricSettings, uplinks: int) -> tuple[int, int]:
    """Return (T0 per pod, uplinks of one T1) of three tiers; (0, 0) of two."""
    if s.tiers == 2:
        return 0, 0
    half = s.radix // 2 if s.radix is not None else None
    t0_per_pod = s.t0_per_pod if s.t0_per_pod is not None else half
    if t0_per_pod is None:
        raise refuse("t0_per_pod", "is missing with 3 tiers", "give it, or fabric.radix")
    t1_uplinks = s.t1_uplinks if s.t1_uplinks is not None else (half if half is not None else t0_per_pod)
    if t0_per_pod < 1 or t1_uplinks < 1:
        raise refuse("radix", f"{s.radix} is too small for 3 tiers", "use at least 2")
    return t0_per_pod, t1_uplinks


def _nics(s: FabricSettings, hosts: int, t0_per_pod: int) -> int:
    if s.radix is None:
        if s.nics is None:
            raise refuse("nics", "is missing", "give it, or fabric.radix, or fabric.preset")
        return s.nics
    # a top switch has one link to every T0 (two tiers) or to every pod (three)
    most_t0 = s.radix * (t0_per_pod if s.tiers == 3 else 1)
    if s.nics is None:
        return most_t0 * hosts
    if s.nics > most_t0 * hosts:
        top = "T2s" if s.tiers == 3 else "T1s"
        more = "" if s.tiers == 3 else ", or fabric.tiers = 3"
        raise refuse(
            "nics",
            f"{s.nics} NICs need {-(-s.nics // hosts)} T0s per plane, but {top} of radix {s.radix} "
            f"reach only {most_t0}",
            f"use at most {most_t0 * hosts} NICs, or a larger fabric.radix{more}",
        )
    return s.nics


def _delays(s: FabricSettings) -> dict[str, int]:
    def link(key: str, cable_m: float, explicit: int | None) -> int:
        if explicit is not None:
            return _sane_delay(key, explicit)
        return _sane_delay("fibre_delay", round(cable_m * s.fibre_delay))

    t1_t2 = s.t1_t2_link_delay if s.t1_t2_link_delay is not None else s.fabric_link_delay
    return {
        "nic_delay_ps": link("nic_link_delay", s.nic_cable_m, s.nic_link_delay),
        "t0_t1_delay_ps": link("fabric_link_delay", s.t0_t1_cable_m, s.fabric_link_delay),
        "t1_t2_delay_ps": link("t1_t2_link_delay", s.t1_t2_cable_m, t1_t2),
        "switch_latency_ps": _sane_delay("switch_latency", s.switch_latency),
        "nic_latency_ps": _sane_delay("nic_latency", s.nic_latency),
    }


def _sane_delay(key: str, delay_ps: int) -> int:
    if delay_ps > MAX_DELAY_PS:
        raise refuse(key, "gives a delay above the limit of 1s", "use a data-centre value, e.g. 200ns")
    return delay_ps


def _check_radix(s: FabricSettings, w: Wiring) -> None:
    if s.radix is None:
        return
    if w.hosts_per_t0 + w.uplinks > s.radix:
        raise refuse(
            "hosts_per_t0",
            f"{w.hosts_per_t0} NIC ports + {w.uplinks} uplinks exceed the T0's radix of {s.radix}",
            f"use at most {max(s.radix - w.uplinks, 1)} with these uplinks, or a larger fabric.radix",
        )
    if w.tiers == 3 and w.t0_per_pod + w.t1_uplinks > s.radix:
        raise refuse(
            "t0_per_pod",
            f"{w.t0_per_pod} T0s + {w.t1_uplinks} uplinks exceed the T1's radix of {s.radix}",
            f"use at most {max(s.radix - w.t1_uplinks, 1)}, or fewer fabric.t1_uplinks",
        )


def _check_limits(w: Wiring) -> None:
    if w.tiers == 2 and w.uplinks > MAX_UPLINKS:
        raise refuse(
            "uplinks_per_t0",
            f"{w.uplinks} exceed the limit of {MAX_UPLINKS} that fit a packet's path field",
            f"use at most {MAX_UPLINKS}",
        )
    if w.tiers == 3 and (w.uplinks > MAX_UPLINKS_3_TIERS or w.t1_uplinks > MAX_T1_UPLINKS):
        key = "uplinks_per_t0" if w.uplinks > MAX_UPLINKS_3_TIERS else "t1_uplinks"
        raise refuse(
            key,
            f"{w.uplinks} T0 uplinks and {w.t1_uplinks} T1 uplinks do not fit the EV of 3 tiers",
            f"use at most {MAX_UPLINKS_3_TIERS} T0 uplinks and {MAX_T1_UPLINKS} T1 uplinks (radix 128)",
        )
    paths = w.planes * w.uplinks * max(w.t1_uplinks, 1)
    assert paths <= MAX_PATHS_TOTAL, "follows from the two limits above and MAX_PLANES"
    available = USID_MAX - USID_MIN + 1
    if w.n_usids > available:
        raise refuse(
            "nics",
            f"{w.n_nics} NICs need {w.n_usids} uSIDs (switches of all planes, and one per T0 downlink), "
            f"but {USID_MIN:#x}..{USID_MAX:#x} holds {available}",
            "use larger switches (fabric.hosts_per_t0, fabric.radix), or fewer planes or NICs",
        )
    links = 2 * w.planes * (w.n_nics + w.n_t0 * w.uplinks) + 2 * w.n_t1 * w.t1_uplinks
    if links > MAX_LINKS:
        raise refuse("nics", f"{links} links exceed the limit of {MAX_LINKS}", "use a smaller fabric")
