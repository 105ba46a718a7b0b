"""WHEN input is assumed complete: watermarks, one per partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of
from millrace.values.missing_names import missing_name

__all__ = ["Watermark", "ascending", "bounded", "ingestion_time", "percentile", "punctuation", "upstream"]

DEFAULT_AHEAD = "1h"
"""How far the time of an event may be ahead of its ingestion before the event is set aside."""

EMPTY_PARTITION_TIMEOUT = 10_000
"""Milliseconds after which a partition that has never held a record no longer holds the watermark back,
where no `idle` is given.
"""


UPSTREAM_CLOCK = "upstream"
"""The `clock_id` of watermarks that the writers of a topic set."""


class Watermark(ABC):
    """How the clock of a partition follows its rows, and how far the watermark stays behind it.

    The clock of a partition is the running maximum of `clock()`; its watermark is the clock minus `delay`.
    With a delay of 5, rows with the times 10 17 12 move the clock to 10 17 17 and the watermark to 5 12 12,
    so the row at 12 is not late. A row whose time is more than `ahead` past its ingestion is set aside and
    does not move the clock.
    """

    delay: int
    idle: int | None
    ahead: int
    is_learned = False
    """Whether the delay is learned from the rows; then `delay` is its lower bound."""
    is_capped_by_ingestion = False
    """Whether the clock never passes the ingestion times of the rows.
    Then the times of a row alone can tell that it is late.
    """

    @abstractmethod
    def clock(self) -> pl.Expr:
        """The time to which each row moves the clock, or null;
        an expression over the columns of the topic.
        """

    def is_set_aside(self) -> pl.Expr:
        """Whether the time of a row is too far ahead of its ingestion."""
        return pl.col("event_time") > pl.col("ingestion_time") + self.ahead

    @property
    @abstractmethod
    def clock_id(self) -> str:
        """Equal for watermarks with the same clock, so that jobs which run together share the work."""


@dataclass(frozen=True)
class Bounded(Watermark):
    """Rows are at most `delay` out of order.
    The clock follows event time, but never passes ingestion time.
    """

    delay: int
    idle: int | None = None
    ahead: int = 3_600_000
    is_capped_by_ingestion = True

    def clock(self) -> pl.Expr:
        """The event time, or the ingestion time where that is earlier (the clock of the sender runs fast)."""
        return pl.when(~self.is_set_aside()).then(pl.min_horizontal("event_time", "ingestion_time"))

    @property
    def clock_id(self) -> str:
        """Bounded watermarks differ in their clock only by the rows that they set aside."""
        return f"event time, ahead {self.ahead}"

    def __str__(self) -> str:
        """As users write it."""
        arguments = [repr(durations.format_millis(self.delay)), *filter(None, [_format_idle(self)])]
        return f"bounded({', '.join(arguments)})"


@dataclass(frozen=True)
class Ascending(Bounded):
    """Rows of a partition are in order of time."""

    delay: int = 0

    def __str__(self) -> str:
        """As users write it."""
        return f"ascending({_format_idle(self)})"


@dataclass(frozen=True)
class IngestionTime(Watermark):
    """The time of a row is its ingestion time, so no row is late."""

    idle: int | None = None
    delay: int = 0
    ahead: int = durations.END_OF_STREAM
    is_capped_by_ingestion = True

    def clock(self) -> pl.Expr:
        """The ingestion time."""
        return pl.col("ingestion_time")

    @property
    def clock_id(self) -> str:
        """The same for all: their clocks are equal."""
        return "ingestion time"

    def __str__(self) -> str:
        """As users write it."""
        return f"ingestion_time({_format_idle(self)})"


@dataclass(frozen=True)
class Upstream(Watermark):
    """The watermark of the jobs that write the topic, see `upstream`."""

    idle: int | None = None
    delay: int = 0
    ahead: int = durations.END_OF_STREAM

    def clock(self) -> pl.Expr:
        """No row moves it: each batch brings how far the writers vouch for what comes after it."""
        return pl.lit(None, pl.Int64)

    @property
    def clock_id(self) -> str:
        """The same for all: their clocks are equal."""
        return UPSTREAM_CLOCK

    def __str__(self) -> str:
        """As users write it."""
        return f"upstream({_format_idle(self)})"


@dataclass(frozen=True)
class Percentile(Bounded):
    """The delay is a percentile of the lags so far, see `percentile`."""

    delay: int = 0
    share: float = 0.99
    start: int = 10_000
    is_learned = True

    def __str__(self) -> str:
        """As users write it."""
        arguments = [
            f"{self.share:g}",
            f"start={durations.format_millis(self.start)!r}",
            *filter(None, [_format_idle(self)]),
        ]
        return f"percentile({', '.join(arguments)})"

    def delay_for(self, lags: Mapping[int, int]) -> int:
        """The delay for the given number of lags in each bucket, see `lag_bucket`."""
        count = sum(lags.values())
        if count < FIRST:
            return self.start
        remaining = -(-round(self.share * 10**9) * count // 10**9)
        for bucket in sorted(lags):
            remaining -= lags[bucket]
            if remaining <= 0:
                return largest_lag(bucket)
        return 0


FIRST, EVERY = 64, 1024
"""A learned delay changes at the offsets 64, 128, 256, 512, 1024 of a partition,
then every 1024. Both are powers of two.
"""
BUCKETS_PER_DOUBLING = 32
"""Lags are rounded to 1/32 of their size: a bucket is at most that wide."""


def last_update_offset(offset: int) -> int:
    """The last offset at which the delay changed.
    The delay for the row at `offset` counts all rows before that.
    """
    if offset >= EVERY:
        return offset // EVERY * EVERY
    return 1 << (offset.bit_length() - 1) if offset >= FIRST else 0


def lag_bucket(lag: int) -> int:
    """The bucket of a lag in milliseconds.
    Below 32 each lag has its own; above, the lags of one differ by less than 1/32.
    """
    if lag < BUCKETS_PER_DOUBLING:
        return max(lag, 0)
    shift = lag.bit_length() - BUCKETS_PER_DOUBLING.bit_length()
    return (shift + 1) * BUCKETS_PER_DOUBLING + (lag >> shift) - BUCKETS_PER_DOUBLING


def largest_lag(bucket: int) -> int:
    """The greatest lag in a bucket."""
    if bucket < BUCKETS_PER_DOUBLING:
        return bucket
    shift, step = bucket // BUCKETS_PER_DOUBLING - 1, bucket % BUCKETS_PER_DOUBLING + BUCKETS_PER_DOUBLING
    return ((step + 1) << shift) - 1


@dataclass(frozen=True, eq=False)
class Punctuation(Watermark):
    """Rows carry the watermark: where `expr` is not null, it is the watermark."""

    expr: pl.Expr
    idle: int | None = None
    ahead: int = 3_600_000
    delay: int = 0
    token: str = field(default_factory=lambda: uuid4().hex)
    """Expressions that look alike may contain different functions, so no two of them are equal."""
    is_limited: bool = True
    """Whether a punctuation further than `ahead` past its row's ingestion is ignored."""
    in_datetimes: bool = False
    """Whether `expr` is a datetime or a date, and not whole milliseconds."""

    def with_dtype(self, dtype: pl.DataType) -> Punctuation:
        """The watermark for an expression of this type; raises where that is not a time."""
        if isinstance(dtype, pl.Datetime) or dtype == pl.Date:
            return replace(self, in_datetimes=True)
        if dtype.is_integer() or dtype == pl.Null:
            return self
        raise DefinitionError(
            f"watermarks.punctuation({self.expr}) is {dtype}, which is not a time; use a datetime, or whole "
            "milliseconds: .cast(pl.Int64)"
        )

    @property
    def time_in_millis(self) -> pl.Expr:
        """The punctuation in whole milliseconds."""
        return self.expr.dt.epoch("ms") if self.in_datetimes else self.expr.cast(pl.Int64)

    def clock(self) -> pl.Expr:
        """The punctuation, unless it or the row is too far ahead of the ingestion of the row."""
        time = self.time_in_millis
        is_ignored = self.is_set_aside() | (time < durations.MIN_TIME)
        if self.is_limited:
            is_ignored = is_ignored | (time > pl.col("ingestion_time") + self.ahead)
        return pl.when(~is_ignored).then(time)

    @property
    def clock_id(self) -> str:
        """Unique, see `token`."""
        return f"punctuation {self.token}"

    def __str__(self) -> str:
        """As users write it."""
        return f"punctuation({', '.join([str(self.expr), *filter(None, [_format_idle(self)])])})"


