"""Every cell of the matrix window × trigger × output × lateness × restart × partitions has a
transcript, and all of them hold.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import pytest

from matrix.cells import TRANSCRIPTS, cells, documents, empty
from matrix.page import page
from matrix.weave import dump, weave_window
from millrace.testing.transcripts.running import run_documents

FILES = sorted(TRANSCRIPTS.glob("woven-*.yaml"))
QUICK = ("woven-fixed", "woven-session", "woven-counted", "woven-delta", "woven-punctuated")
"""Run by `make test` on the engine too; the others by `make test-long`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "on"),
    [
        pytest.param(
            path,
            on,
            id=f"{path.stem}-{on}",
            marks=[pytest.mark.long] if on == "engine" and path.stem not in QUICK else [],
        )
        for path in FILES
        for on in ("model", "engine")
    ],
)
def test_woven_transcripts_hold(path: Path, on: Literal["model", "engine"]) -> None:
    failed = {name: why for name, why in run_documents(path, on) if why is not None}
    assert not failed


def test_every_cell_that_makes_sense_has_a_transcript() -> None:
    assert empty([cell for _, cell in cells()]) == []


def test_the_page_of_the_matrix_is_fresh() -> None:
    assert (Path(__file__).parents[1] / "docs" / "reference" / "coverage.md").read_text() == page(), (
        "run `make docs`"
    )


@pytest.mark.slow
@pytest.mark.parametrize("window", ["session", "counted"])
def test_weaving_again_gives_the_same(window: str) -> None:
    text = (TRANSCRIPTS / f"woven-{window}.yaml").read_text().partition("\n")[2]
    assert text == "---\n".join(dump(document) for document in weave_window(window)), (
        "run `PYTHONPATH=tests python -m matrix.weave`"
    )


def panes(document: dict[str, Any]) -> dict[tuple[str, tuple[int, int]], list[list[int]]]:
    """The values shown for each key and window, in order."""
    found = defaultdict(list)
    for step in document["steps"]:
        for pane in step.get("expect", []):
            found[pane["key"], tuple(pane["window"])].append(pane["values"])
    return found


@pytest.mark.parametrize(
    "window", ["fixed", "sliding", "unaligned", "global", "fixed-by-clock", "sliding-by-clock"]
)
def test_the_deltas_of_a_window_add_up_to_its_value(window: str) -> None:
    named = {d["name"]: d for d in documents(TRANSCRIPTS / f"woven-{window}.yaml")}
    pairs = [
        (named[name.replace(", delta,", ", value,")], d)
        for name, d in named.items()
        if d["output"] == "delta"
    ]
    assert pairs
    for whole, parts in pairs:
        shown = panes(parts)
        for place, values in panes(whole).items():
            assert sorted(value for delta in shown[place] for value in delta) == sorted(values[-1]), whole[
                "name"
            ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_event_is_shown_or_dropped_where_all_windows_are_shown(path: Path) -> None:
    for document in documents(path):
        if document["trigger"] != "default":
            continue
        known = {event["value"] for step in document["steps"] for event in step.get("events", [])}
        shown = {value for values in panes(document).values() for pane in values for value in pane}
        dropped = {event["value"] for step in document["steps"] for event in step.get("expect_dropped", [])}
        assert shown | dropped == known, document["name"]
