"""What is particular to the log on Kafka."""

import json
import subprocess
import sys
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import polars as pl
import pytest
from confluent_kafka import Producer

from log.children import texts
from log.conftest import within
from log.kafka.contents import values
from millrace.devtools.brokers import Cluster
from millrace.errors import LogError, OffsetGone, TopicMismatch
from millrace.log.codecs.codec import decode, encode
from millrace.log.kafka.log import KafkaLog
from millrace.topics import Topic

pytestmark = pytest.mark.kafka


@dataclass
class Stop:
    name: str


@dataclass
class Timed:
    name: str
    at: int


STOPS = Topic("stops", Stop, "name")


# Offsets


@pytest.mark.usefixtures("reading")
def test_aborted_and_open_transactions_are_never_seen_in_any_range(log: KafkaLog, brokers: Cluster) -> None:
    log.ensure_raw("t")
    committed: list[bytes] = []
    producer = Producer({"bootstrap.servers": brokers.servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for turn in range(12):
        producer.begin_transaction()
        own_values = [f"{turn}.{i}".encode() for i in range(1 + turn % 4)]
        for value in own_values:
            producer.produce(log.kafka_name("t"), value)
        if turn % 3 == 2 or turn > 10:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += own_values
    producer.begin_transaction()
    producer.produce(log.kafka_name("t"), b"open")
    producer.flush(30)
    end = log.end_offsets("t")[0]
    assert end > len(committed)
    assert values(log, "t") == committed
    for step in (1, 5):
        cuts = [log.read("t", 0, start, min(end, start + step)) for start in range(0, end, step)]
        assert [value for cut in cuts for value in cut.values.to_pylist()] == committed
        assert all(
            start <= offset < start + step
            for start, cut in zip(range(0, end, step), cuts, strict=True)
            for offset in cut.offsets
        )
    with pytest.raises(OffsetGone, match=f"holds offsets 0 to {end}"):
        log.read("t", 0, 0, end + 1)
    producer.commit_transaction(30)
    log.append("t", texts("after"))
    assert values(log, "t") == [*committed, b"open", b"after"]


@pytest.mark.usefixtures("reading")
def test_a_reader_that_is_a_little_behind_reads_on_and_one_that_is_ahead_goes_back(log: KafkaLog) -> None:
    log.ensure_raw("t")
    log.append("t", texts(*map(str, range(100))))
    for start, end in ((0, 10), (30, 40), (40, 41), (5, 6), (90, 100), (0, 100)):
        assert log.read("t", 0, start, end).values.to_pylist() == [str(i).encode() for i in range(start, end)]
    log.append("t", texts("new"))
    assert log.read("t", 0, 100, 101).values.to_pylist() == [b"new"]


def test_partitions_that_were_added_are_found(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka.cimpl import NewPartitions

    monkeypatch.setattr("millrace.log.kafka.topics.FRESH_SECONDS", 0.0)
    declared = Topic("stops", Stop, "name", partitions=2)
    log.ensure(declared)
    log._admin.create_partitions([NewPartitions(log.kafka_name("stops"), 5)])[log.kafka_name("stops")].result(
        30
    )
    with within() as waiting:  # the controller confirms before the broker knows the new partitions
        while waiting(log.end_offsets("stops") != dict.fromkeys(range(5), 0)):
            pass
    log.ensure(declared)
    log.ensure(replace(declared, partitions=5))
    with pytest.raises(TopicMismatch, match="declared with 7"):
        log.ensure(replace(declared, partitions=7))


def test_topics_are_made_as_they_are_declared(log: KafkaLog) -> None:
    from confluent_kafka.admin import ConfigResource

    log.ensure(Topic("table", Stop, "name", compact=True, replicas=1, partitions=3))
    log.ensure(Topic("hours", Stop, retention="1h"))

    def settings(topic: str) -> dict[str, str]:
        asked = log._admin.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, log.kafka_name(topic))]
        )
        (future,) = asked.values()
        return {name: entry.value for name, entry in future.result(30).items()}

    assert settings("table")["cleanup.policy"] == "compact"
    assert (settings("hours")["cleanup.policy"], settings("hours")["retention.ms"]) == ("delete", "3600000")
    assert len(log.end_offsets("table")) == 3
    with pytest.raises(LogError, match=r"(?i)replication"):
        log.ensure(Topic("too-many", Stop, replicas=3))


# Schemas


def test_a_consumer_without_our_code_reads_what_we_wrote(log: KafkaLog, brokers: Cluster) -> None:
    log.ensure(STOPS)
    log.append(
        "stops", encode(STOPS, pl.DataFrame({"name": ["Kamppi", "Pasila"], "event_time": [1_000, 2_000]}))
    )
    program = Path(__file__).parents[3] / "docs" / "examples" / "read_without_millrace.py"
    assert "import millrace" not in program.read_text()
    read = subprocess.run(
        [sys.executable, program, brokers.servers, "stops", log.kafka_name("")],
        capture_output=True,
        text=True,
    )
    assert read.returncode == 0, read.stderr
    events = [json.loads(line) for line in read.stdout.splitlines()]
    assert sorted((event["details"]["name"], event["event_timestamp"]) for event in events) == [
        ("Kamppi", "1970-01-01T00:00:01Z"),
        ("Pasila", "1970-01-01T00:00:02Z"),
    ]


@pytest.mark.parametrize("codec", ["binary", "json"])
def test_old_and_new_code_read_each_other_and_the_newer_schema_is_kept(
    log: KafkaLog, codec: Literal["binary", "json"]
) -> None:
    old, new = replace(STOPS, codec=codec), replace(STOPS, codec=codec, type=newer())
    log.ensure(old)
    log.append("stops", encode(old, pl.DataFrame({"name": ["Kamppi"], "event_time": [1_000]})))
    log.ensure(new)
    log.append("stops", encode(new, pl.DataFrame({"name": ["Pasila"], "zone": ["B"], "event_time": [2_000]})))
    log.ensure(old)
    records = [log.read("stops", number, 0, end) for number, end in log.end_offsets("stops").items() if end]
    seen = [
        sorted(
            row
            for number, each in enumerate(records)
            for row in decode(topic, number, each).rows.drop("_off", "ingestion_time").rows()
        )
        for topic in (old, new)
    ]
    assert seen == [[("Kamppi", 1_000), ("Pasila", 2_000)], [("Kamppi", "", 1_000), ("Pasila", "B", 2_000)]]
    kept = log._schemas.find("stops")
    assert kept is not None
    assert kept.fields == "name: string, zone: string"


def newer() -> type:
    @dataclass
    class Stop:
        name: str
        zone: str

    return Stop


def test_a_topic_that_others_made_is_used_as_it_is(log: KafkaLog, brokers: Cluster) -> None:
    log._topics.create("theirs", partitions=3, replicas=None, settings={})
    producer = Producer({"bootstrap.servers": brokers.servers})
    producer.produce(log.kafka_name("theirs"), b'{"name": "Kamppi", "at": 5000}', partition=2)
    assert producer.flush(30) == 0
    assert log.describe("theirs").codec == "raw"
    theirs = Topic("theirs", Timed, envelope=False, time="at", codec="json")
    log.ensure(theirs)
    rows = decode(theirs, 2, log.read("theirs", 2, 0, 1)).rows
    assert rows.select("name", "event_time").rows() == [("Kamppi", 5_000)]
    assert log.describe("theirs").type_name == "millrace.type.Timed"
