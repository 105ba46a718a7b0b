"""From decoded rows to packets: the part that runs where the log is read.

The stateless steps of every job are applied, rows are condensed into partials per key and slice, and routed to the slots of their keys.
Rows that might turn out late travel whole, so that the late output can show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millrace import graph, lookups
from millrace.aggregates import ORDER
from millrace.engine.exchange import Block, Body, Packet, SourcePartition
from millrace.engine.isolation import (
    NOT_USER_ERRORS,
    RUNNING_JOBS,
    failure_block,
    find_culprits,
    to_dead_letters,
)
from millrace.engine.lag_estimate import LagReport, report_lags
from millrace.engine.operators.assign import WINDOW_INPUT, earliest_end, window_input
from millrace.engine.operators.partials import partials_of
from millrace.engine.operators.slices import Grid, grid_of
from millrace.engine.plan import Operator, Plan, Route
from millrace.values import key_hash
from millrace.values.calls import ordinary_errors
from millrace.watermarks import EMPTY_PARTITION_TIMEOUT

if TYPE_CHECKING:
    from millrace.log.codecs.codec import Decoded
    from millrace.log.contract import Records

CLOCK_MARGIN = 2_000
"""By how much the clocks of ingestion nodes may differ before a late row is shown condensed in the late output. Nothing else depends on it."""

RAW_COLUMNS = {"_key": pl.Binary(), "_value": pl.Binary()}


@dataclass(frozen=True)
class PartitionBatch:
    """What a batch brings from one partition: rows, or nothing new."""

    topic: str
    partition: int
    decoded: Decoded | None = None
    records: Records | None = None
    """The raw records of `decoded`, for late rows; absent where rows never were records."""
    end_offset: int | None = None
    """The offset behind its last record, where it was read from a log; 0: the partition has never held a record."""

    @property
    def rows(self) -> pl.DataFrame | None:
        """The rows, if there are any."""
        return None if self.decoded is None or self.decoded.rows.is_empty() else self.decoded.rows


def route_batch(
    plan: Plan, batches: Sequence[PartitionBatch], now: int, *, end: bool = False, bounded: bool = False
) -> list[Packet]:
    """One packet for every slot, since progress concerns them all. `bounded`: nothing is expected of partitions that are empty."""
    bodies = [Body(now, end) for _ in range(plan.slots)]
    with lookups.share_answers(now) as answers:
        for topic in plan.topics:
            topic_batches = [batch for batch in batches if batch.topic == topic.name]
            timed = [_add_clocks(plan, batch, bodies[0]) for batch in topic_batches if batch.rows is not None]
            _report_progress(
                plan, topic_batches, timed, bodies, empty_after=0 if bounded else EMPTY_PARTITION_TIMEOUT
            )
            if timed:
                rows = timed[0] if len(timed) == 1 else pl.concat(timed)
                for topic_route in plan.routes_of_topic(topic.name):
                    _follow_isolated(plan, topic_route, rows, topic_batches, bodies)
    bodies[0].counts |= answers.counts
    return [Packet(slot, body.encode()) for slot, body in enumerate(bodies)]


def _add_clocks(plan: Plan, batch: PartitionBatch, body: Body) -> pl.DataFrame:
    """The rows of a partition with the running clocks that read them, and the latest ingestion so far."""
    rows = batch.decoded.rows if batch.decoded else pl.DataFrame()
    added = [
        pl.col("ingestion_time").cum_max().alias("_ingested"),
        pl.lit(batch.partition, pl.Int64).alias("_part"),
    ]
    clocks = {
        id: _running_maximum(clock).alias(f"_clock{i}")
        for i, (id, clock) in enumerate(plan.clocks[batch.topic].items())
    }
    try:
        with ordinary_errors():
            return rows.with_columns(*clocks.values(), *added)
    except Exception:
        if not plan.isolates_jobs:
            raise
    for id, clock in clocks.items():
        try:
            with ordinary_errors():
                rows.select(clock)
        except Exception as error:  # noqa: BLE001 - a user's expression: whatever it raises stops its jobs
            clocks[id] = pl.lit(None, pl.Int64).alias(clock.meta.output_name())
            [bad] = find_culprits(partial(_select, clock), [rows.with_columns(*added)])
            dead = to_dead_letters(_add_raw_bytes(bad, [batch]), batch.topic)
            for topic_route in (
                topic_route
                for topic_route in plan.routes_of_topic(batch.topic)
                if _clock_id(topic_route) == id
            ):
                body.blocks += [
                    failure_block(job, "in its watermark", error, dead) for job in topic_route.jobs
                ]
    return rows.with_columns(*clocks.values(), *added)


def _select(clock: pl.Expr, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return parts[0].select(clock)


def _running_maximum(clock: pl.Expr) -> pl.Expr:
    return clock.cum_max().forward_fill().cast(pl.Int64)


def _clock_id(topic_route: Route) -> str | None:
    return (
        topic_route.edge.origin.watermark.clock_id
        if isinstance(topic_route.edge.origin, graph.Read)
        else None
    )


def _follow_isolated(
    plan: Plan, topic_route: Route, rows: pl.DataFrame, batches: Sequence[PartitionBatch], bodies: list[Body]
) -> None:
    """Follows a way, unless its job has failed; if it fails, that is its job's own affair."""
    RUNNING_JOBS.jobs = topic_route.jobs
    if not plan.isolates_jobs:
        _follow_route(topic_route, rows, batches, bodies)
        return
    if {f"failed/{job}" for job in topic_route.jobs} <= {block.target for block in bodies[0].blocks}:
        return
    try:
        with ordinary_errors():
            _follow_route(topic_route, rows, batches, bodies)
    except NOT_USER_ERRORS:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a job's code raises stops that job
        [bad] = find_culprits(
            lambda parts: _follow_route(topic_route, parts[0], batches, [Body(0) for _ in bodies]), [rows]
        )
        topic = batches[0].topic
        dead = to_dead_letters(_add_raw_bytes(bad, batches), topic)
        bodies[0].blocks += [failure_block(job, f"reading {topic}", error, dead) for job in topic_route.jobs]


