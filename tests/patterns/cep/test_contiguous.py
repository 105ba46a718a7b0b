"""Regular patterns on columns: their matches are those of the definition, whatever the batches."""

import random
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millrace as mr
from millrace.errors import DefinitionError
from millrace.patterns.cep.contiguous import ContiguousMatcher
from millrace.patterns.cep.dfa import LazyDfa
from millrace.patterns.cep.matcher import Matcher
from millrace.patterns.cep.partial_matches import KeyRows, MatchResults, NfaRunner, PartialMatches
from millrace.testing.transcripts import patterns as transcripts
from patterns.random_patterns import random_events, random_regular_pattern

SCHEMA = pl.Schema({"key": pl.String(), "kind": pl.String(), "event_time": pl.Int64()})
A, B, C = (pl.col("kind") == kind for kind in "abc")
STOP = mr.pattern("a", A).next("b", B).one_or_more().consecutive().next("c", C).within(10)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_matches_are_those_of_the_definition_and_timeouts_those_of_the_matcher(seed: int) -> None:
    chance = random.Random(seed)
    document, events = (
        random_regular_pattern(chance),
        [{**event, "who": chance.choice("xy")} for event in random_events(chance)],
    )
    try:
        transcript = transcripts.parse_document({**document, "key": "who", "events": events, "expect": {}})
    except DefinitionError:
        return
    wanted, _ = transcripts.match_by_definition(transcript)
    _, overdue = transcripts.match_by_matcher(transcript, 0)
    for cut in range(3):
        found = transcripts.match_by_columns(transcript, cut)
        assert found is not None
        assert Counter(found[0]) == Counter(wanted)
        assert Counter(found[1]) == Counter(overdue)


def test_all_beginnings_are_scanned_at_once() -> None:
    matcher = Matcher(STOP, SCHEMA, ("key",))
    kinds = "abbcabdabaab"
    masks = np.array(["dab_c".index(kind) for kind in kinds])
    times, ends = np.arange(len(kinds)), np.full(len(kinds), len(kinds))
    found = LazyDfa(matcher.runner.nfa).scan(
        masks, times, ends, np.flatnonzero(masks == 1), 10, first_only=True
    )
    assert found.starts.tolist() == [0, 4, 7, 9, 10]
    assert found.last_match_rows.tolist() == [3, -1, -1, -1, -1]
    assert found.open.tolist() == [False, False, False, False, True]
    assert not found.is_overdue.any()


def test_only_the_rows_of_matches_become_python_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    whole = NfaRunner.advance

    def count_rows(
        rules: NfaRunner,
        course: PartialMatches,
        lane: KeyRows,
        time: int,
        found: MatchResults,
        *,
        is_ended: bool,
    ) -> PartialMatches:
        followed.append(lane.end - lane.first)
        return whole(rules, course, lane, time, found, is_ended=is_ended)

    monkeypatch.setattr(NfaRunner, "advance", count_rows)
    rows = pl.DataFrame(
        [("x", kind, time) for time, kind in enumerate("abab" * 500 + "abbc" + "ab" * 500)],
        schema=SCHEMA,
        orient="row",
    )
    reader = ContiguousMatcher(Matcher(STOP, SCHEMA, ("key",)), needs_timeouts=False)
    done = reader.step(reader.schema.to_frame(), rows, 3004)
    assert done.matches["event_time"].to_list() == [2000, 2001, 2002, 2003]
    assert followed == [4]
    assert done.kept["event_time"].to_list() == [3002, 3003]


def test_rows_are_kept_from_the_first_open_beginning_and_no_longer_than_within() -> None:
    reader = ContiguousMatcher(Matcher(STOP, SCHEMA, ("key",)), needs_timeouts=False)
    rows = pl.DataFrame(
        [("x", "a", 1), ("x", "b", 2), ("y", "b", 3), ("z", "a", 4)], schema=SCHEMA, orient="row"
    )
    kept = reader.step(reader.schema.to_frame(), rows, 5).kept
    assert kept.select("key", "event_time", "_may_begin").sort("event_time").rows() == [
        ("x", 1, True),
        ("x", 2, False),
        ("z", 4, True),
    ]
    assert reader.step(kept, SCHEMA.to_frame(), 11).kept["key"].to_list() == ["z"]
    assert reader.step(kept, SCHEMA.to_frame(), 14).kept.is_empty()


@pytest.mark.parametrize(
    "made",
    [
        mr.pattern("a", A).followed_by("b", B),
        mr.pattern("a", A).next("b", B).one_or_more(),
        mr.pattern("a", A).not_next("b", B),
        mr.pattern("a", A).next("b", pl.col("event_time") > mr.patterns.first("a", "event_time")),
        mr.pattern("a", A).next("b", B).skip_to_first("b"),
        mr.pattern("a", A).next("b", B).gap(3),
    ],
)
def test_other_patterns_are_left_to_the_matcher(made: mr.patterns.Pattern) -> None:
    assert not ContiguousMatcher.is_suitable(Matcher(made, SCHEMA, ("key",)))
    assert ContiguousMatcher.is_suitable(Matcher(STOP, SCHEMA, ("key",)))


@pytest.mark.parametrize(("last", "wanted"), [("d", [[0, 1, 2, 3, 4]]), ("a", [[1, 2]])])
def test_a_match_waits_across_batches_for_one_that_began_before_it(
    last: str, wanted: list[list[int]]
) -> None:
    made = (
        mr.pattern("one", A | B)
        .next("two")
        .times(3)
        .consecutive()
        .optional()
        .next("end", pl.col("kind") == "d")
        .within(100)
    )
    reader = ContiguousMatcher(Matcher(made.skip_past_last(), SCHEMA, ("key",)), needs_timeouts=False)
    kept, found = reader.schema.to_frame(), []
    for time, kind in enumerate(f"abdc{last}c"):
        done = reader.step(kept, pl.DataFrame([("x", kind, time)], schema=SCHEMA, orient="row"), time + 1)
        kept = done.kept
        found += [
            part["event_time"].to_list() for part in done.matches.partition_by("_match", maintain_order=True)
        ]
    assert found == wanted
