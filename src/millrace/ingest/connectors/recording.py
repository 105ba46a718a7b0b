"""Recordings: JSON lines `{"received": epoch ms, "topic": …, "payload": …}`, optionally gzipped, played back as they came.

`"encoding": "base64"` says that the payload is text for bytes that are neither JSON nor text.
"""

import base64
import binascii
import gzip
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import IO, Literal

import msgspec

from millrace.errors import ConfigError, InputError
from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.connectors.recording_files import LONGEST_LINE, lines, opened, place, shown
from millrace.ingest.contract import Batch, Connector, Raw, Reject

_QUOTE = ord('"')
_LAST = 253_402_300_800_000
"""The end of the year 9999; a greater time is no time."""
_BETWEEN = 1_000
"""From the last message of a round to the first of the next, in milliseconds."""


class _Line(msgspec.Struct, gc=False):
    received: int
    topic: str
    payload: msgspec.Raw
    encoding: Literal["base64"] | None = None


_decode = msgspec.json.Decoder(_Line).decode
_text = msgspec.json.Decoder(str).decode


class Recording(Connector):
    """Plays a file, or what is at a URL, back in its original timing, `speed` times as fast (`0` or `"max"`: as fast as possible).

    `retime="now"` shifts all times so that the first message comes now: a replay that looks live. With `loop` it begins again at its end,
    for ever, with times that go on. A payload may be any JSON, or text that holds the message. A line that is no such message is a reject with its
    number; it stops nothing.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        speed: float | Literal["max"] = 1.0,
        retime: Literal["now"] | None = None,
        loop: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if retime not in (None, "now"):
            raise ConfigError(
                f"retime={retime!r} is unknown; use 'now', or leave it out to keep the recorded times"
            )
        if not isinstance(loop, bool):
            raise ConfigError(f"loop={loop!r} is neither true nor false")
        self.path, self.speed, self.retime, self.loop = place(path), _speed(speed), retime, loop
        self.clock: Clock = clock or WallClock()
        self.acknowledged = 0
        """How many messages the log has."""
        self._file: IO[bytes] | None = None
        self._lines: Iterator[list[bytes]] = iter(())
        self._pending = _Lines(shown(self.path))
        self._failure: InputError | None = None
        self._start: tuple[int, int] | None = None

    def open(self) -> None:
        """Opens the file and looks whether it is compressed."""
        self._file = opened(self.path)
        self._lines = lines(self._file)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def poll(self, *, limit: int, wait: int) -> Batch | None:
        """The messages that are due, gathered for up to `wait` milliseconds. A broken file raises only after all that could be read."""
        self._fill(limit)
        if (
            not self._pending.read
            and self._failure is None
            and self.loop
            and self._pending.round_has_messages
        ):
            self._again()
            self._fill(limit)
        if not self._pending.read:
            if self._failure is not None:
                raise self._failure
            return None
        return self._pending.take(self._due(limit, wait), self._shift())

    def acknowledge(self, batch: Batch) -> None:
        """Counts; a file needs no acknowledgement."""
        self.acknowledged += len(batch)

    def _again(self) -> None:
        """Another round; no batch holds messages of two."""
        self.close()
        self._pending.next_round()
        self.open()

    def _fill(self, limit: int) -> None:
        while self._pending.read < limit and self._failure is None:
            try:
                block = next(self._lines)
            except StopIteration:
                return
            except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
                told = "is cut short" if isinstance(error, EOFError) else "is damaged"
                read = self._pending.number
                self._failure = InputError(
                    f"{shown(self.path)} {told} after line {read} ({error}); the {read} lines before it were taken. Fetch the file again, or go on without the rest"
                )
                return
            self._pending.add(block)

    def _started(self) -> tuple[int, int]:
        """The time now and in the recording when playing began."""
        if self._start is None and self._pending.received:
            self._start = self.clock.now(), self._pending.received[0]
        return self._start or (0, 0)

    def _shift(self) -> int:
        began, recorded = self._started()
        return began - recorded if self.retime == "now" else 0

    def _due(self, limit: int, wait: int) -> int:
        """How many messages are due after waiting for at most `wait`, or until there are `limit`."""
        there = min(limit, len(self._pending))
        if not self.speed or not there:
            return there
        began, recorded = self._started()
        now = self.clock.now()
        last = self._pending.due[there - 1]
        full = began + (last - recorded) / self.speed
        until = min(now + wait, int(full) + 1)
        if until > now:
            self.clock.sleep(until - now)
        played = recorded + (self.clock.now() - began) * self.speed
        return min(bisect_right(self._pending.due, played), there)


class _Lines:
    """Lines that were read but are not yet due, as columns."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.number = 0
        self.topics: list[str] = []
        self.payloads: list[bytes] = []
        self.received: list[int] = []
        self.numbers: list[int] = []
        self.due: list[int] = []
        """The running maximum of `received`: a line is never played before the one above it."""
        self.rejects: list[tuple[int, Reject]] = []
        """With their line numbers."""
        self.ahead = 0
        """How far the times of this round are ahead of the recorded ones."""
        self._first: int | None = None
        self._last = 0

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def read(self) -> int:
        """How many lines are held, good and bad."""
        return len(self.payloads) + len(self.rejects)

    @property
    def round_has_messages(self) -> bool:
        """Whether this round had any message: an empty recording is not played for ever."""
        return self._first is not None

    def next_round(self) -> None:
        """The same lines once more, later by the length of the recording."""
        if self._first is not None:
            self.ahead += self._last - self._first + _BETWEEN
        self.number, self._first = 0, None

    def add(self, lines: list[bytes]) -> None:
        before = self.due[-1:]
        start = len(self.received)
        for line in lines:
            self.number += 1
            try:
                self._add(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                if line and not line.isspace():
                    self._reject(line, str(error))
        self.due.extend(list(accumulate([*before, *self.received[start:]], max))[len(before) :])

    def _add(self, text: bytes) -> None:
        if len(text) > LONGEST_LINE:
            raise msgspec.ValidationError(f"longer than {LONGEST_LINE} bytes; only its beginning is kept")
        line = _decode(text)
        if not 0 <= line.received < _LAST:
            raise msgspec.ValidationError(f"received is {line.received}, which is no time in milliseconds")
        payload = bytes(line.payload)
        if payload[0] == _QUOTE:
            payload = _text(payload).encode()
        if line.encoding:
            payload = _bytes(payload)
        self._first = line.received if self._first is None else self._first
        self._last = max(self._last, line.received)
        self.received.append(line.received + self.ahead)
        self.topics.append(line.topic)
        self.payloads.append(payload)
        self.numbers.append(self.number)

    def _reject(self, line: bytes, detail: str) -> None:
        raw = Raw(
            "", line[:LONGEST_LINE], self.received[-1] if self.received else 0, f"{self.source}:{self.number}"
        )
        self.rejects.append((self.number, Reject("malformed line", detail, raw)))

    def take(self, count: int, shift: int) -> Batch:
        """The first `count`, and the rejects among them."""
        until = self.numbers[count] if count < len(self) else self.number + 1
        rejects = [reject for number, reject in self.rejects if number < until]
        batch = Batch(
            self.topics[:count],
            self.payloads[:count],
            [received + shift for received in self.received[:count]] if shift else self.received[:count],
            self.numbers[:count],
            self.source,
            rejects,
            shift + self.ahead,
        )
        for column in (self.topics, self.payloads, self.received, self.numbers, self.due):
            del column[:count]
        del self.rejects[: len(rejects)]
        return batch


def _bytes(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise msgspec.ValidationError(f"the payload is not base64, as it says: {error}") from error


def _speed(speed: float | str) -> float:
    """As a number, 0 for as fast as possible."""
    if speed == "max":
        return 0.0
    try:
        value = float(speed)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(
            f"speed={speed!r} is no speed; use a number such as 1 or 10, or 'max' for as fast as possible"
        )
    return value
