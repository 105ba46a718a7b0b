"""Joins within windows: what they show, what they take back,
and that the engine does as the model and a batch join do.
"""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from join_strategies import HOWS, joins
from millrace import testing, triggers, watermarks, windows
from millrace.engine import state
from millrace.engine.operators import sliced_windows
from millrace.engine.operators import windows as cell_windows
from millrace.errors import DefinitionError
from millrace.graph.build.join import JoinType
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from strategies import batches, examples, write
from test_engine_against_model import hold_batch


def check_every_batch(data: st.DataObject, *, anyhow: bool) -> None:
    """One random run on both, batch by batch;
    half of them with limits so low that state is merged all the time.
    """
    jobs = data.draw(joins(anyhow=anyhow))
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 1, 2, 5])))
    model = OnModel(jobs.jobs, jobs.partitions)
    tight = data.draw(st.booleans())
    with (
        patch.object(state, "MERGE_FACTOR", 2 if tight else state.MERGE_FACTOR),
        patch.object(sliced_windows, "MAX_EXPANDED_ROWS", 3 if tight else sliced_windows.MAX_EXPANDED_ROWS),
        patch.object(cell_windows, "FULL_SCAN_ROWS", 2 if tight else cell_windows.FULL_SCAN_ROWS),
    ):
        for batch in data.draw(batches(jobs)):
            hold_batch(engine, model, batch)


@given(data=st.data())
@examples(30)
def test_every_batch_shows_the_same_rows(data: st.DataObject) -> None:
    check_every_batch(data, anyhow=False)


@given(data=st.data())
@examples(30)
def test_with_windows_and_triggers_of_all_kinds_too(data: st.DataObject) -> None:
    check_every_batch(data, anyhow=True)


@dataclass(frozen=True)
class Order:
    """Somebody orders something."""

    user: str | None
    item: str


@dataclass(frozen=True)
class Payment:
    """Somebody pays."""

    payer: str | None
    amount: int
    item: str


ORDERS, PAYMENTS = mr.Topic("input.orders", Order), mr.Topic("input.payments", Payment)


def bought(how: JoinType = "inner", **windowing: Any) -> mr.Job:
    windowing.setdefault("lateness", 10)
    quick = watermarks.bounded(2)
    orders = mr.read(ORDERS, watermark=quick).window(windows.fixed(10), **windowing).group_by("user")
    return mr.Job(
        "bought",
        write(orders.join(mr.read(PAYMENTS, watermark=quick).group_by("payer"), how=how), "analytics.bought"),
    )


def order(at: int, user: str | None, item: str) -> dict[str, Any]:
    return {"user": user, "item": item, "event_time": at}


def pay(at: int, payer: str | None, amount: int) -> dict[str, Any]:
    return {"payer": payer, "amount": amount, "item": "?", "event_time": at}


