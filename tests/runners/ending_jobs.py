"""Jobs in which something waits until the end of the stream, their events, and what the log then holds.

Run as a program, the chained ones are run to their end, to be killed:
`python ending_jobs.py LOG STATE local|spark`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

import millrace as mr
from millrace import config, panes, patterns, state, triggers, watermarks, windows
from millrace.log import Log
from millrace.log.codecs.codec import decode, encode
from millrace.processors import Context
from millrace.stream import Stream


@dataclass
class Reading:
    sensor: str
    value: int


@dataclass
class Total:
    sensor: str
    total: int


@dataclass
class Low:
    sensor: str
    value: int


READINGS = mr.Topic("input.readings", Reading, key="sensor", partitions=2)
TOTALS, PEAKS, SUMS, RINGS, VISITS, ALL, CLOCKED = (
    mr.Topic(f"analytics.{name}", Total, key="sensor", partitions=2)
    for name in ("totals", "peaks", "sums", "rings", "visits", "all", "clocked")
)
LOWS = mr.Topic("analytics.lows", Low, key="sensor", partitions=2)


class Rings(mr.Processor):
    """A timer long after the last row."""

    outputs: ClassVar = {"total": pl.Int64}
    total = state.value(0)

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.total += row["value"]
        ctx.set_timer("late", row["event_time"] // 10_000 * 10_000 + 3_600_000)

    def on_timer(self, ctx: Context, name: str) -> None:
        ctx.emit(total=self.total)


def readings() -> Stream:
    return mr.read(READINGS, watermark=watermarks.bounded("2s"))


def totals() -> mr.Job:
    """The first of three that are chained through the log."""
    window = readings().window(windows.sliding("10s", every="5s"), lateness="5s")
    return mr.Job("totals", window.group_by("sensor").sum("value", name="total").write(TOTALS))


def peaks() -> mr.Job:
    window = mr.read(TOTALS, watermark=watermarks.bounded("1s")).window(windows.fixed("20s"))
    return mr.Job("peaks", window.group_by("sensor").max("total").write(PEAKS))


def sums() -> mr.Job:
    rows = mr.read(PEAKS, watermark=watermarks.bounded("1s")).window(
        windows.global_window(), trigger=triggers.at_end()
    )
    return mr.Job("sums", rows.group_by("sensor").sum("total").write(SUMS))


def rings() -> mr.Job:
    return mr.Job("rings", readings().group_by("sensor").process(Rings()).write(RINGS))


def visits() -> mr.Job:
    """Sessions with early panes."""
    window = readings().window(
        windows.sessions("3s"), trigger=triggers.at_watermark(early=triggers.after_count(7))
    )
    return mr.Job("visits", window.group_by("sensor").count(name="total").write(VISITS))


def everything() -> mr.Job:
    window = readings().window(windows.global_window(), trigger=triggers.at_end())
    return mr.Job("all", window.group_by("sensor").sum("value", name="total").write(ALL))


def clocked() -> mr.Job:
    window = readings().window(
        windows.processing_time(windows.fixed("10m")), trigger=triggers.at_window_end()
    )
    return mr.Job("clocked", window.group_by("sensor").count(name="total").write(CLOCKED))


def lows() -> mr.Job:
    """A low value after which no high one comes within 20 s, which is known only then."""
    value = pl.col("value")
    pattern = mr.pattern("low", value < 6).not_followed_by("high", value > 37).within("20s").skip_to_next()
    matches = readings().group_by("sensor").match(pattern, select={"value": patterns.first("low", "value")})
    return mr.Job("lows", matches.write(LOWS))


def chained() -> list[mr.Job]:
    """Each reads what the one before writes; given in the wrong order."""
    return [sums(), peaks(), totals()]


def rows(count: int) -> pl.DataFrame:
    """One each 50 ms, a tenth of them up to 20 s late."""
    dice = np.random.default_rng(count)
    arrival = 1_000_000 + np.arange(count) * 50
    late = np.where(dice.random(count) < 0.1, dice.integers(0, 20_000, count), dice.integers(0, 900, count))
    return pl.DataFrame(
        {
            "sensor": [f"s{n}" for n in dice.integers(0, 5, count)],
            "value": dice.integers(-2, 40, count),
            "event_time": arrival - late,
            "ingestion_time": arrival,
        }
    )


def fill(log: Log, count: int) -> None:
    log.ensure(READINGS)
    log.append(READINGS.name, encode(READINGS, rows(count)))


def written(log: Log, topic: mr.Topic) -> pl.DataFrame:
    """All that a topic holds, sorted."""
    parts = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    frame = pl.concat(parts).drop("ingestion_time", "_off")
    return frame.sort(pl.all())


def like_written(frame: pl.DataFrame, topic: mr.Topic) -> pl.DataFrame:
    """What a replay gives, in the columns and the order of `written`."""
    columns = [*topic.schema, "event_time", *panes.COLUMNS]
    missing = [column for column in columns if column not in frame.columns]
    whole = frame.with_columns(pl.lit(None, panes.COLUMNS[column]).alias(column) for column in missing)
    return whole.select(columns).sort(pl.all())


def settings(log: str, folder: Path | str, **more: object) -> config.Settings:
    return config.Settings().with_options(
        log_url=log, state_dir=folder, run_name="ending", spark_partitions=2, spark_master="local[2]", **more
    )


if __name__ == "__main__":
    chosen = settings(sys.argv[1], sys.argv[2], run_on=sys.argv[3], run_max_events_per_batch=150)
    mr.run(*chained(), settings=chosen, until_end=True)
