"""Regular patterns keep rows in place of partial matches, and find the same matches."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import patterns, testing
from millrace.engine.operators.match import MatchOperator, make_matcher
from millrace.engine.operators.match_contiguous import ContiguousMatchOperator
from millrace.engine.operators.registry import operator_for
from millrace.engine.plan import Plan
from millrace.patterns import Pattern


@dataclass
class Event:
    who: str
    kind: str


@dataclass
class Found:
    who: str
    n: int


EVENTS, FOUND = mr.Topic("input.events", Event), mr.Topic("analytics.found", Found)
A, B = pl.col("kind") == "a", pl.col("kind") == "b"
STRICT = mr.pattern("a", A).next("b", B).within("10s").skip_past_last()
RELAXED = mr.pattern("a", A).followed_by("b", B).within("10s")


def job(pattern: Pattern) -> mr.Job:
    found = mr.read(EVENTS).group_by("who").match(pattern, select={"n": patterns.count("b")})
    return mr.Job("found", found.write(FOUND))


@pytest.mark.parametrize(("pattern", "kind"), [(STRICT, ContiguousMatchOperator), (RELAXED, MatchOperator)])
def test_a_pattern_is_kept_as_rows_where_a_row_alone_decides(pattern: Pattern, kind: type) -> None:
    [operator] = Plan.of([job(pattern)], slots=1).operators
    assert type(operator_for(operator)) is kind


def matches(monkeypatch: pytest.MonkeyPatch, kind: Any) -> list[Any]:
    """The matches of a strict pattern, a batch for every second row, found by one of both operators."""

    def forced(operator: Any) -> Any:
        return kind(operator, operator.node, make_matcher(operator, operator.node))

    monkeypatch.setattr("millrace.engine.stage.operator_for", forced)
    script = testing.Script(job(STRICT))
    for at, kinds in enumerate(["ab", "ba", "xa", "bb", "ab", "bx"]):
        script.events(
            *({"who": "v", "kind": one, "event_time": (2 * at + i) * 1000} for i, one in enumerate(kinds))
        )
        script.restart()
        script.watermark((2 * at + 2) * 1000)
    script.end()
    return [(pane["window_start"], pane["window_end"], pane["n"]) for pane in script.panes()]


def test_both_operators_find_the_same_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows = matches(monkeypatch, ContiguousMatchOperator)
    assert len(by_rows) > 2
    assert by_rows == matches(monkeypatch, MatchOperator)
