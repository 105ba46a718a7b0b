"""State goes on in any number of slots: whatever the job,
a savepoint in the middle that is restored in others changes nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.operators.test_match_rules import TEXTS
from engine.operators.test_match_rules import job as ruled
from engine.operators.test_process import ALL, bag, cut, events, jobs, refusals
from join_strategies import interval_joins, joins
from millrace.engine.state import SlotState, clear_cache
from millrace.runners.batches import Offsets
from millrace.runners.state.evolution import StateChanges
from millrace.runners.state.folder import Identity
from millrace.runners.state.savepoint import Savepoint, adapt_savepoint, write_savepoint
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from over_strategies import row_frames
from process_strategies import processes
from strategies import batches, examples, givens
from test_engine_against_model import hold_batch

pytestmark = pytest.mark.slow
SLOTS = (1, 2, 3, 5, 9)


def in_slots(engine: OnEngine, made: OnEngine) -> OnEngine:
    """The same state through a savepoint, in the slots of another engine."""
    plan = engine.engine.plan
    names = tuple(job.name for job in plan.jobs)
    identity = Identity(
        "id", names, plan.fingerprint, plan.slots, partitions=1, operators=dict(plan.fingerprints)
    )
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.savepoint"
        write_savepoint(Savepoint(identity, Offsets({}, 0), engine.engine.states), file)
        clear_cache()
        saved = adapt_savepoint(file, made.engine.plan, StateChanges())
        made.engine.states = {place: _at_hand(state) for place, state in saved.states.items()}
    made.end_offsets = engine.end_offsets
    assert saved.identity.slots == made.engine.plan.slots
    return made


def _at_hand(state: SlotState) -> SlotState:
    """Read as a whole, as the file is gone afterwards."""
    changes = state.changes_since(SlotState())
    return SlotState.open(changes.meta, changes.put.__getitem__)


@given(data=st.data())
@examples(24)
def test_random_jobs_go_on_in_other_slots(data: st.DataObject) -> None:
    given_ = data.draw(
        st.one_of(
            givens(), givens(anyhow=True), joins(), interval_joins(), processes(), processes(), row_frames()
        )
    )
    engine = OnEngine(given_.jobs, given_.partitions, slots=data.draw(st.sampled_from(SLOTS)))
    model = OnModel(given_.jobs, given_.partitions)
    for batch in data.draw(batches(given_)):
        if data.draw(st.integers(0, 2)) == 0:
            engine = in_slots(
                engine, OnEngine(given_.jobs, given_.partitions, slots=data.draw(st.sampled_from(SLOTS)))
            )
        hold_batch(engine, model, batch)


def test_rules_that_wait_are_in_every_slot() -> None:
    partitions = {"input.happenings": 1, "input.rules": 1}
    engine, model = OnEngine([ruled()], partitions, slots=3), OnModel([ruled()], partitions)
    shown = 0
    for at in range(0, 45, 3):
        kinds = [{"who": "wxy"[n], "kind": "ab"[(at // 3 + n) % 2], "value": n} for n in range(3)]
        rows = [
            SourceEvent("input.happenings", 0, at + n, at + n, at + n, values)
            for n, values in enumerate(kinds)
        ]
        rules = [
            SourceEvent(
                "input.rules",
                0,
                at,
                at + 2,
                at + 2,
                {"name": "ab"[at // 3 % 2], "pattern": TEXTS[at // 12 % 3]},
            )
        ]
        if at % 9 == 0:
            engine = in_slots(engine, OnEngine([ruled()], partitions, slots=SLOTS[at % 4]))
        ours, theirs = engine.feed([*rows, *rules], at + 2), model.feed([*rows, *rules], at + 2)
        assert bag(comparable(ours.written)) == bag(comparable(theirs.written))
        shown += sum(map(len, ours.written.values()))
    assert shown > 2


def comparable(written: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {
        topic: [{name: str(value) for name, value in row.items()} for row in rows]
        for topic, rows in written.items()
    }


@pytest.mark.parametrize("name", jobs())
def test_processors_and_deduplications_go_on_in_other_slots(name: str) -> None:
    job = jobs()[name]
    engine, model = OnEngine([job], ALL, slots=2), OnModel([job], ALL)
    made = [event for event in events(f"slots {name}") if event.topic in engine.topics]
    for number, batch in enumerate(cut(made, 9)):
        if number % 3 == 1:
            engine = in_slots(engine, OnEngine([job], ALL, slots=SLOTS[number % 4]))
        now = batch[-1].ingestion_time
        ours, theirs = engine.feed(batch, now), model.feed(batch, now)
        assert bag(ours.written) == bag(theirs.written)
        assert refusals(ours.late) == refusals(theirs.late)
