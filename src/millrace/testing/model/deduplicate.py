"""Rows without their copies, in the model: every row that went on is kept, and every new one compared with all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from millrace import graph
from millrace.testing.model.outcome import Arrival, ComputeValues, OperatorOutcome
from millrace.testing.model.values import to_canonical


class ModelDeduplicate:
    """The rows of one deduplication."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - it has no aggregates
        """`node` defines which rows are copies."""
        assert isinstance(node, graph.Deduplication)
        self.node = node
        self.waiting: list[Arrival] = []
        self.emitted: list[tuple[Any, int]] = []
        """What copies have in common, and the time."""

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """A batch: rows too late to tell whether they are copies are refused; the first of each kind go on."""
        for arrival in arrivals:
            at, watermark = arrival.row["event_time"], arrival.watermark
            is_late = watermark >= at + self.node.within if self.node.is_immediate else watermark > at
            if arrival.is_future or is_late:
                outcome.refuse(arrival.row, arrival.row_order, "future" if arrival.is_future else "late", 1)
            else:
                self.waiting.append(arrival)
        ready = [
            arrival for arrival in self.waiting if self.node.is_immediate or arrival.row["event_time"] < time
        ]
        self.waiting = (
            [arrival for arrival in self.waiting if arrival not in ready]
            if len(ready) < len(self.waiting)
            else []
        )
        for arrival in sorted(ready, key=lambda arrival: (arrival.row["event_time"], arrival.row_order)):
            self.accept(arrival, time, outcome)

    def accept(self, arrival: Arrival, time: float, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - nothing is ever forgotten here
        """One row: it goes on unless there was one like it."""
        identity, at = to_canonical(arrival.row, self.node.identity_columns), arrival.row["event_time"]
        if any(
            other == identity and (self.node.is_immediate or at < emitted_at + self.node.within)
            for other, emitted_at in self.emitted
        ):
            return
        self.emitted.append((identity, at))
        outcome.forwarded.append(arrival if self.node.is_immediate else arrival._replace(watermark=-math.inf))
