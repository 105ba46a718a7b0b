"""Aggregates of expressions, of some rows alone, and of distinct values."""

from typing import Any

import polars as pl
import pytest

import millrace as mr
from aggregate_strategies import Joined, Tally
from millrace import aggregates, graph, windows
from millrace.aggregates import Aggregate, Reduction
from millrace.engine import fingerprints
from millrace.engine.plan import Operator, Plan
from millrace.errors import DefinitionError
from millrace.graph.explain import explain
from millrace.stream import Stream
from millrace.testing.script import On, Script
from strategies import A, write

V, POSITIVE = pl.col("v"), pl.col("v") > 0
ROWS = mr.read(A).window(windows.fixed(10), lateness=20)


def reading(at: int, **fields: Any) -> dict[str, Any]:
    return {"k": "a", "g": 1, "v": 1, "x": 1.0, "b": True, "event_time": at, **fields}


def answers(on: On, given: list[dict[str, Any]], **chosen: Reduction | Aggregate) -> dict[str, Any]:
    """The aggregates of rows of one window."""
    script = Script(mr.Job("one", write(ROWS.aggregate(**chosen), "analytics.one")), on=on)
    script.events(*given)
    script.watermark(10)
    [pane] = script.panes()
    return {name: pane[name] for name in chosen}


READINGS = [
    reading(1, v=3, x=0.5),
    reading(2, v=None, x=2.0),
    reading(3, v=3, x=None),
    reading(4, v=-1, x=4.0, b=False),
    reading(5, v=2, x=8.0, b=None),
]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_an_aggregate_is_computed_of_an_expression(on: On) -> None:
    assert answers(
        on,
        READINGS,
        total=aggregates.sum(V * pl.col("g")),
        mean=aggregates.mean(pl.col("x") * 2),
        most=aggregates.max(-V),
        last=aggregates.latest(V + 1),
        all=aggregates.collect(V % 2),
        values=aggregates.count(V + 1),
        halves=aggregates.quantiles(V * 10, [0.5]),
        ones=aggregates.sum(pl.lit(1)),
    ) == {
        "total": 7,
        "mean": 7.25,
        "most": 1,
        "last": 3,
        "all": [1, 1, 1, 0],
        "values": 4,
        "halves": [20],
        "ones": 5,
    }


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_row_counts_if_the_condition_is_true_and_not_if_it_is_false_or_null(on: On) -> None:
    assert answers(
        on,
        READINGS,
        rows=aggregates.count(where="b"),
        values=aggregates.count("v", where="b"),
        total=aggregates.sum("v", where="b"),
        least=aggregates.min("x", where=POSITIVE),
        last=aggregates.latest("v", where="b"),
        first=aggregates.earliest("x", where=POSITIVE & pl.col("b")),
        top=aggregates.top(2, "v", where="b"),
        best=aggregates.top(1, "v", by="x", where="b"),
        own=Tally("v", where="b"),
        both=Joined("v", "b", where=~pl.col("b")),
        sketch=aggregates.distinct("v", approx=True, where=POSITIVE),
    ) == {
        "rows": 3,
        "values": 2,
        "total": 6,
        "least": 0.5,
        "last": 3,
        "first": 0.5,
        "top": [{"v": 3, "count": 2}],
        "best": [{"v": None, "x": 2.0}],
        "own": 2,
        "both": "[-1, False]",
        "sketch": 2,
    }


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_window_in_which_no_row_counts_answers_as_if_all_values_were_null(on: On) -> None:
    never = V > 100
    assert answers(
        on,
        READINGS,
        rows=aggregates.count(where=never),
        total=aggregates.sum("v", where=never),
        mean=aggregates.mean("v", where=never, distinct=True),
        last=aggregates.latest("v", where=never),
        all=aggregates.collect("v", where=never, distinct=True),
        best=aggregates.top(1, by="v", where=never),
        halves=aggregates.quantiles("v", [0.5], where=never, distinct=True),
        own=Tally("v", where=never),
        both=Joined("v", "b", where=never),
    ) == {
        "rows": 0,
        "total": None,
        "mean": None,
        "last": None,
        "all": [],
        "best": [],
        "halves": None,
        "own": 0,
        "both": "",
    }


