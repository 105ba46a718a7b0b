"""What a match has taken so far: a chain of events, with running answers to what conditions ask.

Matches that have taken the same events have the same links, also where one began earlier: with `a+ b` and the events 1 2 3, the matches that began with
1, 2 and 3 share the links 1 <- 2 <- 3, and each goes back along them as far as its own first event. So n events of one key are n links, and not n * n / 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from millrace.patterns.conditions import EarlierValue


class PatternEvent(NamedTuple):
    """A row on its way through a matcher."""

    seq: int
    """Its place among the rows of its key."""
    time: int
    mask: int
    """A bit for each condition on the row alone: does it hold?"""
    row: tuple[Any, ...]
    extra: tuple[Any, ...] = ()
    """Values that other conditions need of the row."""


class BufferEntry(NamedTuple):
    """An event that matches have taken, and the one that they took before it."""

    before: BufferEntry | None
    step: int
    event: PatternEvent


class MatchTail(NamedTuple):
    """Where a match stands: its newest event, and which link that is. Matches of which no condition asks more share it."""

    entry: BufferEntry
    event: PatternEvent
    start_seq: int
    """The place of the first event of the match that made it. Beyond the first event of a match, links are those of others."""
    answers: tuple[Any, ...]


AnswerFunction = Callable[[MatchTail | None], Any]
EntryIndex = dict[tuple[int, int], BufferEntry]
"""The links that one event has made so far, by step and the id of the link before (0: any)."""


def walk_back(node: MatchTail | None, first: int) -> Iterator[BufferEntry]:
    """From the newest event of a match to its first, which has the place `first`."""
    entry = None if node is None else node.entry
    while entry is not None:
        yield entry
        entry = None if entry.event.seq == first else entry.before


@dataclass
class RunningAnswers:
    """Which answers are kept along a chain: for each what is asked, of which step, and in which column of the row it is found."""

    columns: Sequence[str]
    steps: Sequence[str]
    slots: list[tuple[str, int, int]] = field(default_factory=list)
    cost_per_event: int = 1
    """What a partial match costs with each event, beside one whose conditions are computed in place."""
    looks_back: bool = False
    """Whether a condition asks about any event of a match, so that matches with the same newest event may differ."""

    def answer(self, asked: EarlierValue) -> AnswerFunction:
        """How a question about earlier events is answered."""
        if asked.kind == "previous":
            place = self.columns.index(asked.column or "")
            return lambda node: None if node is None else node.event.row[place]
        self.looks_back = True
        if asked.kind == "avg":
            total, number = self._find_slot("sum", asked), self._find_slot("number", asked)
            return lambda node: (
                None
                if node is None or not node.answers[number]
                else node.answers[total] / node.answers[number]
            )
        slot = self._find_slot(asked.kind, asked)
        empty = 0 if asked.kind in ("sum", "count") else None
        return lambda node: empty if node is None else node.answers[slot]

    def append(
        self, before: MatchTail | None, step: int, event: PatternEvent, entries: EntryIndex
    ) -> MatchTail:
        """A chain with one more event. `links`: those that this event has made."""
        answers = self._initial_answers if before is None else before.answers
        slots = self._slots_by_step.get(step)
        if slots:
            after = list(answers)
            for slot, kind, place in slots:
                if kind == "last":
                    after[slot] = event.row[place]
                else:
                    seen = (
                        kind == "first"
                        and before is not None
                        and any(entry.step == step for entry in walk_back(before, before.start_seq))
                    )
                    after[slot] = _update_answer(
                        kind, after[slot], None if place < 0 else event.row[place], seen=seen
                    )
            answers = tuple(after)
        entry_key = (step, 0 if before is None else id(before.entry))
        entry = entries.get(entry_key)
        if entry is None:
            entries[entry_key] = entries[step, 0] = entry = BufferEntry(
                None if before is None else before.entry, step, event
            )
        return MatchTail(entry, event, event.seq if before is None else before.start_seq, answers)

    @cached_property
    def _initial_answers(self) -> tuple[Any, ...]:
        """Asked once all is known that conditions ask."""
        return tuple(0 if kind in ("sum", "count", "number") else None for kind, _, _ in self.slots)

    @cached_property
    def _slots_by_step(self) -> dict[int, list[tuple[int, str, int]]]:
        slots: dict[int, list[tuple[int, str, int]]] = {}
        for slot, (kind, step, place) in enumerate(self.slots):
            slots.setdefault(step, []).append((slot, kind, place))
        return slots

    def _find_slot(self, kind: str, asked: EarlierValue) -> int:
        place = -1 if asked.column is None else self.columns.index(asked.column)
        slot = (kind, self.steps.index(asked.step or ""), place)
        if slot not in self.slots:
            self.slots.append(slot)
        return self.slots.index(slot)


def _update_answer(kind: str, old: Any, new: Any, *, seen: bool) -> Any:
    match kind:
        case "count":
            return old + 1
        case "first":
            return old if seen else new
    if new is None:
        return old
    match kind:
        case "sum":
            return old + new
        case "number":
            return old + 1
        case "min":
            return new if old is None or new < old else old
        case _:
            return new if old is None or new > old else old
