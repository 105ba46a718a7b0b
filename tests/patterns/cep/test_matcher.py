"""The matcher: its matches are those of the definition, whatever the batches and restarts,
and its state is bounded.
"""

import random
import tracemalloc
from collections import Counter
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace import patterns
from millrace.durations import END_OF_STREAM
from millrace.errors import DefinitionError, PatternFailed, StateMismatch
from millrace.patterns import Pattern, avg, first, last, previous
from millrace.patterns.cep import encoding
from millrace.patterns.cep.matcher import Key, Matcher
from millrace.patterns.cep.partial_matches import PartialMatches
from millrace.testing.transcripts import patterns as transcripts
from millrace.values.columns import MATCH_NUMBER, STEP
from patterns.random_patterns import random_events, random_nested_pattern, random_pattern
from strategies import examples

SCHEMA = pl.Schema({"key": pl.String(), "kind": pl.String(), "value": pl.Int64(), "event_time": pl.Int64()})
A, B = pl.col("kind") == "a", pl.col("kind") == "b"


def frame(*rows: tuple[str, str, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def find_times(pattern: Pattern, rows: pl.DataFrame, **options: Any) -> list[list[int]]:
    found = Matcher(pattern, SCHEMA, ("key",), **options).step({}, rows, END_OF_STREAM).matches
    return [part["event_time"].to_list() for part in found.partition_by(MATCH_NUMBER, maintain_order=True)]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (pl.col("kind") > previous("value"), "cannot compare string with numeric"),
        (pl.col("value") + last("a", "kind") > 0, "arithmetic on dtypes i64 and str"),
        (patterns.sum("a", "kind") > 0, "`sum` operation not supported for dtype `str`"),
        (A & ~first("a", "kind"), "dtype String not supported in 'not'"),
        (first("a", "value"), "is Int64, which is neither true nor false"),
        (pl.col("kind"), "is String, which is neither true nor false"),
        (pl.col("value") > "x", "cannot compare string with numeric"),
    ],
)
def test_conditions_that_types_do_not_allow_are_refused(condition: pl.Expr, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Matcher(patterns.pattern("a", where=A).next("b", where=condition).within("1s"), SCHEMA, ("key",))


@examples(150)
@given(st.integers(0, 10**6))
def test_matches_are_those_of_the_definition_however_batches_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    document, events = random_pattern(chance), random_events(chance)
    try:
        transcript = transcripts.parse_document({**document, "events": events, "expect": {}})
    except DefinitionError:
        return
    wanted, _ = transcripts.match_by_definition(transcript)
    found = [transcripts.match_by_matcher(transcript, cut) for cut in range(3)]
    for matches, timeouts in found:
        assert Counter(matches) == Counter(wanted)
        assert Counter(timeouts) == Counter(found[0][1])
    assert Counter(transcripts.match_by_matcher(transcript, 3, timeouts_too=False)[0]) == Counter(wanted)


@examples(150)
@given(st.integers(0, 10**6))
def test_nested_groups_and_negations_match_as_the_definition(seed: int) -> None:
    chance = random.Random(seed)
    document, events = random_nested_pattern(chance), random_events(chance)
    try:
        transcript = transcripts.parse_document({**document, "events": events, "expect": {}})
        found = [transcripts.match_by_matcher(transcript, cut)[0] for cut in range(2)]
    except DefinitionError:
        return
    wanted, _ = transcripts.match_by_definition(transcript)
    for matches in (*found, transcripts.match_by_matcher(transcript, 2, timeouts_too=False)[0]):
        assert Counter(matches) == Counter(wanted)


@pytest.mark.parametrize(
    ("parts", "events", "expected"),
    [
        pytest.param(
            [
                {
                    "group": [
                        {"step": "a", "where": "kind == 'a'"},
                        {"step": "l", "link": "next", "where": "value > 2", "times": "0..2", "greedy": True},
                    ]
                },
                {"step": "n", "link": "not_next", "where": "value > 2"},
            ],
            [("a", 0), ("d", 3), ("d", 4), ("d", 2)],
            [("a0", "l1", "l2")],
            id="an event that a greedy loop keeps is not the forbidden next one",
        ),
        pytest.param(
            [
                {"step": "a", "where": "kind == 'a'", "times": "1..2", "greedy": True},
                {"group": [{"step": "b", "where": "kind == 'b'"}], "link": "next", "optional": True},
                {"step": "c", "link": "followed_by_any", "where": "kind == 'a'"},
            ],
            [("a", 0), ("d", 0), ("a", 0)],
            [("a0", "c2")],
            id="a greedy loop before an optional group keeps only the next event",
        ),
        pytest.param(
            [
                {
                    "group": [
                        {"step": "a", "where": "kind == 'a'"},
                        {"step": "n", "link": "not_followed_by", "where": "value > 3"},
                        {"step": "b", "link": "next", "where": "kind == 'b'", "optional": True},
                    ],
                    "times": "1..",
                },
                {"step": "c", "link": "next", "where": "kind == 'c'"},
                {"step": "d", "link": "next", "where": "kind == 'd'"},
            ],
            [("a", 0), ("c", 4), ("d", 0), ("a", 0), ("c", 3), ("d", 0)],
            [("a3", "c4", "d5")],
            id="what must not come before the optional end of a loop ends all its matches",
        ),
    ],
)
def test_greedy_loops_and_forbidden_events_at_the_end_of_a_group(
    parts: list[dict[str, Any]], events: list[tuple[str, int]], expected: list[tuple[str, ...]]
) -> None:
    rows = [
        {"id": number, "t": number, "kind": kind, "value": value}
        for number, (kind, value) in enumerate(events)
    ]
    transcript = transcripts.parse_document({"pattern": parts, "events": rows, "expect": {}})
    wanted = [
        tuple(step + event for step, event in match)
        for match in transcripts.match_by_definition(transcript)[0]
    ]
    found = [
        tuple(step + event for step, event in match)
        for match in transcripts.match_by_matcher(transcript, 0)[0]
    ]
    assert sorted(wanted) == sorted(found) == expected


@pytest.mark.parametrize(
    ("parts", "events", "expected"),
    [
        pytest.param(
            [
                {
                    "group": [
                        {"step": "a", "where": "kind == 'a'"},
                        {"step": "b", "link": "followed_by", "where": "kind == 'b'", "optional": True},
                    ]
                }
            ],
            [("a", 1), ("b", 9), ("c", 1), ("a", 1), ("b", 1), ("c", 1)],
            [("a3", "b4", "c5"), ("a3", "c5")],
            id="the end of a group may be left out",
        ),
        pytest.param(
            [{"group": [{"step": "a", "where": "kind == 'a'", "times": "1..2"}]}],
            [("a", 1), ("a", 9), ("c", 1)],
            [("a1", "c2")],
            id="the end of a group may go on",
        ),
    ],
)
def test_a_negation_after_a_group_binds_the_end_of_the_group(
    parts: list[dict[str, Any]], events: list[tuple[str, int]], expected: list[tuple[str, ...]]
) -> None:
    rows = [
        {"id": place, "t": place, "kind": kind, "value": value} for place, (kind, value) in enumerate(events)
    ]
    later = [
        {"step": "no", "link": "not_next", "where": "value > 5"},
        {"step": "c", "link": "followed_by", "where": "kind == 'c'"},
    ]
    transcript = transcripts.parse_document(
        {"pattern": [*parts, *later], "skip": "none", "events": rows, "expect": {}}
    )
    for matches, _ in (
        transcripts.match_by_definition(transcript),
        transcripts.match_by_matcher(transcript, 0),
    ):
        assert sorted(tuple(f"{step}{event}" for step, event in match) for match in matches) == sorted(
            expected
        )


def test_a_loop_before_a_forbidden_event_does_not_prolong_its_gap() -> None:
    """From 4 on, no b can rule out the match of the first a,
    though the loop still waits; the b at 10 is too late.
    """
    pattern = mr.pattern("a", A).one_or_more().not_followed_by("b", B).gap(3).within(20)
    assert find_times(pattern, frame(("x", "a", 0, 1), ("x", "b", 0, 10))) == [[1]]
    assert find_times(pattern, frame(("x", "a", 0, 1), ("x", "b", 0, 3))) == []
    assert find_times(pattern, frame(("x", "a", 0, 1), ("x", "a", 0, 10))) == [[1], [1, 10], [10]]
    first = Matcher(pattern, SCHEMA, ("key",)).step({}, frame(("x", "a", 0, 1)), 4)
    assert first.matches["event_time"].to_list() == [1]


def test_a_match_has_events_of_one_key() -> None:
    rows = frame(("x", "a", 0, 1), ("y", "b", 0, 2), ("x", "b", 0, 3), ("y", "a", 0, 4))
    assert find_times(mr.pattern("a", A).next("b", B), rows) == [[1, 3]]


def test_a_function_sees_the_event_and_the_match() -> None:
    def doubles(event: dict[str, Any], match: Any) -> bool:
        return bool(event["value"] == 2 * match["a"][0]["value"])

    rows = frame(("x", "a", 3, 1), ("x", "b", 5, 2), ("x", "b", 6, 3))
    assert find_times(mr.pattern("a", A).followed_by("b", doubles), rows) == [[1, 3]]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (pl.col("value") > first("a", "value") + last("a", "value"), [[1, 2, 5]]),
        (pl.col("value") > avg("a", "value"), [[1, 2, 3]]),
        (pl.col("value") < patterns.min("a", "value"), [[1, 2, 4]]),
        (pl.col("value") - patterns.max("a", "value") == 4, [[1, 2, 5]]),
        ((pl.col("value") - previous("value")).abs() == 4, [[1, 2, 5]]),
        (pl.col("value").is_between(previous("value"), last("a", "value") + 1), [[1, 2, 3]]),
        ((pl.col("value") - first("a", "value")).sqrt() > 2.4, [[1, 2, 5]]),
        ((last("a", "value") * 0.0).cos().arcsin().sin() > -pl.col("value") + previous("value"), [[1, 2, 3]]),
        (~(pl.col("value") >= last("a", "value")) | (first("a", "value") > 100), [[1, 2, 4]]),
    ],
)
def test_conditions_on_earlier_events_are_polars_expressions(
    condition: pl.Expr, wanted: list[list[int]]
) -> None:
    rows = frame(("x", "a", 2, 1), ("x", "a", 4, 2), ("x", "b", 4, 3), ("x", "b", 1, 4), ("x", "b", 8, 5))
    made = mr.pattern("a", A).times(2).followed_by("b", pl.col("kind") == "b").where(condition)
    assert find_times(made, rows) == wanted


