"""What a pattern is made of: steps and groups, each with its link to what comes before, and how often it is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from millrace import durations
from millrace.errors import DefinitionError
from millrace.patterns.conditions import Condition

Link = Literal["first", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
Inner = Literal["relaxed", "strict", "any"]
OnMiss = Literal["nothing", "error"]

MOST_STEPS, MOST_STATES = 100, 10_000
"""How many steps a pattern may have, and how many states: a step that is repeated up to n times is n states."""

CONTIGUITY: dict[Link, Inner] = {
    "first": "strict",
    "next": "strict",
    "followed_by": "relaxed",
    "followed_by_any": "any",
}
"""Which events a link may pass over: none, those that do not fit, or any."""


@dataclass(frozen=True, eq=False)
class Part:
    """A step, or a group of parts."""

    link: Link
    name: str = ""
    where: Condition | None = None
    inside: tuple[Part, ...] = ()
    least: int = 1
    most: int | None = 1
    """None: without end."""
    inner: Inner = "relaxed"
    optional: bool = False
    greedy: bool = False
    until: Condition | None = None
    gap: int | None = None
    loop_gap: int | None = None

    @property
    def negative(self) -> bool:
        """Whether it says what must not come."""
        return self.link in ("not_next", "not_followed_by")

    @property
    def repeated(self) -> bool:
        """Whether it may take more than one turn."""
        return self.most != 1

    @property
    def skippable(self) -> bool:
        """Whether a match may have nothing of it."""
        return self.optional or (
            bool(self.inside) and all(part.skippable or part.negative for part in self.inside)
        )

    def steps(self) -> Iterator[Part]:
        """It, or the steps of its groups, in order."""
        if not self.inside:
            yield self
        for part in self.inside:
            yield from part.steps()

    def __str__(self) -> str:
        """The part as it is written."""
        told = f"({' '.join(map(str, self.inside))})" if self.inside else self.name
        word = "" if self.link == "first" else f"{self.link} "
        condition = "" if self.where is None else f" where {self.where}"
        return f"{word}{told}{_times(self)}{condition}{self._more()}"

    def _more(self) -> str:
        said = [f"until {self.until}"] if self.until else []
        said += [f"gap {durations.text(self.gap)}"] if self.gap is not None else []
        said += [f"loop gap {durations.text(self.loop_gap)}"] if self.loop_gap is not None else []
        return "".join(f", {word}" for word in said)


@dataclass(frozen=True)
class Skip:
    """Where matching goes on after a match: which other matches, begun before, are given up."""

    kind: Literal["none", "to_next", "past_last", "to_first", "to_last"] = "none"
    step: str | None = None
    on_miss: OnMiss = "nothing"

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.kind} {self.step}" if self.step else self.kind


def _times(part: Part) -> str:
    least = 0 if part.optional else part.least
    if (least, part.most) == (1, 1):
        return ""
    if (part.least, part.most) == (1, 1):
        times = "?"
    elif part.most is None:
        times = {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    else:
        times = f"{{{part.most}}}" if least == part.most else f"{{{least},{part.most}}}"
    inner = "" if part.inner == "relaxed" or not part.repeated else f" {part.inner}"
    return f"{times}{' greedy' if part.greedy else ''}{inner}"


def check(parts: tuple[Part, ...]) -> None:
    """Refuses what no match could mean, and what would be too large to follow."""
    _check_size(parts)
    names: set[str] = set()
    for step in (step for part in parts for step in part.steps()):
        if step.name in names:
            raise DefinitionError(
                f"two steps are named {step.name!r}, so their events could not be told apart; name them differently"
            )
        names.add(step.name)
    _check_order(parts)
    for step in (step for part in parts for step in part.steps()):
        for condition in (step.where, step.until):
            for one in condition.asked() if condition else ():
                if one.kind == "collect":
                    raise DefinitionError(
                        f"step {step.name!r} asks for {one.name}, but conditions are asked for each event, and a list would be copied each time; "
                        "use first, last, sum, count, avg, min or max, or a function of (event, match)"
                    )
                if one.step is not None and one.step not in names:
                    raise DefinitionError(
                        f"step {step.name!r} asks for {one.name}, but there is no step {one.step!r}; there are {', '.join(sorted(names))}"
                    )


def _check_size(parts: tuple[Part, ...]) -> None:
    steps = sum(1 for part in parts for _ in part.steps())
    if steps > MOST_STEPS:
        raise DefinitionError(
            f"a pattern has {steps} steps, and at most {MOST_STEPS} are possible; divide it into several patterns"
        )
    states = sum(map(_states, parts))
    if states > MOST_STATES:
        raise DefinitionError(
            f"a pattern becomes {states:,} states, and at most {MOST_STATES:,} are possible; use smaller numbers of repetitions"
        )


def _states(part: Part) -> int:
    turns = part.most if part.most is not None else part.least + 1
    return turns * (sum(map(_states, part.inside)) if part.inside else 1)


def _check_order(parts: tuple[Part, ...], *, group: bool = False) -> None:
    for before, part in zip((None, *parts), parts, strict=False):
        if part.negative and before is None:
            raise DefinitionError(
                f"{'a group' if group else 'a pattern'} cannot begin with {part}: there is nothing that it could follow"
            )
        if part.negative and before is not None and before.skippable:
            raise DefinitionError(
                f"{part} comes after {before}, which may be left out, so it is not clear after what; say it in two patterns, with and without"
            )
        if part.inside:
            _check_order(part.inside, group=True)
            if part.inside[-1].negative:
                raise DefinitionError(
                    f"the group {part} ends with {part.inside[-1]}, which nothing in the group ends; move it out of the group"
                )
            if (part.repeated or part.optional) and all(
                inner.skippable or inner.negative for inner in part.inside
            ):
                raise DefinitionError(
                    f"the group {part} is repeated or optional though it may be empty as it is, so it could go on for ever; make one of its steps due"
                )
