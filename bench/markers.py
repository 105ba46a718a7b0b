"""Latency markers: simulated vehicles, far out at sea, whose results show how long results take.

They report to the topics of positions and arrivals and go through the same jobs as all other vehicles, so a
measurement covers the path of every event. A measurement on a log in use (`millrace bench latency --log URL`)
therefore adds results of markers to its topics. To watch the map of such a log without them, serve the views
of this module, which exclude exactly these results:

    millrace serve --view bench/markers.py:VIEWS
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import polars as pl
from h3.api.basic_int import latlng_to_cell

from millrace.geo import DEFAULT_RESOLUTION
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
from millrace.transit.views import VIEWS as TRANSIT_VIEWS
from millrace.views import View

GeoPosition: TypeAlias = tuple[float, float]
"""Latitude and longitude."""

MARKER_PREFIX = "marker/"
"""The ids of markers begin with this."""
MARKER_AREA = -47.0, -123.0
"""Latitude and longitude, in the South Pacific: no land within 2,000 km."""


@dataclass(frozen=True)
class LatencyMarker:
    """The events that one job is sent, and the results that it makes of them."""

    input_topic: Topic
    output_topic: Topic
    make_rows: Callable[[int, int], pl.DataFrame]
    """Makes the events between two times.
    Events of one result are neighbours in time, and the result waits for the last of them.
    """
    delay: int
    """The delay of the job's watermark, in milliseconds."""
    find_results: Callable[[pl.DataFrame], pl.DataFrame]
    """Finds the markers among decoded results: `event`, the time of the last event, and `complete`, the
    watermark at which it is due.
    """


@dataclass(frozen=True)
class _WindowMarker:
    """One vehicle in the last milliseconds of each window, at one position after the other.
    The cell of the first one has a result.
    """

    job: str
    positions: tuple[GeoPosition, ...]
    input_topic: Topic = POSITIONS
    result_position: GeoPosition | None = None
    """The position of the result, where it is not the first of `positions`."""
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
    """The cell of a position. It is computed without polars, whose threads would be missing in processes that
    are forked after this import.
    """
    return int(latlng_to_cell(*position, DEFAULT_RESOLUTION))


def _make_emergency_stops(start: int, end: int) -> pl.DataFrame:
    """One vehicle every 250 ms, which brakes from 12 m/s to a standstill within two seconds."""
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
    """The rows with all columns of the topic. They are ingested as soon as they happen."""
    rows = rows.with_columns(operator=pl.lit(MARKER_PREFIX.rstrip("/")), ingestion_time=pl.col("event_time"))
    columns: dict[str, pl.DataType] = {**topic.schema, "event_time": pl.Int64(), "ingestion_time": pl.Int64()}
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in columns.items()
    )


_WINDOW_STEP, _STOP_INTERVAL = 5_000, 250
MARKER_ROUTE = "marker"
"""The route, in direction 1, of the vehicle whose final stop is `MARKER_FINAL_STOP`."""
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
"""The marker of each job, as the jobs are by default."""

_MARKER_POSITIONS = (
    *_POSITION_MARKER.positions,
    *_ARRIVAL_MARKER.positions,
    *_FINAL_STOP_MARKER.positions,
    *_FLOW_MARKER.positions,
    MARKER_FINAL_STOP,
)


def _without_markers(view: View) -> View:
    """The view without results of markers: by the vehicle's id for points,
    by the cells of their positions otherwise.
    """
    if view.kind == "points":
        return replace(view, exclude=pl.col(view.key).str.starts_with(MARKER_PREFIX))
    return replace(view, exclude=pl.col(view.key).is_in([_cell_of(at) for at in _MARKER_POSITIONS]))


VIEWS = tuple(map(_without_markers, TRANSIT_VIEWS))
"""The views of transit without results of markers."""
