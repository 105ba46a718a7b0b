"""A topic of results as a table in PostgreSQL: the newest pane of each key and window, however often it is written.

What was read of the topic and how far is written in one transaction, so that nothing is skipped or done twice over crashes; and since a pane only ever
replaces an earlier pane of its window, doing it twice would change nothing.

Rows that cannot be in the table (without a pane, with a NUL in a text, out of a column's range) and records that cannot be read are
set aside in the table `millrace_set_aside`, in the same transaction, with their place in the topic and the reason.
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

if TYPE_CHECKING:
    import psycopg

PIECE = 50_000
"""How many records are written in one transaction at most."""

OFFSETS = "millrace_offsets"
"""The table that says how far each topic was read into each table."""
ASIDE = "millrace_set_aside"
"""The table of what could not be written: where it is in its topic, and why."""
_log = logging.getLogger("millrace.sinks")

_TYPES: dict[Any, str] = {
    pl.String: "text",
    pl.Boolean: "boolean",
    pl.Float32: "real",
    pl.Float64: "double precision",
    pl.Binary: "bytea",
    pl.Datetime: "timestamptz",
}
_PANE = ("event_time", "window_start", "window_end", "index", "final", "withdrawn")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


@dataclass(frozen=True)
class PostgresTable:
    """A table that follows a topic. The primary key is `key`, by default the topic's, and the window."""

    url: str
    topic: Topic
    table: str
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what could not be a table, or has nothing to tell its rows apart."""
        if not _NAME.match(self.table):
            raise DefinitionError(
                f"table {self.table!r}: use small letters, digits and '_', and begin with a letter"
            )
        if not self.keys:
            raise DefinitionError(
                f"topic {self.topic.name!r} has no key, so a pane could not be found again; say key=('column', ...)"
            )
        for column in self.keys:
            if column not in self.topic.schema:
                raise DefinitionError(
                    f"key {column!r} is no field of {self.topic.type.__name__}; it has {', '.join(self.topic.schema)}"
                )

    @property
    def keys(self) -> tuple[str, ...]:
        """What tells results apart within a window."""
        return self.key or ((self.topic.key,) if self.topic.key else ())

    @property
    def identity(self) -> tuple[str, ...]:
        """The primary key."""
        return (*self.keys, "window_start", "window_end")

    @property
    def columns(self) -> list[str]:
        """All columns of the table."""
        return [*self.topic.schema, *_PANE]


def follow(log: Log, into: PostgresTable, *, wait: Callable[[], bool] = lambda: False) -> int:
    """Writes what is new in the topic, until `wait` says that there is nothing to wait for; how many records were read."""
    read = 0
    with _connected(into.url) as connection:
        _prepare(connection, into)
        while True:
            news = 0
            for partition, end in log.ends(into.topic.name).items():
                for start, stop in _pieces(connection, into, log, partition, end):
                    found = decode(
                        into.topic, partition, log.read(into.topic.name, partition, start, stop), panes=True
                    )
                    with connection.transaction():
                        aside = [(row["offset"], row["reason"]) for row in found.dead.iter_rows(named=True)]
                        aside += _write_or_name(connection, into, found.rows)
                        _set_aside(connection, into, partition, aside)
                        _reached(connection, into, partition, stop)
                    news += stop - start
            read += news
            if not news and not wait():
                return read


def _connected(url: str) -> psycopg.Connection[Any]:
    try:
        import psycopg
    except ImportError as error:
        raise ComponentMissing(
            "PostgreSQL needs psycopg, which is not installed; run: pip install 'millrace[postgres]'"
        ) from error
    return psycopg.connect(url, autocommit=True)


def _prepare(connection: psycopg.Connection[Any], into: PostgresTable) -> None:
    """Makes the tables if they are absent."""
    own = [f"{_quoted(name)} {_type(dtype)}" for name, dtype in into.topic.schema.items()]
    numbers = [f'"{name}" bigint NOT NULL' for name in ("event_time", "window_start", "window_end", "index")]
    flags = [f'"{name}" boolean NOT NULL' for name in ("final", "withdrawn")]
    unique = f"UNIQUE NULLS NOT DISTINCT ({', '.join(map(_quoted, into.identity))})"
    _do(
        connection, f"CREATE TABLE IF NOT EXISTS {into.table} ({', '.join([*own, *numbers, *flags, unique])})"
    )
    place = '"table" text, topic text, partition integer, next bigint NOT NULL, PRIMARY KEY ("table", topic, partition)'
    _do(connection, f"CREATE TABLE IF NOT EXISTS {OFFSETS} ({place})")
    aside = '"table" text, topic text, partition integer, "offset" bigint, reason text, PRIMARY KEY ("table", topic, partition, "offset")'
    _do(connection, f"CREATE TABLE IF NOT EXISTS {ASIDE} ({aside})")


def _pieces(
    connection: psycopg.Connection[Any], into: PostgresTable, log: Log, partition: int, end: int
) -> Iterator[tuple[int, int]]:
    """The ranges of a partition that are still to be written."""
    query = f'SELECT next FROM {OFFSETS} WHERE "table" = %s AND topic = %s AND partition = %s'  # noqa: S608 - a name of our own
    found = connection.execute(query.encode(), (into.table, into.topic.name, partition)).fetchone()
    start = max(found[0] if found else 0, log.begins(into.topic.name)[partition])
    while start < end:
        stop = min(end, start + PIECE)
        yield start, stop
        start = stop


def _write_or_name(
    connection: psycopg.Connection[Any], into: PostgresTable, rows: pl.DataFrame
) -> list[tuple[int, str]]:
    """Writes the rows that the table takes; the offsets of the others, and why. Halves are tried until the culprits are alone."""
    import psycopg

    whole = pl.all_horizontal(
        pl.col(name).is_not_null() for name in ("window_start", "window_end", "index", "final", "op")
    )
    paneless = rows.filter(~whole)
    aside = [
        (offset, "has no pane, so it has no place in a table by key and window")
        for offset in paneless["_off"].to_list()
    ]
    parts = [rows.filter(whole)]
    while parts:
        part = parts.pop()
        try:
            with connection.transaction():
                _write(connection, into, part)
        except (
            psycopg.DataError,
            psycopg.IntegrityError,
            ValueError,
            OverflowError,
            pl.exceptions.PolarsError,
        ) as error:
            if len(part) == 1:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                aside.append((part["_off"][0], reason.replace("\0", "\\0")[:2_000]))
                continue
            half = len(part) // 2
            parts += [part[half:], part[:half]]
    return aside


def _set_aside(
    connection: psycopg.Connection[Any], into: PostgresTable, partition: int, aside: list[tuple[int, str]]
) -> None:
    if not aside:
        return
    query = f'INSERT INTO {ASIDE} ("table", topic, partition, "offset", reason) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING'  # noqa: S608 - a name of our own
    with connection.cursor() as cursor:
        cursor.executemany(
            query.encode(),
            [(into.table, into.topic.name, partition, offset, reason) for offset, reason in aside],
        )
    offset, reason = aside[0]
    _log.warning(
        "%s[%d]: %d rows were set aside in %s, the first at offset %d: %s",
        into.topic.name,
        partition,
        len(aside),
        ASIDE,
        offset,
        reason,
    )


def _write(connection: psycopg.Connection[Any], into: PostgresTable, rows: pl.DataFrame) -> None:
    """The newest pane of each key and window takes the place of an earlier one."""
    withdrawn = (pl.col("op") == panes.RETRACT).alias("withdrawn")
    ranked = rows.with_columns(withdrawn).sort("index", pl.col("withdrawn").not_(), maintain_order=True)
    newest = ranked.unique(list(into.identity), keep="last", maintain_order=True).select(into.columns)
    if newest.is_empty():
        return
    names = ", ".join(map(_quoted, into.columns))
    changed = ", ".join(
        f"{_quoted(c)} = excluded.{_quoted(c)}" for c in into.columns if c not in into.identity
    )
    _do(connection, f"CREATE TEMPORARY TABLE arriving (LIKE {into.table}) ON COMMIT DROP")
    with connection.cursor() as cursor, cursor.copy(f"COPY arriving ({names}) FROM STDIN".encode()) as copy:
        for row in newest.iter_rows():
            copy.write_row(
                [json.dumps(value, default=str) if isinstance(value, dict | list) else value for value in row]
            )
    _do(
        connection,
        f"INSERT INTO {into.table} AS kept ({names}) SELECT {names} FROM arriving "  # noqa: S608 - names that were checked
        f"ON CONFLICT ({', '.join(map(_quoted, into.identity))}) DO UPDATE SET {changed} "
        'WHERE (excluded."index", NOT excluded.withdrawn) >= (kept."index", NOT kept.withdrawn)',
    )
    _do(connection, "DROP TABLE arriving")


def _reached(connection: psycopg.Connection[Any], into: PostgresTable, partition: int, stop: int) -> None:
    query = f'INSERT INTO {OFFSETS} VALUES (%s, %s, %s, %s) ON CONFLICT ("table", topic, partition) DO UPDATE SET next = excluded.next'  # noqa: S608 - a name of our own
    connection.execute(query.encode(), (into.table, into.topic.name, partition, stop))


def _do(connection: psycopg.Connection[Any], query: str, values: Sequence[Any] = ()) -> None:
    connection.execute(query.encode(), values)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "bigint"
    return "jsonb" if dtype.is_nested() else _TYPES[dtype.base_type()]