def test_alternatives_are_joined_by_or() -> None:
    rows = frame(("x", "a", 0, 1), ("x", "c", 9, 2), ("x", "a", 0, 3), ("x", "b", 1, 4))
    assert find_times(mr.pattern("a", A).next("b", B).or_where(pl.col("value") > 5), rows) == [[1, 2], [3, 4]]


def test_a_condition_that_is_null_does_not_hold() -> None:
    rows = pl.DataFrame([("x", None, 1, 1), ("x", "b", None, 2)], schema=SCHEMA, orient="row")
    assert find_times(mr.pattern("a", pl.col("kind") != "b"), rows) == []
    assert find_times(mr.pattern("b", B).where(pl.col("value") > previous("value")), rows) == []


def test_state_is_dropped_when_within_is_over() -> None:
    matcher = Matcher(mr.pattern("a", A).followed_by("b", B).within(10), SCHEMA, ("key",))
    known: dict[Key, PartialMatches] = {}
    sizes = []
    for time in range(100):
        done = matcher.step(known, frame((f"k{time}", "a", 0, time)), time + 1)
        known |= {key: course for key, course in done.changed.items() if course is not None}
        known = {key: course for key, course in known.items() if done.changed.get(key, course) is not None}
        sizes.append((len(known), sum(len(course.running) for course in known.values())))
    assert sizes[5] == (6, 6)
    assert set(sizes[20:]) == {(9, 9)}


