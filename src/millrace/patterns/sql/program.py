"""A row pattern as a program: rows to take, and choices, the preferred one first. What is looked for is the first way through it that fits."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from millrace.errors import DefinitionError
from millrace.patterns.sql.grammar import (
    Alternatives,
    Anchor,
    Excluded,
    Part,
    Repeated,
    Sequence,
    Variable,
    may_be_empty,
)

MOST_STEPS = 20_000
"""A repetition is so many copies of what it repeats."""

NONE = -1


@dataclass(frozen=True)
class Take:
    """The next row, as a variable."""

    variable: int
    shown: bool


@dataclass
class Choose:
    """Goes on in one place, and if nothing comes of it, in the other."""

    first: int = NONE
    second: int = NONE


@dataclass
class Jump:
    """Goes on elsewhere."""

    to: int = NONE


@dataclass(frozen=True)
class At:
    """Goes on only at the start or the end of the partition."""

    end: bool


@dataclass(frozen=True)
class Begin:
    """Remembers where a repetition of a part that may be empty begins."""

    loop: int


@dataclass
class Moved:
    """Repeats again if that repetition took a row; one that took none is the last, as in Perl and Python."""

    loop: int
    after: int = NONE


@dataclass(frozen=True)
class Done:
    """The pattern is fulfilled."""


Step = Take | Choose | Jump | At | Begin | Moved | Done


@dataclass
class Program:
    """The steps, and how many loops remember where they began."""

    variables: Many[str]
    steps: list[Step] = field(default_factory=list)
    loops: int = 0

    @classmethod
    def of(cls, part: Part, variables: Many[str]) -> Program:
        """The program of a pattern."""
        made = cls(variables)
        made._add(part, shown=True)
        made._append(Done())
        return made

    def _append(self, step: Step) -> int:
        if len(self.steps) >= MOST_STEPS:
            raise DefinitionError(
                f"the row pattern becomes more than {MOST_STEPS:,} steps; use smaller numbers of repetitions"
            )
        self.steps.append(step)
        return len(self.steps) - 1

    def _add(self, part: Part, *, shown: bool) -> None:
        match part:
            case Variable(name):
                self._append(Take(self.variables.index(name), shown))
            case Anchor(end):
                self._append(At(end))
            case Sequence(parts):
                for inner in parts:
                    self._add(inner, shown=shown)
            case Alternatives(parts):
                self._alternatives(parts, shown=shown)
            case Excluded(inner):
                self._add(inner, shown=False)
            case Repeated():
                self._repeated(part, shown=shown)

    def _alternatives(self, parts: Many[Part], *, shown: bool) -> None:
        ends: list[Jump] = []
        for inner in parts[:-1]:
            choice = Choose()
            self._append(choice)
            choice.first = len(self.steps)
            self._add(inner, shown=shown)
            ends.append(Jump())
            self._append(ends[-1])
            choice.second = len(self.steps)
        self._add(parts[-1], shown=shown)
        for end in ends:
            end.to = len(self.steps)

    def _repeated(self, part: Repeated, *, shown: bool) -> None:
        for _ in range(part.least):
            self._add(part.part, shown=shown)
        if part.most is None:
            self._loop(part, shown=shown)
            return
        choices: list[Choose] = []
        for _ in range(part.most - part.least):
            choices.append(Choose())
            self._append(choices[-1])
            self._point(choices[-1], part, inside=len(self.steps))
            self._add(part.part, shown=shown)
        for choice in choices:
            self._point(choice, part, after=len(self.steps))

    def _loop(self, part: Repeated, *, shown: bool) -> None:
        choice = Choose()
        head = self._append(choice)
        self._point(choice, part, inside=len(self.steps))
        empty = may_be_empty(part.part)
        loop = self.loops
        if empty:
            self.loops += 1
            self._append(Begin(loop))
        self._add(part.part, shown=shown)
        moved = Moved(loop)
        if empty:
            self._append(moved)
        self._append(Jump(head))
        moved.after = len(self.steps)
        self._point(choice, part, after=moved.after)

    @staticmethod
    def _point(
        choice: Choose, part: Repeated, *, inside: int | None = None, after: int | None = None
    ) -> None:
        """Another repetition comes first, unless the part is reluctant."""
        if inside is not None:
            choice.first, choice.second = (
                (choice.first, inside) if part.reluctant else (inside, choice.second)
            )
        if after is not None:
            choice.first, choice.second = (after, choice.second) if part.reluctant else (choice.first, after)


def firsts(program: Program) -> set[int]:
    """The variables that the first row of a match can have."""
    return next(_layers(program), set())


def distance(program: Program, variable: int) -> int:
    """How many rows of a match come before the first that can be of a variable, at least."""
    return next((far for far, found in enumerate(_layers(program)) if variable in found), 0)


def _layers(program: Program) -> Iterator[set[int]]:
    """The variables that a row can have, for the first row of a match, the second and so on, each where it can come first."""
    places, seen = [0], set[int]()
    while places:
        found, after = set[int](), list[int]()
        while places:
            place = places.pop()
            if place in seen:
                continue
            seen.add(place)
            match program.steps[place]:
                case Take(variable):
                    found.add(variable)
                    after.append(place + 1)
                case Choose(first, second):
                    places += [first, second]
                case Moved(_, after_loop):
                    places += [place + 1, after_loop]
                case Jump(to):
                    places.append(to)
                case Done():
                    pass
                case _:
                    places.append(place + 1)
        yield found
        places = after
