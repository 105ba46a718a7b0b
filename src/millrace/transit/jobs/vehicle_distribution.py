"""How many vehicles are where: the latest position of each, counted per geocell."""

import polars as pl

from millrace import windows
from millrace.durations import Duration
from millrace.geo import DEFAULT_RESOLUTION, geocell
from millrace.stream import Job, read
from millrace.transit.jobs.parameters import trigger_from, watermark_from
from millrace.transit.topics import CELL_COUNTS, POSITIONS


def vehicle_distribution(
    *,
    resolution: int = DEFAULT_RESOLUTION,
    window: Duration = "30s",
    every: Duration = "5s",
    watermark: Duration = "1s",
    idle: Duration | None = "10s",
    lateness: Duration = "1m",
    early: Duration | None = None,
) -> Job:
    """A vehicle counts once in each window, in the cell where it was last;
    repeats of a message change nothing.
    """
    return Job(
        "vehicle-distribution",
        read(POSITIONS, watermark=watermark_from(watermark, idle))
        .select("vehicle_id", geocell=geocell(resolution=resolution))
        .filter(pl.col("geocell").is_not_null())
        .window(windows.sliding(window, every=every), trigger=trigger_from(early), lateness=lateness)
        .group_by("vehicle_id").latest("geocell")
        .group_by("geocell").count()
        .write(CELL_COUNTS),
    )  # fmt: skip
