"""Result files: whole or not at all, nothing else touched, read back equal."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from openmrc.errors import InputError
from openmrc.report import files
from openmrc.report.files import check_directory, load_result, write_results
from openmrc.report.result import Result
from report_samples import sample

NAMES = {"summary.json", "flows.parquet", "timeline.parquet", "report.html"}


@pytest.fixture(scope="module")
def result():
    return sample(bins=40)


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_writes_four_files_and_nothing_else(result, tmp_path):
    out = tmp_path / "deep" / "er" / "out"
    assert write_results(result, out) == out
    assert names(out) == NAMES
    assert names(out.parent) == {"out"}
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize(
    "options", [{}, {"status": "partial", "unfinished": 9, "failed": 1}, {"flows": 0, "bins": 0}]
)
def test_round_trip(options, tmp_path):
    written = sample(**options)
    written.write(tmp_path / "out")
    read = Result.load(tmp_path / "out")
    assert read.summary == written.summary
    assert read.flows.equals(written.flows)
    assert read.timeline.equals(written.timeline)
    assert repr(read) == repr(written)


def test_parquet_carries_units_and_the_run(result, tmp_path):
    write_results(result, tmp_path / "out")
    schema = pq.read_schema(tmp_path / "out" / "flows.parquet")
    assert schema.field("start_ps").metadata[b"unit"] == b"ps"
    assert schema.field("size_bytes").metadata[b"unit"] == b"B"
    about = json.loads(schema.metadata[b"openmrc"])
    assert about["digest"] == result.summary["digest"]
    assert about["seed"] == 7
    timeline = pq.read_schema(tmp_path / "out" / "timeline.parquet")
    assert timeline.field("plane3_gbps").metadata[b"unit"] == b"Gb/s"


def test_same_result_same_bytes(result, tmp_path):
    for name in ("a", "b"):
        write_results(result, tmp_path / name)
    for name in NAMES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_existing_directory_is_refused_without_force(result, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(InputError, match="exists already; choose another --out, or add --force"):
        write_results(result, out)
    with pytest.raises(InputError, match="--force"):
        check_directory(out)
    assert names(out) == set()


def test_force_replaces_only_our_files(result, tmp_path):
    out = tmp_path / "out"
    write_results(result, out)
    (out / "notes.txt").write_text("mine")
    (out / "report.html").write_text("old")
    (out / "sub").mkdir()
    other = sample(seed=9, bins=10)
    write_results(other, out, force=True)
    assert names(out) == NAMES | {"notes.txt", "sub"}
    assert (out / "notes.txt").read_text() == "mine"
    assert load_result(out).summary == other.summary
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert names(tmp_path) == {"out"}


def test_force_through_a_link_keeps_the_link(result, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_results(result, tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == NAMES


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(result, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "summary.json").symlink_to(victim)
    write_results(result, tmp_path / "out", force=True)
    assert victim.read_text() == "keep"
    assert not (tmp_path / "out" / "summary.json").is_symlink()


def test_places_that_cannot_be_used(result, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "full" / "summary.json").mkdir(parents=True)
    for place, message in [
        ("file", "is not a directory"),
        ("file/out", "cannot be written"),
        ("dangling", "symbolic link to nothing"),
        ("full", "is a directory where a result file must go"),
    ]:
        with pytest.raises(InputError, match=message):
            write_results(result, tmp_path / place, force=True)


@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("force", [False, True])
def test_nothing_half_written_stays(result, tmp_path, monkeypatch, stop, force):
    out = tmp_path / "out"
    if force:
        write_results(result, out)
        before = {name: (out / name).read_bytes() for name in NAMES}

    def fail(_result):
        raise stop

    monkeypatch.setattr(files, "render_html", fail)
    expected = InputError if isinstance(stop, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="No space left" if isinstance(stop, OSError) else None):
        write_results(sample(seed=9, bins=5), out, force=force)
    if force:
        assert {name: (out / name).read_bytes() for name in NAMES} == before
        assert names(tmp_path) == {"out"}
    else:
        assert names(tmp_path) == set()


def test_directory_that_appears_during_the_run_is_not_overwritten(result, tmp_path, monkeypatch):
    out = tmp_path / "out"
    render = files.render_html

    def meanwhile(value):
        out.mkdir()
        (out / "theirs").write_text("x")
        return render(value)

    monkeypatch.setattr(files, "render_html", meanwhile)
    with pytest.raises(InputError, match="was created by someone else"):
        write_results(result, out)
    assert names(out) == {"theirs"}


def test_load_says_what_is_wrong(result, tmp_path):
    with pytest.raises(InputError, match="no such directory"):
        load_result(tmp_path / "nothing")
    out = write_results(result, tmp_path / "out")
    good = (out / "summary.json").read_text()

    def refuse(text: str, message: str) -> None:
        (out / "summary.json").write_text(text)
        with pytest.raises(InputError, match=message):
            load_result(out)

    refuse("{", "cannot be read as JSON")
    refuse("[]", "schema None")
    refuse(good.replace('"schema": 1', '"schema": 2'), "schema 2, this openmrc reads schema 1")
    refuse(good.replace('"seed": 7', '"seed": -7'), "seed: ")
    refuse(good.replace("5f3a", "5f3b"), "belongs to another run")
    refuse(good.replace('"total": 64', '"total": 65'), "flows has 64 rows")
    (out / "summary.json").write_text(good)
    (out / "flows.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        load_result(out)
    (out / "timeline.parquet").unlink()
    with pytest.raises(InputError, match=r"has no timeline\.parquet"):
        load_result(out)
