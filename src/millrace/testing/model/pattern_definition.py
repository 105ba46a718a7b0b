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
from millrace.patterns.conditions import Asked, Condition
from millrace.patterns.parts import CONTIGUITY, Inner, Part

Path = tuple[tuple[str, int], ...]
"""The events of a match in order: which step took which."""

Row = Mapping[str, Any]


class Guard(NamedTuple):
    """What a greedy loop keeps for itself; `once`: only at the event right after it."""

    part: Part
    once: bool
    may_end: bool = False
    """Whether it ends if the loop's `until` holds at the event right after the loop."""


class Stop(NamedTuple):
    """What must not come as the very next event, since another way from here would see it."""

    part: Part
    behind: bool = False
    """Whether that way leads through a part that is left out."""
    unless: Part | None = None
    """A greedy loop that keeps the event for itself, so that the other way is not open."""


class Found(NamedTuple):
    """A match, and when it was certain: at an event, or, before the event of that place, at a time."""

    path: Path
    known: tuple[int, int, int]


@dataclass(frozen=True)
class So:
    """How far a choice has come, and what still binds it."""

    path: Path = ()
    nots: tuple[Part, ...] = ()
    guards: tuple[Guard, ...] = ()
    stops: tuple[Stop, ...] = ()
    """What must not come as the very next event: what another way from here must not see."""
    over: bool = False
    """Whether no event may follow: the newest one must not have come, so it counts only if it completes the match."""

    @property
    def last(self) -> int:
        """The newest event."""
        return self.path[-1][1] if self.path else -1


@dataclass(frozen=True)
class Bound:
    """What binds the first event of a part, and all its events: the link of the group it begins, and the ends of the groups it is in."""

    link: Inner | None = None
    gap: int | None = None
    untils: tuple[Condition, ...] = ()
    leavable: bool = False
    """Whether the group may be left in place of this."""
    again: bool = False
    """Whether the part has had a turn before."""
    leaving: tuple[Stop, ...] = ()
    """What must not come where the group is left: what follows it."""
    following: tuple[Part, ...] = ()
    """What must not come between the events of a loop that ends a group without turns: what must not follow the group."""


