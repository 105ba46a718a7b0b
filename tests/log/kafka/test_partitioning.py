"""Keys on Kafka are placed where other clients place them."""

import json
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from log.kafka.contents import values
from millrace.devtools.brokers import Cluster
from millrace.log import OutgoingRecords, open_log
from millrace.log.kafka.log import KafkaLog
from millrace.log.kafka.schemas import Schema
from millrace.log.partitioning import place_keys
from millrace.topics import Topic

pytestmark = pytest.mark.kafka


@dataclass
class Stop:
    name: str


STOPS = Topic("stops", Stop, "name")


def test_keys_are_placed_where_other_clients_place_them(log: KafkaLog, brokers: Cluster) -> None:
    log.ensure_raw("t", partitions=5)
    log.ensure_raw("by-others", partitions=5)
    keys = [b"", b"\xff" * 7, *(f"22/{number}".encode() for number in range(300))]
    log.append("t", OutgoingRecords(pa.array(keys), pa.array(keys)))
    other = Producer({"bootstrap.servers": brokers.servers, "partitioner": "murmur2_random"})
    for key in keys:
        other.produce(log.kafka_name("by-others"), key, key)
    other.flush(30)
    placed = [set(values(log, "t", partition)) for partition in range(5)]
    assert placed == [set(values(log, "by-others", partition)) for partition in range(5)]
    assert all(placed)


def test_a_topic_whose_schema_names_no_partitioner_keeps_the_hash_of_before(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = replace(STOPS, partitions=5)
    with monkeypatch.context() as before:
        before.setattr(Schema, "to_json", _to_json_of_before)
        log.ensure(stops)
    again = open_log(log.url)
    again.ensure(replace(stops, retention="1h"))
    keys = pa.array([f"22/{number}" for number in range(100)]).cast(pa.binary())
    again.append("stops", OutgoingRecords(keys, keys))
    expected = place_keys(keys, 5, "millrace-hash").tolist()
    assert expected != place_keys(keys, 5, "murmur2").tolist()
    placed = {value: partition for partition in range(5) for value in values(again, "stops", partition)}
    assert placed == dict(zip(keys.to_pylist(), expected, strict=True))
    again.close()
    third = open_log(log.url)
    assert third.describe("stops").partitioner == "millrace-hash", "the new retention did not change it"
    third.close()


def _to_json_of_before(schema: Schema) -> bytes:
    members = json.loads(msgspec.json.encode(schema))
    del members["partitioner"]
    return json.dumps(members).encode()


def test_keys_of_a_topic_that_others_made_are_placed_by_murmur2(log: KafkaLog) -> None:
    name = log.kafka_name("foreign")
    log._admin.create_topics([NewTopic(name, 5, 1)])[name].result(30)
    log.append("foreign", OutgoingRecords(pa.array([b"x", b"y"]), pa.array([b"21", b"foobar"])))
    assert values(log, "foreign", (-973932308 & 0x7FFFFFFF) % 5) == [b"x"]
    assert values(log, "foreign", (-790332482 & 0x7FFFFFFF) % 5) == [b"y"]
