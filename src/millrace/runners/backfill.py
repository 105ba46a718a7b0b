"""A job over all of history into a new version of its topics, after which readers are pointed there.

The version is a run of its own: it reads the same topics from their beginning, with state of its own, and
ends with the same results as the live run. Started again, it continues, so that the version becomes the live
one.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from millrace import runners
from millrace.durations import END_OF_STREAM
from millrace.errors import DefinitionError
from millrace.log import open_log
from millrace.log.aliases import read_aliases, set_alias
from millrace.log.codecs.codec import encode
from millrace.log.owners import Owner, claim_topics
from millrace.stream import Job, Output
from millrace.topics import check_name
from millrace.values.calls import require_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.config import Settings
    from millrace.runners.replay import ReplayInput


@dataclass(frozen=True)
class BackfillResult:
    """The result of a backfill."""

    topics: dict[str, str]
    """Each topic of the job, and the version that was filled."""
    results: dict[str, int]
    """The number of results in each version."""
    switched: bool
    """Whether readers were pointed to it."""


def version_job(job: Job, version: str) -> Job:
    """The same job under a name of its own, writing to topics of its own."""
    check_name(version)
    nodes = [
        replace(write, topic=replace(write.topic, name=f"{write.topic.name}.{version}"))
        for write in job.outputs
    ]
    return Job(f"{job.name}.{version}", *(Output(node) for node in nodes), delivery=job.delivery)


def backfill(
    job: Job,
    *,
    version: str,
    events: ReplayInput | None = None,
    on: Literal["local", "spark"] | None = None,
    settings: Settings | None = None,
    switch: bool = True,
    report: Callable[[runners.BatchReport], None] = lambda _: None,
    **options: object,
) -> BackfillResult:
    """Recomputes a job's results into `<topic>.<version>`, at full speed; then, unless `switch` is false,
    readers are pointed there.

    Over what the log holds: the run is called `<job>.<version>`, and
    `run(versioned(job, version), run_name=...)` continues it. Or over `events`, frames or files by topic, to
    their end; then nothing is left to continue, and a version that already holds results is refused.
    """
    from millrace.config import Settings, load

    require_type("backfill", job, Job, "a job; say Job('name', stream.write(topic))")
    require_type("backfill(version=...)", version, str, "a name such as '2'")
    require_type("backfill(settings=...)", settings, Settings | None, "settings; say config.load(path)")
    versioned_job = version_job(job, version)
    chosen = (settings or load()).with_options(run_name=versioned_job.name, run_on=on, **options)
    if events is None:
        open_log(chosen, create=False).close()  # a run would begin a new log, with nothing to recompute
        runners.run(versioned_job, settings=chosen, until_caught_up=True, report=report)
    else:
        _write_replayed(versioned_job, events, chosen)
    version_names = {
        old.topic.name: new.topic.name for old, new in zip(job.outputs, versioned_job.outputs, strict=True)
    }
    with closing(open_log(chosen)) as log:
        result_counts = {name: sum(log.end_offsets(name).values()) for name in version_names.values()}
        if switch:
            current_aliases = read_aliases(log)
            for name, new in version_names.items():
                if current_aliases.get(name) != new:
                    set_alias(log, name, new)
    return BackfillResult(version_names, result_counts, switch)


def _write_replayed(job: Job, events: ReplayInput, settings: Settings) -> None:
    from millrace.runners.replay import replay_all

    with closing(open_log(settings)) as log:
        for write in job.outputs:
            log.ensure(write.topic)
            if any(log.end_offsets(write.topic.name).values()):
                raise DefinitionError(
                    f"backfill: {write.topic.name} already holds results; choose another version"
                )
        claim_topics(
            log,
            [write.topic.name for write in job.outputs],
            Owner("backfill", job.name),
            folder="the events that were given",
        )
        outputs = replay_all(job, events, log=settings.log.url).outputs
        with closing(log.writer(f"{job.name}.backfill")) as writer:
            topics, now = (
                {write.topic.name: write.topic for write in job.outputs},
                time.time_ns() // 1_000_000,
            )
            records = {
                name: encode(topics[name], frame, ingestion_time=now)
                for name, frame in outputs.items()
                if not frame.is_empty()
            }
            ends = dict.fromkeys(topics, END_OF_STREAM)
            writer.commit(writer.last_marker + 1, records, watermarks=ends)
