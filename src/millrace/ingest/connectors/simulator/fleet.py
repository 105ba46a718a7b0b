"""The vehicles: the trip of each, its legs, and its position at every second.

The trips of a vehicle are scheduled at fixed intervals, so the trip at any time is known without those before
it. A trip that ends late makes the next one start late. A city therefore starts two trips in the past, which
is enough for such delays to fade.
"""

from dataclasses import dataclass, replace

import numpy as np

from millrace.ingest.connectors.simulator import chance, daytime, legs
from millrace.ingest.connectors.simulator.chance import Flags, Floats, Ints
from millrace.ingest.connectors.simulator.legs import PHASES, Drive, Legs
from millrace.ingest.connectors.simulator.routes import (
    CONGESTION,
    DWELL_SECONDS,
    SCHEDULED_CONGESTION,
    Routes,
)

SECOND = 1000
_MAX_LEGS = 256
_MIN_LAYOVER = 40_000
"""The shortest stand between two trips, in milliseconds; `_LAYOVER` is that of the timetable."""
_SCHEDULED_LAYOVER = 300_000
_WHOLE_SECOND_SHARE = 0.03
_TIMING_POINT_EVERY = 6
_MAX_EARLINESS = 150_000, 90_000
"""Milliseconds that a departure may be early: at most, and at every `_TIMING_POINTS`th stop."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Measurements of vehicles, one per second; those of one vehicle are in order of time."""

    time: Ints
    vehicle: Ints
    row: Ints
    """The row of the vehicle's leg in `legs`."""
    phase: Ints
    speed: Floats
    acceleration: Floats
    odometer: Floats
    legs: Legs

    def filter(self, mask: Flags) -> "Samples":
        """The measurements at these rows."""
        names = ("time", "vehicle", "row", "phase", "speed", "acceleration", "odometer")
        return replace(self, **{name: getattr(self, name)[mask] for name in names})


