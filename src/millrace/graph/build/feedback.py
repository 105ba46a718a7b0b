"""Loops: rows that go around once more, through a topic, and not for ever."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import polars as pl

from millrace import graph, panes
from millrace.errors import DefinitionError
from millrace.stream import Job, Output, Stream
from millrace.topics import Topic
from millrace.values.calls import explain_errors_of

ROUND = "round"
"""The field that counts how often a row has gone around."""


def feed_back(rows: Stream, topic: Topic, *, rounds: int) -> Output:
    """Ends a stream in a topic that its own job reads, so that its rows are taken once more: at most `rounds`
    times.

    The type of the topic has a whole number `round`, 0 (or null) in rows that begin. Each time a row goes
    around it is one more; a row that has gone around `rounds` times is not written again, so keep what else
    is wanted of it by another output: `rows.filter(pl.col("round") >= rounds)`. Read the topic with
    `watermarks.ingestion_time()`: rows that come around belong to the present, and are late by any other
    measure. What panes withdraw does not go around.
    """
    if rounds < 1:
        raise DefinitionError(
            f"feed_back(rounds={rounds}): a loop goes around at least once; say how often at most"
        )
    for owner, schema in ((f"the type of {topic.name}", topic.schema), ("the stream", rows.node.schema)):
        if not isinstance(schema.get(ROUND), pl.Int64):
            raise DefinitionError(
                f"feed_back({topic.name}): {owner} has no whole number {ROUND!r}, so nobody counts how "
                "often a row has gone around; add it, and carry it through aggregations with "
                f"aggregates.max({ROUND!r})"
            )
    rounds_so_far = pl.col(ROUND).fill_null(0)
    repeated = rows.filter(
        rounds_so_far < rounds, *([pl.col("op") == panes.ADD] if "op" in rows.node.schema else [])
    )
    output = repeated.with_columns((rounds_so_far + 1).alias(ROUND)).write(topic)
    return Output(replace(output.node, rounds=rounds))


def loop_topics(jobs: Iterable[Job]) -> frozenset[str]:
    """The topics that rows go around through."""
    return frozenset(write.topic.name for job in jobs for write in job.outputs if write.rounds is not None)


def refuse_cycles(jobs: Iterable[Job]) -> None:
    """Refuses topics that jobs which run together read and write in a circle,
    where nothing says how often.
    """
    topics_after: dict[str, set[str]] = {}
    for job in jobs:
        for write in job.outputs:
            reads = [node for node in graph.walk(write, {}) if isinstance(node, graph.Read)]
            for read in reads if write.rounds is None else ():
                topics_after.setdefault(read.topic.name, set()).add(write.topic.name)
    for start in topics_after:
        if cycle := _find_cycle(topics_after, start):
            cycle_text = " → ".join(cycle)
            raise DefinitionError(
                f"{cycle_text}: these jobs read what they write, so rows would go around for ever; end the "
                "loop with mr.feed_back(rows, topic, rounds=N), which counts the rounds of each row"
            )


def _find_cycle(topics_after: dict[str, set[str]], start: str) -> list[str] | None:
    """From a topic back to itself."""
    paths = [[start]]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        for topic in sorted(topics_after.get(path[-1], ())):
            if topic == start:
                return [*path, topic]
            if topic not in seen:
                seen.add(topic)
                paths.append([*path, topic])
    return None


explain_errors_of(globals(), "feed_back")
