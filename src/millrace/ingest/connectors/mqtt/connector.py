"""Messages from an MQTT broker. None is acknowledged before the log has it.

There is no thread and no queue. The socket is read when the pipeline asks for messages, and the broker sends
at most `window` messages before it waits for acknowledgements. So memory is bounded however slow the log is,
and the broker keeps messages that were not acknowledged, in a session that outlives this process.
"""

from __future__ import annotations

import logging
import os
import select
from collections import Counter, deque
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace import durations
from millrace.errors import ConfigError, DefinitionError, InputError
from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.connectors.mqtt.broker import Broker, connect_properties, default_client_id
from millrace.ingest.contract import Connector, MessageBatch

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

_log = logging.getLogger("millrace.ingest")

_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = 250, 30_000
"""Milliseconds until the next attempt to connect, doubled with each attempt."""
_SHORT_CONNECTION = 5_000
"""After a connection that lasted less than this, in milliseconds, the delay is not reset."""
_CONNECT_TIMEOUT = 15_000
"""Milliseconds that the broker may take to accept the connection."""
_DISCONNECT_TIMEOUT = 5_000
"""Milliseconds that the broker may take to read the last acknowledgements when we disconnect."""
_KEEPALIVE = 30
"""Seconds of silence after which the connection is probed."""
MAX_BATCH_BYTES = 32 << 20
"""The most bytes of payload in one batch, unless a single message is larger."""
_SESSION_TAKEN_OVER = 0x8E
_PERMANENT_REFUSALS = {0x80, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C}
"""Reason codes that another attempt would not change: wrong protocol, client id, password or permission."""


