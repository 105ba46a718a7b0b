"""Random jobs with patterns and with row patterns of SQL, for property tests."""

import random
from dataclasses import replace
from typing import Any

import polars as pl
from hypothesis import assume
from hypothesis import strategies as st

import millrace as mr
from millrace import patterns as pattern_words
from millrace.errors import DefinitionError
from millrace.patterns import Pattern, declared
from millrace.patterns.sql.clause import RowPattern
from millrace.patterns.sql.skip import AfterMatchSkip
from millrace.stream import Output, Stream
from patterns.random_patterns import random_nested_pattern, random_pattern
from patterns.sql.test_match_recognize import a_row_pattern
from strategies import A, Given, watermark_of, write
from windowings import windowed

SPANS = (2, 3, 5, 8, 20)


def happenings(readings: Stream) -> Stream:
    """Readings in the columns that random patterns ask for: a kind of four,
    and a small number; null now and then.
    """
    v = pl.col("v")
    kind = pl.when(v == 3).then(pl.lit("a")).when(v == 1).then(pl.lit("b")).when(v == 2).then(pl.lit("c"))
    return readings.select("k", kind=kind.otherwise(pl.lit("d")), value=pl.col("g") * 2)


def pattern_document(chance: random.Random) -> dict[str, Any]:
    """A pattern in its declarative form; what must not follow its end has a gap now and then."""
    document = chance.choice((random_pattern, random_pattern, random_nested_pattern))(chance)
    end = document["pattern"][-1]
    if end.get("link") == "not_followed_by" and chance.random() < 0.6:
        end["gap"] = chance.choice((1, 2, 4))
    return document


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """A pattern that can run for ever."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    document = pattern_document(chance)
    within = chance.choice(SPANS)
    try:
        return declared.read_pattern(document["pattern"], within=within, skip=document["skip"]).check()
    except DefinitionError:
        assume(False)
        raise


@st.composite
def row_patterns(draw: st.DrawFn) -> RowPattern:
    """A row pattern that can run for ever, and never asks to skip to a row that is not there."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    skip = AfterMatchSkip(chance.choice(("past_last", "past_last", "to_next")))
    return replace(a_row_pattern(chance), span=chance.choice(SPANS), after=skip)


@st.composite
def matches_of(draw: st.DrawFn, rows: Stream) -> list[Stream]:
    """The results of a pattern: its matches, and its timeouts if it has any."""
    if not draw(st.integers(0, 2)):
        try:
            return [rows.group_by("k").match_recognize(draw(row_patterns()))]
        except DefinitionError:
            assume(False)
    pattern = draw(patterns())
    steps = [step.name for step in pattern.steps if not step.is_negative]
    select = {f"values_{number}": pattern_words.collect(step, "value") for number, step in enumerate(steps)}
    select |= {
        f"times_{number}": pattern_words.collect(step, "event_time") for number, step in enumerate(steps)
    }
    select |= {
        "total": pattern_words.sum(steps[0], "value"),
        "newest": pattern_words.last(steps[-1], "kind"),
        "took": pattern_words.count(steps[-1]),
    }
    try:
        matched = rows.group_by("k").match(pattern, select=select)
    except DefinitionError:
        assume(False)
    return [matched, matched.timeouts()]


@st.composite
def pattern_jobs(draw: st.DrawFn) -> Given:
    """One job with a pattern, and now and then an aggregation over its matches."""
    rows = happenings(mr.read(A, watermark=draw(watermark_of(1, False))))
    found = draw(matches_of(rows))
    outputs: list[Output] = [
        write(stream, f"analytics.found_{number}") for number, stream in enumerate(found)
    ]
    if draw(st.booleans()):
        counted = draw(windowed(found[-1], 1, False)).group_by("k").count(name="times")
        outputs.append(write(counted, "analytics.counted"))
    return Given((mr.Job("patterns", *outputs),), 1, {A.name: draw(st.sampled_from([1, 2]))})
