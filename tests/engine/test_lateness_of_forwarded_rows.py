"""Rows that a deduplication has let through are judged like others by what follows, also where they come from
a partition that was idle while other streams went on.
"""

from dataclasses import dataclass

import millrace as mr
from millrace import triggers, watermarks, windows
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from millrace.topics import Topic


@dataclass(frozen=True)
class Reading:
    room: str


@dataclass(frozen=True)
class Count:
    room: str
    n: int


QUIET, BUSY, COUNTS = (
    Topic("input.quiet", Reading),
    Topic("input.busy", Reading),
    Topic("analytics.counts", Count),
)


def event(topic: Topic, offset: int, at: int, now: int) -> SourceEvent:
    return SourceEvent(topic.name, 0, offset, at, now, {"room": "hall"})


def test_a_partition_that_wakes_up_opens_no_window_that_was_shown_and_dropped() -> None:
    quiet = mr.read(QUIET, watermark=watermarks.bounded(0, idle=5)).group_by("room")
    rows = quiet.deduplicate("event_time", within=1_000).union(mr.read(BUSY, watermark=watermarks.bounded(0)))
    counts = (
        rows.window(windows.fixed(10), trigger=triggers.at_watermark(late=triggers.never()))
        .group_by("room")
        .count(name="n")
    )
    job = mr.Job("counts", counts.write(COUNTS))
    partitions = {QUIET.name: 1, BUSY.name: 1}
    engine, model = OnEngine((job,), partitions, slots=2), OnModel((job,), partitions)
    batches = [
        ((event(QUIET, 0, 1, 1), event(BUSY, 0, 2, 2)), 2),
        ((event(BUSY, 1, 30, 30),), 30),
        ((event(QUIET, 1, 3, 31), event(QUIET, 2, 32, 32), event(BUSY, 2, 45, 45)), 45),
    ]
    shown = []
    for events, now in batches:
        ours, theirs = engine.feed(events, now), model.feed(events, now)
        assert ours.written.get(COUNTS.name, []) == theirs.written[COUNTS.name]
        refused = [[row["offset"] for row in fed.late.get("counts", [])] for fed in (ours, theirs)]
        assert refused[0] == refused[1]
        shown.append(
            (
                [(row["window_end"], row["n"]) for row in ours.written.get(COUNTS.name, [])],
                refused[0],
            )
        )
    assert shown == [([], []), ([(10, 2)], []), ([], [1])]
