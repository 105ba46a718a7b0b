"""Windows that rows end (counted, delta, punctuated), in the model.

Rows wait for the watermark and are added in order, key by key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.durations import END_OF_STREAM
from millrace.testing.model.outcome import ArrivedRow, Change, ComputeValues, Key, OperatorOutcome
from millrace.windows import Counted, Delta, Ordered, Punctuated


@dataclass
class FillingWindow:
    """The window of one key that is being filled."""

    rows: list[Change] = field(default_factory=list)
    """The rows of this window, or that the next window may still hold."""
    new_count: int = 0
    """How many came after the last window was shown."""
    reference: Any = None
    """The value from which differences are measured."""
    shown_count: int = 0


class ModelOrderedWindows:
    """The windows of one aggregation over rows, each shown once when it is full.

    At the end of the stream, the rest.
    """

    def __init__(self, node: graph.Aggregation, values: ComputeValues) -> None:
        """`values` computes the aggregates of rows."""
        self.node, self.windowing, self.values = node, node.windowing, values
        self.waiting: list[tuple[Key, Change]] = []
        self.filling: dict[Key, FillingWindow] = defaultdict(FillingWindow)

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses rows behind their watermark, and adds those before the new watermark in order."""
        for arrival in arrivals:
            is_behind = (
                not self.windowing.is_processing_time and arrival.row["event_time"] < arrival.watermark
            )
            if arrival.is_future or is_behind:
                outcome.refuse(arrival)
            else:
                key = tuple(arrival.row[column] for column in self.node.keys)
                self.waiting.append((key, Change(panes.ADD, arrival.row, arrival.row_order)))
        ready = [
            waiting_row
            for waiting_row in self.waiting
            if self.windowing.is_processing_time or waiting_row[1].row["event_time"] < time
        ]
        self.waiting = (
            [waiting_row for waiting_row in self.waiting if waiting_row not in ready]
            if len(ready) < len(self.waiting)
            else []
        )
        for key, change in sorted(
            ready, key=lambda waiting_row: (waiting_row[1].row["event_time"], waiting_row[1].row_order)
        ):
            for rows in cut_windows(
                self.windowing.assigner, self.filling[key], change, self.node.inputs[0].schema
            ):
                self.emit_pane(key, rows, outcome)
        if time >= END_OF_STREAM:
            for key, filling_window in self.filling.items():
                if filling_window.new_count:
                    self.emit_pane(key, filling_window.rows, outcome)
                    filling_window.rows, filling_window.new_count = [], 0

    def emit_pane(self, key: Key, rows: Sequence[Change], outcome: OperatorOutcome) -> None:
        """Emits a window from its first row to just after its last.

        The index counts the windows of the key.
        """
        filling_window = self.filling[key]
        times = [change.row["event_time"] for change in rows]
        window = min(times), max(times) + 1
        history = {
            "index": filling_window.shown_count,
            "settled_index": filling_window.shown_count,
            "timing": "on_time",
            "final": True,
            "op": panes.ADD,
        }
        pane_times = {"event_time": window[1] - 1, "window_start": window[0], "window_end": window[1]}
        pane = {**dict(zip(self.node.keys, key, strict=True)), **self.values(rows), **pane_times, **history}
        outcome.records.append(((key, window), pane))
        outcome.changes.append(Change(panes.ADD, pane))
        filling_window.shown_count += 1


def cut_windows(
    window: Any, filling: FillingWindow, change: Change, schema: pl.Schema
) -> Iterator[list[Change]]:
    """The windows that are full now that one more row has come."""
    match window:
        case Counted():
            yield from _cut_counted(window, filling, change)
        case Delta(every=None):
            yield from _cut_delta(window, filling, change)
        case Delta():
            yield from _cut_sliding_delta(window, filling, change)
        case Punctuated(expr=expr):
            filling.rows.append(change)
            filling.new_count += 1
            if pl.DataFrame([change.row], schema=schema).select(ends=expr)["ends"][0]:
                yield list(filling.rows)
                filling.rows, filling.new_count = [], 0
        case Ordered():
            raise TypeError(f"{window} is not known to the model")


def _cut_counted(window: Counted, filling: FillingWindow, change: Change) -> Iterator[list[Change]]:
    filling.rows = [*filling.rows, change][-window.size :]
    filling.new_count += 1
    if filling.new_count == window.every:
        yield list(filling.rows)
        filling.rows, filling.new_count = filling.rows if window.every < window.size else [], 0


def _cut_delta(window: Delta, filling: FillingWindow, change: Change) -> Iterator[list[Change]]:
    value = change.row[window.column]
    if (
        value is not None
        and filling.reference is not None
        and abs(value - filling.reference) > window.threshold
    ):
        yield list(filling.rows)
        filling.rows, filling.new_count, filling.reference = [], 0, None
    filling.reference = value if filling.reference is None else filling.reference
    filling.rows.append(change)
    filling.new_count += 1


def _cut_sliding_delta(window: Delta, filling: FillingWindow, change: Change) -> Iterator[list[Change]]:
    value = change.row[window.column]
    filling.rows.append(change)
    filling.new_count += 1
    if value is None:
        return
    filling.reference = value if filling.reference is None else filling.reference
    near = [
        other
        for other in filling.rows
        if other.row[window.column] is None or abs(other.row[window.column] - value) <= window.threshold
    ]
    filling.rows = near
    if window.every is not None and abs(value - filling.reference) > window.every:
        yield list(near)
        filling.new_count, filling.reference = 0, value
