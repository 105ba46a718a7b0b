"""Where traffic flows: for each geocell, the neighbouring cell that most vehicles cross into."""

import polars as pl

from millrace import windows
from millrace.durations import Duration
from millrace.geo import DEFAULT_RESOLUTION, are_neighbours, geocell
from millrace.stream import Job, read
from millrace.transit.jobs.parameters import trigger_from, watermark_from
from millrace.transit.topics import FLOWS, POSITIONS


def flow_direction(
    *,
    resolution: int = DEFAULT_RESOLUTION,
    window: Duration = "5m",
    every: Duration = "5s",
    watermark: Duration = "1s",
    idle: Duration | None = "10s",
    lateness: Duration = "1m",
    early: Duration | None = None,
) -> Job:
    """A vehicle counts once for each border that it crosses in a window;
    of two directions equally frequent, the greater cell wins.
    """
    return Job(
        "flow-direction",
        read(POSITIONS, watermark=watermark_from(watermark, idle))
        .select("vehicle_id", geocell=geocell(resolution=resolution))
        .filter(pl.col("geocell").is_not_null())
        .window(windows.sliding(window, every=every), trigger=trigger_from(early), lateness=lateness)
        .group_by("vehicle_id").collect("geocell", name="way")
        .select("vehicle_id", crossed=crossings("way"))
        .explode("crossed")
        .select(
            "vehicle_id",
            geocell=pl.col("crossed").struct.field("here"), to=pl.col("crossed").struct.field("there"),
        )
        .filter(are_neighbours("geocell", "to"))
        .group_by("geocell", "to").count()
        .group_by("geocell").top(1, "to", by="count")
        .select("geocell", **{name: pl.col("top").list.get(0).struct.field(name) for name in ("to", "count")})
        .write(FLOWS),
    )  # fmt: skip


def crossings(path: str) -> pl.Expr:
    """Each pair of different cells that follow one another on a way, once, as `{here, there}`."""
    pair = pl.struct(here=pl.element(), there=pl.element().shift(-1))
    is_crossing = (pl.element() != pl.element().shift(-1)).fill_null(value=False)
    return pl.col(path).list.eval(pair.filter(is_crossing)).list.unique()
