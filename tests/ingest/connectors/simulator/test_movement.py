"""Vehicles move as vehicles can, on routes with stops in order, on land."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING, events
from millrace.ingest.connectors.simulator import legs, routes, streets
from millrace.ingest.connectors.simulator.arrivals import Links
from millrace.ingest.connectors.simulator.city import CityPlan
from millrace.transit import POSITIONS

PLAN = CityPlan(scale=0.3, volume="mean", hard_stops=5)
PAIR = pl.col("event_time").diff().over("vehicle_id") == 1000


@cache
def ten_minutes() -> pl.DataFrame:
    """Each measurement once, by vehicle and time."""
    return events(PLAN, seconds=600).unique(["vehicle_id", "event_time"]).sort("vehicle_id", "event_time")


def test_the_columns_are_those_of_the_topic() -> None:
    assert dict(ten_minutes().schema) == {
        **POSITIONS.schema,
        "event_time": pl.Int64(),
        "ingestion_time": pl.Int64(),
    }


def test_speed_changes_only_as_brakes_and_engines_allow() -> None:
    change = (
        ten_minutes().with_columns(change=pl.col("speed").diff().over("vehicle_id")).filter(PAIR)["change"]
    )
    assert change.max() <= legs.ACCELERATION[1] + 0.02  # type: ignore[operator]  # a number
    assert change.min() >= -legs.HARD_BRAKE[1] - 0.02  # type: ignore[operator]  # a number
    hard = (change < -legs.SERVICE_BRAKE[1] - 0.02).mean()
    assert 0 < hard < 0.01  # type: ignore[operator]  # a number


def test_speeds_are_those_of_a_city() -> None:
    moving = ten_minutes()["speed"]
    assert moving.min() == 0
    assert moving.max() < 30  # type: ignore[operator]  # a number
    assert (moving == 0).mean() == pytest.approx(0.38, abs=0.1)
    assert moving.quantile(0.75) == pytest.approx(9.5, abs=1.5)


def test_a_vehicle_is_where_its_speed_brought_it() -> None:
    north = pl.col("latitude").diff().over("vehicle_id") * 111_300
    east = pl.col("longitude").diff().over("vehicle_id") * 111_300 * np.cos(np.radians(60.2))
    moved = (
        ten_minutes()
        .with_columns(moved=(north**2 + east**2).sqrt(), mean=(pl.col("speed") + pl.col("speed").shift()) / 2)
        .filter(PAIR)
    )
    assert (moved["moved"] - moved["mean"]).abs().quantile(0.99) < 1.5  # type: ignore[operator]  # a number
    assert (moved["moved"] - moved["mean"]).abs().max() < 5  # type: ignore[operator]  # a number


def test_the_odometer_grows_until_the_trip_ends() -> None:
    grown = (
        ten_minutes()
        .with_columns(grown=pl.col("odometer").diff().over("vehicle_id", "trip_start", "direction"))["grown"]
        .drop_nulls()
    )
    assert grown.min() >= 0  # type: ignore[operator]  # a number


def test_doors_are_open_only_at_a_stop() -> None:
    at_stop = ten_minutes().filter("doors_open")
    assert len(at_stop) > 0.05 * len(ten_minutes())
    assert at_stop["speed"].max() == 0
    assert at_stop["stop"].null_count() == 0
    assert ten_minutes().filter(pl.col("speed") > 0)["stop"].is_null().all()


def test_stops_come_in_the_order_of_the_route() -> None:
    seen = (
        ten_minutes()
        .filter(pl.col("stop").is_not_null())
        .unique(["vehicle_id", "trip_start", "direction", "stop"], keep="first", maintain_order=True)
    )
    following = seen.with_columns(
        came=pl.col("stop").shift(-1).over("vehicle_id", "trip_start", "direction")
    ).filter(pl.col("came").is_not_null())
    assert len(following) > 500
    assert (following["next_stop"] == following["came"]).all()


def test_delays_build_up_along_a_route() -> None:
    driving = ten_minutes().filter(pl.col("odometer") > 0)
    early, late = (
        driving.filter(pl.col("odometer").is_between(a, b))["delay"]
        for a, b in ((0, 3_000), (12_000, 40_000))
    )
    assert early.mean() + 30 < late.mean()  # type: ignore[operator]  # numbers
    assert early.std() < late.std()  # type: ignore[operator]  # numbers


def test_vehicle_numbers_repeat_between_operators_but_identities_do_not() -> None:
    vehicles = ten_minutes().select("vehicle_id", "operator").unique()
    assert len(vehicles) == PLAN.vehicles
    numbers = vehicles["vehicle_id"].str.split("/").list.last()
    assert numbers.n_unique() < len(vehicles)


def test_a_few_clocks_are_fast() -> None:
    fast = Links(1, 20_000).clock_ahead
    assert (fast > 0).mean() == pytest.approx(0.006, abs=0.002)
    assert fast[fast > 0].min() >= 1000
    assert fast.max() <= 10_000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_routes_stay_on_land_and_reach_the_centre(seed: int) -> None:
    city = routes.build(seed)
    assert len(city) > 90
    east, north = streets.to_metres(city.latitude, city.longitude)
    assert streets.on_land(east, north).mean() > 0.99
    central = np.hypot(east, north) < 3_000
    assert central.mean() > 0.1
    assert city.latitude.min() > 60.15
    assert city.latitude.max() < 60.32


def test_the_morning_is_a_morning() -> None:
    assert set(ten_minutes()["trip_day"]) == {"2026-03-02"}
    assert ten_minutes()["trip_start"].min() > "06:00"  # type: ignore[operator]  # text
    assert ten_minutes()["trip_start"].max() <= "08:30"  # type: ignore[operator]  # text
    assert ten_minutes()["event_time"].min() >= MORNING  # type: ignore[operator]  # a number
