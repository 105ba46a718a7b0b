"""Triggers on columns: the state of each window is text, and windows in the same state are looked at
together.

A trigger sees of a window only its state and whether its end has passed, so that a batch asks the state
machine once per state, however many windows there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.engine import trigger_state
from millrace.engine.trigger_state import FiringContext, NewRows
from millrace.triggers import Trigger
from millrace.values.columns import (
    ARRIVED_ROWS,
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
    TRIGGER_STATE,
    WAS_PASSED,
)


@dataclass(frozen=True)
class TriggerColumns:
    """One trigger, asked about many windows."""

    trigger: Trigger

    def add_rows(self, cells: pl.DataFrame, clock: int, *, merges: bool) -> pl.DataFrame:
        """`_trigger` after the rows of a batch, from the states before (`_states`), the number of rows
        (`_came`), whether the watermark was past the end (`_was_passed`), and `_base`.
        """

        def add(states: list[str], row_count: int, is_past_end: bool, base: int) -> tuple[str]:
            before = [json.loads(state) for state in states]
            state = before[0] if before else trigger_state.initial_state(self.trigger)
            if merges and before:
                state = trigger_state.merge_states(self.trigger, before, is_past_end=is_past_end)
            return (
                _to_json(
                    trigger_state.add_rows(self.trigger, state, NewRows(row_count, clock, base, is_past_end))
                ),
            )

        return _map_cases(
            cells, [MERGED_STATES, ARRIVED_ROWS, WAS_PASSED, BASE_TIME], add, {TRIGGER_STATE: pl.String()}
        ).drop(MERGED_STATES, WAS_PASSED, BASE_TIME)

    def fire(self, cells: pl.DataFrame, watermark: int, clock: int) -> pl.DataFrame:
        """Whether each window fires (`_fires`), if it is `_asked`; what becomes of its `_trigger`, and
        whether that has finished (`_closed`).
        """

        def verdict(
            state: str, is_past_end: bool, is_clock_past_end: bool, is_asked: bool
        ) -> tuple[bool, str, bool]:
            before, moment = (
                json.loads(state),
                FiringContext(watermark, clock, is_past_end, is_clock_past_end),
            )
            if not is_asked or not trigger_state.is_ready(self.trigger, before, moment):
                return False, state, False
            after, finished = trigger_state.fire(self.trigger, before, moment)
            return True, _to_json(after), finished

        end = pl.col(END)
        cells = cells.with_columns(
            (end <= watermark).alias(IS_PASSED), (end <= clock).alias(IS_CLOCK_PASSED)
        ).drop(IS_CLOSED)
        schema = {FIRES: pl.Boolean(), NEXT_TRIGGER_STATE: pl.String(), IS_CLOSED: pl.Boolean()}
        cells = _map_cases(cells, [TRIGGER_STATE, IS_PASSED, IS_CLOCK_PASSED, IS_ASKED], verdict, schema)
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
    schema: dict[str, pl.DataType],
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


def _to_json(state: Any) -> str:
    return json.dumps(state, separators=(",", ":"))
