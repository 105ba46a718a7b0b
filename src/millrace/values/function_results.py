"""Converts the results of user functions to columns of their declared types: exactly, or they are refused.

A frame made from rows loses values silently: in an Int64 column polars turns 3.7 into 3, and 2**63 into null.
So results of functions that become columns (`flat_map`, `lookup`, structs that a processor emits) are
converted here. A conversion that keeps the value is allowed: 3.0 and "3" become the whole number 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import polars as pl

from millrace import timestamps
from millrace.values import single_values

_TYPES: dict[Any, tuple[int, int]] = {
    pl.Int8: (8, 1), pl.Int16: (16, 1), pl.Int32: (32, 1), pl.Int64: (64, 1), pl.Int128: (128, 1),
    pl.UInt8: (8, 0), pl.UInt16: (16, 0), pl.UInt32: (32, 0), pl.UInt64: (64, 0), pl.UInt128: (128, 0),
}  # fmt: skip
INTEGER_RANGES = {
    dtype: (-signed * 2 ** (bits - 1), 2 ** (bits - signed) - 1) for dtype, (bits, signed) in _TYPES.items()
}
"""The least and the greatest whole number of each type."""
MAX_FLOAT32 = float.fromhex("0x1.fffffep127")
"""The greatest float of 32 bits."""


def to_series(name: str, values: Iterable[Any], dtype: Any) -> pl.Series:
    """The values as a column; raises ValueError with the column and the value."""
    return pl.Series(name, [fit(name, value, dtype) for value in values], dtype, strict=False)


def fit(name: str, value: Any, dtype: Any) -> Any:
    """A value converted to the type of a column; raises ValueError with the column and the value."""
    try:
        return convert(value, dtype)
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        has_reason = isinstance(dtype, pl.List | pl.Struct) or dtype.is_temporal() or dtype.is_decimal()
        reason = f": {error}" if has_reason else ""
        raise ValueError(f"column {name!r}: {value!r} is not exactly a value of {dtype}{reason}") from error


def convert(value: Any, dtype: Any) -> Any:
    """The same; an error that it raises names neither."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()
    if value is None:
        return None
    if dtype.is_integer():
        return _to_integer(value, dtype)
    if dtype.is_float():
        return _to_float(value, single=dtype == pl.Float32)
    if dtype == pl.String:
        return _to_text(value)
    if dtype == pl.Boolean:
        return _check_equal(bool(value), value)
    if single_values.is_exact_type(dtype):
        return single_values.convert(value, dtype)
    if isinstance(dtype, pl.Datetime):
        return timestamps.to_datetime(
            _check_in_range(timestamps.value_to_millis(value, exact=False))
        ).replace(**_timezone_change(dtype))
    if isinstance(dtype, pl.List) and isinstance(value, list | tuple):
        return [convert(item, dtype.inner) for item in value]
    if isinstance(dtype, pl.Struct) and isinstance(value, Mapping):
        return {field.name: convert(value.get(field.name), field.dtype) for field in dtype.fields}
    return value


def _to_integer(value: Any, dtype: Any) -> int:
    whole = int(value) if isinstance(value, str) else _check_equal(int(value), value)
    minimum, maximum = INTEGER_RANGES[dtype.base_type()]
    if not minimum <= whole <= maximum:
        raise ValueError("out of range")
    return whole


def _to_float(value: Any, *, single: bool) -> float:
    real = float(value)
    if single and abs(real) > MAX_FLOAT32 and abs(real) != float("inf"):
        raise ValueError("out of range")
    return real


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("it is not text")  # noqa: TRY004 - a wrong value, like the others
    return str(value)


def _check_equal(converted: Any, original: Any) -> Any:
    if converted != original:
        raise ValueError("it would be cut")
    return converted


def _check_in_range(millis: int) -> int:
    if not timestamps.is_in_range(millis):
        raise ValueError("outside the years 1 to 9999")
    return millis


def _timezone_change(dtype: pl.Datetime) -> dict[str, Any]:
    return {} if dtype.time_zone else {"tzinfo": None}
