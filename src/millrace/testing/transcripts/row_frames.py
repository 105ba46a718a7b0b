"""Transcripts of row frames: which columns stand beside each event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace import aggregates, frames, stream
from millrace.testing.model.values import Row
from millrace.testing.transcripts.words import TranscriptError, check_keys, parse_integer, to_text

WORDS = ("count", "sum", "mean", "min", "max", "latest", "earliest", "collect", "distinct")
"""Aggregates of the values of events."""
FUNCTIONS = (*WORDS, "first", "last", "lag", "lead", "row_number")


@dataclass(frozen=True)
class OverSpec:
    """The map under `over`."""

    columns: Mapping[str, Any]
    frame: Mapping[str, Any]
    """`rows`, `range`, `ttl` and `lateness`, as they are given."""

    def apply(self, rows: stream.Stream) -> stream.Stream:
        """Events beside the columns."""
        return rows.group_by("key").over(**self.columns, **self.frame)

    def read_row(self, row: Row) -> Row:
        """A row that was shown, in the words of transcripts."""
        columns = {name: row[name] for name in self.columns}
        shown = {"key": json.loads(row["key"]), "at": row["event_time"], "value": row["value"]}
        shown["over" if row["op"] == "+" else "gone"] = columns
        return {**shown, "window": [row["window_start"], row["window_end"]]} | {
            name: row[name] for name in ("timing", "index", "settled_index", "final")
        }


def parse_document(spec: Any) -> OverSpec:
    """Parses the map under `over`; refuses functions that do not exist."""
    if not isinstance(spec, dict) or not isinstance(spec.get("columns"), dict):
        raise TranscriptError(
            f"`over: {to_text(spec)}` names no columns; write {{columns: {{total: sum, before: {{lag: 1}}}}}}"
        )
    check_keys(spec, ("columns", "rows", "range", "ttl", "lateness"), "over")
    columns = {name: _parse_column(name, column) for name, column in spec["columns"].items()}
    frame = {key: _parse_bounds(bounds, key) for key, bounds in spec.items() if key != "columns"}
    return OverSpec(columns, frame)


def _parse_column(name: str, column: Any) -> Any:
    word, settings = next(iter(column.items())) if isinstance(column, dict) else (column, {})
    if word not in FUNCTIONS:
        raise TranscriptError(f"`{name}: {to_text(column)}` is unknown; use one of {', '.join(FUNCTIONS)}")
    if word in WORDS:
        return getattr(aggregates, word)("value")
    if word == "row_number":
        return frames.row_number()
    if not isinstance(settings, dict):
        settings = {"n": parse_integer(settings, word)}
    check_keys(settings, ("n", "within"), word)
    return getattr(frames, word)("value", **settings)


def _parse_bounds(value: Any, key: str) -> Any:
    """A number, or two of them of which the first may be null."""
    if not isinstance(value, list) or key in ("ttl", "lateness"):
        return parse_integer(value, key)
    if len(value) != 2:
        raise TranscriptError(f"`{key}: {to_text(value)}` has two bounds; write [N, N] or [null, N]")
    return tuple(None if bound is None else parse_integer(bound, key) for bound in value)
