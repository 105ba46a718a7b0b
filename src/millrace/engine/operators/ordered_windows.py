"""Aggregation over windows that the rows themselves cut: so many rows, a change of a value, a mark.

Rows wait until the watermark has passed them, so that they can be taken in order. What is kept of a key is its rows that a window may
still show, and how far it has come; the newest version counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.aggregates import ORDER
from millrace.engine.arrivals import collect_reports, format_late_rows, load_rows
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.assign import WINDOW_INPUT, window_input
from millrace.engine.operators.emit import PAIR, OperatorResult, WindowOperator
from millrace.engine.operators.ordered_cuts import KeyWindow, cut_windows
from millrace.engine.progress import END_OF_STREAM, Progress
from millrace.engine.state import Layout, SlotState, add_missing_columns, concat_frames

BEFORE_ALL = -(2**62)
_NEVER_EXPIRES = pl.lit(END_OF_STREAM, pl.Int64)


@dataclass(frozen=True, eq=False)
class OrderedWindowsOperator(WindowOperator):
    """The operator of a first aggregation over rows in order."""

    @cached_property
    def keys(self) -> list[str]:
        """The key columns."""
        return list(self.operator.node.keys)

    @property
    def is_processing_time(self) -> bool:
        """Whether windows lie in processing time."""
        node = self.operator.node
        return isinstance(node, graph.Aggregation) and node.windowing.is_processing_time

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: rows behind their watermark are refused, the others wait; those before the new one are taken in order."""
        operator_id, is_processing_time = self.operator.id, self.is_processing_time
        saved = state.values.get(operator_id) or {"progress": None, "seq": 0, "time": BEFORE_ALL, "low": None}
        reports = collect_reports(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(reports, body.now)
        after = before.advance(reports, body.now, at_end=body.at_end)
        rows, late = self._split_late(load_rows(self.operator, blocks, reports, before))
        at_end = after.low_watermark is not None and after.low_watermark >= END_OF_STREAM
        time = (
            END_OF_STREAM
            if is_processing_time or at_end
            else BEFORE_ALL
            if after.low_watermark is None
            else after.low_watermark
        )
        watermark = (
            max(saved["low"] or BEFORE_ALL, body.now)
            if is_processing_time and not at_end
            else after.low_watermark
        )
        version = saved["seq"] + 1
        state, released = self._release(state, rows, saved["time"], time)
        state, emitted, side_outputs = self._process_ordered(
            state, released, version, (saved["time"], time), ended=at_end
        )
        state = state.with_values(
            operator_id,
            {
                **(state.values.get(operator_id) or {}),
                "progress": after.to_json(),
                "seq": version,
                "time": BEFORE_ALL if is_processing_time else time,
                "low": watermark,
            },
        )
        changes = emitted.drop(PAIR) if self.operator.travels else self.empty_changes
        return OperatorResult(
            state,
            watermark,
            emitted if self.operator.shows else self.empty_panes,
            changes,
            late,
            after.partition_watermarks(reports),
            side_outputs,
        )

    def _process_ordered(
        self,
        state: SlotState,
        released: pl.DataFrame | None,
        version: int,
        interval: tuple[int, int],
        *,
        ended: bool,
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """The outcome of rows taken in order: panes, and rows of side outputs by port."""
        return *self._process_rows(state, released, version, interval, ended=ended), {}

    @cached_property
    def _input_columns(self) -> list[str]:
        return self.partials.input_columns if isinstance(self.operator.node, graph.Aggregation) else []

    @cached_property
    def _kept_columns(self) -> list[str]:
        """What is kept of a row besides its key."""
        return [c for c in dict.fromkeys([*self._input_columns, *ORDER, WINDOW_INPUT]) if c not in self.keys]

    def _split_late(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The rows that wait now, and those that come too late to be taken in order."""
        if rows is None:
            return None, None
        is_behind = (pl.col("_t") < pl.col("_w")).fill_null(value=False) & (not self.is_processing_time)
        refused = rows.filter(pl.col("_ahead") | is_behind)
        reason = pl.when(pl.col("_ahead")).then(pl.lit("future")).otherwise(pl.lit("late"))
        verdicts = refused.select("_row", reason.alias("reason"), pl.lit(1, pl.Int64).alias("missed"))
        accepted = rows.filter(~(pl.col("_ahead") | is_behind))
        if WINDOW_INPUT not in accepted.columns:
            accepted = accepted.with_columns(pl.lit(None, pl.Boolean).alias(WINDOW_INPUT))
        return accepted.select(
            *self.keys, *self._kept_columns
        ), None if refused.is_empty() else format_late_rows(rows, verdicts)

    def _release(
        self,
        state: SlotState,
        rows: pl.DataFrame | None,
        old_watermark: int,
        watermark: int,
        *,
        table: str = "waiting",
    ) -> tuple[SlotState, pl.DataFrame | None]:
        """The rows that are before the watermark now; the others are kept, each until it is."""
        operator_id, is_released = self.operator.id, pl.col("_t") < watermark
        layout = Layout(pl.col("_t"), pl.col("_t"), lambda frame: frame.filter(pl.col("_t") >= old_watermark))
        chunks = [chunk for chunk in state.table(operator_id, table).chunks if chunk.min_end < watermark]
        released = [chunk.frame.filter(is_released & (pl.col("_t") >= old_watermark)) for chunk in chunks]
        if rows is not None:
            released.append(rows.filter(is_released))
            state = state.append(operator_id, table, rows.filter(~is_released), layout)
        return state.expire(operator_id, table, watermark - 1), concat_frames(
            self._add_new_fields(released, table)
        ) if released else None

    def _add_new_fields(self, frames: list[pl.DataFrame], table: str) -> list[pl.DataFrame]:
        """Rows that waited, with the fields that their type has got since: null, as in records that lack them."""
        fields = self.operator.node.inputs[0 if table == "waiting" else -1].schema
        expected = {
            name: dtype for name, dtype in fields.items() if name in self._kept_columns or table != "waiting"
        }
        if all(expected.keys() <= {*frame.columns} for frame in frames):
            return frames
        newest = frames[-1].columns
        order = (
            newest
            if expected.keys() <= {*newest}
            else [*expected, *(name for name in newest if name not in expected)]
        )
        schema = {name: fields[name] if name in fields else frames[-1].schema[name] for name in order}
        return [add_missing_columns(frame, schema) for frame in frames]

    @cached_property
    def _empty_key_windows(self) -> pl.DataFrame:
        empty, number = self.operator.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        window_inputs = window_input(self.operator.aggregation.windowing.assigner) or [
            pl.lit(None, pl.Boolean).alias(WINDOW_INPUT)
        ]
        rows = (
            empty.with_columns(*window_inputs)
            .with_columns(number.alias(c) for c in (*ORDER, "_since", "_shown", "_seq"))
            .clear()
        )
        kept_rows = pl.struct(self._kept_columns).implode().alias("_rows")
        key_windows = rows.group_by(self.keys).agg(
            kept_rows, pl.col("_since", "_shown", "_seq").first(), pl.col(WINDOW_INPUT).first().alias("_mark")
        )
        return key_windows.select(*self.keys, "_rows", "_since", "_shown", "_mark", "_seq")

    @cached_property
    def _layout(self) -> Layout:
        def newest(frame: pl.DataFrame) -> pl.DataFrame:
            return frame.sort("_seq").unique(self.keys, keep="last", maintain_order=True)

        return Layout(_NEVER_EXPIRES, _NEVER_EXPIRES, newest)

    def _process_rows(
        self,
        state: SlotState,
        released: pl.DataFrame | None,
        version: int,
        interval: tuple[int, int],  # noqa: ARG002 - windows that rows cut do not ask how time passes
        *,
        ended: bool,
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows taken in order, and the panes of the windows that are full; at the end of the stream also those that are not."""
        operator_id, keys = self.operator.id, self.keys
        if (released is None or released.is_empty()) and not ended:
            return state, self.empty_panes
        stored = self._layout.merge(
            pl.concat(
                [
                    self._empty_key_windows,
                    *(chunk.frame for chunk in state.table(operator_id, "courses").chunks),
                ]
            )
        )
        fresh = self._empty_key_windows.select(keys).clear() if released is None else released
        if not ended:
            stored = stored.join(fresh.select(keys).unique(), on=keys, how="semi", nulls_equal=True)
        rows, starts = self._sort_rows(stored, fresh)
        windows, key_windows = self._cut_windows(rows, starts, stored, ended=ended)
        key_windows = key_windows.with_columns(pl.lit(version, pl.Int64).alias("_seq")).select(
            self._empty_key_windows.columns
        )
        return state.append(operator_id, "courses", key_windows, self._layout), self._to_panes(rows, windows)

    def _sort_rows(self, stored: pl.DataFrame, fresh: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """All rows at hand, key by key: first those kept, then the new ones; and for each key where they lie."""
        keys = self.keys
        kept = (
            stored.select(*keys, "_rows")
            .filter(pl.col("_rows").list.len() > 0)
            .explode("_rows")
            .unnest("_rows")
        )
        frames = [kept.with_columns(_new=pl.lit(0, pl.Int64))]
        if "_t" in fresh.columns:
            frames.append(fresh.with_columns(_new=pl.lit(1, pl.Int64)))
        rows = pl.concat(frames, how="diagonal_relaxed")
        if self.is_processing_time:
            rows = (
                rows.with_row_index("_line")
                .sort(
                    *keys,
                    "_new",
                    pl.when(pl.col("_new") == 1).then("_t"),
                    pl.when(pl.col("_new") == 1).then("_src"),
                    pl.when(pl.col("_new") == 1).then("_off"),
                    "_line",
                )
                .drop("_line")
            )
        else:
            rows = rows.sort(*keys, "_new", *ORDER)
        rows = rows.with_row_index("_number")
        numbers = pl.col("_number").cast(pl.Int64)
        return rows, rows.group_by(keys, maintain_order=True).agg(
            numbers.min().alias("_first"),
            (pl.len() - pl.col("_new").sum()).cast(pl.Int64).alias("_old"),
            pl.len().cast(pl.Int64).alias("_all"),
        )

    def _cut_windows(
        self, rows: pl.DataFrame, starts: pl.DataFrame, stored: pl.DataFrame, *, ended: bool
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of each full window (`_window`, `_number`, `_index`), and what the keys have come to."""
        keys, values = self.keys, rows[WINDOW_INPUT].to_list()
        stored_windows = starts.join(
            stored.drop("_rows", "_seq"), on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
        numbers: list[int] = []
        ids: list[int] = []
        index: list[int] = []
        after: list[tuple[list[int], int, int, Any]] = []
        window_count = 0
        for first, old_count, row_count, rows_since, emitted, reference in stored_windows.select(
            "_first", "_old", "_all", "_since", "_shown", "_mark"
        ).iter_rows():
            key_window = KeyWindow(list(range(first, first + old_count)), rows_since or 0, reference)
            full = cut_windows(
                self.operator.aggregation.windowing.assigner,
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
            {"_window": ids, "_number": numbers, "_index": index},
            schema=dict.fromkeys(("_window", "_number", "_index"), pl.Int64),
        )
        return windows, self._to_key_windows(rows, stored_windows.select(keys), after)

    def _to_key_windows(
        self, rows: pl.DataFrame, keys: pl.DataFrame, after: list[tuple[list[int], int, int, Any]]
    ) -> pl.DataFrame:
        reference_type = self._empty_key_windows.schema["_mark"]
        schema = {
            "_numbers": pl.List(pl.Int64),
            "_since": pl.Int64(),
            "_shown": pl.Int64(),
            "_mark": reference_type,
        }
        states = pl.concat([keys, pl.DataFrame(after, schema=schema, orient="row")], how="horizontal")
        kept = rows.with_columns(pl.col("_number").cast(pl.Int64)).select(
            "_number", pl.struct(self._kept_columns).alias("_row")
        )
        lists = (
            states.select(*self.keys, "_numbers")
            .explode("_numbers", empty_as_null=False)
            .join(kept, left_on="_numbers", right_on="_number", how="inner", maintain_order="left")
        )
        lists = lists.group_by(self.keys, maintain_order=True).agg(pl.col("_row").alias("_rows"))
        key_windows = states.drop("_numbers").join(lists, on=self.keys, how="left", nulls_equal=True)
        return key_windows.with_columns(
            pl.col("_rows").fill_null(pl.lit([], self._empty_key_windows.schema["_rows"]))
        )

    def _to_panes(self, rows: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
        if windows.is_empty():
            return self.empty_panes
        full = windows.join(rows.with_columns(pl.col("_number").cast(pl.Int64)), on="_number", how="inner")
        extra = [
            pl.col("_t").min().alias("_start"),
            (pl.col("_t").max() + 1).alias("_end"),
            pl.col("_index").first(),
        ]
        merged = self.partials.from_rows(full, group=("_window",), extra=extra)
        return merged.with_columns(
            *self.partials.result_exprs,
            (pl.col("_end") - 1).alias("event_time"),
            pl.col("_start").alias("window_start"),
            pl.col("_end").alias("window_end"),
            pl.col("_index").alias("index"),
            pl.col("_index").alias("settled_index"),
            pl.lit("on_time").alias("timing"),
            pl.lit(value=True).alias("final"),
            pl.lit(panes.ADD).alias("op"),
            pl.col("_window").alias(PAIR),
        ).select(*self.operator.node.schema, PAIR)
