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
from millrace.engine.exchange import Block, Body, Packet, Source
from millrace.engine.isolation import AT_WORK, NOT_THEIRS, culprits, failed, letters
from millrace.engine.lag_estimate import Told, lags_of
from millrace.engine.operators.assign import PLACE, least_end, placed
from millrace.engine.operators.partials import partials_of
from millrace.engine.operators.slices import Grid, grid_of
from millrace.engine.plan import Operator, Plan, Route
from millrace.values import key_hash
from millrace.values.calls import ordinary_errors
from millrace.watermarks import EMPTY

if TYPE_CHECKING:
    from millrace.log.codecs.codec import Decoded
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
    upto: int | None = None
    """The offset behind its last record, where it was read from a log; 0: the partition has never held a record."""

    @property
    def rows(self) -> pl.DataFrame | None:
        """The rows, if there are any."""
        return None if self.decoded is None or self.decoded.rows.is_empty() else self.decoded.rows


def route(
    plan: Plan, pieces: Sequence[Piece], now: int, *, end: bool = False, bounded: bool = False
) -> list[Packet]:
    """One packet for every slot, since progress concerns them all. `bounded`: nothing is expected of partitions that are empty."""
    bodies = [Body(now, end) for _ in range(plan.slots)]
    with lookups.answering(now) as answers:
        for topic in plan.topics:
            mine = [piece for piece in pieces if piece.topic == topic.name]
            timed = [_timed(plan, piece, bodies[0]) for piece in mine if piece.rows is not None]
            _tell(plan, mine, timed, bodies, empty_after=0 if bounded else EMPTY)
            if timed:
                rows = timed[0] if len(timed) == 1 else pl.concat(timed)
                for way in plan.reads_of(topic.name):
                    _follow_alone(plan, way, rows, mine, bodies)
    bodies[0].counts |= answers.counts
    return [Packet(slot, body.encode()) for slot, body in enumerate(bodies)]


def _timed(plan: Plan, piece: Piece, body: Body) -> pl.DataFrame:
    """The rows of a partition with the running clocks that read them, and the latest ingestion so far."""
    rows = piece.decoded.rows if piece.decoded else pl.DataFrame()
    more = [
        pl.col("ingestion_time").cum_max().alias("_ingested"),
        pl.lit(piece.partition, pl.Int64).alias("_part"),
    ]
    clocks = {
        id: _running(clock).alias(f"_clock{i}")
        for i, (id, clock) in enumerate(plan.clocks[piece.topic].items())
    }
    try:
        with ordinary_errors():
            return rows.with_columns(*clocks.values(), *more)
    except Exception:
        if not plan.isolates:
            raise
    for id, clock in clocks.items():
        try:
            with ordinary_errors():
                rows.select(clock)
        except Exception as error:  # noqa: BLE001 - a user's expression: whatever it raises stops its jobs
            clocks[id] = pl.lit(None, pl.Int64).alias(clock.meta.output_name())
            [bad] = culprits(partial(_select, clock), [rows.with_columns(*more)])
            dead = letters(_with_raw(bad, [piece]), piece.topic)
            for way in (way for way in plan.reads_of(piece.topic) if _clock_id(way) == id):
                body.blocks += [failed(job, "in its watermark", error, dead) for job in way.jobs]
    return rows.with_columns(*clocks.values(), *more)


