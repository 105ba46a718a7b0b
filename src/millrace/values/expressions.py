"""Columns and expressions as a user gives them: names, lists and polars expressions become one flat list.

A row is judged by itself, because batches are cut anywhere: `total = sum("amount")` over a batch of three rows and over two batches would
be two answers. So expressions that look across rows are refused when the job is defined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import polars as pl

from millrace.errors import DefinitionError, InputError

IntoExpr: TypeAlias = str | pl.Expr
_PLAIN = (bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal)
_REMEDY = (
    "use an operator that keeps state: .window(...).by(...).aggregate(...) for sums, counts, ranks and unique values, "
    ".match(...) or .process(...) for earlier rows, .deduplicate(...) for copies; "
    "a function given to map_batches needs is_elementwise=True"
)


def flatten(given: Iterable[Any]) -> list[Any]:
    """The arguments with lists, tuples and generators of them opened."""
    found: list[Any] = []
    for one in given:
        is_group = isinstance(one, Iterable) and not isinstance(
            one, str | bytes | pl.Expr | pl.Series | pl.DataFrame | Mapping
        )
        found.extend(flatten(one) if is_group else [one])
    return found


def expressions(what: str, columns: Iterable[Any], named: Mapping[str, Any] | None = None) -> list[pl.Expr]:
    """What polars would make of the same arguments: text is a column, a plain value is a constant."""
    unnamed = [_expression(what, one, "") for one in flatten(columns)]
    return [
        *unnamed,
        *(_expression(what, one, f"{name}=").alias(name) for name, one in (named or {}).items()),
    ]


def conditions(what: str, given: Iterable[Any], equal: Mapping[str, Any]) -> list[pl.Expr]:
    """Conditions of a filter: boolean columns and expressions, and columns that equal a plain value."""
    for name, value in equal.items():
        if not isinstance(value, _PLAIN):
            raise DefinitionError(
                f"{what}({name}={value!r}): a column is compared with a plain value; give an expression without a name"
            )
    given = flatten(given)
    for one in given:
        if not isinstance(one, str | pl.Expr | bool):
            raise DefinitionError(
                f"{what}({one!r}) is not a condition; use an expression, such as pl.col('speed') > 3"
            )
    return [
        *(_expression(what, one, "") for one in given),
        *(pl.col(name) == pl.lit(value) for name, value in equal.items()),
    ]


def names(
    what: str, given: Iterable[Any], remedy: str = "with_columns(name=...) makes a column of it first"
) -> tuple[str, ...]:
    """Names of columns, given as text, as `pl.col("name")`, or as lists of these."""
    found: list[str] = []
    for one in flatten(given):
        is_column = isinstance(one, pl.Expr) and one.meta.is_column() and not one.meta.has_multiple_outputs()
        if not (isinstance(one, str) or is_column):
            raise DefinitionError(f"{what}({_shown(one)}) needs names of columns; {remedy}")
        found.append(one if isinstance(one, str) else one.meta.output_name())
    return tuple(found)


def check_elementwise(what: str, exprs: Iterable[pl.Expr], schema: Mapping[str, Any]) -> None:
    """Refuses expressions whose value for a row depends on other rows, which batches may or may not hold."""
    for expr in exprs:
        if not is_elementwise(expr, schema):
            raise DefinitionError(
                f"{what}: {_shown(expr)} looks across rows, so its value would depend on how batches are cut; {_REMEDY}"
            )


def is_elementwise(expr: pl.Expr, schema: Mapping[str, Any]) -> bool:
    """Whether the value for a row depends on that row alone.

    Polars' optimizer knows: it moves a filter before an expression only if the expression does not notice which rows are there.
    (`Expr.meta.is_row_separable` looks at the outermost function only: it takes `x - x.mean()` for separable.)
    """
    if _has_constant_aggregate(str(expr)):
        return False
    frame = pl.LazyFrame(schema={**schema, "_judged": pl.Int64()})
    made = expr.name.prefix("_made_") if expr.meta.has_multiple_outputs() else expr.alias("_made")
    plan = frame.with_columns(made).filter(pl.col("_judged") > 0).explain()
    place = plan.find("WITH_COLUMNS")
    return place < 0 or plan.find("FILTER") > place or plan.find("SELECTION") > place


def _has_constant_aggregate(text: str) -> bool:
    """Whether lists are aggregated to a constant, of which polars makes a value for each element, not for each row."""
    for call in re.finditer(r"\.(?:list|arr)\.agg\(", text):
        depth, end = 1, call.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if not re.search(r"element\(\)|len\(\)", text[call.end() : end]):
            return True
    return False


def _expression(what: str, one: Any, name: str) -> pl.Expr:
    if isinstance(one, pl.Expr):
        return one
    if isinstance(one, str):
        return pl.col(one)
    if isinstance(one, _PLAIN):
        return pl.lit(one)
    if one is None:
        raise DefinitionError(
            f"{what}({name}None) has no type; say which column it is: pl.lit(None, pl.String)"
        )
    if hasattr(one, "then") and hasattr(one, "when"):
        return _expression(what, one.otherwise(None), name)
    raise DefinitionError(
        f"{what}({name}{_shown(one)}) is not a column; use its name, or a polars expression such as pl.col('speed') * 3.6"
    )


def _shown(one: object) -> str:
    """In one line, and not endless."""
    text = " ".join((str(one) if isinstance(one, pl.Expr) else repr(one)).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def selecting(
    made: Sequence[pl.Expr], names: frozenset[str], stay: frozenset[str], internal: Collection[str]
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A step that keeps `made`, called `names`, and the columns that always `stay`; `pl.all()` is the columns that a user sees."""

    def select(frame: pl.DataFrame) -> pl.DataFrame:
        kept = [column for column in frame.columns if column in stay and column not in names]
        if not any(one.meta.has_multiple_outputs() for one in made):
            return frame.select(*made, *kept)
        hidden = frame.select(column for column in frame.columns if column in internal)
        return (
            frame.drop(hidden.columns)
            .select(*made, *(column for column in kept if column not in internal))
            .hstack(hidden)
        )

    return select


def adding(made: Sequence[pl.Expr], internal: Collection[str]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A step that adds or replaces columns."""

    def add(frame: pl.DataFrame) -> pl.DataFrame:
        if not any(one.meta.has_multiple_outputs() for one in made):
            return frame.with_columns(*made)
        hidden = frame.select(column for column in frame.columns if column in internal)
        return frame.drop(hidden.columns).with_columns(*made).hstack(hidden)

    return add


def timed(step: Callable[[pl.DataFrame], Any], text: str) -> Callable[[pl.DataFrame], Any]:
    """A step that may give rows another `event_time`: a row without one would be in no window, and refused by none."""

    def checked(frame: pl.DataFrame) -> Any:
        made = step(frame)
        if (
            isinstance(made, pl.DataFrame)
            and "event_time" in made.columns
            and (nulls := made["event_time"].null_count())
        ):
            raise InputError(
                f"{text}: {nulls} rows have no event_time, so they have no place in time; filter them out or fill it"
            )
        return made

    return checked


def mixed(numbers: pl.Expr) -> pl.Expr:
    """Numbers whose every bit depends on every bit of those given (the finalizer of splitmix64), so that any remainder is spread evenly.

    Times are often whole seconds or minutes: multiples of 1,000 or 60,000, whose remainders alone leave most buckets empty.
    """
    mixed = numbers.cast(pl.Int64).reinterpret(signed=False)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed // 2**shift)) * pl.lit(factor, pl.UInt64)
    return mixed ^ (mixed // 2**31)
