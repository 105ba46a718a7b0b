"""Which results a view shows: those of one window, or the newest of each key.
An oracle in plain Python reads the same results.
"""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace import watermarks, windows
from millrace.geo import geocell
from millrace.log import Log
from millrace.log.codecs.codec import decode, encode
from millrace.runners.replay import replay
from millrace.serve.reader import fill_view
from millrace.serve.view_state import ViewState
from millrace.transit.jobs import BUILT_IN
from millrace.transit.topics import CELL_COUNTS, POSITIONS
from millrace.transit.views import VIEWS
from millrace.values import event_values
from millrace.views import View
from serve.conftest import CENTRE, ESPOO, HARBOUR, T0, TAMPERE, Running, named, results, wait_until

PLACES = (CENTRE, HARBOUR, ESPOO, TAMPERE)
Rows = list[dict[str, Any]]


def holding(rows: Rows, key: str) -> dict[tuple[Any, int, int], tuple[int, dict[str, Any]]]:
    """By key and window: the last pane, where it is not a withdrawal, and its place in the log."""
    last = {
        (row[key], row["window_start"], row["window_end"]): (place, row) for place, row in enumerate(rows)
    }
    return {of: found for of, found in last.items() if found[1]["op"] == "+"}


def one_window(rows: Rows, key: str = "geocell") -> dict[Any, dict[str, Any]]:
    """The results of the newest window with a pane that is not early;
    before there is one, of the oldest window.
    """
    complete = [row["window_end"] for row in rows if row["timing"] != "early"]
    end = max(complete) if complete else min((row["window_end"] for row in rows), default=None)
    return {of: row for (of, _, window_end), (_, row) in holding(rows, key).items() if window_end == end}


def newest_of_each(rows: Rows, every: int, key: str) -> dict[Any, dict[str, Any]]:
    """Of each key the newest result that holds and has not expired."""
    time = max((row["window_end"] for row in rows), default=0)
    found: dict[Any, tuple[Any, dict[str, Any]]] = {}
    for (of, _, window_end), (place, row) in holding(rows, key).items():
        rank = (row["event_time"], window_end, place)
        if window_end >= time - every - 5_000 and (of not in found or rank > found[of][0]):
            found[of] = (rank, row)
    return {of: row for of, (_, row) in found.items()}


def counts(cells: ViewState, value: str = "count") -> dict[Any, int]:
    return dict(cells.snapshot().rows.select(cells.view.key, value).rows())


def test_a_total_is_of_one_window_and_not_of_three() -> None:
    """Vehicles that move from cell to cell: in each window there are two, wherever they are."""
    cells = ViewState(VIEWS[0])
    for step, places in enumerate([(CENTRE, ESPOO), (CENTRE, HARBOUR), (TAMPERE, HARBOUR)]):
        cells.apply(results(step * 5, dict.fromkeys(places, 1)))
        assert sum(counts(cells).values()) == 2
    assert set(cells.snapshot().rows["window_end"]) == {cells.snapshot().time}


def test_early_panes_of_a_newer_window_wait_until_it_is_complete() -> None:
    cells = ViewState(VIEWS[0])
    cells.apply(results(0, {CENTRE: 1}, timing="early"))
    assert counts(cells) == {CENTRE: 1}, "there is nothing better yet"
    cells.apply(results(5, {CENTRE: 9, HARBOUR: 9}, timing="early"))
    assert counts(cells) == {CENTRE: 1}
    cells.apply(results(0, {CENTRE: 2}))
    assert (counts(cells), cells.time) == ({CENTRE: 2}, T0)
    cells.apply(results(5, {CENTRE: 10}))
    assert counts(cells) == {CENTRE: 10, HARBOUR: 9}, (
        "an early pane after which nothing was new is the last word on its key"
    )


def test_a_window_whose_results_were_all_withdrawn_is_shown_as_empty() -> None:
    cells = ViewState(VIEWS[0])
    cells.apply(results(0, {CENTRE: 1}))
    cells.apply(results(5, {CENTRE: 1}))
    cells.apply(results(5, {CENTRE: 1}, op="-", timing="late"))
    assert (counts(cells), cells.time) == ({}, T0 + 5_000)


