"""What can be asked over HTTP."""

import json
from pathlib import Path

import pytest

from millrace.durations import END_OF_STREAM
from millrace.log import Log
from millrace.log.status import LaggingPartition, Status, status_topic
from millrace.serve import server as server_module
from millrace.transit.topics import CELL_COUNTS
from serve.conftest import (
    CENTRE,
    ESPOO,
    HARBOUR,
    LAYER,
    T0,
    TAMPERE,
    Running,
    named,
    serving,
    wait_until,
    write,
)

VIEW = f"/api/views/{LAYER}"


def test_a_view_shows_the_newest_result_of_each_cell(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 3})
    wait_until(lambda: bool(running.cells()))
    shown = running.json(VIEW)
    (cell,) = shown.pop("cells")
    assert shown == {"view": LAYER, "time": T0, "window_ms": 30_000, "every_ms": 5_000}
    assert (round(cell.pop("latitude"), 2), round(cell.pop("longitude"), 2)) == (60.17, 24.94)
    assert cell == {"cell": named(CENTRE), "count": 3, "window_start": T0 - 30_000, "window_end": T0}


def test_expiry_withdrawal_and_late_panes_show(log: Log, running: Running) -> None:
    write(log, 0, {TAMPERE: 8})
    write(log, 5, {CENTRE: 4, HARBOUR: 2, ESPOO: 1})
    write(log, 5, {HARBOUR: 2}, op="-", timing="late")
    write(log, 0, {CENTRE: 9}, timing="late")
    wait_until(lambda: running.cells() == {named(CENTRE): 4, named(ESPOO): 1})
    write(log, 15, {ESPOO: 6})
    wait_until(lambda: running.cells() == {named(ESPOO): 6})


def test_a_box_and_a_number_choose_among_them(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 3, HARBOUR: 5, ESPOO: 7, TAMPERE: 2})
    wait_until(lambda: len(running.cells()) == 4)
    assert running.cells("?box=24.9,60.1,25.0,60.2") == {named(CENTRE): 3, named(HARBOUR): 5}
    assert list(running.cells("?top=2").items()) == [(named(ESPOO), 7), (named(HARBOUR), 5)]
    assert running.cells("?top=1&box=24.9,60.1,25.0,60.2") == {named(HARBOUR): 5}
    assert running.cells("?box=0,0,1,1") == {}
    assert running.cells(f"?cell={named(ESPOO)}&cell={named(CENTRE)}&cell=nowhere") == {
        named(ESPOO): 7,
        named(CENTRE): 3,
    }


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("box=24,60,25", "box=24,60,25 is not a box; give four numbers of degrees: west,south,east,north"),
        ("box=24,sixty,25,61", "box=24,sixty,25,61 is not a box"),
        ("box=24,61,25,60", "south=61 and north=60"),
        ("box=24,60,25,nan", "is not a box"),
        ("top=0", "top=0 is not a number of results; use a whole number from 1"),
        ("top=ten", "top=ten is not a number"),
        ("limit=3", "limit=3 is not understood; use box="),
    ],
)
def test_a_question_that_cannot_be_names_what_was_said_and_what_would_do(
    running: Running, query: str, message: str
) -> None:
    response, body = running.ask(f"{VIEW}?{query}")
    assert (response.status, response.headers["content-type"]) == (400, "application/json")
    assert message in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/views/trains", "there is no view 'trains'; there are vehicle-distribution"),
        ("/api/nothing", "there is no /api/nothing"),
    ],
)
def test_what_is_not_there_is_said_as_json(running: Running, path: str, message: str) -> None:
    response, body = running.ask(path)
    assert response.status == 404
    assert message in json.loads(body)["error"]


def test_views_are_listed(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 3})
    wait_until(lambda: bool(running.cells()))
    (about,) = running.json("/api/views")["views"]
    assert (about["name"], about["title"], about["topic"], about["time"], about["results"]) == (
        LAYER,
        "Vehicles",
        CELL_COUNTS.name,
        T0,
        1,
    )


def status(at: int, batch: int, **changes: object) -> Status:
    message: dict[str, object] = {
        "at": at, "batch": batch, "jobs": [LAYER], "read": 500, "results": {CELL_COUNTS.name: 40},
        "lag": {"input.vehicle-positions": 12},
        "watermarks": {f"{LAYER}/a": T0 + 9, f"{LAYER}/b": T0 + 7}, "took_ms": 80,
        "latency": {CELL_COUNTS.name: 1_100 + batch},
        "reads": {LAYER: ["input.vehicle-positions"]}, "writes": {LAYER: [CELL_COUNTS.name]},
    }  # fmt: skip
    return Status(**{**message, **changes})  # type: ignore[arg-type]


