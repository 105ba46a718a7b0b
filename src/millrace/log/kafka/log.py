"""The log on Kafka."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import msgspec
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import OffsetSpec

from millrace.config import KafkaSettings
from millrace.errors import LogDenied, LogError, OffsetGone, TopicMissing
from millrace.log import declarations
from millrace.log.contract import (
    Names,
    OutgoingRecords,
    Partitioner,
    PartitionInfo,
    Records,
    TopicInfo,
    pause,
)
from millrace.log.control import SkippedRecords
from millrace.log.kafka import markers
from millrace.log.kafka import producer as sending
from millrace.log.kafka import url as place
from millrace.log.kafka.broker_errors import REQUEST_SECONDS, BrokerErrors
from millrace.log.kafka.clients import Clients
from millrace.log.kafka.reader import PartitionReader
from millrace.log.kafka.schemas import Schema
from millrace.log.kafka.tail import follow
from millrace.log.kafka.topics import (
    COMPACTED_SETTINGS,
    FRESH_SECONDS,
    Topics,
    retention_settings,
    wait_until,
)
from millrace.log.kafka.transactions import TRANSACTION_MS, KafkaWriter, PreparedRecords
from millrace.log.partitioning import NEW_TOPICS
from millrace.topics import Topic, check_name

_log = logging.getLogger("millrace.kafka")
_MAX_READERS = 1_024
"""How many partitions are held open at a time. With fewer than a run reads, each batch would open every one of them anew."""
_FULL_PREFETCH_READERS = 64
"""With more readers than this, each fetches less ahead, so that together they hold as much (2 GiB at most)."""
_SETTLE_SECONDS = 2.0
"""Seconds that another process may take between making a topic and saying what it holds."""


class KafkaLog:
    """A `Log` on Kafka.

    An append is idempotent and waits for all replicas that are in step, but it is not a transaction: if it fails, a part may be there, and what is tried again is
    doubled. Results are committed by a writer, and are not.
    """

    def __init__(self, url: str, settings: KafkaSettings | None = None) -> None:
        """Waits for the brokers, if need be."""
        chosen = settings or KafkaSettings()
        self._brokers = place.parse_url(url)
        self.url = self._brokers.url
        self.broker_errors = BrokerErrors(self._brokers.servers, chosen.wait_ms)
        self._replicas = chosen.replicas
        self._client_max_bytes = _client_max_bytes(chosen)
        self._clients = Clients(self.broker_errors, chosen.client)
        self._admin = self._clients.admin()
        self._topics = Topics(self._admin, self._brokers, self.broker_errors)
        self._topics.names()
        self._lock = threading.RLock()
        self._readers: OrderedDict[tuple[str, int], PartitionReader] = OrderedDict()
        self._appender: Producer | None = None
        self._splitter = sending.PartitionSplitter()
        self._schemas: dict[str, Schema] = {}
        self._schemas_read = 0
        self._schemas_checked_at = -FRESH_SECONDS
        self._skipped = SkippedRecords()

    def ensure(self, topic: Topic) -> None:
        """Creates the topic, or checks that the one that is there is the same; its retention is brought up to date."""
        self._ensure(topic.name, Schema.of_topic(topic), topic.replicas)

    def ensure_raw(self, name: str, *, partitions: int = 1, retention: int | None = None) -> None:
        """Creates a topic of bytes, such as dead letters; its retention is brought up to date."""
        check_name(name)
        self._ensure(name, Schema.of_bytes(partitions, retention), None)

    def list_topics(self) -> Names:
        """The names of all topics, sorted; also of those that others made."""
        return self._topics.names()

    def describe(self, topic: str) -> TopicInfo:
        """What the log knows of a topic. What others made is bytes to us, until a `Topic` says otherwise."""
        begins, ends = self.start_offsets(topic), self.end_offsets(topic)
        partitions = [PartitionInfo(begins[number], end, None, None) for number, end in sorted(ends.items())]
        known = self._known_schema(topic) or Schema.of_bytes(len(ends), None)
        return TopicInfo(
            topic,
            known.codec,
            known.type,
            known.envelope,
            known.retention,
            known.partitioner,
            partitions,
        )

    def append(self, topic: str, batch: OutgoingRecords, *, now: int | None = None) -> None:
        """Sends all records and returns when the brokers have them."""
        parts = self.prepare({topic: batch})
        producer = self._append_producer()
        errors: list[KafkaError] = []

        def note_error(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                errors.append(error)

        for part in parts:
            sending.send(producer, part, now, note_error)
        started, has_logged = time.monotonic(), False
        while producer.flush(1) and not errors:
            self.broker_errors.raise_if_denied()
            has_logged = self.broker_errors.check_waiting(started, None, has_logged=has_logged)
        if errors:
            self.broker_errors.raise_if_denied()
            raise self.broker_errors.translate(errors[0], f"appending to {topic!r}")

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The committed records of that range; offsets may have gaps."""
        self._topics.check_partition(topic, partition)
        if start == end:
            return Records.empty()
        started, has_logged = time.monotonic(), False
        while True:
            try:
                with self._open_reader(topic, partition, f"{start} to {end}") as reader:
                    return reader.read(
                        start, end, lambda: self._topics.position(topic, partition, OffsetSpec.latest())
                    )
            except TopicMissing:
                self._topics.partitions(
                    topic, fresh=True
                )  # says so if it is gone; else a broker had not heard of it
                has_logged = self.broker_errors.check_waiting(started, None, has_logged=has_logged)
                time.sleep(0.1)

    def read_available(self, topic: str, partition: int, start: int, wait: float) -> tuple[Records, int]:
        """The committed records from `start` on that are there at once, or within so many seconds, and up to where those are all."""
        self._topics.check_partition(topic, partition)
        with self._open_reader(topic, partition, str(start)) as reader:
            return reader.read_available(start, wait)

    def identity(self, topic: str) -> str | None:
        """The topic's id; one that is deleted and made anew has another."""
        return self._topics.identity(topic)

    def max_record_bytes(self, topic: str) -> int:
        """What the topic's brokers take (`max.message.bytes`), or less where `message.max.bytes` of the client is set and less."""
        topic_max = self._topics.max_record_bytes(topic) or sending.DEFAULT_MAX_RECORD_BYTES
        return topic_max if self._client_max_bytes is None else min(topic_max, self._client_max_bytes)

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""
        return self._topics.offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset before which every transaction has ended, by partition."""
        return self._topics.offsets(topic, OffsetSpec.latest())

    def writer(self, name: str) -> KafkaWriter:
        """Takes over the name: the older writer's next commit fails."""
        self._ensure_control_topic(place.MARKERS)
        return KafkaWriter(self, name)

    def tail(
        self,
        topic: str,
        *,
        start: Literal["begin", "end"] | Mapping[int, int] = "end",
        wait: Callable[[], bool] = pause,
    ) -> Iterator[tuple[int, Records]]:
        """Yields records as they come, in pieces."""
        return follow(self, topic, start, wait)

    def expire(self, now: int, *, elapsed: int | None = None) -> None:
        """Removes what is older than its topic's retention, of the topics that we made; brokers would do so too, a segment at a time.

        Nothing is waited for: a topic whose brokers do not answer is left for the next time.
        """
        self._read_schemas()
        retentions = {
            name: schema.retention
            for name, schema in self._schemas.items()
            if schema.retention and not schema.compact
        }
        for topic, partitions in self._topics.with_leaders(retentions).items():
            self._topics.expire(topic, partitions, (now, elapsed), retentions[topic])

    def close(self) -> None:
        """Closes connections."""
        with self._lock:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()
            if self._appender is not None:
                self._appender.flush(REQUEST_SECONDS)
                self._appender = None

    # What writers ask

    def transactional_producer(self, name: str) -> Producer:
        """A producer that fences those of the same name."""
        return self._clients.producer(
            transactional_id=self._brokers.kafka_name(name), timeout_ms=TRANSACTION_MS
        )

    def prepare(self, batches: Mapping[str, OutgoingRecords]) -> PreparedRecords:
        """What goes to which partition; raises where a topic is missing or a record cannot be taken."""
        parts: PreparedRecords = []
        for topic, batch in batches.items():
            partitions = self._topics.partitions(topic)
            max_bytes = self.max_record_bytes(topic)
            sending.check_sizes(topic, batch, max_bytes)
            partitioner = self._partitioner_of(topic, batch, partitions)
            with self._lock:
                by_partition = self._splitter.split(topic, batch, partitions, partitioner, self.end_offsets)
            parts += [
                sending.PartitionRecords(self._brokers.kafka_name(topic), number, part, max_bytes)
                for number, part in by_partition
            ]
        return parts

    def marker(self, name: str) -> markers.CommitMarker | None:
        """What was committed last under a name, once all that had begun has ended."""
        end = self._topics.offsets(place.MARKERS, OffsetSpec.latest(), committed=False)[0]
        wait = TRANSACTION_MS + self.broker_errors.wait_ms
        markers.await_settled(
            end, lambda: self._topics.position(place.MARKERS, 0, OffsetSpec.latest()), wait_ms=wait
        )
        begin = self.start_offsets(place.MARKERS)[0]
        return markers.last_marker(
            name, begin, end, lambda start, stop: self.read(place.MARKERS, 0, start, stop)
        )

    def kafka_name(self, topic: str) -> str:
        """A topic as Kafka knows it."""
        return self._brokers.kafka_name(topic)

    def await_visible(self, parts: PreparedRecords) -> None:
        """Returns when what was committed can be read, or else a moment later."""
        if parts:
            self._topics.await_visible(
                {(part.topic, part.partition) for part in parts}, within=_SETTLE_SECONDS
            )

    # What topics hold

    def _ensure(self, name: str, wanted: Schema, replicas: int | None) -> None:
        known = self._known_schema(name)
        if known is None or not self._topics.exists(name):
            settings = (
                {**COMPACTED_SETTINGS}
                if wanted.compact
                else {**retention_settings(wanted.retention), "cleanup.policy": "delete"}
            )
            if self._topics.exists(name):
                created = False
            else:
                created = self._topics.create(
                    name, partitions=wanted.partitions, replicas=replicas or self._replicas, settings=settings
                )
            if created and known is not None:
                self._withdraw_schema(name)
            if created or not wait_until(
                lambda: self._known_schema(name) is not None, within=_SETTLE_SECONDS
            ):
                self._declare(name, wanted, created=created)
                return
            known = self._schemas[name]
        actual = self._topics.partitions(name)
        partitions = wanted.partitions if wanted.partitions == actual else known.partitions
        declarations.check_declaration(
            name, (wanted.partitions, *wanted.topic_format), (partitions, *known.topic_format)
        )
        if wanted.retention != known.retention and (wanted.envelope or not wanted.type):
            self._topics.set_retention(name, wanted.retention)
        merged = wanted if len(wanted.descriptors) >= len(known.descriptors) else wanted.with_type_of(known)
        merged = msgspec.structs.replace(merged, partitioner=known.partitioner)
        if merged != known:
            self._publish_schema(name, merged)

    def _declare(self, name: str, wanted: Schema, *, created: bool) -> None:
        """Says what a new topic holds, or one that others made and that is declared here for the first time."""
        actual = self._topics.partitions(name)
        if not created and wanted.envelope:
            declarations.check_declaration(
                name, (wanted.partitions, *wanted.topic_format), (actual, *wanted.topic_format)
            )
        try:
            self._publish_schema(name, wanted)
        except LogDenied:
            if created or wanted.envelope:
                raise
            _log.info(
                "nothing was said of %s in %s, as that is not allowed", name, self.kafka_name(place.SCHEMAS)
            )

    def _partitioner_of(self, topic: str, batch: OutgoingRecords, partitions: int) -> Partitioner:
        """The partitioner recorded with a topic; of one that others made, that of Kafka's own client."""
        if batch.keys is None or batch.partitions is not None or partitions == 1:
            return NEW_TOPICS
        if time.monotonic() - self._schemas_checked_at > FRESH_SECONDS:
            self._read_schemas()
        known = self._schemas.get(topic)
        return NEW_TOPICS if known is None else known.partitioner

    def _known_schema(self, name: str) -> Schema | None:
        self._read_schemas()
        return self._schemas.get(name)

    def _read_schemas(self) -> None:
        with self._lock:
            self._schemas_checked_at = time.monotonic()
            try:
                end = self._topics.offsets(place.SCHEMAS, OffsetSpec.latest())[0]
            except TopicMissing:
                return
            if end <= self._schemas_read:
                return
            begin = max(self._schemas_read, self.start_offsets(place.SCHEMAS)[0])
            records = self.read(place.SCHEMAS, 0, begin, end)
            for offset, key, value in zip(
                records.offsets.tolist(), records.keys.to_pylist(), records.values.to_pylist(), strict=True
            ):
                try:
                    self._apply_schema(key, value)
                except ValueError as error:
                    self._skipped.note(self.kafka_name(place.SCHEMAS), offset, str(error))
            self._schemas_read = end

    def _apply_schema(self, key: bytes | None, value: bytes | None) -> None:
        """What one record of `millrace.schemas` says. It is untrusted: `ValueError` where it is not used."""
        name = (key or b"").decode()
        check_name(name)
        if value is None:  # published before a topic that was deleted is made anew
            self._schemas.pop(name, None)
            return
        schema = Schema.from_json(value)
        if not schema.can_replace(self._schemas.get(name)):
            raise ValueError(f"changes what {name!r} holds; only fields added at the end are taken")
        self._schemas[name] = schema

    def _publish_schema(self, name: str, schema: Schema) -> None:
        import pyarrow as pa

        self._ensure_control_topic(place.SCHEMAS)
        self.append(
            place.SCHEMAS,
            OutgoingRecords(
                pa.array([schema.to_json()], pa.binary()), pa.array([name.encode()], pa.binary())
            ),
        )

    def _withdraw_schema(self, name: str) -> None:
        """Withdraws what was said of a topic that no longer exists, so that the new one of that name may hold something else."""
        import pyarrow as pa

        self.append(
            place.SCHEMAS,
            OutgoingRecords(pa.array([None], pa.binary()), pa.array([name.encode()], pa.binary())),
        )

    def _ensure_control_topic(self, name: str) -> None:
        """One of the compacted topics that millrace keeps for itself."""
        if not self._topics.exists(name):
            self._topics.create(name, partitions=1, replicas=self._replicas, settings=COMPACTED_SETTINGS)

    # Clients

    @contextmanager
    def _open_reader(self, topic: str, partition: int, wanted_range: str) -> Iterator[PartitionReader]:
        """The reader of a partition; what it cannot find is said in words of the log."""
        with self._lock:
            try:
                yield self._reader(topic, partition)
            except OffsetGone as error:
                begin, held_end = self.start_offsets(topic)[partition], self.end_offsets(topic)[partition]
                raise OffsetGone(
                    f"{topic}[{partition}] holds offsets {begin} to {held_end}, not all of {wanted_range}; start again from {begin}, or restore the log"
                ) from error
            except TopicMissing:
                if reader := self._readers.pop((topic, partition), None):
                    reader.close()
                raise

    def _reader(self, topic: str, partition: int) -> PartitionReader:
        reader = self._readers.get((topic, partition))
        if reader is None:
            if len(self._readers) >= _MAX_READERS:
                self._readers.popitem(last=False)[1].close()
            prefetch_share = min(1.0, _FULL_PREFETCH_READERS / max(1, self._topics.partitions(topic)))
            reader = PartitionReader(
                self._clients.consumer(prefetch_share),
                self._brokers.kafka_name(topic),
                partition,
                self.broker_errors,
            )
            self._readers[topic, partition] = reader
        self._readers.move_to_end((topic, partition))
        return reader

    def _append_producer(self) -> Producer:
        with self._lock:
            if self._appender is None:
                self._appender = self._clients.producer(timeout_ms=self.broker_errors.wait_ms)
            return self._appender


def _client_max_bytes(settings: KafkaSettings) -> int | None:
    """The largest record that the client library is allowed to send; None: any."""
    setting = settings.client.get("message.max.bytes")
    try:
        return None if setting is None else int(str(setting))
    except ValueError:
        raise LogError(
            f"kafka.client.message.max.bytes = {setting!r} is not a number of bytes; write one, such as 2000000"
        ) from None