@dataclass
class Definition:
    """A pattern and the events of one key in order of time."""

    pattern: Pattern
    schema: pl.Schema
    rows: Sequence[Row]
    time: str = "event_time"
    _known: dict[Any, bool] = field(default_factory=dict)
    _answers: dict[int, list[Any]] = field(default_factory=dict)

    def matches(self) -> list[Path]:
        """Exactly the matches, in the order in which they are shown."""
        found = list(self._all())
        if self.pattern.skip.kind == "none":
            return [match.path for match in sorted(found, key=lambda match: match.known)]
        steps = [step.name for step in self.pattern.steps]
        order = sorted(
            found,
            key=lambda m: (m.path[0][1], m.known, [(event, steps.index(step)) for step, event in m.path]),
        )
        shown: list[Path] = []
        least = 0
        for match in order:
            if match.path[0][1] >= least:
                shown.append(match.path)
                least = max(least, self._least(match.path))
        return shown

    def _least(self, path: Path) -> int:
        skip = self.pattern.skip
        if skip.kind == "to_next":
            return path[0][1] + 1
        if skip.kind == "past_last":
            return path[-1][1] + 1
        events = [event for step, event in path if step == skip.step]
        place = 0 if skip.kind == "to_first" else -1
        if skip.on_miss == "error" and (not events or events[place] == path[0][1]):
            raise NoPlaceToSkip(f"skip {skip}: there is no such event in {path}, or it is the first")
        return events[place] if events else 0

    def _all(self) -> Iterator[Found]:
        end = self.pattern.parts[-1]
        for so in self._parts(self.pattern.parts, 0, So(), Bound()):
            if not so.path or (so.over and end.negative):
                continue
            if end.link == "not_next":
                yield from self._without_next(so, end)
            elif end.link == "not_followed_by":
                yield from self._without(so, end)
            else:
                yield Found(so.path, (so.last, 1, 0))

    def _without_next(self, so: So, end: Part) -> Iterator[Found]:
        after = so.last + 1
        if (
            after < len(self.rows)
            and self._in_time(so, after, None)
            and not self._holds(end.where, after, so)
            and not self._kept(so, after)
        ):
            yield Found(so.path, (after, 1, 0))

    def _without(self, so: So, end: Part) -> Iterator[Found]:
        ends = [self._at(so.path[0][1]) + self.pattern.span] if self.pattern.span is not None else []
        until = min([*ends, *([self._at(so.last) + end.gap] if end.gap is not None else [])])
        for event in range(so.last + 1, len(self.rows)):
            if self._at(event) >= until:
                yield Found(so.path, (event, 0, until))
                return
            if self._holds(end.where, event, so) or self._refused(so, event) or self._kept(so, event):
                return
        yield Found(so.path, (len(self.rows), 0, until))

    def _parts(self, parts: tuple[Part, ...], place: int, so: So, bound: Bound) -> Iterator[So]:
        """Every way to go through the parts from `place` on."""
        if place == len(parts) or (place == len(parts) - 1 and parts[place].negative):
            yield so
            return
        part, later = (
            parts[place],
            Bound(untils=bound.untils, leaving=bound.leaving, following=bound.following),
        )
        if part.link == "not_followed_by":
            yield from self._parts(parts, place + 1, replace(so, nots=(*so.nots, part)), later)
        elif part.link == "not_next":
            after = so.last + 1
            blocked = after < len(self.rows) and (self._holds(part.where, after, so) or self._kept(so, after))
            yield from self._parts(parts, place + 1, replace(so, guards=(), over=so.over or blocked), later)
        else:
            here = (
                bound if place + 1 == len(parts) else replace(bound, following=_following(parts[place + 1 :]))
            )
            for through in self._part(part, so, here, _heads(parts[place + 1 :], bound.leaving)):
                yield from self._parts(parts, place + 1, through, later)

    def _part(self, part: Part, so: So, bound: Bound, nexts: tuple[Stop, ...]) -> Iterator[So]:
        """Every way to go through one part: left out, or repeated as often as it may be. `nexts`: what must not follow it."""
        once = tuple(map(replace_once, so.guards))
        kept = () if part.inside else _kept_by(part)
        if part.optional:
            yield replace(so, guards=(*once, *_kept_by(part)))
        seen = (*so.stops, *nexts) if part.optional else so.stops
        turns = [replace(so, guards=once if part.optional or bound.leavable else so.guards, stops=seen)]
        link = bound.link or CONTIGUITY[part.link]
        here = replace(
            bound,
            link=link,
            gap=part.gap if bound.gap is None else bound.gap,
            leavable=part.optional or bound.leavable,
            again=False,
        )
        number = 0
        while turns and (part.most is None or number < part.most):
            number += 1
            here = replace(here, leaving=_leaving(part, nexts, number))
            turns = [done for turn in turns for done in self._turn(part, turn, here)]
            if number != part.most and number >= part.least:
                turns = [replace(turn, guards=tuple(map(replace_once, turn.guards))) for turn in turns]
            enough = number >= part.least
            if enough:
                left = tuple(guard._replace(may_end=number != part.most) for guard in kept)
                yield from (replace(_leave(part, turn, number), guards=left or turn.guards) for turn in turns)
            here = Bound(
                part.inner,
                part.loop_gap,
                bound.untils,
                leavable=enough,
                again=True,
                following=bound.following,
            )
            turns = [
                _repeat(part, turn, nexts if enough else (), bound.following, enough=enough) for turn in turns
            ]

    def _turn(self, part: Part, so: So, bound: Bound) -> Iterator[So]:
        if part.inside:
            untils = (*bound.untils, *((part.until,) if part.until is not None else ()))
            yield from self._parts(part.inside, 0, so, replace(bound, untils=untils))
            return
        for event in range(so.last + 1, len(self.rows) if not so.over else 0):
            if not self._may_come(so, event, bound):
                if so.path:
                    return
                continue
            refused = self._refused(so, event)
            if self._takes(part, event, so):
                yield So((*so.path, (part.name, event)), over=refused)
            if refused:
                return
            passed = bound.link == "any" or (
                bound.link == "relaxed" and not self._holds(part.where, event, so)
            )
            ended = bound.again and part.until is not None and self._holds(part.until, event, so)
            if so.path and (not passed or ended):
                return

    def _may_come(self, so: So, event: int, bound: Bound) -> bool:
        """Whether an event may be taken or passed over at all, but for what must not come."""
        ended = any(self._holds(until, event, so) for until in bound.untils)
        return (
            not ended and not self._kept(so, event) and (not so.path or self._in_time(so, event, bound.gap))
        )

    def _refused(self, so: So, event: int) -> bool:
        """Whether an event must not come."""
        if event == so.last + 1 and any(self._stops(stop, event, so) for stop in so.stops):
            return True
        return any(self._holds(part.where, event, so) for part in so.nots)

    def _stops(self, stop: Stop, event: int, so: So) -> bool:
        kept = stop.unless is not None and self._takes(stop.unless, event, so)
        return not kept and self._holds(stop.part.where, event, so)

    def _kept(self, so: So, event: int) -> bool:
        first = so.last + 1 if so.path else event
        return any(self._keeps(guard, event, first, so) for guard in so.guards)

    def _keeps(self, guard: Guard, event: int, first: int, so: So) -> bool:
        if guard.may_end and guard.part.until is not None and self._holds(guard.part.until, first, so):
            return False
        return (not guard.once or not so.path or event == so.last + 1) and self._takes(guard.part, event, so)

    def _takes(self, part: Part, event: int, so: So) -> bool:
        return self._holds(part.where, event, so) and not (
            part.until is not None and self._holds(part.until, event, so)
        )

    def _in_time(self, so: So, event: int, gap: int | None) -> bool:
        span = self.pattern.span
        early = span is None or self._at(event) < self._at(so.path[0][1]) + span
        return early and (gap is None or self._at(event) < self._at(so.last) + gap)

    def _at(self, event: int) -> int:
        return int(self.rows[event][self.time])

    def _holds(self, condition: Condition | None, event: int, so: So) -> bool:
        if condition is None:
            return True
        asked = (id(condition), event, so.path)
        if asked not in self._known:
            self._known[asked] = self._ask(condition, event, so)
        return self._known[asked]

    def _ask(self, condition: Condition, event: int, so: So) -> bool:
        answers = [self._term(term, event, so) for term in condition.terms]
        return any(answers) if condition.any else all(answers)

    def _term(self, term: Any, event: int, so: So) -> bool:
        if isinstance(term, Condition):
            return self._ask(term, event, so)
        if not isinstance(term, pl.Expr):
            match: dict[str, list[Any]] = {}
            for step, taken in so.path:
                match.setdefault(step, []).append(self.rows[taken])
            return bool(term(self.rows[event], match))
        more = [pl.lit(self._earlier(one, so)).alias(one.name) for one in conditions.asked(term)]
        frame = self._frame[event : event + 1].with_columns(more) if more else self._frame
        answers = self._answers.get(id(term)) or frame.with_columns(term.alias("_holds"))["_holds"].to_list()
        if not more:
            self._answers[id(term)] = answers
        return answers[0 if more else event] is True

    @cached_property
    def _frame(self) -> pl.DataFrame:
        return pl.DataFrame([dict(row) for row in self.rows], schema=self.schema)

    def _earlier(self, asked: Asked, so: So) -> Any:
        if asked.kind == "previous":
            return self.rows[so.last][asked.column or ""] if so.path else None
        events = [event for step, event in so.path if step == asked.step]
        if asked.kind == "count":
            return len(events)
        values = [self.rows[event][asked.column or ""] for event in events]
        if asked.kind in ("first", "last"):
            return values[0 if asked.kind == "first" else -1] if values else None
        series = pl.Series(values, dtype=self.schema[asked.column or ""])
        return {"sum": series.sum, "avg": series.mean, "min": series.min, "max": series.max}[asked.kind]()


