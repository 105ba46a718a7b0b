"""Matches the rows of partitions as they arrive, and keeps the rows that later matches need.

The state of a partition is its rows from the start of the current search on (earlier ones only where PREV
reads them), and the place of that start. With `A B+ C` and `within` 10 s:

    t=1 A   t=2 B            the search from t=1 needs more rows: both rows are kept
    t=3 B   t=4 C            the search is repeated: the match is t=1 to t=4; nothing is kept

A search that needs more rows also ends when the watermark passes first + within.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace.patterns.cep.encoding import widen_row
from millrace.patterns.sql.compiled import CompiledPattern, ResultRow
from millrace.patterns.sql.grammar import may_be_empty
from millrace.patterns.sql.match_context import MatchContext, NeedsMoreRows, Row
from millrace.patterns.sql.program import first_variables
from millrace.values import storable
from millrace.values.columns import MASK

Key = tuple[Any, ...]
VERSION = 1


@dataclass(frozen=True)
class SqlPartition:
    """The state of a partition."""

    rows: tuple[Row, ...] = ()
    search_start: int = 0
    next_match_number: int = 1
    matched_until: int = 0
    """Rows before this place belong to matches, so WITH UNMATCHED ROWS does not show them."""
    has_rows_before: bool = False
    """Whether the partition had rows before these, so that `^` does not hold."""

    def encode(self) -> bytes:
        """The bytes of the state."""
        return storable.encode(
            [
                VERSION,
                [storable.pack_row(row) for row in self.rows],
                self.search_start,
                self.next_match_number,
                self.matched_until,
                self.has_rows_before,
            ]
        )

    @classmethod
    def decode(cls, data: bytes, columns: Sequence[str] = ()) -> SqlPartition:
        """What `encode` wrote. Rows are widened to `columns` and a mask, see `widen_row`."""
        version, rows, *rest = storable.decode(data)
        if version != VERSION:
            raise ValueError(
                f"stored row patterns have version {version}, but this is version {VERSION}; use the "
                "version of millrace that wrote them, or recompute results (millrace backfill)"
            )
        return cls(tuple(widen_row(row, len(columns) + 1, columns) for row in rows), *rest)


@dataclass(frozen=True, eq=False)
class RowPatternMatcher:
    """Matches one row pattern in any number of partitions."""

    compiled: CompiledPattern
    keys: tuple[str, ...] = ()

    def step(
        self,
        partitions: Mapping[Key, SqlPartition],
        frame: pl.DataFrame,
        watermark: int | None,
        *,
        is_ended: bool,
    ) -> tuple[dict[Key, SqlPartition | None], list[ResultRow]]:
        """Matches rows, in order. Returns the states that changed (None:
        the partition needs none) and the rows of results.
        """
        changed: dict[Key, SqlPartition | None] = {}
        results: list[ResultRow] = []
        rows_by_key = dict(self.rows_by_key(frame, partitions))
        for key in dict.fromkeys((*rows_by_key, *partitions)):
            partition = partitions.get(key)
            after, found = self.match_partition(
                partition, rows_by_key.get(key, ()), watermark, is_ended=is_ended
            )
            results += found
            if partition is not None or after is not None:
                changed[key] = after
        return changed, results

    def match_partition(
        self, stored: SqlPartition | None, rows: Sequence[Row], watermark: int | None, *, is_ended: bool
    ) -> tuple[SqlPartition | None, list[ResultRow]]:
        """Matches rows of one partition, then lets time pass up to the watermark."""
        compiled, results, partition = self.compiled, list[ResultRow](), stored or SqlPartition()
        context = MatchContext(
            [*partition.rows, *rows], is_ended=is_ended, has_rows_before=partition.has_rows_before
        )
        start, number, matched = partition.search_start, partition.next_match_number, partition.matched_until
        while start < len(context.rows):
            context.match_number = number
            try:
                found = (
                    compiled.search.find(context, start, watermark)
                    if self._may_begin(context.rows[start])
                    else None
                )
                match_results = (
                    [] if found is None else list(compiled.result_rows(context, found, start, number))
                )
            except NeedsMoreRows:
                break
            if found is None:
                results += compiled.unmatched_rows(context.rows[start]) if start >= matched else ()
                start += 1
                continue
            results += match_results
            matched = max(matched, start + len(found.labels))
            start, number = compiled.next_start(found.labels, start), number + 1
        return self._keep_rows(partition, context, start, number, matched), results

    def _keep_rows(
        self, partition: SqlPartition, context: MatchContext, start: int, number: int, matched: int
    ) -> SqlPartition | None:
        first = max(0, start - self._rows_back)
        rows = tuple(context.rows[first:])
        if context.is_ended or not (rows or self._keeps_forever):
            return None
        return SqlPartition(
            rows, start - first, number, max(0, matched - first), partition.has_rows_before or first > 0
        )

    @cached_property
    def _rows_back(self) -> int:
        return self.compiled.rows_back

    @cached_property
    def _keeps_forever(self) -> bool:
        """Whether a partition needs state for ever: the number of its matches, or that it has begun."""
        return self.compiled.needs_match_number or self.compiled.row_pattern.is_anchored

    @property
    def is_lasting(self) -> bool:
        """Whether a partition has state even while no search is open."""
        return self._keeps_forever or self._rows_back > 0

    def _may_begin(self, row: Row) -> bool:
        """Whether the vectorized conditions allow a match to begin with a row."""
        return self._start_bits is None or row[-1] & self._start_bits != 0

    @cached_property
    def _start_bits(self) -> int | None:
        """The mask bits of which the first row of a match has at least one; None where that is not known."""
        start_variables, bits = first_variables(self.compiled.program), list(self.compiled.bits)
        if may_be_empty(self.compiled.row_pattern.pattern) or not start_variables <= set(bits):
            return None
        return sum(1 << bits.index(one) for one in start_variables)

    def rows_by_key(
        self, frame: pl.DataFrame, partitions: Collection[Key] | None = None
    ) -> Iterator[tuple[Key, list[Row]]]:
        """The rows of each key, with their mask.
        With `partitions`, keys without state and without a beginning are left out.
        """
        columns, keys = list(self.compiled.schema), list(self.keys)
        prepared = frame.select(*columns, self.compiled.mask().alias(MASK))
        if (
            partitions is not None
            and self._start_bits is not None
            and keys
            and not self.is_lasting
            and not self.compiled.row_pattern.with_unmatched
        ):
            begins = prepared.filter(pl.col(MASK) & self._start_bits != 0).select(keys)
            known_keys = pl.DataFrame(
                list(partitions), schema={key: self.compiled.schema[key] for key in keys}, orient="row"
            )
            relevant_keys = pl.concat([begins, known_keys]).unique()
            prepared = prepared.join(
                relevant_keys, on=keys, how="semi", nulls_equal=True, maintain_order="left"
            )
        places = [columns.index(key) for key in keys]
        rows_by_key: dict[Key, list[Row]] = {}
        for row in prepared.rows():
            rows_by_key.setdefault(tuple(row[place] for place in places), []).append(row)
        yield from rows_by_key.items()
