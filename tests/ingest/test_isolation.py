"""A message that does not fit, or that a processor fails at, is a dead letter; the others are written."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millrace.ingest.connectors.files import Files
from millrace.ingest.contract import (
    Event,
    EventPassthrough,
    MessageBatch,
    MessageProcessor,
    ProcessedBatch,
    RawMessage,
)
from millrace.ingest.isolation import isolate, process_isolated
from millrace.ingest.pipeline import ingest
from millrace.log import open_log
from millrace.log.dead_letters import parse_letters
from millrace.topics import Topic


@dataclass
class Reading:
    sensor: str
    count: int
    share: float | None


READINGS = Topic("input.readings", Reading, key="sensor")


class Sensors(MessageProcessor):
    topics = (READINGS,)

    def process(self, raw: RawMessage) -> Event | None:
        return Event(READINGS, 5, json.loads(raw.payload))


class Columns(Sensors):
    """Makes columns by itself, and raises for the whole batch."""

    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        rows = pl.DataFrame(
            {
                "sensor": [json.loads(p)["sensor"] for p in batch.payloads],
                "count": [json.loads(p).get("count") for p in batch.payloads],
            },
            schema={"sensor": pl.String, "count": pl.Int64},
        ).with_columns(share=pl.lit(None, pl.Float64), event_time=5, ingestion_time=6)
        return ProcessedBatch([(READINGS, rows)])


def batch_of(*messages: Any) -> MessageBatch:
    payloads = [json.dumps(message).encode() for message in messages]
    return MessageBatch(
        [""] * len(payloads), payloads, [50] * len(payloads), range(1, len(payloads) + 1), "s"
    )


GOOD = {"sensor": "a", "count": 3}


@pytest.mark.parametrize(("bad", "detail"), [
    ({"sensor": "a", "count": 3.7}, "column 'count': 3.7 is not a whole number"),
    ({"sensor": "a", "count": None}, "column 'count'"),
    ({"sensor": "a"}, "column 'count' is missing"),
    ({"sensor": None, "count": 1}, "column 'sensor'"),
    ({"sensor": "a", "count": True}, "column 'count'"),
    ({"sensor": "a", "count": 2**63}, "column 'count': 9223372036854775808 is outside"),
    ({"sensor": "a", "count": 1, "share": "half"}, "column 'share'"),
])  # fmt: skip
def test_a_value_that_does_not_fit_is_a_reject_that_names_its_column(bad: Any, detail: str) -> None:
    made = isolate(Sensors(), batch_of(GOOD, bad, GOOD))
    assert [len(rows.records) for rows in made.rows] == [2]
    assert [(reject.reason, reject.raw.origin) for reject in made.rejects] == [
        ("does not fit the type", "s:2")
    ]
    assert detail in made.rejects[0].detail


def test_a_whole_float_is_an_integer() -> None:
    assert isolate(Sensors(), batch_of({"sensor": "a", "count": 3.0})).rejects == []


@pytest.mark.parametrize("bad", [{"sensor": "a"}, {}, 7])
def test_what_a_processor_of_columns_raises_costs_only_the_message_at_fault(bad: Any) -> None:
    made = isolate(Columns(), batch_of(GOOD, GOOD, bad, GOOD, GOOD))
    assert sum(len(rows.records) for rows in made.rows) == 4
    assert [(reject.reason, reject.raw.origin) for reject in made.rejects] == [("processor failed", "s:3")]


def test_a_null_in_a_required_column_of_a_connectors_own_events_is_a_reject() -> None:
    rows = pl.DataFrame(
        {
            "sensor": ["a", "b", "c"],
            "count": [1, None, 3],
            "share": [None, 0.5, None],
            "event_time": [1, 2, 3],
            "ingestion_time": [4, 5, 6],
        },
        schema_overrides={"count": pl.Int64, "share": pl.Float64},
    )
    made = isolate(EventPassthrough((READINGS,)), MessageBatch(rows=[(READINGS, rows)]))
    assert sum(len(one.records) for one in made.rows) == 2
    assert [json.loads(reject.raw.payload)["sensor"] for reject in made.rejects] == ["b"]
    assert "'count'" in made.rejects[0].detail


def test_a_missing_value_of_a_required_field_is_a_dead_letter_and_the_rest_is_written(tmp_path: Path) -> None:
    lines = [
        '{"sensor": "a", "count": 1}',
        '{"sensor": "b"}',
        '{"sensor": "c", "count": null}',
        '{"sensor": "d", "count": 4}',
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    log = open_log(f"embedded:{tmp_path / 'log'}")
    counts = ingest(Files(tmp_path / "r.jsonl", topic=READINGS), EventPassthrough((READINGS,)), log)
    assert (counts.received, counts.written.total(), counts.rejected.total()) == (4, 2, 2)
    letters = parse_letters(log.read("dead.input.readings", 0, 0, 2))
    assert [value.decode() for value in letters["value"]] == lines[1:3]
    assert all("'count'" in detail for detail in letters["detail"])
    log.close()


class Leaving(Sensors):
    """Ends the process at some messages, in one of the ways that are not ordinary errors."""

    def process(self, raw: RawMessage) -> Event | None:
        report = json.loads(raw.payload)
        if report.get("count") == 13:
            sys.exit(0)
        if report.get("count") == 14:
            pl.select(pl.lit(2**62).cast(pl.Datetime("ms"))).rows()  # polars panics
        return super().process(raw)


class LeavingColumns(Columns):
    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        for raw in batch:
            Leaving().process(raw)
        return super().process_many(batch)


@pytest.mark.parametrize("processor", [Leaving(), LeavingColumns()])
@pytest.mark.parametrize(("count", "detail"), [(13, "SystemExit: 0"), (14, "PanicException")])
def test_a_processor_that_would_end_the_process_fails_at_its_message_alone(
    processor: MessageProcessor, count: int, detail: str
) -> None:
    batch = batch_of(GOOD, {"sensor": "b", "count": count}, GOOD)
    made = isolate(processor, batch)
    assert sum(len(encoded.records) for encoded in made.rows) == 2
    [reject] = made.rejects
    assert (reject.reason, reject.raw.payload) == ("processor failed", batch.payloads[1])
    assert detail in reject.detail
    [reject] = process_isolated(processor, batch).rejects
    assert detail in reject.detail
