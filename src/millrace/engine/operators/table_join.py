"""Joins with a table as of event time: rows of both sides are taken in order, and of each key the newest version is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.aggregates import ORDER
from millrace.engine.operators.emit import PAIR
from millrace.engine.operators.ordered_windows import SequenceWindows
from millrace.engine.progress import END
from millrace.engine.state import Layout, SlotState
from millrace.graph.build.join import SIDES, THERE, TableJoin

LEFT, RIGHT = SIDES
_FOR_EVER = pl.lit(END, pl.Int64)


@dataclass(frozen=True, eq=False)
class Versions(SequenceWindows):
    """The operator of a join with a table. Rows wait until the watermark has passed them, so that no earlier version can come."""

    @cached_property
    def node(self) -> TableJoin:
        """What is joined."""
        node = self.operator.node
        assert isinstance(node, TableJoin)
        return node

    @cached_property
    def _kept(self) -> list[str]:
        return [*ORDER, *SIDES]

    @cached_property
    def _none(self) -> pl.DataFrame:
        empty, number = self.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        return empty.select(*self.node.keys, number.alias("_t"), RIGHT, number.alias("_seq")).clear()

    def _taken(
        self,
        state: SlotState,
        free: pl.DataFrame | None,
        seq: int,
        passed: tuple[int, int],  # noqa: ARG002 - versions hold for ever
        *,
        ended: bool,  # noqa: ARG002 - and the end changes nothing
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows beside the version that held at their time; versions beside nothing, but kept."""
        if free is None or free.is_empty():
            return state, self.no_shown
        id, keys = self.operator.id, list(self.node.keys)
        chunks = [chunk.frame for chunk in state.table(id, "versions").chunks]
        these = free.select(keys).unique()
        known = self._newest(
            pl.concat([self._none, *(frame.join(these, on=keys, how="semi") for frame in chunks)])
        )
        ordered = free.sort(ORDER)
        is_version = pl.col(RIGHT).is_not_null() & pl.all_horizontal(
            pl.col(key).is_not_null() for key in keys
        )
        come = (
            ordered.filter(is_version)
            .with_columns(pl.lit(seq, pl.Int64).alias("_seq"))
            .select(self._none.columns)
        )
        come = come.unique([*keys, "_t"], keep="last", maintain_order=True)
        last = come.unique(keys, keep="last", maintain_order=True)
        state = state.append(id, "versions", last, Layout(_FOR_EVER, _FOR_EVER, self._newest))
        return state, self._panes_of(ordered.filter(pl.col(LEFT).is_not_null()), pl.concat([known, come]))

    def _newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sort("_seq", maintain_order=True).unique(
            list(self.node.keys), keep="last", maintain_order=True
        )

    def _panes_of(self, rows: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
        """Rows with the columns of the version that held."""
        keys = list(self.node.keys)
        numbered = versions.sort("_t", maintain_order=True).with_row_index("_version")
        found = rows.drop(RIGHT).join_asof(
            numbered.select(*keys, "_t", "_version"),
            on="_t",
            by=keys,
            strategy="backward",
            check_sortedness=False,
        )
        whole = found.join(
            numbered.select("_version", RIGHT), on="_version", how="left", maintain_order="left"
        )
        there = pl.col(RIGHT).struct.field(THERE).fill_null(value=False)
        whole = whole.with_columns(pl.when(there).then(pl.col(RIGHT)).alias(RIGHT))
        if self.node.how == "inner":
            whole = whole.filter(pl.col(RIGHT).is_not_null())
        time, zero = pl.col("_t"), pl.lit(0, pl.Int64)
        return whole.select(
            *keys,
            *self.node.fields,
            time.alias("event_time"),
            time.alias("window_start"),
            (time + 1).alias("window_end"),
            zero.alias("index"),
            zero.alias("settled_index"),
            pl.lit("on_time").alias("timing"),
            pl.lit(value=True).alias("final"),
            pl.lit(panes.ADD).alias("op"),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR),
        ).select(*self.node.schema, PAIR)
