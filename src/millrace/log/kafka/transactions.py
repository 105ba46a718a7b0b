"""Commits a batch to Kafka: its records and its marker in one transaction (`KafkaWriter._transact`).

All results, late rows, dead letters and the status of a batch are one transaction with the marker, a record
of `millrace.markers` that holds the number of the batch. A run that starts again reads the marker and does
not write that batch a second time.

Only one writer of a name may commit. Two mechanisms work together:

- Kafka fences a producer when another begins with the same transactional id, and aborts its open transaction.
  But brokers also fence a producer whose transaction took longer than `TRANSACTION_MS`, though nobody
  replaced it.
- Each takeover commits a marker with a higher epoch and a random owner. A fenced writer reads the last
  marker. If that has another owner and no lower epoch, the writer was replaced, and raises `Fenced`. Else it
  starts a new producer and repeats the commit.

    12:00:00  A takes over (epoch 1, owner a), commits batch 4, begins to commit batch 5. Its machine sleeps.
    12:00:20  B takes over: Kafka fences A and aborts its batch 5. B reads marker 4, commits the marker
              (4, epoch 2, owner b), then batches 5 and 6.
    12:01:30  A wakes up. Its commit is refused. It reads the marker (6, epoch 2, owner b), raises
              `Fenced`, and batch 5 is in the log once.

Watermarks of the writer (`millrace.log.writer_watermarks`) are records of the same transaction. Each names
the offsets at which the writer's records end. Those are known when brokers have acknowledged the records, so
a commit with watermarks waits for that before it sends them.

A commit whose answer is lost (the connection broke while brokers committed) is in doubt. It is never repeated
blindly: if the last marker is the writer's own and not older than the batch, the batch is in the log.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace.errors import Fenced, LogError, LogUnreachable
from millrace.log import fault_points
from millrace.log.contract import OutgoingRecords
from millrace.log.kafka.broker_errors import REQUEST_SECONDS, BrokerErrors, is_transient, needs_new_producer
from millrace.log.kafka.markers import CommitMarker
from millrace.log.kafka.producer import PartitionRecords, count_undelivered, send, to_timestamp
from millrace.log.kafka.published_watermarks import watermark_key
from millrace.log.kafka.url import MARKERS, WATERMARKS
from millrace.log.writer_watermarks import WriterWatermark

TRANSACTION_MS = 60_000
"""How long a transaction may take before brokers end it and fence its writer."""

PreparedRecords = list[PartitionRecords]


class TransactionalLog(Protocol):
    """What a writer needs of its log."""

    broker_errors: BrokerErrors

    def transactional_producer(self, name: str) -> Producer:
        """A producer that fences older ones of the same name."""

    def prepare(self, batches: Mapping[str, OutgoingRecords]) -> PreparedRecords:
        """The records for each partition; raises where a topic is missing or a record is too large."""

    def marker(self, name: str) -> CommitMarker | None:
        """The last marker that was committed under a name."""

    def kafka_name(self, topic: str) -> str:
        """A topic as Kafka knows it."""

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has."""

    def appended_offsets(self, topic: str) -> dict[int, int]:
        """One past the last record of each partition, whether its transaction has ended or not."""

    def await_visible(self, parts: PreparedRecords, *, has_watermarks: bool) -> None:
        """Returns when the records of a commit can be read."""


@dataclass
class _DeliveryErrors:
    """Errors of records that could not be delivered; records of an aborted transaction are not errors."""

    errors: list[KafkaError] = field(default_factory=list)

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.errors.append(error)


@dataclass(frozen=True)
class _Commit:
    """What one transaction holds."""

    parts: PreparedRecords
    marker: CommitMarker
    now: int | None = None
    watermarks: Mapping[str, int] = field(default_factory=dict)


