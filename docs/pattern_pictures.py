"""Patterns drawn on events: what matches, and what begins and comes to nothing.
Each line of a picture is what the matcher really finds.
"""

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.patterns import Pattern
from millrace.patterns.cep.matcher import Matcher
from millrace.values.columns import MATCH_NUMBER, STEP

DOCS = Path(__file__).parent
FOLDER = DOCS / "concepts" / "patterns"
LEFT, TOP, APART, LINE, RADIUS = 34, 62, 46, 34, 11
WIDTH = 720
STYLE = """
    svg { --paper: #ffffff; --ink: #1f2933; --soft: #6b7785; --grid: #d5dae0; --s0: #2f6fb3; --s1: #1b7f4d; --s2: #b35900; --s3: #6a4fb3; font: 13px system-ui, sans-serif; }
    @media (prefers-color-scheme: dark) {
      svg { --paper: #14181d; --ink: #e6e9ec; --soft: #98a4b1; --grid: #39424d; --s0: #6aa5e3; --s1: #56c98c; --s2: #f0a050; --s3: #b39cf0; } }
    .paper { fill: var(--paper); } text { fill: var(--ink); text-anchor: middle; } .title, .note { text-anchor: start; }
    .title { font: 12px ui-monospace, monospace; } .note { fill: var(--soft); } .event { fill: none; stroke: var(--soft); stroke-width: 1.5; }
    .passed { fill: var(--grid); } .nothing { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; stroke-width: 1.5; } .rule { stroke: var(--grid); }
    .taken text { fill: var(--paper); font-weight: 600; } .joined { stroke: var(--soft); stroke-width: 1.5; }
    .s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
"""  # noqa: E501 - a style sheet


@dataclass(frozen=True)
class Event:
    """A letter at a second, and what it says beside it."""

    second: int
    kind: str
    value: int | None

    @property
    def text(self) -> str:
        """As it is drawn."""
        return self.kind if self.value is None else f"{self.kind}{self.value}"


def events(text: str) -> list[Event]:
    """The events of a line such as `ab.c2`."""
    found = enumerate(re.findall(r"([a-z.])(\d?)", text))
    return [
        Event(second, kind, int(value) if value else None) for second, (kind, value) in found if kind != "."
    ]


def matches(pattern: Pattern, given: list[Event]) -> list[list[tuple[int, str]]]:
    """What the matcher finds: for each match the events, by number, and the steps that took them."""
    schema = pl.Schema(
        {"number": pl.Int64(), "kind": pl.String(), "value": pl.Int64(), "event_time": pl.Int64()}
    )
    rows = [(number, event.kind, event.value, event.second * 1000) for number, event in enumerate(given)]
    found = (
        Matcher(pattern, schema, ())
        .step({}, pl.DataFrame(rows, schema=schema, orient="row"), END_OF_STREAM)
        .matches
    )
    return [
        list(zip(part["number"], part[STEP], strict=True))
        for part in found.partition_by(MATCH_NUMBER, maintain_order=True)
    ]


def drawn(pattern: Pattern, text: str, code: str) -> str:
    """The picture as an SVG document; `code` is how the pattern is written."""
    given = events(text)
    found = sorted(matches(pattern, given), key=lambda match: [number for number, _ in match])
    starting = {number for number, event in enumerate(given) if event.kind == "a"} - {
        match[0][0] for match in found
    }
    lines = sorted(
        [*found, *([(number, "")] for number in starting)], key=lambda match: [number for number, _ in match]
    )
    height = TOP + LINE * (len(lines) + 1) - 8
    size = {"viewBox": f"0 0 {WIDTH} {height}", "width": str(WIDTH), "height": str(height)}
    svg = ET.Element(
        "svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "role": "img", "aria-labelledby": "title"}
    )
    title = f"{code}: {len(found)} {'match' if len(found) == 1 else 'matches'} in {text}"
    _add(svg, "title", id="title").text = title
    _add(svg, "style").text = STYLE
    _add(svg, "rect", "paper", width=WIDTH, height=height)
    _add(svg, "text", "title", x=LEFT - RADIUS, y=22).text = code
    for event in given:
        _circle(svg, event, TOP, "event", event.text)
    _add(svg, "line", "rule", x1=LEFT - RADIUS, x2=WIDTH - LEFT, y1=TOP + LINE / 2 + 1, y2=TOP + LINE / 2 + 1)
    steps = [step.name for step in pattern.steps if not step.is_negative]
    for place, line in enumerate(lines, start=1):
        _line(svg, given, line, TOP + LINE * place + 6, steps)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _line(
    svg: ET.Element, given: list[Event], line: list[tuple[int, str]], y: float, steps: list[str]
) -> None:
    """A match, or a beginning that came to nothing."""
    if not line[0][1]:
        _circle(svg, given[line[0][0]], y, "nothing", given[line[0][0]].text)
        _add(svg, "text", "note", x=_x(given[line[0][0]]) + RADIUS + 10, y=y + 4).text = "no match"
        return
    first, last = (given[line[at][0]] for at in (0, -1))
    _add(svg, "line", "joined", x1=_x(first), x2=_x(last), y1=y, y2=y)
    taken = dict(line)
    for number in range(line[0][0], line[-1][0] + 1):
        if number in taken:
            _circle(
                _add(svg, "g", "taken"), given[number], y, f"s{steps.index(taken[number]) % 4}", taken[number]
            )
        else:
            _add(svg, "circle", "passed", cx=_x(given[number]), cy=y, r=4)


def _circle(svg: ET.Element, event: Event, y: float, kind: str, text: str) -> None:
    _add(svg, "circle", kind, cx=_x(event), cy=y, r=RADIUS)
    _add(svg, "text", x=_x(event), y=y + 4.5).text = text


def _x(event: Event) -> float:
    return LEFT + event.second * APART


def _add(parent: ET.Element, tag: str, kind: str | None = None, **attributes: object) -> ET.Element:
    return ET.SubElement(
        parent,
        tag,
        ({"class": kind} if kind else {})
        | {
            name: f"{value:g}" if isinstance(value, float) else str(value)
            for name, value in attributes.items()
        },
    )


def pictures() -> dict[Path, str]:
    """Every picture, by the file it belongs in."""
    sys.path.insert(0, str(DOCS / "examples"))
    known = importlib.import_module("drawn_patterns").DRAWN
    lines = (DOCS / "examples" / "drawn_patterns.py").read_text(encoding="utf-8").splitlines()
    codes = {name.lower(): code for name, equals, code in (line.partition(" = ") for line in lines) if equals}
    return {
        FOLDER / f"{name}.svg": drawn(pattern, text, codes[name]) for name, (pattern, text) in known.items()
    }
