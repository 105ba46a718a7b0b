"""Panes that stand at one place in the picture, as one mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.devtools.timeline.seen import Pane, Timeline, Window

_NAMED = 3
"""How many panes of one mark are named on it."""


@dataclass(frozen=True)
class Mark:
    """The panes of all keys that one window showed at one moment with one timing."""

    at: int
    window: Window
    timing: str
    panes: tuple[Pane, ...]
    last: bool
    """Whether it was shown when the events were over."""

    @property
    def text(self) -> str:
        """The values, as far as there is room for them."""
        named = [pane.text for pane in self.panes[:_NAMED]]
        more = len(self.panes) - len(named)
        return "; ".join([*named, *([f"+{more} more"] if more else [])])


def marks(timeline: Timeline) -> list[Mark]:
    """In the order in which they were shown. A value that takes the place of an old one comes with it."""
    last = len(timeline.panes) - timeline.at_end
    found: dict[tuple[int, bool, Window, str], list[Pane]] = {}
    for i, pane in enumerate(timeline.panes):
        found.setdefault((pane.at, i >= last, pane.window, pane.timing), []).append(pane)
    return [
        Mark(at, window, timing, tuple(panes), over) for (at, over, window, timing), panes in found.items()
    ]


def tally(shown: Sequence[Pane]) -> str:
    """How many panes of each timing."""
    counts = {timing: sum(pane.timing == timing for pane in shown) for timing in ("early", "on_time", "late")}
    return (
        ", ".join(f"{count} {timing.replace('_', ' ')}" for timing, count in counts.items() if count)
        or "none"
    )
