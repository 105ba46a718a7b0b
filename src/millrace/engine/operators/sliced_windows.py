"""Aggregation over rows, by slices: one partial per key and slide, shared by all windows that cover it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace.engine.arrivals import learned, said_of
from millrace.engine.exchange import Block, Body
from millrace.engine.operators import emit
from millrace.engine.operators.emit import Firing, Stepped, Windows
from millrace.engine.operators.running_sums import Moved, Running, runs_along
from millrace.engine.operators.slices import LEAST, Grid, ends_of, grid_of
from millrace.engine.progress import Progress, Said
from millrace.engine.state import Layout, SlotState

MERGED = 8
"""How many of the windows at hand a slice must be in before slices that are in the same ones are merged first."""
WIDE = 4_000_000
"""How many rows one expansion of slices into windows may make; more are made in turns."""


@dataclass(frozen=True, eq=False)
class RowWindows(Windows):
    """The operator of a first aggregation."""

    @cached_property
    def grid(self) -> Grid:
        """Its windows."""
        return grid_of(self.operator.node.windowing)

    @cached_property
    def layout(self) -> Layout:
        """How slices are kept."""
        start = pl.col("_slice")
        return Layout(self.grid.first_end(start), self.grid.last_end(start), self.partials.merged)

    @cached_property
    def running(self) -> Running | None:
        """How windows that share very much are made; None: of their slices."""
        return (
            Running(self.grid, self.partials, self.nothing) if runs_along(self.grid, self.partials) else None
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: rows are judged, state is updated, the watermark moves, panes fire, expired state is dropped."""
        id, lateness = self.operator.id, self.operator.horizon
        said = said_of(self.operator, body)
        before = Progress.from_json(state.values.get(id)).wake(said, body.now)
        new, late = self._take(blocks, said, before)
        after = before.move(said, body.now, end=body.end)
        moved = self._moved(state, new, before.low, after.low)
        shown, changes, numbers = self._fire(state, new, (before.low, after), moved)
        if self.running is not None:
            state = self.running.kept(state, id, moved, new)
        state = state.append(id, "slices", new, self.layout)
        state = state.append(id, "panes", numbers, self.pane_layout)
        if after.low is not None:
            leaving = self.grid.window.every if self.running is not None else 0
            state = state.expire(id, "slices", after.low - lateness - leaving).expire(
                id, "panes", after.low - lateness
            )
        return Stepped(
            state.with_values(id, after.to_json()), after.low, shown, changes, late, after.reaches(said)
        )

    def _moved(self, state: SlotState, new: pl.DataFrame, low0: int | None, low: int | None) -> Moved | None:
        """What the batch does to running sums, if there are any."""
        return (
            None
            if self.running is None or low is None
            else self.running.moved(state, self.operator.id, new, low0, low)
        )

    def _take(
        self, blocks: list[Block], said: dict[str, Said], progress: Progress
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The batch's accepted rows as partials, and the rows that some window refused."""
        taken: list[pl.DataFrame] = [self.nothing]
        late: list[pl.DataFrame] = []
        for block in blocks:
            frame, refused = self._judge(block, said, progress)
            frame = self.partials.of_rows(frame) if block.kind == "rows" else frame.drop("_part")
            taken.append(frame)
            if refused is not None:
                topic = block.channel.partition("/")[2]
                late.append(
                    refused.rename({"_part": "_partition"}).with_columns(pl.lit(topic).alias("_topic"))
                )
        return pl.concat(taken), pl.concat(late, how="diagonal_relaxed") if late else None

    @cached_property
    def nothing(self) -> pl.DataFrame:
        """No slices, in the columns that they have."""
        empty = self.operator.node.inputs[0].schema.to_frame()
        number = pl.lit(0, pl.Int64)
        rows = empty.with_columns(number.alias(c) for c in ("_t", "_src", "_off", "_slice", "_from"))
        return self.partials.of_rows(rows.clear())

    def _judge(
        self, block: Block, said: dict[str, Said], progress: Progress
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows with the first window end that takes them, and those that an earlier window would have taken."""
        windowing, grid, frame = self.operator.node.windowing, self.grid, block.frame
        judged = self.operator.judged(block.channel)
        if "_clock" in frame.columns:
            marks = learned(frame, block.channel, said, progress)
            frame = frame.with_columns(
                pl.max_horizontal("_from", grid.first_end(marks - windowing.lateness))
            ).drop("_clock")
        opened = {}
        for part in frame["_part"].unique():
            name = f"{block.channel}/{part}"
            prior = None if judged else progress.channels[name].watermark(said[name].delay)
            opened[part] = max(
                grid.end_above(None if prior is None else prior - windowing.lateness),
                grid.end_above(progress.gone),
            )
        closed = grid.end_above(progress.low) if windowing.once else LEAST
        least: Any = frame["_from"].min()
        if block.kind == "partials" and max(*opened.values(), closed) <= least:
            return frame, None
        first = pl.col("_first") if block.kind == "rows" else grid.first_end(pl.col("_slice"))
        last = grid.last_end(pl.col("_slice"))
        open_from = pl.col("_part").replace_strict(opened, return_dtype=pl.Int64)
        frame = frame.with_columns(
            pl.max_horizontal("_from", open_from).alias("_late"), first.alias("_first")
        )
        frame = frame.with_columns(pl.max_horizontal("_late", pl.lit(closed, pl.Int64)).alias("_from"))
        refused = frame.filter(pl.col("_from") > pl.col("_first"))
        taken = frame.filter(pl.col("_from") <= last).drop("_late", "_first")
        return taken, None if refused.is_empty() else self._refused(refused, whole=block.kind == "rows")

    def _refused(self, frame: pl.DataFrame, *, whole: bool) -> pl.DataFrame:
        """Rows as the late output shows them; those that came condensed, with what is known of them."""
        every, last = self.grid.window.every, self.grid.last_end(pl.col("_slice"))
        reason = pl.when(pl.col("_late") > pl.col("_first")).then(pl.lit("late")).otherwise(pl.lit("closed"))
        missed = (pl.min_horizontal(pl.col("_from"), last + every) - pl.col("_first")) // every
        frame = frame.with_columns(reason.alias("reason"), missed.alias("missed"))
        if whole:
            return frame.drop("_t", "_slice", "_from", "_first", "_late", "_src").with_columns(
                pl.lit(1, pl.Int64).alias("_rows")
            )
        return frame.select(
            *self.partials.keys,
            "_part",
            "reason",
            "missed",
            pl.col("_slice").alias("event_time"),
            pl.col("_n").alias("_rows"),
        )

    def _fire(
        self, state: SlotState, new: pl.DataFrame, passed: tuple[int | None, Progress], moved: Moved | None
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes to show, changes to pass on, numbers to remember."""
        id, group, low0, low, young = (
            self.operator.id,
            self.group,
            passed[0],
            passed[1].low,
            self.begun_before(passed[1].since),
        )
        shown, changes, numbers = [self.no_shown], [self.no_panes], self.no_numbers
        floor = LEAST if low0 is None else low0
        least: Any = new["_from"].min()
        late = least is not None and least <= floor
        if low is None or (self.grid.end_above(low0) > low and not late):
            return self.no_shown, self.no_panes, numbers
        touched = (
            self.grid.expand(new, None, low0).select(group).unique().collect()
            if late
            else self.no_numbers.select(group)
        )
        oldest = min(floor, ends_of(touched)[0] - 1)
        needed = (
            [] if touched.is_empty() and moved is not None else state.table(id, "slices").between(oldest, low)
        )
        old = pl.concat([self.nothing, *needed])
        if not touched.is_empty():
            known = pl.concat([numbers, *state.table(id, "panes").between(oldest, low)])
            before, now = self._touched(old, touched), self._touched(new, touched)
            values = (
                self._values(pl.concat([before, now]), oldest, low0, touched),
                self._values(before, oldest, low0, touched),
            )
            fired = emit.emit(
                Firing(self.operator, values[0].with_columns(young), values[1].with_columns(young), "late"),
                known,
                low,
            )
            shown.append(fired.shown)
            changes.append(fired.changes)
            numbers = fired.numbers
        if self.grid.end_above(low0) <= low and (old.height or new.height or moved is not None):
            values_now = self._complete(old, new, low0, low, moved).with_columns(young)
            fired = emit.emit(Firing(self.operator, values_now, None, "on_time"), self.no_numbers, low)
            shown.append(fired.shown)
            changes.append(fired.changes)
        return pl.concat(shown), pl.concat(changes), numbers

    def _touched(self, slices: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
        """The slices of keys that are to be shown again."""
        keys = self.partials.keys
        return (
            slices.lazy()
            .join(groups.lazy().select(keys).unique(), on=keys, how="semi", nulls_equal=True)
            .collect()
        )

    def _complete(
        self, old: pl.DataFrame, new: pl.DataFrame, low0: int | None, low: int, moved: Moved | None
    ) -> pl.DataFrame:
        """The aggregates of each key and window that is complete now."""
        if self.running is None or moved is None:
            return self._values(pl.concat([old, new]), low0, low)
        return self.running.complete(moved, low0)

    def _values(
        self, slices: pl.DataFrame, low: int | None, high: int | None, only: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]`, or of those listed in `only`."""
        if self.running is not None and only is not None and low is not None and high is not None:
            return _among(self.running.refined(slices, low, high).lazy(), only).collect()
        if (
            self.partials.newest
            and high is not None
            and not any(slices[c].null_count() for c in self.partials.newest)
        ):
            alone = self.grid.newest(slices, low, high, self.partials.keys, self.partials.newest)
            return self.partials.results(_among(alone, only))
        window = self.grid.window
        first, last = self._bounds(slices, low, high)
        per_slice = min(window.size, max(last - first, window.every)) // window.every
        if per_slice >= MERGED and high is not None:
            slices = self.partials.merged(self.grid.alike(slices, low, high))
        if slices.height * per_slice > WIDE and last - first > window.every:
            middle = (first + last) // 2
            sooner = slices.filter(pl.col("_from") <= middle)
            later = slices.filter(self.grid.last_end(pl.col("_slice")) > middle)
            return pl.concat(
                [self._values(sooner, first, middle, only), self._values(later, middle, last, only)]
            )
        return self.partials.answers(_among(self.grid.expand(slices, low, high), only))

    def _bounds(self, slices: pl.DataFrame, low: int | None, high: int | None) -> tuple[int, int]:
        """`(low, high]`, no wider than the windows that the slices at hand can reach."""
        if slices.is_empty() or high is None:
            return 0, 0
        first, last = slices.select(
            pl.col("_from").min(), self.grid.last_end(pl.col("_slice")).max().alias("last")
        ).row(0)
        return max(LEAST if low is None else low, first - 1), min(high, last)


def _among(frame: pl.LazyFrame, groups: pl.DataFrame | None) -> pl.LazyFrame:
    """The rows of some groups, or of all."""
    return (
        frame
        if groups is None
        else frame.join(groups.lazy(), on=groups.columns, how="semi", nulls_equal=True)
    )
