"""Aggregates that are sums at heart: rows are taken back by subtraction, and the order in which they are added never matters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.aggregates.contract import Reduction, check_numeric


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


_GRAINS = (2.0**20, 2.0**-12, 2.0**-52)
_HUGE = 2.0**60
_SQUARE = 1e150
"""What is greater has no square that a float could hold; a deviation with it is not a number."""


def _limbs(column: str, name: str) -> list[pl.Expr]:
    """A float's sum as three whole-number sums, whose addition, unlike that of floats, does not depend on the order.

    Exact for |x| >= 1, and to 2**-53 below; what is beyond 2**60 is summed apart, as floats are. What is infinite or not a number is counted, so that it
    can be taken back.
    """
    x = pl.col(column).cast(pl.Float64)
    finite = x.is_finite()
    ordinary = finite & (x.abs() < _HUGE)
    rest = pl.when(ordinary).then(x).otherwise(0.0)
    limbs = []
    for position, grain in enumerate(_GRAINS):
        whole = (rest / grain).round(0)
        limbs.append(whole.cast(pl.Int64).sum().alias(f"{name}.s{position}"))
        rest = rest - whole * grain
    odd = {"up": x == math.inf, "down": x == -math.inf, "nan": x.is_nan()}
    counts = [there.sum().cast(pl.Int64).alias(f"{name}.{kind}") for kind, there in odd.items()]
    return [*limbs, *counts, pl.when(finite & ~ordinary).then(x).otherwise(0.0).sum().alias(f"{name}.huge")]


def _sums(column: str, name: str, dtype: pl.DataType) -> list[pl.Expr]:
    if dtype.is_float():
        return _limbs(column, name)
    return [pl.col(column).cast(pl.Int64).sum().alias(f"{name}.s0")]


def _sum_columns(name: str, dtype: pl.DataType) -> list[str]:
    kinds = ("s0", "s1", "s2", "up", "down", "nan", "huge") if dtype.is_float() else ("s0",)
    return [f"{name}.{kind}" for kind in kinds]


def _total(name: str, dtype: pl.DataType) -> pl.Expr:
    if not dtype.is_float():
        return pl.col(f"{name}.s0")
    limbs = [pl.col(f"{name}.s{position}").cast(pl.Float64) * grain for position, grain in enumerate(_GRAINS)]
    up, down, nan = (pl.col(f"{name}.{kind}") > 0 for kind in ("up", "down", "nan"))
    finite = limbs[0] + limbs[1] + limbs[2] + pl.col(f"{name}.huge")
    return pl.when(nan | (up & down)).then(math.nan).when(up).then(math.inf).when(down).then(-math.inf).otherwise(finite)


@dataclass(frozen=True)
class Sum(Reduction):
    """The sum; null where every value is null."""

    additive = True

    def check(self, schema: pl.Schema) -> None:
        """Numbers and booleans only."""
        check_numeric(self, schema)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums and the number of values."""
        return [*_sums(self.given, name, dtype), pl.col(self.given).count().cast(pl.Int64).alias(f"{name}.n")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums of sums."""
        return [pl.col(*_sum_columns(name, dtype), f"{name}.n").sum()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum."""
        return pl.when(pl.col(f"{name}.n") > 0).then(_total(name, dtype)).alias(name)


@dataclass(frozen=True)
class Mean(Sum):
    """The arithmetic mean; null where every value is null."""

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The sum divided by the number."""
        return pl.when(pl.col(f"{name}.n") > 0).then(_total(name, dtype).cast(pl.Float64) / pl.col(f"{name}.n")).alias(name)


@dataclass(frozen=True)
class StdDev(Reduction):
    """The standard deviation of a sample (the sum of squares divided by n - 1); null for fewer than two values.

    Values and their squares are summed as whole numbers of 31 bits, so that nothing is lost however far values lie from zero and however
    close to each other. Fractions are taken to 2**-42 (2.3e-13); what is 2**51 or more is summed as floats are.
    """

    additive = True

    def check(self, schema: pl.Schema) -> None:
        """Numbers and booleans only."""
        check_numeric(self, schema)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums of the digits, of their products, and of what has too many digits."""
        x, ordinary, digits = self._digits(dtype)
        sums = [digit.sum().alias(f"{name}.w{i}") for i, digit in enumerate(digits)]
        for i, j in _pairs(len(digits)):
            product = digits[i] * digits[j]
            high = product // 2**32
            sums += [high.sum().alias(f"{name}.h{i}{j}"), (product - high * 2**32).sum().alias(f"{name}.l{i}{j}")]
        real = x.cast(pl.Float64)
        known = real.abs() < _SQUARE
        apart = pl.when(~ordinary & known).then(real).otherwise(0.0)
        sums.append((~known).sum().cast(pl.Int64).alias(f"{name}.odd"))
        huge = [apart.sum().alias(f"{name}.huge"), (apart * apart).sum().alias(f"{name}.huge2")]
        return [*sums, *huge, x.count().cast(pl.Int64).alias(f"{name}.n")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Sums of sums."""
        return [pl.col(*_deviation_columns(name, dtype)).sum()]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The root of the variance."""
        columns, digits = _deviation_columns(name, dtype), _digits_of(dtype)

        def deviations(partials: pl.Series) -> pl.Series:
            return pl.Series([_deviation(row, digits) for row in partials.struct.unnest().rows()], dtype=pl.Float64)

        return pl.struct(columns).map_batches(deviations, return_dtype=pl.Float64).alias(name)

    def _digits(self, dtype: pl.DataType) -> tuple[pl.Expr, pl.Expr, list[pl.Expr]]:
        """The value, whether its digits hold it, and the digits, most significant first: signed whole numbers of 31 bits."""
        if not dtype.is_float():
            whole = pl.col(self.given).cast(pl.Int64)
            ordinary = whole.is_between(-(2**62), 2**62 - 1)
            kept = pl.when(ordinary).then(whole).otherwise(0)
            return whole, ordinary, [kept // 2**31, kept - kept // 2**31 * 2**31]
        x = pl.col(self.given).cast(pl.Float64)
        ordinary = x.is_finite() & (x.abs() < 2.0**51)
        rest, digits = pl.when(ordinary).then(x).otherwise(0.0), []
        for grain in (2.0**20, 2.0**-11, 2.0**-42):
            whole = (rest / grain).round(0)
            digits.append(whole.cast(pl.Int64))
            rest = rest - whole * grain
        return x, ordinary, digits


def _digits_of(dtype: pl.DataType) -> int:
    return 3 if dtype.is_float() else 2


def _pairs(digits: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(digits) for j in range(i, digits)]


def _deviation_columns(name: str, dtype: pl.DataType) -> list[str]:
    digits = _digits_of(dtype)
    products = [f"{name}.{half}{i}{j}" for i, j in _pairs(digits) for half in "hl"]
    return [*(f"{name}.w{i}" for i in range(digits)), *products, f"{name}.odd", f"{name}.huge", f"{name}.huge2", f"{name}.n"]


def _deviation(partial: Sequence[Any], digits: int) -> float | None:
    """From exact sums, rounded once."""
    *sums, odd, huge, huge2, n = partial
    if n < 2:
        return None
    if odd:
        return math.nan
    total = sum(sums[i] << (31 * (digits - 1 - i)) for i in range(digits))
    squares = 0
    for place, (i, j) in enumerate(_pairs(digits)):
        high, low = sums[digits + 2 * place], sums[digits + 2 * place + 1]
        squares += ((high << 32) + low) * (1 if i == j else 2) << (31 * (2 * digits - 2 - i - j))
    unit = 42 if digits == 3 else 0
    if huge == 0 and huge2 == 0:
        return math.sqrt((n * squares - total * total) / (n * (n - 1) << 2 * unit))
    whole, whole2 = total / (1 << unit) + huge, squares / (1 << 2 * unit) + huge2
    return math.sqrt(max(0.0, whole2 - whole * whole / n) / (n - 1))
