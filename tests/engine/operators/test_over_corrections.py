"""Row frames with a lateness: a late row corrects the rows around it."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from meter_readings import READINGS, Shown, job, read, reading, stored_rows
from millrace import aggregates, frames, watermarks, windows
from millrace.engine import state
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine, OnModel, Script
from over_strategies import row_frames
from strategies import Batch, Given, batches, examples
from test_engine_against_model import hold_batch


@given(data=st.data())
@examples(100)
def test_every_batch_shows_takes_back_and_refuses_the_same_rows(data: st.DataObject) -> None:
    jobs = data.draw(row_frames(corrected=True))
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    with patch.object(state, "MERGE_FACTOR", data.draw(st.sampled_from([2, state.MERGE_FACTOR]))):
        for batch in data.draw(batches(jobs)):
            hold_batch(engine, model, batch)


@st.composite
def looking_back(draw: st.DrawFn) -> Given:
    """Rows of few keys beside columns of a few rows before them, most of them in order."""
    stream = mr.read(READINGS, watermark=watermarks.bounded(2)).group_by("meter")
    lags: dict[str, Any] = {f"b{n}": frames.lag("value", n) for n in draw(st.sets(st.integers(1, 3)))}
    rows = draw(st.sampled_from([1, 2, 4, (-3, -1)]))
    sums: dict[str, Any] = {"total": aggregates.sum("value")} if draw(st.booleans()) or not lags else {}
    frame: dict[str, Any] = {"rows": rows} if sums else {}
    ttl = draw(st.sampled_from([None, None, 7]))
    framed = stream.over(**lags, **sums, **frame, ttl=ttl, lateness=6)
    return Given((job(framed),), 1, {READINGS.name: 1})


@given(data=st.data())
@examples(150)
def test_rows_behind_all_others_of_their_key_look_back_at_them(data: st.DataObject) -> None:
    jobs = data.draw(looking_back())
    engine, model = OnEngine(jobs.jobs, jobs.partitions), OnModel(jobs.jobs, jobs.partitions)
    number, now = 0, 0
    with patch.object(state, "MERGE_FACTOR", data.draw(st.sampled_from([2, state.MERGE_FACTOR]))):
        for _ in range(data.draw(st.integers(3, 8))):
            events = []
            for _ in range(data.draw(st.integers(1, 4))):
                now += data.draw(st.integers(0, 3))
                at = max(0, now - data.draw(st.sampled_from([0, 0, 0, 1, 4, 8])))
                values = {"meter": data.draw(st.sampled_from("ab")), "value": float(number)}
                events.append(SourceEvent(READINGS.name, 0, number, at, now, values))
                number += 1
            restart = data.draw(st.sampled_from([False, False, True]))
            hold_batch(engine, model, Batch(tuple(events), now, restart=restart))
        hold_batch(engine, model, Batch((), now, end=True))


ON = pytest.mark.parametrize("on", ["model", "engine"])


@ON
def test_only_the_rows_that_differ_are_taken_back(on: On) -> None:
    shown = Shown(read().over(before=frames.lag("value"), lateness=10), "op", "before", "timing", on=on)
    assert len(shown.after(*[reading(at, float(at)) for at in (10, 14, 16)], watermark=17)) == 3
    shown.script.restart()
    assert sorted(shown.after(reading(12, 12.0), watermark=18)) == [
        (12, "+", 10.0, "late"),
        (14, "+", 12.0, "late"),
        (14, "-", 10.0, "on_time"),
    ]
    assert sorted(shown.after(reading(13, 13.0), watermark=19)) == [
        (13, "+", 12.0, "late"),
        (14, "+", 13.0, "late"),
        (14, "-", 12.0, "late"),
    ]


@ON
def test_a_row_at_the_watermark_is_on_time_and_one_before_it_late(on: On) -> None:
    shown = Shown(read().over(n=aggregates.count(), lateness=10), "timing", on=on)
    assert shown.after(reading(19, 1.0), watermark=20) == [(19, "on_time")]
    assert shown.after(reading(20, 2.0), watermark=21) == [(20, "on_time")]
    assert shown.after(reading(20, 3.0), watermark=22) == [(20, "late")]


@ON
def test_a_row_later_than_the_lateness_is_refused(on: On) -> None:
    shown = Shown(read().over(n=frames.row_number(), lateness=10), "op", "n", on=on)
    shown.after(reading(20, 1.0), watermark=30)
    assert shown.after(reading(19, 2.0), reading(20, 3.0), watermark=30) == [(20, "+", 2)]
    assert [row["event_time"] for row in shown.script.late()] == [19]


@ON
def test_windows_that_follow_are_corrected_and_final_waits(on: On) -> None:
    stream = read().over(total=aggregates.sum("value"), lateness=10)
    greatest = stream.window(windows.fixed(10), accumulation="retracting").group_by("meter").max("total")
    script = Script(job(greatest), on=on)
    script.events(reading(1, 1.0), reading(5, 2.0))
    script.watermark(10)
    assert [(row["op"], row["total"]) for row in script.panes()] == [("+", 3.0)]
    script.events(reading(3, 4.0))
    assert sorted((row["op"], row["total"]) for row in script.panes()) == [("+", 7.0), ("-", 3.0)]
    final = Shown(stream.final(), "total", on=on)
    assert not final.after(reading(1, 1.0), reading(5, 2.0), watermark=11)
    assert final.after(reading(3, 4.0), watermark=13) == [(1, 1.0)]
    assert final.after(watermark=16) == [(3, 5.0), (5, 7.0)]


@pytest.mark.parametrize("frame", [{}, {"rows": 2}, {"range": 20}], ids=str)
def test_rows_that_nothing_can_correct_are_forgotten(frame: dict[str, Any]) -> None:
    columns: dict[str, Any] = {"total": aggregates.sum("value"), "after": frames.lead("value", within=20)}
    made = read().over(**columns, **frame, lateness=30)
    engine = OnEngine([job(made)], {READINGS.name: 1})
    most = 0
    for n in range(150):
        engine.feed([SourceEvent(READINGS.name, 0, n, n * 10, n * 10, {"meter": "a", "value": 1.0})], n * 10)
        most = max(most, stored_rows(engine))
    assert most < 120


def test_a_late_row_of_another_partition_goes_before_those_of_its_time() -> None:
    jobs = [job(read().over(before=frames.lag("value"), lateness=30))]
    engine, model = OnEngine(jobs, {READINGS.name: 2}), OnModel(jobs, {READINGS.name: 2})
    on_time = [SourceEvent(READINGS.name, 0, 0, 20, 20, {"meter": "a", "value": 1.0})]
    on_time += [
        SourceEvent(READINGS.name, 1, n, at, 20, {"meter": "a", "value": at + 0.5})
        for n, at in enumerate([10, 20])
    ]
    late = SourceEvent(READINGS.name, 0, 1, 10, 21, {"meter": "a", "value": 2.0})
    for events in (on_time, [late]):
        hold_batch(engine, model, Batch(tuple(events), 21))
    [shown] = [batch["analytics.framed"] for batch in [engine.feed([], 22, end=True).written]]
    assert [(row["event_time"], row["before"]) for row in shown] == [(20, 10.5), (20, 1.0)]
