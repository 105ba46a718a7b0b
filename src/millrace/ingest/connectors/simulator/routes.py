"""Routes over the streets, each in both directions: where a way leads, where its stops are, and how long it should take."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from millrace.ingest.connectors.simulator import chance, streets
from millrace.ingest.connectors.simulator.chance import Floats, Ints
from millrace.ingest.connectors.simulator.streets import Streets

STEP = 20.0
"""Metres between two points of a way, so that the place at an odometer is found by division."""
CONGESTION = 0.35
"""How much slower one drives in the rush hour than in the dead of night."""
GRANTED = 0.26
"""How much more time the timetable grants in the rush hour: too little, so delays are greatest then."""
DWELL = 14.0
"""Seconds at a stop, typically."""

_RADIAL, _ACROSS, _INNER = 64, 36, 20
_HUBS = (60.1712, 24.9440), (60.1690, 24.9310), (60.1800, 24.9500), (60.1990, 24.9340)
_SUBURBS = (60.176, 24.805), (60.219, 24.813), (60.210, 25.080), (60.251, 25.010), (60.292, 25.040), (60.262, 24.855), (60.205, 24.656), (60.238, 25.085)  # fmt: skip
_LEAST = 6
"""Crossings of a route; shorter ones are not worth a bus."""
_LONG_BLOCK = 900.0
_NEAREST_STOPS = 150.0


@dataclass(frozen=True, eq=False)
class Routes:
    """Ways and legs, numbered through: way 2r and 2r + 1 are the two directions of route r; legs of a way follow each other."""

    latitude: Floats
    """Of each point; a way's points begin at `first_point`."""
    longitude: Floats
    heading: Floats
    """From each point to the next, in degrees."""
    first_point: Ints
    length: Floats
    first_leg: Ints
    legs: Ints
    """How many, by way."""
    distance: Floats
    """Metres, by leg."""
    start: Floats
    """Where the leg begins on its way, in metres."""
    cruise: Floats
    """Metres per second that one drives here when streets are empty."""
    due: Floats
    """Seconds from the first stop until the departure from the stop where the leg begins, when streets are empty."""
    arrives: Floats
    """The same until the arrival at the stop where the leg ends."""
    duration: Floats
    """Seconds from the first stop to the last when streets are empty, by way."""
    stop: Ints
    """Number of the stop where the leg begins."""
    next_stop: Ints
    stops: int

    def __len__(self) -> int:
        return len(self.length) // 2

    def where(self, way: Ints, odometer: Floats) -> tuple[Floats, Floats, Floats]:
        """Latitude, longitude and heading of places on ways."""
        place = np.clip(odometer, 0, self.length[way]) / STEP
        before = place.astype(np.int64)
        point, share = self.first_point[way] + before, place - before
        latitude, longitude = (
            degrees[point] + (degrees[point + 1] - degrees[point]) * share
            for degrees in (self.latitude, self.longitude)
        )
        return latitude, longitude, self.heading[point]


@dataclass
class _Way:
    latitude: Floats
    longitude: Floats
    heading: Floats
    places: Floats
    """Metres along the way, of each stop."""
    cruise: Floats
    due: Floats
    stops: list[int]


@lru_cache(maxsize=4)
def build(seed: int) -> Routes:
    """The routes of the city of this seed."""
    numbers: dict[tuple[int, int, int], int] = {}
    ways: list[_Way] = []
    network = streets.build(seed)
    for path in _paths(network, seed):
        ways += [_way(network, path, numbers, direction=1), _way(network, path[::-1], numbers, direction=2)]
    points, legs = [len(way.latitude) for way in ways], [len(way.places) - 1 for way in ways]
    return Routes(
        latitude=np.concatenate([way.latitude for way in ways]),
        longitude=np.concatenate([way.longitude for way in ways]),
        heading=np.concatenate([way.heading for way in ways]),
        first_point=np.cumsum([0, *points])[:-1],
        length=np.array([way.places[-1] for way in ways]),
        first_leg=np.cumsum([0, *legs])[:-1],
        legs=np.array(legs),
        distance=np.concatenate([np.diff(way.places) for way in ways]),
        start=np.concatenate([way.places[:-1] for way in ways]),
        cruise=np.concatenate([way.cruise for way in ways]),
        due=np.concatenate([way.due[:-1] for way in ways]),
        arrives=np.concatenate([np.append(way.due[1:-1] - DWELL, way.due[-1]) for way in ways]),
        duration=np.array([way.due[-1] for way in ways]),
        stop=np.array([stop for way in ways for stop in way.stops[:-1]]),
        next_stop=np.array([stop for way in ways for stop in way.stops[1:]]),
        stops=len(numbers),
    )


