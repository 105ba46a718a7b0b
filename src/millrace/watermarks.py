"""WHEN input is believed complete."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from uuid import uuid4

import polars as pl

from millrace import durations
from millrace.durations import Duration

AHEAD = "1h"
"""How far past its ingestion an event's time may lie before the event is set aside."""


class Watermark(ABC):
    """How a partition's clock is read off its rows, and how far behind the clock its watermark stays.

    A partition's clock is the running maximum of `clock()`; its watermark is the clock less `delay`.
    """

    delay: int
    idle: int | None
    ahead: int
    within_ingestion = False
    """Whether the clock never passes the ingestion time of the rows it was read off, so that a row that is too late is known by its own."""

    @abstractmethod
    def clock(self) -> pl.Expr:
        """The time that each row vouches for (null: none), over the columns of the topic."""

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
    within_ingestion = True

    def clock(self) -> pl.Expr:
        """The event time, or the ingestion time where a vehicle's clock runs fast."""
        return pl.min_horizontal("event_time", "ingestion_time")

    @property
    def clock_id(self) -> str:
        """All bounded watermarks read the same clock."""
        return "event time"

    def __str__(self) -> str:
        """As a user would write it."""
        idle = f", idle={durations.text(self.idle)!r}" if self.idle is not None else ""
        return f"bounded({durations.text(self.delay)!r}{idle})"


@dataclass(frozen=True, eq=False)
class Punctuation(Watermark):
    """The rows themselves say how far time has come: where `expr` is not null, it is the watermark."""

    expr: pl.Expr
    idle: int | None = None
    ahead: int = 3_600_000
    delay: int = 0
    token: str = field(default_factory=lambda: uuid4().hex)
    """Two expressions that look alike may hold different functions, so each is taken for its own."""

    def clock(self) -> pl.Expr:
        """What the user's expression says."""
        return self.expr.cast(pl.Int64)

    @property
    def clock_id(self) -> str:
        """Its own."""
        return f"punctuation {self.token}"

    def __str__(self) -> str:
        """As a user would write it."""
        idle = f", idle={durations.text(self.idle)!r}" if self.idle is not None else ""
        return f"punctuation({self.expr}{idle})"


def bounded(delay: Duration, *, idle: Duration | None = None, ahead: Duration = AHEAD) -> Bounded:
    """The watermark stays `delay` behind each partition's clock.

    A partition that brings nothing for `idle` no longer holds the others back. An event more than `ahead`
    past its ingestion is set aside.
    """
    return Bounded(
        durations.not_negative(delay, name="delay"),
        None if idle is None else durations.positive(idle, name="idle"),
        durations.not_negative(ahead, name="ahead"),
    )


def punctuation(expr: pl.Expr, *, idle: Duration | None = None, ahead: Duration = AHEAD) -> Punctuation:
    """Where `expr` is not null, no row with an earlier event time is still expected in that partition."""
    return Punctuation(
        expr,
        None if idle is None else durations.positive(idle, name="idle"),
        durations.not_negative(ahead, name="ahead"),
    )
