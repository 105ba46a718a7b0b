"""The five jobs together, and what each of them must say of given events in the end:
computed plainly, each event once.
"""

import polars as pl

from millrace import panes
from millrace.stream import Job
from millrace.transit import ARRIVALS, CELL_COUNTS, DELAYS, EMERGENCY_STOPS, FINAL_STOPS, FLOWS, POSITIONS
from millrace.transit.final_stops import FinalStop, FinalStops
from millrace.transit.jobs import (
    delay_distribution,
    emergency_stop,
    final_stop_distribution,
    flow_direction,
    vehicle_distribution,
)
from transit.jobs import plainly

RESULTS = (CELL_COUNTS, DELAYS, FINAL_STOPS, FLOWS, EMERGENCY_STOPS)
SIZE, SECOND = 300_000, 1_000


def far_away(route: str, direction: int) -> FinalStop | None:
    """Every route but one ends somewhere, a few of them in the same cell."""
    return (
        None if route == "1003" else FinalStop(route, 60.1 + int(route[:4]) % 7 / 100, 24.8 + direction / 50)
    )


def jobs(stops: str | FinalStops, *, lateness: int) -> list[Job]:
    """As they are by default, but that nothing is refused which comes within `patience` milliseconds."""
    windowed = [
        make(lateness=lateness) for make in (vehicle_distribution, delay_distribution, flow_direction)
    ]
    return [
        *windowed,
        final_stop_distribution(stops=stops, lateness=lateness),
        emergency_stop(watermark=lateness),
    ]


def expected(events: dict[str, pl.DataFrame], ends: FinalStops, *, lateness: int) -> dict[str, pl.DataFrame]:
    """By topic of results."""
    rows = plainly.placed(events[POSITIONS.name])
    return {
        CELL_COUNTS.name: plainly.counted(rows, size=30_000, lateness=lateness),
        DELAYS.name: plainly.delays(plainly.placed(events[ARRIVALS.name]), lateness=lateness),
        FINAL_STOPS.name: plainly.counted(heading(rows, ends), size=SIZE, lateness=lateness),
        FLOWS.name: plainly.flows(rows, lateness=lateness),
        EMERGENCY_STOPS.name: plainly.stops(rows, delay=lateness),
    }


def heading(rows: pl.DataFrame, ends: FinalStops) -> pl.DataFrame:
    """Rows with the cell to which they are on the way, where that is known."""
    ways = rows.select("route", "direction").drop_nulls().unique().rows()
    cells = [
        (*direction, plainly.cell(end.stop_latitude, end.stop_longitude))
        for direction in ways
        if (end := ends(*direction)) is not None
    ]
    known = pl.DataFrame(
        cells, schema={"route": pl.String, "direction": pl.Int32, "geocell": pl.Int64}, orient="row"
    )
    return rows.drop("geocell").join(known, on=["route", "direction"], how="inner", maintain_order="left")


def too_late(job: Job, events: dict[str, pl.DataFrame], *, lateness: int) -> int:
    """How many rows came too late for a pattern or a row frame, or for the first of their windows;
    `far_away` is where routes end.
    """
    rows = plainly.placed(events[ARRIVALS.name if job.name == "delay-distribution" else POSITIONS.name])
    time = pl.col("event_time")
    if job.name == "flow-direction":
        return rows.filter(time < pl.col("clock") - SECOND - lateness).height
    if job.name == "emergency-stop":
        watermark = pl.col("clock") - lateness
        known_copy = ~pl.struct("vehicle_id", "event_time").is_first_distinct() & (time + SECOND > watermark)
        return rows.filter((time < watermark) & ~known_copy).height
    first = pl.col("event_time") // plainly.EVERY * plainly.EVERY + plainly.EVERY
    known = heading(rows, far_away) if job.name == "final-stop-distribution" else rows
    return known.filter(pl.col("clock") - SECOND >= first + lateness).height


def last_words(topic: str, shown: pl.DataFrame) -> pl.DataFrame:
    """What stands in the end, in the order of `expected`."""
    if topic == EMERGENCY_STOPS.name:
        return shown.select(*plainly.STOP).sort("event_time", "vehicle_id")
    newest = panes.latest_panes(shown.drop("ingestion_time", "_off", strict=False), ["geocell"])
    return newest.select(sorted(newest.columns)).sort("window_end", "geocell")
