"""Producers, consumers and admin clients, with the settings on which exactly-once rests."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millrace.errors import ConfigError
from millrace.log.kafka import librdkafka
from millrace.log.kafka.broker_errors import BrokerErrors
from millrace.log.kafka.consumers import ColumnConsumer, ObjectConsumer, PartitionConsumer, UnsupportedSetting
from millrace.log.kafka.producer import BATCH_BYTES
from millrace.values.secrets import Secret

_log = logging.getLogger("millrace.kafka")

CONSUMER_SETTINGS: dict[str, str | int | bool] = {
    "group.id": "millrace",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
"""A reader never joins the group: the runner decides which offsets are read, and keeps them."""
PRODUCER_SETTINGS: dict[str, str | int | bool] = {
    "acks": "all",
    "enable.idempotence": True,
    "delivery.report.only.error": True,
}
RESERVED_SETTINGS = {
    *CONSUMER_SETTINGS,
    *PRODUCER_SETTINGS,
    "bootstrap.servers",
    "transactional.id",
    "error_cb",
    "logger",
    "on_delivery",
}
"""Users cannot set these, because exactly-once rests on them."""

FAST_SETTINGS: dict[str, str | int | bool] = {
    "socket.nagle.disable": True,
    "retry.backoff.ms": 5,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "allow.auto.create.topics": False,
}
"""With the default of 100 ms between attempts a transaction takes 105 ms instead of 9."""
FAST_CONSUMER_SETTINGS: dict[str, str | int | bool] = {
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 2,
    "fetch.message.max.bytes": 4 << 20,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    "check.crcs": False,
}
FAST_PRODUCER_SETTINGS: dict[str, str | int | bool] = {
    "linger.ms": 2,
    "queue.buffering.max.messages": 1_000_000,
    "batch.size": BATCH_BYTES,
    "message.max.bytes": 1_000_000_000,
}
"""The topic limits how large a record may be (`KafkaLog.max_record_bytes`), not the client library."""


class _DebugLogger:
    """Passes the library's own log on at level debug: it repeats errors that are raised anyway."""

    def log(self, _level: int, text: str, *args: object) -> None:
        _log.debug(text, *args)


T = TypeVar("T")


def _make_client(client_type: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    """A client; `ConfigError` in one line if the library refuses the settings."""
    try:
        return client_type(settings)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        raise ConfigError(
            f"[kafka.client]: these settings cannot be used ({' '.join(reason.str().split())}); see the "
            "names and values in librdkafka's CONFIGURATION.md, and for GSSAPI (Kerberos) install a "
            "confluent-kafka that is built with it"
        ) from error


class Clients:
    """Makes the clients of one log. Users' settings override those that only concern speed."""

    def __init__(self, broker_errors: BrokerErrors, settings: Mapping[str, str | Secret]) -> None:
        for key in settings:
            if key in RESERVED_SETTINGS:
                raise ConfigError(
                    f"kafka.client: {key} cannot be set, as exactly-once rests on how "
                    "millrace sets it; leave it out"
                )
        self._broker_errors = broker_errors
        self._settings = settings

    def admin(self) -> AdminClient:
        """A client for topics and offsets."""
        return _make_client(AdminClient, self._merge_settings({}, {}))

    def consumer(self, prefetch_share: float = 1.0) -> PartitionConsumer:
        """A reader of committed records, which fetches so much of the usual amount ahead."""
        prefetch = {
            name: max(1, int(int(FAST_CONSUMER_SETTINGS[name]) * prefetch_share))
            for name in ("queued.min.messages", "queued.max.messages.kbytes")
        }
        settings = self._merge_settings(FAST_CONSUMER_SETTINGS | prefetch, CONSUMER_SETTINGS)
        if (library := librdkafka.find()) is not None:
            texts = {name: value for name, value in settings.items() if name not in ("error_cb", "logger")}
            try:
                return ColumnConsumer(library, texts, self._broker_errors.record)
            except UnsupportedSetting as reason:
                librdkafka.note_objects(str(reason))
        return ObjectConsumer(_make_client(Consumer, settings))

    def producer(self, *, transactional_id: str | None = None, timeout_ms: int | None = None) -> Producer:
        """An idempotent producer; with an id, transactional. `timeout_ms`: of a record or transaction."""
        if transactional_id is None:
            return _make_client(
                Producer,
                self._merge_settings(
                    FAST_PRODUCER_SETTINGS, PRODUCER_SETTINGS | {"message.timeout.ms": timeout_ms or 300_000}
                ),
            )
        id_setting = {"transactional.id": transactional_id}
        return _make_client(
            Producer,
            self._merge_settings(
                FAST_PRODUCER_SETTINGS | {"transaction.timeout.ms": timeout_ms or 60_000},
                PRODUCER_SETTINGS | id_setting,
            ),
        )

    def _merge_settings(
        self, fast: Mapping[str, str | int | bool], reserved: Mapping[str, str | int | bool]
    ) -> dict[str, Any]:
        user_settings = {
            key: value.reveal() if isinstance(value, Secret) else value
            for key, value in self._settings.items()
        }
        return {
            **FAST_SETTINGS,
            **fast,
            **user_settings,
            **reserved,
            "bootstrap.servers": self._broker_errors.servers,
            "error_cb": self._broker_errors.record,
            "logger": _DebugLogger(),
        }
