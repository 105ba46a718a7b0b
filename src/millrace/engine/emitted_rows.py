"""Results of an operator as rows for the next one.

Rows need an order that does not depend on how batches were cut, also among those of equal time. Rows of a
topic have their partition and offset for that. Results have neither, so theirs is made of what they are:

    column    of rows of a topic               of results
    _src      topic, partition, edge           edge, then the place among results of the same key and
                                               time, where that has a meaning (`emits_in_order`)
    _off      offset                           a hash of the values

Rows that an operator refused keep the order of their topic: in `_src` topic, partition and edge follow the
edge that they come by now.

Rows of topics come before results of equal time. Results whose values are all equal stand in any order, as
nobody can tell them apart.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millrace import graph, panes
from millrace.durations import END_OF_STREAM
from millrace.graph.build.regular_join import RegularJoin
from millrace.values import key_hash
from millrace.values.columns import (
    CLOCK,
    INGESTED,
    IS_FUTURE,
    OFFSET,
    PARTITION,
    RECORD_KEY,
    RECORD_VALUE,
    SOURCE,
    TOPIC,
    WATERMARK,
)

_PLACES = 1 << 32
"""How many results of one key and time have a place of their own."""
_FIRST_SOURCE = 1 << 61
"""Above those of all topics."""
_ORIGIN = {
    PARTITION: pl.lit(None, pl.Int64),
    CLOCK: pl.lit(None, pl.Int64),
    INGESTED: pl.lit(None, pl.Int64),
    IS_FUTURE: pl.lit(value=False),
    RECORD_KEY: pl.lit(None, pl.Binary),
    RECORD_VALUE: pl.lit(None, pl.Binary),
}
"""What rows of topics bring along, and results do not have."""


def asks_for_order(node: graph.Operation) -> bool:
    """Whether it matters to an operation which of two rows of equal time comes first."""
    if isinstance(node, graph.Aggregation) and node.windowing.sliced_window is not None:
        return any(aggregate.ordered for aggregate in node.aggregates.values())
    return not isinstance(node, RegularJoin)


def to_rows(
    results: pl.DataFrame, node: graph.Operation, edge_index: int, *, ordered: bool = True
) -> pl.DataFrame:
    """Results of an operation, as rows that come by an edge; with an order among those of equal time only
    where somebody asks for it, as a hash of all values costs more than some operators.
    """
    if not ordered:
        no_order = pl.lit(0, pl.Int64)
        return results.with_columns(_source(no_order, edge_index), no_order.alias(OFFSET), **_ORIGIN)
    place = (
        pl.int_range(pl.len(), dtype=pl.Int64).over(*node.keys, "event_time")
        if node.emits_in_order
        else pl.lit(0, pl.Int64)
    )
    hashes = key_hash.hash_values(results.drop(*panes.HISTORY_COLUMNS, "op"))
    return results.with_columns(
        _source(place, edge_index), pl.Series(OFFSET, hashes.astype(np.int64)), **_ORIGIN
    )


# Rows that were refused
#
# Their own time is over, so they are put where time was when they were refused: at the watermark that refused
# them, which is in `_clock` until the steps behind `late()` are done. The operator had not vouched for more
# than that before the batch, so no operator that follows refuses them once more.
#
# Example, windows of 10 s, a delay of 2 s, late rows counted in windows of 10 s:
#
#     row at   watermark   verdict                  place   counted in
#     107 s    105 s       taken by [100, 110)
#     114 s    112 s       taken by [110, 120)
#     103 s    112 s       late for [100, 110)      112 s   [110, 120) of late rows
#
# A row that was set aside, as it is too far in the future, has no time that could be believed. It is put at
# the time of its ingestion, which the clock of its partition never passes by much.


def refused_to_rows(refused: pl.DataFrame, schema: pl.Schema, edge_index: int) -> pl.DataFrame:
    """Rows that an operation refused (see `lateness.split_late`), as rows that come by an edge, at their own
    time.
    """
    is_read = pl.col(TOPIC).is_not_null()
    place = pl.when(is_read).then(_place_in_topic()).otherwise(_PLACES - 1)
    rows = select_columns(refused, schema)
    hashes = pl.Series(key_hash.hash_values(rows.drop(*panes.HISTORY_COLUMNS, strict=False)).astype(np.int64))
    is_future = pl.col("reason") == "future"
    known = pl.when(pl.col(WATERMARK) < END_OF_STREAM).then(WATERMARK)
    ingested = pl.col("ingestion_time") if "ingestion_time" in schema else pl.lit(None, pl.Int64)
    watermark = pl.when(is_future).then(pl.max_horizontal(known, ingested)).otherwise(known)
    order = refused.select(
        _source(place, edge_index),
        pl.when(is_read).then(OFFSET).otherwise(hashes).alias(OFFSET),
        **_ORIGIN | {CLOCK: watermark, IS_FUTURE: is_future},
    )
    return rows.hstack(order)


def select_columns(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """The columns of a schema; null where a frame lacks them, as rows that were combined do."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )


def place_refused(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `refused_to_rows` at their place in time."""
    time, watermark = pl.col("event_time"), pl.col(CLOCK)
    place = (
        pl.when(IS_FUTURE).then(pl.coalesce(watermark, time)).otherwise(pl.max_horizontal(time, watermark))
    )
    return rows.with_columns(
        place.alias("event_time"), pl.lit(None, pl.Int64).alias(CLOCK), pl.lit(value=False).alias(IS_FUTURE)
    )


def _place_in_topic() -> pl.Expr:
    """Topic, partition and edge, as `routing.source_order` numbers them, in 32 bits."""
    return (pl.col(SOURCE) // (1 << 40)) * (1 << 24) + pl.col(SOURCE) % (1 << 24)


def renumber_source(edge_index: int) -> pl.Expr:
    """The order of results that an operator has let through, which come by another edge now."""
    return _source(pl.col(SOURCE) % _PLACES, edge_index)


def _source(place: pl.Expr, edge_index: int) -> pl.Expr:
    return (place.clip(upper_bound=_PLACES - 1) + (_FIRST_SOURCE + edge_index * _PLACES)).alias(SOURCE)
