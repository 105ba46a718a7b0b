"""WHEN input is believed complete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of

__all__ = ["Watermark", "ascending", "bounded", "ingestion_time", "percentile", "punctuation"]

DEFAULT_AHEAD = "1h"
"""How far past its ingestion an event's time may lie before the event is set aside."""

EMPTY_PARTITION_TIMEOUT = 10_000
"""Milliseconds after which a partition that has never held a record no longer holds the watermark back, where no `idle` is given."""


class Watermark(ABC):
    """How a partition's clock is read off its rows, and how far behind the clock its watermark stays.

    A partition's clock is the running maximum of `clock()`; its watermark is the clock less `delay`. A row that is set aside because it lies
    further than `ahead` past its ingestion says nothing of the clock.
    """

    delay: int
    idle: int | None
    ahead: int
    is_learned = False
    """Whether the delay is learned from the rows, so that `delay` is only the least that it can be."""
    is_capped_by_ingestion = False
    """Whether the clock never passes the ingestion time of the rows it was read off, so that a row that is too late is known by its own."""

    @abstractmethod
    def clock(self) -> pl.Expr:
        """The time that each row vouches for (null: none), over the columns of the topic."""

    def is_set_aside(self) -> pl.Expr:
        """Whether a row lies too far past its ingestion."""
        return pl.col("event_time") > pl.col("ingestion_time") + self.ahead

    @property
    @abstractmethod
    def clock_id(self) -> str:
        """Equal only for watermarks whose clocks read the same, so that fused jobs share the work."""


@dataclass(frozen=True)
class Bounded(Watermark):
    """Rows come at most `delay` out of order. The clock follows event time, but never past ingestion."""

    delay: int
    idle: int | None = None
    ahead: int = 3_600_000
    is_capped_by_ingestion = True

    def clock(self) -> pl.Expr:
        """The event time, or the ingestion time where a vehicle's clock runs fast."""
        return pl.when(~self.is_set_aside()).then(pl.min_horizontal("event_time", "ingestion_time"))

    @property
    def clock_id(self) -> str:
        """All bounded watermarks that set the same rows aside read the same clock."""
        return f"event time, ahead {self.ahead}"

    def __str__(self) -> str:
        """As a user would write it."""
        return f"bounded({', '.join([repr(durations.format_millis(self.delay)), *filter(None, [_format_idle(self)])])})"


@dataclass(frozen=True)
class Ascending(Bounded):
    """Rows of a partition never go back in time."""

    delay: int = 0

    def __str__(self) -> str:
        """As a user would write it."""
        return f"ascending({_format_idle(self)})"


@dataclass(frozen=True)
class IngestionTime(Watermark):
    """A row's time is when it was ingested, so the watermark is perfect: none is late."""

    idle: int | None = None
    delay: int = 0
    ahead: int = durations.END_OF_STREAM
    is_capped_by_ingestion = True

    def clock(self) -> pl.Expr:
        """The ingestion time."""
        return pl.col("ingestion_time")

    @property
    def clock_id(self) -> str:
        """All of them read the same clock."""
        return "ingestion time"

    def __str__(self) -> str:
        """As a user would write it."""
        return f"ingestion_time({_format_idle(self)})"


@dataclass(frozen=True)
class Percentile(Bounded):
    """Rows come out of order by about as much as those before them did: see `percentile`."""

    delay: int = 0
    share: float = 0.99
    start: int = 10_000
    is_learned = True

    def __str__(self) -> str:
        """As a user would write it."""
        arguments = [
            f"{self.share:g}",
            f"start={durations.format_millis(self.start)!r}",
            *filter(None, [_format_idle(self)]),
        ]
        return f"percentile({', '.join(arguments)})"

    def delay_for(self, lags: Mapping[int, int]) -> int:
        """The delay that so many lags of each size (see `size_of`) call for."""
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
"""A learned delay changes at offsets of a partition: 64, 128, 256, 512, 1024, and from there every 1024. Both are powers of two."""
BUCKETS_PER_DOUBLING = 32
"""Lags are told apart to one part in so many."""


def last_update_offset(offset: int) -> int:
    """The offset at which the delay changed last: all rows before it count for the row at `offset`."""
    if offset >= EVERY:
        return offset // EVERY * EVERY
    return 1 << (offset.bit_length() - 1) if offset >= FIRST else 0


def lag_bucket(lag: int) -> int:
    """Lags of one size differ by less than a 32nd; up to 32 ms each is its own size."""
    if lag < BUCKETS_PER_DOUBLING:
        return max(lag, 0)
    shift = lag.bit_length() - BUCKETS_PER_DOUBLING.bit_length()
    return (shift + 1) * BUCKETS_PER_DOUBLING + (lag >> shift) - BUCKETS_PER_DOUBLING


