from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from openmrc.cli import main
from openmrc.cli.topo import command

DATA = Path(__file__).parent / "data" / "htsim"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def exit_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["mrc", "topo", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_preset_table_has_the_figures_of_fabric_md() -> None:
    out = run("--preset", "openai-131k", "--preset", "clos3-64k").output
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for cells in (line.split("│") for line in out.splitlines())
        if len(cells) == 5
    }
    assert rows["NICs"] == ["131 072", "65 536"]
    assert rows["T0 / T1 / T2 per plane"] == ["512 / 256 / -", "2 048 / 2 048 / 1 024"]
    assert rows["switches in all"] == ["6 144", "5 120"]
    assert rows["- per 131 072 NICs"] == ["6 144", "10 240"]
    assert rows["link layers per NIC (optics)"] == ["2", "3"]
    assert rows["longest path, switches"] == ["3", "5"]
    assert rows["NICs one hop away"] == ["256", "32"]
    assert rows["T0 uplink lost with a link"] == ["0.4 % (1/256)", "3.1 % (1/32)"]
    assert rows["NIC rate lost with a port"] == ["12.5 % (1/8)", "all"]


def test_json_of_one_and_of_several() -> None:
    one = json.loads(run("--preset", "openai-131k", "--json").output)
    assert (one["fabric"], one["switches"], one["nics"]) == ("openai-131k", 6144, 131_072)
    several = json.loads(run(str(DATA / "leaf_spine_1024.topo"), "--preset", "clos3-64k", "--json").output)
    assert [plan["nics"] for plan in several] == [1024, 65_536]


def test_scenario_files(tmp_path: Path) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text('seed = 1\n[fabric]\nnics = 64\nplanes = 8\nhosts_per_t0 = 8\n[transport]\nx = "y"\n')
    assert json.loads(run(str(scenario), "--json").output)["switches"] == 8 * 16
    scenario.write_text('fabric = "tiny.topo"\n')
    (tmp_path / "tiny.topo").write_text((DATA / "leaf_spine_tiny.topo").read_text())
    assert json.loads(run(str(scenario), "--json").output)["oversubscription"] == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[fabric]\nnics = 8\nhosts_per_t0 = 4\nplanes = 7\n", "fabric.nic_rate: 800Gbps is not divisible"),
        ("[fabric]\nnics = 8\nhosts_per_to = 4\n", "did you mean hosts_per_t0?"),
        ("[fabric]\nnics = 8\nhosts_per_t0 = 4\nnic_rate = 800\n", "has no unit"),
        ("[traffic]\n", "no [fabric] table"),
        ("[fabric\n", "is not TOML"),
    ],
)
def test_refusals_exit_with_2_and_name_the_file(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "bad.toml"
    scenario.write_text(text)
    assert exit_of(monkeypatch, str(scenario)) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert "bad.toml" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments", [[], ["--preset", "meta"], ["no-such-file.toml"], ["no-such-file.topo"]]
)
def test_other_mistakes_exit_with_2(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_of(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err
