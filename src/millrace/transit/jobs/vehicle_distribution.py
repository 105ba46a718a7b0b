"""How many vehicles are where: the latest position of each, counted per geocell."""

import polars as pl

from millrace import triggers, watermarks, windows
from millrace.durations import Duration
from millrace.stream import Job, read
from millrace.transit.geocells import RESOLUTION, geocell
from millrace.transit.topics import CELL_COUNTS, POSITIONS


def vehicle_distribution(
    *,
    resolution: int = RESOLUTION,
    size: Duration = "30s",
    every: Duration = "5s",
    delay: Duration = "1s",
    idle: Duration | None = "10s",
    lateness: Duration = "1m",
) -> Job:
    """A vehicle counts once in each window, in the cell where it was last; repeats of a message change nothing."""
    return Job(
        "vehicle-distribution",
        read(POSITIONS, watermark=watermarks.bounded(delay, idle=idle))
        .select("vehicle_id", geocell=geocell(resolution=resolution))
        .filter(pl.col("geocell").is_not_null())
        .window(windows.sliding(size, every=every), trigger=triggers.at_watermark(), lateness=lateness)
        .by("vehicle_id").latest("geocell")
        .by("geocell").count()
        .write(CELL_COUNTS),
    )  # fmt: skip
