"""summary.json: the model refuses what does not agree; its JSON Schema in docs is current."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from openmrc.report.summary_model import Summary, json_schema
from report_samples import sample

SCHEMA_FILE = Path(__file__).parent.parent / "docs" / "summary.schema.json"
#: keys that others rely on, as the issue spells them
PROMISED = [
    "scenario seed version digest status ideal_fct_us makespan_us p100_over_ideal planes faults slowest_flow "
    "queues settings notes schema",
    "flows.total flows.completed flows.failed",
    "fct_us.mean fct_us.p50 fct_us.p99 fct_us.p999 fct_us.p100",
    "goodput_gbps.mean_per_nic goodput_gbps.ceiling_per_nic",
    "counters.data_packets counters.retransmitted counters.trimmed counters.ecn_marked counters.sacks",
    "counters.nacks counters.probes counters.timeouts counters.dropped",
    "paths.assumed_bad paths.recovered paths.promoted paths.false_condemned",
    "engine.packet_hops_data engine.packet_hops_control engine.wall_s engine.cpu_s engine.hops_per_s",
    "engine.peak_rss_bytes",
]
FAULT_KEYS = ["id", "kind", "element", "at_us", "first_left_us", "last_left_us", "packets_lost", "back_us"]


@pytest.fixture(scope="module")
def summary():
    return sample().summary


def changed(summary, path, value):
    copied = copy.deepcopy(summary)
    *parents, last = path.split(".")
    target = copied
    for part in parents:
        target = target[int(part) if part.isdigit() else part]
    target[last] = value
    return copied


@pytest.mark.parametrize("key", " ".join(PROMISED).split())
def test_promised_keys_are_there(summary, key):
    value = summary
    for part in key.split("."):
        assert part in value
        value = value[part]


def test_promised_fault_keys_are_there(summary):
    assert all(key in fault for fault in summary["faults"] for key in FAULT_KEYS)


def test_normal_form_is_stable(summary):
    again = Summary.model_validate(summary).to_dict()
    assert again == summary
    assert list(again) == list(summary)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_documented_schema_is_current():
    written = SCHEMA_FILE.read_text(encoding="utf-8")
    assert json.loads(written) == json.loads(json_schema()), "run: python -m openmrc.report.summary_model"


@pytest.mark.parametrize("kind", ["complete", "partial", "empty"])
def test_samples_satisfy_the_written_schema(kind):
    options = {"partial": {"status": "partial", "unfinished": 20}, "empty": {"flows": 0, "bins": 0}}.get(
        kind, {}
    )
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(sample(**options).summary, schema)


def test_module_writes_the_schema(tmp_path):
    target = tmp_path / "schema.json"
    command = [sys.executable, "-m", "openmrc.report.summary_model", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    assert target.read_text(encoding="utf-8") == json_schema()


def test_every_key_of_the_schema_is_described():
    schema = json.loads(json_schema())
    for name, block in [("Summary", schema), *schema["$defs"].items()]:
        for key, field in block["properties"].items():
            documented = "description" in field or "$ref" in field or "allOf" in field or key in ("faults",)
            assert documented, f"{name}.{key}"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", 2, "schema"),
        ("seed", -1, "seed"),
        ("digest", "abc", "digest"),
        ("digest", "A" * 64, "digest"),
        ("status", "done", "status"),
        ("surprise", 1, "surprise"),
        ("flows.completed", 65, "exceed total"),
        ("flows.extra", 1, "flows.extra"),
        ("fct_us.p99", 1.0, "not ascending"),
        ("fct_us.p99", None, "either all"),
        ("fct_us.mean", None, "either all"),
        ("fct_us.p100", float("nan"), "finite"),
        ("ideal_fct_us", 0.0, "ideal_fct_us"),
        ("ideal_fct_us", None, "needs makespan_us"),
        ("p100_over_ideal", 1.5, "is not makespan / ideal"),
        ("counters.sacks", -1, "sacks"),
        ("counters.no_good_path", -1, "negative"),
        ("counters.no_good_path", "many", "no_good_path"),
        ("counters.dropped", {"link_down": -3}, "negative"),
        ("counters.dropped", 7, "dropped"),
        ("planes", [1, -1], "cannot be negative"),
        ("queues", {"T0": -1}, "cannot be negative"),
        ("faults.0.packets_lost", -1, "packets_lost"),
        ("faults.0.element", None, "element"),
        ("engine.wall_s", -0.1, "wall_s"),
        ("engine.host", {"a": 1}, "host"),
        ("goodput_gbps.mean_per_nic", -1, "mean_per_nic"),
        ("slowest_flow.flow", -1, "flow"),
    ],
)
def test_refused(summary, path, value, message):
    with pytest.raises(ValidationError, match=message):
        Summary.model_validate(changed(summary, path, value))


@pytest.mark.parametrize(
    "block", ["flows", "fct_us", "goodput_gbps", "counters", "paths", "planes", "engine"]
)
def test_missing_block_is_refused(summary, block):
    short = {key: value for key, value in summary.items() if key != block}
    with pytest.raises(ValidationError, match=block):
        Summary.model_validate(short)


def test_completed_flows_need_times(summary):
    nothing = dict.fromkeys(("mean", "p50", "p99", "p999", "p100"))
    with pytest.raises(ValidationError, match="flows completed, but fct_us is null"):
        Summary.model_validate(changed(summary, "fct_us", nothing))


def test_open_blocks_keep_further_keys(summary):
    more = changed(changed(summary, "counters.port_updates", 3), "engine.threads", 2)
    more = changed(changed(more, "faults.0.leave_rtts_mean", 1.4), "slowest_flow.timeouts", 1)
    found = Summary.model_validate(more).to_dict()
    assert found["counters"]["port_updates"] == 3
    assert found["engine"]["threads"] == 2
    assert found["faults"][0]["leave_rtts_mean"] == 1.4
    assert found["slowest_flow"]["timeouts"] == 1
