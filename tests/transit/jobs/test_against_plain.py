"""All five jobs, on the real recordings and on a simulated hour, against computations that share nothing with the engine."""

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from ingest.simulator.cities import MORNING
from millrace import panes
from millrace.ingest import bounded
from millrace.ingest.simulator.city import City, Plan
from millrace.runners.replay import replay, replay_all
from millrace.stream import Job
from millrace.transit import ARRIVALS, POSITIONS
from millrace.transit.final_stops import FinalStop
from millrace.transit.jobs import (
    delay_distribution,
    emergency_stop,
    event_count,
    final_stop_distribution,
    flow_direction,
    pass_through,
    vehicle_distribution,
)
from transit.jobs import plainly

pytestmark = pytest.mark.slow

HOUR, DAY = "hsl-2020-09-21.jsonl.gz", "hsl-route2510-2020-09-23.jsonl.gz"
LATE = {"as it is": 60_000, "little patience": 2_000}
Events = dict[str, pl.DataFrame]


@cache
def city() -> Events:
    """A simulated hour of a small city, with late events, duplicates and fast clocks, in the order of arrival."""
    made = City(Plan(scale=0.012, volume="peak", calls=True, hard_stops=10.0), start=MORNING)
    found: dict[str, list[pl.DataFrame]] = {topic.name: [] for topic in made.plan.topics}
    for minute in range(1, 61):
        for topic, frame in made.advance(MORNING + minute * 60_000):
            found[topic.name].append(frame)
    return {name: pl.concat(frames) for name, frames in found.items()}


@pytest.fixture(params=["simulated", pytest.param(HOUR, marks=pytest.mark.recordings), pytest.param(DAY, marks=pytest.mark.recordings)])
def events(request: pytest.FixtureRequest) -> Events:
    if request.param == "simulated":
        return city()
    return bounded.recorded(request.getfixturevalue("recordings") / request.param, processor="hsl")


def last_word(shown: pl.DataFrame) -> pl.DataFrame:
    """What stands in the end, for each cell and window."""
    newest = panes.newest(shown, ["geocell"])
    return newest.select(sorted(newest.columns)).sort("window_end", "geocell")


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
def test_vehicle_distribution(events: Events, lateness: int) -> None:
    expected = plainly.counted(plainly.placed(events[POSITIONS.name]), size=30_000, lateness=lateness)
    assert last_word(replay(vehicle_distribution(lateness=lateness), events)).equals(expected)


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
@pytest.mark.parametrize("events", ["simulated", pytest.param(HOUR, marks=pytest.mark.recordings)], indirect=True)
def test_delay_distribution(events: Events, lateness: int) -> None:
    expected = plainly.delays(plainly.placed(events[ARRIVALS.name]), lateness=lateness)
    assert last_word(replay(delay_distribution(lateness=lateness), events, batch=700)).equals(expected)


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
def test_flow_direction(events: Events, lateness: int) -> None:
    expected = plainly.flows(plainly.placed(events[POSITIONS.name]), lateness=lateness)
    assert len(expected) > 1_000
    assert last_word(replay(flow_direction(lateness=lateness), events, batch=20_000)).equals(expected)


def far_away(route: str, direction: int) -> FinalStop | None:
    """Every route but one ends somewhere, a few of them in the same cell."""
    return None if route == "1003" else FinalStop(route, 60.1 + int(route[:4]) % 7 / 100, 24.8 + direction / 50)


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
def test_final_stop_distribution(events: Events, lateness: int) -> None:
    rows = events[POSITIONS.name].drop_nulls(["route", "direction"])
    ways = rows.select("route", "direction").unique().rows()
    ends = {way: far_away(*way) for way in ways}
    cells = {way: None if end is None else plainly.cell(end.stop_latitude, end.stop_longitude) for way, end in ends.items()}
    clocked = plainly.placed(events[POSITIONS.name]).drop("geocell")
    known = pl.DataFrame([(*way, found) for way, found in cells.items()], schema=["route", "direction", "geocell"], orient="row")
    known = known.with_columns(pl.col("direction").cast(pl.Int32), pl.col("geocell").cast(pl.Int64))
    heading = clocked.join(known, on=["route", "direction"], how="left", maintain_order="left").drop_nulls("geocell")
    expected = plainly.counted(heading, size=300_000, lateness=lateness)
    assert len(expected) > 500
    assert last_word(replay(final_stop_distribution(stops=far_away, lateness=lateness), events)).equals(expected)


@pytest.mark.parametrize("watermark", [1_000, 5_000, 30_000])
def test_emergency_stop(events: Events, watermark: int) -> None:
    expected = plainly.stops(plainly.placed(events[POSITIONS.name]), delay=watermark)
    assert expected
    found = replay(emergency_stop(watermark=watermark), events, batch=5_000).select("vehicle_id", "window_start", "event_time")
    assert sorted(found.rows()) == expected


def test_the_jobs_for_measuring(events: Events) -> None:
    rows = events[POSITIONS.name]
    passed = replay(pass_through(), events)
    assert passed.select(rows.columns).sort(rows.columns).equals(rows.sort(rows.columns))
    counts = replay(event_count(), events, batch=1_000).sort("index").group_by("vehicle_id").last()
    assert dict(counts.select("vehicle_id", "count").rows()) == dict(rows["vehicle_id"].value_counts().rows())


def test_there_are_late_rows_in_the_simulated_hour_and_nothing_is_lost_silently() -> None:
    late = replay_all(vehicle_distribution(lateness="2s"), city()).late
    assert len(late) > 100
    assert late["reason"].null_count() == 0


@pytest.mark.recordings
@pytest.mark.parametrize(
    "job", [vehicle_distribution(), delay_distribution(), flow_direction(), emergency_stop()], ids=lambda job: job.name
)
def test_each_job_counts_what_came_twice_once(job: Job, recordings: Path) -> None:
    events = bounded.recorded(recordings / HOUR, processor="hsl")
    twice = {name: pl.concat([rows, rows.head(2_000)]).sort("ingestion_time", maintain_order=True) for name, rows in events.items()}
    key = ["vehicle_id"] if job.name == "emergency-stop" else ["geocell"]
    once, again = (panes.newest(replay(job, given), key) for given in (events, twice))
    assert len(once)
    assert again.sort(again.columns).equals(once.sort(once.columns))


@pytest.mark.recordings
def test_early_results_change_nothing_in_the_end(recordings: Path) -> None:
    events = bounded.recorded(recordings / HOUR, processor="hsl")
    expected = plainly.counted(plainly.placed(events[POSITIONS.name]), size=30_000, lateness=60_000)
    shown = replay(vehicle_distribution(early="1s"), events, batch=50)
    assert (shown["timing"] == "early").any()
    assert last_word(shown).equals(expected)
