"""Reading htsim's tiered topology files (``.topo``) into :class:`FabricSettings`.

The format: ``Nodes``, ``Tiers``, ``Podsize``, then per ``Tier N`` the speed and latency of the links below
it, its radices, latency and oversubscription; ``#`` starts a comment; keys in any case. htsim adds no time
in NICs, so ``nic_latency`` is 0.

>>> text = '''Nodes 32
... Tiers 2
... Podsize 32
... Tier 0
... Downlink_speed_Gbps 100
... Radix_Down 8
... Radix_Up 2
... Downlink_Latency_ns 1000
... Tier 1
... Downlink_speed_Gbps 100
... Radix_Down 4
... Downlink_Latency_ns 1000
... '''
>>> s = parse_htsim_topo(text)
>>> s.nics, s.hosts_per_t0, s.uplinks_per_t0, s.nic_link_delay
(32, 8, 2, 1000000)
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from openmrc.errors import TopologyError
from openmrc.fabric.settings import FabricSettings

_HEAD_KEYS = ("Nodes", "Tiers", "Podsize")
_TIER_KEYS = (
    "Downlink_speed_Gbps",
    "Radix_Down",
    "Radix_Up",
    "Downlink_Latency_ns",
    "Switch_Latency_ns",
    "Oversubscribed",
    "Bundle",
)
_FRACTIONS = ("Downlink_speed_Gbps", "Downlink_Latency_ns", "Switch_Latency_ns", "Oversubscribed")
#: keys that htsim knows and that mean something other than wiring here
_ELSEWHERE = {"queue_up": "Queue_Up", "queue_down": "Queue_Down"}
_SPELLING = {key.lower(): key for key in (*_HEAD_KEYS, *_TIER_KEYS)}


class _Value(NamedTuple):
    number: Decimal
    line: int

    @property
    def whole(self) -> int:
        return int(self.number)


_Section = dict[str, _Value]


class _TopoFile(NamedTuple):
    name: str
    head: _Section
    tiers: dict[int, _Section]
    tier_line: dict[int, int]

    def error(self, line: int, problem: str, remedy: str) -> TopologyError:
        return TopologyError(f"{self.name}:{line}: {problem}; {remedy}")

    def needed(self, tier: int, key: str) -> _Value:
        """Return a value of a tier that must be there."""
        value = self.tiers[tier].get(key)
        if value is None:
            raise self.error(self.tier_line[tier], f"Tier {tier} has no {key}", "add it")
        return value


def read_htsim_topo(path: str | Path) -> FabricSettings:
    """Read an htsim ``.topo`` file.

    Raises
    ------
    TopologyError
        With file and line: unknown, duplicate or missing keys, numbers that cannot be wired.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: cannot be read ({error}); give an htsim .topo file") from None
    return parse_htsim_topo(text, str(path))


def parse_htsim_topo(text: str, name: str = "topo") -> FabricSettings:
    """Return the fabric that the text of a ``.topo`` file describes; ``name`` is for error messages."""
    file = _parse(text, name)
    count = _check_head(file)
    return _settings(file, count)


def _parse(text: str, name: str) -> _TopoFile:
    file = _TopoFile(name, {}, {}, {})
    section: _Section = file.head
    allowed: tuple[str, ...] = _HEAD_KEYS
    for line, raw in enumerate(text.splitlines(), 1):
        words = raw.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2:
            raise file.error(line, f"{raw.strip()!r} is not a key and a number", "write e.g. `Radix_Down 32`")
        key, value = words
        if key.lower() == "tier":
            tier = _number(file, line, "Tier", value).whole
            if tier != len(file.tiers):
                raise file.error(line, f"Tier {tier} out of order", f"Tier {len(file.tiers)} comes next")
            file.tier_line[tier] = line
            section, allowed = file.tiers.setdefault(tier, {}), _TIER_KEYS
            continue
        spelled = _SPELLING.get(key.lower())
        if spelled not in allowed:
            raise _unknown(file, line, key, spelled, allowed)
        assert spelled is not None
        if spelled in section:
            raise file.error(
                line, f"{spelled} was already given in line {section[spelled].line}", "keep one of them"
            )
        section[spelled] = _number(file, line, spelled, value)
    return file


def _unknown(
    file: _TopoFile, line: int, key: str, spelled: str | None, allowed: tuple[str, ...]
) -> TopologyError:
    if key.lower() in _ELSEWHERE:
        return file.error(
            line, f"{key} is not part of the wiring here", "remove it; queues are the scenario's"
        )
    where = "inside a Tier" if allowed is _TIER_KEYS else "before the first Tier"
    if spelled is not None:
        return file.error(line, f"{spelled} does not belong {where}", "move it")
    return file.error(line, f"unknown key {key!r}", f"{where} there are {', '.join(allowed)}")


def _number(file: _TopoFile, line: int, key: str, text: str) -> _Value:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number < 0 or number > 10**12:
        raise file.error(line, f"{key} {text} is not a sensible number", "write e.g. 100")
    if key not in _FRACTIONS and number != int(number):
        raise file.error(line, f"{key} {text} is not a whole number", "round it")
    return _Value(number, line)


