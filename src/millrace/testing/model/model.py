"""The executable specification: one row at a time, obviously right, slow; the oracle of the tests.

It computes as the semantics are told, and not as the engine does: every row that a window ever took is kept, and every pane is computed
anew from all of them. Jobs know nothing of each other here, nor do the operators of one job beyond what travels between them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from millrace import durations, graph, panes
from millrace.engine.trigger_state import END
from millrace.errors import DefinitionError
from millrace.graph.build.join import IntervalJoin, TableJoin
from millrace.stream import Job
from millrace.testing.model.deduplicate import FirstRows
from millrace.testing.model.interval_join import IntervalRows
from millrace.testing.model.ordered_windows import OrderedWindows
from millrace.testing.model.patterns import RECOGNIZERS
from millrace.testing.model.process import ProcessedRows
from millrace.testing.model.table_join import TableRows
from millrace.testing.model.values import Row, canonical, sortable, value_of
from millrace.testing.model.windows import Arrival, Change, Key, Outcome, RowWindows, netted
from millrace.watermarks import (
    EMPTY,
    Bounded,
    IngestionTime,
    Percentile,
    Punctuation,
    Watermark,
    learned_at,
    size_of,
)
from millrace.windows import Window


class Event(NamedTuple):
    """One row of a source: where it lies in the log, its times, and the fields of its type."""

    topic: str
    partition: int
    offset: int
    event_time: int
    ingestion_time: int
    values: Row


@dataclass
class Channel:
    """A source partition as one operator sees it."""

    read: graph.Read
    partition: int
    clock: float = -math.inf
    floor: float = -math.inf
    active_at: int | None = None
    idle: bool = False
    is_empty: bool = True
    """Whether it has never brought an event."""
    mark: float = -math.inf
    lags: list[tuple[int, int]] = field(default_factory=list)
    """Offset and lag of every row, where the delay is learned."""

    @property
    def watermark(self) -> float:
        """The furthest that the clock less the delay ever came, and not below where the operator stood when the partition woke up."""
        return max(self.mark, self.floor)

    def read_clock(self, event: Event) -> None:
        """The clock and the watermark move on with a row."""
        watermark = self.read.watermark
        self.clock = max(self.clock, vouched(watermark, event, self.read.schema))
        delay = watermark.delay
        if isinstance(watermark, Percentile):
            delay = watermark.delay_after(
                Counter(size_of(lag) for at, lag in self.lags if at < learned_at(event.offset))
            )
            self.lags.append((event.offset, int(self.clock) - event.event_time))
        self.mark = max(self.mark, self.clock - delay)

    def wake(self, low: float, now: int) -> None:
        """It brings rows in this batch."""
        if self.idle:
            self.floor = low
        self.idle, self.active_at, self.is_empty = False, now, False

    def doze(self, now: int) -> None:
        """It brings none."""
        if self.active_at is None:
            self.active_at = now
        patience = self.read.watermark.idle
        if patience is None and self.is_empty:
            patience = EMPTY
        self.idle = patience is not None and now - self.active_at >= patience


@dataclass
class Cell:
    """All that an operator knows of one key in one window."""

    rows: list[Change] = field(default_factory=list)
    touched: bool = False
    index: int = 0
    settled: int = 0
    shown: Row | None = None
    travelled: Row | None = None


class Operator:
    """One aggregation of one job."""

    def __init__(
        self, node: graph.Operation, name: str, upstream: Mapping[graph.Operation, Operator]
    ) -> None:
        """`upstream` holds the operators before this one."""
        self.node, self.name = node, name
        self.windowing = node.windowing
        self.edges = list(graph.edges(node))
        self.upstream = [
            upstream[edge.origin]
            for edge in self.edges
            if isinstance(edge.origin, graph.Operation) and edge.read is None
        ]
        self.cells: dict[tuple[Key, Window], Cell] = defaultdict(Cell)
        self.low: float = -math.inf
        """The low watermark; where windows lie in processing time, the clock."""
        self.outcome = Outcome()

    @property
    def patience(self) -> int:
        """How long after a window's end, in watermark time, its value may still change."""
        return max([self.windowing.lateness, *(operator.patience for operator in self.upstream)])

    @property
    def read(self) -> list[str]:
        """The columns that the aggregates read."""
        return sorted({column for aggregate in self.node.aggregates.values() for column in aggregate.needs()})

    def windows_of(self, row: Row) -> list[Window]:
        """The windows a pane belongs to; those of the same windowing keep theirs."""
        if self.node.same_window:
            return [(row["window_start"], row["window_end"])]
        return self.windowing.window.assign(row["event_time"])

    def cell(self, row: Row, window: Window) -> Cell:
        """Where a row is kept."""
        return self.cells[tuple(row[column] for column in self.node.keys), window]

    def fire(self, low: float) -> None:
        """The watermark moves from where it stood to `low`, and panes become due."""
        before, self.low = self.low, max(self.low, low)
        for (key, window), cell in self.cells.items():
            timing = self.due(window, cell, before)
            if timing is not None:
                self.show(key, window, cell, timing)
            cell.touched = False

    def due(self, window: Window, cell: Cell, before: float) -> str | None:
        """The timing of the pane that this window shows now, or None."""
        if before < window[1] <= self.low:
            return "on_time"
        if not cell.touched:
            return None
        if window[1] <= before:
            return "late"
        return "early" if self.node.same_window and self.upstream else None

    def show(self, key: Key, window: Window, cell: Cell, timing: str) -> None:
        """Computes a pane anew from all rows, and says how it differs from the last one."""
        old, new = cell.shown, None
        if not cell.rows and old is None:
            return
        settled = cell.settled if timing != "early" else -1
        final = self.low >= window[1] + self.patience
        about = {"index": cell.index, "settled_index": settled, "timing": timing, "final": final}
        if cell.rows:
            times = {"event_time": window[1] - 1, "window_start": window[0], "window_end": window[1]}
            new = {
                **dict(zip(self.node.keys, key, strict=True)),
                **self.values(cell.rows),
                **times,
                **about,
                "op": panes.ADD,
            }
        if old is not None:
            self.outcome.records.append(((key, window), {**old, **about, "op": panes.RETRACT}))
        if new is not None:
            self.outcome.records.append(((key, window), new))
        self.travel(cell, new)
        cell.shown = new
        cell.index += 1
        cell.settled += timing != "early"

    def travel(self, cell: Cell, new: Row | None) -> None:
        """Between operators panes are changes; an equal value is none."""
        old = cell.travelled
        names = list(self.node.aggregates)
        if old is not None and new is not None and canonical(old, names) == canonical(new, names):
            return
        if old is not None:
            self.outcome.changes.append(Change(panes.RETRACT, {**old, "op": panes.RETRACT}))
        if new is not None:
            self.outcome.changes.append(Change(panes.ADD, new))
        cell.travelled = new

    def values(self, rows: Sequence[Change]) -> Row:
        """The aggregates of the rows, in order of event time, topic, partition, offset; panes have no offset, but what is read of them."""
        read = self.read if self.upstream else []

        def place(taken: Change) -> Any:
            return taken.row["event_time"], taken.place, [sortable(taken.row[column]) for column in read]

        ordered = [taken.row for taken in sorted(rows, key=place)]
        return {name: value_of(aggregate, ordered) for name, aggregate in self.node.aggregates.items()}


