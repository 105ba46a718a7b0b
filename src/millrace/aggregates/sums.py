"""Aggregates that are sums at heart: rows are taken back by subtraction, and the order in which they are added never matters.

Sums are exact. Whole numbers are summed in 128 bits. A float is cut at fixed places into whole numbers of 128 bits: 0.1 is
107374182 units of 2**-30 and 2125..., a whole number, units of 2**-122. Sums of these do not depend on the order, and the answer is rounded once.
Floats below 2**-70 (8.5e-22) or from 2**66 (7.4e19) on have other places; they are rare, and kept as they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from millrace.aggregates.contract import Reduction, check_numeric

EXCEPTIONS_TYPE = pl.List(pl.Float64())
"""The values that no place holds."""
MIN_PLACED, MAX_PLACED = 2.0**-70, 2.0**66
"""From which on, and below which, values have places."""
SUM_UNITS = (-30, -122)
"""Of a sum: the units, as powers of two. Between them, and above, is room for 2**31 values."""
DEVIATION_UNITS = (19, -28, -75, -122)
"""Of a deviation, whose digits are multiplied."""
DIGIT_PAIRS = [(i, j) for i in range(4) for j in range(i, 4) if j - i < 3]
"""The digits of one float that may both be there: its 53 bits reach over three."""


@dataclass(frozen=True)
class Count(Reduction):
    """Rows, or where a column is given, its values that are not null."""

    additive = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The number of rows."""
        counted = pl.len() if self.column is None else pl.col(self.column).count()
        return [counted.cast(pl.Int64).alias(f"{name}.n")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sum of the numbers."""
        return [pl.col(f"{name}.n").sum()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The number."""
        return pl.col(f"{name}.n").alias(name)


def _is_whole(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype == pl.Boolean


def _split_exceptional(column: str) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """A column as floats, which of them no place holds, and the others."""
    x = pl.col(column).cast(pl.Float64)
    is_placed = (x == 0) | ((x.abs() >= MIN_PLACED) & (x.abs() < MAX_PLACED))
    return x, x.is_finite() & ~is_placed, pl.when(is_placed).then(x).otherwise(0.0)


def _to_digits(remainder: pl.Expr, units: Sequence[int]) -> list[pl.Expr]:
    """Floats as whole numbers of each unit, the greatest first; nothing is lost, as each subtraction is exact."""
    digits = []
    for unit in units:
        whole = (remainder / 2.0**unit).round(0)
        digits.append(whole.cast(pl.Int128))
        remainder = remainder - whole * 2.0**unit
    return digits


def _negate(partials: Sequence[pl.Expr], names: Sequence[str]) -> list[pl.Expr]:
    return [(0 - partial).alias(name) for partial, name in zip(partials, names, strict=True)]


def _merge_sums(names: Sequence[str], lists: Sequence[str]) -> list[pl.Expr]:
    return [pl.col(*names).sum(), *(pl.col(name).explode(empty_as_null=False) for name in lists)]


@dataclass(frozen=True)
class Sum(Reduction):
    """The sum; null where every value is null."""

    additive = True

    def check(self, schema: pl.Schema) -> None:
        """Numbers and booleans only."""
        check_numeric(self, schema)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums and the number of values."""
        return [
            *(expr.alias(c) for expr, c in zip(self._sums(dtype), self._names(name, dtype), strict=True)),
            *self._exceptions(name, dtype, 1),
        ]

    def retract(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The same with the other sign."""
        return [*_negate(self._sums(dtype), self._names(name, dtype)), *self._exceptions(name, dtype, -1)]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums of sums."""
        return _merge_sums(self._names(name, dtype), [] if _is_whole(dtype) else [f"{name}.apart"])

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum; a whole one that 64 bits do not hold is an error."""
        total = pl.col(f"{name}.s0").cast(pl.Int64) if _is_whole(dtype) else _float_total(name)
        return pl.when(pl.col(f"{name}.n") > 0).then(total).alias(name)

    def _names(self, name: str, dtype: pl.DataType) -> list[str]:
        kinds = ("s0", "n") if _is_whole(dtype) else ("s0", "s1", "up", "down", "nan", "n")
        return [f"{name}.{kind}" for kind in kinds]

    def _sums(self, dtype: pl.DataType) -> list[pl.Expr]:
        count = pl.col(self.required_column).count().cast(pl.Int64)
        if _is_whole(dtype):
            return [pl.col(self.required_column).cast(pl.Int128).sum(), count]
        x, _, placed = _split_exceptional(self.required_column)
        non_finite = [(x == math.inf), (x == -math.inf), x.is_nan()]
        return [
            *(digit.sum() for digit in _to_digits(placed, SUM_UNITS)),
            *(is_kind.sum().cast(pl.Int64) for is_kind in non_finite),
            count,
        ]

    def _exceptions(self, name: str, dtype: pl.DataType, sign: int) -> list[pl.Expr]:
        if _is_whole(dtype):
            return []
        x, is_exceptional, _ = _split_exceptional(self.required_column)
        return [(x * sign).filter(is_exceptional).alias(f"{name}.apart")]


@dataclass(frozen=True)
class Mean(Sum):
    """The arithmetic mean; null where every value is null."""

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum divided by the number."""
        total = pl.col(f"{name}.s0").cast(pl.Float64) if _is_whole(dtype) else _float_total(name)
        return pl.when(pl.col(f"{name}.n") > 0).then(total / pl.col(f"{name}.n")).alias(name)


def _float_total(name: str) -> pl.Expr:
    """The exact sum of what was cut, rounded once."""
    up, down, nan = (pl.col(f"{name}.{kind}") > 0 for kind in ("up", "down", "nan"))
    exceptions = pl.col(f"{name}.apart")
    exact = pl.struct(f"{name}.s0", f"{name}.s1", f"{name}.apart").map_batches(
        _sum_with_exceptions, return_dtype=pl.Float64
    )
    finite = (
        pl.when(exceptions.list.len() > 0)
        .then(exact)
        .otherwise(_round_sum(pl.col(f"{name}.s0"), pl.col(f"{name}.s1")))
    )
    return (
        pl.when(nan | (up & down))
        .then(math.nan)
        .when(up)
        .then(math.inf)
        .when(down)
        .then(-math.inf)
        .otherwise(finite)
    )


def _round_sum(upper: pl.Expr, lower: pl.Expr) -> pl.Expr:
    """Two sums as one float. What a float cannot hold is rounded to odd first, so that the conversion is the only rounding.

    Rounding to odd starts from the floor: 993 units less half of one is 992 and a rest, which is 993 when rounded to odd. Starting from 993 itself
    it would be 994, and a float that holds even units only would take 994 instead of 992.
    """
    step = 2 ** (SUM_UNITS[0] - SUM_UNITS[1])
    carry = (lower + step // 2) // step
    high, low = upper + carry, lower - carry * step
    fine = high * 2**60 + low // 2**32
    near = _round_to_odd(fine, low % 2**32 != 0).cast(pl.Float64) * 2.0 ** (SUM_UNITS[0] - 60)
    far = _round_to_odd(high - (low < 0).cast(pl.Int128), low != 0).cast(pl.Float64) * 2.0 ** SUM_UNITS[0]
    only = low.cast(pl.Float64) * 2.0 ** SUM_UNITS[1]
    return pl.when(high == 0).then(only).when(high.abs() < 2**60).then(near).otherwise(far)


def _round_to_odd(whole: pl.Expr, has_remainder: pl.Expr) -> pl.Expr:
    """A whole number whose last bit says whether there is more behind it."""
    return pl.when(has_remainder & (whole % 2 == 0)).then(whole + 1).otherwise(whole)


def _sum_with_exceptions(partials: pl.Series) -> pl.Series:
    """The sums of those groups that hold values without a place."""
    sums = [
        _to_float(
            Fraction(s0) * Fraction(2) ** SUM_UNITS[0]
            + Fraction(s1) * Fraction(2) ** SUM_UNITS[1]
            + sum(map(Fraction, exceptions))
        )
        if exceptions
        else None
        for s0, s1, exceptions in partials.struct.unnest().iter_rows()
    ]
    return pl.Series(sums, dtype=pl.Float64)


def _to_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@dataclass(frozen=True)
class StdDev(Reduction):
    """The standard deviation of a sample (the sum of squares divided by n - 1); null for fewer than two values.

    Values and their squares are summed exactly, as products of the digits they are cut into, so nothing is lost however far values lie from zero
    and however close to each other.
    """

    additive = True

    def check(self, schema: pl.Schema) -> None:
        """Numbers and booleans only."""
        check_numeric(self, schema)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums of the digits and of their products, and what has no digits."""
        sums = [expr.alias(c) for expr, c in zip(self._sums(dtype), self._names(name, dtype), strict=True)]
        return [*sums, *self._exceptions(name, dtype, "apart", "gone")]

    def retract(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The same with the other sign; values without digits are listed as gone."""
        return [
            *_negate(self._sums(dtype), self._names(name, dtype)),
            *self._exceptions(name, dtype, "gone", "apart"),
        ]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums of sums."""
        return _merge_sums(
            self._names(name, dtype), [] if _is_whole(dtype) else [f"{name}.apart", f"{name}.gone"]
        )

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The root of the variance."""
        is_whole = _is_whole(dtype)
        columns = [*self._names(name, dtype), *([] if is_whole else [f"{name}.apart", f"{name}.gone"])]
        deviation = _integer_deviation if is_whole else _float_deviation

        def deviations(partials: pl.Series) -> pl.Series:
            return pl.Series([deviation(row) for row in partials.struct.unnest().rows()], dtype=pl.Float64)

        return pl.struct(columns).map_batches(deviations, return_dtype=pl.Float64).alias(name)

    def _names(self, name: str, dtype: pl.DataType) -> list[str]:
        if _is_whole(dtype):
            return [f"{name}.{kind}" for kind in ("w", "hh", "hl", "ll", "n")]
        digits = [f"{name}.w{i}" for i in range(len(DEVIATION_UNITS))]
        return [*digits, *(f"{name}.p{i}{j}" for i, j in DIGIT_PAIRS), f"{name}.odd", f"{name}.n"]

    def _sums(self, dtype: pl.DataType) -> list[pl.Expr]:
        count = pl.col(self.required_column).count().cast(pl.Int64)
        if _is_whole(dtype):
            whole = pl.col(self.required_column).cast(pl.Int128)
            high = whole // 2**32
            low = whole - high * 2**32
            return [whole.sum(), (high * high).sum(), (high * low).sum(), (low * low).sum(), count]
        x, _, placed = _split_exceptional(self.required_column)
        digits = _to_digits(placed, DEVIATION_UNITS)
        products = [(digits[i] * digits[j]).sum() for i, j in DIGIT_PAIRS]
        return [*(digit.sum() for digit in digits), *products, (~x.is_finite()).sum().cast(pl.Int64), count]

    def _exceptions(self, name: str, dtype: pl.DataType, filled: str, empty: str) -> list[pl.Expr]:
        if _is_whole(dtype):
            return []
        x, is_exceptional, _ = _split_exceptional(self.required_column)
        values = {filled: x.filter(is_exceptional), empty: x.filter(pl.lit(value=False))}
        return [values[kind].alias(f"{name}.{kind}") for kind in ("apart", "gone")]


def _integer_deviation(partial: Sequence[Any]) -> float | None:
    total, high, mixed, low, n = partial
    return (
        None if n < 2 else _square_root(n * ((high << 64) + (mixed << 33) + low) - total * total, n * (n - 1))
    )


def _float_deviation(partial: Sequence[Any]) -> float | None:
    """From exact sums, rounded once."""
    *sums, non_finite, n, exceptions, retracted = partial
    if n < 2:
        return None
    if non_finite:
        return math.nan
    unit = DEVIATION_UNITS[-1]
    total = sum(sums[i] << (unit_exponent - unit) for i, unit_exponent in enumerate(DEVIATION_UNITS))
    products = zip(DIGIT_PAIRS, sums[len(DEVIATION_UNITS) :], strict=True)
    squares = sum(
        product * (1 if i == j else 2) << (DEVIATION_UNITS[i] + DEVIATION_UNITS[j] - 2 * unit)
        for (i, j), product in products
    )
    if not exceptions and not retracted:
        return _square_root(n * squares - total * total, n * (n - 1) << -2 * unit)
    whole, exact = Fraction(total, 1 << -unit), Fraction(squares, 1 << -2 * unit)
    for sign, values in ((1, exceptions), (-1, retracted)):
        whole += sign * sum(map(Fraction, values))
        exact += sign * sum(Fraction(value) ** 2 for value in values)
    variance = (n * exact - whole * whole) / (n * (n - 1))
    return _square_root(variance.numerator, variance.denominator)


def _square_root(numerator: int, denominator: int) -> float:
    """The root of a fraction, also where its square has no float; infinity where the root has none either."""
    if numerator <= 0:
        return 0.0
    shift = (denominator.bit_length() - numerator.bit_length() + 130) // 2
    scaled = (
        (numerator << 2 * shift) // denominator if shift >= 0 else numerator // (denominator << -2 * shift)
    )
    try:
        return math.ldexp(math.isqrt(scaled), -shift)
    except OverflowError:
        return math.inf
