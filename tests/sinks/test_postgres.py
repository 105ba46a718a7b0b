"""Results in a real PostgreSQL: the newest pane of each key and window, however often it is written."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from millrace.errors import DefinitionError
from millrace.log import Log, open_log
from millrace.log.codecs import encode
from millrace.runners.local import run_local
from millrace.sinks import postgres as sink
from millrace.sinks.postgres import PostgresTable, follow
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
    query = "SELECT sensor, window_start, window_end, value FROM totals WHERE NOT withdrawn ORDER BY window_end, window_start, sensor"
    return database.execute(query).fetchall()


def run(log: Log, tmp_path: Path, start: int, count: int) -> None:
    log.append(READINGS.name, encode(READINGS, readings(start, count)))
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)


def test_the_table_holds_the_last_word_on_each_window(server: str, database: psycopg.Connection[Any], log: Log, tmp_path: Path) -> None:
    into = PostgresTable(server, TOTALS, "totals")
    for start in (0, 300):
        run(log, tmp_path, start, 300)
        assert follow(log, into) > 0
        assert held(database) == last_words(shown(log))
    assert follow(log, into) == 0
    before = held(database)
    database.execute(f"DELETE FROM {sink.OFFSETS}")
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
    assert database.execute(f"SELECT sum(next) FROM {sink.OFFSETS}").fetchone() == (14,)
    follow(log, into)
    assert held(database) == last_words(shown(log))


def test_an_older_pane_does_not_take_the_place_of_a_newer_one(server: str, database: psycopg.Connection[Any], log: Log) -> None:
    log.ensure(TOTALS)
    pane = {"sensor": "s", "event_time": 9, "window_start": 0, "window_end": 10, "settled_index": 0, "timing": "late", "final": False}
    rows = [(1, 5, "+"), (0, 3, "+"), (2, 5, "-"), (1, 4, "+")]
    for index, value, op in rows:
        log.append(TOTALS.name, encode(TOTALS, pl.DataFrame([{**pane, "value": value, "index": index, "op": op}]), ingestion_time=1))
        follow(log, PostgresTable(server, TOTALS, "totals"))
    assert database.execute("SELECT value, index, withdrawn FROM totals").fetchall() == [(5, 2, True)]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(DefinitionError, match="use small letters"):
        PostgresTable("", TOTALS, "totals; DROP TABLE x")
    keyless = type(TOTALS)("analytics.totals", Total)
    with pytest.raises(DefinitionError, match="has no key"):
        PostgresTable("", keyless, "totals")
    with pytest.raises(DefinitionError, match="is no field of Total"):
        PostgresTable("", keyless, "totals", ("cell",))
