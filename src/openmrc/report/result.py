"""The result of a run: a summary and two tables, checked when made.

A :class:`Result` is what ``openmrc.run`` returns, what ``mrc run`` prints and what
:func:`openmrc.report.files.write_results` puts on disk. The tables are pyarrow tables, so they go
to pandas, polars or DuckDB without openmrc depending on any of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from openmrc.report import format as fmt
from openmrc.report.summary_model import Summary

if TYPE_CHECKING:
    from rich.console import Console

FLOW_STATUS = ("ok", "failed", "unfinished")
_PLANE = re.compile(r"^plane(\d+)_gbps$")


def _field(name: str, kind: pa.DataType, unit: str, description: str, nullable: bool = False) -> pa.Field:
    metadata = {"unit": unit, "description": description}
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


#: flows.parquet: one row per flow, in id order
FLOW_SCHEMA = pa.schema(
    [
        _field("flow", pa.int64(), "1", "flow id"),
        _field("job", pa.string(), "1", "job that the flow belongs to"),
        _field("step", pa.int64(), "1", "step of the job, from 0"),
        _field("qp", pa.int64(), "1", "queue pair that carried it"),
        _field("src", pa.int64(), "1", "sending NIC"),
        _field("dst", pa.int64(), "1", "receiving NIC"),
        _field("size_bytes", pa.int64(), "B", "payload"),
        _field("start_ps", pa.int64(), "ps", "released: posted, dependencies met; -1 = never"),
        _field("received_ps", pa.int64(), "ps", "last byte at the receiver; -1 = not"),
        _field("end_ps", pa.int64(), "ps", "completion at the requestor (Transport ACK); -1 = not"),
        _field("fct_us", pa.float64(), "us", "flow completion time, end - start", True),
        _field("ideal_us", pa.float64(), "us", "the same flow alone in the fabric, a lower bound", True),
        _field("slowdown", pa.float64(), "1", "fct_us / ideal_us", True),
        _field("retransmissions", pa.int64(), "packets", "data packets sent again"),
        _field("trimmed", pa.int64(), "packets", "data packets that a full queue cut to headers"),
        _field("status", pa.string(), "1", "ok, failed or unfinished"),
    ]
)


def timeline_schema(plane_count: int) -> pa.Schema:
    """Return the schema of timeline.parquet: one row per bin of time, for ``plane_count`` planes."""
    planes = [
        _field(f"plane{p}_gbps", pa.float64(), "Gb/s", f"payload delivered over plane {p}, all NICs together")
        for p in range(plane_count)
    ]
    return pa.schema(
        [
            _field("t_us", pa.float64(), "us", "start of the bin"),
            _field("bin_us", pa.float64(), "us", "length of the bin"),
            _field("goodput_gbps", pa.float64(), "Gb/s", "payload delivered, all NICs together"),
            *planes,
            _field("queue_max_bytes", pa.int64(), "B", "largest data queue of any port in the bin"),
            _field("evs_good", pa.int64(), "EVs", "EVs in state GOOD at the end of the bin, all QPs"),
            _field("evs_skip", pa.int64(), "EVs", "EVs in state SKIP at the end of the bin, all QPs"),
            _field("evs_assumed_bad", pa.int64(), "EVs", "EVs in state ASSUMED_BAD at the end of the bin"),
            _field("retransmitted", pa.int64(), "packets", "data packets sent again in the bin"),
            _field("trimmed", pa.int64(), "packets", "data packets trimmed in the bin"),
            _field("dropped", pa.int64(), "packets", "packets dropped in the bin, any reason"),
            _field("ecn_marked", pa.int64(), "packets", "data packets marked CE in the bin"),
        ]
    )


def plane_columns(timeline: pa.Table) -> list[str]:
    """Return the per-plane columns of a timeline, in plane order."""
    found = [(int(m.group(1)), name) for name in timeline.column_names if (m := _PLANE.match(name))]
    return [name for _, name in sorted(found)]


def plain(value: Any) -> Any:
    """Return ``value`` as JSON-ready Python: NumPy scalars and arrays, tuples and NaN are replaced."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)


