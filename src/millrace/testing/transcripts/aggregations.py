"""What a pane of a transcript holds: `value: sum`, or a map where it is of an expression, of some events
alone, of distinct values, or a ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace import aggregates
from millrace.aggregates import Reduction
from millrace.stream import Stream
from millrace.testing.transcripts.words import TranscriptError, check_keys, parse_integer, to_text

KINDS = ("list", "sum", "count", "latest", "top")
_DISTINCT_KINDS = ("list", "sum", "count")


@dataclass(frozen=True)
class ValueSpec:
    """An aggregate of events, or of the panes before it."""

    kind: str
    of: str = "value"
    """A column, or an expression in SQL."""
    where: str | None = None
    distinct: bool = False
    k: int = 0
    descending: bool = True

    @property
    def needs_numbers(self) -> bool:
        """Whether values must be numbers."""
        return self.kind in ("sum", "top") or self.of != "value" or self.where is not None

    @property
    def is_ranking(self) -> bool:
        """Whether each pane is shown row by row."""
        return self.kind == "top"

    def apply(self, rows: Stream) -> Stream:
        """The aggregation by key."""
        where = None if self.where is None else pl.sql_expr(self.where)
        if self.is_ranking:
            ranked = rows.select("key", "value").group_by("key")
            return ranked.top(
                self.k, by=self._expr.alias("value"), descending=self.descending, where=where, explode=True
            )
        return rows.group_by("key").aggregate(value=self._aggregate(where))

    @property
    def _expr(self) -> pl.Expr:
        return pl.sql_expr(self.of)

    def _aggregate(self, where: pl.Expr | None) -> Reduction:
        match self.kind:
            case "list":
                return aggregates.collect(self._expr, where=where, distinct=self.distinct)
            case "sum":
                return aggregates.sum(self._expr, where=where, distinct=self.distinct)
            case "latest":
                return aggregates.latest(self._expr, where=where)
            case _:
                counted = self._expr if self.distinct or self.of != "value" else None
                return aggregates.count(counted, where=where, distinct=self.distinct)


def parse_value(value: Any, where: str = "") -> ValueSpec:
    """`sum`, or `{sum: EXPR, where: EXPR, distinct: true}`, or `{top: K, by: EXPR, descending: false}`."""
    if not isinstance(value, Mapping):
        return ValueSpec(_check_kind(value, where))
    kind = next((kind for kind in KINDS if kind in value), None)
    if kind is None:
        raise TranscriptError(f"`value: {to_text(value)}`{where} names none of {', '.join(KINDS)}")
    own = ("by", "descending") if kind == "top" else ("distinct",)
    check_keys(value, (kind, "where", *own), f"value{where}")
    if value.get("distinct") and kind not in _DISTINCT_KINDS:
        raise TranscriptError(f"`distinct`{where} has no meaning for `{kind}`")
    return ValueSpec(
        kind,
        _parse_expr(value.get("by", "value") if kind == "top" else value[kind], where),
        _parse_expr(value["where"], where) if "where" in value else None,
        bool(value.get("distinct", False)),
        parse_integer(value[kind], kind, least=1) if kind == "top" else 0,
        bool(value.get("descending", True)),
    )


def _check_kind(value: Any, where: str) -> str:
    kinds = [kind for kind in KINDS if kind != "top"]
    if value not in kinds:
        raise TranscriptError(f"`value: {to_text(value)}`{where} is unknown; use {' or '.join(kinds)}")
    return str(value)


def _parse_expr(text: Any, where: str) -> str:
    if not isinstance(text, str):
        raise TranscriptError(f"{to_text(text)} in `value`{where} is not an expression; write `value * 2`")
    try:
        pl.sql_expr(text)
    except pl.exceptions.PolarsError as error:
        raise TranscriptError(f"`{text}` in `value`{where} is not an expression: {error}") from error
    return text
