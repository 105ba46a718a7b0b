"""Compares what killed runs have committed with an uninterrupted run over the same log, and with an oracle
that does not use the engine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from bench.oracle import expected_counts as expected_by_oracle
from millrace import panes
from millrace.log import Log
from millrace.log.codecs.codec import decode
from millrace.log.dead_letters import dead_topic, late_topic, parse_letters
from millrace.runners import batches
from millrace.runners.local import Engine
from millrace.stream import Job
from millrace.transit.jobs.vehicle_distribution import vehicle_distribution
from millrace.transit.topics import CELL_COUNTS, POSITIONS


def make_job() -> Job:
    """vehicle-distribution, without idle partitions: the clock must decide nothing while a run is down, or
    results could not be compared.

    Its lateness is short, so that some rows are late. They must be written exactly once as well.
    """
    return vehicle_distribution(idle="1000d", lateness="10s")


@dataclass(frozen=True)
class Verdict:
    """How many results are missing, duplicated or wrong."""

    kills: int
    missing: int
    duplicated: int
    wrong: int

    @property
    def is_right(self) -> bool:
        """Whether all results are right."""
        return (self.missing, self.duplicated, self.wrong) == (0, 0, 0)

    def __str__(self) -> str:
        """The last line of the report."""
        return f"{self.kills} kills, missing {self.missing}, doubled {self.duplicated}, wrong {self.wrong}"


def compare(log: Log, kills: int) -> Verdict:
    """Compares results, late rows and dead letters with one uninterrupted run,
    and the last result of each window with the oracle.
    """
    panes_shown, expected = _read_results(log), _run_uninterrupted(log)
    key = ["geocell", "window_start", "window_end"]
    pane_counts = Counter(panes_shown.select(*key, "index", "op").iter_rows())
    gaps = (
        panes_shown.group_by(key)
        .agg((pl.col("index").max() + 1 - pl.col("index").n_unique()).alias("gap"))["gap"]
        .sum()
    )
    last, expected_panes = (
        panes.latest_panes(panes_shown, ["geocell"]),
        panes.latest_panes(expected.outputs, ["geocell"]),
    )
    joined = expected_panes.join(last, on=key, how="full", suffix="_shown", coalesce=True)
    is_absent, is_different = (
        joined["count_shown"].is_null(),
        joined["count"].is_null() | (joined["count"] != joined["count_shown"]),
    )
    letters = _read_letters(log, late_topic(expected.job)), _read_letters(log, dead_topic(POSITIONS.name))
    letter_counts = letters[0] + letters[1]
    counts = {(c, start, end): n for c, start, end, n in last.select(*key, "count").iter_rows() if n}
    oracle = expected_by_oracle(log, POSITIONS.name)
    return Verdict(
        kills,
        len(oracle.keys() - counts.keys())
        + int(is_absent.sum())
        + int(gaps)
        + len(expected.letters - set(letter_counts)),
        sum(count - 1 for count in pane_counts.values()) + sum(count - 1 for count in letter_counts.values()),
        sum(oracle.get(window) != count for window, count in counts.items())
        + int((is_different & ~is_absent).sum())
        + len(set(letter_counts) - expected.letters),
    )


@dataclass(frozen=True)
class UninterruptedRun:
    """The results, late rows and dead letters of an uninterrupted run."""

    job: str
    outputs: pl.DataFrame
    letters: set[tuple[str, ...]]


def _run_uninterrupted(log: Log) -> UninterruptedRun:
    engine = Engine([make_job()])
    start, letters = batches.beginning_offsets(log, engine.plan.topics), set[tuple[str, ...]]()
    outputs: list[pl.DataFrame] = []
    while True:
        end = batches.plan_batch_end(log, start, now=start.clock + 1, limit=37_000)
        if end.topics == start.topics:
            return UninterruptedRun(engine.plan.jobs[0].name, pl.concat(outputs), letters)
        results = engine.step(batches.read_batch(log, engine.plan, start, end), end.clock)
        outputs += list(results.outputs.values())
        for frame in (*results.late.values(), *([] if results.dead is None else [results.dead])):
            letters |= {
                tuple(map(str, row)) for row in frame.select("reason", "partition", "offset").iter_rows()
            }
        start = end


def _read_results(log: Log) -> pl.DataFrame:
    topic = CELL_COUNTS.name
    return pl.concat(
        [
            decode(CELL_COUNTS, p, log.read(topic, p, 0, end), panes=True).rows
            for p, end in log.end_offsets(topic).items()
        ]
    ).drop("ingestion_time", "_off")


def _read_letters(log: Log, topic: str) -> Counter[tuple[str, ...]]:
    frames = [parse_letters(log.read(topic, p, 0, end)) for p, end in log.end_offsets(topic).items() if end]
    return Counter(
        row for frame in frames for row in frame.select("reason", "partition", "offset").iter_rows()
    )