class KafkaWriter:
    """A `Writer` on Kafka: a transactional producer, and a marker in each transaction."""

    def __init__(self, log: TransactionalLog, name: str) -> None:
        """Takes over: the older writer of the name is fenced, and its open transaction is aborted."""
        self._log, self._name = log, name
        self._delivery = _DeliveryErrors()
        self._ends: dict[str, list[int]] = {}
        """By Kafka's name of a topic, offsets of its partitions that no record of this writer has reached."""
        self._in_doubt = False
        """Whether the last commit raised, so that its transaction may be in the log or not."""
        self._producer = self._start_producer()
        while not self._claim_name():
            pass

    def _claim_name(self) -> bool:
        """Commits a marker with a higher epoch. False: this writer was fenced meanwhile, and must read the
        last marker again.

        The older writer may have committed a batch after its marker was read here: it was not fenced yet, or
        it recovered from being fenced because no newer marker was in the log.
        """
        previous = self._log.marker(self._name) or CommitMarker(-1, 0, "")
        self._own_marker = CommitMarker(previous.marker, previous.epoch + 1, uuid.uuid4().hex)
        self.last_marker = previous.marker
        return self._commit_or_recover(_Commit([], self._own_marker), retry_if_fenced=False)

    def commit(
        self,
        marker: int,
        batches: Mapping[str, OutgoingRecords],
        *,
        now: int | None = None,
        watermarks: Mapping[str, int] | None = None,
    ) -> None:
        """All topics, watermarks and the marker, in one transaction."""
        if marker <= self.last_marker:
            raise LogError(
                f"writer {self._name!r}: marker {marker} is not after {self.last_marker}, which is already "
                "committed; skip it"
            )
        parts = self._log.prepare(batches)
        new_marker = msgspec.structs.replace(self._own_marker, marker=marker)
        self._commit_once(_Commit(parts, new_marker, now, watermarks or {}))
        self._own_marker, self.last_marker = new_marker, marker
        self._log.await_visible(parts, has_watermarks=bool(watermarks))

    def close(self) -> None:
        """Closes the connection; nothing is written."""
        with contextlib.suppress(KafkaException, SystemError):  # a fenced producer raises once more
            self._producer.purge()
            self._producer.flush(REQUEST_SECONDS)

    def _commit_once(self, commit: _Commit) -> None:
        """Repeats the transaction until it is in the log, whichever attempt put it there."""
        if self._in_doubt and self._is_committed(commit.marker):
            return
        self._in_doubt = True
        self._commit_or_recover(commit)
        self._in_doubt = False

    def _commit_or_recover(self, commit: _Commit, *, retry_if_fenced: bool = True) -> bool:
        """True: committed. False: fenced though it still owns the name, and `retry_if_fenced` is off."""
        started, has_logged, marker = time.monotonic(), False, commit.marker
        action = f"writer {self._name!r}: committing {marker.marker}"
        while True:
            try:
                self._transact(commit)
            except (KafkaException, SystemError) as exception:
                error = _kafka_error(exception)
                cause = self._root_cause(error)
                if needs_new_producer(error):
                    if self._is_committed(marker):
                        return True
                    if not retry_if_fenced:
                        return False
                elif error.txn_requires_abort():
                    self._abort(started)
                if not (is_transient(cause) or needs_new_producer(error)):
                    raise self._log.broker_errors.translate(cause, action) from exception
                has_logged = self._log.broker_errors.check_waiting(started, cause, has_logged=has_logged)
                time.sleep(0.02)
            else:
                return True

    def _transact(self, commit: _Commit) -> None:
        """Begins, sends records, watermarks and marker, commits. A process killed before the end leaves
        nothing.
        """
        self._delivery.errors.clear()
        self._producer.begin_transaction()
        fault_points.at("begun")
        for part in commit.parts:
            self._ends.pop(part.topic, None)
            send(self._producer, part, commit.now, self._delivery)
            self._producer.poll(0)
        fault_points.at("produced")
        if commit.watermarks:
            self._send_watermarks(commit)
        self._send_control(MARKERS, self._name.encode(), commit.marker.to_json(), commit.now)
        fault_points.at("marked")
        self._call_until_done(lambda: self._producer.commit_transaction(REQUEST_SECONDS))
        fault_points.at("committed")

    def _send_watermarks(self, commit: _Commit) -> None:
        """Sends how far the writer vouches for topics, from behind the records that brokers have by now."""
        self._find_ends(commit.watermarks)
        for topic, watermark in commit.watermarks.items():
            ends = self._ends[self._log.kafka_name(topic)]
            record = WriterWatermark(topic, self._name, watermark, ends)
            self._send_control(WATERMARKS, watermark_key(topic, self._name), record.to_json(), commit.now)

    def _find_ends(self, topics: Iterable[str]) -> None:
        """Asks where the partitions of topics end to which the writer has sent something since it last asked.

        Others may have written behind that: an offset that is too great is right, too.
        """
        names = {topic: self._log.kafka_name(topic) for topic in topics}
        unknown = [
            topic
            for topic, name in names.items()
            if len(self._ends.get(name, ())) != self._log.partition_count(topic)
        ]
        if unknown:
            self._await_deliveries()
        for topic in unknown:
            ends = self._log.appended_offsets(topic)
            self._ends[names[topic]] = [ends[partition] for partition in sorted(ends)]

    def _await_deliveries(self) -> None:
        started, has_logged = time.monotonic(), False
        while count_undelivered(self._producer) and not self._delivery.errors:
            has_logged = self._log.broker_errors.check_waiting(started, None, has_logged=has_logged)

    def _send_control(self, topic: str, key: bytes, value: bytes, now: int | None) -> None:
        """Sends a record of a control topic."""
        self._producer.produce(
            self._log.kafka_name(topic),
            value,
            key,
            0,
            on_delivery=self._delivery,
            timestamp=to_timestamp(now),
        )

    def _call_until_done(self, call: Callable[[], None]) -> None:
        """Repeats a call that timed out: the client library continues it where it was."""
        started, has_logged = time.monotonic(), False
        while True:
            try:
                return call()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if not error.retriable() or error.txn_requires_abort() or error.fatal():
                    raise
                has_logged = self._log.broker_errors.check_waiting(started, error, has_logged=has_logged)

    def _abort(self, started: float) -> None:
        try:
            self._call_until_done(lambda: self._producer.abort_transaction(REQUEST_SECONDS))
        except KafkaException as exception:
            if not needs_new_producer(exception.args[0]):
                raise self._log.broker_errors.translate(
                    exception.args[0], f"writer {self._name!r}: aborting"
                ) from exception
            if time.monotonic() - started > self._log.broker_errors.wait_ms / 1000:
                raise LogUnreachable(
                    f"writer {self._name!r}: Kafka could not abort a transaction in time; try again"
                ) from exception

    def _is_committed(self, marker: CommitMarker) -> bool:
        """Whether a commit in doubt is in the log; `Fenced` if another writer has taken over. Replaces the
        producer.

        The marker is read twice. The new producer ends the old one's open transaction, so only the second
        answer is final.
        """
        self._check_owner(marker)
        self._producer = self._start_producer()
        last_marker = self._check_owner(marker)
        return (
            last_marker is not None
            and last_marker.owner == marker.owner
            and last_marker.marker >= marker.marker
        )

    def _check_owner(self, marker: CommitMarker) -> CommitMarker | None:
        """The last marker of the name; `Fenced` if another writer has taken over."""
        last_marker = self._log.marker(self._name)
        if (
            last_marker is not None
            and last_marker.epoch >= self._own_marker.epoch
            and last_marker.owner != self._own_marker.owner
        ):
            raise Fenced(
                f"another writer named {self._name!r} has taken over, so marker {marker.marker} was not "
                "committed; only one run may write at a time"
            )
        return last_marker

    def _start_producer(self) -> Producer:
        producer = self._log.transactional_producer(self._name)
        self._log.broker_errors.retry(
            f"beginning as the writer {self._name!r}",
            lambda: producer.init_transactions(REQUEST_SECONDS),
            poll=lambda: producer.poll(0),
        )
        return producer

    def _root_cause(self, error: KafkaError) -> KafkaError:
        """Why a transaction failed: the error of a record, if any, says more than "must be aborted"."""
        return self._delivery.errors[0] if self._delivery.errors and not needs_new_producer(error) else error


def _kafka_error(exception: KafkaException | SystemError) -> KafkaError:
    """The error of the client library, also where Python wrapped it into a `SystemError`."""
    inner = exception.__cause__ if isinstance(exception, SystemError) else exception
    if not isinstance(inner, KafkaException):
        raise exception
    reason: KafkaError = inner.args[0]
    return reason
