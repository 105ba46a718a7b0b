"""The search for one match: backtracking through the program, preferred paths first.

SQL defines a match by preferment: of all mappings of rows to variables that fit, the preferred one is the
match. `A*` prefers to take another row, `A*?` prefers to stop, and `A | B` prefers A. The program has these
preferences as the order of its choices. So the first path that reaches `Accept` is the match. With `A* B`,
where A is any row, B is `value > 5`, and the values are 1 7 3 8 2:

    A A A A A    no row is left for B; back to the newest choice
    A A A A B    row 5 (2) is not a B; back
    A A A B      row 4 (8) is a B: the match is rows 1 to 4

Rows 1 and 2 would fit as A B, but they are less preferred.

Backtracking alone would take exponential time. What follows a place in the program depends only on the row,
on which loops around it have taken no row yet, and on what conditions ask of the rows mapped so far
(`MappingQuery`). These form a key, and a key that has been tried has failed: else the search would have
ended. So it is not tried again. Where conditions look at rows alone, there are at most (places x rows) keys
and the search is polynomial. Conditions such as `SUM(A.value) < 10` make a key of the whole mapping; then the
number of attempts is limited, and beyond the limit the search fails with an error.

On a stream, a search that needs a row that has not arrived raises `NeedsMoreRows`. It is repeated from its
start when rows arrive, or when the watermark passes first + within, after which no row could belong to the
match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from millrace.errors import PatternFailed
from millrace.patterns.sql.expressions import MappingQuery
from millrace.patterns.sql.match_context import MatchContext, NeedsMoreRows
from millrace.patterns.sql.program import (
    NOWHERE,
    Accept,
    AtAnchor,
    Choice,
    Jump,
    LoopEnd,
    LoopStart,
    Program,
    TakeRow,
)

MAX_ATTEMPTS, ATTEMPTS_PER_ROW = 100_000, 50
"""The limit of attempts for one match, and what each row adds to it."""


LoopStarts = tuple[int, ...]
"""For each loop whose body may be empty: the row at which the current repetition began."""


@dataclass(frozen=True)
class RowCondition:
    """The condition of a variable."""

    holds: Callable[[MatchContext], Any]
    queries: tuple[MappingQuery, ...]
    """What it asks of the mapping of earlier rows; empty if it looks at rows alone."""


@dataclass(frozen=True)
class RowMatch:
    """A match: the variable of each row, and whether ALL ROWS PER MATCH shows it."""

    labels: list[int]
    is_shown: list[bool]


@dataclass(frozen=True, eq=False)
class Search:
    """A program with the conditions of its variables."""

    program: Program
    conditions: Sequence[RowCondition | None]
    """By variable; None: every row fits."""
    span: int | None = None
    time_index: int = 0
    """The index of the time column in a row."""
    max_attempts: int = MAX_ATTEMPTS

    @cached_property
    def queries(self) -> tuple[MappingQuery, ...]:
        """All that conditions ask of the mapping."""
        return tuple(
            dict.fromkeys(
                ask for condition in self.conditions if condition is not None for ask in condition.queries
            )
        )

    def find(self, context: MatchContext, start: int, watermark: int | None = None) -> RowMatch | None:
        """The preferred match that begins at a row.
        Raises `NeedsMoreRows` where a row that may still arrive could change it.
        """
        steps, rows = self.program.steps, context.rows
        context.start, context.labels = start, []
        shown: list[bool] = []
        until = None if self.span is None else rows[start][self.time_index] + self.span
        tried: set[Any] = set()
        stack: list[tuple[int, int, LoopStarts]] = [(0, start, (NOWHERE,) * self.program.loops)]
        count, most = 0, self.max_attempts + ATTEMPTS_PER_ROW * (len(rows) - start)
        while stack:
            place, row, loops = stack.pop()
            del context.labels[row - start :], shown[row - start :]
            while place != NOWHERE:
                count += 1
                if count > most:
                    raise _too_many_attempts(most, len(context.labels))
                step = steps[place]
                if isinstance(step, Accept):
                    return RowMatch(list(context.labels), shown)
                if isinstance(step, TakeRow | Choice) and self._is_tried(tried, place, row, loops, context):
                    break
                if isinstance(step, Choice):
                    stack.append((step.second, row, loops))
                    place = step.first
                elif isinstance(step, TakeRow):
                    if not self._take_row(context, step, row, until, watermark):
                        break
                    shown.append(step.is_shown)
                    place, row = place + 1, row + 1
                else:
                    place, loops = self._pass_step(step, place, row, loops, context)
        return None

    @staticmethod
    def _pass_step(
        step: Jump | AtAnchor | LoopStart | LoopEnd,
        place: int,
        row: int,
        loops: LoopStarts,
        context: MatchContext,
    ) -> tuple[int, LoopStarts]:
        """The next place after a step that takes no row and has no alternative; NOWHERE if it fails."""
        match step:
            case Jump(to):
                return to, loops
            case LoopStart(loop):
                return place + 1, (*loops[:loop], row, *loops[loop + 1 :])
            case LoopEnd(loop, after):
                return (after if loops[loop] == row else place + 1), (
                    *loops[:loop],
                    NOWHERE,
                    *loops[loop + 1 :],
                )
            case AtAnchor(end):
                if end and row == len(context.rows) and not context.is_ended:
                    raise NeedsMoreRows
                stands = row == len(context.rows) if end else row == 0 and not context.has_rows_before
                return (place + 1 if stands else NOWHERE), loops

    def _take_row(
        self, context: MatchContext, step: TakeRow, row: int, until: int | None, watermark: int | None
    ) -> bool:
        """Maps the row to the variable of the step, if it fits."""
        if row == len(context.rows):
            if context.is_ended or (until is not None and watermark is not None and watermark >= until):
                return False
            raise NeedsMoreRows
        if until is not None and context.rows[row][self.time_index] >= until:
            return False
        condition = self.conditions[step.variable]
        context.labels.append(step.variable)
        if condition is None:
            return True
        context.current = row - context.start
        if condition.holds(context) is True:
            return True
        context.labels.pop()
        return False

    def _is_tried(
        self, tried: set[Any], place: int, row: int, loops: LoopStarts, context: MatchContext
    ) -> bool:
        """Whether the same state was tried before, and so has failed; notes it as tried."""
        still = tuple(loop_start == row for loop_start in loops)
        key = (
            (place, row, still, *(self._answer_query(ask, context) for ask in self.queries))
            if self.queries
            else (place, row, still)
        )
        if key in tried:
            return True
        tried.add(key)
        return False

    @staticmethod
    def _answer_query(ask: MappingQuery, context: MatchContext) -> tuple[int, ...]:
        """The part of the mapping that a query can see, as a part of the key."""
        if ask.kind in ("first", "last"):
            places = context.all_rows(ask.variables, final=True, newest_first=ask.kind == "last")
            return tuple(islice(places, min(ask.offset, len(context.labels)) + 1))
        members = ask.variables
        return tuple(label if members is None or label in members else NOWHERE for label in context.labels)


def _too_many_attempts(most: int, length: int) -> PatternFailed:
    return PatternFailed(
        f"more than {most:,} attempts were made to find one match, at a length of {length} rows: the number "
        "doubles with each row, because conditions ask how earlier rows were mapped; let variables exclude "
        "each other, or use WITHIN"
    )
