"""Row frames in the model: each row is compared with all rows of its key."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.aggregates import Reduction
from millrace.frames import First, Lag, Last, Lead
from millrace.graph.build.over import Frame, Over
from millrace.testing.model.operators import counted_rows
from millrace.testing.model.outcome import (
    ArrivedRow,
    Change,
    ComputeValues,
    Key,
    OperatorOutcome,
    RowModel,
    release_rows,
)
from millrace.testing.model.values import Row, compute_aggregate, to_canonical, to_comparable


class ModelOver:
    """The rows of one `over`: each shown once, or with a lateness as a changelog."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - columns are computed here
        assert isinstance(node, Over)
        self.node = node
        self.waiting: list[ArrivedRow] = []
        self.rows: dict[Key, list[Row]] = defaultdict(list)
        """All rows of each key, in order, since it began anew."""
        self.unshown: list[tuple[list[Row], int]] = []
        """Rows that wait for later ones: the rows of the key, and which of them it is."""

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses late rows, and takes those before the new watermark in order."""
        for arrival in release_rows(self.waiting, arrivals, time, outcome):
            self.take_row(arrival.row)
        waiting, self.unshown = self.unshown, []
        for rows, index in waiting:
            if self.knows_later_rows(rows, index, time):
                self.emit_row(rows, index, outcome)
            else:
                self.unshown.append((rows, index))

    def take_row(self, row: Row) -> None:
        """Puts a row behind the others of its key."""
        key = tuple(to_comparable(row[column]) for column in self.node.keys)
        rows = self.rows[key]
        if rows and self.node.ttl is not None and row["event_time"] - rows[-1]["event_time"] >= self.node.ttl:
            rows = self.rows[key] = []
        rows.append(row)
        self.unshown.append((rows, len(rows) - 1))

    def knows_later_rows(self, rows: list[Row], index: int, time: float) -> bool:
        """Whether the rows are there that a row looks ahead to, or cannot come in time any more."""
        at = rows[index]["event_time"]
        return all(
            index + lead.n < len(rows) or time >= at + lead.within for lead in self.node.leads.values()
        )

    def emit_row(self, rows: list[Row], index: int, outcome: OperatorOutcome) -> None:
        """Shows a row with its columns."""
        emit_pane(self.node, make_pane(self.node, rows, index), outcome)


class ModelCorrectedOver:
    """The rows of one `over` with a lateness: in each batch all are computed anew; what differs is shown."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - columns are computed here
        assert isinstance(node, Over)
        self.node = node
        self.time: float = -math.inf
        self.waiting: list[ArrivedRow] = []
        self.rows: dict[Key, list[ArrivedRow]] = defaultdict(list)
        """All rows of each key, in order."""
        self.shown: dict[int, Row] = {}
        """What was shown last of each row, by the row's `id`."""

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses rows that are too late, takes those before the new watermark, and shows what differs."""
        for arrival in release_rows(self.waiting, arrivals, time, outcome, self.node.row_lateness):
            key = tuple(to_comparable(arrival.row[column]) for column in self.node.keys)
            self.rows[key].append(arrival)
            self.rows[key].sort(key=lambda one: (one.row["event_time"], one.row_order))
        for key_rows in self.rows.values():
            for group in self.groups_of([arrival.row for arrival in key_rows]):
                for index in range(len(group)):
                    self.show_row(group, index, outcome)
        self.time = time

    def groups_of(self, rows: list[Row]) -> list[list[Row]]:
        """The rows of a key, divided where it begins anew."""
        groups: list[list[Row]] = []
        for row in rows:
            last = groups[-1][-1] if groups else None
            gap = math.inf if last is None else row["event_time"] - last["event_time"]
            if last is None or (self.node.ttl is not None and gap >= self.node.ttl):
                groups.append([])
            groups[-1].append(row)
        return groups

    def show_row(self, rows: list[Row], index: int, outcome: OperatorOutcome) -> None:
        """Shows a row if it is new or differs from what was shown; takes back what was."""
        row = rows[index]
        old, new = self.shown.get(id(row)), make_pane(self.node, rows, index)
        names = list(self.node.columns)
        if old is not None and to_canonical(old, names) == to_canonical(new, names):
            return
        is_on_time = old is None and row["event_time"] >= self.time
        new |= {"timing": "on_time" if is_on_time else "late", "final": False}
        if old is not None:
            emit_pane(self.node, {**old, "op": panes.RETRACT}, outcome)
        emit_pane(self.node, new, outcome)
        self.shown[id(row)] = new


def model_over(node: Over, values: ComputeValues) -> RowModel:
    """By whether rows are ever corrected."""
    return (ModelOver if node.is_append_only else ModelCorrectedOver)(node, values)


def make_pane(node: Over, rows: list[Row], index: int) -> Row:
    """A row of a key with its columns."""
    row = rows[index]
    at = row["event_time"]
    pane = {column: row[column] for column in node.row_columns}
    pane |= {name: compute(node, column, rows, index) for name, column in node.columns.items()}
    return {**pane, "event_time": at, "window_start": at, "window_end": at + 1, **panes.SHOWN_ONCE}


def emit_pane(node: Over, pane: Row, outcome: OperatorOutcome) -> None:
    """Shows a row, or takes it back."""
    key = tuple(pane[column] for column in node.keys)
    outcome.records.append(((key, (pane["window_start"], pane["window_end"])), pane))
    outcome.changes.append(Change(pane["op"], pane))


def compute(node: Over, column: Any, rows: list[Row], index: int) -> Any:
    """One column of a row."""
    if isinstance(column, Lag):
        return rows[index - column.n][str(column.column)] if index >= column.n else None
    if isinstance(column, Lead):
        later = rows[index + column.n] if index + column.n < len(rows) else None
        is_near = later is not None and later["event_time"] < rows[index]["event_time"] + column.within
        return later[str(column.column)] if later is not None and is_near else None
    if isinstance(column, Reduction | First | Last):
        framed = [rows[i] for i in frame_of(node.frame, rows, index)]
        return aggregate(column, framed, node.inputs[0].schema)
    return index + 1


def frame_of(frame: Frame, rows: list[Row], index: int) -> list[int]:
    """Which rows of the key are in the frame of one of them."""
    if frame.unit == "rows":
        distances = [i - index for i in range(len(rows))]
    else:
        distances = [row["event_time"] - rows[index]["event_time"] for row in rows]
    return [
        i
        for i, distance in enumerate(distances)
        if (frame.lower is None or distance >= frame.lower) and distance <= frame.upper
    ]


def aggregate(column: Reduction | First | Last, rows: list[Row], schema: pl.Schema) -> Any:
    """An aggregate of the rows of a frame, or the value of its first or last row."""
    if isinstance(column, Reduction):
        return compute_aggregate(column, counted_rows(column, rows, schema))
    if not rows:
        return None
    return rows[0 if isinstance(column, First) else -1][str(column.column)]
