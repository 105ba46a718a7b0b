"""Random expressions of MEASURES and DEFINE, and the same of DuckDB where it says them alike: on rows one by
one, and on runs of rows.

`PEER_CASES=1000 pytest tests/peers/test_duckdb_expressions.py` runs so many of each kind. Every expression is
made in two forms at once. Those of DuckDB say where its conventions are not those of Trino, which hold here:

- `/` of whole numbers is `//`; `||` and `concat` of a null are null (DuckDB's `concat` passes over it), as
  are `greatest` and `least`.
- A cast of a float to a whole number rounds halves away from zero (DuckDB: to even). A decimal point makes a
  float (DuckDB: a decimal).
- NaN is left out: no comparison with it holds here, and in DuckDB it is equal to itself and greater than all
  numbers.
- Of a text, `substr` counts from 1 or from its end; DuckDB has a place 0, and begins at the text's beginning
  where the start lies before it.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl
import pytest

from millrace.errors import MillraceError
from millrace.patterns.sql.queries import run_query
from peers.streams import CASES, SEED, Duck, plain

pytestmark = pytest.mark.long
Spoken: TypeAlias = tuple[str, str]
"""An expression here, and in DuckDB."""
SCHEMA = {
    "id": pl.Int64,
    "p": pl.Int64,
    "v": pl.Int64,
    "g": pl.Int64,
    "x": pl.Float64,
    "k": pl.String,
    "d": pl.String,
    "b": pl.Boolean,
}
VALUES: dict[str, list[Any]] = {
    "p": [0, 0, 1],
    "v": [0, 1, 2, 3, -3, 7, None],
    "g": [1, 2, 2, -5, None],
    "x": [0.0, 0.5, -0.5, 2.5, -2.5, 0.25, 3.0, 1e15, None],
    "k": ["a", "b", "ab", " a ", "é", "Ab%", "", None],
    "d": ["1", "-2", "+3", "x", "", "40", None],
    "b": [True, False, None],
}
LITERALS: dict[str, list[Spoken]] = {
    "int": [("0", "0"), ("1", "1"), ("2", "2"), ("-3", "-3"), ("NULL", "NULL::BIGINT")],
    "float": [("0.5", "5e-1"), ("2.0", "2e0"), ("-1.25", "-125e-2")],
    "text": [("'a'", "'a'"), ("''", "''"), ("'é'", "'é'"), ("'b%'", "'b%'"), ("'it''s'", "'it''s'")],
    "bool": [("TRUE", "TRUE"), ("FALSE", "FALSE"), ("NULL", "NULL::BOOLEAN")],
}
COMPARED = ("=", "<>", "<", "<=", ">", ">=")


@dataclass
class Speaker:
    """Makes expressions of each type out of what is known."""

    chance: random.Random
    leaves: Mapping[str, Sequence[Spoken]]

    def say(self, kind: str, depth: int) -> Spoken:
        """An expression of a type."""
        if depth == 0 or self.chance.random() < 0.15:
            return self.chance.choice(
                self.leaves[kind] if self.leaves[kind] and self.chance.random() < 0.7 else LITERALS[kind]
            )
        if self.chance.random() < 0.25:
            return self.choosing(kind, depth - 1)
        made: Spoken = getattr(self, f"a_{kind}")(depth - 1)
        return made

    def choosing(self, kind: str, depth: int) -> Spoken:
        """What has any type: CASE, COALESCE, NULLIF and the like."""
        (a, a2), (b, b2) = self.say(kind, depth), self.say(kind, depth)
        (c, c2), (n, n2), (m, m2) = self.say("bool", depth), self.say("int", depth), self.say("int", depth)
        return self.chance.choice(
            [
                (f"CASE WHEN {c} THEN {a} ELSE {b} END", f"CASE WHEN {c2} THEN {a2} ELSE {b2} END"),
                (f"CASE WHEN {c} THEN {a} END", f"CASE WHEN {c2} THEN {a2} END"),
                (
                    f"CASE {n} WHEN {m} THEN {a} WHEN 1 THEN {b} END",
                    f"CASE {n2} WHEN {m2} THEN {a2} WHEN 1 THEN {b2} END",
                ),
                (f"IF({c}, {a}, {b})", f"CASE WHEN {c2} THEN {a2} ELSE {b2} END"),
                (f"COALESCE({a}, {b})", f"COALESCE({a2}, {b2})"),
                (f"NULLIF({a}, {b})", f"NULLIF({a2}, {b2})"),
            ]
        )

    def either(self, kind: str, depth: int) -> Spoken:
        """The greater or the smaller of two."""
        (a, a2), (b, b2), name = (
            self.say(kind, depth),
            self.say(kind, depth),
            self.chance.choice(["GREATEST", "LEAST"]),
        )
        return (
            f"{name}({a}, {b})",
            f"CASE WHEN {a2} IS NOT NULL AND {b2} IS NOT NULL THEN {name}({a2}, {b2}) END",
        )

    def a_int(self, depth: int) -> Spoken:
        (a, a2), (b, b2) = self.say("int", depth), self.say("int", depth)
        (t, t2), (c, c2), sign = self.say("text", depth), self.say("bool", depth), self.chance.choice("+-*")
        x, x2 = self.chance.choice(
            [one for one in self.leaves["float"] if not one[0].startswith("SUM")] or LITERALS["float"]
        )
        return self.chance.choice(
            [
                *[(f"({a} {sign} {b})", f"({a2} {sign} {b2})")] * 3,
                (f"({a} / NULLIF({b}, 0))", f"({a2} // NULLIF({b2}, 0))"),
                (f"({a} % NULLIF({b}, 0))", f"({a2} % NULLIF({b2}, 0))"),
                (f"MOD({a}, 4)", f"({a2} % 4)"),
                (f"ABS({a})", f"abs({a2})"),
                (f"(- {a})", f"(- {a2})"),
                (f"LENGTH({t})", f"length({t2})"),
                (
                    f"TRY_CAST({t} AS BIGINT)",
                    f"TRY_CAST(CASE WHEN regexp_full_match({t2}, '[+-]?[0-9]+') THEN {t2} END AS BIGINT)",
                ),
                (f"CAST({c} AS BIGINT)", f"CAST({c2} AS BIGINT)"),
                (f"CAST({x} AS BIGINT)", f"CAST(round({x2}) AS BIGINT)"),
                (f"CEIL({x})", f"ceil({x2})::BIGINT"),
                (f"FLOOR({x})", f"floor({x2})::BIGINT"),
                self.either("int", depth),
            ]
        )

    def a_float(self, depth: int) -> Spoken:
        (a, a2), (b, b2), (n, n2) = self.say("float", depth), self.say("float", depth), self.say("int", depth)
        sign, power = self.chance.choice("+-*"), self.chance.randint(-3, 3)
        return self.chance.choice(
            [
                *[(f"({a} {sign} {b})", f"({a2} {sign} {b2})")] * 2,
                (f"({a} {sign} {n})", f"({a2} {sign} {n2})"),
                (f"({a} / NULLIF({b}, 0))", f"({a2} / NULLIF({b2}, 0))"),
                (f"({n} / NULLIF({b}, 0.0))", f"({n2} / NULLIF({b2}, 0))"),
                (f"CAST({n} AS DOUBLE)", f"CAST({n2} AS DOUBLE)"),
                (f"ROUND({a})", f"round({a2})"),
                (f"ROUND({a}, 1)", f"round({a2}, 1)"),
                (f"SQRT(ABS({a}))", f"sqrt(abs({a2}))"),
                (f"POWER({n}, 2)", f"power({n2}, 2)"),
                (f"POWER(2, {power})", f"power(2, {power})"),
                (f"(- {a})", f"(- {a2})"),
                self.either("float", depth),
            ]
        )

    def a_text(self, depth: int) -> Spoken:
        (a, a2), (b, b2), (n, n2), (c, c2) = (
            self.say(kind, depth) for kind in ("text", "text", "int", "bool")
        )
        start, length, sides = (
            self.chance.randint(1, 3),
            self.chance.randint(0, 3),
            self.chance.choice(["", "L", "R"]),
        )
        return self.chance.choice(
            [
                (f"({a} || {b})", f"({a2} || {b2})"),
                (f"CONCAT({a}, {b}, 'z')", f"({a2} || {b2} || 'z')"),
                (f"UPPER({a})", f"upper({a2})"),
                (f"LOWER({a})", f"lower({a2})"),
                (f"{sides}TRIM({a})", f"{sides}trim({a2})"),
                (f"TRIM(LEADING 'a' FROM {a})", f"ltrim({a2}, 'a')"),
                (f"TRIM(TRAILING 'a' FROM {a})", f"rtrim({a2}, 'a')"),
                (f"TRIM(BOTH 'a' FROM {a})", f"trim({a2}, 'a')"),
                (f"SUBSTR({a}, {start}, {length})", f"substr({a2}, {start}, {length})"),
                (f"SUBSTRING({a} FROM {start})", f"substr({a2}, {start})"),
                (f"SUBSTR({a}, -1)", f"right({a2}, 1)"),
                (f"CAST({n} AS VARCHAR)", f"CAST({n2} AS VARCHAR)"),
                (f"CAST({c} AS VARCHAR)", f"CAST({c2} AS VARCHAR)"),
                (f"CAST({a} AS VARCHAR(2))", f"left({a2}, 2)"),
                self.either("text", depth),
            ]
        )

    def a_bool(self, depth: int) -> Spoken:
        kind, sign = self.chance.choice(["int", "int", "float", "text", "bool"]), self.chance.choice(COMPARED)
        (a, a2), (b, b2), (c, c2) = (self.say(kind, depth) for _ in range(3))
        (one, one2), (two, two2), (n, n2), (t, t2), (x, x2) = (
            self.say(of, depth) for of in ("bool", "bool", "int", "text", "float")
        )
        no, like = self.chance.choice(["", "NOT "]), self.chance.choice(["'a%'", "'%b_'", "'_'", "'%'"])
        return self.chance.choice(
            [
                *[(f"({a} {sign} {b})", f"({a2} {sign} {b2})")] * 3,
                (f"({n} {sign} {x})", f"({n2} {sign} {x2})"),
                *[(f"({one} {word} {two})", f"({one2} {word} {two2})") for word in ("AND", "OR")],
                (f"(NOT {one})", f"(NOT {one2})"),
                (f"({a} IS {no}NULL)", f"({a2} IS {no}NULL)"),
                (f"({one} IS {no}TRUE)", f"(({one2}) IS {no}TRUE)"),
                (f"({one} IS {no}FALSE)", f"(({one2}) IS {no}FALSE)"),
                (f"({a} IS {no}DISTINCT FROM {b})", f"({a2} IS {no}DISTINCT FROM {b2})"),
                (f"({a} {no}IN ({b}, {c}))", f"({a2} {no}IN ({b2}, {c2}))"),
                (f"({a} {no}BETWEEN {b} AND {c})", f"({a2} {no}BETWEEN {b2} AND {c2})"),
                (f"({t} {no}LIKE {like})", f"({t2} {no}LIKE {like})"),
                (f"STARTS_WITH({t}, 'a')", f"starts_with({t2}, 'a')"),
            ]
        )


COLUMNS: dict[str, list[Spoken]] = {
    "int": [("v", "v"), ("g", "g")],
    "float": [("x", "x")],
    "text": [("k", "k"), ("d", "d")],
    "bool": [("b", "b")],
}
KIND_OF = {"v": "int", "g": "int", "x": "float", "k": "text", "b": "bool"}
AROUND = [("PREV", "lag", 1), ("PREV", "lag", 2), ("NEXT", "lead", 1)]
NEIGHBOURS = {
    kind: [
        *known,
        *(
            (f"{name}({c}, {by})", f"{fn}{by}_{c}")
            for c, of in KIND_OF.items()
            if of == kind
            for name, fn, by in AROUND
        ),
    ]
    for kind, known in COLUMNS.items()
}
"""Columns, and those of the rows before and after, which DuckDB has as columns of their own."""
WITH_NEIGHBOURS = (
    "(SELECT *, "
    + ", ".join(
        f"{fn}({c}, {by}) OVER (PARTITION BY p ORDER BY id) AS {fn}{by}_{c}"
        for c in KIND_OF
        for _, fn, by in AROUND
    )
    + " FROM t)"
)


def of_runs(chance: random.Random) -> dict[str, list[Spoken]]:
    """What can be asked of several rows: aggregates of expressions on each of them, and navigation."""
    row = Speaker(chance, COLUMNS)
    (n, n2), (t, t2), (c, c2), (x, x2) = (row.say(kind, 1) for kind in ("int", "text", "bool", "float"))
    (w, w2), at = row.say("bool", 1), chance.randint(0, 2)
    moved = [
        (f"FIRST({{c}}, {at})", f"list({{c}} ORDER BY id)[{at + 1}]"),
        (f"LAST({{c}}, {at})", f"list({{c}} ORDER BY id)[-{at + 1}]"),
    ]
    found = {
        kind: [
            (one.format(c=c), other.format(c=c))
            for c, of in KIND_OF.items()
            if of == kind
            for one, other in moved
        ]
        for kind in COLUMNS
    }
    found["int"] += [
        *[(f"{name}({n})", f"{name}({n2})") for name in ("SUM", "COUNT", "MIN", "MAX")],
        (f"COUNT(DISTINCT {n})", f"count(DISTINCT {n2})"),
        ("COUNT(*)", "count(*)"),
        (f"COUNT(*) FILTER (WHERE {w})", f"count(*) FILTER (WHERE {w2})"),
        (f"SUM({n}) FILTER (WHERE {w})", f"sum({n2}) FILTER (WHERE {w2})"),
        (f"COUNT_IF({c})", f"coalesce(count_if({c2}), 0)"),
        (f"MAX_BY({n}, id)", f"arg_max_null({n2}, id)"),
    ]
    found["float"] += [
        (f"AVG({n})", f"avg({n2})"),
        (f"MAX({x})", f"max({x2})"),
        ("STDDEV(v)", "stddev_samp(v)"),
    ]
    found["text"] += [
        (f"MIN({t})", f"min({t2})"),
        ("LISTAGG(k, ',') WITHIN GROUP (ORDER BY id)", "string_agg(k, ',' ORDER BY id)"),
        (f"MAX({t})", f"max({t2})"),
    ]
    found["bool"] += [(f"BOOL_AND({c})", f"bool_and({c2})"), (f"BOOL_OR({c})", f"bool_or({c2})")]
    return found


def some_rows(chance: random.Random) -> pl.DataFrame:
    rows = [
        {"id": number, **{name: chance.choice(some) for name, some in VALUES.items()}}
        for number in range(chance.randint(1, 14))
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def on_rows(chance: random.Random) -> Spoken:
    """A match is a row for which a condition holds."""
    speaker = Speaker(chance, NEIGHBOURS)
    condition, where = speaker.say("bool", chance.randint(0, 3))
    expressions = [speaker.say(kind, chance.randint(1, 4)) for kind in ("int", "float", "text", "bool")]
    measures = ", ".join(f"{one} AS e{number}" for number, (one, _) in enumerate(expressions))
    return (
        (
            f"SELECT m.* FROM t MATCH_RECOGNIZE (PARTITION BY p ORDER BY id MEASURES id AS id, {measures} "
            f"ONE ROW PER MATCH PATTERN (A) DEFINE A AS {condition}) AS m"
        ),
        f"SELECT p, id, {', '.join(other for _, other in expressions)} FROM {WITH_NEIGHBOURS} WHERE {where}",
    )


def on_runs(chance: random.Random) -> Spoken:
    """A match is a run of rows for which a condition holds, as long as it can be."""
    condition, where = Speaker(chance, COLUMNS).say("bool", chance.randint(0, 2))
    speaker = Speaker(chance, of_runs(chance))
    expressions = [speaker.say(kind, chance.randint(0, 3)) for kind in ("int", "float", "text", "bool")]
    measures = ", ".join(f"{one} AS e{number}" for number, (one, _) in enumerate(expressions))
    holds = f"coalesce({where}, false)"
    runs = (
        "(SELECT *, row_number() OVER (PARTITION BY p ORDER BY id) - row_number() OVER (PARTITION BY p, "
        f"{holds} ORDER BY id) AS run, {holds} AS holds FROM t)"
    )
    return (
        (
            "SELECT m.* FROM t MATCH_RECOGNIZE (PARTITION BY p ORDER BY id MEASURES MIN(id) AS id, "
            f"{measures} ONE ROW PER MATCH PATTERN (A+) DEFINE A AS {condition}) AS m"
        ),
        (
            f"SELECT p, min(id), {', '.join(other for _, other in expressions)} FROM {runs} WHERE holds "
            "GROUP BY p, run"
        ),
    )


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    duck = Duck()
    yield duck
    duck.db.close()


@pytest.mark.parametrize("kind", [on_rows, on_runs])
def test_expressions_have_the_values_of_duckdb(kind: Any, duck: Duck) -> None:
    counts: Counter[str] = Counter()
    different = []
    for seed in range(SEED, SEED + CASES):
        chance = random.Random(f"{kind.__name__} {seed}")
        (ours, theirs), rows = kind(chance), some_rows(chance)
        duck.db.register("t", rows.to_arrow())
        wanted = duck.ask(theirs)
        counts["rows"] += wanted.total()
        try:
            found = Counter(map(plain, run_query(ours, {"t": rows}).rows()))
        except MillraceError as error:
            different.append(f"seed {seed}: {ours}\n  refused here: {error}")
            continue
        if found != wanted:
            different.append(
                f"seed {seed}: {ours}\n  {theirs}\n  DuckDB alone {dict(wanted - found)}\n  here alone "
                f"{dict(found - wanted)}"
            )
    print(
        f"{CASES} cases of {kind.__name__}, {dict(counts)}, {len(different)} differ",
        *different[:10],
        sep="\n",
    )
    assert not different, f"{len(different)} differ"
