"""Choices of events that have come some way through a pattern, and the constraints on their next event.

Three constraints reach beyond the part that sets them. With events named by kind and time:

- A greedy loop keeps what fits it. In `a+ greedy followed_by any` the choice a1 must take a2 into the loop;
  it may neither pass over a2 nor take it as `any` (`LoopGuard`).
- `not_followed_by` forbids until the next part is taken. In `a not_followed_by c followed_by b` the choice a1
  ends with c2, although b3 would follow (`EventChoice.forbidden`).
- What one path forbids for the very next event ends all paths from the same event, as in Flink. In
  `(a b?) not_next c followed_by d` the choice a1 may leave out b; then c2 is forbidden, and the path that
  still waits for b ends, too (`ForbiddenNext`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import NamedTuple

from millrace.patterns.conditions import Condition
from millrace.patterns.parts import CONTIGUITY, InnerContiguity, PatternPart

MatchPath = tuple[tuple[str, int], ...]
"""The events of a match in order: which step took which."""


class LoopGuard(NamedTuple):
    """A greedy loop that keeps events which fit it; with `next_event_only`, only the event right after it."""

    part: PatternPart
    next_event_only: bool
    may_end: bool = False
    """Whether it ends if the loop's `until` holds at the event right after the loop."""


class ForbiddenNext(NamedTuple):
    """A part that must not fit the very next event: another path from here through the pattern forbids it."""

    part: PatternPart
    is_behind_optional: bool = False
    """Whether that path leads through a part that is left out."""
    unless_kept_by: PatternPart | None = None
    """A greedy loop that keeps the event, so that the other path is closed."""
    gap: int | None = None
    """How long after the newest event the other path is open."""


@dataclass(frozen=True)
class EventChoice:
    """Events taken so far, and the constraints on the next one."""

    path: MatchPath = ()
    forbidden: tuple[PatternPart, ...] = ()
    guards: tuple[LoopGuard, ...] = ()
    forbidden_next: tuple[ForbiddenNext, ...] = ()
    """Parts that must not fit the very next event."""
    take_number: int = 0
    """Numbers the newest event taken: all paths on from there have the same number."""
    is_blocked: bool = False
    """Whether `not_next` forbids the event that comes next, so that nothing more is taken."""
    is_over: bool = False
    """Whether the newest event was forbidden; then it only counts if it completes the match."""

    @property
    def last(self) -> int:
        """The newest event."""
        return self.path[-1][1] if self.path else -1


@dataclass(frozen=True)
class PartConstraints:
    """Constraints on the events of a part that come from the groups around it."""

    link: InnerContiguity | None = None
    gap: int | None = None
    untils: tuple[Condition, ...] = ()
    is_skippable: bool = False
    """Whether the group may also end before this part."""
    is_repeated: bool = False
    """Whether this is a repetition of the part."""
    forbidden_when_left: tuple[ForbiddenNext, ...] = ()
    """Parts that must not fit the event after the group, since they follow it."""
    forbidden_in_loop: tuple[PatternPart, ...] = ()
    """Parts that must not fit events between the repetitions of a loop at the end of a group."""


def guards_of_loop(part: PatternPart) -> tuple[LoopGuard, ...]:
    """The greedy loop at the end of a part; it keeps events even where the part is left out."""
    while part.parts:
        part = part.parts[-1]
    return (
        (LoopGuard(part, next_event_only=False, may_end=True),)
        if part.greedy and part.least != part.most
        else ()
    )


def for_next_event(guard: LoopGuard) -> LoopGuard:
    """The same guard, for the next event only."""
    return guard._replace(next_event_only=True)


def forbidden_at_start(parts: tuple[PatternPart, ...]) -> tuple[PatternPart, ...]:
    """The `not_followed_by` parts at the beginning of these parts."""
    return tuple(itertools.takewhile(lambda part: part.link == "not_followed_by", parts))


def forbidden_after_part(
    parts: tuple[PatternPart, ...], leaving: tuple[ForbiddenNext, ...]
) -> tuple[ForbiddenNext, ...]:
    """The parts that must not fit the event before these parts.

    If all may be left out, also those after them.
    """
    found: list[ForbiddenNext] = []
    is_behind_optional = False
    for part in parts:
        if part.is_negative:
            found.append(ForbiddenNext(part, is_behind_optional, gap=part.gap))
            is_behind_optional = is_behind_optional or part.link == "not_next"
        elif part.is_skippable:
            is_behind_optional = True
        else:
            gap = None if is_behind_optional else part.gap
            return tuple(stop._replace(gap=gap) for stop in found)
    return (
        *found,
        *(
            stop._replace(is_behind_optional=is_behind_optional or stop.is_behind_optional)
            for stop in leaving
        ),
    )


