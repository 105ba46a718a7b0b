"""Rows that only begin matches wait as rows, and what is found is the same, at the same time."""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import patterns
from millrace.engine import state
from millrace.engine.operators import quiet_rows
from millrace.engine.operators.match import MatchOperator
from millrace.engine.operators.registry import operator_for
from millrace.engine.plan import Plan
from millrace.patterns import Pattern
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel


@dataclass
class Reading:
    who: str | None
    kind: str
    value: int


@dataclass
class Found:
    who: str | None
    total: int
    last: int


READINGS, FOUND = mr.Topic("input.readings", Reading), mr.Topic("found", Found)
OVERDUE = mr.Topic("overdue", Found)
A, B, C = (pl.col("kind") == kind for kind in "abc")
ABOVE = B & (pl.col("value") > patterns.last("a", "value"))
PATTERNS = {
    "one after the other": mr.pattern("a", A).followed_by("b", B).within(9),
    "above the last": mr.pattern("a", A).followed_by("b", ABOVE).within(9),
    "past the last": mr.pattern("a", A).followed_by("b", ABOVE).within(9).skip_past_last(),
    "to the next": mr.pattern("a", A).followed_by_any("b", ABOVE).within(9).skip_to_next(),
    "three": mr.pattern("a", A).followed_by("b", ABOVE).followed_by("c", C).within(12).skip_past_last(),
    "with a gap": mr.pattern("a", A).followed_by("b", ABOVE).gap(7).within(9).skip_past_last(),
    "unless c": mr.pattern("a", A).not_followed_by("no", C).followed_by("b", ABOVE).within(9),
    "optional first": mr.pattern("a", A).optional().followed_by("b", B).within(9),
}


def job(pattern: Pattern, *, timeouts: bool = False) -> mr.Job:
    step = "a"
    select = {"total": patterns.sum(step, "value"), "last": patterns.last(step, "event_time")}
    matched = (
        mr.read(READINGS, watermark=mr.watermarks.bounded(2)).group_by("who").match(pattern, select=select)
    )
    more = [matched.timeouts().write(OVERDUE)] if timeouts else []
    return mr.Job("found", matched.write(FOUND), *more)


@pytest.fixture(autouse=True)
def _wait_whenever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_rows, "MIN_QUIET_ROWS", 1)
    monkeypatch.setattr(quiet_rows, "MAX_BUSY_SHARE", 1.0)
    monkeypatch.setattr(state, "MIN_INDEXED_ROWS", 1)
    monkeypatch.setattr(state, "MIN_ROWS_PER_KEY", 0)
    monkeypatch.setattr(state, "MERGE_FACTOR", 3)


def batches(seed: str, *, kinds: str) -> list[list[SourceEvent]]:
    """Rows of four keys, one of them null, a little out of order and now and then late."""
    chance, made, offset = random.Random(seed), [], 0
    for step in range(40):
        batch = []
        for _ in range(chance.randint(0, 5)):
            values = {
                "who": chance.choice(["x", "y", "z", None]),
                "kind": chance.choice(kinds),
                "value": chance.randint(0, 5),
            }
            at = max(0, step + chance.choice((-4, -1, 0, 0, 1)))
            batch.append(SourceEvent("input.readings", 0, offset, at, step + 1, values))
            offset += 1
        made.append(batch)
    return made


def bag(written: Any) -> Counter[Any]:
    return Counter(
        (topic, *sorted(row.items(), key=lambda item: item[0]))
        for topic, rows in written.items()
        for row in rows
    )


def quiet_in(engine: OnEngine) -> int:
    tables = [table for one in engine.engine.states.values() for table in one.tables.items()]
    return sum(table.rows for name, table in tables if name.endswith(f":{quiet_rows.TABLE}"))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("seed", range(3))
def test_engine_and_model_show_the_same_at_every_step(name: str, seed: int) -> None:
    partitions = {"input.readings": 1}
    given = job(PATTERNS[name])
    engine, model = OnEngine([given], partitions, slots=1 + seed % 2), OnModel([given], partitions)
    rows = batches(f"{name} {seed}", kinds="aaaaabcc" if seed % 2 else "aaabc")
    shown = most = 0
    for number, batch in enumerate(rows):
        if number % 5 == 4:
            engine.restart()
        ours, theirs = (
            backend.feed(batch, number + 1, end=number == len(rows) - 1) for backend in (engine, model)
        )
        assert bag(ours.written) == bag(theirs.written), number
        shown, most = shown + bag(ours.written).total(), max(most, quiet_in(engine))
    assert shown > 0
    assert most > 0


def test_rows_of_a_key_are_taken_when_one_comes_that_is_not_quiet() -> None:
    """The example of the module: nothing but rows is kept until b comes."""
    engine = OnEngine([job(PATTERNS["above the last"])], {"input.readings": 1}, slots=1)

    def feed(at: int, kind: str, value: int) -> list[Any]:
        values = {"who": "x", "kind": kind, "value": value}
        event = SourceEvent("input.readings", 0, at, at, at, values)
        return engine.feed([event], at).written.get("found", [])

    feed(1, "a", 3), feed(2, "a", 2), feed(3, "c", 0), feed(5, "c", 0)
    [slot] = engine.engine.states.values()
    assert slot.table("found/match-1", quiet_rows.TABLE).rows == 2
    assert not slot.table("found/match-1", "courses").chunks
    feed(6, "b", 4)
    assert sorted(row["total"] for row in feed(9, "c", 0)) == [2, 3]
    [slot] = engine.engine.states.values()
    assert slot.table("found/match-1", "courses").rows == 1
    feed(30, "c", 0)
    feed(60, "c", 0)
    [slot] = engine.engine.states.values()
    assert not slot.table("found/match-1", quiet_rows.TABLE).chunks


@pytest.mark.parametrize(
    ("pattern", "timeouts", "may_wait"),
    [
        (PATTERNS["above the last"], False, True),
        (PATTERNS["above the last"], True, False),
        (mr.pattern("a", A).followed_by("b", ABOVE).not_followed_by("c", C).within(5), False, False),
    ],
)
def test_no_row_waits_that_may_find_something_by_waiting(
    pattern: Pattern, timeouts: bool, may_wait: bool
) -> None:
    [operator] = Plan.of([job(pattern, timeouts=timeouts)], slots=1).operators
    found = operator_for(operator)
    assert isinstance(found, MatchOperator)
    assert found.quiet_rows.is_allowed == may_wait


def test_rows_that_wait_time_out_where_the_job_has_come_to_ask_for_timeouts() -> None:
    before, after = (
        OnEngine([job(PATTERNS["above the last"], timeouts=timeouts)], {"input.readings": 1}, slots=1)
        for timeouts in (False, True)
    )
    for at, kind in ((1, "a"), (4, "c")):
        values = {"who": "x", "kind": kind, "value": 1}
        before.feed([SourceEvent("input.readings", 0, at, at, at, values)], at)
    after.engine.states = before.engine.states
    for at in (5, 30):
        values = {"who": "y", "kind": "c", "value": 1}
        shown = after.feed([SourceEvent("input.readings", 0, at, at, at, values)], at).written
    assert [row["who"] for row in shown["overdue"]] == ["x"]
    assert quiet_in(after) == 0
