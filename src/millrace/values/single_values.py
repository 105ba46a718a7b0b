"""Decimals, dates, times and categories from values of Python: exactly, or ValueError with the reason."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, TypeVar

import polars as pl

T = TypeVar("T")
_SECONDS = re.compile(r"-?\d+(\.\d{1,6})?s", re.ASCII)
_CONVERTED_TYPES = (pl.Decimal, pl.Date, pl.Time, pl.Duration, pl.Enum, pl.Categorical)
_WHOLE_NUMBER = re.compile(r"-?\d+", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIDNIGHT, _MILLI = time(), timedelta(milliseconds=1)


def is_exact_type(dtype: Any) -> bool:
    """Whether `convert` knows the type."""
    return isinstance(dtype, _CONVERTED_TYPES) or (isinstance(dtype, pl.Datetime) and dtype.time_unit != "ms")


def convert(value: Any, dtype: Any) -> Any:
    """A value that is not None as one of the column's type."""
    if isinstance(dtype, pl.Decimal):
        return to_decimal(value, dtype)
    if isinstance(dtype, pl.Date):
        return to_date(value)
    if isinstance(dtype, pl.Time):
        return to_time(value)
    if isinstance(dtype, pl.Duration):
        return to_duration(value, dtype)
    return to_moment(value, dtype) if isinstance(dtype, pl.Datetime) else to_category(value, dtype)


def to_decimal(value: Any, dtype: pl.Decimal) -> Decimal:
    """A float counts as the shortest number that it is read from, as it is printed."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("it is not a number")  # noqa: TRY004 - a wrong value, like the others
    exact = Context(prec=dtype.precision or 38, traps=[Inexact, InvalidOperation])
    try:
        return Decimal(repr(value) if isinstance(value, float) else value).quantize(
            Decimal(1).scaleb(-dtype.scale), context=exact
        )
    except (Inexact, InvalidOperation) as error:
        raise ValueError("it has too many digits, or is not a number") from error


def to_category(value: Any, dtype: Any) -> str:
    """The text of a category; members of Python enums count as their values."""
    text = value.value if isinstance(value, enum.Enum) else value
    if not isinstance(text, str) or (isinstance(dtype, pl.Enum) and text not in dtype.categories):
        raise ValueError("it is none of the categories")
    return text


def _parse(parse: Callable[[str], T], text: str, example: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{error}; write it like {example}") from error


def to_date(value: Any) -> date:
    """A date, text as 2024-05-31, or a datetime at midnight."""
    if isinstance(value, str):
        return _parse(date.fromisoformat, value, "2024-05-31")
    if isinstance(value, datetime) and value.timetz() == _MIDNIGHT:
        return value.date()
    if type(value) is not date:
        raise ValueError("it is not a date")
    return value


def to_time(value: Any) -> time:
    """A time of day without a zone, or text as 08:15:00."""
    at = _parse(time.fromisoformat, value, "08:15:00") if isinstance(value, str) else value
    if not isinstance(at, time) or at.tzinfo is not None:
        raise ValueError("it is not a time of day without a zone")
    return at


def to_duration(value: Any, dtype: pl.Duration) -> timedelta:
    """A timedelta, or text as "3.5s"."""
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        seconds = Decimal(value[:-1])
        value = timedelta(microseconds=int(seconds * 1_000_000))
    if not isinstance(value, timedelta):
        raise ValueError("it is neither a timedelta nor text such as '3.5s'")  # noqa: TRY004 - a wrong value
    if dtype.time_unit == "ms" and value % _MILLI:
        raise ValueError("it is finer than a millisecond")
    return value


def to_moment(value: Any, dtype: pl.Datetime) -> datetime:
    """A datetime, whole milliseconds, or ISO 8601 text; without a zone it is UTC."""
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, str):
        at = _parse(datetime.fromisoformat, value, "2024-05-31T08:15:00Z")
    else:
        at = _EPOCH + value * _MILLI if type(value) is int else value
    if not isinstance(at, datetime):
        raise ValueError("it is neither a datetime, whole milliseconds nor ISO 8601 text")  # noqa: TRY004 - a wrong value
    moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return moment if dtype.time_zone else moment.replace(tzinfo=None)
