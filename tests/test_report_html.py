"""The HTML report as a document: self-contained, escaped, every plot with its data."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from openmrc.report.figures import MAX_BINS, active_nics, all_figures, merge_bins, percentile_marks
from openmrc.report.html import plotly_script, render_html
from openmrc.report.marks import MAX_DRAWN, fault_marks, fault_note
from report_samples import FAULTS, sample, timeline_table

FIGURES = ["goodput", "fct-cdf", "fct-tail", "plane-bytes", "plane-rates", "ev-states", "queues", "losses"]
VOID = {"meta", "link", "br", "img", "input", "hr"}
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028&'\""


class Document(HTMLParser):
    """Collects what the tests ask about, and fails on elements that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def figures(self) -> dict:
        return json.loads(self.scripts[0])

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in attributes.items())]


CASES = {
    "full": {},
    "partial": {"status": "partial", "unfinished": 20, "failed": 3},
    "empty": {"flows": 0, "bins": 0, "planes": 0, "faults": []},
    "no_timeline": {"bins": 0},
    "one_flow": {"flows": 1, "planes": 1, "bins": 1},
    "many_faults": {"faults": [{**FAULTS[0], "id": i, "at_us": i / 4} for i in range(700)]},
    "hostile": {
        "scenario": HOSTILE,
        "command": HOSTILE,
        "notes": [HOSTILE],
        "settings": {HOSTILE: HOSTILE},
        "queues": {HOSTILE: 3},
        "faults": [{**FAULTS[0], "id": HOSTILE, "element": HOSTILE, "kind": HOSTILE}],
    },
}


