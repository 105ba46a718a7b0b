"""Sketches against exact results: within their error bounds, and exact for few values."""

import importlib.util
import random
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from millrace import aggregates
from millrace.aggregates import Own, Reduction
from millrace.errors import ComponentMissing, DefinitionError


def answer(aggregate: Reduction, values: pl.Series, parts: int) -> Any:
    """The result of several partials, merged in pairs in another order."""
    rows = pl.DataFrame({"v": values, "_part": np.arange(len(values)) % parts, "_g": 0})
    states = rows.group_by("_part").agg(*aggregate.partials("a", values.dtype)).sort("_part", descending=True)
    while states.height > 1:
        paired = states.with_columns(_part=pl.int_range(pl.len()) // 2)
        states = paired.group_by("_part", maintain_order=True).agg(*aggregate.merge("a", values.dtype))
    return states.select(aggregate.result("a", values.dtype))["a"].to_list()[0]


@pytest.mark.parametrize("count", [10, 1_000, 30_000])
@pytest.mark.parametrize("parts", [1, 7])
def test_a_distinct_count_is_within_three_standard_errors(count: int, parts: int) -> None:
    values = pl.Series([f"vehicle/{n % count}" for n in range(2 * count)])
    estimate = answer(aggregates.distinct("v", approx=True), values, parts)
    assert abs(estimate - count) <= (0 if count <= 100 else 3 * 0.0163 * count)


@pytest.mark.parametrize("count", [3, 150, 383, 384, 385, 500, 5_000])
def test_a_distinct_count_depends_on_the_values_alone(count: int) -> None:
    values = [n * 0.25 for n in range(count)]
    shuffled = random.Random(count).sample(values, count)
    ways = {
        answer(aggregates.distinct("v", approx=True), pl.Series(order), parts)
        for order in (values, shuffled)
        for parts in (1, 2, 9)
    }
    assert len(ways) == 1


@pytest.mark.parametrize("parts", [1, 20])
def test_the_rank_of_a_quantile_is_within_the_bound(parts: int) -> None:
    dice = np.random.default_rng(7)
    values = pl.Series(dice.lognormal(3, 1, 50_000))
    ranks = [0.01, 0.1, 0.5, 0.9, 0.99]
    found = answer(aggregates.quantiles("v", ranks, approx=True), values, parts)
    true = [(values <= value).mean() for value in found]
    assert true == pytest.approx(ranks, abs=0.0265), (
        "twice the bound of 99 in 100, as the library throws dice"
    )


def test_few_values_have_exact_quantiles_of_their_own_type() -> None:
    values = pl.Series(random.Random(1).sample(range(1_000), 150))
    ranks = [0.0, 0.25, 0.5, 1.0]
    assert answer(aggregates.quantiles("v", ranks, approx=True), values, 1) == answer(
        aggregates.quantiles("v", ranks), values, 3
    )


@pytest.mark.parametrize("parts", [1, 7])
def test_frequent_values_are_found_and_their_counts_within_the_bound(parts: int) -> None:
    dice = np.random.default_rng(3)
    values = pl.Series(dice.zipf(1.3, 40_000) % 20_000)
    found = answer(aggregates.top(5, "v", approx=True), values, parts)
    exact = answer(aggregates.top(5, "v"), values, parts)
    assert [row["v"] for row in found] == [row["v"] for row in exact]
    assert [row["count"] for row in found] == pytest.approx(
        [row["count"] for row in exact], abs=0.0035 * len(values)
    )


@pytest.mark.parametrize(
    "values", [["b", "a", "b", "c"], [1, 2, 2, -1], [0.5, -0.25, 0.5], [True, False, True]], ids=str
)
def test_few_distinct_values_of_any_type_are_counted_exactly(values: list[Any]) -> None:
    series = pl.Series(values)
    assert answer(aggregates.top(2, "v", approx=True), series, 2) == answer(aggregates.top(2, "v"), series, 2)


KINDS: dict[str, Reduction] = {
    "distinct": aggregates.distinct("v", approx=True),
    "quantiles": aggregates.quantiles("v", [0.0, 0.5, 1.0], approx=True),
    "top": aggregates.top(2, "v", approx=True),
}
LISTS: list[tuple[pl.DataType, list[list[Any]]]] = [
    (pl.Int64(), [[3, 1, None, 3], [None, None], [2**40, -1, 2**40], [7]]),
    (pl.UInt8(), [[3, 1, None, 3], [None], [255]]),
    (pl.Float64(), [[0.5, -0.0, 0.0], [None], [1e300, 0.25, None]]),
    (pl.Boolean(), [[True, None, True], [False]]),
    (pl.String(), [["ä", "b", "ä", None], [""], [None]]),
    (pl.Enum(["a", "b"]), [["b", "a", "b"], [None]]),
    (pl.Date(), [[date(2026, 1, 2), None], [date(1969, 1, 2), date(2026, 1, 2)]]),
    (pl.Decimal(9, 2), [[Decimal("1.50"), Decimal("1.50"), None], [Decimal("-2.25")]]),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "lists"), LISTS, ids=str)
