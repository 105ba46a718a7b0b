"""Where traffic flows: for each geocell, the neighbouring cell that most vehicles cross into."""

import polars as pl

from millrace import frames, windows
from millrace.durations import Duration
from millrace.geo import DEFAULT_RESOLUTION, are_neighbours, geocell
from millrace.stream import Job, read
from millrace.transit.jobs.parameters import watermark_from
from millrace.transit.topics import FLOWS, POSITIONS


def flow_direction(
    *,
    resolution: int = DEFAULT_RESOLUTION,
    window: Duration = "5m",
    every: Duration = "5s",
    watermark: Duration = "1s",
    idle: Duration | None = "10s",
    lateness: Duration = "1m",
) -> Job:
    """A vehicle crosses a border with its first position in the other cell, if its last one is less than the
    length of a window ago. It counts once for each border that it crosses in a window; of two directions
    equally frequent, the greater cell wins. A late position corrects the crossings beside it.
    """
    return Job(
        "flow-direction",
        read(POSITIONS, watermark=watermark_from(watermark, idle))
        .select("vehicle_id", to=geocell(resolution=resolution))
        .filter(pl.col("to").is_not_null())
        .group_by("vehicle_id").over(geocell=frames.lag("to"), ttl=window, lateness=lateness)
        .filter(pl.col("geocell") != pl.col("to"))
        .filter(are_neighbours("geocell", "to"))
        .window(windows.sliding(window, every=every))
        .group_by("geocell", "to").count("vehicle_id", distinct=True)
        .group_by("geocell").top(1, "to", by="count")
        .select("geocell", **{name: pl.col("top").list.get(0).struct.field(name) for name in ("to", "count")})
        .write(FLOWS),
    )  # fmt: skip