class Shop:
    """A script that speaks of rows as users, items and amounts."""

    def __init__(self, job: mr.Job, on: testing.On = "engine") -> None:
        self.script = testing.Script(job, on=on)

    def see(self, *events: dict[str, Any]) -> list[tuple[Any, ...]]:
        for topic, field in ((ORDERS, "user"), (PAYMENTS, "payer")):
            if some := [event for event in events if field in event]:
                self.script.events(*some, topic=topic)
        return self.rows()

    def rows(self) -> list[tuple[Any, ...]]:
        names = ("op", "user", "item", "amount")
        return sorted((tuple(row[name] for name in names) for row in self.script.panes()), key=str)


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_late_payment_brings_a_pair_and_takes_back_the_order_without_one(on: testing.On) -> None:
    shop = Shop(bought("left"), on)
    assert not shop.see(order(1, "ann", "book"), order(2, "bob", "pen"), pay(3, "ann", 5))
    shop.script.watermark(10)
    assert shop.rows() == [("+", "ann", "book", 5), ("+", "bob", "pen", None)]
    assert shop.see(pay(4, "bob", 2)) == [("+", "bob", "pen", 2), ("-", "bob", "pen", None)]
    assert shop.see(pay(5, "bob", 3)) == [("+", "bob", "pen", 3)], (
        "and nothing that still holds is said again"
    )
    shop.script.restart()
    assert shop.see(order(6, "ann", "lamp")) == [("+", "ann", "lamp", 5)]


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", {("ann", "book", 5)}),
        ("left", {("ann", "book", 5), ("bob", "pen", None), (None, "gift", None)}),
        ("right", {("ann", "book", 5), ("cid", None, 7), (None, None, 9)}),
        (
            "full",
            {
                ("ann", "book", 5),
                ("bob", "pen", None),
                (None, "gift", None),
                ("cid", None, 7),
                (None, None, 9),
            },
        ),
    ],
)
def test_which_rows_without_a_partner_are_kept(
    how: JoinType, expected: set[tuple[Any, ...]], on: testing.On
) -> None:
    shop = Shop(bought(how), on)
    shop.see(
        order(1, "ann", "book"),
        order(2, "bob", "pen"),
        order(3, None, "gift"),
        pay(1, "ann", 5),
        pay(2, "cid", 7),
        pay(3, None, 9),
    )
    shop.script.end()
    assert {row[1:] for row in shop.rows()} == expected, "a null key has no partner"


def test_rows_of_different_windows_do_not_meet() -> None:
    shop = Shop(bought())
    shop.see(order(9, "ann", "book"), pay(10, "ann", 5))
    shop.script.end()
    assert shop.rows() == []


def test_columns_whose_names_are_taken_get_a_suffix() -> None:
    [write_node] = bought().outputs
    assert [c for c in write_node.schema if c not in mr.topics.SYSTEM_COLUMNS] == [
        "user",
        "item",
        "amount",
        "item_right",
    ]


def test_panes_of_two_aggregations_are_joined_in_their_window() -> None:
    rows = mr.read(ORDERS).window(windows.fixed(10), lateness=10)
    paid = mr.read(PAYMENTS).window(windows.fixed(10), lateness=10).group_by("payer").sum("amount")
    stream = (
        rows.group_by("user").count(name="orders").group_by("user").join(paid.group_by("payer"), how="full")
    )
    script = testing.Script(mr.Job("sums", write(stream, "analytics.sums")))

    def came() -> list[tuple[Any, ...]]:
        return sorted(
            (tuple(row[name] for name in ("op", "user", "orders", "amount")) for row in script.panes()),
            key=str,
        )

    script.events(order(1, "ann", "book"), order(2, "ann", "pen"), topic=ORDERS)
    script.events(pay(3, "ann", 5), pay(3, "bob", 1), topic=PAYMENTS)
    script.watermark(10)
    assert came() == [("+", "ann", 2, 5), ("+", "bob", None, 1)]
    script.events(pay(4, "ann", 4), topic=PAYMENTS)
    assert came() == [("+", "ann", 2, 9), ("-", "ann", 2, 5)]


def test_a_cogroup_holds_the_rows_of_both_sides() -> None:
    stream = (
        mr.read(ORDERS)
        .window(windows.fixed(10))
        .group_by("user")
        .cogroup(mr.read(PAYMENTS).group_by("payer"), names=("orders", "payments"))
    )
    script = testing.Script(mr.Job("both", write(stream, "analytics.both")))
    script.events(order(2, "ann", "pen"), order(1, "ann", "book"), topic=ORDERS)
    script.events(pay(3, "bob", 5), topic=PAYMENTS)
    script.end()
    assert {row["user"]: (row["orders"], row["payments"]) for row in script.panes()} == {
        "ann": ([{"item": "book"}, {"item": "pen"}], []),
        "bob": ([], [{"amount": 5, "item": "?"}]),
    }


