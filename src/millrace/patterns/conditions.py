"""Conditions of a step: polars expressions on the event and on earlier events of the match, or Python
functions.

`first`, `last`, `sum`, `count`, `avg`, `min`, `max` and `previous` refer to earlier events of the match. In
an expression they are columns: `pl.col("amount") > 100 * patterns.first("probe", "amount")`. Such a column
has a name like `first(probe.amount)`.
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
"""A row, as condition functions see it."""

ConditionFunction = Callable[[EventRow, Mapping[str, list[EventRow]]], bool]
"""Whether an event fits, given the events taken so far by each step."""

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
    """`column` of all events taken by a step, in order, as a list.
    For `select` only; conditions cannot use it.
    """
    return _reference("collect", step, column)


def count(step: str) -> pl.Expr:
    """The number of events taken by a step."""
    return pl.col(f"count({_check_name(step)})")


def previous(column: str) -> pl.Expr:
    """`column` of the event that the match took just before; null for its first."""
    return pl.col(f"{PREVIOUS}({_check_name(column)})")


@dataclass(frozen=True)
class EarlierValue:
    """A reference to earlier events in an expression: `first(probe.amount)` has kind, step and column."""

    kind: str
    step: str | None
    column: str | None

    @property
    def name(self) -> str:
        """The name of the column that stands for it."""
        return f"{self.kind}({'.'.join(word for word in (self.step, self.column) if word is not None)})"

    def aggregate(self, values: pl.Expr) -> pl.Expr:
        """Its value, from the values of the events it refers to."""
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
        """The reference that a column name stands for; None for an ordinary column."""
        found = _EARLIER_VALUE.match(name)
        if found is None:
            return None
        kind, step, column = found.groups()
        return cls(kind, None, step) if kind == PREVIOUS else cls(kind, step, column)


def earlier_values(expr: pl.Expr) -> list[EarlierValue]:
    """The references to earlier events in an expression, each once."""
    found = [EarlierValue.parse(name) for name in expr.meta.root_names()]
    return list(dict.fromkeys(one for one in found if one is not None))


@dataclass(frozen=True, eq=False)
class Condition:
    """All of some conditions, or any of some: each an expression, a function, or another condition."""

    terms: tuple[pl.Expr | ConditionFunction | Condition, ...]
    is_any: bool = False

    @classmethod
    def from_user(cls, condition: Any, where: str) -> Condition:
        """A condition as users write it; `where` names the place in the error message."""
        if isinstance(condition, Condition):
            return condition
        if isinstance(condition, bool):
            condition = pl.lit(condition)
        if not isinstance(condition, pl.Expr) and not callable(condition):
            raise DefinitionError(
                f"{where}: {condition!r} is not a condition; give a polars expression such as "
                "pl.col('speed') < 1, or a function of (event, match)"
            )
        return cls((condition,))

    def both(self, other: Condition) -> Condition:
        """Logical AND."""
        return Condition((self, other))

    def either(self, other: Condition) -> Condition:
        """Logical OR."""
        return Condition((self, other), is_any=True)

    def expressions(self) -> Iterator[pl.Expr]:
        """Its expressions, those of nested conditions included."""
        for term in self.terms:
            if isinstance(term, Condition):
                yield from term.expressions()
            elif isinstance(term, pl.Expr):
                yield term

    def earlier_values(self) -> list[EarlierValue]:
        """The references to earlier events in it, each once."""
        return list(dict.fromkeys(one for expr in self.expressions() for one in earlier_values(expr)))

    def __str__(self) -> str:
        """As text; functions by their names."""
        words = [
            str(term) if isinstance(term, Condition | pl.Expr) else getattr(term, "__name__", "function")
            for term in self.terms
        ]
        return words[0] if len(words) == 1 else f"({(' or ' if self.is_any else ' and ').join(words)})"


def _reference(kind: str, step: str, column: str) -> pl.Expr:
    return pl.col(f"{kind}({_check_name(step)}.{_check_name(column)})")


def _check_name(name: str) -> str:
    if not name or any(c in name for c in "()."):
        raise DefinitionError(
            f"{name!r} is not the name of a step or column; names have no brackets and no dots"
        )
    return name


explain_errors_of(globals(), "first", "last", "sum", "avg", "min", "max", "collect", "count", "previous")
