"""Queries with MATCH_RECOGNIZE over frames: row patterns are answered here, everything around them by the SQL of polars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace.errors import DefinitionError
from millrace.patterns.sql.clause import RowPattern, match_recognize
from millrace.patterns.sql.compiled import Looking, Shown
from millrace.patterns.sql.expressions import Compiler
from millrace.patterns.sql.matcher import RowMatcher
from millrace.patterns.sql.scene import Row, Scene
from millrace.patterns.sql.subqueries import execute, parse, settle
from millrace.patterns.sql.tokens import Word, closing, opening, words
from millrace.timestamps import check_micros

Matching = Callable[[Looking, Sequence[Sequence[Row]]], Iterable[Shown]]
"""What is shown of the rows of partitions, each in order; they have no bits yet."""


def by_search(looking: Looking, lanes: Sequence[Sequence[Row]]) -> Iterable[Shown]:
    """Matches as the search finds them."""
    for rows in lanes:
        frame = pl.DataFrame(rows, schema=looking.schema, orient="row")
        ready = frame.select(*looking.schema, looking.mask().alias("_mask")).rows()
        yield from RowMatcher(looking).follow(None, ready, None, ended=True)[1]


def matched(said: RowPattern, frame: pl.DataFrame, matching: Matching = by_search) -> pl.DataFrame:
    """MATCH_RECOGNIZE of a frame: its rows by partition and in order, and what is shown of their matches.

    A measure that has the name of a column stands in its place. Rows are plain Python here, so times finer than a microsecond are refused.
    """
    for column in frame:
        check_micros(column)
    looking = Looking(said, frame.schema)
    partition = [looking.column(name) for name in said.partition]
    ways = {looking.column(one.column): one for one in reversed(said.order)}
    order = list(dict.fromkeys(looking.column(one.column) for one in said.order))
    if order:
        descending, last = (
            [ways[name].descending for name in order],
            [ways[name].nulls_last for name in order],
        )
        frame = frame.sort(order, descending=descending, nulls_last=last, maintain_order=True)
    lanes = frame.partition_by(partition, maintain_order=True) if partition and frame.height else [frame]
    shown = matching(looking, [lane.rows() for lane in lanes])
    measures = {name: made.dtype for name, (made, _) in looking.measures.items()}
    columns = [*partition, *order, *measures, *frame.columns] if said.all_rows else [*partition, *measures]
    places = {name: place for place, name in enumerate(frame.columns)} | {
        name: ~place for place, name in enumerate(measures)
    }
    schema = {name: measures.get(name) or frame.schema[name] for name in dict.fromkeys(columns)}
    taken = [places[name] for name in schema]
    rows = [tuple(one.row[place] if place >= 0 else one.measures[~place] for place in taken) for one in shown]
    return pl.DataFrame(rows, schema=schema, orient="row", strict=False)


def query(text: str, tables: Mapping[str, pl.DataFrame], matching: Matching = by_search) -> pl.DataFrame:
    """The answer to a query over named frames."""
    return _Asked(dict(tables), matching).answer(text)


@dataclass
class _Asked:
    tables: dict[str, pl.DataFrame]
    matching: Matching
    made: list[str] = field(default_factory=list)

    def answer(self, text: str) -> pl.DataFrame:
        """Row patterns first, from left to right, so that those inside come before those around them; then the rest."""
        while True:
            found = words(text)
            place = next((at for at, word in enumerate(found) if word.upper == "MATCH_RECOGNIZE"), None)
            if place is None:
                return self._plain(text)
            end = closing(found, place + 1)
            first, source, names = self._source(found, place, text)
            frame = self._table(source, text, found)
            if names:
                frame = frame.rename(dict(zip(frame.columns, names, strict=True)))
            said = self._settled(match_recognize(text[found[place + 1].end : found[end].start]))
            name = f"_matched_{len(self.made)}"
            self.made.append(name)
            self.tables[name] = matched(said, frame, self.matching)
            text = f"{text[: found[first].start]} {name} {text[found[end].end :]}"

    def _source(self, found: list[Word], place: int, text: str) -> tuple[int, str, list[str]]:
        """Where the table before MATCH_RECOGNIZE begins, what it is, and how its columns are called."""
        at, names = place - 1, list[str]()
        if found[at].text == ")":
            begin = opening(found, at)
            if found[begin + 1].upper not in ("VALUES", "SELECT", "WITH", "("):
                names = [word.text.strip('"') for word in found[begin + 1 : at] if word.text != ","]
                at = begin - 1
        if (
            found[at].is_name
            and at > 0
            and (found[at - 1].text == ")" or found[at - 1].upper == "AS" or self._is_table(found, at - 1))
        ):
            at -= 2 if found[at - 1].upper == "AS" else 1
        begin = opening(found, at) if found[at].text == ")" else at
        return begin, text[found[begin].start : found[at].end], names

    @staticmethod
    def _is_table(found: list[Word], at: int) -> bool:
        return found[at].is_name and found[at].upper not in ("FROM", "JOIN", "LATERAL")

    def _table(self, source: str, text: str, found: list[Word]) -> pl.DataFrame:
        if source.startswith("("):
            inner = source[1:-1].strip()
            return (
                _values(inner)
                if inner[:6].upper() == "VALUES"
                else _Asked(self.tables, self.matching, self.made).answer(inner)
            )
        if source in self.tables:
            return self.tables[source]
        main = _main(found)
        return self._plain(f"{text[: found[main].start] if main else ''} SELECT * FROM {source}")  # noqa: S608 - it is their query

    def _settled(self, said: RowPattern) -> RowPattern:
        """With values in place of queries: none of them depends on the rows."""
        texts = (*said.define.values(), *said.measures.values())
        asking = {text for text in texts if any(word.upper == "SELECT" for word in words(text))}
        settled = {text: settle(parse(text), lambda tree: execute(tree, self.tables)) for text in asking}
        return replace(said, settled=settled)

    def _plain(self, text: str) -> pl.DataFrame:
        """A query without row patterns."""
        try:
            tree = sqlglot.parse_one(text, read="trino")
        except SqlglotError as error:
            raise DefinitionError(f"the query is not understood: {str(error).splitlines()[0]}") from error
        return execute(tree, self.tables)


def _main(found: list[Word]) -> int:
    """The place of the SELECT that follows the WITH of a query; 0: it has none."""
    depth = 0
    for at, word in enumerate(found):
        if depth == 0 and word.upper == "SELECT":
            return at
        depth += {"(": 1, ")": -1}.get(word.text, 0)
    return 0


def _values(text: str) -> pl.DataFrame:
    """The rows of VALUES (1, 'a'), (2, 'b'), or of VALUES 1, 2."""
    tree = sqlglot.parse_one(f"SELECT * FROM ({text}) AS t", read="trino").find(exp.Values)  # noqa: S608 - it is their query
    if tree is None:
        raise DefinitionError(f"{text} is not understood; write VALUES (1, 'a'), (2, 'b')")
    constants, nowhere = Compiler(pl.Schema(), (), {}), Scene([])
    rows = [
        one.expressions if isinstance(one, exp.Tuple) else [one.this if isinstance(one, exp.Paren) else one]
        for one in tree.expressions
    ]
    values = [
        [constants.of(one, inside=False, final=False).answer(nowhere, None) for one in row] for row in rows
    ]
    return pl.DataFrame(
        values,
        schema=[f"_col{place}" for place in range(len(values[0]))],
        orient="row",
        infer_schema_length=None,
    )
