"""A processor needs to say only what one message means."""

import json
from dataclasses import dataclass

import pytest

from millrace.ingest.contract import (
    Event,
    MessageBatch,
    MessageProcessor,
    MessageRejected,
    ProcessedBatch,
    RawMessage,
)
from millrace.topics import Topic


@dataclass
class Reading:
    sensor: str
    value: float | None = None


READINGS = Topic("input.readings", Reading, key="sensor")


class Sensors(MessageProcessor):
    """What a user would write: `{"sensor": …, "at": …, "value": …}`."""

    topics = (READINGS,)

    def process(self, raw: RawMessage) -> Event | None:
        message = json.loads(raw.payload)
        if message == "ping":
            return None
        if "at" not in message:
            raise MessageRejected("no time", "there is no 'at'")
        return Event(READINGS, message.pop("at"), message)


def processed(*messages: object, shift: int = 0) -> ProcessedBatch:
    payloads = [json.dumps(message).encode() for message in messages]
    return Sensors().process_many(
        MessageBatch(
            [""] * len(payloads),
            payloads,
            [50] * len(payloads),
            range(1, len(payloads) + 1),
            "s",
            shift=shift,
        )
    )


def test_events_become_columns_in_their_order() -> None:
    done = processed({"sensor": "b", "at": 2, "value": 1.5}, {"sensor": "a", "at": 1})
    ((topic, rows),) = done.rows
    assert topic is READINGS
    assert rows.rows(named=True) == [
        {"sensor": "b", "value": 1.5, "event_time": 2, "ingestion_time": 50},
        {"sensor": "a", "value": None, "event_time": 1, "ingestion_time": 50},
    ]


def test_none_is_counted_as_passed_over() -> None:
    done = processed("ping", "ping")
    assert (list(done.rows), done.skipped.total(), list(done.rejects)) == ([], 2, [])


@pytest.mark.parametrize(("bad", "reason", "detail"), [
    ({"sensor": "a"}, "no time", "no 'at'"),
    (5, "processor failed", "TypeError"),
    ({"sensor": "a", "at": 1, "value": "hot"}, "does not fit the type", "hot"),
    ({"sensor": "a", "at": 1, "colour": 3}, "does not fit the type", "Reading has no colour"),
    ({"sensor": "a", "at": 10**30}, "impossible event time", "0000"),
    ({"sensor": "a", "at": "noon"}, "processor failed", "TypeError"),
])  # fmt: skip
def test_whatever_a_processor_makes_of_one_message_the_others_are_unharmed(
    bad: object, reason: str, detail: str
) -> None:
    good = {"sensor": "a", "at": 1, "value": 2.0}
    done = processed(good, good, bad, good)
    assert [len(rows) for _, rows in done.rows] == [3]
    assert [(reject.reason, reject.raw.origin) for reject in done.rejects] == [(reason, "s:3")]
    assert detail in done.rejects[0].detail


def test_a_shift_moves_the_event_time_of_every_event() -> None:
    assert processed({"sensor": "a", "at": 1}, shift=100).rows[0][1]["event_time"].to_list() == [101]
