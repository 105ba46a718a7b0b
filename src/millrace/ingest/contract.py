"""The contract of connectors and processors.

A connector reaches a source and does not know what its messages mean. A processor understands messages and
does not know their source. So every connector works with every processor. Messages travel in batches of
columns, because a Python object per message would cost more than processing it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import polars as pl

from millrace import timestamps
from millrace.log.codecs.codec import MAX_TIME, MIN_TIME
from millrace.topics import Topic
from millrace.values import event_values
from millrace.values.calls import describe_error, ordinary_errors
from millrace.values.event_values import InvalidValue
from millrace.values.user_code import describe_failure

MISFIT = "does not fit the type"
"""The reason of messages that are understood, but do not fit the type of their topic."""


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message as it arrived."""

    topic: str
    """Its topic in the outside world, such as an MQTT topic; may be empty."""
    payload: bytes
    received: int
    """Its time of arrival in milliseconds, which becomes the ingestion time of its event."""
    origin: str = ""
    """Its place at the source, such as a file and line."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A message that is not an event: it becomes a dead letter and is never dropped."""

    reason: str
    """The class of fault, by which rejects are counted."""
    detail: str
    """The fault of this message in detail."""
    raw: RawMessage


class MessageRejected(Exception):
    """Raised by `Processor.process` for a message that cannot be understood."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, eq=False)
class MessageBatch:
    """Messages in order of arrival, with a column for each attribute."""

    topics: Sequence[str] = ()
    payloads: Sequence[bytes] = ()
    received: Sequence[int] = ()
    positions: Sequence[int] = ()
    """The position of each in its source, such as a line number."""
    source: str = ""
    """The source of the positions, such as a file."""
    rejects: Sequence[Reject] = ()
    """Messages that the connector itself could not read."""
    shift: int = 0
    """Milliseconds that `event_time` adds, so that a recording looks live."""
    rows: Sequence[tuple[Topic, pl.DataFrame]] = ()
    """Events, as in `ProcessedBatch`, of a connector that makes events itself and no messages."""

    def __len__(self) -> int:
        """The number of messages or ready events, without the rejects."""
        return len(self.payloads) + sum(len(frame) for _, frame in self.rows)

    def event_time(self, reported: int) -> int:
        """The event time for a time that a message reports. `MessageRejected` if it is out of range."""
        time = reported + self.shift
        if not MIN_TIME <= time <= MAX_TIME:
            raise MessageRejected(
                "impossible event time",
                f"{reported} ms since the epoch{f', shifted by {self.shift}' if self.shift else ''}",
            )
        return time

    def __getitem__(self, index: int) -> RawMessage:
        """A single message of the batch."""
        return RawMessage(
            self.topics[index],
            self.payloads[index],
            self.received[index],
            f"{self.source}:{self.positions[index]}",
        )

    def __iter__(self) -> Iterator[RawMessage]:
        """The messages one by one."""
        return map(self.__getitem__, range(len(self.payloads)))


class Event(NamedTuple):
    """The event that a message reports."""

    topic: Topic
    event_time: int
    """The time at which it happened, in milliseconds since the epoch."""
    details: Mapping[str, Any]
    """Values by column of the topic. Columns left out are null; only optional fields may be null."""


@dataclass(frozen=True, eq=False)
class ProcessedBatch:
    """The outcome of a batch. Each message, or each part of one that reports several things, is in one of the
    three.
    """

    rows: Sequence[tuple[Topic, pl.DataFrame]] = ()
    """For each topic, the columns of its type, `event_time` and `ingestion_time`, in the order of the
    messages."""
    rejects: Sequence[Reject] = ()
    skipped: Counter[str] = field(default_factory=Counter)
    """Counts of messages that are understood and ignored on purpose, by kind."""


class Connector(ABC):
    """Reaches one kind of source. As a context manager it connects on entry and disconnects on exit."""

    topics: tuple[Topic, ...] = ()
    """The topics of a connector that makes events itself, such as the simulator. It needs no processor."""

    @abstractmethod
    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        """At most `limit` messages that arrive within `wait` milliseconds, possibly none. None: the source
        has ended.
        """

    @abstractmethod
    def acknowledge(self, batch: MessageBatch) -> None:
        """Called in the order of polls, when the log has the batch. A source that can delivers other messages
        again.
        """

    def set_topic_filters(self, filters: Sequence[str]) -> None:  # noqa: B027 - a file has no topics to choose from
        """Called before `open` with the topics that the processor understands, for sources with
        subscriptions.
        """

    def recovered_errors(self) -> Counter[str]:
        """Counts of errors at the source that were overcome, by kind."""
        return Counter()

    def open(self) -> None:  # noqa: B027 - not every connector needs it
        """Connects. Errors here are wrong settings: a wrong address, a missing file."""

    def close(self) -> None:  # noqa: B027 - not every connector needs it
        """Disconnects."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MessageProcessor(ABC):
    """Understands the messages of one feed. It has no state, and raises only `MessageRejected`, whatever a
    message holds.
    """

    topics: tuple[Topic, ...]
    """The topics of its events. Dead letters go to `dead.<the first of these>`."""
    filters: tuple[str, ...] = ("#",)
    """The topics of the outside world that it understands, as MQTT topic filters. Default: all."""

    @abstractmethod
    def process(self, raw: RawMessage) -> Event | None:
        """The event of a message; None if the message is ignored on purpose. `MessageRejected` if it is not
        understood.
        """

    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        """Processes a batch; event times pass through `batch.event_time`. Override it where columns are
        faster.
        """
        events: dict[str, list[tuple[RawMessage, Event]]] = {}
        rejects: list[Reject] = []
        skipped: Counter[str] = Counter()
        for raw in batch:
            outcome = _process_one(self, raw, batch)
            if isinstance(outcome, Reject):
                rejects.append(outcome)
            elif outcome is None:
                skipped["of no interest"] += 1
            else:
                events.setdefault(outcome.topic.name, []).append((raw, outcome))
        rows = [
            (topic_events[0][1].topic, build_frame(topic_events, rejects)) for topic_events in events.values()
        ]
        return ProcessedBatch(rows, rejects, skipped)


