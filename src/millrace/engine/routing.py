"""Rows along an edge to the slots of their keys, or out to a topic.

Rows of sliding windows are combined into partials per key and slice before they move. Rows that might turn
out late travel whole, so that the late output can show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.emitted_rows import place_refused, renumber_source
from millrace.engine.exchange import Block, Body
from millrace.engine.lateness import cannot_be_late
from millrace.engine.operators.assign import earliest_end, window_input
from millrace.engine.operators.partials import partials_of
from millrace.engine.operators.slices import Grid, grid_of
from millrace.engine.plan import Operator, Route
from millrace.values import key_hash
from millrace.values.columns import (
    CLOCK,
    FIRST_END,
    FIRST_OPEN_END,
    INGESTED,
    IS_FUTURE,
    LATE_PARTITION,
    OFFSET,
    PARTITION,
    RECORD_KEY,
    RECORD_VALUE,
    REPORTS_ERRORS,
    ROW_COUNT,
    ROW_TIME,
    SLICE,
    SLOT,
    SOURCE,
    TOPIC,
    WINDOW_INPUT,
)

if TYPE_CHECKING:
    from millrace.engine.source import PartitionBatch

SET_ASIDE = "aside"
"""The kind of blocks with rows that need not be judged: they are too far in the future."""
RAW_COLUMNS = {RECORD_KEY: pl.Binary(), RECORD_VALUE: pl.Binary()}


def forward_rows(route: Route, rows: pl.DataFrame, bodies: list[Body]) -> None:
    """Sends rows that an operator lets through along one edge; `_clock` is the watermark at each."""
    read = route.edge.read
    order = renumber_source(route.edge_index) if read is None else source_order(route, read.topic.name)
    deliver(route, read, rows.with_columns(order.alias(SOURCE)), (), bodies)


def deliver(
    route: Route,
    read: graph.Read | None,
    frame: pl.DataFrame,
    batches: Sequence[PartitionBatch],
    bodies: list[Body],
) -> None:
    """Takes rows through the stateless steps of an edge, then to its operator or its topic.

    `read`: where they were read; null: an operator made them.
    """
    if route.born_at is not None:
        frame = frame.filter(pl.col("event_time") > route.born_at)
    frame = route.edge.apply(frame)
    if frame.is_empty():
        return
    operator = route.operator
    if operator is None:
        visible = frame.select(c for c in frame.columns if not c.startswith("_"))
        bodies[0].blocks.append(Block.of(route.target, "rows", visible))
        return
    if route.edge.output == graph.LATE:
        frame = place_refused(frame)
    channel = f"{route.edge_index}/{'' if read is None else read.topic.name}"
    delivery = _Delivery(operator, read, channel, batches, bodies)
    match operator.node:
        case graph.Deduplication():
            _send_to_deduplication(delivery, frame)
        case graph.Aggregation(over_rows=False):
            _send_to_ordered_rows(delivery, frame)
        case graph.Aggregation(windowing=windowing) if windowing.sliced_window is not None:
            _send_to_slices(delivery, grid_of(windowing), frame)
        case graph.Aggregation(windowing=windowing):
            _send_to_windows(delivery, windowing, frame)
        case _:
            _send_to_ordered_rows(delivery, frame)


def source_order(route: Route, topic: str) -> pl.Expr:
    """A number that orders rows of equal time: by topic name, then partition,
    then edge, in every batch alike.
    """
    topics = route.operator.topics if route.operator else [topic]
    return pl.col(PARTITION) * 256 + ((topics.index(topic) << 40) + route.edge_index)


@dataclass(frozen=True)
class _Delivery:
    """One edge into one operator, during one batch."""

    operator: Operator
    read: graph.Read | None
    channel: str
    batches: Sequence[PartitionBatch]
    bodies: list[Body]

    def send(self, frame: pl.DataFrame, kind: str = "rows") -> None:
        """Sends rows to the slots of their keys; those of a broadcast input to every slot."""
        if self.operator.input_index(self.channel) == self.operator.node.broadcast_input:
            self._broadcast(frame, kind)
            return
        for slot, part in partition_by_slot(frame, self.operator.node, len(self.bodies)):
            self._append(slot, kind, part)

    def send_whole(self, frame: pl.DataFrame) -> None:
        """Sends rows with the bytes of their records."""
        self.send(add_raw_bytes(frame, self.batches))

    def _broadcast(self, frame: pl.DataFrame, kind: str) -> None:
        """Every slot gets all rows.
        Only one slot reports those it refuses, or they would be reported once a slot.
        """
        for slot in range(len(self.bodies)):
            self._append(slot, kind, frame.with_columns(pl.lit(slot == 0).alias(REPORTS_ERRORS)))

    @property
    def keeps_rows_whole(self) -> bool:
        """Whether rows may be needed with all their columns, even where the bound says that none is late: it
        does not hold for what an operator shows at the end of the stream, or where clocks differ by much.
        """
        return self.operator.hands_on_late or (self.operator.shows_late and self.carries_watermarks)

    def _append(self, slot: int, kind: str, frame: pl.DataFrame) -> None:
        self.bodies[slot].blocks.append(Block.of(self.operator.id, kind, frame, channel=self.channel))

    @property
    def carries_watermarks(self) -> bool:
        """Whether the rows come from an operator, with the watermark at each of them."""
        return self.operator.carries_watermarks(self.channel)

    @property
    def delay(self) -> int:
        """The delay of the watermark; none where an operator made the rows."""
        return 0 if self.read is None else self.read.watermark.delay

    @property
    def is_learned(self) -> bool:
        """Whether that delay is learned."""
        return self.read is not None and self.read.watermark.is_learned


# What may be combined before the shuffle
#
# Invariant: a row is combined only if no window of it can refuse it. A window that ends at `end` refuses a
# row if the watermark of the row's partition, as it stood at that row, is at least `end + lateness`. That
# watermark has two parts:
#
# 1. The clock within this batch. It is known here (`_clock`). `_from` is the first end that it leaves open;
#    it is later than `_first`, the first end of all, if some window already refuses the row.
# 2. The clock before this batch. It is in the state of the operator, so it is not known here. But a clock is
#    capped by ingestion time, and records are appended in the order of ingestion, so it is at most
#    `_ingested`, the latest ingestion so far, plus the difference between the clocks of ingestion nodes
#    (`CLOCK_MARGIN`).
#
# Example: windows of 30 s every 5 s, a delay of 1 s, no lateness (grace 1 s), margin 2 s.
#
#     event time   ingested   first end   at most this watermark   travels
#     12:00:01     12:00:02   12:00:05    12:00:03 (02 + 2 - 1)    combined: 12:00:03 is before 12:00:05
#     12:00:03     12:00:04   12:00:05    12:00:05                 whole: the window may be complete
#     11:59:20     12:00:04   11:59:25    12:00:05                 whole: the operator judges it
#
# A row that travels whole may still be in time: the operator judges it by the state, and combines it there.
# So the bound decides what is shown in the late output, never what is counted.


def _send_to_slices(delivery: _Delivery, grid: Grid, frame: pl.DataFrame) -> None:
    """Rows for sliding windows: combined by key and slice if no window can refuse them, else whole."""
    operator = delivery.operator
    if not operator.hands_on_late:
        frame = _set_future_aside(delivery, grid, frame)
    if frame.is_empty():
        return
    carries_watermarks = delivery.carries_watermarks
    is_learned = delivery.is_learned and not carries_watermarks
    delay = 0 if carries_watermarks else delivery.delay
    event_time = pl.col("event_time")
    first = grid.first_end(event_time)
    open_end = grid.first_end(pl.col(CLOCK) - (delay + operator.node.lateness))
    rows = frame.with_columns(
        event_time.alias(ROW_TIME),
        grid.slice_of(event_time).alias(SLICE),
        first.alias(FIRST_END),
        (first if is_learned else pl.max_horizontal(first, open_end)).alias(FIRST_OPEN_END),
    )
    if operator.hands_on_late:
        delivery.send_whole(rows.drop(rf"^{CLOCK}[0-9]+$", INGESTED))
        return
    is_in_time = cannot_be_late(operator, pl.col(FIRST_END), carries_watermarks=carries_watermarks)
    is_whole = pl.lit(delivery.keeps_rows_whole)
    doubtful = rows.select(
        is_whole | ~((pl.col(FIRST_OPEN_END) == pl.col(FIRST_END)) & is_in_time)
    ).to_series()
    if not doubtful.all():
        _send_combined(delivery, rows, doubtful)
    if doubtful.any():
        unneeded = pl.exclude(rf"^{CLOCK}[0-9]+$" if is_learned else rf"^{CLOCK}.*$", INGESTED, IS_FUTURE)
        delivery.send_whole(rows.filter(doubtful).select(unneeded))


def _send_combined(delivery: _Delivery, rows: pl.DataFrame, doubtful: pl.Series) -> None:
    partials, group = partials_of(delivery.operator.aggregation), (SLICE, FIRST_OPEN_END, PARTITION)
    needed = dict.fromkeys([*partials.keys, *partials.input_columns, *ORDER, *group])
    lean = rows.select(list(needed))
    lean = lean.filter(~doubtful) if doubtful.any() else lean
    delivery.send(partials.from_rows(lean, group=group), "partials")


def _set_future_aside(delivery: _Delivery, grid: Grid, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that are not too far in the future; the others go to the late output."""
    if not frame[IS_FUTURE].any():
        return frame
    event_time = pl.col("event_time")
    missed = (grid.last_end(event_time) - grid.first_end(event_time)) // grid.window.every + 1
    topic = None if delivery.read is None else delivery.read.topic.name
    future = add_raw_bytes(frame.filter(IS_FUTURE), delivery.batches)
    future = future.with_columns(pl.lit("future").alias("reason"), missed.alias("missed"))
    future = future.select(pl.exclude(rf"^{CLOCK}.*$", SOURCE, INGESTED, IS_FUTURE))
    future = future.rename({PARTITION: LATE_PARTITION}).with_columns(
        pl.lit(topic, pl.String).alias(TOPIC), pl.lit(1, pl.Int64).alias(ROW_COUNT)
    )
    delivery.bodies[0].blocks.append(
        Block.of(delivery.operator.id, SET_ASIDE, future, channel=delivery.channel)
    )
    return frame.filter(~pl.col(IS_FUTURE))


