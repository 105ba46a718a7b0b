"""Values and columns from outside as whole milliseconds since the epoch, and columns as the type of a topic
wants them.

Every entrance uses these rules. A whole number counts milliseconds. A datetime counts in its own unit and
time zone; one without a zone is UTC. Text is ISO 8601 with an offset. What cannot be converted exactly is
refused.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

import polars as pl
import pyarrow as pa

from millrace.errors import InputError
from millrace.values import exact_columns, single_values

TimeDomain: TypeAlias = Literal["event", "processing"]
"""Which time moves something: that of events, by the watermark, or the clock's."""

MIN_TIME, MAX_TIME = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: the times that a protobuf Timestamp can hold."""

_YEAR_2000, _YEAR_2100 = 946_684_800_000, 4_102_444_800_000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_DAY = 86_400_000


def value_to_millis(value: Any, *, unit: int = 1, exact: bool = True) -> int:
    """One value in milliseconds; ValueError says what is wrong with it.

    `unit`: how many milliseconds a number counts. Without `exact`, what is finer than a millisecond is
    rounded down.
    """
    if isinstance(value, bool):
        raise ValueError("true and false are not times")  # noqa: TRY004 - a wrong value, like the others
    if isinstance(value, int):
        return value * unit
    if isinstance(value, float | Decimal):
        return _to_whole_millis(value, unit)
    if isinstance(value, datetime):
        return _from_datetime(value if value.tzinfo else value.replace(tzinfo=UTC), exact=exact)
    if isinstance(value, date):
        return _from_datetime(datetime(value.year, value.month, value.day, tzinfo=UTC), exact=exact)
    if isinstance(value, str):
        return _parse_text(value.strip(), unit, exact=exact)
    if hasattr(value, "item") and not isinstance(value.item(), type(value)):  # a scalar of numpy
        return value_to_millis(value.item(), unit=unit, exact=exact)
    raise ValueError("it is neither a number, a datetime nor text")


def scale(value: Any, unit: int) -> Any:
    """A number of `unit`, also as text, in milliseconds; other values unchanged."""
    is_text = isinstance(value, str) and _NUMBER.fullmatch(value.strip()) is not None
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return value_to_millis(value, unit=unit, exact=False) if is_text or is_number else value


class EarlyTimes(NamedTuple):
    """How many times of a column are before the year 2000, and one of them."""

    rows: int
    example: int

    def describe(self, name: str) -> str:
        """In one sentence, with the likely cause."""
        shown = to_datetime(self.example).strftime("%Y-%m-%d %H:%M:%S")
        cause = suggest_unit(self.example) or "; check that it is the right column, in the right unit"
        return f"{name}: {self.rows:,} before the year 2000, such as {shown}{cause}"


def find_early(column: pl.Series, *, only_seconds: bool = False) -> EarlyTimes | None:
    """The times before 2000 in a column of milliseconds or datetimes.

    `only_seconds`: only those that come from counting seconds as milliseconds, for columns in which early
    times may well be meant, such as dates of birth.
    """
    times = column if column.dtype == pl.Int64 else column.dt.epoch("ms")
    earliest = times.min()
    if not isinstance(earliest, int) or earliest >= _YEAR_2000:
        return None
    is_early = (
        times.is_between(_YEAR_2000 // 1000, _YEAR_2100 // 1000) if only_seconds else times < _YEAR_2000
    )
    early = times.filter(is_early & times.is_between(MIN_TIME, MAX_TIME))
    return EarlyTimes(len(early), early[0]) if len(early) else None


def suggest_unit(millis: int) -> str:
    """What to do with a number that is a time of our days in another unit; empty if it is none."""
    for change, other in (("multiplied", millis * 1000), ("divided", millis // 1000)):
        if _YEAR_2000 <= other < _YEAR_2100:
            shown = to_datetime(other).strftime("%Y-%m-%d %H:%M:%S")
            return f"; numbers count milliseconds, and {change} by 1000 it would be {shown}"
    return ""


def to_datetime(millis: int) -> datetime:
    """A time within the years 1 to 9999, as Python has it."""
    return _EPOCH + millis * _MILLI


def is_in_range(millis: int) -> bool:
    """Whether a calendar has this time."""
    return MIN_TIME <= millis <= MAX_TIME


def to_millis(column: pl.Series) -> pl.Series:
    """A column of times as whole milliseconds (Int64);
    InputError names the column, a value and the remedy.
    """
    dtype = column.dtype
    if dtype.is_integer():
        return _cast_exactly(column, pl.Int64(), "whole milliseconds that fit 64 bits")
    if isinstance(dtype, pl.Datetime):
        per = _PER_MILLI[dtype.time_unit]
        ticks = column.to_physical()
        _refuse_where(
            column, ticks % per != 0, "is finer than a millisecond", 'round it down with .dt.truncate("1ms")'
        )
        return ticks // per
    if dtype == pl.Date:
        return column.to_physical().cast(pl.Int64) * _DAY
    if dtype.is_float() or isinstance(dtype, pl.Decimal):
        whole = column.cast(pl.Int64, strict=False)
        _refuse_where(
            column,
            whole.cast(dtype) != column,
            "is not a whole millisecond",
            "round it, or multiply seconds by 1000",
        )
        _refuse_where(
            column, whole.is_null() & column.is_not_null(), "is not a time", "give whole milliseconds"
        )
        return whole
    if dtype == pl.String or dtype == pl.Object:
        return pl.Series(
            column.name, [_parse_in_column(column.name, value) for value in column.to_list()], pl.Int64
        )
    if dtype == pl.Null:
        return column.cast(pl.Int64)
    raise InputError(
        f"column {column.name!r} is {dtype}, which is not a time; give a datetime, whole milliseconds or "
        "ISO 8601 text"
    )


def check_micros(column: pl.Series) -> None:
    """InputError where a value is finer than a microsecond, which a time in plain Python cannot be."""
    dtype = column.dtype
    if dtype == pl.Time or (isinstance(dtype, pl.Datetime | pl.Duration) and dtype.time_unit == "ns"):
        too_fine = (column.to_physical() % 1_000 != 0).fill_null(value=False).arg_true()
        if len(too_fine):
            shown = column.gather(too_fine[:1]).dt.to_string("iso").item()
            remedy = (
                ".cast(pl.Int64)"
                if dtype == pl.Time
                else '.dt.truncate("1us"), or count it with .to_physical()'
            )
            raise InputError(
                f"column {column.name!r}: {shown} in row {too_fine[0]} is finer than a microsecond, and "
                f"would be cut; use {remedy}"
            )


def fit_column(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """A column as the type of a topic wants it; InputError names the column, a value and the remedy."""
    current = column.dtype
    if current == dtype:
        return column
    if isinstance(dtype, pl.Datetime) and dtype.time_unit == "ms" and not isinstance(current, pl.Null):
        return to_millis(column).cast(pl.Datetime("ms")).dt.replace_time_zone("UTC").cast(dtype)
    is_text = current in (pl.String, pl.Object)
    if single_values.is_exact_type(dtype) and (is_text or (current.is_float() and dtype.is_decimal())):
        return _convert_values(column, dtype)
    if exact_columns.is_cut_by_polars(current) and exact_columns.is_cut_by_polars(dtype):
        return _cast_by_arrow(column, dtype)
    if current.is_temporal() and not dtype.is_temporal():
        if dtype.is_integer() and isinstance(current, pl.Datetime | pl.Date):
            return _cast_exactly(to_millis(column), dtype, f"{dtype}")
        raise InputError(f"column {column.name!r} is {current}, and the field is {dtype}; convert it before")
    if isinstance(dtype, pl.Struct) and isinstance(current, pl.Struct):
        return _fit_struct(column, dtype)
    if isinstance(dtype, pl.List) and isinstance(current, pl.List) and not _is_number(dtype.inner):
        return _fit_list(column, dtype)
    return _cast_exactly(column, dtype, f"{dtype}")


def _convert_values(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Text and floats, value by value: polars rounds them to decimals, and casts no text to times."""
    values: list[Any] = column.to_list()
    for row, value in enumerate(values):
        try:
            values[row] = None if value is None else single_values.convert(value, dtype)
        except ValueError as error:
            raise InputError(
                f"column {column.name!r}: {value!r} in row {row} is not exactly a value of {dtype}: {error}; "
                "convert or remove it"
            ) from error
    return pl.Series(column.name, values, dtype)


