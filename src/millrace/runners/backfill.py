"""A job over all of history into a new version of its topics, after which readers are pointed there.

The version is a run of its own: it reads the same topics from their beginning, has state of its own, and its last words are those of the live run.
Started again, it goes on where it stopped, so that the version becomes the live one.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from millrace import runners
from millrace.errors import DefinitionError
from millrace.log import open_log
from millrace.log.aliases import aliases, point
from millrace.log.codecs.codec import encode
from millrace.log.owners import Owner, claim
from millrace.stream import Job, Output
from millrace.topics import check_name
from millrace.values.calls import need

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.config import Settings
    from millrace.runners.replay import Given


@dataclass(frozen=True)
class Backfilled:
    """What came of it."""

    topics: dict[str, str]
    """Each topic of the job, and the version that was filled."""
    results: dict[str, int]
    """How many results each version holds."""
    switched: bool
    """Whether readers were pointed to it."""


def versioned(job: Job, version: str) -> Job:
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
    events: Given | None = None,
    on: Literal["local", "spark"] | None = None,
    settings: Settings | None = None,
    switch: bool = True,
    report: Callable[[runners.Batch], None] = lambda _: None,
    **options: object,
) -> Backfilled:
    """Recomputes a job's results into `<topic>.<version>`, at full speed; then, unless `switch` is false, readers are pointed there.

    Over what the log holds: the run is called `<job>.<version>`, and `run(versioned(job, version), run_name=...)` continues it. Or over `events`,
    frames or files by topic, to their end; then nothing is left to continue, and a version that already holds results is refused.
    """
    from millrace.config import Settings, load

    need("backfill", job, Job, "a job; say Job('name', stream.write(topic))")
    need("backfill(version=...)", version, str, "a name such as '2'")
    need("backfill(settings=...)", settings, Settings | None, "settings; say config.load(path)")
    made = versioned(job, version)
    chosen = (settings or load()).changed(run_name=made.name, run_on=on, **options)
    if events is None:
        runners.run(made, settings=chosen, until_caught_up=True, report=report)
    else:
        _from_events(made, events, chosen)
    pairs = {old.topic.name: new.topic.name for old, new in zip(job.outputs, made.outputs, strict=True)}
    with closing(open_log(chosen)) as log:
        held = {name: sum(log.ends(name).values()) for name in pairs.values()}
        if switch:
            known = aliases(log)
            for name, new in pairs.items():
                if known.get(name) != new:
                    point(log, name, new)
    return Backfilled(pairs, held, switch)


def _from_events(job: Job, events: Given, settings: Settings) -> None:
    from millrace.runners.replay import replay_all

    with closing(open_log(settings)) as log:
        for write in job.outputs:
            log.ensure(write.topic)
            if any(log.ends(write.topic.name).values()):
                raise DefinitionError(
                    f"backfill: {write.topic.name} already holds results; choose another version"
                )
        claim(
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
            made = {
                name: encode(topics[name], frame, ingestion_time=now)
                for name, frame in outputs.items()
                if not frame.is_empty()
            }
            writer.commit(writer.last + 1, made)
