"""Joins with a table in the model: rows wait for the watermark, then meet the version of their time."""

from __future__ import annotations

from collections.abc import Sequence

from millrace import graph, panes
from millrace.graph.build.join import SIDE_COLUMNS, TableJoin
from millrace.testing.model.outcome import (
    ArrivedRow,
    Change,
    ComputeValues,
    Key,
    OperatorOutcome,
    release_rows,
)
from millrace.testing.model.values import Row
from millrace.values.columns import PRESENT


class ModelTableJoin:
    """The rows of one join with a table, each shown once."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a join has no aggregates
        assert isinstance(node, TableJoin)
        self.node = node
        self.waiting: list[ArrivedRow] = []
        self.table: dict[Key, Row] = {}

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses late rows, and joins those before the new watermark in order, versions first."""
        left, right = SIDE_COLUMNS
        ready = release_rows(self.waiting, arrivals, time, outcome)
        for row in sorted(
            (arrival.row for arrival in ready), key=lambda row: (row["event_time"], row[right] is None)
        ):
            key = tuple(row[column] for column in self.node.keys)
            if row[right] is not None:
                self.table[key] = row[right]
            if row[left] is not None:
                self.emit_row(key, row, outcome)

    def emit_row(self, key: Key, row: Row, outcome: OperatorOutcome) -> None:
        """Emits a row with the version of its key."""
        version = self.table.get(key) if None not in key else None
        version = version if version is not None and version[PRESENT] else None
        if version is None and self.node.how == "inner":
            return
        pane = dict(zip(self.node.keys, key, strict=True))
        for side, names in zip((row[SIDE_COLUMNS[0]], version), self.node.column_names, strict=True):
            pane |= {name: None if side is None else side[column] for column, name in names.items()}
        at = row["event_time"]
        pane |= {"event_time": at, "window_start": at, "window_end": at + 1}
        pane |= {"index": 0, "settled_index": 0, "timing": "on_time", "final": True, "op": panes.ADD}
        outcome.records.append(((key, (at, at + 1)), pane))
        outcome.changes.append(Change(panes.ADD, pane))
