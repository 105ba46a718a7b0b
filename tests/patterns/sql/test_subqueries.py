"""Subqueries in MEASURES and DEFINE, and casts that fail, in a query and in a clause."""

from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import patterns
from millrace.errors import DefinitionError, PatternFailed
from millrace.patterns.sql.queries import recognize_matches

PRICES = pl.DataFrame({"id": [1, 2, 3], "price": [10, 20, 30], "word": ["7", "x", None]})
LIMITS = pl.DataFrame({"most": [25]})


def measure(expression: str, *, define: str = "true") -> list[Any]:
    text = f"""SELECT m.it FROM prices MATCH_RECOGNIZE (
        ORDER BY id MEASURES {expression} AS it PATTERN (A+) DEFINE A AS {define}) AS m"""
    return mr.sql(text, prices=PRICES, limits=LIMITS)["it"].to_list()


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("LAST(price) + (SELECT 1000)", 1030),
        ("FIRST(price) + (SELECT 1000)", 1010),
        ("LAST(price, 1) + (SELECT 1000)", 1020),
        ("PREV(LAST(price), 2) + (SELECT max(most) FROM limits)", 35),
        ("CASE WHEN LAST(price) IN (SELECT most FROM limits) THEN 1 ELSE 0 END", 0),
        ("CASE WHEN LAST(price) NOT IN (SELECT most FROM limits WHERE most > 100) THEN 1 ELSE 0 END", 1),
        ("CASE WHEN EXISTS (SELECT most FROM limits) THEN LAST(id) ELSE 0 END", 3),
        ("CASE WHEN (SELECT 3) IN (SELECT 3) THEN LAST(id) ELSE 0 END", 3),
    ],
)
def test_a_query_in_a_measure_leaves_the_rest_of_the_measure_as_it_is(expression: str, wanted: int) -> None:
    assert measure(expression) == [wanted]


def test_a_query_in_a_condition_leaves_the_rest_of_the_condition_as_it_is() -> None:
    assert measure("COUNT(*)", define="LAST(price) < (SELECT most FROM limits)") == [2]


def test_a_clause_may_have_queries_over_constants() -> None:
    clause = patterns.match_recognize(
        "A+",
        define={"A": "A.price > (SELECT 15)"},
        measures={"it": "LAST(A.price) + (SELECT 1000)"},
        order_by=["id"],
    )
    assert recognize_matches(clause, PRICES)["it"].to_list() == [1030]


def test_a_clause_has_no_tables_to_query() -> None:
    clause = patterns.match_recognize("A+", measures={"it": "LAST(price) + (SELECT most FROM limits)"})
    with pytest.raises(DefinitionError, match="there are no tables to query here; give values instead"):
        recognize_matches(clause, PRICES)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("PREV(price) + (SELECT 1000)", 1020),
        ("PREV(FIRST(price, 2), 1) + (SELECT 1000)", 1020),
        ("LAST(price + (SELECT 1000), 1)", 1020),
        ("FINAL LAST(price) + (SELECT (SELECT 2))", 32),
        ("COUNT(*) FILTER (WHERE price > (SELECT 15))", 2),
        (
            (
                "CASE WHEN LAST(id) = (SELECT 3) THEN CASE WHEN FIRST(id) = (SELECT 1) THEN LAST(price) + "
                "(SELECT 5) END END"
            ),
            35,
        ),
        ("LAST(price) IN (SELECT 30 UNION ALL SELECT 31)", True),
    ],
)
def test_a_measure_with_a_query_over_constants_is_the_same_in_a_query_and_in_a_clause(
    expression: str, wanted: Any
) -> None:
    assert measure(expression) == [wanted]
    clause = patterns.match_recognize("A+", measures={"it": expression}, order_by=["id"])
    assert recognize_matches(clause, PRICES)["it"].to_list() == [wanted]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("EXISTS (SELECT 1 WHERE false)", False),
        ("EXISTS (SELECT 1 WHERE 1 < 2)", True),
        ("(SELECT 7 WHERE 1 = 2)", None),
        ("LAST(id) IN (SELECT 3 WHERE false)", False),
        ("(SELECT count(*) WHERE false)", 0),
        ("(SELECT 1 WHERE false UNION ALL SELECT 3)", 3),
        ("EXISTS (SELECT * FROM (SELECT 1 AS a WHERE false) AS t)", False),
    ],
)
def test_a_condition_holds_in_a_query_that_names_no_table(expression: str, wanted: Any) -> None:
    assert measure(expression) == [wanted]


