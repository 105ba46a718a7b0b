"""The table `watermark`: how far writers vouch for topics (`writer_watermarks`), a row for each commit that
moved a watermark.

Older rows are for readers that are behind. Their number is bounded: of a topic and writer the last
`ALL_MARKERS` commits are kept, of earlier ones each `EVERY`-th, up to `OLDEST_MARKERS` back. What was removed
holds a reader back for a moment and does nothing else.
"""

import zlib
from collections.abc import Iterator, Mapping
from sqlite3 import Connection

from millrace.errors import LogDamaged
from millrace.log.embedded.sqlite import Store, damaged_error
from millrace.log.writer_watermarks import History, WriterWatermark

ALL_MARKERS, EVERY, OLDEST_MARKERS = 1_000, 64, 500_000
_CHECKSUM_BYTES = 4


def insert(connection: Connection, writer: str, marker: int, watermarks: Mapping[str, int]) -> None:
    """Adds the watermarks of a commit, after its records, within its transaction."""
    for topic, watermark in watermarks.items():
        ends = connection.execute(
            'select p."end" from partition p join topic t on p.topic = t.id where t.name=? order by p.number',
            (topic,),
        )
        record = WriterWatermark(topic, writer, watermark, [end for (end,) in ends])
        body = record.to_json()
        connection.execute(
            "insert into watermark values(?, ?, ?, ?)", (topic, writer, marker, _checksum(body) + body)
        )
        if marker % EVERY == 0:
            connection.execute(
                "delete from watermark where topic=? and writer=? and marker < ? "
                "and (marker % ? or marker < ?)",
                (topic, writer, marker - ALL_MARKERS, EVERY, marker - OLDEST_MARKERS),
            )


def read(store: Store, topic: str) -> History:
    """By writer; each row is read when it is asked for."""
    with store.reading() as connection:
        writers = connection.execute("select distinct writer from watermark where topic=?", (topic,))
        return {writer: _newest_first(store, topic, writer) for (writer,) in writers.fetchall()}


def delete(store: Store, topic: str, writer: str) -> None:
    """Removes the rows of a writer."""
    with store.writing() as connection:
        connection.execute("delete from watermark where topic=? and writer=?", (topic, writer))


def _newest_first(store: Store, topic: str, writer: str) -> Iterator[WriterWatermark]:
    before = None
    while True:
        with store.reading() as connection:
            row = connection.execute(
                "select marker, body from watermark where topic=? and writer=? and (? is null or marker < ?) "
                "order by marker desc limit 1",
                (topic, writer, before, before),
            ).fetchone()
        if row is None:
            return
        before = row[0]
        yield _parse(store, topic, row[1])


def _parse(store: Store, topic: str, stored: bytes) -> WriterWatermark:
    body = stored[_CHECKSUM_BYTES:]
    if _checksum(body) != stored[:_CHECKSUM_BYTES]:
        error = LogDamaged("the checksum does not fit")
        raise damaged_error(store.path, f"the watermarks of {topic}", "how far it is complete", error)
    return WriterWatermark.from_json(body)


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big")
