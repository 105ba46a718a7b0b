"""The node of row frames: `group_by(...).over(...)`. Every row goes on, beside columns computed from the rows
of its key around it, as in SQL's `OVER (PARTITION BY key ORDER BY event_time ROWS | RANGE BETWEEN …)`.

Frames end at their row or before it, so a row needs nothing but rows that came before it. `lead` alone looks
ahead, and says how far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import polars as pl

from millrace import aggregates, durations, graph, panes
from millrace.aggregates import ORDER, Aggregate, Reduction
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.frames import First, FrameFunction, Lag, Last, Lead, RowNumber
from millrace.graph.build.arguments import bind_arguments, drop_arguments
from millrace.graph.build.rows_only import require_rows
from millrace.graph.identity import identify_aggregate
from millrace.topics import SYSTEM_COLUMNS
from millrace.values import expressions

RowBounds: TypeAlias = int | tuple[int | None, int]
"""So many rows, this one included; or from one to another, counted from this one, both included."""
TimeBounds: TypeAlias = Duration | tuple[Duration | None, Duration]
"""So far back, or from one to another, counted from this row, both included."""
Column: TypeAlias = Reduction | FrameFunction


@dataclass(frozen=True)
class Frame:
    """The rows of a key that an aggregate of a row is computed from."""

    unit: Literal["rows", "range"]
    lower: int | None
    """From which row or time on, counted from the row itself; None: from the first."""
    upper: int
    """Up to which, included; never after the row itself."""

    def __str__(self) -> str:
        """As SQL writes it."""
        return f"{self.unit} between {self._bound(self.lower)} and {self._bound(self.upper)}"

    def _bound(self, bound: int | None) -> str:
        if bound is None:
            return "unbounded preceding"
        if bound == 0:
            return "current row"
        return f"{-bound if self.unit == 'rows' else durations.format_millis(-bound)} preceding"


@dataclass(frozen=True, eq=False)
class Over(graph.Operation):
    """Rows with columns computed from the rows around them, each shown once."""

    columns: Mapping[str, Column]
    frame: Frame
    ttl: int | None
    """A key begins anew after a row that comes so long after the one before."""
    correction: int | None = None
    """How late a row may come and still correct its neighbours; None: rows are shown once."""

    kind = "over"
    verb = "over"

    def settings(self) -> graph.Identity:
        """The columns, the frame, and when a key begins anew."""
        columns = [{"name": name, **_identify_column(column)} for name, column in self.columns.items()]
        frame = {"unit": self.frame.unit, "lower": self.frame.lower, "upper": self.frame.upper}
        return {"columns": columns, "frame": frame, "ttl": self.ttl, "lateness": self.correction}

    @property
    def state_form(self) -> int:
        """Rows that may be corrected were kept key by key in form 1, and are kept one by one now."""
        return 1 if self.is_append_only else 2

    @property
    def is_append_only(self) -> bool:
        """Whether rows are never corrected."""
        return self.correction is None

    @property
    def accumulation(self) -> panes.Accumulation:
        """A row that is corrected is taken back as it was."""
        return "accumulating" if self.is_append_only else "retracting"

    @property
    def look_ahead(self) -> int:
        """How much later than a row the rows are that it may ask for."""
        return max((lead.within for lead in self.leads.values()), default=0)

    def expressions(self) -> Mapping[str, Any]:
        """Those that aggregates are computed of."""
        reductions = {name: one for name, one in self.columns.items() if isinstance(one, Reduction)}
        return {f"columns/{name}": one.argument.exprs for name, one in reductions.items() if one.argument}

    @property
    def output_delay(self) -> int:
        """A row is shown late, by as much as the later row may come later that it waits for."""
        return self.look_ahead if self.is_append_only else 0

    @property
    def lateness(self) -> int:
        """How far behind the watermark a row may still be corrected."""
        return 0 if self.correction is None else self.correction + self.look_ahead

    @property
    def row_lateness(self) -> int:
        """How far behind the watermark a row may still be taken."""
        return self.correction or 0

    @property
    def emits_in_order(self) -> bool:
        """Rows of one key and time go on together, in their order, unless they wait for later ones."""
        return self.is_append_only and not self.leads

    @property
    def row_columns(self) -> list[str]:
        """The columns that rows bring, keys included."""
        return [column for column in self.inputs[0].schema if column not in SYSTEM_COLUMNS]

    @property
    def framed(self) -> dict[str, Reduction | First | Last]:
        """The columns that depend on the frame."""
        return {n: c for n, c in self.columns.items() if isinstance(c, Reduction | First | Last)}

    @property
    def lags(self) -> dict[str, Lag]:
        """The columns that are those of earlier rows."""
        return {name: column for name, column in self.columns.items() if isinstance(column, Lag)}

    @property
    def leads(self) -> dict[str, Lead]:
        """The columns that are those of later rows."""
        return {name: column for name, column in self.columns.items() if isinstance(column, Lead)}

    @property
    def row_numbers(self) -> list[str]:
        """The columns that count rows."""
        return [name for name, column in self.columns.items() if isinstance(column, RowNumber)]

    def type_of(self, column: Column) -> pl.DataType:
        """The type of the column that a function reads."""
        return self.inputs[0].schema[column.column] if column.column else pl.Null()

    def _answers(self) -> Iterator[tuple[str, str]]:
        yield "what", f"{', '.join(f'{name} = {column}' for name, column in self.columns.items())} {self.by}"
        yield "where", str(self.frame) if self.framed else "the rows of the key"
        ahead = f"; until the rows after it are known, at most {durations.format_millis(self.output_delay)}"
        yield "when", f"{graph.IN_ORDER}{ahead if self.output_delay else ''}"
        if self.ttl is not None:
            yield "how", f"a key begins anew after {durations.format_millis(self.ttl)} without a row"
        late = f"a row up to {durations.format_millis(self.row_lateness)} late corrects those around it"
        yield "lateness", graph.BEHIND if self.is_append_only else late


def _identify_column(column: Column) -> graph.Identity:
    if isinstance(column, FrameFunction):
        return {"kind": column.kind, "column": column.column, **column.settings()}
    return identify_aggregate(column)


def build_over(
    source: graph.Node,
    keys: tuple[str, ...],
    columns: Mapping[str, Any],
    rows: RowBounds | None,
    range_: TimeBounds | None,
    ttl: Duration | None,
    lateness: Duration | None,
) -> graph.Node:
    """The node; refuses what is not a function of rows, and what would be kept for ever."""
    require_rows(source, "over(...)")
    if not columns:
        raise DefinitionError("over() needs at least one column, such as before=frames.lag('speed')")
    frame = _parse_frame(rows, range_)
    functions = {name: _parse_column(name, column) for name, column in columns.items()}
    for name, function in functions.items():
        _check_names(source, name, function)
    reductions = {name: one for name, one in functions.items() if isinstance(one, Reduction)}
    rows_in, bound = bind_arguments(source, reductions)
    functions |= bound
    types = {name: _check_column(rows_in, keys, name, one, frame) for name, one in functions.items()}
    kept = {name: dtype for name, dtype in rows_in.schema.items() if name not in SYSTEM_COLUMNS}
    schema = pl.Schema({**kept, **types, "event_time": pl.Int64(), **panes.COLUMNS})
    ttl_ms = None if ttl is None else durations.parse_positive(ttl, name="ttl")
    correction = None if lateness is None else durations.parse_positive(lateness, name="lateness")
    node = Over((rows_in,), schema, keys, functions, frame, ttl_ms, correction)
    return node if rows_in is source else drop_arguments(node)


def _parse_column(name: str, column: Any) -> Column:
    if isinstance(column, Aggregate):
        return aggregates.own(column)
    if not isinstance(column, Reduction | FrameFunction):
        raise DefinitionError(
            f"over({name}={column!r}) is not a function of rows; use one of millrace.aggregates or "
            "millrace.frames, such as aggregates.sum('amount') or frames.lag('speed')"
        )
    return column


def _check_names(source: graph.Node, name: str, column: Column) -> None:
    """Refuses names that are taken, and columns that rows do not have."""
    schema = source.schema
    if name in schema or name in SYSTEM_COLUMNS:
        raise DefinitionError(f"over({name}=...): rows already have a column {name!r}; choose another name")
    for read in column.input_columns():
        expressions.check_column(f"over({name}={column})", read, schema)


def _check_column(
    source: graph.Node, keys: tuple[str, ...], name: str, column: Column, frame: Frame
) -> pl.DataType:
    """The type of a column; refuses one that would keep all rows."""
    schema = source.schema
    if isinstance(column, RowNumber):
        return pl.Int64()
    if isinstance(column, FrameFunction):
        return schema[str(column.column)]
    column.check(schema)
    dtype = schema[column.column] if column.column else pl.Null()
    rows = schema.to_frame().with_columns(pl.lit(0).alias(order) for order in ORDER)
    partials = rows.group_by(*keys).agg(*column.partials(name, dtype))
    if frame.lower is None and not column.running(name, dtype):
        raise DefinitionError(
            f"over({name}={column}): a frame without a beginning would keep all rows of a key for ever, as "
            "this aggregate has no running form; bound the frame: rows=1000 or range='1h'"
        )
    return partials.select(column.result(name, dtype)).schema[name]


def _parse_frame(rows: RowBounds | None, range_: TimeBounds | None) -> Frame:
    if rows is not None and range_ is not None:
        raise DefinitionError(
            f"over(rows={rows!r}, range={range_!r}): a frame is bounded by a number of rows or by time; "
            "give one, and call over() again for the other"
        )
    if range_ is not None:
        return _check_bounds(_parse_range(range_), f"range={range_!r}")
    return _check_bounds(_parse_rows(rows), f"rows={rows!r}")


def _parse_rows(rows: RowBounds | None) -> Frame:
    match rows:
        case None:
            return Frame("rows", None, 0)
        case (lower, upper):
            bounds = [None if bound is None else _whole(bound, rows) for bound in (lower, upper)]
            return _frame("rows", bounds, f"rows={rows!r}")
        case _:
            return Frame("rows", 1 - durations.check_whole(rows, name="rows", minimum=1), 0)


def _parse_range(range_: TimeBounds) -> Frame:
    match range_:
        case (lower, upper):
            bounds = [
                None if bound is None else durations.parse_bounded(bound, name="range")
                for bound in (lower, upper)
            ]
            return _frame("range", bounds, f"range={range_!r}")
        case tuple() | list():
            raise DefinitionError(f"range={range_!r} has two bounds, such as ('-10m', '0s')")
        case _:
            return Frame("range", -durations.parse_positive(range_, name="range"), 0)


def _whole(bound: Any, rows: Any) -> int:
    if isinstance(bound, bool) or not isinstance(bound, int):
        raise DefinitionError(f"rows={rows!r}: bounds are whole numbers of rows, such as (-2, 0)")
    return bound


def _frame(unit: Literal["rows", "range"], bounds: list[int | None], text: str) -> Frame:
    lower, upper = bounds
    if upper is None:
        raise DefinitionError(
            f"{text}: a frame without an end would have every row wait for ever; end it at 0, the row itself"
        )
    return Frame(unit, lower, upper)


def _check_bounds(frame: Frame, text: str) -> Frame:
    """Refuses frames that look ahead, that are empty for every row, or that end far before their row and have
    no beginning.
    """
    if frame.upper > 0:
        raise DefinitionError(
            f"{text} looks at rows after its row, which would have to wait for them; end the frame at 0, and "
            "use frames.lead(column, within=...) for a later row"
        )
    if frame.lower is not None and frame.lower > frame.upper:
        raise DefinitionError(f"{text} is empty: the first bound is after the second; swap them")
    if frame.lower is None and frame.upper < -1:
        raise DefinitionError(
            f"{text} has no beginning and ends before its row by more than one; end it at 0, or at -1 "
            "(without the row itself), or give it a beginning"
        )
    return frame
