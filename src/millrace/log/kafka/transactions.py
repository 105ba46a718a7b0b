"""One writer of each name: what it commits together is there together, or not at all."""

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace.errors import Fenced, LogError, LogUnreachable
from millrace.log import fault_points
from millrace.log.contract import Outgoing
from millrace.log.kafka.broker_errors import REQUEST, Line, fenced, passing
from millrace.log.kafka.markers import Marker
from millrace.log.kafka.producer import Part, send, stamp
from millrace.log.kafka.url import MARKERS

TRANSACTION_MS = 60_000
"""How long a transaction may take before brokers end it and fence its writer."""

Parts = list[Part]


class Desk(Protocol):
    """What a writer asks of its log."""

    line: Line

    def transactional(self, name: str) -> Producer:
        """A producer with the writer's name."""

    def prepare(self, batches: Mapping[str, Outgoing]) -> Parts:
        """What goes where; raises where something cannot."""

    def marker(self, name: str) -> Marker | None:
        """What was committed last under a name."""

    def full(self, topic: str) -> str:
        """A topic as Kafka knows it."""

    def await_seen(self, parts: Parts) -> None:
        """Returns when what was committed can be read."""


@dataclass
class _Delivery:
    """What could not be delivered, and why."""

    errors: list[KafkaError] = field(default_factory=list)

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.errors.append(error)


class KafkaWriter:
    """A `Writer` on Kafka: a transactional producer, and a marker in each transaction.

    Brokers fence a producer when another of its name begins, and also when its transaction took too long. So a fenced writer looks who owns the
    name: if it still does, nobody has taken over, and it goes on.
    """

    def __init__(self, desk: Desk, name: str) -> None:
        """Takes over: the older writer of the name is fenced, and what it had not committed is aborted."""
        self._desk, self._name = desk, name
        self._delivery = _Delivery()
        self._in_doubt = False
        """Whether the last commit failed, so that it is unknown what became of it."""
        self._producer = self._begun()
        while not self._claimed():
            pass

    def _claimed(self) -> bool:
        """Makes the name its own. If it is fenced meanwhile, what was committed last must be asked again: the older writer, not yet aware of
        having been replaced, may have gone on.
        """
        before = self._desk.marker(self._name) or Marker(-1, 0, "")
        self._own = Marker(before.marker, before.epoch + 1, uuid.uuid4().hex)
        self.last = before.marker
        return self._attempt([], self._own, None, again=False)

    def commit(self, marker: int, batches: Mapping[str, Outgoing], *, now: int | None = None) -> None:
        """All topics and the marker, in one transaction."""
        if marker <= self.last:
            raise LogError(
                f"writer {self._name!r}: marker {marker} is not after {self.last}, which is already committed; skip it"
            )
        parts = self._desk.prepare(batches)
        said = replace(self._own, marker=marker)
        self._until_committed(parts, said, now)
        self._own, self.last = said, marker
        self._desk.await_seen(parts)

    def close(self) -> None:
        """Lets go of the broker; nothing is written."""
        with contextlib.suppress(KafkaException, SystemError):  # a producer that was fenced says so once more
            self._producer.purge()
            self._producer.flush(REQUEST)

    def _until_committed(self, parts: Parts, marker: Marker, now: int | None) -> None:
        """Attempts the transaction until it is in the log, by whichever attempt."""
        if self._in_doubt and self._went_on(marker):
            return
        self._in_doubt = True
        self._attempt(parts, marker, now)
        self._in_doubt = False

    def _attempt(self, parts: Parts, marker: Marker, now: int | None, *, again: bool = True) -> bool:
        """False: it was fenced, has become the one once more, and was not to try `again`."""
        began, said = time.monotonic(), False
        doing = f"writer {self._name!r}: committing {marker.marker}"
        while True:
            try:
                self._transact(parts, marker, now)
            except (KafkaException, SystemError) as raised:
                error = _reason(raised)
                cause = self._cause(error)
                if fenced(error):
                    if self._went_on(marker):
                        return True
                    if not again:
                        return False
                elif error.txn_requires_abort():
                    self._aborted(began)
                if not (passing(cause) or fenced(error)):
                    raise self._desk.line.meaning(cause, doing) from raised
                said = self._desk.line.waited(began, cause, said=said)
                time.sleep(0.02)
            else:
                return True

    def _transact(self, parts: Parts, marker: Marker, now: int | None) -> None:
        self._delivery.errors.clear()
        self._producer.begin_transaction()
        fault_points.at("begun")
        for part in parts:
            send(self._producer, part, now, self._delivery)
            self._producer.poll(0)
        fault_points.at("produced")
        name = self._desk.full(MARKERS)
        self._producer.produce(
            name, marker.to_json(), self._name.encode(), 0, on_delivery=self._delivery, timestamp=stamp(now)
        )
        fault_points.at("marked")
        self._patiently(lambda: self._producer.commit_transaction(REQUEST))
        fault_points.at("committed")

    def _patiently(self, call: Callable[[], None]) -> None:
        """A call that timed out goes on where it was when it is called again."""
        began, said = time.monotonic(), False
        while True:
            try:
                return call()
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if not error.retriable() or error.txn_requires_abort() or error.fatal():
                    raise
                said = self._desk.line.waited(began, error, said=said)

    def _aborted(self, since: float) -> None:
        try:
            self._patiently(lambda: self._producer.abort_transaction(REQUEST))
        except KafkaException as raised:
            if not fenced(raised.args[0]):
                raise self._desk.line.meaning(raised.args[0], f"writer {self._name!r}: aborting") from raised
            if time.monotonic() - since > self._desk.line.wait_ms / 1000:
                raise LogUnreachable(
                    f"writer {self._name!r}: Kafka could not abort a transaction in time; try again"
                ) from raised

    def _went_on(self, marker: Marker) -> bool:
        """After being fenced: whether the marker is in the log all the same. `Fenced` if another has taken over."""
        self._check_owner(marker)
        self._producer = self._begun()
        found = self._check_owner(marker)
        return found is not None and found.owner == marker.owner and found.marker >= marker.marker

    def _check_owner(self, marker: Marker) -> Marker | None:
        found = self._desk.marker(self._name)
        if found is not None and found.epoch >= self._own.epoch and found.owner != self._own.owner:
            raise Fenced(
                f"another writer named {self._name!r} has taken over, so marker {marker.marker} was not committed; only one run may write at a time"
            )
        return found

    def _begun(self) -> Producer:
        producer = self._desk.transactional(self._name)
        self._desk.line.attempt(
            f"beginning as the writer {self._name!r}",
            lambda: producer.init_transactions(REQUEST),
            listen=lambda: producer.poll(0),
        )
        return producer

    def _cause(self, error: KafkaError) -> KafkaError:
        """Why a transaction failed: that a record could not be delivered says more than that the transaction must be aborted."""
        return self._delivery.errors[0] if self._delivery.errors and not fenced(error) else error


def _reason(raised: KafkaException | SystemError) -> KafkaError:
    """What the client library says. A fatal error that comes up while deliveries are reported is wrapped by Python itself."""
    inner = raised.__cause__ if isinstance(raised, SystemError) else raised
    if not isinstance(inner, KafkaException):
        raise raised
    reason: KafkaError = inner.args[0]
    return reason
