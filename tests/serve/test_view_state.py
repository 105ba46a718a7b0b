"""The state of a view: which results it shows, and which tiles change, with late,
withdrawn and outdated results.
"""

from dataclasses import replace

import polars as pl
import pytest

from bench import markers
from bench.city_flow import final_stop_distribution
from bench.markers import MARKER_AREA, MARKERS
from millrace.runners.replay import replay
from millrace.serve.view_state import ViewState
from millrace.transit.jobs import BUILT_IN
from millrace.transit.topics import ARRIVALS, POSITIONS
from millrace.transit.views import VIEWS
from millrace.views import View
from serve.conftest import CENTRE, ESPOO, HARBOUR, T0, TAMPERE, cell_at, named, results


def applied(*frames: pl.DataFrame) -> ViewState:
    cells = ViewState(VIEWS[0])
    for frame in frames:
        cells.apply(frame)
    return cells


def shown(cells: ViewState) -> dict[str, int]:
    return dict(cells.snapshot().rows.select("cell", "count").rows())


def test_a_newer_window_replaces_an_older_one_with_all_its_cells() -> None:
    assert shown(applied(results(0, {CENTRE: 3, ESPOO: 1}), results(5, {CENTRE: 4}))) == {named(CENTRE): 4}


def test_a_late_pane_of_an_older_window_does_not_replace_a_newer_one() -> None:
    assert shown(applied(results(5, {CENTRE: 4}), results(0, {CENTRE: 9}, timing="late"))) == {
        named(CENTRE): 4
    }
    assert shown(applied(pl.concat([results(5, {CENTRE: 4}), results(0, {CENTRE: 9}, timing="late")]))) == {
        named(CENTRE): 4
    }


def test_a_late_pane_of_the_same_window_corrects_it() -> None:
    assert shown(applied(results(5, {CENTRE: 4}), results(5, {CENTRE: 5}, timing="late"))) == {
        named(CENTRE): 5
    }


def test_a_withdrawn_result_is_no_longer_shown_and_no_older_one_comes_back() -> None:
    cells = applied(results(5, {CENTRE: 4, ESPOO: 1}), results(5, {CENTRE: 4}, op="-"))
    assert shown(cells) == {named(ESPOO): 1}
    cells.apply(results(0, {CENTRE: 9}, timing="late"))
    assert shown(cells) == {named(ESPOO): 1}
    cells.apply(results(5, {CENTRE: 2}, timing="late"))
    assert shown(cells) == {named(CENTRE): 2, named(ESPOO): 1}


def test_the_withdrawal_of_an_older_window_leaves_the_newer_one() -> None:
    assert shown(applied(results(5, {CENTRE: 4}), results(0, {CENTRE: 9}, op="-"))) == {named(CENTRE): 4}


def test_of_a_session_that_grows_only_the_newest_is_shown() -> None:
    cells = applied(results(5, {CENTRE: 4}))
    cells.apply(results(5, {CENTRE: 4}, op="-", timing="late"))
    assert shown(cells) == {}
    cells.apply(results(7, {CENTRE: 6}))
    assert shown(cells) == {named(CENTRE): 6}
    at_once = pl.concat([results(7, {CENTRE: 6}, op="-"), results(9, {CENTRE: 7})])
    assert shown(applied(results(7, {CENTRE: 6}), at_once)) == {named(CENTRE): 7}


def test_a_result_that_is_out_of_date_when_it_comes_is_not_shown() -> None:
    cells = applied(results(60, {ESPOO: 1}))
    cells.take_changes()
    cells.apply(results(0, {CENTRE: 3}, timing="late"))
    assert (shown(cells), cells.take_changes()[1]) == ({named(ESPOO): 1}, set())


def view(name: str) -> View:
    return next(view for view in VIEWS if view.name == name)


def pane(end: int, *rows: dict[str, object]) -> pl.DataFrame:
    frame = results(end, dict.fromkeys(range(len(rows)), 0)).drop("geocell", "count")
    return pl.DataFrame(rows, schema_overrides={"geocell": pl.Int64, "to": pl.Int64}).hstack(frame)


def test_every_job_has_a_view() -> None:
    assert [view.name for view in VIEWS] == list(MARKERS)
    assert [view.topic for view in VIEWS] == [marker.output_topic for marker in MARKERS.values()]


def test_an_arc_leads_to_a_cell_by_its_name() -> None:
    cells = ViewState(view("flow-direction"))
    cells.apply(
        pane(0, {"geocell": CENTRE, "count": 3, "to": HARBOUR}, {"geocell": ESPOO, "count": 1, "to": CENTRE})
    )
    snapshot, changed = cells.take_changes()
    texts = " ".join(cells.encode(snapshot.rows, changed).values())
    assert f'["{named(CENTRE)}",3,"{named(HARBOUR)}"]' in texts
    assert f'["{named(ESPOO)}",1,"{named(CENTRE)}"]' in texts
    cells.apply(
        pane(5, {"geocell": CENTRE, "count": 3, "to": ESPOO}, {"geocell": ESPOO, "count": 1, "to": CENTRE})
    )
    assert len(cells.take_changes()[1]) == 1, "another way is a change"


