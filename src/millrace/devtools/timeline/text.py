"""Draws a timeline as text: event time to the right, processing time downwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

from millrace.devtools.timeline.axes import Axis, axes, format_window
from millrace.devtools.timeline.marks import Mark, group_panes
from millrace.devtools.timeline.seen import EventDot, ObservedBatch, Timeline

StyledLine: TypeAlias = list[tuple[str, str]]
"""Parts of a line, each with its style; empty: plain."""

MAX_WINDOWS_PER_ROW = 6
"""The most windows per row of the drawing; of more, only their number is shown."""
MAX_ROWS = 48
"""The number of stretches of processing time with rows of their own."""
_FATES = {"taken": ("●", "blue"), "behind": ("◐", "yellow"), "refused": ("×", "bold red")}
_TIMINGS = {"early": "magenta", "on_time": "green", "late": "yellow"}
_WATERMARK = ("┃", "green")
_IDEAL = ("·", "dim")
_LABEL = 13
LEGEND = (
    "● event  ◐ behind the watermark  × refused  · ideal  ┃ watermark  ├─┤ pane: its window, value and timing"
)


def to_text(timeline: Timeline, *, width: int = 100) -> list[StyledLine]:
    """A line for each batch with events or panes, and one for each window that fired in it."""
    full_event_axis, clock_axis = axes(timeline)
    columns = max(20, min(width - _LABEL - 30, 80))
    event_axis = replace(full_event_axis, start=0, stop=columns - 1)
    day = f" {full_event_axis.format_day()}" if full_event_axis.format_day() else ""
    lines: list[StyledLine] = [
        [(f"{timeline.job} → {timeline.topic}{f', {timeline.key}' if timeline.key else ''}", "bold")],
        [("processing ↓".ljust(_LABEL), "dim"), (f"event time{day} →", "dim")],
        [(" " * _LABEL + _render_ticks(event_axis, columns), "dim")],
    ]
    for batches in _group_batches(timeline):
        lines += _render_batches(timeline, batches, event_axis, clock_axis, columns)
    lines += _render_end(timeline, event_axis, clock_axis, columns)
    lines.append([(LEGEND, "dim")])
    if timeline.omitted_dots:
        lines.append([(f"{timeline.omitted_dots} more events are not drawn", "dim")])
    return lines


def strip_styles(lines: Sequence[StyledLine]) -> str:
    """The lines without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _group_batches(timeline: Timeline) -> Iterator[list[ObservedBatch]]:
    """The batches before the end, grouped by row of the drawing."""
    batches = timeline.batches[:-1] if timeline.has_ended else timeline.batches
    interval = max(1, -(-(batches[-1].at - batches[0].at + 1) // MAX_ROWS)) if len(batches) > MAX_ROWS else 1
    for _, group in groupby(batches, key=lambda batch: batch.at // interval):
        yield list(group)


def _render_batches(
    timeline: Timeline, batches: Sequence[ObservedBatch], event_axis: Axis, clock_axis: Axis, columns: int
) -> Iterator[StyledLine]:
    first, last = batches[0].at, batches[-1].at
    dots = [dot for dot in timeline.dots if first <= dot.at <= last]
    panes = [mark for mark in group_panes(timeline) if first <= mark.at <= last and not mark.is_at_end]
    if not dots and not panes:
        return
    before = [
        batch.watermark
        for batch in timeline.batches
        if batch.at < first and batch.watermark is not None and not timeline.is_processing_time
    ]
    yield [
        (clock_axis.format_time(first).rjust(_LABEL - 2) + "  ", "dim"),
        *_pad_cells(_render_dots(dots, before[-1] if before else None, last, event_axis), columns),
    ]
    after = None if timeline.is_processing_time else batches[-1].watermark
    yield from _render_marks(
        panes,
        after,
        event_axis,
        clock_axis if timeline.is_processing_time else event_axis,
        columns,
        is_processing_time=timeline.is_processing_time,
    )


def _render_end(timeline: Timeline, event_axis: Axis, clock_axis: Axis, columns: int) -> Iterator[StyledLine]:
    panes = [mark for mark in group_panes(timeline) if mark.is_at_end]
    if panes:
        yield [("the end".rjust(_LABEL - 2), "dim")]
    yield from _render_marks(
        panes,
        None,
        event_axis,
        clock_axis if timeline.is_processing_time else event_axis,
        columns,
        is_processing_time=timeline.is_processing_time,
    )


def _render_dots(
    dots: Sequence[EventDot], watermark: int | None, now: int, axis: Axis
) -> dict[int, tuple[str, str]]:
    """The characters by column; where several marks meet, the last one in this order."""
    cells = {}
    if axis.first <= now <= axis.last:
        cells[round(axis.position_of(now))] = _IDEAL
    if watermark is not None and watermark <= axis.last:
        cells[round(axis.position_of(watermark))] = _WATERMARK
    for fate, (sign, style) in _FATES.items():
        columns = [round(axis.position_of(dot.event_time)) for dot in dots if dot.fate == fate]
        for column in columns:
            count = columns.count(column)
            cells[column] = (sign if count == 1 else str(count) if count < 10 else "+", style)
    return cells


def _render_marks(
    marks_shown: Sequence[Mark],
    watermark: int | None,
    axis: Axis,
    label_axis: Axis,
    columns: int,
    *,
    is_processing_time: bool,
) -> Iterator[StyledLine]:
    for mark in marks_shown[:MAX_WINDOWS_PER_ROW]:
        yield _render_mark(mark, watermark, axis, label_axis, columns, is_processing_time=is_processing_time)
    if len(marks_shown) > MAX_WINDOWS_PER_ROW:
        yield [
            (" " * (_LABEL + columns + 2), ""),
            (f"… and {len(marks_shown) - MAX_WINDOWS_PER_ROW} more windows", "dim"),
        ]


def _render_mark(
    mark: Mark, watermark: int | None, axis: Axis, label_axis: Axis, columns: int, *, is_processing_time: bool
) -> StyledLine:
    start, end = (
        (0, columns - 1)
        if is_processing_time
        else (round(axis.position_of(mark.window[0])), max(0, round(axis.position_of(mark.window[1])) - 1))
    )
    style = _TIMINGS[mark.timing]
    cells = dict.fromkeys(range(start, end), ("─", style))
    if watermark is not None and watermark <= axis.last:
        cells[round(axis.position_of(watermark))] = _WATERMARK
    cells[start], cells[max(start, end)] = ("├", style), ("┤", style)
    about = f"  {format_window(mark.window, label_axis)} {mark.timing.replace('_', ' ')}"
    return [(" " * _LABEL, ""), *_pad_cells(cells, columns), (f"  {mark.text}", style), (about, "dim")]


def _pad_cells(cells: dict[int, tuple[str, str]], columns: int) -> StyledLine:
    return [cells.get(column, (" ", "")) for column in range(columns)]


def _render_ticks(axis: Axis, columns: int) -> str:
    """The ticks, each with its label if there is room."""
    characters = [" "] * (columns + 12)
    free = 0
    for at in axis.ticks(max(2, columns // 12)):
        position, text = round(axis.position_of(at)), f"╷{axis.format_time(at)}"
        if position >= free:
            characters[position : position + len(text)] = text
            free = position + len(text) + 1
    return "".join(characters).rstrip()
