"""Reads a scenario file (or a dict), applies ``--set`` and checks everything, all errors at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from openmrc.errors import InputError, OpenMrcError, ScenarioError, TopologyError
from openmrc.fabric.fault_spec import expand_faults
from openmrc.fabric.faults import FaultSettings
from openmrc.fabric.htsim_topo import read_htsim_topo
from openmrc.fabric.settings import FabricSettings
from openmrc.fabric.topology import Topology
from openmrc.scenario.explain import explain, keys_of, nested_model, unknown_key
from openmrc.scenario.lines import LineIndex
from openmrc.scenario.patterns import Context, one_step
from openmrc.scenario.problems import did_you_mean, join_problems
from openmrc.scenario.schema import Scenario
from openmrc.scenario.sim_settings import SimSettings, SwitchSettings
from openmrc.scenario.traffic import PATTERNS, ConnectionMatrixEntry, GoalEntry, TrafficEntry
from openmrc.transport.settings import TransportSettings
from openmrc.units import PS_PER_MS

_TABLES: dict[str, type[BaseModel]] = {
    "fabric": FabricSettings,
    "switch": SwitchSettings,
    "transport": TransportSettings,
    "sim": SimSettings,
}
_MAX_FILE_BYTES = 16 << 20
_SYNTAX_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BARE_QUANTITY = re.compile(r"=\s*([0-9][0-9._]*\s*[A-Za-zµ/]+)\s*(?:#.*)?$")


def load_scenario(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> Scenario:
    """Return the scenario of a file or a dict, completely checked.

    Parameters
    ----------
    source : path or dict
        A TOML file, or the same as a dict (paths inside it are then relative to the current folder).
    overrides : dict, optional
        Dotted key -> value, as in ``--set transport.ev_count=1``. Text is read as a TOML value, or as text
        where it is none (``2MB``).

    Raises
    ------
    ScenarioError
        One line for each problem: file and line, dotted key, what is wrong, the remedy.

    Examples
    --------
    >>> s = load_scenario(
    ...     {
    ...         "fabric": {"nics": 8, "hosts_per_t0": 4},
    ...         "traffic": [{"pattern": "permutation", "size": "1MB"}],
    ...     },
    ...     {"traffic.0.size": "2MB"},
    ... )
    >>> s.traffic[0].size, s.seed
    (2000000, 1)
    """
    loader = _Loader(source)
    return loader.load(overrides or {})


class _Loader:
    def __init__(self, source: str | Path | Mapping[str, Any]) -> None:
        self.overridden: set[str] = set()
        self.problems: list[tuple[int, str]] = []
        self.topo_overrides: dict[str, Any] = {}
        self.lines: LineIndex | None = None
        self.file = ""
        if isinstance(source, Mapping):
            self.folder = Path()
            self.data: dict[str, Any] = _copied(source)
        else:
            self.file, self.folder = str(source), Path(source).parent
            text = _read_text(Path(source))
            self.data = _parse_toml(text, self.file)
            self.data.setdefault("name", Path(source).stem)
            self.lines = LineIndex(text)

    def load(self, overrides: Mapping[str, Any]) -> Scenario:
        for key, value in overrides.items():
            self._override(key, value)
        self._unknown_sections()
        values: dict[str, Any] = {}
        values["fabric"] = self._fabric()
        for name in ("switch", "transport", "sim"):
            if name in self.data:
                values[name] = self._model(name, _TABLES[name], self.data[name])
        values["traffic"] = self._entries("traffic", self._traffic_entry)
        values["fault"] = self._entries("fault", self._fault_entry)
        topology = self._topology(values["fabric"])
        if topology is not None:
            self._check_traffic(values["traffic"], topology, self._seed())
            self._check_faults(values["fault"], topology, values.get("sim"))
        head: dict[str, Any] = {k: self.data[k] for k in ("name", "description", "seed") if k in self.data}
        return self._finish(head, values)

    def _finish(self, head: dict[str, Any], values: dict[str, Any]) -> Scenario:
        scenario: Scenario | None = None
        try:
            # sections are models already; those that are broken have been reported
            sound = {k: v for k, v in values.items() if v is not None}
            scenario = Scenario.model_validate(head | sound)
        except ValidationError as error:
            for key, message in explain(error, Scenario, ""):
                if key.split(".")[0] in head:
                    self._problem(key, message)
        if self.problems or scenario is None:
            assert self.problems, "a scenario without problems is valid"
            lines = [text for _, text in sorted(self.problems, key=lambda p: p[0])]
            raise ScenarioError(join_problems(lines))
        scenario._folder = self.folder
        return scenario

    # --- problems --------------------------------------------------------------------------
    def _problem(self, key: str, message: str) -> None:
        line = self.lines.line_of(key) if self.lines is not None else None
        if any(key == k or key.startswith(k + ".") for k in self.overridden):
            where, line = "--set ", 1 << 40
        elif self.file:
            where = f"{self.file}:{line}: " if line else f"{self.file}: "
        else:
            where = ""
        self.problems.append((line or 0, f"{where}{key}: {message}"))

    def _input_problem(self, key: str, error: OpenMrcError) -> None:
        """Note an error of another module; where it names a key itself, that is the key."""
        for text in str(error).splitlines():
            named = re.match(r"^((?:fabric|switch|transport|sim|traffic|fault)(?:\.\w+)+): (.*)$", text)
            self._problem(*((named[1], named[2]) if named else (key, text)))

    # --- overrides -------------------------------------------------------------------------
    def _override(self, key: str, value: Any) -> None:
        self.overridden.add(key)
        if isinstance(value, str):
            value = _toml_value_or_text(value)
        parts = key.split(".")
        if parts[0] == "fabric" and len(parts) > 1 and isinstance(self.data.get("fabric"), str):
            self.topo_overrides[".".join(parts[1:])] = value
            return
        node: Any = self.data
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            if isinstance(node, list):
                if not part.isdigit() or int(part) >= len(node):
                    have = f"there are {len(node)}, numbered from 0" if node else "there are none"
                    self._problem(key, f"{'.'.join(parts[: place + 1])} does not exist; {have}")
                    return
                if last:
                    node[int(part)] = value
                else:
                    node = node[int(part)]
            elif isinstance(node, dict):
                if last:
                    node[part] = value
                else:
                    node = node.setdefault(part, [] if part in ("traffic", "fault") else {})
            else:
                self._problem(key, f"{'.'.join(parts[:place])} is a value, not a table; set it as a whole")
                return

    # --- sections --------------------------------------------------------------------------
    def _unknown_sections(self) -> None:
        for key in self.data:
            if key in Scenario.model_fields:
                continue
            homes = [f"[{t}]" for t, m in _TABLES.items() if key in keys_of(m)]
            hint = (
                f"it belongs in {' or '.join(homes)}" if homes else did_you_mean(key, Scenario.model_fields)
            )
            self._problem(key, f"unknown key; {hint or 'keys here: ' + ', '.join(Scenario.model_fields)}")
        for name, model in _TABLES.items():
            table = self.data.get(name)
            if isinstance(table, dict):
                self._misplaced(name, model, table)

    def _misplaced(self, name: str, model: type[BaseModel], table: dict[str, Any]) -> None:
        """Report keys that stand in the wrong table, and take them out so that they are reported once."""
        for key in [k for k in table if k not in keys_of(model)]:
            homes = [f"[{t}]" for t, m in _TABLES.items() if key in keys_of(m)]
            nested = [f"[{name}.{k}]" for k, f in keys_of(model).items() if _has_key(f.annotation, key)]
            if homes or nested:
                del table[key]
                self._problem(f"{name}.{key}", f"unknown key; it belongs in {' or '.join(homes + nested)}")

    def _model(self, key: str, model: type[BaseModel], value: Any) -> Any:
        if not isinstance(value, dict):
            self._problem(key, f"{value!r} is not a table; write [{key}] and its keys below")
            return None
        try:
            return model.model_validate(value)
        except ValidationError as error:
            for where, message in explain(error, model, key):
                self._problem(where, message)
        except InputError as error:
            self._input_problem(key, error)
        return None

    def _fabric(self) -> FabricSettings | None:
        value = self.data.get("fabric")
        if value is None:
            self._problem("fabric", "missing; add a [fabric] table, e.g. nics = 64 and hosts_per_t0 = 8")
            return None
        if not isinstance(value, str):
            return self._model("fabric", FabricSettings, value)
        try:
            settings = read_htsim_topo(self.folder / value)
        except OpenMrcError as error:
            self._input_problem("fabric", error)
            return None
        changes = self._model("fabric", FabricSettings, self.topo_overrides)
        if changes is None:
            return None
        return settings.model_copy(update={k: getattr(changes, k) for k in changes.model_fields_set})

    def _entries(self, key: str, check: Any) -> tuple[Any, ...] | None:
        value = self.data.get(key, [])
        if not isinstance(value, list) or any(not isinstance(v, dict) for v in value):
            self._problem(key, f"must be a list of tables; write [[{key}]] (two brackets) above each")
            return None
        if key == "traffic" and not value:
            self._problem(
                key, 'missing; add a [[traffic]] table, e.g. pattern = "permutation" and size = "2MB"'
            )
            return None
        return tuple(check(i, v) for i, v in enumerate(value))

    def _traffic_entry(self, index: int, value: dict[str, Any]) -> TrafficEntry | None:
        pattern, known = value.get("pattern"), ", ".join(PATTERNS)
        if pattern is None:
            self._problem(f"traffic.{index}", f"`pattern` is missing; use one of {known}")
            return None
        if not isinstance(pattern, str) or pattern not in PATTERNS:
            hint = did_you_mean(str(pattern), PATTERNS)
            self._problem(f"traffic.{index}.pattern", f"{pattern!r} is unknown; {hint} Patterns: {known}")
            return None
        return self._model(f"traffic.{index}", PATTERNS[pattern], value)

    def _fault_entry(self, index: int, value: dict[str, Any]) -> FaultSettings | None:
        if "for_" in value:  # the Python name of the key `for`
            self._problem(f"fault.{index}.for_", unknown_key("for_", FaultSettings, f"fault.{index}"))
            return None
        return self._model(f"fault.{index}", FaultSettings, value)

    # --- what one key alone cannot tell ------------------------------------------------------
    def _topology(self, settings: FabricSettings | None) -> Topology | None:
        if settings is None:
            return None
        try:
            return Topology(settings)
        except TopologyError as error:
            self._input_problem("fabric", error)
            return None

    def _seed(self) -> int:
        seed = self.data.get("seed", 1)
        return seed if isinstance(seed, int) else 1

    def _check_traffic(self, entries: tuple[Any, ...] | None, topology: Topology, seed: int) -> None:
        nics = topology.params.n_nics
        for index, entry in enumerate(entries or ()):
            if entry is None:
                continue
            for key, message in entry.problems(nics):
                self._problem(f"traffic.{index}.{key}", message)
            if isinstance(entry, (ConnectionMatrixEntry, GoalEntry)):
                try:
                    one_step(entry, Context(nics, seed, "", self.folder))
                except OpenMrcError as error:
                    self._input_problem(f"traffic.{index}.file", error)

    def _check_faults(self, faults: tuple[Any, ...] | None, topology: Topology, sim: Any) -> None:
        until = getattr(sim, "until", None)
        for index, fault in enumerate(faults or ()):
            if fault is None:
                continue
            try:
                expand_faults(topology, [fault], self._seed(), until or fault.at + PS_PER_MS)
            except OpenMrcError as error:
                self._problem(*_fault_message(index, fault, str(error)))


def _fault_message(index: int, fault: FaultSettings, text: str) -> tuple[str, str]:
    """Return (key, message) of an error that names its fault as ``fault[0] (kind, what): ...``."""
    text = re.sub(r"^fault\[\d+\] \([^)]*\): ", "", text)
    named = re.match(r"^`([\w.]+)`", text)
    if named:
        return f"fault.{index}.{named[1]}", text
    if fault.element is not None and fault.element in text:
        return f"fault.{index}.element", text
    return f"fault.{index}", text


def _has_key(annotation: Any, key: str) -> bool:
    model = nested_model(annotation)
    return model is not None and key in keys_of(model)


def _copied(source: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a dict deeply: overrides must not change the caller's."""

    def copy(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(k): copy(v) for k, v in value.items()}
        return [copy(v) for v in value] if isinstance(value, (list, tuple)) else value

    return copy(source)


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise ScenarioError(f"{path} is a folder; give the path of a scenario file (.toml)")
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ScenarioError(f"{path} is larger than 16 MiB; a scenario file is a few kilobytes of TOML")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScenarioError(f"{path} does not exist{_near(path)}") from None
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}; check its permissions") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path} is not text in UTF-8; give a scenario file (.toml)") from None


