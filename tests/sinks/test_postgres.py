"""Results in a real PostgreSQL: the newest pane of each key and window, however often it is written."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
import pytest

import millrace as mr
from millrace import triggers, windows
from millrace.cli import main
from millrace.errors import DefinitionError, SinkFailed
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import encode
from millrace.runners.local import run_local
from millrace.sinks import postgres as sink
from millrace.sinks.postgres import PostgresTable, follow
from millrace.testing.script import Script
from runners.local_child import READINGS, TOTALS, Total, settings, totals
from runners.test_local import last_words, readings, shown
from sinks import postgres

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="millrace-pg-") as folder:
        Path(folder).chmod(0o755)
        with postgres.running(Path(folder) / "server") as url:
            yield url


@pytest.fixture
def database(server: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server, autocommit=True) as connection:
        yield connection
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(READINGS)
    yield log
    log.close()


def held(database: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    query = (
        "SELECT sensor, window_start, window_end, value FROM totals WHERE NOT withdrawn ORDER BY "
        "window_end, window_start, sensor"
    )
    return database.execute(query).fetchall()


def run(log: Log, tmp_path: Path, start: int, count: int) -> None:
    log.append(READINGS.name, encode(READINGS, readings(start, count)))
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)


def test_the_table_holds_the_last_word_on_each_window(
    server: str, database: psycopg.Connection[Any], log: Log, tmp_path: Path
) -> None:
    into = PostgresTable(server, TOTALS, "totals")
    for start in (0, 300):
        run(log, tmp_path, start, 300)
        assert follow(log, into) > 0
        assert held(database) == last_words(shown(log))
    assert follow(log, into) == 0
    before = held(database)
    database.execute(f"DELETE FROM {sink.OFFSETS_TABLE}")
    assert follow(log, into) == len(shown(log)), "all of it once more"
    assert held(database) == before


def test_a_transaction_that_fails_leaves_nothing_and_is_done_again(
    server: str, database: psycopg.Connection[Any], log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(log, tmp_path, 0, 300)
    into = PostgresTable(server, TOTALS, "totals")
    monkeypatch.setattr(sink, "PIECE", 7)
    calls = 0
    real = sink._reached

    def failing(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise psycopg.OperationalError("the line is cut")
        real(*given)

    monkeypatch.setattr(sink, "_reached", failing)
    with pytest.raises(SinkFailed, match="the line is cut"):
        follow(log, into)
    assert database.execute(f"SELECT sum(next) FROM {sink.OFFSETS_TABLE}").fetchone() == (14,)
    follow(log, into)
    assert held(database) == last_words(shown(log))


def test_an_older_pane_does_not_take_the_place_of_a_newer_one(
    server: str, database: psycopg.Connection[Any], log: Log
) -> None:
    log.ensure(TOTALS)
    pane = {
        "sensor": "s",
        "event_time": 9,
        "window_start": 0,
        "window_end": 10,
        "settled_index": 0,
        "timing": "late",
        "final": False,
    }
    rows = [(1, 5, "+"), (0, 3, "+"), (2, 5, "-"), (1, 4, "+")]
    for index, value, op in rows:
        log.append(
            TOTALS.name,
            encode(
                TOTALS, pl.DataFrame([{**pane, "value": value, "index": index, "op": op}]), ingestion_time=1
            ),
        )
        follow(log, PostgresTable(server, TOTALS, "totals"))
    assert database.execute("SELECT value, index, withdrawn FROM totals").fetchall() == [(5, 2, True)]


@pytest.mark.parametrize("accumulation", ["accumulating", "retracting"])
def test_the_table_leaves_out_sessions_that_have_grown_or_merged(
    server: str, database: psycopg.Connection[Any], log: Log, accumulation: Any
) -> None:
    log.ensure(TOTALS)
    rows = mr.read(READINGS).window(
        windows.sessions(10), trigger=triggers.repeatedly(triggers.after_count(1)), accumulation=accumulation
    )
    script = Script(mr.Job("totals", rows.group_by("sensor").sum("value").write(TOTALS)))
    for at in (0, 15, 1, 2, 8, 30, 60, 22):
        script.events({"sensor": "s", "value": 1, "event_time": at})
        log.append(TOTALS.name, encode(TOTALS, pl.DataFrame(script.panes()), ingestion_time=1))
        follow(log, PostgresTable(server, TOTALS, "totals"))
    assert held(database) == [("s", 0, 40, 7), ("s", 60, 70, 1)]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(DefinitionError, match="use small letters"):
        PostgresTable("", TOTALS, "totals; DROP TABLE x")
    keyless = type(TOTALS)("analytics.totals", Total)
    with pytest.raises(DefinitionError, match="has no key"):
        PostgresTable("", keyless, "totals")
    with pytest.raises(DefinitionError, match="is not a field of Total"):
        PostgresTable("", keyless, "totals", ("cell",))


def test_rows_that_the_table_cannot_take_are_set_aside_and_the_others_are_written(
    server: str, database: psycopg.Connection[Any], log: Log, tmp_path: Path
) -> None:
    """A NUL in a text and an unreadable record, among good rows:
    none of them stops the sink.
    """
    run(log, tmp_path, 0, 300)
    good = len(last_words(shown(log)))
    pane = {
        "window_start": 0,
        "window_end": 10,
        "index": 0,
        "settled_index": 0,
        "timing": "on_time",
        "final": True,
        "op": "+",
    }
    rows = pl.DataFrame(
        [{"sensor": name, "value": 1, "event_time": 9, **pane} for name in ("a\0b", "fine", "\0")]
    )
    before = sum(log.end_offsets(TOTALS.name).values())
    log.append(TOTALS.name, encode(TOTALS, rows))
    log.append(TOTALS.name, OutgoingRecords(pa.array([b"\xff unreadable"])))
    into = PostgresTable(server, TOTALS, "totals")
    assert follow(log, into) == before + 4
    assert follow(log, into) == 0
    assert len(held(database)) == good + 1
    aside = [reason for (reason,) in database.execute("SELECT reason FROM millrace_set_aside").fetchall()]
    assert len(aside) == 3


@dataclass
class Stop:
    vehicle: str
    stop: str


STOPS = mr.Topic("input.stops", Stop, key="vehicle")


def append_stops(log: Log, *rows: tuple[str, str, int]) -> None:
    frame = pl.DataFrame(rows, ["vehicle", "stop", "event_time"], orient="row")
    log.append(STOPS.name, encode(STOPS, frame.with_columns(ingestion_time=pl.col("event_time"))))


def test_results_without_windows_keep_the_newest_row_of_each_key(
    server: str, database: psycopg.Connection[Any], log: Log
) -> None:
    log.ensure(STOPS)
    table = PostgresTable(server, STOPS)
    query = "SELECT vehicle, stop, event_time, window_end, final, withdrawn FROM input_stops ORDER BY vehicle"
    append_stops(log, ("a", "old", 1), ("a", "new", 7), ("b", "only", 3), ("a", "between", 5))
    assert follow(log, table) == 4
    newest = [("a", "new", 7, None, True, False), ("b", "only", 3, None, True, False)]
    assert database.execute(query).fetchall() == newest
    append_stops(log, ("a", "earlier", 6), ("b", "later", 4))
    assert follow(log, table) == 2
    newest[1] = ("b", "later", 4, None, True, False)
    assert database.execute(query).fetchall() == newest
    database.execute(f"DELETE FROM {sink.OFFSETS_TABLE}")
    assert follow(log, table) == 6, "all of it once more"
    assert database.execute(query).fetchall() == newest
    assert database.execute(f"SELECT count(*) FROM {sink.SET_ASIDE_TABLE}").fetchall() == [(0,)]


def test_an_aggregation_without_a_window_is_one_row_per_key(
    server: str, database: psycopg.Connection[Any], log: Log, tmp_path: Path
) -> None:
    log.ensure(STOPS)
    counts = mr.read(STOPS).group_by("vehicle").count().write("analytics.stops")
    for at in (1, 2, 3):
        append_stops(log, ("a", "x", at), ("b", "x", at))
        run_local(
            [mr.Job("stops", counts)],
            settings=settings(log.url, str(tmp_path / "state")),
            until_caught_up=True,
        )
        follow(log.url, PostgresTable(server, counts, key="vehicle"))
    query = "SELECT vehicle, count FROM analytics_stops WHERE NOT withdrawn ORDER BY vehicle"
    assert database.execute(query).fetchall() == [("a", 3), ("b", 3)]


def test_a_table_of_an_earlier_version_takes_results_without_windows(
    server: str, database: psycopg.Connection[Any], log: Log
) -> None:
    log.ensure(STOPS)
    append_stops(log, ("a", "x", 1))
    follow(log, PostgresTable(server, STOPS))
    database.execute("DELETE FROM input_stops")
    for column in ("window_start", "window_end", "index"):
        database.execute(f'ALTER TABLE input_stops ALTER COLUMN "{column}" SET NOT NULL')
    append_stops(log, ("a", "y", 2))
    assert follow(log, PostgresTable(server, STOPS)) == 1
    assert database.execute("SELECT stop FROM input_stops").fetchall() == [("y",)]


def test_it_pauses_while_it_waits(server: str, database: psycopg.Connection[Any], log: Log) -> None:
    log.ensure(STOPS)
    calls: list[float] = []

    def wait() -> bool:
        calls.append(time.monotonic())
        if len(calls) == 2:
            append_stops(log, ("a", "x", 1))
        return len(calls) < 4

    assert follow(log.url, PostgresTable(server, STOPS), wait=wait) == 1
    assert calls[1] - calls[0] >= 0.04


def test_what_postgresql_refuses_is_one_error_without_the_password(
    server: str, database: psycopg.Connection[Any], log: Log
) -> None:
    log.ensure(STOPS)
    with pytest.raises(SinkFailed, match=r"cannot be written .*check the address") as refused:
        follow(log, PostgresTable("postgresql://me:hunter2@127.0.0.1:1/shop", STOPS))
    with pytest.raises(SinkFailed, match="cannot be written"):
        follow(log, PostgresTable("postgresql//me:hunter2@db", STOPS))
    assert "hunter2" not in str(refused.value)
    database.execute("CREATE TABLE input_stops (vehicle text)")
    with pytest.raises(SinkFailed, match=r"table 'input_stops' .*column .window_start."):
        follow(log, PostgresTable(server, STOPS))


def test_the_command_fills_a_table(
    server: str,
    database: psycopg.Connection[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stops_program.py").write_text(
        "from dataclasses import dataclass\nimport millrace as mr\n\n@dataclass\nclass Stop:\n"
        "    vehicle: str\n    stop: str\n\nSTOPS = mr.Topic('input.stops', Stop, key='vehicle')\n"
    )
    (tmp_path / "stops.csv").write_text("vehicle,stop,at\na,x,1000\n")
    source = ["ingest", "files", "stops.csv", "--to", "stops_program.py:STOPS", "--time", "at"]
    assert main.main(source) == 0
    command = [
        "sink",
        "postgres",
        server,
        "--topic",
        "stops_program.py:STOPS",
        "--table",
        "held",
        "--no-wait",
    ]
    assert main.main(command) == 0
    assert capsys.readouterr().out == "input.stops: 1 records are in table held\n"
    assert database.execute("SELECT vehicle, stop FROM held").fetchall() == [("a", "x")]
