"""Lines of text as events of a declared topic: JSON objects, or CSV with a first line of names."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
import polars as pl

from millrace import jobs
from millrace.errors import ConfigError, MillraceError
from millrace.ingest.contract import Batch, Event, Raw, Reject, Rejected, framed
from millrace.log.codecs import FIRST, LAST
from millrace.topics import Topic

_UNITS = {"ms": 1, "s": 1000}
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
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
            raise ConfigError(f"unit={self.unit!r} is unknown; use 'ms' or 's': what a number in the column of times counts")

    def batch(self, lines: Sequence[Raw], header: Sequence[str]) -> Batch:
        """The events of lines, and a reject for each line that is none."""
        found: list[tuple[Raw, Event]] = []
        rejects: list[Reject] = []
        for raw in lines:
            try:
                found.append((raw, self._event(raw, self._row(raw, header))))
            except Rejected as rejected:
                rejects.append(Reject(rejected.reason, rejected.detail, raw))
            except (msgspec.MsgspecError, UnicodeError, RecursionError, csv.Error) as error:
                rejects.append(Reject("malformed line", str(error), raw))
        return Batch(rows=[(self.topic, framed(found, rejects))] if found else [], rejects=rejects)

    def _row(self, raw: Raw, header: Sequence[str]) -> dict[str, Any]:
        if self.format == "jsonl":
            return _object(raw.payload)
        values = values_of(raw.payload)
        if len(values) != len(header):
            raise Rejected("malformed line", f"{len(values)} values where the first line names {len(header)} columns")
        return {name: self._typed(name, text) for name, text in zip(header, values, strict=True)}

    def _typed(self, name: str, text: str) -> Any:
        """CSV knows only text; the type of the column says what is meant. What cannot be meant stays text, and does not fit."""
        dtype = self.topic.schema.get(name)
        if dtype is None or dtype == pl.String:
            return text
        if not text:
            return None
        try:
            if dtype == pl.Boolean:
                return _WORDS.get(text.lower(), text)
            return int(text) if dtype.is_integer() else float(text) if dtype.is_float() else datetime.fromisoformat(text)
        except ValueError:
            return text

    def _event(self, raw: Raw, row: dict[str, Any]) -> Event:
        known = {name: value for name, value in row.items() if name in self.topic.schema}
        if not known or (self.topic.key is not None and known.get(self.topic.key) is None):
            raise Rejected(f"no {self.topic.key or 'column of the topic'}", f"there are {', '.join(row)[:200]}")
        return Event(self.topic, raw.received if self.time is None else self._time(row.get(self.time)), known)

    def _time(self, said: Any) -> int:
        if said is None or said == "":
            raise Rejected("no time", f"column {self.time!r} is empty or missing")
        try:
            at = _millis(said, _UNITS[self.unit])
        except (ValueError, OverflowError) as error:
            raise Rejected("wrong time", f"{str(said)[:100]!r} in column {self.time!r}: {error}") from error
        if not FIRST <= at <= LAST:
            raise Rejected("impossible event time", f"{str(said)[:100]!r} in column {self.time!r}")
        return at


def values_of(line: bytes) -> list[str]:
    """The values of one line of CSV; none of them may run over several lines."""
    return next(csv.reader([line.decode()]), [])


def _millis(said: Any, unit: int) -> int:
    if isinstance(said, int | float) and not isinstance(said, bool):
        return round(said * unit)
    if not isinstance(said, str):
        raise ValueError("it is neither a number nor text")  # noqa: TRY004 - the message's fault, like the others
    if said.lstrip("+-").isdigit():
        return int(said) * unit
    if said.lstrip("+-").replace(".", "", 1).isdigit():
        return round(float(said) * unit)
    at = datetime.fromisoformat(said)
    if at.tzinfo is None:
        raise ValueError("it has no offset from UTC; write it like 2020-09-21T03:00:00Z")
    return round(at.timestamp() * 1000)


def declared(given: object) -> Topic:
    """The topic itself, or what stands at `file.py:NAME` or `module:NAME`."""
    if isinstance(given, Topic):
        return given
    try:
        found = jobs.resolve(str(given))
    except MillraceError as error:
        raise ConfigError(f"topic={given!r}: {error}") from error
    if not isinstance(found, Topic):
        raise ConfigError(
            f"topic={given!r} is {found!r}, not a millrace.Topic; name the one that your job reads, such as 'jobs.py:READINGS'"
        )
    return found