results_of_jobs = st.tuples(
    st.sampled_from(PLACES),
    st.integers(0, 6),
    st.integers(1, 5),
    st.sampled_from(["+", "+", "+", "-"]),
    st.sampled_from(["on_time", "early", "late"]),
)
batches = st.lists(st.lists(results_of_jobs, min_size=1, max_size=8), max_size=8)


@pytest.mark.parametrize("shows", ["window", "newest"])
@given(given_batches=batches)
def test_what_is_shown_is_what_the_log_says(shows: Any, given_batches: list[list[Any]]) -> None:
    view = View(
        "v", CELL_COUNTS, "V", window="30s", every="5s", key="geocell", values=("count",), shows=shows
    )
    cells, log = ViewState(view), list[dict[str, Any]]()
    seen: dict[int, str] = {}
    for batch in given_batches:
        frame = pl.concat(
            [
                results(window * 5, {cell: count}, op=op, timing=timing)
                for cell, window, count, op, timing in batch
            ]
        )
        cells.apply(frame)
        log += frame.to_dicts()
        expected = one_window(log) if shows == "window" else newest_of_each(log, 5_000, "geocell")
        assert counts(cells) == {cell: row["count"] for cell, row in expected.items()}
        snapshot, changed = cells.take_changes()
        seen |= cells.encode(snapshot.rows, changed)
        whole = cells.encode(snapshot.rows, set(seen))
        assert {tile: sorted(text) for tile, text in seen.items()} == {
            tile: sorted(text) for tile, text in whole.items()
        }


def moving(vehicles: int, seconds: int) -> pl.DataFrame:
    """Vehicles that report each second on their way north; every seventh report of some comes late,
    and some vehicles end early.
    """
    rows: Rows = [
        {
            "vehicle_id": f"v{n}",
            "event_time": T0 + second * 1000 + n,
            "latitude": 60.1 + 0.0004 * second * (n % 5),
            "longitude": 24.9 + 0.01 * n,
        }
        for second in range(seconds)
        for n in range(vehicles)
        if not (n % 4 == 0 and second > 40)
    ]
    late = sorted(rows, key=lambda row: row["event_time"] + (9_000 if row["event_time"] % 7 == 0 else 0))
    frame = pl.DataFrame(late).with_columns(ingestion_time="event_time")
    types = {**POSITIONS.schema, "event_time": pl.Int64(), "ingestion_time": pl.Int64()}
    filled = {
        name: pl.lit("" if types[name] == pl.String else 0)
        for name in event_values.row_decoder(POSITIONS.type).required
    }
    return frame.select(
        (pl.col(c) if c in frame.columns else filled.get(c, pl.lit(None))).cast(t).alias(c)
        for c, t in types.items()
    )


