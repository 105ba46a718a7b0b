"""What a row pattern matches, by definition: all ways in which rows can be mapped, the preferred first, and of these the first that fits.

Obviously right and exponentially slow. The search is held to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millrace.errors import PatternFailed
from millrace.patterns.sql.compiled import CompiledPattern, ResultRow
from millrace.patterns.sql.grammar import Alternation, Anchor, Exclusion, Repetition, RowPatternPart, Variable
from millrace.patterns.sql.grammar import Concatenation as InOrder
from millrace.patterns.sql.match_context import MatchContext, Row
from millrace.patterns.sql.search import RowMatch

MOST_TRIED = 20_000
"""How much is tried for one match."""

RowMapping = tuple[tuple[str, bool], ...]
"""Rows mapped to variables, each shown or not."""


def match_by_definition(compiled: CompiledPattern, rows: Sequence[Row]) -> Iterator[ResultRow]:
    """Everything that is shown of the rows of one partition."""
    scene, start, match_number, matched_until = MatchContext(list(rows)), 0, 1, 0
    while start < len(rows):
        found = find_preferred(compiled, scene, start, match_number)
        if found is None:
            if start >= matched_until:
                yield from compiled.unmatched_rows(rows[start])
            start += 1
            continue
        yield from compiled.result_rows(scene, found, start, match_number)
        matched_until = max(matched_until, start + len(found.labels))
        start, match_number = compiled.next_start(found.labels, start), match_number + 1


def find_preferred(
    compiled: CompiledPattern, scene: MatchContext, start: int, match_number: int
) -> RowMatch | None:
    """The preferred match that begins at a row."""
    names = compiled.row_pattern.variables
    for mapping in RowMappings(len(scene.rows)).enumerate_part(compiled.row_pattern.pattern, start):
        labels = [names.index(name) for name, _ in mapping]
        if is_in_time(compiled, scene, start, len(labels)) and all(
            fits_condition(compiled, scene, start, labels[: position + 1], match_number)
            for position in range(len(labels))
        ):
            return RowMatch(labels, [is_shown for _, is_shown in mapping])
    return None


def fits_condition(
    compiled: CompiledPattern, scene: MatchContext, start: int, labels: list[int], match_number: int
) -> bool:
    """Whether the last of some rows fulfils the condition of its variable."""
    scene.start, scene.labels, scene.current, scene.match_number = (
        start,
        labels,
        len(labels) - 1,
        match_number,
    )
    condition = compiled.conditions.get(compiled.row_pattern.variables[labels[-1]])
    return condition is None or condition[0].evaluate(scene, None) is True


def is_in_time(compiled: CompiledPattern, scene: MatchContext, start: int, length: int) -> bool:
    """Whether a match is shorter than it must be."""
    span, time = compiled.search.span, compiled.search.time_index
    return (
        span is None or length == 0 or scene.rows[start + length - 1][time] < scene.rows[start][time] + span
    )


@dataclass
class RowMappings:
    """Enumerates ways to map rows, whatever their conditions say, and gives up when there are too many to try."""

    end: int
    remaining: int = MOST_TRIED

    def enumerate_part(self, part: RowPatternPart, at: int, *, is_shown: bool = True) -> Iterator[RowMapping]:
        """All ways from a row on, the preferred first."""
        self.remaining -= 1
        if self.remaining < 0:
            raise PatternFailed(
                f"the definition allows more than {MOST_TRIED:,} ways to begin; use fewer rows"
            )
        match part:
            case Variable(name):
                if at < self.end:
                    yield ((name, is_shown),)
            case Anchor():
                if at == (self.end if part.is_end else 0):
                    yield ()
            case InOrder(parts):
                yield from self._in_order(parts, at, is_shown=is_shown)
            case Alternation(parts):
                for alternative in parts:
                    yield from self.enumerate_part(alternative, at, is_shown=is_shown)
            case Exclusion(inner):
                yield from self.enumerate_part(inner, at, is_shown=False)
            case Repetition():
                yield from self._repeated(part, 0, at, is_shown=is_shown)

    def _in_order(self, parts: Sequence[RowPatternPart], at: int, *, is_shown: bool) -> Iterator[RowMapping]:
        if not parts:
            yield ()
            return
        for first in self.enumerate_part(parts[0], at, is_shown=is_shown):
            for rest in self._in_order(parts[1:], at + len(first), is_shown=is_shown):
                yield first + rest

    def _repeated(self, part: Repetition, times: int, at: int, *, is_shown: bool) -> Iterator[RowMapping]:
        """Once more, and so on. Of a repetition without end that has come often enough, a turn that takes no row is the last."""
        is_enough = times >= part.least
        if is_enough and part.is_reluctant:
            yield ()
        if part.most is None or times < part.most:
            for turn in self.enumerate_part(part.part, at, is_shown=is_shown):
                if is_enough and not turn and part.most is None:
                    yield turn
                else:
                    for rest in self._repeated(part, times + 1, at + len(turn), is_shown=is_shown):
                        yield turn + rest
        if is_enough and not part.is_reluctant:
            yield ()
