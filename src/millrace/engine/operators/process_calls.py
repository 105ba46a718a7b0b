"""The calls of a processor in one batch: rows, broadcast rows and timers of all keys of a slot, in order of event time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import polars as pl

from millrace import graph
from millrace.engine.progress import END
from millrace.processors import Context, Kept, called

Key: TypeAlias = tuple[Any, ...]
Said: TypeAlias = tuple[Key, int, Any]
"""A key, a time, and the values emitted."""
RULE, ROW = 0, 1


@dataclass(eq=False)
class Calls:
    """What is known when they begin, and what came of them."""

    node: graph.Process
    time: int
    """The watermark: timers up to it are due."""
    now: int
    known: dict[Key, Kept] = field(default_factory=dict)
    shared: Kept = field(default_factory=Kept)
    touched: dict[Key, None] = field(default_factory=dict)
    said: dict[str, list[Said]] = field(default_factory=dict)
    set_timers: list[tuple[Key, int]] = field(default_factory=list)
    """Timers that were set and are not due yet, by key."""
    set_alarms: list[tuple[Key, int]] = field(default_factory=list)
    rules_changed: bool = False
    _heap: list[tuple[int, str, int, Key]] = field(default_factory=list)
    _pushed: int = 0

    def take(self, rows: pl.DataFrame | None, rules: pl.DataFrame | None) -> None:
        """Rows in order, each after the timers of its key up to its time; broadcast rows before others of their time, after the timers of all keys; then the other timers, and alarms."""
        waiting = {key: (dict(kept.timers), dict(kept.alarms)) for key, kept in self.known.items()}
        for key in self.known:
            self._wind(key)
        for time, kind, _, row in heapq.merge(self._events(rules, RULE), self._events(rows, ROW)):
            if kind == RULE:
                self._fire(time)
                self._rule(time, row)
            else:
                key = tuple(row[name] for name in self.node.keys)
                self._fire_of(key, time)
                self._call(key, time, row=row)
        self._pass()
        for at, name, key in sorted(self._alarms(), key=lambda alarm: alarm[:2]):
            if self.known[key].alarms.get(name) == at:
                del self.known[key].alarms[name]
                self._call(key, self.known[key].at, timer=name)
        self._pass()
        self._collect(waiting)

    def _events(
        self, frame: pl.DataFrame | None, kind: int
    ) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
        if frame is None:
            return
        times = frame["_t"].to_list()
        source = self.node.inputs[0 if kind == ROW else 1]
        for number, row in enumerate(frame.select(list(source.schema)).iter_rows(named=True)):
            yield times[number], kind, number, row

    def _alarms(self) -> list[tuple[int, str, Key]]:
        return [
            (at, name, key)
            for key, kept in self.known.items()
            for name, at in kept.alarms.items()
            if at <= self.now
        ]

    def _wind(self, key: Key) -> None:
        """Timers of a key that are due in this batch wait for their turn."""
        for name, at in self.known[key].timers.items():
            if at <= self.time:
                self._pushed += 1
                heapq.heappush(self._heap, (at, name, self._pushed, key))

    def _fire(self, upto: int) -> None:
        while self._heap and self._heap[0][0] <= upto:
            at, name, _, key = heapq.heappop(self._heap)
            self._ring(key, name, at)

    def _fire_of(self, key: Key, upto: int) -> None:
        kept = self.known.get(key)
        while kept is not None and (due := [(at, name) for name, at in kept.timers.items() if at <= upto]):
            at, name = min(due)
            self._ring(key, name, at)

    def _ring(self, key: Key, name: str, at: int) -> None:
        if self.known[key].timers.get(name) == at:
            del self.known[key].timers[name]
            self._call(key, at, timer=name)

    def _pass(self) -> None:
        """Time passes up to the watermark. At the end of the stream those timers fire that wait, and not what they set: that could go on for ever."""
        if self.time < END:
            self._fire(self.time)
            return
        waiting, self._heap = sorted(self._heap), []
        for at, name, _, key in waiting:
            self._ring(key, name, at)
        self._heap = []
        for kept in self.known.values():
            kept.timers.clear()

    def _call(self, key: Key, time: int, *, row: dict[str, Any] | None = None, timer: str = "") -> None:
        kept = self.known.get(key)
        if kept is None:
            kept = self.known[key] = Kept()
        kept.at = max(kept.at, time)
        self.touched[key] = None
        processor = self.node.processor
        ctx = Context(dict(zip(self.node.keys, key, strict=True)), kept, self.shared, kept.at, self.now)
        if row is not None:
            called(processor, ctx, lambda: processor.process(row, ctx))
        else:
            called(processor, ctx, lambda: processor.on_timer(ctx, timer))
        for port, at, values in ctx.said:
            self.said.setdefault(port, []).append((key, at, values))
        self._wind(key)

    def _rule(self, time: int, row: dict[str, Any]) -> None:
        self.rules_changed = True
        self.shared.at = max(self.shared.at, time)
        ctx = Context({}, Kept(), self.shared, time, self.now, "shared")
        called(self.node.processor, ctx, lambda: self.node.processor.process_broadcast(row, ctx))

    def _collect(self, before: dict[Key, tuple[dict[str, int], dict[str, int]]]) -> None:
        for key in self.touched:
            kept, (timers, alarms) = self.known[key], before.get(key, ({}, {}))
            self.set_timers += [
                (key, at) for name, at in kept.timers.items() if at > self.time and timers.get(name) != at
            ]
            self.set_alarms += [
                (key, at) for name, at in kept.alarms.items() if at > self.now and alarms.get(name) != at
            ]
