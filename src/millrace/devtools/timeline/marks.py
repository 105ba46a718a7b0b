"""Groups the panes at one position of the drawing into one mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.devtools.timeline.seen import Pane, Timeline, Window

_MAX_NAMED_PANES = 3
"""How many panes of one mark are named."""


@dataclass(frozen=True)
class Mark:
    """The panes of all keys of one window, at one moment, with one timing."""

    at: int
    window: Window
    timing: str
    panes: tuple[Pane, ...]
    is_at_end: bool
    """Whether the end of the events fired it."""

    @property
    def text(self) -> str:
        """The values, as far as there is room."""
        named = [pane.text for pane in self.panes[:_MAX_NAMED_PANES]]
        more = len(self.panes) - len(named)
        return "; ".join([*named, *([f"+{more} more"] if more else [])])


def group_panes(timeline: Timeline) -> list[Mark]:
    """The marks in order of firing. A value is in the same mark as the one it replaces."""
    first_at_end = len(timeline.panes) - timeline.panes_at_end
    groups: dict[tuple[int, bool, Window, str], list[Pane]] = {}
    for i, pane in enumerate(timeline.panes):
        groups.setdefault((pane.at, i >= first_at_end, pane.window, pane.timing), []).append(pane)
    return [
        Mark(at, window, timing, tuple(panes), is_at_end)
        for (at, is_at_end, window, timing), panes in groups.items()
    ]


def count_timings(panes: Sequence[Pane]) -> str:
    """The number of panes of each timing, as text."""
    counts = {timing: sum(pane.timing == timing for pane in panes) for timing in ("early", "on_time", "late")}
    return (
        ", ".join(f"{count} {timing.replace('_', ' ')}" for timing, count in counts.items() if count)
        or "none"
    )
