"""Regular patterns: what is kept of a key is its newest rows, as columns. A batch writes the rows of the keys it touched; the newest count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.operators.match import MatchOperator
from millrace.engine.progress import END_OF_STREAM
from millrace.engine.state import Layout, SlotState, concat_frames
from millrace.patterns.cep.contiguous import DUE, MAY_BEGIN, UNTIL, ContiguousMatcher

ROWS_TABLE = "stretches"


@dataclass(frozen=True, eq=False)
class ContiguousMatchOperator(MatchOperator):
    """The operator of a regular pattern."""

    @cached_property
    def contiguous_matcher(self) -> ContiguousMatcher:
        """What finds it."""
        return ContiguousMatcher(self.matcher, self.matcher.needs_timeouts)

    @cached_property
    def _empty_rows(self) -> pl.DataFrame:
        return pl.Schema({**self.contiguous_matcher.schema, "_seq": pl.Int64()}).to_frame()

    def _process_ordered(
        self,
        state: SlotState,
        released: pl.DataFrame | None,
        version: int,
        interval: tuple[int, int],
        *,
        ended: bool,
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """Rows taken in order, time that has passed, and the matches found."""
        operator_id, (old_watermark, watermark) = self.operator.id, interval
        rows = (
            self.matcher.schema.to_frame()
            if released is None
            else released.sort(ORDER).select(list(self.matcher.schema))
        )
        stored = self._read_stored(state, rows, old_watermark, END_OF_STREAM if ended else watermark)
        if rows.is_empty() and stored.is_empty():
            return state.expire(operator_id, ROWS_TABLE, watermark), self.empty_panes, {}
        result = self.contiguous_matcher.step(stored, rows, END_OF_STREAM if ended else watermark)
        layout = Layout(
            pl.col(DUE),
            pl.col(UNTIL),
            lambda frame: self._newest_rows(frame).filter(pl.col(UNTIL) > old_watermark),
        )
        state = state.append(
            operator_id, ROWS_TABLE, self._changed_rows(stored, result.kept, version), layout
        ).expire(operator_id, ROWS_TABLE, watermark)
        side_outputs = (
            {graph.TIMEOUTS: self._matches_to_panes(result.timeouts)}
            if self.contiguous_matcher.needs_timeouts
            else {}
        )
        return state, self._matches_to_panes(result.matches), side_outputs

    def _read_stored(
        self, state: SlotState, rows: pl.DataFrame, old_watermark: int, watermark: int
    ) -> pl.DataFrame:
        """The rows kept of the keys that rows came for, or that time moves."""
        keys = list(self.node.keys)
        chunks = [
            chunk
            for chunk in state.table(self.operator.id, ROWS_TABLE).chunks
            if chunk.max_end > old_watermark
        ]
        due_keys = [
            chunk.frame.filter(pl.col(DUE) <= watermark).select(keys)
            for chunk in chunks
            if chunk.min_end <= watermark
        ]
        selected_keys = pl.concat([rows.select(keys), *due_keys]).unique()
        found = [
            chunk.frame.join(selected_keys, on=keys, how="semi", nulls_equal=True, maintain_order="left")
            for chunk in chunks
        ]
        newest = self._newest_rows(concat_frames([*found, self._empty_rows]))
        return newest.filter(pl.col(MAY_BEGIN).is_not_null() & (pl.col(UNTIL) > old_watermark))

    def _newest_rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(pl.col("_seq") == pl.col("_seq").max().over(self.node.keys))

    def _changed_rows(self, stored: pl.DataFrame, kept: pl.DataFrame, version: int) -> pl.DataFrame:
        """What is kept now; a key of which nothing is left says so until what was kept of it would have ended anyway."""
        keys, version_column = list(self.node.keys), pl.lit(version, pl.Int64).alias("_seq")
        removed = stored.join(kept.select(keys).unique(), on=keys, how="anti", nulls_equal=True).unique(keys)
        tombstones = removed.select(*keys, pl.lit(END_OF_STREAM, pl.Int64).alias(DUE), UNTIL, version_column)
        return pl.concat(
            [kept.with_columns(version_column).select(self._empty_rows.columns), tombstones], how="diagonal"
        )
