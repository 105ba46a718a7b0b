"""Messages from an MQTT broker, none of which is acknowledged before the log has it.

There is no thread and no queue: the socket is read when the pipeline asks for messages, and the broker sends no more of them than
`window` ahead of the acknowledgements. So memory is bounded however slow the log is, and what was not acknowledged stays with the
broker, in a session that outlives this process.
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
from millrace.ingest.connectors.mqtt.broker import Broker, connecting, own_name
from millrace.ingest.contract import Batch, Connector

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

_log = logging.getLogger("millrace.ingest")

_SHORTEST, _LONGEST = 250, 30_000
"""Milliseconds until a lost connection is tried again: doubled with each attempt."""
_SHORT = 5_000
"""A connection that lasts less, in milliseconds, is not worth being tried again at once."""
_ANSWER = 15_000
"""How long the broker may take to let us in, in milliseconds."""
_FAREWELL = 5_000
"""How long the broker may take to read the last acknowledgements when we leave, in milliseconds."""
_ALIVE = 30
"""Seconds after which a silent connection is asked whether it still is one."""
MOST_BYTES = 32 << 20
"""The most bytes of payload that are handed out together, unless one message alone has more."""
_TAKEN_OVER = 0x8E
_REFUSALS = {0x80, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C}
"""Answers that a further attempt would not change: a wrong protocol, name, password or right."""


class Mqtt(Connector):
    """MQTT 5 with QoS 1, a fixed client id and a session that the broker keeps while this node is away.

    `topics` are topic filters, by default those of the processor. With `share` several nodes divide the messages of one group among them;
    each needs a `client_id` of its own.
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
        self.filters = None if topics is None else _filters(topics)
        self.client_id = _name("client_id", client_id or own_name())
        self.share = None if share is None else _name("share", share)
        if type(window) is not int or not 1 <= window <= 65_535:
            raise ConfigError(
                f"window={window!r}: the most messages ahead of the log must be a whole number from 1 to 65535"
            )
        self.asked = {"window": window, "session_ms": _session(session)}
        self.clock: Clock = clock or WallClock()
        self._client: Client | None = None
        self._messages: list[tuple[str, bytes, int, tuple[int, int, int]]] = []
        """What was read and not yet taken: topic, payload, when it came, and what acknowledges it. No more is kept of a message: the rest of
        it is a dozen objects, which the garbage collector would look at again and again."""
        self._unacknowledged: deque[tuple[int, int, int]] = deque()
        """Of messages in the order in which they came: connection, packet id, QoS."""
        self._bytes = 0
        """How many bytes of payload were read and not yet taken."""
        self._count = 0
        self._link = _Link(self.clock)

    def interested_in(self, filters: Sequence[str]) -> None:
        """Takes the processor's filters, unless some were given."""
        self.filters = self.filters or _filters(filters)

    def open(self) -> None:
        """Connects and subscribes; an address, password or filter that the broker refuses ends here."""
        if not self.filters:
            raise ConfigError(
                "there is nothing to subscribe to; name topics = [...], such as ['/hfp/v2/journey/#']"
            )
        self._client = client = self.broker.client(self.client_id)
        client.on_message = lambda _client, _data, message: self._came(message)
        client.on_connect = lambda _client, _data, _flags, reason, _properties: self._welcomed(reason)
        client.on_subscribe = lambda _client, _data, _mid, reasons, _properties: self._subscribed(reasons)
        client.on_disconnect = lambda _client, _data, _flags, reason, _properties: self._link.lost(reason)
        try:
            client.connect(
                self.broker.host,
                self.broker.port,
                _ALIVE,
                clean_start=False,
                properties=connecting(**self.asked),
            )
        except OSError as error:
            raise InputError(
                f"{self.broker} cannot be reached: {error}; check the address, and that the broker runs"
            ) from error
        until = self.clock.now() + _ANSWER
        while not self._link.up or self._link.refused:
            if self._link.refused or client.socket() is None or self.clock.now() >= until:
                raise InputError(
                    f"{self.broker} did not let {self.client_id!r} in: {self._link.refused or self._link.why}"
                )
            self._read(client, 100, enough=self.asked["window"])

    def poll(self, *, limit: int, wait: int) -> Batch | None:
        """What comes within `wait` milliseconds; nothing, while the connection is down and tried again."""
        client, until = self._opened(), self.clock.now() + wait
        while len(self._messages) < limit and self._bytes < MOST_BYTES:
            left = until - self.clock.now()
            if left <= 0:
                break
            if client.socket() is not None:
                self._read(client, left, enough=limit)
            elif self._link.due():
                self._reconnect(client)
            else:
                self.clock.sleep(min(left, 20))
        client.loop_misc()
        if self._link.refused:
            raise InputError(f"{self.broker} no longer serves {self.client_id!r}: {self._link.refused}")
        return self._taken(limit)

    def acknowledge(self, batch: Batch) -> None:
        """Tells the broker, in the order in which messages came. Those of an earlier connection come again: the broker has kept them."""
        client = self._opened()
        for _ in range(len(batch)):
            connection, packet, quality = self._unacknowledged.popleft()
            if quality and connection == self._link.number:
                client.ack(packet, quality)

    def close(self) -> None:
        """Sends what is still to be said, and leaves once the broker has read it; the session stays.

        A broker reads one packet of a connection after another. Were it left at once, a node that starts again under the same name could
        take the session over before the last acknowledgements were read, and those messages would come again. So the socket is held open
        until the broker, which has then read all, closes its end.
        """
        client = self._client
        if client is None:
            return
        until = self.clock.now() + _ANSWER
        while client.want_write() and (there := client.socket()) is not None and self.clock.now() < until:
            select.select([], [there], [], 0.1)
            client.loop_write()
        self._link.up = False
        there = client.socket()
        held = os.dup(there.fileno()) if there is not None and there.fileno() >= 0 else None
        client.disconnect()
        if held is not None:
            self._await_end(held)

    def _await_end(self, held: int) -> None:
        until = self.clock.now() + _FAREWELL
        try:
            while (left := until - self.clock.now()) > 0:
                if select.select([held], [], [], left / 1000)[0] and not os.read(held, 65_536):
                    return
        except OSError:
            return  # the connection broke, and that is an end as well
        finally:
            os.close(held)

    def troubles(self) -> Counter[str]:
        """How often the connection was lost."""
        return Counter({"connections lost": self._link.losses}) if self._link.losses else Counter()

    def _opened(self) -> Client:
        if self._client is None:
            raise RuntimeError("poll() before open()")
        return self._client

    def _read(self, client: Client, wait: int, *, enough: int) -> None:
        """Takes what is there until there are as many messages, and waits only where nothing is."""
        there = client.socket()
        if there is None:
            return
        waiting_to_write = [there] if client.want_write() else []
        readable, writable, _ = select.select(
            [there], waiting_to_write, [], 0 if self._pending(there) else wait / 1000
        )
        if writable:
            client.loop_write()
        if readable or self._pending(there):
            before = -1
            while (before < len(self._messages) < enough and self._bytes < MOST_BYTES) or before == -1:
                before = len(self._messages)
                client.loop_read()

    @staticmethod
    def _pending(there: Any) -> bool:
        """Whether encrypted bytes were already taken from the socket."""
        return bool(there.pending()) if hasattr(there, "pending") else False

    def _reconnect(self, client: Client) -> None:
        try:
            client.reconnect()
        except OSError as error:
            self._link.failed(str(error))

    def _welcomed(self, reason: Any) -> None:
        if reason.is_failure:
            if reason.value in _REFUSALS:
                self._link.refuse(f"{reason}; check the user and password")
            return
        from paho.mqtt.subscribeoptions import SubscribeOptions

        only_new = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        prefix = f"$share/{self.share}/" if self.share else ""
        self._opened().subscribe([(prefix + one, only_new) for one in self.filters or ()])

    def _subscribed(self, reasons: Sequence[Any]) -> None:
        for one, reason in zip(self.filters or (), reasons, strict=False):
            if reason.is_failure:
                self._link.refuse(
                    f"it may not subscribe to {one!r} ({reason}); check topics, and what the user is allowed"
                )
        self._link.restored()

    def _came(self, message: MQTTMessage) -> None:
        owed = (self._link.number, message.mid, message.qos)
        self._bytes += len(message.payload)
        self._messages.append((_topic(message), bytes(message.payload), self.clock.now(), owed))

    def _taken(self, limit: int) -> Batch:
        sizes = accumulate(len(payload) for _, payload, _, _ in self._messages[:limit])
        limit = max(1, sum(size <= MOST_BYTES for size in sizes))
        taken, self._messages = self._messages[:limit], self._messages[limit:]
        self._bytes -= sum(len(payload) for _, payload, _, _ in taken)
        topics, payloads, received, owed = zip(*taken, strict=True) if taken else ((), (), (), ())
        self._unacknowledged.extend(owed)
        first = self._count
        self._count += len(taken)
        return Batch(topics, payloads, received, range(first, self._count), f"{self.broker} {self.client_id}")


