"""A topic of results as a table in PostgreSQL: the newest pane of each key and window, however often it is
written. Of results without windows it is the newest row of each key, by event time.

Rows and the position in the topic are written in one transaction, so crashes neither skip nor repeat records.
A pane only replaces earlier panes of its window, and a row without a window only earlier ones of its key, so
writing them twice changes nothing either.

Rows that the table cannot hold (NUL in a text, out of a column's range) and records that cannot
be decoded are set aside in the table `millrace_set_aside`, in the same transaction, with their place in the
topic and the reason.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import panes
from millrace.errors import ComponentMissing, DefinitionError, SinkFailed
from millrace.graph import find_jobs
from millrace.log import open_log
from millrace.log.codecs.codec import decode
from millrace.log.contract import Log, pause
from millrace.stream import Output
from millrace.topics import Topic
from millrace.values.columns import OFFSET

if TYPE_CHECKING:
    import psycopg

PIECE = 50_000
"""The most records per transaction."""

OFFSETS_TABLE = "millrace_offsets"
"""The table with the position of each topic that is read into a table."""
SET_ASIDE_TABLE = "millrace_set_aside"
"""The table of records that could not be written: their place in the topic, and the reason."""
_log = logging.getLogger("millrace.sinks")

_TYPES: dict[Any, str] = {
    pl.String: "text",
    pl.Boolean: "boolean",
    pl.Float32: "real",
    pl.Float64: "double precision",
    pl.Binary: "bytea",
    pl.Date: "date",
    pl.Time: "time",
    pl.Duration: "interval",
    pl.Enum: "text",
    pl.Categorical: "text",
}
_WINDOW_COLUMNS = ("window_start", "window_end", "index")
"""Null in results without windows."""
_PANE_COLUMNS = ("event_time", "window_start", "window_end", "index", "final", "withdrawn")
_TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


_PASSWORD = re.compile(r"(//[^:/@\s]+:|password\s*=\s*)[^@\s]+")


@dataclass(frozen=True, init=False)
class PostgresTable:
    """A table that follows a topic, which is also what a job writes, or named: `jobs.py:TOTALS`.

    The primary key is `key`, by default the topic's, and the window. The table is called as the topic is,
    with `_` for other characters than letters and digits.
    """

    url: str = field(repr=False)  # it may hold a password
    topic: Topic
    table: str
    key: tuple[str, ...]

    def __init__(
        self, url: str, topic: Topic | Output | str, table: str = "", key: str | Sequence[str] = ()
    ) -> None:
        """Refuses a wrong table name, and a topic without a key to tell its rows apart."""
        keys = (key,) if isinstance(key, str) else tuple(key)
        resolved = _resolve_topic(topic).typed()
        named = table or re.sub(r"[^a-z0-9_]", "_", resolved.name.lower())
        for name, value in {"url": url, "topic": resolved, "table": named, "key": keys}.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if not _TABLE_NAME.match(self.table):
            raise DefinitionError(
                f"table {self.table!r}: use small letters, digits and '_', and begin with a letter"
            )
        if not self.keys:
            raise DefinitionError(
                f"topic {self.topic.name!r} has no key, so the pane to replace could not be found; set "
                "key=('column', ...)"
            )
        for column in self.keys:
            if column not in self.topic.schema:
                raise DefinitionError(
                    f"key {column!r} is not a field of {self.topic.type.__name__}; it has "
                    f"{', '.join(self.topic.schema)}"
                )

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a result within a window."""
        return self.key or ((self.topic.key,) if self.topic.key else ())

    @property
    def identity(self) -> tuple[str, ...]:
        """The primary key."""
        return (*self.keys, "window_start", "window_end")

    @property
    def columns(self) -> list[str]:
        """All columns of the table."""
        return [*self.topic.schema, *_PANE_COLUMNS]


def follow(log: Log | str, target: PostgresTable, *, wait: bool | Callable[[], bool] = False) -> int:
    """Writes new records of the topic. Returns the number of records read when it has caught up.

    `log` is a log or its URL. With `wait` it then waits for more, until the program is stopped; or
    `wait` is called after each time that nothing was new, until it returns False.
    """
    with _opened(log) as source, _connect(target) as connection:
        _create_tables(connection, target)
        read = 0
        while True:
            new_records = _write_new_records(connection, target, source)
            read += new_records
            if new_records:
                continue
            if not (wait() if callable(wait) else wait):
                return read
            pause()


@contextmanager
def _opened(log: Log | str) -> Iterator[Log]:
    if not isinstance(log, str):
        yield log
        return
    with closing(open_log(log, create=False)) as opened:
        yield opened


