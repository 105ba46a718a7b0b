"""Reading the log: from where it matters, through what goes wrong."""

from pathlib import Path

import pyarrow as pa
import pytest

from millrace.log import Log, OutgoingRecords, Records, open_log
from millrace.log.status import status_topic
from millrace.serve import reader as reader_module
from millrace.serve.reader import fill_view
from millrace.serve.view_state import ViewState
from millrace.transit.topics import CELL_COUNTS
from millrace.transit.views import VIEWS
from serve.conftest import CENTRE, ESPOO, HARBOUR, T0, named, serving, wait_until, write
from serve.test_app import status


class Counting:
    """A log that counts what is read of it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.records = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        self.records += end - start
        return self._log.read(topic, partition, start, end)


def test_a_server_that_starts_reads_back_as_far_as_results_are_shown(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "RECORDS_PER_READ", 10)
    write(log, 0, {ESPOO: 1})
    for window in range(200):
        write(log, window * 5, {CENTRE: window, HARBOUR: 1})
    write(log, 995, {ESPOO: 2})
    counting, cells = Counting(log), ViewState(VIEWS[0])
    places = fill_view(counting, cells)  # type: ignore[arg-type]
    assert dict(cells.snapshot().rows.select("cell", "count").rows()) == {
        named(CENTRE): 199,
        named(HARBOUR): 1,
        named(ESPOO): 2,
    }
    assert places == log.end_offsets(CELL_COUNTS.name)
    assert counting.records <= 60, (
        "of 402: ten seconds of windows, a window's length, and the rest of a piece"
    )


def test_results_of_which_some_are_late_are_read_back_whole(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "RECORDS_PER_READ", 4)
    for window in range(20):
        write(log, window * 5, {CENTRE: window})
    for window in range(10):
        write(log, window * 5, {CENTRE: 100 + window}, timing="late")
    cells = ViewState(VIEWS[0])
    fill_view(log, cells)
    assert dict(cells.snapshot().rows.select("cell", "count").rows()) == {named(CENTRE): 19}


def test_a_restarted_server_shows_the_same_and_goes_on(log: Log, url: str) -> None:
    with serving(url) as first:
        write(log, 0, {CENTRE: 3, ESPOO: 7})
        write(log, 5, {CENTRE: 4})
        wait_until(lambda: first.cells() == {named(CENTRE): 4})
    write(log, 5, {ESPOO: 8})
    with serving(url) as second:
        assert second.cells() == {named(CENTRE): 4, named(ESPOO): 8}, "filled before the first answer"
        write(log, 10, {CENTRE: 5})
        wait_until(lambda: second.cells() == {named(CENTRE): 5})


def test_a_log_and_a_topic_that_are_not_there_yet_are_waited_for(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'later' / 'log'}"
    with serving(url) as running:
        response, body = running.ask("/healthz")
        assert response.status == 503
        assert b"there is no log in" in body
        assert running.cells() == {}
        assert not (tmp_path / "later").exists(), "a reader makes no log"
        log = open_log(url)
        wait_until(lambda: running.json("/healthz").get("missing_topics") == [CELL_COUNTS.name])
        log.ensure(CELL_COUNTS)
        write(log, 0, {CENTRE: 3})
        wait_until(lambda: running.cells() == {named(CENTRE): 3})
        assert running.json("/healthz")["missing_topics"] == []
        log.close()


def test_results_that_cannot_be_read_are_passed_over_and_counted(log: Log, url: str) -> None:
    log.append(CELL_COUNTS.name, OutgoingRecords(pa.array([b"\xff\xff", b""], pa.binary())))
    with serving(url) as running:
        log.append(CELL_COUNTS.name, OutgoingRecords(pa.array([b"\xff\xff"], pa.binary())))
        write(log, 0, {CENTRE: 3})
        wait_until(lambda: running.cells() == {named(CENTRE): 3})
        assert running.figure("millrace_serve_undecodable_results_total") == 1, (
            "those from before the start are not counted"
        )


def test_a_server_that_starts_knows_the_last_minute_of_a_run(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.ensure_raw(status_topic("run"))
    for minute, batch in ((0, 0), (5, 1), (10, 2)):
        at = T0 + minute * 60_000
        log.append(status_topic("run"), status(at, batch).to_records(), now=at)
    with serving(url) as running:
        wait_until(lambda: bool(running.json("/api/jobs")["jobs"]))
        (job,) = running.json("/api/jobs")["jobs"]
        assert (job["batch"], job["latency_ms"]) == (2, 1_102)
