"""Aggregates that keep values: exact, and as large as what they keep."""

from dataclasses import dataclass

import polars as pl

from millrace.aggregates.contract import ORDER, Reduction, check_sortable

RANK_UNITS = 1_000_000_000


@dataclass(frozen=True)
class Distinct(Reduction):
    """How many different values, exactly."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The different values so far."""
        return [pl.col(self.required_column).drop_nulls().unique().alias(f"{name}.v")]

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
        ordered_value = pl.struct(*ORDER, pl.col(self.required_column).alias("v"))
        return [ordered_value.filter(pl.col(self.required_column).is_not_null()).alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values of all."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values alone, sorted by their places."""
        entry = pl.element().struct
        in_order = entry.field("v").sort_by([entry.field(column) for column in ORDER], maintain_order=True)
        return pl.col(f"{name}.v").list.eval(in_order).alias(name)


@dataclass(frozen=True)
class _KeptValues(Reduction):
    """All values, in no order."""

    def check(self, schema: pl.Schema) -> None:
        """Values that have an order only."""
        check_sortable(self, schema, self.input_columns())

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values."""
        return [pl.col(self.required_column).drop_nulls().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values of all."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]


@dataclass(frozen=True)
class Quantiles(_KeptValues):
    """For each rank q, the smallest value such that a share q of all values is not greater; null where every value is null."""

    ranks: tuple[float, ...] = ()

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values at the ranks, as a list."""
        values = pl.col(f"{name}.v").list.sort()
        quantiles = [
            values.list.get(rank_index(rank, pl.col(f"{name}.v").list.len().cast(pl.Int64)), null_on_oob=True)
            for rank in self.ranks
        ]
        return pl.when(pl.col(f"{name}.v").list.len() > 0).then(pl.concat_list(quantiles)).alias(name)

    def __str__(self) -> str:
        """As a user would write it."""
        return f"quantiles({self.column!r}, {list(self.ranks)})"


def rank_index(rank: float, count: pl.Expr) -> pl.Expr:
    """The place of a rank among so many sorted values, from 0; ranks are taken to nine decimals, and then exactly."""
    return ((count * round(rank * RANK_UNITS) + RANK_UNITS - 1) // RANK_UNITS - 1).clip(lower_bound=0)


@dataclass(frozen=True)
class Frequent(_KeptValues):
    """The values that occur most often, and how often: greatest count first, of equal ones the smallest value first."""

    k: int = 1

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """A list of `{column, count}`."""
        counts = pl.col(f"{name}.v").list.eval(pl.element().alias("v").value_counts(name="count"))
        entry = pl.element().struct
        rows = pl.struct(entry.field("v").alias(self.required_column), entry.field("count").cast(pl.Int64))
        ranked = rows.sort_by([entry.field("count"), entry.field("v")], descending=[True, False]).head(self.k)
        return counts.list.eval(ranked).alias(name)

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
        check_sortable(self, schema, self.input_columns())

    def input_columns(self) -> list[str]:
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
        row = pl.element().struct
        return (
            pl.col(f"{name}.v")
            .list.eval(pl.struct(row.field(column) for column in self.input_columns()))
            .alias(name)
        )

    def __str__(self) -> str:
        """As a user would write it."""
        return f"top({', '.join([str(self.k), *map(repr, self.columns)])}, by={self.by!r})"
