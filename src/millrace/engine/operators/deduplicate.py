"""Rows without their copies. What is kept of a row that went on is what its copies have in common with it, for as long as one may come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.arrivals import collect_reports, format_late_rows, load_rows
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.emit import OperatorResult
from millrace.engine.operators.ordered_windows import BEFORE_ALL, OrderedWindowsOperator
from millrace.engine.progress import PartitionReport, Progress
from millrace.engine.routing import RAW_COLUMNS
from millrace.engine.state import Layout, SlotState

_INTERNAL_COLUMNS = ("_w", "_topic", "_row", "_t", "_via")


@dataclass(frozen=True, eq=False)
class DeduplicateOperator(OrderedWindowsOperator):
    """The operator of a deduplication: rows that may have an earlier copy wait, as those of patterns do; others go on at once."""

    @cached_property
    def node(self) -> graph.Deduplication:
        """What makes rows copies of each other."""
        node = self.operator.node
        assert isinstance(node, graph.Deduplication)
        return node

    @cached_property
    def _remembered_columns(self) -> list[str]:
        return list(dict.fromkeys([*self.node.identity_columns, "event_time"]))

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: rows are judged, the first of their kind go on and are remembered, and what can have no more copies is forgotten."""
        operator_id = self.operator.id
        saved = state.values.get(operator_id) or {"progress": None, "time": BEFORE_ALL}
        reports = collect_reports(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(reports, body.now)
        after = before.advance(reports, body.now, at_end=body.at_end)
        time = BEFORE_ALL if after.low_watermark is None else after.low_watermark
        accepted, late = self._split_late_rows(self._read_rows(blocks, reports, before))
        if not self.node.is_immediate:
            state, accepted = self._release(state, accepted, saved["time"], time)
        rows = {}
        if accepted is not None and not accepted.is_empty():
            state, emitted = self._drop_duplicates(state, accepted.sort(ORDER), time)
            rows = {
                int(edge): self._to_rows(part)
                for (edge,), part in emitted.partition_by("_via", as_dict=True).items()
            }
        state = state.with_values(operator_id, {"progress": after.to_json(), "time": time}).expire(
            operator_id, "seen", time
        )
        return OperatorResult(
            state,
            after.low_watermark,
            self.empty_panes,
            self.empty_changes,
            late,
            after.partition_watermarks(reports),
            rows=rows,
        )

    def _read_rows(
        self, blocks: list[Block], reports: dict[str, PartitionReport], progress: Progress
    ) -> pl.DataFrame | None:
        """All rows of the batch, each with the edge that it came by."""
        blocks_by_edge: dict[int, list[Block]] = {}
        for block in blocks:
            blocks_by_edge.setdefault(int(block.channel.partition("/")[0]), []).append(block)
        frames = [
            rows.with_columns(pl.lit(edge, pl.Int64).alias("_via"))
            for edge, edge_blocks in blocks_by_edge.items()
            if (rows := load_rows(self.operator, edge_blocks, reports, progress)) is not None
        ]
        if not frames:
            return None
        rows = pl.concat(frames, how="diagonal_relaxed").drop("_row").with_row_index("_row")
        rows = rows.with_columns(
            pl.lit(None, dtype).alias(name) for name, dtype in RAW_COLUMNS.items() if name not in rows.columns
        )
        columns = [name for name in self.node.schema if name in rows.columns]
        return rows.select(*columns, *sorted(name for name in rows.columns if name.startswith("_")))

    def _split_late_rows(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Without the rows of which nobody can tell any more whether they are copies."""
        if rows is None:
            return None, None
        behind = (
            pl.col("_w") >= pl.col("_t") + self.node.within
            if self.node.is_immediate
            else pl.col("_w") > pl.col("_t")
        )
        refused = pl.col("_ahead") | behind.fill_null(value=False)
        reason = pl.when(pl.col("_ahead")).then(pl.lit("future")).otherwise(pl.lit("late"))
        verdicts = rows.filter(refused).select(
            "_row", reason.alias("reason"), pl.lit(1, pl.Int64).alias("missed")
        )
        return rows.filter(~refused), None if verdicts.is_empty() else format_late_rows(rows, verdicts)

    def _drop_duplicates(
        self, state: SlotState, rows: pl.DataFrame, time: int
    ) -> tuple[SlotState, pl.DataFrame]:
        """The rows, in order, that are not copies of others or of earlier ones; those are remembered."""
        identity, until = self.node.identity_columns, pl.col("event_time") + self.node.within
        layout = Layout(pl.col("event_time"), until, lambda frame: frame.filter(until > time))
        seen = self._read_seen(state, rows)
        if self.node.is_immediate:
            emitted = rows.unique(identity, keep="first", maintain_order=True).join(
                seen, on=identity, how="anti", nulls_equal=True
            )
        else:
            emitted = self._drop_within(rows, seen)
        return state.append(
            self.operator.id, "seen", emitted.select(self._remembered_columns), layout
        ), emitted

    def _read_seen(self, state: SlotState, rows: pl.DataFrame) -> pl.DataFrame:
        """What is remembered of earlier rows that these may be copies of."""
        identity, within = self.node.identity_columns, 0 if self.node.is_immediate else self.node.within
        columns = self._remembered_columns
        first, last = rows.select(
            pl.col("_t").min().alias("first") - within, pl.col("_t").max().alias("last")
        ).row(0)
        near = pl.col("event_time").is_between(first, last)
        chunks = [
            chunk
            for chunk in state.table(self.operator.id, "seen").chunks
            if chunk.min_end <= last and chunk.max_end - self.node.within >= first
        ]
        identities = rows.select(identity).unique()
        found = [
            chunk.frame.filter(near).join(identities, on=identity, how="semi", nulls_equal=True)
            for chunk in chunks
        ]
        return pl.concat([rows.select(columns).clear(), *(frame.select(columns) for frame in found)])

    def _drop_within(self, rows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
        """The first row of each kind, then the first that is not close to it, and so on."""
        identity, time = self.node.identity_columns, pl.col("event_time")
        last_emitted = seen.group_by(identity).agg(time.max().alias("_last"))
        pending = (
            rows.drop("_row")
            .with_row_index("_row")
            .join(last_emitted, on=identity, how="left", nulls_equal=True, maintain_order="left")
        )
        emitted = [pending.clear()]
        while not pending.is_empty():
            pending = pending.filter(pl.col("_last").is_null() | (time >= pl.col("_last") + self.node.within))
            pending = pending.with_columns(
                time.first().over(identity).alias("_last"),
                pl.col("_row").first().over(identity).alias("_kept"),
            )
            emitted.append(pending.filter(pl.col("_row") == pl.col("_kept")).drop("_kept"))
            pending = pending.filter(pl.col("_row") != pl.col("_kept")).drop("_kept")
        return pl.concat(emitted).drop("_last")

    def _to_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as they go on; those that have waited come in order, so that nothing can refuse them."""
        watermark = pl.col("_w") if self.node.is_immediate else pl.lit(None, pl.Int64)
        return rows.with_columns(watermark.alias("_clock")).drop(_INTERNAL_COLUMNS)
