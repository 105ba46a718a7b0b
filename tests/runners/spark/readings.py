"""Jobs over readings of sensors, readings in any order, and what the log then holds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

import millrace as mr
from millrace import panes, patterns, watermarks, windows
from millrace.log import Log, OutgoingRecords
from millrace.log.codecs.codec import decode, encode
from millrace.log.dead_letters import dead_topic, late_topic, parse_letters
from millrace.runners import batches
from millrace.runners.local import Engine


@dataclass
class Reading:
    sensor: str
    value: int


@dataclass
class Total:
    sensor: str
    value: int


@dataclass
class Climb:
    sensor: str
    low: int
    high: int


@dataclass
class Spread:
    value: int
    sensors: int


READINGS = mr.Topic("input.readings", Reading, key="sensor", partitions=3)
TOTALS = mr.Topic("analytics.totals", Total, key="sensor", partitions=2)
SPREADS = mr.Topic("analytics.spreads", Spread, partitions=2)
COPIES = mr.Topic("analytics.copies", Reading, key="sensor", partitions=2)
CLIMBS = mr.Topic("analytics.climbs", Climb, key="sensor", partitions=2)
FALLS = mr.Topic("analytics.falls", Climb, key="sensor", partitions=2)
ENDS = {"low": patterns.last("low", "value"), "high": patterns.last("high", "value")}
KEYS = {TOTALS.name: ["sensor"], SPREADS.name: ["value"], CLIMBS.name: ["sensor"], FALLS.name: ["sensor"]}


def totals() -> mr.Job:
    """The sum of each sensor, 10 s every 5 s."""
    readings = mr.read(READINGS, watermark=watermarks.bounded("1s"))
    return mr.Job(
        "totals",
        readings.window(windows.sliding("10s", every="5s"), lateness="5s")
        .group_by("sensor")
        .sum("value")
        .write(TOTALS),
    )


def spreads() -> mr.Job:
    """How many sensors last reported the same value."""
    readings = mr.read(READINGS, watermark=watermarks.bounded("2s")).filter(pl.col("value") > 0)
    window = readings.window(windows.fixed("10s"), lateness="20s")
    return mr.Job(
        "spreads",
        window.group_by("sensor").latest("value").group_by("value").count(name="sensors").write(SPREADS),
    )


def climbs() -> mr.Job:
    """A relaxed pattern that looks back: what is kept of a sensor is the matches that have begun."""
    value, low = pl.col("value"), patterns.last("low", "value")
    climb = (
        mr.pattern("low", value < 6)
        .followed_by("high", (value > 20) & (value > 6 * low))
        .within("15s")
        .skip_to_next()
    )
    found = mr.read(READINGS, watermark=watermarks.bounded("2s")).group_by("sensor").match(climb, select=ENDS)
    return mr.Job("climbs", found.write(CLIMBS))


def falls() -> mr.Job:
    """A regular pattern: what is kept of a sensor is its newest rows."""
    fall = (
        mr.pattern("high", pl.col("value") > 20)
        .next("low", pl.col("value") < 15)
        .times(2)
        .consecutive()
        .within("15s")
        .skip_past_last()
    )
    found = mr.read(READINGS, watermark=watermarks.bounded("2s")).group_by("sensor").match(fall, select=ENDS)
    return mr.Job("falls", found.write(FALLS))


def copies() -> mr.Job:
    """No key and no window: no stage at all."""
    return mr.Job("copies", mr.read(READINGS).filter(pl.col("value") % 10 == 0).write(COPIES))


def readings(count: int, *, seed: int = 1) -> pl.DataFrame:
    """One each 50 ms, a tenth of them up to 20 s late."""
    rng = np.random.default_rng(seed)
    arrival = 1_000_000 + np.arange(count) * 50
    late = np.where(rng.random(count) < 0.1, rng.integers(0, 20_000, count), rng.integers(0, 900, count))
    return pl.DataFrame(
        {
            "sensor": [f"s{n}" for n in rng.integers(0, 12, count)],
            "value": rng.integers(-2, 40, count),
            "event_time": arrival - late,
            "ingestion_time": arrival,
        }
    )


def append(log: Log, frame: pl.DataFrame) -> None:
    """In a few appends, with something unreadable after each."""
    for part in frame.iter_slices(max(1, len(frame) // 3)):
        log.append(READINGS.name, encode(READINGS, part))
        log.append(
            READINGS.name,
            OutgoingRecords(
                pa.array([b"\xffnonsense", b""], pa.binary()), pa.array([b"x", b"y"], pa.binary())
            ),
        )


def written(log: Log, topic: mr.Topic) -> pl.DataFrame:
    """All that a topic holds, as it was written."""
    parts = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=topic.name in KEYS).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return pl.concat(parts).drop("ingestion_time", "_off")


def last_words(frame: pl.DataFrame, topic: mr.Topic) -> pl.DataFrame:
    return panes.latest_panes(frame, KEYS[topic.name])


def letters(log: Log, topic: str) -> Counter[tuple[str, ...]]:
    """How often each record was set aside."""
    frames = [parse_letters(log.read(topic, p, 0, end)) for p, end in log.end_offsets(topic).items() if end]
    return Counter(
        row for frame in frames for row in frame.select("reason", "partition", "offset").iter_rows()
    )


def in_one_piece(log: Log, jobs: Sequence[mr.Job]) -> tuple[dict[str, pl.DataFrame], set[tuple[str, ...]]]:
    """What the engine says of the whole log in one batch: outputs by topic, and what it sets aside."""
    engine = Engine(jobs, slots=1)
    start = batches.beginning_offsets(log, engine.plan.topics)
    end = batches.plan_batch_end(log, start, now=2_000_000)
    results = engine.step(batches.read_batch(log, engine.plan, start, end), end.clock)
    aside = [*results.late.values(), *([] if results.dead is None else [results.dead])]
    return results.outputs, {
        tuple(map(str, row))
        for frame in aside
        for row in frame.select("reason", "partition", "offset").iter_rows()
    }


def assert_exactly_once(log: Log, jobs: Sequence[mr.Job], topics: Sequence[mr.Topic]) -> None:
    """None missing, none twice, none wrong: results, late rows and dead letters."""
    outputs, aside = in_one_piece(log, jobs)
    for topic in topics:
        shown = written(log, topic)
        assert shown.height > 10
        key = [*KEYS[topic.name], "window_start", "window_end", "index", "op"]
        assert shown.select(key).is_duplicated().sum() == 0, "no pane is there twice"
        assert last_words(shown, topic).equals(last_words(outputs[topic.name], topic)), (
            "no last word is missing or wrong"
        )
    refused = letters(log, dead_topic(READINGS.name))
    for job in jobs:
        refused += letters(log, late_topic(job.name))
    assert set(refused) == aside
    assert len(jobs) > 1 or set(refused.values()) <= {1}
