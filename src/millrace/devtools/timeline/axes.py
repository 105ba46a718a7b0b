"""Times on a line: where ticks stand, and how a time is written."""

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
"""Times from here on (1973) are written as times of the day, smaller ones as time passed."""


@dataclass(frozen=True)
class Axis:
    """Times from `low` to `high` on places from `start` to `stop`."""

    low: int
    high: int
    start: float = 0.0
    stop: float = 1.0

    def place(self, at: int) -> float:
        """Where a time stands; one beyond the ends stands at the end."""
        inside = min(max(at, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, most: int) -> list[int]:
        """Round times, at most so many."""
        step = next((step for step in _STEPS if (self.high - self.low) // step < most), _STEPS[-1])
        return list(range(-(-self.low // step) * step, self.high + 1, step))

    def text(self, at: int) -> str:
        """A time as short as it can be told."""
        if abs(at) < 60_000:
            return f"{at / 1000:g}s"
        if abs(at) < _CALENDAR:
            return durations.text(at)
        moment = datetime.fromtimestamp(at / 1000, UTC)
        return moment.strftime("%H:%M:%S.%f")[:-3] if at % 1_000 else moment.strftime("%H:%M:%S")

    def day(self) -> str:
        """The day that times of the day belong to; empty for time passed."""
        return (
            datetime.fromtimestamp(self.low / 1000, UTC).strftime("%Y-%m-%d UTC")
            if self.low >= _CALENDAR
            else ""
        )


def axes(timeline: Timeline) -> tuple[Axis, Axis]:
    """Event time and processing time of a run. What is far from the events, such as the end of time, does not stretch them."""
    seen = [moment.at for moment in timeline.moments]
    first, last = min(seen), max(seen)
    room = max(1, (last - first) // 25)
    happened = [dot.event_time for dot in timeline.dots if dot.event_time <= dot.at] or [first, last]
    if not timeline.by_clock:
        span = max(max(happened) - min(happened), 1)
        happened += [
            edge
            for window in timeline.windows
            for edge in window
            if min(happened) - span <= edge <= max(happened) + span
        ]
    return _wide(min(happened), max(happened)), Axis(first - room, last + 2 * room)


def _wide(low: int, high: int) -> Axis:
    return Axis(low, high if high > low else low + 1)


def window_text(window: Window, axis: Axis) -> str:
    """A window as an interval; ends beyond all events are left open."""
    start = "…" if window[0] < axis.low - (axis.high - axis.low) * 10 else axis.text(window[0])
    end = "…" if window[1] > axis.high + (axis.high - axis.low) * 10 else axis.text(window[1])
    return f"[{start}, {end})"
