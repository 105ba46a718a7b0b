"""Aggregates, equality and order of plain Python values."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, TypeAlias

from millrace import aggregates
from millrace.aggregates import Reduction
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.errors import DefinitionError

Row: TypeAlias = dict[str, Any]


def to_canonical(row: Row, columns: Iterable[str]) -> tuple[Any, ...]:
    """A row in hashable form: not-a-number equals itself, lists are tuples."""
    return tuple((column, to_comparable(row[column])) for column in sorted(columns))


def to_comparable(value: Any) -> Any:
    """A value in hashable form that equals itself."""
    if isinstance(value, list):
        return tuple(map(to_comparable, value))
    if isinstance(value, dict):
        return to_canonical(value, value)
    return "not a number" if isinstance(value, float) and math.isnan(value) else value


def to_sort_key(value: Any) -> tuple[Any, ...]:
    """Nulls first, not-a-number last."""
    if value is None:
        return (0,)
    if isinstance(value, dict | list):
        return (1, [to_sort_key(part) for part in (value.values() if isinstance(value, dict) else value)])
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def compute_aggregate(aggregate: Reduction, rows: Sequence[Row]) -> Any:
    """An aggregate over rows that are in order."""
    if isinstance(aggregate, aggregates.Own):
        return compute_user_aggregate(aggregate.inner, rows)
    if isinstance(aggregate, aggregates.Top):
        return top_rows(aggregate, rows)
    if is_row_count(aggregate):
        return len(rows)
    values = [row[aggregate.label] for row in rows if row[aggregate.label] is not None]
    return compute_of_values(aggregate, values)


def is_row_count(aggregate: Reduction) -> bool:
    """Whether rows are counted, whatever they hold."""
    return aggregate.column is None if aggregate.argument is None else not aggregate.argument.values


def compute_of_values(aggregate: Reduction, values: list[Any]) -> Any:
    """An aggregate of values that are not null, in order."""
    if isinstance(aggregate, aggregates.OfDistinct):
        return compute_of_values(aggregate.inner, distinct_values(values))
    compute = _COMPUTE.get(type(aggregate))
    if compute is None:
        raise DefinitionError(
            f"{aggregate} is not known to the model; add it to millrace.testing.model.values"
        )
    return compute(aggregate, values)


def compute_user_aggregate(aggregate: aggregates.Aggregate, rows: Sequence[Row]) -> Any:
    """A user's aggregate, a value at a time."""
    state = aggregate.begin()
    for row in rows:
        if len(aggregate.columns) > 1:
            state = aggregate.add(state, {column: row[column] for column in aggregate.columns})
        elif row[aggregate.columns[0]] is not None:
            state = aggregate.add(state, row[aggregate.columns[0]])
    return aggregate.result(state)


def top_rows(aggregate: aggregates.Top, rows: Sequence[Row]) -> list[Row]:
    """The first rows in the order of some columns, nulls last in each."""
    by = dict(zip(aggregate.by, aggregate.descending, strict=True))
    columns = list(dict.fromkeys([*aggregate.columns, *by]))
    ranked = [{column: row[column] for column in columns} for row in rows if row[aggregate.by[0]] is not None]
    for column in reversed([*by, *(column for column in aggregate.columns if column not in by)]):
        with_value = [row for row in ranked if row[column] is not None]
        with_value.sort(key=lambda row: to_sort_key(row[column]), reverse=by.get(column, True))
        ranked = with_value + [row for row in ranked if row[column] is None]
    return add_ranks(ranked[: aggregate.k]) if aggregate.ranks else ranked[: aggregate.k]


def add_ranks(rows: list[Row]) -> list[Row]:
    """The rows with their places, from 1."""
    return [{**row, "rank": rank} for rank, row in enumerate(rows, 1)]


def distinct_values(values: list[Any]) -> list[Any]:
    """Each value once, where it comes first."""
    first: dict[Any, Any] = {}
    for value in values:
        first.setdefault(to_comparable(value), value)
    return list(first.values())


def quantile_values(aggregate: aggregates.Quantiles, values: list[Any]) -> list[Any] | None:
    """The smallest value that a share of all does not exceed."""
    ordered = sorted(values, key=to_sort_key)
    positions = [
        max(0, math.ceil(Fraction(round(rank * 10**9), 10**9) * len(ordered)) - 1) for rank in aggregate.ranks
    ]
    return [ordered[place] for place in positions] if ordered else None


