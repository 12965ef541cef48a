"""The vocabulary of faults: one ``[[fault]]`` of a scenario, and what it means for the fabric.

:class:`FaultSettings` is what the user writes. :func:`expand_faults` turns a list of them into
:class:`FaultSpec`, each one interval of one effect on some links: a flap becomes one per cycle, a
random fault one per drawn event. :mod:`openmrc.fabric.faults` compiles those for kernels.

Randomness: every random fault draws from its own stream, named by the scenario's seed and the fault's
``name`` (or, without one, its content), so that adding or moving another fault changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from openmrc.errors import ScenarioError, TopologyError
from openmrc.fabric.elements import ElementKind, links_of_element
from openmrc.fabric.topology import UP_LAYERS, Layer, Topology
from openmrc.units import PS_PER_MS, PS_PER_S, DurationPs, format_duration

Int64s = npt.NDArray[np.int64]

#: more would make the schedule, not the simulation, the largest part of a run
MAX_FAULT_EVENTS = 200_000
#: seg_ber times a packet's bytes stays below 2^63 up to 16 kB packets, see faults.BER_SCALE
MAX_BIT_ERROR_RATE = 0.01
#: an event later than this could be overtaken in the simulator's timing wheel
MAX_EXTRA_LATENCY_PS = PS_PER_MS
PROBABILITY_ONE = 1 << 32
NOMINAL_MULT = 1 << 16
MIN_RATE_FACTOR = 1e-4

FaultKind = Literal["down", "flap", "loss", "corrupt", "slow", "latency", "blackhole", "reboot"]


class DropReason(IntEnum):
    """Why a fault lost a packet."""

    LINK_DOWN = 0
    GREY = 1
    BLACKHOLE = 2
    CORRUPT = 3


class RandomFaults(BaseModel):
    """Faults drawn at random: which elements, how often, for how long."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layer: Literal["nic-t0", "t0-t1", "t1-t2", "switches"] = Field(
        description="Elements to draw from: the cables of a layer, or all switches."
    )
    rate_per_hour: float = Field(
        gt=0, le=1e12, allow_inf_nan=False, description="Events per element and hour of simulated time."
    )
    duration: DurationPs = Field(description="How long each event lasts.")


class FaultSettings(BaseModel):
    """One ``[[fault]]`` of a scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    kind: FaultKind = Field(description="What happens to the element.")
    element: str | None = Field(
        default=None,
        description="What it happens to, e.g. nic12/p3, p3/t0.7, p3/t0.7-t1.5, p3, p3/t0.7/up0-3.",
        examples=["nic12/p3", "p3/t0.7", "p3/t0.7-t1.5", "p3", "p3/t0.7/up0-3"],
    )
    random: RandomFaults | None = Field(
        default=None, description="Instead of `element`: drawn from the seed."
    )
    name: str | None = Field(default=None, description="Name in reports; it also names the random stream.")
    at: DurationPs = Field(default=0, description="When it starts (random: from when on events are drawn).")
    for_: DurationPs | None = Field(
        default=None,
        alias="for",
        description="How long it lasts (random, flap: how long events come). Left out: to the end.",
    )
    direction: Literal["both", "up", "down"] = Field(
        default="both", description="Which direction of the links: up is away from the NICs."
    )
    period: DurationPs | None = Field(default=None, description="flap: time from one going down to the next.")
    duty: float = Field(default=0.5, gt=0, lt=1, description="flap: fraction of the period spent down.")
    count: int | None = Field(
        default=None, ge=1, strict=True, description="flap: number of cycles. Left out: to the end."
    )
    probability: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="loss, corrupt: chance that a packet on the link is lost or damaged.",
    )
    bit_error_rate: float | None = Field(
        default=None,
        gt=0,
        le=MAX_BIT_ERROR_RATE,
        description="loss: bit errors; longer frames are lost more often.",
    )
    factor: float | None = Field(
        default=None, ge=MIN_RATE_FACTOR, le=1, description="slow: fraction of the rate that is left."
    )
    extra: DurationPs | None = Field(
        default=None, description="latency: added to the propagation delay, at most 1ms."
    )
    seen: bool | None = Field(
        default=None,
        description="Whether NICs see their ports go down. Left out: yes when both directions go down.",
    )


class FaultInfo(NamedTuple):
    """One event of a fault, for logs and reports; ``id`` is its place in the schedule's list."""

    id: int
    kind: str
    element: str
    at_ps: int
    end_ps: int  # -1: to the end
    links: Int64s
    text: str


