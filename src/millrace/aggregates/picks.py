"""Aggregates that pick one of the values."""

from dataclasses import dataclass

import polars as pl

from millrace.aggregates.contract import ORDER, Reduction


@dataclass(frozen=True)
class Min(Reduction):
    """The smallest value."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The smallest so far."""
        return [pl.col(self.given).min().alias(f"{name}.v")]

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
        return [pl.col(self.given).max().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The greatest of the greatest."""
        return [pl.col(f"{name}.v").max()]


@dataclass(frozen=True)
class Latest(Reduction):
    """The value of the last row in order of event time, topic, partition, offset."""

    ordered = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The last value and its place, of rows sorted by `ORDER`."""
        there = pl.col(self.given).is_not_null()
        places = [self._end(pl.col(c).filter(there)).alias(f"{name}.{c}") for c in ORDER]
        return [self._end(pl.col(self.given).filter(there)).alias(f"{name}.v"), *places]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The last of the last, by their places."""
        places = [f"{name}.{c}" for c in ORDER]
        return [
            self._end(pl.col(c).sort_by(places, nulls_last=not self._last)) for c in (f"{name}.v", *places)
        ]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The value."""
        return pl.col(f"{name}.v").alias(name)

    _last = True

    def _end(self, values: pl.Expr) -> pl.Expr:
        return values.last() if self._last else values.first()


@dataclass(frozen=True)
class Earliest(Latest):
    """The value of the first row in order of event time, topic, partition, offset."""

    _last = False