def _write_new_records(connection: psycopg.Connection[Any], target: PostgresTable, log: Log) -> int:
    new_records = 0
    name = target.topic.name
    for partition, end in log.end_offsets(name).items():
        for start, stop in _pending_ranges(connection, target, log, partition, end):
            decoded = decode(target.topic, partition, log.read(name, partition, start, stop), panes=True)
            with connection.transaction():
                refused = [(row["offset"], row["reason"]) for row in decoded.dead.iter_rows(named=True)]
                refused += _write_valid_rows(connection, target, decoded.rows)
                _set_aside(connection, target, partition, refused)
                _reached(connection, target, partition, stop)
            new_records += stop - start
    return new_records


@contextmanager
def _connect(target: PostgresTable) -> Iterator[psycopg.Connection[Any]]:
    """A connection; what PostgreSQL refuses becomes an error that names it."""
    try:
        import psycopg
    except ImportError as error:
        raise ComponentMissing(
            "PostgreSQL needs psycopg, which is not installed; run: pip install 'millrace-streams[postgres]'"
        ) from error
    try:
        with psycopg.connect(target.url, autocommit=True, connect_timeout=10) as connection:
            yield connection
    except psycopg.Error as error:
        reason = _PASSWORD.sub(r"\1***", " ".join(str(error).split()))
        raise SinkFailed(
            f"table {target.table!r} in PostgreSQL cannot be written ({reason}), so topic "
            f"{target.topic.name!r} is not followed any further; check the address "
            "(postgresql://USER@HOST/DATABASE), the rights and the columns of the table, and start again: it "
            "goes on where it stopped"
        ) from error


def _resolve_topic(topic: Topic | Output | str) -> Topic:
    resolved = find_jobs.resolve(topic) if isinstance(topic, str) else topic
    found = resolved.topic if isinstance(resolved, Output) else resolved
    if not isinstance(found, Topic):
        raise DefinitionError(
            f"topic {topic!r} is not a millrace.Topic; give the one that your job writes, or where it is, "
            "such as 'jobs.py:TOTALS'"
        )
    return found


def _create_tables(connection: psycopg.Connection[Any], target: PostgresTable) -> None:
    """Creates the tables if they do not exist."""
    topic_columns = [f"{_quote(name)} {_sql_type(dtype)}" for name, dtype in target.topic.schema.items()]
    number_columns = [
        f'"{name}" bigint{" NOT NULL" if name == "event_time" else ""}'
        for name in ("event_time", *_WINDOW_COLUMNS)
    ]
    flag_columns = [f'"{name}" boolean NOT NULL' for name in ("final", "withdrawn")]
    unique = f"UNIQUE NULLS NOT DISTINCT ({', '.join(map(_quote, target.identity))})"
    _execute(
        connection,
        f"CREATE TABLE IF NOT EXISTS {target.table} "
        f"({', '.join([*topic_columns, *number_columns, *flag_columns, unique])})",
    )
    for name in _WINDOW_COLUMNS:  # tables of earlier versions held panes alone
        _execute(connection, f'ALTER TABLE {target.table} ALTER COLUMN "{name}" DROP NOT NULL')
    position = '"table" text, topic text, partition integer'
    offset_columns = f'{position}, next bigint NOT NULL, PRIMARY KEY ("table", topic, partition)'
    _execute(connection, f"CREATE TABLE IF NOT EXISTS {OFFSETS_TABLE} ({offset_columns})")
    set_aside_key = 'PRIMARY KEY ("table", topic, partition, "offset")'
    set_aside_columns = f'{position}, "offset" bigint, reason text, {set_aside_key}'
    _execute(connection, f"CREATE TABLE IF NOT EXISTS {SET_ASIDE_TABLE} ({set_aside_columns})")


def _pending_ranges(
    connection: psycopg.Connection[Any], target: PostgresTable, log: Log, partition: int, end: int
) -> Iterator[tuple[int, int]]:
    """The ranges of a partition that are not written yet."""
    condition = '"table" = %s AND topic = %s AND partition = %s'
    query = f"SELECT next FROM {OFFSETS_TABLE} WHERE {condition}"  # noqa: S608 - a name of our own
    stored = connection.execute(query.encode(), (target.table, target.topic.name, partition)).fetchone()
    start = max(stored[0] if stored else 0, log.start_offsets(target.topic.name)[partition])
    while start < end:
        stop = min(end, start + PIECE)
        yield start, stop
        start = stop


