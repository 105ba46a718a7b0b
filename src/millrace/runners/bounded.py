"""Runs that end by themselves: what they read, and in which order streams end.

A run that catches up reads what its topics held when it began. Of topics that it writes itself, it also reads
what it writes meanwhile. With `until_end` the streams then end: no row is expected any more, so every
watermark goes to the end, and all that waits is completed: windows, timers, patterns.

A job may read what another one of the same run writes. So a topic ends when all topics from which it is
written have ended, and what came of that has been read. A batch without rows ends it (`Offsets.ended`). It is
planned, stored and committed like any other, so it too is done exactly once.

Example: job A reads `rides` and writes `totals`; job B reads `totals`.

    batch  reads               ends     what it does
    1      rides [0, 100)      -        A writes 40 totals of windows that are complete
    2      totals [0, 40)      -        B takes them
    3      nothing             rides    A completes its last windows, and writes 5 totals
    4      totals [40, 45)     -        B takes them: their topic has not ended, so they are not late
    5      nothing             totals   B completes its last windows, and the run ends

Topics in a loop (`feed_back`) end together, when nothing goes around any more. What goes around after that,
as the end completed it, is late: steps that keep no state pass it on, all others refuse it to `late.<job>`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millrace import graph
from millrace.errors import RunFailed, StreamEnded
from millrace.runners.batches import Offsets, TopicEnds, check_caught_up
from millrace.runners.commit import RECOMPUTE_REMEDY

if TYPE_CHECKING:
    from millrace.engine.plan import Plan
    from millrace.log import Log
    from millrace.stream import Job


@dataclass(frozen=True)
class BoundedRun:
    """What a run reads that ends by itself, and what it does when it has read that."""

    target: Offsets
    """How far the topics went when it began; those that had ended before, up to their end."""
    own_topics: frozenset[str]
    """The topics that it also writes."""
    order: tuple[frozenset[str], ...] = ()
    """Which topics end together, in their order; none where the run only catches up."""
    ends_again: bool = False
    """Whether topics that have ended do so once more, for jobs that were under quarantine then."""

    @classmethod
    def of(
        cls, log: TopicEnds, plan: Plan, start: Offsets, *, until_end: bool, retries_jobs: bool
    ) -> BoundedRun:
        """A run that goes on from `start`. `retries_jobs`: some were under quarantine until now."""
        topics = [topic.name for topic in plan.topics]
        own_topics = find_own_topics(plan)
        ends = {
            topic: start.topics[topic]
            if topic in start.ended and topic not in own_topics
            else log.end_offsets(topic)
            for topic in topics
        }
        ends_again = retries_jobs and bool(start.ended)
        order = ending_order(plan.jobs, topics) if until_end or ends_again else ()
        return cls(Offsets(ends, 0), own_topics, order, ends_again)

    def begin(self, start: Offsets) -> Offsets:
        """Where the run begins."""
        return replace(start, ended=frozenset()) if self.ends_again else start

    def ends(self, log: Log) -> TopicEnds:
        """The ends of the log as far as this run reads it."""
        return _BoundedEnds(log, self)

    def is_read(self, log: Log, offsets: Offsets) -> bool:
        """Whether nothing is left that this run reads."""
        ends = self.ends(log)
        return all(
            offsets.topics[topic].get(partition, 0) >= end
            for topic in offsets.topics
            for partition, end in ends.end_offsets(topic).items()
        )

    def plan_ending(self, start: Offsets, now: int) -> Offsets | None:
        """The batch that ends the next topics, once all is read; None: all that is to end has ended."""
        for topics in self.order:
            if not topics <= start.ended:
                clock = max(now, start.clock)
                return replace(start, clock=clock, bounded=True, ended=start.ended | topics)
        return None

    def check_done(self, done: Offsets) -> None:
        """Raises `RunFailed` if a run has ended before it had read and ended all that it was to."""
        check_caught_up(self.target, done)
        if unended := frozenset().union(*self.order) - done.ended:
            raise RunFailed(
                f"the run stopped before {', '.join(sorted(unended))} had ended; run it again, it goes on "
                "from there"
            )


@dataclass(frozen=True)
class _BoundedEnds:
    """The ends of a log, no further than a run goes."""

    log: Log
    run: BoundedRun

    def end_offsets(self, topic: str) -> dict[int, int]:
        if topic in self.run.own_topics:
            self.log.await_commits(topic)
        ends = self.log.end_offsets(topic)
        if topic in self.run.own_topics:
            return ends
        target = self.run.target.topics[topic]
        return {
            partition: min(end, target[partition]) for partition, end in ends.items() if partition in target
        }

    def identity(self, topic: str) -> str | None:
        return self.log.identity(topic)


def find_own_topics(plan: Plan) -> frozenset[str]:
    """The topics that a run both writes and reads."""
    return frozenset(topics_written(plan.jobs)) & {topic.name for topic in plan.topics}


def topics_written(jobs: Iterable[Job]) -> dict[str, set[str]]:
    """The topics that jobs write, each with those that are read for it."""
    sources: dict[str, set[str]] = {}
    for job in jobs:
        for output in job.outputs:
            reads = {node.topic.name for node in graph.walk(output, {}) if isinstance(node, graph.Read)}
            sources.setdefault(output.topic.name, set()).update(reads)
    return sources


def ending_order(jobs: Iterable[Job], topics: Collection[str]) -> tuple[frozenset[str], ...]:
    """The topics of a run in the order in which they end: each after all from which it is written, those of a
    loop together.
    """
    written = topics_written(jobs)
    upstream = {topic: _upstream_of(topic, written) for topic in topics}
    remaining, order = set(topics), []
    while remaining:
        ready = frozenset(
            topic
            for topic in remaining
            if all(topic in upstream[source] for source in upstream[topic] & remaining)
        )
        order.append(ready)
        remaining -= ready
    return tuple(order)


def _upstream_of(topic: str, written: Mapping[str, set[str]]) -> set[str]:
    """All topics from which one is written, directly or through others; in a loop, itself too."""
    found: set[str] = set()
    waiting = [topic]
    while waiting:
        new = written.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def check_ended(
    log: TopicEnds,
    plan: Plan,
    offsets: Offsets | None,
    where: str,
    *,
    is_unfinished: bool,
    until_caught_up: bool,
    until_end: bool,
) -> None:
    """Refuses to go on with streams that have ended: a row that comes now would be late for everything.

    A run that ends by itself is not refused if there is nothing new to read, nor if it has to finish the end
    in which another one was killed.

    `offsets`: how far the state has got or, where a batch was begun and `is_unfinished`, will get with that;
    `where`: the state, for the message.
    """
    topics = {topic.name for topic in plan.topics}
    ended = frozenset() if offsets is None else offsets.ended & topics
    has_ended = ended == topics
    is_ending = (is_unfinished and (until_caught_up or until_end)) or (until_end and not has_ended)
    if offsets is None or not ended or is_ending:
        return
    outside = ended - find_own_topics(plan)
    newer = sorted(topic for topic in outside if _has_newer_rows(log, offsets, topic))
    if newer:
        raise StreamEnded(
            f"{where} has ended its stream (--until-end), and {', '.join(newer)} got rows after that, which "
            f"would be late for everything; {RECOMPUTE_REMEDY}"
        )
    if not (until_caught_up or until_end):
        raise StreamEnded(
            f"{where} {'has ended' if has_ended else 'was ending'} its stream (--until-end), so all rows "
            f"that come from now on would be late for everything; {RECOMPUTE_REMEDY}"
        )


def _has_newer_rows(log: TopicEnds, offsets: Offsets, topic: str) -> bool:
    """Whether a topic has grown since it ended, or was made anew."""
    id = log.identity(topic)
    return offsets.ids.get(topic, id) != id or any(
        end > offsets.topics[topic].get(partition, 0) for partition, end in log.end_offsets(topic).items()
    )
