"""The final stop of a route and direction, from GTFS files or a service on the web."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import polars as pl

from millrace.errors import DefinitionError

_TIMEOUT_SECONDS = 5.0
"""Seconds for which a service may be silent; the job itself waits for less."""
_NOT_FOUND = 404


@dataclass
class FinalStop:
    """The final stop of a route."""

    final_stop: str
    stop_latitude: float
    stop_longitude: float


FinalStops: TypeAlias = Callable[[str, int], FinalStop | None]
"""Given a route and a direction (1 or 2); None: unknown."""


def final_stops(source: str | FinalStops) -> FinalStops:
    """A lookup of final stops, from a folder of GTFS files,
    a URL with {route} and {direction}, or a function.
    """
    if callable(source):
        return source
    if source.startswith(("http://", "https://")):
        if "{route}" not in source or "{direction}" not in source:
            raise DefinitionError(
                f"stops={source!r} does not say where the route goes; write {{route}} and "
                "{direction} into the URL"
            )
        return FinalStopService(source)
    load_final_stops(Path(source))
    return GtfsFinalStops(source)


class GtfsFinalStops:
    """Final stops from GTFS files, which a process reads once.
    It is a class, not a closure, so that it is pickled by name.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, route: str, direction: int) -> FinalStop | None:
        """The last stop of the trip that most trips of that route and direction resemble."""
        return load_final_stops(Path(self.folder)).get((route, direction))


@lru_cache(maxsize=8)
def load_final_stops(folder: Path) -> dict[tuple[str, int], FinalStop]:
    """All final stops of a GTFS feed: by route and direction (GTFS's
    `direction_id` is 0 or 1, ours 1 or 2).
    """
    try:
        trips = _read_table(folder / "trips.txt", ["route_id", "direction_id", "trip_id"])
        stop_times = _read_table(folder / "stop_times.txt", ["trip_id", "stop_sequence", "stop_id"])
        stops = _read_table(folder / "stops.txt", ["stop_id", "stop_lat", "stop_lon"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DefinitionError(
            f"stops={str(folder)!r} holds no GTFS feed ({str(error).splitlines()[0]}); name a folder with "
            "trips.txt, stop_times.txt and stops.txt"
        ) from error
    last = (
        stop_times.with_columns(pl.col("stop_sequence").cast(pl.Int64))
        .sort("stop_sequence")
        .group_by("trip_id")
        .agg(pl.col("stop_id").last())
    )
    trips_per_stop = trips.join(last, on="trip_id").group_by("route_id", "direction_id", "stop_id").len()
    most_frequent = (
        trips_per_stop.sort("len", "stop_id")
        .group_by("route_id", "direction_id")
        .last()
        .join(stops, on="stop_id")
    )
    return {
        (route, int(direction) + 1): FinalStop(stop, float(latitude), float(longitude))
        for route, direction, stop, latitude, longitude in most_frequent.select(
            "route_id", "direction_id", "stop_id", "stop_lat", "stop_lon"
        ).iter_rows()
    }


def _read_table(path: Path, columns: list[str]) -> pl.DataFrame:
    return pl.read_csv(path, columns=columns, infer_schema=False).with_columns(pl.all().str.strip_chars())


class FinalStopService:
    """Final stops from a service: `GET` of the URL answers
    `{"final_stop": …, "stop_latitude": …, "stop_longitude": …}`, or 404 for an unknown route.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, route: str, direction: int) -> FinalStop | None:
        """Requests one final stop. Errors are raised; the lookup tries again."""
        url = self.url.replace("{route}", quote(route, safe="")).replace("{direction}", str(direction))
        try:
            request = Request(url, headers={"User-Agent": "millrace"})  # noqa: S310 - http or https: checked
            with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - http or https: checked
                body = json.load(response)
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        return FinalStop(str(body["final_stop"]), float(body["stop_latitude"]), float(body["stop_longitude"]))
