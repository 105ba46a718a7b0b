"""The log in a folder: SQLite files, no server, for the processes of one machine.

`inputs.db` holds the topics `input.*`, `results.db` all others and the markers of writers: a commit is atomic within one file.
Each append puts one row, a chunk of records, in each partition it touches; a small chunk is joined with the one before it.
"""

import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from millrace.errors import Fenced, LogDamaged, LogError, LogUnwritable, OffsetGone, TopicMissing
from millrace.log import declarations
from millrace.log.contract import (
    Names,
    OutgoingRecords,
    Partitioner,
    PartitionInfo,
    Records,
    TopicInfo,
    pause,
)
from millrace.log.embedded import chunks
from millrace.log.embedded.sqlite import Store, damaged_error
from millrace.log.embedded.tail import follow
from millrace.log.partitioning import NEW_TOPICS, UNRECORDED, split_by_partition
from millrace.topics import Topic, check_name
from millrace.values import event_types

_JOIN_BYTES = 4096
"""A chunk smaller than this grows with the next append, so that a slow trickle does not end up as a row for each record."""
_EXPIRE_CHUNKS = 1000
_FIRST_OFFSET = 'ifnull((select base from chunk where partition = p.id order by base limit 1), p."end")'
_CHUNKS_END = (
    'ifnull((select base + count from chunk where partition = p.id order by base desc limit 1), p."begin")'
)
_POSITIONS = {
    "begin": f'select "begin", {_FIRST_OFFSET} from partition p where id between ? and ? order by id',  # noqa: S608 - constants of this file
    "end": f'select "end", {_CHUNKS_END} from partition p where id between ? and ? order by id',  # noqa: S608 - constants of this file
}
"""What is said of each partition, and what its chunks say: a bit flipped in a number would leave events out.

The partitions of a topic are made together, so their ids are adjacent.
"""
_END = f'select "end", {_CHUNKS_END}, t.name, p.number from partition p join topic t on t.id = p.topic where p.id = ?'  # noqa: S608 - constants of this file
_CHUNK = (
    "select i.base, c.count, c.body, c.partition = i.partition and c.base = i.base "
    "from chunk i cross join chunk c on c.rowid = i.rowid where i.partition=?1"
)
"""Found in the index as `i`, read from the table as `c`: a bit flipped in the index would lead to another chunk."""
_PreparedChunks: TypeAlias = list[tuple[int, list[tuple[int, bytes]], int]]
"""For each partition that is written: its id, its chunks (how many records, and their bytes), and the append time."""

_ChunkRow: TypeAlias = tuple[int, int, bytes, bool]
"""Of a chunk: its base, how many records, their bytes, and whether index and table agree on its place."""


@dataclass(frozen=True)
class _StoredTopic:
    """Where a topic is kept. It never changes."""

    store: Store
    partitions: list[int]
    """The id of each partition."""
    partitioner: Partitioner


