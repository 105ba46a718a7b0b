"""How far a run vouches for what it writes: a topic never gets a row from before that."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chain_links import CHANGELOGS, ROWS
from join_strategies import interval_joins, joins
from millrace import graph
from millrace.durations import END_OF_STREAM
from millrace.engine.output_watermarks import OutputWatermarks
from millrace.engine.sink import Results
from millrace.engine.source import PartitionBatch
from millrace.testing.script import OnEngine
from pattern_strategies import pattern_jobs
from process_strategies import processes
from strategies import Batch, Given, batches, examples, givens
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
    jobs = data.draw(strategy.filter(lambda jobs: not reads_straight(jobs)))
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
