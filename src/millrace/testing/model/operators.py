"""Operators of the model over rows of topics: they follow the watermarks of partitions.

The model of the node computes the results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from millrace import graph
from millrace.durations import END_OF_STREAM
from millrace.graph.build.join import IntervalJoin
from millrace.testing.model.outcome import ArrivedRow, Change, OperatorOutcome, RowModel
from millrace.testing.model.source import ModelPartition, SourceEvent, source_row
from millrace.testing.model.values import Row, compute_aggregate, to_sort_key


class ModelOperator:
    """One operator of one job."""

    def __init__(
        self, node: graph.Operation, name: str, upstream: Mapping[graph.Operation, ModelOperator]
    ) -> None:
        """`upstream`: the operators whose panes it reads, by node."""
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


class ModelRowOperator(ModelOperator):
    """An operator over rows of topics, each with the watermark of its partition at that row."""

    def __init__(
        self,
        node: graph.Operation,
        name: str,
        model: RowModel,
        partitions: Mapping[str, int],
        preceding: Mapping[graph.Operation, ModelOperator],
    ) -> None:
        """`partitions`: how many each topic has; `preceding`: operators that may forward rows to this one."""
        super().__init__(node, name, {})
        self.model, self.preceding = model, preceding
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
        arrivals += self.forwarded_rows()
        self.watermark = max(self.watermark, END_OF_STREAM if end else self.minimum_watermark())
        self.time = (
            self.watermark
            if not is_in_processing_time(self.node) or self.watermark >= END_OF_STREAM
            else max(self.time, now)
        )
        self.model.step(arrivals, self.time, now, self.outcome)
        if isinstance(self.node, IntervalJoin) and self.watermark < END_OF_STREAM:
            self.time = self.watermark - self.node.output_delay

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
            if isinstance(edge.origin, graph.Deduplication):
                for arrival in self.preceding[edge.origin].outcome.forwarded:
                    topic, partition, output_number, offset = arrival.row_order
                    if output_number == edge.input_edge:
                        yield from (
                            arrival._replace(row=result, row_order=(topic, partition, input_number, offset))
                            for result in apply_steps(edge, arrival.row)
                        )

    def minimum_watermark(self) -> float:
        """The least watermark of the partitions that are not idle.

        It may be behind the low watermark, which never moves back.
        """
        awake = [partition.watermark for partition in self.partitions if not partition.is_idle]
        return min(awake) if awake else max(partition.watermark for partition in self.partitions)


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
    return {name: compute_aggregate(aggregate, ordered) for name, aggregate in node.aggregates.items()}


def is_in_processing_time(node: graph.Operation) -> bool:
    """Whether windows lie in processing time."""
    return isinstance(node, graph.Aggregation) and node.windowing.is_processing_time


def apply_steps(edge: graph.Edge, row: Row) -> list[Row]:
    """The rows that the stateless steps of an edge make of one row."""
    if not edge.steps:
        return [row]
    return edge.apply(pl.DataFrame([row], schema=edge.schema)).to_dicts()
