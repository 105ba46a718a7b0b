"""Operator `table_join`: rows beside the version of a table that held for their key at their time.

Rows of both sides are taken in order, so a row meets every version that is older than it, however late the
version came. Of each key the newest version is kept, for ever.

Example, versions of one key at 10 s (x) and 30 s (y):

    row at   5 s    10 s   29 s   31 s
    beside   null   x      x      y      the row at 31 s waits until the watermark has passed it
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.aggregates import ORDER
from millrace.engine.exchange import Block, Body
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.contract import OperatorResult, empty_panes, number_pairs
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.join import SIDE_COLUMNS, TableJoin
from millrace.values.columns import PRESENT, ROW_TIME, STATE_VERSION, VERSION_NUMBER

LEFT, RIGHT = SIDE_COLUMNS
VERSIONS = "versions"
"""State table: the newest version of each key."""


@dataclass(frozen=True, eq=False)
class TableJoinOperator:
    """Joins rows with a table as of event time."""

    operator: Operator
    node: TableJoin

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows and versions that wait for their turn."""
        return OrderedRows(self.operator, (*ORDER, *SIDE_COLUMNS))

    @cached_property
    def versions(self) -> KeyedTable:
        """What is kept of a key."""
        schema = self.node.inputs[0].schema
        columns = {ROW_TIME: pl.Int64(), RIGHT: schema[RIGHT], STATE_VERSION: pl.Int64()}
        empty = pl.Schema({**{key: schema[key] for key in self.node.keys}, **columns}).to_frame()
        return KeyedTable(self.operator.id, VERSIONS, self.node.keys, empty)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order, put them beside the version of their time,
        keep the newest versions.
        """
        batch = self.rows.take(state, body, blocks)
        state, released = batch.state, batch.rows
        if released is None or released.is_empty():
            return batch.result(state, empty_panes(self.node))
        keys = list(self.node.keys)
        stored = self.versions.read(state, released.select(keys).unique())
        ordered = released.sort(ORDER)
        new_versions = self._find_versions(ordered, batch.version)
        newest = new_versions.unique(keys, keep="last", maintain_order=True)
        rows = ordered.filter(pl.col(LEFT).is_not_null())
        joined = self._join(rows, pl.concat([stored, new_versions]))
        return batch.result(self.versions.append(state, newest), joined)

    def _find_versions(self, ordered: pl.DataFrame, version: int) -> pl.DataFrame:
        """The versions among rows in order; of those at the same time the last.
        Rows with a null key have no version.
        """
        keys = list(self.node.keys)
        has_key = pl.all_horizontal(pl.col(key).is_not_null() for key in keys)
        versions = (
            ordered.filter(pl.col(RIGHT).is_not_null() & has_key)
            .with_columns(pl.lit(version, pl.Int64).alias(STATE_VERSION))
            .select(self.versions.empty.columns)
        )
        return versions.unique([*keys, ROW_TIME], keep="last", maintain_order=True)

    def _join(self, rows: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
        """Rows with the columns of the version that held, as panes."""
        keys = list(self.node.keys)
        numbered = versions.sort(ROW_TIME, maintain_order=True).with_row_index(VERSION_NUMBER)
        with_version = rows.drop(RIGHT).join_asof(
            numbered.select(*keys, ROW_TIME, VERSION_NUMBER),
            on=ROW_TIME,
            by=keys,
            strategy="backward",
            check_sortedness=False,
        )
        joined = with_version.join(
            numbered.select(VERSION_NUMBER, RIGHT), on=VERSION_NUMBER, how="left", maintain_order="left"
        )
        has_version = pl.col(RIGHT).struct.field(PRESENT).fill_null(value=False)
        joined = joined.with_columns(pl.when(has_version).then(pl.col(RIGHT)).alias(RIGHT))
        if self.node.how == "inner":
            joined = joined.filter(pl.col(RIGHT).is_not_null())
        time = pl.col(ROW_TIME)
        shown = joined.select(
            *keys,
            *self.node.output_exprs,
            time.alias("event_time"),
            time.alias("window_start"),
            (time + 1).alias("window_end"),
            *panes.shown_once(),
        )
        return number_pairs(shown, self.node.schema)
