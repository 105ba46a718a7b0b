"""Event types made from the columns of a stream, for topics that are declared without one.

    counts: line String, vehicles Int64       @dataclass
    written to "analytics.counts"      →      class AnalyticsCounts:
                                                  line: str | None
                                                  vehicles: int | None

A dataclass of this name with the same fields pins the type: its records are the same.
"""

from __future__ import annotations

import copyreg
import dataclasses
import keyword
import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import polars as pl

from millrace.errors import DefinitionError
from millrace.values import field_types

_REMEDIES: dict[Any, str] = {
    pl.Null: "it is always null, so its type is unknown; cast it, as with .cast(pl.String)",
    pl.Array: "make a list of it with .arr.to_list()",
    pl.Object: "convert it with map_elements and return_dtype=, or leave it out",
}


class _InferredMeta(type):
    """The class of inferred types: they are pickled as the columns that they are made of."""

    columns: tuple[tuple[str, pl.DataType], ...]


class _Inferred(metaclass=_InferredMeta):
    """The base of inferred types."""


def infer_type(topic: str, schema: Mapping[str, pl.DataType]) -> type:
    """The event type of a topic with these columns; the same one for the same name and columns."""
    for name, dtype in schema.items():
        _check_column(f"write({topic})", name, dtype)
    return _make_type(_class_name(topic), tuple(schema.items()))


@lru_cache(maxsize=512)
def _make_type(name: str, columns: tuple[tuple[str, pl.DataType], ...]) -> type:
    fields = [(column, _hint(name, column, dtype)) for column, dtype in columns]
    kind = dataclasses.make_dataclass(name, fields, bases=(_Inferred,), frozen=True)
    kind.columns = columns  # type: ignore[attr-defined] # declared by the metaclass
    kind.__module__ = __name__
    return kind


def _hint(owner: str, column: str, dtype: Any) -> Any:
    """The hint of a field. All but lists may be null, as an aggregate of nothing is, or what a join lacks."""
    if isinstance(dtype, pl.List):
        return list[_single_hint(owner, column, dtype.inner)]  # type: ignore[misc] # made at run time
    return _single_hint(owner, column, dtype) | None


def _single_hint(owner: str, column: str, dtype: Any) -> Any:
    if not isinstance(dtype, pl.Struct):
        return field_types.python_hint(dtype)
    members = tuple((field.name, field.dtype) for field in dtype.fields)
    return _make_type(f"{owner}{_class_name(column)}{_digest(members)}", members)


def _digest(columns: tuple[tuple[str, Any], ...]) -> str:
    """Part of the name of a nested type: the stored declaration of a topic has its name alone, and another
    type must have another one.
    """
    text = ", ".join(f"{name}: {dtype}" for name, dtype in columns)
    return blake2b(text.encode(), digest_size=3).hexdigest()


def _check_column(call: str, name: str, dtype: Any) -> None:
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise DefinitionError(
            f"{call}: the column {name!r} cannot be the name of a field; rename it: letters, digits and '_'"
        )
    if isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            _check_column(call, field.name, field.dtype)
        return
    if isinstance(dtype, pl.List) and not isinstance(dtype.inner, pl.List):
        _check_column(call, name, dtype.inner)
        return
    if isinstance(dtype, pl.List):
        raise DefinitionError(f"{call}: {name} is {dtype}; make a list of structs of it, or explode() it")
    if field_types.python_hint(dtype) is None:
        remedy = _REMEDIES.get(dtype.base_type()) or field_types.refusal(dtype) or "cast it before"
        raise DefinitionError(f"{call}: {name} is {dtype}, which no field can hold: {remedy}")


def _class_name(text: str) -> str:
    """`analytics.line-counts` becomes `AnalyticsLineCounts`."""
    words = re.split(r"[^0-9A-Za-z]+", text)
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else f"T{name}"


def _reduce(kind: _InferredMeta) -> str | tuple[Any, tuple[Any, ...]]:
    return kind.__qualname__ if kind is _Inferred else (_make_type, (kind.__name__, kind.columns))


copyreg.pickle(_InferredMeta, _reduce)
