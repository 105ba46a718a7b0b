"""Files and standard input: each line is an event of a declared topic, so no processor is needed."""

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
from millrace.ingest.connectors.lines import (
    LineFormat,
    is_csv_record,
    is_open_csv_record,
    parse_csv_record,
    resolve_topic,
)
from millrace.ingest.connectors.recording_files import (
    BLOCK_BYTES,
    MAX_LINE_BYTES,
    open_recording,
    parse_location,
    read_lines,
    redact,
)
from millrace.ingest.contract import Connector, MessageBatch, RawMessage
from millrace.topics import Topic

_MAX_RECORD_LINES = 1_000
"""The most lines of a quoted CSV value."""


class _LineConnector(Connector):
    """Turns lines of one source at a time into events. The first line of CSV names the columns."""

    def __init__(self, line_format: LineFormat, clock: Clock | None) -> None:
        self.line_format = line_format
        self.topics = (line_format.topic,)
        self.clock: Clock = clock or WallClock()
        self._header: Sequence[str] = ()
        self._source, self._line_number = "", 0
        self._pending: list[bytes] = []
        """Lines that were read and not yet returned by `poll`."""
        self._open_lines: list[tuple[int, bytes]] = []
        """Lines of CSV whose quoted value is still open, with their numbers."""

    def acknowledge(self, batch: MessageBatch) -> None:
        """Files need no acknowledgement."""

    def _start_source(self, source: str) -> None:
        self._source, self._line_number, self._header, self._open_lines = source, 0, (), []

    def _take(self, limit: int) -> MessageBatch:
        raw_lines, self._pending = self._pending[:limit], self._pending[limit:]
        now, raws = self.clock.now(), []
        for number, line in self._join_records(raw_lines):
            if not line.strip():
                continue
            if self.line_format.format == "csv" and not self._header:
                self._header = self._parse_header(line)
            else:
                raws.append(
                    RawMessage("", line.rstrip(b"\r")[: MAX_LINE_BYTES + 1], now, f"{self._source}:{number}")
                )
        return self.line_format.parse(raws, self._header)

    def _join_records(self, lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Lines with their numbers. Lines that share a quoted CSV value are joined."""
        for line in lines:
            self._line_number += 1
            self._open_lines.append((self._line_number, line))
            yield from self._take_complete()

    def _take_complete(self, *, at_end: bool = False) -> Iterator[tuple[int, bytes]]:
        """The records that are complete. A quote that is never closed spoils its own line and not those after
        it.
        """
        while self._open_lines:
            (number, first), last = self._open_lines[0], self._open_lines[-1][1]
            if self.line_format.format != "csv" or (len(self._open_lines) == 1 and b'"' not in first):
                yield self._open_lines.pop(0)
                continue
            if len(self._open_lines) > 1 and b'"' not in last and not self._is_too_long() and not at_end:
                return
            joined = b"\n".join(line for _, line in self._open_lines)
            if not is_open_csv_record(joined):
                if len(self._open_lines) == 1 or is_csv_record(joined):
                    self._open_lines.clear()
                    yield number, joined
                    return
            elif not self._is_too_long() and not at_end:
                return
            yield from self._release_first()

    def _release_first(self) -> Iterator[tuple[int, bytes]]:
        """Returns the first line as it is, and reads the lines after it again."""
        following = self._open_lines[1:]
        yield self._open_lines[0]
        self._open_lines = []
        for numbered_line in following:
            self._open_lines.append(numbered_line)
            yield from self._take_complete()

    def _is_too_long(self) -> bool:
        return (
            len(self._open_lines) > _MAX_RECORD_LINES
            or sum(len(line) for _, line in self._open_lines) > MAX_LINE_BYTES
        )

    def _take_open(self) -> MessageBatch:
        """Returns the lines that still waited for a closing quote when the source ended."""
        now = self.clock.now()
        raws = [
            RawMessage("", line.rstrip(b"\r")[: MAX_LINE_BYTES + 1], now, f"{self._source}:{number}")
            for number, line in self._take_complete(at_end=True)
        ]
        return self.line_format.parse([raw for raw in raws if raw.payload.strip()], self._header)

    def _parse_header(self, line: bytes) -> Sequence[str]:
        try:
            names = parse_csv_record(line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r"))
        except UnicodeDecodeError as error:
            raise InputError(
                f"the first line of {self._source} is not UTF-8 ({error}), so its columns have no names"
            ) from error
        except csv.Error as error:
            raise InputError(
                f"the first line of {self._source} is not a line of CSV ({error}), so its columns have no "
                "names; end lines with LF or CRLF"
            ) from error
        duplicates = [
            name
            for name in dict.fromkeys(names)
            if names.count(name) > 1 and name in {*self.line_format.topic.schema, self.line_format.time}
        ]
        if duplicates:
            raise InputError(
                f"the first line of {self._source} names {', '.join(map(repr, duplicates))} more than once, "
                "so it cannot be told which values are meant; rename the columns that are not"
            )
        self.line_format.check_header(names, self._source)
        return names


class Files(_LineConnector):
    """Reads files, URLs or patterns such as `readings/*.csv` one after the other: JSON lines or CSV (`.csv`),
    also gzipped.

    `topic` names a declared `Topic` (`file.py:NAME`). `time` and `unit`: see `LineFormat`. The position is
    not stored: started again, everything is read again.
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
        super().__init__(LineFormat(resolve_topic(topic), format or "jsonl", time, unit), clock)
        self.paths = [path] if isinstance(path, str | Path) else list(path)
        self._is_format_detected = format is None
        self._remaining_paths: Iterator[str | Path] = iter(())
        self._file: IO[bytes] | None = None
        self._blocks: Iterator[list[bytes]] = iter(())

    def open(self) -> None:
        """Finds the files of the patterns."""
        files = [file for path in self.paths for file in _expand_path(path)]
        missing = [str(file) for file in files if isinstance(file, Path) and not file.is_file()]
        if missing:
            raise InputError(f"there is no file {', '.join(missing)}; check path")
        self._remaining_paths = iter(files)

    def close(self) -> None:
        """Closes the current file."""
        if self._file is not None:
            self._file.close()

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:  # noqa: ARG002 - a file has its lines at once
        """The next lines of the current file or of the next one. Files are read without waiting."""
        while not self._pending:
            try:
                block = next(self._blocks, None)
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(
                    f"{self._source} is damaged after line {self._line_number}: {error}"
                ) from error
            self._pending = block or []
            if block is None:
                if self._open_lines:
                    return self._take_open()
                if not self._open_next():
                    return None
        return self._take(limit)

    def _open_next(self) -> bool:
        location = next(self._remaining_paths, None)
        if location is None:
            return False
        self.close()
        self._file = open_recording(location)
        self._blocks = read_lines(self._file)
        self._start_source(redact(location))
        if self._is_format_detected:
            self.line_format = replace(
                self.line_format, format="csv" if ".csv" in Path(redact(location)).suffixes else "jsonl"
            )
        return True


class Stdin(_LineConnector):
    """Standard input, until it ends.
    For example `tail -f readings.jsonl | millrace ingest stdin --to jobs.py:READINGS`.
    """

    def __init__(
        self,
        *,
        topic: str | Topic,
        time: str | None = None,
        unit: Literal["ms", "s"] = "ms",
        format: Literal["jsonl", "csv"] = "jsonl",  # noqa: A002 - as users call it
        clock: Clock | None = None,
    ) -> None:
        super().__init__(LineFormat(resolve_topic(topic), format, time, unit), clock)
        self._partial_line = b""
        self._is_at_end = False

    def open(self) -> None:
        """Refuses a terminal, where a user would wait for a prompt in vain."""
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("standard input is a terminal; pipe lines into it, or name a file")
        self._start_source("stdin")

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        """The lines that arrive within `wait` milliseconds. A line is complete when its end has arrived."""
        if not self._pending and not self._is_at_end and select.select([sys.stdin], [], [], wait / 1000)[0]:
            block = os.read(sys.stdin.fileno(), BLOCK_BYTES)
            self._is_at_end = not block
            *self._pending, self._partial_line = (self._partial_line + block).split(b"\n")
            self._partial_line = self._partial_line[
                : MAX_LINE_BYTES + 1
            ]  # the line is too long: its beginning becomes one dead letter
            if self._is_at_end:
                self._pending, self._partial_line = [*self._pending, self._partial_line], b""
        if self._is_at_end and not self._pending:
            return self._take_open() if self._open_lines else None
        return self._take(limit)


def _expand_path(path: str | Path) -> list[str | Path]:
    location = parse_location(path)
    if isinstance(location, str):
        return [location]
    names = sorted(glob.glob(str(location)))  # noqa: PTH207 - a pattern may be absolute
    return [Path(name) for name in names] or [location]
