"""How a late event is judged: all of it is here.

The watermark that judges a row is that of the row's own partition, as it stood at that row (`_w`, see
`arrivals.py`): the partition's clock up to and with the row, less the delay. So it depends on the log alone,
and not on how batches were cut. It is not below the low watermark at the moment the partition last woke up,
as windows were dropped by that.

The rule, by what the operator does with rows:

    operator                            a row is late if
    windows, processing time            never
    windows, sessions                   watermark >= end of its window + lateness, for each window of its own
    windows that have a single pane     the same, or their trigger has finished: "closed"
    rows in order, joins by time        watermark > time of the row, or with a lateness (row frames) that
                                        much later
    deduplicate, immediate              watermark >= time of the row + within: an earlier copy may have
                                        been forgotten

Three words say why a row is refused. `late`: by this rule. `closed`: the trigger of its window has finished.
`future`: its time lies too far after its ingestion (`_ahead`); such a row does not move the clock either.

Example, windows of 10 s with a lateness of 5 s, a delay of 2 s, one partition:

    row at   clock   watermark   window     closes at   verdict
    108 s    108 s   106 s       [100,110)  115 s       taken
    117 s    117 s   115 s       [110,120)  125 s       taken; it moves the watermark to 115 s
    109 s    117 s   115 s       [100,110)  115 s       late: 115 >= 110 + 5
    111 s    117 s   115 s       [110,120)  125 s       taken, though it is 4 s behind the watermark

A session is judged by the end that it would have with the row: a row that is late alone may extend a session
that is open, and then it is taken. So rows in doubt are judged one after the other, in the order in which
rows are taken.

What a row that is taken does: `operators/`. What may be combined before the shuffle, since it cannot be late:
`routing.py`, by `cannot_be_late`. What becomes of refused rows: `format_late_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.durations import BEFORE_ALL
from millrace.engine.arrivals import BatchProgress, by_partition, learned_watermarks
from millrace.engine.exchange import Block
from millrace.engine.operators.assign import assign_windows
from millrace.engine.operators.sessions import GrownWindows, find_group, grow_windows, hull_of
from millrace.engine.operators.slices import Grid
from millrace.engine.plan import Operator
from millrace.graph import Windowing
from millrace.values.columns import (
    CLOCK,
    EDGE,
    END,
    FIRST_END,
    FIRST_OPEN_END,
    HAS_FINISHED,
    INGESTED,
    IS_CLOSED,
    IS_DOUBTFUL,
    IS_FUTURE,
    IS_LATE,
    IS_SHUT,
    LATE_PARTITION,
    MERGED_END,
    MERGED_START,
    OFFSET,
    OTHER_END,
    OTHER_START,
    PARTIAL_ROWS,
    PARTITION,
    REPORTS_ERRORS,
    ROW_COUNT,
    ROW_INDEX,
    ROW_TIME,
    SLICE,
    SOURCE,
    START,
    WATERMARK,
    WINDOW_INPUT,
    WINDOW_TIME,
)
from millrace.windows import Window, WindowFn

CLOCK_MARGIN = 2_000
"""By how many milliseconds the clocks of ingestion nodes may differ before a late row may reach the late
output combined.

Nothing else depends on it.
"""
_NO_VERDICTS = pl.DataFrame(schema={ROW_INDEX: pl.UInt32, "reason": pl.String, "missed": pl.Int64})
_INTERNAL = (
    ROW_TIME,
    INGESTED,
    EDGE,
    ROW_INDEX,
    IS_FUTURE,
    START,
    END,
    WINDOW_TIME,
    WINDOW_INPUT,
)


# Rows in order, joins by time, deduplication: a row is late by its own time.


def is_behind(by: int = 0) -> pl.Expr:
    """Whether a row is behind its watermark by more than so much, so that rows after it may have been taken
    already.
    """
    return (pl.col(WATERMARK) > pl.col(ROW_TIME) + by).fill_null(value=False)


def is_forgotten(after: int) -> pl.Expr:
    """Whether the watermark has reached the row's time and so much more, when its copies are forgotten."""
    return (pl.col(WATERMARK) >= pl.col(ROW_TIME) + after).fill_null(value=False)


