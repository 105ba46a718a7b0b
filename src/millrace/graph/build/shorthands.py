"""Aggregations of one column, each in one word: `stream.group_by("line").max("speed")`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import aggregates
from millrace.aggregates.arguments import IntoExpr, parse_arguments
from millrace.errors import DefinitionError
from millrace.graph.build.rankings import build_ranked_rows
from millrace.values import expressions
from millrace.values.calls import explain_errors
from millrace.values.columns import RANKED

if TYPE_CHECKING:
    from millrace.stream import Stream


@explain_errors
class AggregationMethods(ABC):
    """Aggregations of a stream as one group, or of a keyed stream by key."""

    @abstractmethod
    def aggregate(self, *unnamed: object, **aggregates_by_name: Any) -> Stream:
        """One result per group and window, a column for each aggregate."""

    @property
    @abstractmethod
    def _value_columns(self) -> list[str]:
        """The columns that rows have besides keys and times."""

    def count(
        self,
        column: IntoExpr | None = None,
        *,
        name: str = "count",
        where: IntoExpr | None = None,
        distinct: bool = False,
    ) -> Stream:
        """How many rows, or values of `column`, under this name."""
        return self.aggregate(**{name: aggregates.count(column, where=where, distinct=distinct)})

    def sum(
        self,
        column: IntoExpr,
        *,
        name: str | None = None,
        where: IntoExpr | None = None,
        distinct: bool = False,
    ) -> Stream:
        """The sum of `column`, under the same name unless another is given."""
        return self._one("sum", name, column, aggregates.sum(column, where=where, distinct=distinct))

    def mean(
        self,
        column: IntoExpr,
        *,
        name: str | None = None,
        where: IntoExpr | None = None,
        distinct: bool = False,
    ) -> Stream:
        """The mean of `column`, under the same name unless another is given."""
        return self._one("mean", name, column, aggregates.mean(column, where=where, distinct=distinct))

    def min(self, column: IntoExpr, *, name: str | None = None, where: IntoExpr | None = None) -> Stream:
        """The smallest `column`, under the same name unless another is given."""
        return self._one("min", name, column, aggregates.min(column, where=where))

    def max(self, column: IntoExpr, *, name: str | None = None, where: IntoExpr | None = None) -> Stream:
        """The greatest `column`, under the same name unless another is given."""
        return self._one("max", name, column, aggregates.max(column, where=where))

    def latest(self, column: IntoExpr, *, name: str | None = None, where: IntoExpr | None = None) -> Stream:
        """The newest `column`, under the same name unless another is given."""
        return self._one("latest", name, column, aggregates.latest(column, where=where))

    def earliest(self, column: IntoExpr, *, name: str | None = None, where: IntoExpr | None = None) -> Stream:
        """The oldest `column`, under the same name unless another is given."""
        return self._one("earliest", name, column, aggregates.earliest(column, where=where))

    def stddev(
        self,
        column: IntoExpr,
        *,
        name: str | None = None,
        where: IntoExpr | None = None,
        distinct: bool = False,
    ) -> Stream:
        """The standard deviation of `column`, under the same name unless another is given."""
        return self._one("stddev", name, column, aggregates.stddev(column, where=where, distinct=distinct))

    def collect(
        self,
        column: IntoExpr,
        *,
        name: str | None = None,
        where: IntoExpr | None = None,
        distinct: bool = False,
    ) -> Stream:
        """All values of `column` in order of event time, under the same name unless another is given."""
        return self._one("collect", name, column, aggregates.collect(column, where=where, distinct=distinct))

    def distinct(
        self,
        column: IntoExpr,
        *,
        name: str | None = None,
        where: IntoExpr | None = None,
        approx: bool = False,
    ) -> Stream:
        """How many different values of `column`, under the same name unless another is given."""
        return self._one("distinct", name, column, aggregates.distinct(column, where=where, approx=approx))

    def quantiles(
        self,
        column: IntoExpr,
        ranks: Sequence[float],
        *,
        name: str | None = None,
        where: IntoExpr | None = None,
        distinct: bool = False,
        approx: bool = False,
    ) -> Stream:
        """The values of `column` at these ranks, as a list, under the same name unless another is given."""
        quantiles = aggregates.quantiles(column, ranks, where=where, distinct=distinct, approx=approx)
        return self._one("quantiles", name, column, quantiles)

    def top(
        self,
        k: int,
        *columns: Any,
        by: IntoExpr | Sequence[IntoExpr] | None = None,
        descending: bool | Sequence[bool] = True,
        where: IntoExpr | None = None,
        ranks: bool = False,
        explode: bool = False,
        name: str = "top",
        approx: bool = False,
    ) -> Stream:
        """The first `k` rows in the order `by` (of all columns, unless some are named), or the `k` most
        frequent values of a column: see `aggregates.top`.

        A list under this name; or, with `explode`, a row for each entry, with its `rank`. Corrections then
        add (`op` `+`) or withdraw (`-`) single rows.
        """
        ranked = expressions.flatten(columns)
        if by is not None and not ranked:
            names, _ = parse_arguments("top", [by] if isinstance(by, str | pl.Expr) else by, None)
            ranked = [column for column in self._value_columns if column not in names]
        ranking = aggregates.top(
            k, *ranked, by=by, descending=descending, where=where, ranks=ranks or explode, approx=approx
        )
        if not explode:
            return self.aggregate(**{name: ranking})
        if name != "top":
            raise DefinitionError(
                f"top(explode=True, name={name!r}): each entry is a row, so there is no list to name; leave "
                "out name"
            )
        results = self.aggregate(**{RANKED: ranking})
        return replace(results, node=build_ranked_rows(results.node, results.windowing))

    def _one(self, call: str, name: str | None, column: IntoExpr, aggregate: aggregates.Reduction) -> Stream:
        """An aggregation of one column, which gives its name to the result."""
        [own_name], _ = parse_arguments(call, [column], None)
        return self.aggregate(**{name or own_name: aggregate})
