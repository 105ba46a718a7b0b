"""Sketches against exact results: within their error bounds, and exact for few values."""

import importlib.util
import random
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
