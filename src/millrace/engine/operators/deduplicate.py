"""Operator `deduplicate`: drops rows that repeat an earlier row of the same key.

A row is a duplicate if a row with equal identity columns was emitted less than `within` before it, in event
time. The operator remembers identity and event time of each emitted row until the watermark has passed
`event_time + within`.

There are two modes:

* Immediate: `event_time` is part of the identity, so copies have equal times and the order of arrival does
  not matter. Rows are emitted in the batch that brings them.
* Ordered: the first row in event-time order wins, so rows wait until the watermark has passed them.

Example, ordered, within 10 s, rows of one key with equal identity:

    event time   0 s    4 s    9 s    12 s    13 s    25 s
    emitted      yes    no     no     yes     no      yes

12 s is 10 s or more after 0 s, so it is emitted; 13 s is not 10 s after 12 s.

Rows that arrive after their identity may have been forgotten are late: nobody can tell any more whether they
are duplicates. Rows stay rows: each goes on with the watermark at it, by which operators that follow judge
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.durations import BEFORE_ALL
from millrace.engine import lateness
from millrace.engine.arrivals import BatchProgress
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, empty_changes, empty_panes
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.routing import RAW_COLUMNS
from millrace.engine.state import Layout, SlotState
from millrace.values.columns import (
    CLOCK,
    EDGE,
    FIRST_ROW,
    LAST_EMITTED,
    ROW_INDEX,
    ROW_TIME,
    TOPIC,
    WATERMARK,
)

SEEN = "seen"
"""State table: the identity and event time of emitted rows."""
_INTERNAL_COLUMNS = (WATERMARK, TOPIC, ROW_INDEX, ROW_TIME, EDGE)


@dataclass(frozen=True, eq=False)
class DeduplicateOperator:
    """Drops duplicates of rows that were emitted before."""

    operator: Operator
    node: graph.Deduplication

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait for their turn, where they do."""
        return OrderedRows(self.operator, ())

    @cached_property
    def _remembered_columns(self) -> list[str]:
        return list(dict.fromkeys([*self.node.identity_columns, "event_time"]))

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order,
        emit the first of each kind, forget what is too old.
        """
        operator_id = self.operator.id
        saved = state.values.get(operator_id) or {"progress": None, "time": BEFORE_ALL}
        progress = BatchProgress.of(self.operator, body, saved["progress"])
        accepted, late = self._split_late(self._read_rows(blocks, progress))
        if not self.node.is_immediate:
            state, accepted = self.rows.release(state, accepted, saved["time"], progress.watermark)
        rows = {}
        if accepted is not None and not accepted.is_empty():
            state, emitted = self._drop_duplicates(state, accepted, progress.watermark)
            rows = {edge: self._to_rows(part) for edge, part in self._split_by_edge(emitted)}
        values = {"progress": progress.after.to_json(), "time": progress.watermark}
        return OperatorResult(
            state.with_values(operator_id, values).expire(operator_id, SEEN, progress.watermark),
            progress.after.low_watermark,
            empty_panes(self.node),
            empty_changes(self.node),
            late,
            progress,
            rows=rows,
        )

    def _read_rows(self, blocks: Sequence[Block], progress: BatchProgress) -> pl.DataFrame | None:
        """All rows of the batch, each with the edge that it came by."""
        blocks_by_edge: dict[int, list[Block]] = {}
        for block in blocks:
            blocks_by_edge.setdefault(int(block.channel.partition("/")[0]), []).append(block)
        frames = [
            rows.with_columns(pl.lit(edge, pl.Int64).alias(EDGE))
            for edge, edge_blocks in blocks_by_edge.items()
            if (rows := progress.load_rows(edge_blocks)) is not None
        ]
        if not frames:
            return None
        rows = pl.concat(frames, how="diagonal_relaxed").drop(ROW_INDEX).with_row_index(ROW_INDEX)
        rows = rows.with_columns(
            pl.lit(None, dtype).alias(name) for name, dtype in RAW_COLUMNS.items() if name not in rows.columns
        )
        columns = [name for name in self.node.schema if name in rows.columns]
        return rows.select(*columns, *sorted(name for name in rows.columns if name.startswith("_")))

    def _split_late(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Without the rows of which nobody can tell any more whether they are copies."""
        if rows is None:
            return None, None
        is_immediate = self.node.is_immediate
        return lateness.split_late(
            rows, lateness.is_forgotten(self.node.within) if is_immediate else lateness.is_behind()
        )

    def _drop_duplicates(
        self, state: SlotState, rows: pl.DataFrame, time: int
    ) -> tuple[SlotState, pl.DataFrame]:
        """The rows that are not copies of others or of earlier ones; those are remembered, as long as the
        watermark lets copies of them come. They are in order where a topic shows them: operators order
        rows themselves.
        """
        until = pl.col("event_time") + self.node.within
        layout = Layout(pl.col("event_time"), until, lambda frame: frame.filter(until > time))
        seen = self._read_seen(state, rows)
        if self.node.is_immediate:
            emitted = self._drop_copies(rows, seen)
            emitted = emitted.sort(ORDER) if self.operator.shows else emitted
        else:
            emitted = self._drop_within(rows.sort(ORDER), seen)
        remembered = emitted.filter(until > time).select(self._remembered_columns)
        return state.append(self.operator.id, SEEN, remembered, layout), emitted

    def _read_seen(self, state: SlotState, rows: pl.DataFrame) -> pl.DataFrame:
        """What is remembered of earlier rows that these may be copies of."""
        within = 0 if self.node.is_immediate else self.node.within
        columns = self._remembered_columns
        first, last = rows.select(
            pl.col(ROW_TIME).min().alias("first") - within, pl.col(ROW_TIME).max().alias("last")
        ).row(0)
        frames = [
            chunk.frame.select(columns)
            for chunk in state.table(self.operator.id, SEEN).chunks
            if chunk.min_end <= last and chunk.max_end - self.node.within >= first
        ]
        return pl.concat([rows.select(columns).clear(), *frames]).filter(
            pl.col("event_time").is_between(first, last)
        )

    def _drop_copies(self, rows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
        """The first row of each kind, unless it was seen before.

        Copies are few. So they are looked for among the rows whose hash another row has, too, or whose time
        is not behind all that was seen, and all other rows stay where they are.
        """
        identity, copies = self.node.identity_columns, []
        if not seen.is_empty():
            near = rows.filter(pl.col("event_time") <= seen["event_time"].max())
            copies.append(near.join(seen, on=identity, how="semi", nulls_equal=True)[ROW_INDEX])
        shares_hash = _shares_hash(rows.select(identity))
        if shares_hash.any():
            alike = rows.filter(shares_hash).sort(ORDER)
            copies.append(alike.filter(~pl.struct(identity).is_first_distinct())[ROW_INDEX])
        dropped = pl.concat([rows[ROW_INDEX].clear(), *copies])
        return rows if dropped.is_empty() else rows.filter(~pl.col(ROW_INDEX).is_in(dropped.implode()))

    def _drop_within(self, rows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
        """The first row of each kind, then the first that is at least `within` later, and so on.

        Each pass of the loop settles one row of each kind. Copies come in pairs in practice, so one or two
        passes are usual. A long burst of copies goes in one pass: all of it lies within reach of the row
        emitted before it.
        """
        identity, time = self.node.identity_columns, pl.col("event_time")
        earlier = seen.join(rows, on=identity, how="semi", nulls_equal=True)
        last_emitted = earlier.group_by(identity).agg(time.max().alias(LAST_EMITTED))
        pending = (
            rows.drop(ROW_INDEX)
            .with_row_index(ROW_INDEX)
            .join(last_emitted, on=identity, how="left", nulls_equal=True, maintain_order="left")
        )
        emitted = [pending.clear()]
        while not pending.is_empty():
            pending = pending.filter(
                pl.col(LAST_EMITTED).is_null() | (time >= pl.col(LAST_EMITTED) + self.node.within)
            )
            pending = pending.with_columns(
                time.first().over(identity).alias(LAST_EMITTED),
                pl.col(ROW_INDEX).first().over(identity).alias(FIRST_ROW),
            )
            emitted.append(pending.filter(pl.col(ROW_INDEX) == pl.col(FIRST_ROW)).drop(FIRST_ROW))
            pending = pending.filter(pl.col(ROW_INDEX) != pl.col(FIRST_ROW)).drop(FIRST_ROW)
        return pl.concat(emitted).drop(LAST_EMITTED)

    def _split_by_edge(self, rows: pl.DataFrame) -> Sequence[tuple[int, pl.DataFrame]]:
        if len(self.operator.edges) == 1:
            return [(0, rows)]
        parts = rows.partition_by(EDGE, as_dict=True)
        return [(int(edge), part) for (edge,), part in parts.items()]

    def _to_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as they go on; those that have waited come in order, so that nothing can refuse them."""
        watermark = pl.col(WATERMARK) if self.node.is_immediate else pl.lit(None, pl.Int64)
        return rows.with_columns(watermark.alias(CLOCK)).drop(_INTERNAL_COLUMNS)


def _shares_hash(rows: pl.DataFrame) -> pl.Series:
    """Whether another row has the same hash: equal rows do, and hardly any others."""
    hashes = rows.hash_rows().to_numpy()
    in_order = np.sort(hashes)
    shared = in_order[1:][in_order[1:] == in_order[:-1]]
    return pl.Series(np.isin(hashes, shared) if len(shared) else np.zeros(len(hashes), np.bool_))