@dataclass(frozen=True)
class FaultSpec:
    """One effect on some links during [at_ps, end_ps); end_ps -1 means to the end."""

    kind: str
    element: str
    at_ps: int
    end_ps: int
    links: Int64s
    text: str
    down: bool = False
    reason: DropReason = DropReason.LINK_DOWN
    loss32: int = 0
    ber: Fraction = Fraction(0)
    corrupt32: int = 0
    rate_mult: int = NOMINAL_MULT
    latency_ps: int = 0
    ports: Int64s | None = None  # NIC_UP links (nic * planes + plane) whose NIC sees the port go down

    def active_at(self, time_ps: int) -> bool:
        """Whether the effect holds at ``time_ps``."""
        return self.at_ps <= time_ps and (self.end_ps < 0 or time_ps < self.end_ps)


# --- checks --------------------------------------------------------------------------------

#: key -> kinds that it has a meaning for
_KEY_KINDS = {
    "period": {"flap"},
    "duty": {"flap"},
    "count": {"flap"},
    "probability": {"loss", "corrupt"},
    "bit_error_rate": {"loss"},
    "factor": {"slow"},
    "extra": {"latency"},
    "seen": {"down", "flap", "reboot"},
}
_NEEDED = {"flap": "period", "corrupt": "probability", "slow": "factor", "latency": "extra", "reboot": "for_"}
_SWITCH_KINDS = ("blackhole", "reboot")


def _error(index: int, fault: FaultSettings, problem: str, remedy: str) -> ScenarioError:
    what = fault.name or fault.element or (f"random {fault.random.layer}" if fault.random else "no element")
    return ScenarioError(f"fault[{index}] ({fault.kind}, {what}): {problem}; {remedy}")


def check_fault(fault: FaultSettings, index: int = 0) -> None:
    """Raise a ScenarioError when the keys of a fault contradict each other."""

    def fail(problem: str, remedy: str) -> ScenarioError:
        return _error(index, fault, problem, remedy)

    if (fault.element is None) == (fault.random is None):
        raise fail("needs either `element` or `random`", "give exactly one of them")
    for key, kinds in _KEY_KINDS.items():
        if fault.kind not in kinds and key in fault.model_fields_set and getattr(fault, key) is not None:
            hint = f"remove it, or use kind {' or '.join(sorted(kinds))}"
            if key == "bit_error_rate" and fault.kind == "corrupt":
                hint = "a frame with bit errors fails Ethernet's checksum and is lost: use kind loss"
            raise fail(f"`{key}` has no meaning here", hint)
    needed = _NEEDED.get(fault.kind)
    if needed and getattr(fault, needed) is None and not (needed == "for_" and fault.random):
        raise fail(f"`{needed.rstrip('_')}` is missing", "add it")
    if fault.kind == "loss" and (fault.probability is None) == (fault.bit_error_rate is None):
        raise fail("needs either `probability` or `bit_error_rate`", "give exactly one of them")
    for key in ("for_", "period"):
        if getattr(fault, key) == 0:
            raise fail(f"`{key.rstrip('_')}` is 0", "give a positive duration, e.g. 100us")
    if fault.extra is not None and not 0 < fault.extra <= MAX_EXTRA_LATENCY_PS:
        limit = format_duration(MAX_EXTRA_LATENCY_PS)
        raise fail(f"`extra` of {format_duration(fault.extra)} is outside 0..{limit}", f"use at most {limit}")
    if fault.random is not None:
        _check_random(fault, fail)


def _check_random(fault: FaultSettings, fail: Any) -> None:
    assert fault.random is not None
    if fault.kind == "flap":
        raise fail("a flap cannot be drawn", "use kind down: each drawn event goes down and up again")
    if fault.random.duration == 0:
        raise fail("`random.duration` is 0", "give a positive duration, e.g. 100us")
    if fault.kind in _SWITCH_KINDS and fault.random.layer != "switches":
        raise fail("only switches do this", 'use layer = "switches", or kind down')
    if fault.direction != "both" and fault.random.layer == "switches":
        raise fail("a switch fails in both directions", "remove `direction`")


# --- what an element means -------------------------------------------------------------------


def input_links(topology: Topology, links: Int64s, kind: ElementKind) -> Int64s:
    """Return those of an element's links whose packets arrive in one of its switches."""
    layer = np.searchsorted(topology.layer_base, links, side="right") - 1
    entering = {
        ElementKind.T0: (Layer.NIC_UP, Layer.T1_DOWN),
        ElementKind.T1: (Layer.T0_UP, Layer.T2_DOWN),
        ElementKind.T2: (Layer.T1_UP,),
        ElementKind.PLANE: tuple(x for x in Layer if x is not Layer.NIC_DOWN),
    }[kind]
    return links[np.isin(layer, entering)]