def test_the_api_a_viewer_and_a_restart_show_the_number_of_vehicles_that_the_log_has(
    log: Log, running: Running
) -> None:
    results_of_jobs = replay(BUILT_IN["vehicle-distribution"](), moving(40, 90))
    viewer = running.watch([-180.0, -85.0, 180.0, 85.0])
    ends = sorted(set(results_of_jobs["window_end"]))
    for end in ends[:: len(ends) // 6]:
        part = results_of_jobs.filter(pl.col("window_end") <= end)
        log.append(CELL_COUNTS.name, encode(CELL_COUNTS, part, ingestion_time=T0))
        records = [
            decode(CELL_COUNTS, p, log.read(CELL_COUNTS.name, p, 0, to), panes=True).rows
            for p, to in log.end_offsets(CELL_COUNTS.name).items()
        ]
        right = {named(cell): row["count"] for cell, row in one_window(pl.concat(records).to_dicts()).items()}
        assert sum(right.values()) > 25
        wait_until(lambda right=right: running.cells() == right)  # type: ignore[misc]
        viewer.take_until(lambda right=right: {c: n for c, n in viewer.cells.items() if n} == right)  # type: ignore[misc]
        (about,) = running.json("/api/views")["views"]
        assert (about["results"], about["problems"]) == (len(right), [])
        restarted = ViewState(VIEWS[0])
        fill_view(log, restarted)
        assert {named(cell): count for cell, count in counts(restarted).items()} == right
    viewer.close()


# Sessions: windows that do not end together, and that are withdrawn when they grow together


@dataclass
class Visit:
    geocell: int
    count: int


VISITS = mr.Topic("input.visits", Visit, key="geocell")
STAYS = mr.Topic("analytics.stays", Visit, key="geocell")
STAYS_VIEW = View(
    "stays", STAYS, "Stays", window="10s", every="60s", key="geocell", values=("count",), shows="newest"
)


def session(start: int, end: int, count: int, *, op: str = "+", cell: int = CENTRE) -> pl.DataFrame:
    begin, stop = (pl.lit(T0 + at * 1000) for at in (start, end))
    return results(end, {cell: count}, op=op).with_columns(window_start=begin, window_end=stop)


@pytest.mark.parametrize("withdrawn_first", [True, False])
def test_a_session_that_grew_replaces_the_withdrawn_ones_in_either_order(withdrawn_first: bool) -> None:
    cells = ViewState(STAYS_VIEW)
    cells.apply(pl.concat([session(0, 10, 1), session(12, 20, 2)]))
    assert counts(cells) == {CENTRE: 2}
    stale = [session(0, 10, 1, op="-"), session(12, 20, 2, op="-")]
    grown = [session(0, 20, 4)]
    cells.apply(pl.concat([*stale, *grown] if withdrawn_first else [*grown, *stale]))
    assert counts(cells) == {CENTRE: 4}


def test_when_the_newest_result_is_withdrawn_the_one_before_it_is_shown() -> None:
    cells = ViewState(STAYS_VIEW)
    cells.apply(pl.concat([session(0, 10, 1), session(12, 20, 2)]))
    cells.apply(session(12, 20, 2, op="-"))
    assert counts(cells) == {CENTRE: 1}
    cells.apply(session(0, 10, 1, op="-"))
    assert counts(cells) == {}


@pytest.mark.parametrize("accumulation", ["accumulating", "retracting"])
def test_a_job_of_sessions_is_shown_as_its_results_say(accumulation: Any) -> None:
    rows = mr.read(VISITS, watermark=watermarks.bounded("1s"))
    job = mr.Job(
        "stays",
        rows.window(windows.sessions("5s"), lateness="1m", accumulation=accumulation)
        .group_by("geocell")
        .count()
        .write(STAYS),
    )
    seconds = [
        (0, CENTRE),
        (1, ESPOO),
        (8, CENTRE),
        (20, ESPOO),
        (4, CENTRE),
        (30, CENTRE),
        (33, ESPOO),
        (25, ESPOO),
        (40, CENTRE),
        (60, ESPOO),
    ]
    events = pl.DataFrame(
        {
            "geocell": [cell for _, cell in seconds],
            "count": 1,
            "event_time": [T0 + at * 1000 for at, _ in seconds],
        }
    )
    results_of_jobs = replay(
        job, events.with_columns(pl.col("count").cast(pl.Int64), ingestion_time="event_time"), batch=1
    )
    assert set(results_of_jobs["op"]) == {"+", "-"}, "sessions that had been shown grew together"
    cells, log = ViewState(STAYS_VIEW), list[dict[str, Any]]()
    for row in range(len(results_of_jobs)):
        cells.apply(results_of_jobs[row : row + 1])
        log += results_of_jobs[row : row + 1].to_dicts()
        assert counts(cells) == {
            cell: each["count"] for cell, each in newest_of_each(log, 60_000, "geocell").items()
        }


# Results that cannot be shown as they are


def problems(view: View, frame: pl.DataFrame) -> tuple[int, list[str]]:
    cells = ViewState(view)
    cells.apply(frame)
    return len(cells.snapshot().rows), cells.omissions.texts


def test_what_is_not_a_cell_is_left_out_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    shown, [text] = problems(VIEWS[0], results(0, {5: 1, -7: 2, CENTRE: 3}))
    assert shown == 1
    assert text == (
        "2 results: geocell=-7 is not an H3 cell, so it is not shown; "
        "make 'geocell' with millrace.geo.geocell(), or declare kind='points'"
    )
    assert f"view vehicle-distribution: {text}" in caplog.text


def test_a_null_key_is_counted_and_its_window_is_complete_all_the_same() -> None:
    cells = ViewState(VIEWS[0])
    cells.apply(results(0, {CENTRE: 3}))
    cells.apply(results(5, {CENTRE: 3}).with_columns(geocell=pl.lit(None, pl.Int64)))
    assert (counts(cells), cells.time) == ({}, T0 + 5_000)
    assert cells.omissions.counts == {"no_key": 1}


def test_an_arc_with_one_bad_end_is_left_out_and_named() -> None:
    flow = next(view for view in VIEWS if view.kind == "arcs")
    bad = pl.DataFrame(
        {"geocell": [CENTRE, ESPOO, 7, HARBOUR], "to": [HARBOUR, 5, CENTRE, None], "count": [1, 2, 3, 4]}
    )
    pane = (
        results(0, dict.fromkeys(range(4), 0))
        .drop("geocell", "count")
        .with_columns(window_start=pl.lit(T0 - 300_000))
    )
    shown, texts = problems(flow, bad.hstack(pane))
    assert shown == 1
    assert [
        "geocell=7 is not an H3 cell" in texts[0],
        "2 results: to=None is not an H3 cell" in texts[1],
    ] == [True, True]


@pytest.mark.parametrize(
    ("latitude", "longitude"), [(None, 24.9), (60.1, None), (91.0, 24.9), (60.1, 181.0), (float("nan"), 24.9)]
)
def test_a_point_without_a_place_is_left_out_and_named(
    latitude: float | None, longitude: float | None
) -> None:
    stops = VIEWS[-1]
    row = {
        "vehicle_id": "12/7",
        "deceleration": -4.5,
        "speed_difference": 11.0,
        "latitude": latitude,
        "longitude": longitude,
    }
    frame = pl.DataFrame([row], schema_overrides={"latitude": pl.Float64, "longitude": pl.Float64})
    shown, [text] = problems(stops, frame.hstack(results(0, {0: 0}).drop("geocell", "count")))
    assert shown == 0
    assert text.startswith(
        f"1 result: latitude={latitude}, longitude={longitude} is not a place on Earth, so it is not shown"
    )


def test_windows_of_another_size_are_shown_and_named() -> None:
    shown, [text] = problems(VIEWS[0], session(0, 12, 3))
    assert shown == 1
    assert text.startswith("1 result: a window of 12,000 ms, where the view's windows are 30,000 ms long")
    assert text.endswith("or shows='newest' for sessions and matches")


def test_several_results_of_one_key_and_window_are_named() -> None:
    shown, [text] = problems(
        VIEWS[0], pl.concat([results(0, {CENTRE: 3, ESPOO: 1}), results(0, {CENTRE: 4})])
    )
    assert shown == 2
    assert text.startswith(
        f"2 results: geocell={CENTRE} has several results of one window, and only the last one is shown"
    )
    again = results(0, {CENTRE: 3})
    assert problems(VIEWS[0], pl.concat([again, again]))[1] == [], (
        "a result that was delivered twice is the same result"
    )


def test_cells_of_two_resolutions_in_one_view_are_named() -> None:
    coarse = int(
        pl.DataFrame({"latitude": [60.171], "longitude": [24.941]}).select(geocell(resolution=7)).item()
    )
    shown, [text] = problems(VIEWS[0], results(0, {coarse: 1, CENTRE: 1, ESPOO: 1}))
    assert shown == 3
    assert "cells of resolutions 7 and 9" in text


def test_rows_without_windows_are_shown_key_by_key_or_named() -> None:
    bare = results(0, {CENTRE: 3}).with_columns(
        pl.lit(None, pl.Int64).alias(c) for c in ("window_start", "window_end")
    )
    bare = bare.with_columns(pl.lit(None, pl.String).alias(c) for c in ("op", "timing"))
    assert problems(STAYS_VIEW, bare) == (1, [])
    shown, [text] = problems(VIEWS[0], bare)
    assert (shown, text.startswith("1 result: a result has no window, so it is not shown")) == (0, True)


def test_the_api_says_what_cannot_be_shown(log: Log, running: Running) -> None:
    log.append(CELL_COUNTS.name, encode(CELL_COUNTS, results(0, {5: 1, CENTRE: 3}), ingestion_time=T0))
    wait_until(lambda: running.cells() == {named(CENTRE): 3})
    (about,) = running.json("/api/views")["views"]
    assert about["problems"][0].startswith("1 result: geocell=5 is not an H3 cell")
    assert (
        running.figure('millrace_serve_view_problems_total{cause="not_a_cell",view="vehicle-distribution"}')
        == 1
    )