def _report_progress(
    plan: Plan,
    batches: Sequence[PartitionBatch],
    timed: Sequence[pl.DataFrame],
    bodies: list[Body],
    *,
    empty_after: int,
) -> None:
    """Progress of each partition to every slot; counts and dead letters to one of them."""
    frames = iter(timed)
    for batch in batches:
        clocks: dict[str, int | None] = dict.fromkeys(plan.clocks[batch.topic])
        lags: list[LagReport] = []
        if batch.rows is not None:
            frame = next(frames)
            clocks = {name: frame[f"_clock{i}"][-1] for i, name in enumerate(clocks)}
            if batch.topic in plan.learned_topics:
                watermark = plan.learned_topics[batch.topic]
                lags = report_lags(
                    frame.filter(~watermark.is_set_aside()), f"_clock{list(clocks).index(watermark.clock_id)}"
                )
        source = SourcePartition(
            batch.topic,
            batch.partition,
            batch.rows is not None,
            clocks,
            lags,
            empty_after if batch.end_offset == 0 else None,
        )
        for body in bodies:
            body.sources.append(source)
        body = bodies[batch.partition % len(bodies)]
        if batch.end_offset is not None:
            body.counts[f"upto/{batch.topic}"] = body.counts.get(f"upto/{batch.topic}", 0) + batch.end_offset
        if batch.decoded is not None:
            for name in ("read", f"read/{batch.topic}"):
                body.counts[name] = (
                    body.counts.get(name, 0) + batch.decoded.rows.height + batch.decoded.dead.height
                )
            if not batch.decoded.dead.is_empty():
                body.blocks.append(Block.of("dead", "dead", batch.decoded.dead))


def _follow_route(
    topic_route: Route, rows: pl.DataFrame, batches: Sequence[PartitionBatch], bodies: list[Body]
) -> None:
    """Rows of a topic along one edge: through its steps, into its operator or out."""
    read = topic_route.edge.origin
    if not isinstance(read, graph.Read):
        return
    clock = list(topic_route.clocks).index(read.watermark.clock_id)
    frame = rows.with_columns(
        pl.col(f"_clock{clock}").alias("_clock"),
        (pl.col("_part") * 256 + _rank(topic_route, read.topic.name)).alias("_src"),
        read.watermark.is_set_aside().alias("_ahead"),
    )
    _deliver(topic_route, read, frame, batches, bodies)


def forward_rows(next_route: Route, rows: pl.DataFrame, bodies: list[Body]) -> None:
    """Rows that an operator hands on as rows, along one edge; `_clock` is the watermark at each."""
    read = next_route.edge.read
    assert read is not None
    _deliver(
        next_route,
        read,
        rows.with_columns((pl.col("_part") * 256 + _rank(next_route, read.topic.name)).alias("_src")),
        (),
        bodies,
    )


