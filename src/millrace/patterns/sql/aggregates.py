"""Aggregate functions over the values of the rows of a match."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

Values = list[Any]


def _without_nulls(values: Values) -> Values:
    return [value for value in values if value is not None]


def _null_below(reduce: Callable[[Values], Any], min_count: int = 1) -> Callable[[Values], Any]:
    return lambda values: reduce(present) if len(present := _without_nulls(values)) >= min_count else None


REDUCTIONS: dict[type[exp.Expr], Callable[[Values], Any]] = {
    exp.Count: lambda values: len(_without_nulls(values)),
    exp.Sum: _null_below(sum),
    exp.Avg: _null_below(lambda values: sum(values) / len(values)),
    exp.Min: _null_below(min),
    exp.Max: _null_below(max),
    exp.Stddev: _null_below(statistics.stdev, 2),
    exp.StddevSamp: _null_below(statistics.stdev, 2),
    exp.StddevPop: _null_below(statistics.pstdev),
    exp.Variance: _null_below(statistics.variance, 2),
    exp.VariancePop: _null_below(statistics.pvariance),
    exp.ArrayAgg: lambda values: values or None,
    exp.LogicalAnd: _null_below(all),
    exp.LogicalOr: _null_below(any),
    exp.CountIf: lambda values: sum(value is True for value in values),
    exp.AnyValue: _null_below(lambda values: values[0]),
}
"""Nulls are ignored, except by ARRAY_AGG."""

PAIR_REDUCTIONS: dict[type[exp.Expr], Callable[[list[tuple[Any, Any]]], Any]] = {
    exp.ArgMax: lambda pairs: max(pairs, key=lambda pair: pair[1])[0],
    exp.ArgMin: lambda pairs: min(pairs, key=lambda pair: pair[1])[0],
}
"""MAX_BY and MIN_BY: the first value of the pair whose second is greatest or least."""


def join_texts(values: Values, separator: str) -> str | None:
    """STRING_AGG and LISTAGG."""
    present = _without_nulls(values)
    return separator.join(map(str, present)) if present else None


def type_of(kind: type[exp.Expr], inner: pl.DataType) -> pl.DataType:
    """The result type of an aggregate over values of type `inner`."""
    if kind in (exp.Count, exp.CountIf):
        return pl.Int64()
    if kind in (exp.LogicalAnd, exp.LogicalOr):
        return pl.Boolean()
    if kind is exp.ArrayAgg:
        return pl.List(inner)
    if kind is exp.Sum:
        return pl.Int64() if inner.is_integer() else inner
    return inner if kind in (exp.Min, exp.Max, exp.AnyValue, exp.ArgMax, exp.ArgMin) else pl.Float64()
