"""Frames on columns: what the parts of the operator `over` have in common.

The rows of a key, those that are kept and those that are new, lie one after the other. Then a frame is a
range of neighbours, and polars computes an aggregate of it from its partials, as it does for a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import polars as pl

from millrace import panes
from millrace.aggregates import ORDER, Reduction
from millrace.durations import END_OF_STREAM
from millrace.engine.ordered_rows import OrderedBatch, OrderedRows
from millrace.engine.plan import Operator
from millrace.graph.build.over import Over
from millrace.values.columns import (
    EXPIRES_AT,
    GROUP,
    IS_NEW,
    RESTARTS,
    ROW_ID,
    ROW_INDEX,
    ROW_NUMBER,
    ROW_TIME,
)

_TIME = pl.col(ROW_TIME)
_WINDOW = (_TIME.alias("event_time"), _TIME.alias("window_start"), (_TIME + 1).alias("window_end"))
_ONCE = {name: pl.lit(value, panes.COLUMNS[name]) for name, value in panes.SHOWN_ONCE.items()}


@lru_cache(maxsize=1024)
def row_schema(node: Over) -> pl.Schema:
    """The columns of rows as they are released: keys, what they bring, and their order."""
    schema = node.inputs[0].schema
    columns = {name: schema[name] for name in (*node.keys, *node.row_columns)}
    return pl.Schema({**columns, **dict.fromkeys(ORDER, pl.Int64())})


def waiting_rows(operator: Operator, node: Over) -> OrderedRows:
    """The rows that wait until the watermark has passed them."""
    columns = [name for name in row_schema(node) if name not in node.keys]
    return OrderedRows(operator, columns, lateness=node.row_lateness)


def released_rows(node: Over, batch: OrderedBatch) -> pl.DataFrame:
    """The rows that wait no longer, in order; those that a step made of one record as they came."""
    columns = row_schema(node)
    released = columns.to_frame() if batch.rows is None else batch.rows[columns.names()]
    return released.sort(ORDER, maintain_order=True)


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with numbers in their order, those that a step made of one record as they came."""
    return rows.sort(*ORDER, ROW_ID)


def to_panes(node: Over, rows: pl.DataFrame, **history: pl.Expr) -> pl.DataFrame:
    """Rows as they are shown; `history`: where that is not as of rows that are shown once."""
    return rows.select(*node.row_columns, *node.columns, *_WINDOW, **{**_ONCE, **history})


def lead_columns(node: Over) -> list[pl.Expr]:
    """The values of later rows of the group that come in time."""
    time = pl.col(ROW_TIME)
    return [
        pl.when(time.shift(-lead.n).over(GROUP) - time < lead.within)
        .then(pl.col(str(lead.column)).shift(-lead.n).over(GROUP))
        .alias(name)
        for name, lead in node.leads.items()
    ]


def join_rows(node: Over, stored: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Rows that are kept, then new ones, each group of neighbours with a number.

    A group is the rows of a key, up to where it begins anew.
    """
    both = new if stored.is_empty() else pl.concat([stored[new.columns], new])
    is_new = np.arange(both.height) >= stored.height
    return add_groups(node, both.hstack([pl.Series(IS_NEW, is_new)]))


def add_groups(node: Over, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows in order, with the number of their group."""
    group = list(node.keys)
    if node.ttl is not None:
        is_restart = (pl.col(ROW_TIME) - pl.col(ROW_TIME).shift(1) >= node.ttl).fill_null(value=False)
        rows = rows.with_columns(is_restart.cum_sum().over(group).alias(RESTARTS))
        group.append(RESTARTS)
    numbered = rows.with_row_index(GROUP).with_columns(pl.col(GROUP).first().over(group))
    return numbered if node.ttl is None else numbered[[name for name in numbered.columns if name != RESTARTS]]


def without_rows(node: Over, no_rows: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """No rows with some of the columns, at no cost: most batches of a quiet stream bring none."""
    return no_rows.with_columns(pl.lit(None, node.schema[name]).alias(name) for name in names)


def frame_columns(node: Over, rows: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """What a frame needs of rows: keys, order, and the columns that are read, once each."""
    return rows[[*dict.fromkeys([*node.keys, *ORDER, *columns])]]


def framed_columns(node: Over) -> list[str]:
    """The columns that are read within the frame."""
    return [column for function in node.framed.values() for column in function.input_columns()]


def kept_schema(node: Over, columns: Iterable[str]) -> pl.DataFrame:
    """No rows, as a part keeps them: keys, order, these columns, and until when."""
    schema = node.inputs[0].schema
    order = dict.fromkeys(ORDER, pl.Int64())
    kept = {name: schema.get(name, pl.Int64()) for name in (*node.keys, *order, *columns)}
    return pl.DataFrame(schema={**kept, EXPIRES_AT: pl.Int64()})


def add_frames(node: Over, rows: pl.DataFrame, functions: Mapping[str, object]) -> pl.DataFrame:
    """New rows of `join_rows`, in their order, with the functions of their frames."""
    lower, upper = node.frame.lower, node.frame.upper
    assert lower is not None
    index = ROW_NUMBER if node.frame.unit == "rows" else ROW_TIME
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    grouped = rows.with_row_index(ROW_INDEX).sort(GROUP, maintain_order=True)
    rolled = (
        grouped.with_columns(number.alias(ROW_NUMBER))
        .rolling(
            index,
            period=f"{upper - lower + 1}i",
            offset=f"{lower - 1}i",  # the frame is open on the left
            closed="right",
            group_by=GROUP,
        )
        .agg(*(expr for name in functions for expr in partials_of(node, name)))
    )
    results = rolled.select(result_of(node, name) for name in functions)
    return pl.concat([grouped, results], how="horizontal").filter(IS_NEW).sort(ROW_INDEX).drop(ROW_INDEX)


def partials_of(node: Over, name: str) -> list[pl.Expr]:
    """From the rows of a frame to what its result is computed from."""
    function = node.framed[name]
    if isinstance(function, Reduction):
        return function.partials(name, node.type_of(function))
    column = pl.col(str(function.column))
    return [(column.first() if function.kind == "first" else column.last()).alias(f"{name}.v")]


def result_of(node: Over, name: str) -> pl.Expr:
    """From the partials of a frame to its result."""
    function = node.framed[name]
    if isinstance(function, Reduction):
        return function.result(name, node.type_of(function))
    return pl.col(f"{name}.v").alias(name)


def expiry_of_key(node: Over) -> pl.Expr:
    """The watermark at which a key will begin anew, so that nothing of it matters any more."""
    if node.ttl is None:
        return pl.lit(END_OF_STREAM, pl.Int64)
    return pl.col(ROW_TIME).max().over(node.keys) + node.ttl
