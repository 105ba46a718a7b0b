"""WHAT is computed.

An aggregate works on columns in three steps: `partials` condenses rows, `merge` condenses partials, `result` reads the answer off
them. Rows may so be condensed before they travel, slices be shared by windows, and late rows be added. All but `count()` pass over nulls.
Every answer depends on the rows alone, never on the order or the batches in which they came.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import polars as pl

from millrace.errors import DefinitionError

ORDER = ("_t", "_src", "_off")
"""The order in which rows are taken: event time, then topic and partition, then offset."""


@dataclass(frozen=True)
class Aggregate(ABC):
    """One column of a result."""

    column: str | None = None
    additive = False
    """Whether partials merge by addition alone, so that subtracting a row's partials takes the row back."""
    ordered = False
    """Whether `partials` expects rows sorted by `ORDER`."""

    @abstractmethod
    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Rows to partials, inside a group; columns are called `name.…`."""

    @abstractmethod
    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Partials to one partial, inside a group, under the same names."""

    @abstractmethod
    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """One partial to the answer, called `name`."""

    def check(self, dtype: pl.DataType) -> None:  # noqa: B027 - most aggregates take any column
        """Refuses columns for which the aggregate has no meaning."""

    def needs(self) -> list[str]:
        """The columns it reads."""
        return [] if self.column is None else [self.column]

    def __str__(self) -> str:
        """As a user would write it."""
        return f"{type(self).__name__.lower()}({'' if self.column is None else repr(self.column)})"


