"""Aggregation over panes: values and retractions come in, so that late rows upstream correct what was shown downstream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl
import polars.selectors as cs

from millrace import panes
from millrace.engine.exchange import Block, Body
from millrace.engine.operators import emit
from millrace.engine.operators.emit import Firing, Stepped, Windows
from millrace.engine.operators.slices import LEAST, ends_of, grid_of
from millrace.engine.state import Layout, SlotState


@dataclass(frozen=True, eq=False)
class PaneWindows(Windows):
    """The operator of a later aggregation. Its state is a bag of rows per key and window, or their sums where those suffice."""

    @cached_property
    def matter(self) -> list[str]:
        """The columns in which two rows must agree to cancel each other."""
        ordered = ["event_time"] if self.partials.ordered else []
        return [*self.group, *[c for c in (*self.partials.needs, *ordered) if c not in self.group]]

    @cached_property
    def layout(self) -> Layout:
        """How the bag, or the sums, are kept."""
        return Layout(pl.col("_end"), pl.col("_end"), self._merged)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: changes are applied, the watermark moves, panes fire, expired state is dropped."""
        id, horizon = self.operator.id, self.operator.horizon
        low0: int | None = state.values.get(id)
        low = self._low(body, low0)
        net = self._net(blocks)
        shown, changes, numbers = self._fire(state, net, low0, low)
        state = state.append(id, "rows", net, self.layout)
        state = state.append(id, "panes", numbers, self.pane_layout)
        if low is not None:
            state = state.expire(id, "rows", low - horizon).expire(id, "panes", low - horizon)
        return Stepped(state.with_values(id, low), low, shown, changes)

    def _low(self, body: Body, low0: int | None) -> int | None:
        """The least watermark of the operators whose panes come in; it never goes back."""
        upstream = [body.lows.get(id) for id in self.operator.upstream]
        known = [low for low in upstream if low is not None]
        if len(known) < len(upstream):
            return low0
        return min(known) if low0 is None else max(low0, min(known))

    def _net(self, blocks: list[Block]) -> pl.DataFrame:
        """What the batch's changes come to: rows with their weight, those that cancel left out; as sums, where sums suffice."""
        frames = [self._windowed(block.frame) for block in blocks]
        if not frames:
            return self._nothing
        rows = pl.concat(frames).group_by(self.matter).agg(pl.col("_w").sum()).filter(pl.col("_w") != 0)
        return self._sums(rows) if self.partials.additive else rows

    def _windowed(self, frame: pl.DataFrame) -> pl.DataFrame:
        sign = pl.when(pl.col("op") == panes.ADD).then(1).otherwise(-1).cast(pl.Int64).alias("_w")
        if self.operator.node.same_window:
            place = pl.col("window_start").alias("_start"), pl.col("window_end").alias("_end")
            return frame.with_columns(sign, *place).select(*self.matter, "_w")
        grid = grid_of(self.operator.node.windowing)
        at = pl.col("event_time")
        ends = pl.int_ranges(grid.first_end(at), grid.last_end(at) + 1, grid.window.every).alias("_end")
        return frame.with_columns(sign, ends).explode("_end").select(*self.matter, "_w")

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        number = pl.lit(0, pl.Int64)
        rows = (
            self.operator.node.inputs[0]
            .schema.to_frame()
            .with_columns(number.alias(c) for c in ("_start", "_end", "_w"))
        )
        rows = rows.clear().select(*self.matter, "_w")
        return self._sums(rows) if self.partials.additive else rows

    def _sums(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Additive partials of rows with weights."""
        if self.partials.counts:
            return rows.select(
                *self.partials.keys,
                *self.per,
                *[pl.col("_w").alias(column) for column in self.partials.columns],
            )
        back = rows.filter(pl.col("_w") < 0)
        if back.is_empty():
            return self._condensed(rows)
        come = self._condensed(rows.filter(pl.col("_w") > 0))
        gone = self.partials.of_gone(self._once(back.with_columns(-pl.col("_w"))), per=self.per)
        return self.partials.merged(pl.concat([come, gone]), per=self.per)

    def _once(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Each row as often as it weighs."""
        return (
            rows.select(pl.exclude("_w").repeat_by("_w")).explode(cs.all())
            if (rows["_w"] > 1).any()
            else rows.drop("_w")
        )

    def _condensed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Partials of rows that stand for as many as they weigh."""
        once = self._once(rows)
        if self.partials.ordered:
            once = once.sort("event_time", *self.partials.needs).with_row_index("_off")
            once = once.with_columns(
                pl.col("event_time").alias("_t"),
                pl.lit(0, pl.Int64).alias("_src"),
                pl.col("_off").cast(pl.Int64),
            )
        return self.partials.of_rows(once, per=self.per)

    def _merged(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self.partials.additive:
            return self.partials.merged(rows, per=self.per)
        return rows.group_by(self.matter).agg(pl.col("_w").sum()).filter(pl.col("_w") != 0)

    def _values(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The aggregates of each key and window that has rows."""
        merged = self._merged(rows)
        partials = merged if self.partials.additive else self._condensed(merged)
        return self.partials.results(partials.filter(pl.col("_n") > 0), per=self.per)

    def _fire(
        self, state: SlotState, net: pl.DataFrame, low0: int | None, low: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes to show, changes to pass on, numbers to remember."""
        id, nothing = self.operator.id, self.no_panes
        floor, roof = LEAST if low0 is None else low0, LEAST if low is None else low
        first, last = ends_of(net)
        oldest, newest = min(floor, first - 1), max(roof, last)
        kept = state.table(id, "rows").between(oldest, newest)
        if net.is_empty() and (floor == roof or not kept):
            return self.no_shown, nothing, self.no_numbers
        old = pl.concat([self._nothing, *kept])
        known = pl.concat([self.no_numbers, *state.table(id, "panes").between(oldest, newest)])
        fired = [
            emit.emit(self._firing(timing, before, now, known), known, roof)
            for timing, after, until in (
                ("late", oldest, floor),
                ("on_time", floor, roof),
                ("early", roof, newest),
            )
            for before, now in (self._due(timing, old, net, after, until),)
            if not (before.is_empty() and now.is_empty())
        ]
        if not fired:
            return self.no_shown, nothing, self.no_numbers
        return (
            pl.concat([self.no_shown, *(f.shown for f in fired)]),
            pl.concat([nothing, *(f.changes for f in fired)]),
            pl.concat([self.no_numbers, *(f.numbers for f in fired)]),
        )

    def _firing(self, timing: str, before: pl.DataFrame, now: pl.DataFrame, known: pl.DataFrame) -> Firing:
        """The values of the groups that are due, now and as they were shown. Before its window ended a group was shown only if counted."""
        new = self._values(pl.concat([before, now]))
        if timing == "late":
            return Firing(self.operator, new, self._values(before), timing)
        if known.is_empty():
            return Firing(self.operator, new, None, timing)
        return Firing(self.operator, new, self._values(_of(before, known.select(self.group))), timing)

    def _due(
        self, timing: str, old: pl.DataFrame, net: pl.DataFrame, low: int, high: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What was and what came of the groups to show: those touched; on time, all. Another windowing than that of the panes shows nothing early."""
        node = self.operator.node
        if timing == "early" and not node.same_window:
            return old.clear(), net.clear()
        within = pl.col("_end").is_between(low, high, closed="right")
        before, now = old.filter(within), net.filter(within)
        return before if timing == "on_time" else _of(before, now.select(self.group)), now


def _of(rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    return rows.join(groups, on=groups.columns, how="semi", nulls_equal=True)
