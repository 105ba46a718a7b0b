"""MATCH_RECOGNIZE: the search finds the matches of the definition, is bounded, and errors are named."""

import random
import subprocess
import sys
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import DefinitionError, InputError, PatternFailed
from millrace.patterns.sql.clause import RowPattern, match_recognize, parse_match_recognize
from millrace.patterns.sql.compiled import CompiledPattern
from millrace.patterns.sql.match_context import Row
from millrace.patterns.sql.matcher import RowPatternMatcher, SqlPartition
from millrace.patterns.sql.queries import recognize_matches
from millrace.patterns.sql.skip import AfterMatchSkip
from millrace.testing.transcripts.rows import match_by_definition

SCHEMA = pl.Schema({"event_time": pl.Int64(), "kind": pl.String(), "value": pl.Int64()})
CONDITIONS = (
    "kind = 'a'",
    "kind = 'b'",
    "kind <> 'a'",
    "value > 1 AND kind IN ('a', 'c')",
    "value > PREV(value)",
    "{0}.value <= PREV({0}.value, 2) OR PREV(value, 2) IS NULL",
    "NEXT(value) > value",
    "value > FIRST(value)",
    "value >= A.value",
    "{0}.value > LAST({0}.value, 1) OR COUNT({0}.*) < 2",
    "SUM({0}.value) < 5",
    "COUNT(B.*) >= COUNT(A.*)",
    "LAST(CLASSIFIER(), 1) = 'A' OR value = 2",
    "FIRST(U.value) = value",
    "MATCH_NUMBER() < 3",
)
MEASURES = (
    "MATCH_NUMBER() AS number",
    "CLASSIFIER() AS label",
    "FINAL COUNT(*) AS length",
    "PREV(FIRST(value)) AS before",
    "LAST(A.value) AS a",
    "FIRST(U.value, 1) AS u",
    "SUM(B.value) AS b",
    "LAST(CLASSIFIER(U)) AS label_of_u",
)


def a_part(chance: random.Random, depth: int = 0) -> str:
    """A pattern in SQL, of the variables A to D."""
    kind = chance.random()
    if depth > 2 or kind < 0.4:
        part = chance.choice("ABCD")
    elif kind < 0.65:
        part = f"({' '.join(a_part(chance, depth + 1) for _ in range(chance.randint(1, 3)))})"
    elif kind < 0.85:
        part = f"({' | '.join(a_part(chance, depth + 1) for _ in range(chance.randint(2, 3)))})"
    elif kind < 0.9:
        part = f"PERMUTE({a_part(chance, depth + 1)}, {a_part(chance, depth + 1)})"
    elif kind < 0.95:
        part = f"{{- {a_part(chance, depth + 1)} -}}"
    else:
        part = chance.choice(("^", "$", "()"))
    if chance.random() < 0.4:
        part += chance.choice(("*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}")) + chance.choice(("", "?"))
    return part


def a_row_pattern(chance: random.Random) -> RowPattern:
    text = f"A {a_part(chance)} {a_part(chance)} (B | U_ | D)?".replace("U_", "C")
    if chance.random() < 0.4:
        text = a_part(chance)
    present = [name for name in "ABCD" if name in text.replace("PERMUTE", "")]
    subset = f"U = ({', '.join(name for name in 'AB' if name in present) or (present or ['A'])[0]})"
    define = {name: chance.choice(CONDITIONS).format(name) for name in present if chance.random() < 0.7}
    unmatched = "all with unmatched rows" if "{-" not in text else "all"
    per_match = chance.choice(("one", "all", "all omit empty matches", unmatched))
    skip = chance.choice(
        ("past last", "past last", "to next", f"to first {(present or ['A'])[-1]}", "to last U")
    )
    within = chance.choice((None, None, 2, 4))
    return match_recognize(
        text,
        define=define,
        measures=list(MEASURES),
        subset=subset,
        rows_per_match=per_match,
        after_match_skip=skip,
        within=within,
    )


def some_rows(chance: random.Random) -> list[Row]:
    time, made = 0, list[Row]()
    for _ in range(chance.randint(0, 6)):
        time += chance.choice((0, 1, 1, 2))
        made.append((time, chance.choice("abc"), chance.choice((0, 1, 2, 3, None))))
    return made


