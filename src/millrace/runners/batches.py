"""Which part of the log a batch takes, and its rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from millrace.engine.plan import Plan
from millrace.engine.progress import Reach
from millrace.engine.source import Piece
from millrace.errors import OffsetGone, RunFailed
from millrace.log import Log, Records
from millrace.log.codecs.codec import decode
from millrace.topics import Topic
from millrace.watermarks import EMPTY

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""
Lost: TypeAlias = Literal["fail", "earliest", "latest"]
"""What to do where the log no longer has what comes next."""
CHOICES = 'compute results anew from what is left (millrace backfill), or go on without what is lost by run.lost = "earliest" (with all that is there) or "latest" (with what comes from now on)'

_log = logging.getLogger("millrace.run")


class Ends(Protocol):
    """What is asked of a log to cut a batch."""

    def ends(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""

    def identity(self, topic: str) -> str | None:
        """What tells a topic from another of the same name that was there before; None: the log cannot say."""


@dataclass(frozen=True)
class Offsets:
    """Where a batch ends: the next offset of each partition, and the batch's clock. A repeated batch has the same."""

    topics: dict[str, dict[int, int]]
    clock: int
    bounded: bool = False
    """Whether the run ends when it has caught up, so that partitions which are empty do not hold the watermark back."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Which topics the offsets are of: another one of the same name has another id. Logs that cannot say have none."""

    def to_json(self) -> str:
        """As text."""
        more = {"bounded": True} if self.bounded else {}
        return json.dumps(
            {
                "topics": self.topics,
                "clock": self.clock,
                **more,
                **({"ids": dict(self.ids)} if self.ids else {}),
            }
        )

    @property
    def has_empty(self) -> bool:
        """Whether some partition has never held a record."""
        return any(offset == 0 for partitions in self.topics.values() for offset in partitions.values())

    def reached(self, by: Offsets) -> bool:
        """Whether `by` is at least as far in every partition."""
        return all(
            by.topics[topic][p] >= offset
            for topic, partitions in self.topics.items()
            for p, offset in partitions.items()
        )

    def moved(self, since: Offsets) -> set[Place]:
        """The partitions that are elsewhere than before, or new."""
        before = {
            (topic, p): offset
            for topic, partitions in since.topics.items()
            for p, offset in partitions.items()
        }
        return {
            (t, p)
            for t, partitions in self.topics.items()
            for p, offset in partitions.items()
            if before.get((t, p)) != offset
        }

    def anew(self, since: Offsets) -> set[str]:
        """The topics that were made anew, so that offsets of before mean nothing in them."""
        return {topic for topic, id in self.ids.items() if since.ids.get(topic, id) != id}

    @classmethod
    def from_json(cls, text: str) -> Offsets:
        """The offsets of `to_json`."""
        said = json.loads(text)
        topics = {
            topic: {int(p): offset for p, offset in ends.items()} for topic, ends in said["topics"].items()
        }
        return cls(topics, said["clock"], said.get("bounded", False), said.get("ids", {}))


def begin(log: Log, topics: Iterable[Topic]) -> Offsets:
    """The beginning of what the log holds."""
    return joined(log, Offsets({}, 0), [topic.name for topic in topics])


def joined(log: Log, start: Offsets, topics: Iterable[str]) -> Offsets:
    """Offsets of these topics: those that were not read so far begin with what the log holds; others are let go."""
    names = list(topics)
    ids = {name: id for name, id in start.ids.items() if name in names} | _ids(
        log, [name for name in names if name not in start.topics]
    )
    return Offsets(
        {name: start.topics[name] if name in start.topics else log.begins(name) for name in names},
        start.clock,
        ids=ids,
    )


def _ids(log: Ends, topics: Iterable[str]) -> dict[str, str]:
    return {topic: id for topic in topics if (id := log.identity(topic)) is not None}


@dataclass(frozen=True)
class Pace:
    """How far the partitions had come after the last batch, and how far ahead of the others one may be."""

    reaches: Iterable[Iterable[Reach]] = ()
    """For each operator, the partitions that its watermark depends on."""
    ahead: int | None = None
    """In milliseconds; null: as far as it likes."""

    def too_far(self, waiting: Collection[Place]) -> set[Place]:
        """Of the partitions that have events waiting, those too far ahead of the others: what they bring would only be kept.

        One that has nothing to bring holds nobody up, nor does one that was not read yet. All operators that read a partition must agree that
        it is too far ahead; so the one furthest behind, as any of them sees it, is always read.
        """
        far, near = set[Place](), set[Place]()
        for reaches in self.reaches if self.ahead is not None else ():
            known = {
                (r.topic, r.partition): r.watermark
                for r in reaches
                if r.watermark is not None and (r.topic, r.partition) in waiting
            }
            for place, reached in known.items():
                (far if reached - min(known.values()) > (self.ahead or 0) else near).add(place)
        return far - near


