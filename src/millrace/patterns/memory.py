"""What a match has taken so far: a chain of events, shared by all matches that began alike, with running answers to what conditions ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from millrace.patterns.conditions import Asked


class Event(NamedTuple):
    """A row on its way through a matcher."""

    seq: int
    """Its place among the rows of its key."""
    time: int
    mask: int
    """A bit for each condition on the row alone: does it hold?"""
    row: tuple[Any, ...]
    extra: tuple[Any, ...] = ()
    """Values that other conditions need of the row."""


class Node(NamedTuple):
    """The newest event of a match, and the way to the older ones."""

    before: Node | None
    step: int
    event: Event
    answers: tuple[Any, ...]


Answer = Callable[[Node | None], Any]


def chain(node: Node | None) -> Iterator[Node]:
    """From the newest event to the oldest."""
    while node is not None:
        yield node
        node = node.before


@dataclass
class Memory:
    """Which answers are kept along a chain: for each what is asked, of which step, and in which column of the row it is found."""

    columns: Sequence[str]
    steps: Sequence[str]
    slots: list[tuple[str, int, int]] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        """How a question about earlier events is answered."""
        if asked.kind == "previous":
            place = self.columns.index(asked.column or "")
            return lambda node: None if node is None else node.event.row[place]
        if asked.kind == "avg":
            total, number = self._slot("sum", asked), self._slot("number", asked)
            return lambda node: None if node is None or not node.answers[number] else node.answers[total] / node.answers[number]
        slot = self._slot(asked.kind, asked)
        empty = 0 if asked.kind in ("sum", "count") else None
        return lambda node: empty if node is None else node.answers[slot]

    def take(self, before: Node | None, step: int, event: Event) -> Node:
        """A chain with one more event."""
        answers = self._nothing if before is None else before.answers
        mine = self._by_step.get(step)
        if mine:
            after = list(answers)
            for slot, kind, place in mine:
                if kind == "last":
                    after[slot] = event.row[place]
                else:
                    seen = kind == "first" and any(node.step == step for node in chain(before))
                    after[slot] = _after(kind, after[slot], None if place < 0 else event.row[place], seen=seen)
            answers = tuple(after)
        return Node(before, step, event, answers)

    @cached_property
    def _nothing(self) -> tuple[Any, ...]:
        """Asked once all is known that conditions ask."""
        return tuple(0 if kind in ("sum", "count", "number") else None for kind, _, _ in self.slots)

    @cached_property
    def _by_step(self) -> dict[int, list[tuple[int, str, int]]]:
        mine: dict[int, list[tuple[int, str, int]]] = {}
        for slot, (kind, step, place) in enumerate(self.slots):
            mine.setdefault(step, []).append((slot, kind, place))
        return mine

    def _slot(self, kind: str, asked: Asked) -> int:
        place = -1 if asked.column is None else self.columns.index(asked.column)
        wanted = (kind, self.steps.index(asked.step or ""), place)
        if wanted not in self.slots:
            self.slots.append(wanted)
        return self.slots.index(wanted)


def _after(kind: str, old: Any, new: Any, *, seen: bool) -> Any:
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