def conform(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Return ``table`` with the columns, order, types and units of ``schema``; others stay, behind.

    NaN in a column that may be null becomes null.
    """
    missing = [field.name for field in schema if field.name not in table.column_names]
    if missing:
        raise ValueError(f"{name} has no column {', '.join(missing)}")
    fields, columns = list(schema), []
    for field in schema:
        column = table.column(field.name).cast(field.type)
        if field.nullable and pa.types.is_floating(field.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, field.type), column)
        elif column.null_count:
            raise ValueError(f"{name}: column {field.name} holds nulls")
        columns.append(column.combine_chunks())
    for field in table.schema:
        if field.name not in schema.names:
            fields.append(field)
            columns.append(table.column(field.name).combine_chunks())
    return pa.table(columns, schema=pa.schema(fields))


@dataclass(frozen=True, repr=False)
class Result:
    """What a run produced.

    Parameters
    ----------
    summary
        The content of ``summary.json``; keys and units in :class:`~openmrc.report.summary_model.Summary`.
        NumPy scalars are welcome.
    flows
        One row per flow, columns of :data:`FLOW_SCHEMA` (others are kept).
    timeline
        One row per bin of time, columns of :func:`timeline_schema`; may have no rows.

    Raises
    ------
    ValueError
        When the summary or a table does not have the agreed form (pydantic's error is one).

    Examples
    --------
    A run without flows; real ones come from ``openmrc.run``:

    >>> nothing = {key: 0 for key in ("retransmitted", "trimmed", "ecn_marked", "sacks", "nacks")}
    >>> summary = {
    ...     "scenario": "idle", "seed": 1, "version": "0.1.0", "digest": "0" * 64, "status": "complete",
    ...     "flows": {"total": 0, "completed": 0, "failed": 0},
    ...     "fct_us": {"mean": None, "p50": None, "p99": None, "p999": None, "p100": None},
    ...     "ideal_fct_us": None, "makespan_us": None, "p100_over_ideal": None,
    ...     "goodput_gbps": {"mean_per_nic": None, "ceiling_per_nic": 769.0},
    ...     "counters": {"data_packets": 0, "probes": 0, "timeouts": 0, "dropped": {}, **nothing},
    ...     "paths": {"assumed_bad": 0, "recovered": 0, "promoted": 0, "false_condemned": 0},
    ...     "planes": [0, 0],
    ...     "engine": {"packet_hops_data": 0, "packet_hops_control": 0, "wall_s": 0.1, "cpu_s": 0.1},
    ... }
    >>> result = Result(summary, FLOW_SCHEMA.empty_table(), timeline_schema(2).empty_table())
    >>> result
    Result('idle', seed=1, complete, 0/0 flows, P100 -)
    >>> result.ok, result.plane_count, result.summary["faults"]
    (True, 2, [])
    """

    summary: dict[str, Any]
    flows: pa.Table
    timeline: pa.Table

    def __post_init__(self) -> None:
        summary = Summary.model_validate(plain(self.summary)).to_dict()
        flows = conform(self.flows, FLOW_SCHEMA, "flows")
        strange = set(pc.unique(flows.column("status")).to_pylist()) - set(FLOW_STATUS)
        if strange:
            raise ValueError(f"flows: unknown status {sorted(strange)}; use {', '.join(FLOW_STATUS)}")
        if flows.num_rows != summary["flows"]["total"]:
            raise ValueError(f"flows has {flows.num_rows} rows, flows.total is {summary['flows']['total']}")
        done = pc.sum(pc.equal(flows.column("status"), "ok")).as_py() or 0
        if done != summary["flows"]["completed"]:
            raise ValueError(f"{done} flows are ok, flows.completed is {summary['flows']['completed']}")
        timeline = conform(self.timeline, timeline_schema(len(summary["planes"])), "timeline")
        object.__setattr__(self, "summary", summary)
        object.__setattr__(self, "flows", flows)
        object.__setattr__(self, "timeline", timeline)

    @property
    def plane_count(self) -> int:
        """Number of planes of the fabric."""
        return len(self.summary["planes"])

    @property
    def complete(self) -> bool:
        """False when the run was interrupted."""
        return self.summary["status"] == "complete"

    @property
    def ok(self) -> bool:
        """True when the run went to its end and no flow failed."""
        return self.complete and self.summary["flows"]["failed"] == 0

    def completed_fct_us(self) -> np.ndarray:
        """Return the completion times of the flows that completed, us, in id order."""
        done = self.flows.filter(pc.equal(self.flows.column("status"), "ok"))
        return done.column("fct_us").drop_null().to_numpy()

    def write(self, directory: str | Path, force: bool = False) -> Path:
        """Write the four result files; see :func:`openmrc.report.files.write_results`."""
        from openmrc.report.files import write_results

        return write_results(self, directory, force=force)

    @classmethod
    def load(cls, directory: str | Path) -> Result:
        """Read a result that :meth:`write` wrote."""
        from openmrc.report.files import load_result

        return load_result(directory)

    def to_html(self) -> str:
        """Return the self-contained HTML report."""
        from openmrc.report.html import render_html

        return render_html(self)

    def print(self, console: Console | None = None, directory: str | Path | None = None) -> None:
        """Print the terminal report."""
        from openmrc.report.table import print_report

        print_report(self, console=console, directory=directory)

    def __repr__(self) -> str:
        s = self.summary
        p100 = fmt.microseconds(s["fct_us"]["p100"], 4)
        ideal = "" if s["p100_over_ideal"] is None else f", {fmt.ratio(s['p100_over_ideal'])} x ideal"
        return (
            f"Result({s['scenario']!r}, seed={s['seed']}, {s['status']}, "
            f"{fmt.count(s['flows']['completed'])}/{fmt.count(s['flows']['total'])} flows, "
            f"P100 {p100}{ideal})"
        )

    def _repr_html_(self) -> str:
        from openmrc.report.notebook import render_notebook

        return render_notebook(self)
