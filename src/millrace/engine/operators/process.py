"""Operator `process`: a user's own code per key, with state and timers. Only keys that something happens to
are read and written.

What is kept of a key is its state and timers, as bytes. When time alone concerns a key stands in tables of
their own (`timers` by event time, `alarms` by processing time), so that nobody looks through all keys for
those that are due. What all keys share (`everywhere`) is the same in every slot. In which order a processor
is called says `process_calls.py`.

Example, a processor that sets a timer 10 s after each row, one key:

    batch  rows          watermark  calls
    1      5 s           4 s        -                      the row waits
    2      20 s          18 s       process(5 s), on_timer(15 s)
    3      -             25 s       process(20 s)          its timer waits for 30 s, also if no row comes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.aggregates import ORDER
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine import lateness
from millrace.engine.arrivals import BatchProgress
from millrace.engine.exchange import Block, Body
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.contract import OperatorResult, divide_panes, number_pairs
from millrace.engine.operators.process_calls import Key, ProcessorCalls
from millrace.engine.operators.process_state import dump, expires_at, load, trim
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.errors import DefinitionError
from millrace.state import NO_EXPIRY, KeyState
from millrace.values import function_results
from millrace.values.columns import DUE, ENDS_AT, EXPIRES_AT, KEY_STATE, STATE_VERSION

STATES, TIMERS, CLOCK_TIMERS, SHARED = "kept", "timers", "alarms", "everywhere"
"""State tables: the state of each key; keys and times for which they wait; what all keys share."""
MAX_DELETED_KEYS = 1_000
"""How many keys may have been forgotten before the table is written anew without them."""
NEVER_RUN: dict[str, Any] = {"progress": None, "seq": 0, "time": BEFORE_ALL, "clock": BEFORE_ALL, "gone": 0}


@dataclass(frozen=True, eq=False)
class ProcessOperator:
    """Calls a processor with rows in order, and with timers that are due."""

    operator: Operator
    node: graph.Process

    @cached_property
    def rows(self) -> list[OrderedRows]:
        """The rows of each input that wait for their turn."""
        columns = [(*node.schema, *ORDER) for node in self.node.inputs]
        tables = ("waiting", "waiting everywhere")
        return [
            OrderedRows(self.operator, columns[i], table=tables[i], input_index=i)
            for i in range(len(columns))
        ]

    @cached_property
    def states(self) -> KeyedTable:
        """What is kept of a key: `_ends`, when nothing is left of it; `_until`,
        when nothing is left of any version of it.
        """
        schema = self.node.inputs[0].schema
        columns = {
            EXPIRES_AT: pl.Int64(),
            ENDS_AT: pl.Int64(),
            KEY_STATE: pl.Binary(),
            STATE_VERSION: pl.Int64(),
        }
        empty = pl.Schema({**{key: schema[key] for key in self.node.keys}, **columns}).to_frame()
        return KeyedTable(self.operator.id, STATES, self.node.keys, empty, value=KEY_STATE, until=EXPIRES_AT)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order,
        call the processor with them and with timers, keep what it changed.
        """
        saved = state.values.get(self.operator.id) or NEVER_RUN
        progress = BatchProgress.of(self.operator, body, saved["progress"])
        watermark = min(progress.watermark, END_OF_STREAM)
        state, released, late = self._release(state, blocks, progress, (saved["time"], watermark))
        calls = ProcessorCalls(self.node, watermark, body.now)
        state, deleted_keys = self._call_processor(state, released, saved, calls)
        values = {
            "progress": progress.after.to_json(),
            "seq": saved["seq"] + 1,
            "time": watermark,
            "clock": body.now,
            "gone": deleted_keys,
        }
        shown, changes = divide_panes(self.operator, self._emissions_to_panes("out", self.node.schema, calls))
        outputs = {
            output: self._emissions_to_panes(output, schema, calls)
            for output, schema in self.node.side_schemas.items()
        }
        return OperatorResult(
            state.with_values(self.operator.id, values),
            progress.after.low_watermark,
            shown,
            changes,
            pl.concat(late, how="diagonal_relaxed") if late else None,
            progress,
            {output: frame for output, frame in outputs.items() if not frame.is_empty()},
        )

    def _release(
        self, state: SlotState, blocks: Sequence[Block], progress: BatchProgress, interval: tuple[int, int]
    ) -> tuple[SlotState, list[pl.DataFrame | None], list[pl.DataFrame]]:
        """Of each input the rows that are in order now, and of all inputs those that are late."""
        released: list[pl.DataFrame | None] = []
        late: list[pl.DataFrame] = []
        for index, waiting in enumerate(self.rows):
            own = [block for block in blocks if self.operator.input_index(block.channel) == index]
            rows, refused = progress.load_rows(own), None
            if rows is not None:
                rows, refused = lateness.split_late(rows, lateness.is_behind())
                rows = rows.select(waiting.columns)
            state, rows = waiting.release(state, rows, *interval)
            released.append(rows)
            late += [] if refused is None else [refused]
        return state, released, late

    def _call_processor(
        self,
        state: SlotState,
        released: list[pl.DataFrame | None],
        saved: dict[str, Any],
        calls: ProcessorCalls,
    ) -> tuple[SlotState, int]:
        """The user's code, for every row and every timer that is due; what it changed is stored."""
        keys = list(self.node.keys)
        rows = [self.states.empty.select(keys)] if released[0] is None else [released[0].select(keys)]
        due = self._due_keys(state, TIMERS, saved["time"], calls.watermark) + self._due_keys(
            state, CLOCK_TIMERS, saved["clock"], calls.now
        )
        selected_keys = pl.concat([*rows, *due]).unique()
        if selected_keys.is_empty() and (len(released) < 2 or released[1] is None or released[1].is_empty()):
            return self._expire(state, calls), saved["gone"]
        stored = self.states.read(state, selected_keys).select(*keys, EXPIRES_AT, KEY_STATE)
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
            chunk.frame.filter(pl.col(DUE).is_between(after, until, closed="right")).select(self.node.keys)
            for chunk in chunks
        ]

    def _expire(self, state: SlotState, calls: ProcessorCalls) -> SlotState:
        """Without what time has passed."""
        operator_id = self.operator.id
        state = state.expire(operator_id, TIMERS, calls.watermark).expire(
            operator_id, CLOCK_TIMERS, calls.now
        )
        return self.states.expire(state, calls.watermark)

    def _read_shared(self, state: SlotState) -> KeyState:
        chunks = state.table(self.operator.id, SHARED).chunks
        if not chunks:
            return KeyState()
        return load(pl.concat([chunk.frame for chunk in chunks]).sort(STATE_VERSION)[KEY_STATE][-1])

    def _write_changed(
        self, state: SlotState, calls: ProcessorCalls, expiries: dict[Key, int], saved: dict[str, Any]
    ) -> tuple[SlotState, int]:
        """What changed. Once many keys were deleted, the table is written anew without them."""
        version, deleted_keys = saved["seq"] + 1, saved["gone"]
        changed, newly_deleted = self._changed_states(calls, expiries, version)
        state = self.states.append(state, changed, since=saved["time"])
        state = self._write_timers(state, calls)
        if calls.is_shared_changed:
            state = self._write_shared(state, calls.shared, version)
        state, deleted_keys = self._expire(state, calls), deleted_keys + newly_deleted
        if deleted_keys <= max(MAX_DELETED_KEYS, state.table(self.operator.id, STATES).rows // 2):
            return state, deleted_keys
        is_alive = pl.col(KEY_STATE).is_not_null() & (pl.col(ENDS_AT) > calls.watermark)
        layout = self.states.layout(saved["time"])
        return state.rewrite(
            self.operator.id,
            STATES,
            layout,
            lambda frame: frame.filter(is_alive).with_columns(pl.col(ENDS_AT).alias(EXPIRES_AT)),
        ), 0

    def _changed_states(
        self, calls: ProcessorCalls, expiries: dict[Key, int], version: int
    ) -> tuple[pl.DataFrame, int]:
        """New versions of the keys that were called for, and how many of them are kept only to hide older
        versions.

        A version is kept no shorter than those before it would be: else an older one would come back when it
        expires.
        """
        rows, deleted_keys = [], 0
        for key in calls.touched_keys:
            key_state = calls.states[key]
            trim(key_state)
            if key_state.is_empty and key not in expiries:
                continue
            end = key_state.last_time if key_state.is_empty else expires_at(key_state)
            expiry = max(end, expiries.get(key, end))
            deleted_keys += end < expiry
            rows.append((*key, expiry, end, None if key_state.is_empty else dump(key_state), version))
        return pl.DataFrame(rows, schema=self.states.empty.schema, orient="row"), deleted_keys

    def _write_timers(self, state: SlotState, calls: ProcessorCalls) -> SlotState:
        """Keys and times of the timers that were set and are not due yet."""
        layout = Layout(pl.col(DUE), pl.col(DUE), lambda frame: frame)
        schema = {**self.states.empty.select(self.node.keys).schema, DUE: pl.Int64()}
        for table, timers in ((TIMERS, calls.new_timers), (CLOCK_TIMERS, calls.new_clock_timers)):
            frame = pl.DataFrame([(*key, at) for key, at in timers], schema=schema, orient="row")
            state = state.append(self.operator.id, table, frame, layout)
        return state

    def _write_shared(self, state: SlotState, shared: KeyState, version: int) -> SlotState:
        frame = pl.DataFrame(
            [(dump(shared), version)], schema={KEY_STATE: pl.Binary, STATE_VERSION: pl.Int64}, orient="row"
        )
        forever = pl.lit(NO_EXPIRY, pl.Int64)
        layout = Layout(forever, forever, lambda frame: frame.sort(STATE_VERSION).tail(1))
        return state.append(self.operator.id, SHARED, frame, layout)

    def _emissions_to_panes(self, output: str, schema: pl.Schema, calls: ProcessorCalls) -> pl.DataFrame:
        """What was emitted to one output."""
        emissions = calls.emissions.get(output)
        if not emissions:
            return number_pairs(schema.to_frame(), schema)
        keys = list(self.node.keys)
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
                    f"{type(self.node.processor).__name__} emits {', '.join(values) or 'nothing'} of {key} "
                    f"to {output!r}, which has the columns {', '.join(value_columns)}"
                )
        columns |= {
            name: _column_values(name, [values[name] for _, _, values in emissions], schema[name])
            for name in value_columns
        }
        columns["event_time"] = [time for _, time, _ in emissions]
        frame = pl.DataFrame(columns, schema={name: schema[name] for name in columns}, strict=True)
        shown = frame.with_columns(
            pl.col("event_time").alias("window_start"),
            (pl.col("event_time") + 1).alias("window_end"),
            *panes.shown_once(),
        )
        return number_pairs(shown, schema)


def _column_values(name: str, values: list[Any], dtype: Any) -> Any:
    """The values of a column; polars cuts those inside of structs,
    and makes infinity of what 32 bits do not hold.
    """
    return (
        function_results.to_series(name, values, dtype)
        if dtype.is_nested() or dtype == pl.Float32
        else values
    )
