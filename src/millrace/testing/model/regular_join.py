"""Regular joins in the model: all rows of both sides that there ever were; each batch the result anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from millrace import graph, panes
from millrace.durations import END_OF_STREAM
from millrace.graph.build.join import SIDE_COLUMNS
from millrace.graph.build.regular_join import RegularJoin
from millrace.testing.model.chained import cancel_retractions, incoming_changes
from millrace.testing.model.operators import ModelRowOperator
from millrace.testing.model.outcome import ArrivedRow, Change, ComputeValues, OperatorOutcome
from millrace.testing.model.source import SourceEvent
from millrace.testing.model.values import Row, to_canonical

LEFT, RIGHT = SIDE_COLUMNS


class ModelRegularJoin:
    """The join of two bags of rows, as SQL has it."""

    def __init__(self, node: graph.Operation, values: ComputeValues) -> None:  # noqa: ARG002 - a join has no aggregates
        assert isinstance(node, RegularJoin)
        self.node = node
        self.rows: dict[Any, Row] = {}
        """Rows of results by how they are compared."""
        self.changes: list[Change] = []
        """All rows that were added and not taken back, of both sides."""
        self.shown: Counter[Any] = Counter()
        """The result as it was shown: each row as it is compared, and how often it is there."""

    def take(self, changes: Sequence[Change]) -> None:
        """Adds what changelogs bring."""
        names = [*self.node.keys, "event_time", *SIDE_COLUMNS]
        self.changes += [
            change._replace(row={name: change.row[name] for name in names}) for change in changes
        ]

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:  # noqa: ARG002 - the clock decides nothing
        """Refuses rows that are too late, and shows how the result differs from the one before."""
        for arrival in arrivals:
            if arrival.is_future or self.is_late(arrival):
                outcome.refuse(arrival)
            else:
                self.take([Change(panes.ADD, arrival.row)])
        self.changes = cancel_retractions(self.changes)
        rows = list(self.joined())
        self.rows |= {to_canonical(row, row): row for row in rows}
        result = Counter(to_canonical(row, row) for row in rows)
        for op, difference in ((panes.RETRACT, self.shown - result), (panes.ADD, result - self.shown)):
            for value in difference.elements():
                self.show(op, self.rows[value], time, outcome)
        self.shown = result

    def is_late(self, arrival: ArrivedRow) -> bool:
        """Whether the watermark has passed the row by the ttl."""
        ttl = self.node.ttl
        return ttl is not None and arrival.watermark >= arrival.row["event_time"] + ttl

    def joined(self) -> Iterator[Row]:
        """The whole result."""
        lefts = [change.row for change in self.changes if change.row[LEFT] is not None]
        rights = [change.row for change in self.changes if change.row[RIGHT] is not None]
        how = self.node.how
        for left in lefts:
            partners = [right for right in rights if self.are_partners(left, right)]
            if how in ("inner", "left", "right", "full"):
                yield from (self.result(left, right) for right in partners)
            if (how == "semi" and partners) or (how in ("left", "full", "anti") and not partners):
                yield self.result(left, None)
        if how in ("right", "full"):
            for right in rights:
                if not any(self.are_partners(left, right) for left in lefts):
                    yield self.result(None, right)

    def are_partners(self, left: Row, right: Row) -> bool:
        """Whether two rows have the same key and are not too far apart. A null key equals nothing."""
        keys = [(left[key], right[key]) for key in self.node.keys]
        if any(one is None or other is None or one != other for one, other in keys):
            return False
        return self.node.ttl is None or abs(left["event_time"] - right["event_time"]) < self.node.ttl

    def result(self, left: Row | None, right: Row | None) -> Row:
        """A pair, or one row alone."""
        rows = [row for row in (left, right) if row is not None]
        times = [row["event_time"] for row in rows]
        result = {key: rows[0][key] for key in self.node.keys}
        for row, side, names in zip((left, right), SIDE_COLUMNS, self.node.column_names, strict=True):
            result |= {name: None if row is None else row[side][column] for column, name in names.items()}
        return {
            **result,
            "event_time": max(times),
            "window_start": min(times),
            "window_end": max(times) + 1,
        }

    def show(self, op: str, row: Row, time: float, outcome: OperatorOutcome) -> None:
        """A row that is added or taken back."""
        is_final = time >= END_OF_STREAM or (
            self.node.ttl is not None and row["window_end"] + self.node.lateness <= time
        )
        pane = {**row, **panes.SHOWN_ONCE, "final": is_final, "op": op}
        key = tuple(row[name] for name in self.node.keys)
        outcome.records.append(((key, (row["window_start"], row["window_end"])), pane))
        outcome.changes.append(Change(op, pane))


class ModelRegularJoinOperator(ModelRowOperator):
    """Takes rows as rows, and changelogs as they come."""

    model: ModelRegularJoin

    def step(self, batch: Sequence[SourceEvent], now: int, end: bool) -> None:
        """First what changelogs bring, then rows."""
        self.model.take(list(incoming_changes(self)))
        super().step(batch, now, end)
