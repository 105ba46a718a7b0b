"""The parts of a pattern: steps and groups, each with its link to the part before and its repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from millrace import durations
from millrace.errors import DefinitionError
from millrace.patterns.conditions import Condition

PartLink = Literal["first", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
InnerContiguity = Literal["relaxed", "strict", "any"]

MAX_STEPS, MAX_STATES = 100, 10_000
"""The limits of a pattern. A step that is repeated up to n times has n states."""

CONTIGUITY: dict[PartLink, InnerContiguity] = {
    "first": "strict",
    "next": "strict",
    "followed_by": "relaxed",
    "followed_by_any": "any",
}
"""The events that a link may ignore: none (strict), those that do not fit (relaxed), or any."""


@dataclass(frozen=True, eq=False)
class PatternPart:
    """A step, or a group of parts."""

    link: PartLink
    name: str = ""
    where: Condition | None = None
    parts: tuple[PatternPart, ...] = ()
    least: int = 1
    most: int | None = 1
    """None: without limit."""
    inner: InnerContiguity = "relaxed"
    optional: bool = False
    greedy: bool = False
    until: Condition | None = None
    gap: int | None = None
    loop_gap: int | None = None

    @property
    def is_negative(self) -> bool:
        """Whether it forbids events."""
        return self.link in ("not_next", "not_followed_by")

    @property
    def is_repeated(self) -> bool:
        """Whether it may have more than one repetition."""
        return self.most != 1

    @property
    def is_skippable(self) -> bool:
        """Whether a match may have no event of it."""
        return self.optional or (
            bool(self.parts) and all(part.is_skippable or part.is_negative for part in self.parts)
        )

    def steps(self) -> Iterator[PatternPart]:
        """The steps in it, in order; a step yields itself."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.steps()

    def __str__(self) -> str:
        """As text, such as `next braking+ strict`."""
        body = f"({' '.join(map(str, self.parts))})" if self.parts else self.name
        word = "" if self.link == "first" else f"{self.link} "
        condition = "" if self.where is None else f" where {self.where}"
        return f"{word}{body}{_format_times(self)}{condition}{self._format_conditions()}"

    def _format_conditions(self) -> str:
        words = [f"until {self.until}"] if self.until else []
        words += [f"gap {durations.format_millis(self.gap)}"] if self.gap is not None else []
        words += [f"loop gap {durations.format_millis(self.loop_gap)}"] if self.loop_gap is not None else []
        return "".join(f", {word}" for word in words)


def _format_times(part: PatternPart) -> str:
    least = 0 if part.optional else part.least
    if (least, part.most) == (1, 1):
        return ""
    if (part.least, part.most) == (1, 1):
        times = "?"
    elif part.most is None:
        times = {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    else:
        times = f"{{{part.most}}}" if least == part.most else f"{{{least},{part.most}}}"
    inner = "" if part.inner == "relaxed" or not part.is_repeated else f" {part.inner}"
    return f"{times}{' greedy' if part.greedy else ''}{inner}"


def check_parts(parts: tuple[PatternPart, ...]) -> None:
    """Refuses parts that are ambiguous, contradictory, or too large."""
    _check_size(parts)
    names: set[str] = set()
    for step in (step for part in parts for step in part.steps()):
        if step.name in names:
            raise DefinitionError(
                f"two steps are named {step.name!r}, so their events could not be told "
                "apart; name them differently"
            )
        names.add(step.name)
    _check_order(parts)
    for step in (step for part in parts for step in part.steps()):
        for condition in (step.where, step.until):
            for one in condition.earlier_values() if condition else ():
                if one.kind == "collect":
                    raise DefinitionError(
                        f"step {step.name!r} asks for {one.name}, but conditions are evaluated for each "
                        "event, and the list would be copied each time; use first, last, sum, count, avg, "
                        "min or max, or a function of (event, match)"
                    )
                if one.step is not None and one.step not in names:
                    raise DefinitionError(
                        f"step {step.name!r} asks for {one.name}, but there is no step {one.step!r}; the "
                        f"steps are {', '.join(sorted(names))}"
                    )


def _check_size(parts: tuple[PatternPart, ...]) -> None:
    steps = sum(1 for part in parts for _ in part.steps())
    if steps > MAX_STEPS:
        raise DefinitionError(
            f"a pattern has {steps} steps, and the limit is {MAX_STEPS}; divide it into several patterns"
        )
    states = sum(map(_count_states, parts))
    if states > MAX_STATES:
        raise DefinitionError(
            f"a pattern needs {states:,} states, and the limit is {MAX_STATES:,}; use "
            "smaller numbers of repetitions"
        )


def _count_states(part: PatternPart) -> int:
    turns = part.most if part.most is not None else part.least + 1
    return turns * (sum(map(_count_states, part.parts)) if part.parts else 1)


def _check_order(parts: tuple[PatternPart, ...], *, group: bool = False) -> None:
    for before, part in zip((None, *parts), parts, strict=False):
        if part.is_negative and before is None:
            raise DefinitionError(
                f"{'a group' if group else 'a pattern'} cannot begin with {part}, "
                "which needs a step before it"
            )
        if part.is_negative and before is not None and before.is_skippable:
            raise DefinitionError(
                f"{part} comes after {before}, which may be missing, so its place is ambiguous; write two "
                "patterns, with and without that part"
            )
        if part.parts:
            _check_order(part.parts, group=True)
            if part.parts[-1].is_negative:
                raise DefinitionError(
                    f"the group {part} ends with {part.parts[-1]}, which no step of the group ends; move it "
                    "out of the group"
                )
            if (part.is_repeated or part.optional) and all(
                inner.is_skippable or inner.is_negative for inner in part.parts
            ):
                raise DefinitionError(
                    f"the group {part} is repeated or optional though it may be empty, so it could repeat "
                    "for ever; make one of its steps mandatory"
                )