def bounded(delay: Duration, *, idle: Duration | None = None, ahead: Duration = DEFAULT_AHEAD) -> Bounded:
    """The watermark stays `delay` behind each partition's clock.

    A partition without records for `idle` no longer holds the others back. An event whose time is more than
    `ahead` past its ingestion is set aside.
    """
    return Bounded(
        durations.parse_non_negative(delay, name="delay"),
        _idle_millis(idle),
        durations.parse_non_negative(ahead, name="ahead"),
    )


def punctuation(
    expr: pl.Expr, *, idle: Duration | None = None, ahead: Duration = DEFAULT_AHEAD
) -> Punctuation:
    """Where `expr` (a datetime, or whole milliseconds) is not null, no row with an earlier event time follows
    in that partition.

    A punctuation more than `ahead` past the ingestion of its row is ignored, as is that of a row that is set
    aside.
    """
    return Punctuation(
        expr,
        _idle_millis(idle),
        durations.parse_non_negative(ahead, name="ahead"),
    )


def ascending(*, idle: Duration | None = None, ahead: Duration = DEFAULT_AHEAD) -> Ascending:
    """Rows of a partition are in order of time: the watermark is the clock of the partition."""
    return Ascending(idle=_idle_millis(idle), ahead=durations.parse_non_negative(ahead, name="ahead"))


