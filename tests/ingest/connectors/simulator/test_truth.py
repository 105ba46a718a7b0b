"""The truth of a simulated city: what its events can be held to."""

from pathlib import Path

import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING
from millrace.errors import InputError
from millrace.ingest.connectors.simulator import legs
from millrace.ingest.connectors.simulator.city import City, CityPlan

PLAN = CityPlan(scale=0.5, volume="mean", hard_stops=4)
MINUTES = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truth")


@pytest.fixture(scope="module")
def events(folder: Path) -> pl.DataFrame:
    """Each once, by vehicle and time; the truth is beside them."""
    city = City(PLAN, start=MORNING, truth=folder)
    came = pl.concat(
        [frame for minute in range(MINUTES + 3) for _, frame in city.advance(MORNING + (minute + 1) * 60_000)]
    )
    city.close()
    return came.unique(["vehicle_id", "event_time"]).sort("vehicle_id", "event_time")


def read(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"{name}-*.parquet")


def emergency_stops(events: pl.DataFrame) -> set[tuple[str, int]]:
    """Cruising at 10 m/s or more, then braking, then below 1 m/s, within 10 s, row after row:
    vehicle and time of cruising.
    """
    found: set[tuple[str, int]] = set()
    rows = events.select("vehicle_id", "event_time", "speed", "acceleration").rows()
    for place, (vehicle, time, speed, _) in enumerate(rows):
        if speed < 10:
            continue
        for braked, (other, then, slower, change) in enumerate(rows[place + 1 : place + 12]):
            if other != vehicle or then >= time + 10_000:
                break
            if slower < 1 and braked:
                found.add((vehicle, time))
            if slower < 1 or change >= 0:
                break
    return found


def test_every_hard_stop_is_an_emergency_stop_and_nothing_else_is(events: pl.DataFrame, folder: Path) -> None:
    first, last = MORNING + 20_000, MORNING + MINUTES * 60_000
    truth = read(folder, "hard-stops").select("vehicle_id", at=pl.col("braked_at") + pl.col("clock_ahead"))
    happened, found = set(truth.rows()), emergency_stops(events)
    assert len(happened) > 200
    missed = [one for one in happened if first < one[1] < last and not _near(one, found)]
    invented = [one for one in found if first < one[1] < last and not _near(one, happened)]
    assert (missed, invented) == ([], [])


def _near(one: tuple[str, int], others: set[tuple[str, int]]) -> bool:
    return any(vehicle == one[0] and abs(time - one[1]) < 7_000 for vehicle, time in others)


def test_hard_stops_happen_at_the_rate_that_was_asked_for(events: pl.DataFrame, folder: Path) -> None:
    hours = (MINUTES + 3) / 60 * PLAN.vehicles
    assert len(read(folder, "hard-stops")) / hours == pytest.approx(PLAN.hard_stops, rel=0.25)


def test_hard_stops_are_hard(events: pl.DataFrame, folder: Path) -> None:
    truth = read(folder, "hard-stops")
    assert truth["deceleration"].is_between(*legs.HARD_BRAKE).all()
    assert truth["speed"].min() >= legs.MIN_HARD_BRAKE_SPEED  # type: ignore[operator]  # a number
    lasted = (truth["stopped_at"] - truth["braked_at"]) / 1000
    assert ((truth["speed"] - truth["deceleration"] * lasted).abs() < 0.02).all()


def test_every_event_is_where_the_vehicle_was(events: pl.DataFrame, folder: Path) -> None:
    truth = read(folder, "positions").with_columns(event_time=pl.col("time") + pl.col("clock_ahead"))
    assert len(truth.unique(["vehicle_id", "time"])) == len(truth) == PLAN.vehicles * (MINUTES + 3) * 60
    both = events.join(truth, on=["vehicle_id", "event_time"], suffix="_true")
    assert len(both) == len(events)
    assert ((both["latitude"] - both["latitude_true"]).abs() < 1e-6).all()
    assert ((both["longitude"] - both["longitude_true"]).abs() < 1e-6).all()


def test_stops_and_routes_are_told_as_events_name_them(events: pl.DataFrame, folder: Path) -> None:
    stops, routes = pl.read_parquet(folder / "stops.parquet"), pl.read_parquet(folder / "routes.parquet")
    assert set(events["stop"].drop_nulls()) <= set(stops["stop"])
    ways = routes.group_by("route", "direction", maintain_order=True).agg("stop", "sequence")
    assert (
        events.select("route", "direction")
        .unique()
        .join(ways, on=["route", "direction"], how="anti")
        .is_empty()
    )
    assert all(sequence == list(range(len(sequence))) for sequence in ways["sequence"].to_list())
    standing = events.filter(pl.col("stop").is_not_null()).join(
        routes, on=["route", "direction", "stop"], suffix="_stop"
    )
    assert (((standing["latitude"] - standing["latitude_stop"]).abs() * 111_300) < 2).all()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be a folder"):
        City(CityPlan(scale=0.01), start=MORNING, truth=tmp_path / "file" / "truth")
