"""A street network from the seed: crossings, denser towards the centre, and streets between them, all on
land.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from millrace.ingest.connectors.simulator import chance
from millrace.ingest.connectors.simulator.chance import Flags, Floats, Ints

CENTRE = 60.1775, 24.9450
"""Latitude and longitude of the middle of the city."""
_METRES_NORTH = 111_300.0
_METRES_EAST = _METRES_NORTH * float(np.cos(np.radians(CENTRE[0])))

_LAND = np.array([
    (24.58, 60.180), (24.66, 60.166), (24.70, 60.156), (24.75, 60.156), (24.79, 60.159),
    (24.812, 60.166), (24.812, 60.194), (24.825, 60.205), (24.838, 60.212), (24.856, 60.212),
    (24.868, 60.205), (24.876, 60.198), (24.898, 60.194), (24.908, 60.187), (24.922, 60.181),
    (24.914, 60.175), (24.911, 60.165), (24.917, 60.158), (24.926, 60.155), (24.953, 60.155),
    (24.957, 60.160), (24.951, 60.167), (24.960, 60.171), (24.960, 60.178), (24.970, 60.184),
    (24.981, 60.189), (24.979, 60.196), (24.968, 60.207), (24.975, 60.220), (25.000, 60.224),
    (25.014, 60.216), (25.031, 60.207), (25.032, 60.194), (25.040, 60.187), (25.072, 60.191),
    (25.078, 60.198), (25.086, 60.205), (25.100, 60.206), (25.112, 60.200), (25.132, 60.200),
    (25.142, 60.207), (25.170, 60.210), (25.174, 60.226), (25.182, 60.242), (25.200, 60.262),
    (25.200, 60.310), (24.58, 60.310),
])  # fmt: skip
"""The outline of the land with streets, as (longitude, latitude); it keeps away from the shore."""

_CROSSING_COUNT = 1_300
_CANDIDATE_COUNT = 14_000
_NEIGHBOUR_COUNT = 10
_REUSE_DISCOUNT = 0.75
"""The factor on a street's cost after a route uses it, so that routes share main streets."""


@dataclass(frozen=True, eq=False)
class Streets:
    """Crossings and the streets between them. Every crossing can be reached from every other."""

    east: Floats
    """Metres from the centre."""
    north: Floats
    neighbours: list[dict[int, float]]
    """For each crossing its neighbours with the cost of the street, at first its length in metres."""

    def path(self, start: int, end: int) -> list[int]:
        """The cheapest way; it becomes cheaper for those that follow."""
        previous, done = {start: start}, set()
        costs = {start: 0.0}
        queue = [(0.0, start)]
        while queue:
            cost, crossing = heapq.heappop(queue)
            if crossing == end:
                break
            if crossing in done:
                continue
            done.add(crossing)
            for neighbour, step_cost in self.neighbours[crossing].items():
                if cost + step_cost < costs.get(neighbour, np.inf):
                    costs[neighbour], previous[neighbour] = cost + step_cost, crossing
                    heapq.heappush(queue, (cost + step_cost, neighbour))
        path = [end]
        while path[-1] != start:
            path.append(previous[path[-1]])
        self._discount(path)
        return path[::-1]

    def _discount(self, path: list[int]) -> None:
        for a, b in pairwise(path):
            min_cost = _REUSE_DISCOUNT**2 * float(
                np.hypot(self.east[a] - self.east[b], self.north[a] - self.north[b])
            )
            self.neighbours[a][b] = self.neighbours[b][a] = max(
                min_cost, self.neighbours[a][b] * _REUSE_DISCOUNT
            )

    def nearest(self, east: float, north: float) -> int:
        """The crossing closest to a position."""
        return int(np.argmin(np.hypot(self.east - east, self.north - north)))


def to_degrees(east: Floats, north: Floats) -> tuple[Floats, Floats]:
    """Latitude and longitude of positions in metres from the centre."""
    return CENTRE[0] + north / _METRES_NORTH, CENTRE[1] + east / _METRES_EAST


