"""The jobs of public transport that run together in a measurement, and the events of a city for them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from millrace.errors import DefinitionError
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.log import Log
from millrace.log.codecs.codec import encode
from millrace.stream import Job
from millrace.transit.final_stops import FinalStop
from millrace.transit.jobs import BUILT_IN, final_stop_distribution

FIVE = (
    "vehicle-distribution",
    "delay-distribution",
    "final-stop-distribution",
    "flow-direction",
    "emergency-stop",
)
"""The five questions of public transport."""
CITY = CityPlan(scale=16, volume="mean", calls=True)
"""A city of sixteen times the real volume, as a backlog."""
_START = 1_772_431_200_000
"""A Monday morning. Any value will do, as long as it never changes."""
_STRETCH = 10_000
"""Milliseconds of events that are appended at a time."""


def expand_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of jobs, each once, with `five` for the five of them; refuses others."""
    expanded = [name for given in names for name in (FIVE if given == "five" else (given,))]
    if unknown := [name for name in expanded if name not in BUILT_IN]:
        raise DefinitionError(
            f"{', '.join(unknown)}: there is no such job to measure; use five, for all of {', '.join(FIVE)}, "
            f"or some of {', '.join(BUILT_IN)}"
        )
    return tuple(dict.fromkeys(expanded))


def make_jobs(names: Sequence[str]) -> list[Job]:
    """The jobs with their defaults; final stops are made up."""
    return [
        final_stop_distribution(stops=_final_stop_of)
        if name == "final-stop-distribution"
        else BUILT_IN[name]()
        for name in names
    ]


def _final_stop_of(route: str, direction: int) -> FinalStop:
    """A place for each direction of each route, some dozens in all."""
    place = zlib.crc32(route.encode()) % 50
    return FinalStop(route, 60.1 + place / 400, 24.8 + direction / 10)


def fill_with_city(log: Log, rows: int, *, seed: int = 1) -> int:
    """Appends at least so many events of a city, of positions and of stops; returns their number."""
    city = City(replace(CITY, seed=seed), start=_START)
    for topic in CITY.topics:
        log.ensure(topic)
    count, now = 0, _START
    while count < rows:
        now += _STRETCH
        for topic, frame in city.advance(now):
            log.append(topic.name, encode(topic, frame))
            count += frame.height
    return count
