"""A job under a scripted stream, for unit tests: the script decides on events, watermark, clock and restart.

    script = testing.Script(vehicles_per_cell)
    script.events({"vehicle_id": "7", "geocell": 12, "event_time": 1_000})
    script.watermark("30s")
    assert [pane["count"] for pane in script.panes()] == [1]

The job's own watermarks are replaced by the script's: a time before which nothing is expected is true once
the script says it. With `Script(..., watermarks="own")` they stay, and move with the events.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias

import polars as pl

from millrace import durations, graph, timestamps, watermarks
from millrace.durations import END_OF_STREAM, Duration
from millrace.errors import ComponentMissing, DefinitionError
from millrace.graph.build.feedback import loop_topics
from millrace.stream import Job, Output
from millrace.testing.model.model import Model
from millrace.testing.model.source import SourceEvent
from millrace.testing.model.values import Row
from millrace.topics import Topic
from millrace.values import event_values, field_types
from millrace.values.calls import require_type
from millrace.values.columns import OFFSET

On: TypeAlias = Literal["model", "engine", "spark"]


@dataclass(frozen=True)
class BatchResult:
    """The results of one batch."""

    written: Mapping[str, list[Row]]
    """The rows written to each topic."""
    late: Mapping[str, list[Row]]
    """The refused rows of each job: `topic`, `partition`, `offset`, `reason`,
    `missed` (the number of windows).
    """


class Backend(Protocol):
    """What a script can run on."""

    def feed(self, batch: Sequence[SourceEvent], now: int, *, end: bool = False) -> BatchResult:
        """Processes one batch at processing time `now`; with `end`, the stream ends after it."""

    def restart(self) -> None:
        """Stops, and goes on from the stored state."""

    def close(self) -> None:
        """Releases all resources."""


class OnModel:
    """The executable specification."""

    def __init__(self, jobs: Sequence[Job], partitions: Mapping[str, int]) -> None:
        """`partitions`: how many each topic has."""
        self.model = Model(jobs, partitions)

    def feed(self, batch: Sequence[SourceEvent], now: int, *, end: bool = False) -> BatchResult:
        """One batch."""
        return BatchResult(*self.model.step(batch, now, end=end))

    def follow(self, watermarks: Mapping[tuple[str, int], int]) -> None:
        """The watermarks of writers at the end of the next batch, by topic and partition."""
        self.model.follow(watermarks)

    @property
    def watermarks(self) -> Mapping[str, int | None]:
        """The low watermark of each operator."""
        return self.model.watermarks

    def restart(self) -> None:
        """Does nothing: the model stores no state."""

    def close(self) -> None:
        """Has no resources to release."""


class OnEngine:
    """The engine in this process; a restart encodes all state as bytes and decodes it."""

    def __init__(self, jobs: Sequence[Job], partitions: Mapping[str, int], *, slots: int = 2) -> None:
        """`slots`: how many parts the key groups are divided into."""
        from millrace.runners.local import Engine

        self.topics = {read.topic.name: read.topic for job in jobs for read in reads(job)}
        self.partitions = partitions
        self.end_offsets: dict[tuple[str, int], int] = defaultdict(int)
        self.engine = Engine(jobs, slots=slots, partitions=dict(partitions))
        self.watermarks: Mapping[str, int | None] = {}
        self.upstream_watermarks: Mapping[tuple[str, int], int] = {}

    def follow(self, watermarks: Mapping[tuple[str, int], int]) -> None:
        """The watermarks of writers at the end of the next batch, by topic and partition."""
        self.upstream_watermarks = watermarks

    def feed(self, batch: Sequence[SourceEvent], now: int, *, end: bool = False) -> BatchResult:
        """One batch."""
        from millrace.engine.source import PartitionBatch

        events_by_partition: dict[tuple[str, int], list[SourceEvent]] = defaultdict(list)
        for event in batch:
            events_by_partition[event.topic, event.partition].append(event)
            self.end_offsets[event.topic, event.partition] = event.offset + 1
        batches = [
            PartitionBatch(
                name,
                partition,
                decode_events(topic, events_by_partition[name, partition])
                if events_by_partition[name, partition]
                else None,
                end_offset=self.end_offsets[name, partition],
                upstream_watermark=self.upstream_watermarks.get((name, partition)),
            )
            for name, topic in self.topics.items()
            for partition in range(self.partitions[name])
        ]
        results = self.engine.step(batches, now, end=end)
        self.watermarks = results.watermarks
        return BatchResult(
            {topic: frame.to_dicts() for topic, frame in results.outputs.items()},
            {job: frame.to_dicts() for job, frame in results.late.items()},
        )

    def restart(self) -> None:
        """Encodes all state and decodes it."""
        self.engine.restart()

    def close(self) -> None:
        """Has no resources to release."""


def decode_events(topic: Topic, events: Sequence[SourceEvent]) -> Any:
    """Events of one partition as the log's codec would give them."""
    from millrace.log.codecs.codec import Decoded
    from millrace.log.dead_letters import DEAD_SCHEMA

    schema = pl.Schema({**topic.schema, **graph.TIME_COLUMNS, OFFSET: pl.Int64()})
    rows = [
        {**e.values, "event_time": e.event_time, "ingestion_time": e.ingestion_time, OFFSET: e.offset}
        for e in events
    ]
    return Decoded(
        pl.DataFrame(rows, schema=schema, orient="row").sort(OFFSET), pl.DataFrame(schema=DEAD_SCHEMA)
    )


