"""Aggregates: the result depends on the rows alone, not on how partials are cut and merged."""

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace import aggregates
from millrace.aggregates import Reduction
from millrace.errors import DefinitionError
from millrace.testing.model import values as plain_values
from strategies import examples

numbers = st.one_of(st.none(), st.integers(-(10**6), 10**6))
fractions = st.one_of(
    st.none(), st.integers(-(2**40), 2**40).map(lambda n: n / 1024), st.sampled_from([1e18, -1e18, 0.0])
)
ALL: list[Any] = [
    *(aggregates.count, aggregates.sum, aggregates.mean, aggregates.min, aggregates.max),
    *(aggregates.latest, aggregates.distinct, aggregates.collect, aggregates.earliest, aggregates.stddev),
]


def answer(aggregate: Reduction, values: list[Any], cut: int, dtype: Any) -> Any:
    """The result of two partials, merged with the later one first."""
    rows = pl.DataFrame({"v": pl.Series(values, dtype=dtype), "_g": 0})
    rows = rows.with_columns(
        _t=pl.int_range(pl.len(), dtype=pl.Int64),
        _src=pl.lit(0, pl.Int64),
        _off=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    parts = [
        part.group_by("_g").agg(*aggregate.partials("a", dtype))
        for part in (rows[cut:], rows[:cut])
        if part.height
    ]
    return (
        pl.concat(parts)
        .group_by("_g")
        .agg(*aggregate.merge("a", dtype))
        .select(aggregate.result("a", dtype))["a"]
        .to_list()[0]
    )


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
@given(st.lists(numbers, min_size=1, max_size=8), st.integers(0, 8))
@examples(25)
def test_aggregates_of_whole_numbers_equal_a_plain_computation(
    make: Any, values: list[Any], cut: int
) -> None:
    aggregate = make("v")
    assert answer(aggregate, values, cut, pl.Int64()) == plain_values.compute_aggregate(
        aggregate, [{"v": value} for value in values]
    )


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
@given(st.lists(fractions, min_size=1, max_size=8), st.integers(0, 8))
@examples(25)
def test_aggregates_of_fractions_equal_a_plain_computation(make: Any, values: list[Any], cut: int) -> None:
    aggregate = make("v")
    got = answer(aggregate, values, cut, pl.Float64())
    expected = plain_values.compute_aggregate(aggregate, [{"v": value} for value in values])
    assert got == (pytest.approx(expected, rel=1e-15, abs=1e-15) if isinstance(expected, float) else expected)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.randoms())
@examples(50)
def test_sums_of_fractions_do_not_depend_on_the_order(values: list[float], random: Any) -> None:
    shuffled = random.sample(values, len(values))
    total = answer(aggregates.sum("v"), values, 3, pl.Float64())
    assert total == answer(aggregates.sum("v"), shuffled, 7, pl.Float64())
    assert total == math.fsum(values)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300, math.nan])
def test_infinities_and_nan_stay_in_a_sum(value: float) -> None:
    total = answer(aggregates.sum("v"), [value, 1.0], 1, pl.Float64())
    assert total == value or math.isnan(total) is math.isnan(value) is True


def test_text_has_a_least_a_greatest_and_a_latest() -> None:
    words = ["é", "a", None, "b"]
    assert answer(aggregates.min("v"), words, 2, pl.String()) == "a"
    assert answer(aggregates.max("v"), words, 2, pl.String()) == "é"
    assert answer(aggregates.latest("v"), words, 2, pl.String()) == "b"
    assert answer(aggregates.collect("v"), words, 2, pl.String()) == ["é", "a", "b"]


def test_count_without_a_column_counts_nulls_too() -> None:
    assert answer(aggregates.count(), [None, 1], 1, pl.Int64()) == 2
    assert answer(aggregates.count("v"), [None, 1], 1, pl.Int64()) == 1


@pytest.mark.parametrize("make", [aggregates.sum, aggregates.mean, aggregates.stddev])
def test_text_has_no_sum(make: Any) -> None:
    with pytest.raises(DefinitionError, match="needs numbers, but 'v' is String"):
        make("v").check(pl.Schema({"v": pl.String()}))


@pytest.mark.parametrize("make", ALL[1:], ids=lambda make: make.__name__)
def test_an_aggregate_needs_a_column(make: Any) -> None:
    with pytest.raises(DefinitionError, match="needs the name of a column"):
        make(None).partials("a", pl.Int64())


def test_the_text_of_an_aggregate_is_its_call() -> None:
    assert str(aggregates.count()) == "count()"
    assert str(aggregates.latest("cell")) == "latest('cell')"


