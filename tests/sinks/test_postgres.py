"""Results in a real PostgreSQL: the newest pane of each key and window, however often it is written."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
import pytest

import millrace as mr
from millrace import triggers, windows
from millrace.errors import DefinitionError
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
    with pytest.raises(psycopg.OperationalError):
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
    """A NUL in a text, a row without a pane and an unreadable record, among good rows:
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
    log.append(TOTALS.name, encode(TOTALS, rows.select("sensor", "value", "event_time")[1:2]))
    log.append(TOTALS.name, OutgoingRecords(pa.array([b"\xff unreadable"])))
    into = PostgresTable(server, TOTALS, "totals")
    assert follow(log, into) == before + 5
    assert follow(log, into) == 0
    assert len(held(database)) == good + 1
    aside = [reason for (reason,) in database.execute("SELECT reason FROM millrace_set_aside").fetchall()]
    assert len(aside) == 4
    assert sum("has no pane" in reason for reason in aside) == 1
