"""Copies of rows are removed, whatever arrives late, out of order, in other cuts or after a restart; engine
and model agree at every step.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, patterns, watermarks, windows
from millrace.engine.plan import Plan
from millrace.errors import DefinitionError
from millrace.graph.explain import explain
from millrace.stream import Stream
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine, OnModel, Script


@dataclass
class Happening:
    who: str
    kind: str
    value: int


@dataclass
class Counted:
    who: str
    count: int
    total: int


@dataclass
class Kinds:
    kind: str
    count: int


@dataclass
class Pair:
    who: str
    value: int


HAPPENINGS, OTHERS = (
    mr.Topic("input.happenings", Happening, partitions=2),
    mr.Topic("input.others", Happening),
)
UNIQUE, COUNTED, KINDS, PAIRS = (
    mr.Topic("unique", Happening),
    mr.Topic("counted", Counted),
    mr.Topic("kinds", Kinds),
    mr.Topic("pairs", Pair),
)
TOTAL = {"count": aggregates.count(), "total": aggregates.sum("value")}
PAIR = mr.pattern("a", pl.col("kind") == "a").followed_by("b", pl.col("kind") == "b").within(12)


def unique(*columns: str, within: int = 10, idle: int | None = None) -> Stream:
    rows = mr.read(HAPPENINGS, watermark=watermarks.bounded(2, idle=idle))
    return rows.group_by("who").deduplicate(*columns, within=within)


def jobs_over(stream: Stream, *others: Stream) -> dict[str, mr.Job]:
    rows = stream.union(*others)
    counted = rows.window(windows.fixed(5), lateness=4).group_by("who").aggregate(**TOTAL)
    sessions = (
        rows.filter(pl.col("value") >= 0)
        .window(windows.sessions(3), lateness=2)
        .group_by("kind")
        .aggregate(count=aggregates.count())
    )
    return {
        "rows": mr.Job("rows", rows.write(UNIQUE)),
        "slices": mr.Job(
            "slices", counted.write(COUNTED), counted.late().select("who", "kind", "value").write(UNIQUE)
        ),
        "cells": mr.Job("cells", sessions.write(KINDS)),
        "match": mr.Job(
            "match",
            rows.group_by("who").match(PAIR, select={"value": patterns.sum("a", "value")}).write(PAIRS),
        ),
    }


JOBS = {
    **{
        f"{name}, copies of one time": job
        for name, job in jobs_over(unique("kind", "event_time", idle=9)).items()
    },
    **{f"{name}, copies in order": job for name, job in jobs_over(unique("kind")).items()},
    "beside rows of another topic": jobs_over(
        unique("event_time"), mr.read(OTHERS, watermark=watermarks.ascending())
    )["slices"],
    "of two topics": jobs_over(
        mr.read(HAPPENINGS, watermark=watermarks.percentile(0.9, start=3))
        .union(mr.read(OTHERS))
        .group_by("kind")
        .deduplicate("event_time", within=6)
    )["cells"],
    "twice": jobs_over(unique("kind", "event_time").group_by("kind").deduplicate(within=3))["match"],
}


def events(seed: str, most: int = 90) -> Iterator[SourceEvent]:
    """Rows out of order, copies of them by and by, and now and then one from long ago or far ahead."""
    chance, ends, now, made = random.Random(seed), Counter[tuple[str, int]](), 0, list[SourceEvent]()
    for _ in range(most):
        now += chance.choice((0, 0, 1, 1, 2))
        place = (
            chance.choice(("input.happenings", "input.happenings", "input.others")),
            chance.randint(0, 1),
        )
        place = (place[0], place[1] if place[0] == "input.happenings" else 0)
        at = now - chance.choice((0, 0, 1, 2, 3, 4, 8, 15)) if chance.randint(0, 40) else now + 4_000_000
        values = {"who": chance.choice("xyz"), "kind": chance.choice("aab"), "value": chance.randint(-1, 5)}
        event = SourceEvent(*place, ends[place], at, now, values)
        if made and chance.randint(0, 2) == 0:
            old = chance.choice(made[-12:])
            event = old._replace(offset=ends[old.topic, old.partition], ingestion_time=now)
        ends[event.topic, event.partition] += 1
        made.append(event)
        yield event


def cut(rows: list[SourceEvent], size: int) -> list[list[SourceEvent]]:
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def bag(written: Any) -> Counter[Any]:
    return Counter(
        (topic, *sorted(row.items(), key=lambda item: item[0]))
        for topic, rows in written.items()
        for row in rows
    )


def refusals(late: Any) -> Counter[Any]:
    names = ("topic", "partition", "offset", "reason")
    return Counter((job, *(row[name] for name in names)) for job, rows in late.items() for row in rows)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("seed", range(2))
def test_engine_and_model_show_and_refuse_the_same_at_every_step(name: str, seed: int) -> None:
    partitions = {"input.happenings": 2, "input.others": 1}
    engine, model = OnEngine([JOBS[name]], partitions, slots=1 + seed * 2), OnModel([JOBS[name]], partitions)
    batches = cut([event for event in events(f"{name} {seed}") if event.topic in engine.topics], 5 + seed)
    shown = refused = 0
    for number, batch in enumerate(batches):
        now = max((event.ingestion_time for event in batch), default=0) + (40 if number == 9 else 0)
        if number % 4 == 3:
            engine.restart()
        ours, theirs = (
            backend.feed(batch, now, end=number == len(batches) - 1) for backend in (engine, model)
        )
        assert bag(ours.written) == bag(theirs.written)
        assert refusals(ours.late) == refusals(theirs.late)
        assert {name: engine.watermarks[name] for name in model.watermarks} == model.watermarks
        shown += sum(map(len, ours.written.values()))
        refused += sum(map(len, ours.late.values()))
    assert shown > 0
    assert refused > 5


@pytest.mark.parametrize("name", ["slices, copies of one time", "match, copies in order"])
def test_what_comes_out_does_not_depend_on_how_batches_were_cut(name: str) -> None:
    rows = [event for event in events(name) if event.topic == "input.happenings"]
    answers = []
    for size in (1, 7, len(rows)):
        engine = OnEngine([JOBS[name]], {"input.happenings": 2}, slots=2)
        last: dict[Any, Any] = {}
        late: Counter[Any] = Counter()
        for batch in [*cut(rows, size), []]:
            fed = engine.feed(batch, rows[-1].ingestion_time, end=not batch)
            late += refusals(fed.late)
            for row in (row for written in fed.written.values() for row in written if "window_end" in row):
                last[row["who"], row["window_start"], row["window_end"]] = {
                    k: v for k, v in row.items() if k in ("count", "total", "value")
                }
        answers.append((last, late))
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0][0]) > 1


@pytest.mark.parametrize("on", ["model", "engine"])
def test_rows_go_on_at_once_where_copies_have_the_same_time(on: On) -> None:
    script = Script(mr.Job("rows", unique("kind", "event_time").write(UNIQUE)), on=on)
    row = {"who": "x", "kind": "a", "value": 1, "event_time": 5}
    script.events(row, row)
    script.events({**row, "value": 2}, {**row, "event_time": 6}, {**row, "kind": "b"})
    script.restart()
    script.events(row)
    assert [(shown["kind"], shown["value"], shown["event_time"]) for shown in script.panes()] == [
        ("a", 1, 5),
        ("b", 1, 5),
        ("a", 1, 6),
    ]
    script.watermark(15)
    script.events(row)
    assert [(late["kind"], late["reason"]) for late in script.late()] == [("a", "late")]
    assert script.panes() == []


@pytest.mark.parametrize("on", ["model", "engine"])
def test_of_rows_within_a_time_only_the_first_in_order_goes_on(on: On) -> None:
    script = Script(mr.Job("rows", unique(within=10).write(UNIQUE)), on=on)
    script.events(*({"who": "x", "kind": "a", "value": at, "event_time": at} for at in (16, 8, 0, 30, 25)))
    assert script.panes() == []
    script.watermark(40)
    assert sorted(row["value"] for row in script.panes()) == [0, 16, 30]


def test_what_can_have_no_more_copies_is_forgotten() -> None:
    engine = OnEngine(
        [mr.Job("rows", unique("kind", "event_time", within=20).write(UNIQUE))],
        {"input.happenings": 1},
        slots=1,
    )
    sizes = []
    for at in range(0, 3_000, 3):
        engine.feed(
            [SourceEvent("input.happenings", 0, at, at, at, {"who": "x", "kind": "a", "value": 0})], at
        )
        sizes.append(engine.engine.states[1, 0].table("rows/deduplicate-1", "seen").rows)
    assert sum(sizes) / len(sizes) < 3 * 20 / 3
    assert max(sizes) < 6 * 20 / 3


def shared(name: str | None) -> tuple[mr.Job, mr.Job]:
    rows = unique("kind", "event_time") if name is None else unique("kind", "event_time").named(name)
    return jobs_over(rows)["slices"], jobs_over(rows)["match"]


def test_jobs_that_use_the_same_stream_share_one_deduplication_by_its_name() -> None:
    plan = Plan.of(shared("once"), slots=2)
    assert [(operator.id, operator.jobs, operator.depth) for operator in plan.operators] == [
        ("*/once", ("slices", "match"), 1),
        ("slices/aggregation-2", ("slices",), 1),
        ("match/match-2", ("match",), 1),
    ]
    assert len(plan.routes_of_topic("input.happenings")) == 1
    alone = [OnEngine([job], {"input.happenings": 2}) for job in shared("once")]
    together = OnEngine(shared("once"), {"input.happenings": 2})
    rows = [event for event in events("shared") if event.topic == "input.happenings"]
    for batch in cut(rows, 11):
        ours, apart = (
            together.feed(batch, rows[-1].ingestion_time),
            [engine.feed(batch, rows[-1].ingestion_time) for engine in alone],
        )
        assert bag(ours.written) == bag(apart[0].written) + bag(apart[1].written)
        assert refusals(ours.late) == refusals(apart[0].late) + refusals(apart[1].late)


def test_a_shared_deduplication_needs_a_name_of_its_own() -> None:
    with pytest.raises(DefinitionError, match="share a deduplication that has no name"):
        Plan.of(shared(None), slots=1)
    with pytest.raises(DefinitionError, match="each have a deduplication named 'once'"):
        Plan.of([shared("once")[0], shared("once")[1]], slots=1)


def test_rows_are_dealt_anew_only_where_the_key_changes() -> None:
    rows = unique("event_time").window(windows.fixed(5))
    depths = {
        "same key": rows.filter(pl.col("value") > 0).with_columns(kind=pl.lit("c")).group_by("who"),
        "another key": rows.group_by("kind"),
        "other values of the key": rows.with_columns(who=pl.lit("c")).group_by("who"),
        "who knows": rows.map_batches(lambda frame: frame).group_by("who"),
    }
    jobs = [
        mr.Job("job", keyed.count().select(kind=pl.lit("c"), count=pl.col("count")).write(KINDS))
        for keyed in depths.values()
    ]
    assert [Plan.of([job], slots=1).depth for job in jobs] == [1, 2, 2, 2]


def test_a_deduplication_explains_itself() -> None:
    message = explain([JOBS["match, copies of one time"]])
    assert "deduplicate match/deduplicate-1" in message
    assert "the first of rows with equal who, kind, event_time" in message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: unique("nothing"), "there is no column 'nothing'"),
        (lambda: unique(within=0), "within"),
        (
            lambda: (
                unique()
                .window(windows.fixed(5), lateness=1)
                .group_by("who")
                .count()
                .group_by("who")
                .deduplicate(within=3)
            ),
            "may still be refined",
        ),
    ],
)
def test_what_cannot_be_deduplicated_is_refused(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()
