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
from millrace.devtools import brokers
from millrace.errors import DefinitionError, RunFailed, TopicMissing
from millrace.log import Log
from millrace.log.codecs.codec import encode
from millrace.log.status import Status, read_status, status_topic
from millrace.stream import Job
from millrace.topics import Topic
from millrace.transit import jobs as transit_jobs
from millrace.transit.final_stops import FinalStop
from millrace.transit.markers import END, MARKERS, ROUTE
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


def read_by(jobs: Sequence[str]) -> dict[str, Topic]:
    """The topics that the jobs read, by name; whoever asks for a job without markers is told."""
    if strange := [job for job in jobs if job not in MARKERS]:
        raise DefinitionError(
            f"{', '.join(strange)}: no markers are known for this job; there are some for {', '.join(MARKERS)}"
        )
    return {MARKERS[job].reads.name: MARKERS[job].reads for job in jobs}


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


class Beside(threading.Thread):
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


class Feeder(Beside):
    """A city's events and the markers', each when its time has come."""

    def __init__(self, log: Log, jobs: Sequence[str], scale: float) -> None:
        super().__init__()
        self._log, self._jobs, self._vehicles = log, jobs, max(1, round(VOLUME * scale))

    def work(self) -> None:
        """Appends what has come since the last time. The next block is made beside that: it takes a while where the city is large."""
        with ThreadPoolExecutor(1) as maker:
            upto = time.time_ns() // 1_000_000
            waiting, block = self._made(upto, 0), 1
            upto += BLOCK * 1000
            coming = maker.submit(self._made, upto, block)
            while not self.enough.wait(PACE):
                now = time.time_ns() // 1_000_000
                if upto <= now:
                    more, block, upto = coming.result(), block + 1, upto + BLOCK * 1000
                    coming = maker.submit(self._made, upto, block)
                    waiting = {
                        topic: pl.concat([waiting[topic], more[topic]]).sort("ingestion_time")
                        for topic in waiting
                    }
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
        read = set(read_by(self._jobs).values())
        return {topic: frame.sort("ingestion_time") for topic, frame in made.items() if topic in read}


def _arrivals(positions: pl.DataFrame) -> pl.DataFrame:
    """Of a hundred positions three are at a stop."""
    some = positions.gather_every(ARRIVES, ARRIVES // 2)
    absent = [
        pl.lit(None, dtype).alias(name) for name, dtype in ARRIVALS.schema.items() if name not in some.columns
    ]
    return some.with_columns(*absent, delay=pl.col("event_time") // 1000 % 600 - 60)


def final_stop_distribution() -> Job:
    """The job, with a timetable in which all of the city's vehicles end at one place and the marker at sea."""
    return transit_jobs.final_stop_distribution(stops=_end_of)


def _end_of(route: str, _direction: int) -> FinalStop:
    return FinalStop(route, *(END if route == ROUTE else _TERMINUS))


@contextmanager
def together(*threads: Beside) -> Iterator[None]:
    """They go on until the block is left; what went wrong in one of them is raised there."""
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
def started(
    jobs: Sequence[str], url: str, on: str, folder: Path, name: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`millrace run`, as anybody would start it; what it says is in `run.log`."""
    known = [_KNOWN.get(job, job) for job in jobs]
    where = ["--on", on, "--log", url, "--state", str(folder / "state"), "--name", name, "--take-over"]
    command = [sys.executable, "-m", "millrace.cli.main", "run", *known, *where]
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
    deadline = time.monotonic() + PATIENCE
    while not statuses(log, name, {}):
        if child.poll() is not None or time.monotonic() > deadline:
            said = (folder / "run.log").read_text(errors="replace").strip()
            raise RunFailed(f"the run completed no batch within {PATIENCE:.0f} s: {said[-500:]}")
        time.sleep(0.1)


def ends(log: Log, name: str) -> dict[int, int]:
    """How much a run has said of itself, by partition."""
    try:
        return log.ends(status_topic(name))
    except TopicMissing:
        return {}


def statuses(log: Log, name: str, start: Mapping[int, int]) -> list[Status]:
    """What a run said of its batches from `start` on, in its order."""
    parts = [
        read_status(log.read(status_topic(name), part, start.get(part, 0), end))
        for part, end in ends(log, name).items()
    ]
    return sorted((status for part in parts for status in part), key=lambda status: status.batch)
