"""Nodes of steps that look at each row by itself: filter, select, and the like.
Each is tried on no rows, so that its columns are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.errors import DefinitionError
from millrace.topics import SYSTEM_COLUMNS
from millrace.values import expressions, function_results
from millrace.values.calls import require_type
from millrace.values.columns import ALL_ROWS
from millrace.values.selections import Selection, make_selection

_CARRIED_COLUMNS = SYSTEM_COLUMNS | graph.INTERNAL_COLUMNS.keys()


def build_stateless(
    source: graph.Node,
    fn: Callable[[pl.DataFrame], pl.DataFrame],
    text: str,
    reads: frozenset[str] | None = None,
    kind: type[graph.Stateless] = graph.Stateless,
    changes: frozenset[str] | None = None,
    exprs: Iterable[pl.Expr] = (),
) -> graph.Stateless:
    """A function of columns; refuses one after which a row has no time,
    or a pane cannot be distinguished from others.
    """
    if changes is None or "event_time" in changes:
        fn = expressions.check_event_times(fn, text)
    schema = graph.derive_schema(fn, source.schema, text)
    if schema["event_time"] != pl.Int64:
        raise DefinitionError(
            f"{text} makes event_time {schema['event_time']}, and it counts whole milliseconds; say "
            "event_time=....dt.epoch('ms') for a datetime or a date, and .cast(pl.Int64) for a number"
        )
    lost = [c for c in source.schema if c in panes.COLUMNS and c not in schema]
    if lost:
        raise DefinitionError(
            f"{text} loses {', '.join(lost)}, without which a pane cannot be told from others; keep it"
        )
    return kind((source,), schema, fn, text, reads, changes, tuple(exprs))


def build_filter(
    source: graph.Node, conditions: Sequence[Any], equalities: Mapping[str, Any]
) -> graph.Stateless:
    """Rows for which all conditions hold."""
    predicates = expressions.to_conditions("filter", conditions, equalities)
    text = f"filter({graph.format_expressions(predicates)})"
    selection = _find_selection(source, predicates, text)
    for predicate, (_, made) in zip(predicates, selection.outputs if selection else (), strict=False):
        if len(made) != 1:
            raise DefinitionError(
                f"{text}: {predicate} is {len(made)} conditions ({', '.join(made)}); say "
                "pl.all_horizontal(...) or pl.any_horizontal(...)"
            )
    node = build_stateless(
        source,
        selection.filter if selection else lambda frame: frame.filter(*predicates),
        text,
        graph.columns_used(predicates),
        changes=frozenset(),
        exprs=predicates,
    )
    expressions.check_elementwise(text, predicates, source.schema)
    return node


def build_select(source: graph.Node, columns: Sequence[Any], named: Mapping[str, Any]) -> graph.Stateless:
    """Only these columns, and those that every row carries."""
    exprs = expressions.to_expressions("select", columns, named)
    text = f"select({graph.format_expressions(expressions.flatten(columns), named)})"
    selection = _find_selection(source, exprs, text)
    made = frozenset(
        selection.names
        if selection
        else graph.apply_to_no_rows(lambda frame: frame.select(exprs), source.schema, text).columns
    )
    expressions.check_elementwise(text, exprs, source.schema)

    def select(frame: pl.DataFrame) -> pl.DataFrame:
        if selection:
            return selection.select(frame, _CARRIED_COLUMNS)
        carried = [column for column in frame.columns if column in _CARRIED_COLUMNS and column not in made]
        return frame.select(*exprs, *carried)

    return build_stateless(source, select, text, graph.columns_used(exprs), exprs=exprs)


def build_with_columns(
    source: graph.Node, columns: Sequence[Any], named: Mapping[str, Any]
) -> graph.Stateless:
    """All columns, with some added or replaced."""
    exprs = expressions.to_expressions("with_columns", columns, named)
    text = f"with_columns({graph.format_expressions(expressions.flatten(columns), named)})"
    selection = _find_selection(source, exprs, text)
    if selection is None:
        graph.apply_to_no_rows(lambda frame: frame.with_columns(exprs), source.schema, text)
    expressions.check_elementwise(text, exprs, source.schema)
    return build_stateless(
        source,
        selection.add if selection else lambda frame: frame.with_columns(*exprs),
        text,
        graph.columns_used(exprs),
        changes=frozenset(selection.names) if selection else graph.output_columns(exprs),
        exprs=exprs,
    )


def _find_selection(source: graph.Node, exprs: Sequence[pl.Expr], text: str) -> Selection | None:
    with graph.explain_misfits(source.schema, text):
        return make_selection(text, exprs, source.schema, _CARRIED_COLUMNS)


def build_drop(source: graph.Node, columns: Sequence[Any]) -> graph.Stateless:
    """All columns but these."""
    names = expressions.column_names("drop", columns, source.schema, SYSTEM_COLUMNS, "name the columns")
    if kept := [name for name in names if name in SYSTEM_COLUMNS]:
        raise DefinitionError(
            f"drop({kept[0]!r}): every row has {kept[0]}, which is never a field of a topic; leave it"
        )
    return build_stateless(
        source,
        lambda frame: frame.drop(names, strict=False),
        f"drop({', '.join(names)})",
        frozenset(),
        changes=frozenset(names),
    )


def build_rename(source: graph.Node, names: Mapping[str, str]) -> graph.Stateless:
    """The same columns under other names."""
    require_type("rename", names, Mapping, "a mapping of old to new names; say rename({'old': 'new'})")
    text = f"rename({', '.join(f'{old}={new}' for old, new in names.items())})"
    for old, new in names.items():
        expressions.check_column(f"rename({old!r})", old, source.schema)
        require_type("rename", new, str, "a name")
        if old in SYSTEM_COLUMNS or new in SYSTEM_COLUMNS:
            taken = old if old in SYSTEM_COLUMNS else new
            raise DefinitionError(f"{text}: {taken} has a meaning of its own; copy it with with_columns(...)")
    columns = [names.get(name, name) for name in source.schema]
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise DefinitionError(f"{text} gives two columns the name {twice[0]!r}; drop one of them first")
    return build_stateless(
        source,
        lambda frame: frame.rename({**names}, strict=False),
        text,
        frozenset(names),
        changes=frozenset(names) | frozenset(names.values()),
    )


def build_explode(source: graph.Node, columns: Sequence[Any]) -> graph.Stateless:
    """One row for each element of list columns."""
    names = expressions.column_names("explode", columns, source.schema, SYSTEM_COLUMNS)
    for name in names:
        if not isinstance(source.schema[name], pl.List | pl.Array):
            raise DefinitionError(f"explode({name!r}) needs a list, but {name!r} is {source.schema[name]}")
    if not names:
        raise DefinitionError("explode() names no column; name a column of lists")
    text = f"explode({', '.join(names)})"
    return build_stateless(source, lambda frame: frame.explode(*names), text, frozenset(names))


def build_flat_map(
    source: graph.Node,
    fn: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
    schema: Mapping[str, expressions.DType],
) -> graph.Stateless:
    """Any number of rows for each row, of the columns of `schema` and those that every row carries."""
    dtypes = pl.Schema(schema)

    def apply(frame: pl.DataFrame) -> pl.DataFrame:
        outputs = [
            (index, output) for index, row in enumerate(frame.iter_rows(named=True)) for output in fn(row)
        ]
        rows = [output for _, output in outputs]
        columns = {
            name: function_results.to_series(name, (row.get(name) for row in rows), dtype)
            for name, dtype in dtypes.items()
        }
        carried = frame.select(
            pl.col(name).gather([index for index, _ in outputs])
            for name in frame.columns
            if name in _CARRIED_COLUMNS
        )
        return pl.DataFrame([*(columns | _carry(carried, rows)).values()])

    return build_stateless(source, apply, f"flat_map({getattr(fn, '__name__', 'fn')})")


def _carry(carried: pl.DataFrame, rows: Sequence[Mapping[str, Any]]) -> dict[str, pl.Series]:
    """The carried columns, with the values that a row gives itself in place of those
    of the row that it comes from.
    """
    return {
        original.name: function_results.to_series(
            original.name,
            (row.get(original.name, value) for row, value in zip(rows, original, strict=True)),
            original.dtype,
        )
        if any(original.name in row for row in rows)
        else original
        for original in carried
    }


def group_all_rows(source: graph.Node) -> graph.Stateless:
    """The rows with the constant key of a single group."""
    return graph.Stateless(
        (source,),
        pl.Schema({**source.schema, ALL_ROWS: pl.Int64()}),
        lambda frame: frame.with_columns(pl.lit(0, pl.Int64).alias(ALL_ROWS)),
        "all rows",
        frozenset(),
        frozenset({ALL_ROWS}),
        internal_identity={"kind": "all_rows"},
    )


def drop_constant_key(source: graph.Node) -> graph.SingleGroup:
    """Results of a single group without that key."""
    return graph.SingleGroup(
        (source,),
        pl.Schema({name: dtype for name, dtype in source.schema.items() if name != ALL_ROWS}),
        lambda frame: frame.drop(ALL_ROWS, strict=False),
        "results of all rows",
        frozenset(),
        frozenset(),
        internal_identity={"kind": "single_group"},
    )
