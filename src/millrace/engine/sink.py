"""From the packets of the last stage to what a batch has to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.engine.exchange import Body, SourcePartition, merge_bodies
from millrace.engine.isolation import Failure, parse_failure
from millrace.engine.late_share import LateShare
from millrace.engine.plan import Plan
from millrace.engine.progress import PartitionWatermark, WatermarkHold, find_hold
from millrace.values.columns import LATE_PARTITION, OFFSET, RECORD_KEY, RECORD_VALUE, ROW_COUNT, TOPIC


@dataclass(frozen=True)
class Results:
    """All that leaves a batch."""

    outputs: dict[str, pl.DataFrame]
    """By topic: panes, or rows where a job has no window."""
    late: dict[str, pl.DataFrame]
    """By job: refused rows with `reason` and `missed` (from how many windows), their origin (`topic`,
    `partition`, `offset`), how many rows one stands for (`_rows`), and their bytes where known (`_key`,
    `_value`).
    """
    dead: pl.DataFrame | None
    """Records that could not be decoded."""
    watermarks: dict[str, int | None]
    """The low watermark of each operator."""
    counts: dict[str, int]
    now: int
    partition_watermarks: Mapping[str, list[PartitionWatermark]] = field(default_factory=dict)
    """How far the partitions are that each operator over rows reads."""
    sources: Sequence[SourcePartition] = ()
    """What the batch reported of the partitions that were read; of some more than once."""
    failures: Sequence[Failure] = ()
    """Jobs whose code raised: nothing of this batch may be committed,
    but it must be run again without them.
    """

    encoded: Mapping[str, Any] = field(default_factory=dict)
    """By topic: `outputs` as records, where they were encoded already."""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Jobs that were stopped by their own code, in this batch or before, and why."""

    @property
    def ended(self) -> frozenset[str]:
        """The topics of which no row follows."""
        return frozenset(source.topic for source in self.sources if source.is_ended)

    @property
    def holds(self) -> dict[str, WatermarkHold]:
        """What holds the watermark of each such operator back, where anything does."""
        found = {
            operator: find_hold(reaches)
            for operator, reaches in self.partition_watermarks.items()
            if self.watermarks.get(operator) != END_OF_STREAM
        }
        return {operator: held_back for operator, held_back in found.items() if held_back is not None}


def gather(plan: Plan, bodies: Sequence[Body]) -> Results:
    """The results of a batch, each output in the order of its windows."""
    incoming = merge_bodies(bodies)
    outputs: dict[str, list[pl.DataFrame]] = {}
    late: dict[str, list[pl.DataFrame]] = {}
    dead: list[pl.DataFrame] = []
    failures: list[Failure] = []
    operators = {operator.id: operator for operator in plan.operators}
    for block in incoming.blocks:
        kind, _, name = block.target.partition("/")
        match kind:
            case "out":
                outputs.setdefault(name, []).append(block.frame)
            case "late":
                for job in operators[name].jobs:
                    late.setdefault(job, []).append(block.frame)
            case "failed":
                failures.append(parse_failure(block))
            case _:
                dead.append(block.frame)
    refused = {job: _add_origin(pl.concat(frames, how="diagonal_relaxed")) for job, frames in late.items()}
    written = sum(frame.height for frames in outputs.values() for frame in frames)
    return Results(
        {name: _sort_by_window(pl.concat(frames, how="vertical")) for name, frames in outputs.items()},
        refused,
        pl.concat(dead) if dead else None,
        incoming.low_watermarks,
        incoming.counts | _count_refused(refused) | ({"written": written} if written else {}),
        incoming.now,
        incoming.partition_watermarks,
        incoming.sources,
        failures,
    )


def _count_refused(late: Mapping[str, pl.DataFrame]) -> dict[str, int]:
    """How many rows each job refused: `late/JOB`, and `future/JOB` for those set aside as too far ahead."""
    counts: dict[str, int] = {}
    for job, frame in late.items():
        share = LateShare()
        share.add(0, frame, None)
        counts |= {
            f"{kind}/{job}": count
            for kind, count in (("late", share.late), ("future", share.future))
            if count
        }
    return counts


def _add_origin(late: pl.DataFrame) -> pl.DataFrame:
    """With the origin under plain names, which win over fields of the same name,
    and all internal columns there.
    """
    types = {
        TOPIC: pl.String,
        LATE_PARTITION: pl.Int64,
        OFFSET: pl.Int64,
        ROW_COUNT: pl.Int64,
        RECORD_KEY: pl.Binary,
        RECORD_VALUE: pl.Binary,
    }
    late = late.with_columns(pl.lit(None, t).alias(c) for c, t in types.items() if c not in late.columns)
    origin = {TOPIC: "topic", LATE_PARTITION: "partition", OFFSET: "offset"}
    late = late.with_columns(pl.when(pl.col(TOPIC).is_not_null()).then(OFFSET))
    return late.drop(*origin.values(), strict=False).rename(origin)


def _sort_by_window(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort("window_end", maintain_order=True) if "window_end" in frame.columns else frame
