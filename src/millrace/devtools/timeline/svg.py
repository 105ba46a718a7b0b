"""A run as a picture: event time to the right, processing time upwards. It follows the reader's light or dark theme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from xml.etree import ElementTree as ET

from millrace.devtools.timeline.axes import Axis, axes, window_text
from millrace.devtools.timeline.marks import Mark, marks, tally
from millrace.devtools.timeline.seen import Dot, Timeline

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
_TALL = 11
"""Pixels between the lines of labels."""


def to_svg(timeline: Timeline) -> str:
    """The picture as an SVG document, with a title, a description, and what each mark is when pointed at."""
    return ET.tostring(_Drawing(timeline).root(), encoding="unicode") + "\n"


@dataclass(frozen=True)
class _Drawing:
    timeline: Timeline

    @cached_property
    def scales(self) -> tuple[Axis, Axis]:
        """Event time and processing time, on pixels."""
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
        _add(svg, "title", id="title").text = self._title()
        _add(svg, "desc", id="desc").text = self._description()
        _add(svg, "style").text = (
            resources.files("millrace.devtools.timeline").joinpath("picture.css").read_text(encoding="utf-8")
        )
        _add(svg, "rect", "paper", width=WIDTH, height=HEIGHT)
        _add(svg, "text", "title", x=LEFT, y=22).text = self._title()
        for draw in (
            self._windows,
            self._scales,
            self._ideal,
            self._watermark,
            self._dots,
            self._panes,
            self._legend,
        ):
            draw(_add(svg, "g", draw.__name__[1:]))
        ET.indent(svg)
        return svg

    def _title(self) -> str:
        said = f"{self.timeline.job} → {self.timeline.topic}"
        return f"{said}, {self.timeline.key}" if self.timeline.key else said

    def _description(self) -> str:
        t = self.timeline
        fates = [sum(dot.fate == fate for dot in t.dots) for fate in ("behind", "refused")]
        left_out = f" ({t.left_out} more are not drawn)" if t.left_out else ""
        return (
            f"Event time to the right, processing time upwards. {len(t.dots)} events{left_out}, {fates[0]} of them behind the watermark "
            f"and {fates[1]} refused; the watermark moves {len(t.steps)} times; {len(t.windows)} windows; "
            f"panes: {tally(t.panes)}, {t.at_end} of them at the end of the events."
        )

    def _windows(self, group: ET.Element) -> None:
        """A band for each window, as high as its last pane."""
        x, y = self.scales
        top = {mark.window: self._level(mark) for mark in marks(self.timeline)}
        for number, window in enumerate(self.timeline.windows):
            across, along = (x.start, x.stop), (y.start, top[window])
            if self.timeline.by_clock:
                along = y.place(window[0]), y.place(window[1])
            else:
                across = x.place(window[0]), x.place(window[1])
            band = {
                "x": _n(across[0]),
                "y": _n(along[1]),
                "width": _n(across[1] - across[0]),
                "height": _n(along[0] - along[1]),
            }
            drawn = _add(group, "rect", "window odd" if number % 2 else "window", **band)
            _add(drawn, "title").text = f"window {window_text(window, y if self.timeline.by_clock else x)}"

    def _scales(self, group: ET.Element) -> None:
        x, y = self.scales
        for at in x.ticks(8):
            _add(group, "line", "grid", x1=_n(x.place(at)), x2=_n(x.place(at)), y1=_n(y.start), y2=_n(y.stop))
            _add(group, "text", "tick middle", x=_n(x.place(at)), y=_n(y.start + 16)).text = x.text(at)
        for at in y.ticks(9):
            _add(group, "line", "grid", x1=_n(x.start), x2=_n(x.stop), y1=_n(y.place(at)), y2=_n(y.place(at)))
            _add(group, "text", "tick end", x=_n(x.start - 8), y=_n(y.place(at) + 4)).text = y.text(at)
        day = f", {x.day()}" if x.day() else ""
        _add(group, "text", "axis end", x=_n(x.stop), y=_n(y.start + 36)).text = f"event time{day} →"
        _add(group, "text", "axis", x=8, y=_n(y.stop - 8)).text = "processing time ↑"

    def _ideal(self, group: ET.Element) -> None:
        """Where events would stand if they were seen as they happen."""
        x, y = self.scales
        first, last = max(x.low, y.low), min(x.high, y.high)
        if first < last:
            ends = {"x1": x.place(first), "y1": y.place(first), "x2": x.place(last), "y2": y.place(last)}
            _add(group, "line", "ideal", **{name: _n(value) for name, value in ends.items()})

    def _watermark(self, group: ET.Element) -> None:
        """A staircase: it stands between batches, and moves with one."""
        steps = self.timeline.steps
        if not steps or self.timeline.by_clock:
            return
        x, y = self.scales
        path, before = [], 0.0
        for number, step in enumerate(steps):
            here, there = (
                self._raised(step.at, last=self.timeline.ended and step is self.timeline.moments[-1]),
                x.place(step.watermark or 0),
            )
            path.append(f"M{_n(there)} {_n(here)}" if number == 0 else f"V{_n(here)}H{_n(there)}")
            before = there
        path.append(f"V{_n(y.stop)}" if before < x.stop else "")
        line = _add(group, "path", "watermark", d="".join(path))
        _add(line, "title").text = f"watermark, moved {len(steps)} times"

    def _dots(self, group: ET.Element) -> None:
        x, y = self.scales
        for dot in self.timeline.dots:
            at = _n(x.place(dot.event_time)), _n(y.place(dot.at))
            if dot.fate == "refused":
                drawn = _add(group, "path", "event refused", d=f"M{at[0]} {at[1]}m-4-4l8 8m0-8l-8 8")
            else:
                drawn = _add(
                    group,
                    "circle",
                    "event" if dot.fate == "taken" else "event behind",
                    cx=at[0],
                    cy=at[1],
                    r="3.5",
                )
            _add(drawn, "title").text = self._about(dot)

    def _about(self, dot: Dot) -> str:
        x, y = self.scales
        return f"{dot.about}: happened {x.text(dot.event_time)}, seen {y.text(dot.at)}"

    def _panes(self, group: ET.Element) -> None:
        """A line across the window, a diamond at its end, and the value."""
        taken: list[tuple[float, float, float]] = []
        for mark in marks(self.timeline):
            x, _ = self.scales
            level = self._level(mark)
            start, end = (
                (x.start, x.stop)
                if self.timeline.by_clock
                else (x.place(mark.window[0]), x.place(mark.window[1]))
            )
            drawn = _add(group, "g", f"pane {mark.timing}")
            _add(drawn, "title").text = self._story(mark)
            _add(drawn, "line", x1=_n(start + 1), x2=_n(end - 1), y1=_n(level), y2=_n(level))
            _add(drawn, "path", d=f"M{_n(end - 6)} {_n(level)}l5-5 5 5-5 5z")
            line = _free(taken, end - 12, level - 4, 6.2 * len(mark.text))
            if line is not None:
                _add(drawn, "text", "value end", x=_n(end - 12), y=_n(line)).text = mark.text

    def _story(self, mark: Mark) -> str:
        x, y = self.scales
        window = window_text(mark.window, y if self.timeline.by_clock else x)
        shown = "at the end" if mark.last else f"at {y.text(mark.at)}"
        told = "; ".join(
            f"{pane.text} (pane {pane.index}{', final' if pane.final else ''})" for pane in mark.panes[:20]
        )
        return f"{mark.timing.replace('_', ' ')} {shown}, window {window}: {told}"

    def _level(self, mark: Mark) -> float:
        return self._raised(mark.at, last=mark.last)

    def _raised(self, at: int, *, last: bool) -> float:
        """The height of a moment; what the end of the events brought stands above all others."""
        _, y = self.scales
        return y.stop + 4 if last else y.place(at)

    def _legend(self, group: ET.Element) -> None:
        left = float(LEFT)
        for name, text in self._present():
            kind = name.split()[0]
            if kind == "event" and "refused" not in name:
                _add(group, "circle", name, cx=_n(left + 5), cy="38", r="3.5")
            elif kind == "event":
                _add(group, "path", name, d=f"M{_n(left + 5)} 38m-4-4l8 8m0-8l-8 8")
            elif kind == "pane":
                _add(_add(group, "g", name), "path", d=f"M{_n(left)} 38l5-5 5 5-5 5z")
            else:
                _add(group, "line", name, x1=_n(left - 3), x2=_n(left + 11), y1="38", y2="38")
            _add(group, "text", "tick", x=_n(left + 15), y="42").text = text
            left += 28 + 6.0 * len(text)

    def _present(self) -> Iterator[tuple[str, str]]:
        """What of the legend is in the picture."""
        fates = {dot.fate for dot in self.timeline.dots}
        timings = {pane.timing for pane in self.timeline.panes}
        for name, text in _LEGEND:
            kind, _, which = name.partition(" ")
            if name == "watermark" and self.timeline.by_clock:
                continue
            if (
                (kind == "event" and (which or "taken") in fates)
                or (kind == "pane" and which in timings)
                or (not which and kind != "event")
            ):
                yield name, text


def _free(taken: list[tuple[float, float, float]], right: float, line: float, wide: float) -> float | None:
    """A line on which a label of this width covers no other; None where there is no room for it."""
    for shift in (0, -_TALL, _TALL + 6, -2 * _TALL):
        place = line + shift
        if place > TOP and all(
            abs(place - other) >= _TALL or right <= left or right - wide >= end for left, end, other in taken
        ):
            taken.append((right - wide, right, place))
            return place
    return None


def _add(parent: ET.Element, tag: str, kind: str = "", **attributes: object) -> ET.Element:
    said = {"class": kind} if kind else {}
    return ET.SubElement(parent, tag, {**said, **{name: str(value) for name, value in attributes.items()}})


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
