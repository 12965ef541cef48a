from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

import openmrc
from openmrc.cli import main
from openmrc.scenario import json_schema, load_scenario
from openmrc.scenario.explain import keys_of
from openmrc.scenario.reference import REFERENCE_PATH, SCHEMA_PATH, quantity, reference, schema_text
from openmrc.scenario.schema import Scenario
from openmrc.scenario.traffic import PATTERNS
from openmrc.units import parse_duration, parse_rate, parse_size
from scenario_support import EXAMPLES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
STARTER = Path(openmrc.__file__).parent / "scenario" / "starter.toml"
ALL = [*sorted(EXAMPLES.rglob("*.toml")), STARTER]


def mrc(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["mrc", *arguments])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capsys.readouterr()
    return code, out, err


# --- mrc check -----------------------------------------------------------------------------


def test_check_says_what_would_run(monkeypatch, capsys):
    code, out, err = mrc(monkeypatch, capsys, "check", str(EXAMPLES / "link-flap.toml"))
    assert (code, err) == (0, "")
    assert "link-flap.toml: ok" in out
    assert "seed 1" in out
    assert "64 NICs, 8 planes x 100 Gb/s, 8 T0 and 8 T1 in each plane" in out
    assert "256 messages, 4.10 GB, 64 QPs" in out
    assert "fault    flap p3/t0.0-t1.2 at 120 us" in out
    assert re.search(r"ideal    [\d.]+ ms, limited by ", out)


def test_check_applies_changes(monkeypatch, capsys):
    example = str(EXAMPLES / "incast.toml")
    code, out, _ = mrc(
        monkeypatch, capsys, "check", example, "--set", "seed=9", "--set", "traffic.0.size=2MB"
    )
    assert code == 0
    assert "seed 9" in out
    assert "31 messages, 62.0 MB" in out


def test_check_needs_a_file_or_schema(monkeypatch, capsys):
    code, _, err = mrc(monkeypatch, capsys, "check")
    assert code == 2
    assert "give a scenario FILE, or --schema" in err


def test_check_prints_the_schema(monkeypatch, capsys):
    code, out, _ = mrc(monkeypatch, capsys, "check", "--schema")
    assert code == 0
    assert json.loads(out) == json_schema()


# --- schema and reference ------------------------------------------------------------------


def test_committed_schema_and_reference_are_current():
    """To renew both: python -m openmrc.scenario.reference --write docs"""
    assert (DOCS / SCHEMA_PATH).read_text() == schema_text()
    assert (DOCS / REFERENCE_PATH).read_text() == reference()


