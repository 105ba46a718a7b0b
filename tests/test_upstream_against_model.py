"""Jobs that follow the writers of topics: the engine says what the model says, whatever those vouch for."""

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from join_strategies import interval_joins
from millrace import graph, watermarks
from millrace.durations import END_OF_STREAM
from millrace.stream import Job, Output
from millrace.testing.script import OnEngine, OnModel
from strategies import Given, batches, examples, givens
from test_engine_against_model import hold_batch


def follow_writers(node: Any, idle: int | None, rebuilt: dict[int, graph.Node]) -> Any:
    """The same graph, in which reads of `input.a` follow the writers."""
    if id(node) not in rebuilt:
        inputs = tuple(follow_writers(source, idle, rebuilt) for source in node.inputs)
        is_read = isinstance(node, graph.Read) and node.topic.name == "input.a"
        changed = {"watermark": watermarks.upstream(idle=idle)} if is_read else {"inputs": inputs}
        rebuilt[id(node)] = dataclasses.replace(node, **changed)
    return rebuilt[id(node)]


@st.composite
def following(draw: st.DrawFn, of: st.SearchStrategy[Given]) -> Given:
    """Jobs in which some reads follow the writers of their topic."""
    found, rebuilt = draw(of), dict[int, graph.Node]()
    idle = draw(st.sampled_from([None, 3 * found.unit, 12 * found.unit]))
    jobs = [
        Job(job.name, *(Output(follow_writers(output, idle, rebuilt)) for output in job.outputs))
        for job in found.jobs
    ]
    return dataclasses.replace(found, jobs=tuple(jobs))


def check(data: st.DataObject, of: st.SearchStrategy[Given]) -> None:
    jobs = data.draw(following(of))
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 2])))
    model = OnModel(jobs.jobs, jobs.partitions)
    vouched: dict[tuple[str, int], int] = {}
    made = data.draw(batches(jobs, most=15))
    for batch in made:
        for partition in range(jobs.partitions.get("input.a", 0)):
            behind = data.draw(
                st.sampled_from([None, None, 0, 2, 5, 10, -3, *(["end"] if batch is made[-1] else [])])
            )
            if behind is not None:
                ahead = END_OF_STREAM if behind == "end" else batch.now - int(behind) * jobs.unit
                place = ("input.a", partition)
                vouched = {**vouched, place: max(ahead, vouched.get(place, ahead))}
        engine.follow(vouched)
        model.follow(vouched)
        hold_batch(engine, model, batch)


@given(data=st.data())
@examples(25)
def test_windows_say_the_same(data: st.DataObject) -> None:
    check(data, givens())


@given(data=st.data())
@examples(25)
def test_windows_of_any_kind_say_the_same(data: st.DataObject) -> None:
    check(data, givens(anyhow=True))


@given(data=st.data())
@examples(15)
def test_joins_say_the_same(data: st.DataObject) -> None:
    check(data, interval_joins())
