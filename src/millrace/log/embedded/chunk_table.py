"""The table `chunk`: the records of each partition, a chunk in each row.

The chunks of a partition are adjacent: each begins (`base`) where the one before ends (`base + count`). How
far they reach also stands in the table `partition` (`begin`, `end`), and both are compared whenever offsets
are asked for or records are appended. A single flipped bit would otherwise leave events out: with `end` = 7
instead of 39, a reader would believe that it has read everything.
"""

import struct
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa

from millrace.errors import LogDamaged
from millrace.log.contract import Records
from millrace.log.embedded import chunks
from millrace.log.embedded.sqlite import Store, damaged_error
from millrace.log.embedded.topic_table import StoredTopic

_MERGE_BYTES = 4096
"""A smaller chunk is merged with the next append, so that a trickle does not make a row for each record."""
EXPIRED_AT_ONCE = 1000
"""How many chunks are removed in one transaction at most."""
Boundary: TypeAlias = Literal["begin", "end"]

_FIRST_BASE = 'ifnull((select base from chunk where partition = p.id order by base limit 1), p."end")'
_LAST_END = (
    'ifnull((select base + count from chunk where partition = p.id order by base desc limit 1), p."begin")'
)
_OFFSETS = {
    "begin": f'select "begin", {_FIRST_BASE} from partition p where id between ? and ? order by id',  # noqa: S608 - constants of this file
    "end": f'select "end", {_LAST_END} from partition p where id between ? and ? order by id',  # noqa: S608 - constants of this file
}
"""The boundary that `partition` declares, and the one that the chunks show."""
_APPEND_POSITION = (
    f'select "end", {_LAST_END}, t.name, p.number from partition p '  # noqa: S608 - constants of this file
    "join topic t on t.id = p.topic where p.id = ?"
)
_CHUNK = (
    "select i.base, c.count, c.body, c.partition = i.partition and c.base = i.base "
    "from chunk i cross join chunk c on c.rowid = i.rowid where i.partition=?1"
)
"""Found in the index as `i`, read from the table as `c`: a bit flipped in the index is noticed."""


class ChunkRow(NamedTuple):
    """A row of the table."""

    base: int
    records: int
    """How many."""
    body: bytes
    is_consistent: bool
    """Whether index and table agree on partition and base."""


class NewChunks(NamedTuple):
    """What is appended to one partition."""

    partition_id: int
    chunks: list[tuple[int, bytes]]
    """Of each: how many records, and their bytes."""
    now: int
    """The append time."""


def read_offsets(topic: StoredTopic, boundary: Boundary) -> dict[int, int]:
    """Where each partition begins or ends; `LogDamaged` if its chunks contradict."""
    with topic.store.reading() as connection:
        rows = connection.execute(
            _OFFSETS[boundary], (topic.partition_ids[0], topic.partition_ids[-1])
        ).fetchall()
    for number, (declared, in_chunks) in enumerate(rows):
        if declared != in_chunks:
            raise _inconsistent_offsets(topic.store, f"{topic.name}[{number}]", boundary, declared, in_chunks)
    return {number: declared for number, (declared, _) in enumerate(rows)}


def read_rows(store: Store, partition_id: int, start: int, end: int) -> list[ChunkRow]:
    """The chunks that hold the offsets of `[start, end)`, as far as there are any."""
    with store.reading() as connection:
        rows = connection.execute(
            f"{_CHUNK} and i.base < ?3 "  # noqa: S608 - a constant of this file
            "and i.base >= (select max(base) from chunk where partition=?1 and base <= ?2) order by i.base",
            (partition_id, start, end),
        )
        return [ChunkRow(*row) for row in rows]


def to_records(topic: StoredTopic, partition: int, rows: Sequence[ChunkRow], start: int, end: int) -> Records:
    """The records of `[start, end)` from adjacent chunks; `LogDamaged` names the damaged offsets."""
    try:
        _check_adjacent(rows)
        return chunks.read_records(rows[0].base, [row.body for row in rows], start, end)
    except (LogDamaged, ValueError, struct.error, pa.ArrowException) as error:
        damaged = [row for row in rows if _is_damaged(row.body)][:1] or rows
        first, last = damaged[0].base, damaged[-1].base + damaged[-1].records
        raise damaged_error(
            topic.store.path,
            f"{topic.name}[{partition}], offsets {first} to {last}",
            f"{last - first} records",
            error,
        ) from error


