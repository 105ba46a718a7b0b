"""The partial matches of one key, and how events and the passing of time advance them.

An event is processed in three steps: partial matches whose time is over are removed, every other one is
advanced, and complete matches are released as the skip strategy allows (`skip.py`).

A partial match is its state, the tail of its chain of events, and its first event. What an event does to it
depends on the state and the tail alone, unless a condition looks back. So partial matches that share both
(`shared_buffer.py`) are advanced once. With `a+ b` within 10 s and ten events `a`, ten partial matches stand
in the same state at the same entry: the event `b` is tested once, and gives ten matches.

With `within` and no `gap`, partial matches expire in the order in which they began. They are kept in that
order, so only the front of the list is looked at. A deadline lies at `first + within` exactly: with `a` at
t=0 and `within` 10 s, an event at t=10 is too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import takewhile
from typing import Any, NamedTuple

from millrace.errors import PatternFailed
from millrace.patterns.cep.nfa import Nfa
from millrace.patterns.cep.shared_buffer import EntryIndex, MatchTail, PatternEvent, RunningAnswers, walk_back
from millrace.patterns.cep.skip import SkipStrategy, release_matches
from millrace.patterns.cep.states import NfaState

MAX_PARTIAL_MATCHES = 100_000
"""The limit per key. Patterns that allow any combination double their partial matches with each event."""
MAX_ENTRIES_PER_MATCH = 5
"""The limit of entries in the shared buffer, per possible partial match.
An event has an entry for each predecessor.
"""


class PartialMatch(NamedTuple):
    """A match that has begun and is not complete."""

    state: NfaState
    tail: MatchTail
    start: PatternEvent


class StepOutcome(NamedTuple):
    """The effect of one event on one partial match: how it continues, and the matches it completes."""

    continued: Sequence[tuple[NfaState, MatchTail]]
    completed: Sequence[MatchTail]
    cost: int
    """The number of states whose conditions were evaluated."""


class FoundMatch(NamedTuple):
    """The events of a match or of a timeout.
    `known_at` is the time that made it certain, where no event did.
    """

    tail: MatchTail
    start: PatternEvent
    known_at: int | None = None

    def events_of(self, step: int) -> list[int]:
        """The numbers of the events that a step has taken, the oldest first."""
        entries = walk_back(self.tail, self.start.seq)
        return [entry.event.seq for entry in entries if entry.step == step][::-1]


@dataclass(frozen=True)
class PartialMatches:
    """The state of one key."""

    running: tuple[PartialMatch, ...] = ()
    waiting: tuple[FoundMatch, ...] = ()
    """Complete matches that a match which began earlier may still rule out."""
    next_seq: int = 0
    entry_count: int = 0
    """An upper bound of the entries in the shared buffer."""

    @property
    def is_empty(self) -> bool:
        """Whether the key needs no state."""
        return not self.running and not self.waiting


@dataclass(frozen=True)
class KeyRows:
    """The rows of one key in a batch: the range from `first` to `end` of lists that all keys share."""

    masks: Sequence[int] = ()
    times: Sequence[int] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    extras: Sequence[tuple[Any, ...]] = ()
    may_begin: Sequence[bool] = ()
    """Whether a match may begin with the row."""
    first: int = 0
    end: int = 0


@dataclass
class WorkBudget:
    """The work that may still be spent on a pattern before it fails; None: without limit."""

    remaining: int | None = None

    def spend(self, amount: int) -> None:
        """Subtracts some work; raises where none is left."""
        if self.remaining is not None:
            self.remaining -= amount
            if self.remaining < 0:
                raise PatternFailed(
                    "it has so many partial matches that advancing them takes too long; make it stricter, "
                    "or its `within` shorter"
                )


@dataclass
class MatchResults:
    """The matches and timeouts found so far. Keys add to it one after the other."""

    matches: list[FoundMatch]
    timeouts: list[FoundMatch]
    budget: WorkBudget = field(default_factory=WorkBudget)


@dataclass(frozen=True)
class NfaRunner:
    """Advances the partial matches of a key through the states of a pattern."""

    nfa: Nfa
    answers: RunningAnswers
    span: int | None
    skip: SkipStrategy
    max_partial_matches: int = MAX_PARTIAL_MATCHES

    @cached_property
    def _expires_in_order(self) -> bool:
        """Whether partial matches expire in the order in which they began,
        which is the order in which they are kept.
        """
        return self.span is not None and all(state.max_wait is None for state in self.nfa.states)

    def advance(
        self, matches: PartialMatches, rows: KeyRows, time: int, found: MatchResults, *, is_ended: bool
    ) -> PartialMatches:
        """Processes events in order, then the passing of time up to `time`.
        `is_ended`: no event follows, ever.
        """
        running, waiting = list(matches.running), list(matches.waiting)
        begins, times, entry_count, limit = (
            rows.may_begin,
            rows.times,
            matches.entry_count,
            self.max_partial_matches * MAX_ENTRIES_PER_MATCH,
        )
        for place in range(rows.first, rows.end):
            if running:
                running, waiting = self._pass_time(running, waiting, times[place], found)
            if running or begins[place]:
                event = PatternEvent(
                    matches.next_seq + place - rows.first,
                    times[place],
                    rows.masks[place],
                    rows.rows[place],
                    rows.extras[place],
                )
                entries: EntryIndex = {}
                running, waiting = self._take_event(running, waiting, event, entries, found)
                entry_count += len(entries)
                if entry_count > limit:
                    entry_count = self._count_entries(running, waiting, event)
        running, waiting = self._pass_time(running, waiting, time, found)
        if is_ended:
            found.matches += self._release(sorted(waiting, key=_start_seq), [])[0]
            running, waiting = [], []
        return PartialMatches(
            tuple(running), tuple(waiting), matches.next_seq + rows.end - rows.first, entry_count
        )

    def _count_entries(
        self, running: list[PartialMatch], waiting: list[FoundMatch], event: PatternEvent
    ) -> int:
        """Counts the entries that are still reachable.
        The running count is too high, as dropped matches do not lower it.
        """
        alive: set[int] = set()
        tails = [
            *((run.tail, run.start.seq) for run in running),
            *((match.tail, match.start.seq) for match in waiting),
        ]
        for node, first in sorted(
            tails, key=lambda one: one[1]
        ):  # the earliest beginning walks back the furthest
            alive.update(map(id, takewhile(lambda entry: id(entry) not in alive, walk_back(node, first))))
        if len(alive) > self.max_partial_matches * MAX_ENTRIES_PER_MATCH:
            raise self._too_many_error(
                f"more than {self.max_partial_matches * MAX_ENTRIES_PER_MATCH:,} entries in the shared "
                "buffer of partial matches",
                event,
            )
        return len(alive)

    def _too_many_error(self, excess: str, event: PatternEvent) -> PatternFailed:
        return PatternFailed(
            f"a pattern has {excess} for one key, at event time {event.time}, so its state would grow "
            "without end; make it stricter: consecutive() or the default in place of allow_combinations(), "
            "followed_by() in place of followed_by_any(), a shorter within(), or skip_past_last()"
        )

    def next_deadline(self, matches: PartialMatches) -> int | None:
        """The time at which a partial match expires, if no event comes before."""
        return min((at for run in matches.running if (at := self._deadline(run)) is not None), default=None)

    def _deadline(self, run: PartialMatch) -> int | None:
        ends = [run.start.time + self.span] if self.span is not None else []
        wait = run.state.max_wait if run.state.settle_wait is None else run.state.settle_wait
        if wait is not None:
            ends.append(run.tail.event.time + wait)
        return min(ends, default=None)

    def _pass_time(
        self, running: list[PartialMatch], waiting: list[FoundMatch], time: int, found: MatchResults
    ) -> tuple[list[PartialMatch], list[FoundMatch]]:
        """Removes the partial matches whose deadline has passed.
        In a pending state they are matches, else timeouts.
        """
        if not running or (self._expires_in_order and running[0].start.time + (self.span or 0) > time):
            return running, waiting
        due = {at for run in running if (at := self._deadline(run)) is not None and at <= time}
        deadlines = sorted(due)
        while deadlines:
            deadline = heappop(deadlines)
            alive: list[PartialMatch] = []
            completed: list[FoundMatch] = []
            others = (number for number, run in enumerate(running) if self._deadline(run) != deadline)
            first = next(others, len(running)) if self._expires_in_order else len(running)
            for run in running[:first]:
                if self._deadline(run) == deadline:
                    if not run.state.has_settled:
                        (completed if run.state.may_settle else found.timeouts).append(
                            FoundMatch(run.tail, run.start, deadline)
                        )
                    if run.state.settled is not None:
                        rest = run._replace(state=run.state.settled)
                        rest_deadline = self._deadline(rest)
                        if rest_deadline is None or rest_deadline > deadline:
                            alive.append(rest)
                            if rest_deadline is not None and rest_deadline <= time:
                                heappush(deadlines, rest_deadline)
                else:
                    alive.append(run)
            alive += running[first:]
            running, waiting = self._settle(alive, waiting, completed, found)
        return running, waiting

    def _take_event(
        self,
        running: list[PartialMatch],
        waiting: list[FoundMatch],
        event: PatternEvent,
        entries: EntryIndex,
        found: MatchResults,
    ) -> tuple[list[PartialMatch], list[FoundMatch]]:
        after: list[PartialMatch] = []
        completed: list[FoundMatch] = []
        outcomes: dict[tuple[int, int], StepOutcome] = {}
        for run in running:
            same = run.state.number, id(run.tail.entry)
            moves = outcomes.get(same)
            if moves is None:
                moves = self._step_match(run.state, run.tail, event, entries)
                found.budget.spend(moves.cost * self.answers.cost_per_event)
                if not self.answers.looks_back:
                    outcomes[same] = moves
            else:
                found.budget.spend(1)
            after += [PartialMatch(state, node, run.start) for state, node in moves.continued]
            if moves.completed:
                completed += [FoundMatch(node, run.start) for node in moves.completed]
        moves = self._step_match(self.nfa.start, None, event, entries)
        found.budget.spend(moves.cost * self.answers.cost_per_event)
        after += [PartialMatch(state, node, event) for state, node in moves.continued]
        completed += [FoundMatch(node, event) for node in moves.completed]
        if len(after) > self.max_partial_matches:
            raise self._too_many_error(f"more than {self.max_partial_matches:,} partial matches", event)
        if not (completed or waiting):
            return after, waiting
        return self._settle(
            after, waiting, completed, found
        )  # a beginning that ends may release later matches

    def _step_match(
        self, state: NfaState, node: MatchTail | None, event: PatternEvent, entries: EntryIndex
    ) -> StepOutcome:
        """All that one partial match may do with an event.

        A forbidden event ends the partial match, but a match that it completes in the same moment counts.
        """
        continued: list[tuple[NfaState, MatchTail]] = []
        completed: list[MatchTail] = []
        is_refused = False
        stack, cost = [state], 0
        while stack:
            current = stack.pop()
            cost += 1
            if current.proceeds:
                stack += [target for predicate, target in current.proceeds if predicate.holds(event, node)]
            if current.gap is not None and node is not None and event.time - node.event.time >= current.gap:
                continue
            if current.nots and not is_refused:
                is_refused = any(predicate.holds(event, node) for predicate in current.nots)
            if current.take is not None and current.to is not None and current.take.holds(event, node):
                extended = self.answers.append(node, current.step, event, entries)
                if not current.to.final:
                    continued.append((current.to, extended))
                if current.to.may_end:
                    completed.append(extended)
            if (
                node is not None
                and current.ignore is not None
                and current.stay is not None
                and current.ignore.holds(event, node)
            ):
                if current.stay.final:
                    completed.append(node)
                else:
                    continued.append((current.stay, node))
        return StepOutcome([] if is_refused else continued, completed, cost)

    def _settle(
        self,
        running: list[PartialMatch],
        waiting: list[FoundMatch],
        completed: list[FoundMatch],
        found: MatchResults,
    ) -> tuple[list[PartialMatch], list[FoundMatch]]:
        """Releases complete matches, and drops what they rule out."""
        if self.skip.kind == "none":
            found.matches += completed
            return running, waiting
        released, running, waiting = self._release(
            sorted([*waiting, *sorted(completed, key=_event_order)], key=_start_seq), running
        )
        found.matches += released
        return running, waiting

    def _release(
        self, complete: list[FoundMatch], running: list[PartialMatch]
    ) -> tuple[list[FoundMatch], list[PartialMatch], list[FoundMatch]]:
        return release_matches(self.skip, self.nfa.names, complete, running)


def _start_seq(match: FoundMatch) -> int:
    return match.start.seq


def _event_order(match: FoundMatch) -> list[tuple[int, int]]:
    """Orders matches completed by the same event: the one that took its events earlier is released first."""
    return [(entry.event.seq, entry.step) for entry in reversed(list(walk_back(match.tail, match.start.seq)))]
