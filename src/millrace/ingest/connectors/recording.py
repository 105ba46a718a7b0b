"""Plays back recordings: JSON lines `{"received": epoch ms, "topic": …, "payload": …}`, optionally gzipped.

With `"encoding": "base64"`, the payload is the base64 text of bytes that are neither JSON nor text.
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
from millrace.ingest.connectors.recording_files import (
    MAX_LINE_BYTES,
    open_recording,
    parse_location,
    read_lines,
    redact,
)
from millrace.ingest.contract import Connector, MessageBatch, RawMessage, Reject

_QUOTE = ord('"')
_MAX_TIME = 253_402_300_800_000
"""The end of the year 9999 in milliseconds; greater numbers are not times."""
_ROUND_GAP = 1_000
"""Milliseconds between the last message of a round and the first of the next, with `loop`."""


class _RecordedLine(msgspec.Struct, gc=False):
    received: int
    topic: str
    payload: msgspec.Raw
    encoding: Literal["base64"] | None = None


_decode = msgspec.json.Decoder(_RecordedLine).decode
_decode_string = msgspec.json.Decoder(str).decode


class Recording(Connector):
    """Plays back a file or URL with its original timing, `speed` times as fast (`0` or `"max"`: as fast as
    possible).

    `retime="now"` shifts all times so that the first message arrives now, and the replay looks live. With
    `loop` it starts again at its end, with times that continue. A payload is any JSON, or text that holds the
    message. A malformed line becomes a reject with its line number, and the replay goes on.
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
            raise ConfigError(f"loop={loop!r} is not true or false")
        self.path, self.speed, self.retime, self.loop = (
            parse_location(path),
            _parse_speed(speed),
            retime,
            loop,
        )
        self.clock: Clock = clock or WallClock()
        self.acknowledged_count = 0
        """The number of messages that the log has."""
        self._file: IO[bytes] | None = None
        self._lines: Iterator[list[bytes]] = iter(())
        self._pending = _PendingLines(redact(self.path))
        self._failure: InputError | None = None
        self._start_times: tuple[int, int] | None = None

    def open(self) -> None:
        """Opens the file, and detects whether it is gzipped."""
        self._file = open_recording(self.path)
        self._lines = read_lines(self._file)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        """The messages that fall due within `wait` milliseconds. A damaged file raises after its readable
        part.
        """
        self._fill(limit)
        if (
            not self._pending.line_count
            and self._failure is None
            and self.loop
            and self._pending.has_messages_in_round
        ):
            self._start_next_round()
            self._fill(limit)
        if not self._pending.line_count:
            if self._failure is not None:
                raise self._failure
            return None
        return self._pending.take(self._count_due(limit, wait), self._time_shift())

    def acknowledge(self, batch: MessageBatch) -> None:
        """Only counts: a file needs no acknowledgement."""
        self.acknowledged_count += len(batch)

    def _start_next_round(self) -> None:
        """Starts another round. No batch spans two rounds."""
        self.close()
        self._pending.next_round()
        self.open()

    def _fill(self, limit: int) -> None:
        while self._pending.line_count < limit and self._failure is None:
            try:
                block = next(self._lines)
            except StopIteration:
                return
            except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
                problem = "is cut short" if isinstance(error, EOFError) else "is damaged"
                lines_read = self._pending.line_number
                self._failure = InputError(
                    f"{redact(self.path)} {problem} after line {lines_read} ({error}); the {lines_read} "
                    "lines before it were taken. Fetch the file again, or go on without the rest"
                )
                return
            self._pending.add(block)

    def _find_start_times(self) -> tuple[int, int]:
        """The clock's time and the recording's time at the start."""
        if self._start_times is None and self._pending.received:
            self._start_times = self.clock.now(), self._pending.received[0]
        return self._start_times or (0, 0)

    def _time_shift(self) -> int:
        started_at, recorded_start = self._find_start_times()
        return started_at - recorded_start if self.retime == "now" else 0

    def _count_due(self, limit: int, wait: int) -> int:
        """The number of messages that are due after at most `wait` milliseconds; it returns earlier with
        `limit`.
        """
        available = min(limit, len(self._pending))
        if not self.speed or not available:
            return available
        started_at, recorded_start = self._find_start_times()
        now = self.clock.now()
        last = self._pending.due[available - 1]
        last_due_at = started_at + (last - recorded_start) / self.speed
        until = min(now + wait, int(last_due_at) + 1)
        if until > now:
            self.clock.sleep(until - now)
        position = recorded_start + (self.clock.now() - started_at) * self.speed
        return min(bisect_right(self._pending.due, position), available)


