"""The executable specification: one row at a time, obviously right, slow; the oracle of the tests.

It computes as the semantics are told, and not as the engine does: every row that a window ever took is kept, and every pane is computed
anew from all of them. Jobs know nothing of each other here, nor do the operators of one job beyond what travels between them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from millrace import durations, graph, panes
from millrace.errors import DefinitionError
from millrace.graph.build.join import IntervalJoin, TableJoin
from millrace.stream import Job
from millrace.testing.model.deduplicate import ModelDeduplicate
from millrace.testing.model.interval_join import ModelIntervalJoin
from millrace.testing.model.ordered_windows import ModelOrderedWindows
from millrace.testing.model.patterns import RECOGNIZERS
from millrace.testing.model.process import ModelProcess
from millrace.testing.model.simple_triggers import END_OF_STREAM
from millrace.testing.model.table_join import ModelTableJoin
from millrace.testing.model.values import Row, compute_aggregate, to_canonical, to_sort_key
from millrace.testing.model.windows import Arrival, Change, Key, ModelWindows, OperatorOutcome, net_changes
from millrace.watermarks import (
    EMPTY_PARTITION_TIMEOUT,
    Bounded,
    IngestionTime,
    Percentile,
    Punctuation,
    Watermark,
    lag_bucket,
    last_update_offset,
)
from millrace.windows import Window


class SourceEvent(NamedTuple):
    """One row of a source: where it lies in the log, its times, and the fields of its type."""

    topic: str
    partition: int
    offset: int
    event_time: int
    ingestion_time: int
    values: Row


@dataclass
class SourcePartition:
    """A source partition as one operator sees it."""

    read: graph.Read
    partition: int
    clock: float = -math.inf
    floor: float = -math.inf
    last_active: int | None = None
    is_idle: bool = False
    is_empty: bool = True
    """Whether it has never brought an event."""
    furthest_watermark: float = -math.inf
    lags: list[tuple[int, int]] = field(default_factory=list)
    """Offset and lag of every row, where the delay is learned."""

    @property
    def watermark(self) -> float:
        """The furthest that the clock less the delay ever came, and not below where the operator stood when the partition woke up."""
        return max(self.furthest_watermark, self.floor)

    def advance(self, event: SourceEvent) -> None:
        """The clock and the watermark move on with a row."""
        watermark = self.read.watermark
        self.clock = max(self.clock, event_clock(watermark, event, self.read.schema))
        delay = watermark.delay
        if isinstance(watermark, Percentile):
            delay = watermark.delay_for(
                Counter(lag_bucket(lag) for at, lag in self.lags if at < last_update_offset(event.offset))
            )
            self.lags.append((event.offset, int(self.clock) - event.event_time))
        self.furthest_watermark = max(self.furthest_watermark, self.clock - delay)

    def wake(self, watermark: float, now: int) -> None:
        """It brings rows in this batch."""
        if self.is_idle:
            self.floor = watermark
        self.is_idle, self.last_active, self.is_empty = False, now, False

    def note_silence(self, now: int) -> None:
        """It brings none."""
        if self.last_active is None:
            self.last_active = now
        idle_after = self.read.watermark.idle
        if idle_after is None and self.is_empty:
            idle_after = EMPTY_PARTITION_TIMEOUT
        self.is_idle = idle_after is not None and now - self.last_active >= idle_after


@dataclass
class ChainedWindow:
    """All that an operator knows of one key in one window."""

    rows: list[Change] = field(default_factory=list)
    has_changed: bool = False
    pane_count: int = 0
    settled_count: int = 0
    last_pane: Row | None = None
    last_sent: Row | None = None


class ModelOperator:
    """One operator of one job."""

    def __init__(
        self, node: graph.Operation, name: str, upstream: Mapping[graph.Operation, ModelOperator]
    ) -> None:
        """`upstream` holds the operators before this one."""
        self.node, self.name = node, name
        self.edges = list(graph.edges(node))
        self.upstream = [
            upstream[edge.origin]
            for edge in self.edges
            if isinstance(edge.origin, graph.Operation) and edge.read is None
        ]
        self.time: float = -math.inf
        """The low watermark; where windows lie in processing time, the clock."""
        self.outcome = OperatorOutcome()

    @property
    def max_lateness(self) -> int:
        """How long after a window's end, in watermark time, its value may still change."""
        return max([self.node.lateness, *(operator.max_lateness for operator in self.upstream)])


