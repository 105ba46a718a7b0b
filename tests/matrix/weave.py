"""Transcripts for every cell of the matrix: one story, run through every window, trigger and output, with the
answers of the model.

    PYTHONPATH=tests python -m matrix.weave

writes tests/transcripts/woven-*.yaml anew. What is written is read by people before it is committed: the
model is the specification, but a transcript is a promise. Cases in which a rule matters are written by hand,
in the other files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from matrix.cells import OUTPUTS, TRANSCRIPTS, TRIGGERS, WINDOWS, impossible, senseless
from millrace.testing.script import Script
from millrace.testing.transcripts import running
from millrace.testing.transcripts.documents import parse_document
from millrace.testing.transcripts.subjects import TranscriptJob

WINDOW: dict[str, Any] = {
    "fixed": {"fixed": 10},
    "sliding": {"sliding": {"size": 10, "every": 5}},
    "unaligned": {"fixed": 10, "offset": {"a": 0, "b": 4}},
    "session": {"session": 4},
    "global": "global",
    "counted": {"counted": 3},
    "delta": {"delta": 4},
    "punctuated": {"punctuated": 9},
    "fixed by clock": {"fixed": 10, "time": "clock"},
    "sliding by clock": {"sliding": {"size": 10, "every": 5}, "time": "clock"},
    "session by clock": {"session": 4, "time": "clock"},
}
TRIGGER: dict[str, Any] = {
    "default": "default",
    "watermark": "watermark",
    "watermark early": {"watermark": {"early": {"count": 2}, "late": {"count": 1}}},
    "watermark late": {"watermark": {"late": {"count": 2}}},
    "count": {"count": 2},
    "clock_delay": {"clock_delay": 4},
    "clock_every": {"clock_every": 4},
    "every": {"every": 4},
    "repeat": {"repeat": {"count": 2}},
    "any": {"repeat": {"any": [{"count": 3}, {"clock_delay": 4}]}},
    "all": {"repeat": {"all": [{"count": 2}, {"clock_delay": 4}]}},
    "each": {"each": [{"count": 2}, {"clock_delay": 4}, "watermark"]},
    "or_finally": {"or_finally": [{"repeat": {"count": 2}}, "watermark"]},
    "end_of_stream": "end_of_stream",
    "clock": "clock",
}

STORY: tuple[dict[str, Any], ...] = (
    {
        "events": [
            {"t": 1, "key": "a", "value": 1},
            {"t": 3, "key": "a", "value": 2},
            {"t": 2, "key": "b", "value": 3},
        ]
    },
    {"clock": 4},
    {"events": [{"t": 7, "key": "a", "value": 4}, {"t": 12, "key": "a", "value": 5}]},
    {"restart": True},
    {"watermark": 8},
    {"events": [{"t": 9, "key": "b", "value": 6}, {"t": 4, "key": "a", "value": 7}]},
    {"clock": 9},
    {"watermark": 12},
    {
        "events": [
            {"t": 5, "key": "a", "value": 8},
            {"t": 6, "key": "b", "value": 9},
            {"t": 13, "key": "b", "value": 10},
        ]
    },
    {"restart": True},
    {"clock": 13},
    {"watermark": 17},
    {
        "events": [
            {"t": 2, "key": "a", "value": 11},
            {"t": 14, "key": "a", "value": 12},
            {"t": 18, "key": "b", "value": 13},
        ]
    },
    {"clock": 30},
    {"watermark": 40},
    {"events": [{"t": 41, "key": "a", "value": 14}]},
    {"watermark": "end"},
)
"""Rows in order, out of order, late and too late, while watermark and clock advance, with two restarts."""
HEAD = (
    "# Written by `python -m matrix.weave` (PYTHONPATH=tests); cases in which a rule matters are in the "
    "other files.\n"
)


def weave_window(window: str) -> Iterator[dict[str, Any]]:
    """The documents of a window: each trigger with each output, eventful, and once plainly."""
    for trigger in TRIGGERS:
        if senseless(window, trigger) is None:
            yield weave_document(window, trigger, "value", eventful=False)
            for output in OUTPUTS:
                yield weave_document(window, trigger, output, eventful=True)


def weave_document(window: str, trigger: str, output: str, *, eventful: bool) -> dict[str, Any]:
    """The story with what the model answers. Eventful: with lateness, restarts, and several partitions."""
    lateness = 5 if eventful and not impossible(window, "lateness") else 0
    name = f"woven: {window}, {trigger}, {output}{', late, restarted, in two partitions' if eventful else ''}"
    document: dict[str, Any] = {
        "name": name,
        "window": WINDOW[window],
        "trigger": TRIGGER[trigger],
        "output": output,
    }
    document |= ({"lateness": lateness} if lateness else {}) | ({"partitions": 2} if eventful else {})
    steps = (
        [parted for step in STORY for parted in _parted(step)]
        if eventful
        else [step for step in STORY if "restart" not in step]
    )
    return {**document, "steps": list(_answered({**document, "steps": steps}))}


def _parted(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same in two partitions: key b has one of its own, whose watermark comes later."""
    if "events" in step:
        yield {
            "events": [
                {**event, "partition": 1} if event["key"] == "b" else event for event in step["events"]
            ]
        }
    elif step == {"watermark": 12}:
        yield {"watermark": {"at": 12, "partition": 0}}
        yield {"watermark": {"at": 12, "partition": 1}}
    else:
        yield step


def _answered(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each step, followed by its results."""
    subject = TranscriptJob(parse_document(document))
    script = Script(subject.build_job(), on="model", partitions=subject.transcript.partitions)
    for source_step, (kind, content) in zip(document["steps"], subject.transcript.steps, strict=True):
        yield source_step
        running._run_step(script, kind, content, subject, "", running.Findings())
        if panes := sorted(subject.read_panes(script), key=str):
            yield {"expect": panes}
        if dropped := [subject.to_dropped(row) for row in script.late()]:
            yield {"expect_dropped": dropped}


def dump(document: dict[str, Any]) -> str:
    """A document, one step or pane a line."""
    lines = [f"{key}: {_line(value)}" for key, value in document.items() if key != "steps"]
    lines.append("steps:")
    for step in document["steps"]:
        [(kind, content)] = step.items()
        lines += (
            [f"  - {kind}:", *(f"      - {_line(pane)}" for pane in content)]
            if kind == "expect"
            else [f"  - {kind}: {_line(content)}"]
        )
    return "\n".join(lines) + "\n"


def _line(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
        .removesuffix("...\n")
        .rstrip("\n")
    )


def main() -> None:
    """Writes a file for each window."""
    for window in WINDOWS:
        documents = [dump(document) for document in weave_window(window)]
        (TRANSCRIPTS / f"woven-{window.replace(' ', '-')}.yaml").write_text(
            HEAD + "---\n".join(documents), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