def test_jobs_are_as_their_runs_say(log: Log, running: Running) -> None:
    assert running.json("/api/jobs") == {"jobs": []}
    now = running.state.clock()
    log.ensure_raw(status_topic("night"))
    for batch in range(5):
        held = {f"{LAYER}/a": LaggingPartition("input.vehicle-positions", 3, 12_000)}
        log.append(
            status_topic("night"),
            status(now - 2_000 + batch * 500, batch, holds=held, quarantined={LAYER: "why"}).to_records(),
        )
    wait_until(lambda: len(running.json("/api/jobs")["jobs"]) == 1)
    (job,) = running.json("/api/jobs")["jobs"]
    assert job == {
        "job": LAYER, "run": "night", "writes": [CELL_COUNTS.name], "watermark": T0 + 7, "lag_events": 12,
        "events_per_s": 1000.0, "results_per_s": 80.0,
        "latency_ms": 1_102, "batch": 4, "batch_ms": 80, "last_batch_at": now, "quarantined": "why",
        "held_back": {"topic": "input.vehicle-positions", "partition": 3, "behind_ms": 12_000},
        "ended": False,
    }  # fmt: skip
    text = running.ask("/metrics")[1].decode()
    assert f'millrace_job_lag_events{{job="{LAYER}",run="night"}} 12.0' in text
    assert "process_cpu_seconds_total" in text


def test_a_job_whose_topics_have_ended_has_ended(running: Running) -> None:
    now = running.state.clock()
    end = {"watermarks": {f"{LAYER}/a": END_OF_STREAM}, "ended": ["input.vehicle-positions"]}
    running.state.jobs.add("night", [status(now, 1, **end)])
    (job,) = running.json("/api/jobs")["jobs"]
    assert (job["ended"], job["watermark"]) == (True, None)
    assert not status(now, 1, ended=["other"]).has_ended(LAYER)


def test_the_rate_of_a_run_that_has_stopped_is_nought(running: Running) -> None:
    now = running.state.clock()
    running.state.jobs.add("old", [status(now - 60_000, 0), status(now - 59_000, 1)])
    (job,) = running.json("/api/jobs")["jobs"]
    assert (job["events_per_s"], job["last_batch_at"]) == (0.0, now - 59_000)


def test_viewers_are_told_of_the_jobs_once_a_second(running: Running) -> None:
    running.state.jobs.add("run", [status(running.state.clock(), 0)])
    viewer = running.watch()
    viewer.take_until(lambda: len(viewer.statuses) >= 3)
    viewer.close()
    assert viewer.statuses[0]["jobs"][0]["job"] == LAYER
    assert viewer.statuses[2]["now"] - viewer.statuses[1]["now"] > 500


def test_figures_are_prometheus_text(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 3, ESPOO: 1})
    wait_until(lambda: running.figure("millrace_serve_view_results{") == 2)
    response, _ = running.ask("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert running.figure("millrace_serve_view_timestamp_seconds") == T0 / 1000
    assert running.figure("millrace_serve_view_results_read_total") == 2


def test_healthz_says_what_is_read(running: Running) -> None:
    response, body = running.ask("/healthz")
    assert (response.status, json.loads(body)["status"], json.loads(body)["missing_topics"]) == (
        200,
        "ok",
        [],
    )
    assert response.headers["cache-control"] == "no-store"


# The page


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>millrace</title>")
    (folder / "assets" / "index-3f2a.js").write_text("export {}")
    (folder / "fonts.pbf").write_bytes(b"\x0a\x00")
    (tmp_path / "secret").write_text("no")
    monkeypatch.setattr(server_module, "built_pages", lambda: folder)
    return folder


def test_the_page_is_asked_for_anew_and_its_parts_are_kept(page: Path, url: str) -> None:
    with serving(url) as running:
        index, body = running.ask("/")
        assert (index.status, index.headers["content-type"], index.headers["cache-control"]) == (
            200,
            "text/html; charset=utf-8",
            "no-cache",
        )
        assert b"<title>millrace</title>" in body
        again, _ = running.ask("/", headers={"if-none-match": index.headers["etag"]})
        assert again.status == 304
        script, _ = running.ask("/assets/index-3f2a.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
        font, _ = running.ask("/fonts.pbf")
        assert font.headers["content-type"] == "application/x-protobuf"
        assert running.ask("/nothing.js")[0].status == 404
        assert running.ask("/../secret")[0].status == 404
        assert running.ask("/", method="POST")[0].status == 405


def test_a_page_that_is_not_built_says_how_to_build_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "built_pages", lambda: None)
    with serving(url) as running:
        response, body = running.ask("/")
        assert (response.status, b"make web" in body) == (503, True)
