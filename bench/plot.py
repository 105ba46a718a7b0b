"""Line charts as small SVG files, which follow the reader's light or dark theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 64, 150, 40, 40
_COLOURS = ("#2f6fb3", "#b35900", "#1b7f4d", "#6a4fb3", "#a8324a")
_STYLE = """
    svg { --paper: #ffffff; --ink: #1f2933; --grid: #e4e7eb; font: 12px system-ui, sans-serif; }
    @media (prefers-color-scheme: dark) { svg { --paper: #14181d; --ink: #e6e9ec; --grid: #2a3038; } }
    .paper { fill: var(--paper); } text { fill: var(--ink); } .grid { stroke: var(--grid); }
    .line { fill: none; stroke-width: 1.5; } .end { text-anchor: end; } .middle { text-anchor: middle; }
"""


def draw_lines(
    title: str, series: Mapping[str, Sequence[tuple[float, float]]], *, across: str, along: str
) -> str:
    """Draws one line per series. The axes begin at 0."""
    max_x = max(x for points in series.values() for x, _ in points) or 1.0
    max_y = max(y for points in series.values() for _, y in points) * 1.1 or 1.0
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "width": str(WIDTH), "height": str(HEIGHT), "role": "img"}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size})
    _add_element(svg, "title").text = title
    _add_element(svg, "style").text = _STYLE
    _add_element(svg, "rect", "paper", width=WIDTH, height=HEIGHT)
    _add_element(svg, "text", x=LEFT, y=22).text = title
    for fifth in range(6):
        x, y = (
            LEFT + (WIDTH - LEFT - RIGHT) * fifth / 5,
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * fifth / 5,
        )
        _add_element(svg, "line", "grid", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}")
        _add_element(svg, "text", "end", x=LEFT - 8, y=f"{y + 4:.1f}").text = f"{max_y * fifth / 5:,.0f}"
        _add_element(
            svg, "text", "middle", x=f"{x:.1f}", y=HEIGHT - BOTTOM + 18
        ).text = f"{max_x * fifth / 5:.3g}"
    _add_element(svg, "text", "end", x=WIDTH - RIGHT, y=HEIGHT - 6).text = across
    _add_element(svg, "text", x=8, y=TOP - 6).text = along
    ends: dict[str, float] = {}
    for number, (name, points) in enumerate(series.items()):
        positions = [
            (
                LEFT + (WIDTH - LEFT - RIGHT) * x / max_x,
                HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / max_y,
            )
            for x, y in points
        ]
        polyline = " ".join(f"{x:.1f},{y:.1f}" for x, y in positions)
        _add_element(svg, "polyline", "line", points=polyline, stroke=_COLOURS[number % len(_COLOURS)])
        ends[name] = positions[-1][1] + 4
    label_y = 0.0
    for name, y in sorted(ends.items(), key=lambda end: end[1]):
        label_y = max(y, label_y + 14)  # names of lines that end together stand one below the other
        _add_element(svg, "text", x=WIDTH - RIGHT + 8, y=f"{label_y:.1f}").text = name
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _add_element(parent: ET.Element, tag: str, css_class: str = "", **attributes: object) -> ET.Element:
    return ET.SubElement(
        parent,
        tag,
        ({"class": css_class} if css_class else {})
        | {name: str(value) for name, value in attributes.items()},
    )
