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
from millrace.patterns.sql.expressions import Ask
from millrace.patterns.sql.program import NONE, At, Begin, Choose, Done, Jump, Moved, Program, Take
from millrace.patterns.sql.scene import Scene, Undecided

MOST_TRIED, MORE_PER_ROW = 100_000, 50
"""How much is tried for one match, and more for each row there is; beyond it, a pattern doubles with each row."""


Loops = tuple[int, ...]
"""For each loop that may take no row, the row at which its repetition began."""


@dataclass(frozen=True)
class Condition:
    """What a row must fulfil to be mapped to a variable."""

    holds: Callable[[Scene], Any]
    asks: tuple[Ask, ...]
    """What it wants to know of the mapping of earlier rows; nothing: it looks at rows alone."""


@dataclass(frozen=True)
class Found:
    """A match: the variables of its rows, and which of them are shown."""

    labels: list[int]
    shown: list[bool]


@dataclass(frozen=True, eq=False)
class Search:
    """A program and its conditions, ready for rows."""

    program: Program
    conditions: Sequence[Condition | None]
    """For each variable; None: every row."""
    span: int | None = None
    time: int = 0
    """The place of the time in a row."""
    most: int = MOST_TRIED

    @cached_property
    def asks(self) -> tuple[Ask, ...]:
        """What any condition wants to know of the mapping."""
        return tuple(
            dict.fromkeys(
                ask for condition in self.conditions if condition is not None for ask in condition.asks
            )
        )

    def find(self, scene: Scene, start: int, watermark: int | None = None) -> Found | None:
        """The preferred match that begins at a row; `Undecided` if rows that may still come before the watermark could change it."""
        steps, rows = self.program.steps, scene.rows
        scene.start, scene.labels = start, []
        shown: list[bool] = []
        until = None if self.span is None else rows[start][self.time] + self.span
        tried: set[Any] = set()
        stack: list[tuple[int, int, Loops]] = [(0, start, (NONE,) * self.program.loops)]
        count, most = 0, self.most + MORE_PER_ROW * (len(rows) - start)
        while stack:
            place, row, loops = stack.pop()
            del scene.labels[row - start :], shown[row - start :]
            while place != NONE:
                count += 1
                if count > most:
                    raise _too_many(most, len(scene.labels))
                step = steps[place]
                if isinstance(step, Done):
                    return Found(list(scene.labels), shown)
                if isinstance(step, Take | Choose) and self._seen(tried, place, row, loops, scene):
                    break
                if isinstance(step, Choose):
                    stack.append((step.second, row, loops))
                    place = step.first
                elif isinstance(step, Take):
                    if not self._takes(scene, step, row, until, watermark):
                        break
                    shown.append(step.shown)
                    place, row = place + 1, row + 1
                else:
                    place, loops = self._passed(step, place, row, loops, scene)
        return None

    @staticmethod
    def _passed(
        step: Jump | At | Begin | Moved, place: int, row: int, loops: Loops, scene: Scene
    ) -> tuple[int, Loops]:
        """Where a step leads that takes no row and leaves no choice; nowhere: NONE."""
        match step:
            case Jump(to):
                return to, loops
            case Begin(loop):
                return place + 1, (*loops[:loop], row, *loops[loop + 1 :])
            case Moved(loop, after):
                return (after if loops[loop] == row else place + 1), (*loops[:loop], NONE, *loops[loop + 1 :])
            case At(end):
                if end and row == len(scene.rows) and not scene.ended:
                    raise Undecided
                stands = row == len(scene.rows) if end else row == 0 and not scene.before
                return (place + 1 if stands else NONE), loops

    def _takes(self, scene: Scene, step: Take, row: int, until: int | None, watermark: int | None) -> bool:
        """Whether the row fits the variable; then it is mapped to it."""
        if row == len(scene.rows):
            if scene.ended or (until is not None and watermark is not None and watermark >= until):
                return False
            raise Undecided
        if until is not None and scene.rows[row][self.time] >= until:
            return False
        condition = self.conditions[step.variable]
        scene.labels.append(step.variable)
        if condition is None:
            return True
        scene.here = row - scene.start
        if condition.holds(scene) is True:
            return True
        scene.labels.pop()
        return False

    def _seen(self, tried: set[Any], place: int, row: int, loops: Loops, scene: Scene) -> bool:
        """Whether the same has been tried before; then it led to nothing."""
        still = tuple(begun == row for begun in loops)
        key = (
            (place, row, still, *(self._rows_asked(ask, scene) for ask in self.asks))
            if self.asks
            else (place, row, still)
        )
        if key in tried:
            return True
        tried.add(key)
        return False

    @staticmethod
    def _rows_asked(ask: Ask, scene: Scene) -> tuple[int, ...]:
        """All that a condition can know of how rows are mapped."""
        if ask.kind in ("first", "last"):
            places = scene.all(ask.members, final=True, newest_first=ask.kind == "last")
            return tuple(islice(places, min(ask.offset, len(scene.labels)) + 1))
        members = ask.members
        return tuple(label if members is None or label in members else NONE for label in scene.labels)


def _too_many(most: int, length: int) -> PatternFailed:
    return PatternFailed(
        f"more than {most:,} ways were tried to match one beginning, {length} rows on: the pattern doubles with each row, because its "
        "conditions ask how earlier rows were mapped; let variables exclude each other, or use WITHIN"
    )
