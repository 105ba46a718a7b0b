"""Lines of text as events of a declared topic: JSON objects, or CSV whose first line names the columns."""

import csv
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import polars as pl

from millrace import timestamps
from millrace.errors import ConfigError, InputError, MillraceError
from millrace.graph import find_jobs
from millrace.ingest.connectors.recording_files import MAX_LINE_BYTES
from millrace.ingest.contract import MISFIT, MessageBatch, MessageRejected, RawMessage, Reject, build_columns
from millrace.topics import Topic
from millrace.values import event_values
from millrace.values.event_values import InvalidValue

_UNIT_MS = {"ms": 1, "s": 1000}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?|[+-]?(inf|infinity)|nan", re.ASCII | re.IGNORECASE
)
csv.field_size_limit(
    max(csv.field_size_limit(), MAX_LINE_BYTES)
)  # by default, values longer than 128 KiB are refused
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True)
class LineFormat:
    """How lines become events of `topic`. The event time is in the column `time` (None: the time of reading).

    A time is a number of `unit`, or ISO 8601 text with an offset. Columns that the topic's type does not have
    are ignored.
    """

    topic: Topic
    format: Literal["jsonl", "csv"] = "jsonl"
    time: str | None = None
    unit: Literal["ms", "s"] = "ms"

    def __post_init__(self) -> None:
        """Refuses wrong options before the first line is read."""
        if self.format not in ("jsonl", "csv"):
            raise ConfigError(
                f"format={self.format!r} is unknown; use 'jsonl' (a JSON object a line) or 'csv' (with a "
                "first line of names)"
            )
        if self.unit not in _UNIT_MS:
            raise ConfigError(
                f"unit={self.unit!r} is unknown; use 'ms' or 's': what a number in the column of times counts"
            )

    def check_header(self, header: Sequence[str], source: str) -> None:
        """Refuses CSV without the column of times, as all its lines would be rejected."""
        if self.time is not None and self.time not in header:
            raise InputError(
                f"{source} has no column {self.time!r}{_suggest(self.time, header)}, so its events "
                f"have no time; it has {', '.join(header)[:200]}; "
                "name the column of times (--time)"
            )

    def parse(self, lines: Sequence[RawMessage], header: Sequence[str]) -> MessageBatch:
        """The events of lines, and a reject for each line that is not an event."""
        events: list[tuple[RawMessage, Any, int]] = []
        rejects: list[Reject] = []
        for raw in lines:
            try:
                events.append((raw, *self._parse_line(raw, header)))
            except MessageRejected as rejected:
                rejects.append(Reject(rejected.reason, rejected.detail, raw))
            except InvalidValue as misfit:
                rejects.append(Reject(MISFIT, str(misfit), raw))
            except (msgspec.MsgspecError, UnicodeError, RecursionError, csv.Error) as error:
                rejects.append(Reject("malformed line", str(error), raw))
        return MessageBatch(
            rows=[(self.topic, build_columns(self.topic, events, rejects))] if events else [], rejects=rejects
        )

    def _parse_line(self, raw: RawMessage, header: Sequence[str]) -> tuple[Any, int]:
        """The row of a line, and its event time."""
        if len(raw.payload) > MAX_LINE_BYTES:
            raise MessageRejected(
                "line too long", f"more than {MAX_LINE_BYTES} bytes; only its beginning is kept"
            )
        shape = event_values.row_decoder(self.topic.type, self.time, _UNIT_MS[self.unit])
        row = (
            self._decode_json(shape, raw.payload)
            if self.format == "jsonl"
            else self._convert_csv(shape, raw, header)
        )
        if self.time is None:
            return row, raw.received
        value = shape.get(row, self.time)
        if value is None or value == "":
            raise MessageRejected("no time", self._describe_missing_time(raw.payload))
        return row, self._parse_time(value)

    def _decode_json(self, shape: event_values.RowDecoder, line: bytes) -> Any:
        try:
            row = shape.decode(line)
        except InvalidValue:
            self._check_key(_decode_object(line))  # a missing key is reported before other faults
            raise
        if shape.is_empty(row) or (self.topic.key is not None and shape.get(row, self.topic.key) is None):
            self._check_key(_decode_object(line))
        return row

    def _convert_csv(self, shape: event_values.RowDecoder, raw: RawMessage, header: Sequence[str]) -> Any:
        values = self._split_values(raw, header)
        self._check_key(values)
        return shape.convert({name: value for name, value in values.items() if name in shape.attribute_names})

    def _split_values(self, raw: RawMessage, header: Sequence[str]) -> dict[str, Any]:
        values = parse_csv_record(raw.payload)
        if len(values) != len(header):
            raise MessageRejected(
                "malformed line", f"{len(values)} values where the first line names {len(header)} columns"
            )
        return {name: self._convert_text(name, text) for name, text in zip(header, values, strict=True)}

    def _convert_text(self, name: str, text: str) -> Any:
        """Converts text of CSV to the type of the column. Text that cannot be converted stays text, and is
        rejected later.
        """
        dtype = self.topic.schema.get(name)
        if dtype is None or dtype == pl.String:
            return text
        if not text:
            return None
        if dtype == pl.Boolean:
            return _BOOLEANS.get(text.lower(), text)
        if dtype.is_integer() and _INTEGER.fullmatch(text):
            return int(text)
        if dtype.is_float() and _FLOAT.fullmatch(text):
            return float(text)
        return _parse_nested(text) if dtype.is_nested() else text

    def _check_key(self, row: Mapping[str, Any]) -> None:
        key = self.topic.key
        if row.get(key) is None if key is not None else not row.keys() & self.topic.schema.keys():
            raise MessageRejected(f"no {key or 'column of the topic'}", f"there are {', '.join(row)[:200]}")

    def _describe_missing_time(self, line: bytes) -> str:
        names = list(_decode_object(line)) if self.format == "jsonl" else []
        if self.format == "csv" or self.time in names:
            return f"column {self.time!r} is empty"
        return (
            f"there is no column {self.time!r}{_suggest(str(self.time), names)}; "
            f"there are {', '.join(names)[:200]}"
        )

    def _parse_time(self, value: Any) -> int:
        try:
            time = timestamps.value_to_millis(value, unit=_UNIT_MS[self.unit], exact=False)
        except (ValueError, OverflowError) as error:
            raise MessageRejected(
                "wrong time", f"{str(value)[:100]!r} in column {self.time!r}: {error}"
            ) from error
        if not timestamps.is_in_range(time):
            hint = timestamps.suggest_unit(time) if self.unit == "ms" else ""
            raise MessageRejected(
                "impossible event time", f"{str(value)[:100]!r} in column {self.time!r}{hint}"
            )
        return time


