"""Exact aggregates whose partials are lists of values, so their state grows with the values."""

from dataclasses import dataclass, field, replace

import polars as pl

from millrace.aggregates.contract import ORDER, Reduction, check_sortable
from millrace.aggregates.sums import Count
from millrace.values.columns import LIST_NUMBER

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

    def of_each(self, column: str | None = None) -> Reduction:
        """What is computed of a column that has each distinct value once."""
        return Count(column or self.required_column)


@dataclass(frozen=True)
class OfDistinct(Distinct):
    """Another aggregate, of each distinct value once: `sum(DISTINCT x)` in SQL."""

    inner: Reduction = field(kw_only=True)

    def check(self, schema: pl.Schema) -> None:
        """The checks of the other one."""
        self.of_each().check(schema)

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """What the other one makes of the lists of distinct values."""
        inner = self.of_each()
        returns = _answers(inner, pl.Series([], dtype=pl.List(dtype)), dtype).dtype
        values = pl.col(f"{name}.v")
        return values.map_batches(lambda lists: _answers(inner, lists, dtype), return_dtype=returns).alias(
            name
        )

    @property
    def word(self) -> str:
        """The function of the other one."""
        return self.inner.word

    def call_texts(self) -> list[str]:
        """Those of the other one."""
        return [
            *replace(self.inner, column=self.column, argument=self.argument).call_texts(),
            "distinct=True",
        ]

    def of_each(self, column: str | None = None) -> Reduction:
        """The other one."""
        return replace(self.inner, column=column or self.required_column)


def _answers(inner: Reduction, lists: pl.Series, dtype: pl.DataType) -> pl.Series:
    """An aggregate of the values of each list."""
    rows = lists.alias(inner.required_column).to_frame().with_row_index(LIST_NUMBER)
    values = rows.explode(inner.required_column, empty_as_null=True, keep_nulls=True)
    partials = values.group_by(LIST_NUMBER, maintain_order=True).agg(*inner.partials("a", dtype))
    return partials.select(inner.result("a", dtype)).to_series()


@dataclass(frozen=True)
class Collect(Reduction):
    """All values, in order of event time, topic, partition, offset; or each distinct value once,
    where it comes first.
    """

    distinct: bool = False
    ordered = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values, with the columns that order them."""
        value = pl.col(self.required_column)
        is_kept = value.is_not_null() & value.is_first_distinct() if self.distinct else value.is_not_null()
        return [pl.struct(*ORDER, value.alias("v")).filter(is_kept).alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """All values in one list."""
        values = pl.col(f"{name}.v").explode(empty_as_null=False)
        if not self.distinct:
            return [values]
        in_order = pl.element().sort_by(_order_fields(pl.element()), maintain_order=True)
        return [values.implode().list.eval(in_order.filter(in_order.struct.field("v").is_first_distinct()))]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values in order, without the columns that order them."""
        value = pl.element().struct.field("v")
        in_order = value.sort_by(_order_fields(pl.element()), maintain_order=True)
        return pl.col(f"{name}.v").list.eval(in_order).alias(name)

    def call_texts(self) -> list[str]:
        """The column, and whether equal values are left out."""
        return [*self.value_texts, *(["distinct=True"] if self.distinct else [])]


def _order_fields(entry: pl.Expr) -> list[pl.Expr]:
    return [entry.struct.field(column) for column in ORDER]


@dataclass(frozen=True)
class KeptValues(Reduction):
    """All values, unordered; a base of the aggregates that sort them at the end."""

    def check(self, schema: pl.Schema) -> None:
        """Only values that have an order."""
        check_sortable(self, {self.label: schema[self.required_column]})

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The values."""
        return [pl.col(self.required_column).drop_nulls().alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """All values in one list."""
        return [pl.col(f"{name}.v").explode(empty_as_null=False)]


@dataclass(frozen=True)
class Quantiles(KeptValues):
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

    def call_texts(self) -> list[str]:
        """The column and the ranks."""
        return [*self.value_texts, str(list(self.ranks))]


def rank_index(rank: float, count: pl.Expr) -> pl.Expr:
    """The index of a rank in a sorted list of `count` values.
    Ranks are rounded to nine decimals, and exact from there.
    """
    return ((count * round(rank * RANK_UNITS) + RANK_UNITS - 1) // RANK_UNITS - 1).clip(lower_bound=0)
