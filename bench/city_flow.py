"""Appends the events of a city to a log as they happen, and runs jobs over them with `millrace run`."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from bench import events
from bench.markers import MARKER_FINAL_STOP, MARKER_ROUTE, MARKERS
from millrace.devtools import brokers
from millrace.errors import DefinitionError, RunFailed, TopicMissing
from millrace.log import Log
from millrace.log.codecs.codec import encode
from millrace.log.status import Status, parse_statuses, status_topic
from millrace.stream import Job
from millrace.topics import Topic
from millrace.transit import jobs as transit_jobs
from millrace.transit.final_stops import FinalStop
from millrace.transit.topics import ARRIVALS, POSITIONS

VOLUME = 676
"""The average number of events per second of a real city."""
PACE = 0.05
"""Seconds between two appends."""
BLOCK = 20
"""Seconds of events in a block."""
FIRST_BATCH_TIMEOUT = 180.0
"""Seconds in which jobs must complete their first batch;
it is enough on a machine that is busy with other work.
"""
ARRIVAL_EVERY = 33
"""One of so many positions is an arrival as well."""
_TERMINUS = 60.17, 24.94
_JOB_PATHS = {"final-stop-distribution": f"{__name__}:final_stop_distribution"}
"""Jobs that `millrace run` finds by a path, as they are not the built-in ones."""


def topics_read_by(jobs: Sequence[str]) -> dict[str, Topic]:
    """The topics that the jobs read, by name. Refuses jobs without markers."""
    if unknown := [job for job in jobs if job not in MARKERS]:
        raise DefinitionError(
            f"{', '.join(unknown)}: there is no marker for this job, so it cannot be measured; use one of "
            f"{', '.join(MARKERS)}"
        )
    return {MARKERS[job].input_topic.name: MARKERS[job].input_topic for job in jobs}


@contextmanager
def log_for(url: str | None, folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The URL of the log, by default an embedded one in `folder`, and the processes of brokers that were
    started for it (`kafka`).
    """
    if url != "kafka":
        yield url or f"embedded:{folder}/log", ()
        return
    cluster = brokers.start(folder / "brokers", port=0)
    try:
        yield cluster.url, tuple(node.pid for node in cluster.nodes if node.pid is not None)
    finally:
        brokers.stop(cluster)