def _cast_by_arrow(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    try:
        return exact_columns.to_exact(column, dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"column {column.name!r} is {column.dtype} and holds values that are not exactly of {dtype}: "
            f"{error}; round them, or change the field's type"
        ) from error


def _fit_struct(column: pl.Series, dtype: pl.Struct) -> pl.Series:
    parts = column.struct.unnest()
    fields = [
        fit_column(parts[field.name].rename(f"{column.name}.{field.name}"), field.dtype).rename(field.name)  # type: ignore[arg-type]
        if field.name in parts.columns
        else pl.Series(field.name, [None] * len(column), field.dtype)
        for field in dtype.fields
    ]
    struct = pl.DataFrame(fields).to_struct(column.name)
    return pl.select(pl.when(column.is_not_null()).then(struct).alias(column.name)).to_series()


def _fit_list(column: pl.Series, dtype: pl.List) -> pl.Series:
    """Fits all items at once, as the column `name[]`."""
    has_items = (column.list.len() > 0).fill_null(value=False)
    row = pl.Series("row", range(len(column)), pl.Int64)
    items = pl.DataFrame({"row": row, "item": column}).filter(has_items).explode("item")
    fitted = fit_column(items["item"].rename(f"{column.name}[]"), dtype.inner)  # type: ignore[arg-type]
    lists = items.select("row", fitted.alias("item")).group_by("row", maintain_order=True).agg("item")
    empty = pl.Series("item", [[]], pl.List(dtype.inner))
    rows = pl.DataFrame({"row": row, "is_null": column.is_null()}).join(lists, on="row", how="left")
    item = pl.when("is_null").then(None).otherwise(pl.col("item").fill_null(pl.lit(empty)))
    return rows.sort("row").select(item.alias(column.name)).to_series().cast(dtype)


def _is_number(dtype: Any) -> bool:
    leaf = _leaf_dtype(dtype)
    return bool(leaf.is_integer() or leaf.is_float() or leaf in (pl.Boolean, pl.String, pl.Binary))


def _cast_exactly(column: pl.Series, dtype: pl.DataType, expected: str) -> pl.Series:
    """Casts, and refuses a value that would come out as another one."""
    if column.dtype == dtype:
        return column
    try:
        result = column.cast(dtype)
    except (pl.exceptions.PolarsError, OverflowError) as error:
        failing = _find_uncastable(column, dtype)
        shown = f" such as {failing[0]!r}" if len(failing) else ""
        raise InputError(
            f"column {column.name!r} is {column.dtype} and holds values{shown} that are not {expected}; "
            "convert or remove them"
        ) from error
    if dtype == pl.Boolean and _is_plain(column):
        _refuse_where(
            column,
            result.cast(column.dtype, strict=False) != column,
            "is neither true nor false",
            "convert it before",
        )
    elif _leaf_dtype(column.dtype).is_float() and _leaf_dtype(dtype).is_float():
        if _is_plain(column):
            _refuse_where(
                column,
                column.is_finite() & ~result.is_finite(),
                f"does not fit {expected}",
                "scale or remove it",
            )
    elif _leaf_dtype(column.dtype).is_numeric() and _leaf_dtype(dtype).is_numeric():
        changed = result.cast(column.dtype, strict=False).ne_missing(column)
        _refuse_where(
            column, changed, f"is not exactly a value of {expected}", "round it, or change the field's type"
        )
    return result


def _find_uncastable(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """The values that a cast loses; all of them where there is no such cast."""
    try:
        return (
            column.filter(column.is_not_null() & column.cast(dtype, strict=False).is_null())
            if _is_plain(column)
            else column
        )
    except pl.exceptions.PolarsError:
        return column.drop_nulls()


def _leaf_dtype(dtype: Any) -> Any:
    while isinstance(dtype, pl.List | pl.Array):
        dtype = dtype.inner
    return dtype


def _is_plain(column: pl.Series) -> bool:
    return not column.dtype.is_nested()


def _refuse_where(column: pl.Series, is_wrong: pl.Series, problem: str, remedy: str) -> None:
    rows = is_wrong.fill_null(value=False).arg_true()
    if len(rows):
        raise InputError(
            f"column {column.name!r}: {str(column[rows[0]])!r} in row {rows[0]} {problem}; {remedy}"
        )


def _parse_in_column(name: str, value: Any) -> int | None:
    try:
        return None if value is None else value_to_millis(value)
    except (ValueError, OverflowError) as error:
        raise InputError(f"column {name!r}: {str(value)[:100]!r} is not a time: {error}") from error


def _to_whole_millis(value: float | Decimal, unit: int) -> int:
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("it is not a number")
    if unit == 1:
        if value != int(value):
            raise ValueError(
                "it is not a whole number of milliseconds; round it, or give seconds with unit 's'"
            )
        return int(value)
    return round(value * unit)


def _parse_text(text: str, unit: int, *, exact: bool) -> int:
    digits = text.removeprefix("-").removeprefix("+")
    if digits.isascii() and digits.isdigit():
        return int(text) * unit
    if digits.isascii() and digits.replace(".", "", 1).isdigit():
        return _to_whole_millis(Decimal(text), unit)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            "it is neither a number nor ISO 8601 text; write it like 2020-09-21T03:00:00Z"
        ) from error
    if at.tzinfo is None:
        raise ValueError("it has no offset from UTC; write it like 2020-09-21T03:00:00Z")
    return _from_datetime(at, exact=exact)


def _from_datetime(at: datetime, *, exact: bool) -> int:
    since = at - _EPOCH
    if exact and since % _MILLI:
        raise ValueError("it is finer than a millisecond; round it down to one")
    return since // _MILLI
