"""Emergency stops, on scripted vehicles, on the real hour,
and on hundreds of made ones against a computation that shares nothing.
"""

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING
from millrace.ingest.connectors import recording_frames
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.runners.replay import replay, replay_all
from millrace.stream import Job
from millrace.transit import EMERGENCY_STOPS, POSITIONS
from millrace.transit.jobs import BUILT_IN, emergency_stop, emergency_stop_in_sql

HOUR = "hsl-2020-09-21.jsonl.gz"
Row = tuple[str, int, float, float]
"""Vehicle, seconds, speed, acceleration."""


def positions(rows: list[Row]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["vehicle_id", "event_time", "speed", "acceleration"], orient="row")
    frame = frame.with_columns(
        pl.col("event_time") * 1000, operator=pl.lit("1"), latitude=pl.lit(60.0), longitude=pl.lit(25.0)
    )
    return frame.with_columns(
        pl.lit(None, t).alias(c) for c, t in POSITIONS.schema.items() if c not in frame.columns
    )


def stops(rows: list[Row], **options: str) -> list[tuple[str, int, int, float, float]]:
    """Vehicle, first and last second, speed difference, hardest deceleration; of the pattern and of the row
    pattern, which are equal.
    """
    found = [
        shown(replay(job(**options), positions(rows))) for job in (emergency_stop, emergency_stop_in_sql)
    ]
    assert found[0] == found[1]
    return found[0]


def shown(panes: pl.DataFrame) -> list[tuple[str, int, int, float, float]]:
    seconds = [pl.col(name) // 1000 for name in ("window_start", "event_time")]
    return (
        panes.sort("window_start", "vehicle_id")
        .select("vehicle_id", *seconds, "speed_difference", "deceleration")
        .rows()
    )


def test_a_vehicle_that_brakes_to_a_standstill_is_found() -> None:
    rows = [("a", 1, 12.0, 0.1), ("a", 2, 8.0, -4.0), ("a", 3, 3.0, -5.0), ("a", 4, 0.0, -3.0)]
    assert stops(rows) == [("a", 1, 4, 12.0, -5.0)]


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1, 9.0, 0.1), ("a", 2, 5.0, -4.0), ("a", 3, 0.0, -5.0)],
        [("a", 1, 12.0, 0.1), ("a", 2, 8.0, -4.0), ("a", 3, 8.0, 0.0), ("a", 4, 0.0, -3.0)],
        [("a", 1, 12.0, 0.1), ("a", 2, 8.0, -4.0), ("a", 11, 0.0, -3.0)],
        [("a", 1, 12.0, 0.1), ("a", 2, 0.0, 0.0)],
    ],
    ids=["never fast", "not braking all the way", "ten seconds", "nothing between fast and standing"],
)
def test_what_is_no_emergency_stop_is_not_found(rows: list[Row]) -> None:
    assert stops(rows) == []


def test_the_first_row_at_rest_ends_it_though_it_is_braking_too() -> None:
    rows = [("a", 1, 12.0, 0.1), ("a", 2, 8.0, -4.0), ("a", 3, 0.5, -5.0), ("a", 4, 0.0, -3.0)]
    assert stops(rows) == [("a", 1, 3, 11.5, -4.0)]


def test_two_stops_of_one_vehicle_do_not_share_rows() -> None:
    once = [(12.0, 0.0), (5.0, -3.0), (0.0, -1.0)]
    rows = [("a", second, *row) for second, row in enumerate(once + once, start=1)]
    assert [(first, last) for _, first, last, _, _ in stops(rows)] == [(1, 3), (4, 6)]


def test_it_runs_by_name() -> None:
    assert BUILT_IN["emergency-stop"]().name == "emergency-stop"


@pytest.mark.recordings
@pytest.mark.parametrize("batch", [200_000, 97])
@pytest.mark.parametrize(
    ("job", "delay"),
    [(emergency_stop, "1s"), (emergency_stop, "5s"), (emergency_stop, "70s"), (emergency_stop_in_sql, "5s")],
)
def test_the_real_hour_holds_exactly_one(
    recordings: Path, job: Callable[..., Job], delay: str, batch: int
) -> None:
    found = replay_all(
        job(watermark=delay), recording_frames.read_frames(recordings / HOUR, processor="hsl"), batch=batch
    )
    [stop] = found.outputs[EMERGENCY_STOPS.name].to_dicts()
    assert stop["vehicle_id"] == "12/1315"
    assert (stop["window_start"], stop["event_time"]) == (1_600_660_197_373, 1_600_660_206_373)
    assert stop["speed_difference"] == pytest.approx(10.08)
    assert stop["deceleration"] == pytest.approx(-1.6)


