"""The whole city: which messages come in a stretch of time, in the order in which they come."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from millrace.ingest.connectors.simulator import calls, daytime, routes
from millrace.ingest.connectors.simulator.arrivals import DUPLICATES, Links
from millrace.ingest.connectors.simulator.chance import Flags, Ints
from millrace.ingest.connectors.simulator.fleet import SECOND, Fleet
from millrace.ingest.connectors.simulator.legs import BRAKING, STANDING, Legs
from millrace.ingest.connectors.simulator.messages import Columns, Messages
from millrace.ingest.connectors.simulator.truth import Witness
from millrace.topics import Topic
from millrace.transit.topics import POSITIONS


@dataclass(frozen=True)
class Plan:
    """What makes a city: with the same plan and the same start, everything that happens is the same."""

    seed: int = 1
    scale: float = 1.0
    volume: Literal["curve", "mean", "peak"] = "curve"
    """How many events a second: following the day, or always as on average, or always as in the busiest minute."""
    hard_stops: float = 0.5
    """How often a vehicle brakes hard, in an hour."""
    calls: bool = False
    """Whether vehicles also report what happens at stops."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Where events go."""
        return (POSITIONS, *calls.TOPICS) if self.calls else (POSITIONS,)

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
        self.fleet = Fleet(
            routes.build(plan.seed),
            seed=plan.seed,
            size=plan.vehicles,
            hard_stops=plan.hard_stops,
            start=self.now,
        )
        self.messages = Messages(self.fleet)
        self._links = Links(plan.seed, plan.vehicles)
        self._on_the_way: dict[str, Columns] = {}
        self._witness = None if truth is None else Witness(truth, self.messages)

    def advance(self, end: int) -> list[tuple[Topic, pl.DataFrame]]:
        """The messages that come until a whole second, by topic, in order."""
        driven = self.fleet.drive(self.now, end)
        samples = driven.where(
            self._in_service(driven.vehicle, driven.time, driven.legs.end[driven.row, STANDING])
        )
        if self._witness is not None:
            self._witness.saw(samples, self._hard_stops(driven.legs, end), self._links.fast)
        sent = [(POSITIONS, self.messages.columns(samples))]
        if self.plan.calls:
            sent += self._calls(driven.legs, end)
        self.now = end
        return [(topic, self.messages.frame(topic, self._coming(topic, columns))) for topic, columns in sent]

    def close(self) -> None:
        """Writes down what was seen last."""
        if self._witness is not None:
            self._witness.close()

    def _hard_stops(self, legs: Legs, end: int) -> Legs:
        """The legs on which vehicles in service braked hard in the stretch that ends here."""
        braked = legs.begin[:, BRAKING]
        found = legs.rows(legs.hard & (braked >= self.now) & (braked < end))
        return found.rows(self._in_service(found.vehicle, found.begin[:, BRAKING], found.end[:, STANDING]))

    def _calls(self, legs: Legs, end: int) -> list[tuple[Topic, Columns]]:
        """What vehicles in service did at stops in the stretch that ends here."""
        happened = []
        for topic, found, columns in calls.happened(legs, self.fleet.routes, self.now, end):
            kept = self._in_service(
                found.vehicle, np.asarray(columns["event_time"], np.int64), found.end[:, STANDING]
            )
            happened.append((topic, {name: column[kept] for name, column in columns.items()}))
        return happened

    def _in_service(self, vehicle: Ints, time: Ints, leaving: Ints) -> Flags:
        """Whether vehicles report at a time; they begin and end their service while they stand at a stop, which they are leaving then."""
        if self.plan.volume != "curve":
            return np.ones(len(vehicle), np.bool_)
        return np.asarray(vehicle < self.plan.reporting(np.minimum(time, leaving)))

    def _coming(self, topic: Topic, columns: Columns) -> Columns:
        """What comes until now, in order; the rest is on its way."""
        vehicle, time = np.asarray(columns["vehicle"], np.int64), np.asarray(columns["event_time"], np.int64)
        arrival, times = self._links.arrivals(vehicle, time)
        sent = {**columns, "event_time": time + self._links.fast[vehicle], "ingestion_time": arrival}
        waiting = {name: np.repeat(column, times) for name, column in sent.items()}
        if topic.name in self._on_the_way:
            waiting = {
                name: np.concatenate([before, waiting[name]])
                for name, before in self._on_the_way[topic.name].items()
            }
        there = np.asarray(waiting["ingestion_time"], np.int64) < self.now
        self._on_the_way[topic.name] = {name: column[~there] for name, column in waiting.items()}
        order = np.flatnonzero(there)
        order = order[
            np.lexsort([waiting[name][order] for name in ("event_time", "vehicle", "ingestion_time")])
        ]
        return {name: column[order] for name, column in waiting.items()}
