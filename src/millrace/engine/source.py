"""From decoded rows to packets: the part that runs where the log is read.

Partitions report their progress, clocks run over their rows, and each route takes the rows of its topic
through the stateless steps of its jobs, then to the slots of their keys (`routing`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import polars as pl

from millrace import graph, lookups
from millrace.engine.exchange import Block, Body, Packet, SourcePartition
from millrace.engine.isolation import (
    NOT_USER_ERRORS,
    RUNNING_JOBS,
    failure_block,
    find_culprits,
    note_culprit,
    to_dead_letters,
)
from millrace.engine.lag_estimate import LagReport, report_lags
from millrace.engine.plan import Plan, Route
from millrace.engine.routing import add_raw_bytes, deliver, source_order
from millrace.values.calls import ordinary_errors
from millrace.values.columns import CLOCK, INGESTED, IS_FUTURE, PARTITION, SOURCE
from millrace.values.user_code import add_row
from millrace.watermarks import EMPTY_PARTITION_TIMEOUT, UPSTREAM_CLOCK

if TYPE_CHECKING:
    from millrace.log.codecs.codec import Decoded
    from millrace.log.contract import Records


_INGESTED_SO_FAR = pl.col("ingestion_time").cum_max().alias(INGESTED)


@dataclass(frozen=True)
class PartitionBatch:
    """What a batch brings from one partition: rows, or nothing new."""

    topic: str
    partition: int
    decoded: Decoded | None = None
    records: Records | None = None
    """The raw records of `decoded`, for late rows; None where rows never were records."""
    end_offset: int | None = None
    """One past its last record, where it was read from a log; 0: the partition has never held a record."""
    upstream_watermark: int | None = None
    """How far the writers of the topic vouch for what follows the batch, where a job follows them."""

    @property
    def rows(self) -> pl.DataFrame | None:
        """The rows, if there are any."""
        return None if self.decoded is None or self.decoded.rows.is_empty() else self.decoded.rows


def route_batch(
    plan: Plan,
    batches: Sequence[PartitionBatch],
    now: int,
    *,
    ended: Collection[str] = (),
    bounded: bool = False,
) -> list[Packet]:
    """One packet for every slot, since progress concerns them all.

    `ended`: the topics of which no row follows. `bounded`: no events are expected of empty partitions.
    """
    bodies = [Body(now) for _ in range(plan.slots)]
    with lookups.share_answers(now) as answers:
        for topic in plan.topics:
            topic_batches = [batch for batch in batches if batch.topic == topic.name]
            timed = [_add_clocks(plan, batch, bodies[0]) for batch in topic_batches if batch.rows is not None]
            _report_progress(
                plan,
                topic_batches,
                timed,
                bodies,
                empty_after=0 if bounded else EMPTY_PARTITION_TIMEOUT,
                is_ended=topic.name in ended,
            )
            if timed:
                rows = timed[0] if len(timed) == 1 else pl.concat(timed)
                for route in plan.routes_of_topic(topic.name):
                    _follow_isolated(plan, route, rows, topic_batches, bodies)
    bodies[0].counts |= answers.counts
    return [Packet(slot, body) for slot, body in enumerate(bodies)]


def _add_clocks(plan: Plan, batch: PartitionBatch, body: Body) -> pl.DataFrame:
    """The rows of a partition with each running clock that reads them, and the latest ingestion so far.

    A clock is a user's expression. One that raises becomes null, and stops the jobs that read by it.
    """
    rows = batch.decoded.rows if batch.decoded else pl.DataFrame()
    added = [_INGESTED_SO_FAR, pl.lit(batch.partition, pl.Int64).alias(PARTITION)]
    clocks = dict(_running_clocks(plan, batch.topic))
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
            add_row(error, bad)
            dead = to_dead_letters(add_raw_bytes(bad, [batch]), batch.topic)
            routes = [route for route in plan.routes_of_topic(batch.topic) if _clock_id(route) == id]
            jobs = [job for route in routes for job in route.jobs]
            body.blocks += [failure_block(job, "in its watermark", error, dead) for job in jobs]
    return rows.with_columns(*clocks.values(), *added)


def _select(clock: pl.Expr, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return parts[0].select(clock)


@lru_cache(maxsize=64)
def _running_clocks(plan: Plan, topic: str) -> Mapping[str, pl.Expr]:
    """The running clocks of a topic, by their id."""
    return {
        id: _running_maximum(clock).alias(f"{CLOCK}{i}")
        for i, (id, clock) in enumerate(plan.clocks[topic].items())
    }


def _running_maximum(clock: pl.Expr) -> pl.Expr:
    return clock.cum_max().forward_fill().cast(pl.Int64)


def _clock_id(route: Route) -> str | None:
    return route.edge.origin.watermark.clock_id if isinstance(route.edge.origin, graph.Read) else None


def _report_progress(
    plan: Plan,
    batches: Sequence[PartitionBatch],
    timed: Sequence[pl.DataFrame],
    bodies: list[Body],
    *,
    empty_after: int,
    is_ended: bool,
) -> None:
    """Sends the progress of each partition to every slot; its counts and dead letters to one of them."""
    frames = iter(timed)
    for batch in batches:
        clocks: dict[str, int | None] = dict.fromkeys(plan.clocks[batch.topic])
        lags: dict[str, list[LagReport]] = {}
        if batch.rows is not None:
            frame = next(frames)
            clocks = {name: frame[f"{CLOCK}{i}"][-1] for i, name in enumerate(clocks)}
            lags = _measure_lags(plan, batch.topic, frame, list(clocks))
        if UPSTREAM_CLOCK in clocks:
            clocks[UPSTREAM_CLOCK] = batch.upstream_watermark
        idle_after = empty_after if batch.end_offset == 0 else None
        source = SourcePartition(
            batch.topic, batch.partition, batch.rows is not None, clocks, lags, idle_after, is_ended
        )
        for body in bodies:
            body.sources.append(source)
        _count_rows(batch, bodies[batch.partition % len(bodies)])


def _measure_lags(
    plan: Plan, topic: str, frame: pl.DataFrame, clocks: Sequence[str]
) -> dict[str, list[LagReport]]:
    """The lags of a partition's rows, by each clock whose watermark learns its delay from them."""
    return {
        clock_id: report_lags(frame.filter(~watermark.is_set_aside()), f"{CLOCK}{clocks.index(clock_id)}")
        for clock_id, watermark in plan.learned_topics.get(topic, {}).items()
    }


