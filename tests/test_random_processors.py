"""Random processors and deduplications: at every step the engine shows and refuses what the model does,
whatever is cut, merged or started anew.
"""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from millrace.engine import state
from millrace.engine.operators import process, sliced_windows, windows
from millrace.testing.script import OnEngine, OnModel
from process_strategies import processes
from strategies import batches, examples
from test_engine_against_model import hold_batch


@given(data=st.data())
@examples(60)
def test_every_batch_says_the_same(data: st.DataObject) -> None:
    jobs = data.draw(processes())
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    tight = data.draw(st.booleans())
    with (
        patch.object(state, "MERGE_FACTOR", 2 if tight else state.MERGE_FACTOR),
        patch.object(process, "MAX_DELETED_KEYS", 1 if tight else process.MAX_DELETED_KEYS),
        patch.object(sliced_windows, "MAX_EXPANDED_ROWS", 3 if tight else sliced_windows.MAX_EXPANDED_ROWS),
        patch.object(windows, "FULL_SCAN_ROWS", 2 if tight else windows.FULL_SCAN_ROWS),
    ):
        for batch in data.draw(batches(jobs, most=25)):
            hold_batch(engine, model, batch)
