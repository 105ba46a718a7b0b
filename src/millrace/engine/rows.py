"""Aggregation over rows, by slices: one partial per key and slide, shared by all windows that cover it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.engine import firing
from millrace.engine.firing import Firing, Stepped
from millrace.engine.packets import Block, Body
from millrace.engine.partials import Partials, partials_of
from millrace.engine.plan import Operator
from millrace.engine.progress import Progress, Said
from millrace.engine.state import Layout, SlotState
from millrace.engine.windowing import GREATEST, LEAST, Grid

WIDE = 4_000_000
"""How many rows one expansion of slices into windows may make; more are made in turns."""


@dataclass(frozen=True, eq=False)
class RowWindows:
    """The operator of a first aggregation."""

    operator: Operator

    @cached_property
    def partials(self) -> Partials:
        """How its aggregates condense rows."""
        return partials_of(self.operator.node)

    @cached_property
    def grid(self) -> Grid:
        """Its windows."""
        return Grid(self.operator.node.windowing.window)

    @cached_property
    def layout(self) -> Layout:
        """How slices are kept."""
        return Layout(pl.col("_from"), self.grid.last_end(pl.col("_slice")), self.partials.merged)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: rows are judged, state is updated, the watermark moves, panes fire, expired state is dropped."""
        id, lateness = self.operator.id, self.operator.horizon
        said = self._said(body)
        before = Progress.from_json(state.values.get(id)).wake(said, body.now)
        new, late = self._take(blocks, said, before)
        after = before.move(said, body.now, end=body.end)
        shown, changes, numbers = self._fire(state, new, before.low, after.low)
        state = state.append(id, "slices", new, self.layout)
        state = state.append(id, "panes", numbers, firing.pane_layout(self.partials.keys))
        if after.low is not None:
            state = state.expire(id, "slices", after.low - lateness).expire(id, "panes", after.low - lateness)
        return Stepped(state.with_values(id, after.to_json()), after.low, shown, changes, late)

    def _said(self, body: Body) -> dict[str, Said]:
        said: dict[str, Said] = {}
        for index, edge in enumerate(self.operator.edges):
            if not isinstance(edge.origin, graph.Read):
                continue
            watermark, topic = edge.origin.watermark, edge.origin.topic.name
            for source in body.sources:
                if source.topic == topic:
                    clock = source.clocks[watermark.clock_id]
                    said[f"{index}/{topic}/{source.partition}"] = Said(clock, source.active, watermark.delay, watermark.idle)
        return said

    def _take(self, blocks: list[Block], said: dict[str, Said], progress: Progress) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The batch's accepted rows as partials, and the rows that some window refused."""
        taken: list[pl.DataFrame] = []
        late: list[pl.DataFrame] = []
        for block in blocks:
            prior = progress.channels[block.channel].watermark(said[block.channel].delay)
            frame, refused = self._judge(block, prior, progress.low)
            taken.append(self.partials.of_rows(frame) if block.kind == "rows" else frame)
            if not refused.is_empty():
                _, topic, partition = block.channel.split("/", 1)[0], *block.channel.split("/", 1)[1].rsplit("/", 1)
                late.append(refused.with_columns(pl.lit(topic).alias("_topic"), pl.lit(int(partition), pl.Int64).alias("_partition")))
        if not taken:
            return self._nothing, None
        new = taken[0] if len(taken) == 1 else self.partials.merged(pl.concat(taken))
        return new, pl.concat(late, how="diagonal_relaxed") if late else None

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        empty = self.operator.node.inputs[0].schema.to_frame()
        number = pl.lit(0, pl.Int64)
        rows = empty.with_columns(number.alias(c) for c in ("_t", "_src", "_off", "_slice", "_from"))
        return self.partials.of_rows(rows.clear())

    def _judge(self, block: Block, prior: int | None, low: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows with the first window end that takes them, and those that an earlier window would have taken."""
        windowing, grid = self.operator.node.windowing, self.grid
        frame = block.frame
        open_from = grid.end_above(None if prior is None else prior - windowing.lateness)
        closed_to = grid.end_above(low) if windowing.trigger.once else LEAST
        if block.kind == "partials" and open_from == LEAST and closed_to == LEAST:
            return frame, frame.clear()
        first = pl.col("_first") if block.kind == "rows" else grid.first_end(pl.col("_slice"))
        last = grid.last_end(pl.col("_slice"))
        frame = frame.with_columns(pl.max_horizontal("_from", pl.lit(open_from, pl.Int64)).alias("_late"))
        frame = frame.with_columns(pl.max_horizontal("_late", pl.lit(closed_to, pl.Int64)).alias("_from"))
        reason = pl.when(pl.col("_late") > first).then(pl.lit("late")).otherwise(pl.lit("closed"))
        missed = (pl.min_horizontal(pl.col("_from"), last + grid.window.every) - first) // grid.window.every
        refused = frame.filter(pl.col("_from") > first).with_columns(reason.alias("reason"), missed.alias("missed"))
        hidden = [c for c in ("_t", "_slice", "_from", "_first", "_late", "_src") if c in refused.columns]
        if block.kind == "partials":
            refused = refused.select(*self.partials.keys, pl.col("_slice").alias("event_time"), pl.col("_n").alias("_rows"), "reason", "missed")
        else:
            refused = refused.drop(hidden).with_columns(pl.lit(1, pl.Int64).alias("_rows"))
        return frame.filter(pl.col("_from") <= last).drop("_late"), refused

    def _fire(
        self, state: SlotState, new: pl.DataFrame, low0: int | None, low: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        node, id, group = self.operator.node, self.operator.id, [*self.partials.keys, "_end"]
        nothing = node.schema.to_frame()
        none = self.partials.results(self._nothing.with_columns(pl.lit(0, pl.Int64).alias("_end")))
        numbers = none.select(*group, *[pl.lit(0, dtype).alias(c) for c, dtype in firing.NUMBERS.items()])
        if low is None:
            return nothing, nothing, numbers
        touched = self.grid.expand(new, None, low0).select(group).unique()
        if low == low0 and touched.is_empty():
            return nothing, nothing, numbers
        oldest = min(LEAST if low0 is None else low0, touched["_end"].min() - 1 if not touched.is_empty() else GREATEST)
        kept = state.table(id, "slices").between(oldest, low)
        old = pl.concat(kept) if kept else new.clear()
        both = pl.concat([old, new])
        on_time = self._values(both, low0, low)
        shown, changes, _ = firing.emit(Firing(node, on_time, none, "on_time"), numbers, low, self.operator.horizon)
        if touched.is_empty():
            return shown, changes, numbers
        late = Firing(node, self._values(both, oldest, low0, touched), self._values(old, oldest, low0, touched), "late")
        known = pl.concat([numbers, *state.table(id, "panes").between(oldest, low)])
        late_shown, late_changes, numbers = firing.emit(late, known, low, self.operator.horizon)
        return pl.concat([late_shown, shown]), pl.concat([late_changes, changes]), numbers

    def _values(self, slices: pl.DataFrame, low: int | None, high: int | None, only: pl.DataFrame | None = None) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]`, or of those listed in `only`."""
        if only is not None:
            slices = slices.join(only.select(self.partials.keys).unique(), on=self.partials.keys, how="semi", nulls_equal=True)
        window = self.grid.window
        first, last = self._bounds(slices, low, high)
        per_slice = min(window.size, max(last - first, window.every)) // window.every
        if slices.height * per_slice > WIDE and last - first > window.every:
            middle = (first + last) // 2
            return pl.concat([self._values(slices, first, middle, only), self._values(slices, middle, last, only)])
        wide = self.grid.expand(slices, low, high)
        if only is not None:
            wide = wide.join(only, on=only.columns, how="semi", nulls_equal=True)
        return self.partials.results(self.partials.merged(wide, per=("_end",)))

    def _bounds(self, slices: pl.DataFrame, low: int | None, high: int | None) -> tuple[int, int]:
        """`(low, high]`, no wider than the windows that the slices at hand can reach."""
        if slices.is_empty() or high is None:
            return 0, 0
        first, last = slices.select(pl.col("_from").min(), self.grid.last_end(pl.col("_slice")).max().alias("last")).row(0)
        return max(LEAST if low is None else low, first - 1), min(high, last)
