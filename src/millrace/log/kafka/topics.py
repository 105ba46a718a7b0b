"""Topics and offsets as brokers report them: which exist, where partitions begin and end."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from millrace.errors import LogError, OffsetGone, TopicMissing
from millrace.log.kafka.broker_errors import HOUSEKEEPING_SECONDS, REQUEST_SECONDS, BrokerErrors
from millrace.log.kafka.url import Brokers

_log = logging.getLogger("millrace.kafka")
FRESH_SECONDS = 5.0
"""Seconds for which the number of a topic's partitions is used without asking again."""
LIMIT_FRESH_SECONDS = 30.0
"""The same for the largest record that a topic accepts."""
COMPACTED_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": "4194304",
    "min.cleanable.dirty.ratio": "0.1",
    "retention.ms": "-1",
}
"""Small segments, because brokers compact only closed ones, and these topics are read as a whole."""
_DAY = 86_400_000


class Topics:
    """Asks brokers about topics, and repeats the question while they do not answer."""

    def __init__(self, admin: AdminClient, brokers: Brokers, broker_errors: BrokerErrors) -> None:
        self._admin, self._brokers, self._broker_errors = admin, brokers, broker_errors
        self._known: dict[str, tuple[float, int]] = {}
        self._ids: dict[str, tuple[float, str | None]] = {}
        self._limits: dict[str, tuple[float, int | None]] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """All topics of the log, sorted."""
        found = (self._brokers.log_name(name) for name in self._list_metadata().topics)
        return sorted(name for name in found if name is not None)

    def partitions(self, topic: str, *, fresh: bool = False) -> int:
        """How many there are; new ones are found within a few seconds. `TopicMissing`."""
        with self._lock:
            at, count = self._known.get(topic, (0.0, 0))
        if fresh or time.monotonic() - at > FRESH_SECONDS:
            count = self._count_partitions(topic) or self._await_partitions(topic)
            if not count:
                raise TopicMissing(
                    f"there is no topic {topic!r} in {self._brokers.url}; there are "
                    f"{', '.join(self.names()) or 'none yet'}. A run or ingestion that uses it creates it"
                )
            with self._lock:
                self._known[topic] = time.monotonic(), count
        return count

    def _await_partitions(self, topic: str) -> int:
        """How many partitions a topic has that a broker does not know: a new topic reaches brokers one by
        one. 0: it does not exist.

        A topic that some broker lists is waited for within `kafka.wait`; one that this process has used
        before, for a few seconds.
        """
        started, has_logged = time.monotonic(), False
        missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"not every broker has heard of {topic!r} yet")
        while topic in self.names() or (topic in self._known and time.monotonic() - started < FRESH_SECONDS):
            if count := self._count_partitions(topic):
                return count
            has_logged = self._broker_errors.check_waiting(started, missing, has_logged=has_logged)
            time.sleep(0.05)
        with self._lock:
            self._known.pop(topic, None)
        return 0

    def exists(self, topic: str) -> bool:
        """Whether there is such a topic now."""
        return self._count_partitions(topic) > 0

    def create(
        self, topic: str, *, partitions: int, replicas: int | None, settings: Mapping[str, str]
    ) -> bool:
        """Creates a topic, and returns when all its partitions can be used. False: it existed already."""
        new_topic = NewTopic(
            self._brokers.kafka_name(topic), partitions, replicas or -1, config=dict(settings)
        )

        def call() -> bool:
            try:
                self._single_result(
                    self._admin.create_topics(
                        [new_topic], operation_timeout=REQUEST_SECONDS, request_timeout=REQUEST_SECONDS
                    )
                )
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                raise
            return True

        created = self._broker_errors.retry(f"making topic {topic!r}", call, poll=self._refresh_metadata)
        with self._lock:
            self._known[topic] = (
                -FRESH_SECONDS,
                partitions,
            )  # it is there, though not every broker knows it yet
        if not wait_until(
            lambda: self._count_partitions(topic) > 0, within=self._broker_errors.wait_ms / 1000
        ):
            raise LogError(
                f"topic {topic!r} was made, but Kafka at {self._broker_errors.servers} does not know it "
                "yet; try again"
            )
        return created

    def max_record_bytes(self, topic: str) -> int | None:
        """The largest batch that a topic accepts (`max.message.bytes`); None: this user may not ask."""
        asked_at, limit = self._limits.get(topic, (-LIMIT_FRESH_SECONDS, None))
        if time.monotonic() - asked_at < LIMIT_FRESH_SECONDS:
            return limit
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._brokers.kafka_name(topic))

        def call() -> int | None:
            try:
                return int(
                    self._single_result(
                        self._admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)
                    )["max.message.bytes"].value
                )
            except KafkaException as error:
                if error.args[0].code() not in _NO_ANSWER:
                    raise
                return None

        self._limits[topic] = (
            time.monotonic(),
            self._broker_errors.retry(f"asking what {topic!r} takes", call, poll=self._refresh_metadata),
        )
        return self._limits[topic][1]

    def identity(self, topic: str) -> str | None:
        """The id that brokers gave the topic, at most a few seconds old; None: these brokers give none."""
        asked_at, topic_id = self._ids.get(topic, (-FRESH_SECONDS, None))
        if time.monotonic() - asked_at < FRESH_SECONDS:
            return topic_id

        def call() -> str | None:
            futures = self._admin.describe_topics(
                TopicCollection([self._brokers.kafka_name(topic)]), request_timeout=REQUEST_SECONDS
            )
            try:
                uuid = self._single_result(futures).topic_id
            except KafkaException as error:
                if error.args[0].code() in _NO_ANSWER:
                    return None
                raise
            return (
                None
                if uuid is None or not uuid.get_most_significant_bits() | uuid.get_least_significant_bits()
                else str(uuid)
            )

        self._ids[topic] = (
            time.monotonic(),
            self._broker_errors.retry(f"asking for the id of {topic!r}", call, poll=self._refresh_metadata),
        )
        return self._ids[topic][1]

    def set_retention(self, topic: str, retention: int | None) -> None:
        """Sets how long brokers keep records."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in retention_settings(retention).items()
        ]
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, self._brokers.kafka_name(topic), incremental_configs=entries
        )
        self._broker_errors.retry(
            f"changing the retention of {topic!r}",
            lambda: self._single_result(
                self._admin.incremental_alter_configs([resource], request_timeout=REQUEST_SECONDS)
            ),
            poll=self._refresh_metadata,
        )

    def offsets(self, topic: str, spec: OffsetSpec, *, committed: bool = True) -> dict[int, int]:
        """An offset of each partition: earliest, latest, or first at or after a time; -1: there is none."""
        wanted = {
            TopicPartition(self._brokers.kafka_name(topic), number): spec
            for number in range(self.partitions(topic))
        }
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def call() -> dict[int, int]:
            return self._request_offsets(topic, wanted, isolation)

        try:
            return self._broker_errors.retry(
                f"asking for the offsets of {topic!r}", call, poll=self._refresh_metadata
            )
        except LogError:
            self.partitions(topic, fresh=True)  # raises `TopicMissing` if the topic is gone
            raise

    def position(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        """The same for one partition."""
        wanted = {TopicPartition(self._brokers.kafka_name(topic), partition): spec}

        def call() -> int:
            return self._request_offsets(topic, wanted, IsolationLevel.READ_COMMITTED)[partition]

        return self._broker_errors.retry(
            f"asking for the offsets of {topic!r}", call, poll=self._refresh_metadata
        )

    def _request_offsets(
        self, topic: str, wanted: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel
    ) -> dict[int, int]:
        """One attempt to get offsets. No leader, or a broker that does not know the topic yet, may pass."""
        futures = self._admin.list_offsets(
            dict(wanted), isolation_level=isolation, request_timeout=REQUEST_SECONDS
        )
        try:
            return {
                topic_partition.partition: _offset_of(future) for topic_partition, future in futures.items()
            }
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise
            self.partitions(topic, fresh=True)  # raises `TopicMissing` if the topic is gone
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, error.args[0].str())) from error

    def await_visible(self, waits: Mapping[tuple[str, int], float]) -> None:
        """Returns when readers see a commit to these partitions, a moment after brokers confirmed it. Each is
        waited for at most so many seconds.
        """
        started = time.monotonic()
        requested = {TopicPartition(*partition): OffsetSpec.latest() for partition in waits}

        def ask(isolation: IsolationLevel) -> dict[TopicPartition, Any]:
            return self._admin.list_offsets(
                requested, isolation_level=isolation, request_timeout=REQUEST_SECONDS
            )

        def is_visible(answers: Mapping[TopicPartition, Any]) -> bool:
            return all(
                offset >= targets[partition] or time.monotonic() - started > waits[partition]
                for partition, offset in _offsets_of(answers).items()
            )

        with contextlib.suppress(KafkaException):  # the commit holds all the same
            appended, committed = ask(IsolationLevel.READ_UNCOMMITTED), ask(IsolationLevel.READ_COMMITTED)
            targets = _offsets_of(appended)
            if not is_visible(committed):
                wait_until(
                    lambda: is_visible(ask(IsolationLevel.READ_COMMITTED)),
                    within=max(waits.values()),
                    every=0.001,
                )

    def remove_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Removes records before these offsets. Where not allowed, brokers do it by whole segments."""
        wanted = [
            TopicPartition(self._brokers.kafka_name(topic), number, offset)
            for number, offset in offsets.items()
        ]
        with contextlib.suppress(KafkaException):
            for future in self._admin.delete_records(wanted, request_timeout=REQUEST_SECONDS).values():
                future.result(2 * REQUEST_SECONDS)

    def with_leaders(self, topics: Mapping[str, object]) -> dict[str, int]:
        """Those topics of which every partition has a leader now, with the number of their partitions."""
        listed = self._list_metadata().topics
        metadata = {topic: listed.get(self._brokers.kafka_name(topic)) for topic in topics}
        return {
            topic: len(topic_metadata.partitions)
            for topic, topic_metadata in metadata.items()
            if topic_metadata is not None
            and topic_metadata.error is None
            and all(partition.leader >= 0 for partition in topic_metadata.partitions.values())
        }

    def expire(self, topic: str, partitions: int, clock: tuple[int, int | None], retention: int) -> None:
        """Removes records that are older than both the published retention and that of the brokers. One
        attempt: this is housekeeping.

        `clock`: `now` and `elapsed` of `Log.expire`.
        """
        full = self._brokers.kafka_name(topic)
        now, elapsed = clock
        try:
            broker_retention = self._request_retention(full)
            if broker_retention < 0:
                return  # kept for ever: a published retention alone, which may be forged, removes nothing

            def request_offsets(spec: OffsetSpec, isolation: IsolationLevel) -> dict[int, int]:
                answers = self._list_offsets_once(full, partitions, spec, isolation)
                return {number: answer.offset for number, answer in answers.items()}

            if elapsed is not None:
                newest = self._list_offsets_once(
                    full, partitions, OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED
                )
                now = min(now, max(answer.timestamp for answer in newest.values()) + elapsed)
            cutoff = OffsetSpec.for_timestamp(max(0, now - max(broker_retention, retention)))
            begins = request_offsets(OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)
            ends = request_offsets(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
            first_kept = request_offsets(cutoff, IsolationLevel.READ_UNCOMMITTED)
        except (KafkaException, TimeoutError) as error:
            _log.debug("nothing was removed from %s: %s", topic, error)
            return
        due = {number: ends[number] if offset < 0 else offset for number, offset in first_kept.items()}
        if due := {number: offset for number, offset in due.items() if offset > begins[number] >= 0}:
            self.remove_before(topic, due)

    def _request_retention(self, full: str) -> int:
        """The retention that the brokers apply to a topic, in milliseconds; -1: for ever."""
        wanted = ConfigResource(ConfigResource.Type.TOPIC, full)
        configs = self._admin.describe_configs([wanted], request_timeout=HOUSEKEEPING_SECONDS)
        return int(self._single_result(configs)["retention.ms"].value)

    def _list_offsets_once(
        self, full: str, partitions: int, spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, Any]:
        """The answer for each partition, for housekeeping: no second attempt."""
        futures = self._admin.list_offsets(
            {TopicPartition(full, number): spec for number in range(partitions)},
            isolation_level=isolation,
            request_timeout=HOUSEKEEPING_SECONDS,
        )
        return {
            topic_partition.partition: future.result(2 * HOUSEKEEPING_SECONDS)
            for topic_partition, future in futures.items()
        }

    def check_partition(self, topic: str, partition: int) -> None:
        """Refuses a partition that does not exist."""
        count = self.partitions(topic)
        if not 0 <= partition < count and not 0 <= partition < self.partitions(topic, fresh=True):
            raise OffsetGone(f"{topic} has partitions 0 to {count - 1}, not {partition}")

    def _list_metadata(self) -> Any:
        return self._broker_errors.retry(
            "asking for the topics", lambda: self._admin.list_topics(timeout=1), poll=self._refresh_metadata
        )

    def _count_partitions(self, topic: str) -> int:
        """How many partitions there are, once all have a leader; 0: there is no such topic."""
        full = self._brokers.kafka_name(topic)

        def call() -> int:
            metadata = self._admin.list_topics(full, timeout=1).topics.get(full)
            if metadata is None or (metadata.error is not None and metadata.error.code() in _NO_TOPIC):
                return 0
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            if any(partition.leader < 0 for partition in metadata.partitions.values()):
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return len(metadata.partitions)

        return self._broker_errors.retry(f"asking for topic {topic!r}", call, poll=self._refresh_metadata)

    def _refresh_metadata(self) -> None:
        """Before another attempt: asks who leads each partition now, as the client remembers old leaders."""
        self._admin.poll(0)
        with contextlib.suppress(KafkaException):
            self._admin.list_topics(timeout=1)

    def _single_result(self, futures: Mapping[Any, "Future[Any]"]) -> Any:
        (future,) = futures.values()
        return future.result(2 * REQUEST_SECONDS)


_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
_NO_ANSWER = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, *_NO_TOPIC}
"""Not every user may ask for settings, and a broker may not know a new topic yet."""


def _offsets_of(answers: Mapping[TopicPartition, Any]) -> dict[tuple[str, int], int]:
    return {(each.topic, each.partition): _offset_of(future) for each, future in answers.items()}


def _offset_of(future: "Future[Any]") -> int:
    """The offset of an answer. While leadership moves it may hold none, and the request is repeated."""
    offset: int = future.result(2 * REQUEST_SECONDS).offset
    if offset <= OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "the answer holds no offset"))
    return offset


def retention_settings(retention: int | None) -> dict[str, str]:
    """Settings of a topic. Brokers remove whole segments, so these cover a quarter of the retention."""
    if retention is None:
        return {"retention.ms": "-1"}
    return {"retention.ms": str(retention), "segment.ms": str(min(max(retention // 4, 60_000), 7 * _DAY))}


def wait_until(condition: Callable[[], bool], *, within: float, every: float = 0.02) -> bool:
    """Whether the condition becomes true within so many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
