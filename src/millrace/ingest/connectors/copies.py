"""Multiplies the volume: every event several times, as if other vehicles had sent it some seconds later."""

from collections import Counter, deque

import polars as pl

from millrace import durations
from millrace.errors import ConfigError, DefinitionError
from millrace.ingest.contract import Connector, MessageBatch, MessageProcessor, Reject
from millrace.topics import Topic

_GOLDEN_RATIO = 0.618_033_988_749_895
"""The fractional parts of its multiples are spread evenly (golden ratio), so copies do not move in step."""


class Copies(Connector):
    """A connector with its processor, whose events come `copies` times.

    Copy k of an event has the key `<key>~k`. Its times are later by a part of `spread`, a different one for
    each copy, so that copies do not move in step. Copies wait in memory until the originals have reached
    their times; at the end, all waiting copies are returned at once. Rejects are not copied, and skipped
    messages are not counted.
    """

    def __init__(
        self, connector: Connector, processor: MessageProcessor, *, copies: int, spread: str = "1m"
    ) -> None:
        if type(copies) is not int or not 1 <= copies <= 1_000:
            raise ConfigError(f"copies={copies!r} must be a whole number from 1 to 1000")
        try:
            spread_ms = durations.parse_positive(spread, name="spread")
        except DefinitionError as error:
            raise ConfigError(str(error)) from error
        self.connector, self.processor = connector, processor
        self.topics = processor.topics
        for topic in self.topics:
            if topic.key is None or topic.schema[topic.key] != pl.String():
                raise ConfigError(
                    f"copies={copies} of {topic.name} could not be told apart: it has no key of text"
                )
        self.delays = [
            0,
            *(max(1, round(spread_ms * (number * _GOLDEN_RATIO % 1))) for number in range(1, copies)),
        ]
        self._delayed: dict[str, pl.DataFrame] = {}
        self._max_ingestion_time = 0
        self._unacknowledged: deque[MessageBatch | None] = deque()
        """The original batch of each batch that was returned, in order; None for one that holds only
        copies."""

    def open(self) -> None:
        """Connects."""
        self.connector.set_topic_filters(self.processor.filters)
        self.connector.open()

    def close(self) -> None:
        """Closes the original connector."""
        self.connector.close()

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        """The events that are due, originals and copies. A batch may exceed `limit`, because each message has
        its copies.
        """
        batch = self.connector.poll(limit=max(1, limit // len(self.delays)), wait=wait)
        if batch is None:
            remaining = self._take_due(None)
            self._unacknowledged.append(None)
            return MessageBatch(rows=remaining) if remaining else None
        processed = self.processor.process_many(batch)
        for topic, rows in processed.rows:
            self._delay_rows(topic, rows)
        rejects: list[Reject] = [*batch.rejects, *processed.rejects]
        result = MessageBatch(rows=self._take_due(self._max_ingestion_time), rejects=rejects)
        if len(result) or rejects:
            self._unacknowledged.append(batch)
        elif len(batch):
            self.connector.acknowledge(batch)  # no event in it, and nothing else will acknowledge it
        return result

    def acknowledge(self, batch: MessageBatch) -> None:  # noqa: ARG002 - it holds copies; the originals are at hand
        """Acknowledges the originals. Their copies may still wait in memory: these are lost if the process
        dies.
        """
        originals = self._unacknowledged.popleft()
        if originals is not None:
            self.connector.acknowledge(originals)

    def recovered_errors(self) -> Counter[str]:
        """The errors of the original connector."""
        return self.connector.recovered_errors()

    def _delay_rows(self, topic: Topic, rows: pl.DataFrame) -> None:
        newest = rows["ingestion_time"].max()
        self._max_ingestion_time = (
            max(self._max_ingestion_time, newest) if isinstance(newest, int) else self._max_ingestion_time
        )
        delayed = self._delayed.get(topic.name)
        copies = [_copy_rows(rows, str(topic.key), number, delay) for number, delay in enumerate(self.delays)]
        self._delayed[topic.name] = pl.concat([delayed, *copies] if delayed is not None else copies)

    def _take_due(self, until: int | None) -> list[tuple[Topic, pl.DataFrame]]:
        """The rows that are due at this ingestion time (None: all rows), in order of time."""
        due: list[tuple[Topic, pl.DataFrame]] = []
        for topic in self.topics:
            delayed = self._delayed.get(topic.name)
            if delayed is None:
                continue
            is_due = pl.col("ingestion_time") <= until if until is not None else pl.lit(value=True)
            rows = delayed.filter(is_due).sort("ingestion_time", maintain_order=True)
            self._delayed[topic.name] = delayed.filter(~is_due)
            if len(rows):
                due.append((topic, rows))
        return due


def _copy_rows(rows: pl.DataFrame, key: str, number: int, delay: int) -> pl.DataFrame:
    if not number:
        return rows
    return rows.with_columns(
        pl.format(f"{{}}~{number}", key).alias(key), pl.col("event_time", "ingestion_time") + delay
    )
