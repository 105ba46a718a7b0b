"""Topics that millrace did not write: protobuf, JSON and Avro, with and without Confluent's header."""

import io
import json
import runpy
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace.errors import DefinitionError
from millrace.log import Records
from millrace.log.codecs.codec import decode, encode
from millrace.log.codecs.json_records import to_protobuf


@dataclass
class Bid:
    item: str
    price: float
    at: int
    note: str | None


@dataclass
class Timed:
    item: str
    at: datetime


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Bid",
        "fields": [
            {"name": "unknown_to_us", "type": "string", "default": ""},
            {"name": "item", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
BIDS = [
    {"item": "clock", "price": 12.5, "at": 1_700_000_000_123, "note": "cheap"},
    {"item": "", "price": -0.0, "at": 1_700_000_001_000, "note": None},
]
PLAIN = mr.Topic("bids", Bid, "item", envelope=False, time="at")
TOPICS = {
    "protobuf": PLAIN,
    "json": replace(PLAIN, codec="json"),
    "avro": replace(PLAIN, codec="avro", avro=AVRO),
}


def as_json(bid: dict[str, Any]) -> bytes:
    return json.dumps(bid).encode()


def as_protobuf(bid: dict[str, Any]) -> bytes:
    (made,), bad = to_protobuf(
        TOPICS["json"], [as_json({name: value for name, value in bid.items() if value is not None})]
    )
    assert made is not None
    assert not bad
    return made


def as_avro(bid: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    at = datetime.fromtimestamp(bid["at"] / 1000, UTC)
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO)), {**bid, "at": at})
    return out.getvalue()


WRITERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "protobuf": as_protobuf,
    "json": as_json,
    "avro": as_avro,
}


def records(values: Sequence[bytes | None]) -> Records:
    at = np.arange(len(values))
    return Records(at, at, pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()))


def header(kind: str, indexes: bytes = b"\0") -> bytes:
    return b"\0" + struct.pack(">I", 4711) + (indexes if kind == "protobuf" else b"")


@pytest.mark.parametrize("confluent", [False, True])
@pytest.mark.parametrize("kind", list(TOPICS))
def test_records_that_others_wrote_are_read(kind: str, confluent: bool) -> None:
    topic = replace(TOPICS[kind], confluent=confluent)
    values = [(header(kind) if confluent else b"") + WRITERS[kind](bid) for bid in BIDS]
    found = decode(topic, 0, records(values))
    assert found.dead.is_empty()
    assert found.rows.select("item", "price", "at", "note").rows(named=True) == BIDS
    assert found.rows["event_time"].to_list() == [bid["at"] for bid in BIDS]
    assert found.rows["ingestion_time"].to_list() == [0, 1], "when they were appended"


@pytest.mark.parametrize("kind", list(TOPICS))
def test_unreadable_records_are_dead_and_the_others_are_read(kind: str) -> None:
    topic = replace(TOPICS[kind], confluent=True)
    good = header(kind) + WRITERS[kind](BIDS[0])
    found = decode(topic, 0, records([good, b"no header", header(kind) + b"\xff\xff\xff", None, b"", good]))
    assert found.rows["_off"].to_list() == [0, 5]
    assert found.dead["offset"].to_list() == [1, 2, 3, 4]
    assert "does not begin with Confluent's header" in found.dead["reason"][0]
    assert found.dead["value"][0] == b"no header"


@pytest.mark.parametrize("indexes", [b"\x02\x02", b"\x04\x02\x00", b"\x02\x80\x01"])
def test_a_message_that_is_not_the_first_of_its_schema_is_read_too(indexes: bytes) -> None:
    topic = replace(PLAIN, confluent=True)
    found = decode(
        topic,
        0,
        records(
            [header("protobuf", indexes) + as_protobuf(BIDS[0]), header("protobuf") + as_protobuf(BIDS[1])]
        ),
    )
    assert found.rows["item"].to_list() == ["clock", ""]


def test_logical_times_of_avro_become_event_times() -> None:
    topic = mr.Topic("bids", Timed, envelope=False, time="at", codec="avro", avro=AVRO)
    assert decode(topic, 0, records([as_avro(BIDS[0])])).rows["event_time"].to_list() == [BIDS[0]["at"]]


def test_tombstones_of_a_compacted_topic_are_not_dead_letters() -> None:
    topic = replace(TOPICS["json"], compact=True)
    found = decode(topic, 0, records([as_json(BIDS[0]), None, as_json(BIDS[1])]))
    assert (found.rows["_off"].to_list(), len(found.dead)) == ([0, 2], 0)
    assert decode(topic, 0, records([None])).rows.is_empty()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "avro"}, "give both or none"),
        ({"avro": AVRO}, "give both or none"),
        ({"codec": "avro", "avro": AVRO, "envelope": True, "time": None}, "set envelope=False"),
        ({"confluent": True, "envelope": True, "time": None}, "set envelope=False"),
        ({"compact": True, "key": None}, "name the key"),
        ({"replicas": 0}, "from 1 on"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        replace(PLAIN, **options)


def test_a_topic_that_is_only_read_cannot_be_written() -> None:
    topic = replace(PLAIN, confluent=True)
    with pytest.raises(DefinitionError, match="writes neither"):
        encode(topic, pl.DataFrame(BIDS))
    with pytest.raises(DefinitionError, match="writes neither"):
        mr.read(PLAIN).write(topic)
    with pytest.raises(DefinitionError, match="is not a schema"):
        decode(replace(TOPICS["avro"], avro="{}"), 0, records([b"x"]))


def test_the_topics_of_the_how_to_are_read() -> None:
    made = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "plain_topics.py"))
    bid = {name: value for name, value in BIDS[0].items() if name != "note"}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, json.loads(made["SCHEMA"]), bid)
    values = {"PROTOBUF": as_protobuf(bid), "JSON": as_json(bid), "AVRO": header("avro") + out.getvalue()}
    for name, value in values.items():
        assert decode(made[name], 0, records([value])).rows.select(*bid).rows(named=True) == [bid], name


@pytest.mark.parametrize(
    "value", [b'{"item": "clock", "price": 1.0}', b'{"item": "clock", "price": 1.0, "at": null}']
)
def test_a_json_record_without_its_time_is_dead_and_not_of_1970(value: bytes) -> None:
    found = decode(TOPICS["json"], 0, records([value]))
    assert (len(found.rows), len(found.dead)) == (0, 1)
    assert "no 'at'" in found.dead["reason"][0]


def test_a_protobuf_record_without_its_time_is_dead_and_not_of_1970() -> None:
    found = decode(PLAIN, 0, records([as_protobuf({**BIDS[0], "at": 0}), as_protobuf(BIDS[0])]))
    assert (len(found.rows), found.dead["reason"].to_list()) == (1, ["has no event time"])