def largest_lag(bucket: int) -> int:
    """The greatest lag of a size."""
    if bucket < BUCKETS_PER_DOUBLING:
        return bucket
    shift, step = bucket // BUCKETS_PER_DOUBLING - 1, bucket % BUCKETS_PER_DOUBLING + BUCKETS_PER_DOUBLING
    return ((step + 1) << shift) - 1


@dataclass(frozen=True, eq=False)
class Punctuation(Watermark):
    """The rows themselves say how far time has come: where `expr` is not null, it is the watermark."""

    expr: pl.Expr
    idle: int | None = None
    ahead: int = 3_600_000
    delay: int = 0
    token: str = field(default_factory=lambda: uuid4().hex)
    """Two expressions that look alike may hold different functions, so each is taken for its own."""
    is_limited: bool = True
    """Whether a punctuation further than `ahead` past its row's ingestion is ignored."""
    in_datetimes: bool = False
    """Whether `expr` makes datetimes, or dates, instead of whole milliseconds."""

    def with_dtype(self, dtype: pl.DataType) -> Punctuation:
        """The same for an expression of this type, whose datetimes count by their own unit and zone; DefinitionError where it is not a time."""
        if isinstance(dtype, pl.Datetime) or dtype == pl.Date:
            return replace(self, in_datetimes=True)
        if dtype.is_integer() or dtype == pl.Null:
            return self
        raise DefinitionError(
            f"watermarks.punctuation({self.expr}) is {dtype}, which says no time; use a datetime, or whole milliseconds: .cast(pl.Int64)"
        )

    @property
    def time_in_millis(self) -> pl.Expr:
        """The punctuation in whole milliseconds."""
        return self.expr.dt.epoch("ms") if self.in_datetimes else self.expr.cast(pl.Int64)

    def clock(self) -> pl.Expr:
        """What the user's expression says, unless the row or the punctuation itself is too far past the row's ingestion."""
        time = self.time_in_millis
        is_ignored = self.is_set_aside() | (time < durations.MIN_TIME)
        if self.is_limited:
            is_ignored = is_ignored | (time > pl.col("ingestion_time") + self.ahead)
        return pl.when(~is_ignored).then(time)

    @property
    def clock_id(self) -> str:
        """Its own."""
        return f"punctuation {self.token}"

    def __str__(self) -> str:
        """As a user would write it."""
        return f"punctuation({', '.join([str(self.expr), *filter(None, [_format_idle(self)])])})"


def bounded(delay: Duration, *, idle: Duration | None = None, ahead: Duration = DEFAULT_AHEAD) -> Bounded:
    """The watermark stays `delay` behind each partition's clock.

    A partition that brings nothing for `idle` no longer holds the others back. An event more than `ahead`
    past its ingestion is set aside.
    """
    return Bounded(
        durations.parse_non_negative(delay, name="delay"),
        _idle_millis(idle),
        durations.parse_non_negative(ahead, name="ahead"),
    )


def punctuation(
    expr: pl.Expr, *, idle: Duration | None = None, ahead: Duration = DEFAULT_AHEAD
) -> Punctuation:
    """Where `expr` (a datetime, or whole milliseconds) is not null, no row with an earlier event time is still expected in that partition.

    A punctuation more than `ahead` past its row's ingestion is ignored, as is that of a row that is set aside.
    """
    return Punctuation(
        expr,
        _idle_millis(idle),
        durations.parse_non_negative(ahead, name="ahead"),
    )


def ascending(*, idle: Duration | None = None, ahead: Duration = DEFAULT_AHEAD) -> Ascending:
    """Rows of a partition never go back in time: the watermark is the partition's clock itself."""
    return Ascending(idle=_idle_millis(idle), ahead=durations.parse_non_negative(ahead, name="ahead"))


def ingestion_time(*, idle: Duration | None = None) -> IngestionTime:
    """A row's time is when it was ingested; its own event time is not looked at.

    Perfect: nothing is late, as long as the ingestion times of a partition do not go back. Several ingestion nodes must agree about the time.
    """
    return IngestionTime(_idle_millis(idle))


def percentile(
    share: float, *, idle: Duration | None = None, start: Duration = "10s", ahead: Duration = DEFAULT_AHEAD
) -> Percentile:
    """The delay is learned: so long that this share of a partition's rows so far was not further behind its clock.

    Until 64 rows were seen it is `start`. It changes at fixed offsets of the partition (64, 128, 256, 512, then every 1,024), so it depends on the log
    and not on batches; the lag of a row is known to a 32nd. The watermark never goes back: where the delay grows, it stands still for a while.
    """
    if not 0 < share <= 1:
        raise DefinitionError(
            f"percentile({share}): the share of rows that are to be in time lies between 0 and 1, such as 0.99"
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


def __dir__() -> list[str]:
    """What completion shows: the vocabulary, without what the module imports."""
    return __all__


explain_errors_of(globals(), "ascending", "bounded", "ingestion_time", "percentile", "punctuation")
