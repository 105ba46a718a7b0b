"""Parallelism per operation: over how many of a run's slots its keys are spread. It changes no result, and
state moves when it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from engine.test_rescale import in_slots
from millrace import graph, windows
from millrace.engine import fingerprints
from millrace.engine.plan import Plan
from millrace.engine.routing import partition_by_slot
from millrace.errors import DefinitionError
from millrace.graph.explain import SlotLayout, explain
from millrace.runners.state.evolution import StateChanges, evolve
from millrace.runners.state.folder import Identity
from millrace.stream import Job, Output
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from strategies import batches, examples, givens
from test_engine_against_model import hold_batch


def spread_out(job: Job, choose: Callable[[], int | None]) -> Job:
    """The same job, each of its operations with a parallelism of its own."""
    rebuilt: dict[int, Any] = {}

    def rebuild(node: Any) -> Any:
        if id(node) not in rebuilt:
            inputs = tuple(map(rebuild, node.inputs))
            limit = {"parallelism": choose()} if isinstance(node, graph.Operation) else {}
            rebuilt[id(node)] = replace(node, inputs=inputs, **limit)
        return rebuilt[id(node)]

    return Job(job.name, *(Output(rebuild(output)) for output in job.outputs))


@given(data=st.data())
@examples(60)
def test_random_jobs_show_the_same_however_their_keys_are_spread(data: st.DataObject) -> None:
    jobs = data.draw(givens(anyhow=data.draw(st.booleans())))
    model = OnModel(jobs.jobs, jobs.partitions)

    def make_engine() -> OnEngine:
        choice = st.sampled_from([None, 1, 2, 3, 100])
        spread = [spread_out(job, lambda: data.draw(choice)) for job in jobs.jobs]
        return OnEngine(spread, jobs.partitions, slots=data.draw(st.sampled_from([1, 2, 5, 9])))

    engine = make_engine()
    for batch in data.draw(batches(jobs)):
        if not data.draw(st.integers(0, 4)):  # a savepoint, and on with another parallelism
            engine = in_slots(engine, make_engine())
        hold_batch(engine, model, batch)


@dataclass
class Word:
    word: str


@dataclass
class Count:
    word: str
    count: int


WORDS, COUNTS = mr.Topic("words", Word), mr.Topic("counts", Count)


def counting(parallelism: int | None = None, **how: Any) -> mr.Job:
    counts = mr.read(WORDS).window(windows.sessions("1m"), **how).group_by("word").count()
    return mr.Job("job", (counts if parallelism is None else counts.parallelism(parallelism)).write(COUNTS))


@pytest.mark.parametrize(
    ("parallelism", "slots", "used"),
    [
        (None, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (3, 8, [0, 2, 5]),
        (1, 8, [0]),
        (8, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (100, 3, [0, 1, 2]),
        (2, 1, [0]),
    ],
)
def test_keys_lie_in_so_many_slots(parallelism: int | None, slots: int, used: list[int]) -> None:
    [operator] = Plan.of([counting(parallelism)], slots=slots).operators
    words = pl.DataFrame({"word": [f"w{n}" for n in range(2_000)]})
    parts = partition_by_slot(words, operator.node, slots)
    assert sorted(slot for slot, _ in parts) == used
    assert sum(part.height for _, part in parts) == 2_000
    assert min(part.height for _, part in parts) > 2_000 / len(used) / 2


def test_state_lies_in_the_slots_of_its_keys_and_moves_with_another_parallelism() -> None:
    engine = OnEngine([counting(2)], {"words": 1}, slots=6)
    rows = [SourceEvent("words", 0, n, n, n, {"word": f"w{n}"}) for n in range(200)]
    engine.feed(rows, 200)
    assert filled(engine) == [0, 3]
    for parallelism, slots in ((None, [0, 1, 2, 3, 4, 5]), (1, [0]), (3, [0, 2, 4])):
        engine = in_slots(engine, OnEngine([counting(parallelism)], {"words": 1}, slots=6))
        assert filled(engine) == slots
    result = engine.feed([], 500, end=True)
    assert len(result.written["counts"]) == 200


def filled(engine: OnEngine) -> list[int]:
    return sorted(slot for (_, slot), state in engine.engine.states.items() if any(state.tables.values()))


def test_a_run_that_continues_finds_out_that_state_has_to_move() -> None:
    first, same, other = (Plan.of([counting(n)], slots=4) for n in (2, 2, 3))
    identity = Identity(
        "id", ("job",), first.fingerprint, 4, partitions=1, operators=dict(first.fingerprints)
    )
    assert evolve(identity, same, {}, StateChanges(), "here").states is None
    moved = evolve(identity, other, {}, StateChanges(), "here")
    assert moved.states is not None
    assert moved.identity.operators == other.fingerprints


def test_state_of_before_belongs_to_all_slots() -> None:
    plain = Plan.of([counting()], slots=4)
    [description] = plain.fingerprints.values()
    assert "parallelism" not in description
    assert fingerprints.parallelism_of(description) is None
    [operator] = Plan.of([counting(2)], slots=4).operators
    assert fingerprints.find_difference(description, operator) is None


def test_it_stays_with_its_operation_through_names_and_later_steps() -> None:
    counts = mr.read(WORDS).window(windows.fixed("1m")).group_by("word").count().parallelism(2).named("c")
    total = mr.read(WORDS).window(windows.fixed("1m")).count(name="n").parallelism(1)
    plan = Plan.of(
        [
            mr.Job("a", counts.filter(pl.col("count") > 1).write(COUNTS)),
            mr.Job("b", total.select(word=pl.lit("all"), count="n").write(COUNTS)),
        ],
        slots=4,
    )
    assert {operator.id: operator.node.parallelism for operator in plan.operators} == {
        "a/c": 2,
        "b/aggregation-1": 1,
    }


def test_explain_says_how_many_slots_and_tasks_there_are() -> None:
    assert "stage 1  job/aggregation-1 by word in at most 3 slots\n" in str(counting(3))
    text = explain([counting(3)], SlotLayout(slots=8, tasks=4, readers=2))
    assert text.endswith(
        "stages\n"
        "  source   words\n"
        "           4 partitions, read by 2 tasks\n"
        "  stage 1  job/aggregation-1 by word in 3 slots\n"
        "           8 slots in 4 tasks\n"
        "  sink     counts"
    )
    assert "in 1 slot\n           1 slot in 1 task" in explain([counting(3)], SlotLayout(1, 1, 1))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: counting(0), r"parallelism\(0\): use a whole number between 1 and 128"),
        (lambda: counting(129), "between 1 and 128"),
        (lambda: mr.read(WORDS).parallelism(2), "follows an operation that keeps something per key"),
        (lambda: Plan.of([deduplicated(2, 3)], slots=4), "one has parallelism 3 and the other 2"),
    ],
)
def test_what_is_impossible_is_named(make: Callable[[], Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        make()


def deduplicated(first: int, second: int) -> mr.Job:
    rows = mr.read(WORDS).group_by("word").deduplicate("event_time", within="1m").parallelism(first)
    counts = rows.window(windows.fixed("1m")).group_by("word").count().parallelism(second)
    return mr.Job("job", counts.write(COUNTS))


def test_a_deduplication_and_what_counts_its_rows_share_their_slots() -> None:
    job = deduplicated(2, 2)
    engine, model = OnEngine([job], {"words": 1}, slots=6), OnModel([job], {"words": 1})
    rows = [SourceEvent("words", 0, n, n % 7, n, {"word": f"w{n % 9}"}) for n in range(200)]
    for backend in (engine, model):
        backend.feed(rows, 200)
    ours, theirs = (backend.feed([], 500, end=True).written["counts"] for backend in (engine, model))
    assert sorted(row["count"] for row in ours) == sorted(row["count"] for row in theirs)
    assert filled(engine) == [0, 3]
