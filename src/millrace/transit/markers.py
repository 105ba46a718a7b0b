"""Latency markers: vehicles that do not exist, far out at sea, whose results tell how long results take. What people are shown leaves them out.

They report to the topics of positions and arrivals like all others and go through the same jobs, so that nothing is measured but the way of every event.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from millrace.topics import Topic
from millrace.transit.topics import (
    ARRIVALS,
    CELL_COUNTS,
    DELAYS,
    EMERGENCY_STOPS,
    FINAL_STOPS,
    FLOWS,
    POSITIONS,
)

Place: TypeAlias = tuple[float, float]
"""Latitude and longitude."""

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

    reads: Topic
    """Where its events go."""
    topic: Topic
    """Where its results appear."""
    rows: Callable[[int, int], pl.DataFrame]
    """The events between two times; those that make up a result are neighbours in time, and the last of them is what it waits for."""
    delay: int
    """Of the job's watermark, in milliseconds."""
    waits_for: Callable[[pl.DataFrame], pl.DataFrame]
    """Of decoded results, those of markers: `event`, the time of the last event, and `complete`, the watermark that lets it come."""


@dataclass(frozen=True)
class _Counted:
    """One vehicle in the last milliseconds of each window, at one place after the other; the cell of the first of its places has a result."""

    job: str
    places: tuple[Place, ...]
    reads: Topic = POSITIONS
    found: Place | None = None
    """Where the result is, if elsewhere."""
    said: tuple[tuple[str, str | int], ...] = ()

    def rows(self, start: int, end: int) -> pl.DataFrame:
        ends = range(-(-(start + 1) // _EVERY) * _EVERY, end + 1, _EVERY)
        events = [
            (last - len(self.places) + place, *where)
            for last in ends
            for place, where in enumerate(self.places)
        ]
        rows = pl.DataFrame(events, schema=["event_time", "latitude", "longitude"], orient="row")
        return _reported(
            self.reads,
            rows.with_columns(
                vehicle_id=pl.lit(f"{PREFIX}{self.job}"), **{name: pl.lit(it) for name, it in self.said}
            ),
        )

    def results(self, results: pl.DataFrame) -> pl.DataFrame:
        mine = (
            (pl.col("geocell") == _cell(self.found or self.places[0]))
            & (pl.col("timing") == "on_time")
            & (pl.col("index") == 0)
        )
        return results.filter(mine).select(event=pl.col("window_end") - 1, complete="window_end")


def _cell(place: Place) -> int:
    from millrace.geo import geocell

    return int(pl.DataFrame([place], schema=["latitude", "longitude"], orient="row").select(geocell()).item())


def _stopping(start: int, end: int) -> pl.DataFrame:
    """One vehicle each 250 ms, which brakes from 12 m/s to a standstill within two seconds."""
    begun = pl.DataFrame(
        {"begun": range(-(-start // _APART) * _APART, end, _APART)}, schema={"begun": pl.Int64}
    )
    phases = pl.DataFrame(
        [(0, 12.0, 0.0), (1000, 5.0, -7.0), (2000, 0.0, -5.0)],
        schema=["after", "speed", "acceleration"],
        orient="row",
    )
    rows = begun.join(phases, how="cross").with_columns(
        vehicle_id=pl.format(f"{PREFIX}emergency-stop/{{}}", "begun"),
        event_time=pl.col("begun") + pl.col("after"),
    )
    return _reported(POSITIONS, rows.with_columns(latitude=pl.lit(SEA[0]), longitude=pl.lit(SEA[1]))).sort(
        "event_time"
    )


def _stops(results: pl.DataFrame) -> pl.DataFrame:
    mine = results.filter(pl.col("vehicle_id").str.starts_with(PREFIX))
    at = mine["vehicle_id"].str.split("/").list.last().cast(pl.Int64) + 2000
    return pl.DataFrame({"event": at, "complete": at + 1})


def _reported(topic: Topic, rows: pl.DataFrame) -> pl.DataFrame:
    """As events of a topic, all columns there; they come in as soon as they happen."""
    rows = rows.with_columns(operator=pl.lit(PREFIX.rstrip("/")), ingestion_time=pl.col("event_time"))
    columns: dict[str, pl.DataType] = {**topic.schema, "event_time": pl.Int64(), "ingestion_time": pl.Int64()}
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in columns.items()
    )


_EVERY, _APART = 5_000, 250
ROUTE = "marker"
"""The route, in direction 1, of the vehicle that is heading somewhere: to `END`."""
END = SEA[0] - 1, SEA[1] + 1

_HERE = _Counted("vehicle-distribution", (SEA,))
_ARRIVED = _Counted("delay-distribution", ((SEA[0] + 1, SEA[1] - 1),), ARRIVALS, said=(("delay", 0),))
_HEADING = _Counted(
    "final-stop-distribution", ((SEA[0] - 1, SEA[1]),), found=END, said=(("route", ROUTE), ("direction", 1))
)
_CROSSING = _Counted("flow-direction", ((SEA[0] + 1, SEA[1]), (SEA[0] + 0.997, SEA[1])))

MARKERS = {
    "vehicle-distribution": Marker(POSITIONS, CELL_COUNTS, _HERE.rows, 1_000, _HERE.results),
    "delay-distribution": Marker(ARRIVALS, DELAYS, _ARRIVED.rows, 1_000, _ARRIVED.results),
    "final-stop-distribution": Marker(POSITIONS, FINAL_STOPS, _HEADING.rows, 1_000, _HEADING.results),
    "flow-direction": Marker(POSITIONS, FLOWS, _CROSSING.rows, 1_000, _CROSSING.results),
    "emergency-stop": Marker(POSITIONS, EMERGENCY_STOPS, _stopping, 5_000, _stops),
}
"""By job; as the jobs are by default."""
