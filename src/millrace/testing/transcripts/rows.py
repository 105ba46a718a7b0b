"""Row pattern transcripts: a table in, the rows of MATCH_RECOGNIZE out.

On the model by definition, on the engine by the search, cut at random, and on Spark as a job (`row_jobs.py`), whose events are the rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.errors import MillraceError, PatternFailed
from millrace.patterns.sql.clause import RowPattern, match_recognize
from millrace.patterns.sql.compiled import Looking, Shown
from millrace.patterns.sql.matcher import Course, RowMatcher
from millrace.patterns.sql.queries import Matching, matched, query
from millrace.patterns.sql.scene import Row as Values
from millrace.patterns.sql.tokens import words
from millrace.testing.model.row_pattern_definition import by_definition
from millrace.testing.model.values import Row
from millrace.testing.script import Making, On
from millrace.testing.transcripts.row_jobs import RowSubject
from millrace.testing.transcripts.words import Wrong, known, plain, text

KEYS = ("name", "table", "match_recognize", "select", "query", "expect", "must_fail", "tags")
TABLE = ("columns", "rows")
CLAUSE = (
    "partition_by",
    "order_by",
    "measures",
    "rows_per_match",
    "after_match_skip",
    "pattern",
    "subset",
    "define",
)
EXPECT = ("rows", "error")
CUTS = 5
"""How often the engine runs a transcript, each time with other batches."""

INPUT = "input"
"""How a query calls the table, if there is one."""


@dataclass(frozen=True)
class RowTranscript:
    """One document, read; whether its pattern is possible shows when it is run, since it may expect that it is not."""

    table: pl.DataFrame | None
    clause: Row | None
    select: str
    query: str | None
    expect: Row
    must_fail: str | None


def understand(document: Row) -> RowTranscript:
    """A document as a transcript; the error names what is unknown or wrong."""
    known(document, KEYS, "a row pattern transcript")
    expect = document.get("expect")
    if not isinstance(expect, dict) or len(expect) != 1:
        raise Wrong("`expect` is {rows: [[..]..]} or {error: TEXT}")
    known(expect, EXPECT, "expect")
    must_fail = document.get("must_fail")
    if must_fail not in (None, "missing", "unexpected"):
        raise Wrong(f"`must_fail: {text(must_fail)}` is unknown; use missing or unexpected")
    if "query" not in document:
        for key in ("table", "match_recognize"):
            if key not in document:
                raise Wrong(f"`{key}` is missing")
        known(document["match_recognize"], CLAUSE, "match_recognize")
    table = _table(document["table"]) if "table" in document else None
    return RowTranscript(
        table,
        document.get("match_recognize"),
        str(document.get("select", "*")),
        document.get("query"),
        expect,
        must_fail,
    )


def run(transcript: RowTranscript, on: On | Making, number: int = 0) -> list[tuple[str, str]]:
    """Every difference between what came and what was expected; `number` keeps transcripts apart that run together."""
    error = transcript.expect.get("error")
    problems: list[tuple[str, str]] = []
    for cut, matching in enumerate(_ways(on, number)):
        try:
            came = answered(transcript, matching)
        except MillraceError as failed:
            if error is None:
                return [("unexpected", str(failed))]
            if not _means(failed, str(error)):
                return [("missing", f"missing error {error!r}: it failed otherwise: {failed}")]
            continue
        if error is not None:
            return [("missing", f"missing error {error!r}: nothing failed, but there came {text(came)}")]
        problems += _compared(transcript.expect["rows"], came, "" if not cut else f" (cut {cut})")
    return problems


def shares(transcript: RowTranscript) -> bool:
    """Whether it can run together with others: it has one row pattern, and is not to fail."""
    found = (
        []
        if transcript.query is None
        else [word for word in words(transcript.query) if word.upper == "MATCH_RECOGNIZE"]
    )
    return "error" not in transcript.expect and len(found) < 2


def _ways(on: On | Making, number: int) -> list[Matching]:
    if on == "model":
        return [lambda looking, lanes: (one for rows in lanes for one in by_definition(looking, rows))]
    if on == "engine":
        return [_in_pieces(random.Random(cut)) for cut in range(CUTS)]  # noqa: S311 - cuts are no secret
    return [lambda looking, lanes: RowSubject(looking, lanes, number).play(on, number)]


def answered(transcript: RowTranscript, matching: Matching) -> list[list[Any]]:
    """The rows of the result."""
    tables = {} if transcript.table is None else {INPUT: transcript.table}
    if transcript.query is not None:
        return list(map(list, query(transcript.query, tables, matching).rows()))
    assert transcript.table is not None
    shown = matched(clause_of(transcript.clause or {}), transcript.table, matching)
    return list(map(list, query(f"SELECT {transcript.select} FROM shown AS m", {"shown": shown}).rows()))  # noqa: S608 - it is their query


def clause_of(said: Row) -> RowPattern:
    """The clause of MATCH_RECOGNIZE in a document."""
    if "pattern" not in said:
        raise Wrong("`match_recognize` has no `pattern`")
    given = {key: value for key, value in said.items() if key != "pattern" and value is not None}
    for key in ("measures", "define", "partition_by", "order_by"):
        if isinstance(given.get(key, []), str):
            given[key] = [given[key]]
    return match_recognize(str(said["pattern"]), **given)


def _in_pieces(chance: random.Random) -> Matching:
    """Matching in batches; between them all that is known becomes bytes and comes back."""

    def matching(looking: Looking, lanes: Sequence[Sequence[Values]]) -> Iterator[Shown]:
        for given in lanes:
            matcher, course = RowMatcher(looking), Course()
            frame = pl.DataFrame(given, schema=looking.schema, orient="row")
            ready, begun = frame.select(*looking.schema, looking.mask().alias("_mask")).rows(), False
            while ready or not begun:
                length, begun = chance.randint(0, 3), True
                piece, ready = ready[:length], ready[length:]
                after, shown = matcher.follow(course, piece, None, ended=not ready)
                yield from shown
                course = Course(before=True) if after is None else Course.load(after.dump())

    return matching


def _means(failed: MillraceError, said: str) -> bool:
    """Whether an error is the one that is expected: its kind in a word, or a part of its text."""
    kind = failed.kind if isinstance(failed, PatternFailed) else None
    return said == kind or said.lower() in str(failed).lower()


def _compared(wanted: Any, came: Sequence[Sequence[Any]], where: str) -> list[tuple[str, str]]:
    if not isinstance(wanted, list) or not all(isinstance(row, list) for row in wanted):
        raise Wrong(f"`rows: {text(wanted)}` is no list of lists")
    expected, found = (
        Counter(plain([_rounded(value) for value in row]) for row in some) for some in (wanted, came)
    )
    missing, more = expected - found, found - expected
    problems = [("missing", f"missing rows{where} {', '.join(missing.elements())}")] if missing else []
    return problems + (
        [("unexpected", f"unexpected rows{where} {', '.join(more.elements())}")] if more else []
    )


def _rounded(value: Any) -> Any:
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _table(said: Any) -> pl.DataFrame:
    if not isinstance(said, dict) or not all(isinstance(said.get(key), list) for key in TABLE):
        raise Wrong(f"`table: {text(said)}` is no table; write {{columns: [..], rows: [[..]..]}}")
    known(said, TABLE, "table")
    columns = [str(name) for name in said["columns"]]
    for row in said["rows"]:
        if not isinstance(row, list) or len(row) != len(columns):
            raise Wrong(f"the row {text(row)} does not have the columns {', '.join(columns)}")
    try:
        return pl.DataFrame(
            {name: [row[place] for row in said["rows"]] for place, name in enumerate(columns)}, strict=True
        )
    except (TypeError, pl.exceptions.PolarsError):
        return pl.DataFrame(
            said["rows"], schema=columns, orient="row", infer_schema_length=None, strict=False
        )