def test_groups_of_one_batch_have_the_answers_that_each_has_by_itself(
    kind: str, dtype: pl.DataType, lists: list[list[Any]]
) -> None:
    aggregate = KINDS[kind]
    try:
        aggregate.check(pl.Schema({"v": dtype}))
    except DefinitionError:
        return
    rows = pl.DataFrame({"g": range(len(lists)), "v": pl.Series(lists, dtype=pl.List(dtype))})
    states = rows.explode("v").group_by("g", maintain_order=True).agg(*aggregate.partials("a", dtype))
    merged = states.group_by("g", maintain_order=True).agg(*aggregate.merge("a", dtype))
    together = merged.select(aggregate.result("a", dtype))["a"].to_list()
    assert together == [answer(aggregate, pl.Series(values, dtype=dtype), 1) for values in lists]
    exact = {"distinct": aggregates.distinct("v"), "top": aggregates.top(2, "v")}
    exact["quantiles"] = aggregates.quantiles("v", [0.0, 0.5, 1.0])
    assert together == [answer(exact[kind], pl.Series(values, dtype=dtype), 1) for values in lists]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_from_before_the_aggregate_was_added_is_left_out_of_a_merge(kind: str) -> None:
    aggregate, rows = KINDS[kind], pl.DataFrame({"g": [1, 1, 2], "v": [5, 6, 7]})
    states = rows.group_by("g").agg(*aggregate.partials("a", pl.Int64()))
    older = states.with_columns(pl.lit(None, pl.Binary).alias("a.v")).with_columns(pl.col("g") + 1)
    merged = pl.concat([states, older]).group_by("g").agg(*aggregate.merge("a", pl.Int64())).sort("g")
    plain = states.select("g", aggregate.result("a", pl.Int64())).sort("g")["a"].to_list()
    assert merged.select(aggregate.result("a", pl.Int64()))["a"].to_list() == [*plain, None]


@pytest.mark.parametrize("aggregate", ["distinct", "quantiles", "top"])
def test_columns_that_a_sketch_cannot_take_are_refused(aggregate: str) -> None:
    makers: dict[str, Reduction] = {
        "distinct": aggregates.distinct("v", approx=True),
        "quantiles": aggregates.quantiles("v", [0.5], approx=True),
        "top": aggregates.top(1, "v", approx=True),
    }
    with pytest.raises(DefinitionError, match="'v'"):
        makers[aggregate].check(pl.Schema({"v": pl.List(pl.Int64)}))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ComponentMissing, match=r"pip install 'millrace-streams\[sketches\]'"):
        aggregates.distinct("v", approx=True)


def test_only_the_distinct_count_is_reproducible() -> None:
    assert aggregates.distinct("v", approx=True).reproducible
    assert not aggregates.quantiles("v", [0.5], approx=True).reproducible
    assert isinstance(aggregates.top(1, "v", approx=True), Own)
    assert not aggregates.top(1, "v", approx=True).reproducible
