"""Aggregates that keep values: exact, and as large as what they keep."""

from dataclasses import dataclass

import polars as pl

from millrace.aggregates.contract import ORDER, Reduction, check_sortable

BILLION = 1_000_000_000


@dataclass(frozen=True)
class Distinct(Reduction):
    """How many different values, exactly."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The different values so far."""
        return [pl.col(self.given).drop_nulls().unique().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The different values of all."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False).unique()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """Their number."""
        return pl.col(f"{name}.v").list.len().cast(pl.Int64).alias(name)


@dataclass(frozen=True)
class Collect(Reduction):
    """All values, in order of event time, topic, partition, offset."""

    ordered = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values with their places."""
        placed = pl.struct(*ORDER, pl.col(self.given).alias("v"))
        return [placed.filter(pl.col(self.given).is_not_null()).alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values of all."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values alone, sorted by their places."""
        placed = pl.element().struct
        in_order = placed.field("v").sort_by([placed.field(place) for place in ORDER], maintain_order=True)
        return pl.col(f"{name}.v").list.eval(in_order).alias(name)


@dataclass(frozen=True)
class _Bag(Reduction):
    """All values, in no order."""

    def check(self, schema: pl.Schema) -> None:
        """Values that have an order only."""
        check_sortable(self, schema, self.needs())

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values."""
        return [pl.col(self.given).drop_nulls().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values of all."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]


@dataclass(frozen=True)
class Quantiles(_Bag):
    """For each rank q, the smallest value such that a share q of all values is not greater; null where every value is null."""

    ranks: tuple[float, ...] = ()

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values at the ranks, as a list."""
        values = pl.col(f"{name}.v").list.sort()
        found = [
            values.list.get(place_of(rank, pl.col(f"{name}.v").list.len().cast(pl.Int64)), null_on_oob=True)
            for rank in self.ranks
        ]
        return pl.when(pl.col(f"{name}.v").list.len() > 0).then(pl.concat_list(found)).alias(name)

    def __str__(self) -> str:
        """As a user would write it."""
        return f"quantiles({self.column!r}, {list(self.ranks)})"


def place_of(rank: float, count: pl.Expr) -> pl.Expr:
    """The place of a rank among so many sorted values, from 0; ranks are taken to nine decimals, and then exactly."""
    return ((count * round(rank * BILLION) + BILLION - 1) // BILLION - 1).clip(lower_bound=0)


@dataclass(frozen=True)
class Frequent(_Bag):
    """The values that occur most often, and how often: greatest count first, of equal ones the smallest value first."""

    k: int = 1

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """A list of `{column, count}`."""
        counted = pl.col(f"{name}.v").list.eval(pl.element().alias("v").value_counts(name="count"))
        one = pl.element().struct
        rows = pl.struct(one.field("v").alias(self.given), one.field("count").cast(pl.Int64))
        ranked = rows.sort_by([one.field("count"), one.field("v")], descending=[True, False]).head(self.k)
        return counted.list.eval(ranked).alias(name)

    def __str__(self) -> str:
        """As a user would write it."""
        return f"top({self.k}, {self.column!r})"


@dataclass(frozen=True)
class Top(Reduction):
    """The rows with the greatest `by`, greatest first, of equal ones those with the greater columns. Only as many are kept as are asked for."""

    k: int = 1
    columns: tuple[str, ...] = ()
    by: str = ""

    def check(self, schema: pl.Schema) -> None:
        """Values that have an order only."""
        check_sortable(self, schema, self.needs())

    def needs(self) -> list[str]:
        """What is shown, and what it is ranked by."""
        return list(dict.fromkeys((*self.columns, self.by)))

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The best so far."""
        ranked = pl.struct(self.by, *(column for column in self.columns if column != self.by))
        return [
            ranked.filter(pl.col(self.by).is_not_null()).sort(descending=True).head(self.k).alias(f"{name}.v")
        ]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The best of the best; `sort_by` would take rows of other groups where lists are exploded (polars 2.1)."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False).sort(descending=True).head(self.k)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """They are in order already."""
        one = pl.element().struct
        return (
            pl.col(f"{name}.v").list.eval(pl.struct(one.field(column) for column in self.needs())).alias(name)
        )

    def __str__(self) -> str:
        """As a user would write it."""
        return f"top({', '.join([str(self.k), *map(repr, self.columns)])}, by={self.by!r})"
