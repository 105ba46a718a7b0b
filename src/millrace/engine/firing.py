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
    pairs = _pairs(firing, old, numbers)
    new, had, same = pairs["_new"], pairs["_had"], pairs["_same"]
    refined, gone = new & had, had & ~new
    withdrawn = moment.panes(_was(pairs, gone, firing), panes.RETRACT)
    shown = [withdrawn, moment.panes(pairs.filter(new), panes.ADD)]
    if firing.node.windowing.output == "value_and_retract":
        shown.insert(0, moment.panes(_was(pairs, refined, firing), panes.RETRACT))
    changes = [
        withdrawn,
        moment.panes(_was(pairs, refined & ~same, firing), panes.RETRACT),
        moment.panes(pairs.filter(new & ~same), panes.ADD),
    ]
    return Fired(pl.concat(shown), pl.concat(changes), _counted(firing, pairs))


def _pairs(firing: Firing, old: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """Each group with its value now (`_new`), the one shown before (`_had`, columns `_was_…`), whether they are the `_same`, and its numbers."""
    group, names = firing.group, list(firing.node.aggregates)
    before = old.lazy().select(*group, *[pl.col(name).alias(f"_was_{name}") for name in names], pl.lit(value=True).alias("_had"))
    counted = numbers.lazy().group_by(group).agg(pl.col(*NUMBERS).max())
    yes = pl.col("_had").fill_null(value=False)
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"_was_{name}")) for name in names)
    return (
        firing.new.lazy()
        .with_columns(pl.lit(value=True).alias("_new"))
        .join(before, on=group, how="full", coalesce=True, nulls_equal=True)
        .join(counted, on=group, how="left", nulls_equal=True)
        .with_columns(pl.col("_new").fill_null(value=False), yes, (yes & same).alias("_same"))
        .with_columns(pl.col(column).fill_null(yes.cast(pl.Int64)) for column in NUMBERS)
        .collect()
    )


def _was(pairs: pl.DataFrame, these: pl.Series, firing: Firing) -> pl.DataFrame:
    """The values shown before, under their names."""
    names = list(firing.node.aggregates)
    return pairs.filter(these).drop(names).rename({f"_was_{name}": name for name in names})


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
