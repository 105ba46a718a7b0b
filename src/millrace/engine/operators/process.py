"""Processors over rows: what is kept of a key is its cells and timers, as bytes. Only keys that something happens to are read and written.

When time alone concerns a key stands in tables of their own (`timers` by event time, `alarms` by the clock), so that nobody looks through
all keys for those that are due. What all keys share (`everywhere`) is the same in every slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.aggregates import ORDER
from millrace.engine.arrivals import collect_reports, format_late_rows, load_rows
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.emit import PAIR, OperatorResult
from millrace.engine.operators.ordered_windows import BEFORE_ALL, OrderedWindowsOperator
from millrace.engine.operators.process_calls import Key, ProcessorCalls
from millrace.engine.operators.process_state import dump, expires_at, load, trim
from millrace.engine.progress import END_OF_STREAM, Progress
from millrace.engine.state import Layout, SlotState
from millrace.errors import DefinitionError
from millrace.state import NO_EXPIRY, KeyState
from millrace.values import function_results

MAX_DELETED_KEYS = 1_000
"""How many keys may have been forgotten before the table is written anew without them."""


@dataclass(frozen=True, eq=False)
class ProcessOperator(OrderedWindowsOperator):
    """The operator of a processor: rows wait and are released in order, like those of patterns."""

    @cached_property
    def node(self) -> graph.Process:
        """What it is to do."""
        node = self.operator.node
        assert isinstance(node, graph.Process)
        return node

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: rows behind their watermark are refused, the others wait; those before the new one are taken in order, then timers fire."""
        operator_id = self.operator.id
        saved = state.values.get(operator_id) or {
            "progress": None,
            "seq": 0,
            "time": BEFORE_ALL,
            "clock": BEFORE_ALL,
            "gone": 0,
        }
        reports = collect_reports(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(reports, body.now)
        after = before.advance(reports, body.now, at_end=body.at_end)
        watermark = BEFORE_ALL if after.low_watermark is None else min(after.low_watermark, END_OF_STREAM)
        released, late = [], []
        for input_index in range(len(self.node.inputs)):
            input_blocks = [
                block for block in blocks if self.operator.input_index(block.channel) == input_index
            ]
            rows, refused = self._split_late_input(
                input_index, load_rows(self.operator, input_blocks, reports, before)
            )
            state, rows = self._release(
                state,
                rows,
                saved["time"],
                watermark,
                table="waiting" if input_index == 0 else "waiting everywhere",
            )
            released.append(rows)
            late += [] if refused is None else [refused]
        calls = ProcessorCalls(self.node, watermark, body.now)
        state, deleted_keys = self._call_processor(state, released, saved, calls)
        values = {
            "progress": after.to_json(),
            "seq": saved["seq"] + 1,
            "time": watermark,
            "clock": body.now,
            "gone": deleted_keys,
        }
        emitted = self._emissions_to_panes("out", self.node.schema, calls)
        side_outputs = {
            output: self._emissions_to_panes(output, schema, calls)
            for output, schema in self.node.side_schemas.items()
        }
        return OperatorResult(
            state.with_values(operator_id, values),
            after.low_watermark,
            emitted if self.operator.shows else self.empty_panes,
            emitted.drop(PAIR) if self.operator.travels else self.empty_changes,
            pl.concat(late, how="diagonal_relaxed") if late else None,
            after.partition_watermarks(reports),
            {output: reports for output, reports in side_outputs.items() if not reports.is_empty()},
        )

    def _split_late_input(
        self, input_index: int, rows: pl.DataFrame | None
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The rows of one input that wait now, and those that come too late. Of a broadcast row only one slot says so."""
        if rows is None:
            return None, None
        is_refused = pl.col("_ahead") | (pl.col("_t") < pl.col("_w")).fill_null(value=False)
        is_reported = is_refused & pl.col("_told") if "_told" in rows.columns else is_refused
        reason = pl.when(pl.col("_ahead")).then(pl.lit("future")).otherwise(pl.lit("late"))
        verdicts = rows.filter(is_reported).select(
            "_row", reason.alias("reason"), pl.lit(1, pl.Int64).alias("missed")
        )
        late = None if verdicts.is_empty() else format_late_rows(rows.drop("_told", strict=False), verdicts)
        return rows.filter(~is_refused).select(*self.node.inputs[input_index].schema, *ORDER), late

    def _call_processor(
        self,
        state: SlotState,
        released: list[pl.DataFrame | None],
        saved: dict[str, Any],
        calls: ProcessorCalls,
    ) -> tuple[SlotState, int]:
        """The user's code, for every row and every timer that is due; what it changed is stored."""
        keys = list(self.node.keys)
        rows = [self._empty_rows.select(keys)] if released[0] is None else [released[0].select(keys)]
        due = self._due_keys(state, "timers", saved["time"], calls.watermark) + self._due_keys(
            state, "alarms", saved["clock"], calls.now
        )
        selected_keys = pl.concat([*rows, *due]).unique()
        if selected_keys.is_empty() and (len(released) < 2 or released[1] is None or released[1].is_empty()):
            return self._expire(state, calls), saved["gone"]
        stored = self._read_stored(state, selected_keys)
        calls.states = {row[:-2]: load(row[-1]) for row in stored.iter_rows()}
        calls.shared = self._read_shared(state)
        expiries: dict[Key, int] = {row[:-2]: row[-2] for row in stored.iter_rows()}
        calls.run(
            None if released[0] is None else released[0].sort(ORDER),
            None if len(released) < 2 or released[1] is None else released[1].sort(ORDER),
        )
        return self._write_changed(state, calls, expiries, saved)

    def _due_keys(self, state: SlotState, table: str, after: int, until: int) -> list[pl.DataFrame]:
        """The keys for which something may be due."""
        chunks = [chunk for chunk in state.table(self.operator.id, table).chunks if chunk.min_end <= until]
        return [
            chunk.frame.filter(pl.col("_at").is_between(after, until, closed="right")).select(self.node.keys)
            for chunk in chunks
        ]

    def _expire(self, state: SlotState, calls: ProcessorCalls) -> SlotState:
        """Without what time has passed."""
        operator_id = self.operator.id
        return (
            state.expire(operator_id, "timers", calls.watermark)
            .expire(operator_id, "alarms", calls.now)
            .expire(operator_id, "kept", calls.watermark)
        )

    @cached_property
    def _empty_rows(self) -> pl.DataFrame:
        """No keys; `_kept`: null where it was forgotten, `_ends`: when nothing is left of it, `_until`: when nothing is left of any version of it."""
        schema = self.node.inputs[0].schema
        numbers = {"_until": pl.Int64(), "_ends": pl.Int64(), "_kept": pl.Binary(), "_seq": pl.Int64()}
        return pl.Schema({**{key: schema[key] for key in self.node.keys}, **numbers}).to_frame()

    def _newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sort("_seq").unique(self.node.keys, keep="last", maintain_order=True)

    def _read_stored(self, state: SlotState, selected_keys: pl.DataFrame) -> pl.DataFrame:
        """What is kept of these keys."""
        keys = list(self.node.keys)
        chunks = state.table(self.operator.id, "kept").chunks
        frames = [chunk.frame.join(selected_keys, on=keys, how="semi", nulls_equal=True) for chunk in chunks]
        newest = self._newest(pl.concat([self._empty_rows, *frames]))
        return newest.filter(pl.col("_kept").is_not_null()).select(*keys, "_until", "_kept")

    def _read_shared(self, state: SlotState) -> KeyState:
        chunks = state.table(self.operator.id, "everywhere").chunks
        if not chunks:
            return KeyState()
        return load(pl.concat([chunk.frame for chunk in chunks]).sort("_seq")["_kept"][-1])

    def _write_changed(
        self, state: SlotState, calls: ProcessorCalls, expiries: dict[Key, int], saved: dict[str, Any]
    ) -> tuple[SlotState, int]:
        """What changed. A version is kept no shorter than those before it would be, which else came back; once there are many such, the table is written anew."""
        operator_id, keys, version = self.operator.id, list(self.node.keys), saved["seq"] + 1
        forever = pl.lit(NO_EXPIRY, pl.Int64)
        rows, deleted_keys = [], saved["gone"]
        for key in calls.touched_keys:
            key_state = calls.states[key]
            trim(key_state)
            if key_state.is_empty and key not in expiries:
                continue
            end = key_state.last_time if key_state.is_empty else expires_at(key_state)
            expiry = max(end, expiries.get(key, end))
            deleted_keys += end < expiry
            rows.append((*key, expiry, end, None if key_state.is_empty else dump(key_state), version))
        layout = Layout(
            pl.col("_until"),
            pl.col("_until"),
            lambda frame: self._newest(frame).filter(pl.col("_until") > saved["time"]),
        )
        state = state.append(
            operator_id, "kept", pl.DataFrame(rows, schema=self._empty_rows.schema, orient="row"), layout
        )
        timer_layout = Layout(pl.col("_at"), pl.col("_at"), lambda frame: frame)
        schema = {**self._empty_rows.select(keys).schema, "_at": pl.Int64()}
        for table, timers in (("timers", calls.new_timers), ("alarms", calls.new_clock_timers)):
            state = state.append(
                operator_id,
                table,
                pl.DataFrame([(*key, at) for key, at in timers], schema=schema, orient="row"),
                timer_layout,
            )
        if calls.is_shared_changed:
            shared = pl.DataFrame(
                [(dump(calls.shared), version)], schema={"_kept": pl.Binary, "_seq": pl.Int64}, orient="row"
            )
            state = state.append(
                operator_id,
                "everywhere",
                shared,
                Layout(forever, forever, lambda frame: frame.sort("_seq").tail(1)),
            )
        state = self._expire(state, calls)
        if deleted_keys > max(MAX_DELETED_KEYS, state.table(operator_id, "kept").rows // 2):
            is_alive = pl.col("_kept").is_not_null() & (pl.col("_ends") > calls.watermark)
            return state.rewrite(
                operator_id,
                "kept",
                layout,
                lambda frame: frame.filter(is_alive).with_columns(pl.col("_ends").alias("_until")),
            ), 0
        return state, deleted_keys

    def _emissions_to_panes(self, output: str, schema: pl.Schema, calls: ProcessorCalls) -> pl.DataFrame:
        """What was emitted to one output."""
        emissions = calls.emissions.get(output)
        if not emissions:
            return schema.to_frame().with_columns(pl.lit(0, pl.Int64).alias(PAIR))
        keys, pane_values = (
            list(self.node.keys),
            {"index": 0, "settled_index": 0, "timing": "on_time", "final": True, "op": panes.ADD},
        )
        value_columns = [
            name for name in schema if name not in keys and name not in panes.COLUMNS and name != "event_time"
        ]
        columns: dict[str, list[Any]] = {
            key: [row[0][position] for row in emissions] for position, key in enumerate(keys)
        }
        for key, _, values in emissions[:1] + [
            row for row in emissions if row[2].keys() != emissions[0][2].keys()
        ]:
            if values.keys() != {*value_columns}:
                raise DefinitionError(
                    f"{type(self.node.processor).__name__} emits {', '.join(values) or 'nothing'} of {key} to {output!r}, which has the columns {', '.join(value_columns)}"
                )
        columns |= {
            name: _column_values(name, [values[name] for _, _, values in emissions], schema[name])
            for name in value_columns
        }
        columns["event_time"] = [time for _, time, _ in emissions]
        frame = pl.DataFrame(columns, schema={name: schema[name] for name in columns}, strict=True)
        return frame.with_columns(
            pl.col("event_time").alias("window_start"),
            (pl.col("event_time") + 1).alias("window_end"),
            *(pl.lit(value, panes.COLUMNS[name]).alias(name) for name, value in pane_values.items()),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR),
        ).select(*schema, PAIR)


def _column_values(name: str, values: list[Any], dtype: Any) -> Any:
    """The values of a column; polars cuts those inside of structs, and makes infinity of what 32 bits do not hold."""
    return (
        function_results.to_series(name, values, dtype)
        if dtype.is_nested() or dtype == pl.Float32
        else values
    )
