"""The columns of a stream: which a step reads and makes, found by trying it on no rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import polars as pl

from millrace.errors import DefinitionError
from millrace.values import expressions
from millrace.values.calls import ordinary_errors
from millrace.values.columns import (
    CLOCK,
    INGESTED,
    IS_FUTURE,
    OFFSET,
    PARTITION,
    RECORD_KEY,
    RECORD_VALUE,
    SOURCE,
)

_UNKNOWN_COLUMN = re.compile('unable to find column "(?P<name>[^"]*)"')
TIME_COLUMNS = {"event_time": pl.Int64(), "ingestion_time": pl.Int64()}
"""Columns every row has besides those of its type; a pane's event time is `window_end - 1`."""


def columns_used(exprs: Iterable[object]) -> frozenset[str] | None:
    """The columns that expressions look at; None where that depends on which there are."""
    found: set[str] = set()
    for value in exprs:
        expr = pl.col(value) if isinstance(value, str) else value
        if not isinstance(expr, pl.Expr) or expr.meta.has_multiple_outputs():
            return None
        found.update(expr.meta.root_names())
    return frozenset(found)


def output_columns(columns: Iterable[pl.Expr]) -> frozenset[str] | None:
    """The names of the columns that expressions make; None where only the rows can tell."""
    names = [
        None if expr.meta.has_multiple_outputs() else expr.meta.output_name(raise_if_undetermined=False)
        for expr in columns
    ]
    return None if None in names else frozenset(name for name in names if name is not None)


def format_expressions(columns: Iterable[Any], named: Mapping[str, Any] | None = None) -> str:
    """Expressions as their user wrote them, for `explain`."""
    return ", ".join([*map(str, columns), *(f"{name}={value}" for name, value in (named or {}).items())])


INTERNAL_COLUMNS = {
    PARTITION: pl.Int64(),
    CLOCK: pl.Int64(),
    SOURCE: pl.Int64(),
    OFFSET: pl.Int64(),
    INGESTED: pl.Int64(),
    IS_FUTURE: pl.Boolean(),
    RECORD_KEY: pl.Binary(),
    RECORD_VALUE: pl.Binary(),
}
"""Columns that ride along with rows until they reach an operator."""


def apply_to_no_rows(
    fn: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema, step_text: str
) -> pl.DataFrame:
    """What `fn` makes of no rows of the columns that a user sees."""
    with explain_misfits(schema, step_text):
        return fn(schema.to_frame())


@contextmanager
def explain_misfits(schema: Iterable[str], step_text: str) -> Iterator[None]:
    """Surrounds a step that is tried on no rows: its errors name the step and the columns of the user."""
    try:
        with ordinary_errors():
            yield
    except DefinitionError:
        raise
    except Exception as error:
        unknown = _UNKNOWN_COLUMN.match(str(error)) if isinstance(error, pl.exceptions.PolarsError) else None
        if unknown and unknown["name"] not in schema:
            problem = f": {expressions.describe_unknown(unknown['name'], schema)}"
        else:
            shown = ", ".join(column for column in schema if not column.startswith("_"))
            problem = f" does not fit the columns {shown}: {first_line(error)}"
        raise DefinitionError(f"{step_text}{problem}") from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def derive_schema(fn: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema, step_text: str) -> pl.Schema:
    """The columns that `fn` makes of `schema`, found by trying it on no rows."""
    with explain_misfits(schema, step_text):
        result: Any = fn(pl.Schema({**schema, **INTERNAL_COLUMNS}).to_frame())
    if not isinstance(result, pl.DataFrame):
        raise DefinitionError(f"{step_text} must return a polars DataFrame, not {type(result).__name__}")
    missing = [
        column
        for column in (*INTERNAL_COLUMNS, *schema)
        if column not in result.columns and (column in INTERNAL_COLUMNS or column == "event_time")
    ]
    if missing:
        raise DefinitionError(
            f"{step_text} loses {', '.join(missing)}, without which a row has no place in time; keep the "
            "columns you do not know"
        )
    return pl.Schema({name: dtype for name, dtype in result.schema.items() if name not in INTERNAL_COLUMNS})
