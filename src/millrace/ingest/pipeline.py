"""Connector → processor → log. A batch is acknowledged only after the log has it.

So no message is lost, and some may be written twice. Example: a batch of messages 1 to 3, of which 2 is
malformed.

    1. message 2 is appended to dead.<topic>
    2. messages 1 and 3 are appended to the topic
    3. messages 1 to 3 are acknowledged

After a crash between two of these steps, the source delivers 1 to 3 again, and steps 1 and 2 are repeated.
Jobs that have to count each event once therefore begin with `deduplicate`.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from millrace.timestamps import EarlyTimes

BATCH_LIMIT = 10_000
"""The most messages of one batch."""
BATCH_WAIT = 50
"""Milliseconds for which a batch is gathered, and so the longest wait of a message before it is written."""


@dataclass
class IngestCounts:
    """Counts of messages so far. If each message is one event, `received` is the sum of the other three."""

    received: int = 0
    written: Counter[str] = field(default_factory=Counter)
    """By topic."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Understood and ignored on purpose, by kind."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Dead letters, by reason."""
    max_event_time: int | None = None
    """The latest event time written."""
    recovered_errors: Counter[str] = field(default_factory=Counter)
    """Errors at the source that were overcome, by kind."""
    first_reject: str = ""
    """Where the first dead letter stood, and what is wrong with it."""
    early_times: dict[str, EarlyTimes] = field(default_factory=dict)
    """By column, how many times are suspiciously early, and the first of them."""

    def add_early_times(self, found: Mapping[str, EarlyTimes]) -> None:
        """Takes those of one more batch into account."""
        for column, early in found.items():
            known = self.early_times.get(column, early._replace(rows=0))
            self.early_times[column] = known._replace(rows=known.rows + early.rows)


class StopSignal:
    """A request to stop, from any thread. It takes effect between two batches, so none is left half
    written.
    """

    def __init__(self) -> None:
        self._requested = threading.Event()

    def request(self) -> None:
        """Asks ingestion to stop after the current batch."""
        self._requested.set()

    @property
    def is_requested(self) -> bool:
        """Whether somebody asked to stop."""
        return self._requested.is_set()

    @contextmanager
    def on_interrupt(self) -> Iterator["StopSignal"]:
        """Within this context, Ctrl-C or SIGTERM asks to stop; a second one stops at once."""

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
    """Runs until the connector ends or `stop` is requested. `report` is called after each batch."""
    stop, clock, counts = stop or StopSignal(), clock or WallClock(), IngestCounts()
    for topic in processor.topics:
        if topic.is_read_only:
            raise DefinitionError(
                f"topic {topic.name!r} is read-only here, because other programs write it, so nothing can "
                "be ingested into it; name another"
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
    """Writes dead letters first: if the log fails in between, the whole batch is delivered again and nothing
    is lost.
    """
    isolated = isolate(processor, batch)
    rejects = [*batch.rejects, *isolated.rejects]
    if rejects:
        counts.first_reject = counts.first_reject or _describe(rejects[0])
        log.ensure_raw(dead)
        for dead_letters in split_letters(
            truncate_letters(_dead_letters(rejects), log.max_record_bytes(dead))
        ):
            log.append(dead, dead_letters, now=now)
    for encoded in isolated.rows:
        log.append(encoded.topic.name, encoded.records, now=now)
        counts.written[encoded.topic.name] += len(encoded.records)
        counts.add_early_times(encoded.early_times)
        if encoded.max_event_time is not None:
            counts.max_event_time = (
                encoded.max_event_time
                if counts.max_event_time is None
                else max(counts.max_event_time, encoded.max_event_time)
            )
    counts.received += len(batch) + len(batch.rejects)
    counts.skipped.update(isolated.skipped)
    counts.rejected.update(reject.reason for reject in rejects)


def _describe(reject: Reject) -> str:
    text = ": ".join(filter(None, (reject.raw.origin, reject.reason, reject.detail)))
    return " ".join(text.split())[:500]


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