def shown_by(answer: Callable[[], object]) -> object:
    try:
        return answer()
    except PatternFailed as failed:
        return failed.kind


def in_pieces(
    looking: CompiledPattern, given_rows: list[Row], chance: random.Random
) -> list[tuple[Row, Row]]:
    """The results of the matcher for rows in batches, with a watermark."""
    matcher, found = RowPatternMatcher(looking, ("key",) if "key" in looking.schema else ()), []
    courses: dict[tuple[object, ...], bytes] = {}
    rest = pl.DataFrame(given_rows, schema=looking.schema, orient="row")
    while True:
        cut = chance.randint(0, 3)
        times = rest["event_time"].to_list()
        while 0 < cut < len(times) and times[cut] == times[cut - 1]:
            cut += 1
        piece, rest = rest[:cut], rest[cut:]
        ended = rest.is_empty()
        watermark = None if ended else rest["event_time"][0]
        known = {key: SqlPartition.decode(data) for key, data in courses.items()}
        changed, shown = matcher.step(known, piece, watermark, is_ended=ended)
        found += [(one.row[: len(looking.schema)], one.measures) for one in shown]
        courses |= {key: course.encode() for key, course in changed.items() if course is not None}
        courses = {key: data for key, data in courses.items() if changed.get(key, True) is not None}
        if ended:
            return found


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6))
def test_matches_are_those_of_the_definition_however_rows_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    try:
        looking = CompiledPattern(a_row_pattern(chance), SCHEMA, "event_time")
    except DefinitionError:
        return
    given_rows = some_rows(chance)
    wanted = shown_by(lambda: [(one.row, one.measures) for one in match_by_definition(looking, [given_rows])])
    if wanted == "limit":
        return
    for cut in range(2):
        assert shown_by(lambda cut=cut: in_pieces(looking, given_rows, random.Random(cut))) == wanted  # type: ignore[misc]


def test_a_clause_from_sql_equals_the_one_from_python() -> None:
    clause = parse_match_recognize("""
        MATCH_RECOGNIZE (
            PARTITION BY vehicle ORDER BY time
            MEASURES FIRST(A.v) AS "first v", RUNNING SUM(v) AS total
            ALL ROWS PER MATCH OMIT EMPTY MATCHES
            AFTER MATCH SKIP TO FIRST B
            PATTERN (A B*? (C | D)) WITHIN INTERVAL '10' SECOND
            SUBSET U = (A, B)
            DEFINE B AS B.v < PREV(B.v) -- falling
        )""")
    assert clause == match_recognize(
        "A B*? (C | D)",
        define={"B": "B.v < PREV(B.v) -- falling"},
        measures={"first v": "FIRST(A.v)", "total": "RUNNING SUM(v)"},
        subset="U = (A, B)",
        rows_per_match="all omit empty matches",
        after_match_skip="to first B",
        partition_by=["vehicle"],
        order_by=["time"],
        within="10s",
    )
    assert clause.after == AfterMatchSkip("to_first", "B")
    assert clause.span == 10_000


def test_a_search_that_doubles_with_each_row_ends_in_a_clear_error() -> None:
    clause = match_recognize("(A | B)* X", define={"X": "COUNT(A.*) < 0"}, measures={"n": "COUNT(*)"})
    with pytest.raises(PatternFailed, match="more than 102,000 attempts were made to find one match"):
        recognize_matches(clause, pl.DataFrame({"v": [1] * 40}))


def test_conditions_on_rows_alone_take_polynomial_time() -> None:
    clause = match_recognize(
        "((A+)+ | (A A)*)* B", define={"A": "v = 1", "B": "v = 2"}, measures={"n": "COUNT(*)"}
    )
    assert recognize_matches(clause, pl.DataFrame({"v": [1] * 60})).rows() == []


def test_a_condition_on_the_first_row_of_a_variable_takes_polynomial_time() -> None:
    clause = match_recognize("(A | B)* X", define={"X": "v < FIRST(A.v) - 100"}, measures={"n": "COUNT(*)"})
    assert recognize_matches(clause, pl.DataFrame({"v": [1] * 30})).rows() == []


