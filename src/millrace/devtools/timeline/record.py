"""Runs a job batch by batch on the local engine, and records events, watermark, windows and panes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from millrace import durations, graph, panes
from millrace.devtools.timeline.seen import EventDot, Fate, ObservedBatch, Pane, Timeline
from millrace.durations import Duration
from millrace.engine.sink import Results
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError
from millrace.log import LogAddress
from millrace.log.codecs.codec import Decoded
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.runners.local import Engine
from millrace.runners.replay import ReplayInput, TopicPartition, read_all_rows
from millrace.stream import Job
from millrace.testing.model.values import Row
from millrace.values.columns import OFFSET, SEEN_AT

MAX_BATCHES = 240
"""The most batches of a run. With fewer times of arrival, each of these is a batch."""
MAX_DOTS = 2_000
"""The most events that are drawn. Of more events, every n-th is drawn."""
TICK_MS = 1_000
"""Milliseconds between batches while something waits for the clock."""


def record(
    job: Job,
    events: ReplayInput,
    *,
    log: LogAddress | None = None,
    key: str | None = None,
    topic: str | None = None,
    since: Duration = 0,
    until: Duration | None = None,
) -> Timeline:
    """Runs the job over events in order of arrival, as `replay` does, and records a timeline.

    `key`: record only events and panes of this key, `value` or `column=value,…`. `topic`: the output, by
    default the first with panes. `since`, `until`: the part to record, from the first arrival. Processing
    time is ingestion time.
    """
    engine = Engine([job])
    rows = {
        partition: _add_arrival_times(frame)
        for partition, frame in read_all_rows(engine, events, log).items()
    }
    if not any(frame.height for frame in rows.values()):
        raise DefinitionError(f"there are no events for {job.name!r}, so there is nothing to draw")
    output = _find_output(job, topic)
    recorder = _Recorder(job, output, _parse_key(output, key))
    end = None if until is None else durations.parse_positive(until, name="until")
    observed = _observed_range(rows, durations.parse_non_negative(since, name="since"), end)
    panes_at_end = _run_batches(engine, rows, observed, recorder, to_end=until is None)
    if key and not recorder.dots and not recorder.panes:
        raise DefinitionError(
            f"key={key!r} has neither events nor panes here; results are by {', '.join(_key_columns(output))}"
        )
    return recorder.timeline(key or "", panes_at_end=panes_at_end, has_ended=until is None)


def _run_batches(
    engine: Engine,
    rows: Mapping[TopicPartition, pl.DataFrame],
    observed: tuple[int, int],
    recorder: _Recorder,
    *,
    to_end: bool,
) -> int:
    """Runs and records the batches of the observed range; returns the number of panes that the end fired."""
    previous = observed[0] - 1
    engine.step(_batches_between(rows, None, previous), previous)
    for now in _batch_clocks(engine, rows, observed):
        batches = _batches_between(rows, previous, now)
        recorder.add_batch(now, batches, engine.step(batches, now))
        previous = now
    panes_before_end = len(recorder.panes)
    if to_end:
        recorder.add_batch(previous, [], engine.step([], previous, end=True))
    return len(recorder.panes) - panes_before_end


def _add_arrival_times(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds the time at which each row is seen. A log is read in order, so it is never before that of an
    earlier row.
    """
    return frame.with_columns(pl.col("ingestion_time").cum_max().alias(SEEN_AT))


def _observed_range(
    rows: Mapping[TopicPartition, pl.DataFrame], since: int, until: int | None
) -> tuple[int, int]:
    """The first and the last time to draw."""
    arrivals = pl.concat([frame[SEEN_AT] for frame in rows.values()])
    first, last = arrivals.min(), arrivals.max()
    assert isinstance(first, int), "there are rows"
    assert isinstance(last, int), "there are rows"
    if first + since > last:
        raise DefinitionError(
            f"since={durations.format_millis(since)} is after the last event, which came "
            f"{durations.format_millis(last - first)} after the first"
        )
    return first + since, last if until is None else max(first + since, min(last, first + until))


