"""Figures over time as a small SVG, which follows the reader's light or dark theme."""

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


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], *, across: str, along: str) -> str:
    """A line for each series over the same axes, which begin at zero."""
    most_x = max(x for points in series.values() for x, _ in points) or 1.0
    most_y = max(y for points in series.values() for _, y in points) * 1.1 or 1.0
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "width": str(WIDTH), "height": str(HEIGHT), "role": "img"}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size})
    _add(svg, "title").text = title
    _add(svg, "style").text = _STYLE
    _add(svg, "rect", "paper", width=WIDTH, height=HEIGHT)
    _add(svg, "text", x=LEFT, y=22).text = title
    for fifth in range(6):
        x, y = (
            LEFT + (WIDTH - LEFT - RIGHT) * fifth / 5,
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * fifth / 5,
        )
        _add(svg, "line", "grid", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}")
        _add(svg, "text", "end", x=LEFT - 8, y=f"{y + 4:.1f}").text = f"{most_y * fifth / 5:,.0f}"
        _add(svg, "text", "middle", x=f"{x:.1f}", y=HEIGHT - BOTTOM + 18).text = f"{most_x * fifth / 5:.3g}"
    _add(svg, "text", "end", x=WIDTH - RIGHT, y=HEIGHT - 6).text = across
    _add(svg, "text", x=8, y=TOP - 6).text = along
    ends: dict[str, float] = {}
    for number, (name, points) in enumerate(series.items()):
        places = [
            (
                LEFT + (WIDTH - LEFT - RIGHT) * x / most_x,
                HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / most_y,
            )
            for x, y in points
        ]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        _add(svg, "polyline", "line", points=drawn, stroke=_COLOURS[number % len(_COLOURS)])
        ends[name] = places[-1][1] + 4
    above = 0.0
    for name, y in sorted(ends.items(), key=lambda end: end[1]):
        above = max(y, above + 14)  # names of lines that end together stand one below the other
        _add(svg, "text", x=WIDTH - RIGHT + 8, y=f"{above:.1f}").text = name
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _add(parent: ET.Element, tag: str, kind: str = "", **attributes: object) -> ET.Element:
    return ET.SubElement(
        parent,
        tag,
        ({"class": kind} if kind else {}) | {name: str(value) for name, value in attributes.items()},
    )
