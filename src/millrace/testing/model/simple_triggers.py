"""The simple triggers at work, in the model: each remembers which rows came to it, and answers from that.

The specification of when they fire; `triggers.py` beside this has those that are made of others, and
`own_triggers.py` those that users write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace import triggers
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.testing.model.values import Row
from millrace.triggers import Trigger
from millrace.windows import Window


class AddedRows(NamedTuple):
    """The rows that a batch brought to a window."""

    row_count: int
    clock: int
    """The processing time of the batch."""
    event_time: int
    """The watermark before the batch; the window's start if there was none yet."""
    is_past_end: bool
    """Whether the watermark had passed the window's end before the batch."""
    rows: Sequence[Row] = ()
    """The rows themselves, in order."""
    window: Window = (0, 0)
    known_watermark: int | None = None
    """The watermark before the batch."""

    @property
    def time_passes(self) -> bool:
        """Whether time moved in this batch before this moment."""
        return False


class BatchEnd(NamedTuple):
    """The end of a batch, as one window sees it."""

    watermark: int
    clock: int
    window_end: int
    window_start: int = 0

    @property
    def time_passes(self) -> bool:
        """Whether time moved in this batch before this moment."""
        return True

    @property
    def window(self) -> Window:
        """The window, for triggers that users write."""
        return self.window_start, self.window_end

    @property
    def known_watermark(self) -> int | None:
        """The watermark; none before the first row."""
        return None if self.watermark == BEFORE_ALL else self.watermark

    @property
    def is_past_end(self) -> bool:
        """Whether the watermark has passed the window's end."""
        return self.watermark >= self.window_end


class Alarm(NamedTuple):
    """A time at which a trigger must be asked although no row comes."""

    at: int
    is_clock: bool
    """Whether it is a processing time; otherwise the watermark is meant."""


class TriggerRun:
    """A trigger at work in one window. This one is `never`: rows and time mean nothing to it."""

    def add_rows(self, rows: AddedRows) -> None:
        """Rows came in this batch."""

    def pass_time(self, moment: BatchEnd) -> None:
        """Time has moved: timers of a user's own trigger are called."""

    def is_ready(self, moment: BatchEnd) -> bool:  # noqa: ARG002 - at no moment
        """Whether the window fires at the end of this batch."""
        return False

    def fire(self, moment: BatchEnd) -> bool:  # noqa: ARG002 - most finish whenever they fire
        """The window fires.

        The answer is whether the trigger has finished. Only a run that is ready may fire.
        """
        return True

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """The window is one that can merge: it is what it was, it grew, or became one with those of `others`.
        `rows` are about to be added.
        """

    def alarms(self, window_end: int) -> Iterator[Alarm]:  # noqa: ARG002 - most wait for rows only
        """The times that the trigger waits for."""
        yield from ()


@dataclass
class AfterCountRun(TriggerRun):
    """`after_count`: the rows since it began are enough."""

    needed: int
    seen: int = 0

    def add_rows(self, rows: AddedRows) -> None:
        """Counts the rows."""
        self.seen += rows.row_count

    def is_ready(self, moment: BatchEnd) -> bool:  # noqa: ARG002 - time does not matter
        """Whether enough rows came."""
        return self.seen >= self.needed

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:  # noqa: ARG002 - rows count alike
        """The rows of all windows count."""
        self.seen += sum(other.seen for other in others if isinstance(other, AfterCountRun))


