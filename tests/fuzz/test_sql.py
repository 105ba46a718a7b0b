"""Random and damaged queries with MATCH_RECOGNIZE: each has an answer or an error of ours, in one line that
says why.

`FUZZ_CASES=20000 pytest tests/fuzz/test_sql.py` runs more of them; `FUZZ_SEED` chooses others.
"""

import os
import random
from collections.abc import Callable

import polars as pl

import millrace as mr
from millrace.errors import MillraceError

CASES, SEED = int(os.environ.get("FUZZ_CASES", "300")), int(os.environ.get("FUZZ_SEED", "0"))
ROWS = pl.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "kind": ["a", "b", None, "a"],
        "value": [5, 1, 3, None],
        "share": [0.5, None, 2.0, -1.0],
        "yes": [True, None, False, True],
    }
)
VALUES = [
    *(
        "id",
        "kind",
        "value",
        "share",
        "yes",
        "A.value",
        "B.kind",
        "U.share",
        "C.x",
        "1",
        "0",
        "'a'",
        "'7'",
        "NULL",
        "TRUE",
        "1.5",
        "1e400",
    ),
    *(
        "DATE '2020-01-01'",
        "INTERVAL '1' DAY",
        "INTERVAL 'x' DAY",
        "(SELECT 1)",
        "(SELECT max(value) FROM rows)",
        "CLASSIFIER()",
    ),
    *("MATCH_NUMBER()", "COUNT(*)", "COUNT(A.*)", "ARRAY[1]", "?", "*", "-", "99999999999999999999"),
]
CALLS = [
    *(
        "LAST({0})",
        "FIRST({0}, {1})",
        "PREV({0})",
        "NEXT({0}, 1)",
        "SUM({0})",
        "AVG({0})",
        "MIN({0})",
        "MAX({0})",
        "STDDEV({0})",
    ),
    *(
        "ARRAY_AGG({0})",
        "MAX_BY({0}, {1})",
        "STRING_AGG({0}, ',')",
        "LISTAGG({0}, ',')",
        "FINAL LAST({0})",
        "RUNNING SUM({0})",
    ),
    *(
        "CLASSIFIER({0})",
        "ABS({0})",
        "SQRT({0})",
        "POWER({0}, {1})",
        "LOWER({0})",
        "LENGTH({0})",
        "SUBSTR({0}, {1})",
        "ROUND({0}, {1})",
    ),
    *(
        "CONCAT({0}, {1})",
        "COALESCE({0}, {1})",
        "NULLIF({0}, {1})",
        "CAST({0} AS BIGINT)",
        "TRY_CAST({0} AS DATE)",
        "CAST({0} AS VARCHAR(3))",
    ),
    *(
        "CASE WHEN {0} THEN {1} END",
        "CASE {0} WHEN {1} THEN 1 ELSE 'x' END",
        "({0} + {1})",
        "({0} - {1})",
        "({0} * {1})",
        "({0} / {1})",
    ),
    *(
        "({0} % {1})",
        "({0} || {1})",
        "-{0}",
        "GREATEST({0}, {1})",
        "COUNT(DISTINCT {0})",
        "SUM({0}) FILTER (WHERE {1})",
        "FOO({0})",
    ),
]
TESTS = [
    *(
        "{0} > {1}",
        "{0} = {1}",
        "{0} <> {1}",
        "{0} IS NULL",
        "{0} IS NOT {1}",
        "{0} BETWEEN {1} AND {0}",
        "{0} IN ({1}, 1)",
        "NOT {0}",
    ),
    *(
        "{0} LIKE {1}",
        "{0} AND {1}",
        "{0} OR {1}",
        "{0} IN (SELECT value FROM rows)",
        "EXISTS (SELECT 1)",
        "{0} IS DISTINCT FROM {1}",
    ),
]
PATTERNS = [
    *(
        "A B",
        "A+ B*",
        "(A | B)+",
        "A{2,3} B?",
        "PERMUTE(A, B)",
        "^ A B $",
        "{- A -} B",
        "A*? B",
        "((A?)*)* B",
        "A{5000} B",
        "A{0,}B",
        "A{,",
        "()",
    ),
    *(
        "A B C D",
        "(A",
        "A)",
        "A||B",
        "A{3,2}",
        '"a b" B',
        "A" * 300,
        "(" * 200 + "A" + ")" * 200 + " B",
        "((A*)*)* B{1000}",
    ),
]


def value(chance: random.Random, depth: int = 0) -> str:
    if depth > 2 or chance.random() < 0.6:
        return chance.choice(VALUES[:7] if chance.random() < 0.8 else VALUES)
    return chance.choice(CALLS).format(value(chance, depth + 1), value(chance, depth + 1))


def condition(chance: random.Random) -> str:
    return chance.choice(TESTS).format(value(chance, 1), value(chance, 1))


def a_query(chance: random.Random) -> str:
    per_match = chance.choice(
        ("ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH WITH UNMATCHED ROWS", "")
    )
    skip = chance.choice(
        ("", "AFTER MATCH SKIP TO NEXT ROW", "AFTER MATCH SKIP TO LAST B", "AFTER MATCH SKIP TO FIRST A")
    )
    text = f"""SELECT {chance.choice(("*", "m.it", "count(*)", "it + 1"))} FROM rows MATCH_RECOGNIZE (
        {chance.choice(("", "", "", "PARTITION BY kind", "PARTITION BY kind", "PARTITION BY x"))} {chance.choice(("ORDER BY id", "ORDER BY value DESC NULLS FIRST", ""))}
        MEASURES {value(chance)} AS it {per_match} {skip} PATTERN ({chance.choice(PATTERNS[:8] if chance.random() < 0.8 else PATTERNS)}) {chance.choice(("", "SUBSET U = (A, B)", "SUBSET U = (A, B)"))}
        DEFINE A AS {condition(chance)}, B AS {condition(chance)}) AS m {chance.choice(("", "WHERE it > 1", "ORDER BY it", "LIMIT 1"))}"""  # noqa: E501 - a line for each clause
    if chance.random() < 0.15:
        at = chance.randrange(len(text))
        text = (
            text[:at]
            + chance.choice(("", "(", ")", "'", '"', ",", ";", "--", "/*", "AS", "\x00", "é"))
            + text[at + chance.randint(0, 6) :]
        )
    return text


def error_of(text: str) -> str | None:
    try:
        mr.sql(text, rows=ROWS)
    except MillraceError as error:
        return str(error).strip()
    return None


def test_a_query_has_a_result_or_an_error_of_millrace(took: Callable[[int], None]) -> None:
    took(CASES)
    for seed in range(SEED, SEED + CASES):
        text = a_query(random.Random(seed))
        problem = error_of(text)
        assert problem is None or 0 < len(problem) < 3_000, text


def test_an_error_does_not_repeat_a_long_query() -> None:
    text = (
        "SELECT * FROM rows MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(A.id) AS it "
        "PATTERN (A) DEFINE A AS {})"
    )
    for condition in (" AND ".join(["value > 1"] * 3_000), "NOT " * 3_000 + "TRUE"):
        message = error_of(text.format(condition))
        assert message is None or len(message) < 1_000
