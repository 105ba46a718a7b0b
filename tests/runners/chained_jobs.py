"""Two jobs, one after the other: totals per sensor, and alerts by windows of those, which are rare.

As a program: `python chained_jobs.py LOG STATE JOB` runs one of them until it has caught up.
"""

import sys
from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import config, watermarks, windows
from millrace.log import Log
from millrace.log.codecs.codec import decode, encode
from millrace.runners.local import run_local


@dataclass
class Reading:
    sensor: str
    value: int


@dataclass
class Total:
    sensor: str
    value: int


@dataclass
class Alert:
    sensor: str
    count: int


READINGS = mr.Topic("input.measured", Reading, key="sensor", partitions=2)
TOTALS = mr.Topic("analytics.large", Total, key="sensor", partitions=2)
ALERTS = mr.Topic("analytics.alerts", Alert, key="sensor", partitions=2)


def totals(lateness: str = "30s") -> mr.Job:
    """The sum of each sensor in 10 s, where it is large."""
    readings = mr.read(READINGS, watermark=watermarks.bounded("1s"))
    sums = readings.window(windows.fixed("10s"), lateness=lateness).group_by("sensor").sum("value")
    return mr.Job("totals", sums.filter(pl.col("value") >= 100).write(TOTALS))


def alerts() -> mr.Job:
    """How many large totals there are of a sensor in a minute."""
    large = mr.read(TOTALS, watermark=watermarks.upstream())
    return mr.Job("alerts", large.window(windows.fixed("1m")).group_by("sensor").count().write(ALERTS))


JOBS = {"totals": totals, "alerts": alerts}


def settings(log: str, state: str, run: str, **more: object) -> config.Settings:
    """Small batches. Runs of different names have folders of their own."""
    return config.Settings().with_options(
        log_url=log, state_dir=state, run_name=run, run_max_events_per_batch=150, **more
    )


def run(log: str, state: str, *jobs: str, until_end: bool = False) -> None:
    """Jobs in one run, named after the first, until they have caught up or their streams have ended."""
    made = [JOBS[job]() for job in jobs]
    run_local(made, settings=settings(log, state, jobs[0]), until_caught_up=True, until_end=until_end)


def feed(log: Log, start: int, seconds: int) -> None:
    """A reading a second of each of 5 sensors, some of them late. Sensor s1 has a large one at 7 s and 37 s
    of each minute, up to minute 5.
    """
    log.ensure(READINGS)
    rows = [
        (
            f"s{sensor}",
            200 if sensor == 1 and second % 30 == 7 and second < 300 else 1,
            (second - (20 if sensor == 3 and second % 9 == 4 else 0)) * 1_000,
            second * 1_000 + 20,
        )
        for second in range(start, start + seconds)
        for sensor in range(5)
    ]
    schema = ["sensor", "value", "event_time", "ingestion_time"]
    log.append(READINGS.name, encode(READINGS, pl.DataFrame(rows, schema=schema, orient="row")))


def rows_of(log: Log, topic: mr.Topic) -> pl.DataFrame:
    """All panes of a topic."""
    log.ensure(topic)
    parts = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return pl.concat(parts).sort("window_end")


def alerts_until(watermark: int) -> list[tuple[str, int, int]]:
    """The alerts once the totals are complete up to `watermark`: two in each of the first minutes."""
    return [("s1", minute * 60_000, 2) for minute in range(1, 6) if minute * 60_000 <= watermark]


def shown_alerts(log: Log) -> list[tuple[str, int, int]]:
    """The alerts that are there."""
    return rows_of(log, ALERTS).select("sensor", "window_end", "count").rows()


if __name__ == "__main__":
    run(*sys.argv[1:])