class EmbeddedLog:
    """A `Log` in a folder."""

    def __init__(self, folder: str | Path, *, create: bool = True) -> None:
        """Opens the folder; `create=False` insists that a log is already there."""
        self._folder = Path(folder).expanduser().resolve()
        self.url = f"embedded:{self._folder}"
        if create:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LogUnwritable(
                    f"the log folder {self._folder} cannot be made ({error.strerror}); choose another, or give this user permission"
                ) from error
        self._results = Store(self._folder / "results.db", create=create)
        self._inputs = Store(self._folder / "inputs.db", create=create)
        self._topics: dict[str, _StoredTopic] = {}

    def ensure(self, topic: Topic) -> None:
        """Creates the topic, or checks that the one that is there is the same; its retention is brought up to date."""
        wanted = (topic.codec, topic.type_name, event_types.signature(topic.type), topic.envelope)
        self._ensure(topic.name, topic.partitions, wanted, topic.retention_ms)

    def ensure_raw(self, name: str, *, partitions: int = 1, retention: int | None = None) -> None:
        """Creates a topic of bytes, such as dead letters; its retention is brought up to date."""
        check_name(name)
        self._ensure(name, partitions, declarations.RAW_FORMAT, retention)

    def list_topics(self) -> Names:
        """The names of all topics, sorted."""
        names = []
        for store in (self._inputs, self._results):
            with store.reading() as connection:
                names += [name for (name,) in connection.execute("select name from topic")]
        return sorted(names)

    def describe(self, topic: str) -> TopicInfo:
        """What the log knows of a topic."""
        stored = self._stored_topic(topic)
        with stored.store.reading() as connection:
            row = connection.execute(
                "select codec, type, envelope, retention, id from topic where name=?", (topic,)
            ).fetchone()
            partitions = connection.execute(
                'select "begin", "end", "end"-"begin", bytes from partition where topic=? order by number',
                (row[4],),
            )
            return TopicInfo(
                topic,
                row[0],
                row[1],
                bool(row[2]),
                row[3],
                stored.partitioner,
                [PartitionInfo(*partition) for partition in partitions],
            )

    def append(self, topic: str, batch: OutgoingRecords, *, now: int | None = None) -> None:
        """Appends all records in one transaction."""
        stored = self._stored_topic(topic)
        prepared = self._prepare(topic, stored, batch, _append_time(now))
        with stored.store.writing() as connection:
            _insert(stored.store, connection, prepared)

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The records of exactly that range."""
        stored = self._stored_topic(topic)
        if start == end:
            return Records.empty()
        partition_id = self._partition_id(topic, stored, partition)
        with stored.store.reading() as connection:
            rows = connection.execute(
                f"{_CHUNK} and i.base < ?3 "  # noqa: S608 - a constant of this file
                "and i.base >= (select max(base) from chunk where partition=?1 and base <= ?2) order by i.base",
                (partition_id, start, end),
            ).fetchall()
        if not rows or start > end or rows[-1][0] + rows[-1][1] < end:
            begin, held_end = self.start_offsets(topic)[partition], self.end_offsets(topic)[partition]
            raise OffsetGone(
                f"{topic}[{partition}] holds offsets {begin} to {held_end}, not all of {start} to {end}; start again from {begin}, or restore the log"
            )
        try:
            _check_adjacent(rows)
            return chunks.read_records(rows[0][0], [row[2] for row in rows], start, end)
        except (LogDamaged, ValueError, struct.error, pa.ArrowException) as error:
            raise self._damaged_records(topic, partition, stored, rows, error) from error

    def _damaged_records(
        self, topic: str, partition: int, stored: _StoredTopic, rows: Sequence[_ChunkRow], error: Exception
    ) -> LogDamaged:
        """Which records cannot be read, and what to do."""
        damaged_rows = rows
        for row in rows:
            try:
                chunks.check_chunk(row[2])
            except LogDamaged:
                damaged_rows = [row]
                break
        first, last = damaged_rows[0][0], damaged_rows[-1][0] + damaged_rows[-1][1]
        return damaged_error(
            stored.store.path,
            f"{topic}[{partition}], offsets {first} to {last}",
            f"{last - first} records",
            error,
        )

    def identity(self, topic: str) -> str | None:
        """Drawn when the topic is made; topics of earlier versions have none. No command deletes a topic, but files may be removed."""
        with self._stored_topic(topic).store.reading() as connection:
            row = connection.execute(
                "select i.id from identity i join topic t on t.id = i.topic where t.name=?", (topic,)
            ).fetchone()
        return None if row is None else str(row[0])

    def max_record_bytes(self, topic: str) -> int | None:
        """No limit but the disk's."""
        del topic
        return None

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""
        return self._offsets(topic, "begin")

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""
        return self._offsets(topic, "end")

    def writer(self, name: str) -> "EmbeddedWriter":
        """Takes over the name: the older writer's next commit fails."""
        with self._results.writing() as connection:
            connection.execute(
                "insert into writer values(?, 1, -1) on conflict(name) do update set epoch = epoch + 1",
                (name,),
            )
            epoch, last = connection.execute(
                "select epoch, marker from writer where name=?", (name,)
            ).fetchone()
        if not isinstance(last, int):
            raise damaged_error(
                self._results.path, f"writer {name}", "its marker", LogDamaged(f"it is {last!r}")
            )
        return EmbeddedWriter(self, name, epoch, last)

    def tail(
        self,
        topic: str,
        *,
        start: Literal["begin", "end"] | Mapping[int, int] = "end",
        wait: Callable[[], bool] = pause,
    ) -> Iterator[tuple[int, Records]]:
        """Yields records as they come, in pieces; partitions left out of `start` are read from their beginning."""
        return follow(self, topic, start, wait)

    def expire(self, now: int, *, elapsed: int | None = None) -> None:
        """Removes whole chunks from the front of each partition; the space is used again, the files do not shrink."""
        for store in (self._inputs, self._results):
            with store.reading() as connection:
                partitions = connection.execute(
                    "select p.id, t.id, t.retention from topic t join partition p on p.topic = t.id where t.retention is not null"
                ).fetchall()
                newest = (
                    {topic: _newest_append_time(connection, topic) for _, topic, _ in partitions}
                    if elapsed is not None
                    else {}
                )
            for partition, topic, retention in partitions:
                topic_time = now if elapsed is None else min(now, newest[topic] + elapsed)
                while _expire(store, partition, topic_time - retention) == _EXPIRE_CHUNKS:
                    pass

    def close(self) -> None:
        """Closes the files."""
        self._inputs.close()
        self._results.close()

    def _ensure(
        self, name: str, partitions: int, wanted: declarations.TopicFormat, retention: int | None
    ) -> None:
        store = self._store(name)
        with store.reading() as connection:
            known = _stored_declaration(connection, name)
        if known is None:
            with store.writing() as connection:
                known = _stored_declaration(connection, name)
                if known is None:
                    _create_topic(connection, name, partitions, wanted, retention)
                    return
        declarations.check_declaration(name, (partitions, *wanted), known[:-1])
        if retention != known[-1]:
            with store.writing() as connection:
                connection.execute("update topic set retention=? where name=?", (retention, name))

    def _store(self, topic: str) -> Store:
        return self._inputs if topic.startswith("input.") else self._results

    def _stored_topic(self, topic: str) -> _StoredTopic:
        stored = self._topics.get(topic)
        if stored is None:
            store = self._store(topic)
            with store.reading() as connection:
                rows = connection.execute(
                    "select p.id, p.number, t.partitioner from topic t join partition p on p.topic = t.id where t.name=? order by p.number",
                    (topic,),
                ).fetchall()
            if not rows:
                raise TopicMissing(
                    f"there is no topic {topic!r} in {self._folder}; there are {', '.join(self.list_topics()) or 'none yet'}. A run or ingestion that uses it creates it"
                )
            numbers = [number for _, number, _ in rows]
            if numbers != [*range(len(rows))]:
                raise damaged_error(
                    store.path,
                    topic,
                    "its partitions",
                    LogDamaged(f"they are numbered {', '.join(map(str, numbers))}"),
                )
            stored = self._topics[topic] = _StoredTopic(
                store, [id for id, _, _ in rows], _check_partitioner(store, topic, rows[0][2])
            )
        return stored

    def _partition_id(self, topic: str, stored: _StoredTopic, partition: int) -> int:
        if not 0 <= partition < len(stored.partitions):
            raise OffsetGone(f"{topic} has partitions 0 to {len(stored.partitions) - 1}, not {partition}")
        return stored.partitions[partition]

    def _offsets(self, topic: str, boundary: Literal["begin", "end"]) -> dict[int, int]:
        topic_store = self._stored_topic(topic)
        with topic_store.store.reading() as connection:
            rows = connection.execute(
                _POSITIONS[boundary], (topic_store.partitions[0], topic_store.partitions[-1])
            ).fetchall()
        for number, (declared, in_chunks) in enumerate(rows):
            if declared != in_chunks:
                raise _inconsistent_offsets(
                    topic_store.store, f"{topic}[{number}]", boundary, declared, in_chunks
                )
        return {number: declared for number, (declared, _) in enumerate(rows)}

    def _prepare(self, topic: str, stored: _StoredTopic, batch: OutgoingRecords, now: int) -> _PreparedChunks:
        """The chunks for each partition, made before the transaction so that it stays short."""
        if len(stored.partitions) == 1 and batch.partitions is None:
            parts = [(0, batch)] if len(batch) else []
        else:
            first_turn = sum(self.end_offsets(topic).values()) if batch.partitions is None else 0
            parts = list(
                split_by_partition(topic, batch, len(stored.partitions), first_turn, stored.partitioner)
            )
        return [
            (stored.partitions[number], list(chunks.split_into_chunks(part, now)), now)
            for number, part in parts
        ]


