"""Recordings: JSON lines `{"received": epoch ms, "topic": …, "payload": …}`, optionally gzipped, played back as they came."""

import gzip
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from millrace.errors import ConfigError, InputError
from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.contract import Batch, Connector, Raw, Reject

_BLOCK = 1 << 20
_LONGEST_LINE = 1 << 20
_QUOTE = ord('"')
_LAST = 253_402_300_800_000
"""The end of the year 9999; a greater time is no time."""


class _Line(msgspec.Struct, gc=False):
    received: int
    topic: str
    payload: msgspec.Raw


_decode = msgspec.json.Decoder(_Line).decode
_text = msgspec.json.Decoder(str).decode


class Recording(Connector):
    """Plays a file back in its original timing, `speed` times as fast (`0` or `"max"`: as fast as possible).

    `retime="now"` shifts all times so that the first message comes now: a replay that looks live. A payload may be any JSON, or text
    that holds the message. A line that is no such message is a reject with its number; it stops nothing.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        speed: float | Literal["max"] = 1.0,
        retime: Literal["now"] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if retime not in (None, "now"):
            raise ConfigError(f"retime={retime!r} is unknown; use 'now', or leave it out to keep the recorded times")
        self.path, self.speed, self.retime = _path(path), _speed(speed), retime
        self.clock: Clock = clock or WallClock()
        self.acknowledged = 0
        """How many messages the log has."""
        self._file: IO[bytes] | None = None
        self._lines: Iterator[list[bytes]] = iter(())
        self._pending = _Lines(str(self.path))
        self._failure: InputError | None = None
        self._start: tuple[int, int] | None = None

    def open(self) -> None:
        """Opens the file and looks whether it is compressed."""
        self._file = _opened(self.path)
        self._lines = _lines(self._file)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def poll(self, *, limit: int, wait: int) -> Batch | None:
        """The messages that are due, gathered for up to `wait` milliseconds. A broken file raises only after all that could be read."""
        self._fill(limit)
        if not self._pending.read:
            if self._failure is not None:
                raise self._failure
            return None
        return self._pending.take(self._due(limit, wait), self._shift())

    def acknowledge(self, batch: Batch) -> None:
        """Counts; a file needs no acknowledgement."""
        self.acknowledged += len(batch)

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
                    f"{self.path} {told} after line {read} ({error}); the {read} lines before it were taken. Fetch the file again, or go on without the rest"
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

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def read(self) -> int:
        """How many lines are held, good and bad."""
        return len(self.payloads) + len(self.rejects)

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
        if len(text) > _LONGEST_LINE:
            raise msgspec.ValidationError(f"longer than {_LONGEST_LINE} bytes; only its beginning is kept")
        line = _decode(text)
        if not 0 <= line.received < _LAST:
            raise msgspec.ValidationError(f"received is {line.received}, which is no time in milliseconds")
        payload = bytes(line.payload)
        if payload[0] == _QUOTE:
            payload = _text(payload).encode()
        self.received.append(line.received)
        self.topics.append(line.topic)
        self.payloads.append(payload)
        self.numbers.append(self.number)

    def _reject(self, line: bytes, detail: str) -> None:
        raw = Raw("", line[:_LONGEST_LINE], self.received[-1] if self.received else 0, f"{self.source}:{self.number}")
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
            shift,
        )
        for column in (self.topics, self.payloads, self.received, self.numbers, self.due):
            del column[:count]
        del self.rejects[: len(rejects)]
        return batch


def _path(path: object) -> Path:
    if not isinstance(path, str | Path) or not str(path):
        raise ConfigError(f"path={path!r} is no file name; name a recording, such as 'hsl.jsonl.gz'")
    return Path(path).expanduser()


def _speed(speed: float | str) -> float:
    """As a number, 0 for as fast as possible."""
    if speed == "max":
        return 0.0
    try:
        value = float(speed)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(f"speed={speed!r} is no speed; use a number such as 1 or 10, or 'max' for as fast as possible")
    return value


def _opened(path: Path) -> IO[bytes]:
    try:
        with path.open("rb") as file:
            gzipped = file.read(2) == b"\x1f\x8b"
        if gzipped:
            return gzip.open(path, "rb")  # type: ignore[return-value]  # a GzipFile reads like any file, whatever its type says
        if path.suffix != ".gz":
            return path.open("rb")
    except OSError as error:
        raise InputError(f"the recording {path} cannot be read: {error.strerror}; check the path") from error
    raise InputError(f"the recording {path} is named .gz but is not gzipped; rename it if it is plain JSON lines, or fetch it again")


def _lines(file: Any) -> Iterator[list[bytes]]:
    """All lines of each block in turn. `read1` hands out what precedes a damaged place; a line without end is not gathered in memory."""
    rest = b""
    first = True
    while block := file.read1(_BLOCK):
        if first:
            block, first = block.removeprefix(b"\xef\xbb\xbf"), False
        if len(rest) > _LONGEST_LINE and b"\n" not in block:
            continue
        *lines, rest = (rest + block).split(b"\n")
        yield lines
    if rest:
        yield [rest]
