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

from millrace import panes
from millrace.aggregates import ORDER
from millrace.engine.arrivals import arrived, refused_rows, said_of
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.assign import PLACE, placed
from millrace.engine.operators.emit import PAIR, Stepped, Windows
from millrace.engine.operators.ordered_cuts import Course, cut
from millrace.engine.progress import END, Progress
from millrace.engine.state import Layout, SlotState, grown, stacked

LEAST = -(2**62)
_FOR_EVER = pl.lit(END, pl.Int64)


@dataclass(frozen=True, eq=False)
class SequenceWindows(Windows):
    """The operator of a first aggregation over rows in order."""

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: rows behind their watermark are refused, the others wait; those before the new one are taken in order."""
        id, by_clock = self.operator.id, self.operator.node.windowing.by_clock
        saved = state.values.get(id) or {"progress": None, "seq": 0, "time": LEAST, "low": None}
        said = said_of(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(said, body.now)
        after = before.move(said, body.now, end=body.end)
        rows, late = self._judged(arrived(self.operator, blocks, said, before))
        ended = after.low is not None and after.low >= END
        time = END if by_clock or ended else LEAST if after.low is None else after.low
        low = max(saved["low"] or LEAST, body.now) if by_clock and not ended else after.low
        seq = saved["seq"] + 1
        state, free = self._released(state, rows, saved["time"], time)
        state, shown, sides = self._said(state, free, seq, (saved["time"], time), ended=ended)
        state = state.with_values(
            id,
            {
                **(state.values.get(id) or {}),
                "progress": after.to_json(),
                "seq": seq,
                "time": LEAST if by_clock else time,
                "low": low,
            },
        )
        changes = shown.drop(PAIR) if self.operator.travels else self.no_panes
        return Stepped(
            state,
            low,
            shown if self.operator.shows else self.no_shown,
            changes,
            late,
            after.reaches(said),
            sides,
        )

    def _said(
        self, state: SlotState, free: pl.DataFrame | None, seq: int, passed: tuple[int, int], *, ended: bool
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """What rows taken in order bring about: panes, and by port what is said besides."""
        return *self._taken(state, free, seq, passed, ended=ended), {}

    @cached_property
    def _kept(self) -> list[str]:
        """What is kept of a row besides its key."""
        return [
            c for c in dict.fromkeys([*self.partials.needs, *ORDER, PLACE]) if c not in self.partials.keys
        ]

    def _judged(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The rows that wait now, and those that come too late to be taken in order."""
        if rows is None:
            return None, None
        behind = (pl.col("_t") < pl.col("_w")).fill_null(value=False) & (
            not self.operator.node.windowing.by_clock
        )
        refused = rows.filter(pl.col("_ahead") | behind)
        reason = pl.when(pl.col("_ahead")).then(pl.lit("future")).otherwise(pl.lit("late"))
        verdicts = refused.select("_row", reason.alias("reason"), pl.lit(1, pl.Int64).alias("missed"))
        taken = rows.filter(~(pl.col("_ahead") | behind))
        if PLACE not in taken.columns:
            taken = taken.with_columns(pl.lit(None, pl.Boolean).alias(PLACE))
        return taken.select(*self.partials.keys, *self._kept), None if refused.is_empty() else refused_rows(
            rows, verdicts
        )

    def _released(
        self, state: SlotState, rows: pl.DataFrame | None, since: int, time: int, *, table: str = "waiting"
    ) -> tuple[SlotState, pl.DataFrame | None]:
        """The rows that are before the watermark now; the others are kept, each until it is."""
        id, soon = self.operator.id, pl.col("_t") < time
        layout = Layout(pl.col("_t"), pl.col("_t"), lambda frame: frame.filter(pl.col("_t") >= since))
        chunks = [chunk for chunk in state.table(id, table).chunks if chunk.low < time]
        free = [chunk.frame.filter(soon & (pl.col("_t") >= since)) for chunk in chunks]
        if rows is not None:
            free.append(rows.filter(soon))
            state = state.append(id, table, rows.filter(~soon), layout)
        return state.expire(id, table, time - 1), stacked(
            self._with_new_fields(free, table)
        ) if free else None

    def _with_new_fields(self, frames: list[pl.DataFrame], table: str) -> list[pl.DataFrame]:
        """Rows that waited, with the fields that their type has got since: null, as in records that lack them."""
        fields = self.operator.node.inputs[0 if table == "waiting" else -1].schema
        kept = {name: dtype for name, dtype in fields.items() if name in self._kept or table != "waiting"}
        if all(kept.keys() <= {*frame.columns} for frame in frames):
            return frames
        newest = frames[-1].columns
        order = (
            newest if kept.keys() <= {*newest} else [*kept, *(name for name in newest if name not in kept)]
        )
        wanted = {name: fields[name] if name in fields else frames[-1].schema[name] for name in order}
        return [grown(frame, wanted) for frame in frames]

    @cached_property
    def _no_courses(self) -> pl.DataFrame:
        empty, number = self.operator.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        place = placed(self.operator.node.windowing.places) or [pl.lit(None, pl.Boolean).alias(PLACE)]
        rows = (
            empty.with_columns(*place)
            .with_columns(number.alias(c) for c in (*ORDER, "_since", "_shown", "_seq"))
            .clear()
        )
        kept = pl.struct(self._kept).implode().alias("_rows")
        courses = rows.group_by(self.partials.keys).agg(
            kept, pl.col("_since", "_shown", "_seq").first(), pl.col(PLACE).first().alias("_mark")
        )
        return courses.select(*self.partials.keys, "_rows", "_since", "_shown", "_mark", "_seq")

    @cached_property
    def _layout(self) -> Layout:
        def newest(frame: pl.DataFrame) -> pl.DataFrame:
            return frame.sort("_seq").unique(self.partials.keys, keep="last", maintain_order=True)

        return Layout(_FOR_EVER, _FOR_EVER, newest)

    def _taken(
        self,
        state: SlotState,
        free: pl.DataFrame | None,
        seq: int,
        passed: tuple[int, int],  # noqa: ARG002 - windows that rows cut do not ask how time passes
        *,
        ended: bool,
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows taken in order, and the panes of the windows that are full; at the end of the stream also those that are not."""
        id, keys = self.operator.id, self.partials.keys
        if (free is None or free.is_empty()) and not ended:
            return state, self.no_shown
        known = self._layout.merge(
            pl.concat([self._no_courses, *(chunk.frame for chunk in state.table(id, "courses").chunks)])
        )
        fresh = self._no_courses.select(keys).clear() if free is None else free
        if not ended:
            known = known.join(fresh.select(keys).unique(), on=keys, how="semi", nulls_equal=True)
        rows, starts = self._in_line(known, fresh)
        windows, courses = self._cut(rows, starts, known, ended=ended)
        courses = courses.with_columns(pl.lit(seq, pl.Int64).alias("_seq")).select(self._no_courses.columns)
        return state.append(id, "courses", courses, self._layout), self._panes(rows, windows)

    def _in_line(self, known: pl.DataFrame, fresh: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """All rows at hand, key by key: first those kept, then the new ones; and for each key where they lie."""
        keys = self.partials.keys
        kept = (
            known.select(*keys, "_rows")
            .filter(pl.col("_rows").list.len() > 0)
            .explode("_rows")
            .unnest("_rows")
        )
        parts = [kept.with_columns(_new=pl.lit(0, pl.Int64))]
        if "_t" in fresh.columns:
            parts.append(fresh.with_columns(_new=pl.lit(1, pl.Int64)))
        rows = pl.concat(parts, how="diagonal_relaxed")
        if self.operator.node.windowing.by_clock:
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

    def _cut(
        self, rows: pl.DataFrame, starts: pl.DataFrame, known: pl.DataFrame, *, ended: bool
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of each full window (`_window`, `_number`, `_index`), and what the keys have come to."""
        keys, values = self.partials.keys, rows[PLACE].to_list()
        courses = starts.join(
            known.drop("_rows", "_seq"), on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
        numbers: list[int] = []
        ids: list[int] = []
        index: list[int] = []
        after: list[tuple[list[int], int, int, Any]] = []
        made = 0
        for first, old, whole, since, shown, mark in courses.select(
            "_first", "_old", "_all", "_since", "_shown", "_mark"
        ).iter_rows():
            course = Course(list(range(first, first + old)), since or 0, mark)
            full = cut(self.operator.node.windowing.places, course, values, range(first + old, first + whole))
            if ended and course.since:
                full.append(course.rows)
                course.rows, course.since = [], 0
            for place, window in enumerate(full):
                numbers += window
                ids += [made] * len(window)
                index += [(shown or 0) + place] * len(window)
                made += 1
            after.append((course.rows, course.since, (shown or 0) + len(full), course.mark))
        windows = pl.DataFrame(
            {"_window": ids, "_number": numbers, "_index": index},
            schema=dict.fromkeys(("_window", "_number", "_index"), pl.Int64),
        )
        return windows, self._courses(rows, courses.select(keys), after)

    def _courses(
        self, rows: pl.DataFrame, keys: pl.DataFrame, after: list[tuple[list[int], int, int, Any]]
    ) -> pl.DataFrame:
        mark = self._no_courses.schema["_mark"]
        schema = {"_numbers": pl.List(pl.Int64), "_since": pl.Int64(), "_shown": pl.Int64(), "_mark": mark}
        states = pl.concat([keys, pl.DataFrame(after, schema=schema, orient="row")], how="horizontal")
        kept = rows.with_columns(pl.col("_number").cast(pl.Int64)).select(
            "_number", pl.struct(self._kept).alias("_row")
        )
        lists = (
            states.select(*self.partials.keys, "_numbers")
            .explode("_numbers", empty_as_null=False)
            .join(kept, left_on="_numbers", right_on="_number", how="inner", maintain_order="left")
        )
        lists = lists.group_by(self.partials.keys, maintain_order=True).agg(pl.col("_row").alias("_rows"))
        made = states.drop("_numbers").join(lists, on=self.partials.keys, how="left", nulls_equal=True)
        return made.with_columns(pl.col("_rows").fill_null(pl.lit([], self._no_courses.schema["_rows"])))

    def _panes(self, rows: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
        if windows.is_empty():
            return self.no_shown
        full = windows.join(rows.with_columns(pl.col("_number").cast(pl.Int64)), on="_number", how="inner")
        more = [
            pl.col("_t").min().alias("_start"),
            (pl.col("_t").max() + 1).alias("_end"),
            pl.col("_index").first(),
        ]
        made = self.partials.of_rows(full, per=("_window",), more=more)
        return made.with_columns(
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
