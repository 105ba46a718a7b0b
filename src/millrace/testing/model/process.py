"""Processors, in the model: rows wait for the watermark; whatever is next in event time is looked for among all there is, and called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace import graph, panes
from millrace.engine.trigger_state import END
from millrace.processors import Context, Kept, called
from millrace.testing.model.windows import Arrival, Change, Key, Outcome, Values, released


class ProcessedRows:
    """One processor, and all that it keeps."""

    def __init__(self, node: graph.Operation, values: Values) -> None:  # noqa: ARG002 - it has no aggregates
        """It is told whose code to call."""
        assert isinstance(node, graph.Process)
        self.node, self.processor = node, node.processor
        self.sides = [edge.side for edge in graph.edges(node)]
        self.waiting: list[Arrival] = []
        self.kept: dict[Key, Kept] = {}
        self.shared = Kept()

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: Outcome) -> None:
        """A batch: rows behind their watermark are refused, those before the new one are taken in order, each after the timers up to its time."""
        free = sorted(released(self.waiting, arrivals, time, outcome), key=self.order)
        for arrival in free:
            at = arrival.row["event_time"]
            key = tuple(arrival.row.get(name) for name in self.node.keys)
            broadcast = self.sides[arrival.place[2]] == 1
            self.fire(at, now, outcome, None if broadcast else key)
            if broadcast:
                ctx = Context({}, Kept(), self.shared, at, now, "shared")
                called(
                    self.processor,
                    ctx,
                    lambda row=arrival.row, ctx=ctx: self.processor.process_broadcast(row, ctx),  # type: ignore[misc]
                )
            else:
                self.call(key, at, now, outcome, row=arrival.row)
        self.passes(time, now, outcome)
        for at, name, key in sorted(
            (
                (at, name, key)
                for key, kept in self.kept.items()
                for name, at in kept.alarms.items()
                if at <= now
            ),
            key=lambda one: one[:2],
        ):
            if self.kept[key].alarms.get(name) == at:
                del self.kept[key].alarms[name]
                self.call(key, self.kept[key].at, now, outcome, timer=name)
        self.passes(time, now, outcome)

    def order(self, arrival: Arrival) -> Any:
        """By time; broadcast rows before others."""
        return arrival.row["event_time"], -self.sides[arrival.place[2]], arrival.place

    def timers(self, upto: float) -> list[tuple[int, str, Key]]:
        """Those due, the next first."""
        due = [
            (at, name, key)
            for key, kept in self.kept.items()
            for name, at in kept.timers.items()
            if at <= upto
        ]
        return sorted(due, key=lambda one: one[:2])

    def fire(self, upto: float, now: int, outcome: Outcome, only: Key | None = None) -> None:
        """Timers up to a time, also those that timers set; of one key, or of all."""
        while due := [timer for timer in self.timers(upto) if only is None or timer[2] == only]:
            self.ring(due[0], now, outcome)

    def ring(self, timer: tuple[int, str, Key], now: int, outcome: Outcome) -> None:
        """One timer, if it is still set."""
        at, name, key = timer
        if self.kept[key].timers.get(name) == at:
            del self.kept[key].timers[name]
            self.call(key, at, now, outcome, timer=name)

    def passes(self, time: float, now: int, outcome: Outcome) -> None:
        """Time moves to the watermark; at the end of the stream only those timers fire that wait."""
        if time < END:
            self.fire(time, now, outcome)
            return
        for timer in self.timers(END):
            self.ring(timer, now, outcome)
        for kept in self.kept.values():
            kept.timers.clear()

    def call(
        self,
        key: Key,
        time: int,
        now: int,
        outcome: Outcome,
        *,
        row: dict[str, Any] | None = None,
        timer: str = "",
    ) -> None:
        """The user's code, and what it emits."""
        kept = self.kept.setdefault(key, Kept())
        kept.at = max(kept.at, time)
        named = dict(zip(self.node.keys, key, strict=True))
        ctx = Context(named, kept, self.shared, kept.at, now)
        called(
            self.processor,
            ctx,
            lambda: (
                self.processor.process(row, ctx) if row is not None else self.processor.on_timer(ctx, timer)
            ),
        )
        for port, at, values in ctx.said:
            about = {"index": 0, "settled_index": 0, "timing": "on_time", "final": True, "op": panes.ADD}
            pane = {**named, **values, "event_time": at, "window_start": at, "window_end": at + 1, **about}
            if port != "out":
                outcome.sides.setdefault(port, []).append(pane)
                continue
            outcome.records.append(((key, (at, at + 1)), pane))
            outcome.changes.append(Change(panes.ADD, pane))