class RowOperator(ModelOperator):
    """An operator over rows of topics: it judges whether they are late, and has the source partitions for channels."""

    def __init__(
        self,
        node: graph.Operation,
        name: str,
        partitions: Mapping[str, int],
        preceding: Mapping[graph.Operation, ModelOperator],
    ) -> None:
        """`partitions`: how many each topic has; `before`: the operators that may hand on rows to this one."""
        super().__init__(node, name, {})
        self.preceding = preceding
        reads = {id(edge.read): edge.read for edge in self.edges if edge.read is not None}
        self.partitions = [
            SourcePartition(read, p) for read in reads.values() for p in range(partitions[read.topic.name])
        ]
        self.watermark: float = -math.inf
        """The low watermark of the channels, whatever time the windows lie in."""
        self.recognizer = recognizer_of(node)

    def step(self, batch: Sequence[SourceEvent], now: int, end: bool) -> None:
        """Rows are judged and taken, the watermark moves, panes fire."""
        arrivals: list[Arrival] = []
        for partition in self.partitions:
            partition_id = (partition.read.topic.name, partition.partition)
            events = sorted(
                (e for e in batch if (e.topic, e.partition) == partition_id), key=lambda e: e.offset
            )
            if events:
                partition.wake(self.watermark, now)
            else:
                partition.note_silence(now)
            for event in events:
                arrivals += self.read_event(event, partition)
        arrivals += self.forwarded_rows()
        self.watermark = max(self.watermark, END_OF_STREAM if end else self.minimum_watermark())
        self.time = (
            self.watermark
            if not is_in_processing_time(self.node) or self.watermark >= END_OF_STREAM
            else max(self.time, now)
        )
        self.recognizer.step(arrivals, self.time, now, self.outcome)
        if isinstance(self.node, IntervalJoin) and self.watermark < END_OF_STREAM:
            self.time = self.watermark - self.node.output_delay

    def read_event(self, event: SourceEvent, partition: SourcePartition) -> Iterator[Arrival]:
        """One row: it moves its partition's clock, and goes through the stateless steps."""
        watermark = partition.read.watermark
        is_future = event.event_time > event.ingestion_time + watermark.ahead
        if not is_future:
            partition.advance(event)
        row = source_row(event)
        for input_number, edge in enumerate(self.edges):
            if edge.origin is partition.read:
                for result in apply_steps(edge, row):
                    yield Arrival(
                        result,
                        (event.topic, event.partition, input_number, event.offset),
                        partition.watermark,
                        is_future,
                    )

    def forwarded_rows(self) -> Iterator[Arrival]:
        """Rows that came to an operator before this one, which passes them on."""
        for input_number, edge in enumerate(self.edges):
            if isinstance(edge.origin, graph.Deduplication):
                for arrival in self.preceding[edge.origin].outcome.forwarded:
                    topic, partition, output_number, offset = arrival.row_order
                    if output_number == edge.input_edge:
                        yield from (
                            arrival._replace(row=result, row_order=(topic, partition, input_number, offset))
                            for result in apply_steps(edge, arrival.row)
                        )

    def minimum_watermark(self) -> float:
        """Where the watermark would stand, were it not forbidden to go back."""
        awake = [partition.watermark for partition in self.partitions if not partition.is_idle]
        return min(awake) if awake else max(partition.watermark for partition in self.partitions)


