"""A job over events that are all there already: a frame, a file or a topic in, a frame of panes out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import polars as pl

from millrace import durations, graph, panes, timestamps
from millrace.engine.late_share import LateShare, lags_of_rows
from millrace.engine.sink import Results
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError, InputError
from millrace.log import Log, LogAddress, open_log
from millrace.log.codecs.codec import Decoded
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.runners import batches as feed
from millrace.runners import frame_files
from millrace.runners.local import Engine
from millrace.runners.upstream import follow_writers, with_watermarks
from millrace.stream import Job
from millrace.topics import Topic
from millrace.values import event_values
from millrace.values.calls import require_type, short_repr
from millrace.values.columns import OFFSET

_log = logging.getLogger("millrace.replay")

Events: TypeAlias = pl.DataFrame | Path
"""Rows, or a file of rows (`.parquet`, `.csv`, `.jsonl`)."""
ReplayInput: TypeAlias = Events | Topic | str | Mapping[str, Events] | Mapping[Topic, Events]
"""Events of one topic; a topic or its name; or events by topic."""

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and a partition."""

BATCH_ROWS = 200_000
MAX_AHEAD_MS = 600_000
"""How far, in milliseconds, one partition of a log may be ahead of the others;
what it brings would only be kept.
"""


@dataclass(frozen=True)
class ReplayResult:
    """All that came of a replay."""

    outputs: Mapping[str, pl.DataFrame]
    """By topic: panes in the order in which they came."""
    late: pl.DataFrame
    """Refused rows, with the reason."""
    dead: pl.DataFrame
    """Records that could not be decoded."""
    late_share: LateShare = field(default_factory=LateShare)
    """How many rows were read and refused, and how late they came."""


def replay(
    job: Job, events: ReplayInput, *, log: LogAddress | None = None, batch: int = BATCH_ROWS
) -> pl.DataFrame:
    """The panes of a job over events that are all there, in the order in which they are given.

    `events`: a frame with the fields of the topic's type, `event_time` and, unless it is the same,
    `ingestion_time` (datetimes, whole milliseconds or ISO 8601 text); a file of such rows; or a topic of the
    `log`. A job that reads several topics takes a mapping. `batch` cuts the work, not the results. Where more
    than a few percent of the rows were late, a warning is logged (`millrace.replay`).
    """
    require_type("replay", job, Job, "a job; say Job('name', stream.write(topic))")
    if len(job.outputs) > 1:
        names = ", ".join(output.topic.name for output in job.outputs)
        raise DefinitionError(
            f"job {job.name!r} has several outputs ({names}), so one frame cannot hold them; use replay_all()"
        )
    outputs = replay_all(job, events, log=log, batch=batch).outputs
    return outputs[job.outputs[0].topic.name]


def replay_all(
    job: Job, events: ReplayInput, *, log: LogAddress | None = None, batch: int = BATCH_ROWS
) -> ReplayResult:
    """Like `replay`, for any number of outputs, with what was refused on the way."""
    require_type("replay", job, Job, "a job; say Job('name', stream.write(topic))")
    durations.check_whole(batch, name="batch", minimum=1)
    engine = Engine([job])
    if engine.plan.loop_topics:
        raise DefinitionError(
            f"job {job.name!r} feeds {', '.join(engine.plan.loop_topics)}, so its events are not all there; "
            "run it: mr.run(job, until_caught_up=True) ends when nothing goes around any more"
        )
    durations.check_whole(batch, name="batch", minimum=1)
    match events:
        case Topic() | str():
            check_reads(job, engine.plan.topics, events)
            timed_batches = _batches_of_log(engine, log, batch)
        case _:
            timed_batches = _batches_of_frames(engine, _frames_by_topic(engine, events), batch)
    measured_engine = _MeasuredEngine(engine)
    steps = [measured_engine.step(partition_batches, now) for partition_batches, now in timed_batches]
    steps.append(engine.step([], 0, end=True))
    measured_engine.late_share.add(0, _concat(list(steps[-1].late.values())), None)
    if warning := measured_engine.late_share.warning(f"job {job.name!r}"):
        _log.warning("%s", warning)
    late = [frame for step in steps for frame in step.late.values()]
    dead = [step.dead for step in steps if step.dead is not None]
    return ReplayResult(
        {
            output.topic.name: _concat_panes(
                [s.outputs[output.topic.name] for s in steps if output.topic.name in s.outputs], output.schema
            )
            for output in job.outputs
        },
        pl.concat(late, how="diagonal_relaxed")
        if late
        else pl.DataFrame(schema={"reason": pl.String, "missed": pl.Int64}),
        pl.concat(dead) if dead else pl.DataFrame(schema=DEAD_SCHEMA),
        measured_engine.late_share,
    )


