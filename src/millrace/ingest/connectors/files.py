"""Files and standard input, for a feed of one's own that takes no code: lines go straight to a declared topic."""

import csv
import glob
import os
import select
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

from millrace.errors import InputError
from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.connectors.lines import Meaning, declared, is_open, is_record, values_of
from millrace.ingest.connectors.recording_files import BLOCK, LONGEST_LINE, lines, opened, place, shown
from millrace.ingest.contract import Batch, Connector, Raw
from millrace.topics import Topic

_MOST_LINES = 1_000
"""Over how many lines one value of CSV may run."""


class _Reader(Connector):
    """Takes lines from a source at a time, whose first one names the columns if it is CSV."""

    def __init__(self, meaning: Meaning, clock: Clock | None) -> None:
        self.meaning = meaning
        self.topics = (meaning.topic,)
        self.clock: Clock = clock or WallClock()
        self._header: Sequence[str] = ()
        self._source, self._number = "", 0
        self._left: list[bytes] = []
        """Lines that were read and not yet taken."""
        self._open: list[tuple[int, bytes]] = []
        """Lines of CSV of which a quoted value is not closed yet, with their numbers."""

    def acknowledge(self, batch: Batch) -> None:
        """There is nobody to be told."""

    def _begin(self, source: str) -> None:
        self._source, self._number, self._header, self._open = source, 0, (), []

    def _taken(self, limit: int) -> Batch:
        taken, self._left = self._left[:limit], self._left[limit:]
        now, raws = self.clock.now(), []
        for number, line in self._records(taken):
            if not line.strip():
                continue
            if self.meaning.format == "csv" and not self._header:
                self._header = self._names(line)
            else:
                raws.append(Raw("", line.rstrip(b"\r")[: LONGEST_LINE + 1], now, f"{self._source}:{number}"))
        return self.meaning.batch(raws, self._header)

    def _records(self, lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Lines with their numbers; those over which one quoted value of CSV runs, joined."""
        for line in lines:
            self._number += 1
            self._open.append((self._number, line))
            yield from self._closed()

    def _closed(self, *, at_end: bool = False) -> Iterator[tuple[int, bytes]]:
        """The records that are complete. A quote that nothing closes costs its own line, not those that follow."""
        while self._open:
            (number, first), last = self._open[0], self._open[-1][1]
            if self.meaning.format != "csv" or (len(self._open) == 1 and b'"' not in first):
                yield self._open.pop(0)
                continue
            if len(self._open) > 1 and b'"' not in last and not self._is_too_long() and not at_end:
                return
            joined = b"\n".join(line for _, line in self._open)
            if not is_open(joined):
                if len(self._open) == 1 or is_record(joined):
                    self._open.clear()
                    yield number, joined
                    return
            elif not self._is_too_long() and not at_end:
                return
            yield from self._first_alone()

    def _first_alone(self) -> Iterator[tuple[int, bytes]]:
        """The first line as it is, and those after it as if they had just come."""
        rest = self._open[1:]
        yield self._open[0]
        self._open = []
        for numbered in rest:
            self._open.append(numbered)
            yield from self._closed()

    def _is_too_long(self) -> bool:
        return len(self._open) > _MOST_LINES or sum(len(line) for _, line in self._open) > LONGEST_LINE

    def _rest_of_open(self) -> Batch:
        """What was still waiting for a closing quote when the source ended."""
        now = self.clock.now()
        raws = [
            Raw("", line.rstrip(b"\r")[: LONGEST_LINE + 1], now, f"{self._source}:{number}")
            for number, line in self._closed(at_end=True)
        ]
        return self.meaning.batch([raw for raw in raws if raw.payload.strip()], self._header)

    def _names(self, line: bytes) -> Sequence[str]:
        try:
            names = values_of(line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r"))
        except UnicodeDecodeError as error:
            raise InputError(
                f"the first line of {self._source} is not UTF-8 ({error}), so its columns have no names"
            ) from error
        except csv.Error as error:
            raise InputError(
                f"the first line of {self._source} is not a line of CSV ({error}), so its columns have no names; end lines with LF or CRLF"
            ) from error
        twice = [
            name
            for name in dict.fromkeys(names)
            if names.count(name) > 1 and name in {*self.meaning.topic.schema, self.meaning.time}
        ]
        if twice:
            raise InputError(
                f"the first line of {self._source} names {', '.join(map(repr, twice))} more than once, so it cannot be told which values are meant; rename the columns that are not"
            )
        return names


class Files(_Reader):
    """Files of JSON lines or CSV (`.csv`), gzipped or not, one after the other and each to its end; or URLs, or a pattern such as `readings/*.csv`.

    `topic` names a declared `Topic` (`file.py:NAME`); what `time` and `unit` mean, `Meaning` says. Where reading ended is not remembered: started
    again, all of it is read again.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str],
        *,
        topic: str | Topic,
        time: str | None = None,
        unit: Literal["ms", "s"] = "ms",
        format: Literal["jsonl", "csv"] | None = None,  # noqa: A002 - as users call it
        clock: Clock | None = None,
    ) -> None:
        super().__init__(Meaning(declared(topic), format or "jsonl", time, unit), clock)
        self.paths = [path] if isinstance(path, str | Path) else list(path)
        self._by_name = format is None
        self._places: Iterator[str | Path] = iter(())
        self._file: IO[bytes] | None = None
        self._blocks: Iterator[list[bytes]] = iter(())

    def open(self) -> None:
        """Looks which files there are."""
        found = [one for given in self.paths for one in _files(given)]
        missing = [str(one) for one in found if isinstance(one, Path) and not one.is_file()]
        if missing:
            raise InputError(f"there is no file {', '.join(missing)}; check path")
        self._places = iter(found)

    def close(self) -> None:
        """Closes the file at hand."""
        if self._file is not None:
            self._file.close()

    def poll(self, *, limit: int, wait: int) -> Batch | None:  # noqa: ARG002 - a file has its lines at once
        """The next lines of the file at hand, or of the next one; what is there does not make anyone wait."""
        while not self._left:
            try:
                block = next(self._blocks, None)
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(f"{self._source} is damaged after line {self._number}: {error}") from error
            self._left = block or []
            if block is None:
                if self._open:
                    return self._rest_of_open()
                if not self._next():
                    return None
        return self._taken(limit)

    def _next(self) -> bool:
        where = next(self._places, None)
        if where is None:
            return False
        self.close()
        self._file = opened(where)
        self._blocks = lines(self._file)
        self._begin(shown(where))
        if self._by_name:
            self.meaning = replace(
                self.meaning, format="csv" if ".csv" in Path(shown(where)).suffixes else "jsonl"
            )
        return True


