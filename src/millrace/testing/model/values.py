"""Plain Python values as the model reckons with them: aggregates, equality, order."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, TypeAlias

from millrace import aggregates
from millrace.aggregates import Reduction
from millrace.errors import DefinitionError

Row: TypeAlias = dict[str, Any]


def canonical(row: Row, columns: Iterable[str]) -> tuple[Any, ...]:
    """A row as something that can be compared and counted: not-a-number equals itself, lists are tuples."""
    return tuple((column, comparable(row[column])) for column in sorted(columns))


def comparable(value: Any) -> Any:
    """A value that equals itself and can be put into a set."""
    if isinstance(value, list):
        return tuple(map(comparable, value))
    if isinstance(value, dict):
        return canonical(value, value)
    return "not a number" if isinstance(value, float) and math.isnan(value) else value


def sortable(value: Any) -> tuple[Any, ...]:
    """Nulls first, not-a-number last."""
    if value is None:
        return (0,)
    if isinstance(value, dict | list):
        return (1, [sortable(part) for part in (value.values() if isinstance(value, dict) else value)])
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def value_of(aggregate: Reduction, rows: Sequence[Row]) -> Any:
    """An aggregate over rows that are in order."""
    if isinstance(aggregate, aggregates.Own):
        return own_value(aggregate.inner, rows)
    if isinstance(aggregate, aggregates.Top):
        return best(aggregate, rows)
    if aggregate.column is None:
        return len(rows)
    values = [row[aggregate.column] for row in rows if row[aggregate.column] is not None]
    compute = _PLAIN.get(type(aggregate))
    if compute is None:
        raise DefinitionError(
            f"{aggregate} is not known to the model; add it to millrace.testing.model.values"
        )
    return compute(aggregate, values)


def own_value(aggregate: aggregates.Aggregate, rows: Sequence[Row]) -> Any:
    """A user's aggregate, a value at a time."""
    state = aggregate.begin()
    for row in rows:
        if len(aggregate.columns) > 1:
            state = aggregate.add(state, {column: row[column] for column in aggregate.columns})
        elif row[aggregate.columns[0]] is not None:
            state = aggregate.add(state, row[aggregate.columns[0]])
    return aggregate.result(state)


def best(aggregate: aggregates.Top, rows: Sequence[Row]) -> list[Row]:
    """The rows with the greatest value of a column."""
    shown = [
        {column: row[column] for column in aggregate.needs()} for row in rows if row[aggregate.by] is not None
    ]
    order = [aggregate.by, *(column for column in aggregate.columns if column != aggregate.by)]
    return sorted(shown, key=lambda row: [sortable(row[column]) for column in order], reverse=True)[
        : aggregate.k
    ]


def at_ranks(aggregate: aggregates.Quantiles, values: list[Any]) -> list[Any] | None:
    """The smallest value that a share of all does not exceed."""
    ordered = sorted(values, key=sortable)
    places = [
        max(0, math.ceil(Fraction(round(rank * 10**9), 10**9) * len(ordered)) - 1) for rank in aggregate.ranks
    ]
    return [ordered[place] for place in places] if ordered else None


def most_frequent(aggregate: aggregates.Frequent, values: list[Any]) -> list[Row]:
    """The values that occur most often."""
    counts = Counter(map(comparable, values))
    first = {comparable(value): value for value in values}
    ranked = sorted(counts, key=lambda value: (-counts[value], sortable(first[value])))
    return [{aggregate.given: first[value], "count": counts[value]} for value in ranked[: aggregate.k]]


def deviation(values: list[Any]) -> float | None:
    """The standard deviation of a sample, in fractions."""
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = sum(map(Fraction, values), Fraction()) / len(values)
    squares = [(Fraction(value) - mean) * (Fraction(value) - mean) for value in values]
    square = sum(squares, Fraction()) / (len(values) - 1)
    with localcontext(prec=60, Emin=-9999, Emax=9999):
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


def numbers(values: list[Any]) -> list[Any]:
    """Without what is not a number, unless there is nothing else."""
    return [value for value in values if value == value] or values  # only not-a-number differs from itself


def total(values: list[Any]) -> Any:
    """The sum; of floats, the exact one rounded once."""
    if not any(isinstance(value, float) for value in values):
        return whole_total(values)
    if all(map(math.isfinite, values)):
        return rounded(sum(map(Fraction, values)))
    return sum(value for value in values if not math.isfinite(value))


def whole_total(values: list[Any]) -> int:
    """The sum of whole numbers; what 64 bits do not hold is an error, as it is for the engine."""
    found = sum(map(int, values))
    if not -(2**63) <= found < 2**63:
        raise OverflowError(f"the sum {found} does not fit 64 bits; cast the column to Float64 first")
    return found


def rounded(exact: Fraction | int) -> float:
    """The nearest float; beyond the greatest, infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def mean(values: list[Any]) -> float:
    """The sum as a float, divided by the number of values."""
    is_real = any(isinstance(value, float) for value in values)
    return (total(values) if is_real else rounded(sum(map(int, values)))) / len(values)


_PLAIN: dict[type[Reduction], Callable[[Any, list[Any]], Any]] = {
    aggregates.Count: lambda _, values: len(values),
    aggregates.Distinct: lambda _, values: len(set(map(comparable, values))),
    aggregates.Mean: lambda _, values: mean(values) if values else None,
    aggregates.Sum: lambda _, values: total(values) if values else None,
    aggregates.StdDev: lambda _, values: deviation(values),
    aggregates.Max: lambda _, values: max(numbers(values), default=None),
    aggregates.Min: lambda _, values: min(numbers(values), default=None),
    aggregates.Latest: lambda _, values: values[-1] if values else None,
    aggregates.Earliest: lambda _, values: values[0] if values else None,
    aggregates.Collect: lambda _, values: values,
    aggregates.Quantiles: at_ranks,
    aggregates.Frequent: most_frequent,
}
