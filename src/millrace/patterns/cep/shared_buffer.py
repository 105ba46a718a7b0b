"""The events that partial matches have taken: chains of entries that matches share (the shared buffer of
Flink CEP).

An entry is an event and the entry taken before it, so a match is a path from its newest entry back to its
first event. Matches with the same events share entries, also where one began earlier. With `a+ b` and the
events 1 2 3, all of them `a`:

    1 <- 2 <- 3

The matches that began with 1, 2 and 3 all stand at the entry of 3. Each walks back as far as its own first
event, which it knows by number (`start_seq`), and no further. So n events of one key need n entries, not n *
n / 2.

The invariant: within one event, entries with the same step and the same predecessor are one object
(`EntryIndex`). Because of it, partial matches with the same state and the same newest entry can be advanced
once for all of them.

What conditions ask of earlier events (`sum`, `count`, `last`, …) is not computed by walking back. It is
carried along in the tail of the match: with `sum(a.value)` and the values 5 7, the tail at the second event
holds 12. Matches that began with different events have different sums, so their tails differ, but the entries
behind them are still shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from millrace.patterns.conditions import EarlierValue


class PatternEvent(NamedTuple):
    """A row that a matcher looks at."""

    seq: int
    """Its number among the rows of its key."""
    time: int
    mask: int
    """A bit for each condition on the row alone, set where it holds."""
    row: tuple[Any, ...]
    extra: tuple[Any, ...] = ()
    """Values of the row that conditions on earlier events are compared with."""


class BufferEntry(NamedTuple):
    """An event that matches have taken, and the entry that they took before it."""

    before: BufferEntry | None
    step: int
    event: PatternEvent


class MatchTail(NamedTuple):
    """The end of a chain: the newest event of a match, and the running answers about its events."""

    entry: BufferEntry
    event: PatternEvent
    start_seq: int
    """The number of the first event of the match that made it.
    Entries behind that event belong to other matches.
    """
    answers: tuple[Any, ...]


AnswerFunction = Callable[[MatchTail | None], Any]
EntryIndex = dict[tuple[int, int], BufferEntry]
"""The entries made for one event so far, by step and by the id of the entry before (0: any)."""


def walk_back(node: MatchTail | None, first: int) -> Iterator[BufferEntry]:
    """The entries of a match from its newest event to its first, which has the number `first`."""
    entry = None if node is None else node.entry
    while entry is not None:
        yield entry
        entry = None if entry.event.seq == first else entry.before


@dataclass
class RunningAnswers:
    """The answers that are carried along a chain.
    A slot is what is asked, of which step, and the index of its column in the row.
    """

    columns: Sequence[str]
    steps: Sequence[str]
    slots: list[tuple[str, int, int]] = field(default_factory=list)
    cost_per_event: int = 1
    """The work that one event costs a partial match; more than 1 where a condition falls back to polars."""
    looks_back: bool = False
    """Whether a condition asks about events before the newest.
    Then matches with the same newest entry may differ.
    """

    def answer(self, asked: EarlierValue) -> AnswerFunction:
        """A function from the tail of a match to the value that a condition asks for.
        It reserves a slot where it needs one.
        """
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
        """The chain with one more event. `entries` are those that this event has made so far."""
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
        """The answers before the first event.
        Read only after all conditions are compiled, which add slots.
        """
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
