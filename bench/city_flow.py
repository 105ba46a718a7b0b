"""A city's events that flow into a log at their own pace, and jobs that run over them in a process of their own, as anybody would start them."""

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
"""Events a second of a real city, on average."""
PACE = 0.05
"""Seconds between two appends."""
BLOCK = 20
"""Seconds of events that are made at a time."""
TIME_LIMIT = 180.0
"""Seconds that jobs have to complete their first batch, on a machine that is busy with other things."""
ARRIVAL_EVERY = 33
"""One of so many positions is an arrival, too."""
_TERMINUS = 60.17, 24.94
_JOB_PATHS = {"final-stop-distribution": f"{__name__}:final_stop_distribution"}
"""Arguments of `millrace run` for jobs that need more than their name."""


def topics_read_by(jobs: Sequence[str]) -> dict[str, Topic]:
    """The topics that the jobs read, by name; refuses a job without markers."""
    if unknown := [job for job in jobs if job not in MARKERS]:
        raise DefinitionError(
            f"{', '.join(unknown)}: no markers are known for this job; there are some for {', '.join(MARKERS)}"
        )
    return {MARKERS[job].input_topic.name: MARKERS[job].input_topic for job in jobs}


@contextmanager
def log_for(url: str | None, folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Where the log is: `url`, an embedded one, or with `kafka` on a broker that is started for it; and the processes of brokers of ours."""
    if url != "kafka":
        yield url or f"embedded:{folder}/log", ()
        return
    cluster = brokers.start(folder / "brokers", port=0)
    try:
        yield cluster.url, tuple(node.pid for node in cluster.nodes if node.pid is not None)
    finally:
        brokers.stop(cluster)


class BackgroundThread(threading.Thread):
    """Something that runs until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop_requested = threading.Event()
        self.problem: Exception | None = None

    def run(self) -> None:
        """Keeps an error for the waiting thread."""
        try:
            self.do_work()
        except Exception as error:  # noqa: BLE001 - it is raised where it is heard
            self.problem = error

    def do_work(self) -> None:
        """What it does."""
        raise NotImplementedError


class CityFeeder(BackgroundThread):
    """A city's events and the markers', each when its time has come."""

    def __init__(self, log: Log, jobs: Sequence[str], scale: float) -> None:
        super().__init__()
        self._log, self._jobs, self._vehicles = log, jobs, max(1, round(VOLUME * scale))

    def do_work(self) -> None:
        """Appends what has come since the last time. The next block is made beside that: it takes a while where the city is large."""
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
        """A block of the city's events, by the topics that the jobs read."""
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
    """Of a hundred positions three are at a stop."""
    some = positions.gather_every(ARRIVAL_EVERY, ARRIVAL_EVERY // 2)
    absent = [
        pl.lit(None, dtype).alias(name) for name, dtype in ARRIVALS.schema.items() if name not in some.columns
    ]
    return some.with_columns(*absent, delay=pl.col("event_time") // 1000 % 600 - 60)


def final_stop_distribution() -> Job:
    """The job, with a timetable in which all of the city's vehicles end at one place and the marker at sea."""
    return transit_jobs.final_stop_distribution(stops=_final_stop_of)


def _final_stop_of(route: str, _direction: int) -> FinalStop:
    return FinalStop(route, *(MARKER_FINAL_STOP if route == MARKER_ROUTE else _TERMINUS))


@contextmanager
def run_in_background(*threads: BackgroundThread) -> Iterator[None]:
    """They go on until the block is left; what went wrong in one of them is raised there."""
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
    """`millrace run`, as anybody would start it; what it says is in `run.log`."""
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
    """Returns when the run has completed a batch."""
    deadline = time.monotonic() + TIME_LIMIT
    while not read_statuses(log, name, {}):
        if child.poll() is not None or time.monotonic() > deadline:
            output = (folder / "run.log").read_text(errors="replace").strip()
            raise RunFailed(f"the run completed no batch within {TIME_LIMIT:.0f} s: {output[-500:]}")
        time.sleep(0.1)


def status_ends(log: Log, name: str) -> dict[int, int]:
    """The end offsets of a run's status topic, by partition."""
    try:
        return log.end_offsets(status_topic(name))
    except TopicMissing:
        return {}


def read_statuses(log: Log, name: str, start: Mapping[int, int]) -> list[Status]:
    """The statuses of a run's batches from `start` on, in order."""
    parts = [
        parse_statuses(log.read(status_topic(name), partition, start.get(partition, 0), end))
        for partition, end in status_ends(log, name).items()
    ]
    return sorted((status for partition in parts for status in partition), key=lambda status: status.batch)
