"""What a pattern matches, by definition: every choice of events is tried, and kept if nothing forbids it.

Slow; the oracle of the tests.

It shares the words of the pattern with the matcher (`patterns/parts.py`), and nothing else: no states, no
batches. `pattern_stream.py` says when a match is shown, and what times out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import polars as pl

from millrace.errors import NoPlaceToSkip
from millrace.patterns.builder import Pattern
from millrace.patterns.parts import PatternPart
from millrace.testing.model.pattern_choices import (
    EventChoice,
    ForbiddenNext,
    LoopGuard,
    MatchPath,
    PartConstraints,
    constrain_first_turn,
    constrain_next_turn,
    enter_part,
    for_next_event,
    forbidden_after_part,
    forbidden_after_turn,
    forbidden_at_start,
    leave_loop,
    leave_out,
    repeat_loop,
)
from millrace.testing.model.pattern_conditions import ConditionAnswers, EventRow


class Moment(NamedTuple):
    """A moment in the stream of one key: at an event, or before it when event time passes a deadline."""

    event: int
    """The number of the event; the count of events if it has not come yet."""
    is_event: bool
    time: int = 0


class CertainMatch(NamedTuple):
    """A match, and the moment from which on it is certain."""

    path: MatchPath
    certain_at: Moment


class Wait(NamedTuple):
    """A choice that waited for events at one place of the pattern."""

    path: MatchPath
    take_number: int
    has_passed_event: bool
    """Whether it passed over an event there."""
    until: Moment | None
    """When it stopped waiting; None if it still does."""
    is_match_when_over: bool = False
    """Whether it is a match when it expires, since the pattern ends with `not_followed_by`."""

    @property
    def is_overdue(self) -> bool:
        """Whether it stopped because it expired."""
        return self.until is not None and not self.until.is_event


@dataclass
class PatternDefinition:
    """A pattern and the events of one key in order of time."""

    pattern: Pattern
    schema: pl.Schema
    rows: Sequence[EventRow]
    time: str = "event_time"
    waits: list[Wait] = field(default_factory=list)
    """The waits of all choices; complete when all matches were enumerated."""
    _take_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @cached_property
    def answers(self) -> ConditionAnswers:
        """The conditions, evaluated on these events."""
        return ConditionAnswers(self.schema, self.rows)

    def find_matches(self) -> list[MatchPath]:
        """The matches that the skip strategy leaves, in the order in which they are shown."""
        found = list(self.all_matches())
        if self.pattern.skip.kind == "none":
            return [match.path for match in sorted(found, key=lambda match: match.certain_at)]
        ordered = sorted(
            found, key=lambda match: (match.path[0][1], match.certain_at, self.path_order(match.path))
        )
        shown: list[MatchPath] = []
        next_start = 0
        for match in ordered:
            if match.path[0][1] >= next_start:
                shown.append(match.path)
                next_start = max(next_start, self.next_start(match.path))
        return shown

    def path_order(self, path: MatchPath) -> list[tuple[int, int]]:
        """The sort key of matches that are certain at once: earlier events first."""
        steps = [step.name for step in self.pattern.steps]
        return [(event, steps.index(step)) for step, event in path]

    def next_start(self, path: MatchPath) -> int:
        """The first event with which a match may begin after this match."""
        skip = self.pattern.skip
        if skip.kind == "none":
            return 0
        if skip.kind == "to_next":
            return path[0][1] + 1
        if skip.kind == "past_last":
            return path[-1][1] + 1
        events = [event for step, event in path if step == skip.step]
        position = 0 if skip.kind == "to_first" else -1
        if skip.on_miss == "error" and (not events or events[position] == path[0][1]):
            raise NoPlaceToSkip(f"skip {skip}: there is no such event in {path}, or it is the first")
        return events[position] if events else 0

    def all_matches(self) -> Iterator[CertainMatch]:
        """Every match, before the skip strategy rules any out; `waits` is complete afterwards."""
        end = self.pattern.parts[-1]
        for choice in self._go_through_parts(self.pattern.parts, 0, EventChoice(), PartConstraints()):
            if not choice.path or (choice.is_over and end.is_negative):
                continue
            if end.link == "not_next":
                yield from self._match_unless_next(choice, end)
            elif end.link == "not_followed_by":
                yield from self._match_unless_followed(choice, end)
            else:
                yield CertainMatch(choice.path, Moment(choice.last, is_event=True))

    def _match_unless_next(self, choice: EventChoice, end: PatternPart) -> Iterator[CertainMatch]:
        after = choice.last + 1
        if self._stops_waiting(choice, after, None):
            return
        self._note_wait(choice, after, Moment(after, is_event=True))
        is_kept = choice.is_blocked or self._is_kept(choice, after)
        if not is_kept and not self.answers.holds(end.where, after, choice.path):
            yield CertainMatch(choice.path, Moment(after, is_event=True))

    def _match_unless_followed(self, choice: EventChoice, end: PatternPart) -> Iterator[CertainMatch]:
        deadline = self._deadline(choice, end.gap)
        for event in range(choice.last + 1, len(self.rows) + 1):
            if self._stops_waiting(choice, event, end.gap, is_match_when_over=True):
                if deadline is not None:
                    yield CertainMatch(choice.path, Moment(event, is_event=False, time=deadline))
                return
            if (
                choice.is_blocked
                or self.answers.holds(end.where, event, choice.path)
                or self._is_forbidden(choice, event)
                or self._is_kept(choice, event)
            ):
                self._note_wait(choice, event, Moment(event, is_event=True))
                return

    def _is_in_time(self, choice: EventChoice, event: int) -> bool:
        """Whether there is such an event, and the choice has not expired before it."""
        deadline = self._deadline(choice, None)
        return event < len(self.rows) and (deadline is None or self._time_of(event) < deadline)

    def _stops_waiting(
        self, choice: EventChoice, event: int, gap: int | None, *, is_match_when_over: bool = False
    ) -> bool:
        """Whether there is no such event, or the choice expires before it; if so, the wait is noted."""
        deadline = self._deadline(choice, gap)
        is_missing = event == len(self.rows)
        if not is_missing and (deadline is None or self._time_of(event) < deadline):
            return False
        until = None if deadline is None else Moment(event, is_event=False, time=deadline)
        self._note_wait(choice, event, until, is_match_when_over=is_match_when_over)
        return True

    def _note_wait(
        self, choice: EventChoice, event: int, until: Moment | None, *, is_match_when_over: bool = False
    ) -> None:
        has_passed_event = event > choice.last + 1
        self.waits.append(Wait(choice.path, choice.take_number, has_passed_event, until, is_match_when_over))

    def _deadline(self, choice: EventChoice, gap: int | None) -> int | None:
        """When a choice expires that waits for an event within `gap`."""
        span = self.pattern.span
        ends = [] if span is None else [self._time_of(choice.path[0][1]) + span]
        ends += [] if gap is None else [self._time_of(choice.last) + gap]
        return min(ends, default=None)

    def _go_through_parts(
        self, parts: tuple[PatternPart, ...], position: int, choice: EventChoice, constraints: PartConstraints
    ) -> Iterator[EventChoice]:
        """Every path through the parts from `position` on."""
        if position == len(parts) or (position == len(parts) - 1 and parts[position].is_negative):
            yield choice
            return
        part, later = (
            parts[position],
            PartConstraints(
                untils=constraints.untils,
                forbidden_when_left=constraints.forbidden_when_left,
                forbidden_in_loop=constraints.forbidden_in_loop,
            ),
        )
        if part.link == "not_followed_by":
            yield from self._go_through_parts(
                parts, position + 1, replace(choice, forbidden=(*choice.forbidden, part)), later
            )
        elif part.link == "not_next":
            after = choice.last + 1
            is_blocked = self._is_in_time(choice, after) and (
                self.answers.holds(part.where, after, choice.path) or self._is_kept(choice, after)
            )
            yield from self._go_through_parts(
                parts,
                position + 1,
                replace(choice, guards=(), is_blocked=choice.is_blocked or is_blocked),
                later,
            )
        else:
            part_constraints = (
                constraints
                if position + 1 == len(parts)
                else replace(constraints, forbidden_in_loop=forbidden_at_start(parts[position + 1 :]))
            )
            for extended in self._go_through_part(
                part,
                choice,
                part_constraints,
                forbidden_after_part(parts[position + 1 :], constraints.forbidden_when_left),
            ):
                yield from self._go_through_parts(parts, position + 1, extended, later)

    def _go_through_part(
        self,
        part: PatternPart,
        choice: EventChoice,
        constraints: PartConstraints,
        forbidden_after: tuple[ForbiddenNext, ...],
    ) -> Iterator[EventChoice]:
        """Every path through one part: left out, or repeated as often as it may be.

        `forbidden_after`: what must not follow it.
        """
        if part.optional:
            yield leave_out(part, choice)
        turns = [enter_part(part, choice, constraints, forbidden_after)]
        turn_constraints, following = constrain_first_turn(part, constraints), constraints.forbidden_in_loop
        turn_count = 0
        while turns and (part.most is None or turn_count < part.most):
            turn_count += 1
            stops = forbidden_after_turn(part, forbidden_after, following, turn_count)
            turn_constraints = replace(turn_constraints, forbidden_when_left=stops)
            turns = [extended for turn in turns for extended in self._take_turn(part, turn, turn_constraints)]
            is_enough = turn_count >= part.least
            if is_enough and turn_count != part.most:
                turns = [replace(turn, guards=tuple(map(for_next_event, turn.guards))) for turn in turns]
            if is_enough:
                yield from (leave_loop(part, turn, turn_count) for turn in turns)
            turn_constraints = constrain_next_turn(part, constraints, is_enough=is_enough)
            stops = forbidden_after if is_enough else ()
            turns = [repeat_loop(part, turn, stops, following, is_enough=is_enough) for turn in turns]

    def _take_turn(
        self, part: PatternPart, choice: EventChoice, constraints: PartConstraints
    ) -> Iterator[EventChoice]:
        if part.parts:
            untils = (*constraints.untils, *((part.until,) if part.until is not None else ()))
            yield from self._go_through_parts(part.parts, 0, choice, replace(constraints, untils=untils))
            return
        if not choice.path:
            yield from self._begin(part, choice, constraints)
        elif not choice.is_over:
            yield from self._continue(part, choice, constraints)

    def _begin(
        self, part: PatternPart, choice: EventChoice, constraints: PartConstraints
    ) -> Iterator[EventChoice]:
        """Takes each event that a match can begin with."""
        for event in range(len(self.rows)):
            if self._may_come(choice, event, constraints) and self._can_take(part, event, choice):
                yield self._take(part, choice, event)

    def _continue(
        self, part: PatternPart, choice: EventChoice, constraints: PartConstraints
    ) -> Iterator[EventChoice]:
        """Takes each later event that can continue a match."""
        for event in range(choice.last + 1, len(self.rows) + 1):
            if self._stops_waiting(choice, event, constraints.gap):
                return
            may_come = not choice.is_blocked and self._may_come(choice, event, constraints)
            if may_come and self._can_take(part, event, choice):
                yield self._take(part, choice, event)
            if not (may_come and self._may_pass(part, choice, event, constraints)):
                self._note_wait(choice, event, Moment(event, is_event=True))
                return

    def _take(self, part: PatternPart, choice: EventChoice, event: int) -> EventChoice:
        return EventChoice(
            (*choice.path, (part.name, event)),
            is_over=self._is_forbidden(choice, event),
            take_number=next(self._take_numbers),
        )

    def _may_come(self, choice: EventChoice, event: int, constraints: PartConstraints) -> bool:
        """Whether neither the end of a loop nor a greedy loop claims an event."""
        is_ended = any(self.answers.holds(until, event, choice.path) for until in constraints.untils)
        return not is_ended and not self._is_kept(choice, event)

    def _may_pass(
        self, part: PatternPart, choice: EventChoice, event: int, constraints: PartConstraints
    ) -> bool:
        """Whether a choice that waits for a part may pass over an event and still waits."""
        is_ended = (
            constraints.is_repeated
            and part.until is not None
            and self.answers.holds(part.until, event, choice.path)
        )
        is_relaxed = constraints.link == "any" or (
            constraints.link == "relaxed" and not self.answers.holds(part.where, event, choice.path)
        )
        return is_relaxed and not is_ended and not self._is_forbidden(choice, event)

    def _is_forbidden(self, choice: EventChoice, event: int) -> bool:
        """Whether an event is forbidden after this choice."""
        if event == choice.last + 1 and any(
            self._is_forbidden_next(stop, event, choice) for stop in choice.forbidden_next
        ):
            return True
        return any(self.answers.holds(part.where, event, choice.path) for part in choice.forbidden)

    def _is_forbidden_next(self, stop: ForbiddenNext, event: int, choice: EventChoice) -> bool:
        if stop.gap is not None and self._time_of(event) >= self._time_of(choice.last) + stop.gap:
            return False
        is_kept = stop.unless_kept_by is not None and self._can_take(stop.unless_kept_by, event, choice)
        return not is_kept and self.answers.holds(stop.part.where, event, choice.path)

    def _is_kept(self, choice: EventChoice, event: int) -> bool:
        first = choice.last + 1 if choice.path else event
        return any(self._guard_keeps(guard, event, first, choice) for guard in choice.guards)

    def _guard_keeps(self, guard: LoopGuard, event: int, first: int, choice: EventChoice) -> bool:
        if (
            guard.may_end
            and guard.part.until is not None
            and self.answers.holds(guard.part.until, first, choice.path)
        ):
            return False
        return (not guard.next_event_only or not choice.path or event == choice.last + 1) and self._can_take(
            guard.part, event, choice
        )

    def _can_take(self, part: PatternPart, event: int, choice: EventChoice) -> bool:
        return self.answers.holds(part.where, event, choice.path) and not (
            part.until is not None and self.answers.holds(part.until, event, choice.path)
        )

    def _time_of(self, event: int) -> int:
        return int(self.rows[event][self.time])