class ChainedOperator(ModelOperator):
    """An aggregation over what other operators show: it drops nothing, and takes back what no longer holds."""

    def __init__(
        self, node: graph.Aggregation, name: str, upstream: Mapping[graph.Operation, ModelOperator]
    ) -> None:
        """`upstream` holds the operators before this one."""
        super().__init__(node, name, upstream)
        self.aggregation = node
        self.chained_windows: dict[tuple[Key, Window], ChainedWindow] = defaultdict(ChainedWindow)

    def step(self) -> None:
        """Changes of this batch are taken, the watermark follows the operators before, panes fire."""
        old_contents = {window_id: self.contents(state) for window_id, state in self.chained_windows.items()}
        for change in self.incoming_changes():
            for window in self.windows_of(change.row):
                self.chained_window(change.row, window).rows.append(change)
        for window_id, state in self.chained_windows.items():
            state.rows = cancel_retractions(state.rows)
            state.has_changed = self.contents(state) != old_contents.get(window_id, Counter())
        self.fire(min(operator.time for operator in self.upstream))

    def incoming_changes(self) -> Iterator[Change]:
        """What the operators before say in this batch, after the stateless steps."""
        for edge in self.edges:
            operator = next(operator for operator in self.upstream if operator.node is edge.origin)
            side_rows = [Change(panes.ADD, row) for row in operator.outcome.side_outputs.get(edge.output, [])]
            for change in operator.outcome.changes if edge.output == "out" else side_rows:
                yield from (Change(change.op, result) for result in apply_steps(edge, change.row))

    def windows_of(self, row: Row) -> list[Window]:
        """The windows a pane belongs to; those of the same windowing keep theirs."""
        if self.aggregation.same_window:
            return [(row["window_start"], row["window_end"])]
        return self.aggregation.windowing.window.assign(row["event_time"])

    def chained_window(self, row: Row, window: Window) -> ChainedWindow:
        """Where a row is kept."""
        return self.chained_windows[tuple(row[column] for column in self.node.keys), window]

    def fire(self, time: float) -> None:
        """The watermark moves from where it stood to `low`, and panes become due."""
        old_time, self.time = self.time, max(self.time, time)
        for (key, window), state in self.chained_windows.items():
            timing = self.pane_timing(window, state, old_time)
            if timing is not None:
                self.emit_pane(key, window, state, timing)
            state.has_changed = False

    def pane_timing(self, window: Window, state: ChainedWindow, old_time: float) -> str | None:
        """The timing of the pane that this window shows now, or None."""
        if old_time < window[1] <= self.time:
            return "on_time"
        if not state.has_changed:
            return None
        if window[1] <= old_time:
            return "late"
        return "early" if self.aggregation.same_window else None

    def emit_pane(self, key: Key, window: Window, state: ChainedWindow, timing: str) -> None:
        """Computes a pane anew from all rows, and says how it differs from the last one."""
        old, new = state.last_pane, None
        if not state.rows and old is None:
            return
        settled_index = state.settled_count if timing != "early" else -1
        final = self.time >= window[1] + self.max_lateness
        history = {
            "index": state.pane_count,
            "settled_index": settled_index,
            "timing": timing,
            "final": final,
        }
        if state.rows:
            times = {"event_time": window[1] - 1, "window_start": window[0], "window_end": window[1]}
            new = {
                **dict(zip(self.node.keys, key, strict=True)),
                **compute_values(self.aggregation, state.rows),
                **times,
                **history,
                "op": panes.ADD,
            }
        if old is not None:
            self.outcome.records.append(((key, window), {**old, **history, "op": panes.RETRACT}))
        if new is not None:
            self.outcome.records.append(((key, window), new))
        self.emit_change(state, new)
        state.last_pane = new
        state.pane_count += 1
        state.settled_count += timing != "early"

    def emit_change(self, state: ChainedWindow, new: Row | None) -> None:
        """Between operators panes are changes; an equal value is none."""
        old = state.last_sent
        names = list(self.aggregation.aggregates)
        if old is not None and new is not None and to_canonical(old, names) == to_canonical(new, names):
            return
        if old is not None:
            self.outcome.changes.append(Change(panes.RETRACT, {**old, "op": panes.RETRACT}))
        if new is not None:
            self.outcome.changes.append(Change(panes.ADD, new))
        state.last_sent = new

    def contents(self, state: ChainedWindow) -> Counter[Any]:
        """The rows as a multiset of what the aggregates read of them, with the time where that decides which is the latest."""
        is_ordered = any(aggregate.ordered for aggregate in self.aggregation.aggregates.values())
        return Counter(
            to_canonical(
                change.row,
                [*read_columns(self.aggregation), "event_time"]
                if is_ordered
                else read_columns(self.aggregation),
            )
            for change in state.rows
        )