def test_a_key_without_a_partial_match_has_no_state() -> None:
    done = Matcher(mr.pattern("a", A).next("b", B), SCHEMA, ("key",)).step(
        {}, frame(("x", "b", 0, 1), ("y", "c", 0, 2)), 3
    )
    assert dict(done.changed) == {}


def test_partial_matches_are_restored_from_their_bytes() -> None:
    made = mr.pattern("a", A).one_or_more().followed_by_any("b", B).within(100)
    matcher = Matcher(made, SCHEMA, ("key",))
    rows = [("x", kind, number, number) for number, kind in enumerate("aabaa")]
    [course] = matcher.step({}, frame(*rows), 5).changed.values()
    assert course is not None
    again = encoding.decode_matches(encoding.encode_matches(course), matcher.states)
    assert encoding.encode_matches(again) == encoding.encode_matches(course)
    assert [run.state.number for run in again.running] == [run.state.number for run in course.running]


def test_stored_partial_matches_hold_each_event_once() -> None:
    matcher = Matcher(
        mr.pattern("a", A).one_or_more().followed_by_any("b", B).within(10_000), SCHEMA, ("key",)
    )
    sizes = []
    for number in (20, 40):
        rows = frame(*(("x", "a", 10**12 + i, i) for i in range(number)))
        [course] = matcher.step({}, rows, number).changed.values()
        assert course is not None
        sizes.append(encoding.encode_matches(course).count((10**12).to_bytes(8, "big")[:5]))
    assert sizes == [20, 40]


