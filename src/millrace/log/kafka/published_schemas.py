"""The schemas that `millrace.schemas` holds now: read as far as the topic is written, published and
withdrawn.

The topic is compacted, and the newest usable record of each key counts. It is untrusted: a record counts only
if it keeps codec, type, envelope and partitioner of the one before and adds fields at the end, so that nobody
changes how records that are there are read.
"""

import threading
import time
from typing import Protocol

import pyarrow as pa

from millrace.errors import TopicMissing
from millrace.log.contract import OutgoingRecords, Partitioner, Records
from millrace.log.control import SkippedRecords
from millrace.log.kafka.schemas import Schema
from millrace.log.kafka.url import SCHEMAS
from millrace.log.partitioning import NEW_TOPICS
from millrace.topics import check_name

FRESH_SECONDS = 5.0
"""Seconds for which partitioners are used unchecked. They change only where a topic is made anew."""


class SchemaLog(Protocol):
    """The log that holds the topic."""

    def ensure_control_topic(self, name: str) -> None:
        """Makes one of millrace's own compacted topics, if it is absent."""

    def append(self, topic: str, batch: OutgoingRecords) -> None:
        """Appends records."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The records of a range."""

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition; `TopicMissing`."""

    def kafka_name(self, topic: str) -> str:
        """A topic as Kafka knows it."""


class PublishedSchemas:
    """The schema of each topic, by the topic's name."""

    def __init__(self, log: SchemaLog) -> None:
        self.skipped = SkippedRecords()
        self._log = log
        self._schemas: dict[str, Schema] = {}
        self._next_offset = 0
        self._read_at = -FRESH_SECONDS
        self._lock = threading.RLock()

    def find(self, topic: str) -> Schema | None:
        """The schema of a topic as published up to this moment; None: nobody declared it."""
        self._read_new()
        return self._schemas.get(topic)

    def find_all(self) -> dict[str, Schema]:
        """Those of all topics."""
        self._read_new()
        return dict(self._schemas)

    def partitioner_of(self, topic: str, batch: OutgoingRecords, partitions: int) -> Partitioner:
        """The partitioner recorded with a topic; that of Kafka's Java client where nobody declared it."""
        if batch.keys is None or batch.partitions is not None or partitions == 1:
            return NEW_TOPICS  # no key of the batch is placed
        if time.monotonic() - self._read_at > FRESH_SECONDS:
            self._read_new()
        known = self._schemas.get(topic)
        return NEW_TOPICS if known is None else known.partitioner

    def publish(self, topic: str, schema: Schema) -> None:
        """From now on, this is what the topic holds."""
        self._log.ensure_control_topic(SCHEMAS)
        self._append(topic, schema.to_json())

    def withdraw(self, topic: str) -> None:
        """Forgets the schema of a deleted topic, so that a new one of that name may hold something else."""
        self._append(topic, None)

    def _append(self, topic: str, value: bytes | None) -> None:
        self._log.append(
            SCHEMAS,
            OutgoingRecords(pa.array([value], pa.binary()), pa.array([topic.encode()], pa.binary())),
        )

    def _read_new(self) -> None:
        with self._lock:
            self._read_at = time.monotonic()
            try:
                end = self._log.end_offsets(SCHEMAS)[0]
            except TopicMissing:
                return
            if end <= self._next_offset:
                return
            begin = max(self._next_offset, self._log.start_offsets(SCHEMAS)[0])
            records = self._log.read(SCHEMAS, 0, begin, end)
            for offset, key, value in zip(
                records.offsets.tolist(), records.keys.to_pylist(), records.values.to_pylist(), strict=True
            ):
                try:
                    self._apply(key, value)
                except ValueError as error:
                    self.skipped.note(self._log.kafka_name(SCHEMAS), offset, str(error))
            self._next_offset = end

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        """Takes one record over; `ValueError` where it cannot be used."""
        topic = (key or b"").decode()
        check_name(topic)
        if value is None:
            self._schemas.pop(topic, None)
            return
        schema = Schema.from_json(value)
        if not schema.can_replace(self._schemas.get(topic)):
            raise ValueError(f"changes what {topic!r} holds; only fields added at the end are accepted")
        self._schemas[topic] = schema
