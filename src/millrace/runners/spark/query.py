"""The query: source, a stage for each change of key, sink."""

from __future__ import annotations

import pickle
import re
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from millrace.config import Settings
from millrace.engine.plan import Plan
from millrace.engine.sink import Results
from millrace.runners import batches as feed
from millrace.runners.bounded import BoundedRun
from millrace.runners.commit import Committer
from millrace.runners.slots import make_slot_labels
from millrace.runners.spark import session
from millrace.runners.spark.open_logs import LogLocation, get_log
from millrace.runners.spark.savepoint import (
    StateMove,
    move_state,
    newest_batch,
    read_committed_offsets,
    read_planned_offsets,
)
from millrace.runners.spark.serialized_plan import SerializedPlan
from millrace.runners.spark.sink import Sink
from millrace.runners.spark.source import PACKET_SCHEMA, SourceSpec, make_source
from millrace.runners.spark.stage import Stage
from millrace.runners.spark.supervisor.failures import explain_failure
from millrace.runners.state.folder import Identity, checkpoint_path, mark_checkpoint, seed_path
from millrace.runners.state.quarantine import Quarantine, open_quarantine
from millrace.runners.state.savepoint import load_savepoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Report = Callable[[int, Results], None]
"""Called for each batch that is in the log."""
_STATE_FILE = re.compile(r"\.?(\d+)\.(?:changelog|zip)(?:\.crc)?")
"""A file with the state after so many batches, or its checksum."""


@dataclass(frozen=True)
class QueryTask:
    """The input of the process that runs the query."""

    plan: Plan
    settings: Settings
    identity: Identity
    path: Path
    """The state folder."""
    until_caught_up: bool = False
    until_end: bool = False
    retries_jobs: bool = False
    """Whether jobs were under quarantine until now."""
    move: StateMove | None = None
    """A move of the state that comes first, if one is needed."""

    @property
    def is_bounded(self) -> bool:
        """Whether the run ends by itself."""
        return self.until_caught_up or self.until_end


def run(
    spark: SparkSession,
    task: QueryTask,
    *,
    report: Report,
    stop: Callable[[], bool],
    poll_seconds: float = 0.5,
) -> None:
    """Runs the query until it has caught up or come to the end, where it was asked to, or `stop` says so;
    asked every `poll_seconds`.

    When a job is put under quarantine, the query starts again from its checkpoint without it: the batch is
    taken back, its state too.
    """
    if task.move is not None:
        task = replace(task, identity=move_state(spark, task.path, task.plan, task.settings, task.move))
    session.set_shuffle_partitions(spark, task.identity.partitions)
    bounded = find_bounds(task) if task.is_bounded else None
    with open_quarantine(task.path, task.plan) as quarantine:
        while _run_query(
            spark, task, quarantine, bounded=bounded, report=report, stop=stop, poll_seconds=poll_seconds
        ):
            pass
    quarantine.check()
    if bounded is not None and not stop():
        bounded.check_done(_resolve_start(task, _committed_offsets(task)))


def _run_query(
    spark: SparkSession,
    task: QueryTask,
    quarantine: Quarantine,
    *,
    bounded: BoundedRun | None,
    report: Report,
    stop: Callable[[], bool],
    poll_seconds: float,
) -> bool:
    """Runs one query; returns True if it must start again."""
    query, sink = start_query(spark, task, report, quarantine, bounded)
    try:
        while not query.awaitTermination(cast(int, poll_seconds)) and not stop():
            pass
    except Exception as error:
        if sink.must_rerun:
            return True
        raise explain_failure(sink.error or error, state=task.path) from error
    finally:
        query.stop()
        sink.close()
    return False


def _committed_offsets(task: QueryTask) -> feed.Offsets | None:
    """The offsets after the last complete batch, or of the restored state; None if nothing was read."""
    checkpoint, seed = checkpoint_path(task.path, task.identity), seed_path(task.path, task.identity)
    if newest_batch(checkpoint / "commits") >= 0:
        return read_committed_offsets(checkpoint)
    return load_savepoint(seed).offsets if seed.exists() else None


def planned_offsets(path: Path, identity: Identity) -> tuple[feed.Offsets | None, bool]:
    """The offsets after the last batch that was begun, and whether that is unfinished."""
    checkpoint, seed = checkpoint_path(path, identity), seed_path(path, identity)
    planned = newest_batch(checkpoint / "offsets")
    if planned >= 0:
        return read_planned_offsets(checkpoint), planned > newest_batch(checkpoint / "commits")
    return (load_savepoint(seed).offsets if seed.exists() else None), False


def find_bounds(task: QueryTask) -> BoundedRun:
    """What a run reads that ends by itself."""
    log = get_log(LogLocation.of(task.settings), create=True)
    for topic in task.plan.topics:
        log.ensure(topic)
    start = _resolve_start(task, planned_offsets(task.path, task.identity)[0])
    return BoundedRun.of(log, task.plan, start, until_end=task.until_end, retries_jobs=task.retries_jobs)


