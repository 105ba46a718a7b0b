"""Windows that the rows themselves cut, in the model: rows wait for the watermark, and are taken one after the other, key by key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.engine.trigger_state import END
from millrace.testing.model.windows import Arrival, Change, Key, Outcome, Values
from millrace.windows import Counted, Delta, Ordered, Punctuated


@dataclass
class Course:
    """What one key has come to."""

    rows: list[Change] = field(default_factory=list)
    """Those of the window that is being filled, or that the next one may still show."""
    since: int = 0
    """How many came since the last window."""
    mark: Any = None
    """The value from which differences are measured."""
    shown: int = 0


class OrderedWindows:
    """The windows of one aggregation over rows, each shown once, when it is full; at the end of the stream also what is left."""

    def __init__(self, node: graph.Operation, values: Values) -> None:
        """`values`: the aggregates of some rows."""
        self.node, self.windowing, self.values = node, node.windowing, values
        self.waiting: list[tuple[Key, Change]] = []
        self.courses: dict[Key, Course] = defaultdict(Course)

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: Outcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """A batch: rows behind their watermark are refused, those before the new one are taken in order."""
        for arrival in arrivals:
            behind = not self.windowing.by_clock and arrival.row["event_time"] < arrival.watermark
            if arrival.future or behind:
                outcome.refuse(arrival.row, arrival.place, "future" if arrival.future else "late", 1)
            else:
                key = tuple(arrival.row[column] for column in self.node.keys)
                self.waiting.append((key, Change(panes.ADD, arrival.row, arrival.place)))
        free = [
            taken for taken in self.waiting if self.windowing.by_clock or taken[1].row["event_time"] < time
        ]
        self.waiting = (
            [taken for taken in self.waiting if taken not in free] if len(free) < len(self.waiting) else []
        )
        for key, change in sorted(free, key=lambda taken: (taken[1].row["event_time"], taken[1].place)):
            for rows in cut(self.windowing.places, self.courses[key], change, self.node.inputs[0].schema):
                self.show(key, rows, outcome)
        if time >= END:
            for key, course in self.courses.items():
                if course.since:
                    self.show(key, course.rows, outcome)
                    course.rows, course.since = [], 0

    def show(self, key: Key, rows: Sequence[Change], outcome: Outcome) -> None:
        """A window: from its first row to just after its last. The index counts those of the key."""
        course = self.courses[key]
        times = [change.row["event_time"] for change in rows]
        window = min(times), max(times) + 1
        about = {
            "index": course.shown,
            "settled_index": course.shown,
            "timing": "on_time",
            "final": True,
            "op": panes.ADD,
        }
        place = {"event_time": window[1] - 1, "window_start": window[0], "window_end": window[1]}
        pane = {**dict(zip(self.node.keys, key, strict=True)), **self.values(rows), **place, **about}
        outcome.records.append(((key, window), pane))
        outcome.changes.append(Change(panes.ADD, pane))
        course.shown += 1


def cut(window: Any, course: Course, change: Change, schema: pl.Schema) -> Iterator[list[Change]]:
    """The windows that are full now that one more row has come."""
    match window:
        case Counted():
            yield from _counted(window, course, change)
        case Delta(every=None):
            yield from _stretch(window, course, change)
        case Delta():
            yield from _sliding_stretch(window, course, change)
        case Punctuated(expr=expr):
            course.rows.append(change)
            course.since += 1
            if pl.DataFrame([change.row], schema=schema).select(ends=expr)["ends"][0]:
                yield list(course.rows)
                course.rows, course.since = [], 0
        case Ordered():
            raise TypeError(f"{window} is not known to the model")


def _counted(window: Counted, course: Course, change: Change) -> Iterator[list[Change]]:
    course.rows = [*course.rows, change][-window.size :]
    course.since += 1
    if course.since == window.every:
        yield list(course.rows)
        course.rows, course.since = course.rows if window.every < window.size else [], 0


def _stretch(window: Delta, course: Course, change: Change) -> Iterator[list[Change]]:
    value = change.row[window.column]
    if value is not None and course.mark is not None and abs(value - course.mark) > window.threshold:
        yield list(course.rows)
        course.rows, course.since, course.mark = [], 0, None
    course.mark = value if course.mark is None else course.mark
    course.rows.append(change)
    course.since += 1


def _sliding_stretch(window: Delta, course: Course, change: Change) -> Iterator[list[Change]]:
    value = change.row[window.column]
    course.rows.append(change)
    course.since += 1
    if value is None:
        return
    course.mark = value if course.mark is None else course.mark
    near = [
        c
        for c in course.rows
        if c.row[window.column] is None or abs(c.row[window.column] - value) <= window.threshold
    ]
    course.rows = near
    if window.every is not None and abs(value - course.mark) > window.every:
        yield list(near)
        course.since, course.mark = 0, value
