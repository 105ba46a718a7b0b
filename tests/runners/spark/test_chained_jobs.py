"""On Spark, too, a job follows the watermark of the job that writes its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.spark_foreground import run
from millrace.config import Settings
from millrace.log import Log
from runners.chained_jobs import ALERTS, alerts, alerts_until, feed, rows_of, shown_alerts, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_each_run_shows_all_that_the_first_jobs_watermark_allows(
    spark: SparkSession, log: Log, settings: Settings
) -> None:
    for second in (0, 200):
        feed(log, second, 200)
        for job in (totals(), alerts()):
            run([job], settings=settings.with_options(run_name=job.name), spark=spark, until_caught_up=True)
        assert shown_alerts(log) == alerts_until((second + 198) * 1_000 - 30_000)


def test_in_one_query_the_second_job_keeps_up(spark: SparkSession, log: Log, settings: Settings) -> None:
    feed(log, 0, 400)
    run(
        [totals(), alerts()],
        settings=settings,
        spark=spark,
        stop=lambda: ALERTS.name in log.list_topics() and len(rows_of(log, ALERTS)) == 5,
    )
    assert shown_alerts(log) == alerts_until(369_000)
