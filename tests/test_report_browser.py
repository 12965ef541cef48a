"""The HTML report in a real browser: no console errors, plots drawn, nothing wider than a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from report_samples import FAULTS, sample

CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on PATH (CI installs it)")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]
#: reports from inside a frame how wide the page became and which plots hold drawn traces
PROBE = """<script>
(function wait() {
  if (!document.documentElement.dataset.ready) return setTimeout(wait, 50);
  const drawn = [...document.querySelectorAll(".plot:has(.trace path)")];
  parent.postMessage([document.documentElement.scrollWidth, innerWidth, drawn.length].join(" "), "*");
})();
</script></body>"""
FRAME = """<body><iframe src="phone.html" style="width:360px;height:900px;border:0"></iframe><script>
addEventListener("message", (e) => { document.body.dataset.seen = e.data; });</script></body>"""


def browse(page: Path, tmp_path: Path, *flags: str) -> tuple[str, list[str]]:
    """Return the document after its scripts ran, and what they wrote to the console."""
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=8000",
        *flags,
    ]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=90, check=True
    )
    return done.stdout, re.findall(r":CONSOLE[:(]\d+\)?\] (.*)", done.stderr)


def test_the_console_is_heard(tmp_path):
    page = tmp_path / "broken.html"
    page.write_text("<script>undefinedFunction()</script>")
    _, console = browse(page, tmp_path)
    assert any("undefinedFunction" in line for line in console)


def test_report_draws_every_plot_without_errors(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(sample().to_html(), encoding="utf-8")
    shot = tmp_path / "shot.png"
    document, console = browse(page, tmp_path, f"--screenshot={shot}", "--window-size=1000,1400")
    assert console == []
    assert 'data-theme="light"' in document
    assert 'data-ready="8"' in document
    plots = re.split(r'<div class="plot[^"]*" id="plot-', document)[1:]
    assert len(plots) == 8
    for plot in plots:
        assert re.search(r'class="(trace scatter|points|trace bars)', plot), plot[:40]
        assert "main-svg" in plot
    # a blank page of this size compresses to less than 10 kB
    assert shot.stat().st_size > 60_000


def test_phone_width_with_hostile_names(tmp_path):
    name = "</script><b onload=x>" + "long-name-without-a-space" * 6
    result = sample(
        scenario=name, command=name, notes=[name], faults=[{**FAULTS[0], "id": name, "element": name}]
    )
    page = tmp_path / "phone.html"
    page.write_text(result.to_html().replace("</body>", PROBE), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME)
    document, console = browse(frame, tmp_path)
    assert console == []
    seen = re.search(r'data-seen="(\d+) (\d+) (\d+)"', document)
    assert seen, "the page did not become ready"
    width, screen, drawn = map(int, seen.groups())
    assert screen == 360
    assert width <= screen
    assert drawn == 8
