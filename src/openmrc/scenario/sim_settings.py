"""What a user may set about the switches (``[switch]``) and about the simulation (``[sim]``)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from openmrc.units import DurationPs, SizeBytes


class SwitchSettings(BaseModel):
    """Queues of every output port. Thresholds in units of plane-BDP = link rate x base RTT."""

    model_config = ConfigDict(extra="forbid")

    ecn: bool = Field(True, description="Mark data packets (CE) when the queue grows.")
    ecn_low: float = Field(0.2, ge=0, description="Backlog where marking starts, in plane-BDP.")
    ecn_high: float = Field(0.8, gt=0, description="Backlog where every packet is marked, in plane-BDP.")
    ecn_last_hop: bool = Field(False, description="Mark also on ports that face NICs.")
    trim: bool = Field(
        True, description="Trim the payload of packets that do not fit instead of dropping them."
    )
    trim_threshold: float = Field(1.0, gt=0, description="Backlog that trims, in plane-BDP.")
    trim_threshold_last_hop: float = Field(1.5, gt=0, description="The same on ports that face NICs.")
    trim_bytes: SizeBytes = Field(
        138, description="Bytes of the frame that trimming keeps (138B, or 128B without RETH)."
    )
    queue_capacity: float = Field(
        2.0, gt=0, description="Data queue in plane-BDP: beyond it what cannot be trimmed is dropped."
    )
    control_capacity: float = Field(
        1.0, gt=0, description="Control queue in plane-BDP: beyond it control packets are dropped."
    )
    cut_through: bool = Field(False, description="Forward before the packet has fully arrived.")

    @model_validator(mode="after")
    def _thresholds_are_ordered(self) -> SwitchSettings:
        if self.ecn_high <= self.ecn_low:
            raise ValueError(f"ecn_high ({self.ecn_high}) must be above ecn_low ({self.ecn_low})")
        if not 128 <= self.trim_bytes <= 256:
            raise ValueError(f"trim_bytes: {self.trim_bytes} B; the headers need 128 to 256 B")
        return self


class SimSettings(BaseModel):
    """How the simulation runs and what it records."""

    model_config = ConfigDict(extra="forbid")

    port_model: Literal["fast", "exact"] = Field(
        "fast", description="`fast`: one event per hop; `exact`: two real queues per port, marked at dequeue."
    )
    until: DurationPs | None = Field(
        None, description="Stop at this simulated time; unset: when all traffic is done."
    )
    bin: DurationPs | None = Field(
        None,
        description="Width of a timeline bin; unset: starts at 1 us and doubles to keep at most 2048 bins.",
    )
    nic_queue_packets: int = Field(
        4, ge=1, le=16, description="A NIC port has room while fewer full packets than this wait in it."
    )
