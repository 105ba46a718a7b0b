"""Latency markers: vehicles that do not exist, far out at sea, whose results tell how long results take. What people are shown leaves them out.

They report to `input.vehicle-positions` like all others and go through the same jobs, so that nothing is measured but the way of every event.
"""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from millrace.topics import Topic
from millrace.transit.topics import CELL_COUNTS, EMERGENCY_STOPS, POSITIONS

PREFIX = "marker/"
"""How the names of such vehicles begin."""
SEA = -47.0, -123.0
"""Latitude and longitude, in the South Pacific: no land within 2,000 km."""
_SPREAD = 2.0


def at_sea(latitude: str = "latitude", longitude: str = "longitude") -> pl.Expr:
    """Whether a place is where only markers are."""
    return ((pl.col(latitude) - SEA[0]).abs() <= _SPREAD) & ((pl.col(longitude) - SEA[1]).abs() <= _SPREAD)


@dataclass(frozen=True)
class Marker:
    """How the results of a job are told apart."""

    topic: Topic
    """Where they appear."""
    rows: Callable[[int, int], pl.DataFrame]
    """The events between two times; those that make up a result are neighbours in time, and the last of them is what it waits for."""
    delay: int
    """Of the job's watermark, in milliseconds."""
    waits_for: Callable[[pl.DataFrame], pl.DataFrame]
    """Of decoded results, those of markers: `event`, the time of the last event, and `complete`, the watermark that lets it come."""


def _counted(start: int, end: int) -> pl.DataFrame:
    """One vehicle, in the last millisecond of each window."""
    times = range(-(-(start + 1) // _EVERY) * _EVERY - 1, end, _EVERY)
    return _positions({"vehicle_id": [f"{PREFIX}vehicle-distribution"] * len(times), "event_time": list(times)})


def _counts(results: pl.DataFrame) -> pl.DataFrame:
    from millrace.transit.geocells import geocell

    (cell,) = pl.DataFrame({"latitude": [SEA[0]], "longitude": [SEA[1]]}).select(geocell()).to_series()
    mine = results.filter((pl.col("geocell") == cell) & (pl.col("index") == 0) & (pl.col("timing") == "on_time"))
    return mine.select(event=pl.col("window_end") - 1, complete="window_end")


def _stopping(start: int, end: int) -> pl.DataFrame:
    """One vehicle each 250 ms, which brakes from 12 m/s to a standstill within two seconds."""
    times = list(range(-(-start // _APART) * _APART, end, _APART))
    names = [f"{PREFIX}emergency-stop/{time}" for time in times]
    phases = [(0, 12.0, 0.0), (1000, 5.0, -7.0), (2000, 0.0, -5.0)]
    frames = [
        _positions({"vehicle_id": names, "event_time": [time + after for time in times]}, speed=speed, acceleration=acceleration)
        for after, speed, acceleration in phases
    ]
    return pl.concat(frames).sort("event_time")


def _stops(results: pl.DataFrame) -> pl.DataFrame:
    mine = results.filter(pl.col("vehicle_id").str.starts_with(PREFIX))
    at = mine["vehicle_id"].str.split("/").list.last().cast(pl.Int64) + 2000
    return pl.DataFrame({"event": at, "complete": at + 1})


def _positions(said: dict[str, list[str] | list[int]], **same: float) -> pl.DataFrame:
    """Events of markers, all columns there; they come in as soon as they happen."""
    place = {"latitude": SEA[0], "longitude": SEA[1], "operator": PREFIX.rstrip("/"), **same}
    columns: dict[str, pl.DataType] = {**POSITIONS.schema, "event_time": pl.Int64(), "ingestion_time": pl.Int64()}
    frame = pl.DataFrame(said, schema_overrides={"event_time": pl.Int64, "vehicle_id": pl.String})
    frame = frame.with_columns(*(pl.lit(value).alias(name) for name, value in place.items()), ingestion_time=pl.col("event_time"))
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name) for name, dtype in columns.items()
    )


_EVERY, _APART = 5_000, 250

MARKERS = {
    "vehicle-distribution": Marker(CELL_COUNTS, _counted, 1_000, _counts),
    "emergency-stop": Marker(EMERGENCY_STOPS, _stopping, 5_000, _stops),
}
"""By job; as the jobs are by default."""
