"""Where vehicles are heading: how many are on their way to a final stop in each geocell."""

import polars as pl

from millrace import windows
from millrace.durations import Duration
from millrace.geo import DEFAULT_RESOLUTION, geocell
from millrace.stream import Job, read
from millrace.transit.final_stops import FinalStop, FinalStops, final_stops
from millrace.transit.jobs.parameters import trigger_from, watermark_from
from millrace.transit.topics import FINAL_STOPS, POSITIONS


def final_stop_distribution(
    *,
    stops: str | FinalStops = "gtfs",
    resolution: int = DEFAULT_RESOLUTION,
    window: Duration = "5m",
    every: Duration = "5s",
    watermark: Duration = "1s",
    idle: Duration | None = "10s",
    lateness: Duration = "1m",
    early: Duration | None = None,
) -> Job:
    """A vehicle counts once in each window, for the route on which it was last.
    `stops`: a folder of GTFS files, or a URL that is asked.
    """
    return Job(
        "final-stop-distribution",
        read(POSITIONS, watermark=watermark_from(watermark, idle))
        .select("vehicle_id", "route", "direction")
        .lookup(
            final_stops(stops), "route", "direction",
            schema=FinalStop, name="final-stop", ttl="1h", timeout="2s",
        )
        .select("vehicle_id", geocell=geocell("stop_latitude", "stop_longitude", resolution=resolution))
        .filter(pl.col("geocell").is_not_null())
        .window(windows.sliding(window, every=every), trigger=trigger_from(early), lateness=lateness)
        .group_by("vehicle_id").latest("geocell")
        .group_by("geocell").count()
        .write(FINAL_STOPS),
    )  # fmt: skip