def to_metres(latitude: Floats | float, longitude: Floats | float) -> tuple[Floats, Floats]:
    """Metres from the centre to the east and to the north."""
    return np.asarray((longitude - CENTRE[1]) * _METRES_EAST), np.asarray(
        (latitude - CENTRE[0]) * _METRES_NORTH
    )


def on_land(east: Floats, north: Floats) -> Flags:
    """Whether positions are inside the outline."""
    latitude, longitude = to_degrees(east, north)
    inside = np.zeros(latitude.shape, np.bool_)
    for (x0, y0), (x1, y1) in zip(_LAND, np.roll(_LAND, 1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > latitude) != (y1 > latitude)) & (
                longitude < (x1 - x0) * (latitude - y0) / (y1 - y0) + x0
            )
    return inside


def build(seed: int) -> Streets:
    """The streets of the city of this seed."""
    east, north = _place_crossings(seed)
    pairs = _connect_crossings(east, north)
    kept = _find_reachable(len(east), pairs, start=int(np.argmin(np.hypot(east, north))))
    number = {old: new for new, old in enumerate(kept)}
    neighbours: list[dict[int, float]] = [{} for _ in kept]
    for a, b in pairs:
        if a in number:
            length = float(np.hypot(east[a] - east[b], north[a] - north[b]))
            neighbours[number[a]][number[b]] = neighbours[number[b]][number[a]] = length
    return Streets(east[kept], north[kept], neighbours)


def _place_crossings(seed: int) -> tuple[Floats, Floats]:
    """Positions on land that keep a distance: 300 m in the centre, 620 m in the suburbs."""
    tries = np.arange(_CANDIDATE_COUNT)
    angle = 2 * np.pi * chance.uniform(seed, 1, tries)
    radius = 19_000 * chance.uniform(seed, 2, tries) ** 0.8
    east, north = radius * np.cos(angle), radius * np.sin(angle)
    is_land = on_land(east, north)
    east, north, radius = east[is_land], north[is_land], radius[is_land]
    min_distance = np.clip(300 + 0.028 * radius, 0, 620)
    kept: list[int] = []
    for candidate in range(len(east)):
        if len(kept) == _CROSSING_COUNT:
            break
        if (
            not kept
            or np.min(np.hypot(east[kept] - east[candidate], north[kept] - north[candidate]))
            > min_distance[candidate]
        ):
            kept.append(candidate)
    return east[kept], north[kept]


def _connect_crossings(east: Floats, north: Floats) -> list[tuple[int, int]]:
    """Joins two crossings if no third one is in the circle between them, and no water (Gabriel graph)."""
    distance = np.hypot(east[:, None] - east, north[:, None] - north)
    near = np.argsort(distance, axis=1)[:, 1 : _NEIGHBOUR_COUNT + 1]
    a, b = np.repeat(np.arange(len(east)), _NEIGHBOUR_COUNT), near.ravel()
    between = np.minimum(
        distance[a][np.arange(len(a))[:, None], near[a]] ** 2 + distance[b[:, None], near[a]] ** 2, np.inf
    )
    between[near[a] == b[:, None]] = np.inf
    is_free = between.min(axis=1) >= distance[a, b] ** 2
    for share in np.linspace(0.1, 0.9, 9):
        is_free &= on_land(east[a] * share + east[b] * (1 - share), north[a] * share + north[b] * (1 - share))
    return sorted({(int(min(pair)), int(max(pair))) for pair in zip(a[is_free], b[is_free], strict=True)})


def _find_reachable(count: int, pairs: Iterable[tuple[int, int]], *, start: int) -> Ints:
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for a, b in pairs:
        neighbours[a].append(b)
        neighbours[b].append(a)
    seen, waiting = {start}, [start]
    while waiting:
        for neighbour in neighbours[waiting.pop()]:
            if neighbour not in seen:
                seen.add(neighbour)
                waiting.append(neighbour)
    return np.array(sorted(seen))
