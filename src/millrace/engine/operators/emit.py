"""From values of windows to panes: numbers them, says what they replace, and shapes what is shown and what
travels on.

A pane that is shown again has a higher `index`, and comes after the retraction of the value before it (`op`
"-"), with which it shares `PAIR`. Topics get every pane; operators that follow get only what changed, since
an equal value changes nothing.

Example, one key and window, `retracting` panes:

    batch  value before   value now   to topics                          to operators
    1      -              3           + 3 (index 0)                      + 3
    2      3              5           - 3 (index 1), + 5 (index 1)       - 3, + 5
    3      5              5           - 5 (index 2), + 5 (index 2)       nothing

With `accumulating` panes the retractions of batches 2 and 3 are dropped when the panes leave the job, since a
new value takes the place of the old one (`drop_replaced_retractions`). Numbers are remembered only from the
second pane on: a group that has a value and no number has had exactly its pane on time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.engine.operators import contract
from millrace.engine.operators.partials import Partials, partials_of
from millrace.engine.plan import Operator
from millrace.engine.state import Layout
from millrace.values.columns import (
    END,
    HAD_VALUE,
    HAS_VALUE,
    IS_UNCHANGED,
    OLD_PREFIX,
    PAIR,
    PANE_COUNT,
    SETTLED_COUNT,
    START,
    WEIGHT,
)

PANE_COUNTERS = {PANE_COUNT: pl.Int64(), SETTLED_COUNT: pl.Int64()}


@dataclass(frozen=True, eq=False)
class WindowShape:
    """The columns of an operator that keeps something per key and window, and those of its panes."""

    operator: Operator

    @cached_property
    def partials(self) -> Partials:
        """How its aggregates condense rows."""
        return partials_of(self.operator.aggregation)

    @cached_property
    def group_columns(self) -> list[str]:
        """What tells results apart."""
        return group_columns_of(self.operator)

    @cached_property
    def window_columns(self) -> tuple[str, ...]:
        """The part of it that is the window."""
        return tuple(self.group_columns[len(self.partials.keys) :])

    def mask_added_aggregates(self, since: Mapping[str, int]) -> list[pl.Expr]:
        """Aggregates that were added later, as null in windows that had begun by then:
        they would hold only what came since.
        """
        sliced = self.operator.aggregation.windowing.sliced_window
        start = pl.col(END) - sliced.size if sliced else pl.col(START)
        names = [name for name in since if name in self.operator.aggregation.aggregates]
        return [pl.when(start > since[name]).then(pl.col(name)).alias(name) for name in names]

    @cached_property
    def empty_changes(self) -> pl.DataFrame:
        """No changes, in the columns that changes have."""
        return contract.empty_changes(self.operator.node)

    @cached_property
    def empty_panes(self) -> pl.DataFrame:
        """No panes, in the columns that they have before they leave."""
        return contract.empty_panes(self.operator.node)

    @cached_property
    def empty_counters(self) -> pl.DataFrame:
        """No numbers of panes."""
        return self.empty_changes.select(
            *self.partials.keys,
            *[pl.lit(0, pl.Int64).alias(c) for c in (*self.window_columns, *PANE_COUNTERS)],
        ).clear()

    @cached_property
    def counter_layout(self) -> Layout:
        """How the numbers of panes are kept: the greatest count wins."""
        end = pl.col(END)
        return Layout(
            end, end, lambda frame: frame.group_by(self.group_columns).agg(pl.col(*PANE_COUNTERS).max())
        )


def group_columns_of(operator: Operator) -> list[str]:
    """The key and the window of a result; where all windows are of one size, their ends tell them apart."""
    return [
        *operator.node.keys,
        *([END] if operator.aggregation.windowing.sliced_window else [START, END]),
    ]


@dataclass(frozen=True, eq=False)
class PaneValues:
    """The values of one batch's panes, before they are numbered.

    `new` and `old` have key columns, `_end` and aggregates: the values now, and those shown before. A group
    in `old` alone is withdrawn.
    """

    operator: Operator
    current: pl.DataFrame
    previous: pl.DataFrame | None
    timing: str

    @property
    def group(self) -> list[str]:
        """What tells panes of different things apart."""
        return group_columns_of(self.operator)


@dataclass(frozen=True)
class EmittedPanes:
    """Panes to show, changes to pass on, and how many panes each group has had by now,
    where that must be remembered.
    """

    panes: pl.DataFrame
    changes: pl.DataFrame
    counters: pl.DataFrame


def number_panes(values: PaneValues, counters: pl.DataFrame, watermark: int) -> EmittedPanes:
    """Numbers panes and shapes them.

    `numbers` counts the panes shown so far; a group that has a value in `old` but no number has had exactly
    its on-time pane.
    """
    builder = _PaneBuilder(values.operator, values.timing, watermark)
    if counters.is_empty() and (values.previous is None or values.previous.is_empty()):
        first = values.current.with_columns(
            pl.lit(0, dtype).alias(column) for column, dtype in PANE_COUNTERS.items()
        )
        emitted = builder.build(first.with_row_index(PAIR), panes.ADD)
        return EmittedPanes(
            emitted,
            emitted.drop(PAIR),
            counters if values.timing == "on_time" else _count_panes(values, first),
        )
    return _number_refinements(
        values, values.current.clear() if values.previous is None else values.previous, counters, builder
    )


def _number_refinements(
    values: PaneValues, previous: pl.DataFrame, counters: pl.DataFrame, builder: _PaneBuilder
) -> EmittedPanes:
    pairs = _pair_with_previous(values, previous, counters)
    has_value, had_value, is_unchanged = pairs[HAS_VALUE], pairs[HAD_VALUE], pairs[IS_UNCHANGED]
    emitted, changes = [], []
    if values.operator.shows:
        emitted = [
            builder.build(_previous_values(pairs, had_value, values), panes.RETRACT),
            builder.build(pairs.filter(has_value), panes.ADD),
        ]
    if values.operator.travels:
        is_changed = ~(has_value & is_unchanged)
        changes = [
            builder.build(_previous_values(pairs, had_value & is_changed, values), panes.RETRACT),
            builder.build(pairs.filter(has_value & is_changed), panes.ADD),
        ]
    none = builder.build(pairs.clear(), panes.ADD)
    return EmittedPanes(
        pl.concat([none, *emitted]), pl.concat([none, *changes]).drop(PAIR), _count_panes(values, pairs)
    )


def drop_replaced_retractions(rows: pl.DataFrame, accumulation: panes.Accumulation) -> pl.DataFrame:
    """What leaves a job, after the stateless steps: with accumulating panes, an old value is taken back only
    where no new one takes its place.
    """
    additions = rows.filter(pl.col("op") == panes.ADD)
    if accumulation == "accumulating" and additions.height < rows.height:
        retractions = rows.filter(pl.col("op") == panes.RETRACT)
        rows = pl.concat([retractions.join(additions, on=[PAIR, "timing"], how="anti"), additions])
    return rows.drop(PAIR)


def net_changes(rows: pl.DataFrame) -> pl.DataFrame:
    """What leaves a job where a pane stands for many rows: those that are new,
    and those that no longer hold, each as often as it is.
    """
    rows = rows.filter(
        pl.col(PAIR) >= 0
    )  # what is taken back of windows that are no more comes with their successor here
    if not (rows["op"] == panes.RETRACT).any():
        return rows.drop(PAIR)
    value_columns = [column for column in rows.columns if column not in panes.HISTORY_COLUMNS]
    weight = pl.when(pl.col("op") == panes.ADD).then(1).otherwise(-1).alias(WEIGHT)
    net = (
        rows.with_columns(weight)
        .group_by(*value_columns, "timing", maintain_order=True)
        .agg(
            pl.col(WEIGHT).sum(),
            *[pl.col(column).last() for column in panes.HISTORY_COLUMNS if column not in ("timing", "op")],
        )
    )
    op = pl.when(pl.col(WEIGHT) > 0).then(pl.lit(panes.ADD)).otherwise(pl.lit(panes.RETRACT)).alias("op")
    kept = net.filter(pl.col(WEIGHT) != 0).with_columns(op)
    counts = kept[WEIGHT].abs().to_list()
    repeated = [index for index, count in enumerate(counts) for _ in range(count)]
    return kept.select(rows.drop(PAIR).columns)[repeated].sort("op", descending=True, maintain_order=True)


def _pair_with_previous(values: PaneValues, previous: pl.DataFrame, counters: pl.DataFrame) -> pl.DataFrame:
    """Each group with its value now (`_new`), the one shown before (`_had`, columns `_was_…`), whether they
    are the `_same`, and its numbers.
    """
    group, names = values.group, list(values.operator.aggregation.aggregates)
    before = previous.lazy().select(
        *group,
        *[pl.col(name).alias(f"{OLD_PREFIX}{name}") for name in names],
        pl.lit(value=True).alias(HAD_VALUE),
    )
    counted = counters.lazy().group_by(group).agg(pl.col(*PANE_COUNTERS).max())
    had_value = pl.col(HAD_VALUE).fill_null(value=False)
    is_unchanged = pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"{OLD_PREFIX}{name}")) for name in names)
    return (
        values.current.lazy()
        .with_columns(pl.lit(value=True).alias(HAS_VALUE))
        .join(before, on=group, how="full", coalesce=True, nulls_equal=True)
        .join(counted, on=group, how="left", nulls_equal=True)
        .with_columns(
            pl.col(HAS_VALUE).fill_null(value=False),
            had_value,
            (had_value & is_unchanged).alias(IS_UNCHANGED),
        )
        .with_columns(pl.col(column).fill_null(had_value.cast(pl.Int64)) for column in PANE_COUNTERS)
        .with_row_index(PAIR)
        .collect()
    )


def _previous_values(pairs: pl.DataFrame, selected: pl.Series, values: PaneValues) -> pl.DataFrame:
    """The values shown before, under their names."""
    names = list(values.operator.aggregation.aggregates)
    return pairs.filter(selected).drop(names).rename({f"{OLD_PREFIX}{name}": name for name in names})


def _count_panes(values: PaneValues, numbered: pl.DataFrame) -> pl.DataFrame:
    settled = 0 if values.timing == "early" else 1
    return numbered.select(*values.group, pl.col(PANE_COUNT) + 1, pl.col(SETTLED_COUNT) + settled)


@dataclass(frozen=True)
class _PaneBuilder:
    operator: Operator
    timing: str
    watermark: int

    def build(self, frame: pl.DataFrame, op: str) -> pl.DataFrame:
        """Numbered values as panes."""
        node, end = self.operator.aggregation, pl.col(END)
        windowing = node.windowing
        start = end - windowing.sliced_window.size if windowing.sliced_window else pl.col(START)
        settled = pl.lit(-1, pl.Int64) if self.timing == "early" else pl.col(SETTLED_COUNT)
        return frame.with_columns(
            (end - 1).alias("event_time"),
            start.alias("window_start"),
            end.alias("window_end"),
            pl.col(PANE_COUNT).alias("index"),
            settled.alias("settled_index"),
            pl.lit(self.timing).alias("timing"),
            (end + self.operator.horizon <= self.watermark).alias("final"),
            pl.lit(op).alias("op"),
        ).select(*node.schema, pl.col(PAIR).cast(pl.Int64))
