"""Operator `regular_join`: all rows of both sides with the same key, whenever they came, as a changelog.

What is kept is a bag of rows of each side: how often each was added less how often it was taken back. The
result is what SQL's join of the two bags gives; each batch shows how it differs from the one before.

Example, a left join by key, without `ttl`:

    batch  comes in               shown
    1      left + a               + (a, null)
    2      right + x, right + y   - (a, null), + (a, x), + (a, y)
    3      right - x              - (a, x)
    4      right - y              - (a, y), + (a, null)

How a result changes follows from weights alone, as weights of pairs multiply (`d` is what a batch brings,
`L'` is `L + dL`):

    pairs             dL x (R + dR) + L x dR
    a row alone       its weight where it has no partner, now less before
    semi              its weight where it has a partner, now less before

With `ttl`, partners are less than that apart in event time. That is a condition on the two rows, not on when
they came, so a replay gives the same. A row that comes `ttl` behind the watermark is refused. One that comes
just before that may meet rows up to `ttl` older than itself. So rows of an inner join are kept for twice the
ttl. In the other kinds a row that it meets must know whether it had a partner before, up to `ttl` older
still: three times the ttl. It is longer where a changelog may take back older rows. What is shown stays when
its rows expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.durations import BEFORE_ALL
from millrace.engine import lateness
from millrace.engine.arrivals import BatchProgress
from millrace.engine.changelog import add_up, repeat_by_weight, weight_of_change
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, divide_panes, empty_panes, number_pairs
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.graph.build.join import SIDE_COLUMNS
from millrace.graph.build.regular_join import RegularJoin
from millrace.values.columns import (
    KEY_NUMBER,
    OLD_WEIGHT,
    PARTNER_TIME,
    RIGHT_SUFFIX,
    ROW_INDEX,
    ROW_TIME,
    WEIGHT,
)

LEFT, RIGHT = SIDE_COLUMNS
ROWS = "rows"
"""State table: the bags of both sides."""
PARTNERS, OLD_PARTNERS = f"{WEIGHT}{RIGHT_SUFFIX}", f"{OLD_WEIGHT}{RIGHT_SUFFIX}"
"""How many partners a row has, and had."""
_ALONE = {"left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT), "anti": (LEFT,)}
"""For each kind of join the sides whose rows are shown without a partner."""


@dataclass(frozen=True, eq=False)
class RegularJoinOperator:
    """Joins rows and changelogs of two sides, and shows how the result changes."""

    operator: Operator
    node: RegularJoin

    @cached_property
    def _identity(self) -> list[str]:
        """The columns in which two rows must agree to cancel each other."""
        return [*self.node.keys, ROW_TIME, *SIDE_COLUMNS]

    @cached_property
    def _empty(self) -> pl.DataFrame:
        empty, number = self.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        return empty.with_columns(number.alias(ROW_TIME), number.alias(WEIGHT)).select(
            *self._identity, WEIGHT
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: rows are judged, what comes is joined with what is kept, and expired rows go."""
        id = self.operator.id
        progress = BatchProgress.of(self.operator, body, state.values.get(id))
        rows, late = self._judge(progress.load_rows([block for block in blocks if block.kind == "rows"]))
        changes = self._read_changes([block.frame for block in blocks if block.kind == "changes"])
        new = add_up(pl.concat([rows, changes]), self._identity)
        emitted = empty_panes(self.node)
        if new.height:
            emitted = self._to_panes(self._join(state, new), progress)
        over = BEFORE_ALL if self.node.ttl is None else progress.watermark - self.node.retention
        time = pl.col(ROW_TIME)
        layout = Layout(time, time, lambda frame: add_up(frame.filter(time > over), self._identity))
        state = state.append(id, ROWS, new.filter(self._has_key & (time > over)), layout)
        state = state.expire(id, ROWS, over).with_values(id, progress.after.to_json())
        shown, changed = divide_panes(self.operator, emitted)
        return OperatorResult(state, progress.output_watermark, shown, changed, late, progress)

    def _judge(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are accepted, and those that come later than the ttl."""
        if rows is None:
            return self._empty, None
        ttl = self.node.ttl
        is_late = lateness.never() if ttl is None else lateness.is_forgotten(ttl)
        accepted, late = lateness.split_late(rows, is_late)
        return accepted.select(*self._identity, pl.lit(1, pl.Int64).alias(WEIGHT)), late

    def _read_changes(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """What changelogs add and take back."""
        added = pl.col("event_time").alias(ROW_TIME), weight_of_change()
        changes = [frame.with_columns(added).select(self._empty.columns) for frame in frames]
        return pl.concat([self._empty, *changes])

    @cached_property
    def _has_key(self) -> pl.Expr:
        """Whether a row may have partners: a null key equals nothing."""
        return pl.all_horizontal(pl.col(key).is_not_null() for key in self.node.keys)

    def _join(self, state: SlotState, new: pl.DataFrame) -> pl.DataFrame:
        """How often each row of the result is added (or, below 0, taken back) by what a batch brings."""
        keys = list(self.node.keys)
        touched = new.filter(self._has_key).select(keys).unique().with_row_index(KEY_NUMBER)
        chunks = state.table(self.operator.id, ROWS).chunks if touched.height else ()
        kept = [chunk.frame.join(touched.select(keys), on=keys, how="semi") for chunk in chunks]
        old = add_up(pl.concat([self._empty, *kept]), self._identity)
        old, new = (rows.join(touched, on=keys, how="left") for rows in (old, new))
        if self.node.how == "semi":
            return self._rows_of_side(LEFT, old, new)
        parts = [self._rows_of_side(side, old, new) for side in _ALONE.get(self.node.how, ())]
        return pl.concat(parts if self.node.how == "anti" else [self._pairs(old, new), *parts])

    def _pairs(self, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        return pl.concat(
            [
                self._pair_sides(_side(new, LEFT), _side(pl.concat([old, new]), RIGHT)),
                self._pair_sides(_side(old, LEFT), _side(new, RIGHT)),
            ]
        )

    def _pair_sides(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Rows beside their partners; the weight of a pair is the product of theirs."""
        pairs = left.join(right.drop(self.node.keys), on=KEY_NUMBER, how="inner", suffix=RIGHT_SUFFIX)
        if self.node.ttl is not None:
            distance = (pl.col(PARTNER_TIME) - pl.col(ROW_TIME)).abs()
            pairs = pairs.filter(distance < self.node.ttl)
        weight = (pl.col(WEIGHT) * pl.col(PARTNERS)).alias(WEIGHT)
        return pairs.select(*self.node.keys, ROW_TIME, PARTNER_TIME, *SIDE_COLUMNS, weight)

    def _rows_of_side(self, side: str, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """Rows of one side that are shown without a partner, or (`semi`) with one, now less before."""
        other = RIGHT if side == LEFT else LEFT
        was = _side(old, side).with_columns(pl.col(WEIGHT).alias(OLD_WEIGHT))
        came = _side(new, side).with_columns(pl.lit(0, pl.Int64).alias(OLD_WEIGHT))
        rows = (
            pl.concat([was, came])
            .group_by(*self.node.keys, KEY_NUMBER, ROW_TIME, side)
            .agg(pl.col(WEIGHT, OLD_WEIGHT).sum())
        )
        kept, arrived = _side(old, other), _side(new, other)
        rows = self._count_partners(rows, kept, OLD_PARTNERS)
        rows = self._count_partners(rows, pl.concat([kept, arrived]), PARTNERS)
        is_shown, was_shown = pl.col(PARTNERS) == 0, pl.col(OLD_PARTNERS) == 0
        if self.node.how == "semi":
            is_shown, was_shown = ~is_shown, ~was_shown
        change = pl.col(WEIGHT) * is_shown.cast(pl.Int64) - pl.col(OLD_WEIGHT) * was_shown.cast(pl.Int64)
        changed = rows.with_columns(change.alias(WEIGHT)).filter(pl.col(WEIGHT) != 0)
        nothing = pl.lit(None, self._empty.schema[other]).alias(other)
        time = pl.lit(None, pl.Int64).alias(PARTNER_TIME)
        return changed.with_columns(nothing, time).select(
            *self.node.keys, ROW_TIME, PARTNER_TIME, *SIDE_COLUMNS, WEIGHT
        )

    def _count_partners(self, rows: pl.DataFrame, others: pl.DataFrame, name: str) -> pl.DataFrame:
        """Rows, each with the number of its partners."""
        count = pl.col(WEIGHT).sum().alias(name)
        if self.node.ttl is None:
            counts = others.group_by(KEY_NUMBER).agg(count)
            return rows.join(counts, on=KEY_NUMBER, how="left").with_columns(pl.col(name).fill_null(0))
        by_time = others.group_by(KEY_NUMBER, ROW_TIME).agg(count).sort(ROW_TIME)
        sums = by_time.with_columns(pl.col(name).cum_sum().over(KEY_NUMBER))
        last, before = pl.col(ROW_TIME) + (self.node.ttl - 1), pl.col(ROW_TIME) - self.node.ttl
        partners = _sums_until(rows, last, sums, name) - _sums_until(rows, before, sums, name)
        return rows.with_columns(partners.alias(name))

    def _to_panes(self, joined: pl.DataFrame, progress: BatchProgress) -> pl.DataFrame:
        """Results as rows that are added and taken back, from the earlier row to just after the later one."""
        node = self.node
        start, end = pl.min_horizontal(ROW_TIME, PARTNER_TIME), pl.max_horizontal(ROW_TIME, PARTNER_TIME)
        results = joined.select(
            *node.keys,
            *node.output_exprs,
            end.alias("event_time"),
            start.alias("window_start"),
            (end + 1).alias("window_end"),
            WEIGHT,
        )
        values = [name for name in results.columns if name != WEIGHT]
        net = repeat_by_weight(add_up(results, values)).sort(WEIGHT)
        op = pl.when(pl.col(WEIGHT) > 0).then(pl.lit(panes.ADD)).otherwise(pl.lit(panes.RETRACT))
        is_final = pl.lit(value=progress.is_ended)
        if node.ttl is not None:
            is_final = pl.col("window_end") + node.lateness <= progress.watermark
        shown = net.with_columns(*panes.shown_once()).with_columns(is_final.alias("final"), op.alias("op"))
        return number_pairs(shown, node.schema)


def _side(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    """The rows of one side."""
    return rows.filter(pl.col(side).is_not_null()).drop(RIGHT if side == LEFT else LEFT)


def _sums_until(rows: pl.DataFrame, bound: pl.Expr, sums: pl.DataFrame, name: str) -> pl.Series:
    """For each row the running sum of its key at the latest time up to a bound."""
    asked = rows.select(KEY_NUMBER, bound.alias(PARTNER_TIME)).with_row_index(ROW_INDEX)
    found = asked.sort(PARTNER_TIME).join_asof(
        sums, left_on=PARTNER_TIME, right_on=ROW_TIME, by=KEY_NUMBER, check_sortedness=False
    )
    return found.sort(ROW_INDEX)[name].fill_null(0)
