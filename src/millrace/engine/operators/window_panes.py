"""From cells that fire to panes: values, retractions, numbers, and what travels on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.engine.operators.partials import Partials
from millrace.engine.plan import Operator
from millrace.values.columns import (
    ARRIVED_ROWS,
    END,
    EXPIRES,
    FIRES,
    HIGHEST_TIME,
    IS_CLOSED,
    IS_CURRENT,
    IS_SHOWN,
    IS_UNCHANGED,
    LOWEST_TIME,
    NEW_ROWS,
    PAIR,
    PANE_COUNT,
    PANES_BEFORE,
    SETTLED_BEFORE,
    SETTLED_COUNT,
    SHOWN_VALUES,
    START,
)

_WINDOW_COLUMNS = ("event_time", "window_start", "window_end")
_BATCH_COLUMNS = ("timing", IS_SHOWN, FIRES, EXPIRES, ARRIVED_ROWS, "final")
"""What concerns a cell in one batch alone."""


@dataclass(frozen=True, eq=False)
class WindowPanes:
    """How one operator shows its cells."""

    operator: Operator
    partials: Partials

    @cached_property
    def is_discarding(self) -> bool:
        """Whether panes hold only what is new."""
        return self.operator.aggregation.windowing.accumulation == "discarding"

    @cached_property
    def aggregate_names(self) -> list[str]:
        """The aggregates."""
        return list(self.operator.aggregation.aggregates)

    @cached_property
    def no_shown_values(self) -> pl.Expr:
        """The values that hold downstream, of a window that has shown nothing."""
        schema = self.operator.node.schema
        fields = {name: schema[name] for name in (*_WINDOW_COLUMNS, *self.aggregate_names)}
        return pl.lit([], pl.List(pl.Struct({**fields, IS_CURRENT: pl.Boolean})))

    def merge_new(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Partials of what no pane has shown yet, merged per cell."""
        columns = self.partials.value_columns
        new = cells.filter(pl.col("~_n") > 0)
        renamed = new.select(*self.partials.keys, START, END, *[pl.col(f"~{c}").alias(c) for c in columns])
        return self.partials.merge(renamed, group=(START, END)).rename({c: f"~{c}" for c in columns})

    def emit(
        self, cells: pl.DataFrame, interval: tuple[int, int], added_masks: Sequence[pl.Expr] = ()
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes and changes of the cells that fire or expire, and all cells as they are then; `young`:
        aggregates that some windows lack.
        """
        before, after = interval
        windowing, end = self.operator.aggregation.windowing, pl.col(END)
        timing = (
            pl.when(end > after)
            .then(pl.lit("early"))
            .when(end > before)
            .then(pl.lit("on_time"))
            .otherwise(pl.lit("late"))
        )
        cells = cells.with_columns(timing.alias("timing"))
        has_new, fires = pl.col(NEW_ROWS) > 0, pl.col(FIRES)
        is_forced = (pl.col("timing") == "on_time") & (windowing.on_time == "always")
        is_shown = fires & (has_new | is_forced)
        if windowing.closing != "none":
            is_shown = is_shown | (pl.col(EXPIRES) & has_new)
        if windowing.closing == "always":
            is_shown = is_shown | pl.col(EXPIRES) | pl.col(IS_CLOSED)
        cells = cells.with_columns(is_shown.alias(IS_SHOWN))
        kept = [c for c in cells.columns if c not in _BATCH_COLUMNS]
        showing = cells.filter(IS_SHOWN)
        if showing.is_empty():
            return self._empty_panes, self._empty_changes, cells.select(kept)
        valued = self._compute_values(showing, added_masks)
        updated = self._advance_cells(valued).select(kept)
        if showing.height < cells.height:
            updated = pl.concat([cells.filter(~pl.col(IS_SHOWN)).select(kept), updated])
        return *self._to_panes(valued, added_masks), updated

    @cached_property
    def _empty_changes(self) -> pl.DataFrame:
        return self.operator.node.schema.to_frame()

    @cached_property
    def _empty_panes(self) -> pl.DataFrame:
        return self._empty_changes.with_columns(pl.lit(0, pl.Int64).alias(PAIR))

    def _compute_values(self, cells: pl.DataFrame, added_masks: Sequence[pl.Expr]) -> pl.DataFrame:
        """Cells with the values of their panes, numbered and dated."""
        windowing, end = self.operator.aggregation.windowing, pl.col(END)
        time = {
            "end": pl.lit(None, pl.Int64),
            "earliest": pl.col(LOWEST_TIME),
            "latest": pl.col(HIGHEST_TIME),
        }[windowing.time]
        early = pl.col("timing") == "early"
        cells = cells.with_columns(
            pl.coalesce(time, end - 1).alias("event_time"),
            pl.col(START).alias("window_start"),
            end.alias("window_end"),
            (pl.col(PANE_COUNT) - pl.col(PANES_BEFORE)).alias("index"),
            pl.when(early)
            .then(pl.lit(-1, pl.Int64))
            .otherwise(pl.col(SETTLED_COUNT) - pl.col(SETTLED_BEFORE))
            .alias("settled_index"),
            (pl.col(IS_CLOSED) | pl.col(EXPIRES)).alias("final"),
        )
        cells = self.partials.add_results(cells).with_columns(added_masks)
        shown_value = pl.col(SHOWN_VALUES).list.first()
        equal = [
            shown_value.struct.field(name).eq_missing(pl.col(name))
            for name in (*_WINDOW_COLUMNS, *self.aggregate_names)
        ]
        is_unchanged = (
            (pl.col(SHOWN_VALUES).list.len() == 1)
            & shown_value.struct.field(IS_CURRENT)
            & pl.all_horizontal(equal)
        )
        return cells.with_row_index(PAIR).with_columns(
            pl.col(PAIR).cast(pl.Int64), is_unchanged.fill_null(value=False).alias(IS_UNCHANGED)
        )

    def _to_panes(
        self, cells: pl.DataFrame, added_masks: Sequence[pl.Expr]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What is shown, with what it replaces; and what changes downstream."""
        columns = [*self.operator.node.schema, PAIR]
        additions = cells.with_columns(pl.lit(panes.ADD).alias("op"))
        if not self.is_discarding and not (cells[SHOWN_VALUES].list.len() > 0).any():
            shown = additions.select(columns)
            return shown if self.operator.shows else self._empty_panes, shown.drop(
                PAIR
            ) if self.operator.travels else self._empty_changes
        retractions = self._retractions(cells)
        shown = (
            self._new_values(additions).with_columns(added_masks).select(columns)
            if self.is_discarding
            else pl.concat([retractions.select(columns), additions.select(columns)])
        )
        retracted = retractions.filter(~pl.col(IS_UNCHANGED) & pl.col(IS_CURRENT))
        changed = pl.concat(
            [retracted.select(columns), additions.filter(~pl.col(IS_UNCHANGED)).select(columns)]
        ).drop(PAIR)
        return (
            shown if self.operator.shows else shown.clear(),
            changed if self.operator.travels else changed.clear(),
        )

    def _retractions(self, cells: pl.DataFrame) -> pl.DataFrame:
        shown_cells = cells.filter(pl.col(SHOWN_VALUES).list.len() > 0).explode(
            SHOWN_VALUES, empty_as_null=False
        )
        shown_columns = [
            pl.col(SHOWN_VALUES).struct.field(name).alias(name)
            for name in (*_WINDOW_COLUMNS, *self.aggregate_names, IS_CURRENT)
        ]
        has_grown = (pl.col("window_start") != pl.col(START)) | (pl.col("window_end") != pl.col(END))
        index = pl.when(has_grown).then(pl.col(PANE_COUNT)).otherwise(pl.col("index"))
        return shown_cells.with_columns(*shown_columns, pl.lit(panes.RETRACT).alias("op")).with_columns(
            index.alias("index")
        )

    def mark_grown(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Cells whose window has grown, or into another one: what they showed no longer stands downstream,
        and their panes are counted anew.
        """
        outdated = pl.element().struct.with_fields(pl.lit(value=False).alias(IS_CURRENT))
        return cells.with_columns(
            pl.col(SHOWN_VALUES).list.eval(outdated),
            pl.col(PANE_COUNT).alias(PANES_BEFORE),
            pl.col(SETTLED_COUNT).alias(SETTLED_BEFORE),
        )

    def retract_removed(self, cells: pl.DataFrame, time: int) -> pl.DataFrame:
        """What leaves the job when windows are no more and panes hold whole values:
        each that had shown something is taken back.
        """
        if self.operator.aggregation.windowing.accumulation != "accumulating" or not self.operator.shows:
            return self._empty_panes
        is_early = pl.col(END) > time
        retracted_cells = cells.with_columns(
            pl.col(PANE_COUNT).alias("index"),
            pl.when(is_early)
            .then(pl.lit(-1, pl.Int64))
            .otherwise(pl.col(SETTLED_COUNT))
            .alias("settled_index"),
            pl.when(is_early).then(pl.lit("early")).otherwise(pl.lit("late")).alias("timing"),
            pl.lit(value=True).alias("final"),
        )
        retractions = self._retractions(retracted_cells).filter(IS_CURRENT)
        number = -1 - pl.int_range(pl.len(), dtype=pl.Int64)
        return retractions.with_columns(number.alias(PAIR)).select(self._empty_panes.columns)

    def retract_downstream(self, cells: pl.DataFrame) -> pl.DataFrame:
        """The changes downstream that this makes."""
        pane_values = {"index": 0, "settled_index": 0, "timing": "early", "final": False}
        retracted_cells = cells.with_columns(
            pl.lit(value, self.operator.node.schema[name]).alias(name) for name, value in pane_values.items()
        )
        retractions = (
            self._retractions(retracted_cells).filter(IS_CURRENT).select(self.operator.node.schema.names())
        )
        return retractions if self.operator.travels else retractions.clear()

    def _new_values(self, additions: pl.DataFrame) -> pl.DataFrame:
        """Panes with the values of what is new alone."""
        columns, nothing = self.partials.value_columns, self.partials.empty
        kept = additions.drop(*self.aggregate_names, *columns).with_columns(
            pl.when(pl.col(NEW_ROWS) > 0).then(pl.col(f"~{c}")).otherwise(pl.lit(nothing[c])).alias(c)
            for c in columns
        )
        return self.partials.add_results(kept)

    def _advance_cells(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Cells once their panes were shown."""
        none = pl.lit(None, pl.Int64)
        value = pl.struct(*_WINDOW_COLUMNS, *self.aggregate_names, pl.lit(value=True).alias(IS_CURRENT))
        remembers = self.operator.travels or not self.is_discarding
        shown = pl.concat_list(value) if remembers else self.no_shown_values
        settled = (pl.col("timing") != "early").cast(pl.Int64)
        return cells.with_columns(
            shown.alias(SHOWN_VALUES),
            pl.col(PANE_COUNT) + 1,
            pl.col(SETTLED_COUNT) + settled,
            pl.lit(0, pl.Int64).alias(NEW_ROWS),
            none.alias(LOWEST_TIME),
            none.alias(HIGHEST_TIME),
            *([pl.lit(0, pl.Int64).alias("~_n")] if self.is_discarding else []),
        )
