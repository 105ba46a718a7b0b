"""Streams and tables: a row is shown beside what the table held at its event time, whatever came first."""

import random
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import millrace as mr
from millrace import testing, watermarks, windows
from millrace.engine import state
from millrace.errors import DefinitionError
from millrace.graph.build.table import Table
from millrace.stream import Job
from millrace.testing.script import OnEngine, OnModel
from strategies import A, B, Given, batches, examples, topics_of, watermark_of, write
from test_engine_against_model import hold_batch


@st.composite
def table_joins(draw: st.DrawFn) -> Given:
    unit = draw(st.sampled_from([1, 1_000]))
    key = draw(st.sampled_from(["k", "g", "b"]))
    deleted = draw(st.sampled_from([None, pl.col("v") > 2, pl.col("b")]))
    changes = mr.read(draw(st.sampled_from([B, B, A])), watermark=draw(watermark_of(unit, False)))
    table = Table(changes, (key,), deleted)
    rows = mr.read(A, watermark=draw(watermark_of(unit, False)))
    stream = rows.group_by(key).join(table, how=draw(st.sampled_from(["inner", "left"])))
    outputs = [write(stream, "analytics.joined")]
    if draw(st.booleans()):
        outputs.append(
            write(stream.window(windows.fixed(5 * unit)).group_by(key).count(name="n"), "analytics.counted")
        )
    job = Job("joining", *outputs)
    assume(topics_of(job))
    return Given((job,), unit, {topic: draw(st.sampled_from([1, 1, 2])) for topic in sorted(topics_of(job))})


@given(data=st.data())
@examples(25)
def test_every_batch_shows_the_same_rows(data: st.DataObject) -> None:
    jobs = data.draw(table_joins())
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    with patch.object(state, "MERGE_FACTOR", data.draw(st.sampled_from([2, state.MERGE_FACTOR]))):
        for batch in data.draw(batches(jobs)):
            hold_batch(engine, model, batch)


@dataclass(frozen=True)
class Trade:
    """So much of a currency."""

    currency: str | None
    amount: int


@dataclass(frozen=True)
class Rate:
    """What a currency is worth from now on."""

    currency: str
    rate: int
    withdrawn: bool


TRADES = mr.Topic("input.trades", Trade, key="currency")
RATES = mr.Topic("input.rates", Rate, key="currency")


def worth(how: Any = "left", watermark: Any = None) -> mr.Job:
    table = mr.table(RATES, deleted=pl.col("withdrawn"), watermark=watermark)
    return mr.Job(
        "worth",
        write(
            mr.read(TRADES, watermark=watermark).group_by("currency").join(table, how=how), "analytics.worth"
        ),
    )


def rows(script: testing.Script) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row[name] for name in ("event_time", "currency", "amount", "rate")) for row in script.panes()
    )


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_row_sees_the_version_of_its_own_time_even_when_that_comes_later(on: testing.On) -> None:
    script = testing.Script(worth(), on=on)
    script.events({"currency": "eur", "rate": 10, "withdrawn": False, "event_time": 0}, topic=RATES)
    script.events(
        {"currency": "eur", "amount": 1, "event_time": 5},
        {"currency": "eur", "amount": 2, "event_time": 15},
        {"currency": "usd", "amount": 3, "event_time": 16},
        topic=TRADES,
    )
    script.events({"currency": "eur", "rate": 20, "withdrawn": False, "event_time": 15}, topic=RATES)
    assert not rows(script), "an earlier version may still come"
    script.watermark(15)
    assert rows(script) == [(5, "eur", 1, 10)]
    script.restart()
    script.watermark(16)
    assert rows(script) == [(15, "eur", 2, 20)], "a version holds from its own time on"
    script.events({"currency": "eur", "rate": 0, "withdrawn": True, "event_time": 20}, topic=RATES)
    script.events({"currency": "eur", "amount": 4, "event_time": 20}, topic=TRADES)
    script.end()
    assert rows(script) == [(16, "usd", 3, None), (20, "eur", 4, None)]


def test_rows_without_a_version_are_left_out_of_an_inner_join() -> None:
    script = testing.Script(worth("inner"))
    script.events({"currency": "eur", "amount": 1, "event_time": 5}, topic=TRADES)
    script.events({"currency": "eur", "rate": 10, "withdrawn": False, "event_time": 6}, topic=RATES)
    script.end()
    assert not rows(script)


def test_what_the_rows_say_is_what_an_asof_join_in_duckdb_says() -> None:
    dice = random.Random(7)
    frames: dict[str, list[dict[str, Any]]] = {TRADES.name: [], RATES.name: []}
    for at in range(0, 3_000, 3):
        currency = dice.choice(["eur", "usd", "sek"])
        if dice.random() < 0.2:
            frames[RATES.name].append(
                {"currency": currency, "rate": at, "withdrawn": False, "event_time": at}
            )
        else:
            frames[TRADES.name].append({"currency": currency, "amount": at, "event_time": at})
    given = {name: pl.DataFrame(made) for name, made in frames.items()}
    shown = mr.replay(worth("left", watermarks.ascending()), given, batch=37)
    with duckdb.connect() as db:
        db.register("trades", given[TRADES.name].to_arrow())
        db.register("rates", given[RATES.name].to_arrow())
        answer = db.execute("""
            SELECT t.currency, t.amount, r.rate FROM trades t
            ASOF LEFT JOIN rates r ON t.currency = r.currency AND t.event_time >= r.event_time""").fetchall()
    assert sorted(shown.select("currency", "amount", "rate").rows(), key=str) == sorted(answer, key=str)


def test_the_changes_of_a_table_are_a_stream() -> None:
    changes = mr.table(RATES).changes
    job = mr.Job(
        "changes", write(changes.window(windows.fixed(10)).group_by("currency").count(), "analytics.changes")
    )
    given = pl.DataFrame(
        {"currency": ["eur", "eur"], "rate": [1, 2], "withdrawn": [False, False], "event_time": [1, 2]}
    )
    assert mr.replay(job, given)["count"].to_list() == [2]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the topic has no key"):
        mr.table(mr.Topic("input.rates", Rate))
    with pytest.raises(DefinitionError, match="looks at 'gone'"):
        mr.table(RATES, deleted=pl.col("gone"))
    with pytest.raises(DefinitionError, match="use 'inner' or 'left'"):
        mr.read(TRADES).group_by("currency").join(mr.table(RATES), how="full")
