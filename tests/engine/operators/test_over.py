"""Row frames: every row goes on beside columns computed from the rows of its key around it."""

import random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace.engine import state
from millrace.testing.script import OnEngine, OnModel
from over_strategies import row_frames as random_jobs
from peers.row_frames import row_frames
from peers.streams import Duck, Flow, a_flow, added_up, run
from strategies import A, batches, examples, write
from test_engine_against_model import hold_batch


@given(data=st.data())
@examples(100)
def test_every_batch_shows_and_refuses_the_same_rows(data: st.DataObject) -> None:
    jobs = data.draw(random_jobs())
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    with patch.object(state, "MERGE_FACTOR", data.draw(st.sampled_from([2, state.MERGE_FACTOR]))):
        for batch in data.draw(batches(jobs)):
            hold_batch(engine, model, batch)


def rows_of_a(_: random.Random, flow: Flow) -> tuple[mr.Stream, str]:
    return mr.read(A, watermark=flow.watermark), "(SELECT * FROM a)"


def test_the_rows_are_those_of_duckdbs_over() -> None:
    duck, rows = Duck(), 0
    for seed in range(80):
        chance = random.Random(f"row frames {seed}")
        flow = a_flow(chance)
        stream, query, columns = row_frames(chance, flow, rows_of_a)
        written = run(chance, mr.Job("framing", write(stream, "analytics.framed")), flow)
        duck.give(flow)
        answer = duck.ask(query)
        assert added_up(written, columns) == answer, f"seed {seed}: {query}"
        rows += answer.total()
    assert rows > 300
