"""What a row pattern of SQL matches, by definition: of all mappings of rows, the preferred one that fits.

Obviously right and exponentially slow; the search of `patterns/sql/` is held to it. Both share the language:
the grammar of patterns, what an expression means for a row (`patterns/sql/expressions.py`), and how it finds
the rows of a variable (`patterns/sql/match_context.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl
from sqlglot import exp

from millrace.errors import MillraceError, PatternFailed
from millrace.patterns.sql import subqueries
from millrace.patterns.sql.clause import RowPattern
from millrace.patterns.sql.expressions import ExpressionCompiler
from millrace.patterns.sql.grammar import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Repetition,
    RowPatternPart,
    Variable,
)
from millrace.patterns.sql.match_context import CompiledExpression, MatchContext, NeedsMoreRows, Row

MAX_TRIES = 20_000
"""How many ways are tried for one match."""


class TooManyWays(PatternFailed):
    """The definition would take too long; the search may still find the match."""


RowMapping = tuple[tuple[str, bool], ...]
"""Rows mapped to variables, each shown or not."""


@dataclass(frozen=True)
class ShownRow:
    """A result: a row of the input, the measures, and the first and the last row of the match."""

    row: Row
    measures: tuple[Any, ...]
    first: Row
    last: Row
    index: int = 0


@dataclass(frozen=True, eq=False)
class RowPatternDefinition:
    """A row pattern over columns; `time` is the column by which `within` is measured."""

    row_pattern: RowPattern
    schema: pl.Schema
    time: str | None = None

    @cached_property
    def conditions(self) -> dict[str, CompiledExpression]:
        """The conditions of variables."""
        return {name: self._compile(text) for name, text in self.row_pattern.define.items()}

    @cached_property
    def measures(self) -> dict[str, CompiledExpression]:
        """The measures by name."""
        return {name: self._compile(text) for name, text in self.row_pattern.measures.items()}

    @cached_property
    def variable_sets(self) -> dict[str, frozenset[int]]:
        """The variables of each name, by number: one, or those of a subset."""
        names = self.row_pattern.variables
        own = {name: frozenset({number}) for number, name in enumerate(names)}
        subsets = self.row_pattern.subsets.items()
        return own | {name: frozenset(map(names.index, members)) for name, members in subsets}

    def match_partition(self, rows: Sequence[Row], watermark: int, *, is_ended: bool) -> Iterator[ShownRow]:
        """The results of one partition so far, up to the first match that later rows could change."""
        context = MatchContext(list(rows), is_ended=is_ended)
        start, match_number, matched_until = 0, 1, 0
        while start < len(rows):
            search = PreferredMatch(self, context, start, match_number, watermark)
            try:
                mapping = next(search.map_part(self.row_pattern.pattern, ()), None)
                shown = [] if mapping is None else list(self._show(context, mapping, start, match_number))
            except NeedsMoreRows:
                return
            if mapping is None:
                if start >= matched_until and self.row_pattern.with_unmatched:
                    yield ShownRow(rows[start], (None,) * len(self.measures), rows[start], rows[start])
                start += 1
                continue
            yield from shown
            matched_until = max(matched_until, start + len(mapping))
            start, match_number = self._next_start(mapping, start), match_number + 1

    def _show(
        self, context: MatchContext, mapping: RowMapping, start: int, match_number: int
    ) -> Iterator[ShownRow]:
        """The results of a match: one row, also for an empty match, or all its rows."""
        clause, length = self.row_pattern, len(mapping)
        set_context(context, self.row_pattern.variables, mapping, start, match_number)
        whole = ShownRow(
            context.rows[start], (), context.rows[start], context.rows[start + max(length, 1) - 1]
        )
        if length and clause.all_rows:
            shown_places = [place for place, (_, is_shown) in enumerate(mapping) if is_shown]
            for index, place in enumerate(shown_places):
                measures = self._measure(context, place)
                yield replace(whole, row=context.rows[start + place], measures=measures, index=index)
        elif length or clause.empty_matches == "show":
            yield replace(whole, measures=self._measure(context, length - 1))

    def _measure(self, context: MatchContext, current: int) -> tuple[Any, ...]:
        context.current = current
        return tuple(expression.evaluate(context, None) for expression in self.measures.values())

    def _next_start(self, mapping: RowMapping, start: int) -> int:
        """Where matching goes on after a match."""
        after = self.row_pattern.after
        if not mapping or after.kind == "to_next":
            return start + 1
        if after.variable is None:
            return start + len(mapping)
        members = self.row_pattern.subsets.get(after.variable, (after.variable,))
        places = [place for place, (name, _) in enumerate(mapping) if name in members]
        if not places:
            raise PatternFailed(
                f"AFTER MATCH SKIP failed: pattern variable is not present in match: {after.variable}", "skip"
            )
        place = places[0] if after.kind == "to_first" else places[-1]
        if place == 0:
            raise PatternFailed(
                f"AFTER MATCH SKIP failed: cannot skip to first row of match: it is of {after.variable}",
                "skip",
            )
        return start + place

    def _compile(self, text: str) -> CompiledExpression:
        compiler = ExpressionCompiler(self.schema, self.row_pattern.variables, self.variable_sets)
        compiled = compiler.compile(self._parse(text), inside=False, final=False)

        def evaluate(context: MatchContext, at: int | None) -> Any:
            try:
                value = compiled.evaluate(context, at)
            except (MillraceError, NeedsMoreRows):
                raise
            except Exception as error:
                raise PatternFailed(
                    f"{text!r} has no value for a row: {type(error).__name__}: {error}; cast one side, or "
                    "guard it with CASE"
                ) from error
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise PatternFailed(
                    f"{text!r} gives {value}, which 64 bits do not hold; cast to DOUBLE before"
                )
            return value

        return replace(compiled, evaluate=evaluate)

    def _parse(self, text: str) -> exp.Expr:
        if text in self.row_pattern.settled:
            return self.row_pattern.settled[text]
        return subqueries.replace_queries(subqueries.parse_sql(text), subqueries.execute_without_tables)


def set_context(
    context: MatchContext, variables: Sequence[str], mapping: RowMapping, start: int, match_number: int
) -> None:
    """Lets expressions see a mapping whose last row is the current one."""
    context.start, context.match_number = start, match_number
    context.labels = [variables.index(name) for name, _ in mapping]
    context.current = len(mapping) - 1


@dataclass
class PreferredMatch:
    """Enumerates the ways to map rows from one row on that fit, the preferred first.

    Raises `NeedsMoreRows` where a way goes on beyond the rows so far, since it is preferred to all that
    follow.
    """

    definition: RowPatternDefinition
    context: MatchContext
    start: int
    match_number: int
    watermark: int
    tries: int = 0

    def map_part(
        self, part: RowPatternPart, before: RowMapping, *, is_shown: bool = True
    ) -> Iterator[RowMapping]:
        """Every mapping that continues `before` through a part."""
        self.tries += 1
        if self.tries > MAX_TRIES:
            raise TooManyWays(f"the definition allows more than {MAX_TRIES:,} ways to begin; use fewer rows")
        match part:
            case Variable(name):
                yield from self._map_row(name, before, is_shown=is_shown)
            case Anchor():
                if self._is_at_anchor(part, self.start + len(before)):
                    yield before
            case Concatenation(parts):
                yield from self._map_parts(parts, before, is_shown=is_shown)
            case Alternation(parts):
                for alternative in parts:
                    yield from self.map_part(alternative, before, is_shown=is_shown)
            case Exclusion(inner):
                yield from self.map_part(inner, before, is_shown=False)
            case Repetition():
                yield from self._map_repetition(part, 0, before, is_shown=is_shown)

    def _map_row(self, name: str, before: RowMapping, *, is_shown: bool) -> Iterator[RowMapping]:
        place, rows, deadline = self.start + len(before), self.context.rows, self._deadline()
        if place == len(rows):
            if self.context.is_ended or (deadline is not None and self.watermark >= deadline):
                return
            raise NeedsMoreRows
        if deadline is not None and self._time_of(rows[place]) >= deadline:
            return
        mapping = (*before, (name, is_shown))
        condition = self.definition.conditions.get(name)
        variables = self.definition.row_pattern.variables
        set_context(self.context, variables, mapping, self.start, self.match_number)
        if condition is None or condition.evaluate(self.context, None) is True:
            yield mapping

    def _is_at_anchor(self, anchor: Anchor, place: int) -> bool:
        if not anchor.is_end:
            return place == 0
        if place == len(self.context.rows) and not self.context.is_ended:
            raise NeedsMoreRows
        return place == len(self.context.rows)

    def _map_parts(
        self, parts: Sequence[RowPatternPart], before: RowMapping, *, is_shown: bool
    ) -> Iterator[RowMapping]:
        if not parts:
            yield before
            return
        for first in self.map_part(parts[0], before, is_shown=is_shown):
            yield from self._map_parts(parts[1:], first, is_shown=is_shown)

    def _map_repetition(
        self, part: Repetition, turns: int, before: RowMapping, *, is_shown: bool
    ) -> Iterator[RowMapping]:
        """Maps another turn or none.

        In an unbounded repetition, a turn beyond `least` that takes no row is the last.
        """
        is_enough = turns >= part.least
        if is_enough and part.is_reluctant:
            yield before
        if part.most is None or turns < part.most:
            for turn in self.map_part(part.part, before, is_shown=is_shown):
                if is_enough and turn == before and part.most is None:
                    yield turn
                else:
                    yield from self._map_repetition(part, turns + 1, turn, is_shown=is_shown)
        if is_enough and not part.is_reluctant:
            yield before

    def _deadline(self) -> int | None:
        """When a match that begins here must be complete."""
        span = self.definition.row_pattern.span
        if span is None or self.definition.time is None:
            return None
        return self._time_of(self.context.rows[self.start]) + span

    def _time_of(self, row: Row) -> int:
        return int(row[list(self.definition.schema).index(self.definition.time or "")])