@dataclass
class ClockRun(TriggerRun):
    """`after_delay` and `every`: processing time counted from the first row that no pane has shown."""

    trigger: triggers.AfterDelay | triggers.Every
    first_clock: int | None = None

    def due(self) -> int | None:
        """The time to fire at; none while nothing is new."""
        if self.first_clock is None:
            return None
        if isinstance(self.trigger, triggers.AfterDelay):
            return self.first_clock + self.trigger.delay
        return next_multiple(self.first_clock, self.trigger.period)

    def add_rows(self, rows: AddedRows) -> None:
        """Only the first one matters."""
        if self.first_clock is None:
            self.first_clock = rows.clock

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether the time has come."""
        due = self.due()
        return due is not None and moment.clock >= due

    def fire(self, moment: BatchEnd) -> bool:  # noqa: ARG002 - it fires alike at all moments
        """`every` waits for the next new row; `after_delay` fires once."""
        if isinstance(self.trigger, triggers.Every):
            self.first_clock = None
            return False
        return True

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:  # noqa: ARG002 - the clock decides
        """The first row of any window is the first of all."""
        clocks = [self.first_clock, *(other.first_clock for other in others if isinstance(other, ClockRun))]
        self.first_clock = min((clock for clock in clocks if clock is not None), default=None)

    def alarms(self, window_end: int) -> Iterator[Alarm]:  # noqa: ARG002 - whatever window it is
        """The time to fire at."""
        due = self.due()
        if due is not None:
            yield Alarm(due, is_clock=True)


@dataclass
class EveryEventTimeRun(TriggerRun):
    """`every(…, time="event")`: the watermark passes a multiple of the period or the window's end."""

    period: int
    first_time: int | None = None
    """Where event time stood when the first new row came."""
    awaits_end: bool = False
    """Whether the end of the window was still ahead then."""

    def add_rows(self, rows: AddedRows) -> None:
        """Only the first one matters."""
        if self.first_time is None:
            self.first_time, self.awaits_end = rows.event_time, not rows.is_past_end

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether one of both times has come."""
        if self.first_time is None:
            return False
        is_multiple = moment.watermark >= next_multiple(self.first_time, self.period)
        return is_multiple or (self.awaits_end and moment.is_past_end)

    def fire(self, moment: BatchEnd) -> bool:  # noqa: ARG002 - it fires alike at all moments
        """Waits for the next new row."""
        self.first_time = None
        return False

    def absorb(self, others: Sequence[TriggerRun], rows: AddedRows) -> None:
        """The first row of any window is the first of all; the end to wait for is that of the new window."""
        times = [
            self.first_time,
            *(other.first_time for other in others if isinstance(other, EveryEventTimeRun)),
        ]
        self.first_time = min((time for time in times if time is not None), default=None)
        self.awaits_end = not rows.is_past_end

    def alarms(self, window_end: int) -> Iterator[Alarm]:
        """The next multiple, and the window's end."""
        if self.first_time is not None:
            yield Alarm(next_multiple(self.first_time, self.period), is_clock=False)
            if self.awaits_end:
                yield Alarm(window_end, is_clock=False)


class AtWindowEndRun(TriggerRun):
    """`at_window_end`: the clock has passed the window's end."""

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether it has."""
        return moment.clock >= moment.window_end

    def alarms(self, window_end: int) -> Iterator[Alarm]:
        """The window's end."""
        yield Alarm(window_end, is_clock=True)


class AtEndRun(TriggerRun):
    """`at_end`: the stream has ended."""

    def is_ready(self, moment: BatchEnd) -> bool:
        """Whether it has."""
        return moment.watermark >= END_OF_STREAM

    def alarms(self, window_end: int) -> Iterator[Alarm]:  # noqa: ARG002 - whatever window it is
        """The end of the stream."""
        yield Alarm(END_OF_STREAM, is_clock=False)


def next_multiple(time: int, period: int) -> int:
    """The first multiple of a period that is after a time."""
    return (time // period + 1) * period


def start_simple(trigger: Trigger) -> TriggerRun:
    """A trigger that is not made of others, before any row."""
    match trigger:
        case triggers.Never():
            return TriggerRun()
        case triggers.AfterCount(rows=rows):
            return AfterCountRun(rows)
        case triggers.AfterDelay() | triggers.Every():
            return ClockRun(trigger)
        case triggers.EveryEventTime(period=period):
            return EveryEventTimeRun(period)
        case triggers.AtWindowEnd():
            return AtWindowEndRun()
        case triggers.AtEnd():
            return AtEndRun()
        case _:
            raise TypeError(f"{trigger} is not known to the model; add it to millrace.testing.model.triggers")
