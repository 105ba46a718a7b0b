"""The true positions and events of the city as Parquet files, to score the results of jobs against.

    stops.parquet           every stop and where it is
    routes.parquet          the stops of each route and direction in order
    gtfs/                   the same as GTFS files, with one trip for each route and direction
    positions-*.parquet     where each vehicle in service was, once a second, by the true time
    hard-stops-*.parquet    who braked hard, when and where, from what speed and how hard

A vehicle's clock may be fast: a true time plus `clock_ahead`, in milliseconds, is the time in the event. A
file gets its name when it is complete. If the process is killed, the last stretches are missing.
"""

from pathlib import Path

import numpy as np
import polars as pl

from millrace.errors import InputError
from millrace.ingest.connectors.simulator.chance import Ints
from millrace.ingest.connectors.simulator.fleet import Samples
from millrace.ingest.connectors.simulator.legs import BRAKING, Legs
from millrace.ingest.connectors.simulator.messages import Messages
from millrace.values.atomic_files import replace_file

_ROWS_PER_FILE = 500_000
"""The approximate number of positions per file."""


class TruthWriter:
    """Collects stretches, and writes them to files."""

    def __init__(self, folder: Path, messages: Messages) -> None:
        self.folder, self.messages = folder, messages
        self._buffered: dict[str, list[pl.DataFrame]] = {"positions": [], "hard-stops": []}
        self._buffered_positions = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"truth={str(folder)!r} cannot be a folder: {error.strerror}; name one that can be written"
            ) from error
        self._write("routes", _route_rows(messages))
        self._write("stops", _stop_rows(messages))
        self._write_gtfs()

    def add(self, samples: Samples, hard_stops: Legs, ahead: Ints) -> None:
        """Adds a stretch: measurements, legs with hard stops, and the error of each clock."""
        latitude, longitude, _ = self.messages.routes.locate(
            samples.legs.directed_route[samples.row], samples.odometer
        )
        self._buffered["positions"].append(
            pl.DataFrame(
                {
                    "vehicle_id": self.messages.vehicle_ids.gather(samples.vehicle),
                    "time": samples.time,
                    "clock_ahead": ahead[samples.vehicle],
                    "latitude": latitude,
                    "longitude": longitude,
                    "speed": samples.speed,
                    "acceleration": samples.acceleration,
                }
            )
        )
        self._buffered["hard-stops"].append(self._hard_stop_rows(hard_stops, ahead))
        self._buffered_positions += len(samples.time)
        if self._buffered_positions >= _ROWS_PER_FILE:
            self.close()

    def close(self) -> None:
        """Writes the stretches since the last file."""
        for name, frames in self._buffered.items():
            rows = pl.concat(frames) if frames else pl.DataFrame()
            if len(rows):
                first = rows.select(pl.col("^time|braked_at$").min()).item()
                self._write(f"{name}-{first}", rows)
            frames.clear()
        self._buffered_positions = 0

    def _hard_stop_rows(self, stops: Legs, ahead: Ints) -> pl.DataFrame:
        latitude, longitude, _ = self.messages.routes.locate(
            stops.directed_route, stops.odometer[:, BRAKING + 1]
        )
        return pl.DataFrame(
            {
                "vehicle_id": self.messages.vehicle_ids.gather(stops.vehicle),
                "braked_at": stops.begin[:, BRAKING],
                "stopped_at": stops.end[:, BRAKING],
                "clock_ahead": ahead[stops.vehicle],
                "speed": stops.speed[:, BRAKING],
                "deceleration": -stops.acceleration[:, BRAKING],
                "latitude": latitude,
                "longitude": longitude,
            }
        )

    def _write_gtfs(self) -> None:
        folder = self.folder / "gtfs"
        try:
            folder.mkdir(exist_ok=True)
            for name, rows in _build_gtfs(_route_rows(self.messages), _stop_rows(self.messages)).items():
                rows.write_csv(folder / f"{name}.txt")
        except OSError as error:
            raise InputError(
                f"truth={str(self.folder)!r} cannot be written ({error}); make room, or name another folder"
            ) from error

    def _write(self, name: str, rows: pl.DataFrame) -> None:
        path = self.folder / f"{name}.parquet"
        try:
            with replace_file(path, durable=False) as draft:
                rows.write_parquet(draft)
        except OSError as error:
            raise InputError(
                f"truth={str(self.folder)!r} cannot be written ({error}); make room, or name another folder"
            ) from error


def _build_gtfs(routes: pl.DataFrame, stops: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The GTFS files in which jobs look up routes and stops. GTFS counts directions from 0."""
    trip = pl.format("{}-{}", "route", "direction")
    directed_routes = routes.select("route", "direction").unique(maintain_order=True)
    return {
        "stops": stops.select(stop_id="stop", stop_name="stop", stop_lat="latitude", stop_lon="longitude"),
        "routes": directed_routes.select(
            route_id="route", route_short_name="route", route_type=pl.lit(3)
        ).unique(maintain_order=True),
        "trips": directed_routes.select(
            route_id="route", service_id=pl.lit("daily"), trip_id=trip, direction_id=pl.col("direction") - 1
        ),
        "stop_times": routes.select(trip_id=trip, stop_id="stop", stop_sequence="sequence"),
    }


def _route_rows(messages: Messages) -> pl.DataFrame:
    """One row per stop of each way, including the last."""
    routes = messages.routes
    directed_route = np.repeat(np.arange(len(routes.legs)), routes.legs + 1)
    sequence = np.concatenate([np.arange(legs + 1) for legs in routes.legs])
    stop = np.concatenate(
        [
            np.append(routes.stop[first : first + legs], routes.next_stop[first + legs - 1])
            for first, legs in zip(routes.first_leg, routes.legs, strict=True)
        ]
    )
    odometer = np.concatenate(
        [
            np.append(routes.start[first : first + legs], length)
            for first, legs, length in zip(routes.first_leg, routes.legs, routes.length, strict=True)
        ]
    )
    latitude, longitude, _ = routes.locate(directed_route, odometer)
    return pl.DataFrame(
        {
            "route": messages.route_names.gather(directed_route // 2),
            "direction": (directed_route % 2 + 1).astype(np.int32),
            "sequence": sequence,
            "stop": messages.stop_names.gather(stop),
            "metres": odometer,
            "latitude": latitude,
            "longitude": longitude,
        }
    )


def _stop_rows(messages: Messages) -> pl.DataFrame:
    return _route_rows(messages).group_by("stop").agg(pl.col("latitude", "longitude").mean()).sort("stop")