def _kept_by(part: Part) -> tuple[Guard, ...]:
    """What the greedy loop at the end of a part keeps for itself, even where the part is left out."""
    while part.inside:
        part = part.inside[-1]
    return (Guard(part, once=False, may_end=True),) if part.greedy and part.least != part.most else ()


def replace_once(guard: Guard) -> Guard:
    """The same, for the next event only."""
    return guard._replace(once=True)


def _following(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """What must not come, said right at the beginning of these parts."""
    return tuple(itertools.takewhile(lambda part: part.link == "not_followed_by", parts))


def _heads(parts: tuple[Part, ...], leaving: tuple[Stop, ...]) -> tuple[Stop, ...]:
    """What must not come before these parts, or after them if all of them may be left out."""
    found: list[Stop] = []
    behind = False
    for part in parts:
        if part.negative:
            found.append(Stop(part, behind))
            behind = behind or part.link == "not_next"
        elif part.skippable:
            behind = True
        else:
            return tuple(found)
    return (*found, *(stop._replace(behind=behind or stop.behind) for stop in leaving))


def _leaving(part: Part, nexts: tuple[Stop, ...], number: int) -> tuple[Stop, ...]:
    """What must not come where a group ends after so many turns, of which the last leads nowhere else."""
    if number < part.least:
        return ()
    return nexts if number == part.most else tuple(stop._replace(behind=True) for stop in nexts)


def _leave(part: Part, so: So, number: int) -> So:
    """A choice that leaves a loop after some turns. What must not come after an optional end of a group binds it on its last turn."""
    if not part.inside or number == part.most:
        return so
    return replace(so, nots=(), stops=() if part.most is None else tuple(map(Stop, so.nots)))


def _repeat(part: Part, so: So, nexts: tuple[Stop, ...], following: tuple[Part, ...], *, enough: bool) -> So:
    """A choice that takes another turn: what must not follow the loop must not come between its events, either."""
    if part.inside:
        return replace(so, nots=() if enough and part.most is None else (*so.nots, *following), stops=nexts)
    own = tuple(
        stop._replace(unless=part if part.greedy and (stop.behind or stop.part.link == "not_next") else None)
        for stop in nexts
    )
    return replace(so, nots=following, stops=own)
