"""Columns whose values protobuf holds as text, or with another unit or zone: from stored columns to those
that users see, and back.

Reading says which rows hold text that is none of the type's values, such as 1.234 for `Decimal(10, 2)`.
Writing refuses what the type cannot hold exactly. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace.values import exact_columns

Rows = NDArray[np.int64]
_TIME_FORMAT = "%H:%M:%S%.f"
_NO_ROWS: Rows = np.empty(0, np.int64)


def parse_text(array: Any, dtype: Any) -> tuple[Any, Rows]:
    """A stored column as one of `dtype`, and the rows whose text is not one of its values.

    Enums stay text here, and times keep their unit and zone: polars casts those, and no value is lost.
    """
    if isinstance(dtype, pl.List):
        values, rows = parse_text(array.values, dtype.inner)
        parents = np.searchsorted(array.offsets.to_numpy(), rows, side="right") - 1
        mask = array.is_null() if array.null_count else None
        parsed = pa.ListArray.from_arrays(array.offsets, values, mask=mask)
        return parsed, np.unique(parents[(parents >= 0) & (parents < len(array))])
    if isinstance(dtype, pl.Struct):
        parsed_fields = [parse_text(array.field(field.name), field.dtype) for field in dtype.fields]
        mask = array.is_null() if array.null_count else None
        parsed = pa.StructArray.from_arrays(
            [field for field, _ in parsed_fields], names=[field.name for field in dtype.fields], mask=mask
        )
        return parsed, np.unique(np.concatenate([rows for _, rows in parsed_fields]))
    parse = _PARSERS.get(dtype.base_type())
    if parse is None:
        return array, _NO_ROWS
    parsed = parse(array, dtype)
    return parsed, np.flatnonzero(pc.and_(array.is_valid(), parsed.is_null()).to_numpy(zero_copy_only=False))


def to_stored(column: pl.Series, dtype: pl.DataType, stored: pl.DataType) -> pl.Series:
    """A column of a stream as it is stored; raises `pa.ArrowInvalid` or an error of polars for a value that
    `dtype` does not hold exactly.
    """
    exact = exact_columns.to_exact(column, dtype)
    return (
        exact.to_frame("")
        .select(_format_times(pl.col(""), dtype))
        .to_series()
        .cast(stored)
        .alias(column.name)
    )


def _format_times(values: pl.Expr, dtype: Any) -> pl.Expr:
    """Times of day as text at any depth: polars casts them without the fraction of a second."""
    if isinstance(dtype, pl.Time):
        return values.dt.to_string(_TIME_FORMAT)
    if isinstance(dtype, pl.List):
        return values.list.eval(_format_times(pl.element(), dtype.inner))
    if isinstance(dtype, pl.Struct):
        fields = [
            _format_times(values.struct.field(field.name), field.dtype).alias(field.name)
            for field in dtype.fields
        ]
        return pl.when(values.is_not_null()).then(pl.struct(fields))
    return values


def _parse_decimals(texts: Any, dtype: pl.Decimal) -> Any:
    """Where a record has no value, its text is empty: 0, as for other numbers."""
    arrow_type = pa.decimal128(dtype.precision, dtype.scale)
    present = pc.if_else(pc.equal(texts, ""), "0", texts)
    try:
        return present.cast(arrow_type)
    except pa.ArrowInvalid:
        return pa.array([_parse_decimal(text, arrow_type) for text in present.to_pylist()], arrow_type)


def _parse_decimal(text: str | None, arrow_type: Any) -> Decimal | None:
    try:
        return None if text is None else pa.scalar(Decimal(text.strip()), arrow_type).as_py()
    except (InvalidOperation, pa.ArrowInvalid, ValueError):
        return None


def _parse_dates(texts: Any, _: pl.Date) -> Any:
    return pl.Series(values=texts, dtype=pl.String).str.to_date("%Y-%m-%d", strict=False).to_arrow()


def _parse_times(texts: Any, _: pl.Time) -> Any:
    return pl.Series(values=texts, dtype=pl.String).str.to_time(_TIME_FORMAT, strict=False).to_arrow()


def _check_enum(texts: Any, dtype: pl.Enum) -> Any:
    is_known = pc.is_in(texts, pa.array(dtype.categories.to_list(), texts.type))
    return pc.if_else(is_known, texts, None)


def _check_small_integers(numbers: Any, dtype: pl.DataType) -> Any:
    return pl.Series(values=numbers).cast(dtype, strict=False).to_arrow()


_PARSERS: dict[Any, Callable[[Any, Any], Any]] = {
    pl.Decimal: _parse_decimals,
    pl.Date: _parse_dates,
    pl.Time: _parse_times,
    pl.Enum: _check_enum,
    **dict.fromkeys((pl.Int8, pl.Int16, pl.UInt8, pl.UInt16), _check_small_integers),
}
