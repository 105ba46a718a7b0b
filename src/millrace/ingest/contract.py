"""What a connector and a processor promise.

A connector knows how to reach the outside world and nothing of what messages mean; a processor knows what they mean and not whence they
come. So any two of them go together. Messages travel in batches of columns, because a Python object per message would cost more
than understanding it.
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

MISFIT = "does not fit the type"
"""The reason of what is understood but cannot be an event of its topic."""


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message as it came."""

    topic: str
    """What the outside world called it, such as an MQTT topic; may be empty."""
    payload: bytes
    received: int
    """When it came, in milliseconds: the ingestion time of its event."""
    origin: str = ""
    """Where to look for it again, such as a file and line."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A message that became no event: kept as a dead letter, never dropped."""

    reason: str
    """One of a few, by which rejects are counted."""
    detail: str
    """What exactly was wrong with this one."""
    raw: RawMessage


class MessageRejected(Exception):
    """Raised by `Processor.process` for a message that cannot be understood."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, eq=False)
class MessageBatch:
    """Messages in the order in which they came, a column for each attribute."""

    topics: Sequence[str] = ()
    payloads: Sequence[bytes] = ()
    received: Sequence[int] = ()
    positions: Sequence[int] = ()
    """Where each stands in its source, such as a line number."""
    source: str = ""
    """What the positions belong to, such as a file."""
    rejects: Sequence[Reject] = ()
    """What the connector itself could not read."""
    shift: int = 0
    """What `event_time` adds, in milliseconds, where a recording is to look live."""
    rows: Sequence[tuple[Topic, pl.DataFrame]] = ()
    """Events of a connector that makes them itself, as in `Processed`; it brings no messages."""

    def __len__(self) -> int:
        """How many messages (or ready events) were read, without the rejects."""
        return len(self.payloads) + sum(len(frame) for _, frame in self.rows)

    def event_time(self, reported: int) -> int:
        """The time that an event of this batch gets whose message says `said`; `Rejected` where no calendar holds it."""
        time = reported + self.shift
        if not MIN_TIME <= time <= MAX_TIME:
            raise MessageRejected(
                "impossible event time",
                f"{reported} ms since the epoch{f', shifted by {self.shift}' if self.shift else ''}",
            )
        return time

    def __getitem__(self, index: int) -> RawMessage:
        """One of the messages by itself."""
        return RawMessage(
            self.topics[index],
            self.payloads[index],
            self.received[index],
            f"{self.source}:{self.positions[index]}",
        )

    def __iter__(self) -> Iterator[RawMessage]:
        """One after the other."""
        return map(self.__getitem__, range(len(self.payloads)))


class Event(NamedTuple):
    """What a message meant."""

    topic: Topic
    event_time: int
    """When it happened, in milliseconds since the epoch."""
    details: Mapping[str, Any]
    """Values for the columns of the topic; those left out are null, which only optional fields may be."""


@dataclass(frozen=True, eq=False)
class ProcessedBatch:
    """What a batch of messages meant: each is in exactly one of the three, or each part of it where a message tells of several things."""

    rows: Sequence[tuple[Topic, pl.DataFrame]] = ()
    """For each topic the columns of its type, `event_time` and `ingestion_time`, in the order of the messages."""
    rejects: Sequence[Reject] = ()
    skipped: Counter[str] = field(default_factory=Counter)
    """How many were understood but are of no interest, by kind."""


class Connector(ABC):
    """Reaches the outside world. Used as a context: it connects on entry and lets go on exit."""

    topics: tuple[Topic, ...] = ()
    """Where its events go if it makes events itself, as the simulator does; such a connector needs no processor."""

    @abstractmethod
    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        """At most `limit` messages that come within `wait` milliseconds; none may have come. None: there will be no more."""

    @abstractmethod
    def acknowledge(self, batch: MessageBatch) -> None:
        """Called when the log has the batch, in the order of polls. What is not acknowledged is delivered again, where the source can."""

    def set_topic_filters(self, filters: Sequence[str]) -> None:  # noqa: B027 - a file has no topics to choose from
        """Told before it connects which topics the processor understands, where the outside world can be asked for some."""

    def recovered_errors(self) -> Counter[str]:
        """What went wrong on the way and was overcome, by kind, so far."""
        return Counter()

    def open(self) -> None:  # noqa: B027 - not every connector needs it
        """Connects. An error here is the user's: wrong address, missing file."""

    def close(self) -> None:  # noqa: B027 - not every connector needs it
        """Lets go."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MessageProcessor(ABC):
    """Understands the messages of one feed. It keeps no state and raises nothing but `Rejected`, whatever a message contains."""

    topics: tuple[Topic, ...]
    """Where its events go; dead letters go to `dead.<the first of these>`."""
    filters: tuple[str, ...] = ("#",)
    """Which topics of the outside world it understands, as MQTT writes filters; all, unless it says so."""

    @abstractmethod
    def process(self, raw: RawMessage) -> Event | None:
        """What the message means; None: nothing of interest. `Rejected`: it cannot be understood."""

    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        """The same for a batch, with event times by `batch.event_time`. Override it where columns are faster."""
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
    """Takes the place of a processor where the connector's batches already are events."""

    def __init__(self, topics: tuple[Topic, ...]) -> None:
        self.topics = topics

    def process(self, raw: RawMessage) -> Event | None:
        """There are no messages to understand."""
        raise MessageRejected(
            "no processor", f"a connector that makes events brought a message from {raw.origin}"
        )

    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        """The events as they are; a message among them would be a reject."""
        return ProcessedBatch(batch.rows, super().process_many(batch).rejects)


def _process_one(processor: MessageProcessor, raw: RawMessage, batch: MessageBatch) -> Event | Reject | None:
    try:
        with ordinary_errors():
            event = processor.process(raw)
        return event and event._replace(event_time=batch.event_time(event.event_time))
    except MessageRejected as rejected:
        return Reject(rejected.reason, rejected.detail, raw)
    except Exception as error:  # noqa: BLE001 - one message never stops the others, whatever a processor does
        return Reject("processor failed", describe_error(error), raw)


def build_frame(events: Sequence[tuple[RawMessage, Event]], rejects: list[Reject]) -> pl.DataFrame:
    """Events of one topic, with their messages, as columns; those that do not fit become rejects that name the column."""
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
    """Rows of the topic's shape, with their messages and event times, as columns."""
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
