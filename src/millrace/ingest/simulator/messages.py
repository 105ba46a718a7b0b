"""What vehicles measured → the columns of their messages, in the order in which they come."""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from millrace.ingest.simulator import daytime
from millrace.ingest.simulator.chance import Flags, Ints
from millrace.ingest.simulator.fleet import Fleet, Samples
from millrace.ingest.simulator.legs import STANDING
from millrace.ingest.simulator.routes import Routes
from millrace.transit.topics import POSITIONS

Columns: TypeAlias = dict[str, NDArray[np.generic]]

_OPERATORS = 12, 17, 18, 20, 22, 30, 36, 40
"""Whose numbers vehicles bear; two operators may well use the same number, as real ones do."""
_OPENING, _CLOSING, _BOARDING = 1_500, 2_500, 45_000
"""Milliseconds after the arrival at which doors open, before the departure at which they close, and for which they are open at most."""


class Messages:
    """Knows what numbers of vehicles, routes and stops are called."""

    def __init__(self, fleet: Fleet) -> None:
        self.routes: Routes = fleet.routes
        numbers = np.arange(fleet.size)
        operators = pl.Series([str(operator) for operator in _OPERATORS])
        self._operator = operators.gather(numbers % len(_OPERATORS))
        self.vehicles = self._operator + "/" + pl.Series(1 + numbers // len(_OPERATORS)).cast(pl.String)
        """The identity of each vehicle, by number."""
        self.route = pl.Series([str(1001 + route) for route in range(len(self.routes))])
        self.stop = pl.Series([*(str(1_000_001 + stop) for stop in range(self.routes.stops)), None])
        """The names of routes and stops, by number; the last of the stops is none."""
        self._clock = pl.Series([f"{minute // 60:02}:{minute % 60:02}" for minute in range(24 * 60)])

    def columns(self, samples: Samples) -> Columns:
        """Everything but the names, which are looked up when a message comes."""
        legs, row = samples.legs, samples.row
        leg, way = legs.leg[row], legs.way[row]
        standing = samples.phase == STANDING
        latitude, longitude, heading = self.routes.where(way, samples.odometer)
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
            "doors_open": standing & self._open(samples),
            "way": way,
            "scheduled": legs.scheduled[row],
            "stop": np.where(standing, self.routes.stop[leg], self.routes.stops),
            "next_stop": self.routes.next_stop[leg],
        }

    def _open(self, samples: Samples) -> Flags:
        arrived, leaves = samples.legs.begin[:, STANDING][samples.row], samples.legs.end[:, STANDING][samples.row]
        opened = np.maximum(arrived + _OPENING, leaves - _CLOSING - _BOARDING)
        return np.asarray((samples.time >= opened) & (samples.time < leaves - _CLOSING))

    def frame(self, columns: Columns) -> pl.DataFrame:
        """The columns of `POSITIONS`, with both times."""
        vehicle, way = columns["vehicle"], columns["way"]
        scheduled = daytime.local(np.asarray(columns["scheduled"], np.int64))
        return pl.DataFrame(
            {
                "vehicle_id": self.vehicles.gather(vehicle),
                "operator": self._operator.gather(vehicle),
                **{name: columns[name] for name in _AS_THEY_ARE},
                "route": self.route.gather(way // 2),
                "direction": (way % 2 + 1).astype(np.int32),
                "trip_day": _days(scheduled // daytime.DAY),
                "trip_start": self._clock.gather(scheduled % daytime.DAY // 60_000),
                "stop": self.stop.gather(columns["stop"]),
                "next_stop": self.stop.gather(columns["next_stop"]),
                "event_time": columns["event_time"],
                "ingestion_time": columns["ingestion_time"],
            }
        ).select(*POSITIONS.schema, "event_time", "ingestion_time")


_AS_THEY_ARE = "latitude", "longitude", "heading", "speed", "acceleration", "delay", "odometer", "doors_open"


def _days(days: Ints) -> pl.Series:
    """As text; events that come together are of few days."""
    first = int(days.min()) if len(days) else 0
    names = [
        str((datetime.fromtimestamp(0, UTC) + timedelta(days=first + n)).date()) for n in range(int(np.ptp(days)) + 1 if len(days) else 0)
    ]
    return pl.Series(names, dtype=pl.String).gather(days - first)
