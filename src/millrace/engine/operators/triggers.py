"""Triggers on columns: the state of each window is text, and windows in the same state are looked at together.

A trigger sees of a window only its state and whether its end has passed, so that a batch asks the state machine once per state, however
many windows there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.engine import trigger_state
from millrace.engine.trigger_state import Moment, Rows
from millrace.triggers import Trigger

LEAST = -(2**62)


@dataclass(frozen=True)
class Machines:
    """One trigger, asked about many windows."""

    trigger: Trigger

    def taken(self, cells: pl.DataFrame, clock: int, *, merges: bool) -> pl.DataFrame:
        """`_trigger` after the rows of a batch, from the states before (`_states`), the number of rows (`_came`), whether the watermark was past the end (`_was_passed`), and `_base`."""

        def after(states: list[str], came: int, passed: bool, base: int) -> tuple[str]:
            before = [json.loads(state) for state in states]
            state = before[0] if before else trigger_state.begin(self.trigger)
            if merges and before:
                state = trigger_state.merged(self.trigger, before, passed=passed)
            return (_text(trigger_state.taken(self.trigger, state, Rows(came, clock, base, passed))),)

        return _asked(
            cells, ["_states", "_came", "_was_passed", "_base"], after, {"_trigger": pl.String()}
        ).drop("_states", "_was_passed", "_base")

    def looked(self, cells: pl.DataFrame, watermark: int, clock: int) -> pl.DataFrame:
        """Whether each window fires (`_fires`), if it is `_asked`; what becomes of its `_trigger`, and whether that has finished (`_closed`)."""

        def verdict(state: str, passed: bool, elapsed: bool, asked: bool) -> tuple[bool, str, bool]:
            before, moment = json.loads(state), Moment(watermark, clock, passed, elapsed)
            if not asked or not trigger_state.ready(self.trigger, before, moment):
                return False, state, False
            after, finished = trigger_state.fired(self.trigger, before, moment)
            return True, _text(after), finished

        end = pl.col("_end")
        cells = cells.with_columns(
            (end <= watermark).alias("_passed"), (end <= clock).alias("_elapsed")
        ).drop("_closed")
        made = {"_fires": pl.Boolean(), "_after": pl.String(), "_closed": pl.Boolean()}
        cells = _asked(cells, ["_trigger", "_passed", "_elapsed", "_asked"], verdict, made)
        return cells.drop("_trigger", "_passed", "_elapsed", "_asked").rename({"_after": "_trigger"})

    def dated(self, cells: pl.DataFrame, watermark: int, clock: int) -> pl.DataFrame:
        """When each window must be looked at again though no row should come: the next watermark (`_due`) and time of the clock (`_tick`)."""

        def waits(state: str) -> tuple[int | None, bool, int | None, bool]:
            found = list(trigger_state.dues(self.trigger, json.loads(state)))
            next_due = min(
                (d.at for d in found if not d.clock and d.at is not None and d.at > watermark), default=None
            )
            next_tick = min(
                (d.at for d in found if d.clock and d.at is not None and d.at > clock), default=None
            )
            ends = {d.clock for d in found if d.at is None}
            return next_due, False in ends, next_tick, True in ends

        made = {"_due": pl.Int64(), "_at_end": pl.Boolean(), "_tick": pl.Int64(), "_at_clock": pl.Boolean()}
        cells = _asked(cells.drop("_due", "_tick", strict=False), ["_trigger"], waits, made)
        end = pl.col("_end")
        return cells.with_columns(
            pl.min_horizontal("_due", pl.when(pl.col("_at_end") & (end > watermark)).then(end)).alias("_due"),
            pl.min_horizontal("_tick", pl.when(pl.col("_at_clock") & (end > clock)).then(end)).alias("_tick"),
        ).drop("_at_end", "_at_clock")


def _asked(
    frame: pl.DataFrame,
    given: Sequence[str],
    answer: Callable[..., tuple[Any, ...]],
    made: dict[str, pl.DataType],
) -> pl.DataFrame:
    """Columns that are functions of others, asked once for each different case."""
    cases = frame.select(given)
    if cases.height > 1:
        cases = cases.unique()
    answers = pl.DataFrame([answer(*case) for case in cases.iter_rows()], schema=made, orient="row")
    if answers.height == 1:
        return frame.with_columns(pl.lit(answers[name]).first().alias(name) for name in made)
    return frame.join(
        pl.concat([cases, answers], how="horizontal"),
        on=list(given),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )


def _text(state: Any) -> str:
    return json.dumps(state, separators=(",", ":"))