def test_a_whole_query_without_a_table_has_no_row_where_its_condition_does_not_hold() -> None:
    assert mr.sql("SELECT 1 AS a WHERE 1 = 2").is_empty()
    assert mr.sql("SELECT 1 AS a WHERE 1 = 1")["a"].to_list() == [1]


def test_a_query_that_names_columns_of_the_matched_rows_is_refused_in_one_line() -> None:
    with pytest.raises(DefinitionError, match="it cannot name their columns") as refused:
        measure("1 + (SELECT LAST(price))")
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("(SELECT LAST(price)): ")


@pytest.mark.parametrize(
    ("query", "words"), [("SELECT 1, 2", "has 2 columns"), ("SELECT 1 UNION ALL SELECT 2", "has 2 rows")]
)
def test_a_clause_refuses_a_query_that_gives_more_than_one_value(query: str, words: str) -> None:
    for clause in (
        patterns.match_recognize("A+", measures={"it": f"LAST(price) + ({query})"}),
        patterns.match_recognize("A+", define={"A": f"id < ({query})"}),
    ):
        with pytest.raises(DefinitionError, match=words):
            recognize_matches(clause, PRICES)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT most, most + 1 AS more FROM limits", "has 2 columns"),
        ("SELECT price FROM prices", "has 3 rows, .* add LIMIT 1"),
    ],
)
def test_a_query_in_place_of_a_value_gives_one_value(query: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        measure(f"LAST(price) + ({query})")


@pytest.mark.parametrize(
    ("cast", "wanted"),
    [
        ("'abc' AS BIGINT", None),
        ("'1.5' AS BIGINT", None),
        ("300 AS TINYINT", None),
        ("'x' AS BOOLEAN", None),
        ("'2020-13-01' AS DATE", None),
        ("1e30 AS BIGINT", None),
        ("'inf' AS DOUBLE", None),
        ("'1e3' AS DOUBLE", 1000.0),
        ("'f' AS BOOLEAN", False),
        ("2.5 AS BIGINT", 3),
        ("LAST(word) AS BIGINT", None),
        ("FIRST(word) AS BIGINT", 7),
    ],
)
def test_try_cast_gives_null_where_a_value_cannot_be_cast(cast: str, wanted: Any) -> None:
    assert measure(f"TRY_CAST({cast})") == [wanted]


def test_a_cast_that_fails_names_the_value_and_the_remedy() -> None:
    with pytest.raises(PatternFailed, match="'x' cannot be cast; use TRY_CAST, which gives NULL"):
        measure("CAST(LAST(word, 1) AS BIGINT)")


def test_try_cast_around_a_row_pattern_gives_null_too() -> None:
    text = """SELECT TRY_CAST(m.last_word AS BIGINT) AS it FROM prices MATCH_RECOGNIZE (
        ORDER BY id MEASURES LAST(word) AS last_word ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS true) AS m"""
    assert mr.sql(text, prices=PRICES)["it"].to_list() == [7, None, None]


@pytest.mark.parametrize(
    ("pattern", "lengths"),
    [
        ("(C*?)*", [0, 0, 0]),
        ("(() | C)*", [0, 0, 0]),
        ("(C*?)+", [0, 0, 0]),
        ("(C?)*", [3]),
        ("(C*?)* D", [3]),
        ("(C*?){2,}", [0, 0, 0]),
    ],
)
def test_a_repetition_that_takes_no_row_is_the_last_as_in_perl(pattern: str, lengths: list[int]) -> None:
    define = {"C": "true", "D": "id = 3"} if "D" in pattern else {"C": "true"}
    clause = patterns.match_recognize(pattern, define=define, measures={"n": "COUNT(*)"}, order_by=["id"])
    assert recognize_matches(clause, PRICES)["n"].to_list() == lengths
