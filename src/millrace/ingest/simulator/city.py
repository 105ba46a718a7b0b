"""The whole city: which messages come in a stretch of time, in the order in which they come."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from millrace.ingest.simulator import daytime, routes
from millrace.ingest.simulator.arrivals import DUPLICATES, Links
from millrace.ingest.simulator.chance import Ints
from millrace.ingest.simulator.fleet import SECOND, Fleet, Samples
from millrace.ingest.simulator.legs import BRAKING, STANDING, Legs
from millrace.ingest.simulator.messages import Columns, Messages
from millrace.ingest.simulator.truth import Witness


@dataclass(frozen=True)
class Plan:
    """What makes a city: with the same plan and the same start, everything that happens is the same."""

    seed: int = 1
    scale: float = 1.0
    volume: Literal["curve", "mean", "peak"] = "curve"
    """How many events a second: following the day, or always as on average, or always as in the busiest minute."""
    hard_stops: float = 0.5
    """How often a vehicle brakes hard, in an hour."""

    @property
    def vehicles(self) -> int:
        """How many are needed."""
        return self._reporting(daytime.MEAN if self.volume == "mean" else daytime.PEAK)

    def reporting(self, times: Ints) -> Ints:
        """How many vehicles are in service: those of the lowest numbers."""
        return np.rint(daytime.events_per_second(times) * (1 - DUPLICATES) * self.scale).astype(np.int64)

    def _reporting(self, events: float) -> int:
        return max(1, round(events * (1 - DUPLICATES) * self.scale))


class City:
    """Goes on from `start`, a time in milliseconds, stretch by stretch. How long the stretches are makes no difference."""

    def __init__(self, plan: Plan, *, start: int, truth: Path | None = None) -> None:
        self.plan = plan
        self.now = -(-start // SECOND) * SECOND
        """Up to here all messages that come are known."""
        self.fleet = Fleet(routes.build(plan.seed), seed=plan.seed, size=plan.vehicles, hard_stops=plan.hard_stops, start=self.now)
        self.messages = Messages(self.fleet)
        self._links = Links(plan.seed, plan.vehicles)
        self._on_the_way: Columns = self._sent(self.fleet.drive(self.now, self.now))
        self._witness = None if truth is None else Witness(truth, self.messages)

    def advance(self, end: int) -> pl.DataFrame:
        """The messages that come until a whole second, in order."""
        samples = self._reported(self.fleet.drive(self.now, end))
        sent = self._sent(samples)
        if self._witness is not None:
            self._witness.saw(samples, self._hard_stops(samples.legs, end), self._links.fast)
        waiting = {name: np.concatenate([self._on_the_way[name], column]) for name, column in sent.items()}
        coming = np.flatnonzero(waiting["ingestion_time"] < end)
        rest = waiting["ingestion_time"] >= end
        self._on_the_way = {name: column[rest] for name, column in waiting.items()}
        order = coming[np.lexsort((waiting["vehicle"][coming], waiting["ingestion_time"][coming]))]
        self.now = end
        return self.messages.frame({name: column[order] for name, column in waiting.items()})

    def close(self) -> None:
        """Writes down what was seen last."""
        if self._witness is not None:
            self._witness.close()

    def _hard_stops(self, legs: Legs, end: int) -> Legs:
        """The legs on which vehicles in service braked hard in the stretch that ends here."""
        braked = legs.begin[:, BRAKING]
        found = legs.rows(legs.hard & (braked >= self.now) & (braked < end))
        if self.plan.volume != "curve":
            return found
        return found.rows(found.vehicle < self.plan.reporting(found.end[:, STANDING]))

    def _reported(self, samples: Samples) -> Samples:
        """What vehicles in service measured. They begin and end their service while they stand at a stop."""
        if self.plan.volume != "curve":
            return samples
        decided = np.minimum(samples.time, samples.legs.end[:, STANDING][samples.row])
        return samples.where(samples.vehicle < self.plan.reporting(decided))

    def _sent(self, samples: Samples) -> Columns:
        arrival, times = self._links.arrivals(samples.vehicle, samples.time)
        columns = self.messages.columns(samples)
        columns["ingestion_time"] = arrival
        columns["event_time"] = samples.time + self._links.fast[samples.vehicle]
        return {name: np.repeat(column, times) for name, column in columns.items()}