def read_columns(node: graph.Aggregation) -> list[str]:
    """The columns that the aggregates read."""
    return sorted({column for aggregate in node.aggregates.values() for column in aggregate.input_columns()})


def compute_values(node: graph.Aggregation, rows: Sequence[Change]) -> Row:
    """The aggregates of the rows, in order of event time, topic, partition, offset; panes have no offset, but what is read of them."""
    compared = [] if node.over_rows else read_columns(node)

    def row_order(change: Change) -> Any:
        return (
            change.row["event_time"],
            change.row_order,
            [to_sort_key(change.row[column]) for column in compared],
        )

    ordered = [change.row for change in sorted(rows, key=row_order)]
    return {name: compute_aggregate(aggregate, ordered) for name, aggregate in node.aggregates.items()}


def is_in_processing_time(node: graph.Operation) -> bool:
    """Whether windows lie in processing time."""
    return isinstance(node, graph.Aggregation) and node.windowing.is_processing_time


def _model_aggregation(node: graph.Aggregation, values: Any) -> Any:
    return (ModelOrderedWindows if node.windowing.is_ordered else ModelWindows)(node, values)


MODELS: dict[type[graph.Operation], Callable[[Any, Any], Any]] = {
    graph.Aggregation: _model_aggregation,
    **RECOGNIZERS,
    IntervalJoin: ModelIntervalJoin,
    TableJoin: ModelTableJoin,
    graph.Deduplication: ModelDeduplicate,
    graph.Process: ModelProcess,
}
"""For each kind of node, what models it over rows of topics; `ChainedOperator` models aggregations over panes."""


def recognizer_of(node: graph.Operation) -> Any:
    """What models a node over rows. It is given how aggregates are computed, for those that have any."""
    values = partial(compute_values, node) if isinstance(node, graph.Aggregation) else None
    return MODELS[type(node)](node, values)


class JobModel:
    """One job by itself."""

    def __init__(self, job: Job, partitions: Mapping[str, int]) -> None:
        """`partitions`: how many each topic has."""
        self.job, self.partitions = job, partitions
        self.operators: dict[graph.Operation, ModelOperator] = {}
        for node, name in job.operator_ids.items():
            if isinstance(node, graph.Aggregation) and not node.over_rows:
                self.operators[node] = ChainedOperator(node, name, self.operators)
            else:
                self.operators[node] = RowOperator(node, name, partitions, self.operators)

    def step(
        self, batch: Sequence[SourceEvent], now: int, end: bool
    ) -> tuple[dict[str, list[Row]], list[Row]]:
        """What the job writes to each topic, and what it refused."""
        for operator in self.operators.values():
            operator.outcome = OperatorOutcome()
            if isinstance(operator, RowOperator):
                operator.step(batch, now, end)
            elif isinstance(operator, ChainedOperator):
                operator.step()
        written: dict[str, list[Row]] = defaultdict(list)
        for write in self.job.outputs:
            for edge in graph.edges(write):
                written[write.topic.name] += self.written_rows(edge, batch)
        return written, [
            report for operator in self.operators.values() for report in operator.outcome.reports
        ]

    def written_rows(self, edge: graph.Edge, batch: Sequence[SourceEvent]) -> list[Row]:
        """The rows that reach a topic on one way."""
        origin = edge.origin
        if isinstance(origin, graph.Read):  # without windows no row is too late or too early
            events = [event for event in batch if event.topic == origin.topic.name]
            return [result for event in events for result in apply_steps(edge, source_row(event))]
        outcome = self.operators[origin].outcome
        if origin.forwards_rows and edge.output == "out":
            return [
                result
                for arrival in outcome.forwarded
                if arrival.row_order[2] == edge.input_edge
                for result in apply_steps(edge, arrival.row)
            ]
        if edge.output == "late":
            return [result for row in outcome.refused for result in apply_steps(edge, row)]
        if edge.output != "out":
            return [
                result
                for row in outcome.side_outputs.get(edge.output, [])
                for result in apply_steps(edge, row)
            ]
        records = [(pane_id, result) for pane_id, row in outcome.records for result in apply_steps(edge, row)]
        if edge.makes_join_rows:
            return list(net_changes(records))
        if origin.accumulation != "accumulating":
            return [row for _, row in records]
        added = [pane_id for pane_id, row in records if row["op"] == panes.ADD]
        withdrawn = [result for row in outcome.withdrawn for result in apply_steps(edge, row)]
        return withdrawn + [row for pane_id, row in records if row["op"] == panes.ADD or pane_id not in added]


