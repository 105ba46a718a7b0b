"""Messages are as late, as doubled and as many as real ones."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING, events
from millrace.ingest.connectors.simulator import daytime
from millrace.ingest.connectors.simulator.arrivals import Links
from millrace.ingest.connectors.simulator.city import City, CityPlan

MEAN = CityPlan(volume="mean")


@cache
def half_an_hour() -> pl.DataFrame:
    """Begun early enough for the longest outage to be over."""
    made = events(MEAN, start=MORNING - 160_000, seconds=1_960, stretch=60)
    return made.filter(pl.col("ingestion_time") >= MORNING)


def lags() -> pl.Series:
    """Of vehicles whose clocks are right."""
    return (
        half_an_hour()
        .select(lag=pl.col("ingestion_time") - pl.col("event_time"))
        .filter(pl.col("lag") > 0)["lag"]
    )


def test_most_events_come_at_once_and_some_after_an_outage() -> None:
    assert lags().quantile(0.5) == pytest.approx(69, abs=5)
    assert (lags() > 1_000).mean() == pytest.approx(0.045, abs=0.005)
    assert (lags() > 60_000).mean() == pytest.approx(0.002, abs=0.0012)
    assert lags().max() < 160_000  # type: ignore[operator]  # a number


def test_the_mean_volume_is_the_mean_volume() -> None:
    assert len(half_an_hour()) / 1_800 == pytest.approx(676, rel=0.005)


def test_two_in_a_hundred_messages_repeat_another() -> None:
    repeated = 1 - half_an_hour().unique().height / len(half_an_hour())
    assert repeated == pytest.approx(0.0199, abs=0.001)


def test_a_backlog_is_sent_in_order() -> None:
    """Only some tens of milliseconds can put two messages of a vehicle in the wrong order."""
    by_vehicle = (
        half_an_hour()
        .unique(maintain_order=True)
        .with_columns(step=pl.col("event_time").diff().over("vehicle_id"))
    )
    assert (by_vehicle["step"] < 0).mean() < 0.004  # type: ignore[operator]  # a number


def test_arrivals_do_not_depend_on_which_others_are_asked_for() -> None:
    links, vehicle, time = (
        Links(3, 50),
        np.repeat(np.arange(50), 100),
        MORNING + np.tile(np.arange(100) * 1000, 50),
    )
    together, _ = links.arrivals(vehicle, time)
    alone = [
        int(links.arrivals(vehicle[one : one + 1], time[one : one + 1])[0][0]) for one in range(0, 5_000, 97)
    ]
    assert alone == together[::97].tolist()


def test_local_time_follows_the_clock_changes() -> None:
    times = [
        (f"2026-{day}T00:30:00", hours)
        for day, hours in (("01-15", 2), ("03-29", 2), ("03-30", 3), ("07-01", 3), ("10-25", 3), ("10-26", 2))
    ]
    utc = pl.Series([time for time, _ in times]).str.to_datetime(time_unit="ms").cast(pl.Int64).to_numpy()
    assert ((daytime.local_time(utc) - utc) // 3_600_000).tolist() == [hours for _, hours in times]


def test_the_day_has_two_peaks_and_a_night() -> None:
    minutes = daytime.events_per_second(MORNING - 8 * 3_600_000 + np.arange(1440) * 60_000)
    assert minutes.mean() == pytest.approx(676, rel=0.005)
    assert (int(minutes[:720].argmax()), round(minutes[:720].max())) == (8 * 60 + 4, 1081)
    assert (int(minutes.argmax()), round(minutes.max())) == (16 * 60 + 7, 1122)
    assert (int(minutes.argmin()), minutes.min()) == (4 * 60, pytest.approx(6.65, abs=0.1))


@pytest.mark.parametrize(("hour", "rate"), [(4, 6.7), (6, 664), (12, 842), (16, 1115)])
def test_the_volume_follows_the_day(hour: int, rate: float) -> None:
    start = MORNING + (hour - 8) * 3_600_000
    came = events(CityPlan(), start=start - 160_000, seconds=170).filter(pl.col("ingestion_time") >= start)
    assert len(came) / 10 == pytest.approx(rate, rel=0.04, abs=12)


def test_the_scale_multiplies_the_fleet() -> None:
    assert CityPlan(scale=256, volume="mean").vehicles == pytest.approx(256 * MEAN.vehicles, rel=0.01)
    assert CityPlan(volume="peak").vehicles == pytest.approx(1122 * 0.98, rel=0.01)


@pytest.fixture(scope="module")
def calibration(recordings: Path) -> dict[str, dict[str, float]]:
    """Quantiles of 64,251 real arrivals."""
    figures: dict[str, dict[str, float]] = json.loads(
        (recordings.parent / "calibration" / "calibration.json").read_text()
    )["ptinsight_thesis_lag"]
    return figures


@pytest.mark.recordings
def test_lags_have_the_quantiles_of_real_ones(calibration: dict[str, dict[str, float]]) -> None:
    real = {float(share): lag for share, lag in calibration["corrected_lag_ms_quantiles"].items()}
    for share in (
        0.05,
        0.1,
        0.25,
        0.5,
        0.75,
        0.8,
        0.85,
        0.9,
        0.925,
        0.95,
        0.96,
        0.97,
        0.98,
        0.985,
        0.99,
        0.995,
    ):
        assert lags().quantile(share) == pytest.approx(real[share], rel=0.15), share
    assert lags().quantile(0.999) == pytest.approx(real[0.999], rel=0.35)


@pytest.mark.recordings
def test_lateness_is_that_of_real_events(calibration: dict[str, dict[str, float]]) -> None:
    """Behind the clock of the stream: the running maximum of event time,
    which no fast clock may push beyond the present.
    """
    clock = pl.min_horizontal("event_time", "ingestion_time").cum_max()
    late = half_an_hour().select(late=clock - pl.col("event_time"))["late"]
    for limit in (100, 250, 500, 1000, 2000, 3000, 5000, 10_000, 20_000, 30_000, 60_000):
        assert (late > limit).mean() == pytest.approx(
            calibration["fraction_later_than_ms"][str(limit)], rel=0.2
        ), limit


@pytest.mark.recordings
def test_the_daily_curve_is_that_of_a_real_day(recordings: Path) -> None:
    real = (
        pl.read_csv(recordings.parent / "calibration" / "volume_by_minute_of_day.csv")
        .sort("minute_of_day")["eps"]
        .to_numpy()
    )
    made = daytime.events_per_second(MORNING - 8 * 3_600_000 + np.arange(1440) * 60_000)
    assert np.quantile(np.abs(made - real) / (real + 30), 0.9) < 0.05
    assert np.quantile(made, [0.05, 0.25, 0.5, 0.75, 0.95]) == pytest.approx(
        np.quantile(real, [0.05, 0.25, 0.5, 0.75, 0.95]), rel=0.03, abs=5
    )


@pytest.mark.long
@pytest.mark.recordings
def test_a_whole_day_brings_as_much_as_a_real_one(recordings: Path) -> None:
    """By the minute of arrival."""
    real = (
        pl.read_csv(recordings.parent / "calibration" / "volume_by_minute_of_day.csv")
        .sort("minute_of_day")["eps"]
        .to_numpy()
    )
    plan, midnight = CityPlan(scale=0.25), MORNING - 8 * 3_600_000
    city = City(plan, start=midnight - 160_000)
    city.advance(midnight)
    rates = np.array(
        [len(city.advance(midnight + minute * 60_000)[0][1]) / 60 / plan.scale for minute in range(1, 1441)]
    )
    assert rates.mean() == pytest.approx(676, rel=0.01)
    assert rates.min() < 12
    assert int(rates.argmin()) in (239, 240, 241)
    assert rates[:720].max() == pytest.approx(1081, rel=0.02)
    assert rates.max() == pytest.approx(1122, rel=0.02)
    shares = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]
    assert np.quantile(rates, shares) == pytest.approx(np.quantile(real, shares), rel=0.04, abs=8)
