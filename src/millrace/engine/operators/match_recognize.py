"""Operator `match_recognize`: row patterns of SQL. Of a key the rows are kept that a match may still take, as
bytes, until the bound ends them.

Rows are taken in order (`ordered_rows.py`); the search is in `patterns/sql/matcher.py`.
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
from millrace.engine.operators.contract import OperatorResult, empty_panes, number_pairs
from millrace.engine.operators.match import bytes_by_key, bytes_table, whole_rows
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.patterns.sql.matcher import RowPatternMatcher, SqlPartition
from millrace.patterns.sql.streams import TIME, stream_matcher, to_panes

PARTITIONS = "courses"
"""State table: the rows of each key that a match may still take, and where the search stands."""


@dataclass(frozen=True, eq=False)
class MatchRecognizeOperator:
    """Finds the matches of a row pattern."""

    operator: Operator
    node: graph.MatchRecognize

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait for their turn."""
        return OrderedRows(self.operator, whole_rows(self.node))

    @cached_property
    def matcher(self) -> RowPatternMatcher:
        """What finds the matches."""
        return stream_matcher(self.node.row_pattern, self.node.inputs[0].schema, self.node.keys)

    @cached_property
    def partitions(self) -> KeyedTable:
        """What is kept of a key."""
        return bytes_table(self.operator, PARTITIONS)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order, search on, show the matches that are certain."""
        batch = self.rows.take(state, body, blocks)
        state, table, schema = batch.state, self.partitions, self.matcher.compiled.schema
        rows = batch.sorted(schema.to_frame(), ORDER)
        stored = table.read_due(state, rows.select(self.node.keys), batch.old_watermark, batch.deadline)
        if rows.is_empty() and stored.is_empty():
            return batch.result(table.expire(state, batch.watermark), empty_panes(self.node))
        stored_by_key = bytes_by_key(stored, self.node.keys)
        partitions = {
            key: SqlPartition.decode(data, list(schema)) for key, (_, data) in stored_by_key.items()
        }
        changed, emitted = self.matcher.step(
            partitions, rows.select(list(schema)), batch.watermark, is_ended=batch.is_ended
        )
        changed_rows = [
            (
                *key,
                *self._due_and_expiry(partition, stored_by_key.get(key, (END_OF_STREAM, b""))[0]),
                None if partition is None else partition.encode(),
                batch.version,
            )
            for key, partition in changed.items()
        ]
        changes = pl.DataFrame(changed_rows, schema=table.empty.schema, orient="row")
        state = table.expire(table.append(state, changes, since=batch.old_watermark), batch.watermark)
        panes = to_panes(emitted, self.matcher, self.node.schema)
        return batch.result(state, number_pairs(panes, self.node.schema))

    def _due_and_expiry(self, partition: SqlPartition | None, expiry: int) -> tuple[int, int]:
        """When time decides about the row at which the search stands;
        and when the newest row is too old for any match.
        """
        if partition is None:
            return END_OF_STREAM, expiry
        time_index, span = list(self.matcher.compiled.schema).index(TIME), self.node.row_pattern.span or 0
        due = END_OF_STREAM
        if partition.search_start < len(partition.rows):
            due = partition.rows[partition.search_start][time_index] + span
        if self.matcher.is_lasting or not partition.rows:
            return due, END_OF_STREAM
        return due, partition.rows[-1][time_index] + span