def reads(job: Job) -> list[graph.Read]:
    """The topics that a job reads."""
    seen: dict[int, graph.Node] = {}
    return [
        node for output in job.outputs for node in graph.walk(output, seen) if isinstance(node, graph.Read)
    ]


def backend(jobs: Sequence[Job], partitions: Mapping[str, int], on: On) -> Backend:
    """The backend that `on` names."""
    if on == "model":
        return OnModel(jobs, partitions)
    if on == "engine":
        return OnEngine(jobs, partitions)
    if on != "spark":
        raise DefinitionError(f"on={on!r} is unknown; use 'model', 'engine' or 'spark'")
    try:
        from millrace.runners.spark.scripts import SparkScript
    except ImportError as error:
        raise ComponentMissing(
            f"on='spark' is not to be had: {error}; run: pip install 'millrace-streams[spark]'"
        ) from error
    spark: Backend = SparkScript(jobs, partitions)
    return spark


MakeBackend: TypeAlias = Callable[[Sequence[Job], Mapping[str, int]], Backend]
"""Makes a backend for jobs, given how many partitions each topic has."""


class Script:
    """One or more jobs, and a stream that the test scripts."""

    def __init__(
        self,
        *jobs: Job,
        on: On | MakeBackend = "engine",
        partitions: int = 1,
        watermarks: Literal["scripted", "own"] = "scripted",
    ) -> None:
        """`partitions`: how many each topic has that the jobs read.

        `watermarks`: scripted, or those that the jobs define.
        """
        for job in jobs:
            require_type("Script", job, Job, "a job; say Job('name', stream.write(topic))")
        if looping := loop_topics(jobs):
            raise DefinitionError(
                f"what goes around through {', '.join(sorted(looping))} is not a script; test such a job by "
                "mr.run(job, until_caught_up=True) on a log of its own"
            )
        self._topics = {read.topic.name: read.topic for job in jobs for read in reads(job)}
        self._partitions = dict.fromkeys(self._topics, partitions)
        self._has_own_watermarks = watermarks == "own"
        rebuilt: dict[int, graph.Node] = {}
        scripted_jobs = (
            jobs
            if self._has_own_watermarks
            else [with_scripted_watermarks(job, partitions, rebuilt) for job in jobs]
        )
        self._backend = (
            on(scripted_jobs, self._partitions)
            if callable(on)
            else backend(scripted_jobs, self._partitions, on)
        )
        self._now = 0
        self._given_events: dict[tuple[str, int], list[Row]] = defaultdict(list)
        self._written: dict[str, list[Row]] = defaultdict(list)
        self._late: list[Row] = []

    def events(
        self,
        *rows: Mapping[str, object],
        topic: Topic | str | None = None,
        partition: int | Sequence[int] = 0,
    ) -> None:
        """Events that arrive together: the fields of the type, `event_time`, and `ingestion_time` if not now.

        `partition`: of all of them, or of each.
        """
        name = self._topic(topic)
        batch = []
        partitions = [partition] * len(rows) if isinstance(partition, int) else partition
        for row, number in zip(rows, partitions, strict=True):
            values = {**row}
            if "event_time" not in values:
                raise DefinitionError(
                    f"event {row!r} has no event_time, so it has no place in any "
                    "window; add it in milliseconds"
                )
            at = _to_millis("event_time", values.pop("event_time"), row)
            ingested = _to_millis("ingestion_time", values.pop("ingestion_time", max(at, self._now)), row)
            batch.append(self._event(name, number, at, ingested, values, dict(row)))
        self._feed(batch)

    def watermark(
        self, at: Duration, *, topic: Topic | str | None = None, partition: int | None = None
    ) -> None:
        """No event earlier than `at` is expected any more, in one topic and partition or in all."""
        if self._has_own_watermarks:
            raise DefinitionError(
                f"watermark({at!r}): the jobs keep their own watermarks here, so only events move them; use "
                "Script(...) alone"
            )
        names = list(self._topics) if topic is None else [self._topic(topic)]
        watermark = durations.parse_millis(at, name="at")
        self._feed(
            self._event(
                name, number, self._now, self._now, {_watermark_column(self._topics[name]): watermark}, {}
            )
            for name in names
            for number in (range(self._partitions[name]) if partition is None else [partition])
        )

    def end(self) -> None:
        """Ends the stream."""
        if self._has_own_watermarks:
            self._feed([], end=True)
        else:
            self.watermark(END_OF_STREAM)

    def clock(self, at: Duration) -> None:
        """Moves processing time to `at`."""
        self._now = durations.parse_millis(at, name="at")
        self._feed([])

    def restart(self) -> None:
        """Stops the jobs and goes on from the stored state, which must change no result."""
        self._backend.restart()

    def panes(self, topic: Topic | str | None = None) -> list[Row]:
        """The rows written to a topic, or to all, since the last call."""
        name = topic.name if isinstance(topic, Topic) else topic
        names = list(self._written) if name is None else [name]
        return [row for name in names for row in self._written.pop(name, [])]

    def late(self) -> list[Row]:
        """The events refused since the last call, with their `reason` and `missed`, the number of windows."""
        late, self._late = self._late, []
        return late

    def close(self) -> None:
        """Releases all resources."""
        self._backend.close()

    def _topic(self, topic: Topic | str | None) -> str:
        if topic is None and len(self._topics) == 1:
            return next(iter(self._topics))
        name = topic.name if isinstance(topic, Topic) else topic
        if name not in self._topics:
            raise DefinitionError(
                f"topic={name!r} is read by none of the jobs; name one of {', '.join(self._topics)}"
            )
        return name

    def _event(
        self, topic: str, partition: int, at: int, ingested: int, values: Row, given: Row
    ) -> SourceEvent:
        schema = (
            self._topics[topic] if self._has_own_watermarks else scripted_topic(self._topics[topic], 1)
        ).schema
        unknown = values.keys() - schema.keys()
        if unknown:
            raise DefinitionError(
                f"event {given!r}: {topic} has no field {min(unknown)!r}; it has "
                f"{', '.join(self._topics[topic].schema)}"
            )
        if not 0 <= partition < self._partitions[topic]:
            raise DefinitionError(
                f"partition={partition}: {topic} has {self._partitions[topic]}; say more with "
                "Script(..., partitions=)"
            )
        values = self._convert(topic, values, given)
        empty: Row = {name: [] if isinstance(dtype, pl.List) else None for name, dtype in schema.items()}
        given_events = self._given_events[topic, partition]
        given_events.append(given)
        return SourceEvent(topic, partition, len(given_events) - 1, at, ingested, {**empty, **values})

    def _convert(self, topic: str, values: Row, given: Row) -> Row:
        """The values as the columns store them; a script may leave any of them out."""
        event_shape = event_values.row_decoder(self._topics[topic].type)
        try:
            converted = {
                name: event_shape.convert_one(name, value) if name in event_shape.checks else value
                for name, value in values.items()
            }
        except event_values.InvalidValue as error:
            raise DefinitionError(f"event {given!r}: {error}") from error
        return converted

    def _feed(self, batch: Any, *, end: bool = False) -> None:
        result = self._backend.feed(list(batch), self._now, end=end)
        for topic, rows in result.written.items():
            self._written[topic] += rows
        for reports in result.late.values():
            for report in reports:
                given = self._given_events[report["topic"], report["partition"]][report["offset"]]
                self._late.append({**given, "reason": report["reason"], "missed": report["missed"]})


