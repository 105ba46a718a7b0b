"""The picture holds what the run did: as many events, panes, windows and steps of the watermark."""

import re
from xml.etree import ElementTree as ET

import pytest

from devtools.timeline.games import GAME, scores, totals
from millrace import triggers, windows
from millrace.devtools.timeline import record, to_svg
from millrace.devtools.timeline.seen import Timeline

SVG = "{http://www.w3.org/2000/svg}"

SLIDING = totals(windows.sliding("10s", every="3s"), accumulation="retracting")
RUNS = {
    "fixed": record(totals(), GAME),
    "one key": record(totals(), GAME, key="red"),
    "sliding": record(SLIDING, GAME, key="red"),
    "a part": record(SLIDING, GAME, since="5s", until="12s"),
    "one event": record(totals(), scores(("red", 1, 5, 5))),
    "real dates": record(
        totals(),
        scores(
            ("red", 1, 1_700_000_000_000, 1_700_000_000_200), ("red", 1, 1_700_000_090_000, 1_700_000_091_000)
        ),
    ),
    "early": record(totals(trigger=triggers.at_watermark(early=triggers.every("2s"))), GAME, key="red"),
    "sessions": record(totals(windows.sessions("4s")), GAME, key="red"),
    "everything": record(
        totals(windows.global_window(), lateness=0, trigger=triggers.repeatedly(triggers.after_count(2))),
        GAME,
    ),
    "markup": record(totals(), scores(("<&>", 1, 5, 5))),
}


def drawn(timeline: Timeline) -> ET.Element:
    return ET.fromstring(to_svg(timeline))


def inside(svg: ET.Element, part: str, kind: str) -> list[ET.Element]:
    return [
        element
        for element in svg.findall(f"{SVG}g[@class='{part}']/*")
        if kind in (element.get("class") or "").split()
    ]


@pytest.mark.parametrize("timeline", RUNS.values(), ids=RUNS.keys())
def test_there_is_a_mark_for_everything_that_happened(timeline: Timeline) -> None:
    svg = drawn(timeline)
    assert len(inside(svg, "dots", "event")) == len(timeline.dots)
    assert len(inside(svg, "dots", "refused")) == sum(dot.fate == "refused" for dot in timeline.dots)
    assert len(inside(svg, "windows", "window")) == len(timeline.windows)
    places = {(pane.at, pane.window, pane.timing) for pane in timeline.panes}
    assert len(inside(svg, "panes", "pane")) == len(places)
    for timing in ("early", "on_time", "late"):
        assert len(inside(svg, "panes", timing)) == len({place for place in places if place[2] == timing})


@pytest.mark.parametrize("timeline", RUNS.values(), ids=RUNS.keys())
def test_the_watermark_has_as_many_steps_as_in_the_run(timeline: Timeline) -> None:
    (path,) = inside(drawn(timeline), "watermark", "watermark")
    assert len(re.findall(r"[MH]", path.get("d") or "")) == len(timeline.steps)


@pytest.mark.parametrize("timeline", RUNS.values(), ids=RUNS.keys())
def test_everything_is_within_the_picture(timeline: Timeline) -> None:
    svg = drawn(timeline)
    _, _, width, height = map(float, (svg.get("viewBox") or "").split())
    for element in svg.iter():
        across = [float(element.get(name, 0)) for name in ("x", "x1", "x2", "cx")]
        along = [float(element.get(name, 0)) for name in ("y", "y1", "y2", "cy")]
        assert all(0 <= x <= width for x in across), ET.tostring(element)
        assert all(0 <= y <= height for y in along), ET.tostring(element)


def test_windows_by_the_clock_lie_across_and_have_no_watermark() -> None:
    timeline = record(totals(windows.processing_time(windows.fixed("10s")), lateness=0), GAME, key="red")
    svg = drawn(timeline)
    assert timeline.is_processing_time
    assert {dot.fate for dot in timeline.dots} == {"taken"}
    bands = inside(svg, "windows", "window")
    assert len(bands) == len(timeline.windows) == 3
    assert len({band.get("width") for band in bands}) == 1
    assert inside(svg, "watermark", "watermark") == []
    assert len(inside(svg, "panes", "pane")) == 3


def test_values_stand_at_their_panes() -> None:
    (first, second, third) = inside(drawn(RUNS["one key"]), "panes", "pane")
    assert [element.findtext(f"{SVG}text") for element in (first, second, third)] == ["12", "16", "10"]
    assert second.findtext(f"{SVG}title") == "late at 15s, window [0s, 10s): 16 (pane 1)"
    assert third.findtext(f"{SVG}title") == "on time at the end, window [10s, 20s): 10 (pane 0, final)"


def test_whoever_cannot_see_it_is_told() -> None:
    svg = drawn(RUNS["one key"])
    assert svg.get("role") == "img"
    assert svg.findtext(f"{SVG}title") == "totals → analytics.totals, red"
    assert (
        "6 events, 1 of them behind the watermark and 1 refused; the watermark moves 5 times; 2 windows"
        in str(svg.findtext(f"{SVG}desc"))
    )


def test_dark_readers_get_dark_colours() -> None:
    assert "prefers-color-scheme: dark" in str(drawn(RUNS["fixed"]).findtext(f"{SVG}style"))


def test_the_same_run_gives_the_same_picture() -> None:
    assert to_svg(record(totals(), GAME)) == to_svg(record(totals(), GAME))