@pytest.fixture(scope="module")
def documents():
    return {name: Document(render_html(sample(**options))) for name, options in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_loads_nothing(documents, case):
    document = documents[case]
    for tag, attributes in document.elements:
        assert tag not in {"iframe", "object", "embed", "base", "form", "img"}
        for name in ("src", "href", "action", "srcset", "poster", "data", "background"):
            value = attributes.get(name)
            assert value is None or value == "data:," or value.startswith("#"), (tag, name, value)
    (policy,) = document.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert "default-src 'none'" in policy["content"]
    assert not re.search(r"url\(|@import", render_html(sample(bins=1)).split("</style>")[0])


@pytest.mark.parametrize("case", CASES)
def test_plots_of_the_page_are_those_with_data(documents, case):
    document = documents[case]
    ids = [a["data-figure"] for a in document.all("div", **{"class": "plot"})]
    figures = document.figures()
    assert sorted(ids) == sorted(figures)
    for figure in figures.values():
        assert figure["data"]
        for trace in figure["data"]:
            assert len(trace["x"]) == len(trace["y"]) > 0
        for axis in ("xaxis", "yaxis"):
            assert figure["layout"][axis]["title"]["text"]


def test_which_plots_there_are(documents):
    assert sorted(documents["full"].figures()) == sorted(FIGURES)
    assert sorted(documents["no_timeline"].figures()) == ["fct-cdf", "fct-tail", "plane-bytes"]
    assert documents["empty"].figures() == {}
    assert "No timeline was recorded" in documents["empty"].text
    assert "No flow completed" in documents["empty"].text


def test_axes_name_their_units(documents):
    figures = documents["full"].figures()
    titles = {
        (name, axis): f["layout"][axis]["title"]["text"]
        for name, f in figures.items()
        for axis in ("xaxis", "yaxis")
    }
    assert titles["goodput", "xaxis"] == "simulated time (µs)"
    assert titles["goodput", "yaxis"] == "goodput (Tb/s)"
    assert titles["fct-cdf", "xaxis"] == "flow completion time (µs)"
    assert titles["plane-bytes", "yaxis"] == "data sent (GB)"
    assert titles["queues", "yaxis"] == "queue (kB)"


def test_plots_have_titles_and_a_text_for_who_cannot_see_them(documents):
    document = documents["full"]
    labels = [a["aria-label"] for a in document.all("div", **{"class": "plot"})]
    assert len(labels) == len(FIGURES)
    assert all(len(label) > 40 and re.search(r"\d", label) for label in labels)
    ids = {a["id"] for _, a in document.elements if "id" in a}
    referenced = {a["aria-labelledby"] for _, a in document.elements if "aria-labelledby" in a}
    assert referenced <= ids
    assert len(ids) == sum("id" in a for _, a in document.elements)


def test_what_made_it_is_said(documents):
    text = documents["full"].text
    for part in (
        "mrc run examples/link-flap.toml --seed 7",
        "Seed 7",
        "openmrc 0.1.0",
        "5f3a" * 16,
        "8 planes x 100 Gb/s",
    ):
        assert part in text


def test_figures_of_the_run_are_said(documents):
    text, summary = documents["full"].text, sample().summary
    for part in (
        "All 64 flows completed through 3 faults",
        f"{summary['fct_us']['p100']:.1f} µs",
        f"{summary['p100_over_ideal']:.3f} × the ideal",
        "716.2 Gb/s",
        "93.1 % of the 769.0 Gb/s ceiling",
        "plane2/T0-3/T1-17",
        "+15.9 µs",
        "EV 0x2C011",
        "fabric.nic_rate",
    ):
        assert part in text, part
    assert not re.search(r"\d us\b", text)


def test_partial_is_plain(documents):
    assert "Partial result." in documents["partial"].text
    assert "Partial result." not in documents["full"].text
    assert documents["partial"].all("span", **{"class": "pill warn"})


def test_hostile_names_stay_text(documents):
    document = documents["hostile"]
    assert len(document.scripts) == 3
    assert "onerror=alert(1)" in document.text
    assert document.text.count("<img src=x") >= 5
    plot = document.figures()["goodput"]
    assert "<" not in plot["layout"]["annotations"][0]["text"]
    assert "<img" not in plot["layout"]["annotations"][0]["hovertext"]


def test_plotly_is_whole_and_cannot_end_its_script_element():
    assert len(plotly_script()) > 1_000_000
    assert "</script" not in plotly_script().lower()


def test_same_result_same_bytes():
    assert render_html(sample(bins=20)) == render_html(sample(bins=20))


def test_faults_are_drawn_and_long_lists_cut(documents):
    shapes = documents["full"].figures()["goodput"]["layout"]["shapes"]
    lines = [s["x0"] for s in shapes if s["type"] == "line" and s["line"]["dash"] == "solid"]
    assert lines == [40.0, 70.0, 130.0]
    back = [s["x0"] for s in shapes if s["type"] == "line" and s["line"]["dash"] == "dot"]
    assert back == [121.3]
    spans = [(s["x0"], s["x1"]) for s in shapes if s["type"] == "rect"]
    assert spans == [(40.0, 95.0), (40.0, 55.9), (70.0, 200.0), (70.0, 91.0), (130.0, 150.0)]
    assert "200 more in summary.json" in documents["many_faults"].text


def test_fault_labels_never_overlap_and_unseen_faults_are_not_drawn():
    faults = [{**FAULTS[0], "id": i, "at_us": float(i)} for i in range(400)]
    shapes, labels = fault_marks(faults, 300.0, (1.0, "us"))
    assert sum(shape["type"] == "line" for shape in shapes) == MAX_DRAWN
    assert (np.diff([label["x"] for label in labels]) >= 0.12 * 300).all()
    assert labels[0]["text"] == "F0 +35"
    assert "first 200 of 400" in fault_note(faults)
    late, none = fault_marks([{**FAULTS[0], "at_us": 301.0}], 300.0, (1.0, "us"))
    assert (late, none) == ([], [])
    assert fault_note([]) == "No faults in this run."


def test_full_scale_stays_small_and_keeps_the_tail_exact():
    big = sample(flows=131_072, bins=4_000)
    figures = all_figures(big)
    tail = figures["fct-tail"].data[0]
    slowest = np.sort(big.completed_fct_us())[-2000:]
    assert len(tail["x"]) <= 3_000
    np.testing.assert_allclose(tail["x"][-2000:], slowest, rtol=1e-5)
    assert tail["y"][-1] == pytest.approx(100 / 131_072, rel=1e-4)
    assert tail["y"][0] == 100
    assert max(len(trace["x"]) for figure in figures.values() for trace in figure.data) <= 3_001
    assert len(render_html(big)) - len(plotly_script()) < 1_500_000


def test_marks_lie_on_the_tail():
    result = sample(flows=5_000)
    tail = all_figures(result)["fct-tail"].data
    curve = dict(zip(tail[0]["x"], tail[0]["y"], strict=True))
    for label, value, share in percentile_marks(result.summary["fct_us"], 5_000):
        if label in ("P99", "P99.9", "P100"):
            assert curve[float(f"{value:.6g}")] == pytest.approx(share, rel=1e-3)


def test_merged_bins_keep_bytes_peaks_and_events():
    table = timeline_table(4_000, 2, 8, seed=3)
    merged = merge_bins(table)
    assert merged is not None
    assert merged.merged == 3
    width = np.diff(merged.edge)
    assert width.size <= MAX_BINS
    column = {name: table[name].to_numpy() for name in table.column_names}
    for name in ("goodput_gbps", "plane1_gbps"):
        assert (merged.columns[name] * width).sum() == pytest.approx((column[name] * column["bin_us"]).sum())
    for name in ("retransmitted", "trimmed", "dropped", "ecn_marked"):
        assert merged.columns[name].sum() == column[name].sum()
    assert merged.columns["queue_max_bytes"].max() == column["queue_max_bytes"].max()
    assert merged.columns["evs_good"].min() == column["evs_good"].min()
    assert merged.lowest_goodput.min() == column["goodput_gbps"].min()


def test_bins_out_of_order_are_sorted_and_no_bins_are_none():
    table = timeline_table(50, 2, 8, seed=3)
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(50)))
    straight, sorted_again = merge_bins(table), merge_bins(shuffled)
    np.testing.assert_array_equal(straight.edge, sorted_again.edge)
    np.testing.assert_array_equal(straight.columns["goodput_gbps"], sorted_again.columns["goodput_gbps"])
    assert merge_bins(timeline_table(0, 2, 8, seed=3)) is None


def test_ceiling_counts_the_nics_that_can_be_busy():
    result = sample(flows=8)
    incast = result.flows.set_column(5, "dst", pa.array([0] * 8))
    assert active_nics(result) == 8
    assert active_nics(type(result)(result.summary, incast, result.timeline)) == 1
