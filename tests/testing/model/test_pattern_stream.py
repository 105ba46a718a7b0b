"""When the model shows matches and timeouts, against timelines worked out by hand."""

from typing import Any

import polars as pl

import millrace as mr
from millrace import patterns
from millrace.durations import END_OF_STREAM
from millrace.patterns import Pattern
from millrace.testing.model.pattern_stream import PatternStream, ShownMatch

SCHEMA = pl.Schema({"kind": pl.String(), "value": pl.Int64(), "event_time": pl.Int64()})
A, B, C = (pl.col("kind") == kind for kind in "abc")
Shown = list[tuple[str, int | None]]


class Key:
    """One key; events are texts such as `a1 b3`, each a kind and a time."""

    def __init__(self, pattern: Pattern) -> None:
        self.stream = PatternStream(pattern, SCHEMA)

    def __call__(self, events: str, until: int, *values: int) -> tuple[Shown, Shown]:
        """Matches and timeouts, each as its events and, if time made it certain, that time."""
        rows: list[dict[str, Any]] = [
            {"kind": event[0], "event_time": int(event[1:]), "value": 0} for event in events.split()
        ]
        for row, value in zip(rows, values, strict=False):
            row["value"] = value
        matches, timeouts = self.stream.advance(rows, until, is_ended=until >= END_OF_STREAM)
        return [shown(match) for match in matches], [shown(timeout) for timeout in timeouts]


def shown(match: ShownMatch) -> tuple[str, int | None]:
    return " ".join(f"{row['kind']}{row['event_time']}" for row in match.rows), match.known_at


def test_a_match_is_shown_with_the_event_that_completes_it() -> None:
    key = Key(mr.pattern("a", A).followed_by("b", B).within(10))
    assert key("a1 c2", 3) == ([], [])
    assert key("b3", 4) == ([("a1 b3", None)], [])
    assert key("", END_OF_STREAM) == ([], [])


def test_a_beginning_times_out_when_within_is_over() -> None:
    key = Key(mr.pattern("a", A).next("b", B).within(10))
    assert key("a1", 10) == ([], [])
    assert key("", 11) == ([], [("a1", 11)])


def test_a_beginning_times_out_at_each_place_at_which_it_waits() -> None:
    """After c2 the beginning a1 waits for another a, and for a b; before any event there is one place."""
    loop = mr.pattern("a", A).one_or_more().followed_by("b", B).within(10)
    assert Key(loop)("a1", 20) == ([], [("a1", 11)])
    assert Key(loop)("a1 c2", 20) == ([], [("a1", 11), ("a1", 11)])


def test_what_must_not_follow_makes_a_match_when_its_gap_is_over() -> None:
    key = Key(mr.pattern("a", A).one_or_more().not_followed_by("b", B).gap(3).within(20))
    assert key("a1", 3) == ([], [])
    assert key("", 4) == ([("a1", 4)], [])
    assert key("b10", END_OF_STREAM) == ([], [])


def test_a_later_beginning_waits_until_the_earlier_one_can_no_longer_rule_it_out() -> None:
    """a1 needs a b of its own value; a2 has one at 3, but is shown only when c5 has ended a1."""
    value, first = pl.col("value"), patterns.first("a", "value")
    pattern = (
        mr.pattern("a", A).not_followed_by("c", C & (value > first)).followed_by("b", B & (value == first))
    )
    key = Key(pattern.within(100).skip_past_last())
    assert key("a1 a2 b3", 4, 1, 9, 9) == ([], [])
    assert key("c5", 6, 5) == ([("a2 b3", None)], [])


def test_a_match_rules_out_those_that_begin_within_it() -> None:
    key = Key(mr.pattern("a", A).followed_by_any("b", B).within(10).skip_past_last())
    assert key("a1 a2 b3 a4 b5", END_OF_STREAM) == ([("a1 b3", None), ("a4 b5", None)], [])
