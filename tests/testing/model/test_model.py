"""The model itself, against timelines worked out by hand."""

from dataclasses import dataclass
from typing import Any

import polars as pl

import millrace as mr
from millrace import aggregates, triggers, watermarks, windows
from millrace.stream import Stream
from millrace.testing.model.model import Model
from millrace.testing.model.source import SourceEvent
from millrace.watermarks import Watermark


@dataclass
class Reading:
    key: str
    value: int


@dataclass
class Total:
    key: str
    total: int


A, B, OUT = mr.Topic("input.a", Reading), mr.Topic("input.b", Reading), mr.Topic("analytics.out", Total)
Shown = list[tuple[str, int, int, int, str, str]]


class Run:
    """A model fed with short words: topic and partition, then rows as (time, key,
    value) with ingestion at the batch's clock.
    """

    def __init__(self, stream: Stream, partitions: int = 1) -> None:
        job = mr.Job("job", stream.write(OUT))
        self.model = Model([job], {"input.a": partitions, "input.b": partitions})
        self.offset = 0
        self.late: list[tuple[str, int]] = []

    def __call__(self, now: int, *rows: tuple[str, int, int, str, int], end: bool = False) -> Shown:
        batch = []
        for topic, partition, at, key, value in rows:
            batch.append(
                SourceEvent(f"input.{topic}", partition, self.offset, at, now, {"key": key, "value": value})
            )
            self.offset += 1
        written, late = self.model.step(batch, now, end=end)
        self.late = [(report["reason"], report["missed"]) for report in late["job"]]
        panes = written.get("analytics.out", [])
        return sorted(
            (p["key"], p["window_end"], p["total"], p["index"], p["timing"], p["op"]) for p in panes
        )

    @property
    def low(self) -> int | None:
        return self.model.watermarks["job/aggregation-1"]


def totals(*topics: mr.Topic, watermark: Watermark | None = None, **windowing: Any) -> Stream:
    reads = [mr.read(topic, watermark=watermark or watermarks.bounded(0)) for topic in topics]
    rows = reads[0].union(*reads[1:]) if len(reads) > 1 else reads[0]
    return rows.window(windows.fixed(10), **windowing).group_by("key").sum("value", name="total")


def test_the_clock_follows_event_time_but_never_past_ingestion() -> None:
    run = Run(totals(A, watermark=watermarks.bounded(2)))
    run(100, ("a", 0, 50, "k", 1))
    assert run.low == 48
    run(100, ("a", 0, 400, "k", 1))
    assert run.low == 98
    run(200, ("a", 0, 10, "k", 1))
    assert run.low == 98


def test_rows_that_a_filter_removes_still_move_the_clock() -> None:
    rows = mr.read(A, watermark=watermarks.bounded(0)).filter(pl.col("value") > 0)
    run = Run(rows.window(windows.fixed(10)).group_by("key").sum("value", name="total"))
    assert run(100, ("a", 0, 5, "k", 1)) == []
    assert run(100, ("a", 0, 20, "k", 0)) == [("k", 10, 1, 0, "on_time", "+")]


def test_punctuation_moves_the_clock_where_it_says_something() -> None:
    run = Run(
        totals(A, watermark=watermarks.punctuation(pl.when(pl.col("key") == "mark").then(pl.col("value"))))
    )
    run(100, ("a", 0, 5, "k", 1), ("a", 0, 50, "k", 1))
    assert run.low is None
    assert run(100, ("a", 0, 12, "mark", 10)) == [("k", 10, 1, 0, "on_time", "+")]
    assert run.low == 10


def test_a_row_is_judged_by_its_own_partition_as_it_stood_at_that_row() -> None:
    run = Run(totals(A, lateness=5), partitions=2)
    shown = run(
        100,
        ("a", 0, 3, "k", 1),
        ("a", 0, 15, "k", 1),
        ("a", 0, 3, "k", 100),
        ("a", 1, 3, "k", 1_000),
        ("a", 1, 14, "k", 1),
    )
    assert shown == [("k", 10, 1_001, 0, "on_time", "+")]
    assert run.late == [("late", 1)]
    assert run.low == 14


def test_the_watermark_stands_still_until_every_partition_was_seen() -> None:
    run = Run(totals(A, B))
    run(100, ("a", 0, 50, "k", 1))
    assert run.low is None
    run(100, ("b", 0, 30, "k", 1))
    assert run.low == 30


def test_a_partition_that_wakes_up_is_not_behind_the_low_watermark() -> None:
    run = Run(totals(A, watermark=watermarks.bounded(0, idle=50)), partitions=2)
    run(100, ("a", 0, 100, "k", 1))
    assert run.low is None
    run(149, ("a", 0, 140, "k", 1))
    assert run.low is None
    run(150, ("a", 0, 145, "k", 1))
    assert run.low == 145
    assert run(160, ("a", 1, 120, "k", 1)) == []
    assert run.late == [("late", 1)]
    assert run.low == 145


def test_when_all_are_idle_the_greatest_counts() -> None:
    run = Run(totals(A, watermark=watermarks.bounded(0, idle=50)), partitions=2)
    run(100, ("a", 0, 100, "k", 1), ("a", 1, 60, "k", 1))
    assert run.low == 60
    run(149)
    assert run.low == 60
    run(150)
    assert run.low == 100


