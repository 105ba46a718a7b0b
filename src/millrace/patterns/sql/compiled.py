"""A row pattern compiled for a schema: its conditions and measures as functions,
and the result rows of a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl
from sqlglot import exp

from millrace.errors import DefinitionError, MillraceError, PatternFailed
from millrace.patterns.sql import subqueries
from millrace.patterns.sql.clause import RowPattern
from millrace.patterns.sql.expressions import ExpressionCompiler, MappingQuery
from millrace.patterns.sql.match_context import CompiledExpression, MatchContext, NeedsMoreRows, Row
from millrace.patterns.sql.program import Program, rows_before
from millrace.patterns.sql.search import MAX_ATTEMPTS, RowCondition, RowMatch, Search
from millrace.patterns.sql.tokens import tokenize
from millrace.patterns.sql.vectorized import to_column_expression


@dataclass(frozen=True)
class ResultRow:
    """A row of the result: a row of the input, the measures, and the first and last row of the match."""

    row: Row
    measures: tuple[Any, ...]
    first: Row
    last: Row
    index: int = 0


AnalyzedExpression = tuple[CompiledExpression, ExpressionCompiler]
"""A compiled expression, and the compiler that has noted what it asks."""


@dataclass(frozen=True, eq=False)
class CompiledPattern:
    """A row pattern compiled for a schema; `time` is the column by which `within` is measured."""

    row_pattern: RowPattern
    schema: pl.Schema
    time: str | None = None
    max_attempts: int = MAX_ATTEMPTS

    def __post_init__(self) -> None:
        for name in (*self.row_pattern.partition, *(one.column for one in self.row_pattern.order)):
            self.column(name)
        _ = self.search, self.measures

    def column(self, name: str) -> str:
        """The column with a name, or else with that name in another case."""
        found = [one for one in self.schema if one == name] or [
            one for one in self.schema if one.lower() == name.lower()
        ]
        if not found:
            raise DefinitionError(f"{name} is not a column of the rows; there are {', '.join(self.schema)}")
        return found[0]

    @cached_property
    def program(self) -> Program:
        """The steps of the search."""
        return Program.compile(self.row_pattern.pattern, self.row_pattern.variables)

    @cached_property
    def search(self) -> Search:
        """The search for matches. It expects rows with `mask` as their last value."""
        conditions = [
            self._make_condition(name, number) for number, name in enumerate(self.row_pattern.variables)
        ]
        time = list(self.schema).index(self.time) if self.time else 0
        return Search(
            self.program, conditions, self.row_pattern.span if self.time else None, time, self.max_attempts
        )

    @cached_property
    def conditions(self) -> dict[str, AnalyzedExpression]:
        """The conditions of variables as functions."""
        return {name: self._compile_definition(name, text) for name, text in self.row_pattern.define.items()}

    @cached_property
    def measures(self) -> dict[str, AnalyzedExpression]:
        """The measures as functions, in their order."""
        return {name: self._compile(text) for name, text in self.row_pattern.measures.items()}

    @cached_property
    def bits(self) -> dict[int, pl.Expr]:
        """The conditions that are vectorized, by the number of the variable."""
        found: dict[int, pl.Expr] = {}
        for name, text in self.row_pattern.define.items():
            expr = to_column_expression(self._parse_tree(text), self.schema, name)
            if expr is not None and self._is_boolean(expr):
                found[self.row_pattern.variables.index(name)] = expr
        return found

    def mask(self) -> pl.Expr:
        """The vectorized conditions as bits of one number; null counts as false."""
        bits = [
            expr.fill_null(value=False).cast(pl.Int64) * (1 << place)
            for place, expr in enumerate(self.bits.values())
        ]
        return pl.sum_horizontal(bits) if bits else pl.lit(0, pl.Int64)

    @cached_property
    def lookahead_expression(self) -> str | None:
        """An expression that reads rows after the one it starts from, if there is one."""
        texts = {**self.row_pattern.define, **self.row_pattern.measures}
        return next(
            (
                texts[name]
                for name, (_, compiler) in (self.conditions | self.measures).items()
                if compiler.looks_ahead
            ),
            None,
        )

    @cached_property
    def rows_back(self) -> int:
        """The number of rows before the first of a match that expressions may read."""
        distances = [compiler.rows_back for _, compiler in self.measures.values()]
        for name, (_, compiler) in self.conditions.items():
            number = self.row_pattern.variables.index(name)
            distances.append(
                compiler.rows_back
                - (0 if _unsettled_queries(compiler, number) else rows_before(self.program, number))
            )
        return max([0, *distances])

    @property
    def needs_match_number(self) -> bool:
        """Whether an expression reads MATCH_NUMBER()."""
        texts = (*self.row_pattern.measures.values(), *self.row_pattern.define.values())
        return any(word.upper == "MATCH_NUMBER" for text in texts for word in tokenize(text))

    def next_start(self, labels: list[int], start: int) -> int:
        """The row at which the next search begins, see `skip.py`."""
        return self.row_pattern.after.next_start(labels, start, self.variable_sets)

    def result_rows(
        self, context: MatchContext, found: RowMatch, start: int, number: int
    ) -> Iterator[ResultRow]:
        """The result rows of a match."""
        context.start, context.labels, context.match_number = start, found.labels, number
        length = len(found.labels)
        first, last = context.rows[start], context.rows[start + max(length, 1) - 1]
        if length == 0 or not self.row_pattern.all_rows:
            if length or self.row_pattern.empty_matches == "show":
                yield ResultRow(first, self._compute_measures(context, length - 1), first, last)
            return
        for index, place in enumerate(place for place in range(length) if found.is_shown[place]):
            yield ResultRow(
                context.rows[start + place], self._compute_measures(context, place), first, last, index
            )

    def unmatched_rows(self, row: Row) -> Iterator[ResultRow]:
        """The result of a row that belongs to no match: WITH UNMATCHED ROWS shows it."""
        if self.row_pattern.with_unmatched:
            yield ResultRow(row, (None,) * len(self.measures), row, row)

    @cached_property
    def variable_sets(self) -> dict[str, frozenset[int]]:
        """The variables by name: a variable stands for itself, a subset for its members."""
        numbers = {name: number for number, name in enumerate(self.row_pattern.variables)}
        return {name: frozenset({number}) for name, number in numbers.items()} | {
            name: frozenset(numbers[one] for one in members)
            for name, members in self.row_pattern.subsets.items()
        }

    def _compute_measures(self, context: MatchContext, current: int) -> tuple[Any, ...]:
        context.current = current
        return tuple(expression.evaluate(context, None) for expression, _ in self.measures.values())

    def _compile(self, text: str) -> AnalyzedExpression:
        compiler = ExpressionCompiler(self.schema, self.row_pattern.variables, self.variable_sets)
        try:
            compiled = compiler.compile(self._parse_tree(text), inside=False, final=False)
        except MillraceError:
            raise
        except Exception as error:
            raise DefinitionError(
                f"{text!r} cannot be compiled: {_describe_error(error)}; see the functions that row "
                "patterns support"
            ) from error

        def answer(context: MatchContext, at: int | None) -> Any:
            try:
                found = compiled.evaluate(context, at)
            except (MillraceError, NeedsMoreRows):
                raise
            except Exception as error:
                raise PatternFailed(
                    f"{text!r} has no value for a row: {_describe_error(error)}; cast one "
                    "side, or guard it with CASE"
                ) from error
            if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
                raise PatternFailed(
                    f"{text!r} gives {found}, which 64 bits do not hold; cast to DOUBLE before"
                )
            return found

        return CompiledExpression(answer, compiled.dtype), compiler

    def _parse_tree(self, text: str) -> exp.Expr:
        resolved = self.row_pattern.settled.get(text)
        return (
            subqueries.replace_queries(subqueries.parse_sql(text), subqueries.execute_without_tables)
            if resolved is None
            else resolved
        )

    def _compile_definition(self, name: str, text: str) -> AnalyzedExpression:
        if any(word.upper == "FINAL" for word in tokenize(text)):
            raise DefinitionError(
                f"DEFINE {name} AS {text}: while a match is being built, nothing is FINAL; leave it out"
            )
        compiled, compiler = self._compile(text)
        if compiled.dtype not in (pl.Boolean, pl.Null):
            raise DefinitionError(
                f"DEFINE {name} AS {text} is {compiled.dtype}, but a condition is true or false; compare "
                "it, as in `... > 0`"
            )
        return compiled, compiler

    def _make_condition(self, name: str, number: int) -> RowCondition | None:
        if name not in self.conditions:
            return None
        compiled, compiler = self.conditions[name]
        if number in self.bits:
            bit, place = 1 << list(self.bits).index(number), len(self.schema)
            return RowCondition(
                lambda context: context.rows[context.start + context.current][place] & bit != 0, ()
            )
        return RowCondition(
            lambda context: compiled.evaluate(context, None), _unsettled_queries(compiler, number)
        )

    def _is_boolean(self, expr: pl.Expr) -> bool:
        try:
            return self.schema.to_frame().select(expr.alias("fits")).dtypes == [pl.Boolean]
        except pl.exceptions.PolarsError:
            return False


def _describe_error(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _unsettled_queries(compiler: ExpressionCompiler, own: int) -> tuple[MappingQuery, ...]:
    """What a condition asks that depends on how earlier rows were mapped.

    Some questions have one answer whatever the mapping: its own row is mapped to the variable `own`, so
    LAST(own) is that row.
    """

    def is_settled(ask: MappingQuery) -> bool:
        if ask.kind == "whole":
            return False
        return ask.variables is None or (ask.kind == "last" and ask.offset == 0 and own in ask.variables)

    return tuple(ask for ask in compiler.queries if not is_settled(ask))
