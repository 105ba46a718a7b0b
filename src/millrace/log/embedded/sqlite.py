"""One SQLite file that several processes and threads share, and what its errors mean to the user."""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.errors import LogDamaged, LogError, LogUnwritable

VERSION = 3
"""Of the tables below; kept as the file's `user_version`. Version 1 had no partitioner of topics, version 2
no watermarks of writers.
"""
_WATERMARK_TABLE = """
create table if not exists watermark(
    topic text not null, writer text not null, marker integer not null, body blob not null,
    primary key(topic, writer, marker)) without rowid
"""

_TABLES = f"""
create table if not exists topic(
    id integer primary key, name text not null unique, codec text not null, type text not null,
    fields text not null, envelope integer not null, retention integer, partitioner text);
create table if not exists identity(topic integer primary key, id text not null);
create table if not exists partition(
    id integer primary key, topic integer not null, number integer not null,
    "begin" integer not null default 0, "end" integer not null default 0,
    bytes integer not null default 0, unique(topic, number));
create table if not exists chunk(
    partition integer not null, base integer not null, count integer not null, newest integer not null,
    body blob not null, primary key(partition, base));
create table if not exists writer(name text primary key, epoch integer not null, marker integer not null);
{_WATERMARK_TABLE};
"""
"""`identity` tells a topic from another of the same name. Topics made before it existed have none."""
_PAGE_BYTES = 8192
"""Bytes: a fifth less work for large chunks than SQLite's 4096, and small appends still write little."""
_BUSY_SECONDS = 60
_inherited_connections: list[object] = []
"""Connections inherited through fork: closing them could disturb the parent, so they are kept unused."""


class _Connection(sqlite3.Connection):
    """A connection that can be weakly referenced."""


class Store:
    """A file, with a connection for each process and thread that uses it."""

    def __init__(self, path: Path, *, create: bool) -> None:
        """Opens the file and checks its small tables, so that damage shows at once."""
        self.path = path
        self._local = threading.local()
        self._all: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._pid = os.getpid()
        if not create and not path.exists():
            raise LogError(
                f"there is no log in {path.parent}: {path.name} is missing; check the path, or let a run or "
                "ingestion create it"
            )
        with self._translate_errors():
            self._check_small_tables(self.connection())

    def _check_small_tables(self, connection: sqlite3.Connection) -> None:
        """Compares small tables with their indexes: a topic lost from an index would be made anew, empty."""
        for table in ("topic", "partition", "writer", "watermark"):
            [report] = connection.execute(f"pragma integrity_check({table})").fetchone()
            if report != "ok":
                raise damaged_error(
                    self.path, f"its table {table}", "some topics", LogDamaged(" ".join(report.split()))
                )

    def connection(self) -> sqlite3.Connection:
        """The connection of this process and thread."""
        if self._pid != os.getpid():
            _inherited_connections.extend((self._local, self._all, *self._all))
            self._local, self._all, self._pid = threading.local(), weakref.WeakSet(), os.getpid()
        known: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if known is None:
            known = self._local.connection = self._open()
        return known

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for single statements, each of which reads a consistent snapshot."""
        with self._translate_errors():
            yield self.connection()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes other writers: when the block ends, all of it is on disk, or none."""
        with self._translate_errors():
            connection = self.connection()
            try:
                connection.execute("begin immediate")
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    def close(self) -> None:
        """Closes the connections of this process, whichever thread opened them."""
        if self._pid == os.getpid():
            for connection in list(self._all):
                connection.close()
        self._local = threading.local()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        connection.execute("pragma synchronous=full")
        connection.execute("pragma cache_size=-8192")
        version = connection.execute("pragma user_version").fetchone()[0]
        if version > VERSION:
            connection.close()
            raise LogError(
                f"{self.path} was written by a newer millrace (format {version}, known here: {VERSION}); "
                "upgrade millrace"
            )
        if version == 0:
            self._create(connection)
        elif version < VERSION:
            _upgrade(connection)
        self._all.add(connection)
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"pragma page_size={_PAGE_BYTES}")
        _to_wal(connection)
        connection.execute("begin immediate")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"pragma user_version={VERSION}")
        connection.execute("commit")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translate_error(error, self.path) from error
        except (
            TypeError,
            UnicodeDecodeError,
        ) as error:  # a row is missing, or a column has another type than was written
            raise damaged_error(self.path, "some place", "what it holds", error) from error


def _upgrade(connection: sqlite3.Connection) -> None:
    """Updates the tables of an earlier version. Old topics stay without partitioner and identity."""
    connection.execute("begin immediate")
    version = connection.execute("pragma user_version").fetchone()[0]
    if version < 2:  # no other process did it meanwhile
        connection.execute("alter table topic add column partitioner text")
        connection.execute("create table if not exists identity(topic integer primary key, id text not null)")
    if version < VERSION:
        connection.execute(_WATERMARK_TABLE)
        connection.execute(f"pragma user_version={VERSION}")
    connection.execute("commit")


def _to_wal(connection: sqlite3.Connection) -> None:
    """Changes the journal mode. SQLite does not wait by itself while another process does the same."""
    for attempt in range(200):
        try:
            connection.execute("pragma journal_mode=wal")
        except sqlite3.OperationalError as error:
            if attempt == 199 or (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY:
                raise
            threading.Event().wait(0.02)
        else:
            return


def damaged_error(path: Path, place: str, lost: str, error: Exception) -> LogDamaged:
    """The error for bytes that are not those that were written: where, what is lost, and what to do."""
    return LogDamaged(
        f"{path} is damaged at {place} ({error}), so {lost} cannot be read; restore {path.parent} from a "
        "backup, `millrace verify` says what else is damaged"
    )


def _is_contradiction(error: sqlite3.Error, code: int) -> bool:
    """Whether the file lacks a table that was made in it, or its text is not UTF-8."""
    return (code == sqlite3.SQLITE_ERROR and "no such" in str(error)) or "decode to UTF-8" in str(error)


def translate_error(error: sqlite3.Error, path: Path) -> LogError:
    """An error of SQLite as one of millrace's own, with the remedy."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    folder = path.parent
    if code == sqlite3.SQLITE_FULL:
        return LogUnwritable(
            f"the disk of {folder} is full ({error}), so nothing of this was written; free some space, then "
            "go on: nothing is lost"
        )
    if code == sqlite3.SQLITE_IOERR:
        return LogUnwritable(
            f"the disk of {folder} refused to write ({error}), so nothing of this was written; check its "
            "space, quota and health, then go on"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return LogUnwritable(
            f"{path} cannot be written ({error}); give this user write permission on "
            f"{folder} and the files in it"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _is_contradiction(error, code):
        return LogDamaged(
            f"{path} is damaged ({error}); restore {folder} from a backup, or save what `sqlite3 "
            f"{path.name} .recover` finds; `millrace verify` says what else is damaged"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LogError(
            f"{path} was locked by another process for {_BUSY_SECONDS} s ({error}); find and stop that "
            "process, then try again"
        )
    return LogError(f"{path}: {error}")
