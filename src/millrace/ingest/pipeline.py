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
from millrace.ingest.contract import Batch, Connector, Processor, Reject
from millrace.ingest.isolation import isolate
from millrace.log.contract import Headers, Log, Outgoing
from millrace.log.dead import dead_topic, fit, portions

LIMIT = 10_000
"""The most messages that are written together."""
WAIT = 50
"""How long messages are gathered, in milliseconds: what a message waits at most before it is written."""


@dataclass
class Counts:
    """What has become of the messages so far: `received` is the sum of the other three, where a message tells of one event."""

    received: int = 0
    written: Counter[str] = field(default_factory=Counter)
    """By topic."""
    passed: Counter[str] = field(default_factory=Counter)
    """Understood but of no interest, by kind."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Dead letters, by reason."""
    latest: int | None = None
    """The greatest event time written."""
    troubles: Counter[str] = field(default_factory=Counter)
    """What went wrong at the source and was overcome, by kind."""


class Stop:
    """Asked for by anyone, from any thread; obeyed between two batches, so that none is left half written."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        """Ends ingestion after the batch at hand."""
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether to end."""
        return self._asked.is_set()

    @contextmanager
    def on_interrupt(self) -> Iterator["Stop"]:
        """While inside, Ctrl-C (or a polite kill) asks to stop; a second one stops at once."""

        def handle(number: int, _frame: FrameType | None) -> None:
            if self.asked:
                signal.signal(number, previous[number])
                raise KeyboardInterrupt
            self.ask()

        previous = {int(number): signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def ingest(
    connector: Connector,
    processor: Processor,
    log: Log,
    *,
    stop: Stop | None = None,
    report: Callable[[Counts], None] | None = None,
    clock: Clock | None = None,
    limit: int = LIMIT,
    wait: int = WAIT,
) -> Counts:
    """Until the connector ends or `stop` is asked for; `report` is called after each batch."""
    stop, clock, counts = stop or Stop(), clock or WallClock(), Counts()
    for topic in processor.topics:
        if topic.readable_only:
            raise DefinitionError(
                f"topic {topic.name!r} is one that others write, so nothing can be ingested into it; name another"
            )
        log.ensure(topic)
    dead = dead_topic(processor.topics[0].name)
    connector.interested_in(processor.filters)
    with connector:
        while not stop.asked:
            batch = connector.poll(limit=limit, wait=wait)
            if batch is None:
                break
            if len(batch) or batch.rejects:
                _write(batch, processor, log, dead, counts, clock.now())
                connector.acknowledge(batch)
            counts.troubles = connector.troubles()
            if report is not None:
                report(counts)
    return counts


def _write(batch: Batch, processor: Processor, log: Log, dead: str, counts: Counts, now: int) -> None:
    """Dead letters first: should the log fail in between, the batch comes again and nothing was lost."""
    done = isolate(processor, batch)
    rejects = [*batch.rejects, *done.rejects]
    if rejects:
        log.ensure_raw(dead)
        for letters in portions(fit(_letters(rejects), log.largest(dead))):
            log.append(dead, letters, now=now)
    for rows in done.rows:
        log.append(rows.topic.name, rows.records, now=now)
        counts.written[rows.topic.name] += len(rows.records)
        if rows.newest is not None:
            counts.latest = rows.newest if counts.latest is None else max(counts.latest, rows.newest)
    counts.received += len(batch) + len(batch.rejects)
    counts.passed.update(done.passed)
    counts.rejected.update(reject.reason for reject in rejects)


def _letters(rejects: Sequence[Reject]) -> Outgoing:
    return Outgoing(
        pa.array([reject.raw.payload for reject in rejects], pa.binary()), None, list(map(_headers, rejects))
    )


def _headers(reject: Reject) -> Headers:
    said = {
        "reason": reject.reason,
        "detail": reject.detail,
        "origin": reject.raw.origin,
        "source": reject.raw.topic,
        "received": str(reject.raw.received),
    }
    return tuple((name, value.encode(errors="replace")) for name, value in said.items())
