"""Windows as arithmetic on columns, for sliding windows computed from slices."""

from dataclasses import dataclass

import polars as pl

from millrace.graph import Windowing
from millrace.windows import Sliding

LEAST, GREATEST = -(2**62), 2**62


@dataclass(frozen=True)
class Grid:
    """The window ends of a sliding window as expressions; the row form is `windows.Sliding`."""

    window: Sliding

    def slice_of(self, at: pl.Expr) -> pl.Expr:
        """The start of the slice that contains `at`."""
        width, offset = self.window.slice, self.window.offset
        return (at - offset) // width * width + offset

    def first_end(self, at: pl.Expr) -> pl.Expr:
        """The smallest window end above `at`."""
        w = self.window
        return ((at - (w.size + w.offset)) // w.every + 1) * w.every + (w.offset + w.size)

    def last_end(self, at: pl.Expr) -> pl.Expr:
        """The end of the latest window that contains `at`."""
        w = self.window
        return (at - w.offset) // w.every * w.every + (w.offset + w.size)

    def end_above(self, at: int | None) -> int:
        """The smallest window end above a watermark; anything where there is none yet."""
        return LEAST if at is None else GREATEST if at >= GREATEST else self.window.first_end(at)

    def alike(self, slices: pl.DataFrame, low: int | None, high: int) -> pl.DataFrame:
        """Slices as if they began where the last of their windows in `(low, high]` does, so that those in the same windows are the same."""
        first = pl.max_horizontal("_from", pl.lit(self.end_above(low), pl.Int64))
        last = pl.min_horizontal(self.last_end(pl.col("_slice")), pl.lit(_last_up_to(self.window, high), pl.Int64))
        return slices.with_columns(first.alias("_from"), (last - self.window.size).alias("_slice")).filter(
            pl.col("_from") <= pl.col("_slice") + self.window.size
        )

    def expand(self, slices: pl.DataFrame, low: int | None, high: int | None) -> pl.LazyFrame:
        """A row for each window end in `(low, high]` that takes the slice, as `_end`. Null is minus infinity."""
        w, frame = self.window, slices.lazy()
        if high is None:
            return frame.with_columns(pl.lit(0, pl.Int64).alias("_end")).clear()
        first = pl.max_horizontal("_from", pl.lit(self.end_above(low), pl.Int64))
        last = pl.min_horizontal(self.last_end(pl.col("_slice")), pl.lit(_last_up_to(w, high), pl.Int64))
        frame = frame.with_columns(first.alias("_end"), last.alias("_last")).filter(pl.col("_end") <= pl.col("_last"))
        if w.size > w.every:
            ends = pl.int_ranges("_end", pl.col("_last") + 1, w.every)
            frame = frame.with_columns(ends.alias("_end")).explode("_end", empty_as_null=False)
        return frame


def grid_of(windowing: Windowing) -> Grid:
    """The grid of windows that are computed from slices."""
    if windowing.sliced is None:
        raise ValueError(f"{windowing.window} by {windowing.trigger} is not computed from slices")
    return Grid(windowing.sliced)


def ends_of(groups: pl.DataFrame) -> tuple[int, int]:
    """The least and the greatest `_end`; of no groups, an empty range."""
    return groups.select(pl.col("_end").min().alias("least"), pl.col("_end").max()).row(0) if groups.height else (GREATEST, LEAST)


def _last_up_to(window: Sliding, at: int) -> int:
    return GREATEST if at >= GREATEST else window.first_end(at) - window.every
