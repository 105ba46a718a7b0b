"""Two jobs for measuring: one that does nothing, so that what is left is the least that any job takes,
and one that only counts.
"""

from millrace import triggers, watermarks, windows
from millrace.durations import Duration
from millrace.stream import Job, read
from millrace.transit.topics import EVENT_COUNTS, PASSED, POSITIONS


def pass_through(*, watermark: Duration = "1s", idle: Duration | None = "10s") -> Job:
    """Positions as they came: no window, no state."""
    return Job(
        "pass-through", read(POSITIONS, watermark=watermarks.bounded(watermark, idle=idle)).write(PASSED)
    )


def event_count(*, watermark: Duration = "1s", idle: Duration | None = "10s") -> Job:
    """How many events each vehicle has sent so far,
    shown again with every batch that brings some: state and nothing else.
    """
    return Job(
        "event-count",
        read(POSITIONS, watermark=watermarks.bounded(watermark, idle=idle))
        .select("vehicle_id")
        .window(windows.global_window(), trigger=triggers.repeatedly(triggers.after_count(1)), time="latest")
        .group_by("vehicle_id").count()
        .write(EVENT_COUNTS),
    )  # fmt: skip
