"""The engine is held to the model: on random jobs, events, orders, partitions and cuts, they say the same."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import millrace as mr
from aggregate_strategies import aggregate_of
from millrace import panes, watermarks, windows
from millrace.engine import source as engine_source
from millrace.engine import state
from millrace.engine.operators import distinct_windows, running_sums, shared_slices, sliced_windows
from millrace.engine.operators import windows as cells
from millrace.graph import Aggregation, Write, edges
from millrace.testing.model import source as model_source
from millrace.testing.model.values import Row
from millrace.testing.script import Backend, BatchResult, OnEngine, OnModel
from strategies import KINDS, A, Batch, Given, batches, examples, givens, recut, write

NEVER = 10**15
"""Longer than any run."""


@pytest.fixture(autouse=True, scope="module")
def _quick_learners() -> Iterator[None]:
    """A delay is learned from few rows, as there are few."""
    with patch.object(watermarks, "FIRST", 2), patch.object(watermarks, "EVERY", 4):
        yield


def comparable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(comparable, value))
    if isinstance(value, dict):
        return tuple((name, comparable(part)) for name, part in sorted(value.items()))
    return (
        f"{value + 0.0:.10g}" if isinstance(value, float) else value
    )  # a text, as not-a-number does not equal itself; -0.0 is 0.0


def bag(written: list[Row]) -> Counter[Any]:
    return Counter(tuple((name, comparable(row[name])) for name in sorted(row)) for row in written)


def refused(fed: BatchResult) -> Counter[Any]:
    origin = ("topic", "partition", "offset", "reason", "missed")
    return Counter((job, *(row[name] for name in origin)) for job, late in fed.late.items() for row in late)


def shown(fed: BatchResult) -> Counter[Any]:
    return Counter(
        {(topic, row): count for topic, written in fed.written.items() for row, count in bag(written).items()}
    )


def differences(engine: Counter[Any], model: Counter[Any]) -> str:
    """What only one of the two says, readable."""
    only = [("engine", engine - model), ("model", model - engine)]
    return "\n".join(
        f"only the {name} {count}x: {thing}" for name, things in only for thing, count in things.items()
    )


def last_words(jobs: Given, backend: Backend, made: list[Batch]) -> Any:
    """What each window of each final output came to, and all that was refused."""
    written: dict[str, list[Row]] = {}
    late: Counter[Any] = Counter()
    for batch in made:
        if batch.restart:
            backend.restart()
        fed = backend.feed(batch.events, batch.now, end=batch.end)
        late += refused(fed)
        for topic, more in fed.written.items():
            written.setdefault(topic, []).extend(more)
    return {write.topic.name: newest(write, written) for job in jobs.jobs for write in job.outputs}, late


def newest(write: Write, written: dict[str, list[Row]]) -> Counter[Any]:
    """The last word on each window; also where a filter follows the last aggregation,
    which withdraws what no longer passes.
    """
    shown, schema, [edge, *others] = written.get(write.topic.name, []), write.inputs[0].schema, edges(write)
    if "index" not in schema or not isinstance(edge.origin, Aggregation):
        return bag(shown)
    keys = list(edge.origin.keys)
    if others or any(step.text.startswith("explode") for step in edge.steps) or not {*keys} <= {*schema}:
        return Counter()  # these panes cannot be told from others by their key
    return bag(panes.latest_panes(pl.DataFrame(shown, schema=schema), keys).to_dicts())


@contextmanager
def shared_in_blocks(shared: bool) -> Iterator[None]:
    """With slices totalled in blocks, of which a few make a larger one, also where windows overlap little."""
    with (
        patch.object(shared_slices, "MIN_WINDOWS_PER_SLICE", 1 if shared else 1_000),
        patch.object(distinct_windows, "MIN_WINDOWS_PER_SLICE", 1 if shared else 1_000),
        patch.object(shared_slices, "MIN_BATCHES_PER_WINDOW", 0),
        patch.object(shared_slices, "BLOCK", 2),
    ):
        shared_slices.clear_cache()
        yield
        shared_slices.clear_cache()


def check_every_batch(data: st.DataObject, *, anyhow: bool = False) -> None:
    """One random run on both, batch by batch; half of them with limits so low that state is merged and work
    divided all the time, and half with sums that run along wherever they can.
    """
    jobs = data.draw(givens(anyhow=anyhow))
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 1, 1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    tight, runs = data.draw(st.booleans()), data.draw(st.booleans())
    with (
        patch.object(state, "MERGE_FACTOR", 2 if tight else state.MERGE_FACTOR),
        patch.object(sliced_windows, "MAX_EXPANDED_ROWS", 3 if tight else sliced_windows.MAX_EXPANDED_ROWS),
        patch.object(sliced_windows, "MAX_MERGED_ROWS", 3 if tight else sliced_windows.MAX_MERGED_ROWS),
        patch.object(
            sliced_windows, "MIN_WINDOWS_TO_MERGE", 1 if runs else sliced_windows.MIN_WINDOWS_TO_MERGE
        ),
        patch.object(cells, "FULL_SCAN_ROWS", 2 if tight else cells.FULL_SCAN_ROWS),
        patch.object(
            running_sums, "MIN_WINDOWS_PER_SLICE", 1 if runs else running_sums.MIN_WINDOWS_PER_SLICE
        ),
        shared_in_blocks(runs),
    ):
        for batch in data.draw(batches(jobs)):
            hold_batch(engine, model, batch)


def check_latest(data: st.DataObject) -> None:
    """The latest value alone, in windows that overlap: they are made without merging slices.
    Half of the runs see null as a value, too.
    """
    unit = data.draw(st.sampled_from([1, 1_000]))
    readings = mr.read(A, watermark=watermarks.bounded(data.draw(st.sampled_from([0, 2, 5])) * unit))
    some = readings.filter(pl.col("v").is_not_null()) if data.draw(st.booleans()) else readings
    every, times, lateness = data.draw(
        st.tuples(st.integers(1, 4), st.integers(1, 6), st.sampled_from([20, 6, 1, 0]))
    )
    windowed = some.window(
        windows.sliding(every * times * unit, every=every * unit), lateness=lateness * unit
    )
    latest = windowed.group_by(*data.draw(st.sampled_from([("k",), ("k", "g")]))).latest("v")
    jobs = Given(
        (
            mr.Job(
                "one", write(latest, "analytics.one"), write(latest.group_by("v").count(), "analytics.two")
            ),
        ),
        unit,
        {A.name: 2},
    )
    engine, model = (
        OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 3]))),
        OnModel(jobs.jobs, jobs.partitions),
    )
    with patch.object(state, "MERGE_FACTOR", 2), shared_in_blocks(data.draw(st.booleans())):
        for batch in data.draw(batches(jobs, most=24)):
            hold_batch(engine, model, batch)


def check_overlapping(data: st.DataObject) -> None:
    """Any aggregates in windows that overlap much."""
    unit = data.draw(st.sampled_from([1, 1_000]))
    readings = mr.read(A, watermark=watermarks.bounded(data.draw(st.sampled_from([0, 2, 5])) * unit))
    every, times, rest, lateness = data.draw(
        st.tuples(
            st.integers(1, 3), st.sampled_from([20, 7, 3, 40]), st.integers(0, 2), st.sampled_from([0, 6, 40])
        )
    )
    windowed = readings.window(
        windows.sliding((every * times + rest % every) * unit, every=every * unit), lateness=lateness * unit
    )
    chosen = data.draw(st.lists(aggregate_of(KINDS, False), min_size=1, max_size=2))
    computed = {f"r{number}": aggregate for number, (aggregate, _) in enumerate(chosen)}
    results = windowed.group_by("k").aggregate(**computed)
    jobs = Given((mr.Job("one", write(results, "analytics.one")),), unit, {A.name: 2})
    engine, model = OnEngine(jobs.jobs, jobs.partitions, slots=1), OnModel(jobs.jobs, jobs.partitions)
    with (
        patch.object(state, "MERGE_FACTOR", 2),
        shared_in_blocks(True),
        patch.object(sliced_windows, "MAX_MERGED_ROWS", data.draw(st.sampled_from([3, 1_000]))),
    ):
        for batch in data.draw(batches(jobs, most=24)):
            hold_batch(engine, model, batch)


def check_kinds(data: st.DataObject) -> None:
    """The same with windows, triggers and output of all kinds."""
    check_every_batch(data, anyhow=True)


def hold_batch(engine: OnEngine, model: OnModel, batch: Batch) -> BatchResult:
    """One batch on both, compared; what came of it."""
    if batch.restart:
        engine.restart()
    ours, theirs = (
        engine.feed(batch.events, batch.now, end=batch.end),
        model.feed(batch.events, batch.now, end=batch.end),
    )
    assert not differences(shown(ours), shown(theirs))
    assert not differences(refused(ours), refused(theirs))
    assert {
        name: low for name, low in engine.watermarks.items() if name in model.watermarks
    } == model.watermarks
    return ours


def check_every_cut(data: st.DataObject) -> None:
    """The same rows, one a batch, three a batch and all at once. Empty partitions never become idle here."""
    jobs = data.draw(givens(steady=True))
    made = data.draw(batches(jobs, most=8))
    per_slice = data.draw(st.sampled_from([1, running_sums.MIN_WINDOWS_PER_SLICE]))
    with (
        patch.object(engine_source, "EMPTY_PARTITION_TIMEOUT", NEVER),
        patch.object(model_source, "EMPTY_PARTITION_TIMEOUT", NEVER),
        patch.object(running_sums, "MIN_WINDOWS_PER_SLICE", per_slice),
    ):
        expected = last_words(jobs, OnModel(jobs.jobs, jobs.partitions), recut(made, 1_000))
        for size in (1, 3, 1_000):
            assert (
                last_words(jobs, OnEngine(jobs.jobs, jobs.partitions, slots=2), recut(made, size)) == expected
            )


def ran(check: Callable[[st.DataObject], None], count: int, *, seed_: int) -> int:
    """Tries so many random cases, others for each seed; how many came to their end."""
    done = 0

    @seed(seed_)
    @settings(parent=examples(count), derandomize=False, database=None)
    @given(data=st.data())
    def cases(data: st.DataObject) -> None:
        nonlocal done
        check(data)
        done += 1

    cases()
    return done


@given(data=st.data())
@examples(100)
def test_every_batch_shows_the_same_panes_and_refuses_the_same_rows(data: st.DataObject) -> None:
    check_every_batch(data)


@given(data=st.data())
@examples(100)
def test_windows_and_triggers_of_all_kinds_show_the_same_panes(data: st.DataObject) -> None:
    check_kinds(data)


@given(data=st.data())
@examples(60)
def test_the_latest_value_alone_is_the_same_in_every_window(data: st.DataObject) -> None:
    check_latest(data)


@given(data=st.data())
@examples(100)
def test_windows_that_overlap_much_show_the_same_panes(data: st.DataObject) -> None:
    check_overlapping(data)


@given(data=st.data())
@examples(8)
def test_the_last_word_does_not_depend_on_how_batches_were_cut(data: st.DataObject) -> None:
    check_every_cut(data)


LONG: tuple[Callable[[st.DataObject], None], ...] = (
    check_every_batch,
    check_latest,
    check_overlapping,
    check_kinds,
    check_kinds,
    check_every_cut,
)
"""What the chunks of the long run do, in turn, so that a part of it is of all sorts."""


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(80))
def test_twenty_thousand_runs_in_chunks_of_250_say_the_same(chunk: int) -> None:
    assert ran(LONG[chunk % len(LONG)], 250, seed_=chunk) >= 250
