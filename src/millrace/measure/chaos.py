"""Kills the whole Spark process tree again and again while events flow, and holds the results against an uninterrupted run.

`python -m millrace.measure.chaos --kills 20` ends with `20 kills, missing 0, doubled 0, wrong 0`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from millrace import panes
from millrace.config import Settings
from millrace.errors import RunFailed, TopicMissing
from millrace.log import Log, Outgoing, open_log
from millrace.log.codecs import decode, encode
from millrace.log.dead import dead_topic, late_topic, read_letters
from millrace.measure import events
from millrace.runners import feed
from millrace.runners.local import Engine
from millrace.runners.processes import tree
from millrace.stream import Job
from millrace.transit.jobs.vehicle_distribution import vehicle_distribution
from millrace.transit.topics import CELL_COUNTS, POSITIONS

PATIENCE = 240.0
"""Seconds that a run has to complete its first batch, or to catch up; more than it needs on a starved machine."""
RUN = "chaos"
BLOCK = 300
"""Seconds of events that are made at a time."""


def job() -> Job:
    """vehicle-distribution, without idleness: while the query is down no clock shall decide anything, so that results can be compared.

    With a short lateness, so that some rows are refused: they too must come out exactly once.
    """
    return vehicle_distribution(idle="1000d", lateness="10s")


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the results: all zero if nothing is."""

    kills: int
    missing: int
    doubled: int
    wrong: int

    def __str__(self) -> str:
        """The last line of the report."""
        return f"{self.kills} kills, missing {self.missing}, doubled {self.doubled}, wrong {self.wrong}"


class Feeder(threading.Thread):
    """Lets events flow into the log, some of them unreadable, until told to stop."""

    def __init__(self, log: Log, *, vehicles: int, seed: int, pace: float) -> None:
        super().__init__(daemon=True)
        self._log, self._vehicles, self._seed, self._pace = log, vehicles, seed, pace
        self._enough = threading.Event()

    def run(self) -> None:
        """A second's worth of events every `pace` seconds."""
        for number, part in enumerate(self._parts()):
            if self._enough.wait(self._pace):
                return
            self._log.append(POSITIONS.name, encode(POSITIONS, part))
            if number % 5 == 0:
                self._log.append(
                    POSITIONS.name, Outgoing(pa.array([b"\xff not an event", None], pa.binary()), pa.array([b"a", b"b"], pa.binary()))
                )

    def _parts(self) -> Iterator[pl.DataFrame]:
        for block in itertools.count():
            start, seed = events.START + block * BLOCK * 1000, self._seed + block
            yield from events.positions(BLOCK, vehicles=self._vehicles, seed=seed, start=start).iter_slices(self._vehicles)

    def finish(self) -> None:
        """Returns when the last event is in the log."""
        self._enough.set()
        self.join()


