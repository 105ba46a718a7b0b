"""How long results take: from an event to whoever reads what is committed, and how much of that is neither the window's doing nor the watermark's.

Events flow at the pace of a city (`scale` times), markers among them; jobs run as they always do, in a process of their own. The floor of a result is the
moment when the record was appended that moved the low watermark past what the result waits for: no system could have been earlier.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from millrace.errors import DefinitionError, RunFailed, TopicMissing
from millrace.log import Log, open_log
from millrace.log.codecs import decode, encode
from millrace.log.status import status_topic
from millrace.measure import events
from millrace.stream import Job
from millrace.topics import Topic
from millrace.transit import jobs as transit_jobs
from millrace.transit.final_stops import FinalStop
from millrace.transit.markers import END, MARKERS, ROUTE, Marker
from millrace.transit.topics import ARRIVALS, POSITIONS

VOLUME = 676
"""Events a second of a real city, on average."""
PACE = 0.05
"""Seconds between two appends."""
BLOCK = 20
"""Seconds of events that are made at a time."""
PATIENCE = 180.0
"""Seconds that jobs have to complete their first batch, on a machine that is busy with other things."""
ARRIVES = 33
"""One of so many positions is an arrival, too."""
_TERMINUS = 60.17, 24.94
_KNOWN = {"final-stop-distribution": f"{__name__}:final_stop_distribution"}
"""How `millrace run` is told of jobs that need more than their name."""


@dataclass(frozen=True)
class Latency:
    """One job, at one volume. Times are milliseconds."""

    job: str
    scale: float
    on: str
    log: str
    n: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    above_floor_p50_ms: float | None
    above_floor_p99_ms: float | None
    load: float
    """How many processes wanted a core, on average over the last minute: with more than there are cores, all figures are worse."""


def bench(jobs: Sequence[str], *, url: str | None = None, on: str = "local", scale: float = 1, seconds: float = 60) -> list[Latency]:
    """Measures jobs that run together; by default on an embedded log of their own, which is gone afterwards."""
    if strange := [job for job in jobs if job not in MARKERS]:
        raise DefinitionError(f"{', '.join(strange)}: no markers are known for this job; there are some for {', '.join(MARKERS)}")
    with tempfile.TemporaryDirectory(prefix="millrace-latency-") as folder:
        place = url or f"embedded:{folder}/log"
        log = open_log(place)
        read = {MARKERS[job].reads.name: MARKERS[job].reads for job in jobs}
        for topic in (*read.values(), *(MARKERS[job].topic for job in jobs)):
            log.ensure(topic)
        feeder, begins = Feeder(log, jobs, scale), {name: log.ends(name) for name in read}
        watchers = {job: Watcher(open_log(place), MARKERS[job]) for job in jobs}
        name = f"latency-{uuid.uuid4().hex[:8]}"
        with _running(feeder, *watchers.values()), _run(jobs, place, on, Path(folder), name) as child:
            _await_batch(log, name, child, Path(folder))
            began = time.time_ns() // 1_000_000 + 5_000
            time.sleep(seconds + 5)
            ended = time.time_ns() // 1_000_000
            _await_results(watchers, ended, child)
        load = round(os.getloadavg()[0], 1)
        clocks = {name: _clocks(log, topic, begins[name]) for name, topic in read.items()}
        log.close()
        measured = {job: watcher.seen().filter(pl.col("event").is_between(began, ended)) for job, watcher in watchers.items()}
        kind = place.partition(":")[0]
        return [_figures(job, measured[job], clocks[MARKERS[job].reads.name], scale=scale, on=on, log=kind, load=load) for job in jobs]


class _Beside(threading.Thread):
    """Something that goes on until told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.enough = threading.Event()
        self.problem: Exception | None = None

    def run(self) -> None:
        """Keeps what goes wrong for whoever waits."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - it is raised where it is heard
            self.problem = error

    def work(self) -> None:
        """What it does."""
        raise NotImplementedError


class Feeder(_Beside):
    """A city's events and the markers', each when its time has come."""

    def __init__(self, log: Log, jobs: Sequence[str], scale: float) -> None:
        super().__init__()
        self._log, self._jobs, self._vehicles = log, jobs, max(1, round(VOLUME * scale))

    def work(self) -> None:
        """Appends what has come since the last time."""
        upto = time.time_ns() // 1_000_000
        waiting, block = self._made(upto, 0), 0
        upto += BLOCK * 1000
        while not self.enough.wait(PACE):
            now = time.time_ns() // 1_000_000
            if upto - now < 2_000:
                block += 1
                more = self._made(upto, block)
                waiting = {topic: pl.concat([waiting[topic], more[topic]]).sort("ingestion_time") for topic in waiting}
                upto += BLOCK * 1000
            for topic, rows in waiting.items():
                come = rows["ingestion_time"].search_sorted(now, side="right")
                if come:
                    self._log.append(topic.name, encode(topic, rows.head(come)))
                    waiting[topic] = rows.tail(-come)

    def _made(self, start: int, block: int) -> dict[Topic, pl.DataFrame]:
        """A block of the city's events, by the topics that the jobs read."""
        positions = events.positions(BLOCK, vehicles=self._vehicles, seed=block, start=start)
        made = {POSITIONS: positions, ARRIVALS: _arrivals(positions)}
        for marker in map(MARKERS.__getitem__, self._jobs):
            own = marker.rows(start, start + BLOCK * 1000)
            made[marker.reads] = pl.concat([made[marker.reads].select(own.columns).cast(own.schema), own])
        read = {MARKERS[job].reads for job in self._jobs}
        return {topic: frame.sort("ingestion_time") for topic, frame in made.items() if topic in read}