def _write_valid_rows(
    connection: psycopg.Connection[Any], target: PostgresTable, rows: pl.DataFrame
) -> list[tuple[int, str]]:
    """Writes the rows that the table accepts, and returns the offsets of the others with reasons.

    If a batch fails, its halves are tried, until each row at fault is alone.
    """
    import psycopg

    refused: list[tuple[int, str]] = []
    pending = [rows]
    while pending:
        chunk = pending.pop()
        try:
            with connection.transaction():
                _write(connection, target, chunk)
        except (
            psycopg.DataError,
            psycopg.IntegrityError,
            ValueError,
            OverflowError,
            pl.exceptions.PolarsError,
        ) as error:
            if len(chunk) == 1:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                refused.append((chunk[OFFSET][0], reason.replace("\0", "\\0")[:2_000]))
                continue
            half = len(chunk) // 2
            pending += [chunk[half:], chunk[:half]]
    return refused


def _set_aside(
    connection: psycopg.Connection[Any], target: PostgresTable, partition: int, refused: list[tuple[int, str]]
) -> None:
    if not refused:
        return
    columns = '"table", topic, partition, "offset", reason'
    values = "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
    query = f"INSERT INTO {SET_ASIDE_TABLE} ({columns}) {values}"
    with connection.cursor() as cursor:
        cursor.executemany(
            query.encode(),
            [(target.table, target.topic.name, partition, offset, reason) for offset, reason in refused],
        )
    offset, reason = refused[0]
    _log.warning(
        "%s[%d]: %d rows were set aside in %s, the first at offset %d: %s",
        target.topic.name,
        partition,
        len(refused),
        SET_ASIDE_TABLE,
        offset,
        reason,
    )


def _write(connection: psycopg.Connection[Any], target: PostgresTable, rows: pl.DataFrame) -> None:
    """Upserts panes: the newest one of each key and window replaces an earlier one. Without a window, the
    row with the latest event time does.
    """
    withdrawn = (pl.col("op") == panes.RETRACT).fill_null(value=False).alias("withdrawn")
    order = pl.when(pl.col("index").is_null()).then("event_time")
    flagged = rows.with_columns(withdrawn, pl.col("final").fill_null(value=True))
    ranked = flagged.sort("index", order, pl.col("withdrawn").not_(), maintain_order=True)
    latest = ranked.unique(list(target.identity), keep="last", maintain_order=True).select(target.columns)
    if latest.is_empty():
        return
    names = ", ".join(map(_quote, target.columns))
    assignments = ", ".join(
        f"{_quote(c)} = excluded.{_quote(c)}" for c in target.columns if c not in target.identity
    )
    _execute(connection, f"CREATE TEMPORARY TABLE arriving (LIKE {target.table}) ON COMMIT DROP")
    with connection.cursor() as cursor, cursor.copy(f"COPY arriving ({names}) FROM STDIN".encode()) as copy:
        for row in latest.iter_rows():
            copy.write_row(
                [json.dumps(value, default=str) if isinstance(value, dict | list) else value for value in row]
            )
    _execute(
        connection,
        f"INSERT INTO {target.table} AS kept ({names}) SELECT {names} FROM arriving "  # noqa: S608 - names that were checked
        f"ON CONFLICT ({', '.join(map(_quote, target.identity))}) DO UPDATE SET {assignments} "
        'WHERE (coalesce(excluded."index", excluded.event_time), NOT excluded.withdrawn) '
        '>= (coalesce(kept."index", kept.event_time), NOT kept.withdrawn)',
    )
    _execute(connection, "DROP TABLE arriving")


def _reached(connection: psycopg.Connection[Any], target: PostgresTable, partition: int, stop: int) -> None:
    update = 'ON CONFLICT ("table", topic, partition) DO UPDATE SET next = excluded.next'
    query = f"INSERT INTO {OFFSETS_TABLE} VALUES (%s, %s, %s, %s) {update}"  # noqa: S608 - a name of our own
    connection.execute(query.encode(), (target.table, target.topic.name, partition, stop))


def _execute(connection: psycopg.Connection[Any], query: str, values: Sequence[Any] = ()) -> None:
    connection.execute(query.encode(), values)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sql_type(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "bigint"
    if isinstance(dtype, pl.Decimal):
        return f"numeric({dtype.precision}, {dtype.scale})"
    if isinstance(dtype, pl.Datetime):
        return "timestamptz" if dtype.time_zone else "timestamp"
    return "jsonb" if dtype.is_nested() else _TYPES[dtype.base_type()]
