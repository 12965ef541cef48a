"""The scenario file as a model, and its JSON Schema for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from openmrc.fabric.faults import FaultSettings
from openmrc.fabric.settings import FabricSettings
from openmrc.scenario.sim_settings import SimSettings, SwitchSettings
from openmrc.scenario.traffic import Traffic
from openmrc.transport.settings import TransportSettings


class Scenario(BaseModel):
    """One experiment: a fabric, what runs on it, and what goes wrong.

    Made by :func:`openmrc.scenario.load_scenario`, which also checks what one key alone cannot tell.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("scenario", min_length=1, max_length=200, description="Name; unset: that of the file.")
    description: str = Field("", description="What the scenario shows, for the report.")
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = Field(
        1, description="Seed of everything that is drawn at random."
    )
    fabric: FabricSettings = Field(
        description='The network; `fabric = "file.topo"` reads an htsim topology instead.'
    )
    switch: SwitchSettings = Field(
        default_factory=lambda: SwitchSettings.model_validate({}), description="Queues of the switches."
    )
    transport: TransportSettings = Field(
        default_factory=lambda: TransportSettings.model_validate({}), description="The endpoints."
    )
    sim: SimSettings = Field(
        default_factory=lambda: SimSettings.model_validate({}), description="How the simulation runs."
    )
    traffic: tuple[Traffic, ...] = Field(
        min_length=1, description="What is sent. Entries run side by side; each has a `pattern`."
    )
    fault: tuple[FaultSettings, ...] = Field((), description="What fails, when, and for how long.")

    _folder: Path = PrivateAttr(default_factory=Path)

    @property
    def folder(self) -> Path:
        """Folder that paths inside the scenario are relative to: that of its file."""
        return self._folder


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a scenario file.

    Examples
    --------
    >>> sorted(json_schema()["required"])
    ['fabric', 'traffic']
    """
    schema = Scenario.model_json_schema(mode="validation")
    fabric = schema["properties"]["fabric"]
    described = {"description": fabric.pop("description", "")}
    path = {
        "type": "string",
        "pattern": r"\.topo$",
        "title": "htsim topology",
        "examples": ["leaf_spine.topo"],
    }
    schema["properties"]["fabric"] = {"anyOf": [fabric, path], **described}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "openmrc scenario",
        **{k: v for k, v in schema.items() if k != "title"},
    }
