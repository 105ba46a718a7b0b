"""Regular joins: what they show equals the model's, and added up it is what SQL's join gives."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from chain_links import CHANGELOGS, plain, source, unwindowed
from graph.build.test_join import ORDERS, PAYMENTS, Shop, order, pay
from millrace import testing, watermarks, windows
from millrace.durations import Duration
from millrace.engine import state
from millrace.engine.plan import Plan
from millrace.engine.rescale import redistribute
from millrace.errors import DefinitionError
from millrace.graph.build.join import JoinType
from millrace.keyed import Keyed
from millrace.stream import Stream
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel
from strategies import A, B, Given, batches, examples, topics_of, write
from test_engine_against_model import hold_batch

HOWS: tuple[JoinType, ...] = ("inner", "left", "right", "full", "semi", "anti")


def joined(left: Stream, right: Stream, how: JoinType, ttl: Duration | None) -> Stream:
    stream = left.group_by("k").join(right.group_by("k"), how=how, ttl=ttl)
    return stream.with_columns(w=pl.col("v_right" if "v_right" in stream.columns else "v"))


def side(data: Any, unit: int, topic: mr.Topic = A) -> Stream:
    """Rows, or one of the changelogs."""
    rows, kind = source(unit, topic), data.draw(st.sampled_from(["rows", *CHANGELOGS]))
    return unwindowed(plain(rows if kind == "rows" else CHANGELOGS[kind](rows, unit)))


def hold(data: Any, stream: Stream, unit: int, most: int = 18) -> None:
    """The same random batches on both, with restarts, in one slot or several."""
    job = mr.Job("joined", write(stream, "analytics.joined"))
    partitions = data.draw(st.sampled_from([1, 2]))
    jobs = Given((job,), unit, dict.fromkeys(sorted(topics_of(job)), partitions))
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=data.draw(st.sampled_from([1, 3])))
    model = OnModel(jobs.jobs, jobs.partitions)
    with patch.object(state, "MERGE_FACTOR", data.draw(st.sampled_from([2, 8]))):
        for batch in data.draw(batches(jobs, most=most)):
            hold_batch(engine, model, batch)


@given(data=st.data())
@examples(30)
def test_a_regular_join_shows_what_the_model_shows(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from([1, 1_000]))
    how = data.draw(st.sampled_from(HOWS))
    ttl = data.draw(st.sampled_from([None, None, 1, 3 * unit, 10 * unit]))
    left, right = side(data, unit), side(data, unit, data.draw(st.sampled_from([A, B])))
    hold(data, joined(left, right, how, ttl), unit)


@given(data=st.data())
@examples(15)
def test_a_regular_join_of_a_regular_join_shows_what_the_model_shows(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from([1, 1_000]))
    first = unwindowed(plain(joined(source(unit), source(unit, B), "full", 3 * unit)))
    how, ttl = data.draw(st.sampled_from(HOWS)), data.draw(st.sampled_from([None, 5 * unit]))
    hold(data, joined(first, source(unit), how, ttl), unit, most=12)


AGGREGATIONS: dict[str, Callable[[Stream], Stream]] = {
    "sum": lambda stream: stream.group_by("k").sum("v", name="s"),
    "max": lambda stream: stream.group_by("k").max("v", name="s"),
    "latest": lambda stream: stream.group_by("k").latest("v", name="s"),
    "distinct": lambda stream: stream.group_by("k").distinct("v", name="s"),
    "top": lambda stream: (
        stream.group_by("k").top(2, "v", by="v").with_columns(s=pl.col("top").list.len().cast(pl.Int64))
    ),
}


def aggregated(stream: Stream, name: str) -> Stream:
    """One value per key of all rows."""
    return AGGREGATIONS[name](stream).select("k", v="s")


@given(data=st.data())
@examples(30)
def test_aggregations_without_a_window_show_what_the_model_shows(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from([1, 1_000]))
    names = st.sampled_from(sorted(AGGREGATIONS))
    first, second = data.draw(names), data.draw(names)
    stream = aggregated(side(data, unit), first)
    match data.draw(st.sampled_from(["once", "twice", "joined", "scalar"])):
        case "twice":
            stream = aggregated(stream.select(k=pl.col("v").cast(pl.String), v="v"), second)
        case "joined":
            both = joined(stream, aggregated(source(unit, B), second), "full", None)
            stream = aggregated(both.select("k", v=pl.coalesce("v", "v_right")), first)
        case "scalar":
            total = aggregated(source(unit, B), second).sum("v", name="total")
            stream = side(data, unit).join_scalar(total)
    hold(data, stream, unit, most=14)


def bought(how: JoinType, ttl: Duration | None = None) -> mr.Job:
    quick = watermarks.bounded(0)
    orders, payments = mr.read(ORDERS, watermark=quick), mr.read(PAYMENTS, watermark=quick)
    stream = orders.group_by("user").join(payments.group_by("payer"), how=how, ttl=ttl)
    if "amount" not in stream.columns:
        stream = stream.with_columns(amount=pl.lit(0, pl.Int64))
    return mr.Job("bought", write(stream, "analytics.bought"))


ON = pytest.mark.parametrize("on", ["model", "engine"])


@ON
def test_rows_of_any_time_are_partners_and_one_without_is_taken_back(on: testing.On) -> None:
    shop = Shop(bought("left"), on)
    assert shop.see(order(50, "ann", "book")) == [("+", "ann", "book", None)]
    assert shop.see(pay(9_000, "ann", 5)) == [("+", "ann", "book", 5), ("-", "ann", "book", None)]
    shop.script.restart()
    assert shop.see(pay(1, "ann", 6)) == [("+", "ann", "book", 6)]
    assert not shop.script.late()


@ON
def test_what_comes_and_goes_within_a_batch_is_not_shown(on: testing.On) -> None:
    shop = Shop(bought("full"), on)
    assert shop.see(pay(2, "ann", 5)) == [("+", "ann", None, 5)]
    script = shop.script
    script.events(order(1, "ann", "book"), order(1, "ann", "book"), topic=ORDERS)
    assert shop.rows() == [("+", "ann", "book", 5), ("+", "ann", "book", 5), ("-", "ann", None, 5)]


@ON
def test_a_null_key_has_no_partner(on: testing.On) -> None:
    shop = Shop(bought("full"), on)
    assert shop.see(order(1, None, "gift")) == [("+", None, "gift", None)]
    assert shop.see(pay(1, None, 5)) == [("+", None, None, 5)]


@ON
@pytest.mark.parametrize(
    ("how", "first", "second"),
    [
        ("semi", [], [("+", "ann", "book", 0)]),
        ("anti", [("+", "ann", "book", 0)], [("-", "ann", "book", 0)]),
    ],
)
def test_semi_and_anti_show_rows_of_the_left_once(
    on: testing.On, how: JoinType, first: Any, second: Any
) -> None:
    shop = Shop(bought(how), on)
    assert shop.see(order(1, "ann", "book")) == first
    assert shop.see(pay(2, "ann", 5)) == second
    assert shop.see(pay(3, "ann", 6)) == []


@ON
def test_with_a_ttl_partners_are_less_than_that_apart(on: testing.On) -> None:
    shop = Shop(bought("inner", ttl=5), on)
    shop.see(order(10, "ann", "book"))
    assert shop.see(pay(15, "ann", 1)) == []
    assert shop.see(pay(14, "ann", 2)) == [("+", "ann", "book", 2)]
    assert shop.see(order(10, "ann", "pen")) == [("+", "ann", "pen", 2)]


@ON
def test_a_row_is_late_when_the_watermark_has_passed_it_by_the_ttl(on: testing.On) -> None:
    shop = Shop(bought("left", ttl=5), on)
    shop.script.watermark(20)
    assert shop.see(order(16, "ann", "book")) == [("+", "ann", "book", None)]
    assert shop.see(order(15, "ann", "lamp")) == []
    assert [(row["reason"], row["item"]) for row in shop.script.late()] == [("late", "lamp")]


@ON
def test_a_row_that_had_a_partner_is_not_taken_back_again_when_that_one_has_expired(on: testing.On) -> None:
    shop = Shop(bought("left", ttl=5), on)
    shop.see(pay(6, "ann", 1))
    assert shop.see(order(10, "ann", "book")) == [("+", "ann", "book", 1)]
    shop.script.watermark(16)
    assert shop.see(pay(12, "ann", 2)) == [("+", "ann", "book", 2)]


@ON
def test_a_correction_of_a_side_takes_back_its_pairs(on: testing.On) -> None:
    quick = watermarks.bounded(0)
    sums = mr.read(PAYMENTS, watermark=quick).window(windows.fixed(10), lateness=20).group_by("payer")
    totals = unwindowed(sums.sum("amount")).group_by("payer")
    stream = mr.read(ORDERS, watermark=quick).group_by("user").join(totals, how="left")
    shop = Shop(mr.Job("bought", write(stream, "analytics.bought")), on)
    shop.see(order(1, "ann", "book"), pay(2, "ann", 5))
    shop.script.watermark(10)
    assert shop.rows() == [("+", "ann", "book", 5), ("-", "ann", "book", None)]
    assert shop.see(pay(3, "ann", 2)) == [("+", "ann", "book", 7), ("-", "ann", "book", 5)]


@ON
def test_rows_beside_one_value_are_shown_anew_when_it_changes(on: testing.On) -> None:
    quick = watermarks.bounded(0)
    total = mr.read(PAYMENTS, watermark=quick).sum("amount")
    stream = mr.read(ORDERS, watermark=quick).join_scalar(total)
    shop = Shop(mr.Job("beside", write(stream, "analytics.beside")), on)
    assert shop.see(order(1, "ann", "book")) == [("+", "ann", "book", None)]
    assert shop.see(pay(2, "bob", 5)) == [("+", "ann", "book", 5), ("-", "ann", "book", None)]
    assert shop.see(order(3, None, "pen")) == [("+", None, "pen", 5)]


@ON
def test_rows_that_a_step_makes_equal_are_not_shown_again(on: testing.On) -> None:
    quick = watermarks.bounded(0)
    total = mr.read(PAYMENTS, watermark=quick).sum("amount")
    beside = mr.read(ORDERS, watermark=quick).join_scalar(total)
    enough = beside.filter(pl.col("amount") > 3).select("user", "item")
    script = testing.Script(mr.Job("enough", write(enough, "analytics.enough")), on=on)
    script.events(order(1, "ann", "book"), topic=ORDERS)
    assert not script.panes()
    script.events(pay(2, "bob", 5), topic=PAYMENTS)
    assert [(row["op"], row["item"]) for row in script.panes()] == [("+", "book")]
    script.events(pay(3, "bob", 5), topic=PAYMENTS)
    assert not script.panes()
    script.events(pay(4, "bob", -9), topic=PAYMENTS)
    assert [(row["op"], row["item"]) for row in script.panes()] == [("-", "book")]


def some_events(dice: random.Random, topic: mr.Topic, first: int, now: int, most: int) -> list[SourceEvent]:
    """Rows that are mostly in order, some of them equal, some without a key."""
    events = []
    for offset in range(first, first + dice.randrange(most)):
        user, at = dice.choice(["ann", "bob", "cid", None]), max(0, now - dice.choice([0, 0, 1, 8, 30]))
        values: dict[str, Any] = {"user": user, "item": dice.choice("xyz")}
        if topic is PAYMENTS:
            values = {"payer": user, "amount": dice.randrange(3), "item": ""}
        events.append(SourceEvent(topic.name, 0, offset, at, now, values))
    return events


def answer_of_duckdb(how: JoinType, ttl: int | None, events: list[SourceEvent]) -> Counter[Any]:
    """SQL's join of all rows."""
    near = "" if ttl is None else f"AND abs(o.at - p.at) < {ttl}"
    columns = (
        "coalesce(o.user, p.payer), o.item, p.amount" if how not in ("semi", "anti") else "o.user, o.item, 0"
    )
    with duckdb.connect() as db:
        for topic in (ORDERS, PAYMENTS):
            rows = [{**event.values, "at": event.event_time} for event in events if event.topic == topic.name]
            table = pl.DataFrame(rows, schema={**topic.schema, "at": pl.Int64})
            db.register(topic.name.removeprefix("input."), table.to_arrow())
        query = f"SELECT {columns} FROM orders o {how} JOIN payments p ON o.user = p.payer {near}"
        return Counter(db.execute(query).fetchall())


