"""Synthetic vehicle positions: each vehicle reports every second, most reports arrive within a second,
some up to a minute late.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from millrace.log import Log
from millrace.log.codecs.codec import encode
from millrace.transit.topics import POSITIONS

START = 1_700_000_000_000
"""The time of the first report. Any value will do, as long as it never changes."""

_CENTRE = 60.17, 24.94
_METRE = 9e-6, 1.8e-5
"""Degrees of latitude and longitude per metre, approximately."""


def make_positions(seconds: int, *, vehicles: int = 2_000, seed: int = 1, start: int = START) -> pl.DataFrame:
    """One report per vehicle and second, in the order of arrival. Equal arguments give equal events."""
    rng = np.random.default_rng(seed)
    speed = _simulate_speeds(rng, seconds, vehicles)
    heading = rng.uniform(0, 2 * np.pi, vehicles) + np.cumsum(rng.normal(0, 0.1, (seconds, vehicles)), axis=0)
    latitude = (
        _CENTRE[0] + rng.normal(0, 0.05, vehicles) + np.cumsum(np.cos(heading) * speed * _METRE[0], axis=0)
    )
    longitude = (
        _CENTRE[1] + rng.normal(0, 0.1, vehicles) + np.cumsum(np.sin(heading) * speed * _METRE[1], axis=0)
    )
    time = start + np.arange(seconds)[:, None] * 1000 + rng.integers(0, 900, (seconds, vehicles))
    arrival = time + _simulate_lags(rng, (seconds, vehicles))
    names = np.array([f"{10 + number % 40}/{number:05d}" for number in range(vehicles)])
    frame = pl.DataFrame(
        {
            "vehicle_id": np.broadcast_to(names, (seconds, vehicles)).ravel(),
            "latitude": latitude.ravel(),
            "longitude": longitude.ravel(),
            "heading": np.degrees(heading).ravel() % 360,
            "speed": speed.ravel(),
            "acceleration": np.diff(speed, axis=0, prepend=speed[:1]).ravel(),
            "event_time": time.ravel(),
            "ingestion_time": arrival.ravel(),
        }
    )
    with_route = frame.with_columns(
        operator=pl.col("vehicle_id").str.head(2), route=pl.lit("2550"), direction=pl.lit(1, pl.Int32)
    )
    missing_columns = [
        pl.lit(None, dtype).alias(name)
        for name, dtype in POSITIONS.schema.items()
        if name not in with_route.columns
    ]
    return with_route.with_columns(missing_columns).sort("ingestion_time", maintain_order=True)


def fill_log(log: Log, frame: pl.DataFrame, *, rows: int = 10_000) -> None:
    """Appends the events to the topic of positions, `rows` at a time."""
    log.ensure(POSITIONS)
    for part in frame.iter_slices(rows):
        log.append(POSITIONS.name, encode(POSITIONS, part))


def _simulate_speeds(rng: np.random.Generator, seconds: int, vehicles: int) -> NDArray[np.float64]:
    """Speeds and accelerations: vehicles cruise, and sometimes brake hard to a stop."""
    speed, braking = np.abs(rng.normal(9, 4, vehicles)), np.zeros(vehicles, int)
    speeds = np.empty((seconds, vehicles))
    for second in range(seconds):
        braking = np.where(rng.random(vehicles) < 0.002, 5, np.maximum(braking - 1, 0))
        speed = np.clip(speed + np.where(braking > 0, -4.5, rng.normal(0, 0.6, vehicles)), 0, 20)
        speed = np.where((speed < 1) & (rng.random(vehicles) < 0.1), 12, speed)
        speeds[second] = speed
    return speeds


def _simulate_lags(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Delays of arrival: 95 % under a second, 4 % under ten, 1 % up to a minute."""
    luck = rng.random(shape)
    quick, slow, late = (
        rng.integers(20, 1_000, shape),
        rng.integers(1_000, 10_000, shape),
        rng.integers(10_000, 60_000, shape),
    )
    return np.where(luck < 0.95, quick, np.where(luck < 0.99, slow, late))
