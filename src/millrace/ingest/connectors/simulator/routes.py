"""Routes over the streets. Each runs in both directions, with points, stops and a timetable."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from millrace.ingest.connectors.simulator import chance, streets
from millrace.ingest.connectors.simulator.chance import Floats, Ints
from millrace.ingest.connectors.simulator.streets import Streets

POINT_DISTANCE = 20.0
"""Metres between two points of a way. It is constant, so that an odometer gives the point by division."""
CONGESTION = 0.35
"""How much slower traffic is in the rush hour than at night."""
SCHEDULED_CONGESTION = 0.26
"""How much more time the timetable grants in the rush hour. It is too little, so delays are greatest then."""
DWELL_SECONDS = 14.0
"""Typical seconds at a stop."""

_RADIAL_ROUTES, _SUBURB_ROUTES, _INNER_ROUTES = 64, 36, 20
_HUBS = (60.1712, 24.9440), (60.1690, 24.9310), (60.1800, 24.9500), (60.1990, 24.9340)
_SUBURBS = (
    (60.176, 24.805), (60.219, 24.813), (60.210, 25.080), (60.251, 25.010),
    (60.292, 25.040), (60.262, 24.855), (60.205, 24.656), (60.238, 25.085),
)  # fmt: skip
_MIN_CROSSINGS = 6
"""The least number of crossings of a route."""
_LONG_BLOCK = 900.0
_MIN_STOP_DISTANCE = 150.0


@dataclass(frozen=True, eq=False)
class Routes:
    """Ways and legs, numbered through: way 2r and 2r + 1 are the two directions of route r; legs of a way
    follow each other.
    """

    latitude: Floats
    """By point. The points of a way begin at `first_point`."""
    longitude: Floats
    heading: Floats
    """From each point to the next, in degrees."""
    first_point: Ints
    length: Floats
    first_leg: Ints
    legs: Ints
    """The number of legs, by way."""
    distance: Floats
    """Metres, by leg."""
    start: Floats
    """Metres from the start of the way to the leg."""
    cruise: Floats
    """Metres per second on empty streets, by leg."""
    departure_offset: Floats
    """Seconds from the first stop until the departure from the stop where the leg begins, when streets are
    empty."""
    arrival_offset: Floats
    """The same until the arrival at the stop where the leg ends."""
    duration: Floats
    """Seconds from the first stop to the last when streets are empty, by way."""
    stop: Ints
    """The number of the stop at which the leg begins."""
    next_stop: Ints
    stops: int

    def __len__(self) -> int:
        return len(self.length) // 2

    def locate(self, directed_route: Ints, odometer: Floats) -> tuple[Floats, Floats, Floats]:
        """Latitude, longitude and heading at positions on ways."""
        point_position = np.clip(odometer, 0, self.length[directed_route]) / POINT_DISTANCE
        point_index = point_position.astype(np.int64)
        point, share = self.first_point[directed_route] + point_index, point_position - point_index
        latitude, longitude = (
            degrees[point] + (degrees[point + 1] - degrees[point]) * share
            for degrees in (self.latitude, self.longitude)
        )
        return latitude, longitude, self.heading[point]


@dataclass
class _DirectedRoute:
    latitude: Floats
    longitude: Floats
    heading: Floats
    stop_distances: Floats
    """Metres along the way, of each stop."""
    cruise: Floats
    departure_offset: Floats
    stops: list[int]


@lru_cache(maxsize=4)
def build(seed: int) -> Routes:
    """The routes of the city of this seed."""
    stop_numbers: dict[tuple[int, int, int], int] = {}
    directed_routes: list[_DirectedRoute] = []
    network = streets.build(seed)
    for path in _paths(network, seed):
        directed_routes += [
            _build_directed_route(network, path, stop_numbers, direction=1),
            _build_directed_route(network, path[::-1], stop_numbers, direction=2),
        ]
    return _number_through(directed_routes, stop_count=len(stop_numbers))


def _number_through(directed_routes: list[_DirectedRoute], *, stop_count: int) -> Routes:
    """Directed routes as arrays, with points and legs of one route after those of another."""
    points = [len(route.latitude) for route in directed_routes]
    legs = [len(route.stop_distances) - 1 for route in directed_routes]
    arrivals = [
        np.append(route.departure_offset[1:-1] - DWELL_SECONDS, route.departure_offset[-1])
        for route in directed_routes
    ]
    return Routes(
        latitude=np.concatenate([route.latitude for route in directed_routes]),
        longitude=np.concatenate([route.longitude for route in directed_routes]),
        heading=np.concatenate([route.heading for route in directed_routes]),
        first_point=np.cumsum([0, *points])[:-1],
        length=np.array([route.stop_distances[-1] for route in directed_routes]),
        first_leg=np.cumsum([0, *legs])[:-1],
        legs=np.array(legs),
        distance=np.concatenate([np.diff(route.stop_distances) for route in directed_routes]),
        start=np.concatenate([route.stop_distances[:-1] for route in directed_routes]),
        cruise=np.concatenate([route.cruise for route in directed_routes]),
        departure_offset=np.concatenate([route.departure_offset[:-1] for route in directed_routes]),
        arrival_offset=np.concatenate(arrivals),
        duration=np.array([route.departure_offset[-1] for route in directed_routes]),
        stop=np.array([stop for route in directed_routes for stop in route.stops[:-1]]),
        next_stop=np.array([stop for route in directed_routes for stop in route.stops[1:]]),
        stops=stop_count,
    )


def _paths(network: Streets, seed: int) -> Iterator[list[int]]:
    """Chooses the ends of routes: suburb to centre, suburb to suburb, and within the centre."""
    hubs, suburbs = (
        [network.nearest(*map(float, streets.to_metres(*place))) for place in places]
        for places in (_HUBS, _SUBURBS)
    )
    radius = np.hypot(network.east, network.north)
    outer = np.flatnonzero(radius > 5_000)
    inner = np.flatnonzero((radius > 1_800) & (radius < 5_000))
    ends, others = (
        chance.uniform(seed, purpose, np.arange(_RADIAL_ROUTES + _SUBURB_ROUTES + _INNER_ROUTES))
        for purpose in (3, 4)
    )
    for number, (end, other) in enumerate(zip(ends, others, strict=True)):
        if number < _RADIAL_ROUTES:
            pair = int(outer[int(end * len(outer))]), hubs[int(other * len(hubs))]
        elif number < _RADIAL_ROUTES + _SUBURB_ROUTES:
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
        if len(path) >= _MIN_CROSSINGS:
            yield path


def _build_directed_route(
    network: Streets, path: list[int], stop_numbers: dict[tuple[int, int, int], int], *, direction: int
) -> _DirectedRoute:
    east, north = _round_corners(network.east[path]), _round_corners(network.north[path])
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(east), np.diff(north)))])
    length = float(along[-1])
    marks = np.arange(int(length // POINT_DISTANCE) + 2) * POINT_DISTANCE
    east, north = np.interp(marks, along, east), np.interp(marks, along, north)
    heading = np.degrees(np.arctan2(np.diff(east), np.diff(north))) % 360
    if marks[-2] >= length:
        heading[-1] = heading[-2]
    stop_distances, stops = _place_stops(network, path, east, north, length, stop_numbers, direction)
    distance, middle = np.diff(stop_distances), (stop_distances[:-1] + stop_distances[1:]) / 2
    radius = np.hypot(np.interp(middle, marks, east), np.interp(middle, marks, north))
    cruise = np.clip(10.0 + 0.0012 * radius, 10.0, 19.0) * np.clip(distance / 600, 0.85, 1.4)
    latitude, longitude = streets.to_degrees(east, north)
    departure_offset = np.concatenate(
        [[0.0], np.cumsum(distance / cruise + 1.17 * cruise + 4.0 + DWELL_SECONDS)]
    )
    departure_offset[-1] -= DWELL_SECONDS
    return _DirectedRoute(
        latitude, longitude, np.append(heading, heading[-1]), stop_distances, cruise, departure_offset, stops
    )


def _round_corners(line: Floats) -> Floats:
    """Cuts corners twice, so that streets bend."""
    for _ in range(2):
        near, far = 0.75 * line[:-1] + 0.25 * line[1:], 0.25 * line[:-1] + 0.75 * line[1:]
        line = np.concatenate([line[:1], np.column_stack([near, far]).ravel(), line[-1:]])
    return line


def _place_stops(
    network: Streets,
    path: list[int],
    east: Floats,
    north: Floats,
    length: float,
    stop_numbers: dict[tuple[int, int, int], int],
    direction: int,
) -> tuple[Floats, list[int]]:
    """A stop at each crossing and in the middle of long blocks. Ways over the same street share stops."""
    candidates: list[tuple[int, int, float, float]] = []
    for a, b in pairwise(path):
        candidates.append((a, a, network.east[a], network.north[a]))
        if np.hypot(network.east[a] - network.east[b], network.north[a] - network.north[b]) > _LONG_BLOCK:
            candidates.append(
                (
                    *sorted((a, b)),
                    (network.east[a] + network.east[b]) / 2,
                    (network.north[a] + network.north[b]) / 2,
                )
            )
    stop_distances, stops = [0.0], [stop_numbers.setdefault((path[0], path[0], direction), len(stop_numbers))]
    for a, b, x, y in candidates[1:]:
        distance = float(np.argmin(np.hypot(east - x, north - y))) * POINT_DISTANCE
        if stop_distances[-1] + _MIN_STOP_DISTANCE < distance < length - _MIN_STOP_DISTANCE:
            stop_distances.append(distance)
            stops.append(stop_numbers.setdefault((a, b, direction), len(stop_numbers)))
    return np.array([*stop_distances, length]), [
        *stops,
        stop_numbers.setdefault((path[-1], path[-1], direction), len(stop_numbers)),
    ]
