"""Conditions on one row alone, as polars expressions: computed once for all rows, not once per attempt of the
search.

Only what gives the same answer in both forms is vectorized. Polars and SQL differ in NaN (equal to itself in
polars) and in the overflow of whole numbers; the comparison and arithmetic here correct the first and avoid
the second. All else returns None, and the condition stays a Python function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import polars as pl
from sqlglot import exp

from millrace.patterns.sql.scalars import BINARY_OPERATORS

_BINARY: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    **BINARY_OPERATORS,
    exp.And: operator.and_,
    exp.Or: operator.or_,
}
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_BITS_OF_TYPE: dict[Any, int] = {pl.Int64: 63, pl.Int32: 31}
MAX_BITS = 126
"""Whole numbers are computed in 128 bits, if the answer certainly fits."""


def to_column_expression(node: exp.Expr, schema: pl.Schema, own: str) -> pl.Expr | None:
    """A condition of the variable `own` as an expression; None where it reads more than its row,
    or has no exact equivalent.
    """
    match node:
        case exp.Paren():
            return to_column_expression(node.this, schema, own)
        case exp.Column():
            return _column(node, schema, own)
        case exp.Boolean() | exp.Literal():
            return _literal(node)
        case exp.Neg(this=exp.Literal(is_string=False)):
            inner = to_column_expression(node.this, schema, own)
            return None if inner is None else -inner
        case exp.Not() | exp.Is():
            inner = to_column_expression(node.this, schema, own)
            if inner is None or (isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null)):
                return None
            return inner.is_null() if isinstance(node, exp.Is) else ~inner
        case exp.Between():
            return _between(node, schema, own)
        case exp.In() if not node.args.get("query"):
            return _in_list(node, schema, own)
    if type(node) not in _BINARY:
        return None
    left, right = (
        to_column_expression(node.this, schema, own),
        to_column_expression(node.expression, schema, own),
    )
    if left is None or right is None:
        return None
    if isinstance(node, _COMPARISONS):
        return _compare(type(node), schema, left, right)
    return (
        _compute(node, schema, left, right)
        if isinstance(node, _ARITHMETIC)
        else _apply_operator(type(node), left, right)
    )


def _literal(node: exp.Boolean | exp.Literal) -> pl.Expr:
    if isinstance(node, exp.Boolean):
        return pl.lit(bool(node.this))
    text = str(node.this)
    return pl.lit(text if node.is_string else int(text) if text.isdigit() else float(text))


def _between(node: exp.Between, schema: pl.Schema, own: str) -> pl.Expr | None:
    value, low, high = (
        to_column_expression(one, schema, own) for one in (node.this, node.args["low"], node.args["high"])
    )
    if value is None or low is None or high is None:
        return None
    return _compare(exp.GTE, schema, value, low) & _compare(exp.LTE, schema, value, high)


def _in_list(node: exp.In, schema: pl.Schema, own: str) -> pl.Expr | None:
    value, listed = (
        to_column_expression(node.this, schema, own),
        [to_column_expression(one, schema, own) for one in node.expressions],
    )
    items = [one for one in listed if one is not None]
    if value is None or len(items) < len(listed):
        return None
    return reduce(operator.or_, (_compare(exp.EQ, schema, value, one) for one in items))


def _apply_operator(kind: type[exp.Expr], left: pl.Expr, right: pl.Expr) -> pl.Expr:
    return _BINARY[kind](left, right)  # type: ignore[no-any-return] # polars answers with an expression


def _compare(kind: type[exp.Expr], schema: pl.Schema, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """A comparison in which NaN is not equal to, less than or greater than anything.
    Polars takes it for the greatest number.
    """
    compared = _apply_operator(kind, left, right)
    types = _types(schema, left, right)
    numbers = [~side.is_nan() for side, dtype in zip((left, right), types, strict=True) if dtype.is_float()]
    if not numbers:
        return compared
    are_numbers = pl.when(compared.is_not_null()).then(reduce(operator.and_, numbers))
    return compared | ~are_numbers if kind is exp.NEQ else compared & are_numbers


def _compute(node: exp.Expr, schema: pl.Schema, left: pl.Expr, right: pl.Expr) -> pl.Expr | None:
    """Arithmetic on floats, or on whole numbers whose result certainly fits into
    128 bits; None for other types.
    """
    types = _types(schema, left, right)
    if all(one.is_integer() for one in types):
        bits = _count_bits(node, schema)
        return (
            None
            if bits is None or bits > MAX_BITS
            else _apply_operator(type(node), left.cast(pl.Int128), right.cast(pl.Int128))
        )
    return (
        _apply_operator(type(node), left, right)
        if all(one in (*_BITS_OF_TYPE, pl.Float64, pl.Float32) for one in types)
        else None
    )


def _count_bits(node: exp.Expr, schema: pl.Schema) -> int | None:
    """The bits that a whole number may need besides its sign; None where that is not known."""
    match node:
        case exp.Paren() | exp.Neg():
            return _count_bits(node.this, schema)
        case exp.Literal():
            return int(node.this).bit_length() if str(node.this).isdigit() else None
        case exp.Column():
            column = _find_column(str(node.this.this), schema)
            return None if column is None else _BITS_OF_TYPE.get(schema[column].base_type())
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = _count_bits(node.this, schema), _count_bits(node.expression, schema)
            if left is None or right is None:
                return None
            return left + right if isinstance(node, exp.Mul) else max(left, right) + 1
    return None


def _column(node: exp.Column, schema: pl.Schema, own: str) -> pl.Expr | None:
    table, name = node.args.get("table"), str(node.this.this)
    if table is not None and (table.this if table.args.get("quoted") else str(table.this).upper()) != own:
        return None
    column = _find_column(name, schema)
    return None if column is None else pl.col(column)


def _find_column(name: str, schema: pl.Schema) -> str | None:
    found = [one for one in schema if one == name] or [one for one in schema if one.lower() == name.lower()]
    return found[0] if found else None


def _types(schema: pl.Schema, *sides: pl.Expr) -> list[pl.DataType]:
    return schema.to_frame().select(side.alias(f"s{i}") for i, side in enumerate(sides)).dtypes
