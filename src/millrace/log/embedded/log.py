"""The log in a folder: SQLite files, no server, for the processes of one machine.

`inputs.db` holds the topics `input.*`, `results.db` all others and the markers of writers: a commit is atomic
within one file. Each append puts one row, a chunk of records, in each partition it touches; a small chunk is
merged with the one before it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from millrace.errors import LogUnwritable, OffsetGone, TopicMissing
from millrace.log.contract import Names, OutgoingRecords, Records, TopicInfo, pause
from millrace.log.declarations import RAW_FORMAT
from millrace.log.embedded import chunk_table, topic_table, watermark_table
from millrace.log.embedded.chunk_table import NewChunks
from millrace.log.embedded.chunks import split_into_chunks
from millrace.log.embedded.sqlite import Store
from millrace.log.embedded.tail import follow
from millrace.log.embedded.topic_table import StoredTopic
from millrace.log.embedded.writer import EmbeddedWriter
from millrace.log.partitioning import split_by_partition
from millrace.log.writer_watermarks import History
from millrace.topics import Topic, check_name
from millrace.values import event_types


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
                    f"the log folder {self._folder} cannot be made ({error.strerror}); choose another, or "
                    "give this user permission"
                ) from error
        self._results = Store(self._folder / "results.db", create=create)
        self._inputs = Store(self._folder / "inputs.db", create=create)
        self._topics: dict[str, StoredTopic] = {}

    def ensure(self, topic: Topic) -> None:
        """Creates the topic, or checks that the existing one is the same; updates its retention."""
        wanted = (topic.codec, topic.type_name, event_types.signature(topic.typed().type), topic.envelope)
        topic_table.ensure_topic(
            self._store_of(topic.name), topic.name, topic.partitions, wanted, topic.retention_ms
        )

    def ensure_raw(self, name: str, *, partitions: int = 1, retention: int | None = None) -> None:
        """Creates a topic of bytes, such as dead letters; its retention is brought up to date."""
        check_name(name)
        topic_table.ensure_topic(self._store_of(name), name, partitions, RAW_FORMAT, retention)

    def list_topics(self) -> Names:
        """The names of all topics, sorted."""
        return sorted(topic_table.list_topics(self._inputs) + topic_table.list_topics(self._results))

    def describe(self, topic: str) -> TopicInfo:
        """What the log knows of a topic."""
        return topic_table.describe(self._find_topic(topic))

    def append(self, topic: str, batch: OutgoingRecords, *, now: int | None = None) -> None:
        """Appends all records in one transaction."""
        stored = self._find_topic(topic)
        prepared = self._prepare(stored, batch, now)
        with stored.store.writing() as connection:
            chunk_table.insert(stored.store, connection, prepared)

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The records of exactly that range."""
        stored = self._find_topic(topic)
        if start == end:
            return Records.empty()
        if not 0 <= partition < len(stored.partition_ids):
            raise OffsetGone(f"{topic} has partitions 0 to {len(stored.partition_ids) - 1}, not {partition}")
        rows = chunk_table.read_rows(stored.store, stored.partition_ids[partition], start, end)
        if not rows or start > end or rows[-1].base + rows[-1].records < end:
            begin, held_end = self.start_offsets(topic)[partition], self.end_offsets(topic)[partition]
            raise OffsetGone(
                f"{topic}[{partition}] holds offsets {begin} to {held_end}, not all of {start} to {end}; "
                f"start again from {begin}, or restore the log"
            )
        return chunk_table.to_records(stored, partition, rows, start, end)

    def identity(self, topic: str) -> str | None:
        """Drawn when the topic is made; topics of earlier versions have none."""
        return topic_table.read_identity(self._find_topic(topic))

    def max_record_bytes(self, topic: str) -> int | None:
        """No limit but the disk's."""
        del topic
        return None

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""
        return chunk_table.read_offsets(self._find_topic(topic), "begin")

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""
        return chunk_table.read_offsets(self._find_topic(topic), "end")

    def await_commits(self, topic: str) -> None:
        """There is nothing to wait for: a commit is there when it returns."""

    def writer(self, name: str) -> EmbeddedWriter:
        """Takes over the name: the older writer's next commit fails."""
        return EmbeddedWriter(self._results, name, self._find_topic, self._prepare)

    def writer_watermarks(self, topic: str) -> History:
        """By writer, the newest first; nothing of a topic in which runs do not write."""
        return watermark_table.read(self._results, topic)

    def withdraw_watermarks(self, topic: str, writer: str) -> None:
        """Removes the rows of a writer."""
        watermark_table.delete(self._results, topic, writer)

    def tail(
        self,
        topic: str,
        *,
        start: Literal["begin", "end"] | Mapping[int, int] = "end",
        wait: Callable[[], bool] = pause,
    ) -> Iterator[tuple[int, Records]]:
        """Yields records as they arrive; partitions left out of `start` are read from their beginning."""
        return follow(self, topic, start, wait)

    def expire(self, now: int, *, elapsed: int | None = None) -> None:
        """Removes whole chunks from the front of partitions. Space is reused; the files do not shrink."""
        for store in (self._inputs, self._results):
            with store.reading() as connection:
                partitions = connection.execute(
                    "select p.id, t.id, t.retention from topic t join partition p on p.topic = t.id where "
                    "t.retention is not null"
                ).fetchall()
                newest = (
                    {topic: chunk_table.newest_append_time(connection, topic) for _, topic, _ in partitions}
                    if elapsed is not None
                    else {}
                )
            for partition_id, topic, retention in partitions:
                topic_time = now if elapsed is None else min(now, newest[topic] + elapsed)
                while (
                    chunk_table.remove_expired(store, partition_id, topic_time - retention)
                    == chunk_table.EXPIRED_AT_ONCE
                ):
                    pass

    def close(self) -> None:
        """Closes the files."""
        self._inputs.close()
        self._results.close()

    def _store_of(self, topic: str) -> Store:
        return self._inputs if topic.startswith("input.") else self._results

    def _find_topic(self, name: str) -> StoredTopic:
        topic = self._topics.get(name)
        if topic is None:
            topic = topic_table.find_topic(self._store_of(name), name)
            if topic is None:
                raise TopicMissing(
                    f"there is no topic {name!r} in {self._folder}; there are "
                    f"{', '.join(self.list_topics()) or 'none yet'}. A run or ingestion "
                    "that uses it creates it"
                )
            self._topics[name] = topic
        return topic

    def _prepare(self, topic: StoredTopic, batch: OutgoingRecords, now: int | None) -> list[NewChunks]:
        """The chunks for each partition, made before the transaction so that it stays short."""
        append_time = time.time_ns() // 1_000_000 if now is None else now
        if len(topic.partition_ids) == 1 and batch.partitions is None:
            parts = [(0, batch)] if len(batch) else []
        else:
            first_turn = sum(self.end_offsets(topic.name).values()) if batch.partitions is None else 0
            parts = list(
                split_by_partition(topic.name, batch, len(topic.partition_ids), first_turn, topic.partitioner)
            )
        return [
            NewChunks(topic.partition_ids[number], list(split_into_chunks(part, append_time)), append_time)
            for number, part in parts
        ]
