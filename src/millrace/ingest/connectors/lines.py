"""Lines of text as events of a declared topic: JSON objects, or CSV with a first line of names."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import polars as pl

from millrace import timestamps
from millrace.errors import ConfigError, MillraceError
from millrace.graph import find_jobs
from millrace.ingest.connectors.recording_files import LONGEST_LINE
from millrace.ingest.contract import MISFIT, Batch, Raw, Reject, Rejected, columns_of
from millrace.topics import Topic
from millrace.values import event_values
from millrace.values.event_values import Misfit

_UNITS = {"ms": 1, "s": 1000}
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?|[+-]?(inf|infinity)|nan", re.ASCII | re.IGNORECASE
)
csv.field_size_limit(
    max(csv.field_size_limit(), LONGEST_LINE)
)  # else nobody knows where a value of more than 128 KiB ends
_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True)
class Meaning:
    """What lines mean: events of `topic`, at the time in the column `time` (None: when they are read).

    A time is a number of `unit`, or ISO 8601 text with an offset. Columns that the type of the topic does not have are passed over.
    """

    topic: Topic
    format: Literal["jsonl", "csv"] = "jsonl"
    time: str | None = None
    unit: Literal["ms", "s"] = "ms"

    def __post_init__(self) -> None:
        """Refuses what no line could mean."""
        if self.format not in ("jsonl", "csv"):
            raise ConfigError(
                f"format={self.format!r} is unknown; use 'jsonl' (a JSON object a line) or 'csv' (with a first line of names)"
            )
        if self.unit not in _UNITS:
            raise ConfigError(
                f"unit={self.unit!r} is unknown; use 'ms' or 's': what a number in the column of times counts"
            )

    def batch(self, lines: Sequence[Raw], header: Sequence[str]) -> Batch:
        """The events of lines, and a reject for each line that is none."""
        found: list[tuple[Raw, Any, int]] = []
        rejects: list[Reject] = []
        for raw in lines:
            try:
                found.append((raw, *self._event(raw, header)))
            except Rejected as rejected:
                rejects.append(Reject(rejected.reason, rejected.detail, raw))
            except Misfit as misfit:
                rejects.append(Reject(MISFIT, str(misfit), raw))
            except (msgspec.MsgspecError, UnicodeError, RecursionError, csv.Error) as error:
                rejects.append(Reject("malformed line", str(error), raw))
        return Batch(
            rows=[(self.topic, columns_of(self.topic, found, rejects))] if found else [], rejects=rejects
        )

    def _event(self, raw: Raw, header: Sequence[str]) -> tuple[Any, int]:
        """The row of a line, and its event time."""
        if len(raw.payload) > LONGEST_LINE:
            raise Rejected("line too long", f"more than {LONGEST_LINE} bytes; only its beginning is kept")
        shape = event_values.shape(self.topic.type, self.time)
        row = (
            self._decoded(shape, raw.payload)
            if self.format == "jsonl"
            else self._converted(shape, raw, header)
        )
        return row, raw.received if self.time is None else self._time(shape.get(row, self.time))

    def _decoded(self, shape: event_values.Shape, line: bytes) -> Any:
        try:
            row = shape.decode(line)
        except Misfit:
            self._check_key(_object(line))  # a line without its key says so first
            raise
        if shape.is_empty(row) or (self.topic.key is not None and shape.get(row, self.topic.key) is None):
            self._check_key(_object(line))
        return row

    def _converted(self, shape: event_values.Shape, raw: Raw, header: Sequence[str]) -> Any:
        named = self._named(raw, header)
        self._check_key(named)
        return shape.convert({name: value for name, value in named.items() if name in shape.places})

    def _named(self, raw: Raw, header: Sequence[str]) -> dict[str, Any]:
        values = values_of(raw.payload)
        if len(values) != len(header):
            raise Rejected(
                "malformed line", f"{len(values)} values where the first line names {len(header)} columns"
            )
        return {name: self._typed(name, text) for name, text in zip(header, values, strict=True)}

    def _typed(self, name: str, text: str) -> Any:
        """CSV knows only text; the type of the column says what is meant. What cannot be meant stays text, and does not fit."""
        dtype = self.topic.schema.get(name)
        if dtype is None or dtype == pl.String:
            return text
        if not text:
            return None
        if dtype == pl.Boolean:
            return _WORDS.get(text.lower(), text)
        if dtype.is_integer() and _INTEGER.fullmatch(text):
            return int(text)
        if dtype.is_float() and _FLOAT.fullmatch(text):
            return float(text)
        return text

    def _check_key(self, row: Mapping[str, Any]) -> None:
        key = self.topic.key
        if row.get(key) is None if key is not None else not row.keys() & self.topic.schema.keys():
            raise Rejected(f"no {key or 'column of the topic'}", f"there are {', '.join(row)[:200]}")

    def _time(self, given: Any) -> int:
        if given is None or given == "":
            raise Rejected("no time", f"column {self.time!r} is empty or missing")
        try:
            at = timestamps.millis_of(given, unit=_UNITS[self.unit], exact=False)
        except (ValueError, OverflowError) as error:
            raise Rejected("wrong time", f"{str(given)[:100]!r} in column {self.time!r}: {error}") from error
        if not timestamps.in_range(at):
            raise Rejected("impossible event time", f"{str(given)[:100]!r} in column {self.time!r}")
        return at


def values_of(record: bytes) -> list[str]:
    """The values of one record of CSV."""
    *lines, last = record.decode().split("\n")
    rows = list(csv.reader([*(f"{line}\n" for line in lines), last], strict=True))
    if len(rows) > 1:
        raise csv.Error(f"{len(rows)} records in one")
    return rows[0] if rows else []


def is_record(record: bytes) -> bool:
    """Whether lines together are one record of CSV."""
    try:
        values_of(record)
    except (csv.Error, UnicodeDecodeError):
        return False
    return True


def is_open(record: bytes) -> bool:
    """Whether a record of CSV ends within a quoted value, which then goes on in the next line."""
    try:
        values_of(record)
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    except UnicodeDecodeError:
        return False
    return False


def declared(given: object) -> Topic:
    """The topic itself, or what stands at `file.py:NAME` or `module:NAME`."""
    if isinstance(given, Topic):
        return given
    try:
        found = find_jobs.resolve(str(given))
    except MillraceError as error:
        raise ConfigError(f"topic={given!r}: {error}") from error
    if not isinstance(found, Topic):
        raise ConfigError(
            f"topic={given!r} is {found!r}, not a millrace.Topic; name the one that your job reads, such as 'jobs.py:READINGS'"
        )
    return found
