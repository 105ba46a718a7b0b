"""Exact aggregates whose partials are lists of values, so their state grows with the values."""

from dataclasses import dataclass

import polars as pl

from millrace.aggregates.contract import ORDER, Reduction, check_sortable

RANK_UNITS = 1_000_000_000


@dataclass(frozen=True)
class Distinct(Reduction):
    """The exact number of distinct values."""

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The distinct values of the rows."""
        return [pl.col(self.required_column).drop_nulls().unique().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The union of the distinct values."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False).unique()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """Their number."""
        return pl.col(f"{name}.v").list.len().cast(pl.Int64).alias(name)


@dataclass(frozen=True)
class Collect(Reduction):
    """All values, in order of event time, topic, partition, offset."""

    ordered = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values, with the columns that order them."""
        ordered_value = pl.struct(*ORDER, pl.col(self.required_column).alias("v"))
        return [ordered_value.filter(pl.col(self.required_column).is_not_null()).alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """All values in one list."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values in order, without the columns that order them."""
        entry = pl.element().struct
        in_order = entry.field("v").sort_by([entry.field(column) for column in ORDER], maintain_order=True)
        return pl.col(f"{name}.v").list.eval(in_order).alias(name)


@dataclass(frozen=True)
class _KeptValues(Reduction):
    """All values, unordered; a base of the aggregates that sort them at the end."""

    def check(self, schema: pl.Schema) -> None:
        """Only values that have an order."""
        check_sortable(self, schema, self.input_columns())

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values."""
        return [pl.col(self.required_column).drop_nulls().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """All values in one list."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]


@dataclass(frozen=True)
class Quantiles(_KeptValues):
    """For each rank q, the smallest value such that a share q of all values is not greater;
    null where every value is null.
    """

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
        """As users write it."""
        return f"quantiles({self.column!r}, {list(self.ranks)})"


def rank_index(rank: float, count: pl.Expr) -> pl.Expr:
    """The index of a rank in a sorted list of `count` values.
    Ranks are rounded to nine decimals, and exact from there.
    """
    return ((count * round(rank * RANK_UNITS) + RANK_UNITS - 1) // RANK_UNITS - 1).clip(lower_bound=0)


@dataclass(frozen=True)
class Frequent(_KeptValues):
    """The most frequent values with their counts, greatest count first; equal counts smallest value first."""

    k: int = 1

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """A list of `{column, count}`."""
        counts = pl.col(f"{name}.v").list.eval(pl.element().alias("v").value_counts(name="count"))
        entry = pl.element().struct
        rows = pl.struct(entry.field("v").alias(self.required_column), entry.field("count").cast(pl.Int64))
        ranked = rows.sort_by([entry.field("count"), entry.field("v")], descending=[True, False]).head(self.k)
        return counts.list.eval(ranked).alias(name)

    def __str__(self) -> str:
        """As users write it."""
        return f"top({self.k}, {self.column!r})"


@dataclass(frozen=True)
class Top(Reduction):
    """The `k` rows with the greatest `by`, greatest first; ties by the other columns,
    greatest first. Partials hold `k` rows.
    """

    k: int = 1
    columns: tuple[str, ...] = ()
    by: str = ""

    def check(self, schema: pl.Schema) -> None:
        """Only values that have an order."""
        check_sortable(self, schema, self.input_columns())

    def input_columns(self) -> list[str]:
        """The columns of the list, and the column it is ranked by."""
        return list(dict.fromkeys((*self.columns, self.by)))

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The first `k` of the rows."""
        ranked = pl.struct(self.by, *(column for column in self.columns if column != self.by))
        return [
            ranked.filter(pl.col(self.by).is_not_null()).sort(descending=True).head(self.k).alias(f"{name}.v")
        ]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The first `k` of all. Not `sort_by`: on exploded lists it mixes groups (polars 2.1)."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False).sort(descending=True).head(self.k)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The rows, which are in order already, with the columns in theirs."""
        row = pl.element().struct
        return (
            pl.col(f"{name}.v")
            .list.eval(pl.struct(row.field(column) for column in self.input_columns()))
            .alias(name)
        )

    def __str__(self) -> str:
        """As users write it."""
        return f"top({', '.join([str(self.k), *map(repr, self.columns)])}, by={self.by!r})"
