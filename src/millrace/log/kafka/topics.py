"""The topics of a log on Kafka: made as they are declared, and told apart from those of others."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
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
from millrace.log.kafka.broker_errors import HOUSEKEEPING, REQUEST, Line
from millrace.log.kafka.url import Place

_log = logging.getLogger("millrace.kafka")
FRESH = 5.0
"""Seconds for which the number of a topic's partitions is believed."""
LIMIT_FRESH = 30.0
"""Seconds for which the largest record that a topic takes is believed."""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": "4194304",
    "min.cleanable.dirty.ratio": "0.1",
    "retention.ms": "-1",
}
"""Small segments: only those that are closed are compacted, and these topics are read whole."""
_DAY = 86_400_000


class Topics:
    """What brokers know of topics: names, partitions, offsets."""

    def __init__(self, admin: AdminClient, place: Place, line: Line) -> None:
        self._admin, self._place, self._line = admin, place, line
        self._known: dict[str, tuple[float, int]] = {}
        self._ids: dict[str, tuple[float, str | None]] = {}
        self._limits: dict[str, tuple[float, int | None]] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """All topics of the log, sorted."""
        found = (self._place.own(name) for name in self._listed().topics)
        return sorted(name for name in found if name is not None)

    def partitions(self, topic: str, *, fresh: bool = False) -> int:
        """How many there are; new ones are found within a few seconds. `TopicMissing`."""
        with self._lock:
            at, count = self._known.get(topic, (0.0, 0))
        if fresh or time.monotonic() - at > FRESH:
            count = self._counted(topic) or self._awaited(topic)
            if not count:
                raise TopicMissing(
                    f"there is no topic {topic!r} in {self._place.url}; there are {', '.join(self.names()) or 'none yet'}. A run or ingestion that uses it creates it"
                )
            with self._lock:
                self._known[topic] = time.monotonic(), count
        return count

    def _awaited(self, topic: str) -> int:
        """After a broker said that it knows no such topic: it may not have heard of it yet. 0: there is none.

        A topic that any broker lists is waited for as long as brokers are; one that this process has used before, for a few seconds.
        """
        began, said = time.monotonic(), False
        missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"not every broker has heard of {topic!r} yet")
        while topic in self.names() or (topic in self._known and time.monotonic() - began < FRESH):
            if count := self._counted(topic):
                return count
            said = self._line.waited(began, missing, said=said)
            time.sleep(0.05)
        with self._lock:
            self._known.pop(topic, None)
        return 0

    def exists(self, topic: str) -> bool:
        """Whether there is such a topic now."""
        return self._counted(topic) > 0

    def create(
        self, topic: str, *, partitions: int, replicas: int | None, settings: Mapping[str, str]
    ) -> bool:
        """Makes a topic, and returns when all its partitions can be used. False: it was there already."""
        made = NewTopic(self._place.full(topic), partitions, replicas or -1, config=dict(settings))

        def call() -> bool:
            try:
                self._one(
                    self._admin.create_topics([made], operation_timeout=REQUEST, request_timeout=REQUEST)
                )
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                raise
            return True

        created = self._line.attempt(f"making topic {topic!r}", call, listen=self._listen)
        with self._lock:
            self._known[topic] = -FRESH, partitions  # it is there, though not every broker knows it yet
        if not ready(lambda: self._counted(topic) > 0, within=self._line.wait_ms / 1000):
            raise LogError(
                f"topic {topic!r} was made, but Kafka at {self._line.servers} does not know it yet; try again"
            )
        return created

    def largest(self, topic: str) -> int | None:
        """The largest batch of records that brokers take for a topic (`max.message.bytes`); None: they do not tell us."""
        at, found = self._limits.get(topic, (-LIMIT_FRESH, None))
        if time.monotonic() - at < LIMIT_FRESH:
            return found
        wanted = ConfigResource(ConfigResource.Type.TOPIC, self._place.full(topic))

        def call() -> int | None:
            try:
                return int(
                    self._one(self._admin.describe_configs([wanted], request_timeout=REQUEST))[
                        "max.message.bytes"
                    ].value
                )
            except KafkaException as error:
                if error.args[0].code() not in _UNTOLD:
                    raise
                return None

        self._limits[topic] = (
            time.monotonic(),
            self._line.attempt(f"asking what {topic!r} takes", call, listen=self._listen),
        )
        return self._limits[topic][1]

    def identity(self, topic: str) -> str | None:
        """The id that the brokers gave the topic; believed for a few seconds. None: they do not tell us."""
        at, found = self._ids.get(topic, (-FRESH, None))
        if time.monotonic() - at < FRESH:
            return found

        def call() -> str | None:
            asked = self._admin.describe_topics(
                TopicCollection([self._place.full(topic)]), request_timeout=REQUEST
            )
            try:
                said = self._one(asked).topic_id
            except KafkaException as error:
                if error.args[0].code() in _UNTOLD:
                    return None
                raise
            return (
                None
                if said is None or not said.get_most_significant_bits() | said.get_least_significant_bits()
                else str(said)
            )

        self._ids[topic] = (
            time.monotonic(),
            self._line.attempt(f"asking for the id of {topic!r}", call, listen=self._listen),
        )
        return self._ids[topic][1]

    def set_retention(self, topic: str, retention: int | None) -> None:
        """Tells the brokers how long records are kept."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in retention_settings(retention).items()
        ]
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, self._place.full(topic), incremental_configs=entries
        )
        self._line.attempt(
            f"changing the retention of {topic!r}",
            lambda: self._one(self._admin.incremental_alter_configs([resource], request_timeout=REQUEST)),
            listen=self._listen,
        )

    def offsets(self, topic: str, spec: OffsetSpec, *, committed: bool = True) -> dict[int, int]:
        """An offset of each partition: the earliest, the latest, or the first at or after a time, -1 where there is none."""
        wanted = {
            TopicPartition(self._place.full(topic), number): spec for number in range(self.partitions(topic))
        }
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def call() -> dict[int, int]:
            return self._said(topic, wanted, isolation)

        try:
            return self._line.attempt(f"asking for the offsets of {topic!r}", call, listen=self._listen)
        except LogError:
            self.partitions(topic, fresh=True)  # says so if the topic is gone
            raise

    def position(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        """The same of one partition."""
        wanted = {TopicPartition(self._place.full(topic), partition): spec}

        def call() -> int:
            return self._said(topic, wanted, IsolationLevel.READ_COMMITTED)[partition]

        return self._line.attempt(f"asking for the offsets of {topic!r}", call, listen=self._listen)

    def _said(
        self, topic: str, wanted: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel
    ) -> dict[int, int]:
        """What brokers say of some partitions of a topic. That none of them leads any passes, unless the topic is gone; so does that one of them has not heard of a topic which others know."""
        asked = self._admin.list_offsets(dict(wanted), isolation_level=isolation, request_timeout=REQUEST)
        try:
            return {place.partition: _offset(future) for place, future in asked.items()}
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise
            self.partitions(topic, fresh=True)  # says so if the topic is gone
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, error.args[0].str())) from error

    def await_seen(self, places: Collection[tuple[str, int]], *, within: float) -> None:
        """Returns when what was committed to these partitions can be read; Kafka says that a transaction is committed a moment before."""
        asked = [TopicPartition(topic, partition) for topic, partition in places]

        def offsets(isolation: IsolationLevel) -> dict[tuple[str, int], int]:
            found = self._admin.list_offsets(
                {place: OffsetSpec.latest() for place in asked},
                isolation_level=isolation,
                request_timeout=REQUEST,
            )
            return {(place.topic, place.partition): _offset(future) for place, future in found.items()}

        with contextlib.suppress(KafkaException):  # it is committed all the same
            upto = offsets(IsolationLevel.READ_UNCOMMITTED)
            ready(
                lambda: all(
                    offset >= upto[place] for place, offset in offsets(IsolationLevel.READ_COMMITTED).items()
                ),
                within=within,
                every=0.001,
            )

    def remove_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Removes the front of partitions. Where that is not allowed, brokers do it in their own time."""
        wanted = [
            TopicPartition(self._place.full(topic), number, offset) for number, offset in offsets.items()
        ]
        with contextlib.suppress(KafkaException):
            for future in self._admin.delete_records(wanted, request_timeout=REQUEST).values():
                future.result(2 * REQUEST)

    def led(self, topics: Mapping[str, object]) -> dict[str, int]:
        """Of these topics, those of which every partition has a leader now, and how many partitions they have."""
        listed = self._listed().topics
        found = {topic: listed.get(self._place.full(topic)) for topic in topics}
        return {
            topic: len(about.partitions)
            for topic, about in found.items()
            if about is not None
            and about.error is None
            and all(each.leader >= 0 for each in about.partitions.values())
        }

    def expire(self, topic: str, partitions: int, clock: tuple[int, int | None], retention: int) -> None:
        """Removes what is older than both we and the brokers say that it is kept. One attempt: it is only housekeeping.

        `clock`: the time, and where it is known how much time has passed: that, as in `Log.expire`.
        """
        full = self._place.full(topic)
        now, passed = clock
        try:
            wanted = ConfigResource(ConfigResource.Type.TOPIC, full)
            said = int(
                self._one(self._admin.describe_configs([wanted], request_timeout=HOUSEKEEPING))[
                    "retention.ms"
                ].value
            )
            if said < 0:  # for ever: what the control topic says is not enough to remove anything
                return

            def found(spec: OffsetSpec, isolation: IsolationLevel) -> dict[int, Any]:
                places = {TopicPartition(full, number): spec for number in range(partitions)}
                answers = self._admin.list_offsets(
                    places, isolation_level=isolation, request_timeout=HOUSEKEEPING
                )
                return {place.partition: future.result(2 * HOUSEKEEPING) for place, future in answers.items()}

            def asked(spec: OffsetSpec, isolation: IsolationLevel) -> dict[int, int]:
                return {number: answer.offset for number, answer in found(spec, isolation).items()}

            if passed is not None:
                newest = found(OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED).values()
                now = min(now, max(answer.timestamp for answer in newest) + passed)
            at = OffsetSpec.for_timestamp(max(0, now - max(said, retention)))
            begins = asked(OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)
            ends = asked(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
            kept = asked(at, IsolationLevel.READ_UNCOMMITTED)
        except (KafkaException, TimeoutError) as error:
            _log.debug("nothing was removed from %s: %s", topic, error)
            return
        due = {number: ends[number] if offset < 0 else offset for number, offset in kept.items()}
        if due := {number: offset for number, offset in due.items() if offset > begins[number] >= 0}:
            self.remove_before(topic, due)

    def check_partition(self, topic: str, partition: int) -> None:
        """Refuses a partition that does not exist."""
        count = self.partitions(topic)
        if not 0 <= partition < count and not 0 <= partition < self.partitions(topic, fresh=True):
            raise OffsetGone(f"{topic} has partitions 0 to {count - 1}, not {partition}")

    def _listed(self) -> Any:
        return self._line.attempt(
            "asking for the topics", lambda: self._admin.list_topics(timeout=1), listen=self._listen
        )

    def _counted(self, topic: str) -> int:
        """How many partitions there are, once all have a leader; 0: there is no such topic."""
        full = self._place.full(topic)

        def call() -> int:
            found = self._admin.list_topics(full, timeout=1).topics.get(full)
            if found is None or (found.error is not None and found.error.code() in _ABSENT):
                return 0
            if found.error is not None:
                raise KafkaException(found.error)
            if any(each.leader < 0 for each in found.partitions.values()):
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return len(found.partitions)

        return self._line.attempt(f"asking for topic {topic!r}", call, listen=self._listen)

    def _listen(self) -> None:
        """Before another attempt. Who leads a partition is asked anew: offsets are asked of whom the client remembers, who may have been replaced."""
        self._admin.poll(0)
        with contextlib.suppress(KafkaException):
            self._admin.list_topics(timeout=1)

    def _one(self, futures: Mapping[Any, "Future[Any]"]) -> Any:
        (future,) = futures.values()
        return future.result(2 * REQUEST)


_ABSENT = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
_UNTOLD = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, *_ABSENT}
"""Not every user may ask for settings; and a broker may not have heard of a topic yet."""


def _offset(asked: "Future[Any]") -> int:
    """What a broker said. While leaders change places, an answer may hold neither an offset nor an error: it is asked for again."""
    found: int = asked.result(2 * REQUEST).offset
    if found <= OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no offset was said"))
    return found


def retention_settings(retention: int | None) -> dict[str, str]:
    """How long records are kept, in Kafka's words. Brokers remove whole segments, so segments must not be longer than that."""
    if retention is None:
        return {"retention.ms": "-1"}
    return {"retention.ms": str(retention), "segment.ms": str(min(max(retention // 4, 60_000), 7 * _DAY))}


def ready(call: Callable[[], bool], *, within: float, every: float = 0.02) -> bool:
    """Whether something comes true soon."""
    deadline = time.monotonic() + within
    while not call():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