def _send_to_deduplication(delivery: _Delivery, frame: pl.DataFrame) -> None:
    """All rows whole, with their bytes where they might be refused here or later."""
    rows = frame.with_columns(pl.col("event_time").alias(ROW_TIME)).drop(rf"^{CLOCK}[0-9]+$")
    latest = pl.max_horizontal(CLOCK, INGESTED) - delivery.delay
    doubtful = rows.select(
        ((latest > pl.col(ROW_TIME)) | pl.col(IS_FUTURE)).fill_null(value=True)
    ).to_series()
    delivery.send(rows.filter(~doubtful))
    if doubtful.any():
        delivery.send_whole(rows.filter(doubtful))


def _send_to_ordered_rows(delivery: _Delivery, frame: pl.DataFrame) -> None:
    """All rows whole: whether they are behind the watermark is known only to the operator,
    where they wait for their turn.
    """
    rows = frame.with_columns(pl.col("event_time").alias(ROW_TIME)).drop(rf"^{CLOCK}[0-9]+$")
    delivery.send_whole(rows.drop(INGESTED))


def _send_to_windows(delivery: _Delivery, windowing: graph.Windowing, frame: pl.DataFrame) -> None:
    """Rows for an operator that judges them itself:
    whole if a window could refuse them, else the needed columns.
    """
    rows = frame.with_columns(pl.col("event_time").alias(ROW_TIME), *window_input(windowing.assigner)).drop(
        rf"^{CLOCK}[0-9]+$"
    )
    is_doubtful = pl.lit(delivery.keeps_rows_whole) | ~_is_safe(delivery, windowing)
    doubtful = rows.select(is_doubtful.alias("doubtful")).to_series()
    if not doubtful.all():
        needed = _needed_columns(delivery.operator)
        delivery.send(rows.filter(~doubtful).select(c for c in needed if c in rows.columns))
    if doubtful.any():
        delivery.send_whole(rows.filter(doubtful).drop(INGESTED))


