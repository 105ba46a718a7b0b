"""What is kept of keys by operators that follow rows in order: a course, as bytes, of which the newest version counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.aggregates import ORDER
from millrace.engine.operators.assign import WINDOW_INPUT
from millrace.engine.operators.ordered_windows import OrderedWindowsOperator
from millrace.engine.state import Layout, SlotState


@dataclass(frozen=True, eq=False)
class KeyedBytes(OrderedWindowsOperator):
    """An operator whose rows wait and are released in order, and whose keys each have a course."""

    @cached_property
    def _kept_columns(self) -> list[str]:
        node = self.operator.node
        return [
            c for c in dict.fromkeys([*node.inputs[0].schema, *ORDER, WINDOW_INPUT]) if c not in node.keys
        ]

    @cached_property
    def _empty(self) -> pl.DataFrame:
        """No courses: `_due`, when time alone changes something, and `_until`, when nothing of it matters any more."""
        node = self.operator.node
        numbers = {"_due": pl.Int64(), "_until": pl.Int64(), "_course": pl.Binary(), "_seq": pl.Int64()}
        return pl.Schema({**{key: node.inputs[0].schema[key] for key in node.keys}, **numbers}).to_frame()

    def _load_values(
        self, state: SlotState, rows: pl.DataFrame, old_watermark: int, watermark: int
    ) -> pl.DataFrame:
        """The courses of the keys that rows came for, or that time moves."""
        keys = list(self.operator.node.keys)
        chunks = [
            chunk
            for chunk in state.table(self.operator.id, "courses").chunks
            if chunk.max_end > old_watermark
        ]
        due_keys = [
            chunk.frame.filter(pl.col("_due") <= watermark).select(keys)
            for chunk in chunks
            if chunk.min_end <= watermark
        ]
        keys_wanted = pl.concat([rows.select(keys), *due_keys]).unique()
        found = [chunk.frame.join(keys_wanted, on=keys, how="semi", nulls_equal=True) for chunk in chunks]
        newest = self._latest_per_key(pl.concat([self._empty, *found]))
        return newest.filter(pl.col("_course").is_not_null() & (pl.col("_until") > old_watermark))

    def _latest_per_key(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sort("_seq").unique(self.operator.node.keys, keep="last", maintain_order=True)

    def _layout_since(self, old_watermark: int) -> Layout:
        """How courses are stored, and what is left of them when those of which nothing matters any more are dropped."""
        return Layout(
            pl.col("_due"),
            pl.col("_until"),
            lambda frame: self._latest_per_key(frame).filter(pl.col("_until") > old_watermark),
        )
