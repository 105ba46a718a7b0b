"""Commits on Kafka are whole or not there, whatever happens to their writer."""

import json
import signal
import uuid
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import OffsetSpec

from log import children
from log.children import texts
from log.conftest import Start
from log.kafka.contents import values
from millrace.devtools.brokers import Cluster
from millrace.errors import LogError, LogUnreachable
from millrace.log import OutgoingRecords
from millrace.log.kafka import markers
from millrace.log.kafka import url as place
from millrace.log.kafka.log import KafkaLog
from millrace.log.kafka.producer import count_undelivered

pytestmark = pytest.mark.kafka


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
    values = [json.dumps({"marker": i, "epoch": 1, "owner": ""}).encode() for i in range(len(names))]
    reads: list[int] = []

    def read(start: int, end: int) -> Records:
        import numpy as np

        reads.append(end - start)
        at = np.arange(start, end)
        return Records(at, at, pa.array(names[start:end]), pa.array(values[start:end]))

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


def test_a_refusal_of_brokers_is_reported_and_the_next_commit_succeeds(
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


class FencedProducer:
    """A producer whose client library loses the error of a flush, as it may when it is fenced."""

    def flush(self, timeout: float) -> int:
        raise SystemError("returned NULL without setting an exception")

    def __len__(self) -> int:
        return 3


def test_a_flush_whose_error_the_client_loses_leaves_records_undelivered() -> None:
    assert count_undelivered(cast(Any, FencedProducer())) == 3
