"""Measurements → columns of messages, in order of arrival."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from millrace.ingest.connectors.simulator import daytime
from millrace.ingest.connectors.simulator.chance import Ints
from millrace.ingest.connectors.simulator.fleet import Fleet, Samples
from millrace.ingest.connectors.simulator.legs import STANDING
from millrace.ingest.connectors.simulator.routes import Routes
from millrace.topics import Topic

Columns: TypeAlias = dict[str, NDArray[np.generic]]

_OPERATORS = 12, 17, 18, 20, 22, 30, 36, 40
"""Operators. Two of them may use the same vehicle number, as real ones do."""


class Messages:
    """Maps numbers of vehicles, routes and stops to their names."""

    def __init__(self, fleet: Fleet) -> None:
        self.routes: Routes = fleet.routes
        numbers = np.arange(fleet.size)
        operators = pl.Series([str(operator) for operator in _OPERATORS])
        self._operators = operators.gather(numbers % len(_OPERATORS))
        self.vehicle_ids = self._operators + "/" + pl.Series(1 + numbers // len(_OPERATORS)).cast(pl.String)
        """Operator and vehicle id, by number of the vehicle."""
        self.route_names = pl.Series([str(1001 + route) for route in range(len(self.routes))])
        self.stop_names = pl.Series([*(str(1_000_001 + stop) for stop in range(self.routes.stops)), None])
        """The names of routes and stops, by number. The last entry of the stops is null."""
        self._clock_texts = pl.Series([f"{minute // 60:02}:{minute % 60:02}" for minute in range(24 * 60)])

    def columns(self, samples: Samples) -> Columns:
        """All columns but the names, which are looked up when a message arrives."""
        legs, row = samples.legs, samples.row
        leg, directed_route = legs.leg[row], legs.directed_route[row]
        is_standing = samples.phase == STANDING
        opened, closed = legs.doors()
        latitude, longitude, heading = self.routes.locate(directed_route, samples.odometer)
        return {
            "event_time": samples.time,
            "vehicle": samples.vehicle,
            "latitude": np.round(latitude, 6),
            "longitude": np.round(longitude, 6),
            "heading": np.round(heading) % 360,
            "speed": np.round(samples.speed, 2),
            "acceleration": np.round(samples.acceleration, 2),
            "delay": legs.delay[row].astype(np.int32),
            "odometer": np.round(samples.odometer),
            "doors_open": is_standing & (samples.time >= opened[row]) & (samples.time < closed[row]),
            "way": directed_route,
            "scheduled": legs.scheduled[row],
            "stop": np.where(is_standing, self.routes.stop[leg], self.routes.stops),
            "next_stop": self.routes.next_stop[leg],
        }

    def frame(self, topic: Topic, columns: Columns) -> pl.DataFrame:
        """The columns of a topic, with event time and ingestion time."""
        vehicle, directed_route = columns["vehicle"], columns["way"]
        scheduled = daytime.local_time(np.asarray(columns["scheduled"], np.int64))
        named_columns: Mapping[str, Callable[[], pl.Series]] = {
            "vehicle_id": lambda: self.vehicle_ids.gather(vehicle),
            "operator": lambda: self._operators.gather(vehicle),
            "route": lambda: self.route_names.gather(directed_route // 2),
            "direction": lambda: pl.Series((directed_route % 2 + 1).astype(np.int32)),
            "trip_day": lambda: _format_days(scheduled // daytime.DAY),
            "trip_start": lambda: self._clock_texts.gather(scheduled % daytime.DAY // 60_000),
            "stop": lambda: self.stop_names.gather(columns["stop"]),
            "next_stop": lambda: self.stop_names.gather(columns["next_stop"]),
        }
        names = (*topic.schema, "event_time", "ingestion_time")
        return pl.DataFrame(
            {name: named_columns[name]() if name in named_columns else columns[name] for name in names}
        )


def _format_days(days: Ints) -> pl.Series:
    """Dates as text. Few different days occur in one batch."""
    first = int(days.min()) if len(days) else 0
    names = [
        str((datetime.fromtimestamp(0, UTC) + timedelta(days=first + n)).date())
        for n in range(int(np.ptp(days)) + 1 if len(days) else 0)
    ]
    return pl.Series(names, dtype=pl.String).gather(days - first)
