"""Ranges and their ends, whichever of the two consumers reads them."""

import logging
import random
import time
import uuid
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic

from log.children import texts
from log.conftest import within
from millrace.config import KafkaSettings
from millrace.devtools.brokers import Cluster
from millrace.errors import OffsetGone, TopicMissing
from millrace.log import OutgoingRecords, Records, open_log
from millrace.log.contract import Headers
from millrace.log.kafka import librdkafka
from millrace.log.kafka.consumers import ColumnConsumer, Event, ObjectConsumer
from millrace.log.kafka.log import KafkaLog

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("reading")]

Row = tuple[bytes | None, bytes | None, Headers]


def rows_of(records: Records) -> list[Row]:
    headers = records.headers or [()] * len(records)
    return list(zip(records.values.to_pylist(), records.keys.to_pylist(), headers, strict=True))


def read_all(log: KafkaLog, topic: str) -> Records:
    return log.read(topic, 0, log.start_offsets(topic)[0], log.end_offsets(topic)[0])


def random_rows(seed: int, count: int) -> list[Row]:
    """Records of all forms: without key, value or both, with empty ones, and with headers."""
    source = random.Random(seed)

    def some_bytes(longest: int) -> bytes | None:
        return source.choice([None, b"", source.randbytes(source.randrange(longest))])

    def some_headers() -> Headers:
        return tuple(
            (source.choice(["a", "long name"]), some_bytes(30) or b"") for _ in range(source.randrange(3))
        )

    return [(some_bytes(300), some_bytes(20), source.choice([(), some_headers()])) for _ in range(count)]


def outgoing(rows: list[Row]) -> OutgoingRecords:
    values, keys, headers = zip(*rows, strict=True)
    return OutgoingRecords(pa.array(values, pa.binary()), pa.array(keys, pa.binary()), list(headers))


def test_each_consumer_is_the_one_that_was_chosen(log: KafkaLog, reading: str) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a"))
    log.read("t", 0, 0, 1)
    wanted = {"columns": ColumnConsumer, "objects": ObjectConsumer}[reading]
    assert isinstance(log._readers["t", 0]._consumer, wanted)


@pytest.mark.parametrize("seed", range(3))
def test_records_of_all_forms_come_back(log: KafkaLog, seed: int) -> None:
    log.ensure_raw("t")
    rows = random_rows(seed, 500)
    for first in range(0, 500, 100):
        log.append("t", outgoing(rows[first : first + 100]), now=1_000 + first)
    records = read_all(log, "t")
    assert rows_of(records) == rows
    assert records.offsets.tolist() == list(range(500))
    assert records.timestamps.tolist() == [1_000 + row // 100 * 100 for row in range(500)]
    for first, end in ((0, 1), (1, 7), (7, 250), (250, 251), (251, 500), (3, 4)):
        cut = log.read("t", 0, first, end)
        assert (rows_of(cut), cut.offsets.tolist()) == (rows[first:end], list(range(first, end)))


def test_records_without_any_key_or_value_come_back(log: KafkaLog) -> None:
    log.ensure_raw("t")
    log.append("t", OutgoingRecords(pa.nulls(3, pa.binary())))
    assert rows_of(read_all(log, "t")) == [(None, None, ())] * 3


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_back(brokers: Cluster, log: KafkaLog, codec: str) -> None:
    compressing = open_log(log.url, kafka=KafkaSettings(client={"compression.type": codec}))
    compressing.ensure_raw("t")
    rows = random_rows(7, 2_000)
    compressing.append("t", outgoing(rows))
    assert rows_of(read_all(log, "t")) == rows
    compressing.close()


def test_records_larger_than_a_fetch_are_read(log: KafkaLog) -> None:
    log.ensure_raw("t")
    sizes = (10, 200_000, 900_000, 1)
    rows: list[Row] = [(bytes([number]) * size, None, ()) for number, size in enumerate(sizes)]
    for row in rows:
        log.append("t", outgoing([row]))
    limits = ("fetch.message.max.bytes", "fetch.max.bytes", "message.max.bytes")
    narrow = open_log(log.url, kafka=KafkaSettings(client=dict.fromkeys(limits, "20000")))
    assert isinstance(narrow, KafkaLog)
    assert rows_of(read_all(narrow, "t")) == rows
    narrow.close()


def test_ranges_that_end_with_the_marker_of_a_transaction_are_complete(log: KafkaLog) -> None:
    log.ensure_raw("t")
    writer = log.writer("w")
    for number in range(4):
        writer.commit(number, {"t": texts(f"{number}a", f"{number}b")}, now=5_000 + number)
    ranges = [log.read("t", 0, start, start + 3) for start in range(0, 12, 3)]
    assert [each.values.to_pylist() for each in ranges] == [
        [f"{number}a".encode(), f"{number}b".encode()] for number in range(4)
    ]
    assert [each.timestamps.tolist() for each in ranges] == [[5_000 + number] * 2 for number in range(4)]
    assert not len(log.read("t", 0, 2, 3))
    assert not len(log.read("t", 0, 11, 12))
    writer.close()


def test_aborted_records_leave_gaps_in_large_and_small_ranges(log: KafkaLog) -> None:
    log.ensure_raw("t")
    expected = []
    for turn in range(6):
        producer = log.transactional_producer(uuid.uuid4().hex)
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(400):
            producer.produce(log.kafka_name("t"), b"%d.%d" % (turn, number))
        producer.flush(30)
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)(30)
        expected += [] if turn % 2 else [b"%d.%d" % (turn, number) for number in range(400)]
    end = log.end_offsets("t")[0]
    for step in (end, 777, 101):
        parts = [log.read("t", 0, start, min(end, start + step)) for start in range(0, end, step)]
        assert [value for part in parts for value in part.values.to_pylist()] == expected


