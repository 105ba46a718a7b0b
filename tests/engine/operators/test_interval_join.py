"""Interval joins: rows whose times are not far apart; what they show and when, and that the engine does as
the model and a batch join do.
"""

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from graph.build.test_join import ORDERS, PAYMENTS, Shop, order, pay
from join_strategies import HOWS, interval_joins
from millrace import testing, watermarks, windows
from millrace.engine import state
from millrace.engine.plan import Plan
from millrace.engine.rescale import redistribute
from millrace.errors import DefinitionError
from millrace.graph.build.join import JoinType
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from strategies import batches, examples, write
from test_engine_against_model import hold_batch


@given(data=st.data())
@examples(25)
def test_every_batch_shows_the_same_rows(data: st.DataObject) -> None:
    jobs = data.draw(interval_joins())
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    with patch.object(state, "MERGE_FACTOR", data.draw(st.sampled_from([2, state.MERGE_FACTOR]))):
        for batch in data.draw(batches(jobs)):
            hold_batch(engine, model, batch)


def paid(how: JoinType = "inner", within: tuple[int, int] = (-5, 10)) -> mr.Job:
    quick = watermarks.bounded(2)
    orders, payments = (
        mr.read(ORDERS, watermark=quick).group_by("user"),
        mr.read(PAYMENTS, watermark=quick).group_by("payer"),
    )
    return mr.Job("paid", write(orders.join(payments, within=within, how=how), "analytics.paid"))


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_pair_is_shown_as_soon_as_both_are_there_at_the_time_of_the_later(on: testing.On) -> None:
    script = testing.Script(paid(), on=on)
    script.events(order(20, "ann", "book"), topic=ORDERS)
    assert not script.panes()
    script.events(*[pay(at, "ann", at) for at in (14, 15, 29, 30)], topic=PAYMENTS)
    came = {
        row["amount"]: (row["event_time"], row["window_start"], row["window_end"], row["final"])
        for row in script.panes()
    }
    assert came == {15: (20, 15, 21, True), 29: (29, 20, 30, True)}, "from 5 before to less than 10 after"


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_row_without_a_partner_is_shown_when_none_can_come(on: testing.On) -> None:
    shop = Shop(paid("full"), on)
    assert not shop.see(order(20, "ann", "book"), pay(20, "bob", 3))
    shop.script.watermark(25)
    assert not shop.rows()
    shop.script.restart()
    shop.script.watermark(26)
    assert shop.rows() == [("+", "bob", None, 3)], "an order may be at most 5 after its payment"
    shop.script.watermark(29)
    assert not shop.rows()
    shop.script.watermark(30)
    assert shop.rows() == [("+", "ann", "book", None)]
    shop.script.end()
    assert not shop.rows()


def test_a_row_behind_the_watermark_is_refused() -> None:
    shop = Shop(paid())
    shop.see(order(20, "ann", "book"))
    shop.script.watermark(18)
    assert not shop.see(pay(17, "ann", 1))
    assert [row["reason"] for row in shop.script.late()] == ["late"]
    assert shop.see(pay(18, "ann", 2)) == [("+", "ann", "book", 2)]


def test_what_is_over_is_forgotten() -> None:
    engine = OnEngine([paid("full")], {ORDERS.name: 1, PAYMENTS.name: 1})
    most = 0
    for n in range(60):
        now = n * 10
        rows = [
            SourceEvent(ORDERS.name, 0, n, now, now, {"user": "ann", "item": "x"}),
            SourceEvent(PAYMENTS.name, 0, n, now, now, {"payer": "ann", "amount": 1, "item": ""}),
        ]
        engine.feed(rows, now)
        tables = [table for held in engine.engine.states.values() for table in held.tables.values()]
        most = max(most, sum(table.rows for table in tables))
    assert most < 40