def test_a_row_too_far_ahead_is_set_aside_from_all_its_windows() -> None:
    rows = mr.read(A, watermark=watermarks.bounded(0, ahead=10)).window(windows.sliding(10, every=5))
    run = Run(rows.group_by("key").sum("value", name="total"))
    assert run(100, ("a", 0, 111, "k", 1), ("a", 0, 110, "k", 1), end=True) == [
        ("k", 115, 1, 0, "on_time", "+"),
        ("k", 120, 1, 0, "on_time", "+"),
    ]
    assert run.late == [("future", 2)]


def test_a_trigger_that_fires_once_closes_its_window() -> None:
    run = Run(totals(A, trigger=triggers.at_watermark(late=triggers.never()), lateness=100))
    assert run(100, ("a", 0, 5, "k", 1), ("a", 0, 10, "k", 1), ("a", 0, 6, "k", 1)) == [
        ("k", 10, 2, 0, "on_time", "+")
    ]
    assert run(100, ("a", 0, 7, "k", 1)) == []
    assert run.late == [("closed", 1)]


def test_late_panes_count_on_and_retract_if_asked() -> None:
    run = Run(totals(A, lateness=100, accumulation="retracting"))
    run(100, ("a", 0, 5, "k", 1), ("a", 0, 10, "k", 1))
    assert run(100, ("a", 0, 6, "k", 2), ("a", 0, 7, "k", 3)) == [
        ("k", 10, 1, 1, "late", "-"),
        ("k", 10, 6, 1, "late", "+"),
    ]
    assert run(100, ("a", 0, 6, "n", 2)) == [("n", 10, 2, 0, "late", "+")]


def chained(*, then: Any = None) -> Stream:
    newest = (
        mr.read(A, watermark=watermarks.bounded(0))
        .window(windows.fixed(10), lateness=100)
        .group_by("key")
        .latest("value")
    )
    newest = then(newest) if then else newest
    return (
        newest.with_columns(key=(pl.col("value") % 2).cast(pl.String))
        .group_by("key")
        .sum("value", name="total")
    )


def test_a_correction_upstream_is_subtracted_and_added_downstream() -> None:
    run = Run(chained())
    assert run(100, ("a", 0, 1, "k", 3), ("a", 0, 2, "l", 5), ("a", 0, 10, "m", 2)) == [
        ("1", 10, 8, 0, "on_time", "+")
    ]
    assert run(100, ("a", 0, 3, "k", 4)) == [("0", 10, 4, 0, "late", "+"), ("1", 10, 5, 1, "late", "+")]
    assert run(100, ("a", 0, 4, "l", 6)) == [("0", 10, 10, 1, "late", "+"), ("1", 10, 5, 2, "late", "-")]
    assert run(100, ("a", 0, 5, "l", 7)) == [("0", 10, 4, 2, "late", "+"), ("1", 10, 7, 3, "late", "+")]


def test_an_equal_value_does_not_travel() -> None:
    run = Run(chained())
    run(100, ("a", 0, 1, "k", 3), ("a", 0, 10, "m", 2))
    assert run(100, ("a", 0, 2, "k", 3)) == []


def test_panes_in_another_window_wait_for_its_end() -> None:
    run = Run(chained(then=lambda panes: panes.window(windows.fixed(20), lateness=0)))
    assert run(100, ("a", 0, 1, "k", 3), ("a", 0, 12, "l", 5)) == []
    assert run(100, ("a", 0, 20, "m", 1)) == [("1", 20, 8, 0, "on_time", "+")]
    assert run(100, ("a", 0, 2, "k", 7)) == [("1", 20, 12, 1, "late", "+")]


def test_panes_that_meet_from_two_streams_come_early() -> None:
    one, two = (
        mr.read(topic, watermark=watermarks.bounded(0)).window(windows.fixed(10)).group_by("key").sum("value")
        for topic in (A, B)
    )
    run = Run(one.union(two).group_by("key").sum("value", name="total"))
    assert run(100, ("a", 0, 1, "k", 3), ("a", 0, 10, "k", 1)) == [("k", 10, 3, 0, "early", "+")]
    assert run(100, ("b", 0, 1, "k", 4), ("b", 0, 10, "k", 1)) == [("k", 10, 7, 1, "on_time", "+")]


def test_latest_is_by_time_then_topic_then_partition_then_offset() -> None:
    rows = mr.read(B, watermark=watermarks.bounded(0)).union(mr.read(A, watermark=watermarks.bounded(0)))
    run = Run(
        rows.window(windows.fixed(10)).group_by("key").aggregate(total=aggregates.latest("value")),
        partitions=2,
    )
    rows_in_any_order = [
        ("b", 1, 5, "k", 4),
        ("b", 0, 5, "k", 3),
        ("a", 1, 5, "k", 2),
        ("b", 1, 4, "k", 9),
        ("b", 1, 5, "k", 5),
    ]
    assert run(100, *rows_in_any_order, end=True) == [("k", 10, 5, 0, "on_time", "+")]