def _resolve_start(task: QueryTask, offsets: feed.Offsets | None) -> feed.Offsets:
    """Offsets of all topics that are read: where there are none yet, the beginning of what the log holds."""
    log, names = get_log(LogLocation.of(task.settings)), [topic.name for topic in task.plan.topics]
    return feed.resolve_offsets(log, offsets or feed.Offsets({}, 0), names)


def start_query(
    spark: SparkSession,
    task: QueryTask,
    report: Report,
    quarantine: Quarantine,
    bounded: BoundedRun | None = None,
) -> tuple[StreamingQuery, Sink]:
    """Starts the query from its checkpoint, or from the beginning of the log."""
    identity, run = task.identity, task.settings.run
    plan = quarantine.pause_jobs(task.plan.with_births(identity.births))
    log = get_log(LogLocation.of(task.settings), create=True)
    for topic in (*plan.topics, *plan.outputs):
        log.ensure(topic)
    committer = Committer(log, plan, run=run.name, state=identity.id, quarantine=quarantine)
    checkpoint, seed = checkpoint_path(task.path, identity), seed_path(task.path, identity)
    _prepare_checkpoint(checkpoint, task, committer)
    seed_text = str(seed) if seed.exists() else None
    spec = _make_source_spec(task, plan, log.url, bounded)
    name = f"millrace_{identity.id}"
    spark.dataSource.register(make_source(spec, name))
    frame = spark.readStream.format(name).load()
    frame = frame.coalesce(1) if spec.one_task else frame
    frame = add_stages(frame, spec.plan, plan.depth, spec.labels, seed_text)
    sink = Sink(plan, committer, report, task.path, quarantine, identity.base)
    writer = (
        frame.writeStream.queryName(run.name)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(sink)
    )
    writer = (
        writer.trigger(availableNow=True)
        if bounded is not None
        else writer.trigger(processingTime="0 seconds")
    )
    return writer.start(), sink


def _prepare_checkpoint(checkpoint: Path, task: QueryTask, committer: Committer) -> None:
    """Refuses a checkpoint that does not belong to the log, and removes the state of unfinished batches."""
    mark_checkpoint(checkpoint)
    base = task.identity.base
    complete, planned = newest_batch(checkpoint / "commits"), newest_batch(checkpoint / "offsets")
    committer.check_state(task.path, complete=base + complete, planned=base + planned)
    committer.check_all_quarantined()
    _delete_unfinished_state(checkpoint, complete)


def _make_source_spec(task: QueryTask, plan: Plan, log_url: str, bounded: BoundedRun | None) -> SourceSpec:
    """The settings of the source, which reads the log in tasks of Spark."""
    run, spark, identity = task.settings.run, task.settings.spark, task.identity
    seed = seed_path(task.path, identity)
    is_reading_ahead = session.is_read_ahead_enabled(spark) and plan.can_be_read_ahead
    return SourceSpec(
        plan=SerializedPlan.pack(plan),
        topics=tuple(topic.name for topic in plan.topics),
        followed_topics=plan.followed_topics,
        log=replace(LogLocation.of(task.settings), url=log_url),
        labels=make_slot_labels(plan.slots, identity.partitions),
        max_events=run.max_events_per_batch,
        tick_ms=run.tick_ms,
        has_ticks=plan.needs_ticks,
        max_tasks=session.count_cores(spark),
        watermark_file=str(task.path / "reaches.json"),
        max_ahead_ms=run.max_ahead_ms,
        on_data_loss=run.on_data_loss,
        start_offsets=load_savepoint(seed).offsets.to_json() if seed.exists() else None,
        bounded=None if bounded is None else pickle.dumps(bounded),
        query_name=uuid.uuid4().hex if is_reading_ahead else None,
        one_task=is_reading_ahead and plan.depth > 0 and identity.partitions == plan.slots == 1,
    )


def _delete_unfinished_state(checkpoint: Path, complete: int) -> None:
    """Removes the state of unfinished batches.
    They are repeated, perhaps without a job that failed, and the checkpoint manager replaces no file.
    """
    for file in (checkpoint / "state").glob("*/*/*"):
        if (found := _STATE_FILE.fullmatch(file.name)) and int(found[1]) > complete + 1:
            file.unlink(missing_ok=True)


def add_stages(
    frame: DataFrame, plan: SerializedPlan, depth: int, slot_labels: tuple[int, ...], seed: str | None = None
) -> DataFrame:
    """Adds a stage for each change of key. `seed`: a savepoint with their initial state."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*pandas", category=FutureWarning
        )  # Spark looks at its version; no frame of it is made
        for depths in group_depths(depth, len(slot_labels)):
            frame = frame.groupBy("slot").transformWithState(
                Stage(plan, depths, slot_labels, seed), PACKET_SCHEMA, "append", "None"
            )
    return frame


def group_depths(depth: int, slots: int) -> list[tuple[int, ...]]:
    """The depths of a plan that share a stage of Spark's.
    Packets change slots between stages, so with one slot all depths share one.
    """
    all_depths = range(1, depth + 1)
    return [tuple(all_depths)] if slots == 1 and depth else [(number,) for number in all_depths]
