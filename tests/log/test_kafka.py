"""What is particular to the log on Kafka."""

import json
import logging
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from log import children
from log.children import texts
from log.conftest import Start
from millrace.config import KafkaSettings, Settings
from millrace.devtools.brokers import Cluster
from millrace.errors import ConfigError, LogDenied, LogError, LogUnreachable, OffsetGone, TopicMismatch
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.log.kafka import markers
from millrace.log.kafka import url as place
from millrace.log.kafka.log import KafkaLog
from millrace.log.kafka.schemas import Schema
from millrace.log.partitioning import place_keys
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


@pytest.fixture
def address(brokers: Cluster) -> str:
    """A log of its own."""
    return f"{brokers.url}/own-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def log(address: str) -> Iterator[KafkaLog]:
    opened = open_log(address)
    assert isinstance(opened, KafkaLog)
    yield opened
    opened.close()


def values(log: Log, topic: str, partition: int = 0) -> list[bytes]:
    found: list[bytes] = log.read(
        topic, partition, log.start_offsets(topic)[partition], log.end_offsets(topic)[partition]
    ).values.to_pylist()
    return found


# Offsets


def test_what_was_aborted_or_is_open_is_never_seen_whatever_ranges_are_read(
    log: KafkaLog, brokers: Cluster
) -> None:
    log.ensure_raw("t")
    committed: list[bytes] = []
    producer = Producer({"bootstrap.servers": brokers.servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for turn in range(12):
        producer.begin_transaction()
        mine = [f"{turn}.{i}".encode() for i in range(1 + turn % 4)]
        for value in mine:
            producer.produce(log.kafka_name("t"), value)
        if turn % 3 == 2 or turn > 10:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += mine
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
    assert log.end_offsets("stops") == dict.fromkeys(range(5), 0)
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


# Keys


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
    members = asdict(schema)
    del members["partitioner"]
    return json.dumps(members).encode()


def test_keys_of_a_topic_that_others_made_are_placed_as_theirs(log: KafkaLog) -> None:
    name = log.kafka_name("foreign")
    log._admin.create_topics([NewTopic(name, 5, 1)])[name].result(30)
    log.append("foreign", OutgoingRecords(pa.array([b"x", b"y"]), pa.array([b"21", b"foobar"])))
    assert values(log, "foreign", (-973932308 & 0x7FFFFFFF) % 5) == [b"x"]
    assert values(log, "foreign", (-790332482 & 0x7FFFFFFF) % 5) == [b"y"]


# Commits


def test_a_marker_behind_the_open_transaction_of_another_writer_is_waited_for(
    log: KafkaLog, brokers: Cluster, address: str
) -> None:
    log.ensure_raw("t")
    writer = log.writer("one")
    producer = Producer({"bootstrap.servers": brokers.servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(log.kafka_name(place.MARKERS), b"{}", b"another")
    producer.flush(30)
    writer.commit(7, {"t": texts("x")})
    settled = log.end_offsets(place.MARKERS)[0]
    with pytest.raises(LogUnreachable, match="a transaction of another writer has been open"):
        markers.await_settled(settled + 1, lambda: log.end_offsets(place.MARKERS)[0], wait_ms=100)
    producer.abort_transaction(30)
    assert log.writer("one").last_marker == 7


def test_markers_are_found_however_far_back_they_are() -> None:
    from millrace.log import Records

    names = [b"old", *[b"busy"] * 5000]
    said = [json.dumps({"marker": i, "epoch": 1, "owner": ""}).encode() for i in range(len(names))]
    reads: list[int] = []

    def read(start: int, end: int) -> Records:
        import numpy as np

        reads.append(end - start)
        at = np.arange(start, end)
        return Records(at, at, pa.array(names[start:end]), pa.array(said[start:end]))

    found = markers.last_marker("old", 0, len(names), read)
    assert found is not None
    assert (found.marker, sum(reads)) == (0, len(names))
    assert markers.last_marker("nobody", 0, len(names), read) is None
    reads.clear()
    found = markers.last_marker("busy", 0, len(names), read)
    assert found is not None
    assert (found.marker, reads) == (5000, [200])


@pytest.mark.parametrize("place", ["begun", "produced", "marked", "committed"])
def test_a_writer_killed_at_any_step_of_a_commit_leaves_it_whole_or_not_at_all(
    log: KafkaLog, address: str, start: Start, place: str
) -> None:
    for topic in ("a", "b"):
        log.ensure_raw(topic)
    process = start(children.commit_until, address, "query", {"a": 3, "b": 2}, f"{place}:3")
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    writer = log.writer("query")
    assert writer.last_marker == (1 if place == "committed" else 0)
    children.commit_next(writer, {"a": 3, "b": 2})
    for topic, size in (("a", 3), ("b", 2)):
        assert values(log, topic) == [
            f"{marker}.{i}".encode() for marker in range(writer.last_marker + 1) for i in range(size)
        ]


def test_a_writer_whose_transaction_took_too_long_goes_on_if_nobody_took_over(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millrace.log import fault_points

    monkeypatch.setattr("millrace.log.kafka.log.TRANSACTION_MS", 1_000)
    log.ensure_raw("t")
    writer = log.writer("slow")
    writer.commit(0, {"t": texts("a")})
    ends = log._topics.offsets("t", OffsetSpec.latest(), committed=False)[0]
    late = iter([True])

    def dawdle(place: str) -> None:
        if place == "marked" and next(late, False):
            writer._producer.flush(30)
            while log.end_offsets("t")[0] <= ends:  # the brokers abort what takes longer than it may
                pass

    monkeypatch.setattr(fault_points, "at", dawdle)
    writer.commit(1, {"t": texts("b")})
    writer.commit(2, {"t": texts("c")})
    assert values(log, "t") == [b"a", b"b", b"c"]


def test_a_record_that_is_too_large_is_refused_before_anything_is_sent(log: KafkaLog) -> None:
    log.ensure_raw("t")
    big = OutgoingRecords(pa.array([b"small", b"x" * 2_000_000]))
    with pytest.raises(LogError, match="a record of 2000100 bytes for 't' is larger than the topic takes"):
        log.append("t", big)
    writer = log.writer("w")
    with pytest.raises(LogError, match="2000100 bytes"):
        writer.commit(0, {"t": big})
    writer.commit(0, {"t": texts("fine")})
    assert values(log, "t") == [b"fine"]


def test_what_brokers_refuse_is_said_and_the_next_commit_goes_through(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.ensure_raw("t")
    with monkeypatch.context() as patched:  # as if the limit had been lowered since it was asked for
        patched.setattr(log._topics, "max_record_bytes", lambda topic: 5_000_000)
        writer = log.writer("w")
        with pytest.raises(LogError, match="a record is larger than Kafka takes"):
            writer.commit(0, {"t": OutgoingRecords(pa.array([b"small", b"x" * 2_000_000]))})
        writer.commit(0, {"t": texts("fine")})
        assert values(log, "t") == [b"fine"]
        with pytest.raises(LogError, match="a record is larger than Kafka takes"):
            log.append("t", OutgoingRecords(pa.array([b"x" * 2_000_000])))


# Schemas


def test_a_consumer_without_our_code_reads_what_we_wrote(log: KafkaLog, brokers: Cluster) -> None:
    log.ensure(STOPS)
    log.append(
        "stops", encode(STOPS, pl.DataFrame({"name": ["Kamppi", "Pasila"], "event_time": [1_000, 2_000]}))
    )
    program = Path(__file__).parents[2] / "docs" / "examples" / "read_without_millrace.py"
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
    kept = log._known_schema("stops")
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


# Ways in


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_with_tls_and_a_password_everything_works(brokers: Cluster, mechanism: str) -> None:
    log = open_log(
        f"kafka://{brokers.secure_servers}/{uuid.uuid4().hex}",
        kafka=secure(brokers, "admin", PASSWORDS["admin"], mechanism),
    )
    log.ensure_raw("t")
    log.append("t", texts("a"))
    log.writer("w").commit(0, {"t": texts("b")})
    assert values(log, "t") == [b"a", b"b"]
    log.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_an_error_and_not_shown(
    brokers: Cluster, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(
        LogDenied, match=r"does not let us in .*MILLRACE_KAFKA_CLIENT_SASL_PASSWORD"
    ) as caught:
        open_log(
            f"kafka://{brokers.secure_servers}", kafka=secure(brokers, "admin", "not-the-password", mechanism)
        )
    assert "not-the-password" not in str(caught.value) + caplog.text


def test_who_may_not_is_told_so(brokers: Cluster, log: KafkaLog) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a"))
    reader = open_log(
        log.url.replace(brokers.servers, brokers.secure_servers),
        kafka=secure(brokers, "reader", PASSWORDS["reader"]),
    )
    for use in (
        lambda: reader.ensure_raw("mine"),
        lambda: reader.append("t", texts("b")),
        lambda: reader.writer("w"),
    ):
        with pytest.raises(LogDenied, match="does not allow it"):
            use()
    reader.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(brokers: Cluster) -> None:
    settings = KafkaSettings(client={"security.protocol": "SSL"}, wait="20s")
    with pytest.raises(LogDenied, match=r"ssl\.ca\.location"):
        open_log(f"kafka://{brokers.secure_servers}", kafka=settings)


def test_brokers_that_are_not_there_are_waited_for_and_then_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LogUnreachable, match=r"Kafka at localhost:1 has not answered for 3s .*kafka\.wait"):
        open_log("kafka://localhost:1", kafka=KafkaSettings(wait="3s"))
    assert "waiting for Kafka at localhost:1" in caplog.text


def test_secrets_are_neither_shown_nor_pickled(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(kafka=secure(brokers, "admin", PASSWORDS["admin"]))
    stored = pickle.dumps(settings)
    assert PASSWORDS["admin"] not in repr(settings) + str(settings.model_dump())
    assert PASSWORDS["admin"].encode() not in stored
    elsewhere: Settings = pickle.loads(stored)
    with pytest.raises(ConfigError, match="MILLRACE_KAFKA_CLIENT_SASL_PASSWORD is not in the environment"):
        elsewhere.kafka.secret_variables()
    for name, value in settings.kafka.secret_variables().items():
        monkeypatch.setenv(name, value)
    log = open_log(f"kafka://{brokers.secure_servers}", kafka=elsewhere.kafka)
    assert isinstance(log.list_topics(), list)
    log.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://me:secret@host:9092", "must not hold a name or password"),
        ("kafka://host", "'host' is not HOST:PORT"),
        ("kafka://host:9092/a b", "topic name 'a b'"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        open_log(url)
    assert "secret@" not in str(caught.value)


def test_what_promises_rest_on_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match=r"isolation\.level cannot be set"):
        open_log("kafka://localhost:1", kafka=KafkaSettings(client={"isolation.level": "read_uncommitted"}))


PASSWORDS = {"admin": "the-admin's-secret", "reader": "a reader's secret"}


def secure(brokers: Cluster, name: str, password: str, mechanism: str = "PLAIN") -> KafkaSettings:
    said = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(brokers.folder.parent / "tls" / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    return KafkaSettings.model_validate({"client": said, "wait": "60s"})
