"""A run in characters, for a terminal: event time to the right, processing time downwards, as a log is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

from millrace.devtools.timeline.axes import Axis, axes, window_text
from millrace.devtools.timeline.marks import Mark, marks
from millrace.devtools.timeline.seen import Dot, Moment, Timeline

Line: TypeAlias = list[tuple[str, str]]
"""Pieces of text, each with its style; empty: plain."""

SHOWN = 6
"""How many windows are shown for one row of the picture; of more, how many there are."""
ROWS = 48
"""How many stretches of processing time are told apart."""
_FATES = {"taken": ("●", "blue"), "behind": ("◐", "yellow"), "refused": ("×", "bold red")}
_TIMINGS = {"early": "magenta", "on_time": "green", "late": "yellow"}
_WATERMARK = ("┃", "green")
_IDEAL = ("·", "dim")
_LABEL = 13
KEY = (
    "● event  ◐ behind the watermark  × refused  · ideal  ┃ watermark  ├─┤ pane: its window, value and timing"
)


def to_text(timeline: Timeline, *, width: int = 100) -> list[Line]:
    """A line for each batch that brought something, and one for each window that showed panes in it."""
    happened, seen = axes(timeline)
    room = max(20, min(width - _LABEL - 30, 80))
    across = replace(happened, start=0, stop=room - 1)
    day = f" {happened.day()}" if happened.day() else ""
    lines: list[Line] = [
        [(f"{timeline.job} → {timeline.topic}{f', {timeline.key}' if timeline.key else ''}", "bold")],
        [("processing ↓".ljust(_LABEL), "dim"), (f"event time{day} →", "dim")],
        [(" " * _LABEL + _scale(across, room), "dim")],
    ]
    for shown in _stretches(timeline):
        lines += _stretch(timeline, shown, across, seen, room)
    lines += _ending(timeline, across, seen, room)
    lines.append([(KEY, "dim")])
    if timeline.left_out:
        lines.append([(f"{timeline.left_out} more events are not drawn", "dim")])
    return lines


def plain(lines: Sequence[Line]) -> str:
    """Without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _stretches(timeline: Timeline) -> Iterator[list[Moment]]:
    """The batches before the end, those of one row together."""
    moments = timeline.moments[:-1] if timeline.ended else timeline.moments
    apart = max(1, -(-(moments[-1].at - moments[0].at + 1) // ROWS)) if len(moments) > ROWS else 1
    for _, together in groupby(moments, key=lambda moment: moment.at // apart):
        yield list(together)


def _stretch(
    timeline: Timeline, shown: Sequence[Moment], across: Axis, seen: Axis, room: int
) -> Iterator[Line]:
    first, last = shown[0].at, shown[-1].at
    dots = [dot for dot in timeline.dots if first <= dot.at <= last]
    panes = [mark for mark in marks(timeline) if first <= mark.at <= last and not mark.last]
    if not dots and not panes:
        return
    before = [
        moment.watermark
        for moment in timeline.moments
        if moment.at < first and moment.watermark is not None and not timeline.by_clock
    ]
    yield [
        (seen.text(first).rjust(_LABEL - 2) + "  ", "dim"),
        *_cells(_row(dots, before[-1] if before else None, last, across), room),
    ]
    after = None if timeline.by_clock else shown[-1].watermark
    yield from _panes(
        panes, after, across, seen if timeline.by_clock else across, room, by_clock=timeline.by_clock
    )


def _ending(timeline: Timeline, across: Axis, seen: Axis, room: int) -> Iterator[Line]:
    panes = [mark for mark in marks(timeline) if mark.last]
    if panes:
        yield [("the end".rjust(_LABEL - 2), "dim")]
    yield from _panes(
        panes, None, across, seen if timeline.by_clock else across, room, by_clock=timeline.by_clock
    )


def _row(dots: Sequence[Dot], watermark: int | None, now: int, across: Axis) -> dict[int, tuple[str, str]]:
    """What stands in which column: where several things meet, the last of these."""
    cells = {}
    if across.low <= now <= across.high:
        cells[round(across.place(now))] = _IDEAL
    if watermark is not None and watermark <= across.high:
        cells[round(across.place(watermark))] = _WATERMARK
    for fate, (sign, style) in _FATES.items():
        columns = [round(across.place(dot.event_time)) for dot in dots if dot.fate == fate]
        for column in columns:
            many = columns.count(column)
            cells[column] = (sign if many == 1 else str(many) if many < 10 else "+", style)
    return cells


def _panes(
    shown: Sequence[Mark], watermark: int | None, across: Axis, named: Axis, room: int, *, by_clock: bool
) -> Iterator[Line]:
    for mark in shown[:SHOWN]:
        yield _pane(mark, watermark, across, named, room, by_clock=by_clock)
    if len(shown) > SHOWN:
        yield [(" " * (_LABEL + room + 2), ""), (f"… and {len(shown) - SHOWN} more windows", "dim")]


def _pane(mark: Mark, watermark: int | None, across: Axis, named: Axis, room: int, *, by_clock: bool) -> Line:
    start, end = (
        (0, room - 1)
        if by_clock
        else (round(across.place(mark.window[0])), max(0, round(across.place(mark.window[1])) - 1))
    )
    style = _TIMINGS[mark.timing]
    cells = dict.fromkeys(range(start, end), ("─", style))
    if watermark is not None and watermark <= across.high:
        cells[round(across.place(watermark))] = _WATERMARK
    cells[start], cells[max(start, end)] = ("├", style), ("┤", style)
    about = f"  {window_text(mark.window, named)} {mark.timing.replace('_', ' ')}"
    return [(" " * _LABEL, ""), *_cells(cells, room), (f"  {mark.text}", style), (about, "dim")]


def _cells(cells: dict[int, tuple[str, str]], room: int) -> Line:
    return [cells.get(column, (" ", "")) for column in range(room)]


def _scale(across: Axis, room: int) -> str:
    """The ticks, each with its text where there is room for it."""
    line = [" "] * (room + 12)
    free = 0
    for at in across.ticks(max(2, room // 12)):
        place, text = round(across.place(at)), f"╷{across.text(at)}"
        if place >= free:
            line[place : place + len(text)] = text
            free = place + len(text) + 1
    return "".join(line).rstrip()
