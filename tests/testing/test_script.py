"""Users' unit tests: a job under a scripted stream, on the model and on the engine alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import polars as pl
import pytest

import millrace as mr
from millrace import testing, watermarks, windows
from millrace.errors import DefinitionError


@dataclass
class Wheel:
    size: int


@dataclass
class Position:
    vehicle: str
    cell: int
    seen: datetime | None
    lines: list[str]
    wheel: Wheel


@dataclass
class Count:
    cell: int
    count: int


@dataclass
class Watermarked:
    watermark: int


POSITIONS, OTHERS = mr.Topic("input.positions", Position), mr.Topic("input.others", Position)
COUNTS = mr.Topic("analytics.counts", Count)
On = Literal["model", "engine"]
on_both = pytest.mark.parametrize("on", ["model", "engine"])


def per_cell(*topics: mr.Topic, idle: str | None = None) -> mr.Job:
    reads = [mr.read(topic, watermark=watermarks.bounded("1s", idle=idle)) for topic in topics]
    rows = reads[0].union(*reads[1:]) if len(reads) > 1 else reads[0]
    return mr.Job(
        "per-cell",
        rows.window(windows.fixed("10s"), lateness="5s")
        .group_by("vehicle")
        .latest("cell")
        .group_by("cell")
        .count()
        .write(COUNTS),
    )


def shown(script: testing.Script) -> list[tuple[int, int, str, str]]:
    return sorted((pane["cell"], pane["count"], pane["timing"], pane["op"]) for pane in script.panes())


@on_both
def test_windows_are_complete_when_the_script_says_so(on: On) -> None:
    script = testing.Script(per_cell(POSITIONS), on=on)
    script.events(
        {"vehicle": "a", "cell": 1, "event_time": 1_000}, {"vehicle": "b", "cell": 1, "event_time": 2_000}
    )
    script.events({"vehicle": "a", "cell": 2, "event_time": 90_000})
    assert shown(script) == []
    script.watermark("10s")
    assert shown(script) == [(1, 2, "on_time", "+")]
    assert shown(script) == []


@on_both
def test_a_late_event_moves_a_vehicle_from_one_cell_to_another(on: On) -> None:
    script = testing.Script(per_cell(POSITIONS), on=on)
    script.events(
        {"vehicle": "a", "cell": 1, "event_time": 1_000}, {"vehicle": "b", "cell": 1, "event_time": 2_000}
    )
    script.watermark("10s")
    script.restart()
    assert shown(script) == [(1, 2, "on_time", "+")]
    script.events({"vehicle": "a", "cell": 2, "event_time": 3_000})
    assert shown(script) == [(1, 1, "late", "+"), (2, 1, "late", "+")]
    script.events({"vehicle": "b", "cell": 2, "event_time": 3_000})
    assert shown(script) == [(1, 1, "late", "-"), (2, 2, "late", "+")]


@on_both
def test_refused_events_come_back_as_they_were_given(on: On) -> None:
    script = testing.Script(per_cell(POSITIONS), on=on)
    script.watermark("15s")
    script.events(
        {"vehicle": "a", "cell": 1, "event_time": 9_999}, {"vehicle": "a", "cell": 1, "event_time": 10_000}
    )
    assert script.late() == [{"vehicle": "a", "cell": 1, "event_time": 9_999, "reason": "late", "missed": 1}]
    assert script.late() == []


@on_both
def test_an_event_too_far_in_the_future_is_set_aside(on: On) -> None:
    script = testing.Script(per_cell(POSITIONS), on=on)
    script.events({"vehicle": "a", "cell": 1, "event_time": 3_700_000, "ingestion_time": 0})
    assert [row["reason"] for row in script.late()] == ["future"]


@on_both
def test_every_topic_and_partition_holds_the_watermark_back(on: On) -> None:
    script = testing.Script(per_cell(POSITIONS, OTHERS), on=on, partitions=2)
    script.events({"vehicle": "a", "cell": 1, "event_time": 1_000}, topic=POSITIONS, partition=1)
    script.watermark("10s", topic="input.positions")
    script.watermark("10s", topic=OTHERS, partition=0)
    assert shown(script) == []
    script.watermark("10s", topic=OTHERS, partition=1)
    assert shown(script) == [(1, 1, "on_time", "+")]


@on_both
def test_a_quiet_partition_holds_nothing_back_once_it_is_idle(on: On) -> None:
    script = testing.Script(per_cell(POSITIONS, idle="30s"), on=on, partitions=2)
    script.clock("1s")
    script.events({"vehicle": "a", "cell": 1, "event_time": 1_000}, partition=0)
    script.watermark("10s", partition=0)
    script.clock("30s")
    assert shown(script) == []
    script.clock("31s")
    assert shown(script) == [(1, 1, "on_time", "+")]


@on_both
def test_the_end_completes_everything(on: On) -> None:
    script = testing.Script(per_cell(POSITIONS), on=on)
    script.events({"vehicle": "a", "cell": 1, "event_time": 1_000})
    script.end()
    assert [pane["final"] for pane in script.panes(COUNTS)] == [True]


@on_both
def test_every_kind_of_field_can_be_scripted(on: On) -> None:
    job = mr.Job(
        "all", mr.read(POSITIONS).filter(pl.col("cell") > 0).write(mr.Topic("analytics.all", Position))
    )
    script = testing.Script(job, on=on)
    seen = datetime(2026, 1, 1, tzinfo=UTC)
    script.events(
        {"vehicle": "a", "cell": 1, "seen": seen, "lines": ["7"], "wheel": {"size": 3}, "event_time": 5}
    )
    script.events({"cell": 2, "event_time": 6})
    first, second = script.panes()
    assert (first["seen"], first["lines"], first["wheel"], first["event_time"]) == (
        seen,
        ["7"],
        {"size": 3},
        5,
    )
    assert (second["vehicle"], second["lines"]) == (None, [])


@on_both
def test_a_type_may_have_a_field_called_watermark(on: On) -> None:
    topic = mr.Topic("input.marks", Watermarked)
    script = testing.Script(
        mr.Job("marks", mr.read(topic).write(mr.Topic("analytics.marks", Watermarked))), on=on
    )
    script.events({"watermark": 7, "event_time": 1})
    script.watermark(5)
    assert [row["watermark"] for row in script.panes()] == [7]


def test_mistakes_in_a_script_are_named() -> None:
    script = testing.Script(per_cell(POSITIONS), on="model")
    with pytest.raises(DefinitionError, match="has no event_time"):
        script.events({"vehicle": "a"})
    with pytest.raises(DefinitionError, match=r"has no field 'wheels'; it has vehicle, cell"):
        script.events({"wheels": 4, "event_time": 1})
    with pytest.raises(
        DefinitionError,
        match=r"topic='input.others' is read by none of the jobs; name one of input.positions",
    ):
        script.events({"event_time": 1}, topic=OTHERS)
    with pytest.raises(DefinitionError, match=r"partition=1: input.positions has 1"):
        script.events({"event_time": 1}, partition=1)
    with pytest.raises(DefinitionError, match="on='flink' is unknown"):
        testing.Script(per_cell(POSITIONS), on="flink")  # type: ignore[arg-type]


def counted(window: windows.WindowFn) -> mr.Job:
    return mr.Job("counted", mr.read(POSITIONS).window(window).group_by("cell").count().write(COUNTS))


class Shifts(windows.WindowFn):
    """A user's own: eight hours from six in the morning, as long as anybody works;
    those that overlap are one.
    """

    merging = True

    def assign(self, at: int) -> list[tuple[int, int]]:
        start = (at - 6) // 8 * 8 + 6
        return [(start, start + 8 + at % 2)]

    def merge(self, windows: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        groups: list[list[tuple[int, int]]] = []
        for window in windows:
            if groups and window[0] < max(end for _, end in groups[-1]):
                groups[-1].append(window)
            else:
                groups.append([window])
        return groups


@on_both
def test_windows_of_the_users_own_are_assigned_and_merged(on: On) -> None:
    script = testing.Script(counted(Shifts()), on=on)
    script.events(*({"cell": 1, "event_time": at} for at in (6, 7, 14, 22)))
    script.restart()
    script.end()
    assert [(p["window_start"], p["window_end"], p["count"]) for p in script.panes()] == [
        (6, 22, 3),
        (22, 30, 1),
    ]


def test_events_of_one_batch_may_lie_in_several_partitions() -> None:
    script = testing.Script(counted(windows.fixed(10)), partitions=2)
    script.events(*[{"cell": 1, "event_time": 1}] * 3, partition=[0, 1, 1])
    script.watermark(10, partition=0)
    assert script.panes() == []
    script.watermark(10, partition=1)
    assert [pane["count"] for pane in script.panes()] == [3]


@on_both
def test_a_job_may_keep_its_own_watermark(on: On) -> None:
    def at(vehicle: str, cell: int, time: int) -> dict[str, object]:
        return {"vehicle": vehicle, "cell": cell, "event_time": time}

    script = testing.Script(per_cell(POSITIONS), on=on, watermarks="own")
    script.events(at("a", 1, 2_000), at("b", 1, 10_999))
    assert shown(script) == []
    script.events(at("a", 1, 11_000))
    assert shown(script) == [(1, 1, "on_time", "+")]
    script.end()
    assert shown(script) == [(1, 2, "on_time", "+")]
    with pytest.raises(DefinitionError, match="only events move them"):
        script.watermark("20s")
