"""What a tormented run has committed, against an uninterrupted run over the same log and against an oracle that does not know the engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from bench.oracle import expected as expected_by_oracle
from millrace import panes
from millrace.log import Log
from millrace.log.codecs.codec import decode
from millrace.log.dead import dead_topic, late_topic, read_letters
from millrace.runners import batches
from millrace.runners.local import Engine
from millrace.stream import Job
from millrace.transit.jobs.vehicle_distribution import vehicle_distribution
from millrace.transit.topics import CELL_COUNTS, POSITIONS


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

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return (self.missing, self.doubled, self.wrong) == (0, 0, 0)

    def __str__(self) -> str:
        """The last line of the report."""
        return f"{self.kills} kills, missing {self.missing}, doubled {self.doubled}, wrong {self.wrong}"


def compare(log: Log, kills: int) -> Verdict:
    """The result topic, the late rows and the dead letters against one uninterrupted run over the same log, and the last results against the oracle."""
    shown, expected = _shown(log), _uninterrupted(log)
    key = ["geocell", "window_start", "window_end"]
    times = Counter(shown.select(*key, "index", "op").iter_rows())
    gaps = (
        shown.group_by(key)
        .agg((pl.col("index").max() + 1 - pl.col("index").n_unique()).alias("gap"))["gap"]
        .sum()
    )
    last, right = panes.newest(shown, ["geocell"]), panes.newest(expected.outputs, ["geocell"])
    both = right.join(last, on=key, how="full", suffix="_shown", coalesce=True)
    absent, other = (
        both["count_shown"].is_null(),
        both["count"].is_null() | (both["count"] != both["count_shown"]),
    )
    letters = _letters(log, late_topic(expected.job)), _letters(log, dead_topic(POSITIONS.name))
    told = letters[0] + letters[1]
    counts = {(c, start, end): n for c, start, end, n in last.select(*key, "count").iter_rows() if n}
    oracle = expected_by_oracle(log, POSITIONS.name)
    return Verdict(
        kills,
        len(oracle.keys() - counts.keys())
        + int(absent.sum())
        + int(gaps)
        + len(expected.letters - set(told)),
        sum(count - 1 for count in times.values()) + sum(count - 1 for count in told.values()),
        sum(oracle.get(place) != count for place, count in counts.items())
        + int((other & ~absent).sum())
        + len(set(told) - expected.letters),
    )


@dataclass(frozen=True)
class Expected:
    """What an uninterrupted run shows and sets aside."""

    job: str
    outputs: pl.DataFrame
    letters: set[tuple[str, ...]]


def _uninterrupted(log: Log) -> Expected:
    engine = Engine([job()])
    start, letters = batches.begin(log, engine.plan.topics), set[tuple[str, ...]]()
    shown: list[pl.DataFrame] = []
    while True:
        end = batches.advance(log, start, now=start.clock + 1, limit=37_000)
        if end.topics == start.topics:
            return Expected(engine.plan.jobs[0].name, pl.concat(shown), letters)
        results = engine.step(batches.pieces(log, engine.plan, start, end), end.clock)
        shown += list(results.outputs.values())
        for frame in (*results.late.values(), *([] if results.dead is None else [results.dead])):
            letters |= {
                tuple(map(str, row)) for row in frame.select("reason", "partition", "offset").iter_rows()
            }
        start = end


def _shown(log: Log) -> pl.DataFrame:
    topic = CELL_COUNTS.name
    return pl.concat(
        [
            decode(CELL_COUNTS, p, log.read(topic, p, 0, end), panes=True).rows
            for p, end in log.ends(topic).items()
        ]
    ).drop("ingestion_time", "_off")


def _letters(log: Log, topic: str) -> Counter[tuple[str, ...]]:
    frames = [read_letters(log.read(topic, p, 0, end)) for p, end in log.ends(topic).items() if end]
    return Counter(
        row for frame in frames for row in frame.select("reason", "partition", "offset").iter_rows()
    )