def count_most_frequent(aggregate: aggregates.Frequent, values: list[Any]) -> list[Row]:
    """The values that occur most often."""
    counts = Counter(map(to_comparable, values))
    first = {to_comparable(value): value for value in values}
    ranked = sorted(counts, key=lambda value: (-counts[value], to_sort_key(first[value])))
    rows = [{aggregate.label: first[value], "count": counts[value]} for value in ranked[: aggregate.k]]
    return add_ranks(rows) if aggregate.ranks else rows


def sample_deviation(values: list[Any]) -> float | None:
    """The standard deviation of a sample, in fractions."""
    if len(values) < 2:
        return None
    values = [float(value) if isinstance(value, Decimal) else value for value in values]
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = sum(map(Fraction, values), Fraction()) / len(values)
    squares = [(Fraction(value) - mean) * (Fraction(value) - mean) for value in values]
    square = sum(squares, Fraction()) / (len(values) - 1)
    with localcontext(prec=60, Emin=-9999, Emax=9999):
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


def without_nan(values: list[Any]) -> list[Any]:
    """Without what is not a number, unless there is nothing else."""
    return [value for value in values if value == value] or values  # only not-a-number differs from itself


def exact_sum(values: list[Any]) -> Any:
    """The sum; of floats, the exact one rounded once."""
    if isinstance(values[0], Decimal):
        return decimal_sum(values)
    if isinstance(values[0], timedelta):
        return sum(values, timedelta())
    if not any(isinstance(value, float) for value in values):
        return integer_sum(values)
    if all(map(math.isfinite, values)):
        return round_to_float(sum(map(Fraction, values)))
    return sum(value for value in values if not math.isfinite(value))


def integer_sum(values: list[Any]) -> int:
    """The sum of whole numbers; what 64 bits do not hold is an error, as it is for the engine."""
    result = sum(map(int, values))
    if not -(2**63) <= result < 2**63:
        raise OverflowError(f"the sum {result} does not fit 64 bits; cast the column to Float64 first")
    return result


def decimal_sum(values: list[Decimal]) -> Decimal:
    """The sum; what 38 digits do not hold is an error, as it is for the engine."""
    with localcontext(prec=60):
        result = sum(values, Decimal())
    if len(result.as_tuple().digits) > 38:
        raise OverflowError(f"the sum {result} does not fit 38 digits; cast the column to Float64 first")
    return result


def decimal_mean(values: list[Decimal]) -> Decimal:
    """Rounded half to even: to six places, or to as many as the values have."""
    places = max(6, *(-int(value.as_tuple().exponent) for value in values))
    exact = sum(map(Fraction, values), Fraction()) / len(values)
    with localcontext(prec=60):
        return Decimal(round(exact * 10**places)).scaleb(-places)


def round_to_float(exact: Fraction | int) -> float:
    """The nearest float; beyond the greatest, infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def exact_mean(values: list[Any]) -> Any:
    """The sum as a float, divided by the number of values; of decimals and durations one of them."""
    if isinstance(values[0], Decimal):
        return decimal_mean(values)
    if isinstance(values[0], timedelta):
        micros = [value // timedelta(microseconds=1) for value in values]
        return timedelta(microseconds=round(Fraction(sum(micros), len(micros))))
    is_real = any(isinstance(value, float) for value in values)
    return (exact_sum(values) if is_real else round_to_float(sum(map(int, values)))) / len(values)


_COMPUTE: dict[type[Reduction], Callable[[Any, list[Any]], Any]] = {
    aggregates.Count: lambda _, values: len(values),
    aggregates.Distinct: lambda _, values: len(set(map(to_comparable, values))),
    aggregates.Mean: lambda _, values: exact_mean(values) if values else None,
    aggregates.Sum: lambda _, values: exact_sum(values) if values else None,
    aggregates.StdDev: lambda _, values: sample_deviation(values),
    aggregates.Max: lambda _, values: max(without_nan(values), default=None),
    aggregates.Min: lambda _, values: min(without_nan(values), default=None),
    aggregates.Latest: lambda _, values: values[-1] if values else None,
    aggregates.Earliest: lambda _, values: values[0] if values else None,
    aggregates.Collect: lambda aggregate, values: distinct_values(values) if aggregate.distinct else values,
    aggregates.Quantiles: quantile_values,
    aggregates.Frequent: count_most_frequent,
}


def clip_time(time: float) -> int:
    """A watermark as a whole number; before the first one, a time before all others."""
    return int(max(BEFORE_ALL, min(time, END_OF_STREAM)))