class Mqtt(Connector):
    """MQTT 5 with QoS 1, a fixed client id and a session that the broker keeps while this node is away.

    `topics` are topic filters, by default those of the processor. With `share` several nodes divide the
    messages of one group among them; each needs a `client_id` of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        topics: str | Sequence[str] | None = None,
        client_id: str | None = None,
        share: str | None = None,
        session: str = "1d",
        window: int = 20_000,
        password: str | None = None,
        password_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        cert_file: str | Path | None = None,
        key_file: str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.broker = Broker(url, password, password_file, ca_file, cert_file, key_file)
        self.filters = None if topics is None else _check_filters(topics)
        self.client_id = _check_name("client_id", client_id or default_client_id())
        self.share = None if share is None else _check_name("share", share)
        if type(window) is not int or not 1 <= window <= 65_535:
            raise ConfigError(
                f"window={window!r}: the most messages ahead of the log must be a whole number from 1 to "
                "65535"
            )
        self.connect_options = {"window": window, "session_ms": _parse_session(session)}
        self.clock: Clock = clock or WallClock()
        self._client: Client | None = None
        self._pending_messages: list[tuple[str, bytes, int, tuple[int, int, int]]] = []
        """Messages that `poll` has not returned yet: topic, payload, time of arrival, acknowledgement.

        paho's message objects are not kept: each consists of a dozen objects, which the garbage collector
        would visit again and again.
        """
        self._unacknowledged: deque[tuple[int, int, int]] = deque()
        """Of messages in order of arrival: connection number, packet id, QoS."""
        self._pending_bytes = 0
        """Bytes of payload in `_pending_messages`."""
        self._taken_count = 0
        self._connection = _BrokerConnection(self.clock)

    def set_topic_filters(self, filters: Sequence[str]) -> None:
        """Uses the processor's filters, unless the settings name some."""
        self.filters = self.filters or _check_filters(filters)

    def open(self) -> None:
        """Connects and subscribes. An address, password or filter that the broker refuses raises here."""
        if not self.filters:
            raise ConfigError(
                "there is nothing to subscribe to; name topics = [...], such as ['/hfp/v2/journey/#']"
            )
        self._client = client = self.broker.client(self.client_id)
        client.on_message = lambda _client, _data, message: self._on_message(message)
        client.on_connect = lambda _client, _data, _flags, reason_code, _properties: self._on_connect(
            reason_code
        )
        client.on_subscribe = lambda _client, _data, _mid, reason_codes, _properties: self._on_subscribe(
            reason_codes
        )
        client.on_disconnect = lambda _client, _data, _flags, reason_code, _properties: (
            self._connection.mark_lost(reason_code)
        )
        try:
            client.connect(
                self.broker.host,
                self.broker.port,
                _KEEPALIVE,
                clean_start=False,
                properties=connect_properties(**self.connect_options),
            )
        except OSError as error:
            raise InputError(
                f"{self.broker} cannot be reached: {error}; check the address, and that the broker runs"
            ) from error
        deadline = self.clock.now() + _CONNECT_TIMEOUT
        while not self._connection.is_up or self._connection.refusal:
            if self._connection.refusal or client.socket() is None or self.clock.now() >= deadline:
                raise InputError(
                    f"{self.broker} refused {self.client_id!r}: "
                    f"{self._connection.refusal or self._connection.down_reason}"
                )
            self._read_messages(client, 100, limit=self.connect_options["window"])

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        """The messages that arrive within `wait` milliseconds. While the connection is down, it
        reconnects.
        """
        client, deadline = self._require_client(), self.clock.now() + wait
        while len(self._pending_messages) < limit and self._pending_bytes < MAX_BATCH_BYTES:
            remaining = deadline - self.clock.now()
            if remaining <= 0:
                break
            if client.socket() is not None:
                self._read_messages(client, remaining, limit=limit)
            elif self._connection.is_retry_due():
                self._reconnect(client)
            else:
                self.clock.sleep(min(remaining, 20))
        client.loop_misc()
        if self._connection.refusal:
            raise InputError(f"{self.broker} no longer serves {self.client_id!r}: {self._connection.refusal}")
        return self._take(limit)

    def acknowledge(self, batch: MessageBatch) -> None:
        """Acknowledges in order of arrival. Messages of an earlier connection are skipped: the broker sends
        them again.
        """
        client = self._require_client()
        for _ in range(len(batch)):
            connection, packet_id, qos = self._unacknowledged.popleft()
            if qos and connection == self._connection.number:
                client.ack(packet_id, qos)

    def close(self) -> None:
        """Sends the last acknowledgements, and disconnects when the broker has read them. The session stays.

        A broker reads the packets of a connection one after another. If the socket were closed at once, a
        node that starts again under the same name could take over the session before the broker read the last
        acknowledgements, and these messages would be delivered twice. So the socket stays open until the
        broker closes its end: by then it has read everything.
        """
        client = self._client
        if client is None:
            return
        deadline = self.clock.now() + _CONNECT_TIMEOUT
        while client.want_write() and (sock := client.socket()) is not None and self.clock.now() < deadline:
            select.select([], [sock], [], 0.1)
            client.loop_write()
        self._connection.is_up = False
        sock = client.socket()
        descriptor = os.dup(sock.fileno()) if sock is not None and sock.fileno() >= 0 else None
        client.disconnect()
        if descriptor is not None:
            self._wait_for_close(descriptor)

    def _wait_for_close(self, descriptor: int) -> None:
        deadline = self.clock.now() + _DISCONNECT_TIMEOUT
        try:
            while (remaining := deadline - self.clock.now()) > 0:
                if select.select([descriptor], [], [], remaining / 1000)[0] and not os.read(
                    descriptor, 65_536
                ):
                    return
        except OSError:
            return  # the connection is broken, so it is closed as well
        finally:
            os.close(descriptor)

    def recovered_errors(self) -> Counter[str]:
        """The number of lost connections."""
        return (
            Counter({"connections lost": self._connection.losses}) if self._connection.losses else Counter()
        )

    def _require_client(self) -> Client:
        if self._client is None:
            raise RuntimeError("poll() before open()")
        return self._client

    def _read_messages(self, client: Client, wait: int, *, limit: int) -> None:
        """Reads what has arrived, up to `limit` pending messages. It waits only if nothing has arrived."""
        sock = client.socket()
        if sock is None:
            return
        waiting_to_write = [sock] if client.want_write() else []
        readable, writable, _ = select.select(
            [sock], waiting_to_write, [], 0 if self._has_decrypted_bytes(sock) else wait / 1000
        )
        if writable:
            client.loop_write()
        if readable or self._has_decrypted_bytes(sock):
            before = -1
            while (
                before < len(self._pending_messages) < limit and self._pending_bytes < MAX_BATCH_BYTES
            ) or before == -1:
                before = len(self._pending_messages)
                client.loop_read()

    @staticmethod
    def _has_decrypted_bytes(sock: Any) -> bool:
        """Whether TLS holds decrypted bytes, which `select` does not see."""
        return bool(sock.pending()) if hasattr(sock, "pending") else False

    def _reconnect(self, client: Client) -> None:
        try:
            client.reconnect()
        except OSError as error:
            self._connection.mark_failed(str(error))

    def _on_connect(self, reason_code: Any) -> None:
        if reason_code.is_failure:
            if reason_code.value in _PERMANENT_REFUSALS:
                self._connection.refuse(f"{reason_code}; check the user and password")
            return
        from paho.mqtt.subscribeoptions import SubscribeOptions

        only_new = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        prefix = f"$share/{self.share}/" if self.share else ""
        self._require_client().subscribe(
            [(prefix + topic_filter, only_new) for topic_filter in self.filters or ()]
        )

    def _on_subscribe(self, reason_codes: Sequence[Any]) -> None:
        for topic_filter, reason_code in zip(self.filters or (), reason_codes, strict=False):
            if reason_code.is_failure:
                self._connection.refuse(
                    f"it may not subscribe to {topic_filter!r} ({reason_code}); check topics and the "
                    "permissions of the user"
                )
        self._connection.mark_up()

    def _on_message(self, message: MQTTMessage) -> None:
        acknowledgement = (self._connection.number, message.mid, message.qos)
        self._pending_bytes += len(message.payload)
        self._pending_messages.append(
            (_topic(message), bytes(message.payload), self.clock.now(), acknowledgement)
        )

    def _take(self, limit: int) -> MessageBatch:
        sizes = accumulate(len(payload) for _, payload, _, _ in self._pending_messages[:limit])
        limit = max(1, sum(size <= MAX_BATCH_BYTES for size in sizes))
        messages, self._pending_messages = self._pending_messages[:limit], self._pending_messages[limit:]
        self._pending_bytes -= sum(len(payload) for _, payload, _, _ in messages)
        topics, payloads, received, acknowledgements = (
            zip(*messages, strict=True) if messages else ((), (), (), ())
        )
        self._unacknowledged.extend(acknowledgements)
        first = self._taken_count
        self._taken_count += len(messages)
        return MessageBatch(
            topics, payloads, received, range(first, self._taken_count), f"{self.broker} {self.client_id}"
        )