def test_a_deviation_is_right_far_from_zero_and_in_any_order() -> None:
    now = 1_700_000_000_000
    values = [now + n for n in (3, 1, 4, 1, 5)]
    expected = plain_values.sample_deviation([3, 1, 4, 1, 5])
    assert answer(aggregates.stddev("v"), values, 2, pl.Int64()) == expected
    assert answer(aggregates.stddev("v"), [float(value) for value in values], 4, pl.Float64()) == expected
    assert answer(aggregates.stddev("v"), [2.0**60, 2.0**60, 0.0], 1, pl.Float64()) == pytest.approx(
        2.0**60 / math.sqrt(3)
    )
    assert answer(aggregates.stddev("v"), [1], 0, pl.Int64()) is None
    assert math.isnan(answer(aggregates.stddev("v"), [math.inf, 1.0], 1, pl.Float64()))


@given(
    st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=12),
    st.lists(st.sampled_from([0.0, 0.07, 0.5, 0.9, 1.0]), min_size=1),
)
@examples(50)
def test_quantiles_and_top_equal_a_plain_computation(values: list[Any], ranks: list[float]) -> None:
    rows = [{"v": value} for value in values or [None]]
    given_values = [row["v"] for row in rows]
    for aggregate in (aggregates.quantiles("v", ranks), aggregates.top(3, "v"), aggregates.top(3, by="v")):
        assert answer(
            aggregate, given_values, len(values) // 2, pl.Int64()
        ) == plain_values.compute_aggregate(aggregate, rows)


def test_the_index_of_a_rank_is_exact() -> None:
    assert answer(aggregates.quantiles("v", [0.07]), list(range(1, 101)), 50, pl.Int64()) == [7]


def test_values_without_an_order_are_not_ranked() -> None:
    with pytest.raises(DefinitionError, match="between 0 and 1"):
        aggregates.quantiles("v", [0.5, 99])
    with pytest.raises(DefinitionError, match="at least 1"):
        aggregates.top(0, "v")
    with pytest.raises(DefinitionError, match="name one column"):
        aggregates.top(3)
    with pytest.raises(DefinitionError, match="no more than k rows are kept"):
        aggregates.top(3, "v", by="v", approx=True)
    with pytest.raises(DefinitionError, match="rename yours"):
        aggregates.top(3, "count")
    with pytest.raises(DefinitionError, match="have an order"):
        aggregates.top(3, "v").check(pl.Schema({"v": pl.List(pl.Int64)}))


def test_infinite_values_can_be_retracted() -> None:
    values = pl.DataFrame({"g": 0, "v": [math.inf, -math.inf, math.nan, 1e300, 2.5, 4.5]})
    gone = values.head(4)
    for aggregate, expected in (
        (aggregates.sum("v"), 7.0),
        (aggregates.mean("v"), 3.5),
        (aggregates.stddev("v"), math.sqrt(2)),
    ):
        parts = [
            values.group_by("g").agg(*aggregate.partials("a", pl.Float64())),
            gone.group_by("g").agg(*aggregate.retract("a", pl.Float64())),
        ]
        left = pl.concat(parts).group_by("g").agg(*aggregate.merge("a", pl.Float64()))
        assert left.select(aggregate.result("a", pl.Float64()))["a"].to_list() == [pytest.approx(expected)]


any_float = st.floats(allow_nan=False, allow_infinity=False)
near_zero = st.floats(-1e-9, 1e-9)
far_out = st.integers(0, 2**20).map(lambda n: 2.0**52 + n)
powers = st.tuples(st.sampled_from([-1, 1, 3]), st.integers(-120, 64)).map(lambda part: math.ldexp(*part))
any_whole = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(st.one_of(any_float, near_zero, far_out, powers), min_size=1, max_size=12), st.integers(0, 12)
)
@example(
    [9007199250546689.0, 4194303.9999999995], 0
)  # half a unit below a half: only the floor, not the nearest unit, rounds to odd
@examples(200)
def test_a_sum_of_floats_is_the_exact_one_rounded_once(values: list[float], cut: int) -> None:
    assert answer(aggregates.sum("v"), values, cut, pl.Float64()) == plain_values.round_to_float(
        sum(map(Fraction, values))
    )


@pytest.mark.parametrize(
    "values",
    [[3e-17], [1e-9, 1e-16, 3e-10], [0.1] * 10, [1e16, 1.0, -1e16], [5e-324, 5e-324], [1e308, 1e308, -1e308]],
)
def test_small_and_large_floats_keep_their_digits(values: list[float]) -> None:
    assert answer(aggregates.sum("v"), values, 1, pl.Float64()) == plain_values.round_to_float(
        sum(map(Fraction, values))
    )


@given(st.lists(st.one_of(any_float, near_zero, far_out), min_size=2, max_size=8), st.integers(0, 8))
@examples(100)
def test_a_deviation_of_floats_is_exact(values: list[float], cut: int) -> None:
    assert answer(aggregates.stddev("v"), values, cut, pl.Float64()) == pytest.approx(
        plain_values.sample_deviation(values), rel=1e-15, abs=0
    )


