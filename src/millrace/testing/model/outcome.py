"""What travels between operators of the model: rows with their watermarks in, panes and changes out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from millrace import panes
from millrace.testing.model.values import Row, to_canonical
from millrace.windows import Window

Key: TypeAlias = tuple[Any, ...]
RowOrder: TypeAlias = tuple[str, int, int, Any]
"""The order of rows of equal time: topic, partition,
number of the edge (a topic may be read twice), offset.
"""
AFTER_TOPICS = "\U0010ffff"
"""In place of a topic, for rows that an operator made: behind the names of all topics."""
ComputeValues: TypeAlias = Callable[[Sequence["Change"]], Row]


class Change(NamedTuple):
    """A row that is added, or one that is retracted."""

    op: str
    row: Row
    row_order: RowOrder = ("", 0, 0, 0)


@dataclass
class OperatorOutcome:
    """What one operator emitted in one batch."""

    records: list[tuple[tuple[Key, Window], Row]] = field(default_factory=list)
    """Rows that leave the job, with key and window of their pane,
    which pair a retraction with its replacement.
    """
    changes: list[Change] = field(default_factory=list)
    side_outputs: dict[str, list[Row]] = field(default_factory=dict)
    """Side outputs by name."""
    forwarded: list[ArrivedRow] = field(default_factory=list)
    """Rows that the operator lets through, with the watermark at each."""
    refused: list[ArrivedRow] = field(default_factory=list)
    """Rows that the operator refused, with the reason, and the watermark at each."""
    reports: list[Row] = field(default_factory=list)
    withdrawn: list[Row] = field(default_factory=list)
    """Panes of windows that were merged into others."""

    def refuse(self, arrival: ArrivedRow, reason: str = "late", missed: int = 1) -> None:
        """Reports a row that `missed` windows did not accept."""
        topic, partition, _, offset = arrival.row_order
        cause = {"reason": "future" if arrival.is_future else reason, "missed": missed}
        self.refused.append(arrival._replace(row={**arrival.row, **cause}))
        origin = (None, None, None) if topic == AFTER_TOPICS else (topic, partition, offset)
        self.reports.append({**dict(zip(("topic", "partition", "offset"), origin, strict=True)), **cause})


class ArrivedRow(NamedTuple):
    """A row, with the watermark of its partition as it stood at that row."""

    row: Row
    row_order: RowOrder
    watermark: float
    is_future: bool


class RowModel(Protocol):
    """What models one kind of node over rows."""

    def step(self, arrivals: Sequence[ArrivedRow], time: float, now: int, outcome: OperatorOutcome) -> None:
        """Takes the rows of a batch, then moves `time`, the watermark of the windows' time domain.

        `now` is the clock.
        """


def release_rows(
    waiting: list[ArrivedRow],
    arrivals: Sequence[ArrivedRow],
    watermark: float,
    outcome: OperatorOutcome,
    lateness: int = 0,
) -> list[ArrivedRow]:
    """The waiting rows before `watermark`, in order.

    New rows wait first; those behind the watermark of their partition, by more than `lateness`, are refused.
    """
    for arrival in arrivals:
        if arrival.is_future or arrival.row["event_time"] + lateness < arrival.watermark:
            outcome.refuse(arrival)
        else:
            waiting.append(arrival)
    ready = [arrival for arrival in waiting if arrival.row["event_time"] < watermark]
    waiting[:] = [arrival for arrival in waiting if not arrival.row["event_time"] < watermark]
    return sorted(ready, key=lambda arrival: (arrival.row["event_time"], arrival.row_order))


def net_changes(records: Sequence[tuple[Any, Row]]) -> Iterator[Row]:
    """For a pane that stands for many rows: the rows added and retracted since the value before."""
    counts: Counter[Any] = Counter()
    rows: dict[Any, list[Row]] = defaultdict(list)
    for pane_id, row in records:
        identity = pane_id, to_canonical(row, set(row) - set(panes.HISTORY_COLUMNS))
        counts[identity] += 1 if row["op"] == panes.ADD else -1
        rows[identity].append(row)
    for identity, count in counts.items():
        wanted = panes.ADD if count > 0 else panes.RETRACT
        yield from [row for row in rows[identity] if row["op"] == wanted][-abs(count) :] if count else []
