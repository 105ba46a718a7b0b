"""Isolates faults: if the processor or the encoding raises, only the messages at fault are rejected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from millrace import timestamps
from millrace.ingest.contract import (
    MISFIT,
    MessageBatch,
    MessageProcessor,
    ProcessedBatch,
    RawMessage,
    Reject,
)
from millrace.log.codecs.codec import encode
from millrace.log.contract import OutgoingRecords
from millrace.timestamps import EarlyTimes
from millrace.topics import Topic
from millrace.values import event_values
from millrace.values.calls import describe_error, ordinary_errors
from millrace.values.user_code import describe_failure


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Events of one topic, ready for the log."""

    topic: Topic
    records: OutgoingRecords
    max_event_time: int | None
    """The latest event time among them."""
    early_times: Mapping[str, EarlyTimes]
    """By column, times that are suspiciously early."""


@dataclass(eq=False)
class IsolatedBatch:
    """The outcome of a batch: encoded events, rejects and counts of skipped messages."""

    rows: list[EncodedRows] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, other: IsolatedBatch) -> None:
        """Adds the outcome of the messages that follow."""
        self.rows += other.rows
        self.rejects += other.rejects
        self.skipped.update(other.skipped)


def isolate(processor: MessageProcessor, batch: MessageBatch) -> IsolatedBatch:
    """Processes and encodes a batch. A message for which processor or encoding raises becomes a reject."""
    isolated = IsolatedBatch()
    if batch.rows:  # events that a connector makes itself have no messages
        for topic, rows in batch.rows:
            isolated.rows += _encode_or_reject(topic, rows, isolated.rejects)
        batch = replace(batch, rows=())
    if len(batch):
        isolated.add(_isolate_messages(processor, batch))
    return isolated


def _isolate_messages(processor: MessageProcessor, batch: MessageBatch) -> IsolatedBatch:
    try:
        with ordinary_errors():
            processed = processor.process_many(batch)
            rows = [_encode_rows(topic, frame) for topic, frame in processed.rows if len(frame)]
        return IsolatedBatch(rows, list(processed.rejects), Counter(processed.skipped))
    except Exception as error:  # noqa: BLE001 - whatever a processor does, the other messages are written
        if len(batch) == 1:
            return IsolatedBatch(rejects=[_reject_failed(error, batch)])
    isolated = IsolatedBatch()
    for half in _split_batch(batch):
        isolated.add(_isolate_messages(processor, half))
    return isolated


def process_isolated(processor: MessageProcessor, batch: MessageBatch) -> ProcessedBatch:
    """Processes a batch without encoding it. A message for which the processor raises becomes a reject."""
    try:
        with ordinary_errors():
            processed = processor.process_many(batch)
        for topic, frame in processed.rows:
            _check_nulls(topic, frame)
    except Exception as error:  # noqa: BLE001 - a user's code: whatever it raises concerns its message
        if len(batch) == 1:
            return ProcessedBatch(rejects=[_reject_failed(error, batch)])
    else:
        return processed
    halves = [process_isolated(processor, half) for half in _split_batch(batch)]
    rows = [one for part in halves for one in part.rows]
    return ProcessedBatch(
        rows, [one for part in halves for one in part.rejects], halves[0].skipped + halves[1].skipped
    )


def _check_nulls(topic: Topic, rows: pl.DataFrame) -> None:
    """Refuses nulls, as the encoding would."""
    for name in event_values.row_decoder(topic.type).required:
        if rows[name].null_count():
            raise event_values.InvalidValue(f"column {name!r} is null, and the field must have a value")


def _reject_failed(error: Exception, batch: MessageBatch) -> Reject:
    return Reject("processor failed", f"{describe_error(error)}{describe_failure(error)}", batch[0])


def _split_batch(batch: MessageBatch) -> Iterator[MessageBatch]:
    middle = len(batch) // 2
    for part in (slice(None, middle), slice(middle, None)):
        columns = (batch.topics[part], batch.payloads[part], batch.received[part], batch.positions[part])
        yield MessageBatch(*columns, batch.source, (), batch.shift)


def _encode_rows(topic: Topic, rows: pl.DataFrame) -> EncodedRows:
    max_event_time = rows["event_time"].max()
    return EncodedRows(
        topic,
        encode(topic, rows),
        max_event_time if isinstance(max_event_time, int) else None,
        _find_early_times(topic, rows),
    )


def _find_early_times(topic: Topic, rows: pl.DataFrame) -> Mapping[str, EarlyTimes]:
    found = {"event_time": timestamps.find_early(rows["event_time"])}
    for name, dtype in topic.schema.items():
        if isinstance(dtype, pl.Datetime) and name in rows.columns:
            found[name] = timestamps.find_early(rows[name], only_seconds=True)
    return {name: early for name, early in found.items() if early is not None}


def _encode_or_reject(topic: Topic, rows: pl.DataFrame, rejects: list[Reject]) -> list[EncodedRows]:
    if rows.is_empty():
        return []
    try:
        with ordinary_errors():
            return [_encode_rows(topic, rows)]
    except Exception as error:  # noqa: BLE001 - whatever a connector made, its other events are written
        if len(rows) == 1:
            rejects.append(_reject(rows, error))
            return []
    middle = len(rows) // 2
    return [
        *_encode_or_reject(topic, rows[:middle], rejects),
        *_encode_or_reject(topic, rows[middle:], rejects),
    ]


def _reject(row: pl.DataFrame, error: Exception) -> Reject:
    values = row.row(0, named=True)
    received = values.get("ingestion_time")
    payload = json.dumps(values, default=str).encode()
    return Reject(MISFIT, str(error), RawMessage("", payload, received if isinstance(received, int) else 0))