@given(st.lists(any_whole, min_size=1, max_size=8), st.integers(0, 8))
@examples(100)
def test_whole_numbers_of_64_bits_have_exact_means_and_deviations(values: list[int], cut: int) -> None:
    assert answer(aggregates.mean("v"), values, cut, pl.Int64()) == float(sum(values)) / len(values)
    expected = plain_values.sample_deviation(values)
    got = answer(aggregates.stddev("v"), values, cut, pl.Int64())
    assert got == (None if expected is None else pytest.approx(expected, rel=1e-15, abs=0))


def test_a_whole_sum_beyond_64_bits_is_an_error_and_not_a_negative_number() -> None:
    with pytest.raises(pl.exceptions.InvalidOperationError, match="conversion from `i128` to `i64` failed"):
        answer(aggregates.sum("v"), [2**63 - 1, 1], 1, pl.Int64())
    with pytest.raises(OverflowError, match="does not fit 64 bits"):
        plain_values.compute_aggregate(aggregates.sum("v"), [{"v": 2**63 - 1}, {"v": 1}])
    assert answer(aggregates.sum("v"), [2**63 - 1, 1, -5], 2, pl.Int64()) == 2**63 - 5


@given(st.lists(st.one_of(any_float, near_zero), min_size=3, max_size=8))
@example([1.7e308, -1.7e308, 1.0])  # a deviation that no float holds
@examples(50)
def test_a_retracted_value_leaves_no_trace(values: list[float]) -> None:
    rows, gone = pl.DataFrame({"g": 0, "v": values}), pl.DataFrame({"g": 0, "v": values[2:]})
    for aggregate in (aggregates.sum("v"), aggregates.stddev("v")):
        parts = [
            rows.group_by("g").agg(*aggregate.partials("a", pl.Float64())),
            gone.group_by("g").agg(*aggregate.retract("a", pl.Float64())),
        ]
        left = (
            pl.concat(parts)
            .group_by("g")
            .agg(*aggregate.merge("a", pl.Float64()))
            .select(aggregate.result("a", pl.Float64()))["a"]
            .to_list()
        )
        assert left == [
            pytest.approx(
                plain_values.compute_aggregate(aggregate, [{"v": value} for value in values[:2]]),
                rel=1e-15,
                abs=0,
            )
        ]


prices = st.one_of(st.none(), st.decimals(-(10**6), 10**6, places=2))


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
@given(st.lists(prices, min_size=1, max_size=8), st.integers(0, 8))
@examples(25)
def test_aggregates_of_decimals_equal_a_plain_computation(make: Any, values: list[Any], cut: int) -> None:
    aggregate = make("v")
    got = answer(aggregate, values, cut, pl.Decimal(10, 2))
    expected = plain_values.compute_aggregate(aggregate, [{"v": value} for value in values])
    assert got == (pytest.approx(expected, rel=1e-15, abs=1e-15) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("make", [aggregates.sum, aggregates.mean])
@given(st.lists(st.timedeltas(timedelta(-999), timedelta(999)), min_size=1, max_size=8), st.integers(0, 8))
@examples(25)
def test_aggregates_of_durations_equal_a_plain_computation(make: Any, values: list[Any], cut: int) -> None:
    expected = plain_values.compute_aggregate(make("v"), [{"v": value} for value in values])
    assert answer(make("v"), values, cut, pl.Duration("us")) == expected


LARGEST, LEAST = Decimal("9" * 38), Decimal("-" + "9" * 38)


def test_sums_of_decimals_are_exact_to_38_digits_and_an_error_beyond() -> None:
    dtype = pl.Decimal(38, 0)
    assert answer(aggregates.sum("v"), [LARGEST, LEAST, LARGEST], 1, dtype) == LARGEST
    assert answer(aggregates.sum("v"), [LEAST], 0, dtype) == LEAST
    for aggregate in (aggregates.sum("v"), aggregates.mean("v")):
        with pytest.raises(pl.exceptions.InvalidOperationError, match="conversion from"):
            answer(aggregate, [LARGEST, LARGEST], 1, dtype)


@pytest.mark.parametrize(
    ("values", "mean"),
    [(["0.000001", "0"], "0.000000"), (["0.000003", "0"], "0.000002"), (["-1", "2", "0"], "0.333333")],
)
def test_means_of_decimals_are_rounded_half_to_even(values: list[str], mean: str) -> None:
    found = answer(aggregates.mean("v"), [Decimal(value) for value in values], 1, pl.Decimal(10, 6))
    assert str(found) in (mean, f"{Decimal(mean):f}")


def test_retracted_decimals_leave_nothing_behind() -> None:
    aggregate, dtype = aggregates.sum("v"), pl.Decimal(10, 2)
    rows = pl.DataFrame({"v": pl.Series([Decimal("1.50"), Decimal("-7.25")], dtype=dtype), "_g": 0})
    parts = [rows.group_by("_g").agg(*make("a", dtype)) for make in (aggregate.partials, aggregate.retract)]
    merged = pl.concat(parts).group_by("_g").agg(*aggregate.merge("a", dtype))
    assert merged.select(aggregate.result("a", dtype)).item() is None
