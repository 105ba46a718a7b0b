"""Commits to the embedded log: several topics and the marker in one transaction of SQLite.

Each writer's name has a row in the table `writer`: its epoch, and the last marker. Taking over a name raises
the epoch. A commit compares the epoch inside its transaction, so a writer that was replaced is fenced however
long it slept:

    A takes over: epoch 1        A commits marker 4
    B takes over: epoch 2, and reads marker 4
    A wakes up and commits 5:    the row says epoch 2, A has 1: `Fenced`, nothing of it is written
"""

from collections.abc import Callable, Mapping
from sqlite3 import Connection

from millrace.errors import Fenced, LogDamaged, LogError
from millrace.log.contract import OutgoingRecords
from millrace.log.embedded import chunk_table, watermark_table
from millrace.log.embedded.chunk_table import NewChunks
from millrace.log.embedded.sqlite import Store, damaged_error
from millrace.log.embedded.topic_table import StoredTopic


class EmbeddedWriter:
    """A `Writer` of the embedded log."""

    def __init__(
        self,
        store: Store,
        name: str,
        find_topic: Callable[[str], StoredTopic],
        prepare: Callable[[StoredTopic, OutgoingRecords, int | None], list[NewChunks]],
    ) -> None:
        """Takes over the name: the older writer's next commit fails."""
        self._store, self._name, self._find_topic, self._prepare = store, name, find_topic, prepare
        with store.writing() as connection:
            connection.execute(
                "insert into writer values(?, 1, -1) on conflict(name) do update set epoch = epoch + 1",
                (name,),
            )
            self._epoch, self.last_marker = self._read_row(connection)
        if not isinstance(self.last_marker, int):
            raise damaged_error(
                store.path, f"writer {name}", "its marker", LogDamaged(f"it is {self.last_marker!r}")
            )

    def commit(
        self,
        marker: int,
        batches: Mapping[str, OutgoingRecords],
        *,
        now: int | None = None,
        watermarks: Mapping[str, int] | None = None,
    ) -> None:
        """All topics, watermarks and the marker, in one transaction."""
        self._check_newer(marker, self.last_marker)
        prepared = []  # before the transaction, so that it stays short
        for name, batch in batches.items():
            topic = self._find_topic(name)
            if topic.store is not self._store:
                raise LogError(
                    f"writer {self._name!r}: {name!r} cannot be part of a commit, as the embedded log keeps "
                    "input.* in another file; choose a name outside input.*"
                )
            prepared += self._prepare(topic, batch, now)
        with self._store.writing() as connection:
            epoch, stored_marker = self._read_row(connection)
            if epoch != self._epoch:
                raise Fenced(
                    f"another writer named {self._name!r} has taken over, so marker {marker} was not "
                    "committed; only one run may write at a time"
                )
            self._check_newer(marker, stored_marker)
            chunk_table.insert(self._store, connection, prepared)
            watermark_table.insert(connection, self._name, marker, watermarks or {})
            connection.execute("update writer set marker=? where name=?", (marker, self._name))
        self.last_marker = marker

    def close(self) -> None:
        """Does nothing: the files belong to the log."""

    def _read_row(self, connection: Connection) -> tuple[int, int]:
        epoch, marker = connection.execute(
            "select epoch, marker from writer where name=?", (self._name,)
        ).fetchone()
        return epoch, marker

    def _check_newer(self, marker: int, last_marker: int) -> None:
        if marker <= last_marker:
            raise LogError(
                f"writer {self._name!r}: marker {marker} is not after {last_marker}, which is already "
                "committed; skip it"
            )