@pytest.mark.parametrize(
    "asked",
    ["FIRST(A.v, {})", "LAST(A.v, {})", "PREV(LAST(A.v, {}), {})", "TRY_CAST(FIRST(A.v, {}) AS DOUBLE)"],
)
def test_reading_a_row_far_beyond_the_match_takes_no_memory(asked: str) -> None:
    far = asked.replace("{}", "99999999999999999999")
    clause = match_recognize("A+ X", define={"X": f"{far} IS NULL"}, measures={"n": "COUNT(*)", "it": far})
    assert recognize_matches(clause, pl.DataFrame({"v": [1] * 30})).rows() == [(30, None)]


def test_long_matches_do_not_run_out_of_stack() -> None:
    assert recognize_matches(
        match_recognize("A+", measures={"n": "COUNT(*)"}), pl.DataFrame({"v": range(20_000)})
    ).rows() == [(20_000,)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A (B", r"'\)' is expected in place of 'the end'"),
        ("A | ", "it ends too early"),
        ("A {2,1}", r"\{2,1\} allows no number of rows"),
        ("A % B", "'%' is not expected there"),
        ("PERMUTE(A, B, C, D, E, F, G)", "PERMUTE of 7 things has too many orders"),
    ],
)
def test_the_error_of_a_wrong_pattern_has_the_place(text: str, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        match_recognize(text)


@pytest.mark.parametrize(
    ("define", "why"),
    [
        ("speed > 1", "there is no column 'speed'; there are event_time, kind, value"),
        ("Z.value > 1", "Z is not a variable of the pattern; there are A, B"),
        ("value", "is Int64, but a condition is true or false"),
        ("value > ", "cannot be parsed"),
        ("PREV(value, -1) > 1", "give a whole number, 0 or more"),
        ("LAST(A.value + B.value) > 1", "reads rows of several variables at once"),
        ("SUM(LAST(A.value)) > 1", "is inside of another navigation or aggregate"),
        ("SUDDENLY(value)", "there is no function SUDDENLY"),
    ],
)
def test_the_error_of_a_wrong_condition_has_the_reason(define: str, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        CompiledPattern(match_recognize("A B", define={"A": define}), SCHEMA)


def test_without_sqlglot_everything_else_works_and_row_patterns_say_what_to_install() -> None:
    program = """
import sys
sys.modules["sqlglot"] = None
from millrace.testing.transcripts.running import find_failure
from millrace.transit.jobs import emergency_stop, emergency_stop_in_sql
emergency_stop()
print(find_failure({"table": {}, "expect": {}}, "model"))
try:
    emergency_stop_in_sql()
except Exception as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    clause = (
        "row patterns of SQL need sqlglot, which is not installed; install it with: pip install "
        "'millrace-streams[sql]'"
    )
    assert run.stdout.splitlines() == [clause, clause]


NANOS = pl.Series([1_700_000_000_000_000_001, 1_700_000_000_000_000_002])


@pytest.mark.parametrize(
    "dtype", [pl.Datetime("ns"), pl.Datetime("ns", "Europe/Helsinki"), pl.Duration("ns"), pl.Time()]
)
def test_times_finer_than_a_microsecond_are_refused_instead_of_truncated(dtype: pl.DataType) -> None:
    clause = match_recognize(
        "A B*", define={"B": "at > PREV(at)"}, measures={"n": "COUNT(*)", "it": "LAST(at)"}, order_by=["at"]
    )
    with pytest.raises(InputError, match=r"column 'at': .* is finer than a microsecond"):
        recognize_matches(clause, pl.DataFrame({"at": (NANOS % 10**12).cast(dtype)}))
    whole = pl.DataFrame({"at": ((NANOS % 10**12) * 1_000 % 10**13).cast(dtype)})
    shown = recognize_matches(clause, whole)
    assert shown.schema == {"n": pl.Int64(), "it": dtype}
    assert (shown["n"].to_list(), shown["it"].to_list()) == ([2], whole["at"].to_list()[-1:])
