"""The query: source, a stage for each change of key, sink."""

from __future__ import annotations

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
from millrace.runners.commit import Committer
from millrace.runners.spark import session
from millrace.runners.spark.open_logs import LogPlace, opened
from millrace.runners.spark.savepoint import Move, moved, newest, reached
from millrace.runners.spark.serialized_plan import Shipped
from millrace.runners.spark.sink import Sink
from millrace.runners.spark.slots import labels
from millrace.runners.spark.source import PACKETS, Feed, source
from millrace.runners.spark.stage import Stage
from millrace.runners.spark.supervisor.failures import explain
from millrace.runners.state.folder import Identity, checkpoint_of, seed_of
from millrace.runners.state.quarantine import Quarantine, quarantined
from millrace.runners.state.savepoint import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Report = Callable[[int, Results], None]
"""Told of each batch that is in the log."""
_VERSION = re.compile(r"\.?(\d+)\.(?:changelog|zip)(?:\.crc)?")
"""A file of the state after as many batches, or its checksum."""


@dataclass(frozen=True)
class Task:
    """All that the process running the query must know."""

    plan: Plan
    settings: Settings
    identity: Identity
    path: Path
    """The state folder."""
    until_caught_up: bool
    move: Move | None = None
    """What is to become of the state first."""


def run(
    spark: SparkSession, task: Task, *, report: Report, stop: Callable[[], bool], patience: float = 0.5
) -> None:
    """Runs the query until it has caught up, where it was asked to, or `stop` says so; asked every `patience` seconds.

    When a job is put under quarantine, the query starts again from its checkpoint without it: the batch is taken back, its state too.
    """
    if task.move is not None:
        task = replace(task, identity=moved(spark, task.path, task.plan, task.settings, task.move))
    session.spread(spark, task.identity.partitions)
    target = _ends(task) if task.until_caught_up else None
    with quarantined(task.path, task.plan) as quarantine:
        while _run(spark, task, quarantine, report=report, stop=stop, patience=patience) or (
            not stop() and _goes_around(task)
        ):
            pass
    quarantine.check()
    if target is not None and not stop():
        feed.check_caught_up(target, _done(task))


def _run(
    spark: SparkSession,
    task: Task,
    quarantine: Quarantine,
    *,
    report: Report,
    stop: Callable[[], bool],
    patience: float,
) -> bool:
    """One query; True: it must start again."""
    query, sink = start(spark, task, report, quarantine)
    try:
        while not query.awaitTermination(cast(int, patience)) and not stop():
            pass
    except Exception as error:
        if sink.again:
            return True
        raise explain(sink.error or error, state=task.path) from error
    finally:
        query.stop()
        sink.close()
    return False


def _done(task: Task) -> feed.Offsets | None:
    """Where the last batch that is done ended, or the state that was restored; None: nothing was read."""
    checkpoint, seed = checkpoint_of(task.path, task.identity), seed_of(task.path, task.identity)
    if newest(checkpoint / "commits") >= 0:
        return reached(checkpoint)
    return load(seed).offsets if seed.exists() else None


def _ends(task: Task) -> feed.Offsets:
    """All that the log holds now of what the plan reads and still has."""
    log = opened(LogPlace.of(task.settings), create=True)
    for topic in task.plan.topics:
        log.ensure(topic)
    ends = {topic.name: log.ends(topic.name) for topic in task.plan.topics}
    begins = {topic.name: log.begins(topic.name) for topic in task.plan.topics}
    return feed.Offsets(
        {t: {p: end for p, end in of.items() if end > begins[t][p]} for t, of in ends.items()}, 0
    )


def _goes_around(task: Task) -> bool:
    """Whether a query that was to catch up has left rows in topics that it feeds itself."""
    if not task.until_caught_up or not task.plan.loops:
        return False
    done = reached(checkpoint_of(task.path, task.identity))
    return not feed.again(opened(LogPlace.of(task.settings)), done, task.plan.loops).reached(done)


def start(
    spark: SparkSession, task: Task, report: Report, quarantine: Quarantine
) -> tuple[StreamingQuery, Sink]:
    """Starts the query from its checkpoint, or from the beginning of the log."""
    identity, run = task.identity, task.settings.run
    plan = quarantine.plan(task.plan.born(identity.births))
    place = LogPlace.of(task.settings)
    log = opened(place, create=True)
    for topic in (*plan.topics, *plan.outputs):
        log.ensure(topic)
    committer = Committer(log, plan, run=run.name, state=identity.id, quarantine=quarantine)
    checkpoint, seed = checkpoint_of(task.path, identity), seed_of(task.path, identity)
    complete, planned = newest(checkpoint / "commits"), newest(checkpoint / "offsets")
    committer.check(task.path, complete=identity.base + complete, planned=identity.base + planned)
    committer.check_left()
    _forget_unfinished(checkpoint, complete)
    shipped, spread = Shipped.pack(plan), labels(plan.slots, identity.partitions)
    ahead = session.reads_ahead(task.settings.spark) and not plan.asks
    feed = Feed(
        plan=shipped,
        topics=tuple(topic.name for topic in plan.topics),
        log=replace(place, url=log.url),
        labels=spread,
        limit=run.max_events_per_batch,
        tick=run.tick_ms,
        ticks=plan.ticks,
        tasks=session.cores(task.settings.spark),
        pace=str(task.path / "reaches.json"),
        ahead=run.max_ahead_ms,
        lost=run.lost,
        start=load(seed).offsets.to_json() if seed.exists() else None,
        name=uuid.uuid4().hex if ahead else None,
        one_task=ahead and plan.depth > 0 and identity.partitions == plan.slots == 1,
    )
    name = f"millrace_{identity.id}"
    spark.dataSource.register(source(feed, name))
    frame = spark.readStream.format(name).load()
    frame = frame.coalesce(1) if feed.one_task else frame
    frame = through_stages(frame, shipped, plan.depth, spread, str(seed) if seed.exists() else None)
    sink = Sink(plan, committer, report, task.path, quarantine, identity.base)
    writer = (
        frame.writeStream.queryName(run.name)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(sink)
    )
    writer = (
        writer.trigger(availableNow=True)
        if task.until_caught_up
        else writer.trigger(processingTime="0 seconds")
    )
    return writer.start(), sink


def _forget_unfinished(checkpoint: Path, complete: int) -> None:
    """Removes the state that batches stored which were not finished: they are repeated, perhaps without a job that failed, and the checkpoint manager does not replace a file."""
    for file in (checkpoint / "state").glob("*/*/*"):
        if (found := _VERSION.fullmatch(file.name)) and int(found[1]) > complete + 1:
            file.unlink(missing_ok=True)


def through_stages(
    frame: DataFrame, plan: Shipped, depth: int, spread: tuple[int, ...], seed: str | None = None
) -> DataFrame:
    """Packets from the source through every stage; a plan without keys has none. `seed`: a file with the state that they begin with."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*pandas", category=FutureWarning
        )  # Spark looks at its version; no frame of it is made
        for depths in stages(depth, len(spread)):
            frame = frame.groupBy("slot").transformWithState(
                Stage(plan, depths, spread, seed), PACKETS, "append", "None"
            )
    return frame


def stages(depth: int, slots: int) -> list[tuple[int, ...]]:
    """Which depths of a plan share a stage of Spark's: between them packets change slots, so with one slot all do."""
    every = range(1, depth + 1)
    return [tuple(every)] if slots == 1 and depth else [(number,) for number in every]