def test_what_cannot_be_joined_is_refused() -> None:
    orders, payments = mr.read(ORDERS), mr.read(PAYMENTS)
    windowed = orders.window(windows.fixed(10))
    with pytest.raises(DefinitionError, match="would wait for ever for partners"):
        orders.group_by("user").cogroup(payments.group_by("payer"))
    with pytest.raises(DefinitionError, match=r"one side lies in fixed.*window both alike"):
        windowed.group_by("user").join(payments.window(windows.fixed(20)).group_by("payer"))
    with pytest.raises(DefinitionError, match="'user' is String and 'amount' is Int64"):
        windowed.group_by("user").join(payments.group_by("amount"))
    with pytest.raises(DefinitionError, match="different numbers of columns"):
        windowed.group_by("user", "item").join(payments.group_by("payer"))
    with pytest.raises(DefinitionError, match="how='outer' is unknown"):
        windowed.group_by("user").join(payments.group_by("payer"), how="outer")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(DefinitionError, match="would have 'item' twice"):
        windowed.group_by("user").join(payments.group_by("payer"), suffix="")
    with pytest.raises(DefinitionError, match="accumulation='discarding' has no meaning"):
        orders.window(windows.fixed(10), accumulation="discarding").group_by("user").join(
            payments.group_by("payer")
        )


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("seed", range(3))
def test_what_holds_in_the_end_is_what_a_batch_join_in_duckdb_says(how: JoinType, seed: int) -> None:
    """Rows that come late and in any order, early panes, restarts: all changes, added up."""
    dice = random.Random(f"{how} {seed}")
    job = bought(how, lateness=25, trigger=triggers.at_watermark(early=triggers.after_count(1)))
    engine = testing.OnEngine([job], {ORDERS.name: 1, PAYMENTS.name: 1}, slots=3)
    offsets, changes, refused, events = {ORDERS.name: 0, PAYMENTS.name: 0}, Counter[Any](), set(), []
    for batch in range(24):
        now, made = batch * 6, []
        for _ in range(dice.randrange(12)):
            topic = dice.choice([ORDERS, PAYMENTS])
            user, item = dice.choice(["ann", "bob", "cid", None]), dice.choice(["book", "pen"])
            values = (
                {"user": user, "item": item}
                if topic is ORDERS
                else {"payer": user, "amount": dice.randrange(3), "item": item}
            )
            made.append(
                SourceEvent(
                    topic.name,
                    0,
                    offsets[topic.name],
                    max(0, now - dice.choice([0, 3, 8, 20, 60])),
                    now,
                    values,
                )
            )
            offsets[topic.name] += 1
        if dice.random() < 0.3:
            engine.restart()
        fed = engine.feed(made, now, end=batch == 23)
        for row in fed.written.get("analytics.bought", []):
            changes[tuple(row[c] for c in ("user", "item", "amount", "item_right", "window_end"))] += (
                1 if row["op"] == "+" else -1
            )
        refused |= {(row["topic"], row["offset"]) for rows in fed.late.values() for row in rows}
        events += made
    taken = [event for event in events if (event.topic, event.offset) not in refused]
    assert refused
    assert how == "inner" or 0 in changes.values(), "something was taken back"
    tables = {
        topic.name.removeprefix("input."): pl.DataFrame(
            [{**e.values, "ends": e.event_time // 10 * 10 + 10} for e in taken if e.topic == topic.name],
            schema={**topic.schema, "ends": pl.Int64},
        )
        for topic in (ORDERS, PAYMENTS)
    }
    with duckdb.connect() as db:
        for name, frame in tables.items():
            db.register(name, frame.to_arrow())
        answer = db.execute(f"""
            SELECT coalesce(o.user, p.payer), o.item, p.amount, p.item, coalesce(o.ends, p.ends)
            FROM orders o {how} JOIN payments p ON o.user = p.payer AND o.ends = p.ends""").fetchall()
    assert +changes == Counter(answer)