def _suggest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _parse_nested(text: str) -> Any:
    """A list or object as JSON; text that is not JSON stays text, and is rejected later."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def parse_csv_record(record: bytes) -> list[str]:
    """The values of one CSV record."""
    *lines, last = record.decode().split("\n")
    rows = list(csv.reader([*(f"{line}\n" for line in lines), last], strict=True))
    if len(rows) > 1:
        raise csv.Error(f"{len(rows)} records in one")
    return rows[0] if rows else []


def is_csv_record(record: bytes) -> bool:
    """Whether these lines are together one CSV record."""
    try:
        parse_csv_record(record)
    except (csv.Error, UnicodeDecodeError):
        return False
    return True


def is_open_csv_record(record: bytes) -> bool:
    """Whether the text ends inside a quoted value, which then continues on the next line."""
    try:
        parse_csv_record(record)
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    except UnicodeDecodeError:
        return False
    return False


def resolve_topic(topic: object) -> Topic:
    """The topic itself, or the one that `file.py:NAME` or `module:NAME` refers to."""
    if isinstance(topic, Topic):
        return topic.typed()
    try:
        resolved = find_jobs.resolve(str(topic))
    except MillraceError as error:
        raise ConfigError(f"topic={topic!r}: {error}") from error
    if not isinstance(resolved, Topic):
        raise ConfigError(
            f"topic={topic!r} is {resolved!r}, not a millrace.Topic; name the one that your job reads, such "
            "as 'jobs.py:READINGS'"
        )
    return resolved.typed()