@pytest.mark.parametrize("on", ["model", "engine"])
def test_equal_values_count_once(on: On) -> None:
    values = [reading(at, v=v, x=x) for at, v, x in [(1, 3, 0.1), (2, 1, 0.2), (3, 3, 0.1), (4, 1, 0.3)]]
    assert answers(
        on,
        values,
        different=aggregates.count("v", distinct=True),
        total=aggregates.sum("v", distinct=True),
        exact=aggregates.sum("x", distinct=True),
        mean=aggregates.mean("v", distinct=True),
        spread=aggregates.stddev("v", distinct=True),
        all=aggregates.collect("v", distinct=True),
        halves=aggregates.quantiles("v", [0.5], distinct=True),
        parities=aggregates.sum(V % 2, distinct=True),
    ) == {
        "different": 2,
        "total": 4,
        "exact": 0.6,
        "mean": 2.0,
        "spread": pytest.approx(2**0.5),
        "all": [3, 1],
        "halves": [1],
        "parities": 1,
    }


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_value_that_is_taken_back_still_counts_if_another_row_has_it(on: On) -> None:
    """Vehicles per line change; the lines that have two are summed once for each different count."""
    counts = ROWS.group_by("k").count(name="n")
    different = counts.aggregate(
        total=aggregates.sum("n", distinct=True),
        big=aggregates.count(where=pl.col("n") > 1),
        all=aggregates.collect(pl.col("n") * 10, distinct=True),
    )
    script = Script(mr.Job("one", write(different, "analytics.one")), on=on)
    script.events(*(reading(at, k=k) for at, k in [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c")]))
    script.watermark(10)
    script.events(reading(6, k="a"))
    script.watermark(11)
    script.events(reading(7, k="b"))
    script.watermark(12)
    shown = [(pane["total"], pane["big"], sorted(pane["all"])) for pane in script.panes()]
    assert shown == [(3, 2, [10, 20]), (6, 2, [10, 20, 30]), (4, 2, [10, 30])]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_late_rows_have_the_columns_that_they_came_with(on: On) -> None:
    counts = ROWS.group_by("k").aggregate(n=aggregates.count(where=POSITIVE), t=aggregates.sum(V * 2))
    assert counts.late().columns == [*A.schema, *graph.TIME_COLUMNS, "reason", "missed"]
    outputs = [write(counts, "analytics.one"), write(counts.late(), "analytics.late")]
    script = Script(mr.Job("one", *outputs), on=on)
    script.watermark(50)
    script.events(reading(1))
    script.watermark(60)
    [late] = script.panes("analytics.late")
    assert late == {**reading(1), "ingestion_time": late["ingestion_time"], "reason": "late", "missed": 1}


def operator(aggregate: Reduction | None = None, **more: Reduction) -> Operator:
    chosen = {"n": aggregates.count(), **({} if aggregate is None else {"a": aggregate}), **more}
    job = mr.Job("one", write(ROWS.filter("b").group_by("k").aggregate(**chosen), "analytics.one"))
    return Plan.of([job], slots=1).operators[0]


def test_an_expression_is_a_part_of_what_state_depends_on() -> None:
    stored = fingerprints.describe(operator(aggregates.sum(V * 2)))
    assert fingerprints.find_difference(stored, operator(aggregates.sum(V * 2))) is None
    for changed in (aggregates.sum(V * 3), aggregates.sum("v"), aggregates.sum(V * 2, where="b")):
        found = fingerprints.find_difference(stored, operator(changed))
        assert found == "has other aggregates than its state was made with"


def test_so_is_what_the_text_of_an_expression_leaves_out() -> None:
    def among(*numbers: int) -> Reduction:
        return aggregates.count(where=V.is_in(numbers))

    one, other = among(0, 1, *range(2, 50), 99), among(0, 1, *range(52, 100), 99)
    assert str(one) == str(other)
    stored = fingerprints.describe(operator(one))
    assert fingerprints.find_difference(stored, operator(one)) is None
    found = fingerprints.find_difference(stored, operator(other))
    assert found == "has other aggregates than its state was made with"


def test_an_aggregate_of_an_expression_may_be_added_to_stored_state() -> None:
    stored = fingerprints.describe(operator(aggregates.sum(V * 2)))
    wider = operator(aggregates.sum(V * 2), fast=aggregates.count(where=POSITIVE))
    assert fingerprints.find_difference(stored, wider) is None
    assert fingerprints.find_adaptation(stored, wider).added == ("fast",)
    plain = fingerprints.describe(operator())
    assert fingerprints.find_difference(plain, wider) is None


def test_state_of_plain_columns_does_not_depend_on_the_step_that_computes_others() -> None:
    described = fingerprints.describe(operator(aggregates.sum(pl.col("v"))))
    assert described == fingerprints.describe(operator(aggregates.sum("v")))
    assert "arguments" not in fingerprints.describe(operator(aggregates.sum(V * 2)))


def test_explain_shows_the_expressions_and_no_step_for_them() -> None:
    counts = ROWS.group_by("k").aggregate(n=aggregates.count(where=POSITIVE))
    text = explain([mr.Job("one", write(counts, "analytics.one"))])
    assert 'n = count(where=[(col("v")) > (dyn int: 0)]) by k' in text
    assert "   3  write analytics.one" in text


class Named(Tally):
    """It takes its columns by itself."""

    def __init__(self, column: str | pl.Expr, *, step: int, where: str | pl.Expr | None = None) -> None:
        super().__init__(column, where=where)
        self.step = step


def test_the_text_of_an_aggregate_shows_its_expressions() -> None:
    assert str(aggregates.sum(V * 2, where="b", distinct=True)) == (
        'sum([(col("v")) * (dyn int: 2)], distinct=True, where=col("b"))'
    )
    assert str(aggregates.quantiles(V * 2, [0.5])) == 'quantiles([(col("v")) * (dyn int: 2)], [0.5])'
    assert str(aggregates.top(2, "g", by=["v", pl.col("x").abs()], descending=[True, False], ranks=True)) == (
        "top(2, 'g', by=['v', col(\"x\").abs()], descending=[True, False], ranks=True)"
    )
    assert (
        str(Named(V * 2, step=3, where="b")) == 'Named([(col("v")) * (dyn int: 2)], step=3, where=col("b"))'
    )


ANY: Any = ROWS
WRONG: list[tuple[Any, str]] = [
    (lambda: ROWS.sum(V.sum()), r"looks across rows"),
    (lambda: ROWS.count(where=V.mean() < 1), r"looks across rows"),
    (lambda: ROWS.count(where=V), r"where= is Int64, and it must be true or false"),
    (lambda: ANY.count(where=3), r"count\(\): where=3 is not a condition"),
    (lambda: ROWS.count(where=pl.col("nope")), r"no column 'nope'; there are k, g, v, x, b, event_time"),
    (lambda: ROWS.sum(V * pl.col("nope")), r"no column 'nope'; there are k, g, v, x, b, event_time"),
    (
        lambda: ROWS.sum(pl.col("k") * 2),
        r"does not fit the columns k, g, v, x, b, event_time, ingestion_time:",
    ),
    (lambda: ROWS.sum(pl.col("v", "g")), r"is several columns, and one is needed"),
    (lambda: ANY.sum(3), r"sum\(3\): 3 is not a column"),
    (lambda: ROWS.sum("k", where="b"), r"needs numbers, but 'k' is String"),
    (lambda: ROWS.sum(pl.col("k") + "x"), r"needs numbers, but .* is String"),
    (lambda: ROWS.count(distinct=True), r"no column says which; write count\('name', distinct=True\)"),
    (lambda: ROWS.max(pl.col("event_time") - 1), r"cannot be named 'event_time': .* choose another name"),
    (lambda: ROWS.quantiles("v", [0.5], distinct=True, approx=True), r"leave out approx or distinct"),
    (lambda: ROWS.aggregate(j=Joined("v", V * 2)), r"two different values are called 'v'"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_argument_is_refused_in_one_line(call: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert "_argument_" not in str(caught.value)
    assert "_all_rows" not in str(caught.value)


def test_a_condition_on_how_panes_came_about_is_refused() -> None:
    counts = ROWS.group_by("k").count(name="n")
    with pytest.raises(DefinitionError, match="'index' says how a pane came about"):
        counts.aggregate(m=aggregates.count(where=pl.col("index") > 0))


def test_an_aggregate_of_bound_columns_may_be_used_again() -> None:
    counts = ROWS.group_by("k").aggregate(n=aggregates.count(where=POSITIVE))
    assert isinstance(counts.node, graph.Aggregation)
    again: Stream = ROWS.group_by("g").aggregate(**counts.node.aggregates)
    assert again.columns[:2] == ["g", "n"]
