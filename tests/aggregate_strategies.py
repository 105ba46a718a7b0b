"""Random aggregates for property tests: of columns and expressions, of some rows, of distinct values."""

import math
from fractions import Fraction
from typing import Any

import polars as pl
from hypothesis import strategies as st

from millrace import aggregates
from millrace.aggregates import Aggregate, Reduction


class Tally(Aggregate):
    """How many values there are, counted by hand: it can take them back."""

    returns = pl.Int64()

    def create(self) -> Any:
        return 0

    def add(self, state: Any, value: Any) -> Any:
        return state + 1

    def retract(self, state: Any, value: Any) -> Any:
        return state - 1

    def merge(self, one: Any, other: Any) -> Any:
        return one + other

    def result(self, state: Any) -> Any:
        return state


class Joined(Aggregate):
    """The different values of two columns as a text: it reads whole rows, and cannot take them back."""

    returns = pl.String()

    def create(self) -> Any:
        return set()

    def add(self, state: Any, value: Any) -> Any:
        return state | {
            repr(
                [f"{v + 0.0}" if isinstance(v, float) else v for v in value.values()]
                if isinstance(value, dict)
                else value
            )
        }

    def merge(self, one: Any, other: Any) -> Any:
        return one | other

    def result(self, state: Any) -> Any:
        return " ".join(sorted(state))


class Middle(Aggregate):
    """The mean of the finite values, added by columns."""

    returns = pl.Float64()

    def create(self) -> Any:
        return (Fraction(0), 0)

    def add(self, state: Any, value: Any) -> Any:
        return (state[0] + Fraction(value), state[1] + 1) if math.isfinite(value) else state

    def add_all(self, state: Any, values: Any) -> Any:
        finite = values.filter(values.is_finite()) if values.dtype.is_float() else values
        return state[0] + sum(map(Fraction, finite)), state[1] + len(finite)

    def merge(self, one: Any, other: Any) -> Any:
        return one[0] + other[0], one[1] + other[1]

    def result(self, state: Any) -> Any:
        return float(state[0] / state[1]) if state[1] else None


@st.composite
def value_of(draw: st.DrawFn, kinds: dict[str, str]) -> tuple[str | pl.Expr, str]:
    """A column, or an expression that may be null where the column is not, and its kind."""
    column = draw(st.sampled_from(sorted(c for c, kind in kinds.items() if kind != "list")))
    kind, value = kinds[column], pl.col(column)
    if draw(st.integers(0, 2)):
        return column, kind
    made = {
        "text": value.str.to_uppercase(),
        "int": pl.when(value != 2).then(value * 2),
        "float": value * 2,
        "bool": ~value,
        "rough": -value,
    }
    return made[kind], kind


@st.composite
def condition_of(draw: st.DrawFn, kinds: dict[str, str]) -> str | pl.Expr | None:
    """Which rows count, or None: it is true, false or null."""
    conditions: list[str | pl.Expr] = [c for c, kind in sorted(kinds.items()) if kind == "bool"]
    conditions += [pl.col(c) > 0 for c, kind in sorted(kinds.items()) if kind == "int"]
    return draw(st.sampled_from(conditions)) if conditions and not draw(st.integers(0, 2)) else None


@st.composite
def aggregate_of(draw: st.DrawFn, kinds: dict[str, str], last: bool) -> tuple[Reduction | Aggregate, str]:
    """An aggregate over some column or expression, perhaps of some rows alone, and the kind of its result."""
    column, kind = draw(value_of(kinds))
    where, distinct = draw(condition_of(kinds)), draw(st.booleans())
    other = draw(st.sampled_from(columns_but_lists(kinds)))
    options: list[tuple[Reduction | Aggregate, str]] = [
        (aggregates.count(where=where), "int"),
        (aggregates.count(column, where=where, distinct=distinct), "int"),
        (aggregates.distinct(column, where=where), "int"),
        (aggregates.latest(column, where=where), kind),
        (aggregates.min(column, where=where), kind),
        (aggregates.max(column, where=where), kind),
        (aggregates.collect(column, where=where, distinct=distinct), "list"),
        (aggregates.earliest(column, where=where), kind),
        (
            aggregates.quantiles(
                column, draw(st.sampled_from([[0.5], [0.0, 0.07, 1.0]])), where=where, distinct=distinct
            ),
            "list",
        ),
        (aggregates.top(2, column, where=where, ranks=distinct), "list"),
        (draw(ranking_of(kinds)), "list"),
        (aggregates.distinct(column, approx=True, where=where), "int"),
        (Tally(column, where=where), "int"),
        (
            Joined(column, other if isinstance(column, str) else pl.col(other).alias("z"), where=where),
            "text",
        ),
    ]
    if last and kind in ("int", "float"):
        options += [(Middle(column, where=where), "rough")]
    if kind in ("int", "float", "bool") or (kind == "rough" and last):
        options += [
            (aggregates.sum(column, where=where, distinct=distinct), "int" if kind == "bool" else kind),
            (aggregates.mean(column, where=where, distinct=distinct), "rough"),
            (aggregates.stddev(column, where=where, distinct=distinct), "rough"),
        ]
    return draw(st.sampled_from(options))


def columns_but_lists(kinds: dict[str, str]) -> list[str]:
    return sorted(c for c, kind in kinds.items() if kind != "list")


@st.composite
def ranking_of(draw: st.DrawFn, kinds: dict[str, str]) -> Reduction:
    """The first rows by one or two columns, in either direction."""
    columns = columns_but_lists(kinds)
    by = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    others = [] if draw(st.booleans()) else [draw(st.sampled_from(columns))]
    descending = [draw(st.booleans()) for _ in by]
    where = draw(condition_of(kinds))
    return aggregates.top(2, *others, by=by, descending=descending, where=where, ranks=draw(st.booleans()))