def test_a_pattern_that_doubles_with_each_event_ends_in_a_clear_error() -> None:
    rows = frame(*(("x", "a", 0, time) for time in range(40)))
    with pytest.raises(
        PatternFailed,
        match=r"more than 1,000 partial matches for one key, .* make it stricter: consecutive\(\)",
    ):
        find_times(
            mr.pattern("a", A).one_or_more().allow_combinations().next("b", B), rows, max_partial_matches=1000
        )


def test_a_relaxed_loop_stays_polynomial() -> None:
    rows = frame(*(("x", "a", 0, time) for time in range(60)), ("x", "b", 0, 60))
    assert len(find_times(mr.pattern("a", A).one_or_more().followed_by_any("b", B), rows)) == 60 * 61 // 2


def test_columns_that_rows_lack_are_named() -> None:
    with pytest.raises(DefinitionError, match="there is no column 'speed'; there are key, kind"):
        Matcher(mr.pattern("a", pl.col("speed") > 1), SCHEMA, ("key",))
    with pytest.raises(DefinitionError, match="there is no column 'speed'"):
        Matcher(mr.pattern("a").next("b", pl.col("value") > first("a", "speed")), SCHEMA, ("key",))


def test_rows_of_matches_name_the_step_that_took_them() -> None:
    found = (
        Matcher(mr.pattern("a", A).next("b", B), SCHEMA, ("key",))
        .step({}, frame(("x", "a", 0, 1), ("x", "b", 0, 2)), END_OF_STREAM)
        .matches
    )
    assert found.select(STEP, "event_time").rows() == [("a", 1), ("b", 2)]


def test_rows_that_every_match_ignores_are_dropped() -> None:
    rows = frame(
        *(
            ("x", kind, value, time)
            for time, (kind, value) in enumerate([("a", 1), ("b", 0), ("c", 9), ("b", 2), ("c", 2)])
        )
    )
    relaxed = mr.pattern("a", A).followed_by("b", B & (pl.col("value") > last("a", "value")))
    assert Matcher(relaxed, SCHEMA, ("key",)).prepare_rows(rows)["event_time"].to_list() == [0, 1, 3]
    assert (
        Matcher(relaxed.not_next("d", pl.col("kind") == "d"), SCHEMA, ("key",)).prepare_rows(rows).height == 5
    )
    assert Matcher(mr.pattern("a", A).next("b", B), SCHEMA, ("key",)).prepare_rows(rows).height == 5


def test_not_next_sees_the_very_next_row_even_without_timeouts() -> None:
    rows = frame(*(("x", kind, 0, time) for time, kind in enumerate("acxb")))
    made = mr.pattern("a", A).not_next("no", pl.col("kind") == "x").followed_by("b", B)
    assert find_times(made, rows, needs_timeouts=False) == [[0, 3]]


