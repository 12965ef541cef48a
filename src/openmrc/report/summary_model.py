"""What ``summary.json`` holds, as a pydantic model: schema 1.

The model checks what a run reports before anything is written, is the documentation of every
key, and generates ``docs/summary.schema.json``::

    python -m openmrc.report.summary_model          # writes docs/summary.schema.json
    python -m openmrc.report.summary_model FILE     # writes it elsewhere

Keys are only ever added inside a schema number; a key that changes its meaning raises the number.
Blocks that may carry further keys (counters, engine, faults, slowest_flow) say so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1
#: relative tolerance between a figure and the figures it is made of (the file may be rounded)
ROUNDING = 1e-3


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


class FlowCounts(_Closed):
    """How many flows (messages of the workload) there were and how they ended."""

    total: int = Field(ge=0, description="flows in the scenario")
    completed: int = Field(ge=0, description="flows whose requestor saw the Transport ACK of the last byte")
    failed: int = Field(ge=0, description="flows that ended in an error, e.g. retry budget used up")

    @model_validator(mode="after")
    def _counts_fit(self) -> FlowCounts:
        if self.completed + self.failed > self.total:
            raise ValueError(f"completed {self.completed} + failed {self.failed} exceed total {self.total}")
        return self


class FctStatistics(_Closed):
    """Flow completion time (release to Transport ACK) in us; null when no flow completed.

    Percentiles are by nearest rank, so each is an observed value and p100 is the slowest flow.
    """

    mean: float | None = Field(description="arithmetic mean, us")
    p50: float | None = Field(description="median, us")
    p99: float | None = Field(description="99th percentile, us")
    p999: float | None = Field(description="99.9th percentile, us")
    p100: float | None = Field(description="the slowest completed flow, us")

    @model_validator(mode="after")
    def _ascending(self) -> FctStatistics:
        values = [self.p50, self.p99, self.p999, self.p100]
        known = [value for value in values if value is not None]
        if len(known) not in (0, 4) or (self.mean is None) != (not known):
            raise ValueError("either all of mean, p50, p99, p999, p100 are null or none is")
        if known != sorted(known):
            raise ValueError(f"percentiles are not ascending: {known}")
        return self


class Goodput(_Closed):
    """Payload delivered per time; retransmissions and headers do not count."""

    mean_per_nic: float | None = Field(ge=0, description="mean per NIC that takes part, Gb/s; null when none")
    ceiling_per_nic: float = Field(ge=0, description="line rate less all header overhead, Gb/s")


class Counters(_Open):
    """Event counts over the whole run. Further keys are non-negative integers with their own names."""

    __pydantic_extra__: dict[str, int] = Field(init=False)

    data_packets: int = Field(ge=0, description="first transmissions of data packets")
    retransmitted: int = Field(ge=0, description="data packets sent again")
    trimmed: int = Field(ge=0, description="data packets cut to their headers by a full queue")
    ecn_marked: int = Field(ge=0, description="data packets that a switch marked CE")
    sacks: int = Field(ge=0, description="SACKs sent by responders")
    nacks: int = Field(ge=0, description="NACKs sent by responders")
    probes: int = Field(ge=0, description="probes sent (tail, reliability and path probes)")
    timeouts: int = Field(ge=0, description="retransmission timeouts")
    dropped: dict[str, int] = Field(description="packets dropped, by reason")


class Paths(_Closed):
    """What happened to entropy values (EVs), summed over all QPs."""

    assumed_bad: int = Field(ge=0, description="times an EV was taken out of use (ASSUMED_BAD)")
    recovered: int = Field(ge=0, description="times an EV came back after successful probes")
    promoted: int = Field(ge=0, description="times a backup EV took the place of a retired one")
    false_condemned: int = Field(
        ge=0, description="packets declared lost that had arrived or were only trimmed"
    )


class Fault(_Open):
    """One fault of the scenario, or drawn at random, and how the QPs got out of its way.

    "Left" is the last data packet that a QP sent on the element. Null where no QP used it.
    """

    id: int | str = Field(description="the fault's name in the scenario, or its number")
    kind: str = Field(
        description="as in the scenario: down, flap, loss, corrupt, slow, latency, blackhole, reboot"
    )
    element: str = Field(description="the exact element, e.g. p2/t0.3-t1.17")
    at_us: float = Field(ge=0, description="when it happened, us of simulated time")
    end_us: float | None = Field(
        None, description="when the element was well again, us; null: not in this run"
    )
    first_left_us: float | None = Field(
        description="when the first affected QP had left, us of simulated time"
    )
    last_left_us: float | None = Field(description="when the last affected QP had left, us of simulated time")
    worst_leave_rtts: float | None = Field(
        None, ge=0, description="longest time of a QP from its first loss there to leaving, in base RTTs"
    )
    qps_affected: int | None = Field(None, ge=0, description="QPs that had packets on the element")
    packets_lost: int = Field(ge=0, description="packets that died on the element because of this fault")
    back_us: float | None = Field(
        description="first data packet on the element after it was well, us; or null"
    )


class Engine(_Open):
    """What the run cost. The only part of the summary that differs between two runs of one seed."""

    __pydantic_extra__: dict[str, int | float | str | bool | None] = Field(init=False)

    packet_hops_data: int = Field(ge=0, description="data packets x links crossed")
    packet_hops_control: int = Field(ge=0, description="control packets x links crossed")
    wall_s: float = Field(ge=0, description="wall time of the simulation, s")
    cpu_s: float = Field(ge=0, description="CPU time of the simulation, s")
    hops_per_s: float | None = Field(None, ge=0, description="packet-hops of both kinds per wall second")
    peak_rss_bytes: int | None = Field(None, ge=0, description="largest resident memory of the process")


class SlowestFlow(_Open):
    """The completed flow with the longest FCT and where its packets suffered."""

    flow: int = Field(ge=0, description="flow id, as in flows.parquet")
    src: int | str = Field(description="sending NIC")
    dst: int | str = Field(description="receiving NIC")
    fct_us: float = Field(ge=0, description="its completion time, us")
    plane: int | None = Field(None, ge=0, description="plane with most of its losses; null: none stood out")
    link: str | None = Field(None, description="link with most of its losses")
    ev: int | str | None = Field(None, description="EV with most of its losses")
    retransmissions: int = Field(ge=0, description="packets it sent again")
    limited_by: str | None = Field(None, description="one sentence: what it waited for")


class Summary(_Closed):
    """The content of ``summary.json``."""

    schema_: Literal[1] = Field(1, alias="schema", description="version of this layout")
    scenario: str = Field(description="name of the scenario")
    seed: int = Field(ge=0, description="the seed every random draw comes from")
    version: str = Field(description="openmrc version that ran it")
    digest: str = Field(
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 over little-endian int64 (flow id, start ps, end ps or -1, retransmissions) in "
        "id order, then the final counters: equal digests mean equal runs",
    )
    status: Literal["complete", "partial"] = Field(description="partial: interrupted before its end")
    command: str | None = Field(None, description="the command that repeats this run")
    fabric: str | None = Field(None, description="the fabric in one line")
    traffic: str | None = Field(None, description="the traffic in one line")
    simulated_us: float | None = Field(None, ge=0, description="simulated time that the run covers, us")
    flows: FlowCounts
    fct_us: FctStatistics
    ideal_fct_us: float | None = Field(
        gt=0, description="lower bound on makespan_us, computed before the run, us"
    )
    makespan_us: float | None = Field(
        ge=0, description="release of the first flow to the end of the last, us"
    )
    p100_over_ideal: float | None = Field(
        ge=0, description="makespan_us / ideal_fct_us: 1 is the best possible"
    )
    goodput_gbps: Goodput
    counters: Counters
    paths: Paths
    planes: list[int] = Field(description="payload bytes delivered over each plane")
    faults: list[Fault] = Field(default_factory=list)
    queues: dict[str, int] = Field(
        default_factory=dict, description="largest data queue per layer of ports, bytes"
    )
    slowest_flow: SlowestFlow | None = Field(None, description="null when no flow completed")
    engine: Engine
    settings: dict[str, Any] = Field(default_factory=dict, description="every setting of the run, resolved")
    notes: list[str] = Field(default_factory=list, description="limits reached and approximations in use")

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, populate_by_name=True, title="openmrc summary.json"
    )

    @model_validator(mode="after")
    def _figures_agree(self) -> Summary:
        if self.fct_us.p100 is None and self.flows.completed:
            raise ValueError("flows completed, but fct_us is null")
        if self.p100_over_ideal is not None:
            if self.makespan_us is None or self.ideal_fct_us is None:
                raise ValueError("p100_over_ideal needs makespan_us and ideal_fct_us")
            ratio = self.makespan_us / self.ideal_fct_us
            if abs(ratio - self.p100_over_ideal) > ROUNDING * max(ratio, 1.0):
                raise ValueError(
                    f"p100_over_ideal {self.p100_over_ideal} is not makespan / ideal = {ratio:.4f}"
                )
        for name, value in [
            *(self.counters.__pydantic_extra__ or {}).items(),
            *self.counters.dropped.items(),
        ]:
            if value < 0:
                raise ValueError(f"counters.{name} is negative: {value}")
        if any(size < 0 for size in [*self.planes, *self.queues.values()]):
            raise ValueError("planes and queues hold bytes and cannot be negative")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data, keys spelled as in ``summary.json``, defaults filled in."""
        return self.model_dump(mode="json", by_alias=True)


def json_schema() -> str:
    """Return the JSON Schema of ``summary.json`` as text."""
    schema = Summary.model_json_schema(by_alias=True, mode="validation")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> None:
    """Write the JSON Schema to the file named, by default ``docs/summary.schema.json``."""
    target = Path(arguments[0]) if arguments else Path("docs/summary.schema.json")
    target.write_text(json_schema(), encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    main(sys.argv[1:])
