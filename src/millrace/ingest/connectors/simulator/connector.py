"""The simulated city as a connector: it makes events itself, so it needs no processor."""

from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from millrace import durations
from millrace.errors import ConfigError, DefinitionError
from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.connectors.simulator.city import City, Plan
from millrace.ingest.connectors.simulator.fleet import SECOND
from millrace.ingest.contract import Batch, Connector
from millrace.topics import Topic
from millrace.transit.topics import POSITIONS
from millrace.values.local_paths import local

_AHEAD = 50_000
"""About how many events are made at once when there is no waiting."""
_LONGEST = 60
"""The longest stretch that is made at once, in seconds."""
_LARGEST = 1_000


class Simulator(Connector):
    """A city whose messages come now, or from `start` on and `speed` times as fast; `"max"`: as fast as they are taken.

    Started again, it goes on at the present. The ingestion time of an event is the time at which its message was due. What really
    happened is written to the folder `truth`, if one is named.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        scale: float = 1,
        speed: float | Literal["max"] = 1,
        volume: Literal["curve", "mean", "peak"] = "curve",
        start: str | None = None,
        duration: str | None = None,
        hard_stops: float = 0.5,
        events: Literal["positions", "all"] = "positions",
        truth: str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        if volume not in ("curve", "mean", "peak"):
            raise ConfigError(
                f"volume={volume!r} is unknown; use 'curve' to follow the day, or 'mean' or 'peak' for a constant volume"
            )
        if events not in ("positions", "all"):
            raise ConfigError(
                f"events={events!r} is unknown; use 'positions', or 'all' for arrivals, departures and doors as well"
            )
        self.plan = Plan(
            seed=_whole(seed),
            scale=_number(
                "scale", scale, low=0.01, high=_LARGEST, such="1, or 16 for sixteen times the volume"
            ),
            volume=volume,
            hard_stops=_number(
                "hard_stops", hard_stops, low=0, high=20, such="0.5 for one in two hours of a vehicle"
            ),
            calls=events == "all",
        )
        self.topics = self.plan.topics
        self.speed = (
            0.0 if speed == "max" else _number("speed", speed, low=0.001, high=1e6, such="1 or 10, or 'max'")
        )
        self.start = None if start is None else _time(start)
        self.duration = None if duration is None else _duration(duration)
        self.truth = None if truth is None else _folder(truth)
        self.clock: Clock = clock or WallClock()
        self.acknowledged = 0
        """How many events the log has."""
        self._ready: dict[str, deque[pl.DataFrame]] = {topic.name: deque() for topic in self.topics}
        self._city: City | None = None
        self._began = self._first = self._end = 0

    def open(self) -> None:
        """Builds the city as it is at the start."""
        self._first = self.clock.now() if self.start is None else self.start
        self._city = City(self.plan, start=self._first, truth=self.truth)
        self._began = self.clock.now() if self.start is not None or not self.speed else self._first
        self._end = (
            self._city.now + -(-self.duration // SECOND) * SECOND if self.duration is not None else 2**62
        )

    def close(self) -> None:
        """Lets the truth be written to its end."""
        if self._city is not None:
            self._city.close()

    def poll(self, *, limit: int, wait: int) -> Batch | None:
        """The events that are due, gathered for up to `wait` milliseconds."""
        city = self._opened()
        if city.now >= self._end and not any(self._ready.values()):
            return None
        if not self.speed:
            self._make(city, city.now + 1)
            return self._taken(limit, 2**62)
        until = self._told(self.clock.now() + wait)
        self._make(city, until)
        full = self._full(limit, until)
        self._wait(full)
        return self._taken(limit, self._told(self.clock.now()))

    def acknowledge(self, batch: Batch) -> None:
        """Counts; nobody waits for an acknowledgement."""
        self.acknowledged += len(batch)

    def _opened(self) -> City:
        if self._city is None:
            raise RuntimeError("a connector is used as a context: with Simulator() as simulator")
        return self._city

    def _told(self, now: int) -> int:
        """The time in the city when it is `now` on the clock."""
        return self._first + int((now - self._began) * self.speed)

    def _make(self, city: City, until: int) -> None:
        """All that comes up to a time, at least, in stretches of whole seconds; not much more than that when it is long past."""
        held = sum(len(frame) for frames in self._ready.values() for frame in frames)
        while city.now <= until and city.now < self._end and held < _AHEAD:
            longest = min(_LONGEST, max(1, _AHEAD // self.plan.vehicles))
            behind = longest if not self.speed else -(-(until + 1 - city.now) // SECOND)
            for topic, frame in city.advance(min(city.now + min(longest, behind) * SECOND, self._end)):
                held += len(frame)
                if len(frame):
                    self._ready[topic.name].append(frame)

    def _full(self, limit: int, until: int) -> int:
        """When `limit` positions are due, in the city's time; `until` if they are not by then."""
        for frame in self._ready[POSITIONS.name]:
            if len(frame) >= limit:
                return min(until, int(frame["ingestion_time"][limit - 1]))
            limit -= len(frame)
        return until

    def _wait(self, told: int) -> None:
        now = self.clock.now()
        due = self._began + int(np.ceil((told - self._first) / self.speed))
        if due > now:
            self.clock.sleep(due - now)

    def _taken(self, limit: int, until: int) -> Batch:
        """Of each topic what is due; those of few events first, so that the many leave room for them."""
        rows: list[tuple[Topic, pl.DataFrame]] = []
        for topic in reversed(self.topics):
            taken = _due(self._ready[topic.name], limit, until)
            limit -= len(taken)
            if len(taken):
                rows.append((topic, taken))
        return Batch(rows=rows, source="simulator")


def _due(ready: deque[pl.DataFrame], limit: int, until: int) -> pl.DataFrame:
    """Takes the first `limit` rows that come by a time."""
    taken: list[pl.DataFrame] = []
    while limit and ready:
        frame = ready.popleft()
        due = min(limit, int(np.searchsorted(frame["ingestion_time"].to_numpy(), until, side="right")))
        taken.append(frame[:due])
        limit -= due
        if due < len(frame):
            ready.appendleft(frame[due:])
            break
    return pl.concat(taken) if taken else pl.DataFrame()


def _whole(seed: Any) -> int:
    try:
        if isinstance(seed, bool) or int(seed) != float(seed):
            raise ValueError  # noqa: TRY301 - the same remedy for all that is no whole number
        return int(seed)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(
            f"seed={seed!r} is no whole number; use one such as 1: each makes another city"
        ) from None


def _number(name: str, value: Any, *, low: float, high: float, such: str) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not low <= number <= high:
        raise ConfigError(
            f"{name}={value!r} is not allowed; use a number from {low:g} to {high:g}, such as {such}"
        )
    return number


def _duration(duration: Any) -> int:
    try:
        return durations.positive(duration, name="duration")
    except DefinitionError as error:
        raise ConfigError(str(error)) from None


def _folder(truth: Any) -> Path:
    if not isinstance(truth, str | Path) or not str(truth):
        raise ConfigError(
            f"truth={truth!r} is no folder name; name one such as 'truth', where Parquet files are written"
        )
    return local(truth, "truth").expanduser()


def _time(start: Any) -> int:
    """Epoch milliseconds of text such as 2026-03-02T08:00:00Z; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(start)
    except (TypeError, ValueError):
        raise ConfigError(
            f"start={start!r} is no time; write it like '2026-03-02T06:00:00Z', or leave it out to start now"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