def _deliver(
    next_route: Route,
    read: graph.Read,
    frame: pl.DataFrame,
    batches: Sequence[PartitionBatch],
    bodies: list[Body],
) -> None:
    if next_route.born_at is not None:
        frame = frame.filter(pl.col("event_time") > next_route.born_at)
    frame = next_route.edge.apply(frame)
    if frame.is_empty():
        return
    if next_route.operator is not None:
        _send_to_operator(next_route, next_route.operator, read, frame, batches, bodies)
    else:
        bodies[0].blocks.append(
            Block.of(
                next_route.target, "rows", frame.select(c for c in frame.columns if not c.startswith("_"))
            )
        )


def _rank(next_route: Route, topic: str) -> int:
    """Orders rows of equal time: by topic name, then partition, then edge."""
    topics = next_route.operator.topics if next_route.operator else [topic]
    return (topics.index(topic) << 40) + next_route.edge_index


def _send_to_operator(
    next_route: Route,
    operator: Operator,
    read: graph.Read,
    frame: pl.DataFrame,
    batches: Sequence[PartitionBatch],
    bodies: list[Body],
) -> None:
    channel = f"{next_route.edge_index}/{read.topic.name}"
    if isinstance(operator.node, graph.Deduplication):
        _send_to_deduplication(operator, read, frame, channel, batches, bodies)
        return
    if operator.node.windowing.sliced_window is None:
        _send_to_windows(operator, frame, channel, batches, bodies)
        return
    grid = grid_of(operator.node.windowing)
    if frame["_ahead"].any():
        late = _reject_future(grid, _add_raw_bytes(frame.filter("_ahead"), batches))
        late = late.select(pl.exclude("^_clock.*$", "_src", "_ingested", "_ahead")).rename(
            {"_part": "_partition"}
        )
        late = late.with_columns(pl.lit(read.topic.name).alias("_topic"), pl.lit(1, pl.Int64).alias("_rows"))
        bodies[0].blocks.append(Block.of(f"late/{operator.id}", "late", late))
        frame = frame.filter(~pl.col("_ahead"))
        if frame.is_empty():
            return
    carries_watermarks, is_learned = (
        operator.carries_watermarks(channel),
        read.watermark.is_learned and not operator.carries_watermarks(channel),
    )
    event_time, allowed_delay = (
        pl.col("event_time"),
        (0 if carries_watermarks else read.watermark.delay) + operator.node.windowing.lateness,
    )
    first = grid.first_end(event_time)
    first_open = (
        first if is_learned else pl.max_horizontal(first, grid.first_end(pl.col("_clock") - allowed_delay))
    )
    placed_rows = frame.with_columns(
        event_time.alias("_t"),
        grid.slice_of(event_time).alias("_slice"),
        first.alias("_first"),
        first_open.alias("_from"),
    )
    in_time = (pl.col("_from") == pl.col("_first")) & _is_in_time(
        operator, pl.col("_first"), carries_watermarks=carries_watermarks
    )
    doubtful = placed_rows.select(~in_time).to_series()
    if not doubtful.all():
        partials, per = partials_of(operator.node), ("_slice", "_from", "_part")
        lean = placed_rows.select(
            list(dict.fromkeys([*partials.keys, *partials.input_columns, *ORDER, *per]))
        )
        lean = lean.filter(~doubtful) if doubtful.any() else lean
        _send_by_key(partials.from_rows(lean, group=per), operator, "partials", channel, bodies)
    if doubtful.any():
        needless = pl.exclude("^_clock[0-9]+$" if is_learned else "^_clock.*$", "_ingested", "_ahead")
        _send_by_key(
            _add_raw_bytes(placed_rows.filter(doubtful).select(needless), batches),
            operator,
            "rows",
            channel,
            bodies,
        )


def _is_in_time(operator: Operator, end: pl.Expr, *, carries_watermarks: bool) -> pl.Expr:
    """Whether a row cannot be refused by a window with this end, as far as is known here."""
    if carries_watermarks:
        lateness = 0 if operator.node.windowing.fires_once else operator.node.windowing.lateness
        return pl.col("_clock").is_null() | (pl.col("_clock") < end + lateness)
    return pl.lit(operator.is_bounded_by_ingestion) & (
        pl.col("_ingested") + (CLOCK_MARGIN - operator.grace) < end
    )


def _send_to_deduplication(
    operator: Operator,
    read: graph.Read,
    frame: pl.DataFrame,
    channel: str,
    batches: Sequence[PartitionBatch],
    bodies: list[Body],
) -> None:
    """All rows whole, with their bytes where they might be refused here or later."""
    rows = frame.with_columns(pl.col("event_time").alias("_t")).drop("^_clock[0-9]+$")
    behind = (pl.max_horizontal("_clock", "_ingested") - read.watermark.delay > pl.col("_t")) | pl.col(
        "_ahead"
    )
    doubtful = rows.select(behind.fill_null(value=True)).to_series()
    _send_by_key(rows.filter(~doubtful), operator, "rows", channel, bodies)
    if doubtful.any():
        _send_by_key(_add_raw_bytes(rows.filter(doubtful), batches), operator, "rows", channel, bodies)


