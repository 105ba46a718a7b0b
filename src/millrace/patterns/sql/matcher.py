"""Rows of partitions in order, as they come: what is shown of them, and what must be kept until more rows have come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import polars as pl

from millrace.patterns.cep.encoding import widen_row
from millrace.patterns.sql.compiled import CompiledPattern, ResultRow
from millrace.patterns.sql.grammar import may_be_empty
from millrace.patterns.sql.match_context import MatchContext, NeedsMoreRows, Row
from millrace.patterns.sql.program import first_variables

Key = tuple[Any, ...]
VERSION = 1


@dataclass(frozen=True)
class SqlPartition:
    """What is kept of a partition: rows, and where among them the search goes on."""

    rows: tuple[Row, ...] = ()
    search_start: int = 0
    next_match_number: int = 1
    """Of the next match."""
    matched_until: int = 0
    """The rows before this place belong to matches, as far as that matters."""
    has_rows_before: bool = False
    """Whether there were rows before these."""

    def encode(self) -> bytes:
        """As bytes."""
        return msgspec.msgpack.encode(
            [
                VERSION,
                self.rows,
                self.search_start,
                self.next_match_number,
                self.matched_until,
                self.has_rows_before,
            ]
        )

    @classmethod
    def decode(cls, data: bytes, columns: Sequence[str] = ()) -> SqlPartition:
        """What `dump` wrote; with `columns`, its rows have those, and a mask."""
        version, rows, *rest = msgspec.msgpack.decode(data)
        if version != VERSION:
            raise ValueError(
                f"row patterns of version {version}, but this is version {VERSION}; go on with the version that wrote it, or compute results anew (millrace backfill)"
            )
        return cls(tuple(widen_row(row, len(columns) + 1, columns) for row in rows), *rest)


@dataclass(frozen=True, eq=False)
class RowPatternMatcher:
    """A row pattern that follows partitions."""

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
        """Takes rows, in order, and says what became of the courses given and of new ones (None: nothing need be known), and what is shown."""
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
        """One partition: rows, then time that passes."""
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
        """Whether something of a partition matters for as long as there is a stream."""
        return self.compiled.needs_match_number or self.compiled.row_pattern.is_anchored

    @property
    def is_lasting(self) -> bool:
        """Whether a course is kept though nothing has begun."""
        return self._keeps_forever or self._rows_back > 0

    def _may_begin(self, row: Row) -> bool:
        """Whether a match can begin with a row, as far as the conditions computed by columns tell."""
        return self._start_bits is None or row[-1] & self._start_bits != 0

    @cached_property
    def _start_bits(self) -> int | None:
        """The bits of which the first row of a match has one; None: it need not have any."""
        start_variables, bits = first_variables(self.compiled.program), list(self.compiled.bits)
        if may_be_empty(self.compiled.row_pattern.pattern) or not start_variables <= set(bits):
            return None
        return sum(1 << bits.index(one) for one in start_variables)

    def rows_by_key(
        self, frame: pl.DataFrame, partitions: Collection[Key] | None = None
    ) -> Iterator[tuple[Key, list[Row]]]:
        """The rows of each key, with their bits; with `courses`, the keys that have one, only of keys that matter."""
        columns, keys = list(self.compiled.schema), list(self.keys)
        prepared = frame.select(*columns, self.compiled.mask().alias("_mask"))
        if (
            partitions is not None
            and self._start_bits is not None
            and keys
            and not self.is_lasting
            and not self.compiled.row_pattern.with_unmatched
        ):
            begins = prepared.filter(pl.col("_mask") & self._start_bits != 0).select(keys)
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
