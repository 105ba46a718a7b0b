"""Joins with a table as of event time: rows of both sides are taken in order, and of each key the newest version is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.aggregates import ORDER
from millrace.engine.operators.emit import PAIR
from millrace.engine.operators.ordered_windows import OrderedWindowsOperator
from millrace.engine.progress import END_OF_STREAM
from millrace.engine.state import Layout, SlotState
from millrace.graph.build.join import PRESENT, SIDE_COLUMNS, TableJoin

LEFT, RIGHT = SIDE_COLUMNS
_NEVER_EXPIRES = pl.lit(END_OF_STREAM, pl.Int64)


@dataclass(frozen=True, eq=False)
class TableJoinOperator(OrderedWindowsOperator):
    """The operator of a join with a table. Rows wait until the watermark has passed them, so that no earlier version can come."""

    @cached_property
    def node(self) -> TableJoin:
        """What is joined."""
        node = self.operator.node
        assert isinstance(node, TableJoin)
        return node

    @cached_property
    def _kept_columns(self) -> list[str]:
        return [*ORDER, *SIDE_COLUMNS]

    @cached_property
    def _empty_versions(self) -> pl.DataFrame:
        empty, number = self.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        return empty.select(*self.node.keys, number.alias("_t"), RIGHT, number.alias("_seq")).clear()

    def _process_rows(
        self,
        state: SlotState,
        released: pl.DataFrame | None,
        version: int,
        interval: tuple[int, int],  # noqa: ARG002 - versions hold for ever
        *,
        ended: bool,  # noqa: ARG002 - and the end changes nothing
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows beside the version that held at their time; versions beside nothing, but kept."""
        if released is None or released.is_empty():
            return state, self.empty_panes
        operator_id, keys = self.operator.id, list(self.node.keys)
        chunks = [chunk.frame for chunk in state.table(operator_id, "versions").chunks]
        released_keys = released.select(keys).unique()
        stored = self._newest(
            pl.concat(
                [self._empty_versions, *(frame.join(released_keys, on=keys, how="semi") for frame in chunks)]
            )
        )
        ordered = released.sort(ORDER)
        is_version = pl.col(RIGHT).is_not_null() & pl.all_horizontal(
            pl.col(key).is_not_null() for key in keys
        )
        new_versions = (
            ordered.filter(is_version)
            .with_columns(pl.lit(version, pl.Int64).alias("_seq"))
            .select(self._empty_versions.columns)
        )
        new_versions = new_versions.unique([*keys, "_t"], keep="last", maintain_order=True)
        last = new_versions.unique(keys, keep="last", maintain_order=True)
        state = state.append(
            operator_id, "versions", last, Layout(_NEVER_EXPIRES, _NEVER_EXPIRES, self._newest)
        )
        return state, self._to_panes(
            ordered.filter(pl.col(LEFT).is_not_null()), pl.concat([stored, new_versions])
        )

    def _newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sort("_seq", maintain_order=True).unique(
            list(self.node.keys), keep="last", maintain_order=True
        )

    def _to_panes(self, rows: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
        """Rows with the columns of the version that held."""
        keys = list(self.node.keys)
        numbered = versions.sort("_t", maintain_order=True).with_row_index("_version")
        with_version = rows.drop(RIGHT).join_asof(
            numbered.select(*keys, "_t", "_version"),
            on="_t",
            by=keys,
            strategy="backward",
            check_sortedness=False,
        )
        joined = with_version.join(
            numbered.select("_version", RIGHT), on="_version", how="left", maintain_order="left"
        )
        has_version = pl.col(RIGHT).struct.field(PRESENT).fill_null(value=False)
        joined = joined.with_columns(pl.when(has_version).then(pl.col(RIGHT)).alias(RIGHT))
        if self.node.how == "inner":
            joined = joined.filter(pl.col(RIGHT).is_not_null())
        time, zero = pl.col("_t"), pl.lit(0, pl.Int64)
        return joined.select(
            *keys,
            *self.node.output_exprs,
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
