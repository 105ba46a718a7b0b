"""Windows as arithmetic on columns, for sliding windows computed from slices."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine.state import Layout
from millrace.graph import Windowing
from millrace.values.columns import END, FIRST_OPEN_END, LAST_END, PARTIAL_ROWS, SLICE, SPAN_END
from millrace.windows import Sliding


@dataclass(frozen=True)
class Grid:
    """The window ends of a sliding window as expressions; the row form is `windows.Sliding`."""

    window: Sliding

    def slice_of(self, at: pl.Expr) -> pl.Expr:
        """The start of the slice that contains `at`."""
        width, offset = self.window.slice_size, self.window.offset
        return (at - offset) // width * width + offset

    def first_end(self, at: pl.Expr) -> pl.Expr:
        """The smallest window end above `at`."""
        w = self.window
        return ((at - (w.size + w.offset)) // w.every + 1) * w.every + (w.offset + w.size)

    def last_end(self, at: pl.Expr) -> pl.Expr:
        """The end of the latest window that contains `at`."""
        w = self.window
        return (at - w.offset) // w.every * w.every + (w.offset + w.size)

    def end_above(self, watermark: int | None) -> int:
        """The smallest window end above a watermark; anything where there is none yet."""
        return (
            BEFORE_ALL
            if watermark is None
            else END_OF_STREAM
            if watermark >= END_OF_STREAM
            else self.window.first_end(watermark)
        )

    def last_end_until(self, at: int) -> int:
        """The greatest window end up to a time."""
        return END_OF_STREAM if at >= END_OF_STREAM else self.window.first_end(at) - self.window.every

    def layout(self, merge: Callable[[pl.DataFrame], pl.DataFrame]) -> Layout:
        """How a table of slices is kept: each as long as one of its windows may change."""
        start = pl.col(SLICE)
        return Layout(self.first_end(start), self.last_end(start), merge)

    def align(self, slices: pl.DataFrame, low: int | None, high: int) -> pl.DataFrame:
        """Slices as if they began where the last of their windows in `(low, high]` does, so that those in the
        same windows are the same.
        """
        first = pl.max_horizontal(FIRST_OPEN_END, pl.lit(self.end_above(low), pl.Int64))
        last = pl.min_horizontal(self.last_end(pl.col(SLICE)), pl.lit(self.last_end_until(high), pl.Int64))
        return slices.with_columns(
            first.alias(FIRST_OPEN_END), (last - self.window.size).alias(SLICE)
        ).filter(pl.col(FIRST_OPEN_END) <= pl.col(SLICE) + self.window.size)

    def expand(self, slices: pl.DataFrame, low: int | None, high: int | None) -> pl.LazyFrame:
        """A row for each window end in `(low, high]` that takes the slice,
        as `_end`. Null is minus infinity.
        """
        if high is None:
            return slices.lazy().with_columns(pl.lit(0, pl.Int64).alias(END)).clear()
        return self._explode(self.bounds_of(slices, low, high))

    def newest(
        self, slices: pl.DataFrame, low: int | None, high: int, keys: list[str], order_columns: list[str]
    ) -> pl.LazyFrame:
        """A row for each key and window end in `(low, high]`, as `_end`: of the slices that it takes, the one
        whose place is the greatest.

        Where places follow time, a slice is hidden from the first window on that takes a later one: no other
        windows see it as the last.
        """
        hidden_from = pl.col(END).cum_min(reverse=True).shift(-1).over(keys)
        frame = self.bounds_of(slices, low, high).sort(order_columns)
        visible = frame.with_columns(pl.min_horizontal(LAST_END, hidden_from - self.window.every)).filter(
            pl.col(END) <= pl.col(LAST_END)
        )
        return self._explode(visible)

    def bounds_of(self, slices: pl.DataFrame, low: int | None, high: int) -> pl.LazyFrame:
        """The slices that some window takes which ends in `(low, high]`,
        the first such end as `_end` and the last as `_last`.
        """
        first = pl.max_horizontal(FIRST_OPEN_END, pl.lit(self.end_above(low), pl.Int64))
        last = pl.min_horizontal(self.last_end(pl.col(SLICE)), pl.lit(self.last_end_until(high), pl.Int64))
        return (
            slices.lazy()
            .with_columns(first.alias(END), last.alias(LAST_END))
            .filter(pl.col(END) <= pl.col(LAST_END))
        )

    def add_changes(self, changes: pl.DataFrame, keys: list[str]) -> pl.LazyFrame:
        """A row for each key and window end at which it has rows, with the sums of its changes up to there.
        A change takes effect at `_end`; all that is added is subtracted again.
        """
        sums = pl.exclude(*keys, END)
        points = changes.lazy().group_by(*keys, END).agg(sums.sum()).sort(END)
        until = pl.col(END).shift(-1).over(keys)
        spans = points.with_columns(sums.cum_sum().over(keys), until.alias(SPAN_END))
        return self.explode_spans(spans)

    def explode_spans(self, spans: pl.LazyFrame) -> pl.LazyFrame:
        """A row for each window end from `_end` to before `_span_end`, of spans in which there are rows."""
        ends = pl.int_ranges(END, SPAN_END, self.window.every)
        return (
            spans.filter(pl.col(PARTIAL_ROWS) > 0)
            .with_columns(ends.alias(END))
            .drop(SPAN_END)
            .explode(END, empty_as_null=False)
        )

    def _explode(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        if self.window.size <= self.window.every:
            return frame
        ends = pl.int_ranges(END, pl.col(LAST_END) + 1, self.window.every)
        return frame.with_columns(ends.alias(END)).explode(END, empty_as_null=False)


def grid_of(windowing: Windowing) -> Grid:
    """The grid of windows that are computed from slices."""
    if windowing.sliced_window is None:
        raise ValueError(f"{windowing.window} by {windowing.trigger} is not computed from slices")
    return Grid(windowing.sliced_window)


def end_range(groups: pl.DataFrame) -> tuple[int, int]:
    """The least and the greatest `_end`; of no groups, an empty range."""
    return (
        groups.select(pl.col(END).min().alias("least"), pl.col(END).max()).row(0)
        if groups.height
        else (END_OF_STREAM, BEFORE_ALL)
    )