def _count_rows(batch: PartitionBatch, body: Body) -> None:
    if batch.end_offset is not None:
        body.counts[f"upto/{batch.topic}"] = body.counts.get(f"upto/{batch.topic}", 0) + batch.end_offset
    if batch.decoded is not None:
        for name in ("read", f"read/{batch.topic}"):
            read = batch.decoded.rows.height + batch.decoded.dead.height
            body.counts[name] = body.counts.get(name, 0) + read
        if not batch.decoded.dead.is_empty():
            body.blocks.append(Block.of("dead", "dead", batch.decoded.dead))


def _have_failed(jobs: Sequence[str], body: Body) -> bool:
    return {f"failed/{job}" for job in jobs} <= {block.target for block in body.blocks}


def _follow_isolated(
    plan: Plan, route: Route, rows: pl.DataFrame, batches: Sequence[PartitionBatch], bodies: list[Body]
) -> None:
    """Follows a route unless its jobs have failed. If it raises, only its own jobs fail."""
    RUNNING_JOBS.jobs = route.jobs
    if plan.isolates_jobs and _have_failed(route.jobs, bodies[0]):
        return
    try:
        with ordinary_errors():
            _follow_route(route, rows, batches, bodies)
    except NOT_USER_ERRORS:
        raise
    except Exception as error:

        def rerun(parts: Sequence[pl.DataFrame]) -> None:
            _follow_route(route, parts[0], batches, [Body(0) for _ in bodies])

        if not plan.isolates_jobs:
            note_culprit(error, rerun, [rows])
            raise
        [bad] = find_culprits(rerun, [rows])
        add_row(error, bad)
        topic = batches[0].topic
        dead = to_dead_letters(add_raw_bytes(bad, batches), topic)
        bodies[0].blocks += [failure_block(job, f"reading {topic}", error, dead) for job in route.jobs]


def _follow_route(
    route: Route, rows: pl.DataFrame, batches: Sequence[PartitionBatch], bodies: list[Body]
) -> None:
    """Takes rows of a topic along one edge: through its steps, into its operator or out."""
    read = route.edge.origin
    if not isinstance(read, graph.Read):
        return
    deliver(route, read, rows.with_columns(_place_of_rows(route, read)), batches, bodies)


@lru_cache(maxsize=1024)
def _place_of_rows(route: Route, read: graph.Read) -> Sequence[pl.Expr]:
    """The clock of rows on a route, their place in the order of rows, and whether they are set aside."""
    clock = list(route.clocks).index(read.watermark.clock_id)
    return (
        pl.col(f"{CLOCK}{clock}").alias(CLOCK),
        source_order(route, read.topic.name).alias(SOURCE),
        read.watermark.is_set_aside().alias(IS_FUTURE),
    )