class FirstOperator(Operator):
    """An aggregation over rows of topics: it judges whether they are late, and has the source partitions for channels."""

    def __init__(
        self,
        node: graph.Operation,
        name: str,
        partitions: Mapping[str, int],
        before: Mapping[graph.Operation, Operator],
    ) -> None:
        """`partitions`: how many each topic has; `before`: the operators that may hand on rows to this one."""
        super().__init__(node, name, {})
        self.before = before
        reads = {id(edge.read): edge.read for edge in self.edges if edge.read is not None}
        self.channels = [
            Channel(read, p) for read in reads.values() for p in range(partitions[read.topic.name])
        ]
        self.watermark: float = -math.inf
        """The low watermark of the channels, whatever time the windows lie in."""
        usual = OrderedWindows if self.windowing.ordered else RowWindows
        joins = {IntervalJoin: IntervalRows, TableJoin: TableRows}
        own: dict[type, Any] = {
            **RECOGNIZERS,
            **joins,
            graph.Deduplication: FirstRows,
            graph.Process: ProcessedRows,
        }
        self.windows: Any = own.get(type(node), usual)(node, self.values)

    def step(self, batch: Sequence[Event], now: int, end: bool) -> None:
        """Rows are judged and taken, the watermark moves, panes fire."""
        arrivals: list[Arrival] = []
        for channel in self.channels:
            here = (channel.read.topic.name, channel.partition)
            events = sorted((e for e in batch if (e.topic, e.partition) == here), key=lambda e: e.offset)
            if events:
                channel.wake(self.watermark, now)
            else:
                channel.doze(now)
            for event in events:
                arrivals += self.take(event, channel)
        arrivals += self.handed_on()
        self.watermark = max(self.watermark, END if end else self.candidate())
        self.low = (
            self.watermark if not self.windowing.by_clock or self.watermark >= END else max(self.low, now)
        )
        self.windows.step(arrivals, self.low, now, self.outcome)
        if isinstance(self.node, IntervalJoin) and self.watermark < END:
            self.low = self.watermark - self.node.hold

    def take(self, event: Event, channel: Channel) -> Iterator[Arrival]:
        """One row: it moves its partition's clock, and goes through the stateless steps."""
        watermark = channel.read.watermark
        future = event.event_time > event.ingestion_time + watermark.ahead
        if not future:
            channel.read_clock(event)
        row = source_row(event)
        for way, edge in enumerate(self.edges):
            if edge.origin is channel.read:
                for made in through(edge, row):
                    yield Arrival(
                        made, (event.topic, event.partition, way, event.offset), channel.watermark, future
                    )

    def handed_on(self) -> Iterator[Arrival]:
        """Rows that came to an operator before this one, which passes them on."""
        for way, edge in enumerate(self.edges):
            if isinstance(edge.origin, graph.Deduplication):
                for arrival in self.before[edge.origin].outcome.rows:
                    topic, partition, via, offset = arrival.place
                    if via == edge.via:
                        yield from (
                            arrival._replace(row=made, place=(topic, partition, way, offset))
                            for made in through(edge, arrival.row)
                        )

    def candidate(self) -> float:
        """Where the watermark would stand, were it not forbidden to go back."""
        awake = [channel.watermark for channel in self.channels if not channel.idle]
        return min(awake) if awake else max(channel.watermark for channel in self.channels)


