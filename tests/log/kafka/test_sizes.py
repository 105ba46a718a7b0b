"""Records at, below and above what brokers take."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

import millrace as mr
from log.children import texts
from millrace.config import KafkaSettings
from millrace.errors import LogError
from millrace.log import OutgoingRecords, open_log
from millrace.log.codecs.codec import encode
from millrace.log.dead_letters import parse_letters, truncate_letters
from millrace.log.kafka.log import KafkaLog
from millrace.log.record_sizes import RECORD_OVERHEAD, record_sizes
from millrace.runners.local import run_local
from millrace.topics import Topic
from runners.local_child import settings

pytestmark = pytest.mark.kafka

DEFAULT = 1_048_588
"""The default limit of brokers."""


@dataclass
class Note:
    who: str
    text: str


@dataclass
class Count:
    who: str
    count: int


NOTES = Topic("notes", Note, "who", partitions=1)
COUNTS = Topic("counts", Count, "who", partitions=1)


def limit(log: KafkaLog, topic: str, largest: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(largest), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, log.kafka_name(topic), incremental_configs=[entry])
    for future in log._admin.incremental_alter_configs([resource]).values():
        future.result(10)
    log._topics._limits.clear()


def sized(size: int, *, key: int = 0, headers: int = 0) -> OutgoingRecords:
    """One record of exactly that size, as we count."""
    made = OutgoingRecords(
        pa.array([b"x" * (size - RECORD_OVERHEAD - key - (headers + 11 if headers else 0))]),
        pa.array([b"k" * key]) if key else None,
        [(("h", b"h" * headers),)] if headers else None,
    )
    assert record_sizes(made).tolist() == [size]
    return made


@pytest.mark.parametrize("largest", [5_000, DEFAULT, 3_000_000])
@pytest.mark.parametrize("more", [{}, {"key": 2_000}, {"headers": 2_000}, {"key": 1_000, "headers": 1_000}])
def test_a_record_of_the_largest_size_is_written_and_a_byte_more_is_refused(
    log: KafkaLog, largest: int, more: dict[str, int]
) -> None:
    log.ensure_raw("t")
    limit(log, "t", largest)
    assert log.max_record_bytes("t") == largest
    writer = log.writer("w")
    for number, size in enumerate((largest - 1, largest)):
        log.append("t", sized(size, **more))
        writer.commit(number, {"t": sized(size, **more)})
    too_large = f"a record of {largest + 1} bytes for 't' is larger than the topic takes"
    with pytest.raises(LogError, match=too_large):
        log.append("t", sized(largest + 1, **more))
    with pytest.raises(LogError, match=too_large):
        writer.commit(9, {"t": sized(largest + 1, **more)})
    begin, end = log.start_offsets("t")[0], log.end_offsets("t")[0]
    assert len(log.read("t", 0, begin, end)) == 4


@pytest.mark.parametrize("largest", [3_000, 100_000])
def test_many_records_for_a_topic_with_a_small_limit_are_sent_in_small_batches(
    log: KafkaLog, largest: int
) -> None:
    log.ensure_raw("t")
    limit(log, "t", largest)
    values = [b"%d " % n + b"x" * (n * 37 % 1_500) for n in range(1_000)]
    log.append("t", OutgoingRecords(pa.array(values)))
    log.writer("w").commit(0, {"t": OutgoingRecords(pa.array(values))})
    assert log.read("t", 0, 0, log.end_offsets("t")[0]).values.to_pylist() == values * 2


def test_a_smaller_limit_of_the_client_counts(log: KafkaLog) -> None:
    careful = open_log(log.url, kafka=KafkaSettings(client={"message.max.bytes": "2000"}))
    careful.ensure_raw("t")
    assert careful.max_record_bytes("t") == 2_000
    careful.append("t", sized(2_000))
    with pytest.raises(LogError, match="2001 bytes"):
        careful.append("t", sized(2_001))
    careful.close()


@pytest.mark.parametrize("size", [DEFAULT - 1, DEFAULT, DEFAULT + 1, 3_000_000])
def test_a_broker_accepts_a_letter_of_any_size(log: KafkaLog, size: int) -> None:
    log.ensure_raw("dead.t")
    log.append(
        "dead.t", truncate_letters(sized(size, key=2_000, headers=500), log.max_record_bytes("dead.t"))
    )
    (read,) = parse_letters(log.read("dead.t", 0, 0, 1)).to_dicts()
    assert ("length" in read) == (size > DEFAULT)


def counts() -> mr.Job:
    notes = mr.read(NOTES, watermark=mr.watermarks.bounded("1s"))
    return mr.Job("counts", notes.window(mr.windows.fixed("10s")).group_by("who").count().write(COUNTS))


def test_unreadable_and_late_records_of_the_largest_size_do_not_stop_a_run(
    log: KafkaLog, tmp_path: Path
) -> None:
    log.ensure(NOTES)
    room = DEFAULT - RECORD_OVERHEAD

    def notes(*rows: tuple[str, str, int]) -> OutgoingRecords:
        return encode(NOTES, pl.DataFrame(rows, schema=["who", "text", "event_time"], orient="row"))

    log.append("notes", notes(("a", "", 1_000), ("a", "", 60_000)))
    log.append("notes", OutgoingRecords(pa.array([b"\xff" * room]), partitions=np.zeros(1, np.int32)))
    log.append("notes", notes(("a", "x" * (room - 100), 2_000), ("a", "", 120_000)))
    for number in range(2):
        run_local([counts()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
        log.append("notes", notes(("a", "", 200_000 + 60_000 * number)))
    ((dead,), (late,)) = (
        parse_letters(log.read(topic, 0, log.start_offsets(topic)[0], log.end_offsets(topic)[0])).to_dicts()
        for topic in ("dead.notes", "late.counts")
    )
    assert (dead["length"], dead["offset"], dead["topic"]) == (str(room), "2", "notes")
    assert int(late["length"]) > room - 100
    assert log.read("counts", 0, 0, log.end_offsets("counts")[0]).values


def test_a_result_that_is_too_large_for_its_topic_is_a_dead_letter(log: KafkaLog, tmp_path: Path) -> None:
    log.ensure(NOTES)
    copied = Topic("copied", Note, "who")
    log.ensure(copied)
    limit(log, "copied", 2_000)
    rows = [("a", "small", 1_000), ("a", "x" * 5_000, 2_000), ("a", "small too", 3_000)]
    log.append("notes", encode(NOTES, pl.DataFrame(rows, schema=["who", "text", "event_time"], orient="row")))
    run_local(
        [mr.Job("copy", mr.read(NOTES).write(copied))],
        settings=settings(log.url, str(tmp_path / "s")),
        until_caught_up=True,
    )
    assert sum(len(log.read("copied", p, 0, end)) for p, end in log.end_offsets("copied").items()) == 2
    (dead,) = parse_letters(log.read("dead.copy", 0, 0, log.end_offsets("dead.copy")[0])).to_dicts()
    assert dead["topic"] == "copied"
    assert "not written" in dead["reason"]


def test_small_records_beside_the_letters_are_untouched(log: KafkaLog) -> None:
    log.ensure_raw("t")
    log.append("t", truncate_letters(texts("a", "b"), log.max_record_bytes("t")))
    assert log.read("t", 0, 0, 2).values.to_pylist() == [b"a", b"b"]
