"""Interval joins over rows: those of both sides are kept until no partner can come any more. All on columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.engine.arrivals import arrived, said_of
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.emit import PAIR, Stepped
from millrace.engine.operators.ordered_windows import LEAST, SequenceWindows
from millrace.engine.progress import END, Progress
from millrace.engine.state import Layout, SlotState
from millrace.graph.build.join import SIDES, IntervalJoin

LEFT, RIGHT = SIDES
ID = ("_src", "_off", "_nth")
"""With the key, what tells rows apart in every slot: where they come from, and which of those that a step made of one row."""


@dataclass(frozen=True, eq=False)
class IntervalPairs(SequenceWindows):
    """The operator of an interval join. Pairs are shown as soon as both rows are there, rows without a partner when none can come."""

    @cached_property
    def node(self) -> IntervalJoin:
        """What is joined."""
        node = self.operator.node
        assert isinstance(node, IntervalJoin)
        return node

    @cached_property
    def _kept(self) -> list[str]:
        return ["_t", "_src", "_off", *SIDES]

    @cached_property
    def _no_rows(self) -> pl.DataFrame:
        """No rows that are kept: `_until` is the watermark at which nothing can come for them any more."""
        empty, number = self.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        return empty.select(
            *self.node.keys,
            number.alias("_t"),
            *SIDES,
            number.alias("_until"),
            *[number.alias(c) for c in ID],
        ).clear()

    @cached_property
    def _no_met(self) -> pl.DataFrame:
        return self._no_rows.select(*self.node.keys, *ID, "_until")

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: rows are judged, meet those that are kept and each other; the watermark moves; what waited in vain is shown."""
        id = self.operator.id
        saved = state.values.get(id) or {"progress": None, "time": LEAST}
        said = said_of(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(said, body.now)
        after = before.move(said, body.now, end=body.end)
        rows, late = self._judged(arrived(self.operator, blocks, said, before))
        since, time = saved["time"], LEAST if after.low is None else after.low
        new = self._numbered(rows)
        kept = self._still(state, "rows", since)
        pairs, met = self._pairs(kept, new)
        waits = pl.col("_until") > time
        state = state.append(id, "rows", new.filter(waits), self._keeping(since))
        lonely = self._lonely(
            pl.concat([kept, new]).filter(~waits), pl.concat([self._still(state, "met", since), met])
        )
        state = state.append(id, "met", met.filter(waits), self._keeping(since))
        shown = self._shown(pl.concat([pairs, lonely]) if lonely.height else pairs)
        state = state.expire(id, "rows", time).expire(id, "met", time)
        low = None if after.low is None else after.low if after.low >= END else after.low - self.node.hold
        state = state.with_values(id, {"progress": after.to_json(), "time": time})
        changes = shown.drop(PAIR) if self.operator.travels else self.no_panes
        return Stepped(
            state, low, shown if self.operator.shows else self.no_shown, changes, late, after.reaches(said)
        )

    def _keeping(self, since: int) -> Layout:
        until = pl.col("_until")
        return Layout(until, until, lambda frame: frame.filter(until > since))

    def _still(self, state: SlotState, name: str, since: int) -> pl.DataFrame:
        """What of a table has not expired."""
        empty = self._no_rows if name == "rows" else self._no_met
        frames = [chunk.frame for chunk in state.table(self.operator.id, name).chunks if chunk.high > since]
        return pl.concat([empty, *frames]).filter(pl.col("_until") > since)

    def _numbered(self, rows: pl.DataFrame | None) -> pl.DataFrame:
        if rows is None:
            return self._no_rows
        left = pl.col("_t") + self.node.upper
        until = pl.when(pl.col(LEFT).is_not_null()).then(left).otherwise(pl.col("_t") - self.node.lower + 1)
        number = pl.int_range(pl.len(), dtype=pl.Int64).over("_src", "_off")
        return rows.select(
            *self.node.keys, "_t", *SIDES, until.alias("_until"), "_src", "_off", number.alias("_nth")
        )

    def _pairs(self, kept: pl.DataFrame, new: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """New rows beside their partners, kept or new; and which rows have met one."""
        none = self._met(kept.clear(), new.clear())
        if new.is_empty():
            return none.select(self._columns), self._no_met
        keys = list(self.node.keys)
        near = kept.join(new.select(keys).unique(), on=keys, how="semi")
        found = pl.concat([none, self._met(new, pl.concat([near, new])), self._met(near, new)])
        keys_and = [*keys, *ID, "_until"]
        met = [
            found.select(pl.col(c if c in keys else f"{c}{side}").alias(c) for c in keys_and)
            for side in ("", "_right")
        ]
        return found.select(self._columns), pl.concat(met).unique() if self.node.outer else self._no_met

    def _met(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """The rows of the left side in one frame beside those of the right side in another, within the bounds."""
        ours = left.filter(pl.col(LEFT).is_not_null()).drop(RIGHT)
        theirs = right.filter(pl.col(RIGHT).is_not_null()).drop(LEFT)
        apart = pl.col("_t_right") - pl.col("_t")
        pairs = ours.join(theirs, on=list(self.node.keys), how="inner", maintain_order="left_right")
        return pairs.filter((apart >= self.node.lower) & (apart < self.node.upper))

    @cached_property
    def _columns(self) -> list[str]:
        return [*self.node.keys, LEFT, RIGHT, "_t", "_t_right"]

    def _lonely(self, over: pl.DataFrame, met: pl.DataFrame) -> pl.DataFrame:
        """Of rows that no partner can meet any more, those that none has met, if they are wanted."""
        wanted = [
            pl.col(side).is_not_null()
            for side, how in ((LEFT, "left"), (RIGHT, "right"))
            if self.node.how in (how, "full")
        ]
        alone = over.filter(pl.any_horizontal(wanted or [pl.lit(value=False)])).join(
            met, on=[*self.node.keys, *ID], how="anti", nulls_equal=True
        )
        return (
            alone.sort("_t", *ID).with_columns(pl.lit(None, pl.Int64).alias("_t_right")).select(self._columns)
        )

    def _shown(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Pairs as panes: from the earlier row to just after the later one."""
        first, last = pl.min_horizontal("_t", "_t_right"), pl.max_horizontal("_t", "_t_right")
        zero = pl.lit(0, pl.Int64)
        return rows.select(
            *self.node.keys,
            *self.node.fields,
            last.alias("event_time"),
            first.alias("window_start"),
            (last + 1).alias("window_end"),
            zero.alias("index"),
            zero.alias("settled_index"),
            pl.lit("on_time").alias("timing"),
            pl.lit(value=True).alias("final"),
            pl.lit(panes.ADD).alias("op"),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR),
        ).select(*self.node.schema, PAIR)
