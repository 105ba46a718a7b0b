"""Operator `match` for regular patterns: of a key the newest rows are kept, as columns, and all beginnings
are followed at once.

A pattern is regular if what a row does to a match depends on the row alone (`patterns/cep/contiguous.py` says
which are). Then no partial match has to be stored: those that are open can be found again from the rows that
they began with. A batch writes the rows of the keys that it touched; the newest version of a key counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.durations import END_OF_STREAM
from millrace.engine.exchange import Block, Body
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.contract import OperatorResult, empty_panes
from millrace.engine.operators.match import timeouts, to_panes, whole_rows
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.patterns.cep.contiguous import ContiguousMatcher
from millrace.patterns.cep.key_order import NumberedKeys
from millrace.patterns.cep.matcher import Matcher
from millrace.values.columns import DUE, EXPIRES_AT, MAY_BEGIN, OFFSET, SOURCE, STATE_VERSION

ROWS_TABLE = "stretches"
"""State table: the rows with which open matches began, and those after them."""


@dataclass(frozen=True, eq=False)
class ContiguousMatchOperator:
    """Finds the matches of a regular pattern."""

    operator: Operator
    node: graph.MatchPattern
    matcher: Matcher

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait for their turn."""
        return OrderedRows(self.operator, whole_rows(self.node))

    @cached_property
    def contiguous_matcher(self) -> ContiguousMatcher:
        """What finds the matches."""
        return ContiguousMatcher(self.matcher, self.matcher.needs_timeouts)

    @cached_property
    def kept_rows(self) -> KeyedTable:
        """What is kept of a key."""
        empty = pl.Schema({**self.contiguous_matcher.schema, STATE_VERSION: pl.Int64()}).to_frame()
        return KeyedTable(
            self.operator.id,
            ROWS_TABLE,
            self.node.keys,
            empty,
            value=MAY_BEGIN,
            due=DUE,
            until=EXPIRES_AT,
            has_lists=True,
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order, follow all beginnings,
        show the matches that are certain.
        """
        batch = self.rows.take(state, body, blocks)
        state, table = batch.state, self.kept_rows
        rows = self._no_rows if batch.rows is None else batch.rows
        keys = NumberedKeys.of(rows, self.node.keys)
        stored = table.read_due(state, keys.keys, batch.old_watermark, batch.deadline)
        if rows.is_empty() and stored.is_empty():
            return batch.result(table.expire(state, batch.watermark), empty_panes(self.node))
        result = self.contiguous_matcher.step(stored, rows, batch.deadline, keys=keys, ties=(SOURCE, OFFSET))
        changed = self._changed_rows(stored, result.kept, batch.version)
        state = table.expire(table.append(state, changed, since=batch.old_watermark), batch.watermark)
        return batch.result(
            state, to_panes(result.matches, self.node), timeouts(self.matcher, result.timeouts, self.node)
        )

    @cached_property
    def _no_rows(self) -> pl.DataFrame:
        order = pl.Schema({name: pl.Int64() for name in ORDER})
        return pl.Schema({**self.matcher.schema, **order}).to_frame()

    def _changed_rows(self, stored: pl.DataFrame, kept: pl.DataFrame, version: int) -> pl.DataFrame:
        """What is kept now; a key of which nothing is left has a tombstone until what was
        kept of it would have expired.
        """
        keys, version_column = list(self.node.keys), pl.lit(version, pl.Int64).alias(STATE_VERSION)
        if stored.is_empty():
            return kept.with_columns(version_column).select(self.kept_rows.empty.columns)
        removed = stored.join(kept, on=keys, how="anti", nulls_equal=True).unique(keys)
        tombstones = removed.select(
            *keys, pl.lit(END_OF_STREAM, pl.Int64).alias(DUE), EXPIRES_AT, version_column
        )
        return pl.concat(
            [kept.with_columns(version_column).select(self.kept_rows.empty.columns), tombstones],
            how="diagonal",
        )