class EmbeddedWriter:
    """A `Writer` of the embedded log."""

    def __init__(self, log: EmbeddedLog, name: str, epoch: int, last: int) -> None:
        """Made by `EmbeddedLog.writer`."""
        self.last_marker = last
        self._log, self._name, self._epoch = log, name, epoch

    def commit(self, marker: int, batches: Mapping[str, OutgoingRecords], *, now: int | None = None) -> None:
        """All topics and the marker, in one transaction."""
        if marker <= self.last_marker:
            raise LogError(
                f"writer {self._name!r}: marker {marker} is not after {self.last_marker}, which is already committed; skip it"
            )
        prepared = []
        for topic, batch in batches.items():
            stored = self._log._stored_topic(topic)
            if stored.store is not self._log._results:
                raise LogError(
                    f"writer {self._name!r}: {topic!r} cannot be part of a commit, as the embedded log keeps input.* in another file; choose a name outside input.*"
                )
            prepared += self._log._prepare(topic, stored, batch, _append_time(now))
        with self._log._results.writing() as connection:
            epoch, stored_marker = connection.execute(
                "select epoch, marker from writer where name=?", (self._name,)
            ).fetchone()
            if epoch != self._epoch:
                raise Fenced(
                    f"another writer named {self._name!r} has taken over, so marker {marker} was not committed; only one run may write at a time"
                )
            if marker <= stored_marker:
                raise LogError(
                    f"writer {self._name!r}: marker {marker} is not after {stored_marker}, which is already committed; skip it"
                )
            _insert(self._log._results, connection, prepared)
            connection.execute("update writer set marker=? where name=?", (marker, self._name))
        self.last_marker = marker

    def close(self) -> None:
        """Nothing to let go: the files belong to the log."""


