"""Conditions of a step: polars expressions on the event and on earlier events of the match, or Python functions.

What earlier events said is asked for by `first`, `last`, `sum`, `count`, `avg`, `min`, `max` and `previous`, which stand in an
expression like columns: `pl.col("amount") > 100 * patterns.first("probe", "amount")`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of

EventRow = dict[str, Any]
"""A row, as Python functions see it."""

ConditionFunction = Callable[[EventRow, Mapping[str, list[EventRow]]], bool]
"""The event, and the events taken so far by step: does the event fit?"""

PREVIOUS = "previous"
_EARLIER_VALUE = re.compile(
    r"^(first|last|sum|count|avg|min|max|collect|previous)\((?:([^().]+)(?:\.([^()]+))?)\)$"
)


def first(step: str, column: str) -> pl.Expr:
    """`column` of the first event taken by a step; null before there is one."""
    return _reference("first", step, column)


def last(step: str, column: str) -> pl.Expr:
    """`column` of the newest event taken by a step; null before there is one."""
    return _reference("last", step, column)


def sum(step: str, column: str) -> pl.Expr:
    """The sum of `column` over the events taken by a step; 0 before there is one."""
    return _reference("sum", step, column)


def avg(step: str, column: str) -> pl.Expr:
    """The mean of `column` over the events taken by a step; null before there is one."""
    return _reference("avg", step, column)


def min(step: str, column: str) -> pl.Expr:
    """The least `column` among the events taken by a step; null before there is one."""
    return _reference("min", step, column)


def max(step: str, column: str) -> pl.Expr:
    """The greatest `column` among the events taken by a step; null before there is one."""
    return _reference("max", step, column)


def collect(step: str, column: str) -> pl.Expr:
    """All values of `column` of the events taken by a step, in order, as a list. It can be shown of a match; conditions cannot ask for it."""
    return _reference("collect", step, column)


def count(step: str) -> pl.Expr:
    """How many events a step has taken."""
    return pl.col(f"count({_check_name(step)})")


def previous(column: str) -> pl.Expr:
    """`column` of the event that the match took just before; null for its first."""
    return pl.col(f"{PREVIOUS}({_check_name(column)})")


@dataclass(frozen=True)
class EarlierValue:
    """What an expression asks about earlier events."""

    kind: str
    step: str | None
    column: str | None

    @property
    def name(self) -> str:
        """The column that stands for it."""
        return f"{self.kind}({'.'.join(word for word in (self.step, self.column) if word is not None)})"

    def aggregate(self, values: pl.Expr) -> pl.Expr:
        """The answer, over the values of the events that are asked about."""
        answers: dict[str, Callable[[], pl.Expr]] = {
            "first": values.first,
            "last": values.last,
            "previous": values.last,
            "sum": values.sum,
            "avg": values.mean,
            "min": values.min,
            "max": values.max,
            "count": lambda: values.len().cast(pl.Int64),
            "collect": lambda: values,
        }
        return answers[self.kind]().alias(self.name)

    @classmethod
    def parse(cls, name: str) -> EarlierValue | None:
        """What a column's name asks, if it asks anything."""
        found = _EARLIER_VALUE.match(name)
        if found is None:
            return None
        kind, step, column = found.groups()
        return cls(kind, None, step) if kind == PREVIOUS else cls(kind, step, column)


def earlier_values(expr: pl.Expr) -> list[EarlierValue]:
    """Everything that an expression asks about earlier events, each once."""
    found = [EarlierValue.parse(name) for name in expr.meta.root_names()]
    return list(dict.fromkeys(one for one in found if one is not None))


@dataclass(frozen=True, eq=False)
class Condition:
    """All of some conditions, or any of some: each an expression, a function, or another condition."""

    terms: tuple[pl.Expr | ConditionFunction | Condition, ...]
    is_any: bool = False

    @classmethod
    def from_user(cls, condition: Any, where: str) -> Condition:
        """What a user gives as a condition."""
        if isinstance(condition, Condition):
            return condition
        if isinstance(condition, bool):
            condition = pl.lit(condition)
        if not isinstance(condition, pl.Expr) and not callable(condition):
            raise DefinitionError(
                f"{where}: {condition!r} is not a condition; give a polars expression such as pl.col('speed') < 1, or a function of (event, match)"
            )
        return cls((condition,))

    def both(self, other: Condition) -> Condition:
        """Holds where both hold."""
        return Condition((self, other))

    def either(self, other: Condition) -> Condition:
        """Holds where one of both holds."""
        return Condition((self, other), is_any=True)

    def expressions(self) -> Iterator[pl.Expr]:
        """Its expressions, also those of conditions in it."""
        for term in self.terms:
            if isinstance(term, Condition):
                yield from term.expressions()
            elif isinstance(term, pl.Expr):
                yield term

    def earlier_values(self) -> list[EarlierValue]:
        """What it asks about earlier events."""
        return list(dict.fromkeys(one for expr in self.expressions() for one in earlier_values(expr)))

    def __str__(self) -> str:
        """As short text."""
        words = [
            str(term) if isinstance(term, Condition | pl.Expr) else getattr(term, "__name__", "function")
            for term in self.terms
        ]
        return words[0] if len(words) == 1 else f"({(' or ' if self.is_any else ' and ').join(words)})"


def _reference(kind: str, step: str, column: str) -> pl.Expr:
    return pl.col(f"{kind}({_check_name(step)}.{_check_name(column)})")


def _check_name(name: str) -> str:
    if not name or any(c in name for c in "()."):
        raise DefinitionError(f"{name!r} names no step or column here; names have no brackets and no dots")
    return name


explain_errors_of(globals(), "first", "last", "sum", "avg", "min", "max", "collect", "count", "previous")
