"""The search for one match: ways through the program in order of preference, and back where nothing comes of them.

What happens after a place in the program depends on the row it is at, on which loops around it have taken a row, and on what conditions ask
of the rows taken so far. What has been tried from there is not tried again; so patterns whose conditions look at rows alone take
polynomial time, and others end in an error, not in a search without end.
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
"""How much is tried for one match, and more for each row there is; beyond it, a pattern doubles with each row."""


LoopStarts = tuple[int, ...]
"""For each loop that may take no row, the row at which its repetition began."""


@dataclass(frozen=True)
class RowCondition:
    """What a row must fulfil to be mapped to a variable."""

    holds: Callable[[MatchContext], Any]
    queries: tuple[MappingQuery, ...]
    """What it wants to know of the mapping of earlier rows; nothing: it looks at rows alone."""


@dataclass(frozen=True)
class RowMatch:
    """A match: the variables of its rows, and which of them are shown."""

    labels: list[int]
    is_shown: list[bool]


@dataclass(frozen=True, eq=False)
class Search:
    """A program and its conditions, ready for rows."""

    program: Program
    conditions: Sequence[RowCondition | None]
    """For each variable; None: every row."""
    span: int | None = None
    time_index: int = 0
    """The place of the time in a row."""
    max_attempts: int = MAX_ATTEMPTS

    @cached_property
    def queries(self) -> tuple[MappingQuery, ...]:
        """What any condition wants to know of the mapping."""
        return tuple(
            dict.fromkeys(
                ask for condition in self.conditions if condition is not None for ask in condition.queries
            )
        )

    def find(self, context: MatchContext, start: int, watermark: int | None = None) -> RowMatch | None:
        """The preferred match that begins at a row; `Undecided` if rows that may still come before the watermark could change it."""
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
        """Where a step leads that takes no row and leaves no choice; nowhere: NONE."""
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
        """Whether the row fits the variable; then it is mapped to it."""
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
        """Whether the same has been tried before; then it led to nothing."""
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
        """All that a condition can know of how rows are mapped."""
        if ask.kind in ("first", "last"):
            places = context.all_rows(ask.variables, final=True, newest_first=ask.kind == "last")
            return tuple(islice(places, min(ask.offset, len(context.labels)) + 1))
        members = ask.variables
        return tuple(label if members is None or label in members else NOWHERE for label in context.labels)


def _too_many_attempts(most: int, length: int) -> PatternFailed:
    return PatternFailed(
        f"more than {most:,} ways were tried to match one beginning, {length} rows on: the pattern doubles with each row, because its "
        "conditions ask how earlier rows were mapped; let variables exclude each other, or use WITHIN"
    )
