"""The documentation tells the truth: generated parts are current, links lead somewhere, snippets run."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest

import openmrc
from openmrc.cli import main
from openmrc.scenario import load_scenario

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [page.relative_to(ROOT).as_posix() for page in PAGES]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: wire has a doctest module of its own
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(openmrc.__path__, "openmrc.")
    if not name.startswith("openmrc.wire") and not name.endswith("__main__")
]


def blocks(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.fixture
def playground(tmp_path, monkeypatch):
    """An empty folder with the examples in it, as the pages assume."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_generated_parts_are_current(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    docs = importlib.import_module("docs")
    stale = [path.relative_to(ROOT).as_posix() for path in docs.stale()]
    assert stale == [], "run: python tools/docs.py"


def test_the_diagram_shows_the_table():
    from openmrc.transport.ev_states import TRANSITIONS

    page = (ROOT / "docs/explanation/how-the-engine-works.md").read_text(encoding="utf-8")
    arrows = re.findall(r"^    (\w+) --> (\w+): (\w+)", page, re.MULTILINE)
    assert set(arrows) == {(s.name, after.name, e.name) for (s, e), (after, _) in TRANSITIONS.items()}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


def test_every_page_is_in_the_index():
    index = ROOT / "docs/README.md"
    listed = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    assert {page.resolve() for page in PAGES[1:] if page != index} <= listed


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_snippets_run(page, playground, monkeypatch):
    """TOML is valid, shell lines that begin with mrc succeed, Python runs; in the order of the page."""
    space: dict[str, object] = {}
    for language, text in blocks(page):
        if language == "toml":
            first = text.splitlines()[0].lstrip("# ")
            name = first if first.endswith(".toml") else "snippet.toml"
            (playground / name).write_text(text, encoding="utf-8")
            check_toml(text, playground)
        elif language == "sh":
            for line in text.splitlines():
                if line.startswith("mrc "):
                    run_line(line, monkeypatch)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, page.name, "exec"), space)
            assert out.getvalue() or "print" not in text


def check_toml(text: str, folder: Path) -> None:
    """Check a scenario, or the part of one; what it leaves out is filled in."""
    import tomllib

    data = tomllib.loads(text)
    if isinstance(data["fabric"], str):
        for file in (ROOT / "examples/data/htsim").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    data.setdefault("traffic", [{"pattern": "send", "pairs": [[0, 1]], "size": "1MB"}])
    here = folder / "checked.toml"
    here.write_text(
        text
        if "traffic" in text
        else f"{text}\n[[traffic]]\npattern = 'send'\npairs = [[0, 1]]\nsize = '1MB'\n"
    )
    load_scenario(here)


def run_line(line: str, monkeypatch) -> None:
    """Run one command of a page; it must succeed."""
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    code: object = 0
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert not code, f"{line}: {err.getvalue()}"
    assert out.getvalue() or "--quiet" in line, line


def test_ci_runs_what_the_readme_says():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    shell = [text.strip() for language, text in blocks(ROOT / "README.md") if language == "sh"]
    assert len(shell) == 2
    assert "pip install . && .venv/bin/mrc run examples/link-flap.toml" in shell[0]
    assert "pytest" in shell[1]
    for command in shell:
        assert command in readme
        assert command in script, f".ci/run does not call: {command}"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_public_names_have_an_example():
    for name in ("run", "load_scenario", "Result"):
        assert ">>>" in (getattr(openmrc, name).__doc__ or ""), name