@pytest.mark.parametrize("ttl", [None, 10])
@pytest.mark.parametrize("how", HOWS)
def test_the_changelog_added_up_is_what_a_join_in_duckdb_says(how: JoinType, ttl: int | None) -> None:
    dice = random.Random(f"{how} {ttl}")
    engine = OnEngine([bought(how, ttl)], {ORDERS.name: 1, PAYMENTS.name: 1}, slots=3)
    taken: list[SourceEvent] = []
    offsets = {ORDERS.name: 0, PAYMENTS.name: 0}
    shown, refusals = Counter[Any](), 0
    for batch in range(25):
        made = []
        for topic in (ORDERS, PAYMENTS):
            came = some_events(dice, topic, offsets[topic.name], batch * 6, 5)
            offsets[topic.name] += len(came)
            made += came
        if dice.random() < 0.3:
            engine.restart()
        fed = engine.feed(made, batch * 6, end=batch == 24)
        for row in fed.written.get("analytics.bought", []):
            shown[row["user"], row["item"], row["amount"]] += 1 if row["op"] == "+" else -1
        refused = {(row["topic"], row["offset"]) for rows in fed.late.values() for row in rows}
        refusals += len(refused)
        taken += [event for event in made if (event.topic, event.offset) not in refused]
        if ttl is None or batch == 24:
            assert +shown == answer_of_duckdb(how, ttl, taken)
            assert not -shown
    assert (refusals > 0) == (ttl is not None)


