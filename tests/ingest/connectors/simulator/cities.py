"""Small cities, taken whole."""

import polars as pl

from ingest.clocks import FakeClock
from millrace.ingest.connectors.simulator import Simulator
from millrace.ingest.connectors.simulator.city import City, CityPlan

MORNING = 1_772_431_200_000
"""2026-03-02 08:00 in Helsinki, a Monday."""


def events(plan: CityPlan, *, start: int = MORNING, seconds: int = 60, stretch: int = 30) -> pl.DataFrame:
    """All positions that come within some seconds, made in stretches."""
    city = City(plan, start=start)
    return pl.concat(
        [
            frame
            for at in range(0, seconds, stretch)
            for _, frame in city.advance(min(at + stretch, seconds) * 1000 + start)
        ]
    )


def calls(
    plan: CityPlan, *, start: int = MORNING, seconds: int = 60, stretch: int = 30
) -> dict[str, pl.DataFrame]:
    """What happened at stops, by topic."""
    city = City(plan, start=start)
    found: dict[str, list[pl.DataFrame]] = {topic.name: [] for topic in plan.topics[1:]}
    for at in range(0, seconds, stretch):
        for topic, frame in city.advance(min(at + stretch, seconds) * 1000 + start)[1:]:
            found[topic.name].append(frame)
    return {name: pl.concat(frames) for name, frames in found.items()}


def polled(simulator: Simulator, *, limit: int, wait: int = 50) -> pl.DataFrame:
    """All that a simulator brings until it ends."""
    parts: list[pl.DataFrame] = []
    with simulator:
        while (batch := simulator.poll(limit=limit, wait=wait)) is not None:
            parts += [rows for _, rows in batch.rows]
            assert len(batch) <= limit
            simulator.acknowledge(batch)
    return pl.concat(parts)


def live(clock: FakeClock, *, scale: float = 0.05, seed: int = 1, duration: str = "20s") -> Simulator:
    """A small city at its own pace, on a clock that tests turn."""
    return Simulator(seed=seed, scale=scale, volume="mean", duration=duration, clock=clock)
