"""Row pattern transcripts: a table in, the rows of MATCH_RECOGNIZE out.

On the model by definition, on the engine by the search, cut at random, and on Spark as a job (`row_jobs.py`),
whose events are the rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.errors import MillraceError, PatternFailed
from millrace.patterns.sql.clause import RowPattern, match_recognize
from millrace.patterns.sql.compiled import CompiledPattern, ResultRow
from millrace.patterns.sql.match_context import Row as Values
from millrace.patterns.sql.matcher import RowPatternMatcher, SqlPartition
from millrace.patterns.sql.queries import MatchFunction, recognize_matches, run_query
from millrace.patterns.sql.tokens import tokenize
from millrace.testing.model.row_pattern_definition import RowPatternDefinition
from millrace.testing.model.values import Row
from millrace.testing.script import MakeBackend, On
from millrace.testing.transcripts.row_jobs import RowTranscriptJob
from millrace.testing.transcripts.words import TranscriptError, check_keys, to_canonical_text, to_text
from millrace.values.columns import MASK

TRANSCRIPT_KEYS = ("name", "table", "match_recognize", "select", "query", "expect", "must_fail", "tags")
TABLE_KEYS = ("columns", "rows")
CLAUSE_KEYS = (
    "partition_by",
    "order_by",
    "measures",
    "rows_per_match",
    "after_match_skip",
    "pattern",
    "subset",
    "define",
)
EXPECT_KEYS = ("rows", "error")
CUTS = 5
"""How often the engine runs a transcript, each time in other batches."""

INPUT = "input"
"""The name of the table in queries."""


@dataclass(frozen=True)
class RowTranscript:
    """A document. Its pattern is parsed when it runs, since an error may be what it expects."""

    table: pl.DataFrame | None
    clause: Row | None
    select: str
    query: str | None
    expect: Row
    must_fail: str | None


def parse_document(document: Row) -> RowTranscript:
    """A document as a transcript; the error names what is unknown or wrong."""
    check_keys(document, TRANSCRIPT_KEYS, "a row pattern transcript")
    expect = document.get("expect")
    if not isinstance(expect, dict) or len(expect) != 1:
        raise TranscriptError("`expect` is {rows: [[..]..]} or {error: TEXT}")
    check_keys(expect, EXPECT_KEYS, "expect")
    must_fail = document.get("must_fail")
    if must_fail not in (None, "missing", "unexpected"):
        raise TranscriptError(f"`must_fail: {to_text(must_fail)}` is unknown; use missing or unexpected")
    if "query" not in document:
        for key in ("table", "match_recognize"):
            if key not in document:
                raise TranscriptError(f"`{key}` is missing")
        check_keys(document["match_recognize"], CLAUSE_KEYS, "match_recognize")
    table = _parse_table(document["table"]) if "table" in document else None
    return RowTranscript(
        table,
        document.get("match_recognize"),
        str(document.get("select", "*")),
        document.get("query"),
        expect,
        must_fail,
    )


def run_transcript(transcript: RowTranscript, on: On | MakeBackend, number: int = 0) -> list[tuple[str, str]]:
    """Every difference between results and expectations.

    `number` tells transcripts apart that run together.
    """
    error = transcript.expect.get("error")
    problems: list[tuple[str, str]] = []
    for cut, matching in enumerate(_choose_matchings(on, number)):
        try:
            rows = compute_rows(transcript, matching)
        except MillraceError as failed:
            if error is None:
                return [("unexpected", str(failed))]
            if not _is_expected(failed, str(error)):
                return [("missing", f"missing error {error!r}: it failed otherwise: {failed}")]
            continue
        if error is not None:
            return [("missing", f"missing error {error!r}: nothing failed, but there came {to_text(rows)}")]
        problems += _compare(transcript.expect["rows"], rows, "" if not cut else f" (cut {cut})")
    return problems


def can_share_query(transcript: RowTranscript) -> bool:
    """Whether it can run together with others: it has one row pattern and expects no error."""
    clauses = (
        []
        if transcript.query is None
        else [word for word in tokenize(transcript.query) if word.upper == "MATCH_RECOGNIZE"]
    )
    return "error" not in transcript.expect and len(clauses) < 2


def _choose_matchings(on: On | MakeBackend, number: int) -> list[MatchFunction]:
    if on == "model":
        return [match_by_definition]
    if on == "engine":
        return [_match_in_batches(random.Random(cut)) for cut in range(CUTS)]  # noqa: S311 - cuts are no secret
    return [lambda looking, lanes: RowTranscriptJob(looking, lanes, number).play(on, number)]


def match_by_definition(
    compiled: CompiledPattern, partitions: Sequence[Sequence[Values]]
) -> Iterator[ResultRow]:
    """The results of the rows of partitions, as the model defines them."""
    definition = RowPatternDefinition(compiled.row_pattern, compiled.schema, compiled.time)
    for rows in partitions:
        for shown in definition.match_partition(rows, END_OF_STREAM, is_ended=True):
            yield ResultRow(shown.row, shown.measures, shown.first, shown.last, shown.index)


def compute_rows(transcript: RowTranscript, matching: MatchFunction) -> list[list[Any]]:
    """The rows of the result."""
    tables = {} if transcript.table is None else {INPUT: transcript.table}
    if transcript.query is not None:
        return list(map(list, run_query(transcript.query, tables, matching).rows()))
    assert transcript.table is not None
    shown = recognize_matches(parse_clause(transcript.clause or {}), transcript.table, matching)
    return list(map(list, run_query(f"SELECT {transcript.select} FROM shown AS m", {"shown": shown}).rows()))  # noqa: S608 - it is their query


def parse_clause(document: Row) -> RowPattern:
    """The clause of MATCH_RECOGNIZE in a document."""
    if "pattern" not in document:
        raise TranscriptError("`match_recognize` has no `pattern`")
    given = {key: value for key, value in document.items() if key != "pattern" and value is not None}
    for key in ("measures", "define", "partition_by", "order_by"):
        if isinstance(given.get(key, []), str):
            given[key] = [given[key]]
    return match_recognize(str(document["pattern"]), **given)


def _match_in_batches(chance: random.Random) -> MatchFunction:
    """Matches in batches; the state is encoded and decoded between them."""

    def matching(looking: CompiledPattern, lanes: Sequence[Sequence[Values]]) -> Iterator[ResultRow]:
        for given in lanes:
            matcher, course = RowPatternMatcher(looking), SqlPartition()
            frame = pl.DataFrame(given, schema=looking.schema, orient="row")
            ready, begun = frame.select(*looking.schema, looking.mask().alias(MASK)).rows(), False
            while ready or not begun:
                length, begun = chance.randint(0, 3), True
                piece, ready = ready[:length], ready[length:]
                after, shown = matcher.match_partition(course, piece, None, is_ended=not ready)
                yield from shown
                course = (
                    SqlPartition(has_rows_before=True)
                    if after is None
                    else SqlPartition.decode(after.encode())
                )

    return matching


def _is_expected(failed: MillraceError, expected: str) -> bool:
    """Whether an error has the expected kind, or contains the expected text."""
    kind = failed.kind if isinstance(failed, PatternFailed) else None
    return expected == kind or expected.lower() in str(failed).lower()


def _compare(expected_rows: Any, rows: Sequence[Sequence[Any]], where: str) -> list[tuple[str, str]]:
    if not isinstance(expected_rows, list) or not all(isinstance(row, list) for row in expected_rows):
        raise TranscriptError(f"`rows: {to_text(expected_rows)}` is not a list of lists")
    expected, found = (
        Counter(to_canonical_text([_round(value) for value in row]) for row in some)
        for some in (expected_rows, rows)
    )
    missing, unexpected = expected - found, found - expected
    problems = [("missing", f"missing rows{where} {', '.join(missing.elements())}")] if missing else []
    return problems + (
        [("unexpected", f"unexpected rows{where} {', '.join(unexpected.elements())}")] if unexpected else []
    )


def _round(value: Any) -> Any:
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _parse_table(value: Any) -> pl.DataFrame:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), list) for key in TABLE_KEYS):
        raise TranscriptError(
            f"`table: {to_text(value)}` is not a table; write {{columns: [..], rows: [[..]..]}}"
        )
    check_keys(value, TABLE_KEYS, "table")
    columns = [str(name) for name in value["columns"]]
    for row in value["rows"]:
        if not isinstance(row, list) or len(row) != len(columns):
            raise TranscriptError(f"the row {to_text(row)} does not have the columns {', '.join(columns)}")
    try:
        return pl.DataFrame(
            {name: [row[place] for row in value["rows"]] for place, name in enumerate(columns)}, strict=True
        )
    except (TypeError, pl.exceptions.PolarsError):
        return pl.DataFrame(
            value["rows"], schema=columns, orient="row", infer_schema_length=None, strict=False
        )