@pytest.mark.parametrize(("how", "kept"), [("inner", 20), ("full", 30)])
def test_what_no_row_can_meet_any_more_is_forgotten(how: JoinType, kept: int) -> None:
    engine = OnEngine([bought(how, 10)], {ORDERS.name: 1, PAYMENTS.name: 1})
    most = 0
    for n in range(120):
        orders = SourceEvent(ORDERS.name, 0, n, n, n, {"user": "ann", "item": "x"})
        payments = SourceEvent(PAYMENTS.name, 0, n, n, n, {"payer": "ann", "amount": 1, "item": ""})
        engine.feed([orders, payments], n)
        tables = [table for held in engine.engine.states.values() for table in held.tables.values()]
        most = max(most, sum(table.rows for table in tables))
    assert most <= 2 * (kept + 8 + 8)


@pytest.mark.parametrize("slots", [2, 9])
def test_another_number_of_slots_in_the_middle_changes_nothing(slots: int) -> None:
    def shown(change: bool) -> list[str]:
        engine, rows = OnEngine([bought("full", 20)], {ORDERS.name: 1, PAYMENTS.name: 1}, slots=5), []
        for n in range(10):
            made = [
                SourceEvent(ORDERS.name, 0, n, n * 3, n * 3, {"user": f"u{n % 4}", "item": str(n)}),
                SourceEvent(
                    PAYMENTS.name, 0, n, n * 3, n * 3, {"payer": f"u{n % 3}", "amount": n, "item": ""}
                ),
            ]
            rows += engine.feed(made, n * 3, end=n == 9).written.get("analytics.bought", [])
            if n == 5 and change:
                plan = Plan.of(engine.engine.plan.jobs, slots=slots)
                engine.engine.states = redistribute(plan, engine.engine.states)
                engine.engine.plan = plan
        return sorted(map(str, rows))

    assert shown(change=True) == shown(change=False)
    assert shown(change=False)


