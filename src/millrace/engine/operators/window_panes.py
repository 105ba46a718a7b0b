"""From cells that fire to panes: values, retractions, numbers, and what travels on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.engine.operators.emit import PAIR
from millrace.engine.operators.partials import Partials
from millrace.engine.plan import Operator

_PLACED = ("event_time", "window_start", "window_end")
_PASSING = ("timing", "_shows", "_fires", "_expires", "_came", "final")
"""What concerns a cell in one batch alone."""
_STANDS = "_stands"
"""Of a value that was shown, whether it stands downstream: not since its window has grown."""


@dataclass(frozen=True, eq=False)
class Showing:
    """How one operator shows its cells."""

    operator: Operator
    partials: Partials

    @cached_property
    def delta(self) -> bool:
        """Whether panes hold only what is new."""
        return self.operator.node.windowing.output == "delta"

    @cached_property
    def names(self) -> list[str]:
        """The aggregates."""
        return list(self.operator.node.aggregates)

    @cached_property
    def nothing_shown(self) -> pl.Expr:
        """The values that hold downstream, of a window that has shown nothing."""
        schema = self.operator.node.schema
        fields = {name: schema[name] for name in (*_PLACED, *self.names)}
        return pl.lit([], pl.List(pl.Struct({**fields, _STANDS: pl.Boolean})))

    def fresh_of(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Partials of what no pane has shown yet, merged per cell."""
        columns = self.partials.columns
        new = pieces.filter(pl.col("~_n") > 0)
        renamed = new.select(
            *self.partials.keys, "_start", "_end", *[pl.col(f"~{c}").alias(c) for c in columns]
        )
        return self.partials.merged(renamed, per=("_start", "_end")).rename({c: f"~{c}" for c in columns})

    def show(
        self, cells: pl.DataFrame, passed: tuple[int, int], young: Sequence[pl.Expr] = ()
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes and changes of the cells that fire or expire, and all cells as they are then; `young`: aggregates that some windows lack."""
        before, after = passed
        windowing, end = self.operator.node.windowing, pl.col("_end")
        timing = (
            pl.when(end > after)
            .then(pl.lit("early"))
            .when(end > before)
            .then(pl.lit("on_time"))
            .otherwise(pl.lit("late"))
        )
        cells = cells.with_columns(timing.alias("timing"))
        new, fires = pl.col("_new") > 0, pl.col("_fires")
        punctual = (pl.col("timing") == "on_time") & (windowing.on_time == "always")
        shows = fires & (new | punctual)
        if windowing.closing != "none":
            shows = shows | (pl.col("_expires") & new)
        if windowing.closing == "always":
            shows = shows | pl.col("_expires") | pl.col("_closed")
        cells = cells.with_columns(shows.alias("_shows"))
        kept = [c for c in cells.columns if c not in _PASSING]
        showing = cells.filter("_shows")
        if showing.is_empty():
            return self._no_shown, self._no_changes, cells.select(kept)
        loud = self._valued(showing, young)
        written = self._after(loud).select(kept)
        if showing.height < cells.height:
            written = pl.concat([cells.filter(~pl.col("_shows")).select(kept), written])
        return *self._panes(loud, young), written

    @cached_property
    def _no_changes(self) -> pl.DataFrame:
        return self.operator.node.schema.to_frame()

    @cached_property
    def _no_shown(self) -> pl.DataFrame:
        return self._no_changes.with_columns(pl.lit(0, pl.Int64).alias(PAIR))

    def _valued(self, loud: pl.DataFrame, young: Sequence[pl.Expr]) -> pl.DataFrame:
        """Cells with the values of their panes, numbered and dated."""
        windowing, end = self.operator.node.windowing, pl.col("_end")
        time = {"end": pl.lit(None, pl.Int64), "earliest": pl.col("_lo"), "latest": pl.col("_hi")}[
            windowing.time
        ]
        early = pl.col("timing") == "early"
        loud = loud.with_columns(
            pl.coalesce(time, end - 1).alias("event_time"),
            pl.col("_start").alias("window_start"),
            end.alias("window_end"),
            (pl.col("_index") - pl.col("_index0")).alias("index"),
            pl.when(early)
            .then(pl.lit(-1, pl.Int64))
            .otherwise(pl.col("_settled") - pl.col("_settled0"))
            .alias("settled_index"),
            (pl.col("_closed") | pl.col("_expires")).alias("final"),
            *self.partials.result_exprs,
        ).with_columns(young)
        one = pl.col("_shown").list.first()
        equal = [one.struct.field(name).eq_missing(pl.col(name)) for name in (*_PLACED, *self.names)]
        same = (pl.col("_shown").list.len() == 1) & one.struct.field(_STANDS) & pl.all_horizontal(equal)
        return loud.with_row_index(PAIR).with_columns(
            pl.col(PAIR).cast(pl.Int64), same.fill_null(value=False).alias("_same")
        )

    def _panes(self, loud: pl.DataFrame, young: Sequence[pl.Expr]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What is shown, with what it replaces; and what changes downstream."""
        columns = [*self.operator.node.schema, PAIR]
        plus = loud.with_columns(pl.lit(panes.ADD).alias("op"))
        if not self.delta and not (loud["_shown"].list.len() > 0).any():
            shown = plus.select(columns)
            return shown if self.operator.shows else self._no_shown, shown.drop(
                PAIR
            ) if self.operator.travels else self._no_changes
        minus = self._withdrawn(loud)
        shown = (
            self._of_new(plus).with_columns(young).select(columns)
            if self.delta
            else pl.concat([minus.select(columns), plus.select(columns)])
        )
        gone = minus.filter(~pl.col("_same") & pl.col(_STANDS))
        changed = pl.concat([gone.select(columns), plus.filter(~pl.col("_same")).select(columns)]).drop(PAIR)
        return (
            shown if self.operator.shows else shown.clear(),
            changed if self.operator.travels else changed.clear(),
        )

    def _withdrawn(self, loud: pl.DataFrame) -> pl.DataFrame:
        held = loud.filter(pl.col("_shown").list.len() > 0).explode("_shown", empty_as_null=False)
        old = [pl.col("_shown").struct.field(name).alias(name) for name in (*_PLACED, *self.names, _STANDS)]
        grown = (pl.col("window_start") != pl.col("_start")) | (pl.col("window_end") != pl.col("_end"))
        index = pl.when(grown).then(pl.col("_index")).otherwise(pl.col("index"))
        return held.with_columns(*old, pl.lit(panes.RETRACT).alias("op")).with_columns(index.alias("index"))

    def grown(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Cells whose window has grown, or into another one: what they showed no longer stands downstream, and their panes are counted anew."""
        fallen = pl.element().struct.with_fields(pl.lit(value=False).alias(_STANDS))
        return cells.with_columns(
            pl.col("_shown").list.eval(fallen),
            pl.col("_index").alias("_index0"),
            pl.col("_settled").alias("_settled0"),
        )

    def withdrawn(self, cells: pl.DataFrame, time: int) -> pl.DataFrame:
        """What leaves the job when windows are no more and panes hold whole values: each that had shown something is taken back."""
        if self.operator.node.windowing.output != "value" or not self.operator.shows:
            return self._no_shown
        early = pl.col("_end") > time
        about = cells.with_columns(
            pl.col("_index").alias("index"),
            pl.when(early).then(pl.lit(-1, pl.Int64)).otherwise(pl.col("_settled")).alias("settled_index"),
            pl.when(early).then(pl.lit("early")).otherwise(pl.lit("late")).alias("timing"),
            pl.lit(value=True).alias("final"),
        )
        back = self._withdrawn(about).filter(_STANDS)
        number = -1 - pl.int_range(pl.len(), dtype=pl.Int64)
        return back.with_columns(number.alias(PAIR)).select(self._no_shown.columns)

    def taken_back(self, cells: pl.DataFrame) -> pl.DataFrame:
        """The changes downstream that this makes."""
        about = {"index": 0, "settled_index": 0, "timing": "early", "final": False}
        loud = cells.with_columns(
            pl.lit(value, self.operator.node.schema[name]).alias(name) for name, value in about.items()
        )
        back = self._withdrawn(loud).filter(_STANDS).select(self.operator.node.schema.names())
        return back if self.operator.travels else back.clear()

    def _of_new(self, plus: pl.DataFrame) -> pl.DataFrame:
        """Panes with the values of what is new alone."""
        columns, nothing = self.partials.columns, self.partials.empty
        kept = plus.drop(*self.names, *columns).with_columns(
            pl.when(pl.col("_new") > 0).then(pl.col(f"~{c}")).otherwise(pl.lit(nothing[c])).alias(c)
            for c in columns
        )
        return kept.with_columns(self.partials.result_exprs)

    def _after(self, loud: pl.DataFrame) -> pl.DataFrame:
        """Cells once their panes were shown."""
        none = pl.lit(None, pl.Int64)
        value = pl.struct(*_PLACED, *self.names, pl.lit(value=True).alias(_STANDS))
        remembers = self.operator.travels or not self.delta
        shown = pl.concat_list(value) if remembers else self.nothing_shown
        settles = (pl.col("timing") != "early").cast(pl.Int64)
        return loud.with_columns(
            shown.alias("_shown"),
            pl.col("_index") + 1,
            pl.col("_settled") + settles,
            pl.lit(0, pl.Int64).alias("_new"),
            none.alias("_lo"),
            none.alias("_hi"),
            *([pl.lit(0, pl.Int64).alias("~_n")] if self.delta else []),
        )
