"""A job explains itself: graph, stages, and what, where, when, how."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import aggregates, triggers, watermarks, windows
from millrace.graph.explain import explain


@dataclass
class Position:
    vehicle: str
    cell: int


@dataclass
class Count:
    cell: int
    count: int


POSITIONS, COUNTS = mr.Topic("input.positions", Position), mr.Topic("analytics.counts", Count)
LATE = mr.Topic(
    "late.positions",
    dataclass(
        type("Late", (), {"__annotations__": {"vehicle": str, "cell": int, "reason": str, "missed": int}})
    ),
)

NEWEST = (
    mr.read(POSITIONS, watermark=watermarks.bounded("1s", idle="10s"))
    .filter(pl.col("cell") > 0)
    .window(
        windows.sliding("30s", every="5s"),
        trigger=triggers.at_watermark(),
        lateness="1m",
        accumulation="retracting",
    )
    .group_by("vehicle")
    .latest("cell")
)
PER_CELL = mr.Job("per-cell", NEWEST.group_by("cell").count().write(COUNTS), NEWEST.late().write(LATE))

EXPLAINED = """\
job per-cell
   1  read input.positions (Position), watermark bounded('1s', idle='10s')
   2  filter([(col("cell")) > (dyn int: 0)])  ← 1
   3  aggregate per-cell/aggregation-1  ← 2
        what      cell = latest('cell') by vehicle
        where     sliding('30s', every='5s')
        when      at_watermark()
        how       retracting panes
        lateness  a row is refused 1m after its window's end
        gives     a changelog: values, and those they replace
   4  aggregate per-cell/aggregation-2  ← 3
        what      count = count() by cell
        where     the window that the panes come in, sliding('30s', every='5s')
        when      at_watermark(), with the panes that come in
        how       retracting panes
        lateness  panes are never refused: they correct those that came before
        gives     a changelog: values, and those they replace
   5  write analytics.counts (Count)  ← 4
   6  late: the rows that were refused  ← 3
   7  write late.positions (Late)  ← 6

stages
  source   input.positions
  stage 1  per-cell/aggregation-1 by vehicle
  stage 2  per-cell/aggregation-2 by cell
  sink     analytics.counts, late.positions"""


def test_a_job_prints_its_graph_its_stages_and_its_answers() -> None:
    assert str(PER_CELL) == EXPLAINED


def test_jobs_that_run_together_share_stages() -> None:
    other = mr.Job(
        "other", NEWEST.group_by("cell").aggregate(count=aggregates.distinct("vehicle")).write(COUNTS)
    )
    text = explain([PER_CELL, other])
    assert "stages of the 2 jobs run together" in text
    assert "stage 1  per-cell/aggregation-1 by vehicle; other/aggregation-1 by vehicle" in text


def test_long_expressions_are_shortened_to_a_line() -> None:
    wide = (
        mr.read(POSITIONS)
        .filter(pl.any_horizontal(*(pl.col("cell") == n for n in range(100))))
        .write(mr.Topic("analytics.some", Position))
    )
    assert max(map(len, str(mr.Job("wide", wide)).splitlines())) < 120


def test_a_job_without_windows_has_no_stages() -> None:
    passing = mr.Job("passing", mr.read(POSITIONS).write(mr.Topic("analytics.some", Position)))
    assert "stage 1" not in str(passing)


def test_how_results_are_delivered_and_how_often_rows_go_around_is_said() -> None:
    again: type = dataclass(type("Again", (), {"__annotations__": {"vehicle": str, "round": int}}))
    topic = mr.Topic("loop.again", again)
    job = mr.Job("loop", mr.feed_back(mr.read(topic), topic, rounds=3), delivery="at_least_once")
    first, *steps = str(job).splitlines()
    assert first == "job loop, delivered at least once"
    assert any(
        line.strip().split("  ")[1].startswith("write loop.again (Again), at most 3 times around")
        for line in steps
        if "write" in line
    )
