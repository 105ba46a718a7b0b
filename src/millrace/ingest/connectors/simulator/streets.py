"""A street network made up from the seed: crossings, denser towards the centre, and the streets between them, all on land."""

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
    (24.58, 60.180), (24.66, 60.166), (24.70, 60.156), (24.75, 60.156), (24.79, 60.159), (24.812, 60.166), (24.812, 60.194),
    (24.825, 60.205), (24.838, 60.212), (24.856, 60.212), (24.868, 60.205), (24.876, 60.198), (24.898, 60.194), (24.908, 60.187),
    (24.922, 60.181), (24.914, 60.175), (24.911, 60.165), (24.917, 60.158), (24.926, 60.155), (24.953, 60.155), (24.957, 60.160),
    (24.951, 60.167), (24.960, 60.171), (24.960, 60.178), (24.970, 60.184), (24.981, 60.189), (24.979, 60.196), (24.968, 60.207),
    (24.975, 60.220), (25.000, 60.224), (25.014, 60.216), (25.031, 60.207), (25.032, 60.194), (25.040, 60.187), (25.072, 60.191),
    (25.078, 60.198), (25.086, 60.205), (25.100, 60.206), (25.112, 60.200), (25.132, 60.200), (25.142, 60.207), (25.170, 60.210),
    (25.174, 60.226), (25.182, 60.242), (25.200, 60.262), (25.200, 60.310), (24.58, 60.310),
])  # fmt: skip
"""Where streets may be, as (longitude, latitude): a rough outline that stays clear of the shore and of the bays."""

_CROSSINGS = 1_300
_CANDIDATES = 14_000
_NEIGHBOURS = 10
_TRODDEN = 0.75
"""What a street costs after a route has used it: routes share main streets."""


@dataclass(frozen=True, eq=False)
class Streets:
    """Crossings and which of them are joined. All are reachable from each other."""

    east: Floats
    """Metres from the centre."""
    north: Floats
    joined: list[dict[int, float]]
    """For each crossing its neighbours, with what it costs to go there; at first, metres."""

    def path(self, start: int, end: int) -> list[int]:
        """The cheapest way; it becomes cheaper for those that follow."""
        before, done = {start: start}, set()
        costs = {start: 0.0}
        queue = [(0.0, start)]
        while queue:
            cost, here = heapq.heappop(queue)
            if here == end:
                break
            if here in done:
                continue
            done.add(here)
            for there, more in self.joined[here].items():
                if cost + more < costs.get(there, np.inf):
                    costs[there], before[there] = cost + more, here
                    heapq.heappush(queue, (cost + more, there))
        way = [end]
        while way[-1] != start:
            way.append(before[way[-1]])
        self._tread(way)
        return way[::-1]

    def _tread(self, way: list[int]) -> None:
        for a, b in pairwise(way):
            least = _TRODDEN**2 * float(np.hypot(self.east[a] - self.east[b], self.north[a] - self.north[b]))
            self.joined[a][b] = self.joined[b][a] = max(least, self.joined[a][b] * _TRODDEN)

    def nearest(self, east: float, north: float) -> int:
        """The crossing closest to a place."""
        return int(np.argmin(np.hypot(self.east - east, self.north - north)))


def degrees(east: Floats, north: Floats) -> tuple[Floats, Floats]:
    """Latitude and longitude of places given in metres from the centre."""
    return CENTRE[0] + north / _METRES_NORTH, CENTRE[1] + east / _METRES_EAST


def metres(latitude: Floats | float, longitude: Floats | float) -> tuple[Floats, Floats]:
    """Metres from the centre to the east and to the north."""
    return np.asarray((longitude - CENTRE[1]) * _METRES_EAST), np.asarray(
        (latitude - CENTRE[0]) * _METRES_NORTH
    )


def on_land(east: Floats, north: Floats) -> Flags:
    """Whether places lie inside the outline."""
    latitude, longitude = degrees(east, north)
    inside = np.zeros(latitude.shape, np.bool_)
    for (x0, y0), (x1, y1) in zip(_LAND, np.roll(_LAND, 1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > latitude) != (y1 > latitude)) & (
                longitude < (x1 - x0) * (latitude - y0) / (y1 - y0) + x0
            )
    return inside


def build(seed: int) -> Streets:
    """The streets of the city of this seed."""
    east, north = _crossings(seed)
    pairs = _streets(east, north)
    kept = _reachable(len(east), pairs, start=int(np.argmin(np.hypot(east, north))))
    number = {old: new for new, old in enumerate(kept)}
    joined: list[dict[int, float]] = [{} for _ in kept]
    for a, b in pairs:
        if a in number:
            length = float(np.hypot(east[a] - east[b], north[a] - north[b]))
            joined[number[a]][number[b]] = joined[number[b]][number[a]] = length
    return Streets(east[kept], north[kept], joined)


def _crossings(seed: int) -> tuple[Floats, Floats]:
    """Places on land that keep their distance: 300 m in the centre, 620 m far out."""
    tries = np.arange(_CANDIDATES)
    angle = 2 * np.pi * chance.uniform(seed, 1, tries)
    away = 19_000 * chance.uniform(seed, 2, tries) ** 0.8
    east, north = away * np.cos(angle), away * np.sin(angle)
    there = on_land(east, north)
    east, north, away = east[there], north[there], away[there]
    apart = np.clip(300 + 0.028 * away, 0, 620)
    kept: list[int] = []
    for one in range(len(east)):
        if len(kept) == _CROSSINGS:
            break
        if not kept or np.min(np.hypot(east[kept] - east[one], north[kept] - north[one])) > apart[one]:
            kept.append(one)
    return east[kept], north[kept]


def _streets(east: Floats, north: Floats) -> list[tuple[int, int]]:
    """Two crossings are joined if no third lies in the circle between them, and no water on the way."""
    distance = np.hypot(east[:, None] - east, north[:, None] - north)
    near = np.argsort(distance, axis=1)[:, 1 : _NEIGHBOURS + 1]
    a, b = np.repeat(np.arange(len(east)), _NEIGHBOURS), near.ravel()
    between = np.minimum(
        distance[a][np.arange(len(a))[:, None], near[a]] ** 2 + distance[b[:, None], near[a]] ** 2, np.inf
    )
    between[near[a] == b[:, None]] = np.inf
    free = between.min(axis=1) >= distance[a, b] ** 2
    for share in np.linspace(0.1, 0.9, 9):
        free &= on_land(east[a] * share + east[b] * (1 - share), north[a] * share + north[b] * (1 - share))
    return sorted({(int(min(pair)), int(max(pair))) for pair in zip(a[free], b[free], strict=True)})


def _reachable(count: int, pairs: Iterable[tuple[int, int]], *, start: int) -> Ints:
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for a, b in pairs:
        neighbours[a].append(b)
        neighbours[b].append(a)
    seen, waiting = {start}, [start]
    while waiting:
        for there in neighbours[waiting.pop()]:
            if there not in seen:
                seen.add(there)
                waiting.append(there)
    return np.array(sorted(seen))
