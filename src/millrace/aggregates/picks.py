"""Aggregates whose result is one of the values."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from millrace.aggregates.contract import ORDER, Reduction
from millrace.values.columns import SLICE


def _accumulate(values: pl.Expr, dtype: pl.DataType, best: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    """The best of all values up to each."""
    found = best(_comparable(values, dtype)).forward_fill()
    if isinstance(dtype, pl.Enum):
        return found.cat.to(dtype)
    return found.cast(dtype) if isinstance(dtype, pl.Categorical) else found


def _comparable(values: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Values as polars can accumulate them. It has no such form for categories, so they are compared as what
    orders them: the categories of an enum by their place, others by their text.
    """
    if isinstance(dtype, pl.Enum):
        return values.to_physical()
    return values.cast(pl.String) if isinstance(dtype, pl.Categorical) else values


@dataclass(frozen=True)
class Min(Reduction):
    """The smallest value."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The smallest so far."""
        return [pl.col(self.required_column).min().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The smallest of the smallest."""
        return [pl.col(f"{name}.v").min()]

    def running(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The smallest up to each row."""
        return [_accumulate(pl.col(f"{name}.v"), dtype, pl.Expr.cum_min)]

    def superseded(self, name: str, dtype: pl.DataType) -> pl.Expr | None:
        """Whether a later value is as good; NaN is none. Polars has no such form for nested values."""
        if dtype.is_nested():
            return None
        value = _comparable(pl.col(f"{name}.v"), dtype)
        number = value.fill_nan(None) if dtype.is_float() else value
        best = self._best_from(number).backward_fill().shift(-1)
        is_last = pl.int_range(pl.len()) == pl.len() - 1
        return (
            pl.when(value.is_null())
            .then(~is_last)
            .otherwise(self._is_as_good(best, value))
            .fill_null(value=False)
        )

    def _best_from(self, values: pl.Expr) -> pl.Expr:
        return values.cum_min(reverse=True)

    def _is_as_good(self, best: pl.Expr, value: pl.Expr) -> pl.Expr:
        return best <= value

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The value."""
        return pl.col(f"{name}.v").alias(name)


@dataclass(frozen=True)
class Max(Min):
    """The greatest value."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The greatest so far."""
        return [pl.col(self.required_column).max().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The greatest of the greatest."""
        return [pl.col(f"{name}.v").max()]

    def running(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The greatest up to each row."""
        return [_accumulate(pl.col(f"{name}.v"), dtype, pl.Expr.cum_max)]

    def _best_from(self, values: pl.Expr) -> pl.Expr:
        return values.cum_max(reverse=True)

    def _is_as_good(self, best: pl.Expr, value: pl.Expr) -> pl.Expr:
        return best >= value


@dataclass(frozen=True)
class Latest(Reduction):
    """The value of the last row in order of event time, topic, partition, offset."""

    ordered = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The last value, and the columns that order it; rows are sorted by `ORDER`."""
        is_present = pl.col(self.required_column).is_not_null()
        order_values = [self._pick(pl.col(c).filter(is_present)).alias(f"{name}.{c}") for c in ORDER]
        return [self._pick(pl.col(self.required_column).filter(is_present)).alias(f"{name}.v"), *order_values]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The last of the values, by the columns that order them."""
        order_columns = [f"{name}.{c}" for c in ORDER]
        return [
            self._pick(pl.col(c).sort_by(order_columns, nulls_last=not self._picks_last))
            for c in (f"{name}.v", *order_columns)
        ]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The value."""
        return pl.col(f"{name}.v").alias(name)

    def running(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The last value up to each row, or the first, with what orders it."""
        columns = [pl.col(f"{name}.{part}") for part in ("v", *ORDER)]
        if self._picks_last:
            return [column.forward_fill() for column in columns]
        is_known = pl.col(f"{name}.v").is_not_null().cum_sum() > 0
        return [pl.when(is_known).then(column.drop_nulls().first()) for column in columns]

    def superseded(self, name: str, dtype: pl.DataType) -> pl.Expr | None:
        """Whether a later slice has a value."""
        if not self._picks_last:
            return None
        is_known, start = pl.col(f"{name}.{ORDER[0]}").is_not_null(), pl.col(SLICE)
        last = pl.when(is_known).then(start.filter(is_known).max()).otherwise(start.max())
        return start < last

    _picks_last = True

    def _pick(self, values: pl.Expr) -> pl.Expr:
        return values.last() if self._picks_last else values.first()


@dataclass(frozen=True)
class Earliest(Latest):
    """The value of the first row in order of event time, topic, partition, offset."""

    _picks_last = False
