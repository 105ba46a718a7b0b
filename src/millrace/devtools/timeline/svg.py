"""Draws a timeline as SVG: event time to the right, processing time upwards. It has a light and a dark
theme.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from xml.etree import ElementTree as ET

from millrace.devtools.timeline.axes import Axis, axes, format_window
from millrace.devtools.timeline.marks import Mark, count_timings, group_panes
from millrace.devtools.timeline.seen import EventDot, Timeline

WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 76, 48
_LEGEND = (
    ("event", "event"),
    ("event behind", "behind the watermark"),
    ("event refused", "refused"),
    ("ideal", "ideal"),
    ("watermark", "watermark"),
    ("pane early", "early pane"),
    ("pane on_time", "on time"),
    ("pane late", "late"),
)
_LABEL_HEIGHT = 11
"""Pixels between two lines of labels."""


def to_svg(timeline: Timeline) -> str:
    """The SVG document, with a title, a description, and a tooltip for each mark."""
    return ET.tostring(_Drawing(timeline).root(), encoding="unicode") + "\n"


@dataclass(frozen=True)
class _Drawing:
    timeline: Timeline

    @cached_property
    def scales(self) -> tuple[Axis, Axis]:
        """The axes of event time and processing time, in pixels."""
        happened, seen = axes(self.timeline)
        return replace(happened, start=LEFT, stop=WIDTH - RIGHT), replace(
            seen, start=HEIGHT - BOTTOM, stop=TOP
        )

    def root(self) -> ET.Element:
        size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "width": str(WIDTH), "height": str(HEIGHT)}
        svg = ET.Element(
            "svg",
            {"xmlns": "http://www.w3.org/2000/svg", **size, "role": "img", "aria-labelledby": "title desc"},
        )
        _add_element(svg, "title", id="title").text = self._title()
        _add_element(svg, "desc", id="desc").text = self._description()
        _add_element(svg, "style").text = (
            resources.files("millrace.devtools.timeline").joinpath("picture.css").read_text(encoding="utf-8")
        )
        _add_element(svg, "rect", "paper", width=WIDTH, height=HEIGHT)
        _add_element(svg, "text", "title", x=LEFT, y=22).text = self._title()
        for draw in (
            self._windows,
            self._scales,
            self._ideal,
            self._watermark,
            self._dots,
            self._panes,
            self._legend,
        ):
            draw(_add_element(svg, "g", draw.__name__[1:]))
        ET.indent(svg)
        return svg

    def _title(self) -> str:
        title = f"{self.timeline.job} → {self.timeline.topic}"
        return f"{title}, {self.timeline.key}" if self.timeline.key else title

    def _description(self) -> str:
        timeline = self.timeline
        fates = [sum(dot.fate == fate for dot in timeline.dots) for fate in ("behind", "refused")]
        left_out = f" ({timeline.omitted_dots} more are not drawn)" if timeline.omitted_dots else ""
        return (
            f"Event time to the right, processing time upwards. {len(timeline.dots)} events{left_out}, "
            f"{fates[0]} of them behind the watermark "
            f"and {fates[1]} refused; the watermark moves {len(timeline.steps)} times; "
            f"{len(timeline.windows)} windows; "
            f"panes: {count_timings(timeline.panes)}, {timeline.panes_at_end} of them at the end of the "
            "events."
        )

    def _windows(self, group: ET.Element) -> None:
        """A band per window, as high as its last pane."""
        x, y = self.scales
        top = {mark.window: self._mark_height(mark) for mark in group_panes(self.timeline)}
        for number, window in enumerate(self.timeline.windows):
            across, along = (x.start, x.stop), (y.start, top[window])
            if self.timeline.is_processing_time:
                along = y.position_of(window[0]), y.position_of(window[1])
            else:
                across = x.position_of(window[0]), x.position_of(window[1])
            band = {
                "x": _format_number(across[0]),
                "y": _format_number(along[1]),
                "width": _format_number(across[1] - across[0]),
                "height": _format_number(along[0] - along[1]),
            }
            drawn = _add_element(group, "rect", "window odd" if number % 2 else "window", **band)
            _add_element(
                drawn, "title"
            ).text = f"window {format_window(window, y if self.timeline.is_processing_time else x)}"

    def _scales(self, group: ET.Element) -> None:
        x, y = self.scales
        for at in x.ticks(8):
            here = x.position_of(at)
            _add_element(group, "line", "grid", x1=here, x2=here, y1=y.start, y2=y.stop)
            _add_text(group, "tick middle", x.format_time(at), x=here, y=y.start + 16)
        for at in y.ticks(9):
            here = y.position_of(at)
            _add_element(group, "line", "grid", x1=x.start, x2=x.stop, y1=here, y2=here)
            _add_text(group, "tick end", y.format_time(at), x=x.start - 8, y=here + 4)
        day = f", {x.format_day()}" if x.format_day() else ""
        _add_text(group, "axis end", f"event time{day} →", x=x.stop, y=y.start + 36)
        _add_text(group, "axis", "processing time ↑", x=8, y=y.stop - 8)

    def _ideal(self, group: ET.Element) -> None:
        """The line on which events would lie if they were read at their event time."""
        x, y = self.scales
        first, last = max(x.first, y.first), min(x.last, y.last)
        if first < last:
            ends = {
                "x1": x.position_of(first),
                "y1": y.position_of(first),
                "x2": x.position_of(last),
                "y2": y.position_of(last),
            }
            _add_element(group, "line", "ideal", **ends)

    def _watermark(self, group: ET.Element) -> None:
        """A staircase: the watermark is constant between batches."""
        steps = self.timeline.steps
        if not steps or self.timeline.is_processing_time:
            return
        x, y = self.scales
        path, last_x = [], 0.0
        for number, step in enumerate(steps):
            y_here, x_here = (
                self._height_of(
                    step.at, is_at_end=self.timeline.has_ended and step is self.timeline.batches[-1]
                ),
                x.position_of(step.watermark or 0),
            )
            path.append(
                f"M{_format_number(x_here)} {_format_number(y_here)}"
                if number == 0
                else f"V{_format_number(y_here)}H{_format_number(x_here)}"
            )
            last_x = x_here
        path.append(f"V{_format_number(y.stop)}" if last_x < x.stop else "")
        line = _add_element(group, "path", "watermark", d="".join(path))
        _add_element(line, "title").text = f"watermark, moved {len(steps)} times"

    def _dots(self, group: ET.Element) -> None:
        x, y = self.scales
        for dot in self.timeline.dots:
            right, down = x.position_of(dot.event_time), y.position_of(dot.at)
            if dot.fate == "refused":
                cross = f"M{_format_number(right)} {_format_number(down)}m-4-4l8 8m0-8l-8 8"
                drawn = _add_element(group, "path", "event refused", d=cross)
            else:
                kind = "event" if dot.fate == "taken" else "event behind"
                drawn = _add_element(group, "circle", kind, cx=right, cy=down, r=3.5)
            _add_element(drawn, "title").text = self._describe_dot(dot)

    def _describe_dot(self, dot: EventDot) -> str:
        x, y = self.scales
        return f"{dot.about}: happened {x.format_time(dot.event_time)}, seen {y.format_time(dot.at)}"

    def _panes(self, group: ET.Element) -> None:
        """A line across the window, with a diamond at its end, and the value."""
        occupied: list[tuple[float, float, float]] = []
        for mark in group_panes(self.timeline):
            x, _ = self.scales
            level = self._mark_height(mark)
            start, end = (
                (x.start, x.stop)
                if self.timeline.is_processing_time
                else (x.position_of(mark.window[0]), x.position_of(mark.window[1]))
            )
            drawn = _add_element(group, "g", f"pane {mark.timing}")
            _add_element(drawn, "title").text = self._describe_mark(mark)
            _add_element(drawn, "line", x1=start + 1, x2=end - 1, y1=level, y2=level)
            _add_element(drawn, "path", d=f"M{_format_number(end - 6)} {_format_number(level)}l5-5 5 5-5 5z")
            line = _find_free_line(occupied, end - 12, level - 4, 6.2 * len(mark.text))
            if line is not None:
                _add_text(drawn, "value end", mark.text, x=end - 12, y=line)

    def _describe_mark(self, mark: Mark) -> str:
        x, y = self.scales
        window = format_window(mark.window, y if self.timeline.is_processing_time else x)
        when = "at the end" if mark.is_at_end else f"at {y.format_time(mark.at)}"
        values = "; ".join(
            f"{pane.text} (pane {pane.index}{', final' if pane.final else ''})" for pane in mark.panes[:20]
        )
        return f"{mark.timing.replace('_', ' ')} {when}, window {window}: {values}"

    def _mark_height(self, mark: Mark) -> float:
        return self._height_of(mark.at, is_at_end=mark.is_at_end)

    def _height_of(self, at: int, *, is_at_end: bool) -> float:
        """The height of a time. Panes that the end of the events fired are above all others."""
        _, y = self.scales
        return y.stop + 4 if is_at_end else y.position_of(at)

    def _legend(self, group: ET.Element) -> None:
        left = float(LEFT)
        for name, text in self._legend_entries():
            kind = name.split()[0]
            if kind == "event" and "refused" not in name:
                _add_element(group, "circle", name, cx=left + 5, cy=38, r=3.5)
            elif kind == "event":
                _add_element(group, "path", name, d=f"M{_format_number(left + 5)} 38m-4-4l8 8m0-8l-8 8")
            elif kind == "pane":
                _add_element(
                    _add_element(group, "g", name), "path", d=f"M{_format_number(left)} 38l5-5 5 5-5 5z"
                )
            else:
                _add_element(group, "line", name, x1=left - 3, x2=left + 11, y1=38, y2=38)
            _add_text(group, "tick", text, x=left + 15, y=42)
            left += 28 + 6.0 * len(text)

    def _legend_entries(self) -> Iterator[tuple[str, str]]:
        """The entries of the legend that occur in the drawing."""
        fates = {dot.fate for dot in self.timeline.dots}
        timings = {pane.timing for pane in self.timeline.panes}
        for name, text in _LEGEND:
            kind, _, which = name.partition(" ")
            if name == "watermark" and self.timeline.is_processing_time:
                continue
            if (
                (kind == "event" and (which or "taken") in fates)
                or (kind == "pane" and which in timings)
                or (not which and kind != "event")
            ):
                yield name, text


def _find_free_line(
    occupied: list[tuple[float, float, float]], right: float, preferred: float, width: float
) -> float | None:
    """A line on which a label of this width covers no other one; None if there is no room."""
    for shift in (0, -_LABEL_HEIGHT, _LABEL_HEIGHT + 6, -2 * _LABEL_HEIGHT):
        candidate = preferred + shift
        if candidate > TOP and all(
            abs(candidate - other) >= _LABEL_HEIGHT or right <= left or right - width >= end
            for left, end, other in occupied
        ):
            occupied.append((right - width, right, candidate))
            return candidate
    return None


def _add_element(parent: ET.Element, tag: str, kind: str = "", **attributes: object) -> ET.Element:
    """Adds an element with a class. Floats are rounded to a tenth of a pixel."""
    texts = {
        name: _format_number(value) if isinstance(value, float) else str(value)
        for name, value in attributes.items()
    }
    return ET.SubElement(parent, tag, {"class": kind, **texts} if kind else texts)


def _add_text(parent: ET.Element, kind: str, text: str, **position: float) -> None:
    _add_element(parent, "text", kind, **position).text = text


def _format_number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
