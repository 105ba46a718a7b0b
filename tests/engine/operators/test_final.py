"""`final()`: of a changelog the rows that hold in the end, so that what takes rows in order can follow."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, patterns, triggers, watermarks, windows
from millrace.errors import DefinitionError
from millrace.stream import Stream
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from millrace.topics import Topic


@dataclass(frozen=True)
class Reading:
    room: str | None
    celsius: int


@dataclass(frozen=True)
class Total:
    room: str | None
    total: int | None


READINGS = Topic("input.readings", Reading)
TOTALS = Topic("analytics.totals", Total)


def readings(delay: int = 2) -> Stream:
    return mr.read(READINGS, watermark=watermarks.bounded(delay))


def totals(lateness: int = 5, **windowing: Any) -> Stream:
    windowed = readings().window(windows.fixed(10), lateness=lateness, **windowing)
    return windowed.group_by("room").sum("celsius", name="total")


def event(
    offset: int, at: int, celsius: int = 1, room: str | None = "hall", partition: int = 0
) -> SourceEvent:
    return SourceEvent(
        READINGS.name, partition, offset, at, 1_000 + offset, {"room": room, "celsius": celsius}
    )


def shown(
    stream: Stream, *batches: tuple[SourceEvent, ...], end: bool = False, partitions: int = 1
) -> list[Any]:
    """The results after each batch, with their event times; the engine and the model must agree."""
    job = mr.Job("totals", stream.write(TOTALS))
    engine = OnEngine((job,), {READINGS.name: partitions}, slots=2)
    model = OnModel((job,), {READINGS.name: partitions})
    results = []
    for number, batch in enumerate(batches):
        is_last = end and number == len(batches) - 1
        by_backend = []
        for backend in (engine, model):
            rows = backend.feed(batch, 2_000 + number, end=is_last).written.get(TOTALS.name, [])
            by_backend.append(
                sorted((row["event_time"], row["room"] or "", row["total"], row["op"]) for row in rows)
            )
        assert by_backend[0] == by_backend[1]
        assert engine.watermarks == model.watermarks
        results.append(by_backend[0])
    return results


def test_a_value_comes_once_when_no_late_row_can_correct_it() -> None:
    batches = ((event(0, 3), event(1, 13)), (event(2, 4, 5),), (event(3, 17),), (event(4, 30),))
    assert shown(totals().final(), *batches) == [[], [], [(9, "hall", 6, "+")], [(19, "hall", 2, "+")]]


def test_early_panes_and_retractions_do_not_show() -> None:
    early = totals(trigger=triggers.at_watermark(early=triggers.repeatedly(triggers.after_count(1))))
    batches = ((event(0, 3),), (event(1, 4),), (event(2, 30),))
    assert shown(early.final(), *batches) == [[], [], [(9, "hall", 2, "+")]]


def test_the_end_of_the_stream_makes_all_final() -> None:
    assert shown(totals().final(), (event(0, 3),), (event(1, 13),), end=True) == [
        [],
        [(9, "hall", 1, "+"), (19, "hall", 1, "+")],
    ]


def test_a_filter_after_the_aggregation_lets_only_the_last_value_decide() -> None:
    large = totals().filter(pl.col("total") > 3).final()
    batches = ((event(0, 3, 4), event(1, 13)), (event(2, 4, -2),), (event(3, 17),))
    assert shown(large, *batches) == [[], [], []]


def test_sessions_that_merge_leave_one_value() -> None:
    sessions = (
        readings().window(windows.sessions(5), lateness=10).group_by("room").sum("celsius", name="total")
    )
    batches = ((event(0, 1), event(1, 8)), (event(2, 14),), (event(3, 5),), (event(4, 60),))
    assert shown(sessions.final(), *batches) == [[], [], [], [(12, "hall", 3, "+"), (18, "hall", 1, "+")]]


def test_the_values_of_all_rows_as_one_group_have_no_key() -> None:
    counted = readings().window(windows.fixed(10), lateness=5).sum("celsius", name="total")
    stream = counted.final().with_columns(room=pl.lit("all"))
    assert shown(stream, (event(0, 3), event(1, 4, room=None)), (event(2, 30),)) == [[], [(9, "all", 2, "+")]]


def test_equal_rows_stay_as_many_as_they_were() -> None:
    same = totals().with_columns(room=pl.lit("some")).final()
    batches = ((event(0, 3), event(1, 3, room="kitchen")), (event(2, 30),))
    assert shown(same, *batches) == [[], [(9, "some", 1, "+"), (9, "some", 1, "+")]]


def test_a_pattern_follows_final_values() -> None:
    warm = mr.pattern("low", pl.col("total") < 2).next("high", pl.col("total") >= 2).within(100)
    rises = totals().final().group_by("room").match(warm, select={"total": patterns.last("high", "total")})
    batches = ((event(0, 3), event(1, 13, 5)), (event(2, 4, 0),), (event(3, 40),), (event(4, 50),))
    assert [(9 + 10, "hall", 5, "+")] in shown(rises, *batches)


def test_rows_that_are_never_corrected_stay_as_they_are() -> None:
    single = totals(lateness=0)
    assert single.final().node is single.node
    assert readings().final().columns == readings().columns


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: totals(accumulation="discarding").final(), "each pane holds a part"),
        (
            lambda: (
                readings()
                .window(windows.delta("celsius", 3))
                .group_by("room")
                .aggregate(total=aggregates.sum("celsius"))
                .final()
            ),
            "shown when a later row comes",
        ),
    ],
)
def test_what_is_never_final_is_refused(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()
