"""A topic of results as a table in PostgreSQL: the newest pane of each key and window, however often it is
written.

Rows and the position in the topic are written in one transaction, so crashes neither skip nor repeat records.
A pane only replaces earlier panes of its window, so writing it twice changes nothing either.

Rows that the table cannot hold (not a pane, NUL in a text, out of a column's range) and records that cannot
be decoded are set aside in the table `millrace_set_aside`, in the same transaction, with their place in the
topic and the reason.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import panes
from millrace.errors import ComponentMissing, DefinitionError
from millrace.log.codecs.codec import decode
from millrace.log.contract import Log
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
_PANE_COLUMNS = ("event_time", "window_start", "window_end", "index", "final", "withdrawn")
_TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


@dataclass(frozen=True)
class PostgresTable:
    """A table that follows a topic. The primary key is `key`, by default the topic's, and the window."""

    url: str
    topic: Topic
    table: str
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses a wrong table name, and a topic without a key to tell its rows apart."""
        object.__setattr__(self, "topic", self.topic.typed())
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


def follow(log: Log, target: PostgresTable, *, wait: Callable[[], bool] = lambda: False) -> int:
    """Writes new records of the topic until `wait` returns False. Returns the number of records read."""
    read = 0
    with _connect(target.url) as connection:
        _create_tables(connection, target)
        while True:
            new_records = 0
            for partition, end in log.end_offsets(target.topic.name).items():
                for start, stop in _pending_ranges(connection, target, log, partition, end):
                    decoded = decode(
                        target.topic,
                        partition,
                        log.read(target.topic.name, partition, start, stop),
                        panes=True,
                    )
                    with connection.transaction():
                        refused = [
                            (row["offset"], row["reason"]) for row in decoded.dead.iter_rows(named=True)
                        ]
                        refused += _write_valid_rows(connection, target, decoded.rows)
                        _set_aside(connection, target, partition, refused)
                        _reached(connection, target, partition, stop)
                    new_records += stop - start
            read += new_records
            if not new_records and not wait():
                return read


def _connect(url: str) -> psycopg.Connection[Any]:
    try:
        import psycopg
    except ImportError as error:
        raise ComponentMissing(
            "PostgreSQL needs psycopg, which is not installed; run: pip install 'millrace-streams[postgres]'"
        ) from error
    return psycopg.connect(url, autocommit=True)


def _create_tables(connection: psycopg.Connection[Any], target: PostgresTable) -> None:
    """Creates the tables if they do not exist."""
    topic_columns = [f"{_quote(name)} {_sql_type(dtype)}" for name, dtype in target.topic.schema.items()]
    number_columns = [
        f'"{name}" bigint NOT NULL' for name in ("event_time", "window_start", "window_end", "index")
    ]
    flag_columns = [f'"{name}" boolean NOT NULL' for name in ("final", "withdrawn")]
    unique = f"UNIQUE NULLS NOT DISTINCT ({', '.join(map(_quote, target.identity))})"
    _execute(
        connection,
        f"CREATE TABLE IF NOT EXISTS {target.table} "
        f"({', '.join([*topic_columns, *number_columns, *flag_columns, unique])})",
    )
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

    has_pane = pl.all_horizontal(
        pl.col(name).is_not_null() for name in ("window_start", "window_end", "index", "final", "op")
    )
    without_pane = rows.filter(~has_pane)
    refused = [
        (offset, "has no pane, so it has no place in a table by key and window")
        for offset in without_pane[OFFSET].to_list()
    ]
    pending = [rows.filter(has_pane)]
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
    """Upserts panes: the newest one of each key and window replaces an earlier one."""
    withdrawn = (pl.col("op") == panes.RETRACT).alias("withdrawn")
    ranked = rows.with_columns(withdrawn).sort("index", pl.col("withdrawn").not_(), maintain_order=True)
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
        'WHERE (excluded."index", NOT excluded.withdrawn) >= (kept."index", NOT kept.withdrawn)',
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
