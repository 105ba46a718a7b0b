"""Plain Python values as the model reckons with them: aggregates, equality, order."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from millrace import aggregates
from millrace.aggregates import Aggregate
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
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def value_of(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    """An aggregate over rows that are in order."""
    if aggregate.column is None:
        return len(rows)
    values = [row[aggregate.column] for row in rows if row[aggregate.column] is not None]
    match aggregate:
        case aggregates.Count():
            return len(values)
        case aggregates.Distinct():
            return len(set(map(comparable, values)))
        case aggregates.Mean():
            return total(values) / len(values) if values else None
        case aggregates.Sum():
            return total(values) if values else None
        case aggregates.Max():
            return max(numbers(values), default=None)
        case aggregates.Min():
            return min(numbers(values), default=None)
        case aggregates.Latest():
            return values[-1] if values else None
        case aggregates.Collect():
            return values
        case _:
            raise DefinitionError(f"{aggregate} is not known to the model; add it to millrace.plain_values.value_of")


def numbers(values: list[Any]) -> list[Any]:
    """Without what is not a number, unless there is nothing else."""
    return [value for value in values if value == value] or values  # only not-a-number differs from itself


def total(values: list[Any]) -> Any:
    """The sum; of floats, the exact one rounded once."""
    if not any(isinstance(value, float) for value in values):
        return sum(map(int, values))
    if all(map(math.isfinite, values)):
        return math.fsum(values)
    return sum(value for value in values if not math.isfinite(value))