def test_the_reference_has_every_key_of_every_pattern():
    page = reference()
    for pattern, model in PATTERNS.items():
        section = page.split(f'`pattern = "{pattern}"`')[1].split("\n#")[0]
        for key in keys_of(model):
            assert key == "pattern" or f"| `{key}` |" in section, (pattern, key)
    for key in keys_of(Scenario):
        assert f"| `{key}` |" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert all(line.split(" | ")[-1].strip(" |") for line in rows), "every key has a description"


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        *[(ps, "duration", parse_duration) for ps in (600_000, 10**11, 1)],
        *[(size, "size", parse_size) for size in (16384, 4096, 32_000)],
        (8 * 10**11, "rate", parse_rate),
    ],
)
def test_quantities_of_the_reference_read_back(value, kind, read):
    assert read(quantity(value, kind)) == value


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_the_schema_accepts_every_example(path):
    jsonschema.validate(tomllib.loads(path.read_text()), json_schema())


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "x"},
        {"sede": 1},
        {"fabric": {"plans": 3}},
        {"traffic": [{"pattern": "incast", "size": "1MB"}]},
        {"traffic": [{"pattern": "permutation", "size": "1MB", "target": 3}]},
        {"transport": {"ev_count": 300}},
        {"fault": [{"kind": "exploded"}]},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(change):
    good = {"fabric": {"nics": 8, "hosts_per_t0": 4}, "traffic": [{"pattern": "permutation", "size": "1MB"}]}
    jsonschema.validate(good, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(good | change, json_schema())


# --- mrc init ------------------------------------------------------------------------------


def test_init_writes_a_good_scenario_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = mrc(monkeypatch, capsys, "init")
    assert code == 0
    assert "wrote scenario.toml" in out
    scenario = load_scenario("scenario.toml")
    assert scenario.fault
    assert scenario.traffic[0].steps > 1
    (tmp_path / "scenario.toml").write_text("mine")
    code, _, err = mrc(monkeypatch, capsys, "init")
    assert code == 2
    assert "exists already; give another name" in err
    assert (tmp_path / "scenario.toml").read_text() == "mine"
    code, _, err = mrc(monkeypatch, capsys, "init", "nowhere/x.toml")
    assert code == 2
    assert "choose another folder" in err


# --- mrc examples --------------------------------------------------------------------------


def test_examples_are_listed_with_their_first_line(monkeypatch, capsys):
    code, out, _ = mrc(monkeypatch, capsys, "examples")
    assert code == 0
    for path in EXAMPLES.rglob("*.toml"):
        name = path.relative_to(EXAMPLES).with_suffix("").as_posix()
        comment = path.read_text().splitlines()[0].removeprefix("# ")
        assert re.search(rf"^{re.escape(name)} +{re.escape(comment)}$", out, re.MULTILINE), name


def test_an_example_is_shown(monkeypatch, capsys):
    code, out, _ = mrc(monkeypatch, capsys, "examples", "incast")
    assert code == 0
    assert out == (EXAMPLES / "incast.toml").read_text()


def test_a_misspelled_example_is_suggested(monkeypatch, capsys):
    code, _, err = mrc(monkeypatch, capsys, "examples", "incats")
    assert code == 2
    assert "did you mean 'incast'?" in err


@pytest.mark.parametrize("name", ["htsim-perm-1024", "goal", "link-flap"])
def test_an_example_is_copied_with_its_files_and_runs_there(tmp_path, monkeypatch, capsys, name):
    target = tmp_path / "new" / "folder"
    code, out, _ = mrc(monkeypatch, capsys, "examples", name, "--copy-to", str(target))
    assert code == 0
    assert f"mrc run {target / (name + '.toml')}" in out
    assert load_scenario(target / f"{name}.toml").traffic == load_scenario(EXAMPLES / f"{name}.toml").traffic
    before = {p: p.read_bytes() for p in target.rglob("*") if p.is_file()}
    code, _, err = mrc(monkeypatch, capsys, "examples", name, "--copy-to", str(target))
    assert code == 2
    assert "exists already" in err
    assert {p: p.read_bytes() for p in target.rglob("*") if p.is_file()} == before


def test_files_above_an_example_are_copied_below_the_new_folder(tmp_path, monkeypatch, capsys):
    package = tmp_path / "openmrc"
    (package / "_examples" / "paper").mkdir(parents=True)
    (package / "_examples" / "data").mkdir()
    (package / "_examples" / "data" / "x.cm").write_text("Nodes 2\n")
    (package / "_examples" / "paper" / "fig.toml").write_text('# A figure\nfile = "../data/x.cm"\n')
    monkeypatch.setattr(openmrc, "__file__", str(package / "__init__.py"))
    code, _, err = mrc(monkeypatch, capsys, "examples", "paper/fig", "--copy-to", str(tmp_path / "out"))
    assert (code, err) == (0, "")
    assert (tmp_path / "out" / "fig.toml").read_text() == '# A figure\nfile = "data/x.cm"\n'
    assert (tmp_path / "out" / "data" / "x.cm").read_text() == "Nodes 2\n"


def test_examples_are_short_and_begin_with_a_comment():
    for path in ALL:  # those of the paper list many faults
        lines = path.read_text().splitlines()
        assert len(lines) < 30 or path.parent.name == "paper", path
        assert lines[0].startswith("# "), path
        assert max(map(len, lines)) <= 110, path


def test_the_first_example_is_what_the_readme_promises():
    s = load_scenario(EXAMPLES / "link-flap.toml")
    assert s.fabric.planes == 8
    assert len(s.fault) >= 2
    entry = s.traffic[0]
    assert entry.size * s.fabric.nics * entry.steps >= 10**9
