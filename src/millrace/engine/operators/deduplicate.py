"""Rows without their copies. What is kept of a row that went on is what its copies have in common with it, for as long as one may come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.arrivals import arrived, refused_rows, said_of
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.emit import Stepped
from millrace.engine.operators.ordered_windows import LEAST, SequenceWindows
from millrace.engine.progress import Progress, Said
from millrace.engine.source import RAW
from millrace.engine.state import Layout, SlotState

_INTERNAL = ("_w", "_topic", "_row", "_t", "_via")


@dataclass(frozen=True, eq=False)
class Deduplicated(SequenceWindows):
    """The operator of a deduplication: rows that may have an earlier copy wait, as those of patterns do; others go on at once."""

    @cached_property
    def node(self) -> graph.Deduplication:
        """What makes rows copies of each other."""
        node = self.operator.node
        assert isinstance(node, graph.Deduplication)
        return node

    @cached_property
    def _remembered(self) -> list[str]:
        return list(dict.fromkeys([*self.node.identity, "event_time"]))

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: rows are judged, the first of their kind go on and are remembered, and what can have no more copies is forgotten."""
        id = self.operator.id
        saved = state.values.get(id) or {"progress": None, "time": LEAST}
        said = said_of(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(said, body.now)
        after = before.move(said, body.now, end=body.end)
        time = LEAST if after.low is None else after.low
        taken, late = self._taken_or_refused(self._come(blocks, said, before))
        if not self.node.at_once:
            state, taken = self._released(state, taken, saved["time"], time)
        rows = {}
        if taken is not None and not taken.is_empty():
            state, kept = self._first(state, taken.sort(ORDER), time)
            rows = {
                int(via): self._onward(part)
                for (via,), part in kept.partition_by("_via", as_dict=True).items()
            }
        state = state.with_values(id, {"progress": after.to_json(), "time": time}).expire(id, "seen", time)
        return Stepped(state, after.low, self.no_shown, self.no_panes, late, after.reaches(said), rows=rows)

    def _come(self, blocks: list[Block], said: dict[str, Said], progress: Progress) -> pl.DataFrame | None:
        """All rows of the batch, each with the edge that it came by."""
        ways: dict[int, list[Block]] = {}
        for block in blocks:
            ways.setdefault(int(block.channel.partition("/")[0]), []).append(block)
        frames = [
            rows.with_columns(pl.lit(via, pl.Int64).alias("_via"))
            for via, mine in ways.items()
            if (rows := arrived(self.operator, mine, said, progress)) is not None
        ]
        if not frames:
            return None
        rows = pl.concat(frames, how="diagonal_relaxed").drop("_row").with_row_index("_row")
        rows = rows.with_columns(
            pl.lit(None, dtype).alias(name) for name, dtype in RAW.items() if name not in rows.columns
        )
        own = [name for name in self.node.schema if name in rows.columns]
        return rows.select(*own, *sorted(name for name in rows.columns if name.startswith("_")))

    def _taken_or_refused(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Without the rows of which nobody can tell any more whether they are copies."""
        if rows is None:
            return None, None
        behind = (
            pl.col("_w") >= pl.col("_t") + self.node.within
            if self.node.at_once
            else pl.col("_w") > pl.col("_t")
        )
        refused = pl.col("_ahead") | behind.fill_null(value=False)
        reason = pl.when(pl.col("_ahead")).then(pl.lit("future")).otherwise(pl.lit("late"))
        verdicts = rows.filter(refused).select(
            "_row", reason.alias("reason"), pl.lit(1, pl.Int64).alias("missed")
        )
        return rows.filter(~refused), None if verdicts.is_empty() else refused_rows(rows, verdicts)

    def _first(self, state: SlotState, rows: pl.DataFrame, time: int) -> tuple[SlotState, pl.DataFrame]:
        """The rows, in order, that are no copies of others or of earlier ones; those are remembered."""
        identity, until = self.node.identity, pl.col("event_time") + self.node.within
        layout = Layout(pl.col("event_time"), until, lambda frame: frame.filter(until > time))
        seen = self._seen(state, rows)
        if self.node.at_once:
            kept = rows.unique(identity, keep="first", maintain_order=True).join(
                seen, on=identity, how="anti", nulls_equal=True
            )
        else:
            kept = self._apart(rows, seen)
        return state.append(self.operator.id, "seen", kept.select(self._remembered), layout), kept

    def _seen(self, state: SlotState, rows: pl.DataFrame) -> pl.DataFrame:
        """What is remembered of earlier rows that these may be copies of."""
        identity, within = self.node.identity, 0 if self.node.at_once else self.node.within
        columns = self._remembered
        first, last = rows.select(
            pl.col("_t").min().alias("first") - within, pl.col("_t").max().alias("last")
        ).row(0)
        near = pl.col("event_time").is_between(first, last)
        chunks = [
            chunk
            for chunk in state.table(self.operator.id, "seen").chunks
            if chunk.low <= last and chunk.high - self.node.within >= first
        ]
        wanted = rows.select(identity).unique()
        found = [
            chunk.frame.filter(near).join(wanted, on=identity, how="semi", nulls_equal=True)
            for chunk in chunks
        ]
        return pl.concat([rows.select(columns).clear(), *(frame.select(columns) for frame in found)])

    def _apart(self, rows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
        """The first row of each kind, then the first that is not close to it, and so on."""
        identity, time = self.node.identity, pl.col("event_time")
        latest = seen.group_by(identity).agg(time.max().alias("_last"))
        left = (
            rows.drop("_row")
            .with_row_index("_row")
            .join(latest, on=identity, how="left", nulls_equal=True, maintain_order="left")
        )
        kept = [left.clear()]
        while not left.is_empty():
            left = left.filter(pl.col("_last").is_null() | (time >= pl.col("_last") + self.node.within))
            left = left.with_columns(
                time.first().over(identity).alias("_last"),
                pl.col("_row").first().over(identity).alias("_kept"),
            )
            kept.append(left.filter(pl.col("_row") == pl.col("_kept")).drop("_kept"))
            left = left.filter(pl.col("_row") != pl.col("_kept")).drop("_kept")
        return pl.concat(kept).drop("_last")

    def _onward(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as they go on; those that have waited come in order, so that nothing can refuse them."""
        mark = pl.col("_w") if self.node.at_once else pl.lit(None, pl.Int64)
        return rows.with_columns(mark.alias("_clock")).drop(_INTERNAL)
