"""Axes of time: the position of a time, ticks, and labels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from millrace import durations
from millrace.devtools.timeline.seen import Timeline, Window

_STEPS = [n * unit for unit in (1, 10, 100, 1_000, 10_000) for n in (1, 2, 5)]
_STEPS += [n * 60_000 for n in (1, 2, 5, 10, 15, 30)] + [
    n * 3_600_000 for n in (1, 2, 3, 6, 12, 24, 48, 96, 168)
]
_CALENDAR = 10**11
"""Times from here on (1973) are shown as times of day, smaller ones as elapsed time."""


@dataclass(frozen=True)
class Axis:
    """Times from `first` to `last` on positions from `start` to `stop`."""

    first: int
    last: int
    start: float = 0.0
    stop: float = 1.0

    def position_of(self, at: int) -> float:
        """The position of a time; beyond the ends it is that of the end."""
        inside = min(max(at, self.first), self.last)
        return self.start + (inside - self.first) / (self.last - self.first) * (self.stop - self.start)

    def ticks(self, max_ticks: int) -> list[int]:
        """Round times, at most `most` of them."""
        step = next((step for step in _STEPS if (self.last - self.first) // step < max_ticks), _STEPS[-1])
        return list(range(-(-self.first // step) * step, self.last + 1, step))

    def format_time(self, at: int) -> str:
        """The shortest label of a time that is still distinct."""
        if abs(at) < 60_000:
            return f"{at / 1000:g}s"
        if abs(at) < _CALENDAR:
            return durations.format_millis(at)
        moment = datetime.fromtimestamp(at / 1000, UTC)
        return moment.strftime("%H:%M:%S.%f")[:-3] if at % 1_000 else moment.strftime("%H:%M:%S")

    def format_day(self) -> str:
        """The day of times of day; empty for elapsed time."""
        return (
            datetime.fromtimestamp(self.first / 1000, UTC).strftime("%Y-%m-%d UTC")
            if self.first >= _CALENDAR
            else ""
        )


def axes(timeline: Timeline) -> tuple[Axis, Axis]:
    """The axes of event time and processing time. Times far from all events, such as the end of time, do not
    stretch them.
    """
    batch_times = [batch.at for batch in timeline.batches]
    first, last = min(batch_times), max(batch_times)
    margin = max(1, (last - first) // 25)
    event_times = [dot.event_time for dot in timeline.dots if dot.event_time <= dot.at] or [first, last]
    if not timeline.is_processing_time:
        span = max(max(event_times) - min(event_times), 1)
        event_times += [
            edge
            for window in timeline.windows
            for edge in window
            if min(event_times) - span <= edge <= max(event_times) + span
        ]
    return _make_axis(min(event_times), max(event_times)), Axis(first - margin, last + 2 * margin)


def _make_axis(first: int, last: int) -> Axis:
    return Axis(first, last if last > first else first + 1)


def format_window(window: Window, axis: Axis) -> str:
    """A window as an interval; ends beyond all events are open."""
    start = "…" if window[0] < axis.first - (axis.last - axis.first) * 10 else axis.format_time(window[0])
    end = "…" if window[1] > axis.last + (axis.last - axis.first) * 10 else axis.format_time(window[1])
    return f"[{start}, {end})"
