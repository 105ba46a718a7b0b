"""Errors of brokers: which may pass and are waited out, how long, and what the others mean to the user."""

import logging
import re
import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from millrace import durations
from millrace.errors import Fenced, LogDenied, LogError, LogUnreachable, MillraceError

_log = logging.getLogger("millrace.kafka")
T = TypeVar("T")

REQUEST_SECONDS = 10.0
"""Seconds that one request may take."""
HOUSEKEEPING_SECONDS = 2.0
"""Seconds that a request may take for which no batch waits: it is tried again later."""
QUIET_SECONDS = 2.0
"""Seconds without an answer before a warning tells the user that brokers are waited for."""

_AUTHENTICATION_ERRORS = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
_AUTHORIZATION_ERRORS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_FENCED_ERRORS = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_SIZE_ERRORS = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE}
_INVALID_REQUESTS = {
    KafkaError._INVALID_ARG,
    KafkaError._INVALID_TYPE,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.INVALID_REQUEST,
    KafkaError.INVALID_REQUIRED_ACKS,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.POLICY_VIOLATION,
    KafkaError.SECURITY_DISABLED,
    KafkaError.TOPIC_DELETION_DISABLED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.ILLEGAL_SASL_STATE,
}
FATAL_ERRORS = {
    "wrong password, mechanism or certificate": _AUTHENTICATION_ERRORS,
    "missing rights": _AUTHORIZATION_ERRORS,
    "another writer of the same name has taken over": _FENCED_ERRORS,
    "a record is larger than its topic takes": _SIZE_ERRORS,
    "a request that brokers cannot grant": _INVALID_REQUESTS,
}
"""The errors that end a run, by meaning. After any other, the request is repeated within `kafka.wait`."""
_FATAL_CODES = frozenset[int]().union(*FATAL_ERRORS.values())
_EXPIRED_PRODUCERS = {KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID}
"""Brokers have forgotten a transactional id that wrote nothing for a week
(`transactional.id.expiration.ms`).
"""


class BrokerErrors:
    """The state of the connection to the brokers of one log. Clients report errors to `record`."""

    def __init__(self, servers: str, wait_ms: int) -> None:
        self.servers = servers
        self.wait_ms = wait_ms
        self._reached = False
        self._last_error: KafkaError | None = None

    def record(self, error: KafkaError) -> None:
        """Remembers an error that a client reports in its own thread."""
        _log.debug("Kafka at %s: %s", self.servers, error.str())
        if self._last_error is None or self._last_error.code() not in _AUTHENTICATION_ERRORS:
            self._last_error = error

    def retry(self, action: str, call: Callable[[], T], *, poll: Callable[[], object] = lambda: None) -> T:
        """Calls until the call succeeds. An error that may pass is waited out, with a warning; any other is
        raised.

        `poll` lets the client deliver the errors of its own thread to `record`.
        """
        started, has_logged = time.monotonic(), False
        while True:
            try:
                result = call()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if not is_transient(error):
                    raise self.translate(error, action) from exception
                poll()
                self.raise_if_denied()
                has_logged = self.check_waiting(started, error, has_logged=has_logged)
                time.sleep(0.1)
            else:
                if has_logged:
                    _log.warning("Kafka at %s answers again", self.servers)
                self._reached, self._last_error = True, None
                return result

    def raise_if_denied(self) -> None:
        """Raises if a client reported an error that does not pass: wrong password, untrusted certificate."""
        error = self._last_error
        if error is not None and (
            error.code() in _AUTHENTICATION_ERRORS or (error.code() == KafkaError._SSL and not self._reached)
        ):
            self._last_error = None
            raise LogDenied(
                f"Kafka at {self.servers} does not let us in ({_error_text(error)}); {_remedy(error)}"
            )

    def check_waiting(self, started: float, error: KafkaError | None, *, has_logged: bool) -> bool:
        """Warns once that brokers are waited for; whether it has. `LogUnreachable` after `kafka.wait`."""
        elapsed = time.monotonic() - started
        reason = "" if error is None else f" ({_error_text(self._last_error or error)})"
        if elapsed * 1000 > self.wait_ms:
            raise LogUnreachable(
                f"Kafka at {self.servers} has not answered for "
                f"{durations.format_millis(self.wait_ms)}{reason}; see that brokers run there, and that "
                "address and security.protocol are right, or wait longer (kafka.wait)"
            )
        if not has_logged and elapsed > QUIET_SECONDS:
            _log.warning(
                "waiting for Kafka at %s%s; for up to %s",
                self.servers,
                reason,
                durations.format_millis(self.wait_ms),
            )
            return True
        return has_logged

    def translate(self, error: KafkaError, action: str) -> MillraceError:
        """The error as one of millrace's own, with what to do about it."""
        code, detail = error.code(), _error_text(error)
        if code in _AUTHORIZATION_ERRORS:
            return LogDenied(
                f"{action}: Kafka at {self.servers} does not allow it ({detail}); ask for the rights, or "
                "use another sasl.username"
            )
        if code in _AUTHENTICATION_ERRORS:
            return LogDenied(
                f"{action}: Kafka at {self.servers} does not let us in ({detail}); {_remedy(error)}"
            )
        if code in _SIZE_ERRORS:
            return LogError(
                f"{action}: a record is larger than Kafka takes ({detail}); store it elsewhere and append a "
                "reference, or raise message.max.bytes under [kafka.client] and "
                "max.message.bytes of the topic"
            )
        if code in _FENCED_ERRORS:
            return Fenced(f"{action}: {detail}")
        if is_transient(error):
            return LogUnreachable(f"{action}: Kafka at {self.servers} does not answer ({detail})")
        return LogError(f"{action}: Kafka at {self.servers} refused: {detail}")


def is_transient(error: KafkaError) -> bool:
    """Whether a repeated request may succeed."""
    return error.code() not in _FATAL_CODES and not error.fatal() and error.code() != KafkaError._FATAL


def needs_new_producer(error: KafkaError) -> bool:
    """Whether this producer can do nothing more: another may have fenced it, or brokers have forgotten it.

    A producer that was fenced while it was idle only shows it by accepting no more records (`_STATE`). The
    writer then looks up who owns the name, before a new producer repeats the transaction.
    """
    codes = _FENCED_ERRORS | _EXPIRED_PRODUCERS | {KafkaError._STATE, KafkaError._FATAL}
    return error.code() in codes or error.fatal()


def _remedy(error: KafkaError) -> str:
    if error.code() == KafkaError._SSL:
        return "see security.protocol and ssl.ca.location under [kafka.client]"
    return (
        "see sasl.mechanism, sasl.username and the password, which is best given as "
        "MILLRACE_KAFKA_CLIENT_SASL_PASSWORD"
    )


def _error_text(error: KafkaError) -> str:
    """The library's text without the address in front of it and the library's counters behind it."""
    text = error.str() or error.name()
    return _TEXT_SUFFIX.sub("", _TEXT_PREFIX.sub("", text))


_TEXT_PREFIX = re.compile(r"^(?:\[thrd:[^\]]*\]: )?(?:\w+://)?[^\s:]+:\d+/\w+: ")
_TEXT_SUFFIX = re.compile(r" \(after \d+ms in state [^()]*(?:\(s\)[^()]*)?\)")
