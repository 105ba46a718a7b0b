"""Random streams whose rows are all on time, run by the engine, and the same rows as tables of DuckDB.

As no row is late, what holds at the end of the stream is what a query over all rows answers, however the
stream was cut.
"""

import math
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from millrace import watermarks
from millrace.stream import Job
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine
from millrace.watermarks import Watermark
from strategies import EPOCHS, READINGS, A, B

CASES, SEED = int(os.environ.get("PEER_CASES", "300")), int(os.environ.get("PEER_SEED", "0"))
TOPICS = (A, B)
ORDER = "t, topic, part, off"
"""The order of rows: event time, and where times are equal topic, partition and offset."""


@dataclass(frozen=True)
class Flow:
    """Rows of two topics in the order in which they come, and how far behind the newest they may be."""

    events: list[SourceEvent]
    unit: int
    disorder: int
    partitions: dict[str, int]

    @property
    def watermark(self) -> Watermark:
        """One by which no row is late."""
        return watermarks.bounded(self.disorder)

    @property
    def span(self) -> tuple[int, int]:
        """The earliest and the latest event time."""
        times = [event.event_time for event in self.events] or [0]
        return min(times), max(times)


def a_flow(chance: random.Random) -> Flow:
    """Rows with equal times, nulls and equal keys, out of order, in up to two partitions of each topic."""
    unit, now = chance.choice([1, 1_000]), chance.choice(EPOCHS)
    disorder = chance.choice([0, 3, 12]) * unit
    partitions = {topic.name: chance.choice([1, 1, 2]) for topic in TOPICS}
    offsets: Counter[tuple[str, int]] = Counter()
    events = []
    for _ in range(chance.choice([0, 1, 5, 15, 40])):
        now += chance.choice([0, 0, 1, 2, 9]) * unit
        topic = chance.choice(TOPICS).name
        place = (topic, chance.randrange(partitions[topic]))
        at = max(0, now - chance.randint(0, disorder // unit) * unit)
        events.append(
            SourceEvent(
                *place,
                offsets[place],
                at,
                now,
                {name: chance.choice(some) for name, some in READINGS.items()},
            )
        )
        offsets[place] += 1
    return Flow(events, unit, disorder, partitions)


def run(chance: random.Random, job: Job, flow: Flow) -> list[dict[str, Any]]:
    """What a job wrote, with the stream cut into batches at random and restarts between some of them."""
    engine = OnEngine([job], flow.partitions, slots=chance.choice([1, 2, 5]))
    [output] = [output.topic.name for output in job.outputs]
    written, rows = [], list(flow.events)
    while True:
        size = chance.randint(1, 15)
        batch, rows = rows[:size], rows[size:]
        now = batch[-1].ingestion_time if batch else 0
        if chance.random() < 0.2:
            engine.restart()
        fed = engine.feed(batch, now, end=not rows)
        assert not any(fed.late.values()), f"a row is late: {fed.late}"
        written += fed.written.get(output, [])
        if not rows:
            return written


def added_up(written: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """The rows of a changelog that hold in the end: what was added and not withdrawn."""
    held: Counter[tuple[Any, ...]] = Counter()
    for row in written:
        held[plain(row[column] for column in columns)] += 1 if row.get("op", "+") == "+" else -1
    assert all(count >= 0 for count in held.values()), f"a row was withdrawn that was not there: {held}"
    return +held


def newest(
    written: Iterable[Mapping[str, Any]], keys: Sequence[str], columns: Sequence[str]
) -> Counter[tuple[Any, ...]]:
    """The rows of a changelog that hold in the end: the newest of each key."""
    held: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in written:
        key = plain(row[column] for column in keys)
        if row["op"] == "+":
            held[key] = plain(row[column] for column in columns)
        else:
            held.pop(key, None)
    return Counter(held.values())


def plain(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values as both write them: one NaN, one zero, no more digits than both compute alike."""
    return tuple(map(_plain, values))


def _plain(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isfinite(value):
            return float(f"{value:.9g}") + 0.0
        case dict():
            return tuple((name, _plain(inner)) for name, inner in value.items())
        case list():
            return tuple(map(_plain, value))
    return value


class Duck:
    """DuckDB with the rows of a flow as tables `a` and `b`: the columns of readings,
    their time and their place.
    """

    def __init__(self) -> None:
        self.db = duckdb.connect()
        self.db.execute("SET threads = 1")

    def give(self, flow: Flow) -> None:
        """Replaces the tables."""
        schema = {**A.schema, "t": pl.Int64(), "topic": pl.String(), "part": pl.Int64(), "off": pl.Int64()}
        for topic, name in zip(TOPICS, "ab", strict=True):
            rows = [
                {**e.values, "t": e.event_time, "topic": e.topic, "part": e.partition, "off": e.offset}
                for e in flow.events
                if e.topic == topic.name
            ]
            self.db.register(name, pl.DataFrame(rows, schema=schema, orient="row").to_arrow())

    def ask(self, query: str) -> Counter[tuple[Any, ...]]:
        """The rows of the answer."""
        return Counter(map(plain, self.db.execute(query).fetchall()))
