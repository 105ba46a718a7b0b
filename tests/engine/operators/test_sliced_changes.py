"""Windows over a changelog, from slices."""

from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregate_strategies import aggregate_of
from meter_readings import READINGS, Shown, job, read, reading, stored_rows
from millrace import aggregates, frames, windows
from millrace.engine import state
from millrace.engine.operators import running_sums
from millrace.stream import Job, Stream
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine, OnModel
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
        found: dict[str, Any] = {
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


ON = pytest.mark.parametrize("on", ["model", "engine"])


def corrected(size: int, every: int) -> Stream:
    """Readings with the one before, which late ones correct, in windows."""
    rows = read().over(before=frames.lag("value"), lateness=30)
    return rows.window(windows.sliding(size, every=every), accumulation="retracting")


@ON
def test_a_correction_changes_the_windows_that_have_ended_and_no_others(on: On) -> None:
    counted = corrected(10, 5).filter(pl.col("before") > 0).group_by("meter").count(name="n")
    shown = Shown(counted, "op", "n", "timing", on=on)
    rows = [reading(8, 1.0), reading(12, 1.0), reading(13, 1.0)]
    assert shown.after(*rows, watermark=14) == []
    assert shown.after(watermark=15) == [(14, "+", 2, "on_time")]
    shown.script.restart()
    assert sorted(shown.after(reading(11, 5.0), watermark=17)) == [
        (14, "+", 3, "late"),
        (14, "-", 2, "late"),
    ]
    assert shown.after(reading(11, -5.0), watermark=18) == []
    assert shown.after(watermark=20) == [(19, "+", 3, "on_time")]


@ON
def test_a_window_that_has_nothing_left_is_withdrawn(on: On) -> None:
    found = corrected(10, 10).filter(pl.col("before").is_null()).group_by("meter")
    shown = Shown(found.count("value", distinct=True), "op", "count", on=on)
    assert shown.after(reading(12, 9.0), reading(14, 1.0), watermark=20) == [(19, "+", 1)]
    assert shown.after(reading(13, 2.0), watermark=21) == []
    assert shown.after(reading(8, 2.0), watermark=22) == [(9, "+", 1), (19, "-", 1)]


@pytest.mark.parametrize("aggregate", [aggregates.count(), aggregates.count("value", distinct=True)], ids=str)
def test_windows_that_nothing_can_change_are_forgotten(aggregate: Any) -> None:
    engine = OnEngine([job(corrected(60, 10).group_by("meter").aggregate(n=aggregate))], {READINGS.name: 1})
    most = 0
    for n in range(150):
        engine.feed([SourceEvent(READINGS.name, 0, n, n * 10, n * 10, {"meter": "a", "value": 1.0})], n * 10)
        most = max(most, stored_rows(engine))
    assert most < 120
