"""Two jobs over one topic, of which one may come upon an event that its code cannot take;
and as many events as are wanted.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import millrace as mr
from millrace import aggregates, watermarks, windows
from millrace.aggregates import Aggregate
from millrace.config import Settings
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.log.dead_letters import parse_letters
from millrace.runners.local import run_local
from millrace.stream import Stream


@dataclass
class Event:
    key: str
    number: int


@dataclass
class Total:
    key: str
    total: int | None


EVENTS = mr.Topic("input.events", Event, key="key", partitions=2)
GOOD, BAD = mr.Topic("analytics.good", Total, key="key"), mr.Topic("analytics.bad", Total, key="key")


def events() -> Stream:
    return mr.read(EVENTS, watermark=watermarks.bounded(0)).window(windows.fixed("10s"))


def good() -> mr.Job:
    return mr.Job("good", events().group_by("key").sum("number", name="total").write(GOOD))


def bad(fails_at: int | None) -> mr.Job:
    """Its stateless step raises at the event of this number."""

    def check(frame: pl.DataFrame) -> pl.DataFrame:
        if fails_at is not None and (frame["number"] == fails_at).any():
            raise ZeroDivisionError(f"number {fails_at}")
        return frame

    return mr.Job("bad", events().map_batches(check).group_by("key").sum("number", name="total").write(BAD))


class Picky(Aggregate):
    """A sum that raises at one number: while adding it, or when the answer is asked for."""

    returns = pl.Int64()

    def __init__(self, column: str, fails_at: int | None, where: str) -> None:
        super().__init__(column)
        self.where = where
        self._fails_at = fails_at

    def create(self) -> Any:
        return (0, 0)

    def add(self, state: Any, value: Any) -> Any:
        if self.where == "add" and value == self._fails_at:
            raise KeyError(value)
        return state[0] + value, max(state[1], value)

    def merge(self, one: Any, other: Any) -> Any:
        return one[0] + other[0], max(one[1], other[1])

    def result(self, state: Any) -> Any:
        if self.where == "result" and state[1] == self._fails_at:
            raise KeyError(state)
        return state[0]

    def settings(self) -> dict[str, Any]:
        return {"where": self.where}


def picky(fails_at: int | None, where: str) -> mr.Job:
    return mr.Job(
        "bad", events().group_by("key").aggregate(total=Picky("number", fails_at, where)).write(BAD)
    )


def panicky(fails_at: int | None) -> mr.Job:
    """It raises behind its second aggregation."""

    def check(frame: pl.DataFrame) -> pl.DataFrame:
        if fails_at is not None and (frame["total"] == fails_at).any():
            raise RuntimeError("behind the last aggregation")
        return frame

    latest = events().group_by("key").aggregate(number=aggregates.max("number"))
    return mr.Job("bad", latest.group_by("key").sum("number", name="total").map_batches(check).write(BAD))


def fill(log: Log, start: int, count: int, *, step: int = 1) -> None:
    """Numbered events, one every `step` milliseconds, dealt out to both partitions."""
    log.ensure(EVENTS)
    for first in range(start, start + count, 250_000):
        numbers = np.arange(first, min(first + 250_000, start + count))
        keys = pl.Series([f"k{n}" for n in range(10)])[numbers % 10]
        rows = pl.DataFrame({"key": keys, "number": numbers, "event_time": numbers * step})
        outgoing = encode(EVENTS, rows, ingestion_time=10**12)
        log.append(EVENTS.name, replace(outgoing, partitions=(numbers % 2).astype(np.int32)))


def settings(log: Log, state: Path, name: str, **more: Any) -> Settings:
    return Settings().with_options(log_url=log.url, state_dir=str(state), run_name=name, **more)


def written(log: Log, topic: mr.Topic) -> list[tuple[Any, ...]]:
    """All panes of a topic, in the order of their windows."""
    parts = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return pl.concat(parts).select("window_end", "key", "total", "index", "op").sort(pl.all()).rows()


def letters(log: Log) -> list[tuple[Any, ...]]:
    """What is in the dead letters of the job that fails: topic, partition, offset, reason."""
    end = log.end_offsets("dead.bad")[0]
    found = parse_letters(log.read("dead.bad", 0, 0, end))
    return [
        tuple(row.get(name) for name in ("topic", "partition", "offset", "reason"))
        for row in found.to_dicts()
    ]


def alone(log: Log, tmp_path: Path) -> list[tuple[Any, ...]]:
    """What the good job says when nobody is beside it, in a log of its own."""
    other = open_log(f"embedded:{tmp_path / 'other'}")
    other.ensure(EVENTS)
    for partition, end in log.end_offsets(EVENTS.name).items():
        records = log.read(EVENTS.name, partition, 0, end)

        other.append(
            EVENTS.name,
            OutgoingRecords(
                records.values, records.keys, partitions=np.full(len(records), partition, np.int32)
            ),
        )
    chosen = settings(other, tmp_path, "alone", run_max_events_per_batch=777_777)
    run_local([good()], settings=chosen, until_caught_up=True)
    found = written(other, GOOD)
    other.close()
    return found
