"""The line to the brokers: what clients complain of, how long that is put up with, and what it means."""

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

REQUEST = 10.0
"""Seconds that one request may take."""
HOUSEKEEPING = 2.0
"""Seconds that a request may take which a batch need not wait for: it is tried again later."""
QUIET = 2.0
"""Seconds of silence before we say that we wait."""

_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE}
_IMPOSSIBLE = {
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
ENDING = {
    "wrong password, mechanism or certificate": _REFUSED,
    "missing rights": _FORBIDDEN,
    "another writer of the same name has taken over": _FENCED,
    "a record is larger than its topic takes": _TOO_LARGE,
    "a request that brokers cannot grant": _IMPOSSIBLE,
}
"""The errors that end a run, by what they mean. Every other one may pass, and is retried within `kafka.wait`."""
_ENDS = frozenset[int]().union(*ENDING.values())
_EXPIRED = {KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID}
"""Brokers have forgotten a transactional id that wrote nothing for a week (`transactional.id.expiration.ms`)."""


class Line:
    """What is known of the brokers of one log. Clients report to `heard`."""

    def __init__(self, servers: str, wait_ms: int) -> None:
        self.servers = servers
        self.wait_ms = wait_ms
        self._reached = False
        self._complaint: KafkaError | None = None

    def heard(self, error: KafkaError) -> None:
        """A client complains, in its own thread of events."""
        _log.debug("Kafka at %s: %s", self.servers, error.str())
        if self._complaint is None or self._complaint.code() not in _REFUSED:
            self._complaint = error

    def attempt(self, doing: str, call: Callable[[], T], *, listen: Callable[[], object] = lambda: None) -> T:
        """Calls until it works. What passes by itself is waited for, and said; what does not is raised.

        `listen` lets clients say what they have to complain of.
        """
        began, said = time.monotonic(), False
        while True:
            try:
                result = call()
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if not passing(error):
                    raise self.meaning(error, doing) from raised
                listen()
                self.check()
                said = self.waited(began, error, said=said)
                time.sleep(0.1)
            else:
                if said:
                    _log.warning("Kafka at %s answers again", self.servers)
                self._reached, self._complaint = True, None
                return result

    def check(self) -> None:
        """Raises where waiting will not help: a wrong password, or a certificate that nobody vouches for."""
        complaint = self._complaint
        if complaint is not None and (
            complaint.code() in _REFUSED or (complaint.code() == KafkaError._SSL and not self._reached)
        ):
            self._complaint = None
            raise LogDenied(
                f"Kafka at {self.servers} does not let us in ({_last_sentence(complaint)}); {_remedy(complaint)}"
            )

    def waited(self, since: float, error: KafkaError | None, *, said: bool) -> bool:
        """Says, once, that brokers are waited for; raises when that has been long enough."""
        passed = time.monotonic() - since
        why = "" if error is None else f" ({_last_sentence(self._complaint or error)})"
        if passed * 1000 > self.wait_ms:
            raise LogUnreachable(
                f"Kafka at {self.servers} has not answered for {durations.text(self.wait_ms)}{why}; see that brokers run there, "
                "and that address and security.protocol are right, or wait longer (kafka.wait)"
            )
        if not said and passed > QUIET:
            _log.warning(
                "waiting for Kafka at %s%s; for up to %s", self.servers, why, durations.text(self.wait_ms)
            )
            return True
        return said

    def meaning(self, error: KafkaError, doing: str) -> MillraceError:
        """The error in our own words."""
        code, said = error.code(), _last_sentence(error)
        if code in _FORBIDDEN:
            return LogDenied(
                f"{doing}: Kafka at {self.servers} does not allow it ({said}); ask for the rights, or use another sasl.username"
            )
        if code in _REFUSED:
            return LogDenied(
                f"{doing}: Kafka at {self.servers} does not let us in ({said}); {_remedy(error)}"
            )
        if code in _TOO_LARGE:
            return LogError(
                f"{doing}: a record is larger than Kafka takes ({said}); store it elsewhere and append a reference, or raise "
                "message.max.bytes under [kafka.client] and max.message.bytes of the topic"
            )
        if code in _FENCED:
            return Fenced(f"{doing}: {said}")
        if passing(error):
            return LogUnreachable(f"{doing}: Kafka at {self.servers} does not answer ({said})")
        return LogError(f"{doing}: Kafka at {self.servers} refused: {said}")


def passing(error: KafkaError) -> bool:
    """Whether the trouble may be over in a moment."""
    return error.code() not in _ENDS and not error.fatal() and error.code() != KafkaError._FATAL


def fenced(error: KafkaError) -> bool:
    """Whether a producer cannot go on: another may have taken over, which may have happened behind its back, so that it takes no more records
    (`_STATE`); or brokers have forgotten it. Who owns the name is then looked up before a new producer repeats the transaction.
    """
    codes = _FENCED | _EXPIRED | {KafkaError._STATE, KafkaError._FATAL}
    return error.code() in codes or error.fatal()


def _remedy(error: KafkaError) -> str:
    if error.code() == KafkaError._SSL:
        return "see security.protocol and ssl.ca.location under [kafka.client]"
    return "see sasl.mechanism, sasl.username and the password, which is best given as MILLRACE_KAFKA_CLIENT_SASL_PASSWORD"


def _last_sentence(error: KafkaError) -> str:
    """The client library puts the way to the brokers before what it has to say, and its own counts after it."""
    text = error.str() or error.name()
    return _AFTER.sub("", _BEFORE.sub("", text))


_BEFORE = re.compile(r"^(?:\[thrd:[^\]]*\]: )?(?:\w+://)?[^\s:]+:\d+/\w+: ")
_AFTER = re.compile(r" \(after \d+ms in state [^)]*\)")
