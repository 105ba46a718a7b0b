"""What a run showed: the things that pictures are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

Fate: TypeAlias = Literal["taken", "behind", "refused"]
"""Of an event: taken; taken though behind the watermark; refused by all or some of its windows."""
Window: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class EventDot:
    """An event: when it happened, and when it was seen."""

    event_time: int
    at: int
    fate: Fate
    about: str
    """Where it was read, and why it was refused."""


@dataclass(frozen=True)
class ObservedBatch:
    """A batch: its clock, and how far the watermark had come when it was done; None while there is none yet."""

    at: int
    watermark: int | None


@dataclass(frozen=True)
class Pane:
    """A result, with the moment it was shown."""

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
        """The value with the key it belongs to; a withdrawal with its sign."""
        value = f"{self.key}: {self.value}" if self.key else self.value
        return value if self.op == "+" else f"−({value})"


@dataclass(frozen=True)
class Timeline:
    """A run, moment by moment."""

    job: str
    topic: str
    """What the panes were written to."""
    key: str
    """The key that was asked for; empty for all of them."""
    dots: tuple[EventDot, ...]
    batches: tuple[ObservedBatch, ...]
    panes: tuple[Pane, ...]
    panes_at_end: int
    """How many of the panes, the last ones, were shown because the events were over."""
    has_ended: bool = True
    """Whether the last moment is the end of the events, which completes all windows."""
    is_processing_time: bool = False
    """Whether windows are stretches of processing time."""
    omitted_dots: int = 0
    """How many events have no dot, as there are too many to tell apart."""

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """Every window that had a pane, in order."""
        return tuple(sorted({pane.window for pane in self.panes}))

    @property
    def steps(self) -> tuple[ObservedBatch, ...]:
        """The moments at which the watermark moved."""
        before = [None, *(batch.watermark for batch in self.batches)]
        return tuple(
            batch
            for batch, old in zip(self.batches, before, strict=False)
            if batch.watermark not in (None, old)
        )
