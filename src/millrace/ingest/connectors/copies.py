"""More volume from what there is: every event several times, as if by other vehicles some seconds later."""

from collections import Counter, deque

import polars as pl

from millrace import durations
from millrace.errors import ConfigError, DefinitionError
from millrace.ingest.contract import Batch, Connector, Processor, Reject
from millrace.topics import Topic

_GOLDEN = 0.618_033_988_749_895
"""Multiples of it, without their whole parts, are spread evenly and fall into no step."""


class Copies(Connector):
    """A connector and its processor, `copies` times over.

    Copy k of an event has the key `<key>~k`, and its times are later by a part of `spread`, another one for each copy, so that copies do not
    move in step. Copies wait in memory until the originals have come as far; at the end all that wait come at once. What the processor
    rejects is rejected once, and what it passes over is not counted.
    """

    def __init__(
        self, connector: Connector, processor: Processor, *, copies: int, spread: str = "1m"
    ) -> None:
        if type(copies) is not int or not 1 <= copies <= 1_000:
            raise ConfigError(f"copies={copies!r} must be a whole number from 1 to 1000")
        try:
            length = durations.positive(spread, name="spread")
        except DefinitionError as error:
            raise ConfigError(str(error)) from error
        self.connector, self.processor = connector, processor
        self.topics = processor.topics
        for topic in self.topics:
            if topic.key is None or topic.schema[topic.key] != pl.String():
                raise ConfigError(
                    f"copies={copies} of {topic.name} could not be told apart: it has no key of text"
                )
        self.shifts = [0, *(max(1, round(length * (k * _GOLDEN % 1))) for k in range(1, copies))]
        self._waiting: dict[str, pl.DataFrame] = {}
        self._reached = 0
        self._given: deque[Batch | None] = deque()
        """The originals of batches that were given out, in order; None: copies alone."""

    def open(self) -> None:
        """Connects."""
        self.connector.interested_in(self.processor.filters)
        self.connector.open()

    def close(self) -> None:
        """Lets go."""
        self.connector.close()

    def poll(self, *, limit: int, wait: int) -> Batch | None:
        """The events that are due, originals and copies; a batch may have more than `limit`, as each message has its copies."""
        batch = self.connector.poll(limit=max(1, limit // len(self.shifts)), wait=wait)
        if batch is None:
            rest = self._due(None)
            self._given.append(None)
            return Batch(rows=rest) if rest else None
        done = self.processor.process_many(batch)
        for topic, rows in done.rows:
            self._wait(topic, rows)
        rejects: list[Reject] = [*batch.rejects, *done.rejects]
        made = Batch(rows=self._due(self._reached), rejects=rejects)
        if len(made) or rejects:
            self._given.append(batch)
        elif len(batch):
            self.connector.acknowledge(batch)  # all of it is of no interest, and nobody will ask for it again
        return made

    def acknowledge(self, batch: Batch) -> None:  # noqa: ARG002 - it holds copies; the originals are at hand
        """Acknowledges the originals, whose copies may still wait: those are lost if the process dies."""
        originals = self._given.popleft()
        if originals is not None:
            self.connector.acknowledge(originals)

    def troubles(self) -> Counter[str]:
        """Those of the connector."""
        return self.connector.troubles()

    def _wait(self, topic: Topic, rows: pl.DataFrame) -> None:
        newest = rows["ingestion_time"].max()
        self._reached = max(self._reached, newest) if isinstance(newest, int) else self._reached
        before = self._waiting.get(topic.name)
        made = [_shifted(rows, str(topic.key), number, shift) for number, shift in enumerate(self.shifts)]
        self._waiting[topic.name] = pl.concat([before, *made] if before is not None else made)

    def _due(self, until: int | None) -> list[tuple[Topic, pl.DataFrame]]:
        """What is due by this ingestion time (None: everything), in its order."""
        due: list[tuple[Topic, pl.DataFrame]] = []
        for topic in self.topics:
            waiting = self._waiting.get(topic.name)
            if waiting is None:
                continue
            ripe = pl.col("ingestion_time") <= until if until is not None else pl.lit(value=True)
            taken = waiting.filter(ripe).sort("ingestion_time", maintain_order=True)
            self._waiting[topic.name] = waiting.filter(~ripe)
            if len(taken):
                due.append((topic, taken))
        return due


def _shifted(rows: pl.DataFrame, key: str, number: int, shift: int) -> pl.DataFrame:
    if not number:
        return rows
    return rows.with_columns(
        pl.format(f"{{}}~{number}", key).alias(key), pl.col("event_time", "ingestion_time") + shift
    )
