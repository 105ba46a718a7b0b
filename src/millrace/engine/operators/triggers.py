"""Triggers on columns: the state of each window is text, and windows in the same state are looked at
together.

A trigger sees of a window only its state and whether its end has passed, so that a batch asks the state
machine once per state, however many windows there are. Triggers of a user's own see the rows and the window,
so those are asked for each window by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace.aggregates import ORDER
from millrace.durations import BEFORE_ALL
from millrace.engine import trigger_state
from millrace.engine.trigger_state import FiringContext, NewRows
from millrace.triggers import Trigger, has_own_trigger
from millrace.values.columns import (
    ARRIVED_ROWS,
    ARRIVED_VALUES,
    BASE_TIME,
    CLOCK_DUE,
    CLOCK_DUE_AT_END,
    DUE,
    DUE_AT_END,
    END,
    FIRES,
    IS_ASKED,
    IS_CLOCK_PASSED,
    IS_CLOSED,
    IS_PASSED,
    MERGED_STATES,
    NEXT_TRIGGER_STATE,
    START,
    TRIGGER_STATE,
    WAS_PASSED,
)


@dataclass(frozen=True)
class TriggerColumns:
    """One trigger, asked about many windows."""

    trigger: Trigger
    group_columns: tuple[str, ...] = ()
    """What tells windows apart."""
    row_columns: tuple[str, ...] = ()
    """The columns of rows, as a user's own trigger sees them."""

    @cached_property
    def has_own(self) -> bool:
        """Whether the user's code is part of it, which is called for each row."""
        return has_own_trigger(self.trigger)

    def add_rows(
        self, cells: pl.DataFrame, times: tuple[int, int], rows: pl.DataFrame, *, merges: bool
    ) -> pl.DataFrame:
        """`_trigger` after the rows of a batch, from the states before (`_states`), the number of rows
        (`_came`), whether the watermark was past the end (`_was_passed`), and `_base`.

        `times`: the watermark before the batch, and the clock.
        """
        watermark, clock = times
        known = None if watermark == BEFORE_ALL else watermark

        def add(states: list[str], row_count: int, is_past_end: bool, base: int, *own: Any) -> tuple[str]:
            before = [json.loads(state) for state in states]
            window, values = (own[:2], own[2]) if own else ((0, 0), ())
            new = NewRows(row_count, clock, base, is_past_end, known, window, values)
            state = before[0] if before else trigger_state.initial_state(self.trigger, new)
            if merges and before:
                state = trigger_state.merge_states(self.trigger, before, new)
            return (_to_json(trigger_state.add_rows(self.trigger, state, new)),)

        asked = [MERGED_STATES, ARRIVED_ROWS, WAS_PASSED, BASE_TIME]
        schema = {TRIGGER_STATE: pl.String()}
        if self.has_own:
            values = pl.struct(self.row_columns).alias(ARRIVED_VALUES)
            arrived = rows.sort(*ORDER, maintain_order=True).group_by(self.group_columns).agg(values)
            cells = cells.join(arrived, on=list(self.group_columns), how="left", nulls_equal=True)
            cells = _map_each(cells, [*asked, START, END, ARRIVED_VALUES], add, schema).drop(ARRIVED_VALUES)
        else:
            cells = _map_cases(cells, asked, add, schema)
        return cells.drop(MERGED_STATES, WAS_PASSED, BASE_TIME)

    def fire(self, cells: pl.DataFrame, watermark: int, clock: int) -> pl.DataFrame:
        """Whether each window fires (`_fires`), if it is `_asked`; what becomes of its `_trigger`, and
        whether that has finished (`_closed`).
        """

        def verdict(
            state: str, is_past_end: bool, is_clock_past_end: bool, is_asked: bool, *window: int
        ) -> tuple[bool, str, bool]:
            if not is_asked:
                return False, state, False
            moment = FiringContext(
                watermark, clock, is_past_end, is_clock_past_end, (window[0], window[1]) if window else (0, 0)
            )
            before = json.loads(state)
            if window:
                before = trigger_state.pass_time(self.trigger, before, moment)
            if not trigger_state.is_ready(self.trigger, before, moment):
                return False, _to_json(before) if window else state, False
            after, finished = trigger_state.fire(self.trigger, before, moment)
            return True, _to_json(after), finished

        end = pl.col(END)
        cells = cells.with_columns(
            (end <= watermark).alias(IS_PASSED), (end <= clock).alias(IS_CLOCK_PASSED)
        ).drop(IS_CLOSED)
        schema = {FIRES: pl.Boolean(), NEXT_TRIGGER_STATE: pl.String(), IS_CLOSED: pl.Boolean()}
        asked = [TRIGGER_STATE, IS_PASSED, IS_CLOCK_PASSED, IS_ASKED]
        if self.has_own:
            cells = _map_each(cells, [*asked, START, END], verdict, schema)
        else:
            cells = _map_cases(cells, asked, verdict, schema)
        return cells.drop(TRIGGER_STATE, IS_PASSED, IS_CLOCK_PASSED, IS_ASKED).rename(
            {NEXT_TRIGGER_STATE: TRIGGER_STATE}
        )

    def schedule(self, cells: pl.DataFrame, watermark: int, clock: int) -> pl.DataFrame:
        """When each window must be looked at again though no row should come: the next watermark (`_due`) and
        time of the clock (`_tick`).
        """

        def next_dues(state: str) -> tuple[int | None, bool, int | None, bool]:
            dues = list(trigger_state.deadlines(self.trigger, json.loads(state)))
            next_due = min(
                (due.at for due in dues if not due.is_clock and due.at is not None and due.at > watermark),
                default=None,
            )
            next_tick = min(
                (due.at for due in dues if due.is_clock and due.at is not None and due.at > clock),
                default=None,
            )
            ends = {due.is_clock for due in dues if due.at is None}
            return next_due, False in ends, next_tick, True in ends

        schema = {
            DUE: pl.Int64(),
            DUE_AT_END: pl.Boolean(),
            CLOCK_DUE: pl.Int64(),
            CLOCK_DUE_AT_END: pl.Boolean(),
        }
        cells = _map_cases(cells.drop(DUE, CLOCK_DUE, strict=False), [TRIGGER_STATE], next_dues, schema)
        end = pl.col(END)
        return cells.with_columns(
            pl.min_horizontal(DUE, pl.when(pl.col(DUE_AT_END) & (end > watermark)).then(end)).alias(DUE),
            pl.min_horizontal(CLOCK_DUE, pl.when(pl.col(CLOCK_DUE_AT_END) & (end > clock)).then(end)).alias(
                CLOCK_DUE
            ),
        ).drop(DUE_AT_END, CLOCK_DUE_AT_END)


def _map_cases(
    frame: pl.DataFrame,
    inputs: Sequence[str],
    function: Callable[..., tuple[Any, ...]],
    schema: Mapping[str, pl.DataType],
) -> pl.DataFrame:
    """Columns that are functions of others, asked once for each different case."""
    cases = frame.select(inputs)
    if cases.height > 1:
        cases = cases.unique()
    results = pl.DataFrame([function(*case) for case in cases.iter_rows()], schema=schema, orient="row")
    if results.height == 1:
        return frame.with_columns(pl.lit(results[name]).first().alias(name) for name in schema)
    return frame.join(
        pl.concat([cases, results], how="horizontal"),
        on=list(inputs),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )


def _map_each(
    frame: pl.DataFrame,
    inputs: Sequence[str],
    function: Callable[..., tuple[Any, ...]],
    schema: Mapping[str, pl.DataType],
) -> pl.DataFrame:
    """Columns that are functions of others, asked for each row: where hardly any two are alike."""
    results = pl.DataFrame(
        [function(*case) for case in frame.select(inputs).iter_rows()], schema=schema, orient="row"
    )
    return pl.concat([frame, results], how="horizontal")


def _to_json(state: Any) -> str:
    return json.dumps(state, separators=(",", ":"))