def _select(clock: pl.Expr, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return parts[0].select(clock)


def _running(clock: pl.Expr) -> pl.Expr:
    return clock.cum_max().forward_fill().cast(pl.Int64)


def _clock_id(way: Route) -> str | None:
    return way.edge.origin.watermark.clock_id if isinstance(way.edge.origin, graph.Read) else None


def _follow_alone(
    plan: Plan, way: Route, rows: pl.DataFrame, pieces: Sequence[Piece], bodies: list[Body]
) -> None:
    """Follows a way, unless its job has failed; if it fails, that is its job's own affair."""
    AT_WORK.jobs = way.jobs
    if not plan.isolates:
        _follow(way, rows, pieces, bodies)
        return
    if {f"failed/{job}" for job in way.jobs} <= {block.target for block in bodies[0].blocks}:
        return
    try:
        with ordinary_errors():
            _follow(way, rows, pieces, bodies)
    except NOT_THEIRS:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a job's code raises stops that job
        [bad] = culprits(lambda parts: _follow(way, parts[0], pieces, [Body(0) for _ in bodies]), [rows])
        topic = pieces[0].topic
        dead = letters(_with_raw(bad, pieces), topic)
        bodies[0].blocks += [failed(job, f"reading {topic}", error, dead) for job in way.jobs]


def _tell(
    plan: Plan,
    pieces: Sequence[Piece],
    timed: Sequence[pl.DataFrame],
    bodies: list[Body],
    *,
    empty_after: int,
) -> None:
    """Progress of each partition to every slot; counts and dead letters to one of them."""
    frames = iter(timed)
    for piece in pieces:
        clocks: dict[str, int | None] = dict.fromkeys(plan.clocks[piece.topic])
        lags: list[Told] = []
        if piece.rows is not None:
            frame = next(frames)
            clocks = {name: frame[f"_clock{i}"][-1] for i, name in enumerate(clocks)}
            if piece.topic in plan.learns:
                learning = plan.learns[piece.topic]
                lags = lags_of(
                    frame.filter(~learning.is_set_aside()), f"_clock{list(clocks).index(learning.clock_id)}"
                )
        source = Source(
            piece.topic,
            piece.partition,
            piece.rows is not None,
            clocks,
            lags,
            empty_after if piece.upto == 0 else None,
        )
        for body in bodies:
            body.sources.append(source)
        body = bodies[piece.partition % len(bodies)]
        if piece.upto is not None:
            body.counts[f"upto/{piece.topic}"] = body.counts.get(f"upto/{piece.topic}", 0) + piece.upto
        if piece.decoded is not None:
            for name in ("read", f"read/{piece.topic}"):
                body.counts[name] = (
                    body.counts.get(name, 0) + piece.decoded.rows.height + piece.decoded.dead.height
                )
            if not piece.decoded.dead.is_empty():
                body.blocks.append(Block.of("dead", "dead", piece.decoded.dead))


def _follow(way: Route, rows: pl.DataFrame, pieces: Sequence[Piece], bodies: list[Body]) -> None:
    """Rows of a topic along one edge: through its steps, into its operator or out."""
    read = way.edge.origin
    if not isinstance(read, graph.Read):
        return
    clock = list(way.clocks).index(read.watermark.clock_id)
    frame = rows.with_columns(
        pl.col(f"_clock{clock}").alias("_clock"),
        (pl.col("_part") * 256 + _rank(way, read.topic.name)).alias("_src"),
        read.watermark.is_set_aside().alias("_ahead"),
    )
    _along(way, read, frame, pieces, bodies)


def hand_on(way: Route, rows: pl.DataFrame, bodies: list[Body]) -> None:
    """Rows that an operator hands on as rows, along one edge; `_clock` is the watermark at each."""
    read = way.edge.read
    assert read is not None
    _along(
        way,
        read,
        rows.with_columns((pl.col("_part") * 256 + _rank(way, read.topic.name)).alias("_src")),
        (),
        bodies,
    )


def _along(
    way: Route, read: graph.Read, frame: pl.DataFrame, pieces: Sequence[Piece], bodies: list[Body]
) -> None:
    if way.since is not None:
        frame = frame.filter(pl.col("event_time") > way.since)
    frame = way.edge.apply(frame)
    if frame.is_empty():
        return
    if way.operator is not None:
        _to_operator(way, way.operator, read, frame, pieces, bodies)
    else:
        bodies[0].blocks.append(
            Block.of(way.target, "rows", frame.select(c for c in frame.columns if not c.startswith("_")))
        )


def _rank(way: Route, topic: str) -> int:
    """Orders rows of equal time: by topic name, then partition, then edge."""
    topics = way.operator.topics if way.operator else [topic]
    return (topics.index(topic) << 40) + way.index


def _to_operator(
    way: Route,
    operator: Operator,
    read: graph.Read,
    frame: pl.DataFrame,
    pieces: Sequence[Piece],
    bodies: list[Body],
) -> None:
    channel = f"{way.index}/{read.topic.name}"
    if isinstance(operator.node, graph.Deduplication):
        _to_deduplication(operator, read, frame, channel, pieces, bodies)
        return
    if operator.node.windowing.sliced is None:
        _to_cells(operator, frame, channel, pieces, bodies)
        return
    grid = grid_of(operator.node.windowing)
    if frame["_ahead"].any():
        late = _refused_ahead(grid, _with_raw(frame.filter("_ahead"), pieces))
        late = late.select(pl.exclude("^_clock.*$", "_src", "_ingested", "_ahead")).rename(
            {"_part": "_partition"}
        )
        late = late.with_columns(pl.lit(read.topic.name).alias("_topic"), pl.lit(1, pl.Int64).alias("_rows"))
        bodies[0].blocks.append(Block.of(f"late/{operator.id}", "late", late))
        frame = frame.filter(~pl.col("_ahead"))
        if frame.is_empty():
            return
    judged, learns = operator.judged(channel), read.watermark.learned and not operator.judged(channel)
    event_time, give = (
        pl.col("event_time"),
        (0 if judged else read.watermark.delay) + operator.node.windowing.lateness,
    )
    first = grid.first_end(event_time)
    reached = first if learns else pl.max_horizontal(first, grid.first_end(pl.col("_clock") - give))
    placed_rows = frame.with_columns(
        event_time.alias("_t"),
        grid.slice_of(event_time).alias("_slice"),
        first.alias("_first"),
        reached.alias("_from"),
    )
    in_time = (pl.col("_from") == pl.col("_first")) & _in_time(operator, pl.col("_first"), judged=judged)
    doubtful = placed_rows.select(~in_time).to_series()
    if not doubtful.all():
        partials, per = partials_of(operator.node), ("_slice", "_from", "_part")
        lean = placed_rows.select(list(dict.fromkeys([*partials.keys, *partials.needs, *ORDER, *per])))
        lean = lean.filter(~doubtful) if doubtful.any() else lean
        _spread(partials.of_rows(lean, per=per), operator, "partials", channel, bodies)
    if doubtful.any():
        needless = pl.exclude("^_clock[0-9]+$" if learns else "^_clock.*$", "_ingested", "_ahead")
        _spread(
            _with_raw(placed_rows.filter(doubtful).select(needless), pieces),
            operator,
            "rows",
            channel,
            bodies,
        )


def _in_time(operator: Operator, end: pl.Expr, *, judged: bool) -> pl.Expr:
    """Whether a row cannot be refused by a window with this end, as far as is known here."""
    if judged:
        lateness = 0 if operator.node.windowing.once else operator.node.windowing.lateness
        return pl.col("_clock").is_null() | (pl.col("_clock") < end + lateness)
    return pl.lit(operator.foreseeable) & (pl.col("_ingested") + (MARGIN - operator.grace) < end)


def _to_deduplication(
    operator: Operator,
    read: graph.Read,
    frame: pl.DataFrame,
    channel: str,
    pieces: Sequence[Piece],
    bodies: list[Body],
) -> None:
    """All rows whole, with their bytes where they might be refused here or later."""
    rows = frame.with_columns(pl.col("event_time").alias("_t")).drop("^_clock[0-9]+$")
    behind = (pl.max_horizontal("_clock", "_ingested") - read.watermark.delay > pl.col("_t")) | pl.col(
        "_ahead"
    )
    doubtful = rows.select(behind.fill_null(value=True)).to_series()
    _spread(rows.filter(~doubtful), operator, "rows", channel, bodies)
    if doubtful.any():
        _spread(_with_raw(rows.filter(doubtful), pieces), operator, "rows", channel, bodies)


def _to_cells(
    operator: Operator, frame: pl.DataFrame, channel: str, pieces: Sequence[Piece], bodies: list[Body]
) -> None:
    """Rows for an operator that judges them itself: whole where they could be refused, else only what is needed of them."""
    windowing = operator.node.windowing
    rows = frame.with_columns(pl.col("event_time").alias("_t"), *placed(windowing.places)).drop(
        "^_clock[0-9]+$"
    )
    end = least_end(windowing.places, pl.col("_t"))
    sure = pl.lit(value=False)
    if end is not None and not windowing.trigger.finishes and not windowing.ordered:
        sure = ~pl.col("_ahead") & (
            pl.lit(windowing.by_clock and operator.foreseeable)
            | _in_time(operator, end, judged=operator.judged(channel))
        )
    doubtful = rows.select((~sure).alias("doubtful")).to_series()
    needed = [
        *operator.node.keys,
        *partials_of(operator.node).needs,
        "_t",
        "_src",
        "_off",
        "_part",
        "_clock",
        "_ahead",
        PLACE,
    ]
    if not doubtful.all():
        lean = rows.filter(~doubtful).select(c for c in dict.fromkeys(needed) if c in rows.columns)
        _spread(lean, operator, "rows", channel, bodies)
    if doubtful.any():
        _spread(_with_raw(rows.filter(doubtful).drop("_ingested"), pieces), operator, "rows", channel, bodies)


def _refused_ahead(grid: Grid, frame: pl.DataFrame) -> pl.DataFrame:
    event_time = pl.col("event_time")
    missed = (grid.last_end(event_time) - grid.first_end(event_time)) // grid.window.every + 1
    return frame.with_columns(pl.lit("future").alias("reason"), missed.alias("missed"))


def _with_raw(frame: pl.DataFrame, pieces: Sequence[Piece]) -> pl.DataFrame:
    """With the bytes each row was made of, where they are known."""
    if "_value" in frame.columns:
        return frame
    parts = []
    for piece in pieces:
        part = frame.filter(pl.col("_part") == piece.partition)
        if part.is_empty():
            continue
        if piece.records is None:
            parts.append(part.with_columns(*[pl.lit(None, dtype).alias(name) for name, dtype in RAW.items()]))
            continue
        places = np.searchsorted(piece.records.offsets, part["_off"].to_numpy())
        raw = {"_key": piece.records.keys, "_value": piece.records.values}
        parts.append(
            part.with_columns(
                pl.Series(name, pl.from_arrow(array.take(places)), dtype=pl.Binary)
                for name, array in raw.items()
            )
        )
    return pl.concat(parts)


def _spread(frame: pl.DataFrame, operator: Operator, kind: str, channel: str, bodies: list[Body]) -> None:
    if operator.side(channel) == operator.node.everywhere:
        for slot, body in enumerate(
            bodies
        ):  # a broadcast: each slot has them all, and one tells what is refused
            body.blocks.append(
                Block.of(
                    operator.id, kind, frame.with_columns(pl.lit(slot == 0).alias("_told")), channel=channel
                )
            )
        return
    for slot, part in by_slot(frame, list(operator.node.keys), len(bodies)):
        bodies[slot].blocks.append(Block.of(operator.id, kind, part, channel=channel))


def by_slot(frame: pl.DataFrame, keys: list[str], slots: int) -> list[tuple[int, pl.DataFrame]]:
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
