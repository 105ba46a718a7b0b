"""The vehicles: which trip each is on, leg after leg, and where it is at each of its seconds.

Trips of a vehicle are due at fixed intervals, so the one of any moment is known without those before it. A trip that ends too late
makes the next start late; a city is therefore started two trips back, by when such debts are paid.
"""

from dataclasses import dataclass, replace

import numpy as np

from millrace.ingest.connectors.simulator import chance, daytime, legs
from millrace.ingest.connectors.simulator.chance import Flags, Floats, Ints
from millrace.ingest.connectors.simulator.legs import PHASES, Drive, Legs
from millrace.ingest.connectors.simulator.routes import CONGESTION, DWELL, GRANTED, Routes

SECOND = 1000
_MOST_LEGS = 256
_TURN = 40_000
"""The least a vehicle stands between two trips, in milliseconds; `_LAYOVER` is what the timetable grants."""
_LAYOVER = 300_000
_ON_A_WHOLE_SECOND = 0.03
_TIMING_POINTS = 6
_EARLY = 150_000, 90_000
"""How far ahead of the timetable a stop is left, in milliseconds: at most, and at every `_TIMING_POINTS`th stop."""


@dataclass(frozen=True, eq=False)
class Samples:
    """What vehicles measured, once a second; within a vehicle in order of time."""

    time: Ints
    vehicle: Ints
    row: Ints
    """Of `legs`: the leg that the vehicle was on."""
    phase: Ints
    speed: Floats
    acceleration: Floats
    odometer: Floats
    legs: Legs

    def where(self, kept: Flags) -> "Samples":
        """Some of them."""
        names = ("time", "vehicle", "row", "phase", "speed", "acceleration", "odometer")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})


