"""Processors in the model: rows wait for the watermark.

Then the next row or timer in event time is searched among all and processed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from millrace import graph, panes
from millrace.durations import END_OF_STREAM
from millrace.processors import Context, call_processor
from millrace.state import KeyState
from millrace.testing.model.outcome import (
    ArrivedRow,
    Change,
    ComputeValues,
    Key,
    OperatorOutcome,
    release_rows,
)
from millrace.testing.model.values import clip_time
from millrace.timestamps import TimeDomain


class ModelProcess:
    """One processor and its state."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - it has no aggregates
        assert isinstance(node, graph.Process)
        self.node, self.processor = node, node.processor
        self.input_sides = [edge.input_index for edge in graph.edges(node)]
        self.waiting: list[ArrivedRow] = []
        self.keyed_state: dict[Key, KeyState] = {}
        self.shared_state = KeyState()

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:
        """Refuses late rows, and processes those before the new watermark,
        each after the timers up to its time.
        """
        ready = sorted(release_rows(self.waiting, arrivals, time, outcome), key=self.sort_key)
        for arrival in ready:
            at = arrival.row["event_time"]
            key = tuple(arrival.row.get(name) for name in self.node.keys)
            is_broadcast = self.input_sides[arrival.row_order[2]] == 1
            self.fire_timers(at, now, outcome, None if is_broadcast else key)
            if is_broadcast:
                ctx = Context({}, KeyState(), self.shared_state, at, now, "shared")
                call_processor(
                    self.processor,
                    ctx,
                    lambda row=arrival.row, ctx=ctx: self.processor.process_broadcast(row, ctx),  # type: ignore[misc]
                )
            else:
                self.call(key, at, now, outcome, row=arrival.row)
        self.advance_time(time, now, outcome)
        for at, name, key in sorted(
            (
                (at, name, key)
                for key, state in self.keyed_state.items()
                for name, at in state.clock_timers.items()
                if at <= now
            ),
            key=lambda timer: timer[:2],
        ):
            if self.keyed_state[key].clock_timers.get(name) == at:
                del self.keyed_state[key].clock_timers[name]
                last, passed = self.keyed_state[key].last_time, time if time < END_OF_STREAM else -math.inf
                event_time = max(last, clip_time(passed))
                self.call(key, event_time, now, outcome, timer=name, time_domain="processing")
        self.advance_time(time, now, outcome)

    def sort_key(self, arrival: ArrivedRow) -> Any:
        """Event time first, then broadcast rows before others."""
        return arrival.row["event_time"], -self.input_sides[arrival.row_order[2]], arrival.row_order

    def due_timers(self, until: float) -> list[tuple[int, str, Key]]:
        """The timers that are due, the next first."""
        due = [
            (at, name, key)
            for key, state in self.keyed_state.items()
            for name, at in state.timers.items()
            if at <= until
        ]
        return sorted(due, key=lambda timer: timer[:2])

    def fire_timers(self, until: float, now: int, outcome: OperatorOutcome, only: Key | None = None) -> None:
        """Fires timers up to a time, also those that timers set, of one key or of all."""
        while due := [timer for timer in self.due_timers(until) if only is None or timer[2] == only]:
            self.fire_timer(due[0], now, outcome)

    def fire_timer(self, timer: tuple[int, str, Key], now: int, outcome: OperatorOutcome) -> None:
        """Fires a timer if it is still set."""
        at, name, key = timer
        if self.keyed_state[key].timers.get(name) == at:
            del self.keyed_state[key].timers[name]
            self.call(key, at, now, outcome, timer=name, time_domain="event")

    def advance_time(self, time: float, now: int, outcome: OperatorOutcome) -> None:
        """Fires timers up to the watermark; at the end of the stream only those that are set already."""
        if time < END_OF_STREAM:
            self.fire_timers(time, now, outcome)
            return
        for timer in self.due_timers(END_OF_STREAM):
            self.fire_timer(timer, now, outcome)
        for state in self.keyed_state.values():
            state.timers.clear()

    def call(
        self,
        key: Key,
        time: int,
        now: int,
        outcome: OperatorOutcome,
        *,
        row: dict[str, Any] | None = None,
        timer: str = "",
        time_domain: TimeDomain | None = None,
    ) -> None:
        """Calls the user's code and emits its results."""
        state = self.keyed_state.setdefault(key, KeyState())
        state.last_time = max(state.last_time, time)
        key_columns = dict(zip(self.node.keys, key, strict=True))
        ctx = Context(key_columns, state, self.shared_state, state.last_time, now, time_domain=time_domain)
        call_processor(
            self.processor,
            ctx,
            lambda: (
                self.processor.process(row, ctx) if row is not None else self.processor.on_timer(ctx, timer)
            ),
        )
        for output, at, values in ctx.emitted:
            history = {"index": 0, "settled_index": 0, "timing": "on_time", "final": True, "op": panes.ADD}
            pane = {
                **key_columns,
                **values,
                "event_time": at,
                "window_start": at,
                "window_end": at + 1,
                **history,
            }
            if output != "out":
                outcome.side_outputs.setdefault(output, []).append(pane)
                continue
            outcome.records.append(((key, (at, at + 1)), pane))
            outcome.changes.append(Change(panes.ADD, pane))
