"""Deduplication in the model: every new row is compared with all rows forwarded before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from millrace import graph
from millrace.testing.model.outcome import ArrivedRow, ComputeValues, OperatorOutcome
from millrace.testing.model.values import to_canonical


class ModelDeduplicate:
    """The rows of one deduplication."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - it has no aggregates
        assert isinstance(node, graph.Deduplication)
        self.node = node
        self.waiting: list[ArrivedRow] = []
        self.emitted: list[tuple[Any, int]] = []
        """The values that copies have in common, and the event time."""

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses rows that come too late to be recognized as copies, and forwards the first of each kind."""
        for arrival in arrivals:
            at, watermark = arrival.row["event_time"], arrival.watermark
            is_late = watermark >= at + self.node.within if self.node.is_immediate else watermark > at
            if arrival.is_future or is_late:
                outcome.refuse(arrival)
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

    def accept(self, arrival: ArrivedRow, time: float, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - nothing is ever forgotten here
        """Forwards a row unless an equal one was forwarded before."""
        identity, at = to_canonical(arrival.row, self.node.identity_columns), arrival.row["event_time"]
        if any(
            other == identity and (self.node.is_immediate or at < emitted_at + self.node.within)
            for other, emitted_at in self.emitted
        ):
            return
        self.emitted.append((identity, at))
        outcome.forwarded.append(arrival if self.node.is_immediate else arrival._replace(watermark=-math.inf))
