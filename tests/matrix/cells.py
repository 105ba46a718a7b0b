"""The coverage of transcripts: window × trigger × output × lateness × restart × partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import yaml

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"

WINDOWS = (
    "fixed", "sliding", "unaligned", "session", "global", "counted", "delta", "punctuated", "fixed by clock",
    "sliding by clock", "session by clock",
)  # fmt: skip
TRIGGERS = (
    "default", "watermark", "watermark early", "watermark late", "count", "clock_delay", "clock_every",
    "every", "repeat", "any", "all", "each",
    "or_finally", "end_of_stream", "clock",
)  # fmt: skip
OUTPUTS = ("value", "delta", "value_and_retract")
CUT_BY_ROWS = ("counted", "delta", "punctuated")
"""Windows whose ends depend on rows."""
EXTRAS = ("lateness", "restart", "partitions")
WATERMARKS = ("set by the script", "bounded", "ascending", "percentile", "punctuation", "ingestion_time")
"""How a transcript's watermark moves."""


@dataclass(frozen=True)
class Cell:
    """The combination that a transcript covers."""

    window: str
    trigger: str
    output: str
    lateness: bool
    restart: bool
    partitions: bool
    watermark: str = WATERMARKS[0]
    refuses: bool = False
    """Whether it lists refused events."""


@cache
def documents(path: Path) -> list[dict[str, Any]]:
    """The documents of a file; the C parser of YAML, where it is available, is ten times as fast."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=loader))


def cells() -> Iterator[tuple[str, Cell]]:
    """The name of each of our transcripts, and its cell; those that are wrong on purpose are about the
    runner; joins and processors are another matter.
    """
    for path in sorted(TRANSCRIPTS.glob("*.yaml")):
        for document in documents(path):
            if (
                "steps" in document
                and "window" in document
                and not {"must_fail", "join", "process", "deduplicate"} & document.keys()
            ):
                yield document["name"], cell(document)


def cell(document: Mapping[str, Any]) -> Cell:
    """The cell of a document."""
    steps = document["steps"]
    places = [
        spec
        for step in steps
        for spec in [step, *_events(step)]
        if isinstance(spec, dict) and spec.get("partition")
    ]
    return Cell(
        _window(document["window"]),
        _trigger(document.get("trigger", "default")),
        document.get("output", "value"),
        document.get("lateness", 0) > 0,
        any("restart" in step for step in steps),
        document.get("partitions", 1) > 1 or bool(places),
        _watermark(document.get("watermarks", WATERMARKS[0])),
        any(step.get("expect_dropped") for step in steps),
    )


def _events(step: Mapping[str, Any]) -> list[Any]:
    events = step.get("events", [])
    return events if isinstance(events, list) else []


def _window(spec: Any) -> str:
    if spec == "global":
        return "global"
    kind = next(name for name in spec if name in ("fixed", "sliding", "session", *CUT_BY_ROWS))
    if isinstance(spec.get("offset"), dict):
        return "unaligned"
    return f"{kind} by clock" if spec.get("time") == "clock" else str(kind)


def _watermark(spec: Any) -> str:
    return str(spec if isinstance(spec, str) else next(iter(spec)))


def _trigger(spec: Any) -> str:
    if isinstance(spec, str):
        return spec
    name, inner = next(iter(spec.items()))
    if (
        name == "repeat"
        and isinstance(inner, dict)
        and next(iter(inner)) in ("any", "all", "each", "or_finally")
    ):
        return str(next(iter(inner)))
    if name != "watermark":
        return str(name)
    return "watermark early" if "early" in inner else "watermark late"


def senseless(window: str, trigger: str) -> str | None:
    """Why no transcript can be about this window and trigger."""
    if window in CUT_BY_ROWS and trigger != "default":
        return "a window that its rows cut is shown once, when it is full"
    if window == "global" and trigger in ("clock", "watermark late"):
        return "the window of everything has no end that a clock or a late row could come after"
    if trigger == "clock" and "clock" not in window:
        return "the clock passes the end of windows in processing time only"
    if "by clock" in window and trigger == "watermark late":
        return "in processing time no row is late"
    return None


def impossible(window: str, extra: str) -> str | None:
    """Why lateness, restart or several partitions cannot matter to a window."""
    if extra != "lateness":
        return None
    if "by clock" in window:
        return "in processing time no row is late"
    if window in CUT_BY_ROWS:
        return "rows are taken in order, and those behind the watermark refused"
    return "the window of everything never ends" if window == "global" else None


def empty(found: list[Cell]) -> list[str]:
    """The cells that make sense and have no transcript."""
    missing = []
    for window, trigger in product(WINDOWS, TRIGGERS):
        if senseless(window, trigger):
            continue
        here = [cell for cell in found if (cell.window, cell.trigger) == (window, trigger)]
        missing += [
            f"{window} × {trigger} × {output}"
            for output in OUTPUTS
            if not any(cell.output == output for cell in here)
        ]
        for extra in EXTRAS:
            values = {getattr(cell, extra) for cell in here}
            wanted = {False} if impossible(window, extra) else {False, True}
            missing += [
                f"{window} × {trigger} × {'with' if value else 'without'} {extra}"
                for value in sorted(wanted - values)
            ]
    for watermark in WATERMARKS:
        here = [cell for cell in found if cell.watermark == watermark]
        refuses = [] if watermark == "ingestion_time" else ["refuses"]
        missing += [
            f"{watermark} × {extra}"
            for extra in ("restart", "partitions", *refuses)
            if not any(getattr(c, extra) for c in here)
        ]
    return missing
