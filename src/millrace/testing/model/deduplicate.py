"""Rows without their copies, in the model: every row that went on is kept, and every new one compared with all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from millrace import graph
from millrace.testing.model.values import canonical
from millrace.testing.model.windows import Arrival, Outcome, Values


class FirstRows:
    """The rows of one deduplication."""

    def __init__(self, node: graph.Operation, values: Values) -> None:  # noqa: ARG002 - it has no aggregates
        """It is told what makes rows copies of each other."""
        assert isinstance(node, graph.Deduplication)
        self.node = node
        self.waiting: list[Arrival] = []
        self.kept: list[tuple[Any, int]] = []
        """What copies have in common, and the time."""

    def step(self, arrivals: Sequence[Arrival], time: float, now: int, outcome: Outcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """A batch: rows too late to tell whether they are copies are refused; the first of each kind go on."""
        for arrival in arrivals:
            at, watermark = arrival.row["event_time"], arrival.watermark
            late = watermark >= at + self.node.within if self.node.at_once else watermark > at
            if arrival.future or late:
                outcome.refuse(arrival.row, arrival.place, "future" if arrival.future else "late", 1)
            else:
                self.waiting.append(arrival)
        free = [arrival for arrival in self.waiting if self.node.at_once or arrival.row["event_time"] < time]
        self.waiting = (
            [arrival for arrival in self.waiting if arrival not in free]
            if len(free) < len(self.waiting)
            else []
        )
        for arrival in sorted(free, key=lambda arrival: (arrival.row["event_time"], arrival.place)):
            self.take(arrival, time, outcome)

    def take(self, arrival: Arrival, time: float, outcome: Outcome) -> None:  # noqa: ARG002 - nothing is ever forgotten here
        """One row: it goes on unless there was one like it."""
        what, at = canonical(arrival.row, self.node.identity), arrival.row["event_time"]
        if any(
            kind == what and (self.node.at_once or at < since + self.node.within) for kind, since in self.kept
        ):
            return
        self.kept.append((what, at))
        outcome.rows.append(arrival if self.node.at_once else arrival._replace(watermark=-math.inf))
