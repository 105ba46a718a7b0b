"""Row frames in the model: each row is compared with all rows of its key."""

from __future__ import annotations

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
    release_rows,
)
from millrace.testing.model.values import Row, compute_aggregate, to_comparable


class ModelOver:
    """The rows of one `over`, each shown once."""

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
        row = rows[index]
        at = row["event_time"]
        pane = {column: row[column] for column in self.node.row_columns}
        pane |= {name: self.compute(column, rows, index) for name, column in self.node.columns.items()}
        pane |= {"event_time": at, "window_start": at, "window_end": at + 1, **panes.SHOWN_ONCE}
        key = tuple(row[column] for column in self.node.keys)
        outcome.records.append(((key, (at, at + 1)), pane))
        outcome.changes.append(Change(panes.ADD, pane))

    def compute(self, column: Any, rows: list[Row], index: int) -> Any:
        """One column of a row."""
        if isinstance(column, Lag):
            return rows[index - column.n][str(column.column)] if index >= column.n else None
        if isinstance(column, Lead):
            later = rows[index + column.n] if index + column.n < len(rows) else None
            is_near = later is not None and later["event_time"] < rows[index]["event_time"] + column.within
            return later[str(column.column)] if later is not None and is_near else None
        if isinstance(column, Reduction | First | Last):
            framed = [rows[i] for i in frame_of(self.node.frame, rows, index)]
            return aggregate(column, framed, self.node.inputs[0].schema)
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
