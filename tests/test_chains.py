"""Every operator may follow every other: chains of operators are held to the model, batch by batch."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from chain_links import CHANGELOGS, ROWS, UNBOUNDED, Link, plain, source
from millrace.engine import state
from millrace.errors import DefinitionError
from millrace.stream import Stream
from millrace.testing.script import OnEngine, OnModel
from strategies import Given, batches, examples, topics_of, write
from test_engine_against_model import hold_batch, ran


def chain(unit: int, *links: Link) -> Stream:
    stream = source(unit)
    for link in links:
        stream = plain(link(stream, unit))
    return stream


def given_chains(unit: int, chains: dict[str, Stream], partitions: int) -> Given:
    jobs = tuple(mr.Job(name, write(stream, f"analytics.{name}")) for name, stream in chains.items())
    topics = sorted({topic for job in jobs for topic in topics_of(job)})
    return Given(jobs, unit, dict.fromkeys(topics, partitions))


def hold_chains(data: Any, chains: Any, most: int) -> None:
    unit = data.draw(st.sampled_from([1, 1_000]))
    jobs = given_chains(unit, chains(unit), data.draw(st.sampled_from([1, 2])))
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 3])))
    model = OnModel(jobs.jobs, jobs.partitions)
    with patch.object(state, "MERGE_FACTOR", data.draw(st.sampled_from([2, 8]))):
        for batch in data.draw(batches(jobs, most=most)):
            hold_batch(engine, model, batch)


def pairs(unit: int, second: str) -> dict[str, Stream]:
    """All links that give rows, each followed by the second."""
    last = {**ROWS, **CHANGELOGS, **UNBOUNDED}[second]
    return {f"{name}-{second}": chain(unit, first, last) for name, first in ROWS.items()}


def check_pairs(second: str, data: st.DataObject) -> None:
    hold_chains(data, lambda unit: pairs(unit, second), most=14)


def check_threes(data: st.DataObject) -> None:
    """Four chains of three links."""
    names = [data.draw(st.tuples(*[st.sampled_from(sorted(ROWS))] * 3)) for _ in range(4)]
    hold_chains(
        data,
        lambda unit: {"-".join(three): chain(unit, *(ROWS[name] for name in three)) for three in names},
        most=14,
    )


@pytest.mark.parametrize("second", [*ROWS, *CHANGELOGS, *UNBOUNDED])
@given(data=st.data())
@examples(1)
def test_every_operator_may_follow_every_other(second: str, data: st.DataObject) -> None:
    check_pairs(second, data)


@given(data=st.data())
@examples(10)
def test_three_in_a_row_show_what_the_model_shows(data: st.DataObject) -> None:
    check_threes(data)


@pytest.mark.long
@pytest.mark.parametrize("second", [*ROWS, *CHANGELOGS, *UNBOUNDED])
@given(data=st.data())
@examples(30)
def test_every_operator_may_follow_every_other_at_length(second: str, data: st.DataObject) -> None:
    check_pairs(second, data)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(10))
def test_hundreds_of_chains_of_three_show_what_the_model_shows(chunk: int) -> None:
    assert ran(check_threes, 40, seed_=chunk) >= 40


TAKES_CORRECTIONS = {"with_step", "exploded", "in_union", "summed", "counted_sliding"}
TAKES_CORRECTIONS |= {name for name in ROWS if name.startswith("final_")}


@pytest.mark.parametrize("first", list(CHANGELOGS))
@pytest.mark.parametrize("second", sorted(ROWS.keys() - TAKES_CORRECTIONS))
def test_what_takes_rows_in_order_refuses_corrections_with_the_word_to_add(first: str, second: str) -> None:
    with pytest.raises(DefinitionError):
        chain(1, CHANGELOGS[first], ROWS[second])


@pytest.mark.parametrize("second", ["joined_with_ttl", *UNBOUNDED])
@given(data=st.data())
@examples(3)
def test_joins_and_totals_without_a_window_take_corrections(second: str, data: st.DataObject) -> None:
    firsts = {**CHANGELOGS, **({} if second == "joined_with_ttl" else UNBOUNDED)}
    last = {**CHANGELOGS, **UNBOUNDED}[second]
    hold_chains(
        data,
        lambda unit: {f"{name}-{second}": chain(unit, first, last) for name, first in firsts.items()},
        most=14,
    )


@pytest.mark.parametrize("first", list(UNBOUNDED))
@pytest.mark.parametrize("second", sorted({*ROWS, *CHANGELOGS} - {"with_step", "exploded", "in_union"}))
def test_what_may_be_corrected_at_any_time_is_refused_with_the_word_to_add(first: str, second: str) -> None:
    with pytest.raises(DefinitionError):
        chain(1, UNBOUNDED[first], ROWS.get(second) or CHANGELOGS[second])
