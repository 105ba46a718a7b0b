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
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.ingest.connectors.simulator.fleet import SECOND
from millrace.ingest.contract import Connector, MessageBatch
from millrace.topics import Topic
from millrace.transit.topics import POSITIONS
from millrace.values.local_paths import require_local

_MAX_READY_EVENTS = 50_000
"""The approximate number of events per stretch at full speed."""
_MAX_STRETCH = 60
"""The longest stretch, in seconds."""
_MAX_SCALE = 1_000


class Simulator(Connector):
    """A city whose messages arrive now, or from `start` on and `speed` times as fast (`"max"`: as fast as
    possible).

    Started again, it continues at the present time. The ingestion time of an event is the time at which its
    message was due. If a folder `truth` is named, files with the true positions and events are written there.
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
        self.plan = _make_plan(seed, scale, volume, hard_stops, events)
        self.topics = self.plan.topics
        self.speed = (
            0.0
            if speed == "max"
            else _check_number("speed", speed, low=0.001, high=1e6, example="1 or 10, or 'max'")
        )
        self.start = None if start is None else _parse_time(start)
        self.duration = None if duration is None else _parse_duration(duration)
        self.truth = None if truth is None else _check_folder(truth)
        self.clock: Clock = clock or WallClock()
        self.acknowledged_count = 0
        """The number of events that the log has."""
        self._ready: dict[str, deque[pl.DataFrame]] = {topic.name: deque() for topic in self.topics}
        self._city: City | None = None
        self._started_at = self._city_start = self._city_end = 0

    def open(self) -> None:
        """Builds the city in its state at the start."""
        self._city_start = self.clock.now() if self.start is None else self.start
        self._city = City(self.plan, start=self._city_start, truth=self.truth)
        self._started_at = self.clock.now() if self.start is not None or not self.speed else self._city_start
        self._city_end = (
            self._city.now + -(-self.duration // SECOND) * SECOND if self.duration is not None else 2**62
        )

    def close(self) -> None:
        """Writes the rest of the truth files."""
        if self._city is not None:
            self._city.close()

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        """The events that fall due within `wait` milliseconds."""
        city = self._require_city()
        if city.now >= self._city_end and not any(self._ready.values()):
            return None
        if not self.speed:
            self._generate(city, city.now + 1)
            return self._take(limit, 2**62)
        until = self._city_time(self.clock.now() + wait)
        self._generate(city, until)
        due_at = self._limit_due_at(limit, until)
        self._wait(due_at)
        return self._take(limit, self._city_time(self.clock.now()))

    def acknowledge(self, batch: MessageBatch) -> None:
        """Only counts: the city needs no acknowledgement."""
        self.acknowledged_count += len(batch)

    def _require_city(self) -> City:
        if self._city is None:
            raise RuntimeError("a connector is used as a context: with Simulator() as simulator")
        return self._city

    def _city_time(self, now: int) -> int:
        """The city's time at the time `now` of the clock."""
        return self._city_start + int((now - self._started_at) * self.speed)

    def _generate(self, city: City, until: int) -> None:
        """Makes at least all messages that arrive up to a time, in stretches of whole seconds."""
        ready_count = sum(len(frame) for frames in self._ready.values() for frame in frames)
        while city.now <= until and city.now < self._city_end and ready_count < _MAX_READY_EVENTS:
            max_stretch = min(_MAX_STRETCH, max(1, _MAX_READY_EVENTS // self.plan.vehicles))
            missing = max_stretch if not self.speed else -(-(until + 1 - city.now) // SECOND)
            for topic, frame in city.advance(
                min(city.now + min(max_stretch, missing) * SECOND, self._city_end)
            ):
                ready_count += len(frame)
                if len(frame):
                    self._ready[topic.name].append(frame)

    def _limit_due_at(self, limit: int, until: int) -> int:
        """The city's time at which `limit` positions are due, but at most `until`."""
        for frame in self._ready[POSITIONS.name]:
            if len(frame) >= limit:
                return min(until, int(frame["ingestion_time"][limit - 1]))
            limit -= len(frame)
        return until

    def _wait(self, city_time: int) -> None:
        now = self.clock.now()
        due_at = self._started_at + int(np.ceil((city_time - self._city_start) / self.speed))
        if due_at > now:
            self.clock.sleep(due_at - now)

    def _take(self, limit: int, until: int) -> MessageBatch:
        """The rows of each topic that are due; topics with few events first, so that positions leave room for
        them.
        """
        rows: list[tuple[Topic, pl.DataFrame]] = []
        for topic in reversed(self.topics):
            due_rows = _take_due(self._ready[topic.name], limit, until)
            limit -= len(due_rows)
            if len(due_rows):
                rows.append((topic, due_rows))
        return MessageBatch(rows=rows, source="simulator")


def _take_due(ready: deque[pl.DataFrame], limit: int, until: int) -> pl.DataFrame:
    """Removes the first `limit` rows that arrive by a time."""
    taken: list[pl.DataFrame] = []
    while limit and ready:
        frame = ready.popleft()
        count = min(limit, int(np.searchsorted(frame["ingestion_time"].to_numpy(), until, side="right")))
        taken.append(frame[:count])
        limit -= count
        if count < len(frame):
            ready.appendleft(frame[count:])
            break
    return pl.concat(taken) if taken else pl.DataFrame()


def _make_plan(
    seed: int,
    scale: float,
    volume: Literal["curve", "mean", "peak"],
    hard_stops: float,
    events: Literal["positions", "all"],
) -> CityPlan:
    """The plan of a city from checked options."""
    if volume not in ("curve", "mean", "peak"):
        raise ConfigError(
            f"volume={volume!r} is unknown; use 'curve' to follow the day, or 'mean' or 'peak' for a "
            "constant volume"
        )
    if events not in ("positions", "all"):
        raise ConfigError(
            f"events={events!r} is unknown; use 'positions', or 'all' for arrivals, departures and "
            "doors as well"
        )
    return CityPlan(
        seed=_check_seed(seed),
        scale=_check_number(
            "scale", scale, low=0.01, high=_MAX_SCALE, example="1, or 16 for sixteen times the volume"
        ),
        volume=volume,
        hard_stops=_check_number(
            "hard_stops", hard_stops, low=0, high=20, example="0.5 for one in two hours of a vehicle"
        ),
        calls=events == "all",
    )


def _check_seed(seed: Any) -> int:
    try:
        if isinstance(seed, bool) or int(seed) != float(seed):
            raise ValueError  # noqa: TRY301 - one message for all that is not a whole number
        return int(seed)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(
            f"seed={seed!r} is not a whole number; use one such as 1: each makes a different city"
        ) from None


def _check_number(name: str, value: Any, *, low: float, high: float, example: str) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not low <= number <= high:
        raise ConfigError(
            f"{name}={value!r} is not allowed; use a number from {low:g} to {high:g}, such as {example}"
        )
    return number


def _parse_duration(duration: Any) -> int:
    try:
        return durations.parse_positive(duration, name="duration")
    except DefinitionError as error:
        raise ConfigError(str(error)) from None


def _check_folder(truth: Any) -> Path:
    if not isinstance(truth, str | Path) or not str(truth):
        raise ConfigError(
            f"truth={truth!r} is not a folder name; name one such as 'truth', where Parquet files are written"
        )
    return require_local(truth, "truth").expanduser()


def _parse_time(start: Any) -> int:
    """Epoch milliseconds of text such as 2026-03-02T08:00:00Z. Without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(start)
    except (TypeError, ValueError):
        raise ConfigError(
            f"start={start!r} is not a time; write it like '2026-03-02T06:00:00Z', or leave it out to start "
            "now"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
