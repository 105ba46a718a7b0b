"""How far a choice of events has come through a pattern, and what still binds its next event."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import NamedTuple

from millrace.patterns.conditions import Condition
from millrace.patterns.parts import InnerContiguity, PatternPart

MatchPath = tuple[tuple[str, int], ...]
"""The events of a match in order: which step took which."""


class LoopGuard(NamedTuple):
    """What a greedy loop keeps for itself; `next_event_only`: only at the event right after it."""

    part: PatternPart
    next_event_only: bool
    may_end: bool = False
    """Whether it ends if the loop's `until` holds at the event right after the loop."""


class ForbiddenNext(NamedTuple):
    """What must not come as the very next event, since another way from here would see it."""

    part: PatternPart
    is_behind_optional: bool = False
    """Whether that way leads through a part that is left out."""
    unless_kept_by: PatternPart | None = None
    """A greedy loop that keeps the event for itself, so that the other way is not open."""
    gap: int | None = None
    """How long after the newest event the other way is open."""


@dataclass(frozen=True)
class EventChoice:
    """How far a choice has come, and what still binds it."""

    path: MatchPath = ()
    forbidden: tuple[PatternPart, ...] = ()
    guards: tuple[LoopGuard, ...] = ()
    forbidden_next: tuple[ForbiddenNext, ...] = ()
    """What must not come as the very next event: what another way from here must not see."""
    take_number: int = 0
    """Which taking of an event made it: ways on from the same taking have the same number."""
    is_blocked: bool = False
    """Whether the next event must not come, as `not_next` says: nothing is taken any more."""
    is_over: bool = False
    """Whether no event may follow: the newest one must not have come, so it counts only if it completes the match."""

    @property
    def last(self) -> int:
        """The newest event."""
        return self.path[-1][1] if self.path else -1


@dataclass(frozen=True)
class PartConstraints:
    """What binds the first event of a part, and all its events: the link of the group it begins, and the ends of the groups it is in."""

    link: InnerContiguity | None = None
    gap: int | None = None
    untils: tuple[Condition, ...] = ()
    is_skippable: bool = False
    """Whether the group may be left in place of this."""
    is_repeated: bool = False
    """Whether the part has had a turn before."""
    forbidden_when_left: tuple[ForbiddenNext, ...] = ()
    """What must not come where the group is left: what follows it."""
    forbidden_in_loop: tuple[PatternPart, ...] = ()
    """What must not come between the events of a loop that ends a group without turns: what must not follow the group."""


def guards_of_loop(part: PatternPart) -> tuple[LoopGuard, ...]:
    """What the greedy loop at the end of a part keeps for itself, even where the part is left out."""
    while part.parts:
        part = part.parts[-1]
    return (
        (LoopGuard(part, next_event_only=False, may_end=True),)
        if part.greedy and part.least != part.most
        else ()
    )


def for_next_event(guard: LoopGuard) -> LoopGuard:
    """The same, for the next event only."""
    return guard._replace(next_event_only=True)


def forbidden_at_start(parts: tuple[PatternPart, ...]) -> tuple[PatternPart, ...]:
    """Negations at the beginning of these parts."""
    return tuple(itertools.takewhile(lambda part: part.link == "not_followed_by", parts))


def forbidden_after_part(
    parts: tuple[PatternPart, ...], leaving: tuple[ForbiddenNext, ...]
) -> tuple[ForbiddenNext, ...]:
    """What must not come before these parts, or after them if all of them may be left out."""
    found: list[ForbiddenNext] = []
    is_behind_optional = False
    for part in parts:
        if part.is_negative:
            found.append(ForbiddenNext(part, is_behind_optional))
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
    """What must not come where a group ends after so many turns: before the next turn, what must not follow the group."""
    if turn_count < part.least:
        gap = None if part.parts and part.parts[0].is_skippable else part.loop_gap
        return tuple(ForbiddenNext(forbidden, gap=gap) for forbidden in following)
    if turn_count == part.most:
        return forbidden_after
    return tuple(stop._replace(is_behind_optional=True) for stop in forbidden_after)


def leave_loop(part: PatternPart, choice: EventChoice, turn_count: int) -> EventChoice:
    """A choice that leaves a loop after some turns. What must not come after an optional end of a group binds it on its last turn."""
    if not part.parts or turn_count == part.most:
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
    """A choice that takes another turn: what must not follow the loop must not come between its events, either."""
    if part.parts:
        if is_enough and part.most is None:
            unmet = tuple(map(ForbiddenNext, choice.forbidden))
            return replace(choice, forbidden=(), forbidden_next=(*forbidden_after, *unmet))
        return replace(choice, forbidden=(*choice.forbidden, *following), forbidden_next=forbidden_after)
    return replace(choice, forbidden=following, forbidden_next=forbidden_beside_loop(part, forbidden_after))


def forbidden_beside_loop(
    part: PatternPart, forbidden_after: tuple[ForbiddenNext, ...]
) -> tuple[ForbiddenNext, ...]:
    """What must not come where a loop could also end. An event that a greedy loop keeps is not the forbidden next one."""
    return tuple(
        stop._replace(
            unless_kept_by=part
            if part.greedy and (stop.is_behind_optional or stop.part.link == "not_next")
            else None
        )
        for stop in forbidden_after
    )