class BackgroundThread(threading.Thread):
    """A thread that works until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop_requested = threading.Event()
        self.problem: Exception | None = None

    def run(self) -> None:
        """Works, and keeps the error for the thread that joins."""
        try:
            self.do_work()
        except Exception as error:  # noqa: BLE001 - raised in the thread that joins
            self.problem = error

    def do_work(self) -> None:
        """Works until `stop_requested` is set."""
        raise NotImplementedError


class CityFeeder(BackgroundThread):
    """Appends the events of a city and of markers, each at its ingestion time."""

    def __init__(self, log: Log, jobs: Sequence[str], scale: float) -> None:
        super().__init__()
        self._log, self._jobs, self._vehicles = log, jobs, max(1, round(VOLUME * scale))

    def do_work(self) -> None:
        """Appends what is due, every 50 ms.
        Another thread makes the next block meanwhile, which takes a while for a large city.
        """
        with ThreadPoolExecutor(1) as maker:
            made_until = time.time_ns() // 1_000_000
            pending, block = self._make_block(made_until, 0), 1
            made_until += BLOCK * 1000
            next_block = maker.submit(self._make_block, made_until, block)
            while not self.stop_requested.wait(PACE):
                now = time.time_ns() // 1_000_000
                if made_until <= now:
                    block_rows, block, made_until = next_block.result(), block + 1, made_until + BLOCK * 1000
                    next_block = maker.submit(self._make_block, made_until, block)
                    pending = {
                        topic: pl.concat([pending[topic], block_rows[topic]]).sort("ingestion_time")
                        for topic in pending
                    }
                for topic, rows in pending.items():
                    count = rows["ingestion_time"].search_sorted(now, side="right")
                    if count:
                        self._log.append(topic.name, encode(topic, rows.head(count)))
                        pending[topic] = rows.tail(-count)

    def _make_block(self, start: int, block: int) -> dict[Topic, pl.DataFrame]:
        """A block of events of the city and of markers, by topic."""
        positions = events.make_positions(BLOCK, vehicles=self._vehicles, seed=block, start=start)
        rows_by_topic = {POSITIONS: positions, ARRIVALS: _make_arrivals(positions)}
        for marker in map(MARKERS.__getitem__, self._jobs):
            marker_rows = marker.make_rows(start, start + BLOCK * 1000)
            rows_by_topic[marker.input_topic] = pl.concat(
                [
                    rows_by_topic[marker.input_topic].select(marker_rows.columns).cast(marker_rows.schema),
                    marker_rows,
                ]
            )
        read = set(topics_read_by(self._jobs).values())
        return {
            topic: frame.sort("ingestion_time") for topic, frame in rows_by_topic.items() if topic in read
        }


def _make_arrivals(positions: pl.DataFrame) -> pl.DataFrame:
    """Arrivals at the places of some positions."""
    some = positions.gather_every(ARRIVAL_EVERY, ARRIVAL_EVERY // 2)
    absent = [
        pl.lit(None, dtype).alias(name) for name, dtype in ARRIVALS.schema.items() if name not in some.columns
    ]
    return some.with_columns(*absent, delay=pl.col("event_time") // 1000 % 600 - 60)


def final_stop_distribution() -> Job:
    """The job, with one final stop for all vehicles of the city, and one at sea for the marker."""
    return transit_jobs.final_stop_distribution(stops=_final_stop_of)


def _final_stop_of(route: str, _direction: int) -> FinalStop:
    return FinalStop(route, *(MARKER_FINAL_STOP if route == MARKER_ROUTE else _TERMINUS))


@contextmanager
def run_in_background(*threads: BackgroundThread) -> Iterator[None]:
    """Runs threads while the block runs, and raises their errors at its end."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop_requested.set()
        for thread in threads:
            thread.join()
    for thread in threads:
        if thread.problem is not None:
            raise thread.problem


@contextmanager
def start_run(
    jobs: Sequence[str], url: str, on: str, folder: Path, name: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts `millrace run`; its output is in `run.log`."""
    job_names = [_JOB_PATHS.get(job, job) for job in jobs]
    options = ["--on", on, "--log", url, "--state", str(folder / "state"), "--name", name, "--take-over"]
    command = [sys.executable, "-m", "millrace.cli.main", "run", *job_names, *options]
    with (
        (folder / "run.log").open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as child,
    ):
        try:
            yield child
        finally:
            child.terminate()


def await_batch(log: Log, name: str, child: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits until the run has completed a batch."""
    deadline = time.monotonic() + FIRST_BATCH_TIMEOUT
    while not read_statuses(log, name, {}):
        if child.poll() is not None or time.monotonic() > deadline:
            output = (folder / "run.log").read_text(errors="replace").strip()
            raise RunFailed(f"the run completed no batch within {FIRST_BATCH_TIMEOUT:.0f} s: {output[-500:]}")
        time.sleep(0.1)


def status_ends(log: Log, name: str) -> dict[int, int]:
    """The end offsets of the status topic of a run."""
    try:
        return log.end_offsets(status_topic(name))
    except TopicMissing:
        return {}


def read_statuses(log: Log, name: str, start: Mapping[int, int]) -> list[Status]:
    """The status records of a run from these offsets on, in the order of batches."""
    parts = [
        parse_statuses(log.read(status_topic(name), partition, start.get(partition, 0), end))
        for partition, end in status_ends(log, name).items()
    ]
    return sorted((status for partition in parts for status in partition), key=lambda status: status.batch)
