"""Regular patterns: what is kept of a key is its newest rows, as columns. A batch writes the rows of the keys it touched; the newest count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.operators.match import Matches
from millrace.engine.progress import END
from millrace.engine.state import Layout, SlotState, stacked
from millrace.patterns.cep.contiguous import DUE, FIRST, UNTIL, Contiguous

TABLE = "stretches"


@dataclass(frozen=True, eq=False)
class ContiguousMatches(Matches):
    """The operator of a regular pattern."""

    @cached_property
    def reader(self) -> Contiguous:
        """What finds it."""
        return Contiguous(self.matcher, self.matcher.timeouts)

    @cached_property
    def _no_rows(self) -> pl.DataFrame:
        return pl.Schema({**self.reader.schema, "_seq": pl.Int64()}).to_frame()

    def _said(
        self, state: SlotState, free: pl.DataFrame | None, seq: int, passed: tuple[int, int], *, ended: bool
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """Rows taken in order, time that has passed, and the matches found."""
        id, (since, time) = self.operator.id, passed
        rows = (
            self.matcher.schema.to_frame()
            if free is None
            else free.sort(ORDER).select(list(self.matcher.schema))
        )
        known = self._kept_of(state, rows, since, END if ended else time)
        if rows.is_empty() and known.is_empty():
            return state.expire(id, TABLE, time), self.no_shown, {}
        done = self.reader.step(known, rows, END if ended else time)
        layout = Layout(
            pl.col(DUE), pl.col(UNTIL), lambda frame: self._newest_rows(frame).filter(pl.col(UNTIL) > since)
        )
        state = state.append(id, TABLE, self._rewritten(known, done.kept, seq), layout).expire(
            id, TABLE, time
        )
        sides = {graph.TIMEOUTS: self._panes_of(done.timeouts)} if self.reader.timeouts else {}
        return state, self._panes_of(done.matches), sides

    def _kept_of(self, state: SlotState, rows: pl.DataFrame, since: int, time: int) -> pl.DataFrame:
        """The rows kept of the keys that rows came for, or that time moves."""
        keys = list(self.node.keys)
        chunks = [chunk for chunk in state.table(self.operator.id, TABLE).chunks if chunk.high > since]
        moved = [
            chunk.frame.filter(pl.col(DUE) <= time).select(keys) for chunk in chunks if chunk.low <= time
        ]
        wanted = pl.concat([rows.select(keys), *moved]).unique()
        found = [
            chunk.frame.join(wanted, on=keys, how="semi", nulls_equal=True, maintain_order="left")
            for chunk in chunks
        ]
        newest = self._newest_rows(stacked([*found, self._no_rows]))
        return newest.filter(pl.col(FIRST).is_not_null() & (pl.col(UNTIL) > since))

    def _newest_rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(pl.col("_seq") == pl.col("_seq").max().over(self.node.keys))

    def _rewritten(self, known: pl.DataFrame, kept: pl.DataFrame, seq: int) -> pl.DataFrame:
        """What is kept now; a key of which nothing is left says so until what was kept of it would have ended anyway."""
        keys, number = list(self.node.keys), pl.lit(seq, pl.Int64).alias("_seq")
        gone = known.join(kept.select(keys).unique(), on=keys, how="anti", nulls_equal=True).unique(keys)
        nothing = gone.select(*keys, pl.lit(END, pl.Int64).alias(DUE), UNTIL, number)
        return pl.concat([kept.with_columns(number).select(self._no_rows.columns), nothing], how="diagonal")