def _send_to_windows(
    operator: Operator,
    frame: pl.DataFrame,
    channel: str,
    batches: Sequence[PartitionBatch],
    bodies: list[Body],
) -> None:
    """Rows for an operator that judges them itself: whole where they could be refused, else only what is needed of them."""
    windowing = operator.node.windowing
    rows = frame.with_columns(pl.col("event_time").alias("_t"), *window_input(windowing.assigner)).drop(
        "^_clock[0-9]+$"
    )
    end = earliest_end(windowing.assigner, pl.col("_t"))
    is_sure = pl.lit(value=False)
    if end is not None and not windowing.trigger.finishes and not windowing.is_ordered:
        is_sure = ~pl.col("_ahead") & (
            pl.lit(windowing.is_processing_time and operator.is_bounded_by_ingestion)
            | _is_in_time(operator, end, carries_watermarks=operator.carries_watermarks(channel))
        )
    doubtful = rows.select((~is_sure).alias("doubtful")).to_series()
    needed = [
        *operator.node.keys,
        *partials_of(operator.node).input_columns,
        "_t",
        "_src",
        "_off",
        "_part",
        "_clock",
        "_ahead",
        WINDOW_INPUT,
    ]
    if not doubtful.all():
        lean = rows.filter(~doubtful).select(c for c in dict.fromkeys(needed) if c in rows.columns)
        _send_by_key(lean, operator, "rows", channel, bodies)
    if doubtful.any():
        _send_by_key(
            _add_raw_bytes(rows.filter(doubtful).drop("_ingested"), batches),
            operator,
            "rows",
            channel,
            bodies,
        )


def _reject_future(grid: Grid, frame: pl.DataFrame) -> pl.DataFrame:
    event_time = pl.col("event_time")
    missed = (grid.last_end(event_time) - grid.first_end(event_time)) // grid.window.every + 1
    return frame.with_columns(pl.lit("future").alias("reason"), missed.alias("missed"))


def _add_raw_bytes(frame: pl.DataFrame, batches: Sequence[PartitionBatch]) -> pl.DataFrame:
    """With the bytes each row was made of, where they are known."""
    if "_value" in frame.columns:
        return frame
    parts = []
    for batch in batches:
        part = frame.filter(pl.col("_part") == batch.partition)
        if part.is_empty():
            continue
        if batch.records is None:
            parts.append(
                part.with_columns(*[pl.lit(None, dtype).alias(name) for name, dtype in RAW_COLUMNS.items()])
            )
            continue
        indices = np.searchsorted(batch.records.offsets, part["_off"].to_numpy())
        raw = {"_key": batch.records.keys, "_value": batch.records.values}
        parts.append(
            part.with_columns(
                pl.Series(name, pl.from_arrow(array.take(indices)), dtype=pl.Binary)
                for name, array in raw.items()
            )
        )
    return pl.concat(parts)


def _send_by_key(
    frame: pl.DataFrame, operator: Operator, kind: str, channel: str, bodies: list[Body]
) -> None:
    if operator.input_index(channel) == operator.node.broadcast_input:
        for slot, body in enumerate(
            bodies
        ):  # a broadcast: each slot has them all, and one tells what is refused
            body.blocks.append(
                Block.of(
                    operator.id, kind, frame.with_columns(pl.lit(slot == 0).alias("_told")), channel=channel
                )
            )
        return
    for slot, part in partition_by_slot(frame, list(operator.node.keys), len(bodies)):
        bodies[slot].blocks.append(Block.of(operator.id, kind, part, channel=channel))


def partition_by_slot(frame: pl.DataFrame, keys: list[str], slots: int) -> list[tuple[int, pl.DataFrame]]:
    """The rows of each slot that has any; a slot holds a contiguous range of key groups."""
    if frame.is_empty():
        return []
    if slots == 1:
        return [(0, frame)]
    slot = key_hash.key_groups(frame, keys).astype(np.int32) * slots // key_hash.KEY_GROUPS
    parts = frame.with_columns(pl.Series("_slot", slot)).partition_by(
        "_slot", as_dict=True, include_key=False
    )
    return [(int(key[0]), part) for key, part in parts.items()]