def _check_head(file: _TopoFile) -> int:
    """Return the number of tiers."""
    for key in _HEAD_KEYS[:2]:
        if key not in file.head:
            raise file.error(1, f"{key} is missing", "add it before the first Tier")
    tiers = file.head["Tiers"]
    if tiers.whole not in (2, 3):
        raise file.error(tiers.line, f"{tiers.whole} tiers", "openmrc wires 2 or 3")
    if len(file.tiers) != tiers.whole:
        raise file.error(
            tiers.line, f"Tiers {tiers.whole} but {len(file.tiers)} Tier sections", "make them agree"
        )
    if file.head["Nodes"].whole < 1:
        raise file.error(file.head["Nodes"].line, "no Nodes", "write how many NICs there are")
    return tiers.whole


def _settings(file: _TopoFile, n_tiers: int) -> FabricSettings:
    nodes = file.head["Nodes"]
    hosts = _positive(file, 0, "Radix_Down")
    uplinks = _positive(file, 0, "Radix_Up")
    rates = [_rate_bps(file, tier) for tier in range(n_tiers)]
    delays = [_time_ps(file, tier, file.needed(tier, "Downlink_Latency_ns")) for tier in range(n_tiers)]
    n_t0 = _divide(file, nodes, hosts.whole, "Nodes", f"the {hosts.whole} downlinks of a Tier 0 switch")
    values: dict[str, object] = {
        "nics": nodes.whole,
        "planes": 1,
        "tiers": n_tiers,
        "nic_rate": f"{rates[0]}bps",
        "uplink_rate": f"{rates[1]}bps",
        "hosts_per_t0": hosts.whole,
        "uplinks_per_t0": uplinks.whole,
        "nic_link_delay": f"{delays[0]}ps",
        "fabric_link_delay": f"{delays[1]}ps",
        "switch_latency": f"{_switch_latency_ps(file, n_tiers)}ps",
        "nic_latency": 0,
    }
    _check_oversubscribed(file, 0, hosts.whole * rates[0], uplinks.whole * rates[1])
    below_top = _positive(file, 1, "Radix_Down")
    pod_nics = nodes.whole
    if n_tiers == 2:
        _check_top(file, 1, below_top, n_t0, "Tier 0 switches")
        if "Radix_Up" in file.tiers[1]:
            raise file.error(file.tiers[1]["Radix_Up"].line, "the top Tier has no uplinks", "remove Radix_Up")
    else:
        v = _positive(file, 1, "Radix_Up")
        pod_nics = below_top.whole * hosts.whole
        pods = _divide(file, nodes, pod_nics, "Nodes", f"the {pod_nics} NICs of a pod")
        _check_oversubscribed(file, 1, below_top.whole * rates[1], v.whole * rates[2])
        _check_top(file, 2, _positive(file, 2, "Radix_Down"), pods, "pods")
        values |= {
            "t0_per_pod": below_top.whole,
            "t1_uplinks": v.whole,
            "t1_uplink_rate": f"{rates[2]}bps",
            "t1_t2_link_delay": f"{delays[2]}ps",
        }
    podsize = file.head.get("Podsize")
    if podsize is not None and podsize.whole != pod_nics:
        raise file.error(podsize.line, f"Podsize {podsize.whole} but a pod has {pod_nics} NICs", "correct it")
    return FabricSettings.model_validate(values)


def _positive(file: _TopoFile, tier: int, key: str) -> _Value:
    value = file.needed(tier, key)
    if value.whole < 1:
        raise file.error(value.line, f"{key} is 0", "a switch needs at least one such port")
    bundle = file.tiers[tier].get("Bundle")
    if bundle is not None and bundle.whole != 1:
        raise file.error(
            bundle.line, f"Bundle {bundle.whole}: parallel links are not wired here", "use Bundle 1"
        )
    return value


def _divide(file: _TopoFile, value: _Value, by: int, what: str, whose: str) -> int:
    if value.whole % by:
        raise file.error(value.line, f"{what} {value.whole} does not fill {whose}", f"use a multiple of {by}")
    return value.whole // by


def _check_top(file: _TopoFile, tier: int, radix: _Value, count: int, what: str) -> None:
    if radix.whole != count:
        raise file.error(
            radix.line,
            f"Tier {tier} has Radix_Down {radix.whole} but there are {count} {what}",
            "make them agree",
        )


def _check_oversubscribed(file: _TopoFile, tier: int, down: int, up: int) -> None:
    given = file.tiers[tier].get("Oversubscribed")
    if given is not None and given.number * up != down:
        raise file.error(
            given.line,
            f"Oversubscribed {given.number} but the links below and above give {down / up:g}",
            "correct it or remove it",
        )


def _rate_bps(file: _TopoFile, tier: int) -> int:
    value = file.needed(tier, "Downlink_speed_Gbps")
    if not 0 < value.number <= 100_000 or value.number * 10**9 % 1:
        raise file.error(value.line, f"a speed of {value.number} Gb/s", "write e.g. 100")
    return int(value.number * 10**9)


def _time_ps(file: _TopoFile, tier: int, value: _Value) -> int:
    if value.number > 10**9 or value.number * 1000 % 1:
        raise file.error(
            value.line, f"a latency of {value.number} ns", "write at most 1e9, not finer than 1 ps"
        )
    return int(value.number * 1000)


def _switch_latency_ps(file: _TopoFile, n_tiers: int) -> int:
    given = [file.tiers[tier].get("Switch_Latency_ns") for tier in range(n_tiers)]
    times = {_time_ps(file, tier, v) if v is not None else 0 for tier, v in enumerate(given)}
    if len(times) > 1:
        line = next(v.line for v in reversed(given) if v is not None)
        raise file.error(
            line, "the tiers' Switch_Latency_ns differ", "use one value: openmrc has one for all"
        )
    return times.pop()
