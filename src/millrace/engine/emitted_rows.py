"""Results of an operator as rows for the next one.

Rows need an order that does not depend on how batches were cut, also among those of equal time. Rows of a
topic have their partition and offset for that. Results have neither, so theirs is made of what they are:

    column    of rows of a topic               of results
    _src      topic, partition, edge           edge, then the place among results of the same key and
                                               time, where that has a meaning (`emits_in_order`)
    _off      offset                           a hash of the values

Rows of topics come before results of equal time. Results whose values are all equal stand in any order, as
nobody can tell them apart.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millrace import graph, panes
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


def to_rows(results: pl.DataFrame, node: graph.Operation, edge_index: int) -> pl.DataFrame:
    """Results of an operation, as rows that come by an edge."""
    place = (
        pl.int_range(pl.len(), dtype=pl.Int64).over(*node.keys, "event_time")
        if node.emits_in_order
        else pl.lit(0, pl.Int64)
    )
    hashes = key_hash.hash_values(results.drop(*panes.HISTORY_COLUMNS, "op"))
    return results.with_columns(
        _source(place, edge_index), pl.Series(OFFSET, hashes.astype(np.int64)), **_ORIGIN
    )


def renumber_source(edge_index: int) -> pl.Expr:
    """The order of results that an operator has let through, which come by another edge now."""
    return _source(pl.col(SOURCE) % _PLACES, edge_index)


def _source(place: pl.Expr, edge_index: int) -> pl.Expr:
    return (place.clip(upper_bound=_PLACES - 1) + (_FIRST_SOURCE + edge_index * _PLACES)).alias(SOURCE)