@pytest.mark.slow
def test_records_that_compaction_removed_leave_gaps(log: KafkaLog, brokers: Cluster) -> None:
    name = log.kafka_name("t")
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    log._admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    producer = Producer({"bootstrap.servers": brokers.servers})
    for number in range(300):
        producer.produce(name, b"%d" % number, b"key %d" % (number % 7))
    producer.flush(30)
    with within(60) as waiting:
        while waiting(len(read_all(log, "t")) > 100):
            time.sleep(0.3)
            producer.produce(name, b"more", b"another key")
            producer.flush(30)
    whole = read_all(log, "t")
    assert len(whole) < log.end_offsets("t")[0]
    assert sorted(whole.values.to_pylist())[:7] == [b"%d" % number for number in range(293, 300)]
    for start, end in ((0, 5), (5, 293), (293, 300)):
        part = log.read("t", 0, start, end)
        assert [offset for offset in whole.offsets if start <= offset < end] == part.offsets.tolist()


def test_a_range_that_was_removed_or_never_written_is_refused(log: KafkaLog) -> None:
    log.ensure_raw("t", retention=1_000)
    log.append("t", texts("a", "b"), now=1_000)
    with pytest.raises(OffsetGone, match="holds offsets 0 to 2, not all of 0 to 3"):
        log.read("t", 0, 0, 3)
    log.expire(10_000_000)
    with pytest.raises(OffsetGone, match="holds offsets 2 to 2, not all of 0 to 2"):
        log.read("t", 0, 0, 2)
    log.append("t", texts("c"))
    assert log.read("t", 0, 2, 3).values.to_pylist() == [b"c"]


def test_a_topic_that_is_deleted_while_it_is_open_is_missing(log: KafkaLog) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a"))
    assert len(log.read("t", 0, 0, 1)) == 1
    log._admin.delete_topics([log.kafka_name("t")])[log.kafka_name("t")].result(30)
    with pytest.raises((TopicMissing, OffsetGone)):
        log.read("t", 0, 1, 2)


def test_an_error_of_brokers_is_waited_out(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a", "b"))
    assert log.read("t", 0, 0, 1).values.to_pylist() == [b"a"]
    reader = log._readers["t", 0]
    consume, troubled = reader._consumer.consume, [True, True]
    event = [Event(KafkaError(KafkaError.REQUEST_TIMED_OUT), 0)]

    def disturbed(limit: int, wait: float) -> Any:
        return (Records.empty(), event) if troubled and troubled.pop() else consume(limit, wait)

    reader._unread = Records.empty()
    reader._position = None
    monkeypatch.setattr(reader._consumer, "consume", disturbed)
    assert log.read("t", 0, 0, 2).values.to_pylist() == [b"a", b"b"]
    assert not troubled


def test_a_setting_that_librdkafka_refuses_is_left_to_confluent_kafka(
    log: KafkaLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    if reading == "objects":
        pytest.skip("there is nothing to fall back from")
    caplog.set_level(logging.INFO)
    log.ensure_raw("t")
    log.append("t", texts("a"))
    librdkafka.note_objects.cache_clear()
    merge = log._clients._merge_settings
    monkeypatch.setattr(log._clients, "_merge_settings", lambda *parts: {**merge(*parts), "on_commit": print})
    assert len(log.read("t", 0, 0, 1)) == 1
    assert isinstance(log._readers["t", 0]._consumer, ObjectConsumer)
    assert "an object for each record" in caplog.text