class LaterOperator(Operator):
    """An aggregation over what other operators show: it drops nothing, and takes back what no longer holds."""

    def step(self) -> None:
        """Changes of this batch are taken, the watermark follows the operators before, panes fire."""
        before = {place: self.contents(cell) for place, cell in self.cells.items()}
        for change in self.incoming():
            for window in self.windows_of(change.row):
                self.cell(change.row, window).rows.append(change)
        for place, cell in self.cells.items():
            cell.rows = settled(cell.rows)
            cell.touched = self.contents(cell) != before.get(place, Counter())
        self.fire(min(operator.low for operator in self.upstream))

    def incoming(self) -> Iterator[Change]:
        """What the operators before say in this batch, after the stateless steps."""
        for edge in self.edges:
            operator = next(operator for operator in self.upstream if operator.node is edge.origin)
            said = [Change(panes.ADD, row) for row in operator.outcome.sides.get(edge.port, [])]
            for change in operator.outcome.changes if edge.port == "out" else said:
                yield from (Change(change.op, made) for made in through(edge, change.row))

    def contents(self, cell: Cell) -> Counter[Any]:
        """The rows as a multiset of what the aggregates read of them, with the time where that decides which is the latest."""
        ordered = any(aggregate.ordered for aggregate in self.node.aggregates.values())
        return Counter(
            canonical(change.row, [*self.read, "event_time"] if ordered else self.read)
            for change in cell.rows
        )