def never() -> pl.Expr:
    """No row is late."""
    return pl.lit(value=False)


def split_late(rows: pl.DataFrame, is_late: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The rows that are taken, and those that are refused as the late output shows them;
    of a broadcast row one slot does.
    """
    is_refused = rows.select(pl.col(IS_FUTURE) | is_late).to_series()
    if not is_refused.any() and not is_refused.null_count():
        return rows, None
    refused = rows.filter(is_refused)
    if REPORTS_ERRORS in rows.columns:
        refused = refused.filter(pl.col(REPORTS_ERRORS).fill_null(value=True))
    reason = pl.when(pl.col(IS_FUTURE)).then(pl.lit("future")).otherwise(pl.lit("late"))
    verdicts = refused.select(ROW_INDEX, reason.alias("reason"), pl.lit(1, pl.Int64).alias("missed"))
    late = None if verdicts.is_empty() else format_late_rows(refused, verdicts)
    return rows.filter(~is_refused), late


def format_late_rows(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Rows as the late output shows them; `verdicts` has for some `_row` the `reason`,
    and how many windows it `missed`.
    """
    late = rows.join(verdicts.select(ROW_INDEX, "reason", "missed"), on=ROW_INDEX, how="inner")
    time = [pl.col("event_time"), pl.col(ROW_TIME)] if "event_time" in rows.columns else [pl.col(ROW_TIME)]
    late = late.with_columns(pl.coalesce(time).alias("event_time"))
    late = late.drop(*_INTERNAL, strict=False).rename({PARTITION: LATE_PARTITION})
    return late.with_columns(pl.lit(1, pl.Int64).alias(ROW_COUNT))


# Before the shuffle: a row that cannot be late may be combined with others. See `routing.py`.


def cannot_be_late(operator: Operator, end: pl.Expr, *, carries_watermarks: bool) -> pl.Expr:
    """Whether no watermark that is possible here lets a window with this end refuse the row."""
    if carries_watermarks and operator.waits_for_others:
        return pl.lit(value=False)
    if carries_watermarks:
        return pl.col(CLOCK).is_null() | (pl.col(CLOCK) < end + operator.node.row_lateness)
    return pl.lit(operator.is_bounded_by_ingestion) & (
        pl.col(INGESTED) + (CLOCK_MARGIN - operator.grace) < end
    )


# Windows computed from slices: a row is late for the windows that end before the first one that is open for
# it.


@dataclass(frozen=True)
class SliceJudge:
    """Judges rows and partials of one operator. `_from` becomes the first window end that takes them."""

    operator: Operator
    grid: Grid
    keys: Sequence[str]

    def split_late(self, block: Block, progress: BatchProgress) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows with the first window end that takes them,
        and those that an earlier window would have taken.

        A window that has fired on time takes no row where there is no lateness: the low watermark has passed
        its end, and no partition is behind that.
        """
        grid = self.grid
        if self.operator.hands_on_late:
            frame = self._apply_watermarks(block, progress)
        else:
            frame = self._apply_learned_watermarks(block, progress)
        open_ends = self._open_ends(block, frame, progress)
        smallest: Any = frame[FIRST_OPEN_END].min()
        if block.kind == "partials" and max(open_ends.values()) <= smallest:
            return frame, None
        has_rows = block.kind == "rows"
        first = pl.col(FIRST_END) if has_rows else grid.first_end(pl.col(SLICE))
        open_from = by_partition(frame, open_ends)
        frame = frame.with_columns(pl.max_horizontal(FIRST_OPEN_END, open_from), first.alias(FIRST_END))
        refused = frame.filter(pl.col(FIRST_OPEN_END) > pl.col(FIRST_END))
        last = grid.last_end(pl.col(SLICE))
        accepted = frame.filter(pl.col(FIRST_OPEN_END) <= last).drop(FIRST_END)
        return accepted, None if refused.is_empty() else self._format_late(refused, has_rows=has_rows)

    def _apply_watermarks(self, block: Block, progress: BatchProgress) -> pl.DataFrame:
        """Where what follows takes late rows: all rows whole, with their watermarks; those that are too far
        in the future are taken by no window.
        """
        frame = progress.load_rows([block])
        assert frame is not None
        open_from = self.grid.first_end(pl.col(WATERMARK) - self.operator.node.lateness)
        after_all = pl.when(IS_FUTURE).then(self.grid.last_end(pl.col(SLICE)) + self.grid.window.every)
        return frame.with_columns(pl.max_horizontal(FIRST_OPEN_END, open_from, after_all))

    def _apply_learned_watermarks(self, block: Block, progress: BatchProgress) -> pl.DataFrame:
        """Where the delay is learned, the watermark at each row is known only here, from the state."""
        frame, lateness = block.frame, self.operator.node.lateness
        if CLOCK not in frame.columns:
            return frame
        watermarks = learned_watermarks(frame, block.channel, progress.reports, progress.before)
        return frame.with_columns(
            pl.max_horizontal(FIRST_OPEN_END, self.grid.first_end(watermarks - lateness))
        ).drop(CLOCK)

    def _open_ends(self, block: Block, frame: pl.DataFrame, progress: BatchProgress) -> Mapping[int, int]:
        """For each partition the first window end that its watermark before the batch leaves open."""
        before, lateness, grid = progress.before, self.operator.node.lateness, self.grid
        is_judged = self.operator.carries_watermarks(block.channel)
        from_operator = self.operator.topic_of(block.channel) is None
        first_open = {}
        for part in frame[PARTITION].unique():
            name = block.channel if from_operator else f"{block.channel}/{part}"
            partition = before.partitions[name]
            if is_judged and not from_operator:
                watermark = partition.floor
            else:
                watermark = partition.watermark(progress.reports[name].delay)
            first_open[part] = max(
                grid.end_above(None if watermark is None else watermark - lateness),
                grid.end_above(before.dropped_until),
            )
        return first_open

    def _format_late(self, frame: pl.DataFrame, *, has_rows: bool) -> pl.DataFrame:
        """Rows as the late output shows them; those that came condensed, with what is known of them."""
        every, last = self.grid.window.every, self.grid.last_end(pl.col(SLICE))
        missed = (pl.min_horizontal(pl.col(FIRST_OPEN_END), last + every) - pl.col(FIRST_END)) // every
        reason = pl.lit("late")
        if IS_FUTURE in frame.columns:
            reason = pl.when(IS_FUTURE).then(pl.lit("future")).otherwise(reason)
        frame = frame.with_columns(reason.alias("reason"), missed.alias("missed"))
        if has_rows:
            return frame.drop(*_INTERNAL, SLICE, FIRST_OPEN_END, FIRST_END, strict=False).with_columns(
                pl.lit(1, pl.Int64).alias(ROW_COUNT)
            )
        return frame.select(
            *self.keys,
            PARTITION,
            "reason",
            "missed",
            pl.col(SLICE).alias("event_time"),
            pl.col(PARTIAL_ROWS).alias(ROW_COUNT),
        )


# Windows kept one by one: a row is late for each window that has closed.


@dataclass(frozen=True)
class JudgedRows:
    """Rows with the windows that take them, what those windows are made of,
    and the rows that were refused.
    """

    grown: GrownWindows
    verdicts: pl.DataFrame
    """`_row`, `reason`, `missed`."""


@dataclass(frozen=True)
class WindowJudge:
    """Judges the rows of one operator."""

    windowing: Windowing
    keys: list[str]

    def judge(
        self, rows: pl.DataFrame, open_windows: pl.DataFrame, dropped_until: int = BEFORE_ALL
    ) -> JudgedRows:
        """`open_windows`: those there are (`_start`, `_end`, `_closed`);
        those that end up to `dropped_until` are no more for any row.
        """
        row_windows = assign_windows(rows, self.windowing.assigner)
        if self.windowing.window.merging:
            return self._judge_merging(row_windows, open_windows, dropped_until)
        late = pl.col(IS_FUTURE) | self._is_late(pl.col(END), dropped_until)
        row_windows = row_windows.with_columns(late.alias(IS_LATE), pl.lit(value=False).alias(IS_SHUT))
        group = [*self.keys, START, END]
        closed = open_windows.filter(IS_CLOSED).select(*group, pl.lit(value=True).alias(HAS_FINISHED))
        if closed.height:
            row_windows = row_windows.join(
                closed, on=group, how="left", nulls_equal=True, maintain_order="left"
            )
            row_windows = row_windows.with_columns(
                pl.col(IS_SHUT) | pl.col(HAS_FINISHED).fill_null(value=False)
            ).drop(HAS_FINISHED)
        accepted = row_windows.filter(~pl.col(IS_LATE) & ~pl.col(IS_SHUT)).drop(IS_LATE, IS_SHUT)
        touched = accepted.select(group).unique()
        touched_windows = open_windows.select(group).join(touched, on=group, how="semi", nulls_equal=True)
        parts = touched_windows.with_columns(pl.col(START).alias(MERGED_START), pl.col(END).alias(MERGED_END))
        return JudgedRows(GrownWindows(accepted, parts), _summarize_verdicts(row_windows))

    def _is_late(self, end: pl.Expr, dropped_until: int) -> pl.Expr:
        """Whether a window is gone for a row; by the clock none ever is."""
        if self.windowing.is_processing_time:
            return pl.lit(value=False)
        return (pl.col(WATERMARK) >= end + self.windowing.lateness).fill_null(value=False) | (
            end <= dropped_until
        )

    def _judge_merging(
        self, row_windows: pl.DataFrame, open_windows: pl.DataFrame, dropped_until: int
    ) -> JudgedRows:
        """Sessions: a row that touches a closed one is refused, and one that is late by itself is judged by
        the session it would join.
        """
        is_doubtful = pl.col(IS_FUTURE) | self._is_late(pl.col(END), dropped_until)
        row_windows = row_windows.with_columns(
            pl.col(IS_FUTURE).alias(IS_LATE),
            is_doubtful.alias(IS_DOUBTFUL),
            self._touches_closed(row_windows, open_windows),
        )
        known = open_windows.filter(~pl.col(IS_CLOSED)).select(*self.keys, START, END)
        if row_windows[IS_DOUBTFUL].any():
            row_windows = self._judge_in_order(row_windows, known, dropped_until)
        accepted = row_windows.filter(~pl.col(IS_LATE) & ~pl.col(IS_SHUT)).drop(IS_LATE, IS_SHUT, IS_DOUBTFUL)
        grown = grow_windows(accepted, known, self.keys, self.windowing.assigner)
        return JudgedRows(grown, _summarize_verdicts(row_windows))

    def _touches_closed(self, row_windows: pl.DataFrame, open_windows: pl.DataFrame) -> pl.Expr:
        """`_shut`: whether the row belongs to a session whose trigger has finished."""
        closed = open_windows.filter(IS_CLOSED).select(
            *self.keys, pl.col(START).alias(OTHER_START), pl.col(END).alias(OTHER_END)
        )
        if closed.is_empty():
            return pl.lit(value=False).alias(IS_SHUT)
        candidates = row_windows.select(*self.keys, ROW_INDEX, START, END).join(
            closed, on=self.keys, how="inner", nulls_equal=True
        )
        merge = self.windowing.assigner.merge
        rows = [
            row
            for row, s, e, ds, de in candidates.select(
                ROW_INDEX, START, END, OTHER_START, OTHER_END
            ).iter_rows()
            if len(merge(sorted({(s, e), (ds, de)}))) == 1
        ]
        return pl.col(ROW_INDEX).is_in(sorted(set(rows))).alias(IS_SHUT)

    def _judge_in_order(
        self, row_windows: pl.DataFrame, known: pl.DataFrame, dropped_until: int
    ) -> pl.DataFrame:
        """Rows of keys in doubt, one after the other, in the order in which rows are taken."""
        ordered = row_windows.filter(~pl.col(IS_LATE)).sort(ROW_TIME, SOURCE, OFFSET)
        keys = ordered.filter(IS_DOUBTFUL).select(self.keys).unique()
        watermark = (
            pl.lit(None, pl.Int64).alias(WATERMARK)
            if self.windowing.is_processing_time
            else pl.col(WATERMARK)
        )
        rows = self._rows_by_key(ordered.select(*self.keys, ROW_INDEX, START, END, watermark, IS_SHUT), keys)
        windows = self._rows_by_key(known, keys)
        verdicts: list[tuple[int, str]] = []
        for key, own_rows in rows.items():
            verdicts += judge_sessions(
                own_rows,
                windows.get(key, []),
                self.windowing.assigner,
                (self.windowing.lateness, dropped_until),
            )
        late = [row for row, reason in verdicts if reason == "late"]
        shut_rows = [row for row, reason in verdicts if reason == "closed"]
        row = pl.col(ROW_INDEX)
        return row_windows.with_columns(
            pl.col(IS_LATE) | row.is_in(late), (pl.col(IS_SHUT) | row.is_in(shut_rows)) & ~row.is_in(late)
        )

    def _rows_by_key(self, frame: pl.DataFrame, keys: pl.DataFrame) -> dict[Any, list[Any]]:
        """The rows of some keys as plain values, key by key."""
        selected = frame.join(keys, on=self.keys, how="semi", nulls_equal=True, maintain_order="left")
        parts = selected.partition_by(self.keys, as_dict=True, maintain_order=True, include_key=False)
        return {key: part.rows() for key, part in parts.items()}


def judge_sessions(
    rows: Sequence[tuple[int, int, int, int | None, bool]],
    open_sessions: Sequence[Window],
    window: WindowFn,
    limits: tuple[int, int],
) -> Iterator[tuple[int, str]]:
    """The rows of one key taken one after the other, each judged by the session that it would be part of:
    which are refused, and why.

    A row is its number, its own window's start and end, its watermark, and whether it touches a closed
    session. `limits`: the lateness, and the end up to which windows were dropped.

    Example, a gap of 10 s, no lateness, an open session [100 s, 110 s), a watermark of 107 s: a row at 95 s
    is late alone, as its own window ends at 105 s. But it joins the session, which ends at 110 s: so it is
    taken. A row at 85 s is late.
    """
    open_windows, (lateness, dropped_until) = list(open_sessions), limits
    for number, start, end, watermark, touches_closed in rows:
        group = find_group((start, end), open_windows, window)
        merged = hull_of(group)
        if merged[1] <= dropped_until or (watermark is not None and watermark >= merged[1] + lateness):
            yield number, "late"
        elif touches_closed:
            yield number, "closed"
        else:
            open_windows = [*(other for other in open_windows if other not in group), merged]


def _summarize_verdicts(row_windows: pl.DataFrame) -> pl.DataFrame:
    """For each row that some window refused, why, and how many did."""
    refused = row_windows.filter(pl.col(IS_LATE) | pl.col(IS_SHUT))
    if refused.is_empty():
        return _NO_VERDICTS
    reason = (
        pl.when(pl.col(IS_FUTURE).any())
        .then(pl.lit("future"))
        .when(pl.col(IS_LATE).any())
        .then(pl.lit("late"))
        .otherwise(pl.lit("closed"))
    )
    return refused.group_by(ROW_INDEX).agg(reason.alias("reason"), pl.len().cast(pl.Int64).alias("missed"))
