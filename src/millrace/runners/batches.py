"""Plans which part of the log a batch reads, and reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from millrace.engine.plan import Plan
from millrace.engine.progress import PartitionWatermark
from millrace.engine.source import PartitionBatch
from millrace.errors import OffsetGone, RunFailed
from millrace.log import Log, Records
from millrace.log.codecs.codec import decode
from millrace.topics import Topic
from millrace.watermarks import EMPTY_PARTITION_TIMEOUT

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and a partition."""
OnDataLoss: TypeAlias = Literal["fail", "earliest", "latest"]
"""What to do where the log no longer has the next records."""
DATA_LOSS_REMEDY = (
    "compute results anew from what is left (millrace backfill), or go on without what is lost by "
    'run.on_data_loss = "earliest" (with all that is there) or "latest" (with what comes from now on)'
)

_log = logging.getLogger("millrace.run")


class TopicEnds(Protocol):
    """The part of a log's interface that planning a batch needs."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""

    def identity(self, topic: str) -> str | None:
        """The id of a topic, which differs from that of a deleted topic of the same name;
        None if the log has none.
        """


@dataclass(frozen=True)
class Offsets:
    """Where a batch ends: the next offset of each partition, and the batch's clock.
    A repeated batch has the same.
    """

    topics: dict[str, dict[int, int]]
    clock: int
    bounded: bool = False
    """Whether the run ends when it has caught up,
    so that partitions which are empty do not hold the watermark back.
    """
    ids: Mapping[str, str] = field(default_factory=dict)
    """Which topics the offsets are of: another one of the same name has another id.
    Logs that cannot say have none.
    """
    watermarks: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """How far the writers of topics vouch for what follows, by partition, where a job follows them."""
    ended: frozenset[str] = frozenset()
    """The topics that have ended with this batch or before: no row of them is expected any more."""

    def to_json(self) -> str:
        """As text."""
        optional = {
            "bounded": self.bounded,
            "ids": dict(self.ids),
            "watermarks": self.watermarks,
            "ended": sorted(self.ended),
        }
        present = {name: value for name, value in optional.items() if value}
        return json.dumps({"topics": self.topics, "clock": self.clock, **present})

    @property
    def has_ended(self) -> bool:
        """Whether all topics have ended."""
        return self.ended.issuperset(self.topics)

    @property
    def has_empty(self) -> bool:
        """Whether some partition has never held a record."""
        return any(offset == 0 for partitions in self.topics.values() for offset in partitions.values())

    def is_reached_by(self, other: Offsets) -> bool:
        """Whether `other` is at least as far in every partition."""
        return all(
            other.topics[topic][p] >= offset
            for topic, partitions in self.topics.items()
            for p, offset in partitions.items()
        )

    def moved_partitions(self, earlier: Offsets) -> set[TopicPartition]:
        """The partitions whose offset has changed, and new ones."""
        before = {
            (topic, p): offset
            for topic, partitions in earlier.topics.items()
            for p, offset in partitions.items()
        }
        return {
            (t, p)
            for t, partitions in self.topics.items()
            for p, offset in partitions.items()
            if before.get((t, p)) != offset
        }

    def recreated_topics(self, earlier: Offsets) -> set[str]:
        """The topics that were made anew, in which earlier offsets have no meaning."""
        return {topic for topic, id in self.ids.items() if earlier.ids.get(topic, id) != id}

    @classmethod
    def from_json(cls, text: str) -> Offsets:
        """The offsets of `to_json`."""
        data = json.loads(text)
        return cls(
            _by_partition(data["topics"]),
            data["clock"],
            data.get("bounded", False),
            data.get("ids", {}),
            _by_partition(data.get("watermarks", {})),
            frozenset(data.get("ended", ())),
        )


def _by_partition(data: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {topic: {int(p): value for p, value in values.items()} for topic, values in data.items()}


def beginning_offsets(log: Log, topics: Iterable[Topic]) -> Offsets:
    """The beginning of what the log holds."""
    return resolve_offsets(log, Offsets({}, 0), [topic.name for topic in topics])


def resolve_offsets(log: Log, start: Offsets, topics: Iterable[str]) -> Offsets:
    """Offsets of these topics only. Topics that were not read before begin with their oldest record."""
    names = list(topics)
    ids = {name: id for name, id in start.ids.items() if name in names} | _read_topic_ids(
        log, [name for name in names if name not in start.topics]
    )
    return Offsets(
        {name: start.topics[name] if name in start.topics else log.start_offsets(name) for name in names},
        start.clock,
        ids=ids,
        watermarks={name: marks for name, marks in start.watermarks.items() if name in names},
        ended=start.ended.intersection(names),
    )


def _read_topic_ids(log: TopicEnds, topics: Iterable[str]) -> dict[str, str]:
    return {topic: id for topic in topics if (id := log.identity(topic)) is not None}


@dataclass(frozen=True)
class WatermarkAlignment:
    """The watermarks of partitions after the last batch, and how far one may be ahead of the others."""

    partition_watermarks: Iterable[Iterable[PartitionWatermark]] = ()
    """For each operator, the partitions that its watermark depends on."""
    max_ahead: int | None = None
    """In milliseconds; None: without a limit."""

    def find_too_far_ahead(self, waiting: Collection[TopicPartition]) -> set[TopicPartition]:
        """Of the partitions that have events waiting, those too far ahead of the others: what they bring
        would only be kept.

        One that has nothing to bring holds nobody up, nor does one that was not read yet. All operators that
        read a partition must agree that it is too far ahead; so the one furthest behind, as any of them sees
        it, is always read.
        """
        far, near = set[TopicPartition](), set[TopicPartition]()
        for watermarks in self.partition_watermarks if self.max_ahead is not None else ():
            known = {
                (partition.topic, partition.partition): partition.watermark
                for partition in watermarks
                if partition.watermark is not None and (partition.topic, partition.partition) in waiting
            }
            for topic_partition, watermark in known.items():
                (far if watermark - min(known.values()) > (self.max_ahead or 0) else near).add(
                    topic_partition
                )
        return far - near


def plan_batch_end(
    log: TopicEnds,
    start: Offsets,
    *,
    now: int,
    limit: int | None = None,
    alignment: WatermarkAlignment | None = None,
    on_data_loss: OnDataLoss = "fail",
    bounded: bool = False,
) -> Offsets:
    """As far as the log goes now, but at most about `limit` events, taken from all partitions in proportion
    so that they keep step.

    Partitions that are too far ahead by their `pace` are left alone until the others have caught up. A topic
    that has another id than before, or ends before what was already read, was made anew: unless that is a
    reason to fail, it is taken whole (`ranges`).
    """
    ids = _read_topic_ids(log, start.topics)
    recreated = Offsets({}, 0, ids=ids).recreated_topics(start)
    ends = {topic: log.end_offsets(topic) for topic in start.topics}
    waiting = {
        (t, p): end - start.topics[t].get(p, 0)
        for t, partitions in ends.items()
        for p, end in partitions.items()
    }
    if on_data_loss == "fail":
        _refuse_recreated_topics(recreated, ends, waiting)
    known = {partition: count for partition, count in waiting.items() if partition[0] not in recreated}
    known = _limit_counts(known, alignment or WatermarkAlignment(), limit)
    counts = waiting | known
    topics = {
        t: {p: start.topics[t].get(p, 0) + counts[t, p] for p in partitions} for t, partitions in ends.items()
    }
    return Offsets(topics, max(now, start.clock), bounded, {**start.ids, **ids}, ended=start.ended)


def _refuse_recreated_topics(
    recreated: Collection[str], ends: Mapping[str, Mapping[int, int]], waiting: Mapping[TopicPartition, int]
) -> None:
    """Raises `OffsetGone` for topics with another id than before,
    and for those that end before what was already read.
    """
    for topic in sorted(recreated):
        raise OffsetGone(
            f"{topic} was made anew since it was read, so what was read of it tells nothing about what it "
            f"holds now: {DATA_LOSS_REMEDY}"
        )
    for (topic, partition), count in waiting.items():
        if count < 0:
            raise OffsetGone(
                f"{topic}[{partition}] ends at {ends[topic][partition]}, before what was already read; it "
                f"was made anew: {DATA_LOSS_REMEDY}"
            )


def _limit_counts(
    waiting: Mapping[TopicPartition, int], alignment: WatermarkAlignment, limit: int | None
) -> dict[TopicPartition, int]:
    """How many records to read of each partition: none where it is too far ahead, and in proportion where
    there are more than `limit`.

    Example: limit 100, and 300, 100 and 0 records wait. 75, 25 and 0 are read, so that partitions keep step
    in event time.
    """
    too_far = alignment.find_too_far_ahead({partition for partition, count in waiting.items() if count})
    counts = {partition: 0 if partition in too_far else count for partition, count in waiting.items()}
    total = sum(count for count in counts.values() if count > 0)
    if limit is None or total <= limit:
        return counts
    return {
        partition: -(-count * limit // total) if count > 0 else count for partition, count in counts.items()
    }


def plan_ranges(
    log: TopicEnds, start: Offsets, end: Offsets, on_data_loss: OnDataLoss = "fail"
) -> list[tuple[str, int, int, int]]:
    """The ranges of a batch: topic, partition, and the offsets `[begin, end)`. A topic that was made anew is
    read whole: its begin is after its end.

    A topic that was made anew while a batch of it was begun and not finished has nothing of that batch:
    `OffsetGone`, unless it may be lost.
    """
    recreated = Offsets({}, 0, ids=_read_topic_ids(log, end.topics)).recreated_topics(end)
    for topic in sorted(recreated) if on_data_loss == "fail" else ():
        raise OffsetGone(
            f"{topic} was made anew while a batch of it was begun and not finished, so the batch cannot be "
            f"repeated: {DATA_LOSS_REMEDY}"
        )
    begins = {
        (topic, p): offset for topic, partitions in start.topics.items() for p, offset in partitions.items()
    }
    ends = {(topic, p): stop for topic, partitions in end.topics.items() for p, stop in partitions.items()}
    begins |= {
        topic_partition: stop + 1
        for topic_partition, stop in ends.items()
        if topic_partition[0] in end.recreated_topics(start)
    }
    begins |= {
        topic_partition: stop for topic_partition, stop in ends.items() if topic_partition[0] in recreated
    }
    return [
        (*topic_partition, begins.get(topic_partition, 0), stop)
        for topic_partition, stop in sorted(ends.items())
    ]


def is_waiting_for_empty(offsets: Offsets, started_at: int, tick: int) -> bool:
    """Whether a partition that has never held a record still holds the watermark back, in a run that began at
    `since`.

    Batches then come though no event does, until the partition counts as idle.
    """
    return offsets.has_empty and offsets.clock - started_at < EMPTY_PARTITION_TIMEOUT + 2 * tick


def has_to_close_empty(start: Offsets, end: Offsets) -> bool:
    """Whether this is the first bounded batch over a partition that has never held a record,
    which no longer counts from then on.
    """
    return end.bounded and not start.bounded and end.has_empty


def check_caught_up(target: Offsets, done: Offsets | None) -> None:
    """Raises `RunFailed` if a run has ended before it had caught up."""
    for topic, partitions in target.topics.items():
        for partition, end in partitions.items():
            offset = 0 if done is None else done.topics.get(topic, {}).get(partition, 0)
            if offset < end:
                raise RunFailed(
                    f"the run ended before it had caught up: {topic}[{partition}] was read up to {offset} "
                    f"of {end}; run it again, it goes on from there"
                )


def read_partition(
    log: Log,
    topic: Topic,
    partition: int,
    start: int,
    end: int,
    *,
    on_data_loss: OnDataLoss = "fail",
    columns: frozenset[str] | None = None,
) -> PartitionBatch:
    """The rows of one range of one partition; where the log no longer has all of it, what `lost` says.
    With `wanted`, those columns of its type alone.
    """
    records = None if start == end else _read_records(log, topic.name, partition, start, end, on_data_loss)
    if records is None:
        return PartitionBatch(topic.name, partition, end_offset=end)
    return PartitionBatch(
        topic.name,
        partition,
        decode(topic, partition, records, wanted_columns=columns),
        records,
        end_offset=end,
    )


def _read_records(
    log: Log, topic: str, partition: int, start: int, end: int, on_data_loss: OnDataLoss
) -> Records | None:
    try:
        if start < end:
            return log.read(topic, partition, start, end)
    except OffsetGone as error:
        if on_data_loss == "fail":
            raise OffsetGone(
                f"{topic}[{partition}] no longer has what comes next ({error}); {DATA_LOSS_REMEDY}"
            ) from error
    begin = log.start_offsets(topic)[partition]
    _log.warning(
        "%s[%d] no longer has what comes next, from %d on: going on with the %s",
        topic,
        partition,
        start,
        on_data_loss,
    )
    return log.read(topic, partition, begin, end) if on_data_loss == "earliest" and begin < end else None


def read_batch(
    log: Log, plan: Plan, start: Offsets, end: Offsets, on_data_loss: OnDataLoss = "fail"
) -> list[PartitionBatch]:
    """All partitions of all topics, with what is new between two offsets."""
    topics = {topic.name: topic for topic in plan.topics}
    return [
        read_partition(
            log,
            topics[name],
            partition,
            begin,
            stop,
            on_data_loss=on_data_loss,
            columns=plan.needed_columns[name],
        )
        for name, partition, begin, stop in plan_ranges(log, start, end, on_data_loss)
    ]
