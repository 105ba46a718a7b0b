"""Where keys are placed, on every log."""

import json
from dataclasses import dataclass
from typing import get_args

import polars as pl
import pyarrow as pa
import pytest

from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import encode
from millrace.log.contract import Partitioner
from millrace.log.kafka.schemas import Schema
from millrace.log.partitioning import place_keys
from millrace.topics import Topic

KEYS = [f"22/{number}" for number in range(1100, 1150)]
KEYS_PLACED_BY_THE_JAVA_CLIENT = {"21": 4, "foobar": 6, "a-little-bit-long-string": 0, "abc": 3}
"""`Utils.toPositive(Utils.murmur2(key)) % 8`, from the hashes that Kafka's own tests pin."""


@dataclass
class Stop:
    line: int
    name: str


def partitions_of_keys(log: Log, topic: str) -> dict[str, int]:
    """The partition in which each key is found; a key in several would be there once only."""
    begins = log.start_offsets(topic)
    found = [
        (key.decode(), partition)
        for partition, end in log.end_offsets(topic).items()
        for key in log.read(topic, partition, begins[partition], end).keys.to_pylist()
    ]
    assert len(dict(found)) == len(set(found)), "a key is in several partitions"
    return dict(found)


def keyed(keys: list[str]) -> OutgoingRecords:
    return OutgoingRecords(pa.array([b"x"] * len(keys)), pa.array(keys).cast(pa.binary()))


def test_keys_are_placed_as_the_java_client_places_them(log: Log, url: str) -> None:
    log.ensure_raw("t", partitions=8)
    log.append("t", keyed(list(KEYS_PLACED_BY_THE_JAVA_CLIENT)))
    assert partitions_of_keys(log, "t") == KEYS_PLACED_BY_THE_JAVA_CLIENT
    writer = open_log(url).writer("w")
    writer.commit(0, {"t": keyed(list(KEYS_PLACED_BY_THE_JAVA_CLIENT))})
    assert partitions_of_keys(log, "t") == KEYS_PLACED_BY_THE_JAVA_CLIENT
    assert log.describe("t").partitioner == "murmur2"


def test_a_key_is_placed_by_its_text(log: Log) -> None:
    stops = Topic("stops", Stop, "line", partitions=8)
    log.ensure(stops)
    log.append("stops", encode(stops, pl.DataFrame({"line": [21], "name": ["Zoo"], "event_time": [0]})))
    assert partitions_of_keys(log, "stops") == {"21": 4}


def test_a_schema_without_a_partitioner_keeps_the_hash_of_its_version() -> None:
    schema = Schema.of_topic(Topic("stops", Stop, "line"))
    assert Schema.from_json(schema.to_json()).partitioner == "murmur2"
    before = json.loads(schema.to_json())
    del before["partitioner"]
    old = Schema.from_json(json.dumps(before).encode())
    assert old.partitioner == "millrace-hash"
    assert not schema.can_replace(old)
    assert not old.can_replace(schema)


@pytest.mark.parametrize("partitioner", ["murmur3", "", 2, None])
def test_a_schema_with_an_unknown_partitioner_is_refused(partitioner: object) -> None:
    schema = json.loads(Schema.of_topic(Topic("stops", Stop, "line")).to_json())
    with pytest.raises(ValueError, match="partitioner"):
        Schema.from_json(json.dumps(schema | {"partitioner": partitioner}).encode())


@pytest.mark.parametrize("partitioner", get_args(Partitioner))
def test_each_partitioner_spreads_keys_over_all_partitions(partitioner: Partitioner) -> None:
    numbers = place_keys(pa.array(KEYS).cast(pa.binary()), 4, partitioner).tolist()
    assert set(numbers) == {0, 1, 2, 3}
