"""One message never stops the others: what a processor or the encoding of its events raises costs only the messages at fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from millrace.ingest.contract import MISFIT, Batch, Processed, Processor, Raw, Reject
from millrace.log.codecs.codec import encode
from millrace.log.contract import Outgoing
from millrace.topics import Topic
from millrace.values import event_values
from millrace.values.calls import ordinary_errors, told


@dataclass(frozen=True, eq=False)
class Encoded:
    """Events of one topic, ready for the log."""

    topic: Topic
    records: Outgoing
    newest: int | None
    """The greatest event time among them."""


@dataclass(eq=False)
class Isolated:
    """What became of a batch."""

    rows: list[Encoded] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)

    def add(self, other: Isolated) -> None:
        """What became of the messages that follow."""
        self.rows += other.rows
        self.rejects += other.rejects
        self.passed.update(other.passed)


def isolate(processor: Processor, batch: Batch) -> Isolated:
    """The events of a batch, encoded; a message for which processor or encoding raise is a reject."""
    made = Isolated()
    if batch.rows:  # events that a connector made itself have no messages
        for topic, rows in batch.rows:
            made.rows += _encoded_rows(topic, rows, made.rejects)
        batch = replace(batch, rows=())
    if len(batch):
        made.add(_messages(processor, batch))
    return made


def _messages(processor: Processor, batch: Batch) -> Isolated:
    try:
        with ordinary_errors():
            done = processor.process_many(batch)
            rows = [_encoded(topic, frame) for topic, frame in done.rows if len(frame)]
        return Isolated(rows, list(done.rejects), Counter(done.passed))
    except Exception as error:  # noqa: BLE001 - whatever a processor does, the other messages are written
        if len(batch) == 1:
            return Isolated(rejects=[_failed(error, batch)])
    made = Isolated()
    for half in _halves(batch):
        made.add(_messages(processor, half))
    return made


def process_apart(processor: Processor, batch: Batch) -> Processed:
    """What a batch means, without a log; a message for which the processor raises is a reject."""
    try:
        with ordinary_errors():
            done = processor.process_many(batch)
        for topic, frame in done.rows:
            _check_nulls(topic, frame)
    except Exception as error:  # noqa: BLE001 - a user's code: whatever it raises concerns its message
        if len(batch) == 1:
            return Processed(rejects=[_failed(error, batch)])
    else:
        return done
    parts = [process_apart(processor, half) for half in _halves(batch)]
    rows = [one for part in parts for one in part.rows]
    return Processed(rows, [one for part in parts for one in part.rejects], parts[0].passed + parts[1].passed)


def _check_nulls(topic: Topic, rows: pl.DataFrame) -> None:
    """Refuses what the encoding would refuse."""
    for name in event_values.shape(topic.type).required:
        if rows[name].null_count():
            raise event_values.Misfit(f"column {name!r} is null, and the field must have a value")


def _failed(error: Exception, batch: Batch) -> Reject:
    return Reject("processor failed", told(error), batch[0])


def _halves(batch: Batch) -> Iterator[Batch]:
    middle = len(batch) // 2
    for part in (slice(None, middle), slice(middle, None)):
        columns = (batch.topics[part], batch.payloads[part], batch.received[part], batch.positions[part])
        yield Batch(*columns, batch.source, (), batch.shift)


def _encoded(topic: Topic, rows: pl.DataFrame) -> Encoded:
    newest = rows["event_time"].max()
    return Encoded(topic, encode(topic, rows), newest if isinstance(newest, int) else None)


def _encoded_rows(topic: Topic, rows: pl.DataFrame, rejects: list[Reject]) -> list[Encoded]:
    if rows.is_empty():
        return []
    try:
        with ordinary_errors():
            return [_encoded(topic, rows)]
    except Exception as error:  # noqa: BLE001 - whatever a connector made, its other events are written
        if len(rows) == 1:
            rejects.append(_reject(rows, error))
            return []
    middle = len(rows) // 2
    return [*_encoded_rows(topic, rows[:middle], rejects), *_encoded_rows(topic, rows[middle:], rejects)]


def _reject(row: pl.DataFrame, error: Exception) -> Reject:
    values = row.row(0, named=True)
    received = values.get("ingestion_time")
    payload = json.dumps(values, default=str).encode()
    return Reject(MISFIT, str(error), Raw("", payload, received if isinstance(received, int) else 0))
