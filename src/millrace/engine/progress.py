"""Partition watermarks, and the low watermark of an operator.

Every source partition has a clock: the largest event time it has shown so far, capped by the ingestion time.
The partition's watermark is its clock minus the delay. The low watermark of an operator is the minimum over
all partitions that are not idle. It never goes back.

Example with a delay of 2 s and partitions that fall idle after 10 s. `-` means that the partition has shown
no row yet.

    batch  now    clock p0  clock p1  watermark p0  watermark p1  low watermark
    1      100 s  98 s      -         96 s          -             -      p1 has no row, so nothing is complete
    2      105 s  104 s     90 s      102 s         88 s          88 s
    3      116 s  115 s     90 s      113 s         idle          113 s  p1 was silent for 10 s, is left out
    4      117 s  115 s     91 s      113 s         113 s         113 s  p1 wakes up; the floor is 113 s

The floor is needed because windows were dropped by the low watermark while the partition slept. A row of it
at 91 s is judged by 113 s, and is late.

Everything here is a pure function of the reports that batches bring, so a replay gives the same watermarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.durations import END_OF_STREAM
from millrace.engine.lag_estimate import LagEstimate, LagReport, LagSegment, update_lag_estimate
from millrace.watermarks import Percentile


@dataclass(frozen=True)
class PartitionProgress:
    """One partition, as one operator sees it."""

    clock: int | None = None
    floor: int | None = None
    """The low watermark at the moment the partition last woke up.
    Its rows are judged at least this strictly.
    """
    last_active: int = 0
    is_idle: bool = False
    learned_watermark: int | None = None
    """The watermark, where the delay is learned: the delay may shrink, the watermark may not go back."""
    lag_estimate: LagEstimate | None = None

    def watermark(self, delay: int) -> int | None:
        """How far this partition vouches; null before its first row."""
        own = (
            self.learned_watermark
            if self.lag_estimate is not None
            else None
            if self.clock is None
            else self.clock - delay
        )
        return _latest(own, self.floor)


@dataclass(frozen=True)
class PartitionWatermark:
    """How far a partition of a topic vouches; null before its first row."""

    topic: str
    partition: int
    watermark: int | None
    is_idle: bool = False


@dataclass(frozen=True)
class WatermarkHold:
    """What holds a watermark back."""

    topic: str
    partition: int
    behind: int | None
    """How much further the watermark would be without this partition, in milliseconds; null:
    it has brought nothing yet.
    """


def find_hold(partitions: Sequence[PartitionWatermark]) -> WatermarkHold | None:
    """The partition without which the watermark would be further; none if all are equally far."""
    awake = [entry for entry in partitions if not entry.is_idle]
    for entry in awake:
        if entry.watermark is None:
            return WatermarkHold(entry.topic, entry.partition, None)
    all_known = sorted(
        (entry.watermark, entry.topic, entry.partition) for entry in partitions if entry.watermark is not None
    )
    awake_known = sorted(
        (entry.watermark, entry.topic, entry.partition) for entry in awake if entry.watermark is not None
    )
    others = awake_known[1:2] or all_known[-1:]
    if not awake_known or others[0][0] <= awake_known[0][0]:
        return None
    least, topic, partition = awake_known[0]
    return WatermarkHold(topic, partition, others[0][0] - least)


@dataclass(frozen=True)
class PartitionReport:
    """What one batch says of one channel: a partition of a topic, or an operator whose results come in."""

    clock: int | None
    """The time up to which it has come; of an operator its low watermark."""
    has_rows: bool
    delay: int
    idle_after: int | None
    percentile: Percentile | None = None
    """How the delay is learned, and from what, where it is."""
    lags: tuple[LagReport, ...] = ()
    source: tuple[str, int] | None = None
    """The topic and the partition; null: an operator."""
    is_upstream: bool = False
    """Whether the clock is that of the writers of the topic."""

    def contradicts(self, clock: int | None) -> bool:
        """Whether a clock that is stored is not that of the writers: the job had another watermark before."""
        is_beyond = clock is not None and (self.clock is None or clock > self.clock)
        return is_beyond and self.is_upstream

    def moves(self, clock: int | None) -> bool:
        """Whether the clock of a partition moves, as it may without rows where the writers of its topic set
        it.
        """
        return self.is_upstream and self.clock is not None and (clock is None or self.clock > clock)


@dataclass(frozen=True)
class Progress:
    """The channels and the low watermark of one operator."""

    partitions: dict[str, PartitionProgress] = field(default_factory=dict)
    low_watermark: int | None = None
    dropped_until: int | None = None
    """Windows that end up to here were dropped, as the lateness was shorter then: no row begins them anew."""
    added_since: Mapping[str, int] = field(default_factory=dict)
    """Aggregates that were added to windows that had begun, each with the last start of such a window."""

    def wake(self, reports: Mapping[str, PartitionReport], now: int) -> Progress:
        """Channels that are new are known from now on; those that bring rows may not be behind the low
        watermark, as windows are dropped by it.

        They are behind it where they were idle, came later, or have a watermark of another delay than before.
        """
        partitions = dict(self.partitions)
        for name, report in reports.items():
            partition = partitions.get(name, PartitionProgress(last_active=now))
            if report.contradicts(partition.clock):
                partition = replace(partition, clock=None)
            if report.has_rows and self.low_watermark is not None:
                own = partition.watermark(report.delay)
                if partition.is_idle or own is None or own < self.low_watermark:
                    partition = replace(partition, floor=_latest(partition.floor, self.low_watermark))
            partitions[name] = (
                replace(partition, is_idle=False) if partition.is_idle and report.has_rows else partition
            )
        return replace(self, partitions=partitions)

    def lag_segments(self, name: str, report: PartitionReport) -> list[LagSegment]:
        """How the rows of a batch are judged, where the delay is learned."""
        partition = self.partitions[name]
        assert report.percentile is not None
        return update_lag_estimate(
            report.percentile,
            partition.lag_estimate or LagEstimate(),
            partition.clock,
            partition.learned_watermark,
            report.lags,
        )[2]

    def advance(self, reports: Mapping[str, PartitionReport], now: int, *, at_end: bool) -> Progress:
        """After the rows of a batch: clocks advance, the quiet fall idle, and the low watermark follows."""
        partitions = dict(self.partitions)
        for name, report in reports.items():
            partition = partitions[name]
            if report.percentile is not None:
                estimate, learned_watermark, _ = update_lag_estimate(
                    report.percentile,
                    partition.lag_estimate or LagEstimate(),
                    partition.clock,
                    partition.learned_watermark,
                    report.lags,
                )
                partition = replace(partition, learned_watermark=learned_watermark, lag_estimate=estimate)
            is_active = report.has_rows or report.moves(partition.clock)
            partition = replace(partition, clock=_latest(partition.clock, report.clock))
            if is_active:
                partition = replace(partition, last_active=now, is_idle=False)
            elif report.idle_after is not None and now - partition.last_active >= report.idle_after:
                partition = replace(partition, is_idle=True)
            partitions[name] = partition
        if at_end:
            return replace(self, partitions=partitions, low_watermark=END_OF_STREAM)
        return replace(
            self,
            partitions=partitions,
            low_watermark=_latest(self.low_watermark, _minimum_watermark(partitions, reports)),
        )

    def partition_watermarks(self, reports: Mapping[str, PartitionReport]) -> list[PartitionWatermark]:
        """How far each partition is."""
        found = []
        for name, report in reports.items():
            progress = self.partitions[name]
            if report.source is not None:
                watermark = progress.watermark(report.delay)
                found.append(PartitionWatermark(*report.source, watermark, progress.is_idle))
        return found

    def is_idle(self, reports: Mapping[str, PartitionReport]) -> bool:
        """Whether all channels are idle."""
        return all(self.partitions[name].is_idle for name in reports)

    def to_json(self) -> Any:
        """As plain values."""
        plain = {
            "low": self.low_watermark,
            "channels": {n: _partition_to_json(c) for n, c in self.partitions.items()},
        }
        return (
            plain
            | ({} if self.dropped_until is None else {"gone": self.dropped_until})
            | ({"since": dict(self.added_since)} if self.added_since else {})
        )

    @classmethod
    def from_json(cls, data: Any) -> Progress:
        """The progress of `to_json`; none yet if null."""
        if data is None:
            return cls()
        partitions = {n: _partition_from_json(*c) for n, c in data["channels"].items()}
        return cls(partitions, data["low"], data.get("gone"), data.get("since", {}))


def _partition_to_json(partition: PartitionProgress) -> list[Any]:
    plain = [partition.clock, partition.floor, partition.last_active, partition.is_idle]
    return (
        plain
        if partition.lag_estimate is None
        else [*plain, partition.learned_watermark, partition.lag_estimate.to_json()]
    )


def _partition_from_json(
    clock: int | None,
    floor: int | None,
    last_active: int,
    is_idle: bool,
    learned_watermark: int | None = None,
    lags: Any = None,
) -> PartitionProgress:
    return PartitionProgress(
        clock, floor, last_active, is_idle, learned_watermark, LagEstimate.from_json(lags)
    )


def _minimum_watermark(
    partitions: dict[str, PartitionProgress], reports: Mapping[str, PartitionReport]
) -> int | None:
    """The minimum over partitions that are not idle; None while one of them has shown no row.

    Where all are idle, the furthest one counts: nobody is left to wait for.
    """
    watermarks = {name: partitions[name].watermark(report.delay) for name, report in reports.items()}
    awake = [watermarks[name] for name in reports if not partitions[name].is_idle]
    if awake:
        known = [watermark for watermark in awake if watermark is not None]
        return min(known) if len(known) == len(awake) else None
    return max((watermark for watermark in watermarks.values() if watermark is not None), default=None)


def _latest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)
