"""Turns pydantic's errors into ours: the dotted key, what is wrong, the limit and the remedy."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from openmrc.scenario.problems import did_you_mean
from openmrc.scenario.traffic import PATTERNS

#: value types as a TOML author knows them
_TYPE_REMEDY = {
    "int": "a whole number, e.g. 8",
    "float": "a number, e.g. 0.5",
    "bool": "true or false",
    "string": 'text in quotes, e.g. "name"',
    "dict": "a table",
    "list": "a list, e.g. [1, 2]",
    "tuple": "a list, e.g. [1, 2]",
    "model": "a table",
}


def keys_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return key -> field of a model, by the names a file uses."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def nested_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an annotation such as ``Model | None``, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return next(filter(None, map(nested_model, get_args(annotation))), None)
    return None


def explain(error: ValidationError, model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, message) of every error of a section of a scenario.

    Parameters
    ----------
    error : ValidationError
    model : type
        Model that the section was checked against.
    prefix : str
        Dotted key of the section, e.g. ``traffic.0``.
    """
    for detail in error.errors(include_url=False):
        loc = tuple(str(part) for part in detail["loc"])
        yield ".".join((prefix, *loc)).strip("."), _message(detail, loc, model, prefix)


def _message(detail: Any, loc: tuple[str, ...], model: type[BaseModel], prefix: str) -> str:
    kind: str = detail["type"]
    context: dict[str, Any] = detail.get("ctx") or {}
    value = _short(detail["input"])
    if kind == "extra_forbidden":
        return unknown_key(loc[-1], _model_at(model, loc[:-1]) or model, prefix)
    if kind == "missing":
        field = keys_of(_model_at(model, loc[:-1]) or model)[loc[-1]]
        return f"missing; add it, e.g. {loc[-1]} = {example_of(field)}  ({field.description})"
    if kind == "value_error":
        return str(context.get("error", detail["msg"]))
    if kind in ("literal_error", "enum"):
        expected = context["expected"].replace(" or ", ", ")
        hint = did_you_mean(str(detail["input"]), [e.strip("'") for e in expected.split(", ")])
        return f"{value} is not possible; " + (f"{hint} " if hint else "") + f"use one of {expected}"
    for suffix, word in (("less_than_equal", "at most"), ("greater_than_equal", "at least")):
        if kind == suffix:
            return f"{value} is out of range; use {word} {context.get('le', context.get('ge'))}"
    if kind in ("less_than", "greater_than"):
        word = "less" if kind == "less_than" else "more"
        return f"{value} is out of range; use {word} than {context.get('lt', context.get('gt'))}"
    if kind.startswith(("string_too", "too_")):
        return f"{value}: {detail['msg'][0].lower()}{detail['msg'][1:]}; change its length"
    for name, remedy in _TYPE_REMEDY.items():
        if kind.startswith(name + "_"):
            return f"{value} has the wrong type; write {remedy}"
    return f"{value}: {detail['msg'][0].lower()}{detail['msg'][1:]}; see docs/reference/scenario.md"


def unknown_key(key: str, model: type[BaseModel], prefix: str) -> str:
    """Return what to say about a key that a table does not have."""
    known = keys_of(model)
    if prefix.startswith("traffic"):
        owners = [p for p, m in PATTERNS.items() if key in m.model_fields]
        if owners:
            return f"has no effect on this pattern (it belongs to {', '.join(owners)}); remove it"
    hint = did_you_mean(key, known)
    return f"unknown key; {hint or 'keys here: ' + ', '.join(known)}"


def example_of(field: Any) -> str:
    """Return an example of a field's value in TOML."""
    extra = next((m for m in field.metadata if hasattr(m, "json_schema")), None)
    examples = (extra.json_schema or {}).get("examples") if extra else field.examples
    if examples:
        return toml_value(examples[0])
    if isinstance(field.annotation, type) and issubclass(field.annotation, int):
        return "0"
    arguments = get_args(field.annotation)
    return toml_value(arguments[0]) if arguments and isinstance(arguments[0], str) else '"..."'


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it.

    >>> toml_value(True), toml_value("2MB"), toml_value([[0, 5]])
    ('true', '"2MB"', '[[0, 5]]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + "}"
    return str(value)


def _short(value: Any) -> str:
    text = toml_value(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _model_at(model: type[BaseModel], loc: tuple[str, ...]) -> type[BaseModel] | None:
    at: type[BaseModel] | None = model
    for part in loc:
        field = keys_of(at).get(part) if at is not None else None
        at = nested_model(field.annotation) if field is not None else None
    return at