def _near(path: Path) -> str:
    others = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    hint = did_you_mean(path.name, others)
    return f"; {hint}" if hint else "; `mrc init` writes one to start from, `mrc examples` lists some"


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(_syntax_message(text, name, str(error))) from None


def _syntax_message(text: str, name: str, message: str) -> str:
    place = _SYNTAX_PLACE.search(message)
    lines = text.splitlines()
    number = int(place[1]) if place and place[1] else max(1, len(lines))
    column = place[2] if place and place[2] else "1"
    what = _SYNTAX_PLACE.sub("", message)
    line = lines[number - 1] if number <= len(lines) else ""
    bare = _BARE_QUANTITY.search(line)
    if bare:
        return f'{name}:{number}:{column}: a quantity with a unit stands in quotes; write "{bare[1]}"'
    return f"{name}:{number}:{column}: not valid TOML: {what}; the line is: {line.strip()[:60]}"


def _toml_value_or_text(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed["value"]
    return value if len(parsed) == 1 and isinstance(value, (bool, int, float, str, list, dict)) else text


def parse_set(items: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (key, value) of ``--set key=value`` options.

    >>> dict(parse_set(("transport.ev_count=1",)))
    {'transport.ev_count': '1'}
    """
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {item}: write --set key=value, e.g. --set transport.ev_count=1")
        yield key.strip(), value.strip()