def forbidden_after_turn(
    part: PatternPart,
    forbidden_after: tuple[ForbiddenNext, ...],
    following: tuple[PatternPart, ...],
    turn_count: int,
) -> tuple[ForbiddenNext, ...]:
    """The parts that must not fit the event after `turn_count` turns.

    Before the next turn, too, what must not follow the group is forbidden.
    """
    if turn_count < part.least:
        gap = None if part.parts and part.parts[0].is_skippable else part.loop_gap
        return tuple(ForbiddenNext(forbidden, gap=gap) for forbidden in following)
    if turn_count == part.most:
        return forbidden_after
    return tuple(stop._replace(is_behind_optional=True) for stop in forbidden_after)


def leave_out(part: PatternPart, choice: EventChoice) -> EventChoice:
    """A choice that leaves out an optional part."""
    return replace(choice, guards=(*map(for_next_event, choice.guards), *guards_of_loop(part)))


def enter_part(
    part: PatternPart,
    choice: EventChoice,
    constraints: PartConstraints,
    forbidden_after: tuple[ForbiddenNext, ...],
) -> EventChoice:
    """A choice that waits for the first event of a part.

    Parts that must not follow an optional part bind it already now: another path leaves the part out.
    """
    if part.optional or constraints.is_skippable:
        choice = replace(choice, guards=tuple(map(for_next_event, choice.guards)))
    if not part.optional:
        return choice
    stops = forbidden_beside_loop(part, forbidden_after)
    return replace(choice, forbidden_next=(*choice.forbidden_next, *stops))


def constrain_first_turn(part: PatternPart, constraints: PartConstraints) -> PartConstraints:
    """The constraints on the first turn of a part: its own, where the group around it sets none."""
    return replace(
        constraints,
        link=constraints.link or CONTIGUITY[part.link],
        gap=part.gap if constraints.gap is None else constraints.gap,
        is_skippable=part.optional or constraints.is_skippable,
        is_repeated=False,
    )


def constrain_next_turn(
    part: PatternPart, constraints: PartConstraints, *, is_enough: bool
) -> PartConstraints:
    """The constraints on one more turn of a loop; `is_enough`: whether it may also end before."""
    return PartConstraints(
        part.inner,
        part.loop_gap,
        constraints.untils,
        is_skippable=is_enough,
        is_repeated=True,
        forbidden_in_loop=constraints.forbidden_in_loop,
    )


def leave_loop(part: PatternPart, choice: EventChoice, turn_count: int) -> EventChoice:
    """A choice that leaves a loop after some turns.

    A greedy loop still keeps events. Parts forbidden after an optional end of the group bind it on its last
    turn.
    """
    is_last = turn_count == part.most
    guards = () if part.parts else guards_of_loop(part)
    left_guards = tuple(guard._replace(may_end=not is_last) for guard in guards)
    choice = replace(choice, guards=left_guards or choice.guards)
    if not part.parts or is_last:
        return choice
    return replace(choice, forbidden=(), forbidden_next=tuple(map(ForbiddenNext, choice.forbidden)))


def repeat_loop(
    part: PatternPart,
    choice: EventChoice,
    forbidden_after: tuple[ForbiddenNext, ...],
    following: tuple[PatternPart, ...],
    *,
    is_enough: bool,
) -> EventChoice:
    """A choice that repeats a loop.

    Parts that must not follow the loop must not come between its events, either.
    """
    if part.parts:
        if is_enough and part.most is None:
            unmet = tuple(map(ForbiddenNext, choice.forbidden))
            return replace(choice, forbidden=(), forbidden_next=(*forbidden_after, *unmet))
        return replace(choice, forbidden=(*choice.forbidden, *following), forbidden_next=forbidden_after)
    return replace(choice, forbidden=following, forbidden_next=forbidden_beside_loop(part, forbidden_after))


def forbidden_beside_loop(
    part: PatternPart, forbidden_after: tuple[ForbiddenNext, ...]
) -> tuple[ForbiddenNext, ...]:
    """The parts that must not fit the next event where a loop could also end.

    An event that a greedy loop keeps is not forbidden.
    """
    loop = next((guard.part for guard in guards_of_loop(part)), None)
    return tuple(
        stop._replace(
            unless_kept_by=loop if stop.is_behind_optional or stop.part.link == "not_next" else None
        )
        for stop in forbidden_after
    )