def _batch_clocks(
    engine: Engine, rows: Mapping[TopicPartition, pl.DataFrame], observed: tuple[int, int]
) -> list[int]:
    """The clocks of the batches."""
    first, last = observed
    arrived = pl.concat([frame[SEEN_AT] for frame in rows.values()])
    arrival_times = arrived.filter(arrived.is_between(first, last)).unique().to_list()
    interval = max(1, -(-(last - first) // MAX_BATCHES))
    clocks = {*arrival_times} if len(arrival_times) <= MAX_BATCHES else {*range(first, last, interval)}
    if engine.plan.needs_ticks:
        clocks |= {*range(first, last, max(TICK_MS, interval))}
    return sorted(clocks | {last})


def _batches_between(
    rows: Mapping[TopicPartition, pl.DataFrame], after: int | None, until: int
) -> list[PartitionBatch]:
    """The rows that arrive in `(after, until]`; None: from the beginning."""
    arrives = (
        pl.col(SEEN_AT) <= until
        if after is None
        else pl.col(SEEN_AT).is_between(after, until, closed="right")
    )
    return [_make_batch(partition, frame.filter(arrives)) for partition, frame in rows.items()]


def _make_batch(partition: TopicPartition, frame: pl.DataFrame) -> PartitionBatch:
    if frame.is_empty():
        return PartitionBatch(*partition)
    return PartitionBatch(*partition, Decoded(frame.drop(SEEN_AT), pl.DataFrame(schema=DEAD_SCHEMA)))


def _find_output(job: Job, topic: str | None) -> graph.Write:
    """The output to draw."""
    windowed = [
        write
        for write in job.outputs
        if "window_end" in write.schema and (topic is None or write.topic.name == topic)
    ]
    if not windowed:
        problem = f"does not write panes to {topic!r}" if topic else "has no windows"
        raise DefinitionError(
            f"job {job.name!r} {problem}, so there is no time to draw; name a job that aggregates, and its "
            "topic"
        )
    return windowed[0]


def _key_columns(write: graph.Write) -> list[str]:
    origins = [edge.origin for edge in graph.edges(write)]
    keys = next((origin.keys for origin in origins if isinstance(origin, graph.Operation)), ())
    return [column for column in keys if column in write.schema]


def _parse_key(write: graph.Write, key: str | None) -> dict[str, str]:
    """The columns and values of `key`."""
    if not key:
        return {}
    keys, parts = _key_columns(write), key.split(",")
    if len(keys) == 1 and not key.startswith(f"{keys[0]}="):
        return {keys[0]: key}
    values = dict(part.split("=", 1) for part in parts if "=" in part)
    if len(values) < len(parts) or set(values) - set(keys):
        raise DefinitionError(
            f"key={key!r}: results are by {', '.join(keys)}; write "
            f"{','.join(f'{name}=VALUE' for name in keys)}"
        )
    return values


def _rows_of_key(frame: pl.DataFrame, key_values: Mapping[str, str]) -> pl.DataFrame:
    """The rows of the key, as far as they have its columns."""
    conditions = [
        pl.col(column).cast(pl.String) == value
        for column, value in key_values.items()
        if column in frame.columns
    ]
    return frame.filter(*conditions) if conditions else frame


@dataclass(eq=False)
class _Recorder:
    job: Job
    output: graph.Write
    key_values: Mapping[str, str]
    dots: list[EventDot] = field(default_factory=list)
    batches: list[ObservedBatch] = field(default_factory=list)
    panes: list[Pane] = field(default_factory=list)

    def add_batch(self, now: int, partitions: list[PartitionBatch], results: Results) -> None:
        """Notes the events of a batch and its results."""
        watermark = self.batches[-1].watermark if self.batches and not self._is_processing_time() else None
        refused = self._find_refused(results)
        for partition in partitions:
            self.dots += self._make_dots(partition, now, watermark, refused)
        self.batches.append(ObservedBatch(now, self._output_watermark(results)))
        if self.output.topic.name in results.outputs:
            self.panes += self._make_panes(results.outputs[self.output.topic.name], now)

    def timeline(self, key: str, *, panes_at_end: int, has_ended: bool) -> Timeline:
        """The recorded timeline. Of too many events, it has every n-th and all that were refused."""
        stride = -(-len(self.dots) // MAX_DOTS)
        drawn = [dot for i, dot in enumerate(self.dots) if i % stride == 0 or dot.fate == "refused"]
        omitted = len(self.dots) - len(drawn)
        labels = self.job.name, self.output.topic.name, key
        return Timeline(
            *labels,
            tuple(drawn),
            tuple(self.batches),
            tuple(self.panes),
            panes_at_end,
            has_ended,
            self._is_processing_time(),
            omitted,
        )

    def _is_processing_time(self) -> bool:
        """Whether the windows are of processing time."""
        origins = [edge.origin for edge in graph.edges(self.output)]
        return any(
            isinstance(origin, graph.Aggregation) and origin.windowing.is_processing_time
            for origin in origins
        )

    def _find_refused(self, results: Results) -> dict[tuple[str, int, int], str]:
        late = results.late.get(self.job.name)
        if late is None:
            return {}
        refused = late.filter(pl.col("offset").is_not_null())
        rows = refused.select("topic", "partition", "offset", "reason", "missed").iter_rows()
        return {
            (topic, partition, offset): f"{reason}: missing from {missed} windows"
            for topic, partition, offset, reason, missed in rows
        }

    def _make_dots(
        self,
        batch: PartitionBatch,
        now: int,
        watermark: int | None,
        refused: Mapping[tuple[str, int, int], str],
    ) -> Iterator[EventDot]:
        if batch.rows is None:
            return
        key_offsets = self._offsets_of_key(batch)
        for offset, at in batch.rows.select(OFFSET, "event_time").iter_rows():
            if key_offsets is not None and offset not in key_offsets:
                continue
            reason = refused.get((batch.topic, batch.partition, offset))
            fate: Fate = (
                "refused" if reason else "behind" if watermark is not None and at < watermark else "taken"
            )
            about = f"{batch.topic}[{batch.partition}] {offset}"
            yield EventDot(at, now, fate, f"{about}, {reason}" if reason else about)

    def _offsets_of_key(self, batch: PartitionBatch) -> set[int] | None:
        """The offsets of the rows of the key; None: all rows."""
        if not self.key_values or batch.rows is None:
            return None
        offsets: set[int] = set()
        absent = pl.lit(None)
        internal_columns = [
            absent.cast(dtype).alias(name) for name, dtype in graph.INTERNAL_COLUMNS.items() if name != OFFSET
        ]
        for node in self.job.operator_ids:
            for edge in graph.edges(node):
                if isinstance(edge.origin, graph.Read) and edge.origin.topic.name == batch.topic:
                    offsets |= {
                        *_rows_of_key(edge.apply(batch.rows.with_columns(internal_columns)), self.key_values)[
                            OFFSET
                        ]
                    }
        return offsets

    def _output_watermark(self, results: Results) -> int | None:
        """The watermark of the operator whose panes are drawn."""
        watermarks = [
            results.watermarks.get(self.job.operator_ids[e.origin])
            for e in graph.edges(self.output)
            if e.origin in self.job.operator_ids
        ]
        known = [watermark for watermark in watermarks if watermark is not None]
        return min(known) if known and len(known) == len(watermarks) else None

    def _make_panes(self, frame: pl.DataFrame, now: int) -> list[Pane]:
        """Sorts by window and key, because a batch has no order. A retraction stands before the new value."""
        keys = _key_columns(self.output)
        values = [
            c
            for c in frame.columns
            if c not in keys and c not in panes.COLUMNS and c not in graph.TIME_COLUMNS
        ]
        shown = [
            self._make_pane(row, keys, values, now)
            for row in _rows_of_key(frame, self.key_values).iter_rows(named=True)
        ]
        return sorted(
            shown, key=lambda pane: (pane.window, pane.index, pane.key, pane.op == panes.ADD, pane.value)
        )

    def _make_pane(self, row: Row, keys: list[str], values: list[str], now: int) -> Pane:
        key = "" if self.key_values else ", ".join(_format_value(row[column]) for column in keys)
        value = (
            _format_value(row[values[0]])
            if len(values) == 1
            else ", ".join(f"{name} {_format_value(row[name])}" for name in values)
        )
        window = row["window_start"], row["window_end"]
        return Pane(now, window, key, value, row["timing"], row["index"], row["final"], row["op"])


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return (
        "–"
        if value is None
        else ", ".join(map(_format_value, value))
        if isinstance(value, list)
        else str(value)
    )