def ingestion_time(*, idle: Duration | None = None) -> IngestionTime:
    """The time of a row is its ingestion time; its event time is ignored.

    Nothing is late, as long as the ingestion times of a partition do not go back. Several ingestion nodes
    must have synchronized clocks.
    """
    return IngestionTime(_idle_millis(idle))


def upstream(*, idle: Duration | None = None) -> Upstream:
    """The watermark of the jobs that write the topic: it advances as theirs does, though no row comes.

    A run records with each commit up to which time its results are complete, and readers of the topic follow
    that, in the same run or another. Where several runs write the topic, the least of their watermarks
    counts. Jobs that deliver exactly once vouch for their results; others, and ingestion, do not.
    """
    return Upstream(_idle_millis(idle))


def percentile(
    share: float, *, idle: Duration | None = None, start: Duration = "10s", ahead: Duration = DEFAULT_AHEAD
) -> Percentile:
    """The delay is learned: the smallest for which this share of the rows of a partition so far was not late.

    For the first 64 rows it is `start`. It changes at fixed offsets of the partition (64, 128, 256, 512,
    1,024, then every 1,024), so it depends on the log and not on batches. Lags are rounded to 1/32. The
    watermark never goes back: where the delay grows, the watermark stops until the clock has caught up.
    """
    if not 0 < share <= 1:
        raise DefinitionError(
            f"percentile({share}): the share of rows that are in time must be between 0 and "
            "1; use 0.99, for example"
        )
    return Percentile(
        idle=_idle_millis(idle),
        ahead=durations.parse_non_negative(ahead, name="ahead"),
        share=share,
        start=durations.parse_non_negative(start, name="start"),
    )


def _idle_millis(idle: Duration | None) -> int | None:
    return None if idle is None else durations.parse_positive(idle, name="idle")


def _format_idle(watermark: Watermark) -> str:
    return f"idle={durations.format_millis(watermark.idle)!r}" if watermark.idle is not None else ""


if not TYPE_CHECKING:  # a type checker would take every name that is missing for Any

    def __getattr__(name: str) -> Any:
        raise missing_name("millrace.watermarks", name, __dir__())


def __dir__() -> list[str]:
    """Only the public names, for completion."""
    return __all__


explain_errors_of(
    globals(), "ascending", "bounded", "ingestion_time", "percentile", "punctuation", "upstream"
)
