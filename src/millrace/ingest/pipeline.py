"""Connector → processor → log: a batch is acknowledged only when the log has it."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import pyarrow as pa

from millrace.errors import DefinitionError
from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.contract import Connector, MessageBatch, MessageProcessor, Reject
from millrace.ingest.isolation import isolate
from millrace.log.contract import Headers, Log, OutgoingRecords
from millrace.log.dead_letters import dead_topic, split_letters, truncate_letters

BATCH_LIMIT = 10_000
"""The most messages that are written together."""
BATCH_WAIT = 50
"""How long messages are gathered, in milliseconds: what a message waits at most before it is written."""


@dataclass
class IngestCounts:
    """What has become of the messages so far: `received` is the sum of the other three, where a message tells of one event."""

    received: int = 0
    written: Counter[str] = field(default_factory=Counter)
    """By topic."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Understood but of no interest, by kind."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Dead letters, by reason."""
    max_event_time: int | None = None
    """The greatest event time written."""
    recovered_errors: Counter[str] = field(default_factory=Counter)
    """What went wrong at the source and was overcome, by kind."""


class StopSignal:
    """Asked for by anyone, from any thread; obeyed between two batches, so that none is left half written."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    def request(self) -> None:
        """Ends ingestion after the batch at hand."""
        self._requested.set()

    @property
    def is_requested(self) -> bool:
        """Whether to end."""
        return self._requested.is_set()

    @contextmanager
    def on_interrupt(self) -> Iterator["StopSignal"]:
        """While inside, Ctrl-C (or a polite kill) asks to stop; a second one stops at once."""

        def handle(number: int, _frame: FrameType | None) -> None:
            if self.is_requested:
                signal.signal(number, previous[number])
                raise KeyboardInterrupt
            self.request()

        previous = {int(number): signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def ingest(
    connector: Connector,
    processor: MessageProcessor,
    log: Log,
    *,
    stop: StopSignal | None = None,
    report: Callable[[IngestCounts], None] | None = None,
    clock: Clock | None = None,
    limit: int = BATCH_LIMIT,
    wait: int = BATCH_WAIT,
) -> IngestCounts:
    """Until the connector ends or `stop` is asked for; `report` is called after each batch."""
    stop, clock, counts = stop or StopSignal(), clock or WallClock(), IngestCounts()
    for topic in processor.topics:
        if topic.is_read_only:
            raise DefinitionError(
                f"topic {topic.name!r} is one that others write, so nothing can be ingested into it; name another"
            )
        log.ensure(topic)
    dead = dead_topic(processor.topics[0].name)
    connector.set_topic_filters(processor.filters)
    with connector:
        while not stop.is_requested:
            batch = connector.poll(limit=limit, wait=wait)
            if batch is None:
                break
            if len(batch) or batch.rejects:
                _write_batch(batch, processor, log, dead, counts, clock.now())
                connector.acknowledge(batch)
            counts.recovered_errors = connector.recovered_errors()
            if report is not None:
                report(counts)
    return counts


def _write_batch(
    batch: MessageBatch, processor: MessageProcessor, log: Log, dead: str, counts: IngestCounts, now: int
) -> None:
    """Dead letters first: should the log fail in between, the batch comes again and nothing was lost."""
    isolated = isolate(processor, batch)
    rejects = [*batch.rejects, *isolated.rejects]
    if rejects:
        log.ensure_raw(dead)
        for dead_letters in split_letters(
            truncate_letters(_dead_letters(rejects), log.max_record_bytes(dead))
        ):
            log.append(dead, dead_letters, now=now)
    for encoded in isolated.rows:
        log.append(encoded.topic.name, encoded.records, now=now)
        counts.written[encoded.topic.name] += len(encoded.records)
        if encoded.max_event_time is not None:
            counts.max_event_time = (
                encoded.max_event_time
                if counts.max_event_time is None
                else max(counts.max_event_time, encoded.max_event_time)
            )
    counts.received += len(batch) + len(batch.rejects)
    counts.skipped.update(isolated.skipped)
    counts.rejected.update(reject.reason for reject in rejects)


def _dead_letters(rejects: Sequence[Reject]) -> OutgoingRecords:
    return OutgoingRecords(
        pa.array([reject.raw.payload for reject in rejects], pa.binary()),
        None,
        list(map(_dead_letter_headers, rejects)),
    )


def _dead_letter_headers(reject: Reject) -> Headers:
    fields = {
        "reason": reject.reason,
        "detail": reject.detail,
        "origin": reject.raw.origin,
        "source": reject.raw.topic,
        "received": str(reject.raw.received),
    }
    return tuple((name, value.encode(errors="replace")) for name, value in fields.items())
