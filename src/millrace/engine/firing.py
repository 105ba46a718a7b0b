"""What operators over rows and over panes share: numbering panes, and shaping what is shown and what travels on."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from millrace import graph, panes
from millrace.engine.state import Layout, SlotState

NUMBERS = {"_shown": pl.Int64(), "_settled": pl.Int64()}


@dataclass(frozen=True)
class Stepped:
    """What a batch did to an operator."""

    state: SlotState
    low: int | None
    shown: pl.DataFrame
    """Panes for topics, shaped as the user asked."""
    changes: pl.DataFrame
    """Values and retractions for the next operator."""
    late: pl.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Firing:
    """The values of one batch's panes, before they are numbered.

    `new` and `old` have key columns, `_end` and aggregates: the values now, and those shown before. A group in `old` alone is withdrawn.
    """

    node: graph.Aggregation
    new: pl.DataFrame
    old: pl.DataFrame | None
    timing: str

    @property
    def group(self) -> list[str]:
        """What tells panes of different things apart."""
        return [*self.node.keys, "_end"]


@dataclass(frozen=True)
class Fired:
    """Panes to show, changes to pass on, and how many panes each group has had by now, where that must be remembered."""

    shown: pl.DataFrame
    changes: pl.DataFrame
    numbers: pl.DataFrame


def pane_layout(keys: list[str]) -> Layout:
    """How the numbers of panes are kept: the greatest count wins."""
    end = pl.col("_end")
    return Layout(end, end, lambda frame: frame.group_by(*keys, "_end").agg(pl.col(*NUMBERS).max()))


def no_numbers(keys: pl.DataFrame) -> pl.DataFrame:
    """An empty table of numbers for keys like these."""
    return keys.clear().with_columns(pl.lit(0, pl.Int64).alias(c) for c in ("_end", *NUMBERS))


def emit(firing: Firing, numbers: pl.DataFrame, low: int, horizon: int) -> Fired:
    """Numbers panes and shapes them.

    `numbers` counts the panes shown so far; a group that has a value in `old` but no number has had exactly its on-time pane.
    """
    moment = _Moment(firing.node, firing.timing, low, horizon)
    if numbers.is_empty() and (firing.old is None or firing.old.is_empty()):
        first = firing.new.with_columns(pl.lit(0, dtype).alias(column) for column, dtype in NUMBERS.items())
        panes_ = moment.panes(first, panes.ADD)
        return Fired(panes_, panes_, numbers if firing.timing == "on_time" else _counted(firing, first))
    return _emit_refined(firing, firing.new.clear() if firing.old is None else firing.old, numbers, moment)


def _emit_refined(firing: Firing, old: pl.DataFrame, numbers: pl.DataFrame, moment: _Moment) -> Fired:
    group = firing.group
    had = old.select(*group, pl.lit(1, pl.Int64).alias("_had"))
    counted = numbers.group_by(group).agg(pl.col(*NUMBERS).max())

    def numbered(frame: pl.DataFrame) -> pl.DataFrame:
        frame = frame.join(had, on=group, how="left", nulls_equal=True).join(counted, on=group, how="left", nulls_equal=True)
        before = pl.col("_had").fill_null(0)
        return frame.with_columns(pl.col("_shown").fill_null(before), pl.col("_settled").fill_null(before)).drop("_had")

    withdrawn = numbered(old.join(firing.new, on=group, how="anti", nulls_equal=True))
    new = numbered(firing.new)
    replaced = old.join(new.select(*group, *NUMBERS), on=group, how="inner", nulls_equal=True)
    gone, come = _changed(firing, new, replaced)
    withdrawals = moment.panes(withdrawn, panes.RETRACT)
    retracted = replaced if firing.node.windowing.output == "value_and_retract" else replaced.clear()
    return Fired(
        pl.concat([moment.panes(retracted, panes.RETRACT), withdrawals, moment.panes(new, panes.ADD)]),
        pl.concat([withdrawals, moment.panes(gone, panes.RETRACT), moment.panes(come, panes.ADD)]),
        _counted(firing, pl.concat([new, withdrawn])),
    )


def _counted(firing: Firing, numbered: pl.DataFrame) -> pl.DataFrame:
    settles = 0 if firing.timing == "early" else 1
    return numbered.select(*firing.group, pl.col("_shown") + 1, pl.col("_settled") + settles)


@dataclass(frozen=True)
class _Moment:
    node: graph.Aggregation
    timing: str
    low: int
    horizon: int

    def panes(self, frame: pl.DataFrame, op: str) -> pl.DataFrame:
        """Numbered values as panes."""
        windowing, end = self.node.windowing, pl.col("_end")
        once = self.timing == "on_time" and windowing.trigger.once
        settled = pl.lit(-1, pl.Int64) if self.timing == "early" else pl.col("_settled")
        return frame.with_columns(
            (end - 1).alias("event_time"),
            (end - windowing.window.size).alias("window_start"),
            end.alias("window_end"),
            pl.col("_shown").alias("index"),
            settled.alias("settled_index"),
            pl.lit(self.timing).alias("timing"),
            (pl.lit(once) | (end + self.horizon <= self.low)).alias("final"),
            pl.lit(op).alias("op"),
        ).select(list(self.node.schema))


def _changed(firing: Firing, new: pl.DataFrame, replaced: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of values that replace others, those that differ: old and new."""
    if replaced.is_empty():
        return replaced, new
    values = [*firing.group, *firing.node.aggregates]
    gone = replaced.join(new.select(values), on=values, how="anti", nulls_equal=True)
    come = new.join(replaced.select(values), on=values, how="anti", nulls_equal=True)
    return gone, come
