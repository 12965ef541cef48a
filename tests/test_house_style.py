"""Rules of the house that a script can check: sizes, PSNs, durations, leftovers, references to pages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OTHERS = [*sorted((ROOT / "tests").glob("*.py")), *sorted((ROOT / "tools").glob("*.py"))]
IDS = [path.relative_to(ROOT / "src/openmrc").as_posix() for path in SOURCES]
MAX_FILE_LINES = 650
MAX_FUNCTION_LINES = 80  # without the docstring; the aim is 60
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(node: ast.expr) -> str:
    """Return what an expression is called: a name, an attribute, or the key of a row."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.Call) and len(node.args) == 1:  # np.int64(row["una_psn"])
        return name_of(node.args[0])
    return ""


def ordered_psns(module: ast.Module) -> list[int]:
    """Return the lines that compare a PSN with < or >."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Compare) and any(isinstance(op, ORDERINGS) for op in node.ops):
            names = [name_of(operand) for operand in (node.left, *node.comparators)]
            if any(re.search(r"(^|_)psn$", name) for name in names):
                found.append(node.lineno)
    return found


def float_durations(module: ast.Module) -> list[int]:
    """Return the lines that declare a float of picoseconds or give one a float."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation is not None:
            name = node.arg if isinstance(node, ast.arg) else name_of(node.target)
            if name.endswith("_ps") and "float" in ast.unparse(node.annotation):
                found.append(node.lineno)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            is_float = isinstance(node.value.value, float)
            if is_float and any(name_of(target).lower().endswith("_ps") for target in node.targets):
                found.append(node.lineno)
    return found


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many lines a function has, its docstring left out."""
    first = function.body[0]
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_sizes(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert body_lines(node) <= MAX_FUNCTION_LINES, f"{node.name} is too long"


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_psns_are_compared_in_serial_arithmetic(path):
    if path.name != "psn.py":
        assert ordered_psns(tree(path)) == []


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_durations_are_integers(path):
    assert float_durations(tree(path)) == []


def test_the_rules_see_what_they_look_for():
    bad = ast.parse(
        "if psn > high:\n    a = np.int64(req['una_psn']) < 3\nwait_ps = 1.5\ndef f(x_ps: float): ..."
    )
    assert ordered_psns(bad) == [1, 2]
    assert float_durations(bad) == [3, 4]
    good = ast.parse("if psn_after(psn, high) and window_psns > 4 and psn == 3:\n    wait_ps = 2")
    assert ordered_psns(good) == float_durations(good) == []


@pytest.mark.parametrize("path", [*SOURCES, *OTHERS], ids=lambda p: p.name)
def test_nothing_is_left_over(path):
    text = path.read_text(encoding="utf-8")
    found = re.search(r"\b(TO[D]O|FIX[M]E|XX[X]|T[B]D)\b|\bbreakpoint[(]", text)
    assert found is None, found
    assert not re.search(r"(?<![\w.:])/(home|root|Users|work)/\w", text), "a path of one machine"


@pytest.mark.parametrize("path", [*SOURCES, *OTHERS], ids=lambda p: p.name)
def test_pages_that_are_named_exist(path):
    pages = {page.name for page in (ROOT / "docs").rglob("*.md")} | {page.name for page in ROOT.glob("*.md")}
    named = set(re.findall(r"\b([\w-]+\.md)\b", path.read_text(encoding="utf-8")))
    assert named <= pages


def test_machine_code_follows_every_constant():
    """The key of the kernels' cache covers each file that a file with kernels imports from."""
    from openmrc import jit

    root = ROOT / "src/openmrc"
    covered = {path.relative_to(Path(jit.__file__).parent).as_posix() for path in jit.kernel_sources()}
    assert {"transport/state.py", "transport/ev_states.py", "sim/layout.py", "limits.py"} <= covered
    for name in covered:
        for node in ast.walk(tree(root / name)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("openmrc."):
                file = f"{(node.module or '').removeprefix('openmrc.').replace('.', '/')}.py"
                if file.split("/")[0] in jit.KERNEL_PACKAGES and (root / file).exists():
                    assert file in covered, f"{name} imports {file}"
