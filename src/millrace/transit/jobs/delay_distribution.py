"""How late vehicles arrive, and where: the spread of delays of all arrivals in a geocell."""

import polars as pl

from millrace import aggregates, windows
from millrace.durations import Duration, parse_millis
from millrace.geo import DEFAULT_RESOLUTION, geocell
from millrace.stream import Job, read
from millrace.transit.jobs.parameters import trigger_from, watermark_from
from millrace.transit.topics import ARRIVALS, DELAYS


def delay_distribution(
    *,
    resolution: int = DEFAULT_RESOLUTION,
    window: Duration = "5m",
    every: Duration = "5s",
    watermark: Duration = "1s",
    idle: Duration | None = "10s",
    lateness: Duration = "1m",
    early: Duration | None = None,
) -> Job:
    """The delay that half, nine of ten and 99 of 100 arrivals do not exceed.
    An arrival counts once, however often it was sent.
    """
    return Job(
        "delay-distribution",
        read(ARRIVALS, watermark=watermark_from(watermark, idle))
        .select("vehicle_id", "delay", geocell=geocell(resolution=resolution))
        .filter(pl.col("geocell").is_not_null(), pl.col("delay").is_not_null())
        .group_by("vehicle_id")
        .deduplicate("event_time", within=parse_millis(window) + parse_millis(lateness))
        .window(windows.sliding(window, every=every), trigger=trigger_from(early), lateness=lateness)
        .group_by("geocell")
        .aggregate(delays=aggregates.quantiles("delay", [0.5, 0.9, 0.99]), count=aggregates.count())
        .select(
            "geocell", "count",
            **{name: pl.col("delays").list.get(place) for place, name in enumerate(("p50", "p90", "p99"))},
        )
        .write(DELAYS),
    )  # fmt: skip
