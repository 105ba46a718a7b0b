"""The contract of operators: a batch in, a result out. `operators/registry.py` names the operator for each
kind of node.

No operator inherits from another. What several of them do is in parts that they are composed of:

    part                      what it does                                     used by
    ordered_rows.OrderedRows  judges rows, keeps them, releases them in order  what takes rows in order
    keyed_table.KeyedTable    keeps the newest version of each key             matches, ordered windows,
                                                                               processors, tables
    emit.WindowShape          keys and columns of windows and of their panes   aggregations
    lateness                  says which rows are late                         everything over rows
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import polars as pl

from millrace import graph
from millrace.engine.arrivals import BatchProgress
from millrace.engine.exchange import Block, Body
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.values.columns import PAIR

_OWN_NUMBER = pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR)


@dataclass(frozen=True)
class OperatorResult:
    """What a batch did to an operator."""

    state: SlotState
    watermark: int | None
    panes: pl.DataFrame
    """Panes for topics: values, and those they replace, told apart by `op` and brought together by `PAIR`."""
    changes: pl.DataFrame
    """Values and retractions for the next operator."""
    late: pl.DataFrame | None = None
    progress: BatchProgress | None = None
    """How far the channels are that it reads; null: it takes a changelog."""
    side_outputs: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Further outputs, by name: panes with `PAIR`, each shown once."""
    dead_letters: pl.DataFrame | None = None
    """Records that the operator cannot understand, as dead letters."""
    rows: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    """Rows that go on as rows, by the edge they came by; `_clock` is the watermark at each (null:
    none that could refuse it).
    """


class StageOperator(Protocol):
    """An operator of the engine: pure, with all that it remembers in `state`."""

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: `blocks` are those addressed to the operator,
        `body` is the batch's clock and progress.
        """


@lru_cache(maxsize=1024)
def empty_changes(node: graph.Operation) -> pl.DataFrame:
    """No changes, in the columns that changes have."""
    return node.schema.to_frame()


@lru_cache(maxsize=1024)
def empty_panes(node: graph.Operation) -> pl.DataFrame:
    """No panes, in the columns that they have before they leave."""
    return empty_changes(node).with_columns(pl.lit(0, pl.Int64).alias(PAIR))


def number_pairs(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Panes that replace nothing: each has a number of its own."""
    return frame.select(*schema, _OWN_NUMBER)


def divide_panes(operator: Operator, panes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Panes that are each shown once: as they are written to topics, and as the next operator takes them."""
    changes = panes.drop(PAIR) if operator.travels else empty_changes(operator.node)
    return panes if operator.shows else empty_panes(operator.node), changes
