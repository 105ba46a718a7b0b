"""Exact sums and means of decimals and durations: of the whole numbers that they count.

12.50 of `Decimal(10, 2)` counts 1,250 hundredths, a second of `Duration("us")` a million microseconds. A tick
has up to 38 digits, so each is split into two parts of which 2**31 and more fit 128 bits:

    tick  =  high * 10**18  +  low          0 <= low < 10**18
"""

from decimal import Decimal

import polars as pl

_PART = 10**18
_MAX_HIGH = 10**20
"""From here on a sum has more than 38 digits."""
_MEAN_SCALE = 6
_TOO_LARGE = pl.lit(10**38, pl.Int128)
"""What no decimal holds, so that the conversion of a sum that is too large is an error."""


def counts_ticks(dtype: pl.DataType) -> bool:
    """Whether values of the type count something whole."""
    return isinstance(dtype, pl.Decimal | pl.Duration)


def names(name: str) -> list[str]:
    """The columns of the two parts."""
    return [f"{name}.high", f"{name}.low"]


def sums(values: pl.Expr) -> list[pl.Expr]:
    """The sums of the two parts."""
    whole = values.to_physical().cast(pl.Int128)
    high = whole // _PART
    return [high.sum(), (whole - high * _PART).sum()]


def to_sum(name: str, dtype: pl.DataType) -> pl.Expr:
    """The sum from those of its parts; one that the type cannot hold is an error."""
    return _to_values(_total(name), dtype, _scale(dtype))


def to_mean(name: str, dtype: pl.DataType) -> pl.Expr:
    """The sum divided by `name.n`, rounded half to even; one with more than 38 digits is an error."""
    count = pl.col(f"{name}.n").cast(pl.Int128)
    total = _total(name)
    scale = _mean_scale(dtype)
    factor = 10 ** (scale - _scale(dtype))
    whole = total // count
    rest = (total - whole * count) * factor
    ticks = whole * factor + rest // count
    twice = (rest - (rest // count) * count) * 2
    rounds_up = (twice > count) | ((twice == count) & (ticks % 2 != 0))
    rounded = ticks + rounds_up.cast(pl.Int128)
    fits = whole.abs() < pl.lit(10**38 // factor, pl.Int128)
    return _to_values(pl.when(~fits).then(_TOO_LARGE).otherwise(rounded), dtype, scale)


def _total(name: str) -> pl.Expr:
    high, low = (pl.col(column) for column in names(name))
    carry = low // _PART
    return (
        pl.when((high + carry).abs() > _MAX_HIGH)
        .then(_TOO_LARGE)
        .otherwise((high + carry) * _PART + low - carry * _PART)
    )


def _scale(dtype: pl.DataType) -> int:
    return dtype.scale if isinstance(dtype, pl.Decimal) else 0


def _mean_scale(dtype: pl.DataType) -> int:
    """Six places, or those of the type if it has more."""
    return max(dtype.scale, _MEAN_SCALE) if isinstance(dtype, pl.Decimal) else 0


def _to_values(ticks: pl.Expr, dtype: pl.DataType, scale: int) -> pl.Expr:
    if not isinstance(dtype, pl.Decimal):
        return ticks.cast(pl.Int64).cast(dtype)
    unit = pl.lit(Decimal(1).scaleb(-scale), pl.Decimal(38, scale))
    return (ticks.cast(pl.Decimal(38, 0)) * unit).cast(pl.Decimal(38, scale))