class _BrokerConnection:
    """The state of the connection: up or down, its number, and the time of the next attempt."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_up = False
        self.number = 0
        """Counts connections. A message of an earlier connection cannot be acknowledged on a later one."""
        self.losses = 0
        self.refusal: str | None = None
        """The reason not to try again."""
        self.down_reason = "no answer"
        """The reason why it is down."""
        self._up_since = self._retry_at = 0
        self._retry_delay = _MIN_RETRY_DELAY

    def mark_up(self) -> None:
        self.is_up, self._up_since = True, self.clock.now()

    def mark_lost(self, reason: Any) -> None:
        self.number += 1
        self.down_reason = str(reason)
        if getattr(reason, "value", None) == _SESSION_TAKEN_OVER:
            self.refuse("another client connected with the same client_id; use a different one for each node")
        elif self.is_up:
            self.losses += 1
            is_short = self.clock.now() - self._up_since < _SHORT_CONNECTION
            self._retry_delay = self._retry_delay if is_short else _MIN_RETRY_DELAY
            hint = (
                " soon after it was opened; if another node has the same client_id, use different ones"
                if is_short
                else ""
            )
            _log.warning("the connection to the broker was lost (%s)%s; trying again", reason, hint)
        self.is_up = False
        self._schedule_retry()

    def mark_failed(self, reason: str) -> None:
        _log.warning(
            "the broker cannot be reached (%s); next attempt in %s",
            reason,
            durations.format_millis(self._retry_delay),
        )
        self._schedule_retry()

    def refuse(self, reason: str) -> None:
        self.refusal = reason

    def is_retry_due(self) -> bool:
        return self.clock.now() >= self._retry_at

    def _schedule_retry(self) -> None:
        self._retry_at = self.clock.now() + self._retry_delay
        self._retry_delay = min(self._retry_delay * 2, _MAX_RETRY_DELAY)


def _topic(message: MQTTMessage) -> str:
    try:
        return message.topic
    except UnicodeDecodeError:
        return ""


def _check_filters(topics: object) -> tuple[str, ...]:
    filters = (
        (topics,) if isinstance(topics, str) else tuple(topics) if isinstance(topics, list | tuple) else ()
    )
    if not filters or not all(isinstance(one, str) and _is_filter(one) for one in filters):
        raise ConfigError(
            f"topics={topics!r} are not topic filters; write a list such as ['/hfp/v2/journey/#']"
        )
    return filters


def _is_filter(text: str) -> bool:
    *above, last = text.split("/")
    return (
        bool(text)
        and "\0" not in text
        and all(
            level == "+" or not set(level) & {"+", "#"} for level in [*above, "" if last == "#" else last]
        )
    )


def _check_name(option: str, text: object) -> str:
    if not isinstance(text, str) or not text or any(c in "/+#\0" for c in text):
        raise ConfigError(f"{option}={text!r} is not a name; use letters, digits and '-'")
    return text


def _parse_session(text: object) -> int:
    try:
        return durations.parse_positive(text, name="session")  # type: ignore[arg-type]  # the file may hold any type
    except DefinitionError as error:
        raise ConfigError(str(error)) from error
