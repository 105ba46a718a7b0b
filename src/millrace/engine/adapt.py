"""State of a job that was changed in ways that its state survives: a longer lateness, an added aggregate, another trigger.

A longer lateness: windows that were dropped by the shorter one stay dropped; a late row would begin them anew, without what they held.
An added aggregate: in windows that had begun it is null, as it would hold only what came since; windows that begin later have it in full.
Another trigger: it begins in each open window with the rows that no pane has shown yet, as if they had come with the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from millrace.engine import trigger_state
from millrace.engine.fingerprints import Adaptation
from millrace.engine.lateness import LEAST
from millrace.engine.operators.partials import partials_of
from millrace.engine.operators.sliced_windows import RowWindows
from millrace.engine.operators.windows import CellWindows
from millrace.engine.plan import Operator
from millrace.engine.progress import Progress
from millrace.engine.state import SlotState
from millrace.engine.trigger_state import Moment, Rows
from millrace.triggers import AtWatermark
from millrace.windows import FOREVER

_STARTS = {"slices": "_slice", "coming": "_slice", "odd": "_slice", "cells": "_start"}
"""Tables of rows that windows are made of, and where the last of their windows starts."""


def adapted(operator: Operator, asked: Adaptation, states: Mapping[Any, SlotState]) -> dict[Any, SlotState]:
    """The state of all slots, as the operator can go on with it."""
    made = {place: state for place, state in states.items() if operator.id in state.values}
    if asked.added:
        schemas = _schemas(operator)
        since = max((start for state in made.values() for start in _starts(operator, state)), default=None)
        nothing = partials_of(operator.node).empty
        made = {place: _widened(operator, state, schemas, nothing) for place, state in made.items()}
        if since is not None:
            made = {
                place: _noted(operator, state, dict.fromkeys(asked.added, since))
                for place, state in made.items()
            }
    if asked.trigger is not None and operator.over_rows:
        made = {place: _retold(operator, state, asked.trigger) for place, state in made.items()}
    if asked.lateness is not None and operator.over_rows:
        made = {place: _closed(operator, state, asked.lateness) for place, state in made.items()}
    return {**states, **made}


def _machine(operator: Operator) -> RowWindows | CellWindows:
    return CellWindows(operator) if operator.node.windowing.sliced is None else RowWindows(operator)


def _schemas(operator: Operator) -> dict[str, pl.Schema]:
    """The columns of each table as they are now."""
    machine = _machine(operator)
    if isinstance(machine, CellWindows):
        return {"cells": machine.nothing.schema}
    slices = machine.nothing.schema
    if machine.running is None:
        return {"slices": slices}
    return {**dict.fromkeys(("slices", "coming", "odd"), slices), "sums": machine.running.nothing.schema}


def _starts(operator: Operator, state: SlotState) -> list[int]:
    tables = [(state.table(operator.id, name), column) for name, column in _STARTS.items()]
    found = [chunk.frame[column].max() for table, column in tables for chunk in table.chunks]
    return [start for start in found if isinstance(start, int)]


def _widened(
    operator: Operator, state: SlotState, schemas: Mapping[str, pl.Schema], nothing: pl.DataFrame
) -> SlotState:
    """With the columns of the added aggregates, as of no rows; tables that the operator no longer keeps are left out."""
    mine = {name: table for name, table in state.tables.items() if name.rpartition(":")[0] == operator.id}
    made = replace(state, tables={name: table for name, table in state.tables.items() if name not in mine})
    for name, table in mine.items():
        short = name.rpartition(":")[2]
        if short not in schemas and short != "panes":
            continue
        for chunk in table.chunks:
            frame = (
                chunk.frame
                if short == "panes"
                else chunk.frame.select(_columns(chunk.frame, schemas[short], nothing))
            )
            made = made.with_part(name, frame, chunk)
    return made


def _columns(frame: pl.DataFrame, schema: pl.Schema, nothing: pl.DataFrame) -> list[pl.Expr]:
    return [_column(frame, name, dtype, nothing) for name, dtype in schema.items()]


def _column(frame: pl.DataFrame, name: str, dtype: pl.DataType, nothing: pl.DataFrame) -> pl.Expr:
    if name not in frame.columns:
        return pl.lit(nothing[name.removeprefix("~")]).first().alias(name)
    if (
        frame.schema[name] == dtype
        or not isinstance(dtype, pl.List)
        or not isinstance(dtype.inner, pl.Struct)
    ):
        return pl.col(name)
    had = {field.name for field in frame.schema[name].inner.fields}  # type: ignore[attr-defined] # a list of the same
    fields = [
        pl.element().struct.field(field.name)
        if field.name in had
        else pl.lit(None, field.dtype).alias(field.name)
        for field in dtype.inner.fields
    ]
    return pl.col(name).list.eval(pl.struct(fields)).cast(dtype)


def _noted(operator: Operator, state: SlotState, since: Mapping[str, int]) -> SlotState:
    def note(progress: Any) -> Any:
        return {**progress, "since": {**progress.get("since", {}), **since}}

    return _told(operator, state, note)


def _retold(operator: Operator, state: SlotState, was: str) -> SlotState:
    """With the new trigger's state in each cell, all of which are looked at with the next batch; those that are closed stay so."""
    value, name = state.values[operator.id], f"{operator.id}:cells"
    made = replace(state, tables={other: table for other, table in state.tables.items() if other != name})
    for chunk in state.table(operator.id, "cells").chunks:
        made = made.with_part(name, _begun(operator, chunk.frame, was, value), chunk)
    return made


def _begun(operator: Operator, cells: pl.DataFrame, was: str, value: Mapping[str, Any]) -> pl.DataFrame:
    windowing, time = operator.node.windowing, value["time"]
    punctual = (
        was.startswith("AtWatermark(") and isinstance(windowing.trigger, AtWatermark) and not windowing.once
    )
    clock = max(
        (channel.last_active for channel in Progress.from_json(value["progress"]).channels.values()),
        default=0,
    )

    def begun(state: str, new: int, start: int, passed: bool) -> str:
        first = trigger_state.begin(windowing.trigger)
        if punctual and json.loads(state)[0]:
            first = trigger_state.fired(
                windowing.trigger, first, Moment(time, clock, passed=True, elapsed=False)
            )[0]
        rows = Rows(new, clock, start if time == LEAST else time, passed)
        return json.dumps(
            trigger_state.taken(windowing.trigger, first, rows) if new else first, separators=(",", ":")
        )

    start = pl.when(pl.col("_start") == FOREVER[0]).then(pl.col("_first")).otherwise(pl.col("_start"))
    told = cells.select("_trigger", "_new", start.alias("start"), (pl.col("_end") <= time).alias("passed"))
    return cells.with_columns(
        pl.Series("_trigger", [begun(*row) for row in told.iter_rows()], pl.String),
        pl.lit(LEAST, pl.Int64).alias("_due"),
    )


def _closed(operator: Operator, state: SlotState, lateness: int) -> SlotState:
    """With the end up to which windows were dropped."""

    def note(progress: Any) -> Any:
        low, gone = progress["low"], progress.get("gone")
        ends = [end for end in (gone, None if low is None else low - lateness) if end is not None]
        return {**progress, "gone": max(ends)} if ends else progress

    return _told(operator, state, note)


def _told(operator: Operator, state: SlotState, note: Any) -> SlotState:
    value = state.values[operator.id]
    if not isinstance(value, dict):
        return state
    told = {**value, "progress": note(value["progress"])} if value.get("progress") is not None else value
    return state.with_values(operator.id, told if "progress" in value else note(value))