def _to_millis(name: str, value: Any, row: Mapping[str, Any]) -> int:
    try:
        return timestamps.value_to_millis(value)
    except (ValueError, OverflowError) as error:
        raise DefinitionError(f"event {row!r}: {name}={value!r} is not a time: {error}") from error


def with_scripted_watermarks(job: Job, partitions: int, rebuilt: dict[int, graph.Node]) -> Job:
    """The same job, its watermarks moved by rows that only the clock sees.

    `rebuilt`: nodes rebuilt already, also for other jobs.
    """
    return Job(
        job.name,
        *(Output(_rebuild(output, partitions, rebuilt)) for output in job.outputs),
        delivery=job.delivery,
    )


def _rebuild(node: Any, partitions: int, rebuilt: dict[int, graph.Node]) -> Any:
    if id(node) not in rebuilt:
        if isinstance(node, graph.Read):
            rebuilt[id(node)] = _scripted_read(node, partitions)
        else:
            inputs = tuple(_rebuild(source, partitions, rebuilt) for source in node.inputs)
            rebuilt[id(node)] = dataclasses.replace(node, inputs=inputs)
    return rebuilt[id(node)]


def _scripted_read(read: graph.Read, partitions: int) -> graph.Stateless:
    topic, column = scripted_topic(read.topic, partitions), _watermark_column(read.topic)
    watermark = watermarks.punctuation(pl.col(column), idle=read.watermark.idle, ahead=read.watermark.ahead)
    watermark = dataclasses.replace(watermark, is_limited=False)
    source = graph.Read(
        (), pl.Schema({**topic.schema, **graph.TIME_COLUMNS}), topic, watermark, name=read.name
    )

    def events_only(frame: pl.DataFrame) -> pl.DataFrame:
        casts = [pl.col(name).cast(dtype) for name, dtype in read.schema.items()]
        return frame.filter(pl.col(column).is_null()).with_columns(casts).drop(column)

    return graph.Stateless((source,), read.schema, events_only, "events only")


