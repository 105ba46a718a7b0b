"""Rules that change while a job runs: ordered among the rows by event time,
each by itself, whatever is cut.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError
from millrace.patterns import Rule
from millrace.runners.local import Engine
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, Script, decode_events


@dataclass
class Happening:
    who: str
    kind: str
    value: int


@dataclass
class Found:
    who: str
    rule: str
    steps: list[str]
    times: list[int]
    value: list[int]


HAPPENINGS, RULES = mr.Topic("input.happenings", Happening), mr.Topic("input.rules", Rule)
FOUND = mr.Topic("analytics.found", Found)


def rule(first: str, then: str, *, link: str = "followed_by", within: int = 8, **more: Any) -> str:
    steps = [
        {"step": "one", "where": f"kind == '{first}'"},
        {"step": "two", "link": link, "where": f"kind == '{then}'"},
    ]
    return json.dumps({"pattern": steps, "within": within, **more})


TEXTS = [
    rule("a", "b"),
    rule("a", "b", link="next", skip="past_last"),
    rule("b", "a", link="followed_by_any"),
    rule("a", "c", link="not_followed_by", within=5),
    json.dumps(
        {
            "pattern": [{"step": "one", "where": "kind == 'a' and value > 2", "times": "2.."}],
            "within": 6,
            "skip": "to_next",
        }
    ),
    "",
    "pattern: [",
]


def job() -> mr.Job:
    rules = mr.read(RULES, watermark=watermarks.bounded(0, idle="10s"))
    return mr.Job(
        "found",
        mr.read(HAPPENINGS, watermark=watermarks.bounded(0))
        .group_by("who")
        .match_rules(rules, show=["value"])
        .write(FOUND),
    )


(OPERATOR_ID,) = job().operator_ids.values()


def count_alerts(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def happening(who: str, kind: str, at: int, value: int = 1) -> dict[str, Any]:
    return {"who": who, "kind": kind, "value": value, "event_time": at}


def found(script: Script) -> list[tuple[str, list[int]]]:
    return [(row["rule"], row["times"]) for row in script.panes()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_engine_and_model_show_the_same_at_every_step(seed: int) -> None:
    chance = random.Random(seed)
    on: tuple[On, ...] = ("model", "engine")
    scripts = [Script(job(), on=each, partitions=2) for each in on]
    shown = late = mark = 0
    for step in range(20):
        at = [max(0, step * 2 + chance.randint(-3, 6)) for _ in range(5)]
        rows = [
            happening(chance.choice("xyz"), chance.choice("abc"), time, chance.randint(0, 5))
            for time in at[:4]
        ]
        rules = (
            [{"name": chance.choice("pqr"), "pattern": chance.choice(TEXTS), "event_time": at[4]}]
            if chance.random() < 0.4
            else []
        )
        places = [chance.randint(0, 1) for _ in rows]
        mark = max(mark, step * 2 + chance.choice((-2, 0, 3)))
        for script in scripts:
            script.events(*rows, topic=HAPPENINGS, partition=places)
            if rules:
                script.events(*rules, topic=RULES)
            script.watermark(mark)
        if step % 7 == 6:
            scripts[1].restart()
        model, engine = (script.panes() for script in scripts)
        assert count_alerts(engine) == count_alerts(model)
        refused = [script.late() for script in scripts]
        assert count_alerts(refused[0]) == count_alerts(refused[1])
        shown, late = shown + len(model), late + len(refused[0])
    assert shown > 3
    assert late > 0


def test_a_rule_is_added_replaced_and_withdrawn_and_the_others_go_on() -> None:
    script = Script(job())
    script.events(
        {"name": "p", "pattern": rule("a", "b"), "event_time": 0},
        {"name": "q", "pattern": rule("a", "c"), "event_time": 0},
        topic=RULES,
    )
    script.events(happening("x", "a", 1), happening("x", "b", 2), topic=HAPPENINGS)
    script.watermark(3)
    assert found(script) == [("p", [1, 2])]
    script.events({"name": "p", "pattern": rule("b", "b"), "event_time": 4}, topic=RULES)
    script.restart()
    script.events(happening("x", "b", 5), happening("x", "c", 6), happening("x", "b", 7), topic=HAPPENINGS)
    script.watermark(8)
    assert sorted(found(script)) == [("p", [5, 7]), ("q", [1, 6])], (
        "q has kept what began before; p has forgotten it"
    )
    script.events({"name": "p", "pattern": "", "event_time": 9}, topic=RULES)
    script.events(
        happening("x", "a", 10),
        happening("x", "b", 11),
        happening("x", "b", 12),
        happening("x", "c", 13),
        topic=HAPPENINGS,
    )
    script.watermark(20)
    assert found(script) == [("q", [10, 13])]


def test_a_rule_sees_the_rows_after_it_in_event_time_however_late_it_is_told() -> None:
    for rule_first in (True, False):
        script = Script(job())
        rows = [
            happening("x", "a", 1),
            happening("x", "b", 2),
            happening("x", "a", 5),
            happening("x", "b", 6),
        ]
        if rule_first:
            script.events({"name": "p", "pattern": rule("a", "b"), "event_time": 3}, topic=RULES)
        script.events(*rows, topic=HAPPENINGS)
        if not rule_first:
            script.events({"name": "p", "pattern": rule("a", "b"), "event_time": 3}, topic=RULES)
        script.watermark(10)
        assert found(script) == [("p", [5, 6])]


@pytest.mark.parametrize("slots", [1, 3])
def test_a_malformed_rule_is_one_dead_letter_and_the_one_before_it_stays(slots: int) -> None:
    engine = Engine([job()], slots=slots, partitions={HAPPENINGS.name: 1, RULES.name: 1})

    def batch(rules: list[str], rows: list[tuple[int, str]], at: int) -> Any:
        counts_by_rule = [
            SourceEvent(RULES.name, 0, at + n, at, at, {"name": "p", "pattern": text})
            for n, text in enumerate(rules)
        ]
        rows_by_rule = [
            SourceEvent(HAPPENINGS.name, 0, time, time, time, {"who": "x", "kind": kind, "value": 0})
            for time, kind in rows
        ]
        return engine.step(
            [
                PartitionBatch(RULES.name, 0, decode_events(RULES, counts_by_rule)),
                PartitionBatch(HAPPENINGS.name, 0, decode_events(HAPPENINGS, rows_by_rule)),
            ],
            at + 100,
        )

    batch([rule("a", "b")], [(1, "a")], 0)
    wrong = [
        "pattern: [",
        "within: 3",
        rule("a", "b").replace(', "within": 8', ""),
        rule("a", "b").replace("kind", "colour"),
    ]
    wrong += [
        rule("a", "b").replace("one", "a\\ud800"),
        rule("a", "b", link="a\ud800"),
        rule("a", "b").replace("kind == 'b'", "kind > previous(value)"),
    ]
    results = batch(wrong, [(11, "c")], 10)
    assert results.dead is not None
    assert results.dead["topic"].unique().to_list() == [RULES.name]
    reasons = results.dead["reason"].to_list()
    assert len(reasons) == 7
    for words in (
        "cannot be read",
        "is not a map of pattern, within, skip",
        "has no bound",
        "there is no column 'colour'",
        "surrogates not allowed",
        "link: a?",
        "cannot compare",
    ):
        assert sum(words in reason for reason in reasons) == 1
    batch([], [(12, "a"), (13, "b")], 20)
    results = batch([""], [(31, "c")], 30)
    assert results.outputs[FOUND.name]["times"].to_list() == [[12, 13]]


def test_what_a_rule_has_begun_is_dropped_with_time_and_with_the_rule() -> None:
    engine = Engine([job()], slots=1, partitions={HAPPENINGS.name: 1, RULES.name: 1})
    kept = []
    for batch in range(30):
        time = 4 * batch
        rows = [
            SourceEvent(HAPPENINGS.name, 0, at, at, at, {"who": f"k{at}", "kind": "a", "value": 1})
            for at in range(time, time + 4)
        ]
        names = ("p", "q") if batch % 2 else ("q",)
        rules = [
            SourceEvent(RULES.name, 0, time + n, time + 3, time + 3, {"name": name, "pattern": TEXTS[0]})
            for n, name in enumerate(names)
        ]
        engine.step(
            [
                PartitionBatch(RULES.name, 0, decode_events(RULES, rules)),
                PartitionBatch(HAPPENINGS.name, 0, decode_events(HAPPENINGS, rows)),
            ],
            time,
        )
        kept.append(engine.states[1, 0].table(OPERATOR_ID, "courses").rows)
    assert max(kept[:15]) > 0
    assert max(kept[15:]) <= max(kept[:15])


def test_matches_of_rules_are_a_stream_like_others() -> None:
    rules = mr.read(RULES, watermark=watermarks.bounded(0, idle="10s"))
    found = (
        mr.read(HAPPENINGS)
        .group_by("who")
        .match_rules(rules)
        .window(windows.fixed(10))
        .group_by("rule")
        .count()
    )

    @dataclass
    class Count:
        rule: str
        count: int

    script = Script(mr.Job("counts", found.write(mr.Topic("counts", Count))))
    script.events({"name": "p", "pattern": rule("a", "b"), "event_time": 0}, topic=RULES)
    script.events(
        *(happening(who, kind, time) for who in "xy" for kind, time in (("a", 1), ("b", 2))), topic=HAPPENINGS
    )
    script.watermark(20)
    assert [(row["rule"], row["count"]) for row in script.panes()] == [("p", 2)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda rows, rules: rows.group_by("who").match_rules(rows), "need a text 'name'"),
        (
            lambda rows, rules: rows.group_by("who").match_rules(rules, show=["colour"]),
            "there is no such column",
        ),
        (
            lambda rows, rules: (
                rows.with_columns(rule=mr.patterns.count("a") * 0).group_by("who").match_rules(rules)
            ),
            r"there is no column 'count\(a\)'",
        ),
        (
            lambda rows, rules: (
                rows.window(windows.fixed(5), lateness=1)
                .group_by("who")
                .count()
                .group_by("who")
                .match_rules(rules)
            ),
            r"say \.final\(\) before it",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(make: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make(mr.read(HAPPENINGS), mr.read(RULES))


def test_a_job_says_that_it_follows_rules() -> None:
    assert f"match {OPERATOR_ID}" in str(job())


GREEDY = json.dumps(
    {
        "pattern": [
            {"step": "one", "times": "1..", "inner": "any"},
            {"step": "two", "link": "next", "where": "value > 99"},
        ],
        "within": 100,
    }
)


@pytest.mark.parametrize(
    "text",
    [GREEDY, GREEDY.replace('"any"', '"relaxed"').replace("value > 99", "contains(last(one.kind), 'z')")],
)
def test_a_rule_that_eats_time_is_withdrawn_with_a_letter_and_the_others_go_on(text: str) -> None:
    engine = Engine([job()], slots=1, partitions={HAPPENINGS.name: 1, RULES.name: 1})

    def batch(
        rules: list[tuple[str, str]], kinds: str, at: int
    ) -> tuple[list[tuple[str, list[int]]], list[Any]]:
        counts_by_rule = [
            SourceEvent(RULES.name, 0, at + n, at, at, {"name": name, "pattern": text})
            for n, (name, text) in enumerate(rules)
        ]
        rows_by_rule = [
            SourceEvent(
                HAPPENINGS.name,
                0,
                1000 * at + n,
                at + 1 + n // 10,
                at,
                {"who": "x", "kind": kind, "value": 0},
            )
            for n, kind in enumerate(kinds)
        ]
        pieces = [
            PartitionBatch(RULES.name, 0, decode_events(RULES, counts_by_rule)),
            PartitionBatch(HAPPENINGS.name, 0, decode_events(HAPPENINGS, rows_by_rule)),
        ]
        results = engine.step(pieces, 20_000 + 100 * at)
        panes = results.outputs.get(FOUND.name)
        dead = [] if results.dead is None else results.dead.rows(named=True)
        return [] if panes is None else list(panes.select("rule", "times").iter_rows()), dead

    batch([("greedy", text), ("p", rule("a", "b", link="next"))], "ab" * 300, 0)
    panes, dead = batch([], "c", 200)
    assert {name for name, _ in panes} == {"p"}
    assert [json.loads(letter["value"]) for letter in dead] == [{"name": "greedy", "pattern": text}]
    assert "the rule 'greedy' was withdrawn" in dead[0]["reason"]
    assert dead[0]["topic"] == RULES.name
    batch([], "ab", 400)
    batch([("greedy", rule("a", "b"))], "ab", 600)
    panes, dead = batch([], "c", 800)
    assert dead == []
    assert {name for name, _ in panes} == {"greedy", "p"}, "a rule that was withdrawn may come again"


def test_there_are_only_so_many_rules_and_one_too_many_is_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.engine.operators.match_rules.MAX_RULES", 3)
    engine = Engine([job()], slots=2, partitions={HAPPENINGS.name: 1, RULES.name: 1})

    def batch(rules: list[tuple[str, str]], at: int) -> Any:
        counts_by_rule = [
            SourceEvent(RULES.name, 0, at + n, at, at, {"name": name, "pattern": text})
            for n, (name, text) in enumerate(rules)
        ]
        rows_by_rule = [
            SourceEvent(HAPPENINGS.name, 0, at + n, at + 1 + n, at, {"who": "x", "kind": kind, "value": 0})
            for n, kind in enumerate("ab")
        ]
        return engine.step(
            [
                PartitionBatch(RULES.name, 0, decode_events(RULES, counts_by_rule)),
                PartitionBatch(HAPPENINGS.name, 0, decode_events(HAPPENINGS, rows_by_rule)),
            ],
            200 * at,
        )

    dead = batch([(name, rule("a", "b")) for name in "pqrst"], 0).dead
    assert dead is not None
    assert [json.loads(value)["rule"] for value in dead["value"]] == ["s", "t"]
    assert dead["reason"].unique().to_list() == [
        "there are 3 rules already; withdraw some (an empty pattern), then send it again"
    ]
    assert batch([("p", rule("b", "a")), ("q", "")], 100).dead is None, (
        "one that is known may be replaced and withdrawn"
    )
    batch([], 200)
    results = batch([("s", rule("a", "b"))], 300)
    assert results.dead is None
    assert "s" in batch([], 400).outputs[FOUND.name]["rule"].to_list()