class _MeasuredEngine:
    """Steps an engine, and measures how late its rows are."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.late_share = engine, LateShare()
        reads = (route.edge.origin for route in engine.plan.routes)
        self._clocks = {
            read.topic.name: read.watermark.clock() for read in reads if isinstance(read, graph.Read)
        }
        self._clock_by_partition: dict[TopicPartition, int | None] = {}

    def step(self, partition_batches: list[PartitionBatch], now: int) -> Results:
        """One batch."""
        results = self.engine.step(partition_batches, now)
        late = list(results.late.values())
        self.late_share.add(0, _concat(late), None)
        for partition_batch in partition_batches:
            if partition_batch.rows is not None and partition_batch.topic in self._clocks:
                topic_partition = partition_batch.topic, partition_batch.partition
                before = self._clock_by_partition.get(topic_partition)
                lags, self._clock_by_partition[topic_partition] = lags_of_rows(
                    partition_batch.rows, self._clocks[partition_batch.topic], before
                )
                self.late_share.add(len(partition_batch.rows), None, lags)
        return results


def _concat(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    return pl.concat(frames, how="diagonal_relaxed") if frames else None


def check_reads(job: Job, topics: Sequence[Topic], requested: Topic | str) -> None:
    """Refuses a topic that the job does not read."""
    name = requested.name if isinstance(requested, Topic) else requested
    known = [topic.name for topic in topics]
    if name not in known and Path(name).suffix in frame_files.ENDINGS:
        raise DefinitionError(f"{name!r} is text, which names a topic; for the file write Path({name!r})")
    if name not in known:
        raise DefinitionError(
            f"job {job.name!r} does not read {name!r}, so nothing of it could be replayed; it reads "
            f"{', '.join(known)}"
        )


def read_all_rows(
    engine: Engine, events: ReplayInput, log: LogAddress | None
) -> dict[TopicPartition, pl.DataFrame]:
    """All rows by topic and partition, as the log's codec gives them;
    the engine learns how many partitions there are.
    """
    if isinstance(events, Topic | str):
        check_reads(engine.plan.jobs[0], engine.plan.topics, events)
        with closing(_open_source_log(log)) as source_log:
            start = feed.beginning_offsets(source_log, engine.plan.topics)
            partition_batches = feed.read_batch(
                source_log, engine.plan, start, feed.plan_batch_end(source_log, start, now=0)
            )
        engine.partitions = {topic: len(partitions) for topic, partitions in start.topics.items()}
        return {
            (partition_batch.topic, partition_batch.partition): partition_batch.rows
            for partition_batch in partition_batches
            if partition_batch.rows is not None
        }
    frames = _frames_by_topic(engine, events)
    engine.partitions = dict.fromkeys(frames, 1)
    return {(name, 0): frame for name, frame in frames.items()}


def _open_source_log(url: LogAddress | None) -> Log:
    if url is None:
        raise DefinitionError(
            "replaying a topic needs the log it is in: replay(job, topic, log='embedded:millrace-data/log')"
        )
    return open_log(url, create=False)


def _concat_panes(frames: list[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    rows = pl.concat(frames) if frames else schema.to_frame()
    columns = [column for column in rows.columns if column not in panes.COLUMNS]
    return rows.select(*columns, *[column for column in panes.COLUMNS if column in rows.columns])


def _frames_by_topic(
    engine: Engine, events: Events | Mapping[str, Events] | Mapping[Topic, Events]
) -> dict[str, pl.DataFrame]:
    topics = engine.plan.topics
    if not isinstance(events, Mapping):
        if len(topics) > 1:
            raise DefinitionError(
                f"the job reads {', '.join(topic.name for topic in topics)}; give events for "
                "each of them in a mapping"
            )
        events = {topics[0].name: events}
    events = {
        key if isinstance(key, str) else getattr(key, "name", short_repr(key)): value
        for key, value in events.items()
    }
    if missing := [topic.name for topic in topics if topic.name not in events]:
        raise DefinitionError(
            f"the job reads {', '.join(missing)}, but events are given only for "
            f"{', '.join(events) or 'nothing'}"
        )
    return {topic.name: _load_rows(topic, events[topic.name]) for topic in topics}


def _batches_of_frames(
    engine: Engine, frames: Mapping[str, pl.DataFrame], batch: int
) -> Iterator[tuple[list[PartitionBatch], int]]:
    engine.partitions = dict.fromkeys(frames, 1)
    now = 0
    longest = max(frame.height for frame in frames.values())
    batch = min(batch, longest or 1)  # polars takes no more than 64 bits
    for start in range(0, longest, batch):
        slices = {name: frame.slice(start, batch) for name, frame in frames.items() if frame.height > start}
        partition_batches = [
            PartitionBatch(name, 0, _split_valid(name, frame)) for name, frame in slices.items()
        ]
        now = max(now, *map(_newest_ingestion_time, partition_batches))
        yield partition_batches, now


def _split_valid(topic: str, frame: pl.DataFrame) -> Decoded:
    """Rows whose times events can have; the others are dead letters, as they are where a log is read."""
    is_valid = pl.col("event_time", "ingestion_time").is_between(durations.MIN_TIME, durations.MAX_TIME)
    invalid = frame.filter(~pl.all_horizontal(is_valid))
    dead = {
        "topic": pl.lit(topic),
        "offset": pl.col(OFFSET),
        "reason": pl.lit("event time is outside the years 1 to 9999"),
    }
    unknown = {"key": pl.lit(None), "value": pl.lit(None)}
    filled = {name: dead.get(name, unknown.get(name, pl.lit(0))) for name in DEAD_SCHEMA}
    letters = invalid.select(filled[name].cast(kind).alias(name) for name, kind in DEAD_SCHEMA.items())
    return Decoded(frame if invalid.is_empty() else frame.filter(pl.all_horizontal(is_valid)), letters)


def _batches_of_log(
    engine: Engine, url: LogAddress | None, batch: int
) -> Iterator[tuple[list[PartitionBatch], int]]:
    log = _open_source_log(url)
    start = feed.beginning_offsets(log, engine.plan.topics)
    engine.partitions = {topic: len(partitions) for topic, partitions in start.topics.items()}
    last, now = feed.plan_batch_end(log, start, now=0), 0
    while start.topics != last.topics:
        end = feed.plan_batch_end(
            log,
            start,
            now=0,
            limit=batch,
            alignment=feed.WatermarkAlignment(engine.partition_watermarks.values(), MAX_AHEAD_MS),
        )
        end = feed.Offsets(
            {
                t: {p: min(o, last.topics[t][p]) for p, o in ps.items() if p in last.topics[t]}
                for t, ps in end.topics.items()
            },
            0,
        )
        end = follow_writers(log, engine.plan.followed_topics, start, end)
        partition_batches = with_watermarks(feed.read_batch(log, engine.plan, start, end), end.watermarks)
        now = (
            max(now, *(_newest_ingestion_time(partition_batch) for partition_batch in partition_batches))
            if engine.plan.needs_clock
            else 0
        )
        yield partition_batches, now
        start = end
    log.close()


def _newest_ingestion_time(partition_batch: PartitionBatch) -> int:
    """When the last of these rows came in: the clock, as far as it can be known afterwards."""
    return (
        0
        if partition_batch.rows is None
        else int(partition_batch.rows.select(pl.col("ingestion_time").max()).item())
    )


def _load_rows(topic: Topic, events: Events) -> pl.DataFrame:
    """The rows as the log's codec would give them."""
    require_type(
        f"the events of {topic.name}",
        events,
        pl.DataFrame | Path,
        "a polars DataFrame or the Path of a .parquet, .csv or .jsonl file; give one of these",
    )
    frame = events if isinstance(events, pl.DataFrame) else frame_files.read(events)
    if "event_time" not in frame.columns:
        raise InputError(
            "the events have no column event_time (a datetime, or whole milliseconds), so they have no "
            f"place in time; rename the column that has it: they have {', '.join(frame.columns)}"
        )
    if "ingestion_time" not in frame.columns:
        frame = frame.with_columns(pl.col("event_time").alias("ingestion_time"))
    missing = [column for column in topic.schema if column not in frame.columns]
    if missing:
        raise InputError(
            f"the events lack {', '.join(missing)} of {topic.type.__name__}; they have "
            f"{', '.join(frame.columns)}"
        )
    if isinstance(events, Path) and events.suffix == ".csv":
        types: dict[str, pl.DataType] = {**topic.schema, **graph.TIME_COLUMNS}
        frame = frame.with_columns(
            frame_files.parse_column(frame[name], types[name]) for name in frame.columns if name in types
        )
    fields = [timestamps.fit_column(frame[name], dtype) for name, dtype in topic.schema.items()]
    for column in fields:
        if column.name in event_values.row_decoder(topic.type).required and column.null_count():
            raise InputError(
                f"column {column.name!r} is null in row {column.is_null().arg_max()}, and the field must "
                "have a value; fill or remove such rows, or declare it optional (`... | None`)"
            )
    times = [timestamps.to_millis(frame[name]) for name in ("event_time", "ingestion_time")]
    for time in times:
        if nulls := time.null_count():
            raise InputError(f"{nulls} of the events have no {time.name}; remove or repair them")
    for column in [*fields, times[0]]:
        is_time = column.name == "event_time" or isinstance(column.dtype, pl.Datetime)
        if is_time and (early := timestamps.find_early(column, only_seconds=True)):
            _log.warning("topic %s, %s", topic.name, early.describe(f"column {column.name!r}"))
    rows = pl.DataFrame([*fields, *times])
    return rows.with_row_index(OFFSET).with_columns(pl.col(OFFSET).cast(pl.Int64))