class _PendingLines:
    """Lines that were read and are not due yet, as columns."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.line_number = 0
        self.topics: list[str] = []
        self.payloads: list[bytes] = []
        self.received: list[int] = []
        self.line_numbers: list[int] = []
        self.due: list[int] = []
        """The running maximum of `received`: lines are played in the order of the file."""
        self.rejects: list[tuple[int, Reject]] = []
        """The rejects, each with its line number."""
        self.round_offset = 0
        """Milliseconds added to the recorded times in this round."""
        self._first_received: int | None = None
        self._last_received = 0

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def line_count(self) -> int:
        """The number of lines in memory, good and bad."""
        return len(self.payloads) + len(self.rejects)

    @property
    def has_messages_in_round(self) -> bool:
        """Whether this round had a message. A recording without any is not repeated."""
        return self._first_received is not None

    def next_round(self) -> None:
        """Starts the same lines again, with times later by the length of the recording."""
        if self._first_received is not None:
            self.round_offset += self._last_received - self._first_received + _ROUND_GAP
        self.line_number, self._first_received = 0, None

    def add(self, lines: list[bytes]) -> None:
        previous_due = self.due[-1:]
        start = len(self.received)
        for line in lines:
            self.line_number += 1
            try:
                self._add_line(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                if line and not line.isspace():
                    self._reject(line, str(error))
        self.due.extend(list(accumulate([*previous_due, *self.received[start:]], max))[len(previous_due) :])

    def _add_line(self, text: bytes) -> None:
        if len(text) > MAX_LINE_BYTES:
            raise msgspec.ValidationError(f"longer than {MAX_LINE_BYTES} bytes; only its beginning is kept")
        line = _decode(text)
        if not 0 <= line.received < _MAX_TIME:
            raise msgspec.ValidationError(f"received is {line.received}, which is not a time in milliseconds")
        payload = bytes(line.payload)
        if payload[0] == _QUOTE:
            payload = _decode_string(payload).encode()
        if line.encoding:
            payload = _decode_base64(payload)
        self._first_received = line.received if self._first_received is None else self._first_received
        self._last_received = max(self._last_received, line.received)
        self.received.append(line.received + self.round_offset)
        self.topics.append(line.topic)
        self.payloads.append(payload)
        self.line_numbers.append(self.line_number)

    def _reject(self, line: bytes, detail: str) -> None:
        raw = RawMessage(
            "",
            line[:MAX_LINE_BYTES],
            self.received[-1] if self.received else 0,
            f"{self.source}:{self.line_number}",
        )
        self.rejects.append((self.line_number, Reject("malformed line", detail, raw)))

    def take(self, count: int, shift: int) -> MessageBatch:
        """Removes the first `count` messages, with the rejects among them."""
        until = self.line_numbers[count] if count < len(self) else self.line_number + 1
        rejects = [reject for number, reject in self.rejects if number < until]
        batch = MessageBatch(
            self.topics[:count],
            self.payloads[:count],
            [received + shift for received in self.received[:count]] if shift else self.received[:count],
            self.line_numbers[:count],
            self.source,
            rejects,
            shift + self.round_offset,
        )
        for column in (self.topics, self.payloads, self.received, self.line_numbers, self.due):
            del column[:count]
        del self.rejects[: len(rejects)]
        return batch


def _decode_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise msgspec.ValidationError(
            f"the payload is not base64, although its encoding says so: {error}"
        ) from error


def _parse_speed(speed: float | str) -> float:
    """The speed as a number; 0 is as fast as possible."""
    if speed == "max":
        return 0.0
    try:
        value = float(speed)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(
            f"speed={speed!r} is not a speed; use a number such as 1 or 10, or 'max' for as fast as possible"
        )
    return value
