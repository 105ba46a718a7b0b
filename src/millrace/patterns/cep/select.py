"""The result of a match: `select` computes one row from its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from millrace import panes
from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern
from millrace.patterns.conditions import EarlierValue, earlier_values
from millrace.values import expressions
from millrace.values.columns import FIRST_TIME, LAST_TIME, MATCH_NUMBER, STEP, TIMED_OUT_AT


def check_select(
    pattern: Pattern, select: Mapping[str, pl.Expr], keys: Sequence[str], schema: pl.Schema
) -> pl.Schema:
    """The schema of the results; refuses expressions that a match cannot answer."""
    steps = [step.name for step in pattern.steps if not step.is_negative]
    if not select:
        raise DefinitionError(
            "match() without select has no result columns; give some, such as select={'at': "
            f"patterns.first({steps[0]!r}, 'event_time')}}"
        )
    for name, expr in select.items():
        if not isinstance(expr, pl.Expr):
            raise DefinitionError(
                f"select {name}={expr!r} is not an expression; use patterns.first(step, column), last, sum, "
                "count, avg, min, max, collect"
            )
        if name in keys or name in panes.COLUMNS or name == "event_time":
            raise DefinitionError(
                f"select {name}=…: results already have a column {name!r}; use another name"
            )
        for root in expr.meta.root_names():
            one = EarlierValue.parse(root)
            if one is None or one.kind == "previous":
                raise DefinitionError(
                    f"select {name}={expr} asks for {root}, but a match has many events; name one, as in "
                    f"patterns.last(step, {root!r})"
                )
            if one.step in steps and one.column is not None:
                expressions.check_column(f"select {name}={expr}", one.column, schema)
            if one.step not in steps:
                raise DefinitionError(
                    f"select {name}={expr} asks for {root}; there are the steps {', '.join(steps)}"
                )
    empty = pl.Schema(
        {MATCH_NUMBER: pl.Int64(), STEP: pl.String(), TIMED_OUT_AT: pl.Int64(), **schema}
    ).to_frame()
    try:
        selected = select_matches(empty, select, keys)
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise DefinitionError(
            f"select does not fit the columns {expressions.describe_columns(schema)}: {reason}"
        ) from error
    known = _resolve_references(empty, select, keys).schema
    expressions.check_elementwise("match(select=...)", select.values(), known)
    return selected.schema


def select_matches(matches: pl.DataFrame, select: Mapping[str, pl.Expr], keys: Sequence[str]) -> pl.DataFrame:
    """A pane per match. Its window reaches from the first event to the last,
    or to the time that made the match certain.
    """
    answered = _resolve_references(matches, select, keys)
    return answered.select(
        *keys,
        *(expr.alias(name) for name, expr in select.items()),
        pl.col(LAST_TIME).alias("event_time"),
        pl.col(FIRST_TIME).alias("window_start"),
        (pl.col(LAST_TIME) + 1).alias("window_end"),
        *panes.shown_once(),
    )


def _resolve_references(
    matches: pl.DataFrame, select: Mapping[str, pl.Expr], keys: Sequence[str]
) -> pl.DataFrame:
    """One row per match, with a column per reference to its events in `select`."""
    references = list(dict.fromkeys(one for expr in select.values() for one in earlier_values(expr)))
    time = pl.col("event_time")
    return matches.group_by(MATCH_NUMBER, maintain_order=True).agg(
        *(pl.col(key).first() for key in keys),
        *(one.aggregate(pl.col(one.column or STEP).filter(pl.col(STEP) == one.step)) for one in references),
        time.first().alias(FIRST_TIME),
        pl.coalesce(pl.col(TIMED_OUT_AT).first() - 1, time.last()).alias(LAST_TIME),
    )