class Fleet:
    """`size` vehicles. Those of a low number are everywhere in the city, so a part of the fleet is a smaller city."""

    def __init__(self, routes: Routes, *, seed: int, size: int, hard_stops: float, start: int) -> None:
        self.routes, self.seed, self.size = routes, seed, size
        self._numbers = np.arange(size)
        self.route = _spread(routes, self._numbers)
        self._offset = _phases(seed, self._numbers)
        longest = np.maximum(routes.duration[::2], routes.duration[1::2])
        self._interval = ((longest * (1 + CONGESTION)).astype(np.int64) * SECOND + _LAYOVER)[self.route]
        self._due = (chance.uniform(seed, 10, self._numbers) * 2 * self._interval).astype(np.int64)
        self._hard = hard_stops * _seconds_for_each_fast_leg(routes) / 3600
        self._current = self._at(start)

    def drive(self, start: int, end: int) -> Samples:
        """What is measured from one whole second to another, in milliseconds. Called for one stretch after the other."""
        parts = [self._current.rows(self._numbers)]
        while len(over := np.flatnonzero(self._current.end[:, -1] <= end)):
            following = self._following(self._current.rows(over))
            self._current.replaced(over, following)
            parts.append(following)
        return self._measured(legs.joined(parts), start, end)

    def _at(self, start: int) -> Legs:
        """The legs under way at a time."""
        trip = (start - self._due) // self._interval - 2
        scheduled = self._due + trip * self._interval
        current = self._legs(self._numbers, trip, np.zeros_like(trip), scheduled - _TURN, scheduled)
        while len(over := np.flatnonzero(current.end[:, -1] <= start)):
            current.replaced(over, self._following(current.rows(over)))
        return current

    def _following(self, ended: Legs) -> Legs:
        last = ended.place + 1 == self.routes.legs[ended.way]
        interval = np.where(last, self._interval[ended.vehicle], 0)
        return self._legs(
            ended.vehicle,
            ended.trip + last,
            np.where(last, 0, ended.place + 1),
            ended.end[:, -1],
            ended.scheduled + interval,
        )

    def _legs(self, vehicle: Ints, trip: Ints, place: Ints, begin: Ints, scheduled: Ints) -> Legs:
        """Legs that begin with the arrival at a stop; everything about them follows from whose, which and when."""
        way = 2 * self.route[vehicle] + trip % 2
        leg = self.routes.first_leg[way] + place
        which = trip * _MOST_LEGS + place
        driven = legs.profile(self._drive(vehicle, trip, leg, which, begin))
        leaving, delay = self._departure(vehicle, leg, which, place, begin, scheduled)
        ends = (
            leaving[:, None]
            + np.concatenate([np.zeros((len(leg), 1)), np.cumsum(driven.seconds, axis=1)], axis=1) * SECOND
        )
        end = np.rint(ends).astype(np.int64)
        none = np.zeros((len(leg), 1))
        return Legs(
            vehicle, trip, way, place, leg, delay, scheduled, driven.hard,
            begin=np.concatenate([begin[:, None], end[:, :-1]], axis=1),
            end=end,
            speed=np.concatenate([none, driven.speed], axis=1),
            odometer=self.routes.start[leg][:, None] + np.concatenate([none, driven.distance], axis=1),
            acceleration=np.concatenate([none, driven.acceleration], axis=1),
        )  # fmt: skip

    def _drive(self, vehicle: Ints, trip: Ints, leg: Ints, which: Ints, begin: Ints) -> Drive:
        """Some trips are slow from end to end, so delays build up along the route."""
        first, second = chance.halves(chance.bits(self.seed, 11, vehicle, which))
        third, fourth = chance.halves(chance.bits(self.seed, 12, vehicle, which))
        fifth, sixth = chance.halves(chance.bits(self.seed, 13, vehicle, which))
        slow = 1 + 0.5 * (chance.uniform(self.seed, 14, vehicle, trip) ** 2 - 0.3)
        traffic = (1 + CONGESTION * daytime.load(begin)) * slow * chance.between(0.88, 1.15, first)
        return Drive(
            distance=self.routes.distance[leg],
            cruise=self.routes.cruise[leg] / traffic,
            interrupted=second < 0.35,
            hard=(sixth < self._hard) & _fast(self.routes)[leg],
            where=third,
            wait=chance.between(6, 34, fourth),
            pull=fourth,
            brake=fifth,
        )

    def _departure(
        self, vehicle: Ints, leg: Ints, which: Ints, place: Ints, begin: Ints, scheduled: Ints
    ) -> tuple[Ints, Ints]:
        """When the stop is left, in milliseconds, and how many seconds behind the timetable that is."""
        few, many = chance.halves(chance.bits(self.seed, 15, vehicle, which))
        seconds = (0.25 + few + 1.5 * many**4) * DWELL * (0.8 + 0.5 * daytime.load(begin))
        due = scheduled + (self.routes.due[leg] * (1 + GRANTED * daytime.load(scheduled)) * SECOND).astype(
            np.int64
        )
        ready = begin + np.where(place == 0, _TURN, (seconds * SECOND).astype(np.int64))
        early = np.where(place == 0, 0, np.where(place % _TIMING_POINTS == 0, _EARLY[1], _EARLY[0]))
        leaving = np.maximum(ready, due - early)
        return leaving, (leaving - due) // SECOND

    def _measured(self, under_way: Legs, start: int, end: int) -> Samples:
        """One row for each second that a vehicle spends in a phase."""
        offset = self._offset[under_way.vehicle][:, None]
        low = np.maximum(-((offset - under_way.begin) // SECOND), start // SECOND)
        high = np.minimum(-((offset - under_way.end) // SECOND), end // SECOND)
        counts = np.maximum(high - low, 0).ravel()
        rows = np.repeat(np.arange(len(counts)), counts)
        second = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + low.ravel()[rows]
        row = rows // PHASES
        time = second * SECOND + offset.ravel()[row]
        passed = (time - under_way.begin.ravel()[rows]) / SECOND
        speed, acceleration = under_way.speed.ravel()[rows], under_way.acceleration.ravel()[rows]
        return Samples(
            time=time,
            vehicle=under_way.vehicle[row],
            row=row,
            phase=rows % PHASES,
            speed=np.maximum(speed + acceleration * passed, 0.0),
            acceleration=acceleration,
            odometer=under_way.odometer.ravel()[rows] + (speed + acceleration * passed / 2) * passed,
            legs=under_way,
        )


def _spread(routes: Routes, numbers: Ints) -> Ints:
    """The route of each vehicle: long routes get more, and any first few are spread over the city."""
    weight = np.cumsum(np.maximum(routes.length[::2], 6_000))
    return np.searchsorted(weight / weight[-1], numbers * 0.6180339887498949 % 1.0, side="right")


def _phases(seed: int, numbers: Ints) -> Ints:
    """When in each second a vehicle measures; a few do so on the whole second."""
    whole, part = chance.halves(chance.bits(seed, 16, numbers))
    return np.where(whole < _ON_A_WHOLE_SECOND, 0, (part * SECOND).astype(np.int64))


def _fast(routes: Routes) -> Flags:
    """The legs on which a driver may come to brake hard."""
    return np.asarray((routes.cruise > legs.HARD_FROM) & (routes.distance > 500))


def _seconds_for_each_fast_leg(routes: Routes) -> float:
    """How long the fleet drives until one vehicle has passed one of them."""
    round_trips = (routes.duration * (1 + CONGESTION) + _LAYOVER / SECOND).sum()
    return float(round_trips / max(1, int(_fast(routes).sum())))
