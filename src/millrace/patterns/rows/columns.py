"""Conditions that look at one row alone, as polars expressions: computed once for all rows instead of once for every try."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import polars as pl
from sqlglot import exp

_BINARY: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.And: operator.and_,
    exp.Or: operator.or_,
}
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)


def columnar(node: exp.Expr, schema: pl.Schema, own: str) -> pl.Expr | None:
    """The expression that answers a condition of the variable `own` by columns, if it asks nothing but the row itself."""
    match node:
        case exp.Paren():
            return columnar(node.this, schema, own)
        case exp.Column():
            return _column(node, schema, own)
        case exp.Boolean():
            return pl.lit(bool(node.this))
        case exp.Literal():
            text = str(node.this)
            return pl.lit(text if node.is_string else int(text) if text.isdigit() else float(text))
        case exp.Neg(this=exp.Literal(is_string=False)):
            inner = columnar(node.this, schema, own)
            return None if inner is None else -inner
        case exp.Not() | exp.Is():
            inner = columnar(node.this, schema, own)
            if inner is None or (isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null)):
                return None
            return inner.is_null() if isinstance(node, exp.Is) else ~inner
        case exp.Between():
            three = [columnar(one, schema, own) for one in (node.this, node.args["low"], node.args["high"])]
            value, low, high = three
            return None if value is None or low is None or high is None else (value >= low) & (value <= high)
        case exp.In() if not node.args.get("query"):
            value, listed = columnar(node.this, schema, own), [columnar(one, schema, own) for one in node.expressions]
            known = [one for one in listed if one is not None]
            return None if value is None or len(known) < len(listed) else reduce(operator.or_, (value == one for one in known))
    if type(node) not in _BINARY:
        return None
    left, right = columnar(node.this, schema, own), columnar(node.expression, schema, own)
    if left is None or right is None or (isinstance(node, _ARITHMETIC) and not _numbers(schema, left, right)):
        return None
    return _BINARY[type(node)](left, right)  # type: ignore[no-any-return] # polars answers with an expression


def _column(node: exp.Column, schema: pl.Schema, own: str) -> pl.Expr | None:
    table, name = node.args.get("table"), str(node.this.this)
    if table is not None and (table.this if table.args.get("quoted") else str(table.this).upper()) != own:
        return None
    found = [one for one in schema if one == name] or [one for one in schema if one.lower() == name.lower()]
    return pl.col(found[0]) if found else None


def _numbers(schema: pl.Schema, *sides: pl.Expr) -> bool:
    """Whether both sides are numbers that cannot overflow unlike those of Python."""
    types = schema.to_frame().select(side.alias(f"s{i}") for i, side in enumerate(sides)).dtypes
    return all(one.is_float() for one in types) or all(one in (pl.Int64, pl.Int32, pl.Float64, pl.Float32) for one in types)
