"""The four result files of a run: written whole or not at all, read back with checks.

``summary.json``, ``flows.parquet``, ``timeline.parquet`` and ``report.html`` are first written to
a temporary directory beside the target, then moved. Units and descriptions of the columns stand in
the Parquet fields' metadata; each file names the run's digest, so files of two runs are not mixed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from openmrc.errors import InputError
from openmrc.report.html import render_html
from openmrc.report.result import Result
from openmrc.report.summary_model import Summary

SUMMARY, FLOWS, TIMELINE, REPORT = "summary.json", "flows.parquet", "timeline.parquet", "report.html"
#: in the order they are moved; the report last, for it is what people open
RESULT_FILES = (FLOWS, TIMELINE, SUMMARY, REPORT)
_METADATA_KEY = b"openmrc"


def check_directory(directory: str | Path, force: bool = False) -> Path:
    """Check that results can be written to ``directory``; call it before a long run.

    Raises
    ------
    InputError
        When it exists and ``force`` is not given, when it is not a directory, or when its parent
        cannot be written.
    """
    path = Path(directory)
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path}: a symbolic link to nothing; remove it or choose another --out")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: exists and is not a directory; choose another --out")
    if path.exists() and not force:
        raise InputError(
            f"{path}: exists already; choose another --out, or add --force to replace the result files in it"
        )
    for name in RESULT_FILES if path.exists() else ():
        if (path / name).is_dir() and not (path / name).is_symlink():
            raise InputError(
                f"{path / name}: is a directory where a result file must go; choose another --out"
            )
    # the nearest folder that exists is where something must be created
    base = path if path.exists() else next(parent for parent in path.absolute().parents if parent.exists())
    if not base.is_dir() or not os.access(base, os.W_OK | os.X_OK):
        raise InputError(f"{base}: cannot be written; choose another --out")
    return path


def write_results(result: Result, directory: str | Path, force: bool = False) -> Path:
    """Write the four result files of ``result``.

    Parameters
    ----------
    directory
        Created, with its parents. An existing one is refused without ``force``.
    force
        Replace the four files in an existing directory; nothing else in it is touched.

    Returns
    -------
    pathlib.Path
        The directory.

    Raises
    ------
    InputError
        When the directory is refused or cannot be written; nothing half-written stays behind.
    """
    path = check_directory(directory, force)
    try:
        # beside the real directory, also when `path` is a link to it: renames stay on one file system
        target = path.resolve() if path.exists() else path.absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(
            tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=_scratch_parent(target))
        )
        try:
            _write_files(result, scratch)
            _move(scratch, target, force)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror or error}; choose another --out"
        ) from error
    return path


def _scratch_parent(target: Path) -> Path:
    if target.exists() and not os.access(target.parent, os.W_OK | os.X_OK):
        return target
    return target.parent


def _write_files(result: Result, folder: Path) -> None:
    text = json.dumps(result.summary, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
    for name, table in ((FLOWS, result.flows), (TIMELINE, result.timeline)):
        about = {
            key: result.summary[key] for key in ("schema", "scenario", "seed", "version", "digest", "status")
        }
        table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(about)})
        pq.write_table(table, folder / name, compression="zstd")
    (folder / REPORT).write_text(render_html(result), encoding="utf-8")


def _move(scratch: Path, target: Path, force: bool) -> None:
    if not target.exists():
        # mkdtemp made it private; a result directory follows the user's umask like any other
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o777 & ~umask)
        scratch.rename(target)
        return
    if not force:
        raise InputError(f"{target}: was created by someone else during the run; choose another --out")
    for name in RESULT_FILES:
        os.replace(scratch / name, target / name)


def load_result(directory: str | Path) -> Result:
    """Read the result that :func:`write_results` wrote to ``directory``.

    Raises
    ------
    InputError
        When a file is missing, is not what openmrc writes, or belongs to another run.
    """
    path = Path(directory)
    if not path.is_dir():
        raise InputError(f"{path}: no such directory; give the one that `mrc run --out` wrote")
    for name in (SUMMARY, FLOWS, TIMELINE):
        if not (path / name).is_file():
            raise InputError(f"{path}: has no {name}; give the directory that `mrc run --out` wrote")
    summary = _read_summary(path / SUMMARY)
    flows, timeline = (_read_table(path / name, summary["digest"]) for name in (FLOWS, TIMELINE))
    try:
        return Result(summary, flows, timeline)
    except ValueError as error:
        raise InputError(f"{path}: {_first_problem(error)}; run the scenario again with --force") from error


def _read_summary(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file}: cannot be read as JSON ({error}); run the scenario again with --force"
        ) from error
    version = content.get("schema") if isinstance(content, dict) else None
    if version != 1:
        raise InputError(
            f"{file}: schema {version!r}, this openmrc reads schema 1; use the openmrc that wrote it"
        )
    try:
        return Summary.model_validate(content).to_dict()
    except ValidationError as error:
        raise InputError(f"{file}: {_first_problem(error)}; run the scenario again with --force") from error


def _read_table(file: Path, digest: str) -> pa.Table:
    try:
        table = pq.read_table(file)
        about = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, b"{}"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as Parquet; run the scenario again with --force") from error
    if about.get("digest") != digest:
        raise InputError(
            f"{file}: belongs to another run than {SUMMARY}; run the scenario again with --force"
        )
    return table


def _first_problem(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        return f"{where}: {problem['msg']}" if where else problem["msg"]
    return str(error)