def test_a_point_is_where_its_result_says() -> None:
    cells = ViewState(view("emergency-stop"))
    stop = {"speed_difference": 11.0, "latitude": 60.171, "longitude": 24.941}
    nowhere = {**stop, "vehicle_id": "x", "deceleration": -1.0}
    cells.apply(
        pane(
            0,
            {**stop, "vehicle_id": "12/7", "deceleration": -4.5},
            {**nowhere, "latitude": None},
            {**nowhere, "longitude": float("nan")},
            {**nowhere, "latitude": 91.0},
        )
    )
    snapshot, changed = cells.take_changes()
    [text] = cells.encode(snapshot.rows, changed).values()
    assert text == f'{{"tile":"12/2331/1185","cells":[["12/7",-4.5,11.0,24.941,60.171,{T0}]]}}'
    cells.apply(pane(599, {**stop, "vehicle_id": "12/8", "deceleration": -2.0}))
    assert set(cells.snapshot().rows["cell"]) == {"12/7", "12/8"}
    cells.apply(pane(606, {**stop, "vehicle_id": "12/9", "deceleration": -2.0}))
    assert set(cells.snapshot().rows["cell"]) == {"12/8", "12/9"}, (
        "a stop is shown for ten minutes and five seconds"
    )


def test_a_point_that_is_elsewhere_now_has_left_the_tile_where_it_was() -> None:
    cells = ViewState(view("emergency-stop"))
    stop = {
        "vehicle_id": "12/7",
        "deceleration": -4.5,
        "speed_difference": 11.0,
        "latitude": 60.171,
        "longitude": 24.941,
    }
    cells.apply(pane(0, stop))
    [before] = cells.take_changes()[1]
    cells.apply(pane(5, {**stop, "longitude": 24.942}))
    assert cells.take_changes()[1] == {before}, "a few steps further on"
    cells.apply(pane(10, {**stop, "latitude": 60.3}))
    snapshot, changed = cells.take_changes()
    assert changed == {before, *snapshot.rows["tile"]}
    assert sorted("12/7" in text for text in cells.encode(snapshot.rows, changed).values()) == [False, True]


def marker_results(job: str) -> pl.DataFrame:
    """What the job makes of the markers of all jobs."""
    sent: dict[str, list[pl.DataFrame]] = {POSITIONS.name: [], ARRIVALS.name: []}
    for marker in MARKERS.values():
        sent[marker.input_topic.name].append(marker.make_rows(T0, T0 + 60_000))
    events = {name: pl.concat(frames).sort("event_time") for name, frames in sent.items()}
    made = final_stop_distribution() if job == "final-stop-distribution" else BUILT_IN[job]()
    return replay(made, events)


@pytest.mark.parametrize("job", MARKERS)
def test_views_of_a_measurement_exclude_its_latency_markers(job: str) -> None:
    marked = marker_results(job)
    excluding = ViewState(next(view for view in markers.VIEWS if view.name == job))
    excluding.apply(marked)
    assert len(marked)
    assert excluding.snapshot().rows.is_empty()
    usual = ViewState(view(job))
    usual.apply(marked)
    assert not usual.snapshot().rows.is_empty(), "the usual views exclude nothing"


@pytest.mark.parametrize("views", [VIEWS, markers.VIEWS], ids=["usual", "measurement"])
def test_vehicles_near_the_latency_markers_are_shown(views: tuple[View, ...]) -> None:
    """A cell 200 m from that of a marker, and a vehicle that brakes at its very position."""
    near = cell_at(MARKER_AREA[0] + 0.004, MARKER_AREA[1])
    cells, points = (ViewState(next(view for view in views if view.name == name)) for name in NEAR_VIEWS)
    cells.apply(results(0, {near: 3}))
    assert shown(cells) == {named(near): 3}
    ship = {"latitude": MARKER_AREA[0], "longitude": MARKER_AREA[1], "vehicle_id": "12/7"}
    points.apply(pane(0, {**ship, "deceleration": -4.5, "speed_difference": 11.0}))
    assert points.snapshot().rows["cell"].to_list() == ["12/7"]


NEAR_VIEWS = ("vehicle-distribution", "emergency-stop")


def test_a_result_that_its_view_excludes_is_not_shown_and_does_not_move_its_time() -> None:
    cells = ViewState(replace(view("vehicle-distribution"), exclude=pl.col("count") > 5))
    cells.apply(results(0, {CENTRE: 5, ESPOO: 6}))
    assert shown(cells) == {named(CENTRE): 5}
    cells.apply(results(5, {ESPOO: 7}))
    assert (shown(cells), cells.time) == ({named(CENTRE): 5}, T0)


def test_only_tiles_whose_contents_differ_have_changed() -> None:
    cells = applied(results(0, {CENTRE: 3, HARBOUR: 1, ESPOO: 7}))
    first = cells.take_changes()[1]
    assert len(first) == 2
    cells.apply(results(5, {CENTRE: 3, HARBOUR: 1, ESPOO: 7}))
    assert cells.take_changes()[1] == set()
    cells.apply(results(10, {CENTRE: 3, HARBOUR: 2, ESPOO: 7}))
    assert len(cells.take_changes()[1]) == 1
    cells.apply(results(10, {ESPOO: 7}, op="-"))
    cells.apply(results(30, {TAMPERE: 1}))
    snapshot, changed = cells.take_changes()
    assert changed == first | set(snapshot.rows["tile"])
    texts = cells.encode(snapshot.rows, changed)
    assert sorted(text.count('"8') for text in texts.values()) == [0, 0, 1], "those that are empty say so"
