"""Patterns as operators of jobs: engine and model agree at every step, whatever arrives late,
out of order or after a restart.
"""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, patterns, watermarks, windows
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError
from millrace.patterns import Pattern
from millrace.runners.local import Engine
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, Script, decode_events


@dataclass
class Happening:
    who: str
    kind: str
    value: int


@dataclass
class Pair:
    who: str
    value: int
    number: int


@dataclass
class Total:
    number: int
    count: int


HAPPENINGS, PAIRS, TOTALS = (
    mr.Topic("input.happenings", Happening),
    mr.Topic("pairs", Pair),
    mr.Topic("totals", Total),
)
OVERDUE = mr.Topic("overdue", Pair)
A, B = pl.col("kind") == "a", pl.col("kind") == "b"
SELECT = {
    "value": patterns.sum("a", "value") + patterns.last("a", "event_time"),
    "number": patterns.count("a"),
}
PATTERNS = {
    "strict": mr.pattern("a", A).next("b", B).within(6),
    "loop": mr.pattern("a", A).one_or_more().followed_by("b", B).within(8).skip_past_last(),
    "any": mr.pattern("a", A).followed_by_any("b", B).within(5).skip_to_next(),
    "earlier": mr.pattern("a", A).followed_by("b", pl.col("value") > patterns.last("a", "value")).within(7),
    "absent": mr.pattern("a", A).times(1, 2).not_followed_by("b", B).within(5),
}


def job(pattern: Pattern) -> mr.Job:
    matched = mr.read(HAPPENINGS).group_by("who").match(pattern, select=SELECT)
    return mr.Job("pairs", matched.write(PAIRS), matched.timeouts().write(OVERDUE))


def summarize(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, value) for name, value in row.items() if name != "index"))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_engine_and_model_show_the_same_at_every_step(name: str, seed: int) -> None:
    chance = random.Random(f"{name} {seed}")
    on: tuple[On, ...] = ("model", "engine")
    scripts = [Script(job(PATTERNS[name]), on=each, partitions=2) for each in on]
    shown = late = mark = 0
    for step in range(25):
        rows = [
            {
                "who": chance.choice("xyz"),
                "kind": chance.choice("aab"),
                "value": chance.randint(0, 5),
                "event_time": max(0, step * 2 + chance.randint(-3, 6)),
            }
            for _ in range(chance.randint(0, 4))
        ]
        places = [chance.randint(0, 1) for _ in rows]
        mark = max(mark, step * 2 + chance.choice((-2, 0, 3)))
        for script in scripts:
            if rows:
                script.events(*rows, partition=places)
            script.watermark(mark)
        if step % 7 == 6:
            scripts[1].restart()
        model, engine = ([summarize(row) for row in script.panes()] for script in scripts)
        assert Counter(engine) == Counter(model)
        refused = [Counter(summarize(row) for row in script.late()) for script in scripts]
        assert refused[0] == refused[1]
        shown, late = shown + len(model), late + refused[0].total()
    for script in scripts:
        script.end()
    assert Counter(summarize(row) for row in scripts[1].panes()) == Counter(
        summarize(row) for row in scripts[0].panes()
    )
    assert shown > 3
    assert late > 0


def test_timeouts_are_a_second_output() -> None:
    """What is begun and not whole in time: in the columns of matches, at the moment the time was over."""
    matched = mr.read(HAPPENINGS).group_by("who").match(PATTERNS["strict"], select=SELECT)
    given = mr.Job("pairs", matched.write(PAIRS), matched.timeouts().write(OVERDUE))
    on: tuple[On, ...] = ("model", "engine")
    for each in on:
        script = Script(given, on=each)
        script.events(
            {"who": "x", "kind": "a", "value": 3, "event_time": 1},
            {"who": "y", "kind": "a", "value": 5, "event_time": 2},
            {"who": "y", "kind": "b", "value": 5, "event_time": 3},
        )
        script.watermark(6)
        script.restart()
        assert [row["who"] for row in script.panes("pairs")] == ["y"]
        assert not script.panes("overdue")
        script.watermark(7)
        [row] = script.panes("overdue")
        assert (row["who"], row["value"], row["number"], row["window_start"], row["window_end"]) == (
            "x",
            4,
            1,
            1,
            7,
        )


def test_a_match_is_shown_as_soon_as_no_earlier_beginning_can_rule_it_out() -> None:
    """The first a might still match and rule out the second; at 4 the c ends it,
    and nothing else happens then.
    """
    value, first_value = pl.col("value"), patterns.first("a", "value")
    pattern = (
        mr.pattern("a", A)
        .not_followed_by("c", (pl.col("kind") == "c") & (value > first_value))
        .followed_by("b", B & (value == first_value))
        .within(100)
        .skip_past_last()
    )
    on: tuple[On, ...] = ("model", "engine")
    for each in on:
        script = Script(job(pattern), on=each)
        events = [("a", 1), ("a", 9), ("b", 9), ("c", 5)]
        script.events(
            *(
                {"who": "x", "kind": kind, "value": number, "event_time": at}
                for at, (kind, number) in enumerate(events, start=1)
            )
        )
        script.watermark(4)
        assert not script.panes("pairs")
        script.watermark(5)
        assert [(row["window_start"], row["window_end"]) for row in script.panes("pairs")] == [(2, 4)], each