def insert(store: Store, connection: Connection, prepared: Sequence[NewChunks]) -> None:
    """Appends chunks to their partitions, within the transaction that is open."""
    for partition_id, new_chunks, now in prepared:
        end, chunks_end, topic, number = connection.execute(_APPEND_POSITION, (partition_id,)).fetchone()
        name = f"{topic}[{number}]"
        if end != chunks_end:
            raise _inconsistent_offsets(store, name, "end", end, chunks_end)
        added_bytes = _merge_into_last(store, connection, (partition_id, name, end), new_chunks[0], now)
        remaining_chunks = new_chunks
        if added_bytes:
            end, remaining_chunks = end + new_chunks[0][0], new_chunks[1:]
        for count, body in remaining_chunks:
            connection.execute(
                "insert into chunk values(?, ?, ?, ?, ?)", (partition_id, end, count, now, body)
            )
            end, added_bytes = end + count, added_bytes + len(body)
        connection.execute(
            'update partition set "end"=?, bytes=bytes+? where id=?', (end, added_bytes, partition_id)
        )


def _merge_into_last(
    store: Store,
    connection: Connection,
    position: tuple[int, str, int],
    new_chunk: tuple[int, bytes],
    now: int,
) -> int:
    """Merges a small chunk with the partition's last one if that is small, too. Returns by how many bytes
    that one grew; 0: not merged.

    `position`: the id of the partition, its name, and where it ends. With 100 bytes a record, an append of
    one record at a time makes a new row about every 40 appends, and each append rewrites at most 4 kB.
    """
    (partition_id, partition_name, end), (count, body) = position, new_chunk
    if len(body) >= _MERGE_BYTES:
        return 0
    row = connection.execute(f"{_CHUNK} order by i.base desc limit 1", (partition_id,)).fetchone()
    if row is None or len(row[2]) >= _MERGE_BYTES:
        return 0
    last = ChunkRow(*row)
    if last.base + last.records != end or not last.is_consistent:
        raise _inconsistent_offsets(store, partition_name, "end", end, last.base + last.records)
    merged = chunks.merge([last.body, body])
    connection.execute(
        "update chunk set count=?, newest=max(newest, ?), body=? where partition=? and base=?",
        (last.records + count, now, merged, partition_id, last.base),
    )
    return len(merged) - len(last.body)


def newest_append_time(connection: Connection, topic_id: int) -> int:
    """When the newest record of a topic was appended; 0: it has none."""
    cursor = connection.execute(
        "select coalesce(max(last), 0) from (select (select newest from chunk where partition=p.id order by "
        "base desc limit 1) as last from partition p where p.topic=?)",
        (topic_id,),
    )
    return int(cursor.fetchone()[0])


def remove_expired(store: Store, partition_id: int, before: int) -> int:
    """Removes chunks whose newest record is older than `before`, at most `EXPIRED_AT_ONCE`; how many."""
    with store.reading() as connection:
        front = connection.execute(
            "select newest from chunk where partition=? order by base limit 1", (partition_id,)
        ).fetchone()
    if front is None or front[0] >= before:
        return 0
    with store.writing() as connection:
        removed, size, new_begin = 0, 0, None
        for base, count, newest, length in connection.execute(
            "select base, count, newest, length(body) from chunk where partition=? order by base limit ?",
            (partition_id, EXPIRED_AT_ONCE),
        ):
            if newest >= before:
                break
            removed, size, new_begin = removed + 1, size + length, base + count
        if removed:
            connection.execute("delete from chunk where partition=? and base < ?", (partition_id, new_begin))
            connection.execute(
                'update partition set "begin"=?, bytes=bytes-? where id=?', (new_begin, size, partition_id)
            )
        return removed


def _check_adjacent(rows: Sequence[ChunkRow]) -> None:
    """Refuses chunks that leave a gap, or hold another number of records than their rows declare."""
    next_bases = [row.base for row in rows[1:]] + [rows[-1].base + rows[-1].records]
    for row, next_base in zip(rows, next_bases, strict=True):
        if (
            not row.is_consistent
            or row.base + row.records != next_base
            or (len(row.body) >= chunks.HEAD_BYTES and chunks.count_records(row.body) != row.records)
        ):
            raise LogDamaged(f"the chunk at {row.base} does not hold the records up to {next_base}")


def _is_damaged(body: bytes) -> bool:
    try:
        chunks.check_chunk(body)
    except LogDamaged:
        return True
    return False


def _inconsistent_offsets(
    store: Store, partition_name: str, boundary: Boundary, declared: int, in_chunks: int
) -> LogDamaged:
    error = LogDamaged(f"its {boundary} is recorded as {declared}, but its chunks {boundary} at {in_chunks}")
    return damaged_error(store.path, partition_name, "its records", error)
