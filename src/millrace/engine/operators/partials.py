"""An aggregation's aggregates, all at once: rows to partials, partials to fewer, partials to results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER, Count, Latest, Reduction
from millrace.values.columns import END, FIRST_OPEN_END, PARTIAL_ROWS, SLICE


@dataclass(frozen=True, eq=False)
class Partials:
    """What is kept of rows per key and slice, or per key and window."""

    node: graph.Aggregation

    @cached_property
    def keys(self) -> list[str]:
        """The key columns."""
        return list(self.node.keys)

    @cached_property
    def is_ordered(self) -> bool:
        """Whether some aggregate depends on the order of rows."""
        return any(aggregate.ordered for aggregate in self.node.aggregates.values())

    @cached_property
    def is_additive(self) -> bool:
        """Whether rows can be taken back by subtraction."""
        return all(aggregate.additive for aggregate in self.node.aggregates.values())

    @cached_property
    def counts_only(self) -> bool:
        """Whether nothing but rows is counted, so that all that is kept of them is how many there are."""
        return all(
            type(aggregate) is Count and aggregate.column is None
            for aggregate in self.node.aggregates.values()
        )

    @cached_property
    def latest_order_columns(self) -> list[str]:
        """Where the latest value is all that is asked for,
        the columns that say which one that is; else none.
        """
        aggregates = list(self.node.aggregates.items())
        return [
            f"{name}.{c}"
            for name, aggregate in aggregates
            for c in ORDER
            if len(aggregates) == 1 and type(aggregate) is Latest
        ]

    @cached_property
    def superseded(self) -> pl.Expr | None:
        """Of the partials of one key in the order of their slices: which ones no aggregate needs any more
        where later ones count, too. None where some aggregate may need each.
        """
        aggregates = self.node.aggregates.items()
        found = [aggregate.superseded(name, self.dtype_of(aggregate)) for name, aggregate in aggregates]
        known = [expr for expr in found if expr is not None]
        return pl.all_horizontal(known) if len(known) == len(found) and self.node.evict is None else None

    @cached_property
    def input_columns(self) -> list[str]:
        """The columns the aggregates read."""
        return sorted(
            {column for aggregate in self.node.aggregates.values() for column in aggregate.input_columns()}
        )

    def dtype_of(self, aggregate: Reduction) -> pl.DataType:
        """The type of the column that an aggregate reads."""
        return self.node.inputs[0].schema[aggregate.column] if aggregate.column else pl.Null()

    @cached_property
    def _row_exprs(self) -> list[pl.Expr]:
        exprs = [
            expr
            for name, aggregate in self.node.aggregates.items()
            for expr in aggregate.partials(name, self.dtype_of(aggregate))
        ]
        return [pl.len().cast(pl.Int64).alias(PARTIAL_ROWS), *exprs]

    @cached_property
    def _retract_exprs(self) -> list[pl.Expr]:
        exprs = [
            expr
            for name, aggregate in self.node.aggregates.items()
            for expr in aggregate.retract(name, self.dtype_of(aggregate))
        ]
        return [-pl.len().cast(pl.Int64).alias(PARTIAL_ROWS), *exprs]

    @cached_property
    def _merge_exprs(self) -> list[pl.Expr]:
        exprs = [
            expr
            for name, aggregate in self.node.aggregates.items()
            for expr in aggregate.merge(name, self.dtype_of(aggregate))
        ]
        return [pl.col(PARTIAL_ROWS).sum(), *exprs]

    @cached_property
    def _result_exprs(self) -> list[pl.Expr]:
        return [
            aggregate.result(name, self.dtype_of(aggregate))
            for name, aggregate in self.node.aggregates.items()
        ]

    def from_rows(
        self,
        rows: pl.DataFrame,
        *,
        group: tuple[str, ...] = (SLICE, FIRST_OPEN_END),
        extra: Sequence[pl.Expr] = (),
    ) -> pl.DataFrame:
        """Partials of rows, by key and `group`, with the columns of `extra`."""
        if self.is_ordered:
            rows = rows.sort(ORDER[0], maintain_order=True) if _is_in_read_order(rows) else rows.sort(*ORDER)
        return rows.group_by(*self.keys, *group).agg(*self._row_exprs, *extra)

    def merge(
        self,
        partials: pl.DataFrame,
        *,
        group: tuple[str, ...] = (SLICE, FIRST_OPEN_END),
        extra: Sequence[pl.Expr] = (),
    ) -> pl.DataFrame:
        """Partials condensed per key and `per`."""
        return partials.group_by(*self.keys, *group).agg(*self._merge_exprs, *extra)

    @cached_property
    def _empty_rows(self) -> pl.DataFrame:
        rows = self.node.inputs[0].schema.to_frame()
        return rows.with_columns(pl.lit(0, pl.Int64).alias(c) for c in ORDER).clear()

    @cached_property
    def value_columns(self) -> list[str]:
        """What partials consist of, besides key and place."""
        return self.from_rows(self._empty_rows, group=()).drop(self.keys).columns

    @cached_property
    def empty(self) -> pl.DataFrame:
        """The partial of no rows at all, as one row."""
        types = self.from_rows(self._empty_rows, group=()).schema
        values = [self._empty_rows.select(expr).to_series() for expr in self._row_exprs]
        rows = [
            pl.Series(
                value.name,
                [value.to_list()]
                if isinstance(types[value.name], pl.List)
                else value.to_list()[:1] or [None],
                types[value.name],
            )
            for value in values
        ]
        return pl.DataFrame(rows)

    def add_results(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials with the answers beside them."""
        return partials.with_columns(self._result_exprs)

    def results(
        self, partials: pl.DataFrame | pl.LazyFrame, *, group: Sequence[str] = (END,)
    ) -> pl.DataFrame:
        """The answers: key columns, those of `per`, aggregates."""
        results = partials.select(*self.keys, *group, *self._result_exprs)
        return results.collect() if isinstance(results, pl.LazyFrame) else results

    def merge_to_results(self, partials: pl.LazyFrame) -> pl.DataFrame:
        """Partials per key and `_end`, merged, and the answers."""
        return self.results(partials.group_by(*self.keys, END).agg(*self._merge_exprs))

    def from_retracted(self, rows: pl.DataFrame, *, group: tuple[str, ...]) -> pl.DataFrame:
        """Partials that undo rows, where all aggregates are additive."""
        return rows.group_by(*self.keys, *group).agg(*self._retract_exprs)


def _is_in_read_order(rows: pl.DataFrame) -> bool:
    """Whether rows come in the order in which they were read,
    so that only their times have to be sorted: that takes half as long.
    """
    source, offset = (pl.col(column).diff() for column in ORDER[1:])
    return bool(rows.select(((source > 0) | ((source == 0) & (offset > 0))).all()).item())


@lru_cache(maxsize=1024)
def partials_of(node: graph.Aggregation) -> Partials:
    """The partials of a node, made once."""
    from millrace.engine.operators.evictors import EvictedPartials  # it is made of these

    return Partials(node) if node.evict is None else EvictedPartials(node)
