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
from millrace.engine.arrivals import arrived, refused_rows, said_of
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.emit import PAIR, Stepped
from millrace.engine.operators.ordered_windows import LEAST, SequenceWindows
from millrace.engine.operators.process_calls import Calls, Key
from millrace.engine.operators.process_state import dump, load, trim, until
from millrace.engine.progress import END, Progress
from millrace.engine.state import Layout, SlotState
from millrace.errors import DefinitionError
from millrace.processors import NEVER, Kept
from millrace.values import function_results

GONE = 1_000
"""How many keys may have been forgotten before the table is written anew without them."""


@dataclass(frozen=True, eq=False)
class Processes(SequenceWindows):
    """The operator of a processor: rows wait and are released in order, like those of patterns."""

    @cached_property
    def node(self) -> graph.Process:
        """What it is to do."""
        node = self.operator.node
        assert isinstance(node, graph.Process)
        return node

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: rows behind their watermark are refused, the others wait; those before the new one are taken in order, then timers fire."""
        id = self.operator.id
        saved = state.values.get(id) or {"progress": None, "seq": 0, "time": LEAST, "clock": LEAST, "gone": 0}
        said = said_of(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(said, body.now)
        after = before.move(said, body.now, end=body.end)
        time = LEAST if after.low is None else min(after.low, END)
        free, late = [], []
        for side in range(len(self.node.inputs)):
            mine = [block for block in blocks if self.operator.side(block.channel) == side]
            rows, refused = self._judged_side(side, arrived(self.operator, mine, said, before))
            state, rows = self._released(
                state, rows, saved["time"], time, table="waiting" if side == 0 else "waiting everywhere"
            )
            free.append(rows)
            late += [] if refused is None else [refused]
        calls = Calls(self.node, time, body.now)
        state, gone = self._called(state, free, saved, calls)
        values = {
            "progress": after.to_json(),
            "seq": saved["seq"] + 1,
            "time": time,
            "clock": body.now,
            "gone": gone,
        }
        out = self._emitted("out", self.node.schema, calls)
        sides = {port: self._emitted(port, schema, calls) for port, schema in self.node.ports.items()}
        return Stepped(
            state.with_values(id, values),
            after.low,
            out if self.operator.shows else self.no_shown,
            out.drop(PAIR) if self.operator.travels else self.no_panes,
            pl.concat(late, how="diagonal_relaxed") if late else None,
            after.reaches(said),
            {port: said for port, said in sides.items() if not said.is_empty()},
        )

    def _judged_side(
        self, side: int, rows: pl.DataFrame | None
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The rows of one input that wait now, and those that come too late. Of a broadcast row only one slot says so."""
        if rows is None:
            return None, None
        refused = pl.col("_ahead") | (pl.col("_t") < pl.col("_w")).fill_null(value=False)
        told = refused & pl.col("_told") if "_told" in rows.columns else refused
        reason = pl.when(pl.col("_ahead")).then(pl.lit("future")).otherwise(pl.lit("late"))
        verdicts = rows.filter(told).select(
            "_row", reason.alias("reason"), pl.lit(1, pl.Int64).alias("missed")
        )
        late = None if verdicts.is_empty() else refused_rows(rows.drop("_told", strict=False), verdicts)
        return rows.filter(~refused).select(*self.node.inputs[side].schema, *ORDER), late

    def _called(
        self, state: SlotState, free: list[pl.DataFrame | None], saved: dict[str, Any], calls: Calls
    ) -> tuple[SlotState, int]:
        """The user's code, for every row and every timer that is due; what it changed is stored."""
        keys = list(self.node.keys)
        rows = [self._nothing.select(keys)] if free[0] is None else [free[0].select(keys)]
        due = self._due(state, "timers", saved["time"], calls.time) + self._due(
            state, "alarms", saved["clock"], calls.now
        )
        wanted = pl.concat([*rows, *due]).unique()
        if wanted.is_empty() and (len(free) < 2 or free[1] is None or free[1].is_empty()):
            return self._passed(state, calls), saved["gone"]
        known = self._known(state, wanted)
        calls.known = {row[:-2]: load(row[-1]) for row in known.iter_rows()}
        calls.shared = self._shared(state)
        untils: dict[Key, int] = {row[:-2]: row[-2] for row in known.iter_rows()}
        calls.take(
            None if free[0] is None else free[0].sort(ORDER),
            None if len(free) < 2 or free[1] is None else free[1].sort(ORDER),
        )
        return self._written(state, calls, untils, saved)

    def _due(self, state: SlotState, table: str, since: int, upto: int) -> list[pl.DataFrame]:
        """The keys for which something may be due."""
        chunks = [chunk for chunk in state.table(self.operator.id, table).chunks if chunk.low <= upto]
        return [
            chunk.frame.filter(pl.col("_at").is_between(since, upto, closed="right")).select(self.node.keys)
            for chunk in chunks
        ]

    def _passed(self, state: SlotState, calls: Calls) -> SlotState:
        """Without what time has passed."""
        id = self.operator.id
        return (
            state.expire(id, "timers", calls.time)
            .expire(id, "alarms", calls.now)
            .expire(id, "kept", calls.time)
        )

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        """No keys; `_kept`: null where it was forgotten, `_ends`: when nothing is left of it, `_until`: when nothing is left of any version of it."""
        schema = self.node.inputs[0].schema
        numbers = {"_until": pl.Int64(), "_ends": pl.Int64(), "_kept": pl.Binary(), "_seq": pl.Int64()}
        return pl.Schema({**{key: schema[key] for key in self.node.keys}, **numbers}).to_frame()

    def _newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sort("_seq").unique(self.node.keys, keep="last", maintain_order=True)

    def _known(self, state: SlotState, wanted: pl.DataFrame) -> pl.DataFrame:
        """What is kept of these keys."""
        keys = list(self.node.keys)
        chunks = state.table(self.operator.id, "kept").chunks
        found = [chunk.frame.join(wanted, on=keys, how="semi", nulls_equal=True) for chunk in chunks]
        newest = self._newest(pl.concat([self._nothing, *found]))
        return newest.filter(pl.col("_kept").is_not_null()).select(*keys, "_until", "_kept")

    def _shared(self, state: SlotState) -> Kept:
        chunks = state.table(self.operator.id, "everywhere").chunks
        if not chunks:
            return Kept()
        return load(pl.concat([chunk.frame for chunk in chunks]).sort("_seq")["_kept"][-1])

    def _written(
        self, state: SlotState, calls: Calls, untils: dict[Key, int], saved: dict[str, Any]
    ) -> tuple[SlotState, int]:
        """What changed. A version is kept no shorter than those before it would be, which else came back; once there are many such, the table is written anew."""
        id, keys, seq = self.operator.id, list(self.node.keys), saved["seq"] + 1
        forever = pl.lit(NEVER, pl.Int64)
        rows, gone = [], saved["gone"]
        for key in calls.touched:
            kept = calls.known[key]
            trim(kept)
            if kept.empty and key not in untils:
                continue
            ends = kept.at if kept.empty else until(kept)
            sticks = max(ends, untils.get(key, ends))
            gone += ends < sticks
            rows.append((*key, sticks, ends, None if kept.empty else dump(kept), seq))
        layout = Layout(
            pl.col("_until"),
            pl.col("_until"),
            lambda frame: self._newest(frame).filter(pl.col("_until") > saved["time"]),
        )
        state = state.append(
            id, "kept", pl.DataFrame(rows, schema=self._nothing.schema, orient="row"), layout
        )
        due = Layout(pl.col("_at"), pl.col("_at"), lambda frame: frame)
        schema = {**self._nothing.select(keys).schema, "_at": pl.Int64()}
        for table, set_ in (("timers", calls.set_timers), ("alarms", calls.set_alarms)):
            state = state.append(
                id, table, pl.DataFrame([(*key, at) for key, at in set_], schema=schema, orient="row"), due
            )
        if calls.rules_changed:
            shared = pl.DataFrame(
                [(dump(calls.shared), seq)], schema={"_kept": pl.Binary, "_seq": pl.Int64}, orient="row"
            )
            state = state.append(
                id, "everywhere", shared, Layout(forever, forever, lambda frame: frame.sort("_seq").tail(1))
            )
        state = self._passed(state, calls)
        if gone > max(GONE, state.table(id, "kept").rows // 2):
            lasting = pl.col("_kept").is_not_null() & (pl.col("_ends") > calls.time)
            return state.anew(
                id,
                "kept",
                layout,
                lambda frame: frame.filter(lasting).with_columns(pl.col("_ends").alias("_until")),
            ), 0
        return state, gone

    def _emitted(self, port: str, schema: pl.Schema, calls: Calls) -> pl.DataFrame:
        """What was emitted to one output."""
        said = calls.said.get(port)
        if not said:
            return schema.to_frame().with_columns(pl.lit(0, pl.Int64).alias(PAIR))
        keys, about = (
            list(self.node.keys),
            {"index": 0, "settled_index": 0, "timing": "on_time", "final": True, "op": panes.ADD},
        )
        own = [
            name for name in schema if name not in keys and name not in panes.COLUMNS and name != "event_time"
        ]
        columns: dict[str, list[Any]] = {
            key: [row[0][place] for row in said] for place, key in enumerate(keys)
        }
        for key, _, values in said[:1] + [row for row in said if row[2].keys() != said[0][2].keys()]:
            if values.keys() != {*own}:
                raise DefinitionError(
                    f"{type(self.node.processor).__name__} emits {', '.join(values) or 'nothing'} of {key} to {port!r}, which has the columns {', '.join(own)}"
                )
        columns |= {
            name: _column(name, [values[name] for _, _, values in said], schema[name]) for name in own
        }
        columns["event_time"] = [time for _, time, _ in said]
        made = pl.DataFrame(columns, schema={name: schema[name] for name in columns}, strict=True)
        return made.with_columns(
            pl.col("event_time").alias("window_start"),
            (pl.col("event_time") + 1).alias("window_end"),
            *(pl.lit(value, panes.COLUMNS[name]).alias(name) for name, value in about.items()),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR),
        ).select(*schema, PAIR)


def _column(name: str, values: list[Any], dtype: Any) -> Any:
    """The values of a column; polars cuts those inside of structs, and makes infinity of what 32 bits do not hold."""
    return (
        function_results.series(name, values, dtype) if dtype.is_nested() or dtype == pl.Float32 else values
    )
