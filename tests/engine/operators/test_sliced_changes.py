"""Windows over a changelog, from slices."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from aggregate_strategies import aggregate_of
from millrace import aggregates, windows
from millrace.engine import state
from millrace.engine.operators import running_sums
from millrace.stream import Job
from millrace.testing.script import OnEngine, OnModel
from over_strategies import framed
from strategies import KINDS, Given, batches, examples, source, stateless, topics_of, write
from test_engine_against_model import hold_batch


@st.composite
def windows_over_changes(draw: st.DrawFn) -> Given:
    """Windows over rows that late ones correct, or over windows that do."""
    unit = draw(st.sampled_from([1, 1_000]))
    kinds = dict(KINDS)
    rows = draw(stateless(draw(source(unit, False)), kinds, 0))
    changes = draw(framed(rows, unit, kinds, True))
    size = draw(st.sampled_from([1, 2, 3, 6, 24, 40]))
    every = draw(st.sampled_from([one for one in (1, 2, 3, 6) if one <= size]))
    window = windows.sliding(size * unit, every=every * unit, offset=draw(st.sampled_from([0, unit])))
    stream = changes.window(window)
    values = sorted(column for column, kind in kinds.items() if kind in ("text", "int", "bool"))
    keys = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))
    if draw(st.booleans()):
        column = st.sampled_from(values)
        found = {
            f"n{i}": aggregates.count(draw(column), distinct=True) for i in range(draw(st.integers(1, 2)))
        }
    else:
        found = {f"a{i}": draw(aggregate_of(kinds, False))[0] for i in range(draw(st.integers(1, 2)))}
    windowed = Job("windowed", write(stream.group_by(*keys).aggregate(**found), "analytics.windowed"))
    partitions = {topic: draw(st.sampled_from([1, 1, 2])) for topic in sorted(topics_of(windowed))}
    return Given((windowed,), unit, partitions)


@given(data=st.data())
@examples(100)
def test_every_batch_shows_and_takes_back_the_same_panes(data: st.DataObject) -> None:
    jobs = data.draw(windows_over_changes())
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    merge, sums = data.draw(st.sampled_from([2, state.MERGE_FACTOR])), data.draw(st.sampled_from([2, 16]))
    with (
        patch.object(state, "MERGE_FACTOR", merge),
        patch.object(running_sums, "MIN_WINDOWS_PER_SLICE", sums),
    ):
        for batch in data.draw(batches(jobs)):
            hold_batch(engine, model, batch)
