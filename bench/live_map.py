"""The cost of the live map: a server, viewers that receive everything, and results at a constant rate."""

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import polars as pl

from millrace.errors import RunFailed
from millrace.geo import geocell
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.transit.topics import CELL_COUNTS

PACE = 0.5
"""Seconds between two appends."""
WINDOW, EVERY = 30_000, 5_000
_SUBSCRIPTION = '{"layers": ["vehicle-distribution"], "box": [-180, -85, 180, 85]}'


@dataclass(frozen=True)
class Cost:
    """One measurement."""

    viewers: int
    cells_per_s: int
    cpu_ms_per_tick: float
    """CPU of the server, including reading and decoding."""
    tiles_per_tick: float
    """Tiles encoded per tick."""
    sent_mb_per_s: float
    to_viewer_ms_p50: float
    """From the append of results to their arrival at a viewer, including up to one tick of waiting."""
    to_viewer_ms_p99: float
    rss_mb: float


def bench(
    viewers: Sequence[int], *, cells_per_s: int = 2_000, seconds: float = 10, settle: float = 6
) -> Iterator[Cost]:
    """Measures each number of viewers with a new server, after `settle` seconds.
    After five seconds the map shows all cells.
    """
    cells = _city_cells(cells_per_s * EVERY // 1000)
    for number in viewers:
        with tempfile.TemporaryDirectory() as folder:
            log = open_log(f"embedded:{folder}/log")
            log.ensure(CELL_COUNTS)
            with _start_server(log.url, Path(folder)) as port:
                yield asyncio.run(
                    _measure(log, port, ViewerLoad(cells, number, cells_per_s), settle, seconds)
                )
            log.close()


def _city_cells(count: int) -> pl.Series:
    """Distinct cells of a city of 50 km by 50 km, in a random order."""
    chance = np.random.default_rng(1)
    places = pl.DataFrame(
        {"latitude": 60 + chance.random(3 * count) * 0.45, "longitude": 24.5 + chance.random(3 * count) * 0.9}
    )
    return places.select(geocell()).to_series().unique(maintain_order=True).head(count)


@contextmanager
def _start_server(url: str, folder: Path) -> Iterator[int]:
    """Starts `millrace serve`; yields its port."""
    output = folder / "server.log"
    command = [sys.executable, "-m", "millrace.cli.main", "serve", "--port", "0", "--log", url]
    with output.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as child:
        try:
            limit = time.monotonic() + 60
            while not (found := re.search(r"at http://127\.0\.0\.1:(\d+)/", output.read_text())):
                if child.poll() is not None or time.monotonic() > limit:
                    raise RunFailed(f"the server did not start: {output.read_text().strip()}")
                time.sleep(0.05)
            yield int(found[1])
        finally:
            child.terminate()


@dataclass
class ViewerTally:
    """What all viewers received."""

    bytes: int = 0
    arrived: list[float] | None = None
    """Seconds from append to arrival; None before the measurement."""


@dataclass(frozen=True)
class ViewerLoad:
    """The cells that change, and the number of viewers."""

    cells: pl.Series
    viewers: int
    cells_per_s: int


async def _measure(log: Log, port: int, load: ViewerLoad, settle: float, seconds: float) -> Cost:
    appended: dict[int, float] = {}
    tally = ViewerTally()
    viewers = [asyncio.create_task(_view_map(port, appended, tally)) for _ in range(load.viewers)]
    await _append_results(log, load, appended, settle)
    before = await asyncio.to_thread(_read_metrics, port)
    tally.bytes, tally.arrived, started_at = 0, [], time.monotonic()
    await _append_results(log, load, appended, seconds)
    after, passed = await asyncio.to_thread(_read_metrics, port), time.monotonic() - started_at
    for task in viewers:
        task.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    ticks = after["millrace_serve_ticks_total"] - before["millrace_serve_ticks_total"]
    cpu = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    encoded = after["millrace_serve_tiles_encoded_total"] - before["millrace_serve_tiles_encoded_total"]
    lags = np.array(tally.arrived or [np.nan]) * 1000
    middle, most = np.quantile(lags, [0.5, 0.99])
    rss = after["process_resident_memory_bytes"] / 2**20
    sent = tally.bytes / passed / 2**20
    return Cost(
        load.viewers,
        load.cells_per_s,
        cpu * 1000 / ticks,
        encoded / ticks,
        sent,
        float(middle),
        float(most),
        rss,
    )


async def _append_results(log: Log, load: ViewerLoad, appended: dict[int, float], seconds: float) -> None:
    """Appends a part of the cells every half second.
    Each part has its own window end, by which viewers recognize it.
    """
    cells, share, until, round_number = (
        load.cells,
        int(load.cells_per_s * PACE),
        time.monotonic() + seconds,
        0,
    )
    while (started_at := time.monotonic()) < until:
        chosen = cells.gather([(round_number * share + place) % len(cells) for place in range(share)])
        end = time.time_ns() // 1_000_000
        await asyncio.to_thread(
            log.append,
            CELL_COUNTS.name,
            encode(CELL_COUNTS, _make_results(chosen, end, round_number), ingestion_time=end),
        )
        appended[end] = time.monotonic()
        round_number += 1
        await asyncio.sleep(max(0.0, started_at + PACE - time.monotonic()))


def _make_results(cells: pl.Series, end: int, round_number: int) -> pl.DataFrame:
    pane = {
        "window_start": end - WINDOW,
        "window_end": end,
        "index": 0,
        "settled_index": 0,
        "timing": "on_time",
        "final": False,
        "op": "+",
    }
    counts = (pl.int_range(len(cells)) + round_number) % 7 + 1
    return pl.DataFrame({"geocell": cells}).with_columns(
        count=counts, event_time=pl.lit(end - 1), **{name: pl.lit(value) for name, value in pane.items()}
    )


async def _view_map(port: int, appended: dict[int, float], tally: ViewerTally) -> None:
    """A viewer of the whole map. It parses only the beginning of each message."""
    from websockets.asyncio.client import connect

    async with connect(f"ws://127.0.0.1:{port}/api/live", max_size=None, compression=None) as socket:
        await socket.send(_SUBSCRIPTION)
        async for message in socket:
            arrived = time.monotonic()
            tally.bytes += len(message)
            with suppress(KeyError):
                if tally.arrived is not None and (
                    found := re.match(r'\{"type":"tick".*?"time":(\d+)', str(message)[:200])
                ):
                    tally.arrived.append(arrived - appended[int(found[1])])


def _read_metrics(port: int) -> dict[str, float]:
    """The server's metrics, summed over labels."""
    figures: dict[str, float] = {}
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    for name, _, value in (line.rpartition(" ") for line in lines):
        bare_name = re.sub(r"\{.*\}", "", name)
        figures[bare_name] = figures.get(bare_name, 0.0) + float(value)
    return figures
