"""On Spark, too, a job that its own code stops is stopped alone: the batch is taken back everywhere,
and run again without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.spark_foreground import run
from millrace.config import Settings
from millrace.errors import JobQuarantined
from millrace.log import Log
from runners.stopping_jobs import BAD, GOOD, alone, bad, fill, good, letters, picky, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_millionth_event_stops_one_job_and_not_the_other(
    spark: SparkSession, log: Log, settings: Settings, tmp_path: Path
) -> None:
    fill(log, 0, 1_100_000)
    reports: list[tuple[int, list[str]]] = []

    def report(batch: int, results: Any) -> None:
        reports.append((batch, sorted(results.quarantined)))

    with pytest.raises(JobQuarantined, match="ZeroDivisionError: number 999999"):
        run([good(), bad(999_999)], settings=settings, spark=spark, until_caught_up=True, report=report)
    assert reports == [(0, []), (1, []), (2, ["bad"])]
    assert written(log, GOOD) == alone(log, tmp_path)
    assert [letter[:3] for letter in letters(log)] == [("input.events", "1", "499999")]
    assert max(end for end, *_ in written(log, BAD)) <= 800_000


def test_an_answer_that_fails_in_one_slot_is_taken_back_in_all(
    spark: SparkSession, log: Log, settings: Settings, tmp_path: Path
) -> None:
    cut = settings.with_options(run_max_events_per_batch=10_000)
    fill(log, 0, 15_001)
    fill(log, 20_000, 20_000)
    with pytest.raises(JobQuarantined, match="KeyError"):
        run([good(), picky(15_000, "result")], settings=cut, spark=spark, until_caught_up=True)
    assert written(log, BAD) == []
    fill(log, 40_000, 20_000)
    run([good(), picky(None, "result")], settings=cut, spark=spark, until_caught_up=True, retry=("bad",))
    assert written(log, GOOD) == alone(log, tmp_path)
    after, sums = written(log, BAD), written(log, GOOD)
    for end in (10_000, 50_000):
        actual, theirs = ([row for row in panes if row[0] == end] for panes in (after, sums))
        assert actual == theirs, "all slots go on from the state before the batch"
    assert len(letters(log)) == 1
    assert not list(settings.state.dir.rglob("*.tmp")), (
        "no file of the attempt that was taken back was left in the place of a newer one"
    )


def test_the_letters_of_a_job_that_runs_alone_are_committed_once(
    spark: SparkSession, log: Log, settings: Settings, tmp_path: Path
) -> None:
    fill(log, 0, 30_000)
    for _ in range(2):
        with pytest.raises(JobQuarantined, match=r"traceback is in .*quarantine-bad\.txt"):
            run([bad(5_000)], settings=settings, spark=spark, until_caught_up=True)
    assert [letter[:3] for letter in letters(log)] == [("input.events", "0", "2500")]
    [trace] = settings.state.dir.rglob("quarantine-*.txt")
    assert "ZeroDivisionError: number 5000" in trace.read_text()
    run([bad(None)], settings=settings, spark=spark, until_caught_up=True, retry=("bad",))
    run([good()], settings=settings.with_options(run_name="other"), spark=spark, until_caught_up=True)
    assert written(log, BAD) == written(log, GOOD)
    assert len(letters(log)) == 1
