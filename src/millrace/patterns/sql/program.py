"""A row pattern as a program for the search: steps that take a row, and choices between two places, the
preferred one first.

`A (B | C)* D` becomes

    0  take A
    1  choice 2, 7        another repetition is preferred; with `*?` it is `choice 7, 2`
    2  choice 3, 5        B is preferred to C
    3  take B
    4  jump 6
    5  take C
    6  jump 1
    7  take D
    8  accept

A loop whose body may be empty, such as `(B?)*`, would run for ever without taking a row. Its body is enclosed
in `LoopStart` and `LoopEnd`, which leave the loop after a repetition that took no row. The preferred path
through the program is the match (`search.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from millrace.errors import DefinitionError
from millrace.patterns.sql.grammar import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Repetition,
    RowPatternPart,
    Variable,
    may_be_empty,
)

MAX_STEPS = 20_000
"""The limit of a program. A repetition `{n,m}` is m copies of its body."""

NOWHERE = -1


@dataclass(frozen=True)
class TakeRow:
    """Maps the next row to a variable, if it fits."""

    variable: int
    is_shown: bool


@dataclass
class Choice:
    """Continues at one place, and if that fails, at the other."""

    first: int = NOWHERE
    second: int = NOWHERE


@dataclass
class Jump:
    """Continues at another place."""

    target: int = NOWHERE


@dataclass(frozen=True)
class AtAnchor:
    """Continues only at the start or the end of the partition."""

    is_end: bool


@dataclass(frozen=True)
class LoopStart:
    """Notes the row at which a repetition begins."""

    loop: int


@dataclass
class LoopEnd:
    """Continues the loop if the repetition took a row, else leaves it, as in Perl and Python."""

    loop: int
    after: int = NOWHERE


@dataclass(frozen=True)
class Accept:
    """Ends the match."""


Step = TakeRow | Choice | Jump | AtAnchor | LoopStart | LoopEnd | Accept


@dataclass
class Program:
    """The steps, and the number of loops whose body may be empty."""

    variables: Many[str]
    steps: list[Step] = field(default_factory=list)
    loops: int = 0

    @classmethod
    def compile(cls, part: RowPatternPart, variables: Many[str]) -> Program:
        """The program of a pattern; a variable is named by its place in `variables`."""
        program = cls(variables)
        program._add_part(part, shown=True)
        program._append_step(Accept())
        return program

    def _append_step(self, step: Step) -> int:
        if len(self.steps) >= MAX_STEPS:
            raise DefinitionError(
                f"the row pattern becomes more than {MAX_STEPS:,} steps; use smaller numbers of repetitions"
            )
        self.steps.append(step)
        return len(self.steps) - 1

    def _add_part(self, part: RowPatternPart, *, shown: bool) -> None:
        match part:
            case Variable(name):
                self._append_step(TakeRow(self.variables.index(name), shown))
            case Anchor(end):
                self._append_step(AtAnchor(end))
            case Concatenation(parts):
                for inner in parts:
                    self._add_part(inner, shown=shown)
            case Alternation(parts):
                self._add_alternatives(parts, shown=shown)
            case Exclusion(inner):
                self._add_part(inner, shown=False)
            case Repetition():
                self._add_repetition(part, shown=shown)

    def _add_alternatives(self, parts: Many[RowPatternPart], *, shown: bool) -> None:
        ends: list[Jump] = []
        for inner in parts[:-1]:
            choice = Choice()
            self._append_step(choice)
            choice.first = len(self.steps)
            self._add_part(inner, shown=shown)
            ends.append(Jump())
            self._append_step(ends[-1])
            choice.second = len(self.steps)
        self._add_part(parts[-1], shown=shown)
        for end in ends:
            end.target = len(self.steps)

    def _add_repetition(self, part: Repetition, *, shown: bool) -> None:
        for _ in range(part.least):
            self._add_part(part.part, shown=shown)
        if part.most is None:
            self._add_loop(part, shown=shown)
            return
        choices: list[Choice] = []
        for _ in range(part.most - part.least):
            choices.append(Choice())
            self._append_step(choices[-1])
            self._set_target(choices[-1], part, inside=len(self.steps))
            self._add_part(part.part, shown=shown)
        for choice in choices:
            self._set_target(choice, part, after=len(self.steps))

    def _add_loop(self, part: Repetition, *, shown: bool) -> None:
        choice = Choice()
        head = self._append_step(choice)
        self._set_target(choice, part, inside=len(self.steps))
        empty = may_be_empty(part.part)
        loop = self.loops
        if empty:
            self.loops += 1
            self._append_step(LoopStart(loop))
        self._add_part(part.part, shown=shown)
        loop_end = LoopEnd(loop)
        if empty:
            self._append_step(loop_end)
        self._append_step(Jump(head))
        loop_end.after = len(self.steps)
        self._set_target(choice, part, after=loop_end.after)

    @staticmethod
    def _set_target(
        choice: Choice, part: Repetition, *, inside: int | None = None, after: int | None = None
    ) -> None:
        """Sets where a repetition begins and what follows it.
        Another repetition is preferred, unless it is reluctant.
        """
        if inside is not None:
            choice.first, choice.second = (
                (choice.first, inside) if part.is_reluctant else (inside, choice.second)
            )
        if after is not None:
            choice.first, choice.second = (
                (after, choice.second) if part.is_reluctant else (choice.first, after)
            )


def first_variables(program: Program) -> set[int]:
    """The variables to which the first row of a match can be mapped."""
    return next(_layers(program), set())


def rows_before(program: Program, variable: int) -> int:
    """The least number of rows of a match before the first row of a variable."""
    return next((depth for depth, found in enumerate(_layers(program)) if variable in found), 0)


def _layers(program: Program) -> Iterator[set[int]]:
    """The variables possible for the first row of a match, for the second, and so on;
    each place of the program counts once.
    """
    places, seen = [0], set[int]()
    while places:
        found, after = set[int](), list[int]()
        while places:
            place = places.pop()
            if place in seen:
                continue
            seen.add(place)
            match program.steps[place]:
                case TakeRow(variable):
                    found.add(variable)
                    after.append(place + 1)
                case Choice(first, second):
                    places += [first, second]
                case LoopEnd(_, after_loop):
                    places += [place + 1, after_loop]
                case Jump(to):
                    places.append(to)
                case Accept():
                    pass
                case _:
                    places.append(place + 1)
        yield found
        places = after
