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

GeoPosition: TypeAlias = tuple[float, float]
"""Latitude and longitude."""

MARKER_PREFIX = "marker/"
"""How the names of such vehicles begin."""
MARKER_AREA = -47.0, -123.0
"""Latitude and longitude, in the South Pacific: no land within 2,000 km."""
_AREA_RADIUS = 2.0


def is_marker_position(latitude: str = "latitude", longitude: str = "longitude") -> pl.Expr:
    """Whether a place is where only markers are."""
    return ((pl.col(latitude) - MARKER_AREA[0]).abs() <= _AREA_RADIUS) & (
        (pl.col(longitude) - MARKER_AREA[1]).abs() <= _AREA_RADIUS
    )


@dataclass(frozen=True)
class LatencyMarker:
    """How the results of a job are told apart."""

    input_topic: Topic
    """Where its events go."""
    output_topic: Topic
    """Where its results appear."""
    make_rows: Callable[[int, int], pl.DataFrame]
    """The events between two times; those that make up a result are neighbours in time, and the last of them is what it waits for."""
    delay: int
    """Of the job's watermark, in milliseconds."""
    find_results: Callable[[pl.DataFrame], pl.DataFrame]
    """Of decoded results, those of markers: `event`, the time of the last event, and `complete`, the watermark that lets it come."""


@dataclass(frozen=True)
class _WindowMarker:
    """One vehicle in the last milliseconds of each window, at one place after the other; the cell of the first of its places has a result."""

    job: str
    positions: tuple[GeoPosition, ...]
    input_topic: Topic = POSITIONS
    result_position: GeoPosition | None = None
    """Where the result is, if elsewhere."""
    fields: tuple[tuple[str, str | int], ...] = ()

    def make_rows(self, start: int, end: int) -> pl.DataFrame:
        ends = range(-(-(start + 1) // _WINDOW_STEP) * _WINDOW_STEP, end + 1, _WINDOW_STEP)
        events = [
            (last - len(self.positions) + index, *position)
            for last in ends
            for index, position in enumerate(self.positions)
        ]
        rows = pl.DataFrame(events, schema=["event_time", "latitude", "longitude"], orient="row")
        return _to_topic_rows(
            self.input_topic,
            rows.with_columns(
                vehicle_id=pl.lit(f"{MARKER_PREFIX}{self.job}"),
                **{name: pl.lit(value) for name, value in self.fields},
            ),
        )

    def find_results(self, results: pl.DataFrame) -> pl.DataFrame:
        is_marker = (
            (pl.col("geocell") == _cell_of(self.result_position or self.positions[0]))
            & (pl.col("timing") == "on_time")
            & (pl.col("index") == 0)
        )
        return results.filter(is_marker).select(event=pl.col("window_end") - 1, complete="window_end")


def _cell_of(position: GeoPosition) -> int:
    from millrace.geo import geocell

    return int(
        pl.DataFrame([position], schema=["latitude", "longitude"], orient="row").select(geocell()).item()
    )


def _make_emergency_stops(start: int, end: int) -> pl.DataFrame:
    """One vehicle each 250 ms, which brakes from 12 m/s to a standstill within two seconds."""
    starts = pl.DataFrame(
        {"begun": range(-(-start // _STOP_INTERVAL) * _STOP_INTERVAL, end, _STOP_INTERVAL)},
        schema={"begun": pl.Int64},
    )
    phases = pl.DataFrame(
        [(0, 12.0, 0.0), (1000, 5.0, -7.0), (2000, 0.0, -5.0)],
        schema=["after", "speed", "acceleration"],
        orient="row",
    )
    rows = starts.join(phases, how="cross").with_columns(
        vehicle_id=pl.format(f"{MARKER_PREFIX}emergency-stop/{{}}", "begun"),
        event_time=pl.col("begun") + pl.col("after"),
    )
    return _to_topic_rows(
        POSITIONS, rows.with_columns(latitude=pl.lit(MARKER_AREA[0]), longitude=pl.lit(MARKER_AREA[1]))
    ).sort("event_time")


def _find_emergency_stops(results: pl.DataFrame) -> pl.DataFrame:
    marker_results = results.filter(pl.col("vehicle_id").str.starts_with(MARKER_PREFIX))
    event_times = marker_results["vehicle_id"].str.split("/").list.last().cast(pl.Int64) + 2000
    return pl.DataFrame({"event": event_times, "complete": event_times + 1})


def _to_topic_rows(topic: Topic, rows: pl.DataFrame) -> pl.DataFrame:
    """As events of a topic, all columns there; they come in as soon as they happen."""
    rows = rows.with_columns(operator=pl.lit(MARKER_PREFIX.rstrip("/")), ingestion_time=pl.col("event_time"))
    columns: dict[str, pl.DataType] = {**topic.schema, "event_time": pl.Int64(), "ingestion_time": pl.Int64()}
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in columns.items()
    )


_WINDOW_STEP, _STOP_INTERVAL = 5_000, 250
MARKER_ROUTE = "marker"
"""The route, in direction 1, of the vehicle that is heading somewhere: to `END`."""
MARKER_FINAL_STOP = MARKER_AREA[0] - 1, MARKER_AREA[1] + 1

_POSITION_MARKER = _WindowMarker("vehicle-distribution", (MARKER_AREA,))
_ARRIVAL_MARKER = _WindowMarker(
    "delay-distribution", ((MARKER_AREA[0] + 1, MARKER_AREA[1] - 1),), ARRIVALS, fields=(("delay", 0),)
)
_FINAL_STOP_MARKER = _WindowMarker(
    "final-stop-distribution",
    ((MARKER_AREA[0] - 1, MARKER_AREA[1]),),
    result_position=MARKER_FINAL_STOP,
    fields=(("route", MARKER_ROUTE), ("direction", 1)),
)
_FLOW_MARKER = _WindowMarker(
    "flow-direction", ((MARKER_AREA[0] + 1, MARKER_AREA[1]), (MARKER_AREA[0] + 0.997, MARKER_AREA[1]))
)

MARKERS = {
    "vehicle-distribution": LatencyMarker(
        POSITIONS, CELL_COUNTS, _POSITION_MARKER.make_rows, 1_000, _POSITION_MARKER.find_results
    ),
    "delay-distribution": LatencyMarker(
        ARRIVALS, DELAYS, _ARRIVAL_MARKER.make_rows, 1_000, _ARRIVAL_MARKER.find_results
    ),
    "final-stop-distribution": LatencyMarker(
        POSITIONS, FINAL_STOPS, _FINAL_STOP_MARKER.make_rows, 1_000, _FINAL_STOP_MARKER.find_results
    ),
    "flow-direction": LatencyMarker(
        POSITIONS, FLOWS, _FLOW_MARKER.make_rows, 1_000, _FLOW_MARKER.find_results
    ),
    "emergency-stop": LatencyMarker(
        POSITIONS, EMERGENCY_STOPS, _make_emergency_stops, 5_000, _find_emergency_stops
    ),
}
"""By job; as the jobs are by default."""
