"""Aggregate functions over the rows of a match: a list of values in, one value out."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

Values = list[Any]


def _known(values: Values) -> Values:
    return [value for value in values if value is not None]


def _unless_none(fn: Callable[[Values], Any], least: int = 1) -> Callable[[Values], Any]:
    return lambda values: fn(known) if len(known := _known(values)) >= least else None


REDUCTIONS: dict[type[exp.Expr], Callable[[Values], Any]] = {
    exp.Count: lambda values: len(_known(values)),
    exp.Sum: _unless_none(sum),
    exp.Avg: _unless_none(lambda values: sum(values) / len(values)),
    exp.Min: _unless_none(min),
    exp.Max: _unless_none(max),
    exp.Stddev: _unless_none(statistics.stdev, 2),
    exp.StddevSamp: _unless_none(statistics.stdev, 2),
    exp.StddevPop: _unless_none(statistics.pstdev),
    exp.Variance: _unless_none(statistics.variance, 2),
    exp.VariancePop: _unless_none(statistics.pvariance),
    exp.ArrayAgg: lambda values: values or None,
    exp.LogicalAnd: _unless_none(all),
    exp.LogicalOr: _unless_none(any),
    exp.CountIf: lambda values: sum(value is True for value in values),
    exp.AnyValue: _unless_none(lambda values: values[0]),
}
"""By the name in SQL; nulls do not count, but ARRAY_AGG keeps them."""

PAIRED: dict[type[exp.Expr], Callable[[list[tuple[Any, Any]]], Any]] = {
    exp.ArgMax: lambda pairs: max(pairs, key=lambda pair: pair[1])[0],
    exp.ArgMin: lambda pairs: min(pairs, key=lambda pair: pair[1])[0],
}
"""MAX_BY and MIN_BY: the one value where the other is greatest or least."""


def joined(values: Values, separator: str) -> str | None:
    """Texts one after the other, as STRING_AGG and LISTAGG make them."""
    known = _known(values)
    return separator.join(map(str, known)) if known else None


def type_of(kind: type[exp.Expr], inner: pl.DataType) -> pl.DataType:
    """The type of an aggregate of values of a type."""
    if kind in (exp.Count, exp.CountIf):
        return pl.Int64()
    if kind in (exp.LogicalAnd, exp.LogicalOr):
        return pl.Boolean()
    if kind is exp.ArrayAgg:
        return pl.List(inner)
    if kind is exp.Sum:
        return pl.Int64() if inner.is_integer() else inner
    return inner if kind in (exp.Min, exp.Max, exp.AnyValue, exp.ArgMax, exp.ArgMin) else pl.Float64()