def _arrivals(positions: pl.DataFrame) -> pl.DataFrame:
    """Of a hundred positions three are at a stop."""
    some = positions.gather_every(ARRIVES, ARRIVES // 2)
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in ARRIVALS.schema.items() if name not in some.columns]
    return some.with_columns(*absent, delay=pl.col("event_time") // 1000 % 600 - 60)


def final_stop_distribution() -> Job:
    """The job, with a timetable in which all of the city's vehicles end at one place and the marker at sea."""
    return transit_jobs.final_stop_distribution(stops=_end_of)


def _end_of(route: str, _direction: int) -> FinalStop:
    return FinalStop(route, *(END if route == ROUTE else _TERMINUS))


class Watcher(_Beside):
    """Reads the results of a job as they are committed, and notes when each marker's came."""

    def __init__(self, log: Log, marker: Marker) -> None:
        super().__init__()
        self._log, self._marker = log, marker
        self._start = log.ends(marker.topic.name)
        self._found: list[pl.DataFrame] = []

    def work(self) -> None:
        """Looks every five milliseconds."""
        topic = self._marker.topic
        for partition, records in self._log.tail(topic.name, start=self._start, wait=lambda: not self.enough.wait(0.005)):
            came = time.time_ns() / 1e6
            rows = decode(topic, partition, records, panes=True).rows
            self._found.append(self._marker.waits_for(rows).with_columns(came=pl.lit(came)))
        self._log.close()

    def seen(self) -> pl.DataFrame:
        """What came so far: `event`, `complete`, `came`."""
        nothing = pl.DataFrame(schema={"event": pl.Int64, "complete": pl.Int64, "came": pl.Float64})
        return pl.concat([nothing, *(frame.cast(nothing.schema) for frame in self._found)])


@contextmanager
def _running(*threads: _Beside) -> Iterator[None]:
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.enough.set()
        for thread in threads:
            thread.join()
    for thread in threads:
        if thread.problem is not None:
            raise thread.problem


@contextmanager
def _run(jobs: Sequence[str], url: str, on: str, folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """`millrace run`, as anybody would start it."""
    command = [
        sys.executable,
        "-m",
        "millrace.cli",
        "run",
        *(_KNOWN.get(job, job) for job in jobs),
        "--on",
        on,
        "--log",
        url,
        "--state",
        str(folder / "state"),
        "--name",
        name,
    ]
    with (folder / "run.log").open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as child:
        try:
            yield child
        finally:
            child.terminate()


def _await_batch(log: Log, name: str, child: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not _batches(log, name):
        if child.poll() is not None or time.monotonic() > deadline:
            said = (folder / "run.log").read_text(errors="replace").strip()
            raise RunFailed(f"the run completed no batch within {PATIENCE:.0f} s: {said[-500:]}")
        time.sleep(0.1)


def _batches(log: Log, name: str) -> int:
    try:
        return sum(log.ends(status_topic(name)).values())
    except TopicMissing:
        return 0


def _await_results(watchers: dict[str, Watcher], upto: int, child: subprocess.Popen[bytes]) -> None:
    """Returns when results of markers after `upto` have come, so that none is left out for being slow; or not, after half a minute."""
    deadline = time.monotonic() + 30
    while any(watcher.seen()["event"].max() is None or watcher.seen()["event"].max() < upto for watcher in watchers.values()):  # type: ignore[operator] # whole milliseconds
        if child.poll() is not None or time.monotonic() > deadline:
            return
        time.sleep(0.2)


def _clocks(log: Log, topic: Topic, begins: dict[int, int]) -> list[pl.DataFrame]:
    """Of each partition, how far its clock had come (`clock`) with each record, and when that was appended (`at`)."""
    found = []
    for partition, end in log.ends(topic.name).items():
        records = log.read(topic.name, partition, begins.get(partition, 0), end)
        rows = decode(topic, partition, records).rows
        at = pl.DataFrame({"_off": records.offsets, "at": records.timestamps})
        clock = pl.min_horizontal("event_time", "ingestion_time").cum_max()
        found.append(rows.select("_off", clock=clock).join(at, on="_off", maintain_order="left").select("clock", "at"))
    return [frame for frame in found if frame.height]


def floors(complete: pl.Series, clocks: Sequence[pl.DataFrame], delay: int) -> pl.Series:
    """For each time that the low watermark had to reach, when it could have: the last partition's first record that was far enough."""
    moments = []
    for frame in clocks:
        place = frame["clock"].search_sorted(complete + delay, side="left")
        moments.append(frame["at"].append(pl.Series([None], dtype=frame["at"].dtype)).gather(place))
    return pl.select(pl.max_horizontal(moments)).to_series()


def _figures(job: str, seen: pl.DataFrame, clocks: Sequence[pl.DataFrame], *, scale: float, on: str, log: str, load: float) -> Latency:
    whole = (seen["came"] - seen["event"]).to_numpy()
    above = (seen["came"] - floors(seen["complete"], clocks, MARKERS[job].delay)).drop_nulls().to_numpy()
    p50, p90, p99 = _quantiles(whole, 0.5, 0.9, 0.99)
    over50, over99 = _quantiles(above, 0.5, 0.99)
    return Latency(job, scale, on, log, len(whole), p50, p90, p99, over50, over99, load)


def _quantiles(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], *which: float) -> list[float | None]:
    return [round(float(value), 1) for value in np.quantile(values, which)] if len(values) else [None] * len(which)
