"""Queries with MATCH_RECOGNIZE over frames. The SQL of polars executes everything around the row patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace.errors import DefinitionError
from millrace.patterns.sql.clause import RowPattern, parse_match_recognize
from millrace.patterns.sql.compiled import CompiledPattern, ResultRow
from millrace.patterns.sql.expressions import ExpressionCompiler
from millrace.patterns.sql.match_context import MatchContext, Row
from millrace.patterns.sql.matcher import RowPatternMatcher
from millrace.patterns.sql.subqueries import execute, parse_sql, replace_queries
from millrace.patterns.sql.tokens import Token, find_closing, find_opening, tokenize
from millrace.timestamps import check_micros
from millrace.values.columns import FIELD_PREFIX, MASK, SUBQUERY_PREFIX

MatchFunction = Callable[[CompiledPattern, Sequence[Sequence[Row]]], Iterable[ResultRow]]
"""Matches the rows of partitions, each in order; the rows have no mask."""


def match_by_search(compiled: CompiledPattern, partitions: Sequence[Sequence[Row]]) -> Iterable[ResultRow]:
    """The results of the search."""
    for rows in partitions:
        frame = pl.DataFrame(rows, schema=compiled.schema, orient="row")
        ready = frame.select(*compiled.schema, compiled.mask().alias(MASK)).rows()
        yield from RowPatternMatcher(compiled).match_partition(None, ready, None, is_ended=True)[1]


def recognize_matches(
    row_pattern: RowPattern, frame: pl.DataFrame, matching: MatchFunction = match_by_search
) -> pl.DataFrame:
    """The result of MATCH_RECOGNIZE over a frame.

    A measure with the name of a column replaces it. Rows become Python objects, so times finer than a
    microsecond are refused.
    """
    for column in frame:
        check_micros(column)
    compiled = CompiledPattern(row_pattern, frame.schema)
    partition = [compiled.column(name) for name in row_pattern.partition]
    order_columns = {compiled.column(one.column): one for one in reversed(row_pattern.order)}
    order = list(dict.fromkeys(compiled.column(one.column) for one in row_pattern.order))
    if order:
        descending, last = (
            [order_columns[name].is_descending for name in order],
            [order_columns[name].nulls_last for name in order],
        )
        frame = frame.sort(order, descending=descending, nulls_last=last, maintain_order=True)
    partitions = frame.partition_by(partition, maintain_order=True) if partition and frame.height else [frame]
    results = matching(compiled, [partition_frame.rows() for partition_frame in partitions])
    measures = {name: expression.dtype for name, (expression, _) in compiled.measures.items()}
    columns = (
        [*partition, *order, *measures, *frame.columns] if row_pattern.all_rows else [*partition, *measures]
    )
    places = {name: place for place, name in enumerate(frame.columns)} | {
        name: ~place for place, name in enumerate(measures)
    }
    schema = {name: measures.get(name) or frame.schema[name] for name in dict.fromkeys(columns)}
    indexes = [places[name] for name in schema]
    rows = [
        tuple(one.row[place] if place >= 0 else one.measures[~place] for place in indexes) for one in results
    ]
    return pl.DataFrame(rows, schema=schema, orient="row", strict=False)


def run_query(
    text: str, tables: Mapping[str, pl.DataFrame], matching: MatchFunction = match_by_search
) -> pl.DataFrame:
    """The answer to a query over named frames."""
    return _QueryRunner(dict(tables), matching).answer(text)


@dataclass
class _QueryRunner:
    tables: dict[str, pl.DataFrame]
    match_partitions: MatchFunction
    temporary_names: list[str] = field(default_factory=list)

    def answer(self, text: str) -> pl.DataFrame:
        """Row patterns first, from left to right,
        so that those inside come before those around them; then the rest.
        """
        while True:
            found = tokenize(text)
            place = next((at for at, word in enumerate(found) if word.upper == "MATCH_RECOGNIZE"), None)
            if place is None:
                return self._execute_plain(text)
            end = find_closing(found, place + 1)
            first, source, names = self._find_source(found, place, text)
            frame = self._read_table(source, text, found)
            if names:
                frame = frame.rename(dict(zip(frame.columns, names, strict=True)))
            row_pattern = self._resolve_queries(
                parse_match_recognize(text[found[place + 1].end : found[end].start])
            )
            name = f"{SUBQUERY_PREFIX}{len(self.temporary_names)}"
            self.temporary_names.append(name)
            self.tables[name] = recognize_matches(row_pattern, frame, self.match_partitions)
            text = f"{text[: found[first].start]} {name} {text[found[end].end :]}"

    def _find_source(self, found: list[Token], place: int, text: str) -> tuple[int, str, list[str]]:
        """Where the table before MATCH_RECOGNIZE begins, its text, and the names of its columns."""
        at, names = place - 1, list[str]()
        if found[at].text == ")":
            begin = find_opening(found, at)
            if found[begin + 1].upper not in ("VALUES", "SELECT", "WITH", "("):
                names = [word.text.strip('"') for word in found[begin + 1 : at] if word.text != ","]
                at = begin - 1
        if (
            found[at].is_name
            and at > 0
            and (found[at - 1].text == ")" or found[at - 1].upper == "AS" or self._is_table(found, at - 1))
        ):
            at -= 2 if found[at - 1].upper == "AS" else 1
        begin = find_opening(found, at) if found[at].text == ")" else at
        return begin, text[found[begin].start : found[at].end], names

    @staticmethod
    def _is_table(found: list[Token], at: int) -> bool:
        return found[at].is_name and found[at].upper not in ("FROM", "JOIN", "LATERAL")

    def _read_table(self, source: str, text: str, found: list[Token]) -> pl.DataFrame:
        if source.startswith("("):
            inner = source[1:-1].strip()
            return (
                _parse_values(inner)
                if inner[:6].upper() == "VALUES"
                else _QueryRunner(self.tables, self.match_partitions, self.temporary_names).answer(inner)
            )
        if source in self.tables:
            return self.tables[source]
        main = _find_main_select(found)
        return self._execute_plain(f"{text[: found[main].start] if main else ''} SELECT * FROM {source}")  # noqa: S608 - it is their query

    def _resolve_queries(self, row_pattern: RowPattern) -> RowPattern:
        """Replaces subqueries by their values: none of them depends on the rows."""
        texts = (*row_pattern.define.values(), *row_pattern.measures.values())
        texts_with_queries = {
            text for text in texts if any(word.upper == "SELECT" for word in tokenize(text))
        }
        resolved = {
            text: replace_queries(parse_sql(text), lambda tree: execute(tree, self.tables))
            for text in texts_with_queries
        }
        return replace(row_pattern, settled=resolved)

    def _execute_plain(self, text: str) -> pl.DataFrame:
        """The result of a query without row patterns."""
        try:
            tree = sqlglot.parse_one(text, read="trino")
        except SqlglotError as error:
            raise DefinitionError(f"the query cannot be parsed: {str(error).splitlines()[0]}") from error
        return execute(tree, self.tables)


def _find_main_select(found: list[Token]) -> int:
    """The index of the SELECT after the WITH of a query; 0 where there is no WITH."""
    depth = 0
    for at, word in enumerate(found):
        if depth == 0 and word.upper == "SELECT":
            return at
        depth += {"(": 1, ")": -1}.get(word.text, 0)
    return 0


def _parse_values(text: str) -> pl.DataFrame:
    """The rows of VALUES (1, 'a'), (2, 'b'), or of VALUES 1, 2."""
    tree = sqlglot.parse_one(f"SELECT * FROM ({text}) AS t", read="trino").find(exp.Values)  # noqa: S608 - it is their query
    if tree is None:
        raise DefinitionError(f"{text} cannot be parsed; write VALUES (1, 'a'), (2, 'b')")
    constants, nowhere = ExpressionCompiler(pl.Schema(), (), {}), MatchContext([])
    rows = [
        one.expressions if isinstance(one, exp.Tuple) else [one.this if isinstance(one, exp.Paren) else one]
        for one in tree.expressions
    ]
    values = [
        [constants.compile(one, inside=False, final=False).evaluate(nowhere, None) for one in row]
        for row in rows
    ]
    return pl.DataFrame(
        values,
        schema=[f"{FIELD_PREFIX}{place}" for place in range(len(values[0]))],
        orient="row",
        infer_schema_length=None,
    )
