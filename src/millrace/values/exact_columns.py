"""A column with another type and the same values, or an error."""

from __future__ import annotations

from typing import Any

import polars as pl


def to_exact(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """The column with another type; raises `pa.ArrowInvalid` or an error of polars for a value that is not
    exactly one of it.

    polars rounds a decimal that is cast to fewer places, and drops what a coarser unit of time cannot hold;
    Arrow refuses both.
    """
    if column.dtype == dtype:
        return column
    if not (is_cut_by_polars(column.dtype) and is_cut_by_polars(dtype)):
        return column.cast(dtype)
    target = pl.Series([], dtype=dtype).to_arrow(compat_level=pl.CompatLevel.oldest()).type
    exact = column.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(target)
    return pl.Series(column.name, exact).cast(dtype)


def is_cut_by_polars(dtype: Any) -> bool:
    """Whether a cast to this type may change a value, at any depth."""
    if isinstance(dtype, pl.List):
        return is_cut_by_polars(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return any(is_cut_by_polars(field.dtype) for field in dtype.fields)
    return isinstance(dtype, pl.Decimal | pl.Datetime | pl.Duration)