def _watermark_column(topic: Topic) -> str:
    """The field that holds the script's watermark."""
    name = "watermark"
    while name in topic.schema:
        name = f"scripted_{name}"
    return name


def scripted_topic(topic: Topic, partitions: int) -> Topic:
    """A topic of the same name and fields, all nullable, with one more for the watermark."""
    return Topic(
        topic.name,
        _scripted_type(topic.type, topic.type.__name__, _watermark_column(topic)),
        partitions=partitions,
    )


@lru_cache(maxsize=512)
def _scripted_type(kind: type, name: str, column: str) -> type:
    schema = Topic("scripted", kind).schema
    fields: list[tuple[str, Any]] = [
        (field, _hint(dtype, f"{name}_{field}")) for field, dtype in schema.items()
    ]
    return dataclasses.make_dataclass(f"Scripted{name}", [*fields, (column, int | None)])


def _hint(dtype: Any, name: str) -> Any:
    if isinstance(dtype, pl.List):
        inner = _hint(dtype.inner, name)
        return list[_without_none(inner)]  # type: ignore[misc]  # a type made at run time
    if isinstance(dtype, pl.Struct):
        fields = [(f.name, _hint(f.dtype, f"{name}_{f.name}")) for f in dtype.fields]
        return dataclasses.make_dataclass(name, fields) | None
    hint = field_types.python_hint(dtype)
    if hint is None:
        raise DefinitionError(
            f"{name} is {dtype}, which a script cannot write yet; leave the field out of the type under test"
        )
    return hint | None


def _without_none(hint: Any) -> Any:
    """Without `| None`: elements of a list cannot be null."""
    return (
        next(part for part in hint.__args__ if part is not type(None)) if hasattr(hint, "__args__") else hint
    )
