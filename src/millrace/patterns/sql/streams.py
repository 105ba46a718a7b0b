"""Row patterns on streams: which ones have bounded state, and the panes of their results."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from millrace import panes
from millrace.errors import DefinitionError
from millrace.patterns.sql.clause import RowPattern
from millrace.patterns.sql.compiled import CompiledPattern, ResultRow
from millrace.patterns.sql.matcher import RowPatternMatcher

TIME = "event_time"


def stream_matcher(rows: RowPattern, schema: pl.Schema, keys: tuple[str, ...]) -> RowPatternMatcher:
    """A matcher for the rows of keys in order of event time."""
    return RowPatternMatcher(CompiledPattern(rows, schema, TIME), keys)


def result_schema(
    rows: RowPattern, schema: pl.Schema, keys: tuple[str, ...], *, endless: bool = True
) -> pl.Schema:
    """The schema of the results; refuses row patterns that do not fit the rows or,
    on an `endless` stream, can never be decided.
    """
    compiled = CompiledPattern(rows, schema, TIME)
    _check_stream(rows, compiled, keys, endless=endless)
    measures = {name: expression.dtype for name, (expression, _) in compiled.measures.items()}
    reserved = [name for name in measures if name in keys or name in panes.COLUMNS or name == TIME]
    if reserved:
        raise DefinitionError(
            f"a measure cannot be named {reserved[0]!r}: the result has that column already"
        )
    if not measures and not rows.all_rows:
        raise DefinitionError(
            "match_recognize() without measures has no result columns; give some, such as "
            "measures={'n': 'COUNT(*)'}"
        )
    others = (
        {name: dtype for name, dtype in schema.items() if name not in (*keys, *measures, TIME)}
        if rows.all_rows
        else {}
    )
    return pl.Schema(
        {**{key: schema[key] for key in keys}, **measures, **others, TIME: pl.Int64(), **panes.COLUMNS}
    )


def _check_stream(
    rows: RowPattern, compiled: CompiledPattern, keys: tuple[str, ...], *, endless: bool
) -> None:
    if rows.span is None:
        raise DefinitionError(
            f"the row pattern {rows.text} has no bound, so on a stream rows would be kept for ever; add "
            "within='1m', in SQL WITHIN INTERVAL '1' MINUTE"
        )
    if rows.is_anchored and endless:
        raise DefinitionError(
            f"the row pattern {rows.text} asks where the partition begins or ends, but the partition of a "
            "stream has no end; leave out ^ and $"
        )
    if compiled.lookahead_expression is not None and endless:
        raise DefinitionError(
            f"{compiled.lookahead_expression} reads rows after the match, for which a stream would have to "
            "wait for ever; make them a variable of the pattern"
        )
    if rows.partition and sorted(rows.partition) != sorted(keys):
        raise DefinitionError(
            f"PARTITION BY {', '.join(rows.partition)}, but the key is {', '.join(keys)}; on a stream "
            "group_by(…) says it"
        )
    if any(one.column != TIME or one.is_descending for one in rows.order):
        raise DefinitionError(
            f"ORDER BY {', '.join(one.column for one in rows.order)}: rows of a stream come in order of "
            f"{TIME}; leave it out"
        )


def to_panes(results: Sequence[ResultRow], matcher: RowPatternMatcher, schema: pl.Schema) -> pl.DataFrame:
    """A pane per result row. Its window is from the first row of the match to the last;
    with ALL ROWS its time is that of its row.
    """
    compiled = matcher.compiled
    columns, measures = list(compiled.schema), list(compiled.measures)
    time, all_rows = columns.index(TIME), compiled.row_pattern.all_rows
    rows = []
    for one in results:
        values = dict(zip(columns, one.row, strict=False)) | dict(zip(measures, one.measures, strict=True))
        values |= {
            TIME: one.row[time] if all_rows else one.last[time],
            "window_start": one.first[time],
            "window_end": one.last[time] + 1,
            **panes.SHOWN_ONCE,
            "index": one.index,
            "settled_index": one.index,
        }
        rows.append(tuple(values[name] for name in schema))
    return pl.DataFrame(rows, schema=schema, orient="row")