def test_timeouts_can_be_aggregated_in_windows() -> None:
    matched = mr.read(HAPPENINGS).group_by("who").match(PATTERNS["strict"], select=SELECT)
    script = Script(
        mr.Job(
            "totals", matched.timeouts().window(windows.fixed(10)).group_by("number").count().write(TOTALS)
        )
    )
    script.events(*({"who": f"{n}", "kind": "a", "value": 1, "event_time": n} for n in range(6)))
    script.watermark(30)
    assert [(row["window_start"], row["count"]) for row in script.panes()] == [(0, 5), (10, 1)]


def test_timeouts_follow_a_pattern() -> None:
    with pytest.raises(DefinitionError, match=r"timeouts\(\) follows match\(\)"):
        mr.read(HAPPENINGS).timeouts()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "table"), [("strict", "stretches"), ("earlier", "courses")])
def test_what_is_kept_is_dropped_with_time(name: str, table: str) -> None:
    rows = mr.read(HAPPENINGS, watermark=watermarks.bounded(0))
    given = mr.Job("pairs", rows.group_by("who").match(PATTERNS[name], select=SELECT).write(PAIRS))
    engine = Engine([given], slots=1, partitions={HAPPENINGS.name: 1})
    kept = []
    for time in range(0, 400, 2):
        event = SourceEvent(
            HAPPENINGS.name, 0, time, time, time, {"who": f"k{time}", "kind": "a", "value": 1}
        )
        engine.step([PartitionBatch(HAPPENINGS.name, 0, decode_events(HAPPENINGS, [event]))], time)
        kept.append(engine.states[1, 0].table("pairs/match-1", table).rows)
    assert 0 < max(kept[100:]) <= max(kept[:100]) < 50


def test_matches_can_be_aggregated_in_windows() -> None:
    stream = (
        mr.read(HAPPENINGS)
        .group_by("who")
        .match(PATTERNS["strict"], select=SELECT)
        .window(windows.fixed(10))
        .group_by("number")
        .count()
    )
    script = Script(mr.Job("totals", stream.write(TOTALS)), on="engine")
    for time in (1, 3, 12):
        script.events(
            {"who": "x", "kind": "a", "value": 1, "event_time": time},
            {"who": "x", "kind": "b", "value": 1, "event_time": time + 1},
        )
    script.watermark(30)
    assert [(row["window_start"], row["count"]) for row in script.panes()] == [(0, 2), (10, 1)]


def test_late_rows_can_be_read() -> None:
    matched = mr.read(HAPPENINGS).group_by("who").match(PATTERNS["strict"], select=SELECT)
    script = Script(
        mr.Job(
            "pairs",
            matched.write(PAIRS),
            matched.late().select("who", "kind", "value").write(mr.Topic("refused", Happening)),
        )
    )
    script.watermark(10)
    script.events({"who": "x", "kind": "a", "value": 1, "event_time": 9})
    assert [row["who"] for row in script.panes("refused")] == ["x"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda rows: rows.group_by("who").match(mr.pattern("a", A).next("b", B), select=SELECT),
            "has no bound",
        ),
        (lambda rows: rows.group_by("who").match("a b", select=SELECT), "is not a pattern"),
        (
            lambda rows: rows.group_by("who").match(
                mr.pattern("a", pl.col("speed") > 1).within(5), select=SELECT
            ),
            "there is no column 'speed'",
        ),
        (lambda rows: rows.group_by("who").match(PATTERNS["strict"], select={}), "has no result columns"),
        (
            lambda rows: rows.group_by("who").match(PATTERNS["strict"], select={"value": pl.col("value")}),
            "name one, as in patterns.last",
        ),
        (
            lambda rows: rows.group_by("who").match(
                PATTERNS["strict"], select={"v": patterns.first("c", "value")}
            ),
            "there are the steps a, b",
        ),
        (
            lambda rows: rows.group_by("who").match(
                PATTERNS["strict"], select={"who": patterns.first("a", "value")}
            ),
            "already have a column 'who'",
        ),
        (
            lambda rows: rows.group_by("who").match(PATTERNS["strict"], select={"v": 3}),
            "is not an expression",
        ),
        (
            lambda rows: (
                rows.window(windows.fixed(5), lateness=1)
                .group_by("who")
                .aggregate(value=aggregates.sum("value"))
                .group_by("who")
                .match(mr.pattern("a").within(5), select={"v": patterns.first("a", "value")})
            ),
            "may still be refined",
        ),
    ],
)
def test_what_cannot_be_matched_is_refused_with_the_remedy(make: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make(mr.read(HAPPENINGS))


def test_a_job_says_what_it_matches() -> None:
    text = str(job(PATTERNS["loop"]))
    assert "match pairs/match-1" in text
    assert "a+ where" in text
    assert "within 8ms, skip past_last" in text