class Model:
    """Jobs, and the streams they read, a batch at a time."""

    def __init__(self, jobs: Sequence[Job], partitions: Mapping[str, int]) -> None:
        """`partitions`: how many partitions each topic has that the jobs read."""
        self.jobs = [JobModel(job, partitions) for job in jobs]

    def step(
        self, batch: Sequence[SourceEvent], now: int, *, end: bool = False
    ) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """The rows written to each topic, and for each job the reports of what it refused; `end`: nothing follows this batch."""
        written: dict[str, list[Row]] = defaultdict(list)
        late: dict[str, list[Row]] = {}
        for model in self.jobs:
            rows, late[model.job.name] = model.step(batch, now, end)
            for topic, job_rows in rows.items():
                written[topic] += job_rows
        return dict(written), late

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The low watermark of each operator, None where there is none yet."""
        operators = [operator for model in self.jobs for operator in model.operators.values()]
        return {
            operator.name: None if operator.time == -math.inf else int(operator.time)
            for operator in operators
        }


def source_row(event: SourceEvent) -> Row:
    """The columns that a read gives to what follows."""
    return {**event.values, "event_time": event.event_time, "ingestion_time": event.ingestion_time}


def event_clock(watermark: Watermark, event: SourceEvent, schema: pl.Schema) -> float:
    """How far the row says that time has come; -inf where it says nothing."""
    if isinstance(watermark, Bounded):
        return min(event.event_time, event.ingestion_time)
    if isinstance(watermark, IngestionTime):
        return event.ingestion_time
    assert isinstance(watermark, Punctuation)
    claimed = pl.DataFrame([source_row(event)], schema=schema).select(said=watermark.time_in_millis)["said"][
        0
    ]
    if (
        claimed is None
        or claimed < durations.MIN_TIME
        or (watermark.is_limited and claimed > event.ingestion_time + watermark.ahead)
    ):
        return -math.inf
    return int(claimed)


def apply_steps(edge: graph.Edge, row: Row) -> list[Row]:
    """The rows that the stateless steps make of one row."""
    if not edge.steps:
        return [row]
    return edge.apply(pl.DataFrame([row], schema=edge.schema)).to_dicts()


def cancel_retractions(rows: Sequence[Change]) -> list[Change]:
    """The rows that still hold: each withdrawal takes one equal row with it."""
    retracted = Counter(
        to_canonical(change.row, set(change.row) - {"op"}) for change in rows if change.op == panes.RETRACT
    )
    kept = []
    for change in rows:
        row = to_canonical(change.row, set(change.row) - {"op"})
        if change.op == panes.RETRACT:
            continue
        if retracted[row]:
            retracted[row] -= 1
        else:
            kept.append(change)
    if retracted.total():
        raise DefinitionError(
            f"withdrawn but never there: {+retracted}; a stateless step must make the same of the same row every time"
        )
    return kept