def chaos(
    folder: Path,
    *,
    kills: int,
    url: str | None = None,
    seed: int = 1,
    vehicles: int = 500,
    pace: float = 0.1,
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Feeds, kills, lets the run catch up, and compares. `url`: the log, an empty one; by default an embedded one in the folder."""
    luck = random.Random(seed)  # noqa: S311 - moments, not secrets
    place = url or f"embedded:{folder}/log"
    log = open_log(place)
    log.ensure(POSITIONS)
    feeder = Feeder(log, vehicles=vehicles, seed=seed, pace=pace)
    feeder.start()
    for number in range(kills):
        begun = time.monotonic()
        with _started(folder, place) as child:
            early = number % 4 == 3
            if not early:
                _wait_for_batches(log, child, luck.randint(1, 3))
            time.sleep(luck.uniform(0, 8 if early else 1.5))
            gone = kill_tree(child.pid)
            child.wait()
        say(f"kill {number + 1} of {kills} after {time.monotonic() - begun:.1f} s: {gone} processes; {_results(log)} results so far")
    feeder.finish()
    with _started(folder, place, "--until-caught-up") as child:
        if child.wait(PATIENCE) != 0:
            raise RunFailed(f"the last run did not catch up; see {folder}/state/{RUN}/spark.log")
    verdict = compare(log, kills)
    log.close()
    return verdict


@contextlib.contextmanager
def _started(folder: Path, url: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A supervised run in a process of its own; nothing of it is left in the end."""
    command = [sys.executable, "-m", "millrace.measure.chaos", "--run", str(folder), "--log", url, *options]
    child = subprocess.Popen(command, start_new_session=True)
    try:
        yield child
    finally:
        kill_tree(child.pid)
        child.wait()


def kill_tree(root: int) -> int:
    """Kill -9 for a process and all that descends from it, at once; how many there were."""
    doomed = tree(root)
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(doomed)


def compare(log: Log, kills: int) -> Verdict:
    """The result topic, the late rows and the dead letters against one uninterrupted run over the same log."""
    shown, expected = _shown(log), _uninterrupted(log)
    key = ["geocell", "window_start", "window_end"]
    times = Counter(shown.select(*key, "index", "op").iter_rows())
    gaps = shown.group_by(key).agg((pl.col("index").max() + 1 - pl.col("index").n_unique()).alias("gap"))["gap"].sum()
    last, right = panes.newest(shown, ["geocell"]), panes.newest(expected.outputs, ["geocell"])
    both = right.join(last, on=key, how="full", suffix="_shown", coalesce=True)
    absent, other = both["count_shown"].is_null(), both["count"].is_null() | (both["count"] != both["count_shown"])
    letters = _letters(log, late_topic(expected.job)), _letters(log, dead_topic(POSITIONS.name))
    told = letters[0] + letters[1]
    return Verdict(
        kills,
        int(absent.sum()) + int(gaps) + len(expected.letters - set(told)),
        sum(count - 1 for count in times.values()) + sum(count - 1 for count in told.values()),
        int((other & ~absent).sum()) + len(set(told) - expected.letters),
    )


@dataclass(frozen=True)
class Expected:
    """What an uninterrupted run shows and sets aside."""

    job: str
    outputs: pl.DataFrame
    letters: set[tuple[str, ...]]


def _uninterrupted(log: Log) -> Expected:
    engine = Engine([job()])
    start, letters = feed.begin(log, engine.plan.topics), set[tuple[str, ...]]()
    shown: list[pl.DataFrame] = []
    while True:
        end = feed.advance(log, start, now=start.clock + 1, limit=37_000)
        if end.topics == start.topics:
            return Expected(engine.plan.jobs[0].name, pl.concat(shown), letters)
        results = engine.step(feed.pieces(log, engine.plan, start, end), end.clock)
        shown += list(results.outputs.values())
        for frame in (*results.late.values(), *([] if results.dead is None else [results.dead])):
            letters |= {tuple(map(str, row)) for row in frame.select("reason", "partition", "offset").iter_rows()}
        start = end


def _shown(log: Log) -> pl.DataFrame:
    topic = CELL_COUNTS.name
    return pl.concat([decode(CELL_COUNTS, p, log.read(topic, p, 0, end), panes=True).rows for p, end in log.ends(topic).items()]).drop(
        "ingestion_time", "_off"
    )


def _letters(log: Log, topic: str) -> Counter[tuple[str, ...]]:
    frames = [read_letters(log.read(topic, p, 0, end)) for p, end in log.ends(topic).items() if end]
    return Counter(row for frame in frames for row in frame.select("reason", "partition", "offset").iter_rows())


def _wait_for_batches(log: Log, child: subprocess.Popen[bytes], count: int) -> None:
    """Returns when the result topic has grown so many times."""
    deadline, seen = time.monotonic() + PATIENCE, _results(log)
    while count:
        now = _results(log)
        count, seen = (count - 1, now) if now > seen else (count, seen)
        if child.poll() is not None:
            raise RunFailed(f"the run ended by itself, with code {child.returncode}")
        if time.monotonic() > deadline:
            raise RunFailed(f"no result for {PATIENCE:.0f} s")
        time.sleep(0.02)


def _results(log: Log) -> int:
    try:
        return sum(log.ends(CELL_COUNTS.name).values())
    except TopicMissing:
        return 0


def _run(folder: Path, url: str, *, until_caught_up: bool) -> None:
    from millrace.runners import run

    settings = Settings().changed(log_url=url, state_dir=folder / "state", run_name=RUN, run_max_events_per_batch=20_000)
    run(job(), on="spark", settings=settings, until_caught_up=until_caught_up)


def main() -> int:
    """Prints a line for each kill, and the verdict last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=int(os.environ.get("KILLS", "10")), help="how often; by default what KILLS says, or 10"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", help="the log, an empty one, such as kafka://localhost:9092/chaos; by default an embedded one")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until-caught-up", action="store_true", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.run:
        _run(said.run, said.log, until_caught_up=said.until_caught_up)
        return 0
    with tempfile.TemporaryDirectory(prefix="millrace-chaos-") as folder:
        verdict = chaos(Path(folder), kills=said.kills, url=said.log, seed=said.seed, say=lambda line: print(line, flush=True))
    print(verdict)
    return 0 if (verdict.missing, verdict.doubled, verdict.wrong) == (0, 0, 0) else 1


if __name__ == "__main__":
    sys.exit(main())