def _links(topology: Topology, fault: FaultSettings, index: int, element: str) -> tuple[Int64s, bool]:
    """Return (links the effect falls on, whether whole ports go down)."""
    try:
        links, kind = links_of_element(topology.params, element)
    except TopologyError as error:
        raise TopologyError(f"fault[{index}] ({fault.kind}): {error}") from None
    if fault.kind in _SWITCH_KINDS and not (kind.is_switch or kind is ElementKind.PLANE):
        raise _error(
            index, fault, f"{element} is a {kind}, not a switch", "name one, e.g. p0/t0.0, or use kind down"
        )
    one_way = ":" in element
    if one_way and fault.direction != "both":
        raise _error(index, fault, f"{element} already names a direction", "remove `direction` or the suffix")
    if fault.kind in _SWITCH_KINDS and (one_way or fault.direction != "both"):
        raise _error(index, fault, "a switch fails in both directions", "remove the direction")
    if fault.direction != "both":
        layer = np.searchsorted(topology.layer_base, links, side="right") - 1
        links = links[np.isin(layer, UP_LAYERS) == (fault.direction == "up")]
    if fault.kind == "blackhole":
        return input_links(topology, links, kind), False
    return links, not one_way and fault.direction == "both"


def _seen_ports(
    topology: Topology, fault: FaultSettings, index: int, links: Int64s, whole: bool
) -> Int64s | None:
    if fault.kind not in ("down", "flap", "reboot") or fault.seen is False:
        return None
    base = topology.params.base_nic_down
    ports = np.unique(links[links < 2 * base] % base)
    if fault.seen and ports.size == 0:
        raise _error(index, fault, "no NIC port is part of it, so no NIC sees it", "remove `seen`")
    return ports if ports.size and (whole or fault.seen) else None


def _effect(fault: FaultSettings) -> dict[str, Any]:
    if fault.kind in ("down", "flap", "reboot"):
        return {"down": True}
    if fault.kind == "blackhole":
        return {"loss32": PROBABILITY_ONE, "reason": DropReason.BLACKHOLE}
    if fault.kind == "loss" and fault.probability is not None:
        return {"loss32": round(fault.probability * PROBABILITY_ONE), "reason": DropReason.GREY}
    if fault.kind == "loss":
        assert fault.bit_error_rate is not None
        return {"ber": Fraction(fault.bit_error_rate), "reason": DropReason.GREY}
    if fault.kind == "corrupt":
        assert fault.probability is not None
        return {"corrupt32": round(fault.probability * PROBABILITY_ONE), "reason": DropReason.CORRUPT}
    if fault.kind == "slow":
        assert fault.factor is not None
        return {"rate_mult": round(NOMINAL_MULT / fault.factor), "reason": DropReason.GREY}
    assert fault.extra is not None
    return {"latency_ps": fault.extra, "reason": DropReason.GREY}


_EFFECT_TEXT = {
    "down": lambda f: "down",
    "flap": lambda f: "down",
    "reboot": lambda f: "reboots",
    "blackhole": lambda f: "is up but forwards nothing",
    "loss": lambda f: (
        f"loses {f.probability:.6g} of its packets"
        if f.probability is not None
        else f"has a bit error rate of {f.bit_error_rate:.3g}"
    ),
    "corrupt": lambda f: f"damages {f.probability:.6g} of its packets",
    "slow": lambda f: f"runs at {f.factor:.6g} of its rate",
    "latency": lambda f: f"has {format_duration(f.extra)} more latency",
}


def _text(fault: FaultSettings, element: str, note: str = "") -> str:
    way = "" if fault.direction == "both" else f" ({fault.direction} only)"
    name = f"{fault.name}: " if fault.name else ""
    return f"{name}{element}{way} {_EFFECT_TEXT[fault.kind](fault)}{note}"


# --- expansion -----------------------------------------------------------------------------


