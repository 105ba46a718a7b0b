"""What a batch brings to an operator: how far its channels are, and its rows.

A channel is a partition of a topic, or an operator whose results are rows. Each row carries `_w`, the
watermark of its own channel as it stood at that row: by it `lateness.py` judges the row. An operator shows
nothing behind its own low watermark, so its rows are late only where it was idle, and others went on without
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine.exchange import Block, Body, SourcePartition
from millrace.engine.lag_estimate import LagReport, watermarks_of_rows
from millrace.engine.plan import Operator
from millrace.engine.progress import PartitionReport, PartitionWatermark, Progress
from millrace.values.columns import CLOCK, PARTITION, ROW_INDEX, TOPIC, WATERMARK
from millrace.watermarks import Percentile, Upstream, Watermark


@dataclass(frozen=True)
class BatchProgress:
    """How far the partitions of an operator are, before and after a batch."""

    operator: Operator
    reports: Mapping[str, PartitionReport]
    before: Progress
    """With partitions that bring rows awake: by this, rows are judged."""
    after: Progress
    """With clocks, idleness and the low watermark moved: by this, windows fire and rows are released."""

    @classmethod
    def of(cls, operator: Operator, body: Body, saved: Any) -> BatchProgress:
        """From the progress as it is stored."""
        reports = collect_reports(operator, body)
        before = Progress.from_json(saved).wake(reports, body.now)
        at_end = _has_ended(operator, body)
        return cls(operator, reports, before, before.advance(reports, body.now, at_end=at_end))

    @property
    def watermark(self) -> int:
        """The low watermark after the batch."""
        return BEFORE_ALL if self.after.low_watermark is None else self.after.low_watermark

    @property
    def output_watermark(self) -> int | None:
        """The low watermark, less what results may be behind it: what follows the operator goes by this."""
        low = self.after.low_watermark
        return low if low is None or self.is_ended else low - self.operator.node.output_delay

    @property
    def is_ended(self) -> bool:
        """Whether no row follows."""
        return self.watermark >= END_OF_STREAM

    @property
    def is_idle(self) -> bool:
        """Whether all channels are idle."""
        return self.after.is_idle(self.reports)

    @property
    def partition_watermarks(self) -> Sequence[PartitionWatermark]:
        """How far each partition is."""
        return self.after.partition_watermarks(self.reports)

    def load_rows(self, blocks: Sequence[Block]) -> pl.DataFrame | None:
        """The rows of some blocks, each with its watermark."""
        return load_rows(self.operator, blocks, self.reports, self.before)


def collect_reports(operator: Operator, body: Body) -> dict[str, PartitionReport]:
    """What a batch says of each channel that the operator reads."""
    reports: dict[str, PartitionReport] = {}
    for index, (edge, upstream) in enumerate(zip(operator.edges, operator.upstream, strict=True)):
        if edge.read is None:
            assert upstream is not None
            is_idle = upstream in body.idle_operators
            reports[f"{index}/"] = PartitionReport(
                body.low_watermarks.get(upstream), not is_idle, 0, 0 if is_idle else None
            )
            continue
        topic = edge.read.topic.name
        for source in body.sources:
            if source.topic == topic:
                reports[f"{index}/{topic}/{source.partition}"] = report_partition(edge.read.watermark, source)
    return reports


def report_partition(watermark: Watermark, source: SourcePartition) -> PartitionReport:
    """What a batch says of a partition, as a read with this watermark sees it."""
    percentile = watermark if isinstance(watermark, Percentile) else None
    measured = source.lags.get(watermark.clock_id, ()) if percentile else ()
    return PartitionReport(
        source.clocks[watermark.clock_id],
        source.has_rows,
        watermark.delay,
        _idle_after(watermark, source),
        percentile,
        tuple(LagReport(*lag_report) for lag_report in measured),
        (source.topic, source.partition),
        isinstance(watermark, Upstream),
    )


def _has_ended(operator: Operator, body: Body) -> bool:
    """Whether no row follows on any channel."""
    topics = body.ended_topics
    return all(
        edge.read.topic.name in topics
        if edge.read is not None
        else body.low_watermarks.get(upstream or "") == END_OF_STREAM
        for edge, upstream in zip(operator.edges, operator.upstream, strict=True)
    )


def _idle_after(watermark: Watermark, partition: SourcePartition) -> int | None:
    """After how many milliseconds without rows the partition is idle; null: never.

    A partition that has never held a record does not wait for ever: nobody may be writing to it. In a bounded
    run it does not wait at all (`empty_after` is 0), whatever `idle` says. Nor does one that has ended, while
    other topics of the operator go on.
    """
    if partition.is_ended:
        return 0
    if watermark.idle is None or partition.idle_after_if_empty == 0:
        return partition.idle_after_if_empty
    return watermark.idle


def learned_watermarks(
    frame: pl.DataFrame, channel: str, reports: Mapping[str, PartitionReport], progress: Progress
) -> pl.Expr:
    """The watermark at each row of a source whose delay is learned."""
    names = {part: f"{channel}/{part}" for part in frame[PARTITION].unique()}
    clocks = {part: progress.partitions[name].clock for part, name in names.items()}
    segments = {part: progress.lag_segments(name, reports[name]) for part, name in names.items()}
    return pl.lit(watermarks_of_rows(frame, clocks, segments))


def by_partition(frame: pl.DataFrame, values: Mapping[int, int | None]) -> pl.Expr:
    """For each row the value of its partition: looked up by number, which takes a few microseconds where
    `replace_strict` takes a hundred, however small the frame.
    """
    distinct = {*values.values()}
    if len(distinct) <= 1:
        return pl.lit(distinct.pop() if distinct else None, pl.Int64)
    by_number = pl.Series([values.get(number) for number in range(max(values) + 1)], dtype=pl.Int64)
    return pl.lit(by_number.gather(frame[PARTITION]))


def _upstream_watermark(operator: Operator, block: Block, progress: Progress) -> pl.Expr:
    """By what rows of an operator are judged, besides the watermark that they bring: what the operator had
    vouched for before; of rows that it has let through, what others had when their partition woke up.
    """
    if operator.topic_of(block.channel) is None:
        return pl.lit(progress.partitions[block.channel].watermark(0), pl.Int64)
    floors = {
        part: progress.partitions[f"{block.channel}/{part}"].floor for part in block.frame[PARTITION].unique()
    }
    return by_partition(block.frame, floors)


def load_rows(
    operator: Operator, blocks: Sequence[Block], reports: Mapping[str, PartitionReport], progress: Progress
) -> pl.DataFrame | None:
    """All rows of a batch; `_w` is the watermark at each (null: none yet),
    `_topic` and `_part` say where it comes from.
    """
    frames = []
    for block in blocks:
        frame, delay = block.frame, 0
        topic = operator.topic_of(block.channel)
        origin = pl.lit(topic, pl.String).alias(TOPIC)
        if operator.carries_watermarks(block.channel):
            watermark = pl.max_horizontal(CLOCK, _upstream_watermark(operator, block, progress))
            frames.append(frame.with_columns(watermark.alias(WATERMARK), origin).drop(CLOCK))
            continue
        old_watermarks = {}
        for part in frame[PARTITION].unique():
            report = reports[f"{block.channel}/{part}"]
            delay = report.delay
            old_watermarks[part] = progress.partitions[f"{block.channel}/{part}"].watermark(delay)
        is_learned = any(reports[f"{block.channel}/{part}"].percentile is not None for part in old_watermarks)
        own = (
            learned_watermarks(frame, block.channel, reports, progress)
            if is_learned
            else pl.col(CLOCK) - delay
        )
        before = by_partition(frame, old_watermarks)
        frames.append(frame.with_columns(pl.max_horizontal(own, before).alias(WATERMARK), origin).drop(CLOCK))
    if not frames:
        return None
    return (frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")).with_row_index(
        ROW_INDEX
    )
