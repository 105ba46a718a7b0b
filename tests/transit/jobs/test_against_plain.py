"""All five jobs, on the real recordings and on a simulated hour,
against computations that share nothing with the engine.
"""

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING
from millrace.ingest.connectors import recording_frames
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.runners.replay import replay, replay_all
from millrace.stream import Job
from millrace.transit import ARRIVALS, EMERGENCY_STOPS, POSITIONS
from millrace.transit.jobs import (
    delay_distribution,
    emergency_stop,
    event_count,
    final_stop_distribution,
    flow_direction,
    pass_through,
    vehicle_distribution,
)
from transit.jobs import five, plainly

pytestmark = pytest.mark.slow

HOUR, DAY = "hsl-2020-09-21.jsonl.gz", "hsl-route2510-2020-09-23.jsonl.gz"
LATE = {"as it is": 60_000, "little patience": 2_000}
Events = dict[str, pl.DataFrame]


@cache
def city() -> Events:
    """A simulated hour of a small city, with late events,
    duplicates and fast clocks, in the order of arrival.
    """
    made = City(CityPlan(scale=0.012, volume="peak", calls=True, hard_stops=10.0), start=MORNING)
    found: dict[str, list[pl.DataFrame]] = {topic.name: [] for topic in made.plan.topics}
    for minute in range(1, 61):
        for topic, frame in made.advance(MORNING + minute * 60_000):
            found[topic.name].append(frame)
    return {name: pl.concat(frames) for name, frames in found.items()}


@pytest.fixture(
    params=[
        "simulated",
        pytest.param(HOUR, marks=pytest.mark.recordings),
        pytest.param(DAY, marks=pytest.mark.recordings),
    ]
)
def events(request: pytest.FixtureRequest) -> Events:
    if request.param == "simulated":
        return city()
    return recording_frames.read_frames(
        request.getfixturevalue("recordings") / request.param, processor="hsl"
    )


def last_word(shown: pl.DataFrame) -> pl.DataFrame:
    return five.last_words("cells", shown)


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
def test_vehicle_distribution(events: Events, lateness: int) -> None:
    expected = plainly.counted(plainly.placed(events[POSITIONS.name]), size=30_000, lateness=lateness)
    assert last_word(replay(vehicle_distribution(lateness=lateness), events)).equals(expected)


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
@pytest.mark.parametrize(
    "events", ["simulated", pytest.param(HOUR, marks=pytest.mark.recordings)], indirect=True
)
def test_delay_distribution(events: Events, lateness: int) -> None:
    expected = plainly.delays(plainly.placed(events[ARRIVALS.name]), lateness=lateness)
    assert last_word(replay(delay_distribution(lateness=lateness), events, batch=700)).equals(expected)


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
def test_flow_direction(events: Events, lateness: int) -> None:
    expected = plainly.flows(plainly.placed(events[POSITIONS.name]), lateness=lateness)
    assert len(expected) > 1_000
    assert last_word(replay(flow_direction(lateness=lateness), events, batch=20_000)).equals(expected)


@pytest.mark.parametrize("lateness", LATE.values(), ids=LATE)
def test_final_stop_distribution(events: Events, lateness: int) -> None:
    heading = five.heading(plainly.placed(events[POSITIONS.name]), five.far_away)
    expected = plainly.counted(heading, size=300_000, lateness=lateness)
    assert len(expected) > 500
    assert last_word(replay(final_stop_distribution(stops=five.far_away, lateness=lateness), events)).equals(
        expected
    )


@pytest.mark.parametrize("watermark", [1_000, 5_000, 30_000])
def test_emergency_stop(events: Events, watermark: int) -> None:
    expected = plainly.stops(plainly.placed(events[POSITIONS.name]), delay=watermark)
    assert len(expected)
    found = replay(emergency_stop(watermark=watermark), events, batch=5_000)
    assert five.last_words(EMERGENCY_STOPS.name, found).equals(expected)


def test_the_jobs_for_measuring(events: Events) -> None:
    rows = events[POSITIONS.name]
    passed = replay(pass_through(), events)
    assert passed.select(rows.columns).sort(rows.columns).equals(rows.sort(rows.columns))
    counts = replay(event_count(), events, batch=1_000).sort("index").group_by("vehicle_id").last()
    assert dict(counts.select("vehicle_id", "count").rows()) == dict(rows["vehicle_id"].value_counts().rows())


@pytest.mark.parametrize("job", five.jobs(five.far_away, lateness=2_000), ids=lambda job: job.name)
def test_exactly_what_comes_too_late_is_told_with_the_reason(job: Job) -> None:
    late = replay_all(job, city()).late
    assert late["reason"].null_count() == 0
    assert (
        late.select(pl.col("_rows").fill_null(1).sum()).item()
        == five.too_late(job, city(), lateness=2_000)
        > 2
    )


@pytest.mark.recordings
@pytest.mark.parametrize("job", five.jobs(five.far_away, lateness=60_000), ids=lambda job: job.name)
def test_each_job_counts_what_came_twice_once(job: Job, recordings: Path) -> None:
    events = recording_frames.read_frames(recordings / HOUR, processor="hsl")
    twice = {
        name: pl.concat([rows, rows.head(2_000)]).sort("ingestion_time", maintain_order=True)
        for name, rows in events.items()
    }
    once, again = (
        five.last_words(job.outputs[0].topic.name, replay(job, given)) for given in (events, twice)
    )
    assert len(once)
    assert again.equals(once)


@pytest.mark.recordings
def test_early_results_change_nothing_in_the_end(recordings: Path) -> None:
    events = recording_frames.read_frames(recordings / HOUR, processor="hsl")
    expected = plainly.counted(plainly.placed(events[POSITIONS.name]), size=30_000, lateness=60_000)
    shown = replay(vehicle_distribution(early="1s"), events, batch=50)
    assert (shown["timing"] == "early").any()
    assert last_word(shown).equals(expected)
