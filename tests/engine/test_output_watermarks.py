"""How far a run vouches for what it writes: a topic never gets a row from before that."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import millrace as mr
from chain_links import CHANGELOGS, ROWS
from join_strategies import interval_joins, joins
from millrace import graph, watermarks, windows
from millrace.durations import END_OF_STREAM
from millrace.engine.output_watermarks import OutputWatermarks
from millrace.engine.sink import Results
from millrace.engine.source import PartitionBatch
from millrace.errors import DefinitionError
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, decode_events
from pattern_strategies import pattern_jobs
from process_strategies import processes
from strategies import A, Batch, Given, batches, examples, givens, write
from test_chains import chain, given_chains


class Vouching(OnEngine):
    """The engine, and how far it vouches for each topic after each batch."""

    def __init__(self, jobs: Given, slots: int) -> None:
        super().__init__(jobs.jobs, jobs.partitions, slots=slots)
        self.output_watermarks = OutputWatermarks(self.engine.plan)
        self.vouched: dict[str, int] = {}
        self._step = self.engine.step
        setattr(self.engine, "step", self._observe)  # noqa: B010 - to see the results as they are

    def _observe(self, batch: Sequence[PartitionBatch], now: int, **more: Any) -> Results:
        results = self._step(batch, now, **more)
        self.vouched |= self.output_watermarks.update(results, ())
        return results

    def hold(self, batch: Batch) -> None:
        """One batch: it writes nothing from before what was vouched for."""
        before = dict(self.vouched)
        if batch.restart:
            self.restart()
        written = self.feed(batch.events, batch.now, end=batch.end).written
        for topic, rows in written.items():
            earliest = min((row["event_time"] for row in rows), default=END_OF_STREAM)
            assert earliest >= before.get(topic, earliest), topic
        assert all(self.vouched[topic] >= watermark for topic, watermark in before.items())


def reads_straight(jobs: Given) -> bool:
    """Whether some topic gets rows that no operator has judged: late ones stay late there."""
    origins = [edge.origin for job in jobs.jobs for output in job.outputs for edge in graph.edges(output)]
    return any(isinstance(origin, graph.Read) for origin in origins)


@st.composite
def chains(draw: st.DrawFn) -> Given:
    """Two or three operators, one after the other; now and then one at the end that corrects its results."""
    unit = draw(st.sampled_from([1, 1_000]))
    names = draw(st.lists(st.sampled_from(sorted(ROWS)), min_size=1, max_size=2))
    links = [ROWS[name] for name in names] + [draw(st.sampled_from([*CHANGELOGS.values(), *ROWS.values()]))]
    return given_chains(unit, {"chained": chain(unit, *links)}, draw(st.sampled_from([1, 2])))


def check(data: st.DataObject, strategy: st.SearchStrategy[Given]) -> None:
    try:
        jobs = data.draw(strategy.filter(lambda jobs: not reads_straight(jobs)))
    except DefinitionError:  # not every operator may follow every changelog
        reject()
    engine = Vouching(jobs, data.draw(st.sampled_from([1, 2])))
    for batch in data.draw(batches(jobs, most=20)):
        engine.hold(batch)


@given(data=st.data())
@examples(80)
def test_windows_keep_their_word(data: st.DataObject) -> None:
    check(data, givens())


@given(data=st.data())
@examples(60)
def test_windows_of_any_kind_keep_their_word(data: st.DataObject) -> None:
    check(data, givens(anyhow=True))


@given(data=st.data())
@examples(40)
def test_joins_keep_their_word(data: st.DataObject) -> None:
    check(data, st.one_of(interval_joins(), joins()))


@given(data=st.data())
@examples(40)
def test_patterns_keep_their_word(data: st.DataObject) -> None:
    check(data, pattern_jobs())


@given(data=st.data())
@examples(40)
def test_chains_of_all_operators_keep_their_word(data: st.DataObject) -> None:
    check(data, chains())


@given(data=st.data())
@examples(40)
def test_processors_and_deduplication_keep_their_word(data: st.DataObject) -> None:
    check(data, processes())


# One by one


def event(partition: int, time: int, offset: int = 0) -> SourceEvent:
    values = {"k": "a", "g": 1, "v": 1, "x": 0.5, "b": True}
    return SourceEvent("input.a", partition, offset, time, time, values)


def vouch(stream: mr.stream.Stream, *events: SourceEvent, now: int = 100_000) -> int | None:
    """How far the job is vouched for after these events."""
    engine = Vouching(Given((mr.Job("one", write(stream, "analytics.one")),), 1, {"input.a": 2}), 1)
    engine.hold(Batch(events, now))
    return engine.vouched.get("analytics.one")


READ = mr.read(A, watermark=watermarks.bounded("1s"))
BOTH = (event(0, 30_000), event(1, 40_000))


def test_rows_that_no_operator_has_seen_are_vouched_for_by_their_partitions() -> None:
    rows = READ.filter(pl.col("v") > 0).select("k")
    assert vouch(rows, BOTH[0]) is None, "partition 1 has shown no row"
    assert vouch(rows, *BOTH) == 29_000
    assert vouch(READ.union(mr.read(A, watermark=watermarks.bounded("5s"))), *BOTH) == 25_000


@pytest.mark.parametrize(
    ("windowed", "vouched"),
    [
        (READ.window(windows.fixed("10s")), 29_000),
        (READ.window(windows.fixed("10s"), lateness="3s"), 26_000),
        (READ.window(windows.fixed("10s"), lateness="3s", time="earliest"), 16_000),
        (READ.window(windows.sessions("10s"), lateness="3s"), 26_000),
        (READ.window(windows.processing_time(windows.fixed("10s"))), 100_000),
        (READ.window(windows.counted(2)), None),
        (READ.window(windows.sessions("10s"), time="latest"), None),
    ],
)
def test_panes_are_vouched_for_as_far_as_they_cannot_be_corrected(
    windowed: mr.stream.Stream, vouched: int | None
) -> None:
    assert vouch(windowed.group_by("k").count(), *BOTH) == vouched


def test_of_all_that_leads_to_a_topic_the_least_counts() -> None:
    ten, five = (
        READ.window(windows.fixed("10s"), lateness=lateness).group_by("k").count()
        for lateness in ("10s", "5s")
    )
    assert vouch(ten.union(five), *BOTH) == 19_000


def test_copies_are_vouched_for_as_long_as_they_are_known() -> None:
    assert vouch(READ.group_by("k").deduplicate("event_time", within="4s"), *BOTH) == 25_000
    assert vouch(READ.group_by("k").deduplicate(within="4s"), *BOTH) == 29_000


def test_nobody_vouches_for_a_paused_job() -> None:
    jobs = Given((mr.Job("one", write(READ.select("k"), "analytics.one")),), 1, {"input.a": 2})
    engine = Vouching(jobs, 1)
    batches = [PartitionBatch("input.a", p, decode_events(A, [BOTH[p]])) for p in (0, 1)]
    results = engine.engine.step(batches, 100_000)
    assert engine.output_watermarks.update(results, ["one"]) == {}
    assert engine.output_watermarks.update(results, []) == {"analytics.one": 29_000}


def test_a_step_that_sets_event_time_vouches_for_nothing() -> None:
    counts = READ.window(windows.fixed("10s")).group_by("k").count()
    assert vouch(counts.with_columns(event_time=pl.col("event_time") - 1), *BOTH) is None
    assert vouch(counts.select("k", "event_time"), *BOTH) == 29_000
    assert vouch(counts.map_batches(lambda frame: frame), *BOTH) == 29_000
