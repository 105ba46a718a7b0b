"""Windows that the rows themselves cut: so many rows, a change of a value, a mark.

Rows are taken in order (`ordered_rows.py`). What is kept of a key is its rows that a window may still show,
and how far it has come; where windows are cut says `ordered_cuts.py`.

Example, `counted(3, every=2)`, rows of one key at 1, 2, 3, 4, 5 s:

    row     1 s   2 s       3 s   4 s          5 s
    window        [1, 2]          [2, 3, 4]          kept: 4, 5 and one row since the last window
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.aggregates import ORDER
from millrace.engine.exchange import Block, Body
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.assign import window_input
from millrace.engine.operators.contract import OperatorResult, empty_panes
from millrace.engine.operators.ordered_cuts import KeyWindow, cut_windows
from millrace.engine.operators.partials import Partials, partials_of
from millrace.engine.ordered_rows import OrderedBatch, OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.values.columns import (
    END,
    FIRST_NUMBER,
    IS_NEW,
    KEPT_ROW,
    KEPT_ROWS,
    LINE,
    OFFSET,
    OLD_ROWS,
    PAIR,
    PANE_COUNT,
    PANE_INDEX,
    REFERENCE,
    ROW_NUMBER,
    ROW_NUMBERS,
    ROW_TIME,
    ROWS_AT_HAND,
    ROWS_SINCE,
    SOURCE,
    START,
    STATE_VERSION,
    WINDOW_INPUT,
    WINDOW_NUMBER,
)

KEY_WINDOWS = "courses"
"""State table: the rows of each key that a window may still show."""


@dataclass(frozen=True, eq=False)
class OrderedWindowsOperator:
    """Aggregates windows that rows cut."""

    operator: Operator
    node: graph.Aggregation

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait for their turn."""
        return OrderedRows(self.operator, self._kept_columns, self.node.windowing.is_processing_time)

    @cached_property
    def partials(self) -> Partials:
        """How the aggregates condense rows."""
        return partials_of(self.node)

    @cached_property
    def key_windows(self) -> KeyedTable:
        """What is kept of a key, for ever."""
        return KeyedTable(self.operator.id, KEY_WINDOWS, self.partials.keys, self._empty_key_windows)

    @cached_property
    def _kept_columns(self) -> list[str]:
        """What is kept of a row besides its key."""
        columns = dict.fromkeys([*self.partials.input_columns, *ORDER, WINDOW_INPUT])
        return [c for c in columns if c not in self.partials.keys]

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order, cut windows, show those that are full."""
        batch = self.rows.take(state, body, blocks)
        return batch.result(*self._cut_and_show(batch))

    def _cut_and_show(self, batch: OrderedBatch) -> tuple[SlotState, pl.DataFrame]:
        """The panes of the windows that are full; at the end of the stream also those that are not."""
        state, released, ended = batch.state, batch.rows, batch.is_ended
        if (released is None or released.is_empty()) and not ended:
            return state, empty_panes(self.node)
        fresh = self._empty_key_windows.select(self.partials.keys) if released is None else released
        new_keys = fresh.select(self.partials.keys).unique()
        stored = self.key_windows.read_all(state) if ended else self.key_windows.read(state, new_keys)
        rows, starts = self._sort_rows(stored, fresh)
        windows, key_windows = self._cut_windows(rows, starts, stored, ended=ended)
        version = pl.lit(batch.version, pl.Int64).alias(STATE_VERSION)
        changed = key_windows.with_columns(version).select(self._empty_key_windows.columns)
        return self.key_windows.append(state, changed), self._to_panes(rows, windows)

    @cached_property
    def _empty_key_windows(self) -> pl.DataFrame:
        empty, number = self.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        window_inputs = window_input(self.node.windowing.assigner) or [
            pl.lit(None, pl.Boolean).alias(WINDOW_INPUT)
        ]
        rows = (
            empty.with_columns(*window_inputs)
            .with_columns(number.alias(c) for c in (*ORDER, ROWS_SINCE, PANE_COUNT, STATE_VERSION))
            .clear()
        )
        kept_rows = pl.struct(self._kept_columns).implode().alias(KEPT_ROWS)
        key_windows = rows.group_by(self.partials.keys).agg(
            kept_rows,
            pl.col(ROWS_SINCE, PANE_COUNT, STATE_VERSION).first(),
            pl.col(WINDOW_INPUT).first().alias(REFERENCE),
        )
        return key_windows.select(
            *self.partials.keys, KEPT_ROWS, ROWS_SINCE, PANE_COUNT, REFERENCE, STATE_VERSION
        )

    def _sort_rows(self, stored: pl.DataFrame, fresh: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """All rows at hand, key by key: first those kept, then the new ones;
        and for each key where they lie.
        """
        keys = self.partials.keys
        kept = (
            stored.select(*keys, KEPT_ROWS)
            .filter(pl.col(KEPT_ROWS).list.len() > 0)
            .explode(KEPT_ROWS)
            .unnest(KEPT_ROWS)
        )
        frames = [kept.with_columns(pl.lit(0, pl.Int64).alias(IS_NEW))]
        if ROW_TIME in fresh.columns:
            frames.append(fresh.with_columns(pl.lit(1, pl.Int64).alias(IS_NEW)))
        rows = pl.concat(frames, how="diagonal_relaxed")
        if self.node.windowing.is_processing_time:
            rows = (
                rows.with_row_index(LINE)
                .sort(
                    *keys,
                    IS_NEW,
                    pl.when(pl.col(IS_NEW) == 1).then(ROW_TIME),
                    pl.when(pl.col(IS_NEW) == 1).then(SOURCE),
                    pl.when(pl.col(IS_NEW) == 1).then(OFFSET),
                    LINE,
                )
                .drop(LINE)
            )
        else:
            rows = rows.sort(*keys, IS_NEW, *ORDER)
        rows = rows.with_row_index(ROW_NUMBER)
        numbers = pl.col(ROW_NUMBER).cast(pl.Int64)
        return rows, rows.group_by(keys, maintain_order=True).agg(
            numbers.min().alias(FIRST_NUMBER),
            (pl.len() - pl.col(IS_NEW).sum()).cast(pl.Int64).alias(OLD_ROWS),
            pl.len().cast(pl.Int64).alias(ROWS_AT_HAND),
        )

    def _cut_windows(
        self, rows: pl.DataFrame, starts: pl.DataFrame, stored: pl.DataFrame, *, ended: bool
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of each full window (`_window`, `_number`, `_index`), and what the keys have come to."""
        keys, values = self.partials.keys, rows[WINDOW_INPUT].to_list()
        stored_windows = starts.join(
            stored.drop(KEPT_ROWS, STATE_VERSION),
            on=keys,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        numbers: list[int] = []
        ids: list[int] = []
        index: list[int] = []
        after: list[tuple[list[int], int, int, Any]] = []
        window_count = 0
        for first, old_count, row_count, rows_since, emitted, reference in stored_windows.select(
            FIRST_NUMBER, OLD_ROWS, ROWS_AT_HAND, ROWS_SINCE, PANE_COUNT, REFERENCE
        ).iter_rows():
            key_window = KeyWindow(list(range(first, first + old_count)), rows_since or 0, reference)
            full = cut_windows(
                self.node.windowing.assigner,
                key_window,
                values,
                range(first + old_count, first + row_count),
            )
            if ended and key_window.rows_since:
                full.append(key_window.rows)
                key_window.rows, key_window.rows_since = [], 0
            for position, window in enumerate(full):
                numbers += window
                ids += [window_count] * len(window)
                index += [(emitted or 0) + position] * len(window)
                window_count += 1
            after.append(
                (key_window.rows, key_window.rows_since, (emitted or 0) + len(full), key_window.reference)
            )
        windows = pl.DataFrame(
            {WINDOW_NUMBER: ids, ROW_NUMBER: numbers, PANE_INDEX: index},
            schema=dict.fromkeys((WINDOW_NUMBER, ROW_NUMBER, PANE_INDEX), pl.Int64),
        )
        return windows, self._to_key_windows(rows, stored_windows.select(keys), after)

    def _to_key_windows(
        self, rows: pl.DataFrame, keys: pl.DataFrame, after: list[tuple[list[int], int, int, Any]]
    ) -> pl.DataFrame:
        reference_type = self._empty_key_windows.schema[REFERENCE]
        schema = {
            ROW_NUMBERS: pl.List(pl.Int64),
            ROWS_SINCE: pl.Int64(),
            PANE_COUNT: pl.Int64(),
            REFERENCE: reference_type,
        }
        states = pl.concat([keys, pl.DataFrame(after, schema=schema, orient="row")], how="horizontal")
        kept = rows.with_columns(pl.col(ROW_NUMBER).cast(pl.Int64)).select(
            ROW_NUMBER, pl.struct(self._kept_columns).alias(KEPT_ROW)
        )
        lists = (
            states.select(*self.partials.keys, ROW_NUMBERS)
            .explode(ROW_NUMBERS, empty_as_null=False)
            .join(kept, left_on=ROW_NUMBERS, right_on=ROW_NUMBER, how="inner", maintain_order="left")
        )
        lists = lists.group_by(self.partials.keys, maintain_order=True).agg(pl.col(KEPT_ROW).alias(KEPT_ROWS))
        key_windows = states.drop(ROW_NUMBERS).join(
            lists, on=self.partials.keys, how="left", nulls_equal=True
        )
        return key_windows.with_columns(
            pl.col(KEPT_ROWS).fill_null(pl.lit([], self._empty_key_windows.schema[KEPT_ROWS]))
        )

    def _to_panes(self, rows: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
        if windows.is_empty():
            return empty_panes(self.node)
        full = windows.join(rows.with_columns(pl.col(ROW_NUMBER).cast(pl.Int64)), on=ROW_NUMBER, how="inner")
        extra = [
            pl.col(ROW_TIME).min().alias(START),
            (pl.col(ROW_TIME).max() + 1).alias(END),
            pl.col(PANE_INDEX).first(),
        ]
        merged = self.partials.from_rows(full, group=(WINDOW_NUMBER,), extra=extra)
        shown = (
            self.partials.add_results(merged)
            .with_columns(
                (pl.col(END) - 1).alias("event_time"),
                pl.col(START).alias("window_start"),
                pl.col(END).alias("window_end"),
                *panes.shown_once(),
                pl.col(WINDOW_NUMBER).alias(PAIR),
            )
            .with_columns(pl.col(PANE_INDEX).alias("index"), pl.col(PANE_INDEX).alias("settled_index"))
        )
        return shown.select(*self.node.schema, PAIR)
