"""The whole city: the messages that arrive in a stretch of time, in order of arrival."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from millrace.ingest.connectors.simulator import calls, daytime, routes
from millrace.ingest.connectors.simulator.arrivals import DUPLICATE_SHARE, Links
from millrace.ingest.connectors.simulator.chance import Flags, Ints
from millrace.ingest.connectors.simulator.fleet import SECOND, Fleet
from millrace.ingest.connectors.simulator.legs import BRAKING, STANDING, Legs
from millrace.ingest.connectors.simulator.messages import Columns, Messages
from millrace.ingest.connectors.simulator.truth import TruthWriter
from millrace.topics import Topic
from millrace.transit.topics import POSITIONS


@dataclass(frozen=True)
class CityPlan:
    """The parameters of a city. The same plan and start make the same events."""

    seed: int = 1
    scale: float = 1.0
    volume: Literal["curve", "mean", "peak"] = "curve"
    """Events per second: by the time of day, always the mean, or always the peak."""
    hard_stops: float = 0.5
    """Hard stops per vehicle and hour."""
    calls: bool = False
    """Whether vehicles also report what happens at stops."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics of the events."""
        return (POSITIONS, *calls.TOPICS) if self.calls else (POSITIONS,)

    @property
    def vehicles(self) -> int:
        """The number of vehicles of the fleet."""
        return self._count_vehicles(
            daytime.MEAN_EVENTS_PER_SECOND if self.volume == "mean" else daytime.PEAK_EVENTS_PER_SECOND
        )

    def count_reporting(self, times: Ints) -> Ints:
        """The number of vehicles in service; they are those with the lowest numbers."""
        return np.rint(daytime.events_per_second(times) * (1 - DUPLICATE_SHARE) * self.scale).astype(np.int64)

    def _count_vehicles(self, events: float) -> int:
        return max(1, round(events * (1 - DUPLICATE_SHARE) * self.scale))


class City:
    """Runs from `start`, in milliseconds, in stretches. The events do not depend on the length of the
    stretches.
    """

    def __init__(self, plan: CityPlan, *, start: int, truth: Path | None = None) -> None:
        self.plan = plan
        self.now = -(-start // SECOND) * SECOND
        """The time up to which all arriving messages are known."""
        self.fleet = Fleet(
            routes.build(plan.seed),
            seed=plan.seed,
            size=plan.vehicles,
            hard_stops=plan.hard_stops,
            start=self.now,
        )
        self.messages = Messages(self.fleet)
        self._links = Links(plan.seed, plan.vehicles)
        self._in_transit: dict[str, Columns] = {}
        self._truth_writer = None if truth is None else TruthWriter(truth, self.messages)

    def advance(self, end: int) -> list[tuple[Topic, pl.DataFrame]]:
        """The messages that arrive until a whole second, by topic, in order of arrival."""
        measured = self.fleet.drive(self.now, end)
        samples = measured.filter(
            self._in_service(measured.vehicle, measured.time, measured.legs.end[measured.row, STANDING])
        )
        if self._truth_writer is not None:
            self._truth_writer.add(samples, self._hard_stops(measured.legs, end), self._links.clock_ahead)
        topic_columns = [(POSITIONS, self.messages.columns(samples))]
        if self.plan.calls:
            topic_columns += self._calls(measured.legs, end)
        self.now = end
        return [
            (topic, self.messages.frame(topic, self._take_arrived(topic, columns)))
            for topic, columns in topic_columns
        ]

    def close(self) -> None:
        """Writes the rest of the truth files."""
        if self._truth_writer is not None:
            self._truth_writer.close()

    def _hard_stops(self, legs: Legs, end: int) -> Legs:
        """The legs with a hard stop of a vehicle in service, in the stretch that ends here."""
        braked_at = legs.begin[:, BRAKING]
        braked_legs = legs.select(legs.has_hard_brake & (braked_at >= self.now) & (braked_at < end))
        return braked_legs.select(
            self._in_service(braked_legs.vehicle, braked_legs.begin[:, BRAKING], braked_legs.end[:, STANDING])
        )

    def _calls(self, legs: Legs, end: int) -> list[tuple[Topic, Columns]]:
        """The events at stops of vehicles in service, in the stretch that ends here."""
        topic_columns = []
        for topic, stop_legs, columns in calls.stop_events(legs, self.fleet.routes, self.now, end):
            in_service = self._in_service(
                stop_legs.vehicle, np.asarray(columns["event_time"], np.int64), stop_legs.end[:, STANDING]
            )
            topic_columns.append((topic, {name: column[in_service] for name, column in columns.items()}))
        return topic_columns

    def _in_service(self, vehicle: Ints, time: Ints, departure: Ints) -> Flags:
        """Whether vehicles report at a time. They begin and end their service at a stop, just before they
        depart.
        """
        if self.plan.volume != "curve":
            return np.ones(len(vehicle), np.bool_)
        return np.asarray(vehicle < self.plan.count_reporting(np.minimum(time, departure)))

    def _take_arrived(self, topic: Topic, columns: Columns) -> Columns:
        """Splits off the messages that have arrived by now, in order; the others stay in transit."""
        vehicle, time = np.asarray(columns["vehicle"], np.int64), np.asarray(columns["event_time"], np.int64)
        arrival, copies = self._links.arrivals(vehicle, time)
        sent = {**columns, "event_time": time + self._links.clock_ahead[vehicle], "ingestion_time": arrival}
        waiting = {name: np.repeat(column, copies) for name, column in sent.items()}
        if topic.name in self._in_transit:
            waiting = {
                name: np.concatenate([earlier, waiting[name]])
                for name, earlier in self._in_transit[topic.name].items()
            }
        has_arrived = np.asarray(waiting["ingestion_time"], np.int64) < self.now
        self._in_transit[topic.name] = {name: column[~has_arrived] for name, column in waiting.items()}
        order = np.flatnonzero(has_arrived)
        order = order[
            np.lexsort([waiting[name][order] for name in ("event_time", "vehicle", "ingestion_time")])
        ]
        return {name: column[order] for name, column in waiting.items()}
