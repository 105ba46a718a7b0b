"""Events at stops: a vehicle arrives, its doors open and close, it departs."""

from collections.abc import Iterator

import numpy as np

from millrace.ingest.connectors.simulator import daytime
from millrace.ingest.connectors.simulator.chance import Flags, Floats, Ints
from millrace.ingest.connectors.simulator.legs import STANDING, Legs, concat_legs
from millrace.ingest.connectors.simulator.messages import Columns
from millrace.ingest.connectors.simulator.routes import SCHEDULED_CONGESTION, Routes
from millrace.topics import Topic
from millrace.transit.topics import ARRIVALS, DEPARTURES, DOOR_EVENTS

TOPICS = ARRIVALS, DEPARTURES, DOOR_EVENTS


def stop_events(legs: Legs, routes: Routes, start: int, end: int) -> Iterator[tuple[Topic, Legs, Columns]]:
    """For each topic, the legs with an event in a stretch of time, and the columns of the events.

    A leg ends with the arrival at its next stop. A leg that ends with a stretch is not part of the next
    stretch.
    """
    arrival_time, departure_time = legs.end[:, -1], legs.end[:, STANDING]
    arrived = legs.select((arrival_time > start) & (arrival_time <= end))
    yield ARRIVALS, arrived, _arrival_columns(arrived, routes)
    left = legs.select((departure_time >= start) & (departure_time < end))
    yield (
        DEPARTURES,
        left,
        {**_columns_at_start(left, routes, left.end[:, STANDING]), "delay": left.delay.astype(np.int32)},
    )
    moved, time, has_opened = _door_events(legs, start, end)
    yield DOOR_EVENTS, moved, {**_columns_at_start(moved, routes, time), "open": has_opened}


def _door_events(legs: Legs, start: int, end: int) -> tuple[Legs, Ints, Flags]:
    """The legs at whose beginning doors moved, the times, and whether they opened."""
    opened, closed = legs.doors()
    is_opening, is_closing = ((opened < closed) & (time >= start) & (time < end) for time in (opened, closed))
    moved = concat_legs([legs.select(is_opening), legs.select(is_closing)])
    has_opened = np.arange(len(moved)) < is_opening.sum()
    return moved, np.concatenate([opened[is_opening], closed[is_closing]]), has_opened


def _arrival_columns(legs: Legs, routes: Routes) -> Columns:
    due = legs.scheduled + (
        routes.arrival_offset[legs.leg]
        * (1 + SCHEDULED_CONGESTION * daytime.traffic_load(legs.scheduled))
        * 1000
    ).astype(np.int64)
    is_last = legs.leg_index + 1 == routes.legs[legs.directed_route]
    following_stop = np.where(
        is_last, routes.stops, routes.next_stop[np.minimum(legs.leg + 1, len(routes.next_stop) - 1)]
    )
    position = _position_columns(
        legs, routes, routes.start[legs.leg] + routes.distance[legs.leg], legs.end[:, -1]
    )
    return {
        **position,
        "stop": routes.next_stop[legs.leg],
        "next_stop": following_stop,
        "delay": ((legs.end[:, -1] - due) // 1000).astype(np.int32),
    }


def _columns_at_start(legs: Legs, routes: Routes, time: Ints) -> Columns:
    position = _position_columns(legs, routes, routes.start[legs.leg], time)
    return {**position, "stop": routes.stop[legs.leg], "next_stop": routes.next_stop[legs.leg]}


def _position_columns(legs: Legs, routes: Routes, odometer: Floats, time: Ints) -> Columns:
    latitude, longitude, _ = routes.locate(legs.directed_route, odometer)
    return {
        "event_time": time,
        "vehicle": legs.vehicle,
        "way": legs.directed_route,
        "scheduled": legs.scheduled,
        "latitude": np.round(latitude, 6),
        "longitude": np.round(longitude, 6),
    }