def _paths(network: Streets, seed: int) -> Iterator[list[int]]:
    """From the suburbs to the centre, between suburbs, and within the centre."""
    hubs, suburbs = (
        [network.nearest(*map(float, streets.metres(*place))) for place in places]
        for places in (_HUBS, _SUBURBS)
    )
    away = np.hypot(network.east, network.north)
    outer = np.flatnonzero(away > 5_000)
    inner = np.flatnonzero((away > 1_800) & (away < 5_000))
    ends, others = (chance.uniform(seed, about, np.arange(_RADIAL + _ACROSS + _INNER)) for about in (3, 4))
    for number, (end, other) in enumerate(zip(ends, others, strict=True)):
        if number < _RADIAL:
            pair = int(outer[int(end * len(outer))]), hubs[int(other * len(hubs))]
        elif number < _RADIAL + _ACROSS:
            pair = int(outer[int(end * len(outer))]), suburbs[int(other * len(suburbs))]
        else:
            pair = int(inner[int(end * len(inner))]), int(inner[int(other * len(inner))])
        if (
            np.hypot(
                network.east[pair[0]] - network.east[pair[1]], network.north[pair[0]] - network.north[pair[1]]
            )
            < 2_500
        ):
            pair = pair[0], hubs[number % len(hubs)]
        path = network.path(*pair)
        if len(path) >= _LEAST:
            yield path


def _way(
    network: Streets, path: list[int], numbers: dict[tuple[int, int, int], int], *, direction: int
) -> _Way:
    east, north = _rounded(network.east[path]), _rounded(network.north[path])
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(east), np.diff(north)))])
    length = float(along[-1])
    marks = np.arange(int(length // STEP) + 2) * STEP
    east, north = np.interp(marks, along, east), np.interp(marks, along, north)
    heading = np.degrees(np.arctan2(np.diff(east), np.diff(north))) % 360
    if marks[-2] >= length:
        heading[-1] = heading[-2]
    places, stops = _stops(network, path, east, north, length, numbers, direction)
    distance, middle = np.diff(places), (places[:-1] + places[1:]) / 2
    away = np.hypot(np.interp(middle, marks, east), np.interp(middle, marks, north))
    cruise = np.clip(10.0 + 0.0012 * away, 10.0, 19.0) * np.clip(distance / 600, 0.85, 1.4)
    latitude, longitude = streets.degrees(east, north)
    due = np.concatenate([[0.0], np.cumsum(distance / cruise + 1.17 * cruise + 4.0 + DWELL)])
    due[-1] -= DWELL
    return _Way(latitude, longitude, np.append(heading, heading[-1]), places, cruise, due, stops)


def _rounded(line: Floats) -> Floats:
    """Corners cut twice, as streets bend."""
    for _ in range(2):
        near, far = 0.75 * line[:-1] + 0.25 * line[1:], 0.25 * line[:-1] + 0.75 * line[1:]
        line = np.concatenate([line[:1], np.column_stack([near, far]).ravel(), line[-1:]])
    return line


def _stops(
    network: Streets,
    path: list[int],
    east: Floats,
    north: Floats,
    length: float,
    numbers: dict[tuple[int, int, int], int],
    direction: int,
) -> tuple[Floats, list[int]]:
    """A stop at each crossing and in the middle of long blocks; ways over the same street share them."""
    wanted: list[tuple[int, int, float, float]] = []
    for a, b in pairwise(path):
        wanted.append((a, a, network.east[a], network.north[a]))
        if np.hypot(network.east[a] - network.east[b], network.north[a] - network.north[b]) > _LONG_BLOCK:
            wanted.append(
                (
                    *sorted((a, b)),
                    (network.east[a] + network.east[b]) / 2,
                    (network.north[a] + network.north[b]) / 2,
                )
            )
    places, stops = [0.0], [numbers.setdefault((path[0], path[0], direction), len(numbers))]
    for a, b, x, y in wanted[1:]:
        place = float(np.argmin(np.hypot(east - x, north - y))) * STEP
        if places[-1] + _NEAREST_STOPS < place < length - _NEAREST_STOPS:
            places.append(place)
            stops.append(numbers.setdefault((a, b, direction), len(numbers)))
    return np.array([*places, length]), [
        *stops,
        numbers.setdefault((path[-1], path[-1], direction), len(numbers)),
    ]
