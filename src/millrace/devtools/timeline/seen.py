"""The parts of a timeline: events, batches, panes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

Fate: TypeAlias = Literal["taken", "behind", "refused"]
"""The fate of an event: on time, behind the watermark, or refused by some of its windows."""
Window: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class EventDot:
    """An event: its event time, and the time at which it was read."""

    event_time: int
    at: int
    fate: Fate
    about: str
    """The place of the event in its topic, and the reason of a refusal."""


@dataclass(frozen=True)
class ObservedBatch:
    """A batch: its clock, and the watermark after it; None while there is none."""

    at: int
    watermark: int | None


@dataclass(frozen=True)
class Pane:
    """A pane, with the time at which it fired."""

    at: int
    window: Window
    key: str
    value: str
    timing: str
    index: int
    final: bool
    op: str

    @property
    def text(self) -> str:
        """The key and the value; a retraction has a minus sign."""
        value = f"{self.key}: {self.value}" if self.key else self.value
        return value if self.op == "+" else f"−({value})"


@dataclass(frozen=True)
class Timeline:
    """A run, batch by batch."""

    job: str
    topic: str
    """The topic of the panes."""
    key: str
    """The key that is drawn; empty for all keys."""
    dots: tuple[EventDot, ...]
    batches: tuple[ObservedBatch, ...]
    panes: tuple[Pane, ...]
    panes_at_end: int
    """How many of the last panes were fired by the end of the events."""
    has_ended: bool = True
    """Whether the last batch is the end of the events, which completes all windows."""
    is_processing_time: bool = False
    """Whether windows are of processing time."""
    omitted_dots: int = 0
    """How many events are not drawn, because there are too many."""

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """All windows with a pane, in order."""
        return tuple(sorted({pane.window for pane in self.panes}))

    @property
    def steps(self) -> tuple[ObservedBatch, ...]:
        """The batches in which the watermark moved."""
        before = [None, *(batch.watermark for batch in self.batches)]
        return tuple(
            batch
            for batch, old in zip(self.batches, before, strict=False)
            if batch.watermark not in (None, old)
        )
