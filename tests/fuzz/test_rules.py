"""Rules come from a topic, so they are not trusted: each is a matcher or a DefinitionError of one line,
within a second.

`FUZZ_CASES=20000 pytest tests/fuzz/test_rules.py` runs more of them; `FUZZ_SEED` chooses others.
"""

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from millrace.durations import END_OF_STREAM
from millrace.errors import DefinitionError, MillraceError
from millrace.graph.build.rules import MatchRules
from patterns.random_patterns import random_pattern

CASES, SEED = int(os.environ.get("FUZZ_CASES", "300")), int(os.environ.get("FUZZ_SEED", "0"))
SCHEMA = pl.Schema({"key": pl.String(), "kind": pl.String(), "value": pl.Int64(), "event_time": pl.Int64()})
ROWS = pl.DataFrame(
    [("x", kind, number % 5, number) for number, kind in enumerate("aabcabdbca")], schema=SCHEMA, orient="row"
)
STEP = 'pattern: [{{step: a, where: "{}"}}]\nwithin: 10'


class Bare(MatchRules):
    """Rules over rows of a schema, without a graph around them."""

    def __init__(self) -> None:
        object.__setattr__(self, "rows", SCHEMA)
        object.__setattr__(self, "keys", ("key",))


def outcome(text: str) -> str:
    """The outcome of a rule: its matches, or the error."""
    began = time.monotonic()
    try:
        matcher = Bare().compile_rule(text)
        found = matcher.step({}, ROWS, END_OF_STREAM)
        answer = f"{found.matches.height} rows"
    except MillraceError as error:
        answer = f"{type(error).__name__}: {error}"
        assert len(answer) < 2_000, text
        assert "\n" not in answer.strip(), answer
    assert time.monotonic() - began < 10, text
    return answer


@pytest.mark.parametrize(
    "text",
    [
        "pattern: [{step: a, times: 1000000000}]\nwithin: 10",
        "pattern: [{group: [{step: a}], times: 1000000000}]\nwithin: 10",
        "pattern: [{group: [{group: [{step: a, times: 300}], times: 300}], times: 300}]\nwithin: 10",
        "pattern: [{step: a, times: 1..1000000000}]\nwithin: 10",
        STEP.format(" and ".join(["value > 1"] * 3_000)),
        STEP.format("(" * 300 + "value" + ")" * 300),
        STEP.format("not " * 300 + "true"),
        STEP.format("-" * 300 + "value > 1"),
        STEP.format("abs(" * 300 + "value" + ")" * 300),
        STEP.format("value > " + "9" * 5_000),
        "pattern: " + "[" * 5_000,
        "pattern: " + "{group: [" * 60 + "{step: a}" + "]}" * 60 + "\nwithin: 10",
        "a: &a [x, x]\nb: &b [*a, *a]\npattern: *b",
        "x" * 100_000,
        "pattern: ["
        + ", ".join(f"{{step: s{n}{', link: next' if n else ''}}}" for n in range(300))
        + "]\nwithin: 10",
        "pattern: [{step: a, where: \"contains(value, 'x')\"}]\nwithin: 10",
        'pattern: [{step: a, where: "kind > 1"}]\nwithin: 10',
        "pattern: [{step: [1, 2]}]\nwithin: 10",
        "pattern: [{step: a, where: {a: 1}}]\nwithin: 10",
        "pattern: [{step: a}]\nwithin: 99999999999999999999999",
        "pattern: [{step: a}]\nwithin: .nan",
        "pattern: [{step: a}]\nskip: {to_first: [1]}\nwithin: 10",
        "pattern: 2020-99-99",
        "!!python/object:os.system {}",
        "\x00",
    ],
)
def test_a_hostile_rule_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Bare().compile_rule(text)
    assert len(str(refused.value)) < 2_000


def mutate(text: str, chance: random.Random) -> str:
    """The text with a few characters, words or numbers changed."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(5):
            case 0:
                text = text[:at] + text[at + chance.randint(1, 5) :]
            case 1:
                text = text[:at] + chance.choice("{}[]:,'\"()*&!%#|>-+.<=\x00\n é\ud800"[:22]) + text[at:]
            case 2:
                text = text[:at] + chance.choice(WORDS) + text[at:]
            case 3:
                text = text[:at] + text[at : at + 20] * chance.randint(2, 40) + text[at + 20 :]
            case _:
                text = text.replace(chance.choice(WORDS), chance.choice(WORDS), 1)
    return text


WORDS = [
    *(
        "value",
        "kind",
        "event_time",
        "'a'",
        "1",
        "0",
        "-1",
        "2",
        "99999999999999999999",
        "1e400",
        "null",
        "true",
        "and",
        "or",
        "not",
    ),
    *(
        "first(s0.value)",
        "last(",
        "sum(s0.kind)",
        "avg(s0.kind)",
        "count(s0)",
        "previous(kind)",
        "abs(kind)",
        "contains(kind, 1)",
    ),
    *(
        "next",
        "followed_by",
        "not_next",
        "not_followed_by",
        '"times": 5',
        "1..",
        "0..",
        "..",
        "strict",
        "any",
        '"optional": true',
    ),
    *(
        '"greedy": true',
        '"until": "kind == 1"',
        '"gap": 0',
        '"step"',
        '"group"',
        '"where"',
        "starts_with(value, kind)",
        "/ 0",
        "==",
    ),
]


def a_rule(chance: random.Random) -> str:
    document: dict[str, Any] = {"within": 5, **random_pattern(chance)}
    text = json.dumps(document)
    return mutate(text, chance) if chance.random() < 0.9 else text


def test_a_rule_is_matched_or_refused_with_a_definition_error(took: Callable[[int], None]) -> None:
    took(CASES)
    for seed in range(SEED, SEED + CASES):
        outcome(a_rule(random.Random(seed)))
