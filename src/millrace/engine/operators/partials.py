"""An aggregation's aggregates, all at once: rows to partials, partials to fewer, partials to results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER, Count, Latest


@dataclass(frozen=True, eq=False)
class Partials:
    """What is kept of rows per key and slice, or per key and window."""

    node: graph.Operation

    @cached_property
    def keys(self) -> list[str]:
        """The key columns."""
        return list(self.node.keys)

    @cached_property
    def ordered(self) -> bool:
        """Whether some aggregate depends on the order of rows."""
        return any(aggregate.ordered for aggregate in self.node.aggregates.values())

    @cached_property
    def additive(self) -> bool:
        """Whether rows can be taken back by subtraction."""
        return all(aggregate.additive for aggregate in self.node.aggregates.values())

    @cached_property
    def counts(self) -> bool:
        """Whether nothing but rows is counted, so that all that is kept of them is how many there are."""
        return all(
            type(aggregate) is Count and aggregate.column is None
            for aggregate in self.node.aggregates.values()
        )

    @cached_property
    def newest(self) -> list[str]:
        """Where the latest value is all that is asked for, the columns that say which one that is; else none."""
        aggregates = list(self.node.aggregates.items())
        return [
            f"{name}.{c}"
            for name, aggregate in aggregates
            for c in ORDER
            if len(aggregates) == 1 and type(aggregate) is Latest
        ]

    @cached_property
    def needs(self) -> list[str]:
        """The columns the aggregates read."""
        return sorted({column for aggregate in self.node.aggregates.values() for column in aggregate.needs()})

    def _dtype(self, column: str | None) -> pl.DataType:
        return self.node.inputs[0].schema[column] if column else pl.Null()

    @cached_property
    def _from_rows(self) -> list[pl.Expr]:
        made = [
            e for name, a in self.node.aggregates.items() for e in a.partials(name, self._dtype(a.column))
        ]
        return [pl.len().cast(pl.Int64).alias("_n"), *made]

    @cached_property
    def _from_gone(self) -> list[pl.Expr]:
        made = [
            e for name, a in self.node.aggregates.items() for e in a.taken_back(name, self._dtype(a.column))
        ]
        return [-pl.len().cast(pl.Int64).alias("_n"), *made]

    @cached_property
    def _from_partials(self) -> list[pl.Expr]:
        made = [e for name, a in self.node.aggregates.items() for e in a.merge(name, self._dtype(a.column))]
        return [pl.col("_n").sum(), *made]

    @cached_property
    def _results(self) -> list[pl.Expr]:
        return [a.result(name, self._dtype(a.column)) for name, a in self.node.aggregates.items()]

    def of_rows(
        self, rows: pl.DataFrame, *, per: tuple[str, ...] = ("_slice", "_from"), more: Sequence[pl.Expr] = ()
    ) -> pl.DataFrame:
        """Rows condensed per key and `per`, with whatever `more` is asked of them."""
        if self.ordered:
            rows = rows.sort(ORDER[0], maintain_order=True) if _as_read(rows) else rows.sort(*ORDER)
        return rows.group_by(*self.keys, *per).agg(*self._from_rows, *more)

    def merged(
        self,
        partials: pl.DataFrame,
        *,
        per: tuple[str, ...] = ("_slice", "_from"),
        more: Sequence[pl.Expr] = (),
    ) -> pl.DataFrame:
        """Partials condensed per key and `per`."""
        return partials.group_by(*self.keys, *per).agg(*self._from_partials, *more)

    @cached_property
    def _no_rows(self) -> pl.DataFrame:
        rows = self.node.inputs[0].schema.to_frame()
        return rows.with_columns(pl.lit(0, pl.Int64).alias(c) for c in ORDER).clear()

    @cached_property
    def columns(self) -> list[str]:
        """What partials consist of, besides key and place."""
        return self.of_rows(self._no_rows, per=()).drop(self.keys).columns

    @cached_property
    def empty(self) -> pl.DataFrame:
        """The partial of no rows at all, as one row."""
        types = self.of_rows(self._no_rows, per=()).schema
        values = [self._no_rows.select(expr).to_series() for expr in self._from_rows]
        rows = [
            pl.Series(
                v.name,
                [v.to_list()] if isinstance(types[v.name], pl.List) else v.to_list()[:1] or [None],
                types[v.name],
            )
            for v in values
        ]
        return pl.DataFrame(rows)

    @cached_property
    def result_exprs(self) -> list[pl.Expr]:
        """The answers, read off partials."""
        return self._results

    def results(
        self, partials: pl.DataFrame | pl.LazyFrame, *, per: Sequence[str] = ("_end",)
    ) -> pl.DataFrame:
        """The answers: key columns, those of `per`, aggregates."""
        return partials.lazy().select(*self.keys, *per, *self._results).collect()

    def answers(self, partials: pl.LazyFrame) -> pl.DataFrame:
        """Partials per key and `_end`, merged, and the answers."""
        return self.results(partials.group_by(*self.keys, "_end").agg(*self._from_partials))

    def of_gone(self, rows: pl.DataFrame, *, per: tuple[str, ...]) -> pl.DataFrame:
        """Partials that undo rows, where all aggregates are additive."""
        return rows.group_by(*self.keys, *per).agg(*self._from_gone)


def _as_read(rows: pl.DataFrame) -> bool:
    """Whether rows come in the order in which they were read, so that only their times have to be sorted: that takes half as long."""
    source, offset = (pl.col(column).diff() for column in ORDER[1:])
    return bool(rows.select(((source > 0) | ((source == 0) & (offset > 0))).all()).item())


@lru_cache(maxsize=1024)
def partials_of(node: graph.Operation) -> Partials:
    """The partials of a node, made once."""
    return Partials(node)
