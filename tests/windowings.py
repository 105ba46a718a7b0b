"""Random windows, triggers and ways of output for property tests."""

from collections.abc import Sequence
from functools import lru_cache

import polars as pl
from hypothesis import strategies as st

from millrace import evictors, triggers, windows
from millrace.evictors import Evictor
from millrace.graph.build.aggregate import takes_panes
from millrace.stream import Stream
from millrace.triggers import Trigger
from millrace.windows import Sliding, WindowFn


@st.composite
def window_of(draw: st.DrawFn, unit: int) -> Sliding:
    size = draw(st.sampled_from([4, 1, 2, 3, 5, 6, 7, 9, 12]))
    offset = draw(st.sampled_from([0, 0, 1, -3])) * unit
    if draw(st.booleans()):
        return windows.fixed(size * unit, offset=offset)
    every = draw(st.integers(max(1, size // 4), size))
    return windows.sliding(size * unit, every=every * unit, offset=offset)


class Jumping(WindowFn):
    """A user's own: a window of 5 and one of 7, both from the last multiple of 4 on."""

    def __init__(self, unit: int, merging: bool) -> None:
        self.unit, self.merging = unit, merging

    def assign(self, at: int) -> list[tuple[int, int]]:
        start = at // (4 * self.unit) * 4 * self.unit
        return [(start, start + size * self.unit) for size in ((5,) if self.merging else (5, 7))]

    def merge(self, windows: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Two and two, if they overlap."""
        groups: list[list[tuple[int, int]]] = []
        for window in windows:
            if groups and window[0] < groups[-1][-1][1]:
                groups[-1].append(window)
            else:
                groups.append([window])
        return groups

    def __str__(self) -> str:
        return f"jumping({self.unit}, merging={self.merging})"

    __repr__ = __str__


@st.composite
def any_window(draw: st.DrawFn, unit: int) -> WindowFn:
    """A window of any kind but those that rows cut."""
    kind = draw(
        st.sampled_from(["session", "session", "session", "sliding", "unaligned", "global", "user", "clock"])
    )
    match kind:
        case "session":
            return windows.sessions(draw(st.sampled_from([2, 5, 1, 9, 14])) * unit)
        case "sliding":
            return draw(window_of(unit))
        case "unaligned":
            size = draw(st.integers(2, 8))
            return windows.sliding(
                size * unit, every=draw(st.integers(1, size)) * unit, offset=pl.col("g") * unit
            )
        case "global":
            return windows.global_window()
        case "user":
            return Jumping(unit, draw(st.booleans()))
        case _:
            return windows.processing_time(
                draw(
                    st.sampled_from(
                        [windows.sessions(6 * unit), windows.fixed(5 * unit), windows.global_window()]
                    )
                )
            )


@lru_cache
def any_trigger(unit: int) -> st.SearchStrategy[Trigger]:
    """Triggers of all kinds, nested."""
    times = st.integers(0, 9).map(lambda n: n * unit)
    leaves = st.one_of(
        st.integers(1, 4).map(triggers.after_count),
        times.map(triggers.after_delay),
        times.map(lambda n: triggers.every(n + unit)),
        times.map(lambda n: triggers.every(n + unit, time="event")),
        st.sampled_from(
            [
                triggers.at_watermark(),
                triggers.at_watermark(late=triggers.never()),
                triggers.at_window_end(),
                triggers.at_end(),
                triggers.never(),
            ]
        ),
    )

    def nested(inner: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            inner.map(triggers.repeatedly),
            several.map(lambda parts: triggers.any_of(*parts)),
            several.map(lambda parts: triggers.all_of(*parts)),
            several.map(lambda parts: triggers.in_order(*parts)),
            st.tuples(inner, inner).map(lambda pair: pair[0].until(pair[1])),
            st.tuples(inner, st.one_of(st.none(), inner)).map(
                lambda pair: triggers.at_watermark(early=pair[0], late=pair[1])
            ),
        )

    return st.recursive(leaves, nested, max_leaves=4)


@lru_cache
def _any_trigger_or_repeatedly(unit: int) -> st.SearchStrategy[Trigger]:
    return st.one_of(any_trigger(unit), any_trigger(unit).map(triggers.repeatedly))


@st.composite
def windowed_anyhow(
    draw: st.DrawFn, stream: Stream, unit: int, chained: bool, *, evicts: bool = False
) -> Stream:
    """Windows, triggers and accumulation of all kinds, for a first aggregation; `chained`:
    others follow in the same window; `evicts`: now and then rows are left out.
    """
    accumulations = (
        ["accumulating", "retracting"] if chained else ["accumulating", "discarding", "retracting"]
    )
    if not chained and not draw(st.integers(0, 4)):
        return stream.window(draw(cut_by_rows()))
    trigger = draw(_any_trigger_or_repeatedly(unit))
    return stream.window(
        draw(any_window(unit)),
        trigger=trigger,
        lateness=draw(st.sampled_from([20, 6, 1, 0])) * unit,
        accumulation=draw(st.sampled_from(accumulations)),
        on_time=draw(st.sampled_from(["always", "if_new"])),
        closing=draw(st.sampled_from(["none", "if_new", "always"])),
        time="end" if chained else draw(st.sampled_from(["end", "earliest", "latest"])),
        evict=draw(any_evictor(unit)) if evicts and not draw(st.integers(0, 2)) else None,
    )


def keep_above_mean(rows: pl.DataFrame) -> pl.Series:
    """Null is not above anything."""
    return rows.select(pl.col("v") >= pl.col("v").mean())["v"]


def keep_one_per_group(rows: pl.DataFrame) -> pl.DataFrame:
    """The first row of each `g`, the latest group first."""
    return rows.unique("g", keep="first", maintain_order=True).reverse()


def keep_nothing(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.clear()


def any_evictor(unit: int) -> st.SearchStrategy[Evictor]:
    """Evictors of every kind, for readings."""
    return st.one_of(
        st.integers(1, 4).map(evictors.last),
        st.integers(1, 9).map(lambda n: evictors.within(n * unit)),
        st.integers(0, 3).map(lambda n: evictors.delta("v", n)),
        st.sampled_from([0, 0.75, 1e15]).map(lambda n: evictors.delta("x", n)),
        st.sampled_from([evictors.custom(fn) for fn in (keep_above_mean, keep_one_per_group, keep_nothing)]),
    )


@st.composite
def cut_by_rows(draw: st.DrawFn) -> WindowFn:
    """Windows that the rows themselves cut."""
    size = draw(st.integers(1, 4))
    made = [
        windows.counted(size),
        windows.counted(size, every=draw(st.integers(1, size))),
        windows.delta("v", draw(st.integers(0, 4))),
        windows.delta("x", draw(st.sampled_from([0.25, 2]))),
        windows.delta("v", draw(st.integers(0, 4)), every=draw(st.integers(0, 3))),
        windows.punctuated(pl.col("b")),
    ]
    window = draw(st.sampled_from(made))
    return windows.processing_time(window) if not draw(st.integers(0, 3)) else window


@st.composite
def windowed(draw: st.DrawFn, stream: Stream, unit: int, steady: bool) -> Stream:
    once = not steady and not draw(st.integers(0, 3))
    lateness = draw(st.sampled_from([20, 30, 20, 6, 1, 0])) * unit
    if once and lateness and takes_panes(stream.node):
        once = False  # refused for panes
    return stream.window(
        draw(window_of(unit)),
        trigger=triggers.at_watermark(late=triggers.never()) if once else triggers.at_watermark(),
        lateness=lateness,
        accumulation=draw(st.sampled_from(["accumulating", "retracting"])),
    )
