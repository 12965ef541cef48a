"""Result: what it accepts, how it normalises, how it shows itself."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow as pa
import pytest

import openmrc.report
from openmrc.report import format as fmt
from openmrc.report.result import FLOW_SCHEMA, Result, conform, plain, plane_columns, timeline_schema
from report_samples import FAULTS, flow_table, sample


@pytest.fixture(scope="module")
def result():
    return sample()


def test_tables_have_the_agreed_columns_types_and_units(result):
    assert result.flows.schema.equals(FLOW_SCHEMA, check_metadata=True)
    assert result.timeline.schema.equals(timeline_schema(8), check_metadata=True)
    assert all(b"unit" in field.metadata for field in [*FLOW_SCHEMA, *timeline_schema(2)])
    names = "flow job step qp src dst size_bytes start_ps received_ps end_ps fct_us ideal_us slowdown "
    assert FLOW_SCHEMA.names == [*names.split(), "retransmissions", "trimmed", "status"]


def test_summary_is_plain_json_data(result):
    assert type(result.summary["planes"][0]) is int
    assert result.summary["faults"][2]["worst_leave_rtts"] is None


def test_plain_turns_numpy_into_python():
    found = plain(
        {"a": np.int32(3), 5: np.array([1.5, np.nan]), "b": (np.bool_(True), np.float32(0.5), None)}
    )
    assert found == {"a": 3, "5": [1.5, None], "b": [True, 0.5, None]}
    assert type(found["a"]) is int
    assert type(found["b"][0]) is bool


def test_unfinished_flows_have_null_times():
    partial = sample(status="partial", unfinished=20, failed=3)
    assert partial.flows["fct_us"].null_count == 23
    assert partial.flows["slowdown"].null_count == 23
    assert partial.completed_fct_us().size == 41
    assert partial.flows["end_ps"].to_pylist()[-1] == -1
    assert not partial.complete
    assert not partial.ok


def test_failed_flows_make_the_run_not_ok():
    failed = sample(failed=1)
    assert failed.complete
    assert not failed.ok
    assert sample().ok


def test_frozen(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.summary = {}


def test_columns_come_in_any_order_and_further_ones_stay():
    table = flow_table(8, 1)
    shuffled = table.select(table.column_names[::-1]).append_column("timeouts", pa.array([0] * 8))
    found = conform(shuffled, FLOW_SCHEMA, "flows")
    assert found.column_names == [*FLOW_SCHEMA.names, "timeouts"]
    assert found.column("flow").to_pylist() == list(range(8))


def test_missing_column_is_named():
    with pytest.raises(ValueError, match="flows has no column ideal_us, status"):
        conform(flow_table(4, 1).drop_columns(["status", "ideal_us"]), FLOW_SCHEMA, "flows")


def test_nulls_and_wrong_types_are_refused():
    table = flow_table(4, 1)
    at = table.column_names.index("size_bytes")
    with pytest.raises(ValueError, match="size_bytes holds nulls"):
        conform(table.set_column(at, "size_bytes", pa.array([1, None, 3, 4])), FLOW_SCHEMA, "flows")
    with pytest.raises(ValueError, match=r"1\.5"):
        conform(table.set_column(at, "size_bytes", pa.array([1.5, 2, 3, 4])), FLOW_SCHEMA, "flows")


def test_tables_and_summary_must_agree(result):
    with pytest.raises(ValueError, match=r"flows has 63 rows, flows\.total is 64"):
        Result(result.summary, result.flows.slice(1), result.timeline)
    status = result.flows.column_names.index("status")
    odd = result.flows.set_column(status, "status", pa.array(["ok"] * 63 + ["lost"]))
    with pytest.raises(ValueError, match="unknown status"):
        Result(result.summary, odd, result.timeline)
    fewer = result.flows.set_column(status, "status", pa.array(["ok"] * 63 + ["failed"]))
    with pytest.raises(ValueError, match=r"63 flows are ok, flows\.completed is 64"):
        Result(result.summary, fewer, result.timeline)
    with pytest.raises(ValueError, match="timeline has no column plane8_gbps"):
        Result({**result.summary, "planes": [1] * 9}, result.flows, result.timeline)


def test_plane_columns_are_in_plane_order():
    table = pa.table({"plane10_gbps": [1.0], "plane2_gbps": [1.0], "planeX_gbps": [1.0], "t_us": [0.0]})
    assert plane_columns(table) == ["plane2_gbps", "plane10_gbps"]


def test_repr_is_one_line_with_the_outcome(result):
    p100 = result.summary["fct_us"]["p100"]
    assert repr(result).startswith("Result('link-flap', seed=7, complete, 64/64 flows, P100 ")
    assert fmt.microseconds(p100, 4) in repr(result)
    assert "\n" not in repr(result)


@pytest.mark.parametrize(
    "options", [{}, {"status": "partial", "unfinished": 30}, {"flows": 0, "bins": 0}, {"bins": 1}]
)
def test_notebook_view_is_well_formed(options):
    text = sample(**options)._repr_html_()
    root = ET.fromstring(text)  # well-formed as XML, so nothing is left open
    assert "link-flap" in "".join(root.itertext())
    assert (root.find(".//svg") is not None) == (options.get("bins") not in (0, 1))
    assert ("PARTIAL" in text) == ("status" in options)


def test_notebook_view_escapes_names_and_cuts_long_fault_lists():
    faults = [{**FAULTS[0], "id": i, "element": "<b>x</b>"} for i in range(14)]
    text = sample(scenario="<script>alert(1)</script>", faults=faults)._repr_html_()
    assert "<script" not in text
    assert "<b>x" not in text
    assert "and 4 more faults" in text


def test_package_names_resolve():
    for name in openmrc.report.__all__:
        assert getattr(openmrc.report, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = openmrc.report.nothing


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0.0, "0 us"),
        (0.9999996, "1.00 us"),
        (999.9999, "1.00 ms"),
        (0.0125, "12.5 ns"),
        (2.5e6, "2.50 s"),
    ],
)
def test_times_choose_their_unit_after_rounding(value, expected):
    assert fmt.microseconds(value) == expected
