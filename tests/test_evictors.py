"""Evictors: which rows of a window a pane is computed from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from engine.test_rescale import in_slots
from millrace import aggregates, evictors, testing, triggers, windows
from millrace.engine import fingerprints
from millrace.engine import state as engine_state
from millrace.engine.operators import windows as cells
from millrace.engine.plan import Plan
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError
from millrace.evictors import Evictor
from millrace.graph import Windowing
from millrace.graph.identity import identify_evictor
from millrace.runners.local import Engine
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel, decode_events
from strategies import KINDS, A, Given, aggregated, batches, examples, watermark_of, write
from test_engine_against_model import hold_batch
from windowings import any_evictor, any_trigger, any_window


@given(data=st.data())
@examples(200)
def test_panes_of_the_engine_are_those_of_the_model_whatever_is_left_out(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from([1, 1_000]))
    windowed = mr.read(A, watermark=data.draw(watermark_of(unit, steady=False))).window(
        data.draw(any_window(unit)),
        trigger=data.draw(any_trigger(unit)),
        lateness=data.draw(st.sampled_from([20, 6, 1, 0])) * unit,
        accumulation=data.draw(st.sampled_from(["accumulating", "discarding", "retracting"])),
        closing=data.draw(st.sampled_from(["none", "if_new", "always"])),
        evict=data.draw(any_evictor(unit)),
    )
    panes = data.draw(aggregated(windowed, dict(KINDS), 0, last=True))
    jobs = Given((mr.Job("one", write(panes, "analytics.one")),), unit, {A.name: 2})
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    tight = data.draw(st.booleans())
    with (
        patch.object(engine_state, "MERGE_FACTOR", 2 if tight else engine_state.MERGE_FACTOR),
        patch.object(cells, "FULL_SCAN_ROWS", 2 if tight else cells.FULL_SCAN_ROWS),
    ):
        for batch in data.draw(batches(jobs, most=20)):
            if not data.draw(st.integers(0, 6)):  # a savepoint, and on in other slots
                slots = data.draw(st.sampled_from([1, 3, 4]))
                engine = in_slots(engine, OnEngine(jobs.jobs, jobs.partitions, slots=slots))
            hold_batch(engine, model, batch)


@dataclass
class Reading:
    key: str
    value: int | None
    speed: float | None = None


@dataclass
class Found:
    key: str
    values: list[int]
    n: int


ROWS, FOUND = mr.Topic("input.rows", Reading), mr.Topic("found", Found)
ON = pytest.mark.parametrize("on", ["model", "engine"])


def collected(evict: Evictor, window: windows.WindowFn | None = None, **how: Any) -> mr.Job:
    rows = mr.read(ROWS).window(window or windows.fixed(100), evict=evict, **how).group_by("key")
    return mr.Job(
        "job", rows.aggregate(values=aggregates.collect("value"), n=aggregates.count()).write(FOUND)
    )


def panes_of(job: mr.Job, on: testing.On, *values: Any, column: str = "value") -> list[Any]:
    script = testing.Script(job, on=on)
    script.events(*({"key": "k", column: value, "event_time": at} for at, value in enumerate(values)))
    script.restart()
    script.end()
    return [(row["values"], row["n"]) for row in script.panes()]


@ON
@pytest.mark.parametrize(
    ("evict", "kept"),
    [
        (evictors.last(1), [4]),
        (evictors.last(9), [1, 2, 9, 3, 4]),
        (evictors.within(2), [3, 4]),
        (evictors.delta("value", 1), [3, 4]),
        (evictors.delta("value", 2.5), [2, 3, 4]),
        (evictors.custom(lambda rows: rows["value"] < 4), [1, 2, 3]),
        (evictors.custom(lambda rows: rows.head(2)), [1, 2]),
        (evictors.custom(lambda rows: rows.clear()), []),
    ],
    ids=str,
)
def test_the_rows_that_count(evict: Evictor, kept: list[int], on: testing.On) -> None:
    assert panes_of(collected(evict), on, 1, 2, 9, 3, 4) == [(kept, len(kept))]


@ON
def test_rows_without_a_number_are_near_and_do_not_say_what_is(on: testing.On) -> None:
    speeds = [1.0, None, 5.0, math.nan, 5.5, math.nan, None]
    [(_, n)] = panes_of(collected(evictors.delta("speed", 1)), on, *speeds, column="speed")
    assert n == 6
    infinite = [math.inf, 3.0, math.inf]
    assert panes_of(collected(evictors.delta("speed", 1)), on, *infinite, column="speed")[0][1] == 2
    assert panes_of(collected(evictors.delta("speed", 1)), on, None, math.nan, column="speed")[0][1] == 2


@ON
def test_differences_of_great_whole_numbers_do_not_overflow(on: testing.On) -> None:
    lowest, highest = -(2**63), 2**63 - 1
    assert panes_of(collected(evictors.delta("value", 5)), on, lowest, highest) == [([highest], 1)]


@ON
def test_a_function_sees_all_columns_of_the_rows_in_order(on: testing.On) -> None:
    seen: list[pl.DataFrame] = []

    def note(rows: pl.DataFrame) -> pl.DataFrame:
        seen.append(rows)
        return rows

    script = testing.Script(collected(evictors.custom(note)), on=on)
    for at in (2, 1):
        script.events({"key": "k", "value": at, "event_time": at})
    script.end()
    assert seen[-1].columns == ["key", "value", "speed", "event_time", "ingestion_time"]
    assert seen[-1]["event_time"].to_list() == [1, 2]


@ON
@pytest.mark.parametrize(
    "evict",
    [
        evictors.last(3),
        evictors.custom(lambda rows: rows["value"] > 1),
        evictors.custom(lambda rows: rows.tail(3)),
    ],
    ids=["last", "mask", "frame"],
)
def test_aggregates_of_expressions_are_of_the_rows_that_count(evict: Evictor, on: testing.On) -> None:
    windowed = mr.read(ROWS).window(
        windows.fixed(10), evict=evict, trigger=triggers.at_watermark(early=AtNine())
    )
    found = windowed.group_by("key").aggregate(
        values=aggregates.collect(pl.col("value") * 10), n=aggregates.count(where=pl.col("value") > 2)
    )
    shown = panes_of(mr.Job("job", found.write(FOUND)), on, 1, 2, 3, 9)
    assert shown == [([20, 30, 90], 2)] * 2


class AtNine(triggers.TriggerFn):
    def on_element(self, row: dict[str, Any], ctx: triggers.TriggerContext) -> triggers.TriggerResult:
        assert list(row) == ROWS_SEEN
        return triggers.FIRE if row["value"] == 9 else triggers.CONTINUE


@ON
def test_all_rows_as_one_group_have_no_column_of_their_own(on: testing.On) -> None:
    windowed = mr.read(ROWS).window(
        windows.fixed(10), evict=evictors.custom(lambda rows: rows.select(ROWS_SEEN))
    )
    totals = windowed.aggregate(n=aggregates.count())
    script = testing.Script(
        mr.Job("job", totals.write(mr.Topic("n", make_dataclass("N", [("n", int)])))), on=on
    )
    script.events({"key": "a", "value": 1, "event_time": 1}, {"key": "b", "value": 2, "event_time": 1})
    script.end()
    assert [row["n"] for row in script.panes()] == [2]


ROWS_SEEN = ["key", "value", "speed", "event_time", "ingestion_time"]


@pytest.mark.parametrize(
    ("evict", "kept"),
    [
        (evictors.last(3), 3),
        (evictors.within(10), 10),
        (evictors.delta("value", 3), 1_000),
        (evictors.custom(lambda rows: rows.tail(1)), 1_000),
    ],
    ids=str,
)
def test_rows_that_no_later_pane_can_show_are_not_kept(evict: Evictor, kept: int) -> None:
    engine = OnEngine([collected(evict, windows.global_window())], {ROWS.name: 1}, slots=1)
    for start in range(0, 1_000, 250):
        rows = [
            SourceEvent(ROWS.name, 0, n, n, n, {"key": "k", "value": n, "speed": None})
            for n in range(start, start + 250)
        ]
        engine.feed(rows, start)
    [state] = engine.engine.states.values()
    newest = state.tables["job/aggregation-1:cells"].chunks[-1].frame.tail(1)
    assert newest["_kept_rows"].list.len().to_list() == [kept]


@pytest.mark.parametrize(
    ("evict", "identity"),
    [
        (evictors.last(3), {"kind": "last", "rows": 3}),
        (evictors.within("10s"), {"kind": "within", "span": 10_000}),
        (evictors.delta("value", 2), {"kind": "delta", "column": "value", "threshold": 2}),
        (evictors.custom(len), {"kind": "custom", "function": "len"}),  # type: ignore[arg-type]  # for its name
    ],
    ids=str,
)
def test_state_knows_an_evictor_by_these_words(evict: Evictor, identity: dict[str, Any]) -> None:
    assert identify_evictor(evict) == identity
    windowing = Windowing(windows.fixed(10), evict=evict)
    assert windowing.identity()["evict"] == identity
    assert "evict" not in replace(windowing, evict=None).identity()


def test_state_with_other_rows_left_out_does_not_fit() -> None:
    first, second = (Plan.of([collected(evictors.last(n))], slots=1) for n in (2, 3))
    [operator] = second.operators
    assert fingerprints.find_difference(first.fingerprints[operator.id], operator) == (
        "has another window, trigger, lateness or output than its state was made with"
    )


def test_an_aggregate_cannot_be_added_as_the_rows_kept_may_lack_its_column() -> None:
    windowed = mr.read(ROWS).window(windows.fixed(100), evict=evictors.last(2)).group_by("key")
    more = windowed.aggregate(
        values=aggregates.collect("value"), n=aggregates.count(), top=aggregates.max("speed")
    )
    kind = make_dataclass("More", [("key", str), ("values", list[int]), ("n", int), ("top", float | None)])
    first = Plan.of([collected(evictors.last(2))], slots=1)
    second = Plan.of([mr.Job("job", more.write(mr.Topic("more", kind)))], slots=1)
    [operator] = second.operators
    stored = first.fingerprints[operator.id]
    assert (
        fingerprints.find_difference(stored, operator) == "has other aggregates than its state was made with"
    )


def test_explain_says_which_rows_count() -> None:
    assert "accumulating panes, of the rows that evictors.last(2) keeps" in str(collected(evictors.last(2)))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: evictors.last(0), "n=0 must be a whole number from 1 on"),
        (lambda: evictors.within("0s"), "span='0s' must be longer than zero"),
        (lambda: evictors.delta("value", -1), "threshold=-1 is not a difference"),
        (lambda: evictors.delta(pl.col("value"), 1), "names no column"),  # type: ignore[arg-type]  # a user's mistake
        (lambda: evictors.custom(3), r"custom\(3\) is not a function"),  # type: ignore[arg-type]  # likewise
        (lambda: collected(3), "evict=3 is not an evictor"),  # type: ignore[arg-type]  # likewise
        (
            lambda: collected(evictors.delta("valu", 1)),
            "there is no column 'valu'; there are key, value, speed",
        ),
        (lambda: collected(evictors.delta("key", 1)), "needs numbers, but 'key' is String"),
        (lambda: collected(evictors.last(1), windows.counted(3)), "leave out .* evict"),
        (lambda: joined("join"), "rows of both sides"),
        (lambda: joined("cogroup"), "rows of both sides"),
        (lambda: rewindowed(), "with evict=, which is possible only for rows"),
    ],
)
def test_what_is_impossible_is_named(make: Callable[[], Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        make()


def joined(call: str) -> mr.Stream:
    windowed = mr.read(ROWS).window(windows.fixed(10), evict=evictors.last(1)).group_by("key")
    result: mr.Stream = getattr(windowed, call)(windowed)
    return result


def rewindowed() -> mr.Stream:
    sums = mr.read(ROWS).window(windows.fixed(10), lateness=5).group_by("key").sum("value")
    return sums.window(windows.fixed(20), evict=evictors.last(1)).group_by("key").count()


@ON
@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (lambda rows: rows["value"], "a column of 2 values of type Int64 came of 2 rows"),
        (lambda rows: rows["value"].is_null().head(1), "a column of 1 values of type Boolean came of 2 rows"),
        (lambda rows: rows.drop("value"), "a frame with the columns key, speed, event_time, ingestion_time"),
        (lambda rows: pl.col("value") > 1, "return a column with true or false for each row"),
    ],
)
def test_a_function_that_returns_no_rows_is_named(fn: Any, error: str, on: testing.On) -> None:
    with pytest.raises(DefinitionError, match=error):
        panes_of(collected(evictors.custom(fn)), on, 1, 2)


def test_what_a_function_raises_stops_its_job_alone() -> None:
    def fail(rows: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("no")

    engine = Engine([collected(evictors.custom(fail), trigger=triggers.after_count(2))])
    engine.plan = replace(engine.plan, isolates_jobs=True)
    rows = [SourceEvent(ROWS.name, 0, n, n, n, {"key": "k", "value": n, "speed": None}) for n in range(2)]
    [failure] = engine.step([PartitionBatch(ROWS.name, 0, decode_events(ROWS, rows))], 5).failures
    assert failure.job == "job"
    assert failure.reason.startswith("ValueError: no (test_evictors.py:")
    assert "in fail; row {" in failure.reason
