"""A row pattern, ready for rows of a schema: its conditions as functions, and what it shows of a match."""

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
from millrace.patterns.sql.columns import columnar
from millrace.patterns.sql.expressions import Ask, Compiler
from millrace.patterns.sql.program import Program, distance
from millrace.patterns.sql.scene import Compiled, Row, Scene, Undecided
from millrace.patterns.sql.search import MOST_TRIED, Condition, Found, Search
from millrace.patterns.sql.tokens import words


@dataclass(frozen=True)
class Shown:
    """A row of the result: a row of the input, the measures, and the first and the last row of the match it is from."""

    row: Row
    measures: tuple[Any, ...]
    first: Row
    last: Row
    index: int = 0


Made = tuple[Compiled, Compiler]
"""An expression, and what was noted when it was made."""


@dataclass(frozen=True, eq=False)
class Looking:
    """A row pattern over columns; `time` is the column by which `within` is measured."""

    said: RowPattern
    schema: pl.Schema
    time: str | None = None
    most: int = MOST_TRIED

    def __post_init__(self) -> None:
        for name in (*self.said.partition, *(one.column for one in self.said.order)):
            self.column(name)
        _ = self.search, self.measures

    def column(self, name: str) -> str:
        """The column that a name means; its case does not matter."""
        found = [one for one in self.schema if one == name] or [
            one for one in self.schema if one.lower() == name.lower()
        ]
        if not found:
            raise DefinitionError(f"{name} is no column of the rows; there are {', '.join(self.schema)}")
        return found[0]

    @cached_property
    def program(self) -> Program:
        """The pattern as a program."""
        return Program.of(self.said.pattern, self.said.variables)

    @cached_property
    def search(self) -> Search:
        """What finds matches. Rows have, after their columns, the bits of `mask`."""
        conditions = [self._condition(name, number) for number, name in enumerate(self.said.variables)]
        time = list(self.schema).index(self.time) if self.time else 0
        return Search(self.program, conditions, self.said.span if self.time else None, time, self.most)

    @cached_property
    def conditions(self) -> dict[str, Made]:
        """The conditions of variables, none of them by columns."""
        return {name: self._defined(name, text) for name, text in self.said.define.items()}

    @cached_property
    def measures(self) -> dict[str, Made]:
        """What is shown of a match."""
        return {name: self._compiled(text) for name, text in self.said.measures.items()}

    @cached_property
    def bits(self) -> dict[int, pl.Expr]:
        """The conditions that are computed by columns, by the number of the variable."""
        found: dict[int, pl.Expr] = {}
        for name, text in self.said.define.items():
            expr = columnar(self._tree(text), self.schema, name)
            if expr is not None and self._fits(expr):
                found[self.said.variables.index(name)] = expr
        return found

    def mask(self) -> pl.Expr:
        """All of them as bits of one number."""
        bits = [
            expr.fill_null(value=False).cast(pl.Int64) * (1 << place)
            for place, expr in enumerate(self.bits.values())
        ]
        return pl.sum_horizontal(bits) if bits else pl.lit(0, pl.Int64)

    @cached_property
    def ahead(self) -> str | None:
        """The expression that looks at rows after the one it starts from, if one does."""
        texts = {**self.said.define, **self.said.measures}
        return next(
            (texts[name] for name, (_, noted) in (self.conditions | self.measures).items() if noted.ahead),
            None,
        )

    @cached_property
    def reach(self) -> int:
        """How many rows before the first of a match may be asked for."""
        far = [noted.back for _, noted in self.measures.values()]
        for name, (_, noted) in self.conditions.items():
            number = self.said.variables.index(name)
            far.append(noted.back - (0 if _open(noted, number) else distance(self.program, number)))
        return max([0, *far])

    @property
    def counts(self) -> bool:
        """Whether it matters how many matches there were before."""
        texts = (*self.said.measures.values(), *self.said.define.values())
        return any(word.upper == "MATCH_NUMBER" for text in texts for word in words(text))

    def next_start(self, labels: list[int], start: int) -> int:
        """Where the search goes on after a match."""
        after = self.said.after
        if not labels or after.kind == "to_next":
            return start + 1
        if after.variable is None:
            return start + len(labels)
        places = [place for place, label in enumerate(labels) if label in self.unions[after.variable]]
        if not places:
            raise PatternFailed(
                f"AFTER MATCH SKIP failed: pattern variable is not present in match: {after.variable}", "skip"
            )
        target = places[0] if after.kind == "to_first" else places[-1]
        if target == 0:
            raise PatternFailed(
                f"AFTER MATCH SKIP failed: cannot skip to first row of match: it is of {after.variable}",
                "skip",
            )
        return start + target

    def shown(self, scene: Scene, found: Found, start: int, number: int) -> Iterator[Shown]:
        """What is shown of a match."""
        scene.start, scene.labels, scene.number = start, found.labels, number
        length = len(found.labels)
        first, last = scene.rows[start], scene.rows[start + max(length, 1) - 1]
        if length == 0 or not self.said.all_rows:
            if length or self.said.empty == "show":
                yield Shown(first, self._measured(scene, length - 1), first, last)
            return
        for index, place in enumerate(place for place in range(length) if found.shown[place]):
            yield Shown(scene.rows[start + place], self._measured(scene, place), first, last, index)

    def unmatched(self, row: Row) -> Iterator[Shown]:
        """What is shown of a row that belongs to no match."""
        if self.said.unmatched:
            yield Shown(row, (None,) * len(self.measures), row, row)

    @cached_property
    def unions(self) -> dict[str, frozenset[int]]:
        """The variables of each name: one, or those of a subset."""
        numbers = {name: number for number, name in enumerate(self.said.variables)}
        return {name: frozenset({number}) for name, number in numbers.items()} | {
            name: frozenset(numbers[one] for one in members) for name, members in self.said.subsets.items()
        }

    def _measured(self, scene: Scene, here: int) -> tuple[Any, ...]:
        scene.here = here
        return tuple(made.answer(scene, None) for made, _ in self.measures.values())

    def _compiled(self, text: str) -> Made:
        compiler = Compiler(self.schema, self.said.variables, self.unions)
        try:
            made = compiler.of(self._tree(text), inside=False, final=False)
        except MillraceError:
            raise
        except Exception as error:
            raise DefinitionError(
                f"{text!r} is not understood: {_reason(error)}; see which functions row patterns know"
            ) from error

        def answer(scene: Scene, at: int | None) -> Any:
            try:
                found = made.answer(scene, at)
            except (MillraceError, Undecided):
                raise
            except Exception as error:
                raise PatternFailed(
                    f"{text!r} has no value for a row: {_reason(error)}; cast one side, or guard it with CASE"
                ) from error
            if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
                raise PatternFailed(
                    f"{text!r} gives {found}, which 64 bits do not hold; cast to DOUBLE before"
                )
            return found

        return Compiled(answer, made.dtype), compiler

    def _tree(self, text: str) -> exp.Expr:
        settled = self.said.settled.get(text)
        return subqueries.settle(subqueries.parse(text), subqueries.constants) if settled is None else settled

    def _defined(self, name: str, text: str) -> Made:
        if any(word.upper == "FINAL" for word in words(text)):
            raise DefinitionError(
                f"DEFINE {name} AS {text}: while a match is being made nothing is FINAL; leave it out"
            )
        made, compiler = self._compiled(text)
        if made.dtype not in (pl.Boolean, pl.Null):
            raise DefinitionError(
                f"DEFINE {name} AS {text} is {made.dtype}, but a condition is true or false"
            )
        return made, compiler

    def _condition(self, name: str, number: int) -> Condition | None:
        if name not in self.conditions:
            return None
        made, noted = self.conditions[name]
        if number in self.bits:
            bit, place = 1 << list(self.bits).index(number), len(self.schema)
            return Condition(lambda scene: scene.rows[scene.start + scene.here][place] & bit != 0, ())
        return Condition(lambda scene: made.answer(scene, None), _open(noted, number))

    def _fits(self, expr: pl.Expr) -> bool:
        try:
            return self.schema.to_frame().select(expr.alias("fits")).dtypes == [pl.Boolean]
        except pl.exceptions.PolarsError:
            return False


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _open(noted: Compiler, own: int) -> tuple[Ask, ...]:
    """What a condition asks that depends on how earlier rows were mapped; its own row is mapped to `own`."""

    def settled(ask: Ask) -> bool:
        if ask.kind == "whole":
            return False
        return ask.members is None or (ask.kind == "last" and ask.offset == 0 and own in ask.members)

    return tuple(ask for ask in noted.asks if not settled(ask))