class Stdin(_Reader):
    """What is piped in, until it ends: `tail -f readings.jsonl | millrace ingest --stdin --to jobs.py:READINGS`."""

    def __init__(
        self,
        *,
        topic: str | Topic,
        time: str | None = None,
        unit: Literal["ms", "s"] = "ms",
        format: Literal["jsonl", "csv"] = "jsonl",  # noqa: A002 - as users call it
        clock: Clock | None = None,
    ) -> None:
        super().__init__(Meaning(declared(topic), format, time, unit), clock)
        self._rest = b""
        self._ended = False

    def open(self) -> None:
        """Refuses a terminal, at which nobody would know what to type."""
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("standard input is a terminal; pipe lines into it, or name a file")
        self._begin("stdin")

    def poll(self, *, limit: int, wait: int) -> Batch | None:
        """The lines that came within `wait` milliseconds; a line is taken when its end has come."""
        if not self._left and not self._ended and select.select([sys.stdin], [], [], wait / 1000)[0]:
            block = os.read(sys.stdin.fileno(), BLOCK)
            self._ended = not block
            *self._left, self._rest = (self._rest + block).split(b"\n")
            self._rest = self._rest[
                : LONGEST_LINE + 1
            ]  # the beginning of a line that is too long: it is one letter
            if self._ended:
                self._left, self._rest = [*self._left, self._rest], b""
        if self._ended and not self._left:
            return self._rest_of_open() if self._open else None
        return self._taken(limit)


def _files(given: str | Path) -> list[str | Path]:
    where = place(given)
    if isinstance(where, str):
        return [where]
    found = sorted(glob.glob(str(where)))  # noqa: PTH207 - a pattern may be absolute
    return [Path(name) for name in found] or [where]
