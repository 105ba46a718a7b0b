"""How a late event is judged, by the worked examples of `engine/lateness.py`."""

from dataclasses import dataclass

import polars as pl
import pytest

import millrace as mr
from millrace import testing, triggers, windows
from millrace.engine import lateness
from millrace.engine.lateness import judge_sessions
from millrace.testing.model.source import SourceEvent
from millrace.values.columns import REPORTS_ERRORS

GAP = windows.sessions(10)


@dataclass
class Reading:
    key: str


@dataclass
class Count:
    key: str
    count: int


READINGS, COUNTS = mr.Topic("input.readings", Reading), mr.Topic("analytics.counts", Count)


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("batches", [1, 4])
def test_rows_are_judged_by_the_watermark_as_it_stood_at_them_however_batches_are_cut(
    on: testing.On, batches: int
) -> None:
    rows = mr.read(READINGS, watermark=mr.watermarks.bounded("2s"))
    counts = rows.window(windows.fixed("10s"), lateness="5s").group_by("key").count()
    backend = testing.backend([mr.Job("counts", counts.write(COUNTS))], {READINGS.name: 1}, on)
    events = [
        SourceEvent(READINGS.name, 0, offset, at * 1000, 200_000, {"key": "a"})
        for offset, at in enumerate((108, 117, 109, 111))
    ]
    late = []
    for start in range(0, 4, 4 // batches):
        fed = backend.feed(events[start : start + 4 // batches], 200_000)
        late += [row for refused in fed.late.values() for row in refused]
    assert [(row["offset"], row["reason"], row["missed"]) for row in late] == [(2, "late", 1)]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_row_that_is_late_for_one_window_and_shut_out_of_another_is_late(on: testing.On) -> None:
    rows = mr.read(READINGS, watermark=mr.watermarks.bounded(0))
    windowed = rows.window(windows.sliding(10, every=5), trigger=triggers.after_count(1))
    job = mr.Job("counts", windowed.group_by("key").count().write(COUNTS))
    backend = testing.backend([job], {READINGS.name: 1}, on)
    backend.feed([SourceEvent(READINGS.name, 0, 0, 7, 200, {"key": "a"})], 200)
    backend.feed([SourceEvent(READINGS.name, 0, 1, 12, 200, {"key": "b"})], 200)
    fed = backend.feed([SourceEvent(READINGS.name, 0, 2, 8, 200, {"key": "a"})], 200)
    [late] = fed.late["counts"]
    assert (late["reason"], late["missed"]) == ("late", 2)


def rows(*times: tuple[int, int | None, bool]) -> pl.DataFrame:
    columns = {"_t": pl.Int64, "_w": pl.Int64, "_ahead": pl.Boolean}
    made = pl.DataFrame(list(times), schema=columns, orient="row").with_row_index("_row")
    return made.with_columns(pl.lit(0, pl.Int64).alias("_part"), pl.col("_t").alias("event_time"))


def test_a_row_at_its_watermark_is_in_order_and_one_behind_it_is_late() -> None:
    accepted, late = lateness.split_late(
        rows((10, None, False), (10, 10, False), (9, 10, False), (99, 10, True)), lateness.is_behind()
    )
    assert accepted["_row"].to_list() == [0, 1]
    assert late is not None
    assert late.select("event_time", "reason").rows() == [(9, "late"), (99, "future")]


def test_a_row_is_late_for_a_deduplication_when_its_copies_may_have_been_forgotten() -> None:
    accepted, _ = lateness.split_late(rows((10, 14, False), (10, 15, False)), lateness.is_forgotten(5))
    assert accepted["_row"].to_list() == [0]


def test_of_a_broadcast_row_one_slot_alone_reports_that_it_is_late() -> None:
    behind = rows((9, 10, False), (8, 10, False)).with_columns(pl.Series(REPORTS_ERRORS, [True, False]))
    accepted, late = lateness.split_late(behind, lateness.is_behind())
    assert accepted.is_empty()
    assert late is not None
    assert late["event_time"].to_list() == [9]
    assert late[REPORTS_ERRORS].to_list() == [True]


def judged(*times: int, watermark: int = 107) -> list[tuple[int, str]]:
    single = [(number, at, at + 10, watermark, False) for number, at in enumerate(times)]
    return list(judge_sessions(single, [(100, 110)], GAP, (0, -(10**9))))


def test_a_row_is_judged_by_the_session_that_it_joins() -> None:
    assert judged(95) == []
    assert judged(85) == [(0, "late")]


def test_a_row_that_joins_a_session_lets_the_next_one_in() -> None:
    assert judged(85, 95, 85) == [(0, "late")]