def advance(
    log: Ends,
    start: Offsets,
    *,
    now: int,
    limit: int | None = None,
    pace: Pace | None = None,
    lost: Lost = "fail",
    bounded: bool = False,
) -> Offsets:
    """As far as the log goes now, but at most about `limit` events, taken from all partitions in proportion so that they keep step.

    Partitions that are too far ahead by their `pace` are left alone until the others have caught up. A topic that has another id than before, or
    ends before what was already read, was made anew: unless that is a reason to fail, it is taken whole (`ranges`).
    """
    ids = _ids(log, start.topics)
    anew = Offsets({}, 0, ids=ids).anew(start)
    for topic in sorted(anew) if lost == "fail" else ():
        raise OffsetGone(
            f"{topic} was made anew since it was read, so what was read of it tells nothing about what it holds now: {CHOICES}"
        )
    ends = {topic: log.ends(topic) for topic in start.topics}
    waiting = {
        (t, p): end - start.topics[t].get(p, 0)
        for t, partitions in ends.items()
        for p, end in partitions.items()
    }
    whole = {place: count for place, count in waiting.items() if place[0] in anew}
    waiting = {place: count for place, count in waiting.items() if place not in whole}
    for (topic, partition), count in waiting.items():
        if count < 0 and lost == "fail":
            raise OffsetGone(
                f"{topic}[{partition}] ends at {ends[topic][partition]}, before what was already read; it was made anew: {CHOICES}"
            )
    far = (pace or Pace()).too_far({place for place, count in waiting.items() if count})
    waiting = {place: 0 if place in far else count for place, count in waiting.items()}
    total = sum(count for count in waiting.values() if count > 0)
    if limit is not None and total > limit:
        waiting = {
            place: -(-count * limit // total) if count > 0 else count for place, count in waiting.items()
        }
    waiting |= whole
    topics = {
        t: {p: start.topics[t].get(p, 0) + waiting[t, p] for p in partitions}
        for t, partitions in ends.items()
    }
    return Offsets(topics, max(now, start.clock), bounded, {**start.ids, **ids})


def ranges(log: Ends, start: Offsets, end: Offsets, lost: Lost = "fail") -> list[tuple[str, int, int, int]]:
    """What a batch reads: topic, partition, and the offsets `[begin, end)`. Of a topic that was made anew all is read, so its begin is behind its end.

    A topic that was made anew while a batch of it was begun and not finished has nothing of that batch: `OffsetGone`, unless it may be lost.
    """
    gone = Offsets({}, 0, ids=_ids(log, end.topics)).anew(end)
    for topic in sorted(gone) if lost == "fail" else ():
        raise OffsetGone(
            f"{topic} was made anew while a batch of it was begun and not finished, so the batch cannot be repeated: {CHOICES}"
        )
    begins = {
        (topic, p): offset for topic, partitions in start.topics.items() for p, offset in partitions.items()
    }
    ends = {(topic, p): stop for topic, partitions in end.topics.items() for p, stop in partitions.items()}
    begins |= {place: stop + 1 for place, stop in ends.items() if place[0] in end.anew(start)}
    begins |= {place: stop for place, stop in ends.items() if place[0] in gone}
    return [(*place, begins.get(place, 0), stop) for place, stop in sorted(ends.items())]


def again(log: Log, target: Offsets, loops: Collection[str]) -> Offsets:
    """Where a run has caught up: what the log held when it began and, of what goes around through some topics, all that they hold now."""
    return Offsets(
        {name: log.ends(name) if name in loops else ends for name, ends in target.topics.items()},
        target.clock,
    )


def waits_for_empty(offsets: Offsets, since: int, tick: int) -> bool:
    """Whether a partition that has never held a record still holds the watermark back, in a run that began at `since`.

    Batches then come though no event does, until the partition counts as idle.
    """
    return offsets.has_empty and offsets.clock - since < EMPTY + 2 * tick


def closes_empty(start: Offsets, end: Offsets) -> bool:
    """Whether this is the first bounded batch over a partition that has never held a record, which no longer counts from then on."""
    return end.bounded and not start.bounded and end.has_empty


def check_caught_up(target: Offsets, done: Offsets | None) -> None:
    """`RunFailed` if a run that was to catch up has ended before."""
    for topic, partitions in target.topics.items():
        for partition, end in partitions.items():
            at = 0 if done is None else done.topics.get(topic, {}).get(partition, 0)
            if at < end:
                raise RunFailed(
                    f"the run ended before it had caught up: {topic}[{partition}] was read up to {at} of {end}; run it again, it goes on from there"
                )


def read_piece(
    log: Log,
    topic: Topic,
    partition: int,
    start: int,
    end: int,
    *,
    lost: Lost = "fail",
    wanted: frozenset[str] | None = None,
) -> Piece:
    """The rows of one range of one partition; where the log no longer has all of it, what `lost` says. With `wanted`, those columns of its type alone."""
    records = None if start == end else _read(log, topic.name, partition, start, end, lost)
    if records is None:
        return Piece(topic.name, partition, upto=end)
    return Piece(topic.name, partition, decode(topic, partition, records, wanted=wanted), records, upto=end)


def _read(log: Log, topic: str, partition: int, start: int, end: int, lost: Lost) -> Records | None:
    try:
        if start < end:
            return log.read(topic, partition, start, end)
    except OffsetGone as error:
        if lost == "fail":
            raise OffsetGone(
                f"{topic}[{partition}] no longer has what comes next ({error}); {CHOICES}"
            ) from error
    begin = log.begins(topic)[partition]
    _log.warning(
        "%s[%d] no longer has what comes next, from %d on: going on with the %s",
        topic,
        partition,
        start,
        lost,
    )
    return log.read(topic, partition, begin, end) if lost == "earliest" and begin < end else None


def pieces(log: Log, plan: Plan, start: Offsets, end: Offsets, lost: Lost = "fail") -> list[Piece]:
    """All partitions of all topics, with what is new between two offsets."""
    topics = {topic.name: topic for topic in plan.topics}
    return [
        read_piece(log, topics[name], partition, begin, stop, lost=lost, wanted=plan.wanted[name])
        for name, partition, begin, stop in ranges(log, start, end, lost)
    ]
