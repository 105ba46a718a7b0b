"""Rows that begin matches and do nothing else, which operator `match` keeps as rows until more happens to
their key.

Of a pattern that waits for something rare, nearly every row only begins a match: every partial match ignores
it, and none can end with it. To take such a row at once, the partial matches of its key would be decoded,
get one more, and be encoded, all in Python. Instead quiet rows are kept as columns. When a row comes that is
not quiet, or when time has come for the key, its quiet rows are taken first, in order. What is found is the
same, at the same time, since quiet rows find nothing.

With `low` (value < 10), followed by `high` (value >= 10 and above twice the last low), rows of one key:

    row            kept as rows   partial matches       output
    3 at 10 s      3              -                     -
    2 at 20 s      3 2            -                     -
    14 at 30 s     -              3, 2 taken, then 14   the matches 3 14 and 2 14

A version of a key's partial matches covers all rows of the batches up to its own (`_seq`), so quiet rows with
an older or the same number count no more. They are dropped when they would have expired: `within` after them
no match may begin with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from millrace.aggregates import ORDER
from millrace.durations import END_OF_STREAM
from millrace.engine.state import Chunk, Layout, SlotState, add_missing_columns, concat_frames
from millrace.patterns.cep.matcher import Matcher
from millrace.values.columns import COVERED_VERSION, EXPIRES_AT, MASK, ROW_TIME, STATE_VERSION

TABLE = "quiet"
"""State table: the rows that wait until something happens to their key."""
MIN_QUIET_ROWS = 50
"""How many rows of a batch must be able to wait, so that it is worth keeping them."""
MAX_BUSY_SHARE = 0.25
"""Which part of the rows of a batch may be of keys to which something happens."""

VersionsOf = Callable[[pl.DataFrame], pl.DataFrame]
"""The numbers of the newest versions of the partial matches of some keys, as far as there are any."""


@dataclass(frozen=True, eq=False)
class QuietRows:
    """The quiet rows of one operator."""

    operator_id: str
    keys: Sequence[str]
    matcher: Matcher

    @cached_property
    def is_allowed(self) -> bool:
        """Whether quiet rows find nothing by the passing of time either, and do not wait for ever."""
        matcher = self.matcher
        may_settle = any(state.pending or state.may_settle for state in matcher.states)
        return (
            bool(self.keys)
            and matcher.pattern.span is not None
            and not (may_settle or matcher.needs_timeouts)
        )

    def divide(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of a batch that are taken now, and those that wait.
        All rows of a key are in one part; rows that matter to no match may be in neither.
        """
        if not self.is_allowed or len(rows) < MIN_QUIET_ROWS:
            return rows, rows.clear()
        masked = rows.with_columns(self.matcher.predicates.mask().alias(MASK))
        masks = masked[MASK].unique().to_list()
        quiet = [mask for mask in masks if self.matcher.is_quiet(mask)]
        beginning = [mask for mask in quiet if self.matcher.may_start(mask)]
        if not beginning:
            return rows, rows.clear()
        is_busy = ~pl.col(MASK).is_in(quiet)
        useful = masked.filter(is_busy | pl.col(MASK).is_in(beginning))
        busy_keys, most_busy = useful.filter(is_busy).select(self.keys), MAX_BUSY_SHARE * len(useful)
        if len(busy_keys) > most_busy:
            return rows, rows.clear()
        useful = useful.drop(MASK)
        waiting = self._join(useful, busy_keys, "anti")
        if len(waiting) < MIN_QUIET_ROWS or len(useful) - len(waiting) > most_busy:
            return rows, rows.clear()
        return self._join(useful, busy_keys, "semi"), waiting

    def take(self, state: SlotState, keys: pl.DataFrame, versions: pl.DataFrame, since: int) -> pl.DataFrame:
        """The quiet rows of some keys that count, in order, without what had expired by `since`."""
        chunks = [chunk for chunk in self._chunks(state) if chunk.max_end > since]
        if not chunks:
            return self._empty
        near = add_missing_columns(
            concat_frames([chunk.rows_near(keys) for chunk in chunks]), self._empty.schema
        )
        found = self._join(near.filter(pl.col(EXPIRES_AT) > since), keys, "semi")
        return self._empty if found.is_empty() else self._that_count(found, versions).sort(ORDER)

    def keys_to_take(self, state: SlotState) -> list[pl.DataFrame]:
        """The keys whose quiet rows may wait no longer: all, where the job has come to ask for timeouts."""
        return [] if self.is_allowed else [chunk.frame.select(self.keys) for chunk in self._chunks(state)]

    @cached_property
    def _empty(self) -> pl.DataFrame:
        numbers = {name: pl.Int64() for name in (*ORDER, EXPIRES_AT, STATE_VERSION)}
        return pl.Schema({**self.matcher.schema, **numbers}).to_frame()

    def keep(
        self, state: SlotState, rows: pl.DataFrame, version: int, since: int, versions_of: VersionsOf
    ) -> SlotState:
        """With the rows of a batch that wait."""
        until = pl.col(EXPIRES_AT)
        if rows.is_empty():
            return state

        def merge(frame: pl.DataFrame) -> pl.DataFrame:
            alive = frame.filter(until > since)
            return self._that_count(alive, versions_of(alive.select(self.keys).unique()))

        stamped = rows.with_columns(
            (pl.col(ROW_TIME) + (self.matcher.pattern.span or 0)).alias(EXPIRES_AT),
            pl.lit(version, pl.Int64).alias(STATE_VERSION),
        )
        return state.append(self.operator_id, TABLE, stamped, Layout(until, until, merge))

    def expire(self, state: SlotState, until: int) -> SlotState:
        """Without the rows with which no match may begin any more."""
        return state.expire(self.operator_id, TABLE, until if self.is_allowed else END_OF_STREAM)

    def _chunks(self, state: SlotState) -> Sequence[Chunk]:
        return state.table(self.operator_id, TABLE).chunks

    def _that_count(self, rows: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
        """The rows that no version of their key's partial matches covers."""
        numbers = versions.select(*self.keys, pl.col(STATE_VERSION).alias(COVERED_VERSION))
        joined = rows.join(numbers, on=self.keys, how="left", nulls_equal=True, maintain_order="left")
        is_left = (pl.col(STATE_VERSION) > pl.col(COVERED_VERSION)).fill_null(value=True)
        return joined.filter(is_left).drop(COVERED_VERSION)

    def _join(self, rows: pl.DataFrame, keys: pl.DataFrame, how: Literal["semi", "anti"]) -> pl.DataFrame:
        return rows.join(keys, on=self.keys, how=how, nulls_equal=True, maintain_order="left")