def stream(seed: int, fault: FaultSettings, twin: int) -> np.random.Generator:
    """Return the random stream of a fault: named by the seed and the fault, not by its place in the list.

    ``twin`` counts earlier faults with the same name or content, which must not repeat each other.
    """
    content = fault.name or json.dumps(fault.model_dump(mode="json", exclude={"name"}), sort_keys=True)
    digest = hashlib.sha256(f"openmrc fault|{seed}|{twin}|{content}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def cables_of_layer(topology: Topology, layer: str) -> int:
    """Return how many elements ``random.layer`` draws from."""
    p = topology.params
    return {
        "nic-t0": p.n_nics * p.planes,
        "t0-t1": p.planes * p.n_t0 * p.uplinks,
        "t1-t2": p.n_t1 * p.t1_uplinks,
        "switches": p.planes * (p.n_t0 + p.n_t1) + p.n_t2,
    }[layer]


def element_of_layer(topology: Topology, layer: str, number: int) -> str:
    """Return the name of the ``number``-th element that ``random.layer`` draws from."""
    p = topology.params
    if layer == "switches":
        plane, index = divmod(number, p.n_t0 + p.n_t1)
        if plane >= p.planes:
            return f"p0/t2.{number - p.planes * (p.n_t0 + p.n_t1)}"
        return f"p{plane}/t0.{index}" if index < p.n_t0 else f"p{plane}/t1.{index - p.n_t0}"
    base = {"nic-t0": 0, "t0-t1": p.base_t0_up, "t1-t2": p.base_t1_up}[layer]
    return topology.link_name(base + number).removesuffix(":up")


def _intervals(fault: FaultSettings, horizon_ps: int) -> list[tuple[int, int, str]]:
    """Return (start, end or -1, note) of every time a fault with a fixed element is active."""
    end = -1 if fault.for_ is None else fault.at + fault.for_
    if fault.kind != "flap":
        return [(fault.at, end, "")]
    assert fault.period is not None
    down = min(max(1, round(fault.period * fault.duty)), fault.period - 1) if fault.period > 1 else 1
    last = end if end >= 0 else horizon_ps
    cycles = max(1, -(-(last - fault.at) // fault.period))
    if fault.count is not None:
        cycles = min(cycles, fault.count) if end >= 0 else fault.count
    cycles = min(cycles, MAX_FAULT_EVENTS + 1)
    out = []
    for k in range(cycles):
        start = fault.at + k * fault.period
        stop = start + down if end < 0 else min(start + down, end)
        out.append((start, stop, f", cycle {k + 1} of {cycles}"))
    return out


def _drawn(
    topology: Topology, fault: FaultSettings, index: int, generator: np.random.Generator, horizon_ps: int
) -> list[tuple[int, int, str]]:
    """Return (start, end, element) of a random fault's events, in time order.

    Gaps are drawn one after the other, so a longer horizon only adds events.
    """
    spec = fault.random
    assert spec is not None
    population = cables_of_layer(topology, spec.layer)
    if population == 0:
        raise _error(index, fault, f"this fabric has no {spec.layer} elements", "use another layer")
    mean_gap_ps = 3600 * PS_PER_S / (spec.rate_per_hour * population)
    last = horizon_ps if fault.for_ is None else min(horizon_ps, fault.at + fault.for_)
    now = float(fault.at)
    drawn: list[tuple[int, int]] = []
    while True:
        now += generator.exponential(mean_gap_ps)
        number = int(generator.integers(population))
        if now >= last:
            break
        if len(drawn) >= MAX_FAULT_EVENTS:
            problem = f"draws more than {MAX_FAULT_EVENTS} events"
            raise _error(index, fault, problem, "lower `random.rate_per_hour`, or give `for`")
        drawn.append((int(now), number))
    return [
        (start, start + spec.duration, element_of_layer(topology, spec.layer, number))
        for start, number in drawn
    ]


def expand_faults(
    topology: Topology, faults: list[FaultSettings], seed: int, horizon_ps: int
) -> list[FaultSpec]:
    """Return every single effect that the faults of a scenario consist of; the place is the fault id.

    Parameters
    ----------
    topology : Topology
    faults : list of FaultSettings
    seed : int
        The scenario's seed.
    horizon_ps : int
        Until when random faults are drawn and endless flaps go on.

    Raises
    ------
    ScenarioError, TopologyError
        Keys that contradict each other, elements that do not exist, too many events.
    """
    specs: list[FaultSpec] = []
    twins: dict[str, int] = {}
    for index, fault in enumerate(faults):
        check_fault(fault, index)
        effect = _effect(fault)
        if fault.random is not None:
            key = fault.name or fault.model_dump_json()
            twin = twins.get(key, 0)
            twins[key] = twin + 1
            drawn = _drawn(topology, fault, index, stream(seed, fault, twin), horizon_ps)
            events = [(start, end, element, ", drawn at random") for start, end, element in drawn]
        else:
            assert fault.element is not None
            events = [(start, end, fault.element, note) for start, end, note in _intervals(fault, horizon_ps)]
        if len(specs) + len(events) > MAX_FAULT_EVENTS:
            problem = f"brings the scenario to more than {MAX_FAULT_EVENTS} fault events"
            raise _error(index, fault, problem, "use a longer `period`, or give `count` or `for`")
        where: dict[str, tuple[Int64s, Int64s | None]] = {}
        for start, end, element, note in events:
            if element not in where:
                links, whole = _links(topology, fault, index, element)
                where[element] = links, _seen_ports(topology, fault, index, links, whole)
            links, ports = where[element]
            text = _text(fault, element, note)
            specs.append(FaultSpec(fault.kind, element, start, end, links, text, ports=ports, **effect))
    return specs
