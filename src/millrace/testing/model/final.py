"""`final()` in the model: all rows that were ever added and not taken back, each shown when it is final."""

from __future__ import annotations

import math
from collections.abc import Mapping

from millrace import graph, panes
from millrace.durations import END_OF_STREAM
from millrace.testing.model.chained import cancel_retractions, incoming_changes
from millrace.testing.model.operators import ModelOperator
from millrace.testing.model.outcome import Change


class ModelFinal(ModelOperator):
    """A changelog, of which rows go out when the watermark has passed their window and its lateness."""

    def __init__(
        self, node: graph.Operation, name: str, upstream: Mapping[graph.Operation, ModelOperator]
    ) -> None:
        """`upstream`: the operators before this one, by node."""
        super().__init__(node, name, upstream)
        self.changes: list[Change] = []

    def step(self) -> None:
        """Adds the changes of a batch, moves the watermark, and shows the rows that nothing can correct."""
        self.changes += [
            change._replace(
                row={name: change.row[name] for name in self.node.schema if name not in panes.HISTORY_COLUMNS}
            )
            for change in incoming_changes(self)
        ]
        held = cancel_retractions(self.changes)
        low = min(operator.time for operator in self.upstream)
        self.time = max(self.time, low if low >= END_OF_STREAM else low - self.max_lateness)
        is_over = [change.row["window_end"] <= self.time or self.time >= END_OF_STREAM for change in held]
        self.changes = [change for change, over in zip(held, is_over, strict=True) if not over]
        for change, over in zip(held, is_over, strict=True):
            if over and self.time > -math.inf:
                self.show(change)

    def show(self, change: Change) -> None:
        """A row, at the end of its window."""
        row = {**change.row, "event_time": change.row["window_end"] - 1, **panes.SHOWN_ONCE}
        key = tuple(row[name] for name in self.node.keys)
        self.outcome.records.append(((key, (row["window_start"], row["window_end"])), row))
        self.outcome.changes.append(Change(panes.ADD, row))