def _is_safe(delivery: _Delivery, windowing: graph.Windowing) -> pl.Expr:
    """Whether no window can refuse a row."""
    operator = delivery.operator
    end = earliest_end(windowing.assigner, pl.col(ROW_TIME))
    if end is None or windowing.trigger.finishes or windowing.is_ordered:
        return pl.lit(value=False)
    by_processing_time = pl.lit(windowing.is_processing_time and operator.is_bounded_by_ingestion)
    is_in_time = cannot_be_late(operator, end, carries_watermarks=delivery.carries_watermarks)
    return ~pl.col(IS_FUTURE) & (by_processing_time | is_in_time)


def _needed_columns(operator: Operator) -> list[str]:
    node = operator.aggregation
    inputs = [*(node.row_schema if node.takes_whole_rows else ()), *partials_of(node).input_columns]
    internal = (ROW_TIME, SOURCE, OFFSET, PARTITION, CLOCK, IS_FUTURE, WINDOW_INPUT)
    return list(dict.fromkeys([*operator.node.keys, *inputs, *internal]))


def add_raw_bytes(frame: pl.DataFrame, batches: Sequence[PartitionBatch]) -> pl.DataFrame:
    """Rows with the bytes of the records they were, null where they never were records."""
    if RECORD_VALUE in frame.columns:
        return frame
    partitions, offsets = frame[PARTITION].to_numpy(), frame[OFFSET].to_numpy()
    places, keys, values = [], [], []
    for batch in batches:
        rows = np.flatnonzero(partitions == batch.partition)
        if not len(rows):
            continue
        places.append(rows)
        if batch.records is None:
            keys.append(pa.nulls(len(rows), pa.binary()))
            values.append(keys[-1])
            continue
        indices = pa.array(np.searchsorted(batch.records.offsets, offsets[rows]))
        keys.append(batch.records.keys.take(indices))
        values.append(batch.records.values.take(indices))
    order = np.concatenate(places)
    raw = zip(RAW_COLUMNS, (keys, values), strict=True)
    columns = [pl.Series(name, pa.chunked_array(arrays), pl.Binary).rechunk() for name, arrays in raw]
    return (frame if (np.diff(order) == 1).all() else frame[order]).hstack(columns)


# Which slot holds a key
#
# The 128 key groups are cut into as many contiguous ranges as the operator uses slots, and the ranges are
# spread evenly over the slots of the run. Example, 8 slots:
#
#     parallelism   key groups of each range     slots
#     none          16                           0, 1, 2, 3, 4, 5, 6, 7
#     3             42 or 43                     0, 2, 5
#     1             128                          0


def partition_by_slot(
    frame: pl.DataFrame, node: graph.Operation, slots: int
) -> list[tuple[int, pl.DataFrame]]:
    """The rows of each slot that has any."""
    if frame.is_empty():
        return []
    ranges = node.count_slots(slots)
    if ranges == 1:
        return [(0, frame)]
    key_range = key_hash.key_groups(frame, list(node.keys)).astype(np.int32) * ranges // key_hash.KEY_GROUPS
    slot = key_range * slots // ranges
    parts = frame.with_columns(pl.Series(SLOT, slot)).partition_by(SLOT, as_dict=True, include_key=False)
    return [(int(key[0]), part) for key, part in parts.items()]
