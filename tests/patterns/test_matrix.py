"""Contiguity × quantifier × inner × greedy × skip × within × not × groups × conditions on earlier
events match as the definition.
"""

import itertools
import random
from collections import Counter
from typing import Any

import pytest

from millrace.errors import DefinitionError
from millrace.testing.transcripts import patterns as transcripts

LINKS = ("next", "followed_by", "followed_by_any")
TIMES = (1, "0..1", 2, "1..2", "1..", "0..")
INNERS = ("relaxed", "strict", "any")
SKIPS: tuple[Any, ...] = ("none", "to_next", "past_last", {"to_first": "b"}, {"to_last": "b"})
NOTS = (None, "not_next", "not_followed_by", "not_followed_by at the end")
EARLIER = (
    "kind == 'b'",
    "kind == 'b' and value >= first(a.value)",
    "kind == 'b' and (count(b) == 0 or value > last(b.value))",
)


def document(
    link: str,
    times: Any,
    inner: str,
    skip: Any,
    no: str | None,
    *,
    greedy: bool,
    within: bool,
    group: bool,
    where: str,
) -> Any:
    loop = {
        "step": "b",
        "where": where,
        "times": times,
        "inner": inner,
        "greedy": greedy and times not in (1, 2, "0..1"),
    }
    middle = (
        {"group": [{"step": "g", "where": "kind == 'b'"}, {**loop, "link": "followed_by"}], "times": "1..2"}
        if group
        else loop
    )
    steps: list[Any] = [{"step": "a", "where": "kind == 'a'"}, {**middle, "link": link}]
    if no in ("not_next", "not_followed_by"):
        steps.insert(1, {"step": "no", "where": "kind == 'd'", "link": no})
    steps.append({"step": "c", "where": "kind == 'c'", "link": link})
    if no == "not_followed_by at the end":
        steps.append({"step": "no", "where": "kind == 'd'", "link": "not_followed_by"})
    return {
        "pattern": steps,
        "skip": skip,
        "within": 7 if within or no == "not_followed_by at the end" else None,
    }


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("no", NOTS)
def test_every_combination_matches_as_the_definition(link: str, times: Any, no: str | None) -> None:
    chance = random.Random(f"{link} {times} {no}")
    found = ran = 0
    for inner, skip, greedy, within in itertools.product(INNERS, SKIPS, (False, True), (False, True)):
        cell_document = document(
            link,
            times,
            inner,
            skip,
            no,
            greedy=greedy,
            within=within,
            group=chance.random() < 0.3,
            where=chance.choice(EARLIER),
        )
        events = [
            {"id": number, "t": number, "kind": kind, "value": chance.randint(0, 3)}
            for number, kind in enumerate(["a", *chance.choices("bbbcd", k=5), "c"])
        ]
        try:
            transcript = transcripts.parse_document({**cell_document, "events": events, "expect": {}})
        except DefinitionError:
            continue
        wanted, _ = transcripts.match_by_definition(transcript)
        matches, _ = transcripts.match_by_matcher(transcript, chance.randint(0, 99))
        assert Counter(matches) == Counter(wanted), f"{cell_document} on {events}"
        found, ran = found + len(wanted), ran + 1
    assert ran > 40
    assert found > 3