class JobModel:
    """One job by itself."""

    def __init__(self, job: Job, partitions: Mapping[str, int]) -> None:
        """`partitions`: how many each topic has."""
        self.job, self.partitions = job, partitions
        self.operators: dict[graph.Operation, Operator] = {}
        for node, name in job.operator_ids.items():
            over_rows = all(edge.read is not None for edge in graph.edges(node))
            self.operators[node] = (
                FirstOperator(node, name, partitions, self.operators)
                if over_rows
                else LaterOperator(node, name, self.operators)
            )

    def step(self, batch: Sequence[Event], now: int, end: bool) -> tuple[dict[str, list[Row]], list[Row]]:
        """What the job writes to each topic, and what it refused."""
        for operator in self.operators.values():
            operator.outcome = Outcome()
            if isinstance(operator, FirstOperator):
                operator.step(batch, now, end)
            elif isinstance(operator, LaterOperator):
                operator.step()
        written: dict[str, list[Row]] = defaultdict(list)
        for write in self.job.outputs:
            for edge in graph.edges(write):
                written[write.topic.name] += self.leaving(edge, batch)
        return written, [
            report for operator in self.operators.values() for report in operator.outcome.reports
        ]

    def leaving(self, edge: graph.Edge, batch: Sequence[Event]) -> list[Row]:
        """The rows that reach a topic on one way."""
        origin = edge.origin
        if isinstance(origin, graph.Read):  # without windows no row is too late or too early
            events = [event for event in batch if event.topic == origin.topic.name]
            return [made for event in events for made in through(edge, source_row(event))]
        outcome = self.operators[origin].outcome
        if isinstance(origin, graph.Deduplication) and edge.port == "out":
            return [
                made
                for arrival in outcome.rows
                if arrival.place[2] == edge.via
                for made in through(edge, arrival.row)
            ]
        if edge.port == "late":
            return [made for row in outcome.refused for made in through(edge, row)]
        if edge.port != "out":
            return [made for row in outcome.sides.get(edge.port, []) for made in through(edge, row)]
        records = [(about, made) for about, row in outcome.records for made in through(edge, row)]
        if edge.by_row:
            return list(netted(records))
        if origin.windowing.output != "value":
            return [row for _, row in records]
        shown = [about for about, row in records if row["op"] == panes.ADD]
        gone = [made for row in outcome.withdrawn for made in through(edge, row)]
        return gone + [row for about, row in records if row["op"] == panes.ADD or about not in shown]


class Model:
    """Jobs, and the streams they read, a batch at a time."""

    def __init__(self, jobs: Sequence[Job], partitions: Mapping[str, int]) -> None:
        """`partitions`: how many partitions each topic has that the jobs read."""
        self.jobs = [JobModel(job, partitions) for job in jobs]

    def step(
        self, batch: Sequence[Event], now: int, *, end: bool = False
    ) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """The rows written to each topic, and for each job the reports of what it refused; `end`: nothing follows this batch."""
        written: dict[str, list[Row]] = defaultdict(list)
        late: dict[str, list[Row]] = {}
        for model in self.jobs:
            rows, late[model.job.name] = model.step(batch, now, end)
            for topic, more in rows.items():
                written[topic] += more
        return dict(written), late

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The low watermark of each operator, None where there is none yet."""
        operators = [operator for model in self.jobs for operator in model.operators.values()]
        return {
            operator.name: None if operator.low == -math.inf else int(operator.low) for operator in operators
        }


def source_row(event: Event) -> Row:
    """The columns that a read gives to what follows."""
    return {**event.values, "event_time": event.event_time, "ingestion_time": event.ingestion_time}


def vouched(watermark: Watermark, event: Event, schema: pl.Schema) -> float:
    """How far the row says that time has come; -inf where it says nothing."""
    if isinstance(watermark, Bounded):
        return min(event.event_time, event.ingestion_time)
    if isinstance(watermark, IngestionTime):
        return event.ingestion_time
    assert isinstance(watermark, Punctuation)
    said = pl.DataFrame([source_row(event)], schema=schema).select(said=watermark.said)["said"][0]
    if (
        said is None
        or said < durations.FIRST
        or (watermark.is_limited and said > event.ingestion_time + watermark.ahead)
    ):
        return -math.inf
    return int(said)


def through(edge: graph.Edge, row: Row) -> list[Row]:
    """The rows that the stateless steps make of one row."""
    if not edge.steps:
        return [row]
    return edge.apply(pl.DataFrame([row], schema=edge.schema)).to_dicts()


def settled(rows: Sequence[Change]) -> list[Change]:
    """The rows that still hold: each withdrawal takes one equal row with it."""
    gone = Counter(
        canonical(change.row, set(change.row) - {"op"}) for change in rows if change.op == panes.RETRACT
    )
    kept = []
    for change in rows:
        row = canonical(change.row, set(change.row) - {"op"})
        if change.op == panes.RETRACT:
            continue
        if gone[row]:
            gone[row] -= 1
        else:
            kept.append(change)
    if gone.total():
        raise DefinitionError(
            f"withdrawn but never there: {+gone}; a stateless step must make the same of the same row every time"
        )
    return kept
