"""Evictors: which rows of a window a pane is computed from."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from engine.test_rescale import in_slots
from millrace.engine import state as engine_state
from millrace.engine.operators import windows as cells
from millrace.testing.script import OnEngine, OnModel
from strategies import KINDS, A, Given, aggregated, batches, examples, watermark_of, write
from test_engine_against_model import hold_batch
from windowings import any_evictor, any_trigger, any_window


@given(data=st.data())
@examples(200)
def test_panes_of_the_engine_are_those_of_the_model_whatever_is_left_out(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from([1, 1_000]))
    windowed = mr.read(A, watermark=data.draw(watermark_of(unit, steady=False))).window(
        data.draw(any_window(unit)),
        trigger=data.draw(any_trigger(unit)),
        lateness=data.draw(st.sampled_from([20, 6, 1, 0])) * unit,
        accumulation=data.draw(st.sampled_from(["accumulating", "discarding", "retracting"])),
        closing=data.draw(st.sampled_from(["none", "if_new", "always"])),
        evict=data.draw(any_evictor(unit)),
    )
    panes = data.draw(aggregated(windowed, dict(KINDS), 0, last=True))
    jobs = Given((mr.Job("one", write(panes, "analytics.one")),), unit, {A.name: 2})
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    tight = data.draw(st.booleans())
    with (
        patch.object(engine_state, "MERGE_FACTOR", 2 if tight else engine_state.MERGE_FACTOR),
        patch.object(cells, "FULL_SCAN_ROWS", 2 if tight else cells.FULL_SCAN_ROWS),
    ):
        for batch in data.draw(batches(jobs, most=20)):
            if not data.draw(st.integers(0, 6)):  # a savepoint, and on in other slots
                slots = data.draw(st.sampled_from([1, 3, 4]))
                engine = in_slots(engine, OnEngine(jobs.jobs, jobs.partitions, slots=slots))
            hold_batch(engine, model, batch)
