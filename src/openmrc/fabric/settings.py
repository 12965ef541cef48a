"""The ``[fabric]`` table of a scenario: what the user says about the network.

The numbers that follow from it (how many switches, what is refused) are worked out by
:mod:`openmrc.fabric.wiring`.

>>> FabricSettings(nics=64, planes=8, hosts_per_t0=8).nic_rate
800000000000
>>> FabricSettings(preset="openai-131k").radix
512
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from openmrc.errors import TopologyError
from openmrc.limits import MAX_PLANES
from openmrc.units import DurationPs, RateBps

#: named fabrics: the values a preset stands for; every key written next to ``preset`` wins over it
PRESETS: dict[str, dict[str, Any]] = {
    "openai-131k": {"nics": 131_072, "planes": 8, "nic_rate": "800Gbps", "radix": 512},
    "openai-4x200": {"nics": 32_768, "planes": 4, "nic_rate": "800Gbps", "radix": 256},
    "clos3-64k": {"nics": 65_536, "planes": 1, "nic_rate": "800Gbps", "radix": 64, "tiers": 3},
}

Count = Annotated[int, Field(strict=True, ge=1)]
Metres = Annotated[float, Field(strict=True, ge=0, le=100_000, allow_inf_nan=False)]


class FabricSettings(BaseModel):
    """What the fabric is made of. Sizes that are left out follow from ``radix``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: str | None = Field(
        default=None,
        description="Start from a named fabric; keys written beside it win. One of: "
        + ", ".join(PRESETS)
        + ".",
        examples=list(PRESETS),
    )
    nics: Count | None = Field(
        default=None, description="Number of NICs. Left out, with `radix`: as many as the switches can take."
    )
    planes: Count = Field(
        default=1,
        description="Ports per NIC, one per plane; planes share no switch.",
        json_schema_extra={"maximum": MAX_PLANES},
    )
    nic_rate: RateBps = Field(
        default="800Gbps",
        validate_default=True,
        description="Rate of the whole NIC; a port has nic_rate / planes.",
    )
    tiers: Literal[2, 3] = Field(
        default=2, description="Switch tiers: 2 (multi-plane), or 3 (one plane, for comparison)."
    )
    radix: Count | None = Field(
        default=None,
        description="Ports of every switch; checked, and alone it gives hosts_per_t0 = radix / 2.",
    )
    hosts_per_t0: Count | None = Field(
        default=None, description="NIC ports of one T0; NICs fill the T0s in order (partial fill is allowed)."
    )
    uplinks_per_t0: Count | None = Field(
        default=None,
        description="Uplinks of one T0, each to another T1. Left out: as many as oversubscription asks for.",
    )
    oversubscription: float = Field(
        default=1.0,
        gt=0,
        le=1024,
        allow_inf_nan=False,
        description="Bandwidth of a T0's NIC ports divided by that of its uplinks.",
    )
    uplink_rate: RateBps | None = Field(
        default=None, description="Rate of one T0-T1 link. Left out: the port rate, nic_rate / planes."
    )
    t0_per_pod: Count | None = Field(
        default=None,
        description="Three tiers: T0s (and with them T1 downlinks) per pod. Left out: radix / 2.",
    )
    t1_uplinks: Count | None = Field(
        default=None,
        description="Three tiers: T2s above each T1. Left out: radix / 2, or t0_per_pod without radix.",
    )
    t1_uplink_rate: RateBps | None = Field(
        default=None, description="Three tiers: rate of one T1-T2 link. Left out: uplink_rate."
    )
    nic_cable_m: Metres = Field(default=10.0, description="Length of the NIC-T0 cables in metres.")
    t0_t1_cable_m: Metres = Field(default=40.0, description="Length of the T0-T1 cables in metres.")
    t1_t2_cable_m: Metres = Field(
        default=40.0, description="Three tiers: length of the T1-T2 cables in metres."
    )
    fibre_delay: DurationPs = Field(
        default="5ns", validate_default=True, description="Propagation delay of one metre of cable."
    )
    nic_link_delay: DurationPs | None = Field(
        default=None, description="Propagation delay of a NIC-T0 link, instead of nic_cable_m * fibre_delay."
    )
    fabric_link_delay: DurationPs | None = Field(
        default=None,
        description="Propagation delay of a link between switches, instead of the cable length's.",
    )
    t1_t2_link_delay: DurationPs | None = Field(
        default=None,
        description="Three tiers: propagation delay of a T1-T2 link. Left out: fabric_link_delay.",
    )
    switch_latency: DurationPs = Field(
        default="500ns", validate_default=True, description="Forwarding time of one switch."
    )
    nic_latency: DurationPs = Field(
        default="600ns",
        validate_default=True,
        description="Time inside a NIC, once when sending, once when receiving.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("preset") is None:
            return data
        preset = data["preset"]
        if preset not in PRESETS:
            raise TopologyError(f"fabric.preset: {preset!r} is unknown; use one of {', '.join(PRESETS)}")
        return PRESETS[preset] | data


def fabric_settings(table: dict[str, Any]) -> FabricSettings:
    """Return the settings of a ``[fabric]`` table; every mistake is a TopologyError that names its key.

    >>> fabric_settings({"nics": 64, "host_per_t0": 8})
    Traceback (most recent call last):
    ...
    openmrc.errors.TopologyError: fabric.host_per_t0: unknown key; did you mean hosts_per_t0?
    """
    try:
        return FabricSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            close = get_close_matches(key, FabricSettings.model_fields, 1)
            hint = f"did you mean {close[0]}?" if close else f"use {', '.join(FabricSettings.model_fields)}"
            raise TopologyError(f"fabric.{key}: unknown key; {hint}") from None
        if first["type"] == "value_error":  # a unit: the message has its own remedy
            raise TopologyError(f"fabric.{key}: {first['ctx']['error']}") from None
        field = FabricSettings.model_fields.get(key)
        hint = f"it is: {field.description}" if field and field.description else "see the scenario reference"
        raise TopologyError(f"fabric.{key}: {first['input']!r} is refused ({first['msg']}); {hint}") from None
