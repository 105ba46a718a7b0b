"""Columns and expressions as users write them: names, lists and polars expressions become one flat list.

Batches may be cut anywhere, so an expression must be elementwise: the sum of `amount` over one batch of three
rows differs from the sums over two batches of them. Expressions that look across rows are refused when the
job is defined.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import polars as pl

from millrace.errors import DefinitionError, InputError
from millrace.values import selections
from millrace.values.columns import JUDGED, MADE, MADE_PREFIX

DType: TypeAlias = pl.DataType | type
"""The type of a column: one of polars, or a plain type of Python."""
IntoExpr: TypeAlias = str | pl.Expr
_CONSTANT_TYPES = (bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal)
_REMEDY = (
    "use an operator that keeps state: .window(...).group_by(...).aggregate(...) for sums, counts, ranks "
    "and unique values, .group_by(...).over(...) for earlier rows and running sums, .deduplicate(...) for "
    "copies; a function given to map_batches needs is_elementwise=True"
)


def flatten(arguments: Iterable[Any]) -> list[Any]:
    """The arguments as one list; lists, tuples and generators among them are flattened."""
    flat: list[Any] = []
    for argument in arguments:
        is_group = isinstance(argument, Iterable) and not isinstance(
            argument, str | bytes | pl.Expr | pl.Series | pl.DataFrame | Mapping
        )
        flat.extend(flatten(argument) if is_group else [argument])
    return flat


def to_expressions(
    method: str, columns: Iterable[Any], named: Mapping[str, Any] | None = None
) -> list[pl.Expr]:
    """The arguments as expressions, by the rules of polars: text is a column, a plain value a constant."""
    unnamed = [_to_expression(method, argument, "") for argument in flatten(columns)]
    return [
        *unnamed,
        *(
            _to_expression(method, argument, f"{name}=").alias(name)
            for name, argument in (named or {}).items()
        ),
    ]


def to_conditions(method: str, arguments: Iterable[Any], equalities: Mapping[str, Any]) -> list[pl.Expr]:
    """The conditions of a filter: boolean columns and expressions, and columns equal to a plain value."""
    for name, value in equalities.items():
        if not isinstance(value, _CONSTANT_TYPES):
            raise DefinitionError(
                f"{method}({name}={value!r}): only plain values can be compared this way; give an "
                "expression without a name"
            )
    arguments = flatten(arguments)
    for argument in arguments:
        if not isinstance(argument, str | pl.Expr | bool):
            raise DefinitionError(
                f"{method}({argument!r}) is not a condition; use an expression, such as pl.col('speed') > 3"
            )
    return [
        *(_to_expression(method, argument, "") for argument in arguments),
        *(pl.col(name) == pl.lit(value) for name, value in equalities.items()),
    ]


def column_names(
    method: str,
    arguments: Iterable[Any],
    schema: pl.Schema,
    hidden: Collection[str],
    remedy: str = "with_columns(name=...) makes a column of it first",
) -> tuple[str, ...]:
    """The names of columns given as text, `pl.col("name")`, selectors, or lists of these. Selectors pass over
    the `hidden` columns.
    """
    found_names: list[str] = []
    for argument in flatten(arguments):
        if isinstance(argument, str):
            names: tuple[str, ...] = (argument,)
        elif not isinstance(argument, pl.Expr) or not argument.meta.is_column_selection():
            raise DefinitionError(f"{method}({short_text(argument)}) needs names of columns; {remedy}")
        elif argument.meta.has_multiple_outputs():
            names = selections.selected_names(argument, schema, hidden)
        else:
            names = (argument.meta.output_name(),)
        for name in names:
            check_column(f"{method}({name!r})", name, schema)
        found_names += names
    return tuple(found_names)


def check_column(call: str, name: str, known: Iterable[str]) -> None:
    """Refuses a column that is not there."""
    if name not in known:
        raise DefinitionError(f"{call}: {describe_unknown(name, known)}")


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """That there is no such column, the columns of the user, and the one that may be meant."""
    shown = [column for column in known if not column.startswith("_")]
    near = difflib.get_close_matches(name, shown, n=1, cutoff=0.5)
    return f"there is no column {name!r}; there are {', '.join(shown)}" + (
        f"; did you mean {near[0]!r}?" if near else ""
    )


def describe_columns(schema: Mapping[str, Any]) -> str:
    """The columns of the user with their types."""
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items() if not name.startswith("_"))


def check_elementwise(description: str, exprs: Iterable[pl.Expr], schema: Mapping[str, Any]) -> None:
    """Refuses expressions whose value for a row depends on other rows."""
    for expr in exprs:
        if not is_elementwise(expr, schema):
            raise DefinitionError(
                f"{description}: {short_text(expr)} looks across rows, so its value would depend on how "
                f"batches are cut; {_REMEDY}"
            )


def is_elementwise(expr: pl.Expr, schema: Mapping[str, Any]) -> bool:
    """Whether the value for a row depends on that row alone.

    The optimizer of polars knows: it moves a filter before an expression only if the expression does not
    depend on other rows. So the plan of the expression followed by a filter tells.
    (`Expr.meta.is_row_separable` looks only at the outermost function: it considers `x - x.mean()`
    separable.)
    """
    if _has_constant_aggregate(str(expr)):
        return False
    frame = pl.LazyFrame(schema={**schema, JUDGED: pl.Int64()})
    column = expr.name.prefix(MADE_PREFIX) if expr.meta.has_multiple_outputs() else expr.alias(MADE)
    plan = frame.with_columns(column).filter(pl.col(JUDGED) > 0).explain()
    projection_at = plan.find("WITH_COLUMNS")
    return projection_at < 0 or plan.find("FILTER") > projection_at or plan.find("SELECTION") > projection_at


def _has_constant_aggregate(text: str) -> bool:
    """Whether a list is aggregated to a constant: polars computes that per element, not per row."""
    for call in re.finditer(r"\.(?:list|arr)\.agg\(", text):
        depth, end = 1, call.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if not re.search(r"element\(\)|len\(\)", text[call.end() : end]):
            return True
    return False


def _to_expression(method: str, argument: Any, name: str) -> pl.Expr:
    if isinstance(argument, pl.Expr):
        return argument
    if isinstance(argument, str):
        return pl.col(argument)
    if isinstance(argument, _CONSTANT_TYPES):
        return pl.lit(argument)
    if argument is None:
        raise DefinitionError(
            f"{method}({name}None) has no type; use pl.lit(None, pl.String), or another type"
        )
    if hasattr(argument, "then") and hasattr(argument, "when"):
        return _to_expression(method, argument.otherwise(None), name)
    raise DefinitionError(
        f"{method}({name}{short_text(argument)}) is not a column; use its name, or a polars expression "
        "such as pl.col('speed') * 3.6"
    )


def short_text(value: object) -> str:
    """In one line of at most 120 characters."""
    text = " ".join((str(value) if isinstance(value, pl.Expr) else repr(value)).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def check_event_times(step: Callable[[pl.DataFrame], Any], text: str) -> Callable[[pl.DataFrame], Any]:
    """Checks the result of a step that may change `event_time`:
    a row without it would silently be in no window.
    """

    def checked_step(frame: pl.DataFrame) -> Any:
        result = step(frame)
        if (
            isinstance(result, pl.DataFrame)
            and "event_time" in result.columns
            and (nulls := result["event_time"].null_count())
        ):
            raise InputError(
                f"{text}: {nulls} rows have no event_time, so they belong to no window; "
                "filter them out or fill it"
            )
        return result

    return checked_step


def mix_bits(numbers: pl.Expr) -> pl.Expr:
    """Hashes of numbers (the finalizer of splitmix64): each bit depends on all bits, so any remainder is
    spread evenly.

    Times are often whole seconds or minutes. As multiples of 1,000 or 60,000 they would leave most buckets
    empty.
    """
    bits = numbers.cast(pl.Int64).reinterpret(signed=False)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits // 2**shift)) * pl.lit(factor, pl.UInt64)
    return bits ^ (bits // 2**31)
