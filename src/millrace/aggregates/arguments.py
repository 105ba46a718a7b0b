"""What an aggregate is computed of: plain columns, or expressions and the condition under which a row counts.

A plain column is read as it is. Anything else becomes one column that a step before the aggregation
computes: null in the rows that do not count, since aggregates pass over nulls. So `sum(pl.col("a") * 2,
where=w)` is the sum of a column that is `a * 2` where `w` holds, and null elsewhere. Several expressions
become one struct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from millrace.errors import DefinitionError
from millrace.values import expressions
from millrace.values.calls import short_repr

IntoExpr: TypeAlias = str | pl.Expr
"""A column as users give it: its name, or an expression on the row."""


@dataclass(frozen=True, eq=False)
class Argument:
    """Expressions by their names, and which rows count. Without expressions, rows are counted."""

    values: Mapping[str, pl.Expr]
    where: pl.Expr | None = None

    def column(self, *, as_struct: bool = False) -> pl.Expr:
        """One value per row, null where the row does not count."""
        match list(self.values.values()):
            case []:
                value = pl.lit(value=True)
            case [single] if not as_struct:
                value = single
            case _:
                value = pl.struct([expr.alias(name) for name, expr in self.values.items()])
        return value if self.where is None else pl.when(self.where).then(value)

    @property
    def exprs(self) -> list[pl.Expr]:
        """All expressions."""
        return [*self.values.values(), *([] if self.where is None else [self.where])]

    @property
    def value_texts(self) -> dict[str, str]:
        """The expressions by their names, as users write them."""
        return {name: repr(name) if _is_name(expr) else str(expr) for name, expr in self.values.items()}

    @property
    def where_texts(self) -> list[str]:
        """The condition, where there is one, as users write it."""
        return [] if self.where is None else [f"where={self.where}"]


def to_text(column: object) -> str:
    """A column or expression in a text for people."""
    return str(column) if isinstance(column, pl.Expr) else repr(column)


def parse_arguments(
    call: str, columns: Sequence[IntoExpr | None], where: IntoExpr | None
) -> tuple[tuple[str, ...], Argument | None]:
    """The names of the values, and the argument where they are not plain columns."""
    exprs = [_to_expr(call, column) for column in columns if column is not None]
    names = [_name_of(call, expr) for expr in exprs]
    condition = None if where is None else _to_condition(call, where)
    if condition is None and all(map(_is_name, exprs)):
        return tuple(names), None
    values: dict[str, pl.Expr] = {}
    for name, expr in zip(names, exprs, strict=True):
        if not expr.meta.eq(values.setdefault(name, expr)):
            raise DefinitionError(
                f"{call}: two different values are called {name!r}; name one of them with .alias(...)"
            )
    return tuple(names), Argument(values, condition)


def _is_name(expr: pl.Expr) -> bool:
    return expr.meta.is_column() and not expr.meta.has_multiple_outputs()


def _to_expr(call: str, column: Any) -> pl.Expr:
    if not isinstance(column, str | pl.Expr) and not hasattr(column, "otherwise"):
        raise DefinitionError(
            f"{call}: {short_repr(column)} is not a column; use its name, or an expression such as "
            "pl.col('speed') * 3.6"
        )
    [expr] = expressions.to_expressions(call, [column])
    if expr.meta.has_multiple_outputs():
        raise DefinitionError(f"{call}: {expr} is several columns, and one is needed; name it")
    return expr


def _name_of(call: str, expr: pl.Expr) -> str:
    name = expr.meta.output_name(raise_if_undetermined=False)
    if name is None:
        raise DefinitionError(f"{call}: {expr} has no name of its own; give it one with .alias(...)")
    return name


def _to_condition(call: str, where: Any) -> pl.Expr:
    if not isinstance(where, str | pl.Expr | bool) and not hasattr(where, "otherwise"):
        raise DefinitionError(
            f"{call}: where={short_repr(where)} is not a condition; use an expression, such as "
            "pl.col('speed') > 3, and join several with &"
        )
    [condition] = expressions.to_expressions(call, [where])
    return condition