class _Link:
    """How the connection is: up or not, which one it is, and when it is tried again."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.up = False
        self.number = 0
        """Counts connections: what was received by an earlier one cannot be acknowledged by a later one."""
        self.losses = 0
        self.refused: str | None = None
        """Why it is of no use to try again."""
        self.why = "no answer"
        """Why it is down."""
        self._since = self._again = 0
        self._pause = _SHORTEST

    def restored(self) -> None:
        self.up, self._since = True, self.clock.now()

    def lost(self, reason: Any) -> None:
        self.number += 1
        self.why = str(reason)
        if getattr(reason, "value", None) == _TAKEN_OVER:
            self.refuse("another client came with the same client_id; give each node one of its own")
        elif self.up:
            self.losses += 1
            short = self.clock.now() - self._since < _SHORT
            self._pause = self._pause if short else _SHORTEST
            hint = ", at once; if another node has the same client_id, give each its own" if short else ""
            _log.warning("the connection to the broker was lost (%s)%s; trying again", reason, hint)
        self.up = False
        self._later()

    def failed(self, why: str) -> None:
        _log.warning(
            "the broker cannot be reached (%s); next attempt in %s", why, durations.text(self._pause)
        )
        self._later()

    def refuse(self, why: str) -> None:
        self.refused = why

    def due(self) -> bool:
        return self.clock.now() >= self._again

    def _later(self) -> None:
        self._again = self.clock.now() + self._pause
        self._pause = min(self._pause * 2, _LONGEST)


def _topic(message: MQTTMessage) -> str:
    try:
        return message.topic
    except UnicodeDecodeError:
        return ""


def _filters(topics: object) -> tuple[str, ...]:
    found = (
        (topics,) if isinstance(topics, str) else tuple(topics) if isinstance(topics, list | tuple) else ()
    )
    if not found or not all(isinstance(one, str) and _is_filter(one) for one in found):
        raise ConfigError(
            f"topics={topics!r} are no topic filters; write a list such as ['/hfp/v2/journey/#']"
        )
    return found


def _is_filter(text: str) -> bool:
    *above, last = text.split("/")
    return (
        bool(text)
        and "\0" not in text
        and all(
            level == "+" or not set(level) & {"+", "#"} for level in [*above, "" if last == "#" else last]
        )
    )


def _name(option: str, text: object) -> str:
    if not isinstance(text, str) or not text or any(c in "/+#\0" for c in text):
        raise ConfigError(f"{option}={text!r} is no name; use letters, digits and '-'")
    return text


def _session(text: object) -> int:
    try:
        return durations.positive(text, name="session")  # type: ignore[arg-type]  # whatever stands in the file
    except DefinitionError as error:
        raise ConfigError(str(error)) from error
