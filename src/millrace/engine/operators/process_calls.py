"""The calls of a processor in one batch: rows,
broadcast rows and timers of all keys of a slot, in order of event time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import polars as pl

from millrace import graph
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.processors import Context, call_processor
from millrace.state import KeyState
from millrace.timestamps import TimeDomain
from millrace.values.columns import ROW_TIME

Key: TypeAlias = tuple[Any, ...]
Emission: TypeAlias = tuple[Key, int, Any]
"""A key, a time, and the values emitted."""
BROADCAST, ROW = 0, 1


@dataclass(eq=False)
class ProcessorCalls:
    """What is known when they begin, and what came of them."""

    node: graph.Process
    watermark: int
    """The watermark: timers up to it are due."""
    now: int
    states: dict[Key, KeyState] = field(default_factory=dict)
    shared: KeyState = field(default_factory=KeyState)
    touched_keys: dict[Key, None] = field(default_factory=dict)
    emissions: dict[str, list[Emission]] = field(default_factory=dict)
    new_timers: list[tuple[Key, int]] = field(default_factory=list)
    """Timers that were set and are not due yet, by key."""
    new_clock_timers: list[tuple[Key, int]] = field(default_factory=list)
    is_shared_changed: bool = False
    _due_timers: list[tuple[int, str, int, Key]] = field(default_factory=list)
    _push_count: int = 0

    def run(self, rows: pl.DataFrame | None, broadcasts: pl.DataFrame | None) -> None:
        """Rows in order, each after the timers of its key up to its time; broadcast rows before others of
        their time, after the timers of all keys; then the other timers, and those of the clock.
        """
        timers_before = {
            key: (dict(state.timers), dict(state.clock_timers)) for key, state in self.states.items()
        }
        for key in self.states:
            self._queue_due_timers(key)
        for time, kind, _, row in heapq.merge(self._events(broadcasts, BROADCAST), self._events(rows, ROW)):
            if kind == BROADCAST:
                self._fire_until(time)
                self._call_broadcast(time, row)
            else:
                key = tuple(row[name] for name in self.node.keys)
                self._fire_key_until(key, time)
                self._call(key, time, row=row)
        self._fire_remaining()
        for at, name, key in sorted(self._due_clock_timers(), key=lambda timer: timer[:2]):
            if self.states[key].clock_timers.get(name) == at:
                del self.states[key].clock_timers[name]
                self._call(key, self._clock_timer_time(key), timer=name, time_domain="processing")
        self._fire_remaining()
        self._collect_new_timers(timers_before)

    def _events(
        self, frame: pl.DataFrame | None, input_kind: int
    ) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
        if frame is None:
            return
        times = frame[ROW_TIME].to_list()
        source = self.node.inputs[0 if input_kind == ROW else 1]
        for number, row in enumerate(frame.select(list(source.schema)).iter_rows(named=True)):
            yield times[number], input_kind, number, row

    def _clock_timer_time(self, key: Key) -> int:
        """The event time at which a timer of the clock is called: not behind the watermark,
        so that nothing that it emits is late.
        """
        is_moving = BEFORE_ALL < self.watermark < END_OF_STREAM
        return max(self.states[key].last_time, self.watermark if is_moving else BEFORE_ALL)

    def _due_clock_timers(self) -> list[tuple[int, str, Key]]:
        return [
            (at, name, key)
            for key, state in self.states.items()
            for name, at in state.clock_timers.items()
            if at <= self.now
        ]

    def _queue_due_timers(self, key: Key) -> None:
        """Timers of a key that are due in this batch wait for their turn."""
        for name, at in self.states[key].timers.items():
            if at <= self.watermark:
                self._push_count += 1
                heapq.heappush(self._due_timers, (at, name, self._push_count, key))

    def _fire_until(self, until: int) -> None:
        while self._due_timers and self._due_timers[0][0] <= until:
            at, name, _, key = heapq.heappop(self._due_timers)
            self._fire_timer(key, name, at)

    def _fire_key_until(self, key: Key, until: int) -> None:
        state = self.states.get(key)
        while state is not None and (due := [(at, name) for name, at in state.timers.items() if at <= until]):
            at, name = min(due)
            self._fire_timer(key, name, at)

    def _fire_timer(self, key: Key, name: str, at: int) -> None:
        if self.states[key].timers.get(name) == at:
            del self.states[key].timers[name]
            self._call(key, at, timer=name, time_domain="event")

    def _fire_remaining(self) -> None:
        """Time passes up to the watermark. At the end of the stream those timers fire that wait, and not what
        they set: that could go on for ever.
        """
        if self.watermark < END_OF_STREAM:
            self._fire_until(self.watermark)
            return
        due_timers, self._due_timers = sorted(self._due_timers), []
        for at, name, _, key in due_timers:
            self._fire_timer(key, name, at)
        self._due_timers = []
        for state in self.states.values():
            state.timers.clear()

    def _call(
        self,
        key: Key,
        time: int,
        *,
        row: dict[str, Any] | None = None,
        timer: str = "",
        time_domain: TimeDomain | None = None,
    ) -> None:
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = KeyState()
        state.last_time = max(state.last_time, time)
        self.touched_keys[key] = None
        processor = self.node.processor
        ctx = Context(
            dict(zip(self.node.keys, key, strict=True)),
            state,
            self.shared,
            state.last_time,
            self.now,
            time_domain=time_domain,
        )
        if row is not None:
            call_processor(processor, ctx, lambda: processor.process(row, ctx), row)
        else:
            call_processor(processor, ctx, lambda: processor.on_timer(ctx, timer))
        for output, at, values in ctx.emitted:
            self.emissions.setdefault(output, []).append((key, at, values))
        self._queue_due_timers(key)

    def _call_broadcast(self, time: int, row: dict[str, Any]) -> None:
        self.is_shared_changed = True
        self.shared.last_time = max(self.shared.last_time, time)
        ctx = Context({}, KeyState(), self.shared, time, self.now, "shared")
        processor = self.node.processor
        call_processor(processor, ctx, lambda: processor.process_broadcast(row, ctx), row)

    def _collect_new_timers(self, timers_before: dict[Key, tuple[dict[str, int], dict[str, int]]]) -> None:
        for key in self.touched_keys:
            state, (timers, clock_timers) = self.states[key], timers_before.get(key, ({}, {}))
            self.new_timers += [
                (key, at)
                for name, at in state.timers.items()
                if at > self.watermark and timers.get(name) != at
            ]
            self.new_clock_timers += [
                (key, at)
                for name, at in state.clock_timers.items()
                if at > self.now and clock_timers.get(name) != at
            ]