def _check_partitioner(store: Store, topic: str, recorded: object) -> Partitioner:
    """The partitioner that is recorded with a topic; without a record it is that of the versions that kept none."""
    if recorded is None:
        return UNRECORDED
    for known in get_args(Partitioner):
        if recorded == known:
            return known  # type: ignore[no-any-return] # get_args does not know of what
    raise damaged_error(
        store.path,
        topic,
        "where its keys are",
        LogDamaged(
            f"its partitioner {recorded!r} is not known here: the bytes are damaged, or a newer millrace wrote them: upgrade millrace then"
        ),
    )


def _check_adjacent(rows: Sequence[_ChunkRow]) -> None:
    """Chunks are those that the index means, and hold as many records as their rows say, each beginning where the last one ended."""
    bases = [base for base, *_ in rows[1:]] + [rows[-1][0] + rows[-1][1]]
    for (base, count, body, is_consistent), next_base in zip(rows, bases, strict=True):
        if (
            not is_consistent
            or base + count != next_base
            or (len(body) >= chunks.HEAD_BYTES and chunks.count_records(body) != count)
        ):
            raise LogDamaged(f"the chunk at {base} does not hold the records up to {next_base}")


def _inconsistent_offsets(
    store: Store, partition_name: str, boundary: str, declared: int, in_chunks: int
) -> LogDamaged:
    error = LogDamaged(f"its {boundary} is said to be {declared}, its chunks {boundary} at {in_chunks}")
    return damaged_error(store.path, partition_name, "its records", error)


