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
    old: pl.DataFrame
    timing: str

    @property
    def group(self) -> list[str]:
        """What tells panes of different things apart."""
        return [*self.node.keys, "_end"]


def pane_layout(keys: list[str]) -> Layout:
    """How the numbers of panes are kept: the greatest count wins."""
    end = pl.col("_end")
    return Layout(end, end, lambda frame: frame.group_by(*keys, "_end").agg(pl.col(*NUMBERS).max()))


def emit(firing: Firing, numbers: pl.DataFrame, low: int, horizon: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Panes to show, changes to pass on, and the numbers to remember.

    `numbers` counts the panes shown so far; a group that has a value in `old` but no number has had exactly its on-time pane.
    """
    group, node = firing.group, firing.node
    had = firing.old.select(*group, pl.lit(True).alias("_had"))
    counted = numbers.group_by(group).agg(pl.col(*NUMBERS).max())
    settles = 0 if firing.timing == "early" else 1

    def numbered(frame: pl.DataFrame) -> pl.DataFrame:
        frame = frame.join(had, on=group, how="left", nulls_equal=True).join(counted, on=group, how="left", nulls_equal=True)
        before = pl.col("_had").fill_null(value=False).cast(pl.Int64)
        return frame.with_columns(pl.col("_shown").fill_null(before), pl.col("_settled").fill_null(before)).drop("_had")

    withdrawn = numbered(firing.old.join(firing.new, on=group, how="anti", nulls_equal=True))
    new = numbered(firing.new)
    replaced = firing.old.join(new.select(*group, *NUMBERS), on=group, how="inner", nulls_equal=True)
    remembered = pl.concat([new, withdrawn]).select(*group, pl.col("_shown") + 1, pl.col("_settled") + settles)
    moment = _Moment(node, firing.timing, low, horizon)
    shown = [moment.panes(withdrawn, panes.RETRACT), moment.panes(new, panes.ADD)]
    if node.windowing.output == "value_and_retract":
        shown.insert(0, moment.panes(replaced, panes.RETRACT))
    gone, come = _changed(firing, new, replaced)
    travelling = [moment.panes(withdrawn, panes.RETRACT), moment.panes(gone, panes.RETRACT), moment.panes(come, panes.ADD)]
    return pl.concat(shown), pl.concat(travelling), remembered


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