def test_rows_that_divide_partial_matches_are_dropped_only_without_timeouts() -> None:
    rows = frame(("x", "a", 0, 0), ("x", "c", 0, 1))
    loop = mr.pattern("a", A).one_or_more().followed_by("b", B).within(10)
    assert [
        Matcher(loop, SCHEMA, ("key",), needs_timeouts=asked).prepare_rows(rows).height
        for asked in (True, False)
    ] == [2, 1]


def test_matches_that_began_at_different_events_share_the_events_that_they_have_in_common() -> None:
    """Without sharing, each of 2,000 matches has 1,000 events on average: 825 MB for one key."""
    matcher = Matcher(mr.pattern("a", A).one_or_more().next("b", B).within(10_000), SCHEMA, ("key",))
    [course] = matcher.step({}, frame(*(("x", "a", i, i) for i in range(2_000))), 2_000).changed.values()
    assert course is not None
    assert len(course.running) == 2_000
    data = encoding.encode_matches(course)
    assert len(data) < 200_000
    again = encoding.decode_matches(data, matcher.states, list(SCHEMA))
    found = matcher.step({("x",): again}, frame(("x", "b", 0, 2_000)), END_OF_STREAM).matches.partition_by(
        MATCH_NUMBER, maintain_order=True
    )
    assert [part["event_time"].to_list() for part in found[::500]] == [
        [*range(first, 2_001)] for first in range(0, 2_000, 500)
    ]


def test_matches_that_share_events_are_shown_without_a_row_of_python_for_each() -> None:
    """1,000 matches over 1,001 events have half a million rows: 90 MB as tuples.
    Timeouts that nobody needs are not made.
    """
    made = mr.pattern("a", A).one_or_more().next("b", B).within(10_000)
    rows = [("x", "a", i, i) for i in range(1_000)]
    for end, asked, shown in (("b", False, 1_000), ("a", False, 0), ("a", True, 0)):
        matcher = Matcher(made, SCHEMA, ("key",), needs_timeouts=asked)
        tracemalloc.start()
        done = matcher.step({}, frame(*rows, ("x", end, 0, 1_000)), END_OF_STREAM)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert done.matches[MATCH_NUMBER].n_unique() == shown
        assert done.timeouts[MATCH_NUMBER].n_unique() == (1_001 if asked else 0)
        assert most < 30_000_000


def test_events_before_the_oldest_match_are_dropped() -> None:
    matcher = Matcher(mr.pattern("a", A).one_or_more().next("b", B).within(10), SCHEMA, ("key",))
    course = None
    for at in range(0, 300, 50):
        known: dict[Key, PartialMatches] = {} if course is None else {("x",): course}
        [course] = matcher.step(
            known, frame(*(("x", "a", i, i) for i in range(at, at + 50))), at + 50
        ).changed.values()
        assert course is not None
        course = encoding.decode_matches(encoding.encode_matches(course), matcher.states, list(SCHEMA))
        assert course.entry_count < 12


def test_events_that_partial_matches_cannot_share_are_bounded() -> None:
    rows = [("x", "a", 0, time) for time in range(100)] + [("x", "b", 0, 100 + time) for time in range(100)]
    made = (
        mr.pattern("a", A)
        .followed_by("b", B)
        .one_or_more()
        .consecutive()
        .next("c", pl.col("kind") == "c")
        .within(1_000)
    )
    assert find_times(made, frame(*rows), max_partial_matches=2_500) == []
    with pytest.raises(
        PatternFailed,
        match=r"more than 750 entries in the shared buffer of partial matches for one key.*make it stricter",
    ):
        find_times(made, frame(*rows), max_partial_matches=150)


def test_matches_that_an_earlier_version_stored_are_refused_with_the_remedy() -> None:
    matcher = Matcher(mr.pattern("a", A).followed_by("b").within(100), SCHEMA, ("key",))
    old = [1, 1, [[0, 10, ["x", "a", 5, 10]]], [[-1, 0, 0, []]], [[0, 0, 0]], []]
    with pytest.raises(StateMismatch, match=r"stored partial matches have version 1.*--reset JOB"):
        encoding.decode_matches(msgspec.msgpack.encode(old), matcher.states, list(SCHEMA))
