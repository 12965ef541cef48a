"""The terminal report: every promised figure, 100 columns, no colour codes in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from openmrc.report.table import WIDTH, bar, print_report, report_text
from report_samples import FAULTS, sample

LONG = [
    {
        **FAULTS[0],
        "id": "a-rather-long-name-of-a-fault",
        "element": "plane7/T0-511/T1-255+plane7/T0-511/T1-254+plane7/x",
    },
    *FAULTS[1:],
]
CASES = {
    "full": {},
    "partial": {"status": "partial", "unfinished": 20, "failed": 3},
    "empty": {"flows": 0, "bins": 0, "planes": 0, "faults": []},
    "many": {"flows": 131_072, "faults": [{**FAULTS[0], "id": i} for i in range(60)]},
    "long": {"faults": LONG, "scenario": "s" * 140, "fabric": "f " * 90},
}


@pytest.fixture(scope="module")
def texts():
    return {name: report_text(sample(**options), "results/link-flap") for name, options in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_fits_the_width_without_colour_codes(texts, case):
    assert max(len(line) for line in texts[case].splitlines()) <= WIDTH
    assert "\x1b" not in texts[case]


def test_every_figure_is_there_with_its_unit(texts):
    text = " ".join(texts["full"].split())
    summary = sample().summary
    for part in [
        "link-flap seed 7 openmrc 0.1.0 complete",
        "8 planes x 100 Gb/s, 64 NICs",
        "mrc run examples/link-flap.toml --seed 7",
        "64 of 64 completed, 0 failed",
        f"mean {summary['fct_us']['mean']:.1f} us",
        f"P50 {summary['fct_us']['p50']:.1f} us",
        f"P99 {summary['fct_us']['p99']:.1f} us",
        f"P99.9 {summary['fct_us']['p999']:.1f} us",
        f"P100 {summary['fct_us']['p100']:.1f} us",
        "ideal 181.4 us",
        f"ratio {summary['p100_over_ideal']:.3f}",
        "716.2 Gb/s per NIC = 93.1 % of the 769.0 Gb/s line-rate ceiling",
        "plane 2, link plane2/T0-3/T1-17, EV 0x2C011",
        "27 retransmissions",
        "250,048 sent",
        "retransmitted (0.10 %)",
        "31 trimmed",
        "4,021 ECN-marked",
        "264: 203 link down, 61 grey",
        "2 timeouts",
        "104 retired, 60 recovered, 104 backups promoted, 1 retired wrongly",
        "T0 to NIC 205 kB",
        "40.0 us +4.10 us +15.9 us 2.0 203 +55.0 us +81.3 us",
        "1,000,192 data + 268,000 control packet-hops at 15.2 M hops/s",
        "212 MB peak memory",
        "5f3a" * 16,
        "results/link-flap/report.html",
        "summary.json, flows.parquet, timeline.parquet",
        "port model fast",
    ]:
        assert part in text, part


def test_partial_is_plain(texts):
    text = " ".join(texts["partial"].split())
    assert "PARTIAL RESULT: interrupted at 200.0 us simulated time" in text
    assert "41 of 64 completed, 3 failed, 20 unfinished" in text
    assert "not reached" in text
    assert "PARTIAL" not in texts["full"]


def test_no_flows(texts):
    assert "The scenario has no flows" in texts["empty"]
    assert "no flow completed" in texts["empty"]
    assert "Faults none" in " ".join(texts["empty"].split())


def test_many_faults_are_cut_and_said_so(texts):
    assert "... and 35 more in summary.json and report.html" in texts["many"]
    assert "131,072 of 131,072" in texts["many"]


def test_names_are_not_read_as_markup():
    text = report_text(sample(scenario="[bold]x[/]", faults=[{**FAULTS[0], "element": "[red]link[/red]"}]))
    assert "[bold]x[/]" in text
    assert "[red]link[/red]" in text


def test_terminal_gets_colour_and_ascii_output_has_no_block_characters():
    colour = io.StringIO()
    print_report(sample(), Console(file=colour, force_terminal=True, color_system="standard", width=100))
    assert "\x1b[" in colour.getvalue()
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    print_report(sample(), Console(file=raw, width=100, color_system=None))
    raw.flush()
    text = raw.buffer.getvalue().decode("ascii")
    assert "####" in text
    assert "plane 7" in text


def test_default_console_is_standard_output(capsys):
    sample().print()
    assert "link-flap" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "largest", "expected"),
    [(0, 4, ""), (1, 0, ""), (4, 4, "████"), (2, 4, "██"), (1.5, 4, "█▌"), (1e-9, 4, "▏")],
)
def test_bar(value, largest, expected):
    assert bar(value, largest, width=4) == expected