class Fleet:
    """`size` vehicles. Those with low numbers are all over the city, so a part of the fleet is a smaller
    city.
    """

    def __init__(self, routes: Routes, *, seed: int, size: int, hard_stops: float, start: int) -> None:
        self.routes, self.seed, self.size = routes, seed, size
        self._numbers = np.arange(size)
        self.route = _assign_routes(routes, self._numbers)
        self._offset = _measuring_offsets(seed, self._numbers)
        longest = np.maximum(routes.duration[::2], routes.duration[1::2])
        self._trip_interval = ((longest * (1 + CONGESTION)).astype(np.int64) * SECOND + _SCHEDULED_LAYOVER)[
            self.route
        ]
        self._first_trip = (chance.uniform(seed, 10, self._numbers) * 2 * self._trip_interval).astype(
            np.int64
        )
        self._hard_stop_probability = hard_stops * _seconds_for_each_fast_leg(routes) / 3600
        self._current = self._legs_at(start)

    def drive(self, start: int, end: int) -> Samples:
        """The measurements between two whole seconds, in milliseconds. Called for consecutive stretches."""
        parts = [self._current.select(self._numbers)]
        while len(ended := np.flatnonzero(self._current.end[:, -1] <= end)):
            following = self._next_legs(self._current.select(ended))
            self._current.replace_rows(ended, following)
            parts.append(following)
        return self._measure(legs.concat_legs(parts), start, end)

    def _legs_at(self, start: int) -> Legs:
        """The legs that vehicles are on at a time."""
        trip = (start - self._first_trip) // self._trip_interval - 2
        scheduled = self._first_trip + trip * self._trip_interval
        current = self._build_legs(
            self._numbers, trip, np.zeros_like(trip), scheduled - _MIN_LAYOVER, scheduled
        )
        while len(ended := np.flatnonzero(current.end[:, -1] <= start)):
            current.replace_rows(ended, self._next_legs(current.select(ended)))
        return current

    def _next_legs(self, ended: Legs) -> Legs:
        is_last = ended.leg_index + 1 == self.routes.legs[ended.directed_route]
        interval = np.where(is_last, self._trip_interval[ended.vehicle], 0)
        return self._build_legs(
            ended.vehicle,
            ended.trip + is_last,
            np.where(is_last, 0, ended.leg_index + 1),
            ended.end[:, -1],
            ended.scheduled + interval,
        )

    def _build_legs(self, vehicle: Ints, trip: Ints, leg_index: Ints, begin: Ints, scheduled: Ints) -> Legs:
        """Legs that begin with the arrival at a stop. They follow from vehicle, leg number and time alone."""
        directed_route = 2 * self.route[vehicle] + trip % 2
        leg = self.routes.first_leg[directed_route] + leg_index
        draw_number = trip * _MAX_LEGS + leg_index
        drive_profile = legs.build_profile(self._draw_drive(vehicle, trip, leg, draw_number, begin))
        departure, delay = self._departure(vehicle, leg, draw_number, leg_index, begin, scheduled)
        ends = (
            departure[:, None]
            + np.concatenate([np.zeros((len(leg), 1)), np.cumsum(drive_profile.seconds, axis=1)], axis=1)
            * SECOND
        )
        end = np.rint(ends).astype(np.int64)
        zeros = np.zeros((len(leg), 1))
        return Legs(
            vehicle, trip, directed_route, leg_index, leg, delay, scheduled, drive_profile.has_hard_brake,
            begin=np.concatenate([begin[:, None], end[:, :-1]], axis=1),
            end=end,
            speed=np.concatenate([zeros, drive_profile.speed], axis=1),
            odometer=(
                self.routes.start[leg][:, None] + np.concatenate([zeros, drive_profile.distance], axis=1)
            ),
            acceleration=np.concatenate([zeros, drive_profile.acceleration], axis=1),
        )  # fmt: skip

    def _draw_drive(self, vehicle: Ints, trip: Ints, leg: Ints, draw_number: Ints, begin: Ints) -> Drive:
        """The slowness of whole trips, because of which delays build up along the route."""
        first, second = chance.split_uniform(chance.random_bits(self.seed, 11, vehicle, draw_number))
        third, fourth = chance.split_uniform(chance.random_bits(self.seed, 12, vehicle, draw_number))
        fifth, sixth = chance.split_uniform(chance.random_bits(self.seed, 13, vehicle, draw_number))
        trip_slowness = 1 + 0.5 * (chance.uniform(self.seed, 14, vehicle, trip) ** 2 - 0.3)
        traffic = (
            (1 + CONGESTION * daytime.traffic_load(begin))
            * trip_slowness
            * chance.interpolate(0.88, 1.15, first)
        )
        return Drive(
            distance=self.routes.distance[leg],
            cruise=self.routes.cruise[leg] / traffic,
            is_interrupted=second < 0.35,
            wants_hard_brake=(sixth < self._hard_stop_probability) & _is_fast_leg(self.routes)[leg],
            interruption_draw=third,
            wait=chance.interpolate(6, 34, fourth),
            acceleration_draw=fourth,
            braking_draw=fifth,
        )

    def _departure(
        self, vehicle: Ints, leg: Ints, draw_number: Ints, leg_index: Ints, begin: Ints, scheduled: Ints
    ) -> tuple[Ints, Ints]:
        """The time of departure in milliseconds, and its delay behind the timetable in seconds."""
        base_draw, crowd_draw = chance.split_uniform(chance.random_bits(self.seed, 15, vehicle, draw_number))
        seconds = (
            (0.25 + base_draw + 1.5 * crowd_draw**4)
            * DWELL_SECONDS
            * (0.8 + 0.5 * daytime.traffic_load(begin))
        )
        due = scheduled + (
            self.routes.departure_offset[leg]
            * (1 + SCHEDULED_CONGESTION * daytime.traffic_load(scheduled))
            * SECOND
        ).astype(np.int64)
        ready = begin + np.where(leg_index == 0, _MIN_LAYOVER, (seconds * SECOND).astype(np.int64))
        max_earliness = np.where(
            leg_index == 0,
            0,
            np.where(leg_index % _TIMING_POINT_EVERY == 0, _MAX_EARLINESS[1], _MAX_EARLINESS[0]),
        )
        departure = np.maximum(ready, due - max_earliness)
        return departure, (departure - due) // SECOND

    def _measure(self, under_way: Legs, start: int, end: int) -> Samples:
        """One row per second that a vehicle spends in a phase."""
        offset = self._offset[under_way.vehicle][:, None]
        first_second = np.maximum(-((offset - under_way.begin) // SECOND), start // SECOND)
        end_second = np.minimum(-((offset - under_way.end) // SECOND), end // SECOND)
        counts = np.maximum(end_second - first_second, 0).ravel()
        rows = np.repeat(np.arange(len(counts)), counts)
        second = (
            np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + first_second.ravel()[rows]
        )
        row = rows // PHASES
        time = second * SECOND + offset.ravel()[row]
        elapsed = (time - under_way.begin.ravel()[rows]) / SECOND
        speed, acceleration = under_way.speed.ravel()[rows], under_way.acceleration.ravel()[rows]
        return Samples(
            time=time,
            vehicle=under_way.vehicle[row],
            row=row,
            phase=rows % PHASES,
            speed=np.maximum(speed + acceleration * elapsed, 0.0),
            acceleration=acceleration,
            odometer=under_way.odometer.ravel()[rows] + (speed + acceleration * elapsed / 2) * elapsed,
            legs=under_way,
        )


def _assign_routes(routes: Routes, numbers: Ints) -> Ints:
    """The route of each vehicle. Long routes get more vehicles; the first vehicles are spread over the
    city.
    """
    weight = np.cumsum(np.maximum(routes.length[::2], 6_000))
    return np.searchsorted(weight / weight[-1], numbers * 0.6180339887498949 % 1.0, side="right")


def _measuring_offsets(seed: int, numbers: Ints) -> Ints:
    """The millisecond of each second at which a vehicle measures; for a few, the whole second."""
    whole, part = chance.split_uniform(chance.random_bits(seed, 16, numbers))
    return np.where(whole < _WHOLE_SECOND_SHARE, 0, (part * SECOND).astype(np.int64))


def _is_fast_leg(routes: Routes) -> Flags:
    """The legs on which a driver may brake hard."""
    return np.asarray((routes.cruise > legs.MIN_HARD_BRAKE_SPEED) & (routes.distance > 500))


def _seconds_for_each_fast_leg(routes: Routes) -> float:
    """How long the fleet drives, on average, until one vehicle passes one of these legs."""
    round_trips = (routes.duration * (1 + CONGESTION) + _SCHEDULED_LAYOVER / SECOND).sum()
    return float(round_trips / max(1, int(_is_fast_leg(routes).sum())))
