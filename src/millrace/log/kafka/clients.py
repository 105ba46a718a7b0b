"""Producers, consumers and admin clients, each with the settings that our promises need."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millrace.errors import ConfigError
from millrace.log.kafka.broker_errors import Line
from millrace.log.kafka.producer import BATCH
from millrace.values.secrets import Hidden

_log = logging.getLogger("millrace.kafka")

READING: dict[str, str | int | bool] = {
    "group.id": "millrace",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
"""A reader is told where to read, and keeps no offsets of its own in Kafka: it never joins a group."""
WRITING: dict[str, str | int | bool] = {
    "acks": "all",
    "enable.idempotence": True,
    "delivery.report.only.error": True,
}
OURS = {*READING, *WRITING, "bootstrap.servers", "transactional.id", "error_cb", "logger", "on_delivery"}
"""What users cannot set, because promises rest on it."""

QUICK: dict[str, str | int | bool] = {
    "socket.nagle.disable": True,
    "retry.backoff.ms": 5,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "allow.auto.create.topics": False,
}
"""With Kafka's own 100 ms between attempts a transaction takes 105 ms instead of 9."""
READ_QUICK: dict[str, str | int | bool] = {
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 2,
    "fetch.message.max.bytes": 4 << 20,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    "check.crcs": False,
}
WRITE_QUICK: dict[str, str | int | bool] = {
    "linger.ms": 2,
    "queue.buffering.max.messages": 1_000_000,
    "batch.size": BATCH,
    "message.max.bytes": 1_000_000_000,
}
"""How large a record may be is what its topic says (`KafkaLog.largest`), not the client library's default."""


class _Quiet:
    """The library says everything three times, and most of it concerns nobody; --debug shows it."""

    def log(self, _level: int, text: str, *args: object) -> None:
        _log.debug(text, *args)


T = TypeVar("T")


def _client(kind: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    """A client; what the library cannot do with its settings is one line."""
    try:
        return kind(settings)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        raise ConfigError(
            f"[kafka.client]: these settings cannot be used ({' '.join(reason.str().split())}); see the names and values in librdkafka's CONFIGURATION.md, "
            "and for GSSAPI (Kerberos) install a confluent-kafka that is built with it"
        ) from error


class Clients:
    """Makes clients of one log. Users' settings win over those that are only about speed."""

    def __init__(self, line: Line, settings: Mapping[str, str | Hidden]) -> None:
        for key in settings:
            if key in OURS:
                raise ConfigError(
                    f"kafka.client: {key} cannot be set, as exactly-once rests on how millrace sets it; leave it out"
                )
        self._line = line
        self._settings = settings

    def admin(self) -> AdminClient:
        """For topics and offsets."""
        return _client(AdminClient, self._made({}, {}))

    def consumer(self, share: float = 1.0) -> Consumer:
        """Reads what is committed. `share`: how much of the usual it fetches ahead."""
        ahead = {
            name: max(1, int(int(READ_QUICK[name]) * share))
            for name in ("queued.min.messages", "queued.max.messages.kbytes")
        }
        return _client(Consumer, self._made(READ_QUICK | ahead, READING))

    def producer(self, *, transactional_id: str | None = None, timeout_ms: int | None = None) -> Producer:
        """Idempotent; with an id, transactional. `timeout_ms`: how long a record, or a transaction, may take."""
        if transactional_id is None:
            return _client(
                Producer, self._made(WRITE_QUICK, WRITING | {"message.timeout.ms": timeout_ms or 300_000})
            )
        own = {"transactional.id": transactional_id}
        return _client(
            Producer,
            self._made(WRITE_QUICK | {"transaction.timeout.ms": timeout_ms or 60_000}, WRITING | own),
        )

    def _made(
        self, quick: Mapping[str, str | int | bool], ours: Mapping[str, str | int | bool]
    ) -> dict[str, Any]:
        said = {
            key: value.reveal() if isinstance(value, Hidden) else value
            for key, value in self._settings.items()
        }
        return {
            **QUICK,
            **quick,
            **said,
            **ours,
            "bootstrap.servers": self._line.servers,
            "error_cb": self._line.heard,
            "logger": _Quiet(),
        }
