"""Interval joins in the model: each new row is compared with all rows of the other side."""

from __future__ import annotations

from collections.abc import Sequence

from millrace import graph, panes
from millrace.durations import END_OF_STREAM
from millrace.graph.build.join import SIDE_COLUMNS, IntervalJoin
from millrace.testing.model.outcome import ArrivedRow, Change, ComputeValues, OperatorOutcome
from millrace.testing.model.values import Row


class ModelIntervalJoin:
    """The pairs of one interval join, each shown once."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a join has no aggregates
        assert isinstance(node, IntervalJoin)
        self.node = node
        self.rows: tuple[list[Row], list[Row]] = ([], [])
        self.shown_ids: set[int] = set()
        """The rows that were shown, with a partner or without."""

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses late rows, pairs the others, and shows rows alone that can have no partner any more."""
        for arrival in arrivals:
            if arrival.is_future or arrival.row["event_time"] < arrival.watermark:
                outcome.refuse(arrival)
                continue
            side = 0 if arrival.row[SIDE_COLUMNS[0]] is not None else 1
            for other in self.rows[1 - side]:
                left, right = (arrival.row, other) if side == 0 else (other, arrival.row)
                if self.is_pair(left, right):
                    self.shown_ids |= {id(left), id(right)}
                    self.emit_pair(left, right, outcome)
            self.rows[side].append(arrival.row)
        for side, outer_joins in enumerate((("left", "full"), ("right", "full"))):
            for row in self.rows[side] if self.node.how in outer_joins else ():
                complete_at = (
                    row["event_time"] + self.node.upper
                    if side == 0
                    else row["event_time"] - self.node.lower + 1
                )
                if id(row) not in self.shown_ids and (time >= complete_at or time >= END_OF_STREAM):
                    self.shown_ids.add(id(row))
                    self.emit_pair(row if side == 0 else None, row if side == 1 else None, outcome)

    def is_pair(self, left: Row, right: Row) -> bool:
        """Whether two rows are partners."""
        keys = [(left[key], right[key]) for key in self.node.keys]
        distance = right["event_time"] - left["event_time"]
        return (
            all(a is not None and a == b for a, b in keys) and self.node.lower <= distance < self.node.upper
        )

    def emit_pair(self, left: Row | None, right: Row | None, outcome: OperatorOutcome) -> None:
        """Emits a pair, or one row without a partner."""
        rows = [row for row in (left, right) if row is not None]
        times = [row["event_time"] for row in rows]
        pane = {key: rows[0][key] for key in self.node.keys}
        for row, side, names in zip((left, right), SIDE_COLUMNS, self.node.column_names, strict=True):
            pane |= {name: None if row is None else row[side][column] for column, name in names.items()}
        pane_times = {"event_time": max(times), "window_start": min(times), "window_end": max(times) + 1}
        pane |= {
            **pane_times,
            "index": 0,
            "settled_index": 0,
            "timing": "on_time",
            "final": True,
            "op": panes.ADD,
        }
        key = tuple(pane[column] for column in self.node.keys)
        outcome.records.append(((key, (min(times), max(times) + 1)), pane))
        outcome.changes.append(Change(panes.ADD, pane))
