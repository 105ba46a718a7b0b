"""What brokers that restart, forget or have not heard yet do to a log."""

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from log.children import texts
from log.conftest import within
from millrace.devtools import brokers as kafka
from millrace.devtools.brokers.properties import BrokerOptions
from millrace.errors import Fenced, TopicMissing
from millrace.log import OutgoingRecords, open_log
from millrace.log.kafka import broker_errors
from millrace.log.kafka.log import KafkaLog

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    "code", [KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN]
)
def test_an_error_of_a_rolling_restart_is_asked_again(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a", "b"))
    ask, troubled = log._admin.list_offsets, [True, True]

    def answer(*args: Any, **options: Any) -> Any:
        found = ask(*args, **options)
        if troubled and troubled.pop():
            for each in found:
                found[each] = Future()
                found[each].set_exception(KafkaException(KafkaError(code)))
        return found

    monkeypatch.setattr(log._admin, "list_offsets", answer)
    assert log.end_offsets("t") == {0: 2}
    assert not troubled


def test_every_error_that_ends_a_run_is_named_and_all_others_are_retried() -> None:
    ending = {code for codes in broker_errors.FATAL_ERRORS.values() for code in codes}
    assert KafkaError.TOPIC_AUTHORIZATION_FAILED in ending
    for code in (
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    ):
        assert broker_errors.is_transient(KafkaError(code))
    assert not any(broker_errors.is_transient(KafkaError(code)) for code in ending)


def test_a_topic_that_one_broker_lists_and_another_does_not_know_is_waited_for(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.ensure_raw("out.sums")
    log._topics._known.clear()
    count, deaf = log._topics._count_partitions, [0, 0, 0]
    monkeypatch.setattr(log._topics, "_count_partitions", lambda topic: deaf.pop() if deaf else count(topic))
    assert log.end_offsets("out.sums") == {0: 0}
    assert not deaf


def test_a_topic_that_is_nowhere_is_missing_at_once(log: KafkaLog) -> None:
    began = time.monotonic()
    with pytest.raises(TopicMissing, match="there is no topic 'nowhere'"):
        log.end_offsets("nowhere")
    assert time.monotonic() - began < 3


def test_housekeeping_skips_a_topic_without_a_leader(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("led", "leaderless"):
        log.ensure_raw(name, retention=1_000)
        log.append(name, texts("old"), now=1_000)
    listed = log._topics._list_metadata()
    next(iter(listed.topics[log.kafka_name("leaderless")].partitions.values())).leader = -1
    monkeypatch.setattr(log._topics, "_list_metadata", lambda: listed)
    began = time.monotonic()
    log.expire(10_000_000)
    assert time.monotonic() - began < 5
    assert (log.start_offsets("led"), log.start_offsets("leaderless")) == ({0: 1}, {0: 0})


@pytest.mark.slow
def test_a_hundred_partitions_are_read_again_and_again_by_the_readers_that_are_open(log: KafkaLog) -> None:
    log.ensure_raw("t", partitions=100)
    for turn in range(2):
        log.append(
            "t",
            OutgoingRecords(pa.array([b"x"] * 200), partitions=np.repeat(np.arange(100, dtype=np.int32), 2)),
        )
        began = time.monotonic()
        for partition in range(100):
            assert len(log.read("t", partition, 2 * turn, 2 * turn + 2)) == 2
    assert len(log._readers) == 100
    assert time.monotonic() - began < 5, "the second turn opens no reader anew"


@pytest.mark.slow
def test_a_writer_whose_transactional_id_expired_goes_on_and_its_fence_holds(tmp_path: Path) -> None:
    forgetful = {
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        "producer.id.expiration.ms": "2000", "producer.id.expiration.check.interval.ms": "500",
    }  # fmt: skip
    cluster = kafka.start(tmp_path / "brokers", port=0, options=BrokerOptions(None, forgetful))
    try:
        log = open_log(cluster.url)
        assert isinstance(log, KafkaLog)
        log.ensure_raw("t")
        writer = log.writer("w")
        writer.commit(0, {"t": texts("a")})
        time.sleep(6)  # there is nothing to wait for: brokers forget silently
        writer.commit(1, {"t": texts("b")})
        successor = log.writer("w")
        time.sleep(6)
        with pytest.raises(Fenced):
            writer.commit(2, {"t": texts("doubled")})
        successor.commit(2, {"t": texts("c")})
        with within() as waiting:
            while waiting(len(log.read("t", 0, 0, log.end_offsets("t")[0])) < 3):
                pass
        assert log.read("t", 0, 0, log.end_offsets("t")[0]).values.to_pylist() == [b"a", b"b", b"c"]
        log.close()
    finally:
        kafka.stop(cluster)
