"""What a pattern matches, by definition: every choice of events is tried, and kept if nothing forbids it. Slow; the oracle of the tests.

It shares nothing with the matcher but the words of the pattern: no states, no batches. Conditions are asked of polars, one event at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from millrace.errors import NoPlaceToSkip
from millrace.patterns import conditions
from millrace.patterns.builder import Pattern
from millrace.patterns.conditions import Condition, EarlierValue
from millrace.patterns.parts import CONTIGUITY, InnerContiguity, PatternPart

MatchPath = tuple[tuple[str, int], ...]
"""The events of a match in order: which step took which."""

Row = Mapping[str, Any]


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


class CertainMatch(NamedTuple):
    """A match, and when it was certain: at an event, or, before the event of that place, at a time."""

    path: MatchPath
    certain_at: tuple[int, int, int]


@dataclass(frozen=True)
class Choice:
    """How far a choice has come, and what still binds it."""

    path: MatchPath = ()
    forbidden: tuple[PatternPart, ...] = ()
    guards: tuple[LoopGuard, ...] = ()
    forbidden_next: tuple[ForbiddenNext, ...] = ()
    """What must not come as the very next event: what another way from here must not see."""
    is_over: bool = False
    """Whether no event may follow: the newest one must not have come, so it counts only if it completes the match."""

    @property
    def last(self) -> int:
        """The newest event."""
        return self.path[-1][1] if self.path else -1


@dataclass(frozen=True)
class Constraints:
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


@dataclass
class PatternDefinition:
    """A pattern and the events of one key in order of time."""

    pattern: Pattern
    schema: pl.Schema
    rows: Sequence[Row]
    time: str = "event_time"
    _condition_cache: dict[Any, bool] = field(default_factory=dict)
    _term_cache: dict[int, list[Any]] = field(default_factory=dict)

    def find_matches(self) -> list[MatchPath]:
        """Exactly the matches, in the order in which they are shown."""
        found = list(self._all_matches())
        if self.pattern.skip.kind == "none":
            return [match.path for match in sorted(found, key=lambda match: match.certain_at)]
        steps = [step.name for step in self.pattern.steps]
        ordered = sorted(
            found,
            key=lambda m: (
                m.path[0][1],
                m.certain_at,
                [(event, steps.index(step)) for step, event in m.path],
            ),
        )
        shown: list[MatchPath] = []
        next_start = 0
        for match in ordered:
            if match.path[0][1] >= next_start:
                shown.append(match.path)
                next_start = max(next_start, self._next_start(match.path))
        return shown

    def _next_start(self, path: MatchPath) -> int:
        skip = self.pattern.skip
        if skip.kind == "to_next":
            return path[0][1] + 1
        if skip.kind == "past_last":
            return path[-1][1] + 1
        events = [event for step, event in path if step == skip.step]
        position = 0 if skip.kind == "to_first" else -1
        if skip.on_miss == "error" and (not events or events[position] == path[0][1]):
            raise NoPlaceToSkip(f"skip {skip}: there is no such event in {path}, or it is the first")
        return events[position] if events else 0

    def _all_matches(self) -> Iterator[CertainMatch]:
        end = self.pattern.parts[-1]
        for choice in self._go_through_parts(self.pattern.parts, 0, Choice(), Constraints()):
            if not choice.path or (choice.is_over and end.is_negative):
                continue
            if end.link == "not_next":
                yield from self._match_unless_next(choice, end)
            elif end.link == "not_followed_by":
                yield from self._match_unless_followed(choice, end)
            else:
                yield CertainMatch(choice.path, (choice.last, 1, 0))

    def _match_unless_next(self, choice: Choice, end: PatternPart) -> Iterator[CertainMatch]:
        after = choice.last + 1
        if (
            after < len(self.rows)
            and self._is_in_time(choice, after, None)
            and not self._holds(end.where, after, choice)
            and not self._is_kept(choice, after)
        ):
            yield CertainMatch(choice.path, (after, 1, 0))

    def _match_unless_followed(self, choice: Choice, end: PatternPart) -> Iterator[CertainMatch]:
        ends = [self._time_of(choice.path[0][1]) + self.pattern.span] if self.pattern.span is not None else []
        until = min([*ends, *([self._time_of(choice.last) + end.gap] if end.gap is not None else [])])
        for event in range(choice.last + 1, len(self.rows)):
            if self._time_of(event) >= until:
                yield CertainMatch(choice.path, (event, 0, until))
                return
            if (
                self._holds(end.where, event, choice)
                or self._is_forbidden(choice, event)
                or self._is_kept(choice, event)
            ):
                return
        yield CertainMatch(choice.path, (len(self.rows), 0, until))

    def _go_through_parts(
        self, parts: tuple[PatternPart, ...], position: int, choice: Choice, constraints: Constraints
    ) -> Iterator[Choice]:
        """Every way to go through the parts from `place` on."""
        if position == len(parts) or (position == len(parts) - 1 and parts[position].is_negative):
            yield choice
            return
        part, later = (
            parts[position],
            Constraints(
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
            blocked = after < len(self.rows) and (
                self._holds(part.where, after, choice) or self._is_kept(choice, after)
            )
            yield from self._go_through_parts(
                parts, position + 1, replace(choice, guards=(), is_over=choice.is_over or blocked), later
            )
        else:
            part_constraints = (
                constraints
                if position + 1 == len(parts)
                else replace(constraints, forbidden_in_loop=_forbidden_in_loop(parts[position + 1 :]))
            )
            for extended in self._go_through_part(
                part,
                choice,
                part_constraints,
                _forbidden_before(parts[position + 1 :], constraints.forbidden_when_left),
            ):
                yield from self._go_through_parts(parts, position + 1, extended, later)

    def _go_through_part(
        self,
        part: PatternPart,
        choice: Choice,
        constraints: Constraints,
        forbidden_after: tuple[ForbiddenNext, ...],
    ) -> Iterator[Choice]:
        """Every way to go through one part: left out, or repeated as often as it may be. `nexts`: what must not follow it."""
        next_event_guards = tuple(map(for_next_event, choice.guards))
        loop_guards = () if part.parts else _loop_guards(part)
        if part.optional:
            yield replace(choice, guards=(*next_event_guards, *_loop_guards(part)))
        forbidden_next = (
            (*choice.forbidden_next, *_forbidden_beside_loop(part, forbidden_after))
            if part.optional
            else choice.forbidden_next
        )
        turns = [
            replace(
                choice,
                guards=next_event_guards if part.optional or constraints.is_skippable else choice.guards,
                forbidden_next=forbidden_next,
            )
        ]
        link = constraints.link or CONTIGUITY[part.link]
        turn_constraints = replace(
            constraints,
            link=link,
            gap=part.gap if constraints.gap is None else constraints.gap,
            is_skippable=part.optional or constraints.is_skippable,
            is_repeated=False,
        )
        turn_count = 0
        while turns and (part.most is None or turn_count < part.most):
            turn_count += 1
            turn_constraints = replace(
                turn_constraints, forbidden_when_left=_forbidden_when_left(part, forbidden_after, turn_count)
            )
            turns = [extended for turn in turns for extended in self._take_turn(part, turn, turn_constraints)]
            if turn_count != part.most and turn_count >= part.least:
                turns = [replace(turn, guards=tuple(map(for_next_event, turn.guards))) for turn in turns]
            is_enough = turn_count >= part.least
            if is_enough:
                left_guards = tuple(guard._replace(may_end=turn_count != part.most) for guard in loop_guards)
                yield from (
                    replace(_leave_loop(part, turn, turn_count), guards=left_guards or turn.guards)
                    for turn in turns
                )
            turn_constraints = Constraints(
                part.inner,
                part.loop_gap,
                constraints.untils,
                is_skippable=is_enough,
                is_repeated=True,
                forbidden_in_loop=constraints.forbidden_in_loop,
            )
            turns = [
                _repeat_loop(
                    part,
                    turn,
                    forbidden_after if is_enough else (),
                    constraints.forbidden_in_loop,
                    is_enough=is_enough,
                )
                for turn in turns
            ]

    def _take_turn(self, part: PatternPart, choice: Choice, constraints: Constraints) -> Iterator[Choice]:
        if part.parts:
            untils = (*constraints.untils, *((part.until,) if part.until is not None else ()))
            yield from self._go_through_parts(part.parts, 0, choice, replace(constraints, untils=untils))
            return
        for event in range(choice.last + 1, len(self.rows) if not choice.is_over else 0):
            if not self._may_come(choice, event, constraints):
                if choice.path:
                    return
                continue
            is_forbidden = self._is_forbidden(choice, event)
            if self._can_take(part, event, choice):
                yield Choice((*choice.path, (part.name, event)), is_over=is_forbidden)
            if is_forbidden:
                return
            may_pass = constraints.link == "any" or (
                constraints.link == "relaxed" and not self._holds(part.where, event, choice)
            )
            is_ended = (
                constraints.is_repeated and part.until is not None and self._holds(part.until, event, choice)
            )
            if choice.path and (not may_pass or is_ended):
                return

    def _may_come(self, choice: Choice, event: int, constraints: Constraints) -> bool:
        """Whether an event may be taken or passed over at all, but for what must not come."""
        is_ended = any(self._holds(until, event, choice) for until in constraints.untils)
        return (
            not is_ended
            and not self._is_kept(choice, event)
            and (not choice.path or self._is_in_time(choice, event, constraints.gap))
        )

    def _is_forbidden(self, choice: Choice, event: int) -> bool:
        """Whether an event must not come."""
        if event == choice.last + 1 and any(
            self._is_forbidden_next(stop, event, choice) for stop in choice.forbidden_next
        ):
            return True
        return any(self._holds(part.where, event, choice) for part in choice.forbidden)

    def _is_forbidden_next(self, stop: ForbiddenNext, event: int, choice: Choice) -> bool:
        is_kept = stop.unless_kept_by is not None and self._can_take(stop.unless_kept_by, event, choice)
        return not is_kept and self._holds(stop.part.where, event, choice)

    def _is_kept(self, choice: Choice, event: int) -> bool:
        first = choice.last + 1 if choice.path else event
        return any(self._guard_keeps(guard, event, first, choice) for guard in choice.guards)

    def _guard_keeps(self, guard: LoopGuard, event: int, first: int, choice: Choice) -> bool:
        if guard.may_end and guard.part.until is not None and self._holds(guard.part.until, first, choice):
            return False
        return (not guard.next_event_only or not choice.path or event == choice.last + 1) and self._can_take(
            guard.part, event, choice
        )

    def _can_take(self, part: PatternPart, event: int, choice: Choice) -> bool:
        return self._holds(part.where, event, choice) and not (
            part.until is not None and self._holds(part.until, event, choice)
        )

    def _is_in_time(self, choice: Choice, event: int, gap: int | None) -> bool:
        span = self.pattern.span
        is_within_span = span is None or self._time_of(event) < self._time_of(choice.path[0][1]) + span
        return is_within_span and (gap is None or self._time_of(event) < self._time_of(choice.last) + gap)

    def _time_of(self, event: int) -> int:
        return int(self.rows[event][self.time])

    def _holds(self, condition: Condition | None, event: int, choice: Choice) -> bool:
        if condition is None:
            return True
        question = (id(condition), event, choice.path)
        if question not in self._condition_cache:
            self._condition_cache[question] = self._evaluate(condition, event, choice)
        return self._condition_cache[question]

    def _evaluate(self, condition: Condition, event: int, choice: Choice) -> bool:
        answers = [self._evaluate_term(term, event, choice) for term in condition.terms]
        return any(answers) if condition.is_any else all(answers)

    def _evaluate_term(self, term: Any, event: int, choice: Choice) -> bool:
        if isinstance(term, Condition):
            return self._evaluate(term, event, choice)
        if not isinstance(term, pl.Expr):
            match: dict[str, list[Any]] = {}
            for step, number in choice.path:
                match.setdefault(step, []).append(self.rows[number])
            return bool(term(self.rows[event], match))
        lookups = [
            pl.lit(self._look_back(lookup, choice)).alias(lookup.name)
            for lookup in conditions.earlier_values(term)
        ]
        frame = self._frame[event : event + 1].with_columns(lookups) if lookups else self._frame
        answers = (
            self._term_cache.get(id(term)) or frame.with_columns(term.alias("_holds"))["_holds"].to_list()
        )
        if not lookups:
            self._term_cache[id(term)] = answers
        return answers[0 if lookups else event] is True

    @cached_property
    def _frame(self) -> pl.DataFrame:
        return pl.DataFrame([dict(row) for row in self.rows], schema=self.schema)

    def _look_back(self, lookup: EarlierValue, choice: Choice) -> Any:
        if lookup.kind == "previous":
            return self.rows[choice.last][lookup.column or ""] if choice.path else None
        events = [event for step, event in choice.path if step == lookup.step]
        if lookup.kind == "count":
            return len(events)
        values = [self.rows[event][lookup.column or ""] for event in events]
        if lookup.kind in ("first", "last"):
            return values[0 if lookup.kind == "first" else -1] if values else None
        series = pl.Series(values, dtype=self.schema[lookup.column or ""])
        return {"sum": series.sum, "avg": series.mean, "min": series.min, "max": series.max}[lookup.kind]()


def _loop_guards(part: PatternPart) -> tuple[LoopGuard, ...]:
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


def _forbidden_in_loop(parts: tuple[PatternPart, ...]) -> tuple[PatternPart, ...]:
    """What must not come, said right at the beginning of these parts."""
    return tuple(itertools.takewhile(lambda part: part.link == "not_followed_by", parts))


def _forbidden_before(
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
            return tuple(found)
    return (
        *found,
        *(
            stop._replace(is_behind_optional=is_behind_optional or stop.is_behind_optional)
            for stop in leaving
        ),
    )


def _forbidden_when_left(
    part: PatternPart, forbidden_after: tuple[ForbiddenNext, ...], turn_count: int
) -> tuple[ForbiddenNext, ...]:
    """What must not come where a group ends after so many turns, of which the last leads nowhere else."""
    if turn_count < part.least:
        return ()
    return (
        forbidden_after
        if turn_count == part.most
        else tuple(stop._replace(is_behind_optional=True) for stop in forbidden_after)
    )


def _leave_loop(part: PatternPart, choice: Choice, turn_count: int) -> Choice:
    """A choice that leaves a loop after some turns. What must not come after an optional end of a group binds it on its last turn."""
    if not part.parts or turn_count == part.most:
        return choice
    return replace(choice, forbidden=(), forbidden_next=tuple(map(ForbiddenNext, choice.forbidden)))


def _repeat_loop(
    part: PatternPart,
    choice: Choice,
    forbidden_after: tuple[ForbiddenNext, ...],
    following: tuple[PatternPart, ...],
    *,
    is_enough: bool,
) -> Choice:
    """A choice that takes another turn: what must not follow the loop must not come between its events, either."""
    if part.parts:
        if is_enough and part.most is None:
            unmet = tuple(map(ForbiddenNext, choice.forbidden))
            return replace(choice, forbidden=(), forbidden_next=(*forbidden_after, *unmet))
        return replace(choice, forbidden=(*choice.forbidden, *following), forbidden_next=forbidden_after)
    return replace(choice, forbidden=following, forbidden_next=_forbidden_beside_loop(part, forbidden_after))


def _forbidden_beside_loop(
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
