"""What happens at stops: each vehicle arrives, opens and closes its doors, and leaves,
in this order and where the stop is.
"""

import json
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING, calls
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.transit import ARRIVALS, DEPARTURES, DOOR_EVENTS, POSITIONS

PLAN = CityPlan(scale=0.3, volume="mean", calls=True)
KEY = "vehicle_id", "event_time"


@cache
def quarter() -> dict[str, pl.DataFrame]:
    """Each event once, of fifteen minutes."""
    return {name: frame.unique(KEY).sort(KEY) for name, frame in calls(PLAN, seconds=900).items()}


def test_the_columns_are_those_of_the_topics() -> None:
    for one in (ARRIVALS, DEPARTURES, DOOR_EVENTS):
        assert dict(quarter()[one.name].schema) == {
            **one.schema,
            "event_time": pl.Int64(),
            "ingestion_time": pl.Int64(),
        }


def test_a_vehicle_leaves_each_stop_at_which_it_arrives() -> None:
    kinds = [
        quarter()[topic.name].select(*KEY, "stop", "route", "direction", kind=pl.lit(topic.name))
        for topic in (ARRIVALS, DEPARTURES)
    ]
    both = (
        pl.concat(kinds)
        .sort(*KEY)
        .with_columns(pl.col("kind", "stop").shift().over("vehicle_id").name.prefix("before_"))
    )
    left = both.filter((pl.col("kind") == DEPARTURES.name) & (pl.col("before_kind") == ARRIVALS.name))
    turned = left.filter(pl.col("stop") != pl.col("before_stop"))
    assert len(left) > 1_000
    assert len(turned) < 0.1 * len(left), (
        "only at the end of a route is the stop another one: that of the way back"
    )
    assert both.filter(pl.col("kind") == pl.col("before_kind")).height < 0.02 * len(both)


def test_doors_open_before_they_close() -> None:
    doors = (
        quarter()[DOOR_EVENTS.name]
        .with_columns(before=pl.col("open").shift().over("vehicle_id"))
        .drop_nulls("before")
    )
    assert len(doors) > 1_000
    assert (doors["open"] != doors["before"]).mean() > 0.98  # type: ignore[operator]  # a number; the rest is still on its way


def test_an_arrival_is_where_and_when_the_position_says_so() -> None:
    city = City(PLAN, start=MORNING)
    frames = {topic.name: frame for topic, frame in city.advance(MORNING + 300_000)}
    standing = frames[POSITIONS.name].filter(pl.col("stop").is_not_null()).sort("event_time")
    arrivals = frames[ARRIVALS.name].filter(pl.col("next_stop").is_not_null()).sort("event_time")
    near = arrivals.join_asof(
        standing,
        on="event_time",
        by=["vehicle_id", "stop"],
        strategy="forward",
        tolerance=1_001,
        check_sortedness=False,
    )
    found = near.drop_nulls("speed")
    assert len(found) > 0.9 * len(arrivals)
    assert ((found["latitude"] - found["latitude_right"]).abs() < 1e-5).all()
    assert found["speed"].max() == 0


def test_delays_are_those_of_a_city() -> None:
    delay = quarter()[ARRIVALS.name]["delay"]
    assert delay.quantile(0.05) == pytest.approx(-75, abs=50)
    assert delay.quantile(0.5) == pytest.approx(50, abs=30)
    assert delay.quantile(0.95) == pytest.approx(350, abs=100)


@pytest.mark.recordings
def test_delays_are_about_those_of_real_arrivals(recordings: Path) -> None:
    real = json.loads((recordings.parent / "calibration" / "calibration.json").read_text())[
        "arrival_delay_2022_s"
    ]["quantiles"]
    delay = quarter()[ARRIVALS.name]["delay"]
    for share in ("0.05", "0.1", "0.25", "0.5", "0.75", "0.9", "0.95"):
        assert delay.quantile(float(share)) == pytest.approx(real[share], rel=0.3, abs=40), share


def test_an_arrival_has_no_next_stop_only_at_the_end_of_a_route() -> None:
    last = quarter()[ARRIVALS.name].filter(pl.col("next_stop").is_null())
    assert 0 < len(last) < 0.1 * len(quarter()[ARRIVALS.name])
    assert last.group_by("route", "direction").agg(pl.col("stop").n_unique())["stop"].max() == 1
