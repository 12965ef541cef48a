"""Every example in the wire package's docstrings runs, and every public thing there is documented."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import openmrc.wire

MODULES = ["openmrc.wire", *(f"openmrc.wire.{m.name}" for m in pkgutil.iter_modules(openmrc.wire.__path__))]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples():
    total = sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES)
    assert total > 50


def test_everything_exported_is_documented():
    for name in openmrc.wire.__all__:
        value = getattr(openmrc.wire, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