def test_what_cannot_be_joined_is_refused() -> None:
    orders, payments = mr.read(ORDERS), mr.read(PAYMENTS)
    with pytest.raises(DefinitionError, match=r"within=\('5s', '5s'\) is empty"):
        orders.group_by("user").join(payments.group_by("payer"), within=("5s", "5s"))
    counted = orders.window(windows.fixed(10), lateness=1).group_by("user").count()
    with pytest.raises(DefinitionError, match="the results of aggregate may still be refined"):
        counted.group_by("user").join(payments.group_by("payer"), within=(0, 1))


@pytest.mark.parametrize("how", HOWS)
def test_what_was_shown_is_what_a_batch_join_in_duckdb_says(how: JoinType) -> None:
    dice = random.Random(how)
    engine = OnEngine([paid(how)], {ORDERS.name: 1, PAYMENTS.name: 1}, slots=3)
    events: list[SourceEvent] = []
    offsets, changes, refused = {ORDERS.name: 0, PAYMENTS.name: 0}, Counter[Any](), set()
    for batch in range(40):
        made: list[SourceEvent] = []
        now = batch * 6
        for _ in range(dice.randrange(8)):
            topic = dice.choice([ORDERS, PAYMENTS])
            user, number = dice.choice(["ann", "bob", "cid", None]), len(events) + len(made)
            values = (
                {"user": user, "item": f"{number}"}
                if topic is ORDERS
                else {"payer": user, "amount": number, "item": ""}
            )
            made.append(
                SourceEvent(
                    topic.name,
                    0,
                    offsets[topic.name],
                    max(0, now - dice.choice([0, 0, 1, 2, 20])),
                    now,
                    values,
                )
            )
            offsets[topic.name] += 1
        if dice.random() < 0.3:
            engine.restart()
        fed = engine.feed(made, now, end=batch == 39)
        changes.update(
            tuple(row[c] for c in ("user", "item", "amount")) for row in fed.written.get("analytics.paid", [])
        )
        refused |= {(row["topic"], row["offset"]) for rows in fed.late.values() for row in rows}
        events += made
    taken = [event for event in events if (event.topic, event.offset) not in refused]
    assert refused
    tables = {
        topic.name.removeprefix("input."): pl.DataFrame(
            [{**e.values, "at": e.event_time} for e in taken if e.topic == topic.name],
            schema={**topic.schema, "at": pl.Int64},
        )
        for topic in (ORDERS, PAYMENTS)
    }
    with duckdb.connect() as db:
        for name, frame in tables.items():
            db.register(name, frame.to_arrow())
        answer = db.execute(f"""
            SELECT coalesce(o.user, p.payer), o.item, p.amount
            FROM orders o {how} JOIN payments p
            ON o.user = p.payer AND p.at - o.at >= -5 AND p.at - o.at < 10""").fetchall()
    assert changes == Counter(answer)


@pytest.mark.parametrize("slots", [2, 9])
def test_another_number_of_slots_in_the_middle_changes_nothing(slots: int) -> None:
    def shown(change: bool) -> list[str]:
        engine, rows = OnEngine([paid("full")], {ORDERS.name: 1, PAYMENTS.name: 1}, slots=5), []
        for n in range(10):
            order = SourceEvent(ORDERS.name, 0, n, n * 3, n * 3, {"user": f"u{n % 4}", "item": str(n)})
            payment = SourceEvent(
                PAYMENTS.name, 0, n, n * 3, n * 3, {"payer": f"u{n % 3}", "amount": n, "item": ""}
            )
            rows += engine.feed([order, payment], n * 3, end=n == 9).written.get("analytics.paid", [])
            if n == 5 and change:
                plan = Plan.of(engine.engine.plan.jobs, slots=slots)
                engine.engine.states = redistribute(plan, engine.engine.states)
                engine.engine.plan = plan
        return sorted(map(str, rows))

    assert len(shown(change=False)) == 16
    assert shown(change=True) == shown(change=False)
