"""Patterns as users write them: their text, and the errors of wrong ones."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace.errors import DefinitionError
from millrace.patterns import Pattern, conditions
from millrace.patterns.condition_language import parse_condition
from millrace.patterns.declared import read_pattern

SPEED = pl.col("speed")


def test_the_text_of_a_pattern_has_its_steps_and_conditions() -> None:
    made = (
        mr.pattern("cruising", SPEED >= 10)
        .next("braking", pl.col("acceleration") < 0)
        .one_or_more()
        .consecutive()
        .next("stopped", SPEED < 1)
        .within("10s")
        .skip_past_last()
    )
    assert str(made) == (
        'cruising where [(col("speed")) >= (dyn int: 10)] next braking+ strict where [(col("acceleration")) '
        '< (dyn int: 0)] next stopped where [(col("speed")) < (dyn int: 1)] within 10s, skip past_last'
    )


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (mr.pattern("a").times(2), "a{2}"),
        (mr.pattern("a").times(2, 3).greedy(), "a{2,3} greedy"),
        (mr.pattern("a").times(0, 3), "a{0,3}"),
        (mr.pattern("a").zero_or_more().allow_combinations(), "a* any"),
        (mr.pattern("a").at_least(2), "a{2,}"),
        (mr.pattern("a").optional(), "a?"),
        (mr.pattern("a").followed_by("b").gap("2s"), "a followed_by b, gap 2s"),
        (mr.pattern("a").one_or_more().loop_gap("2s"), "a+, loop gap 2s"),
        (mr.pattern(mr.pattern("a").next("b")).times(2), "(a next b){2}"),
        (
            mr.pattern("a").not_followed_by("b").within("1m").skip_to_first("a"),
            "a not_followed_by b within 1m, skip to_first a",
        ),
    ],
)
def test_quantifiers_are_shown_as_in_regular_expressions(made: Pattern, text: str) -> None:
    assert str(made) == text


def test_a_pattern_is_immutable() -> None:
    first = mr.pattern("a")
    first.next("b").one_or_more().within("1s")
    assert str(first) == "a"
    assert first.span is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: mr.pattern("a").next("a"), "two steps are named 'a'"),
        (lambda: mr.pattern(""), "is not the name of a step"),
        (lambda: mr.pattern("a", "speed > 3"), "is not a condition; give a polars expression"),
        (lambda: mr.pattern("a").times(0), "allows no number of events"),
        (lambda: mr.pattern("a").times(3, 2), "allows no number of events"),
        (lambda: mr.pattern("a").times(2).one_or_more(), "already has a number of repetitions"),
        (lambda: mr.pattern("a").greedy(), "applies to repetitions"),
        (lambda: mr.pattern("a").consecutive(), "applies to repetitions"),
        (lambda: mr.pattern("a").until(SPEED > 1), "applies to repetitions"),
        (lambda: mr.pattern("a").loop_gap("1s"), "applies to repetitions"),
        (lambda: mr.pattern("a").gap("1s"), "the first step has none"),
        (lambda: mr.pattern("a").not_next("b").one_or_more(), "cannot be counted"),
        (lambda: mr.pattern("a").not_next("b").optional(), "cannot be counted"),
        (lambda: mr.pattern("a").optional().not_followed_by("b"), "which may be missing"),
        (lambda: mr.pattern("a").next(mr.pattern("b").not_next("c")), "move it out of the group"),
        (lambda: mr.pattern("a").not_next(mr.pattern("b")), "cannot be negated"),
        (lambda: mr.pattern("a").next(mr.pattern("b").within("1s")), "apply to the whole pattern"),
        (lambda: mr.pattern(mr.pattern("a").optional()).one_or_more(), "could repeat for ever"),
        (lambda: mr.pattern(mr.pattern("a")).one_or_more().greedy(), "make its steps greedy"),
        (lambda: mr.pattern(mr.pattern("a")).where(SPEED > 1), "give its steps conditions"),
        (lambda: mr.pattern("a").or_where(SPEED > 1), "takes any event"),
        (
            lambda: mr.pattern("a").next("b", conditions.first("c", "speed") < SPEED),
            "there is no step 'c'; the steps are a, b",
        ),
        (lambda: mr.pattern("a").skip_to_first("b"), "there is no such step; the steps are a"),
        (lambda: mr.pattern("a").within("0s"), "must be longer than zero"),
        (lambda: mr.pattern("a").one_or_more().until(SPEED > 1).until(SPEED > 2), "join the conditions"),
        (lambda: mr.pattern("a").next("b").check(), "has no bound, so on a stream .* such as .within"),
        (
            lambda: mr.pattern("a").not_followed_by("b").check(stream=False),
            "never certain without a bound; add one, such as .within",
        ),
        (lambda: conditions.first("a.b", "c"), "no brackets and no dots"),
        (
            lambda: mr.pattern("a").next("b", conditions.collect("a", "speed").list.len() > 1),
            "the list would be copied each time",
        ),
    ],
)
def test_contradictory_patterns_are_refused_with_the_remedy(wrong: Callable[[], Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        wrong()


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("a + 2 * b > 3 - 1", (pl.col("a") + pl.lit(2) * pl.col("b")) > (pl.lit(3) - pl.lit(1))),
        ("not a == 1 and b or c", (~(pl.col("a") == pl.lit(1)) & pl.col("b")) | pl.col("c")),
        ("(a - 1) / 2 <= -b", ((pl.col("a") - pl.lit(1)) / pl.lit(2)) <= (pl.lit(0) - pl.col("b"))),
        ("k != 'it\\'s'", pl.col("k") != pl.lit("it's")),
        (
            "sum(s.v) + count(s) >= avg(t.v)",
            conditions.sum("s", "v") + conditions.count("s") >= conditions.avg("t", "v"),
        ),
        (
            "contains(k, 'x') and starts_with(k, \"y\")",
            pl.col("k").str.contains(pl.lit("x"), literal=True) & pl.col("k").str.starts_with(pl.lit("y")),
        ),
    ],
)
def test_text_conditions_become_expressions(text: str, expr: pl.Expr) -> None:
    assert parse_condition(text).meta.eq(expr)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a >", "it ends too early"),
        ("a b", "'b' is not expected"),
        ("a ; b", "';' is not part of the language"),
        ("(a > 1", r"'\)' is expected in place of 'the end'"),
        ("__import__('os')", "there is no function '__import__'"),
        ("first(a)", r"'\.' is expected"),
        ("count(1)", "a name is expected"),
        (") a", r"'\)' is not expected"),
    ],
)
def test_the_error_of_a_wrong_text_condition_names_the_place(text: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        parse_condition(text)


@pytest.mark.parametrize(
    ("steps", "more", "words"),
    [
        ([], {}, "is not a list of steps"),
        ([{"step": "a", "group": []}], {}, "is not a step"),
        ([{"step": "a", "wher": "x"}], {}, "unknown key `wher`"),
        ([{"step": "a", "link": "next"}], {}, "links it to nothing"),
        ([{"step": "a"}, {"step": "b"}], {}, "`link: None` of b is unknown"),
        ([{"step": "a", "times": "2-3"}], {}, "not a number of repetitions"),
        ([{"step": "a", "times": 2, "inner": "loose"}], {}, "use relaxed, strict or any"),
        ([{"step": "a", "optional": "yes"}], {}, "neither true nor false"),
        ([{"step": "a"}], {"within": 0}, "not a whole number from 1 to"),
        ([{"step": "a"}], {"skip": "far"}, "`skip: far` is unknown"),
        ([{"step": "a"}], {"skip": {"to_first": "a", "on_miss": "cry"}}, "`on_miss: cry` is unknown"),
    ],
)
def test_the_error_of_a_wrong_declared_pattern_names_the_fault(
    steps: Any, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(DefinitionError, match=words):
        read_pattern(steps, **more)
