"""The log on Kafka: its contract, carried out by the modules beside this one.

Topics and offsets are asked of brokers by `topics`; ranges are read by `reader`; records are sent by
`producer`, and committed in a transaction by `transactions`. What each topic holds is published in
`millrace.schemas` (`published_schemas`).
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import OffsetSpec

from millrace.config import KafkaSettings
from millrace.errors import LogDenied, LogError, OffsetGone, TopicMissing
from millrace.log import declarations
from millrace.log.contract import Names, OutgoingRecords, PartitionInfo, Records, TopicInfo, pause
from millrace.log.kafka import markers, published_watermarks
from millrace.log.kafka import producer as sending
from millrace.log.kafka.broker_errors import REQUEST_SECONDS, BrokerErrors
from millrace.log.kafka.clients import Clients
from millrace.log.kafka.published_schemas import PublishedSchemas
from millrace.log.kafka.reader import PartitionReader
from millrace.log.kafka.schemas import Schema
from millrace.log.kafka.tail import follow
from millrace.log.kafka.topics import COMPACTED_SETTINGS, Topics, retention_settings, wait_until
from millrace.log.kafka.transactions import TRANSACTION_MS, KafkaWriter, PreparedRecords
from millrace.log.kafka.url import MARKERS, SCHEMAS, WATERMARKS, parse_url
from millrace.log.writer_watermarks import History
from millrace.topics import Topic, check_name

_log = logging.getLogger("millrace.kafka")
_MAX_READERS = 1_024
"""How many partitions are held open. With fewer than a run reads, each batch would open all of them anew."""
_FULL_PREFETCH_READERS = 64
"""With more readers than this, each fetches less ahead, so that together they hold no more (2 GiB)."""
_SETTLE_SECONDS = 2.0
"""How long another process may take to publish the schema of its new topic, and brokers to show a commit."""
_WATERMARK_SETTLE_SECONDS = 0.1


class KafkaLog:
    """A `Log` on Kafka.

    An append is idempotent and waits for all replicas in sync, but it is not a transaction: if it fails, some
    of the records may be there, and a second attempt appends them twice. Results are committed by a writer,
    so they are there exactly once.
    """

    def __init__(self, url: str, settings: KafkaSettings | None = None) -> None:
        """Waits for the brokers, up to `kafka.wait`."""
        chosen = settings or KafkaSettings()
        self._brokers = parse_url(url)
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
        self._schemas = PublishedSchemas(self)
        self._watermarks = published_watermarks.PublishedWatermarks(self)

    def ensure(self, topic: Topic) -> None:
        """Creates the topic, or checks that the existing one is the same; updates its retention."""
        self._ensure(topic.name, Schema.of_topic(topic), topic.replicas)

    def ensure_raw(self, name: str, *, partitions: int = 1, retention: int | None = None) -> None:
        """Creates a topic of bytes, such as dead letters; its retention is brought up to date."""
        check_name(name)
        self._ensure(name, Schema.of_bytes(partitions, retention), None)

    def list_topics(self) -> Names:
        """The names of all topics, sorted; also of those that others made."""
        return self._topics.names()

    def describe(self, topic: str) -> TopicInfo:
        """What the log knows of a topic. One that others made is bytes, until a `Topic` declares it."""
        begins, ends = self.start_offsets(topic), self.end_offsets(topic)
        partitions = [PartitionInfo(begins[number], end, None, None) for number, end in sorted(ends.items())]
        known = self._schemas.find(topic) or Schema.of_bytes(len(ends), None)
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
        while sending.count_undelivered(producer) and not errors:
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
                )  # raises if the topic is gone, else a broker lags behind
                has_logged = self.broker_errors.check_waiting(started, None, has_logged=has_logged)
                time.sleep(0.1)

    def read_available(self, topic: str, partition: int, start: int, wait: float) -> tuple[Records, int]:
        """The committed records within `wait` seconds, and the offset up to which those are all."""
        self._topics.check_partition(topic, partition)
        with self._open_reader(topic, partition, str(start)) as reader:
            return reader.read_available(start, wait)

    def identity(self, topic: str) -> str | None:
        """The id that brokers gave the topic; a topic that is deleted and made anew has another."""
        return self._topics.identity(topic)

    def max_record_bytes(self, topic: str) -> int:
        """`max.message.bytes` of the topic, or `message.max.bytes` of the client if that is smaller."""
        topic_max = self._topics.max_record_bytes(topic) or sending.DEFAULT_MAX_RECORD_BYTES
        return topic_max if self._client_max_bytes is None else min(topic_max, self._client_max_bytes)

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""
        return self._topics.offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset before which every transaction has ended, by partition."""
        return self._topics.offsets(topic, OffsetSpec.latest())

    def await_commits(self, topic: str) -> None:
        """Waits until readers of committed records see as far as the partitions go now."""
        ends = self._topics.offsets(topic, OffsetSpec.latest(), committed=False)

        def settled() -> int:
            committed = self.end_offsets(topic)
            return min(committed.get(partition, end) - end for partition, end in ends.items())

        markers.await_settled(0, settled, wait_ms=TRANSACTION_MS + self.broker_errors.wait_ms)

    def writer(self, name: str) -> KafkaWriter:
        """Takes over the name: the older writer's next commit fails."""
        self.ensure_control_topic(MARKERS)
        self.ensure_control_topic(WATERMARKS, published_watermarks.SETTINGS)
        return KafkaWriter(self, name)

    def writer_watermarks(self, topic: str) -> History:
        """By writer, the newest first; older ones for an hour at least."""
        return self._watermarks.find(topic)

    def withdraw_watermarks(self, topic: str, writer: str) -> None:
        """Removes the watermarks of a writer, by a record without a value."""
        key = pa.array([published_watermarks.watermark_key(topic, writer)], pa.binary())
        self.append(WATERMARKS, OutgoingRecords(pa.nulls(1, pa.binary()), key))

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
        """Removes what is older than its topic's retention from topics with a published schema; brokers would
        do so a segment at a time.

        A topic whose brokers do not answer at once is left for the next time.
        """
        retentions = {
            name: schema.retention
            for name, schema in self._schemas.find_all().items()
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

    # For writers (`transactions.TransactionalLog`)

    def transactional_producer(self, name: str) -> Producer:
        """A producer that fences older ones of the same name."""
        return self._clients.producer(
            transactional_id=self._brokers.kafka_name(name), timeout_ms=TRANSACTION_MS
        )

    def prepare(self, batches: Mapping[str, OutgoingRecords]) -> PreparedRecords:
        """The records for each partition; raises where a topic is missing or a record is too large."""
        parts: PreparedRecords = []
        for topic, batch in batches.items():
            partitions = self._topics.partitions(topic)
            max_bytes = self.max_record_bytes(topic)
            sending.check_sizes(topic, batch, max_bytes)
            partitioner = self._schemas.partitioner_of(topic, batch, partitions)
            with self._lock:
                by_partition = self._splitter.split(topic, batch, partitions, partitioner, self.end_offsets)
            parts += [
                sending.PartitionRecords(self._brokers.kafka_name(topic), number, part, max_bytes)
                for number, part in by_partition
            ]
        return parts

    def marker(self, name: str) -> markers.CommitMarker | None:
        """The last marker committed under a name, read once all transactions have ended that are open now.

        Until then the marker may be hidden: a reader of committed records sees nothing behind the first open
        transaction.

            offset 7    marker 41 of writer A              committed
            offset 8    marker 12 of writer B              open: B was killed; aborted after `TRANSACTION_MS`
            offset 9    marker 42 of writer A              committed, but readers see only offsets below 8

        If A started again now and believed that 41 was its last marker, it would write batch 42 twice.
        """
        end = self._topics.offsets(MARKERS, OffsetSpec.latest(), committed=False)[0]
        wait = TRANSACTION_MS + self.broker_errors.wait_ms
        markers.await_settled(
            end, lambda: self._topics.position(MARKERS, 0, OffsetSpec.latest()), wait_ms=wait
        )
        begin = self.start_offsets(MARKERS)[0]
        return markers.last_marker(name, begin, end, lambda start, stop: self.read(MARKERS, 0, start, stop))

    def kafka_name(self, topic: str) -> str:
        """A topic as Kafka knows it."""
        return self._brokers.kafka_name(topic)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; new ones are found within a few seconds."""
        return self._topics.partitions(topic)

    def appended_offsets(self, topic: str) -> dict[int, int]:
        """One past the last record of each partition, whether its transaction has ended or not."""
        return self._topics.offsets(topic, OffsetSpec.latest(), committed=False)

    def await_settled(self, topic: str) -> None:
        """Returns when the transactions in partition 0 have ended that are open now, or after a moment."""
        self._topics.await_visible({(self.kafka_name(topic), 0): _SETTLE_SECONDS})

    def await_visible(self, parts: PreparedRecords, *, has_watermarks: bool) -> None:
        """Returns when the records of a commit can be read, or after `_SETTLE_SECONDS`.

        Watermarks of all writers are in one partition, where the open transaction of a killed writer would
        hold up everybody's commits. So they are waited for only shortly.
        """
        waits = {(part.topic, part.partition): _SETTLE_SECONDS for part in parts}
        if has_watermarks:
            waits[self.kafka_name(WATERMARKS), 0] = _WATERMARK_SETTLE_SECONDS
        if waits:
            self._topics.await_visible(waits)

    # Declared topics

    def _ensure(self, name: str, wanted: Schema, replicas: int | None) -> None:
        """Creates or adopts a topic, or compares it with the schema that is published.

        Creating a topic and publishing its schema are two steps, and another process may be between them. So
        a topic without a schema that was not created here gets a moment; after that it is one that others
        made, and it is declared here for the first time.
        """
        known = self._schemas.find(name)
        created = not self._topics.exists(name) and self._create(name, wanted, replicas)
        if created:
            if known is not None:  # the schema of a topic of that name that was deleted
                self._schemas.withdraw(name)
            self._declare(name, wanted, created=True)
        elif known is not None or wait_until(
            lambda: self._schemas.find(name) is not None, within=_SETTLE_SECONDS
        ):
            self._compare(name, wanted, self._schemas.find(name) or wanted)
        else:
            self._declare(name, wanted, created=False)

    def _create(self, name: str, wanted: Schema, replicas: int | None) -> bool:
        """Whether the topic was created here and now; False: another process was first."""
        settings = (
            {**COMPACTED_SETTINGS}
            if wanted.compact
            else {**retention_settings(wanted.retention), "cleanup.policy": "delete"}
        )
        return self._topics.create(
            name, partitions=wanted.partitions, replicas=replicas or self._replicas, settings=settings
        )

    def _compare(self, name: str, wanted: Schema, known: Schema) -> None:
        """Refuses a contradiction to the published schema; publishes added fields and another retention."""
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
            self._schemas.publish(name, merged)

    def _declare(self, name: str, wanted: Schema, *, created: bool) -> None:
        """Publishes the schema of a new topic, or the first schema of one that others made."""
        actual = self._topics.partitions(name)
        if not created and wanted.envelope:
            declarations.check_declaration(
                name, (wanted.partitions, *wanted.topic_format), (actual, *wanted.topic_format)
            )
        try:
            self._schemas.publish(name, wanted)
        except LogDenied:
            if created or wanted.envelope:
                raise
            schemas = self.kafka_name(SCHEMAS)
            _log.info("the schema of %s is not published in %s, as that is not allowed", name, schemas)

    def ensure_control_topic(self, name: str, settings: Mapping[str, str] = COMPACTED_SETTINGS) -> None:
        """Makes one of the compacted topics that millrace keeps for itself, if it is absent."""
        if not self._topics.exists(name):
            self._topics.create(name, partitions=1, replicas=self._replicas, settings=settings)

    # Clients

    @contextmanager
    def _open_reader(self, topic: str, partition: int, wanted_range: str) -> Iterator[PartitionReader]:
        """The reader of a partition, locked. Its errors get the offsets that the partition holds."""
        with self._lock:
            try:
                yield self._reader(topic, partition)
            except OffsetGone as error:
                begin, held_end = self.start_offsets(topic)[partition], self.end_offsets(topic)[partition]
                raise OffsetGone(
                    f"{topic}[{partition}] holds offsets {begin} to {held_end}, not all of {wanted_range}; "
                    f"start again from {begin}, or restore the log"
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
            f"kafka.client.message.max.bytes = {setting!r} is not a number of bytes; "
            "write one, such as 2000000"
        ) from None