def rows_of(topic: mr.Topic) -> Stream:
    return mr.read(topic, watermark=watermarks.bounded(0))


def test_what_cannot_be_joined_is_refused() -> None:
    orders, payments = rows_of(ORDERS).group_by("user"), rows_of(PAYMENTS).group_by("payer")
    with pytest.raises(
        DefinitionError, match="how='outer' is unknown; use one of 'inner', 'left', 'right', 'full', "
    ):
        orders.join(payments, how="outer")  # type: ignore[arg-type]  # as a user may
    with pytest.raises(DefinitionError, match="how='semi' is for regular joins"):
        orders.join(payments, how="semi", within=(0, 1))
    with pytest.raises(DefinitionError, match="ttl='0s'"):
        orders.join(payments, ttl="0s")
    with pytest.raises(DefinitionError, match=r"join\(ttl=...\) is for joins of two streams by key alone"):
        orders.join(payments, within=(0, 1), ttl="1h")
    with pytest.raises(DefinitionError, match=r"'user' is .* and 'amount' is .*, which are never equal"):
        orders.join(rows_of(PAYMENTS).group_by("amount"))


def test_a_side_that_could_not_be_taken_back_is_refused() -> None:
    orders, payments = rows_of(ORDERS), rows_of(PAYMENTS)

    def sums(**windowing: Any) -> Keyed:
        windowed = payments.window(windows.fixed(10), lateness=5, **windowing)
        return unwindowed(windowed.group_by("payer").sum("amount")).group_by("payer")

    by_user = orders.group_by("user")
    with pytest.raises(DefinitionError, match="each holds a part, and none of them all"):
        by_user.join(sums(accumulation="discarding"))
    with pytest.raises(DefinitionError, match="that time changes when they are refined; use time='end'"):
        by_user.join(sums(time="latest"))
    totals = payments.group_by("payer").sum("amount").group_by("payer")
    with pytest.raises(DefinitionError, match=r"hold for all time.*leave out ttl="):
        by_user.join(totals, ttl="1h")
    with pytest.raises(DefinitionError, match=r"hold for all time.*leave out ttl="):
        by_user.join(totals, how="semi").group_by("user").join(totals, ttl="1h")


