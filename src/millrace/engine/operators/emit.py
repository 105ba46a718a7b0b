"""What operators over rows and over panes share: numbering panes, and shaping what is shown and what travels on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.engine.operators.partials import Partials, partials_of
from millrace.engine.plan import Operator
from millrace.engine.progress import Reach
from millrace.engine.state import Layout, SlotState

PAIR = "_off"
"""The column that says which new value takes the place of which old one; it rides through stateless steps as offsets do."""
NUMBERS = {"_shown": pl.Int64(), "_settled": pl.Int64()}


@dataclass(frozen=True)
class Stepped:
    """What a batch did to an operator."""

    state: SlotState
    low: int | None
    shown: pl.DataFrame
    """Panes for topics: values, and those they replace, told apart by `op` and brought together by `PAIR`."""
    changes: pl.DataFrame
    """Values and retractions for the next operator."""
    late: pl.DataFrame | None = None
    reaches: Sequence[Reach] = ()
    """How far the partitions are that it reads."""
    sides: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """What it says besides, by port: panes with `PAIR`, each shown once."""
    dead: pl.DataFrame | None = None
    """Records that the operator cannot understand, as dead letters."""
    rows: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    """Rows that go on as rows, by the edge they came by; `_clock` is the watermark at each (null: none that could refuse it)."""


@dataclass(frozen=True, eq=False)
class Windows:
    """An operator that keeps something per key and window."""

    operator: Operator

    @cached_property
    def partials(self) -> Partials:
        """How its aggregates condense rows."""
        return partials_of(self.operator.node)

    @cached_property
    def group(self) -> list[str]:
        """What tells results apart."""
        return group_of(self.operator)

    @cached_property
    def per(self) -> tuple[str, ...]:
        """The part of it that is the window."""
        return tuple(self.group[len(self.partials.keys) :])

    def begun_before(self, since: Mapping[str, int]) -> list[pl.Expr]:
        """Aggregates that were added later, as null in windows that had begun by then: they would hold only what came since."""
        sliced = self.operator.node.windowing.sliced
        start = pl.col("_end") - sliced.size if sliced else pl.col("_start")
        names = [name for name in since if name in self.operator.node.aggregates]
        return [pl.when(start > since[name]).then(pl.col(name)).alias(name) for name in names]

    @cached_property
    def no_panes(self) -> pl.DataFrame:
        """No changes, in the columns that changes have."""
        return self.operator.node.schema.to_frame()

    @cached_property
    def no_shown(self) -> pl.DataFrame:
        """No panes, in the columns that they have before they leave."""
        return self.no_panes.with_columns(pl.lit(0, pl.Int64).alias(PAIR))

    @cached_property
    def no_numbers(self) -> pl.DataFrame:
        """No numbers of panes."""
        return self.no_panes.select(
            *self.partials.keys, *[pl.lit(0, pl.Int64).alias(c) for c in (*self.per, *NUMBERS)]
        ).clear()

    @cached_property
    def pane_layout(self) -> Layout:
        """How the numbers of panes are kept: the greatest count wins."""
        end = pl.col("_end")
        return Layout(end, end, lambda frame: frame.group_by(self.group).agg(pl.col(*NUMBERS).max()))


def group_of(operator: Operator) -> list[str]:
    """The key and the window of a result; where all windows are of one size, their ends tell them apart."""
    return [*operator.node.keys, *(["_end"] if operator.node.windowing.sliced else ["_start", "_end"])]


@dataclass(frozen=True, eq=False)
class Firing:
    """The values of one batch's panes, before they are numbered.

    `new` and `old` have key columns, `_end` and aggregates: the values now, and those shown before. A group in `old` alone is withdrawn.
    """

    operator: Operator
    new: pl.DataFrame
    old: pl.DataFrame | None
    timing: str

    @property
    def group(self) -> list[str]:
        """What tells panes of different things apart."""
        return group_of(self.operator)


@dataclass(frozen=True)
class Fired:
    """Panes to show, changes to pass on, and how many panes each group has had by now, where that must be remembered."""

    shown: pl.DataFrame
    changes: pl.DataFrame
    numbers: pl.DataFrame


def emit(firing: Firing, numbers: pl.DataFrame, low: int) -> Fired:
    """Numbers panes and shapes them.

    `numbers` counts the panes shown so far; a group that has a value in `old` but no number has had exactly its on-time pane.
    """
    moment = _Moment(firing.operator, firing.timing, low)
    if numbers.is_empty() and (firing.old is None or firing.old.is_empty()):
        first = firing.new.with_columns(pl.lit(0, dtype).alias(column) for column, dtype in NUMBERS.items())
        made = moment.panes(first.with_row_index(PAIR), panes.ADD)
        return Fired(
            made, made.drop(PAIR), numbers if firing.timing == "on_time" else _counted(firing, first)
        )
    return _emit_refined(firing, firing.new.clear() if firing.old is None else firing.old, numbers, moment)


def _emit_refined(firing: Firing, old: pl.DataFrame, numbers: pl.DataFrame, moment: _Moment) -> Fired:
    pairs = _pairs(firing, old, numbers)
    new, had, same = pairs["_new"], pairs["_had"], pairs["_same"]
    shown, changes = [], []
    if firing.operator.shows:
        shown = [
            moment.panes(_was(pairs, had, firing), panes.RETRACT),
            moment.panes(pairs.filter(new), panes.ADD),
        ]
    if firing.operator.travels:
        changed = ~(new & same)
        changes = [
            moment.panes(_was(pairs, had & changed, firing), panes.RETRACT),
            moment.panes(pairs.filter(new & changed), panes.ADD),
        ]
    none = moment.panes(pairs.clear(), panes.ADD)
    return Fired(pl.concat([none, *shown]), pl.concat([none, *changes]).drop(PAIR), _counted(firing, pairs))


def settled(panes_: pl.DataFrame, output: panes.Output) -> pl.DataFrame:
    """What leaves a job, after the stateless steps: with output `value`, an old value is taken back only where no new one takes its place."""
    plus = panes_.filter(pl.col("op") == panes.ADD)
    if output == "value" and plus.height < panes_.height:
        minus = panes_.filter(pl.col("op") == panes.RETRACT)
        panes_ = pl.concat([minus.join(plus, on=[PAIR, "timing"], how="anti"), plus])
    return panes_.drop(PAIR)


def netted(rows: pl.DataFrame) -> pl.DataFrame:
    """What leaves a job where a pane stands for many rows: those that are new, and those that no longer hold, each as often as it is."""
    rows = rows.filter(
        pl.col(PAIR) >= 0
    )  # what is taken back of windows that are no more comes with their successor here
    if not (rows["op"] == panes.RETRACT).any():
        return rows.drop(PAIR)
    same = [column for column in rows.columns if column not in panes.HISTORY]
    weight = pl.when(pl.col("op") == panes.ADD).then(1).otherwise(-1).alias("_weight")
    net = (
        rows.with_columns(weight)
        .group_by(*same, "timing", maintain_order=True)
        .agg(
            pl.col("_weight").sum(),
            *[pl.col(column).last() for column in panes.HISTORY if column not in ("timing", "op")],
        )
    )
    op = pl.when(pl.col("_weight") > 0).then(pl.lit(panes.ADD)).otherwise(pl.lit(panes.RETRACT)).alias("op")
    kept = net.filter(pl.col("_weight") != 0).with_columns(op)
    often = kept["_weight"].abs().to_list()
    places = [place for place, count in enumerate(often) for _ in range(count)]
    return kept.select(rows.drop(PAIR).columns)[places].sort("op", descending=True, maintain_order=True)


def _pairs(firing: Firing, old: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """Each group with its value now (`_new`), the one shown before (`_had`, columns `_was_…`), whether they are the `_same`, and its numbers."""
    group, names = firing.group, list(firing.operator.node.aggregates)
    before = old.lazy().select(
        *group, *[pl.col(name).alias(f"_was_{name}") for name in names], pl.lit(value=True).alias("_had")
    )
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
        .with_row_index(PAIR)
        .collect()
    )


def _was(pairs: pl.DataFrame, these: pl.Series, firing: Firing) -> pl.DataFrame:
    """The values shown before, under their names."""
    names = list(firing.operator.node.aggregates)
    return pairs.filter(these).drop(names).rename({f"_was_{name}": name for name in names})


def _counted(firing: Firing, numbered: pl.DataFrame) -> pl.DataFrame:
    settles = 0 if firing.timing == "early" else 1
    return numbered.select(*firing.group, pl.col("_shown") + 1, pl.col("_settled") + settles)


@dataclass(frozen=True)
class _Moment:
    operator: Operator
    timing: str
    low: int

    def panes(self, frame: pl.DataFrame, op: str) -> pl.DataFrame:
        """Numbered values as panes."""
        node, end = self.operator.node, pl.col("_end")
        windowing = node.windowing
        start = end - windowing.sliced.size if windowing.sliced else pl.col("_start")
        settled = pl.lit(-1, pl.Int64) if self.timing == "early" else pl.col("_settled")
        return frame.with_columns(
            (end - 1).alias("event_time"),
            start.alias("window_start"),
            end.alias("window_end"),
            pl.col("_shown").alias("index"),
            settled.alias("settled_index"),
            pl.lit(self.timing).alias("timing"),
            (end + self.operator.horizon <= self.low).alias("final"),
            pl.lit(op).alias("op"),
        ).select(*node.schema, pl.col(PAIR).cast(pl.Int64))
