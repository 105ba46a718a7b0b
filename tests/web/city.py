"""A small city whose results are in a log, and a real server that shows them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import h3
import numpy as np
import polars as pl

from millrace.geo import geocell
from millrace.log import Log
from millrace.log.codecs.codec import encode
from millrace.topics import Topic
from millrace.transit.topics import CELL_COUNTS, DELAYS, EMERGENCY_STOPS, FINAL_STOPS, FLOWS
from millrace.transit.views import VIEWS

EVERY = 5_000
HUBS = np.array(
    [
        [60.171, 24.941],
        [60.199, 24.934],
        [60.219, 24.813],
        [60.211, 25.081],
        [60.176, 24.805],
        [60.251, 25.010],
        [60.187, 24.951],
    ]
)
VEHICLES = 700
WINDOWS = {view.topic.name: view.window_ms for view in VIEWS}
"""The size of the windows of each topic."""
LIMIT = 60.0
"""Seconds after which something that should happen did not."""


def vehicles(step: int) -> pl.DataFrame:
    """Where everyone is: each goes to and fro between two hubs, by its own way and at its own pace."""
    random = np.random.default_rng(7)
    start, end = (
        HUBS[random.choice(len(HUBS), VEHICLES, p=[0.34, 0.12, 0.1, 0.12, 0.1, 0.1, 0.12])],
        HUBS[random.integers(0, len(HUBS), VEHICLES)],
    )
    progress = (random.uniform(0, 2, VEHICLES) + step * random.uniform(0.01, 0.05, VEHICLES)) % 2
    progress = np.where(progress < 1, progress, 2 - progress)[:, None]
    aside = random.normal(0, [0.010, 0.018], (VEHICLES, 2)) * (0.3 + np.sin(np.pi * progress))
    places = start + (end - start) * progress + aside
    return pl.DataFrame({"latitude": places[:, 0], "longitude": places[:, 1]})


def counted(step: int) -> pl.DataFrame:
    """How many are in each cell."""
    return (
        vehicles(step)
        .select(geocell=geocell())
        .group_by("geocell")
        .len("count")
        .with_columns(pl.col("count").cast(pl.Int64))
        .sort("geocell")
    )


def results(step: int) -> dict[Topic, pl.DataFrame]:
    """What each of the five jobs might say."""
    cells = counted(step)
    late = pl.int_range(pl.len()) * 37 % 900 - 60
    delays = cells.select("geocell", "count", p50=late, p90=late + 60, p99=late + 90).gather_every(2)
    ways = [sorted(h3.grid_ring(f"{cell:x}", 1))[(cell >> 20) % 6] for cell in cells["geocell"]]
    flows = cells.with_columns(to=pl.Series([int(progress, 16) for progress in ways]))
    braking = pl.int_range(pl.len()) / 4
    stops = (
        vehicles(step)
        .gather_every(25)
        .with_columns(vehicle_id=pl.format("12/{}", pl.int_range(pl.len())), speed_difference=braking + 10)
    )
    ends = pl.DataFrame(HUBS, schema=["latitude", "longitude"]).select(
        geocell=geocell(), count=pl.int_range(1, pl.len() + 1)
    )
    return {
        CELL_COUNTS: cells,
        DELAYS: delays,
        FINAL_STOPS: ends,
        FLOWS: flows,
        EMERGENCY_STOPS: stops.with_columns(deceleration=-1 - braking),
    }


@dataclass
class City:
    """Writes one window after another, each of which ended just now."""

    log: Log
    end: int = 0
    step: int = 0

    def go_on(self) -> int:
        """The next window's results; its end."""
        self.end = end = max(self.end + EVERY, int(time.time() * 1000) // EVERY * EVERY)
        pane = {
            "window_end": end,
            "index": 0,
            "settled_index": 0,
            "timing": "on_time",
            "final": False,
            "op": "+",
        }
        for topic, found in results(self.step).items():
            start = pl.lit(end - WINDOWS[topic.name])
            rows = found.with_columns(
                event_time=pl.lit(end - 1),
                window_start=start,
                **{name: pl.lit(value) for name, value in pane.items()},
            )
            self.log.append(topic.name, encode(topic, rows, ingestion_time=end))
        self.step += 1
        return end


def wait_until(condition: Callable[[], Any], condition_name: str) -> None:
    """Asks again and again, up to a limit."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"in {LIMIT:.0f} s, {condition_name} did not happen"
        time.sleep(0.05)


@dataclass
class Server:
    """`millrace serve` in a process of its own."""

    url: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "millrace.cli.main",
            "serve",
            "--port",
            str(self.port),
            "--log",
            self.url,
        ]
        with (self.folder / "serve.log").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=output,
                stderr=output,
                env={**os.environ, "POLARS_MAX_THREADS": "1"},
            )
        wait_until(self.answers, f"an answer of the server (see {self.folder}/serve.log)")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "serve.log").read_text()
        try:
            return bool(self.get("/healthz")["status"] == "ok")
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def get(self, path: str) -> Any:
        with urlopen(f"{self.address}{path}", timeout=10) as response:
            return json.load(response)

    def results(self, layer: str) -> list[dict[str, Any]]:
        """All that the API has of a view."""
        found: list[dict[str, Any]] = self.get(f"/api/views/{layer}")["cells"]
        return found

    def view(self, query: str = "") -> dict[str, int]:
        """The API's cells."""
        return {
            each["cell"]: each["count"]
            for each in self.get(f"/api/views/vehicle-distribution{query}")["cells"]
        }

    def time(self) -> int:
        return int(self.get("/api/views/vehicle-distribution?top=1")["time"] or 0)