def test_what_needs_an_end_refuses_a_join_without_a_ttl() -> None:
    for_ever = rows_of(ORDERS).group_by("user").join(rows_of(PAYMENTS).group_by("payer"))
    with pytest.raises(DefinitionError, match=r"none of them is ever final; say join\(..., ttl='1h'\)"):
        for_ever.final()
    with pytest.raises(DefinitionError, match=r"may be corrected at any time.*say join\(..., ttl='1h'\)"):
        for_ever.window(windows.fixed(10)).count()
    with pytest.raises(DefinitionError, match=r"may be corrected at any time.*say .window\(...\) before it"):
        rows_of(ORDERS).group_by("user").count().window(windows.fixed(10)).count()
    with pytest.raises(DefinitionError, match="this one may have several rows"):
        rows_of(ORDERS).join_scalar(rows_of(PAYMENTS))
    with pytest.raises(DefinitionError, match="this one may have several rows"):
        rows_of(ORDERS).join_scalar(rows_of(PAYMENTS).window(windows.fixed(10)).count())


def test_explain_says_what_is_kept() -> None:
    assert "all rows of both sides are kept for ever: no ttl" in str(bought("full"))
    assert "a row is refused 1h behind the watermark; rows are kept for 2h" in str(bought("inner", "1h"))
    assert "gives     a changelog" in str(bought("inner", "1h"))
    assert "rows are kept for 3h" in str(bought("anti", "1h"))


def test_a_lookup_of_rows_that_are_taken_back_is_refused() -> None:
    joined = rows_of(ORDERS).group_by("user").join(rows_of(PAYMENTS).group_by("payer"))
    with pytest.raises(DefinitionError, match=r"of rows that are taken back.*or say .final\(\)"):
        joined.lookup(lambda user: {"city": user}, "user", schema={"city": pl.String})