@dataclass(frozen=True)
class Count(Aggregate):
    """Rows, or where a column is given, its values that are not null."""

    additive = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The number of rows."""
        counted = pl.len() if self.column is None else pl.col(self.column).count()
        return [counted.cast(pl.Int64).alias(f"{name}.n")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sum of the numbers."""
        return [pl.col(f"{name}.n").sum()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The number."""
        return pl.col(f"{name}.n").alias(name)


_GRAINS = (2.0**20, 2.0**-12, 2.0**-52)
_HUGE = 2.0**80


def _limbs(column: str, name: str) -> list[pl.Expr]:
    """A float's sum as three whole-number sums, whose addition, unlike that of floats, does not depend on the order.

    Exact for |x| >= 1, and to 2**-53 below; what is infinite, not a number or beyond 2**80 is summed apart, as floats are.
    """
    x = pl.col(column).cast(pl.Float64)
    ordinary = x.is_finite() & (x.abs() < _HUGE)
    rest = pl.when(ordinary).then(x).otherwise(0.0)
    limbs = []
    for position, grain in enumerate(_GRAINS):
        whole = (rest / grain).round(0)
        limbs.append(whole.cast(pl.Int64).sum().alias(f"{name}.s{position}"))
        rest = rest - whole * grain
    return [*limbs, pl.when(ordinary).then(0.0).otherwise(x).sum().alias(f"{name}.huge")]


def _sums(column: str, name: str, dtype: pl.DataType) -> list[pl.Expr]:
    if dtype.is_float():
        return _limbs(column, name)
    return [pl.col(column).cast(pl.Int64).sum().alias(f"{name}.s0")]


def _sum_columns(name: str, dtype: pl.DataType) -> list[str]:
    return [f"{name}.s0", f"{name}.s1", f"{name}.s2", f"{name}.huge"] if dtype.is_float() else [f"{name}.s0"]


def _total(name: str, dtype: pl.DataType) -> pl.Expr:
    if not dtype.is_float():
        return pl.col(f"{name}.s0")
    limbs = [pl.col(f"{name}.s{position}").cast(pl.Float64) * grain for position, grain in enumerate(_GRAINS)]
    return limbs[0] + limbs[1] + limbs[2] + pl.col(f"{name}.huge")


@dataclass(frozen=True)
class Sum(Aggregate):
    """The sum; null where every value is null."""

    additive = True

    def check(self, dtype: pl.DataType) -> None:
        """Numbers and booleans only."""
        _numeric(self, dtype)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums and the number of values."""
        return [*_sums(_given(self), name, dtype), pl.col(_given(self)).count().cast(pl.Int64).alias(f"{name}.n")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums of sums."""
        return [pl.col(*_sum_columns(name, dtype), f"{name}.n").sum()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum."""
        return pl.when(pl.col(f"{name}.n") > 0).then(_total(name, dtype)).alias(name)


@dataclass(frozen=True)
class Mean(Sum):
    """The arithmetic mean; null where every value is null."""

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum divided by the number."""
        return pl.when(pl.col(f"{name}.n") > 0).then(_total(name, dtype).cast(pl.Float64) / pl.col(f"{name}.n")).alias(name)


@dataclass(frozen=True)
class Min(Aggregate):
    """The smallest value."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The smallest so far."""
        return [pl.col(_given(self)).min().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The smallest of the smallest."""
        return [pl.col(f"{name}.v").min()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The value."""
        return pl.col(f"{name}.v").alias(name)


@dataclass(frozen=True)
class Max(Min):
    """The greatest value."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The greatest so far."""
        return [pl.col(_given(self)).max().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The greatest of the greatest."""
        return [pl.col(f"{name}.v").max()]


@dataclass(frozen=True)
class Latest(Aggregate):
    """The value of the last row in order of event time, topic, partition, offset."""

    ordered = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The last value and its place, of rows sorted by `ORDER`."""
        there = pl.col(_given(self)).is_not_null()
        places = [pl.col(c).filter(there).last().alias(f"{name}.{c}") for c in ORDER]
        return [pl.col(_given(self)).filter(there).last().alias(f"{name}.v"), *places]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The last of the last, by their places."""
        places = [f"{name}.{c}" for c in ORDER]
        return [pl.col(c).sort_by(places, nulls_last=False).last() for c in (f"{name}.v", *places)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The value."""
        return pl.col(f"{name}.v").alias(name)


@dataclass(frozen=True)
class Distinct(Aggregate):
    """How many different values, exactly."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The different values so far."""
        return [pl.col(_given(self)).drop_nulls().unique().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The different values of all."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False).unique()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """Their number."""
        return pl.col(f"{name}.v").list.len().cast(pl.Int64).alias(name)


@dataclass(frozen=True)
class Collect(Aggregate):
    """All values, in order of event time, topic, partition, offset."""

    ordered = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values with their places."""
        placed = pl.struct(*ORDER, pl.col(_given(self)).alias("v"))
        return [placed.filter(pl.col(_given(self)).is_not_null()).alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values of all."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values alone, sorted by their places."""
        placed = pl.element().struct
        in_order = placed.field("v").sort_by([placed.field(place) for place in ORDER], maintain_order=True)
        return pl.col(f"{name}.v").list.eval(in_order).alias(name)


def _given(aggregate: Aggregate) -> str:
    if aggregate.column is None:
        raise DefinitionError(f"{type(aggregate).__name__.lower()}() needs the name of a column")
    return aggregate.column


def _numeric(aggregate: Aggregate, dtype: pl.DataType) -> None:
    if not (dtype.is_numeric() or dtype == pl.Boolean):
        kind = type(aggregate).__name__.lower()
        raise DefinitionError(
            f"{aggregate} needs numbers, but {aggregate.column!r} is {dtype}; cast it first, or use another aggregate than {kind}"
        )


def count(column: str | None = None) -> Count:
    """How many rows, or how many values of `column` that are not null."""
    return Count(column)


def sum(column: str) -> Sum:
    """The sum of `column`."""
    return Sum(column)


def mean(column: str) -> Mean:
    """The arithmetic mean of `column`."""
    return Mean(column)


def min(column: str) -> Min:
    """The smallest value of `column`."""
    return Min(column)


def max(column: str) -> Max:
    """The greatest value of `column`."""
    return Max(column)


def latest(column: str) -> Latest:
    """The value of `column` in the row with the latest event time (ties: the later topic, partition, offset)."""
    return Latest(column)


def distinct(column: str) -> Distinct:
    """How many different values `column` has, exactly."""
    return Distinct(column)


def collect(column: str) -> Collect:
    """All values of `column` as a list, in order of event time (ties: topic, partition, offset)."""
    return Collect(column)
