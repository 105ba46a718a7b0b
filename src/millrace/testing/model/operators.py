"""Operators of the model over rows of topics: they follow the watermarks of partitions.

The model of the node computes the results.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from millrace import graph, panes
from millrace.aggregates import Reduction
from millrace.durations import END_OF_STREAM
from millrace.testing.model.outcome import (
    AFTER_TOPICS,
    ArrivedRow,
    Change,
    OperatorOutcome,
    RowModel,
    RowOrder,
)
from millrace.testing.model.patterns import ModelRules
from millrace.testing.model.source import ModelPartition, SourceEvent, source_row
from millrace.testing.model.values import Row, compute_aggregate, to_sort_key
from millrace.values import key_hash


class ModelOperator:
    """One operator of one job."""

    def __init__(
        self, node: graph.Operation, name: str, upstream: Mapping[graph.Operation, ModelOperator]
    ) -> None:
        """`upstream`: the operators before this one, by node."""
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
        if graph.takes_rows(self.node):
            return self.node.lateness
        return max([self.node.lateness, *(operator.max_lateness for operator in self.upstream)])

    @property
    def is_idle(self) -> bool:
        """Whether nobody need wait for it, as all that it reads is idle."""
        return all(operator.is_idle for operator in self.upstream)

    def results(self, edge: graph.Edge) -> list[Row]:
        """The results that leave by one edge."""
        if edge.output == "out":
            return [change.row for change in self.outcome.changes]
        return self.outcome.side_outputs.get(edge.output, [])

    def refused_rows(self, edge: graph.Edge) -> Iterator[ArrivedRow]:
        """The rows that it refused, without those that are broadcast, in the columns that `late()` has."""
        for arrival in self.outcome.refused:
            if self.edges[arrival.row_order[2]].input_index == 0:
                yield arrival._replace(row={column: arrival.row.get(column) for column in edge.schema})


class UpstreamChannel:
    """An operator whose results another one takes as rows, as far as that one has seen it come."""

    def __init__(self, operator: ModelOperator) -> None:
        self.operator = operator
        self.watermark: float = -math.inf
        """What it had vouched for before this batch: nothing that comes is behind it."""
        self.is_idle = False

    def wake(self, watermark: float) -> None:
        """Notes that it is not idle: where it was, others have gone on without it."""
        if self.is_idle:
            self.watermark = max(self.watermark, watermark)
        self.is_idle = False

    def advance(self) -> None:
        """After the rows of a batch."""
        self.watermark = max(self.watermark, self.operator.time)
        self.is_idle = self.operator.is_idle


class ModelRowOperator(ModelOperator):
    """An operator over rows, each with the watermark of its partition at that row."""

    def __init__(
        self,
        node: graph.Operation,
        name: str,
        model: RowModel,
        partitions: Mapping[str, int],
        preceding: Mapping[graph.Operation, ModelOperator],
    ) -> None:
        """`partitions`: how many each topic has; `preceding`: the operators before this one, by node."""
        super().__init__(node, name, preceding)
        self.model, self.preceding = model, preceding
        self.channels = {
            number: UpstreamChannel(preceding[edge.origin])
            for number, edge in enumerate(self.edges)
            if isinstance(edge.origin, graph.Operation) and edge.read is None
        }
        reads = {id(edge.read): edge.read for edge in self.edges if edge.read is not None}
        self.partitions = [
            ModelPartition(read, p) for read in reads.values() for p in range(partitions[read.topic.name])
        ]
        self.watermark: float = -math.inf
        """The low watermark of the partitions, whatever time the windows lie in."""

    def step(self, batch: Sequence[SourceEvent], now: int, end: bool) -> None:
        """Reads rows in order of their offsets, moves the watermark,
        and hands both to the model of the node.
        """
        arrivals: list[ArrivedRow] = []
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
            partition.follow_writers(self.watermark, now)
        for channel in self.channels.values():
            if not channel.operator.is_idle:
                channel.wake(self.watermark)
        arrivals += self.forwarded_rows()
        arrivals += self.upstream_results(now)
        for channel in self.channels.values():
            channel.advance()
        self.watermark = max(self.watermark, END_OF_STREAM if end else self.minimum_watermark())
        before = self.time
        self.time = (
            self.watermark
            if not is_in_processing_time(self.node) or self.watermark >= END_OF_STREAM
            else max(self.time, now)
        )
        self.model.step(arrivals, self.time, now, self.outcome)
        is_ended = self.watermark >= END_OF_STREAM
        delay = self.model.output_delay if isinstance(self.model, ModelRules) else self.node.output_delay
        if not is_ended and not is_in_processing_time(self.node):
            self.time = max(before, self.watermark - delay)

    def read_event(self, event: SourceEvent, partition: ModelPartition) -> Iterator[ArrivedRow]:
        """One event moves the clock of its partition, then goes through the stateless steps of each edge."""
        watermark = partition.read.watermark
        is_future = event.event_time > event.ingestion_time + watermark.ahead
        if not is_future:
            partition.advance(event)
        row = source_row(event)
        for input_number, edge in enumerate(self.edges):
            if edge.origin is partition.read:
                for result in apply_steps(edge, row):
                    yield ArrivedRow(
                        result,
                        (event.topic, event.partition, input_number, event.offset),
                        partition.watermark,
                        is_future,
                    )

    def forwarded_rows(self) -> Iterator[ArrivedRow]:
        """Rows of this batch that an operator before this one let through."""
        for input_number, edge in enumerate(self.edges):
            if isinstance(edge.origin, graph.Deduplication) and edge.output == "out":
                for arrival in self.preceding[edge.origin].outcome.forwarded:
                    topic, partition, output_number, offset = arrival.row_order
                    if output_number == edge.input_edge:
                        watermark = max(arrival.watermark, self.floor_of(edge, input_number, partition))
                        row_order = (topic, partition, input_number, offset)
                        yield from (
                            arrival._replace(row=result, row_order=row_order, watermark=watermark)
                            for result in apply_steps(edge, arrival.row)
                        )

    def floor_of(self, edge: graph.Edge, input_number: int, partition: int) -> float:
        """By what a row that was let through is judged, besides the watermark that it brings."""
        if input_number in self.channels:
            return self.channels[input_number].watermark
        [own] = [one for one in self.partitions if one.read is edge.read and one.partition == partition]
        return own.floor

    def upstream_results(self, now: int) -> Iterator[ArrivedRow]:
        """Results of this batch that come from operators as rows."""
        for input_number, channel in self.channels.items():
            edge = self.edges[input_number]
            is_forwarded = isinstance(edge.origin, graph.Deduplication) and edge.output == "out"
            if is_forwarded or not graph.comes_as_rows(edge, self.node):
                continue
            if edge.output == graph.LATE:
                yield from self.rows_refused_upstream(input_number, channel, now)
                continue
            places: Counter[Any] = Counter()
            for row in channel.operator.results(edge):
                place_id = (*(to_sort_key(row[key]) for key in channel.operator.node.keys), row["event_time"])
                row_order = result_order(row, edge.schema, input_number, places[place_id])
                places[place_id] += channel.operator.node.emits_in_order
                for result in apply_steps(edge, row):
                    yield ArrivedRow(result, row_order, channel.watermark, is_future=False)

    def rows_refused_upstream(
        self, input_number: int, channel: UpstreamChannel, now: int
    ) -> Iterator[ArrivedRow]:
        """Rows that an operator before this one refused in this batch, at the watermark that refused them;
        by the clock, where that is the time of its windows.
        """
        edge = self.edges[input_number]
        for arrival in channel.operator.refused_rows(edge):
            watermark = now if is_in_processing_time(channel.operator.node) else arrival.watermark
            if watermark >= END_OF_STREAM:
                watermark = -math.inf
            if arrival.is_future:
                watermark = max(watermark, arrival.row.get("ingestion_time", -math.inf))
            row_order = refused_order(arrival, edge.schema, input_number)
            for result in apply_steps(edge, arrival.row):
                time = watermark if arrival.is_future else max(result["event_time"], watermark)
                if time > -math.inf:
                    result["event_time"] = time
                yield ArrivedRow(result, row_order, channel.watermark, is_future=False)

    def minimum_watermark(self) -> float:
        """The least watermark of the partitions that are not idle.

        It may be behind the low watermark, which never moves back.
        """
        channels = self.all_channels
        awake = [channel.watermark for channel in channels if not channel.is_idle]
        return min(awake) if awake else max(channel.watermark for channel in channels)

    @property
    def all_channels(self) -> list[ModelPartition | UpstreamChannel]:
        """All that it reads."""
        return [*self.partitions, *self.channels.values()]

    @property
    def is_idle(self) -> bool:
        """Whether nobody need wait for it, as all that it reads is idle."""
        return all(channel.is_idle for channel in self.all_channels)


def result_order(row: Row, schema: pl.Schema, input_number: int, place: int) -> RowOrder:
    """The order of results of equal time: behind rows of topics, by edge, place and a hash of the values."""
    values = pl.DataFrame([row], schema=schema).drop(*panes.HISTORY_COLUMNS, "op")
    [hashed] = key_hash.hash_values(values).tolist()
    return AFTER_TOPICS, 0, input_number, (place << 64) + hashed


def refused_order(arrival: ArrivedRow, schema: pl.Schema, input_number: int) -> RowOrder:
    """The order of refused rows of equal time: that of their topic; others, behind them, by a hash."""
    if arrival.row_order[0] != AFTER_TOPICS:
        return AFTER_TOPICS, 0, input_number, (0, *arrival.row_order)
    values = pl.DataFrame([arrival.row], schema=schema).drop(*panes.HISTORY_COLUMNS, strict=False)
    [hashed] = key_hash.hash_values(values).tolist()
    return AFTER_TOPICS, 0, input_number, (1, hashed)


def read_columns(node: graph.Aggregation) -> list[str]:
    """The columns that the aggregates read."""
    return sorted({column for aggregate in node.aggregates.values() for column in aggregate.input_columns()})


def compute_values(node: graph.Aggregation, rows: Sequence[Change]) -> Row:
    """The aggregates of the rows, in order of event time, topic, partition and offset.

    Of panes, in order of event time and values.
    """
    compared = [] if node.over_rows else read_columns(node)

    def row_order(change: Change) -> Any:
        return (
            change.row["event_time"],
            change.row_order,
            [to_sort_key(change.row[column]) for column in compared],
        )

    ordered = [change.row for change in sorted(rows, key=row_order)]
    return {
        name: compute_aggregate(aggregate, counted_rows(aggregate, ordered, node.inputs[0].schema))
        for name, aggregate in node.aggregates.items()
    }


def counted_rows(aggregate: Reduction, rows: Sequence[Row], schema: pl.Schema) -> Sequence[Row]:
    """Of expressions: their values, by name, in the rows for which the condition holds."""
    if aggregate.argument is None:
        return rows
    values, where = aggregate.argument.values, aggregate.argument.where
    counted = []
    for row in rows:
        frame = pl.DataFrame([row], schema=schema)
        if where is None or frame.select(where).item() is True:
            counted.append({name: frame.select(expr).item() for name, expr in values.items()})
    return counted


def is_in_processing_time(node: graph.Operation) -> bool:
    """Whether windows lie in processing time."""
    return isinstance(node, graph.Aggregation) and node.windowing.is_processing_time


def apply_steps(edge: graph.Edge, row: Row) -> list[Row]:
    """The rows that the stateless steps of an edge make of one row."""
    if not edge.steps:
        return [row]
    return edge.apply(pl.DataFrame([row], schema=edge.schema)).to_dicts()
