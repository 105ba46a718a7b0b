"""What a row pattern matches, by definition: all ways in which rows can be mapped, the preferred first, and of these the first that fits.

Obviously right and exponentially slow. The search is held to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millrace.errors import PatternFailed
from millrace.patterns.sql.compiled import Looking, Shown
from millrace.patterns.sql.grammar import Alternatives, Anchor, Excluded, Part, Repeated, Variable
from millrace.patterns.sql.grammar import Sequence as InOrder
from millrace.patterns.sql.scene import Row, Scene
from millrace.patterns.sql.search import Found

MOST_TRIED = 20_000
"""How much is tried for one match."""

Way = tuple[tuple[str, bool], ...]
"""Rows mapped to variables, each shown or not."""


def by_definition(looking: Looking, rows: Sequence[Row]) -> Iterator[Shown]:
    """Everything that is shown of the rows of one partition."""
    scene, start, number, matched = Scene(list(rows)), 0, 1, 0
    while start < len(rows):
        found = preferred(looking, scene, start, number)
        if found is None:
            if start >= matched:
                yield from looking.unmatched(rows[start])
            start += 1
            continue
        yield from looking.shown(scene, found, start, number)
        matched = max(matched, start + len(found.labels))
        start, number = looking.next_start(found.labels, start), number + 1


def preferred(looking: Looking, scene: Scene, start: int, number: int) -> Found | None:
    """The preferred match that begins at a row."""
    names = looking.said.variables
    for way in Ways(len(scene.rows)).of(looking.said.pattern, start):
        labels = [names.index(name) for name, _ in way]
        if in_time(looking, scene, start, len(labels)) and all(
            fits(looking, scene, start, labels[: place + 1], number) for place in range(len(labels))
        ):
            return Found(labels, [shown for _, shown in way])
    return None


def fits(looking: Looking, scene: Scene, start: int, labels: list[int], number: int) -> bool:
    """Whether the last of some rows fulfils the condition of its variable."""
    scene.start, scene.labels, scene.here, scene.number = start, labels, len(labels) - 1, number
    condition = looking.conditions.get(looking.said.variables[labels[-1]])
    return condition is None or condition[0].answer(scene, None) is True


def in_time(looking: Looking, scene: Scene, start: int, length: int) -> bool:
    """Whether a match is shorter than it must be."""
    span, time = looking.search.span, looking.search.time
    return (
        span is None or length == 0 or scene.rows[start + length - 1][time] < scene.rows[start][time] + span
    )


@dataclass
class Ways:
    """Enumerates ways to map rows, whatever their conditions say, and gives up when there are too many to try."""

    end: int
    left: int = MOST_TRIED

    def of(self, part: Part, at: int, *, shown: bool = True) -> Iterator[Way]:
        """All ways from a row on, the preferred first."""
        self.left -= 1
        if self.left < 0:
            raise PatternFailed(
                f"the definition allows more than {MOST_TRIED:,} ways to begin; use fewer rows"
            )
        match part:
            case Variable(name):
                if at < self.end:
                    yield ((name, shown),)
            case Anchor():
                if at == (self.end if part.end else 0):
                    yield ()
            case InOrder(parts):
                yield from self._in_order(parts, at, shown=shown)
            case Alternatives(parts):
                for one in parts:
                    yield from self.of(one, at, shown=shown)
            case Excluded(inner):
                yield from self.of(inner, at, shown=False)
            case Repeated():
                yield from self._repeated(part, 0, at, shown=shown)

    def _in_order(self, parts: Sequence[Part], at: int, *, shown: bool) -> Iterator[Way]:
        if not parts:
            yield ()
            return
        for first in self.of(parts[0], at, shown=shown):
            for rest in self._in_order(parts[1:], at + len(first), shown=shown):
                yield first + rest

    def _repeated(self, part: Repeated, times: int, at: int, *, shown: bool) -> Iterator[Way]:
        """Once more, and so on. Of a repetition without end that has come often enough, a turn that takes no row is the last."""
        enough = times >= part.least
        if enough and part.reluctant:
            yield ()
        if part.most is None or times < part.most:
            for one in self.of(part.part, at, shown=shown):
                if enough and not one and part.most is None:
                    yield one
                else:
                    for rest in self._repeated(part, times + 1, at + len(one), shown=shown):
                        yield one + rest
        if enough and not part.reluctant:
            yield ()