def _insert(store: Store, connection: Connection, prepared: _PreparedChunks) -> None:
    for partition, new_chunks, now in prepared:
        end, chunks_end, topic, number = connection.execute(_END, (partition,)).fetchone()
        if end != chunks_end:
            raise _inconsistent_offsets(store, f"{topic}[{number}]", "end", end, chunks_end)
        is_merged, added_bytes = _merge_into_last(
            store, connection, (partition, f"{topic}[{number}]", end), new_chunks[0], now
        )
        end += new_chunks[0][0] if is_merged else 0
        for count, body in new_chunks[1:] if is_merged else new_chunks:
            connection.execute("insert into chunk values(?, ?, ?, ?, ?)", (partition, end, count, now, body))
            end, added_bytes = end + count, added_bytes + len(body)
        connection.execute(
            'update partition set "end"=?, bytes=bytes+? where id=?', (end, added_bytes, partition)
        )


def _merge_into_last(
    store: Store,
    connection: Connection,
    position: tuple[int, str, int],
    new_chunk: tuple[int, bytes],
    now: int,
) -> tuple[bool, int]:
    """Joins a small chunk with the partition's last one if that is small too: whether it did, and by how many bytes that one grew.

    `at`: the id of the partition, its name, and where it ends.
    """
    (partition, partition_name, end), (count, body) = position, new_chunk
    if len(body) >= _JOIN_BYTES:
        return False, 0
    last = connection.execute(
        f"{_CHUNK} order by i.base desc limit 1",
        (partition,),
    ).fetchone()
    if last is None or len(last[2]) >= _JOIN_BYTES:
        return False, 0
    if last[0] + last[1] != end or not last[3]:
        raise _inconsistent_offsets(store, partition_name, "end", end, last[0] + last[1])
    merged = chunks.merge([last[2], body])
    connection.execute(
        "update chunk set count=?, newest=max(newest, ?), body=? where partition=? and base=?",
        (last[1] + count, now, merged, partition, last[0]),
    )
    return True, len(merged) - len(last[2])


def _newest_append_time(connection: Connection, topic: int) -> int:
    """When the newest record of a topic was appended; 0: it has none."""
    cursor = connection.execute(
        "select coalesce(max(last), 0) from (select (select newest from chunk where partition=p.id order by base desc limit 1) as last "
        "from partition p where p.topic=?)",
        (topic,),
    )
    return int(cursor.fetchone()[0])


def _expire(store: Store, partition: int, before: int) -> int:
    """Removes some chunks whose newest record is older than `before`; how many."""
    with store.reading() as connection:
        front = connection.execute(
            "select newest from chunk where partition=? order by base limit 1", (partition,)
        ).fetchone()
    if front is None or front[0] >= before:
        return 0
    with store.writing() as connection:
        removed, size, upto = 0, 0, None
        for base, count, newest, length in connection.execute(
            "select base, count, newest, length(body) from chunk where partition=? order by base limit ?",
            (partition, _EXPIRE_CHUNKS),
        ):
            if newest >= before:
                break
            removed, size, upto = removed + 1, size + length, base + count
        if removed:
            connection.execute("delete from chunk where partition=? and base < ?", (partition, upto))
            connection.execute(
                'update partition set "begin"=?, bytes=bytes-? where id=?', (upto, size, partition)
            )
        return removed


def _stored_declaration(
    connection: Connection, name: str
) -> tuple[int, str, str, str, bool, int | None] | None:
    row = connection.execute(
        "select (select count(*) from partition where topic=t.id), codec, type, fields, envelope, retention from topic t where name=?",
        (name,),
    ).fetchone()
    return None if row is None else (row[0], row[1], row[2], row[3], bool(row[4]), row[5])


def _create_topic(
    connection: Connection,
    name: str,
    partitions: int,
    wanted: declarations.TopicFormat,
    retention: int | None,
) -> None:
    topic = connection.execute(
        "insert into topic(name, codec, type, fields, envelope, retention, partitioner) values(?, ?, ?, ?, ?, ?, ?)",
        (name, *wanted, retention, NEW_TOPICS),
    ).lastrowid
    connection.execute("insert into identity values(?, ?)", (topic, uuid.uuid4().hex))
    connection.executemany(
        "insert into partition(topic, number) values(?, ?)", [(topic, number) for number in range(partitions)]
    )


def _append_time(now: int | None) -> int:
    return time.time_ns() // 1_000_000 if now is None else now
