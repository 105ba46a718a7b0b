"""Aggregates based on sums: count, sum, mean, standard deviation. Rows are retracted by subtraction.

The invariant: sums are exact, so they do not depend on the order of additions, and adding a row and
retracting it leaves nothing behind. Floats added directly have neither property: 0.1 + 0.2 + 0.3 and 0.3 +
0.2 + 0.1 differ, and 1e16 + 1 - 1e16 is 0.

Whole numbers are summed in 128 bits. A float is split at fixed places into digits, which are whole numbers
too. For a sum the places are 2**-30 and 2**-122:

    0.1  =   107374182 units of 2**-30  +  a whole number of units of 2**-122
    0.2  =   214748365 units of 2**-30  -  …

The split is exact: a float has 53 bits, and the two digits cover all places from 2**66 down to 2**-122.
Digits of the same place are summed as 128-bit numbers, with room for 2**31 rows. `result` joins the sums and
rounds once.

Floats below 2**-70 (8.5e-22) or from 2**66 (7.4e19) on do not fit the places. They are rare, and kept as they
are in a list (`apart`); a retracted one is in it with the other sign. Infinities and NaN are counted, not
added: so they can be retracted, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from millrace.aggregates import ticks
from millrace.aggregates.contract import Reduction, check_numeric
from millrace.aggregates.ticks import counts_ticks

EXCEPTIONS_TYPE = pl.List(pl.Float64())
"""The type of the list of values that do not fit the places."""
MIN_PLACED, MAX_PLACED = 2.0**-70, 2.0**66
"""Values from the first on and below the second fit the places."""
SUM_UNITS = (-30, -122)
"""The units of the digits of a sum, as powers of two. Above each there is room for 2**31 values."""
DEVIATION_UNITS = (19, -28, -75, -122)
"""The units of the digits of a deviation: smaller digits, because their products must fit into 128 bits."""
DIGIT_PAIRS = [(i, j) for i in range(4) for j in range(i, 4) if j - i < 3]
"""The pairs of digits of one float that may both differ from 0: its 53 bits reach over three digits."""


@dataclass(frozen=True)
class Count(Reduction):
    """The number of rows, or of the values of a column that are not null."""

    additive = True

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The number of rows."""
        counted = pl.len() if self.column is None else pl.col(self.column).count()
        return [counted.cast(pl.Int64).alias(f"{name}.n")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sum of the counts."""
        return [pl.col(f"{name}.n").sum()]

    def running(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The count up to each row."""
        return [pl.col(f"{name}.n").cum_sum()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The count."""
        return pl.col(f"{name}.n").alias(name)


def _is_whole(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype == pl.Boolean


def _is_counted(dtype: pl.DataType) -> bool:
    """Whether a sum is one of whole numbers: of units, or of ticks."""
    return _is_whole(dtype) or counts_ticks(dtype)


def _split_exceptional(column: str) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """A column as floats, whether a value is finite but does not fit the places,
    and the values that fit (0 for others).
    """
    x = pl.col(column).cast(pl.Float64)
    is_placed = (x == 0) | ((x.abs() >= MIN_PLACED) & (x.abs() < MAX_PLACED))
    return x, x.is_finite() & ~is_placed, pl.when(is_placed).then(x).otherwise(0.0)


def _to_digits(remainder: pl.Expr, units: Sequence[int]) -> list[pl.Expr]:
    """The digits of floats, the greatest unit first. Exact, since each subtraction leaves fewer bits."""
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
        """Only numbers, booleans and durations."""
        if not counts_ticks(schema[self.required_column]):
            check_numeric(self, schema)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sums of digits, the number of values, and those that do not fit the places."""
        return [
            *(expr.alias(c) for expr, c in zip(self._sums(dtype), self._names(name, dtype), strict=True)),
            *self._exceptions(name, dtype, 1),
        ]

    def retract(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The partials with the other sign."""
        return [*_negate(self._sums(dtype), self._names(name, dtype)), *self._exceptions(name, dtype, -1)]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sums of the sums; lists are joined."""
        return _merge_sums(self._names(name, dtype), [] if _is_counted(dtype) else [f"{name}.apart"])

    def running(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sums up to each row."""
        return [pl.col(column).cum_sum() for column in self._names(name, dtype)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum; a whole number that does not fit into 64 bits is an error."""
        if counts_ticks(dtype):
            total = ticks.to_sum(name, dtype)
        else:
            total = pl.col(f"{name}.s0").cast(pl.Int64) if _is_whole(dtype) else _float_total(name)
        return pl.when(pl.col(f"{name}.n") > 0).then(total).alias(name)

    def _names(self, name: str, dtype: pl.DataType) -> list[str]:
        if counts_ticks(dtype):
            return [*ticks.names(name), f"{name}.n"]
        kinds = ("s0", "n") if _is_whole(dtype) else ("s0", "s1", "up", "down", "nan", "n")
        return [f"{name}.{kind}" for kind in kinds]

    def _sums(self, dtype: pl.DataType) -> list[pl.Expr]:
        count = pl.col(self.required_column).count().cast(pl.Int64)
        if counts_ticks(dtype):
            return [*ticks.sums(pl.col(self.required_column)), count]
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
        if _is_counted(dtype):
            return []
        x, is_exceptional, _ = _split_exceptional(self.required_column)
        return [(x * sign).filter(is_exceptional).alias(f"{name}.apart")]


@dataclass(frozen=True)
class Mean(Sum):
    """The arithmetic mean; null where every value is null."""

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum divided by the number of values; of decimals and durations rounded half to even."""
        if counts_ticks(dtype):
            mean = ticks.to_mean(name, dtype)
            return pl.when(pl.col(f"{name}.n") > 0).then(mean).alias(name)
        total = pl.col(f"{name}.s0").cast(pl.Float64) if _is_whole(dtype) else _float_total(name)
        return pl.when(pl.col(f"{name}.n") > 0).then(total / pl.col(f"{name}.n")).alias(name)


def _float_total(name: str) -> pl.Expr:
    """The sum of the digits and of the values that do not fit, rounded once."""
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
    """The two sums as one float, rounded once.

    A conversion to float rounds, so what it cannot hold must not have been rounded before: it is rounded to
    odd, which keeps the information that there was a remainder. Rounding to odd starts from the floor: 993
    units less a half have the floor 992 and a remainder, and become 993. From 993 on they would become 994,
    and a float that holds only even units would take 994, not 992.
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
    """A whole number whose last bit is set if it is not exact."""
    return pl.when(has_remainder & (whole % 2 == 0)).then(whole + 1).otherwise(whole)


def _sum_with_exceptions(partials: pl.Series) -> pl.Series:
    """The sums of the groups with values that do not fit the places; null for the others."""
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
    """The standard deviation of a sample (the sum of squares divided by n - 1); null for fewer than two
    values.

    Values and their squares are summed exactly, the squares as products of digits. So the result is precise
    however far the values are from zero and however close to each other.
    """

    additive = True

    def check(self, schema: pl.Schema) -> None:
        """Only numbers and booleans."""
        check_numeric(self, schema)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sums of the digits and of their products, and the values that do not fit the places."""
        sums = [expr.alias(c) for expr, c in zip(self._sums(dtype), self._names(name, dtype), strict=True)]
        return [*sums, *self._exceptions(name, dtype, "apart", "gone")]

    def retract(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The partials with the other sign; values that do not fit the places go to a second list."""
        return [
            *_negate(self._sums(dtype), self._names(name, dtype)),
            *self._exceptions(name, dtype, "gone", "apart"),
        ]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sums of the sums; lists are joined."""
        return _merge_sums(
            self._names(name, dtype), [] if _is_whole(dtype) else [f"{name}.apart", f"{name}.gone"]
        )

    def running(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The sums up to each row."""
        return [pl.col(column).cum_sum() for column in self._names(name, dtype)]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The square root of the variance."""
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
    """The deviation from exact sums, rounded once."""
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
    """The square root of a fraction that may be too large for a float; infinity if the root is, too."""
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