def made(seed: int, vehicles: int, length: int) -> list[Row]:
    """Vehicles that speed up and brake at random; many rows are both braking and at rest,
    and seconds are left out.
    """
    chance = random.Random(seed)
    rows: list[Row] = []
    for vehicle in range(vehicles):
        second, speed = 0, 12.0
        for _ in range(length):
            second += chance.choice((1, 1, 1, 2, 4))
            change = chance.choice((-6.0, -4.0, -3.0, -0.5, 0.0, 3.0, 9.0))
            speed = max(0.0, speed + change) if speed > 0 or change > 0 else 0.0
            rows.append((f"v{vehicle}", second, speed, chance.choice((change, change, -0.1))))
    return sorted(rows, key=lambda row: row[1])


def computed(rows: list[Row]) -> list[tuple[str, int, int, float, float]]:
    """The same by plain loops: for each beginning in order, the first end; then nothing before that end."""
    found = []
    for vehicle in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == vehicle]
        free = 0
        for start, (_, begun, fast, _) in enumerate(own):
            if start < free or fast < 10:
                continue
            for end in range(start + 1, len(own)):
                _, second, speed, _ = own[end]
                if second - begun >= 10 or (end > start + 1 and own[end - 1][3] >= 0):
                    break
                if speed < 1 and end > start + 1:
                    hardest = min(row[3] for row in own[start + 1 : end])
                    found.append((vehicle, begun, second, fast - speed, hardest))
                    free = end + 1
                    break
    return sorted(found, key=lambda stop: (stop[1], stop[0]))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [200_000, 5000])
@pytest.mark.parametrize("job", [emergency_stop, emergency_stop_in_sql])
def test_hundreds_of_stops_equal_a_plain_computation(job: Callable[..., Job], batch: int) -> None:
    rows = made(1, vehicles=120, length=200)
    expected = computed(rows)
    assert len(expected) > 200
    both = sum(1 for row in rows if row[2] < 1 and row[3] < 0)
    assert both > 300
    assert shown(replay(job(), positions(rows), batch=batch)) == expected


def test_a_position_that_came_twice_counts_once() -> None:
    rows = [
        ("a", 1, 12.0, 0.1),
        ("a", 2, 8.0, -4.0),
        ("a", 2, 8.0, -4.0),
        ("a", 3, 0.0, -3.0),
        ("a", 3, 0.0, -3.0),
    ]
    assert stops(rows) == [("a", 1, 3, 12.0, -4.0)]


@pytest.mark.parametrize("job", [emergency_stop, emergency_stop_in_sql])
def test_the_stops_of_a_simulated_city_are_those_that_happened(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    minutes, begun = 8, MORNING + 60_000
    city = City(CityPlan(scale=0.4, volume="mean", hard_stops=8), start=MORNING, truth=tmp_path)
    came = pl.concat(
        [frame for minute in range(minutes) for _, frame in city.advance(MORNING + (minute + 1) * 60_000)]
    )
    city.close()
    assert came.height > came.unique(["vehicle_id", "event_time"]).height
    found = replay(job(watermark="5m"), came).select("vehicle_id", "window_start", "event_time")
    truth = pl.read_parquet(tmp_path / "hard-stops-*.parquet").select(
        "vehicle_id", at=pl.col("braked_at") + pl.col("clock_ahead")
    )
    paired = truth.join(found, on="vehicle_id", how="left").filter(
        (pl.col("at") - pl.col("window_start")).abs() <= 2500
    )
    due = truth.filter(pl.col("at").is_between(begun, MORNING + (minutes - 2) * 60_000))
    missed = due.join(paired, on=["vehicle_id", "at"], how="anti")
    invented = found.filter(pl.col("window_start") > begun).join(
        paired, on=["vehicle_id", "window_start"], how="anti"
    )
    assert due.height > 50
    assert (missed.height, invented.height) == (0, 0)
