"""The matches of one key that have begun, and how an event, or time that passes, moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

from millrace.errors import NoPlaceToSkip, PatternFailed
from millrace.patterns.cep.match_buffer import Event, Links, Memory, Node, chain
from millrace.patterns.cep.nfa import Automaton, State
from millrace.patterns.parts import Skip

MOST = 100_000
"""How many partial matches a key may have. Patterns that allow any combination double them with each event."""
MOST_LINKS = 5
"""How many links there may be for each partial match that a key may have: an event is one for each way in which matches came to it."""


class Run(NamedTuple):
    """A match that has begun: its state, its newest event, and its first."""

    state: State
    node: Node
    start: Event


class Moves(NamedTuple):
    """What becomes of a match with an event: where it goes on, and where it is complete."""

    on: Sequence[tuple[State, Node]]
    done: Sequence[Node]
    effort: int
    """In how many states conditions were looked at."""


class Match(NamedTuple):
    """Events that fit, the newest first; `at`: when it was known, if that was when time had passed."""

    node: Node
    start: Event
    at: int | None = None


@dataclass(frozen=True)
class Course:
    """What is known of one key."""

    runs: tuple[Run, ...] = ()
    held: tuple[Match, ...] = ()
    """Matches that wait: one that began before them may still be found, and rule them out."""
    seq: int = 0
    links: int = 0
    """How many links there are at most."""

    @property
    def over(self) -> bool:
        """Whether there is nothing to remember."""
        return not self.runs and not self.held


@dataclass(frozen=True)
class Lane:
    """The rows of one key in a batch: a stretch of columns that all keys share."""

    masks: Sequence[int] = ()
    times: Sequence[int] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    extras: Sequence[tuple[Any, ...]] = ()
    begins: Sequence[bool] = ()
    """Whether a match may begin with the row."""
    first: int = 0
    end: int = 0


@dataclass
class Effort:
    """How much may still be done for a pattern before it is too much; None: any."""

    left: int | None = None

    def spend(self, amount: int) -> None:
        """Does something for a partial match."""
        if self.left is not None:
            self.left -= amount
            if self.left < 0:
                raise PatternFailed(
                    "it has so many partial matches that going through them takes too long; make it stricter, or its `within` shorter"
                )


@dataclass
class Found:
    """What came of some events."""

    matches: list[Match]
    timeouts: list[Match]
    effort: Effort = field(default_factory=Effort)


@dataclass(frozen=True)
class Rules:
    """How the courses of a pattern go."""

    automaton: Automaton
    memory: Memory
    span: int | None
    skip: Skip
    most: int = MOST

    @cached_property
    def _in_order(self) -> bool:
        """Whether matches are given up in the order in which they began, which is the order in which they stand."""
        return self.span is not None and all(state.wait is None for state in self.automaton.states)

    def follow(self, course: Course, lane: Lane, time: int, found: Found, *, ended: bool) -> Course:
        """Takes events in order, then lets time pass; `ended`: nothing will come any more."""
        runs, held = list(course.runs), list(course.held)
        begins, times, made, limit = lane.begins, lane.times, course.links, self.most * MOST_LINKS
        for place in range(lane.first, lane.end):
            if runs:
                runs, held = self._pass(runs, held, times[place], found)
            if runs or begins[place]:
                event = Event(
                    course.seq + place - lane.first,
                    times[place],
                    lane.masks[place],
                    lane.rows[place],
                    lane.extras[place],
                )
                links: Links = {}
                runs, held = self._take(runs, held, event, links, found)
                made += len(links)
                if made > limit:
                    made = self._bounded(runs, held, event)
        runs, held = self._pass(runs, held, time, found)
        if ended:
            found.matches += self._released(sorted(held, key=_begun), [])[0]
            runs, held = [], []
        return Course(tuple(runs), tuple(held), course.seq + lane.end - lane.first, made)

    def _bounded(self, runs: list[Run], held: list[Match], event: Event) -> int:
        """How many links there are; they are counted only where there may be too many, as many end unseen."""
        alive: set[int] = set()
        standing = [
            *((run.node, run.start.seq) for run in runs),
            *((match.node, match.start.seq) for match in held),
        ]
        for node, first in sorted(standing, key=lambda one: one[1]):  # who began first goes back the furthest
            alive.update(map(id, takewhile(lambda link: id(link) not in alive, chain(node, first))))
        if len(alive) > self.most * MOST_LINKS:
            raise self._too_many(
                f"more than {self.most * MOST_LINKS:,} events to remember of partial matches", event
            )
        return len(alive)

    def _too_many(self, what: str, event: Event) -> PatternFailed:
        return PatternFailed(
            f"a pattern has {what} for one key, at event time {event.time}, so it would grow without end; "
            "make it stricter: consecutive() or the default in place of allow_combinations(), followed_by() in place of followed_by_any(), "
            "a shorter within(), or skip_past_last()"
        )

    def due(self, course: Course) -> int | None:
        """When time alone will change something."""
        return min((at for run in course.runs if (at := self._deadline(run)) is not None), default=None)

    def _deadline(self, run: Run) -> int | None:
        ends = [run.start.time + self.span] if self.span is not None else []
        if run.state.wait is not None:
            ends.append(run.node.event.time + run.state.wait)
        return min(ends, default=None)

    def _pass(
        self, runs: list[Run], held: list[Match], time: int, found: Found
    ) -> tuple[list[Run], list[Match]]:
        """Without the matches whose time is over; those that only waited for that are found."""
        if not runs or (self._in_order and runs[0].start.time + (self.span or 0) > time):
            return runs, held
        due = {at for run in runs if (at := self._deadline(run)) is not None and at <= time}
        for moment in sorted(due):
            alive: list[Run] = []
            done: list[Match] = []
            others = (number for number, run in enumerate(runs) if self._deadline(run) != moment)
            first = next(others, len(runs)) if self._in_order else len(runs)
            for run in runs[:first]:
                if self._deadline(run) == moment:
                    (done if run.state.settles else found.timeouts).append(Match(run.node, run.start, moment))
                else:
                    alive.append(run)
            alive += runs[first:]
            runs, held = self._settle(alive, held, done, found)
        return runs, held

    def _take(
        self, runs: list[Run], held: list[Match], event: Event, links: Links, found: Found
    ) -> tuple[list[Run], list[Match]]:
        after: list[Run] = []
        done: list[Match] = []
        alike: dict[tuple[int, int], Moves] = {}
        for run in runs:
            same = run.state.number, id(run.node.link)
            moves = alike.get(same)
            if moves is None:
                moves = self._moves(run.state, run.node, event, links)
                found.effort.spend(moves.effort * self.memory.weight)
                if not self.memory.looks_back:
                    alike[same] = moves
            else:
                found.effort.spend(1)
            after += [Run(state, node, run.start) for state, node in moves.on]
            if moves.done:
                done += [Match(node, run.start) for node in moves.done]
        moves = self._moves(self.automaton.start, None, event, links)
        found.effort.spend(moves.effort * self.memory.weight)
        after += [Run(state, node, event) for state, node in moves.on]
        done += [Match(node, event) for node in moves.done]
        if len(after) > self.most:
            raise self._too_many(f"more than {self.most:,} partial matches", event)
        return self._settle(after, held, done, found) if done else (after, held)

    def _moves(self, state: State, node: Node | None, event: Event, links: Links) -> Moves:
        """Everything one partial match may do with an event. One that it completes is found, though the event must not come."""
        on: list[tuple[State, Node]] = []
        done: list[Node] = []
        is_refused = False
        stack, effort = [state], 0
        while stack:
            here = stack.pop()
            effort += 1
            if here.proceeds:
                stack += [target for test, target in here.proceeds if test.holds(event, node)]
            if here.gap is not None and node is not None and event.time - node.event.time >= here.gap:
                continue
            if here.nots and not is_refused:
                is_refused = any(test.holds(event, node) for test in here.nots)
            if here.take is not None and here.to is not None and here.take.holds(event, node):
                longer = self.memory.take(node, here.step, event, links)
                if not here.to.final:
                    on.append((here.to, longer))
                if here.to.ends:
                    done.append(longer)
            if (
                node is not None
                and here.ignore is not None
                and here.stay is not None
                and here.ignore.holds(event, node)
            ):
                if here.stay.final:
                    done.append(node)
                else:
                    on.append((here.stay, node))
        return Moves([] if is_refused else on, done, effort)

    def _settle(
        self, runs: list[Run], held: list[Match], done: list[Match], found: Found
    ) -> tuple[list[Run], list[Match]]:
        """Shows matches, and gives up what they rule out. One that began earlier goes first, so later ones wait for it."""
        if self.skip.kind == "none":
            found.matches += done
            return runs, held
        shown, runs, held = self._released(sorted([*held, *sorted(done, key=_taken)], key=_begun), runs)
        found.matches += shown
        return runs, held

    def _released(self, held: list[Match], runs: list[Run]) -> tuple[list[Match], list[Run], list[Match]]:
        shown: list[Match] = []
        while held and all(held[0].start.seq <= run.start.seq for run in runs):
            match = held.pop(0)
            least = self._least(match)
            held = [other for other in held if other.start.seq >= least]
            runs = [run for run in runs if run.start.seq >= least]
            shown.append(match)
        return shown, runs, held

    def _least(self, match: Match) -> int:
        """The first event with which a match may still begin, now that this one is found."""
        if self.skip.kind == "none":
            return 0
        if self.skip.kind == "to_next":
            return match.start.seq + 1
        if self.skip.kind == "past_last":
            return match.node.event.seq + 1
        step = self.automaton.names.index(self.skip.step or "")
        events = [link.event.seq for link in chain(match.node, match.start.seq) if link.step == step]
        if self.skip.on_miss == "error" and (
            not events or events[-1 if self.skip.kind == "to_first" else 0] == match.start.seq
        ):
            why = (
                "has no event of that step"
                if not events
                else "begins with that very event, so matching would not go on"
            )
            raise NoPlaceToSkip(
                f"skip {self.skip}: a match {why}; leave out on_miss='error', or skip to another step"
            )
        return 0 if not events else events[-1] if self.skip.kind == "to_first" else events[0]


def _begun(match: Match) -> int:
    return match.start.seq


def _taken(match: Match) -> list[tuple[int, int]]:
    """Among matches found at once: the one that took events earlier goes first."""
    return [(link.event.seq, link.step) for link in reversed(list(chain(match.node, match.start.seq)))]
