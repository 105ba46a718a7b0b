"""The values of expressions in MEASURES and DEFINE where other systems agree."""

import math
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace.errors import DefinitionError, PatternFailed

ROWS = pl.DataFrame(
    {
        "id": [1, 2, 3],
        "v": [7, -7, None],
        "x": [2.5, math.nan, None],
        "k": [" ab ", "aba", None],
        "big": [2**62, 2**62, 1],
    }
)


def measure(expression: str, *, define: str = "TRUE", pattern: str = "A") -> list[Any]:
    text = f"""SELECT m.it FROM rows MATCH_RECOGNIZE (
        ORDER BY id MEASURES {expression} AS it PATTERN ({pattern}) DEFINE A AS {define}) AS m"""
    return mr.sql(text, rows=ROWS)["it"].to_list()


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("k NOT LIKE 'a%'", [True, False, None]),
        ("NOT (k NOT LIKE 'a%')", [False, True, None]),
        ("LTRIM(k)", ["ab ", "aba", None]),
        ("RTRIM(k)", [" ab", "aba", None]),
        ("TRIM(k)", ["ab", "aba", None]),
        ("TRIM(LEADING 'a' FROM k)", [" ab ", "ba", None]),
        ("TRIM(TRAILING 'a' FROM k)", [" ab ", "ab", None]),
        ("TRIM(BOTH 'a' FROM k)", [" ab ", "b", None]),
        ("SUBSTR(k, 1, -1)", ["", "", None]),
        ("SUBSTR(k, 0)", ["", "", None]),
        ("SUBSTR(k, -2)", ["b ", "ba", None]),
        ("SUBSTR(k, -9)", ["", "", None]),
        ("SUBSTR(k, -9, 7)", ["", "", None]),
        ("POWER(2, -1)", [0.5, 0.5, 0.5]),
        ("POWER(v, 2)", [49.0, 49.0, None]),
        ("ROUND(0.49999999999999994)", [0.0, 0.0, 0.0]),
        ("ROUND(-2.5)", [-3.0, -3.0, -3.0]),
        ("ROUND(v * 5, -1)", [40, -40, None]),
        ("x > 1", [True, False, None]),
        ("x <> 1", [True, True, None]),
        ("x IN (x)", [True, False, None]),
    ],
)
def test_an_expression_has_the_value_of_sql(expression: str, wanted: list[Any]) -> None:
    assert measure(expression) == wanted


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("k NOT LIKE 'a%'", [1]),
        ("x > 1", [1]),
        ("x >= 1", [1]),
        ("x < 1", []),
        ("1 < x", [1]),
        ("x = x", [1]),
        ("x <> x", [2]),
        ("x <> 2.5", [2]),
        ("NOT (x > 1)", [2]),
        ("x BETWEEN 1 AND 9", [1]),
        ("NOT (x BETWEEN 1 AND 9)", [2]),
        ("x IN (2.5, x)", [1]),
        ("x * 2 > 1", [1]),
        ("big + big > 0", [1, 2, 3]),
        ("big * big * 2 > big", [1, 2, 3]),
        ("big * big * big > big", [1, 2]),
        ("v * 2 > 1", [1]),
    ],
)
def test_a_vectorized_condition_holds_for_the_same_rows(condition: str, wanted: list[int]) -> None:
    """A condition that counts rows cannot be vectorized."""
    assert measure("id", define=condition) == wanted
    assert measure("id", define=f"({condition}) AND COUNT(*) > 0") == wanted


def test_a_number_beyond_64_bits_is_refused() -> None:
    with pytest.raises(
        PatternFailed,
        match=r"'big \+ big' gives 9223372036854775808, which 64 bits do not hold; cast to DOUBLE before",
    ):
        measure("big + big")
    with pytest.raises(PatternFailed, match="64 bits do not hold"):
        measure("SUM(big)", pattern="A+")


def test_a_root_of_a_negative_number_is_refused() -> None:
    with pytest.raises(PatternFailed, match="has no value for a row"):
        measure("POWER(-8, 0.5)")


def test_not_a_number_is_rounded_to_itself() -> None:
    assert [math.isnan(one) for one in measure("ROUND(x, 1)", define="v < 0")] == [True]


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("MAX(v, 2)", "MAX"),
        ("MAX_BY(v, id, 2)", "count"),
        ("COUNT(DISTINCT v, k)", "DISTINCT"),
    ],
)
def test_arguments_that_would_be_ignored_are_refused(expression: str, word: str) -> None:
    with pytest.raises(DefinitionError, match=word):
        measure(expression, pattern="A+")


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("v", [-7, 7, None]),
        ("v DESC", [7, -7, None]),
        ("v NULLS FIRST", [None, -7, 7]),
        ("v DESC NULLS FIRST", [None, 7, -7]),
    ],
)
def test_nulls_come_last_in_an_aggregate_by_default(order: str, wanted: list[Any]) -> None:
    assert measure(f"ARRAY_AGG(v ORDER BY {order})", pattern="A+") == [wanted]
