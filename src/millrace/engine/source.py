"""From decoded rows to packets: the part that runs where the log is read.

The stateless steps of every job are applied, rows are condensed into partials per key and slice, and routed to the slots of their keys.
Rows that might turn out late travel whole, so that the late output can show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millrace import graph, hashing, watermarks
from millrace.engine.packets import Block, Body, Packet, Source
from millrace.engine.partials import partials_of
from millrace.engine.plan import Operator, Plan, Route
from millrace.engine.windowing import Grid

if TYPE_CHECKING:
    from millrace.log.codecs import Decoded
    from millrace.log.contract import Records

MARGIN = 2_000
"""By how much the clocks of ingestion nodes may differ before a late row is shown condensed in the late output. Nothing else depends on it."""

RAW = {"_key": pl.Binary(), "_value": pl.Binary()}


@dataclass(frozen=True)
class Piece:
    """What a batch brings from one partition: rows, or nothing new."""

    topic: str
    partition: int
    decoded: Decoded | None = None
    records: Records | None = None
    """The raw records of `decoded`, for late rows; absent where rows never were records."""


def route(plan: Plan, pieces: Sequence[Piece], now: int, *, end: bool = False) -> list[Packet]:
    """One packet for every slot, since progress concerns them all."""
    bodies = [Body(now, end) for _ in range(plan.slots)]
    for piece in pieces:
        active = piece.decoded is not None and not piece.decoded.rows.is_empty()
        clocks: dict[str, int | None] = dict.fromkeys(plan.clocks[piece.topic])
        if piece.decoded is not None:
            sink = bodies[piece.partition % plan.slots]
            sink.counts["read"] = sink.counts.get("read", 0) + piece.decoded.rows.height
            if not piece.decoded.dead.is_empty():
                sink.blocks.append(Block.of("dead", "dead", piece.decoded.dead))
        if piece.decoded is not None and active:
            clocks = _route_rows(plan, piece, piece.decoded.rows, bodies)
        for body in bodies:
            body.sources.append(Source(piece.topic, piece.partition, active, clocks))
    return [Packet(slot, body.encode()) for slot, body in enumerate(bodies)]


def channel(route: Route, topic: str, partition: int) -> str:
    """The name under which an operator knows a partition that reaches it along an edge."""
    return f"{route.index}/{topic}/{partition}"


def _route_rows(plan: Plan, piece: Piece, rows: pl.DataFrame, bodies: list[Body]) -> dict[str, int | None]:
    clocks: dict[str, int | None] = {}
    running: dict[str, pl.Series] = {}
    for name, clock in plan.clocks[piece.topic].items():
        series = rows.select(clock.cum_max().forward_fill().alias("_clock"))["_clock"].cast(pl.Int64)
        running[name], clocks[name] = series, series[-1]
    for way in plan.reads_of(piece.topic):
        read = way.edge.origin
        if not isinstance(read, graph.Read):
            continue
        ahead = pl.col("event_time") > pl.col("ingestion_time") + read.watermark.ahead
        frame = rows.with_columns(
            running[read.watermark.clock_id],
            pl.lit(_rank(way, piece), pl.Int64).alias("_src"),
            pl.col("ingestion_time").cum_max().alias("_ingested"),
            ahead.alias("_ahead"),
        )
        frame = way.edge.apply(frame)
        if way.operator is None:
            block = Block.of(way.target, "rows", frame.drop(cs_internal(frame)))
            bodies[piece.partition % len(bodies)].blocks.append(block)
        else:
            _to_operator(way, way.operator, read, piece, frame, bodies)
    return clocks


def _rank(way: Route, piece: Piece) -> int:
    """Orders rows of equal time: by topic name, partition, then edge."""
    topics = way.operator.topics if way.operator else [piece.topic]
    return (topics.index(piece.topic) << 32) + (piece.partition << 8) + way.index


def cs_internal(frame: pl.DataFrame) -> list[str]:
    """The columns that users do not see."""
    return [column for column in frame.columns if column.startswith("_")]


def _to_operator(way: Route, operator: Operator, read: graph.Read, piece: Piece, frame: pl.DataFrame, bodies: list[Body]) -> None:
    grid, windowing = Grid(operator.node.windowing.window), operator.node.windowing
    name = channel(way, piece.topic, piece.partition)
    event_time, delay, lateness = pl.col("event_time"), read.watermark.delay, windowing.lateness
    set_aside = frame.filter("_ahead")
    if not set_aside.is_empty():
        frame = frame.filter(~pl.col("_ahead"))
        late = _refused_ahead(grid, _with_raw(set_aside, piece))
        _refuse(late, way, piece, bodies)
    judged = frame.with_columns(
        event_time.alias("_t"),
        grid.slice_of(event_time).alias("_slice"),
        grid.first_end(event_time).alias("_first"),
        grid.first_end(pl.col("_clock") - (delay + lateness)).alias("_open"),
    ).with_columns(pl.max_horizontal("_first", "_open").alias("_from"))
    grace = delay if windowing.trigger.once else delay + lateness
    bounded = isinstance(read.watermark, watermarks.Bounded)  # by ingestion; other clocks may be ahead of it by any time
    doubtful = (pl.col("_from") > pl.col("_first")) | (pl.col("_ingested") + (MARGIN - grace) >= pl.col("_first")) | pl.lit(not bounded)
    whole, lean = judged.filter(doubtful), judged.filter(~doubtful)
    _spread(partials_of(operator.node).of_rows(lean), operator, "partials", name, bodies)
    if not whole.is_empty():
        whole = whole.drop("_open", "_ingested", "_ahead", "_clock")
        _spread(_with_raw(whole, piece), operator, "rows", name, bodies)


def _refused_ahead(grid: Grid, frame: pl.DataFrame) -> pl.DataFrame:
    event_time = pl.col("event_time")
    missed = (grid.last_end(event_time) - grid.first_end(event_time)) // grid.window.every + 1
    return frame.with_columns(pl.lit("future").alias("reason"), missed.alias("missed"))


def _refuse(late: pl.DataFrame, way: Route, piece: Piece, bodies: list[Body]) -> None:
    if way.operator is None:
        return
    body = bodies[piece.partition % len(bodies)]
    origin = late.with_columns(pl.lit(piece.topic).alias("_topic"), pl.lit(piece.partition, pl.Int64).alias("_partition"))
    body.blocks.append(Block.of(f"late/{way.operator.id}", "late", origin.drop("_src", "_ingested", "_ahead", "_clock")))


def _with_raw(frame: pl.DataFrame, piece: Piece) -> pl.DataFrame:
    """With the bytes each row was made of, where they are known."""
    if piece.records is None or frame.is_empty():
        return frame.with_columns(*[pl.lit(None, dtype).alias(name) for name, dtype in RAW.items()])
    places = np.searchsorted(piece.records.offsets, frame["_off"].to_numpy())
    keys = pl.Series("_key", pl.from_arrow(piece.records.keys.take(places)), dtype=pl.Binary)
    values = pl.Series("_value", pl.from_arrow(piece.records.values.take(places)), dtype=pl.Binary)
    return frame.with_columns(keys, values)


def _spread(frame: pl.DataFrame, operator: Operator, kind: str, channel: str, bodies: list[Body]) -> None:
    for slot, part in by_slot(frame, list(operator.node.keys), len(bodies)):
        bodies[slot].blocks.append(Block.of(operator.id, kind, part, channel=channel))


def by_slot(frame: pl.DataFrame, keys: list[str], slots: int) -> list[tuple[int, pl.DataFrame]]:
    """The rows of each slot that has any; a slot holds a contiguous range of key groups."""
    if frame.is_empty():
        return []
    if slots == 1:
        return [(0, frame)]
    slot = hashing.key_groups(frame, keys).astype(np.int32) * slots // hashing.KEY_GROUPS
    parts = frame.with_columns(pl.Series("_slot", slot)).partition_by("_slot", as_dict=True, include_key=False)
    return [(int(key[0]), part) for key, part in parts.items()]
