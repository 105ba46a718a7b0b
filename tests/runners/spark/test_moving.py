"""State leaves one checkpoint of Spark's and goes on in another: other slots and partitions, other jobs, and
savepoints from one runner to the other.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millrace as mr
from bench.spark_foreground import run
from millrace import watermarks, windows
from millrace.config import Settings
from millrace.errors import StateMismatch
from millrace.log import Log
from millrace.runners import run as run_on
from millrace.runners.spark.savepoint import save_stopped_run
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.savepoint import save
from runners.spark.readings import (
    READINGS,
    SPREADS,
    TOTALS,
    append,
    assert_exactly_once,
    in_one_piece,
    last_words,
    readings,
    spreads,
    totals,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def partitions_as_before(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_jobs_slots_and_partitions_change_and_no_result_is_lost_or_doubled(
    spark: SparkSession, log: Log, settings: Settings
) -> None:
    rows = readings(1_500)

    def run_range(first: int, last: int, *jobs: mr.Job, **more: Any) -> None:
        append(log, rows[first:last])
        chosen = settings.with_options(run_max_events_per_batch=300, **more)
        run(jobs, settings=chosen, spark=spark, until_caught_up=True)

    run_range(0, 400, totals(), spreads(), run_slots=4)
    run_range(400, 700, totals(), spreads(), run_slots=7, spark_partitions=3)
    assert_exactly_once(log, [totals(), spreads()], [TOTALS, SPREADS])
    folder = settings.state.dir / "test"
    (checkpoint,) = folder.glob("checkpoint*")
    wide = mr.read(READINGS, watermark=watermarks.bounded("1s")).window(windows.fixed("20s"), lateness="5s")
    changed = mr.Job("totals", wide.group_by("sensor").sum("value").write(TOTALS))
    with pytest.raises(
        StateMismatch,
        match=r"totals/aggregation-1 has another window.* --reset totals; .* another name.* migrate=",
    ):
        run_range(700, 700, changed, spreads())
    done = max(checkpoint.glob("commits/[0-9]*"), key=lambda file: int(file.name))
    done.unlink()
    with pytest.raises(
        StateMismatch, match=r"begun and not finished.*until-caught-up first, then change them"
    ):
        run_range(700, 700, totals())
    run_range(700, 900, totals(), spreads(), spark_partitions=3)
    assert_exactly_once(log, [totals(), spreads()], [TOTALS, SPREADS])
    run_range(900, 1_000, totals(), run_slots=1)
    run_range(1_000, 1_500, totals(), spreads())
    assert_exactly_once(log, [totals()], [TOTALS])
    later, outputs = pl.col("window_end") > 1_060_000, in_one_piece(log, [spreads()])[0]
    joined, whole = (
        last_words(frame, SPREADS).filter(later) for frame in (written(log, SPREADS), outputs[SPREADS.name])
    )
    assert joined.height > 10, "a job that joined shows all windows that began after it"
    assert joined.equals(whole)


def test_a_savepoint_goes_from_one_runner_to_the_other(
    spark: SparkSession, log: Log, settings: Settings, tmp_path: Path
) -> None:
    jobs, rows = [totals(), spreads()], readings(900)
    first, second = tmp_path / "first.savepoint", tmp_path / "second.savepoint"
    append(log, rows[:300])
    run_on(
        *jobs, on="local", settings=settings.with_options(run_name="one", run_slots=3), until_caught_up=True
    )
    with lock_folder(settings.state.dir / "one") as folder:
        save(folder, first)
    append(log, rows[300:600])
    cut = settings.with_options(run_name="two", run_max_events_per_batch=120, run_slots=5)
    run(jobs, settings=cut, spark=spark, until_caught_up=True, restore=first)
    assert_exactly_once(log, jobs, [TOTALS, SPREADS])
    with pytest.raises(StateMismatch, match="holds state of the Spark runner"):
        run_on(*jobs, on="local", settings=cut, until_caught_up=True)
    with pytest.raises(StateMismatch, match="holds state already"):
        run(jobs, settings=cut, spark=spark, until_caught_up=True, restore=first)
    with lock_folder(settings.state.dir / "two") as folder:
        save_stopped_run(folder, second, cut, spark)
    append(log, rows[600:])
    run_on(
        *jobs,
        on="local",
        settings=settings.with_options(run_name="three", run_slots=1),
        until_caught_up=True,
        restore=second,
    )
    assert_exactly_once(log, jobs, [TOTALS, SPREADS])


@pytest.mark.long
def test_supervised_runs_and_the_command_do_the_same(log: Log, settings: Settings, tmp_path: Path) -> None:
    """In processes of their own, as users run them."""
    jobs, rows, file = [totals(), spreads()], readings(900), tmp_path / "stopped.savepoint"
    for number, slots in enumerate((4, 3)):
        append(log, rows[number * 300 : number * 300 + 300])
        run_on(*jobs, on="spark", settings=settings.with_options(run_slots=slots), until_caught_up=True)
        assert_exactly_once(log, jobs, [TOTALS, SPREADS])
    command = [
        sys.executable,
        "-m",
        "millrace.cli.main",
        "savepoint",
        str(file),
        "--state",
        str(settings.state.dir),
        "--name",
        "test",
    ]
    subprocess.run(command, check=True)
    append(log, rows[600:])
    run_on(
        *jobs,
        on="spark",
        settings=settings.with_options(run_name="restored", run_slots=2),
        until_caught_up=True,
        restore=file,
    )
    assert_exactly_once(log, jobs, [TOTALS, SPREADS])
