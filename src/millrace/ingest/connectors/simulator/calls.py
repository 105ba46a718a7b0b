"""What happens where a vehicle calls at a stop: it arrives, doors open and close, it leaves."""

from collections.abc import Iterator

import numpy as np

from millrace.ingest.connectors.simulator import daytime
from millrace.ingest.connectors.simulator.chance import Flags, Floats, Ints
from millrace.ingest.connectors.simulator.legs import STANDING, Legs, joined
from millrace.ingest.connectors.simulator.messages import Columns
from millrace.ingest.connectors.simulator.routes import GRANTED, Routes
from millrace.topics import Topic
from millrace.transit.topics import ARRIVALS, DEPARTURES, DOOR_EVENTS

TOPICS = ARRIVALS, DEPARTURES, DOOR_EVENTS


def happened(legs: Legs, routes: Routes, start: int, end: int) -> Iterator[tuple[Topic, Legs, Columns]]:
    """For each topic the legs on which something happened in a stretch of time, and the columns of what it was.

    A leg ends with the arrival at its next stop. Legs that end with a stretch are not among those of the following one.
    """
    arrives, leaves = legs.end[:, -1], legs.end[:, STANDING]
    arrived = legs.rows((arrives > start) & (arrives <= end))
    yield ARRIVALS, arrived, _arrivals(arrived, routes)
    left = legs.rows((leaves >= start) & (leaves < end))
    yield (
        DEPARTURES,
        left,
        {**_at_start(left, routes, left.end[:, STANDING]), "delay": left.delay.astype(np.int32)},
    )
    moved, time, opening = _doors(legs, start, end)
    yield DOOR_EVENTS, moved, {**_at_start(moved, routes, time), "open": opening}


def _doors(legs: Legs, start: int, end: int) -> tuple[Legs, Ints, Flags]:
    """The legs at whose beginning doors moved, when they did, and whether they opened."""
    opened, closed = legs.doors()
    opens, closes = ((opened < closed) & (time >= start) & (time < end) for time in (opened, closed))
    moved = joined([legs.rows(opens), legs.rows(closes)])
    opening = np.arange(len(moved)) < opens.sum()
    return moved, np.concatenate([opened[opens], closed[closes]]), opening


def _arrivals(legs: Legs, routes: Routes) -> Columns:
    due = legs.scheduled + (
        routes.arrives[legs.leg] * (1 + GRANTED * daytime.load(legs.scheduled)) * 1000
    ).astype(np.int64)
    last = legs.place + 1 == routes.legs[legs.way]
    after = np.where(
        last, routes.stops, routes.next_stop[np.minimum(legs.leg + 1, len(routes.next_stop) - 1)]
    )
    place = _place(legs, routes, routes.start[legs.leg] + routes.distance[legs.leg], legs.end[:, -1])
    return {
        **place,
        "stop": routes.next_stop[legs.leg],
        "next_stop": after,
        "delay": ((legs.end[:, -1] - due) // 1000).astype(np.int32),
    }


def _at_start(legs: Legs, routes: Routes, time: Ints) -> Columns:
    place = _place(legs, routes, routes.start[legs.leg], time)
    return {**place, "stop": routes.stop[legs.leg], "next_stop": routes.next_stop[legs.leg]}


def _place(legs: Legs, routes: Routes, odometer: Floats, time: Ints) -> Columns:
    latitude, longitude, _ = routes.where(legs.way, odometer)
    return {
        "event_time": time,
        "vehicle": legs.vehicle,
        "way": legs.way,
        "scheduled": legs.scheduled,
        "latitude": np.round(latitude, 6),
        "longitude": np.round(longitude, 6),
    }
