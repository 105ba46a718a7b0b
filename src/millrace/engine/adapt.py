"""State of a job that was changed in ways that its state survives: a longer lateness, an added aggregate,
another trigger.

A longer lateness: windows that were dropped by the shorter one stay dropped; a late row would begin them
anew, without what they held. An added aggregate: in windows that had begun it is null, as it would hold only
what came since; windows that begin later have it in full. Another trigger: it begins in each open window with
the rows that no pane has shown yet, as if they had come with the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from millrace.durations import BEFORE_ALL
from millrace.engine import trigger_state
from millrace.engine.fingerprints import Adaptation
from millrace.engine.operators.partials import partials_of
from millrace.engine.operators.sliced_windows import SlicedWindowsOperator
from millrace.engine.operators.windows import WindowsOperator
from millrace.engine.plan import Operator
from millrace.engine.progress import Progress
from millrace.engine.state import SlotState
from millrace.engine.trigger_state import FiringContext, NewRows
from millrace.graph import Identity
from millrace.triggers import AtWatermark
from millrace.values.columns import DUE, END, FIRST_TIME, NEW_ROWS, SLICE, START, TRIGGER_STATE
from millrace.windows import FOREVER

_START_COLUMNS = {"slices": SLICE, "coming": SLICE, "odd": SLICE, "cells": START}
"""Tables of rows that windows are made of, and where the last of their windows starts."""


def adapt_state(
    operator: Operator, adaptation: Adaptation, states: Mapping[Any, SlotState]
) -> dict[Any, SlotState]:
    """The state of all slots, as the operator can go on with it."""
    adapted = {stage_slot: state for stage_slot, state in states.items() if operator.id in state.values}
    if adaptation.added:
        schemas = _table_schemas(operator)
        since = max(
            (start for state in adapted.values() for start in _window_starts(operator, state)), default=None
        )
        empty_partials = partials_of(operator.aggregation).empty
        adapted = {
            stage_slot: _add_aggregate_columns(operator, state, schemas, empty_partials)
            for stage_slot, state in adapted.items()
        }
        if since is not None:
            adapted = {
                stage_slot: _record_since(operator, state, dict.fromkeys(adaptation.added, since))
                for stage_slot, state in adapted.items()
            }
    if adaptation.trigger is not None and operator.over_rows:
        adapted = {
            stage_slot: _restart_triggers(operator, state, adaptation.trigger)
            for stage_slot, state in adapted.items()
        }
    if adaptation.lateness is not None and operator.over_rows:
        adapted = {
            stage_slot: _record_dropped(operator, state, adaptation.lateness)
            for stage_slot, state in adapted.items()
        }
    return {**states, **adapted}


def _window_operator(operator: Operator) -> SlicedWindowsOperator | WindowsOperator:
    return (
        WindowsOperator(operator)
        if operator.aggregation.windowing.sliced_window is None
        else SlicedWindowsOperator(operator)
    )


def _table_schemas(operator: Operator) -> dict[str, pl.Schema]:
    """The columns of each table as they are now."""
    window_operator = _window_operator(operator)
    if isinstance(window_operator, WindowsOperator):
        return {"cells": window_operator.empty_cells.schema}
    slices = window_operator.empty_slices.schema
    if window_operator.running is None:
        return {"slices": slices}
    return {
        **dict.fromkeys(("slices", "coming", "odd"), slices),
        "sums": window_operator.running.empty_sums.schema,
    }


def _window_starts(operator: Operator, state: SlotState) -> list[int]:
    tables = [(state.table(operator.id, name), column) for name, column in _START_COLUMNS.items()]
    found = [chunk.frame[column].max() for table, column in tables for chunk in table.chunks]
    return [start for start in found if isinstance(start, int)]


def _add_aggregate_columns(
    operator: Operator, state: SlotState, schemas: Mapping[str, pl.Schema], empty_partials: pl.DataFrame
) -> SlotState:
    """With the columns of the added aggregates, as of no rows;
    tables that the operator no longer keeps are left out.
    """
    own_tables = {
        name: table for name, table in state.tables.items() if name.rpartition(":")[0] == operator.id
    }
    widened = replace(
        state, tables={name: table for name, table in state.tables.items() if name not in own_tables}
    )
    for name, table in own_tables.items():
        table_name = name.rpartition(":")[2]
        if table_name not in schemas and table_name != "panes":
            continue
        for chunk in table.chunks:
            frame = (
                chunk.frame
                if table_name == "panes"
                else chunk.frame.select(_extend_columns(chunk.frame, schemas[table_name], empty_partials))
            )
            widened = widened.with_chunk_part(name, frame, chunk)
    return widened


def _extend_columns(frame: pl.DataFrame, schema: pl.Schema, empty_partials: pl.DataFrame) -> list[pl.Expr]:
    return [_extend_column(frame, name, dtype, empty_partials) for name, dtype in schema.items()]


def _extend_column(
    frame: pl.DataFrame, name: str, dtype: pl.DataType, empty_partials: pl.DataFrame
) -> pl.Expr:
    if name not in frame.columns:
        return pl.lit(empty_partials[name.removeprefix("~")]).first().alias(name)
    if (
        frame.schema[name] == dtype
        or not isinstance(dtype, pl.List)
        or not isinstance(dtype.inner, pl.Struct)
    ):
        return pl.col(name)
    old_fields = {field.name for field in frame.schema[name].inner.fields}  # type: ignore[attr-defined] # a list of the same
    fields = [
        pl.element().struct.field(field.name)
        if field.name in old_fields
        else pl.lit(None, field.dtype).alias(field.name)
        for field in dtype.inner.fields
    ]
    return pl.col(name).list.eval(pl.struct(fields)).cast(dtype)


def _record_since(operator: Operator, state: SlotState, since: Mapping[str, int]) -> SlotState:
    def add_since(progress: Any) -> Any:
        return {**progress, "since": {**progress.get("since", {}), **since}}

    return _update_progress(operator, state, add_since)


def _restart_triggers(operator: Operator, state: SlotState, old_trigger: Identity) -> SlotState:
    """With the new trigger's state in each cell, all of which are looked at with the next batch;
    those that are closed stay so.
    """
    value, name = state.values[operator.id], f"{operator.id}:cells"
    restarted = replace(
        state, tables={other: table for other, table in state.tables.items() if other != name}
    )
    for chunk in state.table(operator.id, "cells").chunks:
        restarted = restarted.with_chunk_part(
            name, _restart_cells(operator, chunk.frame, old_trigger, value), chunk
        )
    return restarted


def _restart_cells(
    operator: Operator, cells: pl.DataFrame, old_trigger: Identity, value: Mapping[str, Any]
) -> pl.DataFrame:
    windowing, time = operator.aggregation.windowing, value["time"]
    may_have_fired = (
        old_trigger["kind"] == "at_watermark"
        and isinstance(windowing.trigger, AtWatermark)
        and not windowing.fires_once
    )
    clock = max(
        (channel.last_active for channel in Progress.from_json(value["progress"]).partitions.values()),
        default=0,
    )

    def restart(state: str, new: int, start: int, passed: bool) -> str:
        initial = trigger_state.initial_state(windowing.trigger)
        if may_have_fired and json.loads(state)[0]:
            initial = trigger_state.fire(
                windowing.trigger,
                initial,
                FiringContext(time, clock, is_past_end=True, is_clock_past_end=False),
            )[0]
        rows = NewRows(new, clock, start if time == BEFORE_ALL else time, passed)
        return json.dumps(
            trigger_state.add_rows(windowing.trigger, initial, rows) if new else initial,
            separators=(",", ":"),
        )

    start = pl.when(pl.col(START) == FOREVER[0]).then(pl.col(FIRST_TIME)).otherwise(pl.col(START))
    windows = cells.select(
        TRIGGER_STATE, NEW_ROWS, start.alias("start"), (pl.col(END) <= time).alias("passed")
    )
    return cells.with_columns(
        pl.Series(TRIGGER_STATE, [restart(*row) for row in windows.iter_rows()], pl.String),
        pl.lit(BEFORE_ALL, pl.Int64).alias(DUE),
    )


def _record_dropped(operator: Operator, state: SlotState, lateness: int) -> SlotState:
    """With the end up to which windows were dropped."""

    def add_dropped(progress: Any) -> Any:
        watermark, dropped = progress["low"], progress.get("gone")
        ends = [
            end for end in (dropped, None if watermark is None else watermark - lateness) if end is not None
        ]
        return {**progress, "gone": max(ends)} if ends else progress

    return _update_progress(operator, state, add_dropped)


def _update_progress(operator: Operator, state: SlotState, update: Any) -> SlotState:
    value = state.values[operator.id]
    if not isinstance(value, dict):
        return state
    updated = {**value, "progress": update(value["progress"])} if value.get("progress") is not None else value
    return state.with_values(operator.id, updated if "progress" in value else update(value))
