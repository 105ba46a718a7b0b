"""What the jobs are defined to say, in plain polars over all rows at once:
nothing here is shared with the engine.
"""

from collections.abc import Iterator
from functools import cache

import h3
import polars as pl

EVERY = 5_000


@cache
def cell(latitude: float, longitude: float, resolution: int = 9) -> int:
    return int(h3.latlng_to_cell(latitude, longitude, resolution), 16)


@cache
def adjacent(one: int, other: int) -> bool:
    return bool(h3.are_neighbor_cells(h3.int_to_str(one), h3.int_to_str(other)))


def placed(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows in the order of arrival, with their number and cell,
    and their watermark before any delay is taken off.
    """
    cells = [cell(*place) for place in rows.select("latitude", "longitude").iter_rows()]
    clock = pl.min_horizontal("event_time", "ingestion_time").cum_max()
    return rows.with_row_index("number").with_columns(
        clock.alias("clock"), geocell=pl.Series(cells, dtype=pl.Int64)
    )


def windowed(rows: pl.DataFrame, *, size: int, lateness: int, delay: int = 1_000) -> pl.DataFrame:
    """Each row once for each window that takes it, by the window's `end`."""
    ends = pl.concat(
        [
            rows.with_columns(end=pl.col("event_time") // EVERY * EVERY + EVERY * n)
            for n in range(1, size // EVERY + 1)
        ]
    )
    return ends.filter(pl.col("clock") - delay < pl.col("end") + lateness)


def last_of(rows: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """The newest row of each key and window; of rows of one time, that which came last."""
    return rows.sort("event_time", "number").group_by(*keys, "end").last()


def counted(rows: pl.DataFrame, *, size: int, lateness: int) -> pl.DataFrame:
    """Vehicles by the cell of their newest row."""
    newest = last_of(windowed(rows, size=size, lateness=lateness), "vehicle_id")
    return _shown(newest.group_by("geocell", "end").agg(count=pl.len().cast(pl.Int64)), size)


def delays(arrivals: pl.DataFrame, *, lateness: int, size: int = 300_000) -> pl.DataFrame:
    once = last_of(
        windowed(arrivals.drop_nulls("delay"), size=size, lateness=lateness), "vehicle_id", "event_time"
    )
    groups = once.group_by("geocell", "end").agg(pl.col("delay").sort(), count=pl.len().cast(pl.Int64))
    found = groups.with_columns(
        pl.col("delay").list.get((pl.col("count") * share / 100).ceil().cast(pl.Int64) - 1).alias(f"p{share}")
        for share in (50, 90, 99)
    )
    return _shown(found.drop("delay"), size)


def flows(rows: pl.DataFrame, *, lateness: int, size: int = 300_000, delay: int = 1_000) -> pl.DataFrame:
    in_time = rows.filter(pl.col("event_time") >= pl.col("clock") - delay - lateness)
    time, here = pl.col("event_time"), pl.col("geocell")
    steps = in_time.sort("vehicle_id", "event_time", "number").with_columns(
        geocell=here.shift(1).over("vehicle_id"),
        to=here,
        pause=(time - time.shift(1)).over("vehicle_id"),
    )
    crossed = steps.filter(pl.col("geocell") != pl.col("to"), pl.col("pause") < size)
    ends = pl.concat(
        [crossed.with_columns(end=time // EVERY * EVERY + EVERY * n) for n in range(1, size // EVERY + 1)]
    )
    once = ends.select("vehicle_id", "end", "geocell", "to").unique()
    pairs = once.select("geocell", "to").unique()
    near = pairs.filter(pl.Series([adjacent(*pair) for pair in pairs.iter_rows()], dtype=pl.Boolean))
    counts = (
        once.join(near, on=["geocell", "to"])
        .group_by("geocell", "to", "end")
        .agg(count=pl.len().cast(pl.Int64))
    )
    return _shown(counts.sort("count", "to").group_by("geocell", "end").last(), size)


def _shown(found: pl.DataFrame, size: int) -> pl.DataFrame:
    made = found.with_columns(window_start=pl.col("end") - size, window_end=pl.col("end")).drop("end")
    return made.select(sorted(made.columns)).sort("window_end", "geocell")


STOP = {
    "vehicle_id": pl.String,
    "window_start": pl.Int64,
    "event_time": pl.Int64,
    "speed_difference": pl.Float64,
    "deceleration": pl.Float64,
    "latitude": pl.Float64,
    "longitude": pl.Float64,
}


def stops(rows: pl.DataFrame, *, delay: int, within: int = 10_000) -> pl.DataFrame:
    """Hard stops by plain loops, of each event once: for each beginning in order the first end,
    then nothing before that end.
    """
    once = rows.filter(pl.col("event_time") >= pl.col("clock") - delay).unique(
        ["vehicle_id", "event_time"], keep="first"
    )
    found = [
        stop for _, own in once.sort("event_time").group_by("vehicle_id") for stop in _stops_of(own, within)
    ]
    return pl.DataFrame(found, schema=STOP, orient="row").sort("event_time", "vehicle_id")


def _stops_of(own: pl.DataFrame, within: int) -> Iterator[tuple[object, ...]]:
    vehicle, free = own["vehicle_id"][0], 0
    times, speeds, changes = (own[column].to_list() for column in ("event_time", "speed", "acceleration"))
    for start, speed in enumerate(speeds):
        if start < free or speed is None or speed < 10:
            continue
        for end in range(start + 1, len(times)):
            if times[end] - times[start] >= within or (end > start + 1 and not _braking(changes[end - 1])):
                break
            if end > start + 1 and speeds[end] is not None and speeds[end] < 1:
                hardest = min(changes[start + 1 : end])
                yield (
                    vehicle,
                    times[start],
                    times[end],
                    speed - speeds[end],
                    hardest,
                    own["latitude"][end],
                    own["longitude"][end],
                )
                free = end + 1
                break


def _braking(change: float | None) -> bool:
    return change is not None and change < 0
