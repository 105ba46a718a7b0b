"""The key that rows are grouped by: columns, or expressions.

A step before the grouping makes columns of expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.graph.build.stateless import build_with_columns
from millrace.topics import SYSTEM_COLUMNS
from millrace.values import expressions
from millrace.values.calls import short_repr
from millrace.values.key_hash import hash_series


def build_keys(
    source: graph.Node, columns: Sequence[Any], named: Mapping[str, Any]
) -> tuple[graph.Node, tuple[str, ...]]:
    """The rows with all columns of the key, and their names."""
    keys: list[str] = []
    computed: dict[str, pl.Expr] = {}
    for expr in _to_exprs(expressions.flatten(columns)):
        if expr.meta.is_column_selection():
            keys += _plain_columns(expr, source.schema)
        else:
            name = _name_of(expr, source.schema)
            keys.append(name)
            computed[name] = expr
    for name, expr in zip(named, _to_exprs(named.values()), strict=True):
        keys.append(_name_of(expr.alias(name), source.schema))
        computed[name] = expr
    if not keys:
        raise DefinitionError(
            "group_by() names no column, so there would be no key; name one, or leave group_by() out: "
            ".count(), .sum(column) and .aggregate(...) on the stream itself give one result per window"
        )
    if len(set(keys)) < len(keys):
        raise DefinitionError(f"group_by({', '.join(map(repr, keys))}) names a column twice; name each once")
    rows = build_with_columns(source, (), computed) if computed else source
    for key in keys:
        _check_hashable(key, rows.schema[key])
    return rows, tuple(keys)


def _check_hashable(key: str, dtype: pl.DataType) -> None:
    try:
        hash_series(pl.Series(key, [], dtype))
    except DefinitionError as error:
        raise DefinitionError(f"group_by({key!r}): {error}") from error


def _to_exprs(values: Iterable[Any]) -> list[pl.Expr]:
    exprs = []
    for value in values:
        if not isinstance(value, str | pl.Expr) and not hasattr(value, "otherwise"):
            raise DefinitionError(
                f"group_by({short_repr(value)}) needs columns; use their names, or expressions such as "
                "pl.col('speed') // 10"
            )
        exprs += expressions.to_expressions("group_by", [value])
    return exprs


def _plain_columns(expr: pl.Expr, schema: pl.Schema) -> list[str]:
    """The columns that a name or a selector stands for."""
    names = expressions.column_names("group_by", [expr], schema, SYSTEM_COLUMNS)
    for name in names:
        if name in SYSTEM_COLUMNS:
            raise DefinitionError(
                f"group_by({name!r}): results have a column {name!r} of their own; name the copy: "
                f"group_by(my_{name}=pl.col({name!r}))"
            )
    return list(names)


def _name_of(expr: pl.Expr, schema: pl.Schema) -> str:
    """The name of a column that an expression makes; refuses one that would mean something else, too."""
    _check_known(expr, schema)
    text = f"group_by({expr})"
    preview = graph.apply_to_no_rows(lambda frame: frame.select(expr), schema, text)
    expressions.check_elementwise(text, [expr], schema)
    if len(preview.columns) > 1:
        raise DefinitionError(f"{text} makes {len(preview.columns)} columns; write an expression for each")
    [name] = preview.columns
    if name in SYSTEM_COLUMNS:
        raise DefinitionError(
            f"{text} would be called {name!r}, and results have such a column of their own; name it: "
            "group_by(hour=...)"
        )
    if name in schema:
        raise DefinitionError(
            f"{text} would be called {name!r}, and the rows have such a column, so aggregates could mean "
            f"either; name it: group_by(my_{name}=...), or replace the column first: with_columns({name}=...)"
        )
    if name.startswith("_"):
        raise DefinitionError(
            f"{text} would be called {name!r}, and names that begin with an underscore are millrace's own; "
            "choose another"
        )
    return name


def _check_known(expr: pl.Expr, schema: pl.Schema) -> None:
    for column in expr.meta.root_names() if not expr.meta.has_multiple_outputs() else ():
        expressions.check_column(f"group_by({column!r})", column, schema)