class EventPassthrough(MessageProcessor):
    """The processor of connectors whose batches hold events already."""

    def __init__(self, topics: tuple[Topic, ...]) -> None:
        self.topics = topics

    def process(self, raw: RawMessage) -> Event | None:
        """Rejects every message: such connectors have none."""
        raise MessageRejected(
            "no processor", f"a connector that makes events brought a message from {raw.origin}"
        )

    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        """The events unchanged; a message among them is rejected."""
        return ProcessedBatch(batch.rows, super().process_many(batch).rejects)


def _process_one(processor: MessageProcessor, raw: RawMessage, batch: MessageBatch) -> Event | Reject | None:
    try:
        with ordinary_errors():
            event = processor.process(raw)
        return event and event._replace(event_time=batch.event_time(event.event_time))
    except MessageRejected as rejected:
        return Reject(rejected.reason, rejected.detail, raw)
    except Exception as error:  # noqa: BLE001 - one message never stops the others, whatever a processor does
        return Reject("processor failed", f"{describe_error(error)}{describe_failure(error)}", raw)


def build_frame(events: Sequence[tuple[RawMessage, Event]], rejects: list[Reject]) -> pl.DataFrame:
    """Events of one topic as columns. Events that do not fit its type become rejects that name the column."""
    topic = events[0][1].topic
    shape = event_values.row_decoder(topic.type)
    rows: list[tuple[RawMessage, Any, int]] = []
    for raw, event in events:
        try:
            rows.append((raw, shape.convert(_check_columns(event, topic)), _check_time(event.event_time)))
        except InvalidValue as error:
            rejects.append(Reject(MISFIT, str(error), raw))
    return build_columns(topic, rows, rejects)


def build_columns(
    topic: Topic, rows: Sequence[tuple[RawMessage, Any, int]], rejects: list[Reject]
) -> pl.DataFrame:
    """Converted rows with their messages and event times as columns."""
    shape = event_values.row_decoder(topic.type)
    times = {
        "event_time": pl.Series([at for _, _, at in rows], dtype=pl.Int64),
        "ingestion_time": pl.Series([raw.received for raw, _, _ in rows], dtype=pl.Int64),
    }
    try:
        return pl.DataFrame({**shape.columns([row for _, row, _ in rows]), **times})
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        if len(rows) == 1:
            rejects.append(Reject(MISFIT, str(error).partition("\n")[0], rows[0][0]))
            return build_columns(topic, [], rejects)
        middle = len(rows) // 2
        return pl.concat(
            [build_columns(topic, rows[:middle], rejects), build_columns(topic, rows[middle:], rejects)]
        )


def _check_columns(event: Event, topic: Topic) -> Mapping[str, Any]:
    unknown = set(event.details) - set(topic.schema)
    if unknown:
        raise InvalidValue(f"{topic.type.__name__} has no {', '.join(sorted(map(str, unknown)))}")
    return event.details


def _check_time(time: Any) -> int:
    try:
        return timestamps.value_to_millis(time)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"event time {str(time)[:100]!r}: {error}") from error
