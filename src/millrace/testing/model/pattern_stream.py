"""When matches of a pattern are shown, in the model: each batch looks at all events of a key again.

The definition says which matches there are, since when each is certain, and how long each choice of events
waited for more. A match that skips nothing is shown when it is certain. With a skip strategy one that began
earlier is shown first and may rule out later ones, so a match also waits until no earlier beginning waits for
events any more.

What began and is given up when its time is over is a timeout: one for each place of the pattern at which it
waits. Places are told apart from the first event on that passes; before, the newest event has just been
taken, and there is one timeout, at the last of their deadlines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from millrace.patterns.builder import Pattern
from millrace.testing.model.pattern_choices import MatchPath
from millrace.testing.model.pattern_conditions import EventRow
from millrace.testing.model.pattern_definition import CertainMatch, Moment, PatternDefinition, Wait

FIRST_MOMENT = Moment(-1, is_event=False)


class ShownMatch(NamedTuple):
    """The events of a match and the steps that took them.

    `known_at`: the event time that made it certain, unless an event did.
    """

    steps: list[str]
    rows: list[EventRow]
    known_at: int | None


class Timeout(NamedTuple):
    """A partial match that expired."""

    path: MatchPath
    at: Moment


@dataclass
class PatternStream:
    """The events of one key so far, and the progress of what was shown."""

    pattern: Pattern
    schema: pl.Schema
    time: str = "event_time"
    """The column of event time."""
    rows: list[EventRow] = field(default_factory=list)
    next_start: int = 0
    """A match that begins before this event is ruled out."""
    waiting: list[CertainMatch] = field(default_factory=list)
    """Certain matches that are not shown yet, since an earlier beginning may still rule them out."""
    last_moment: Moment = FIRST_MOMENT

    def add(self, row: EventRow) -> None:
        """Adds an event; `advance` returns its matches."""
        self.rows.append(row)

    def advance(
        self, rows: Sequence[EventRow], time: int, *, is_ended: bool
    ) -> tuple[list[ShownMatch], list[ShownMatch]]:
        """Takes events in order, then lets time pass; the answer is what matched, and what timed out."""
        self.rows += rows
        definition = PatternDefinition(self.pattern, self.schema, self.rows, self.time)
        matches = list(definition.all_matches())
        timeouts = list(find_timeouts(definition.waits))
        now = Moment(len(self.rows), is_event=False, time=time)
        moments = {
            *(match.certain_at for match in matches),
            *(wait.until for wait in definition.waits if wait.until is not None),
        }
        shown: list[ShownMatch] = []
        overdue: list[ShownMatch] = []
        for moment in sorted(moment for moment in moments if self.last_moment < moment <= now):
            overdue += [
                self._show(timeout.path, moment)
                for timeout in timeouts
                if timeout.at == moment and timeout.path[0][1] >= self.next_start
            ]
            certain = [match for match in matches if match.certain_at == moment]
            alive = {wait.path[0][1] for wait in definition.waits if is_waiting(wait, moment)}
            shown += self._release(definition, certain, alive)
        if is_ended:
            shown += self._release(definition, [], set())
        self.last_moment = now
        return shown, overdue

    def _release(
        self, definition: PatternDefinition, certain: list[CertainMatch], alive: set[int]
    ) -> Iterator[ShownMatch]:
        """Shows matches up to the first that must wait; `alive`: the beginnings that wait for events."""
        if self.pattern.skip.kind == "none":
            yield from (self._show(match.path, match.certain_at) for match in certain)
            return
        by_path = sorted(certain, key=lambda match: definition.path_order(match.path))
        self.waiting = sorted([*self.waiting, *by_path], key=lambda match: match.path[0][1])
        while self.waiting:
            match, *rest = self.waiting
            start = match.path[0][1]
            if start >= self.next_start:
                if any(self.next_start <= other < start for other in alive):
                    return
                self.next_start = max(self.next_start, definition.next_start(match.path))
                yield self._show(match.path, match.certain_at)
            self.waiting = rest

    def _show(self, path: MatchPath, at: Moment) -> ShownMatch:
        return ShownMatch(
            [step for step, _ in path],
            [self.rows[event] for _, event in path],
            None if at.is_event else at.time,
        )


def is_waiting(wait: Wait, moment: Moment) -> bool:
    """Whether a choice waits for events right after a moment."""
    began = Moment(wait.path[-1][1], is_event=True)
    return began <= moment and (wait.until is None or moment < wait.until)


def find_timeouts(waits: Sequence[Wait]) -> Iterator[Timeout]:
    """The timeouts of choices, each at the moment when its time is over."""
    by_take: dict[int, list[Wait]] = {}
    for wait in waits:
        by_take.setdefault(wait.take_number, []).append(wait)
    for places in by_take.values():
        if all(wait.is_overdue and not wait.has_passed_event for wait in places):
            if not any(wait.is_match_when_over for wait in places):
                yield Timeout(places[0].path, max(wait.until for wait in places if wait.until is not None))
            continue
        for wait in places:
            if (
                wait.until is not None
                and wait.is_overdue
                and wait.has_passed_event
                and not wait.is_match_when_over
            ):
                yield Timeout(wait.path, wait.until)
