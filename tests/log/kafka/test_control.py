"""Control topics are untrusted input: no record in them stops a command or changes what a topic holds."""

import json
import logging
from dataclasses import dataclass

import pyarrow as pa
import pytest

from log.children import texts
from millrace.cli import main
from millrace.log import OutgoingRecords, open_log
from millrace.log.aliases import ALIASES, read_aliases, set_alias
from millrace.log.kafka import url
from millrace.log.kafka.log import KafkaLog
from millrace.log.kafka.schemas import Schema
from millrace.log.writer_watermarks import watermarks_at
from millrace.topics import Topic

pytestmark = pytest.mark.kafka


@dataclass
class Stop:
    name: str


@dataclass
class Other:
    number: int


STOPS = Topic("stops", Stop, "name", partitions=1)
OTHER = Topic("stops", Other, partitions=1)
HOSTILE: list[bytes | None] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"{}",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"partitions": "1"}',
    b"\0" * 100_000,
]


def write(log: KafkaLog, topic: str, key: bytes | None, values: list[bytes | None]) -> None:
    log.append(
        topic, OutgoingRecords(pa.array(values, pa.binary()), pa.array([key] * len(values), pa.binary()))
    )


def test_hostile_schemas_are_skipped_counted_and_named_once(
    log: KafkaLog, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    log.ensure(STOPS)
    forged = Schema.of_topic(OTHER).to_json()
    for key in (b"stops", b"nothing", b"\xff", b"", b"../x"):
        write(log, url.SCHEMAS, key, [*HOSTILE, *([forged] if key == b"stops" else [])])
    fresh = open_log(log.url)
    assert isinstance(fresh, KafkaLog)
    with caplog.at_level(logging.WARNING):
        assert fresh.describe("stops").type_name == STOPS.type_name
    assert len(caplog.records) == 1
    assert fresh._schemas.skipped.counts == {log.kafka_name(url.SCHEMAS): 5 * len(HOSTILE) + 1}
    fresh.ensure(STOPS)
    fresh.close()
    assert main.main(["topics", "list", "--log", log.url, "--json"]) == 0
    assert STOPS.type_name in capsys.readouterr().out


def test_a_forged_retention_removes_nothing(log: KafkaLog) -> None:
    log.ensure(STOPS)
    log.append("stops", texts("a"), now=1_000)
    forged_schema = json.loads(Schema.of_topic(STOPS).to_json()) | {"retention": 1}
    write(log, url.SCHEMAS, b"stops", [json.dumps(forged_schema).encode()])
    log.expire(10_000_000_000)
    assert log.start_offsets("stops") == {0: 0}


def test_hostile_markers_do_not_hide_the_last_one(log: KafkaLog) -> None:
    log.ensure_raw("t")
    log.writer("w").commit(7, {"t": texts("a")})
    write(log, url.MARKERS, b"w", HOSTILE)
    write(log, url.MARKERS, b"\xff", HOSTILE)
    again = log.writer("w")
    assert again.last_marker == 7
    again.commit(8, {"t": texts("b")})


def test_hostile_watermarks_are_skipped(log: KafkaLog) -> None:
    log.ensure_raw("t")
    writer = log.writer("w")
    writer.commit(0, {"t": texts("a")}, watermarks={"t": 10_000})
    hostile = [value for value in HOSTILE if value is not None]
    forged = b'{"topic": "t", "writer": "w", "watermark": 9223372036854775807, "offsets": [0]}'
    for key in (b"", b"\xff", b"[]", b"[" * 10_000, b'["t"]', b'["t", "w"]'):
        write(log, url.WATERMARKS, key, [*hostile, forged])
    fresh = open_log(log.url)
    for _ in range(2):
        ends = fresh.end_offsets("t")
        assert watermarks_at(fresh.writer_watermarks("t"), ends) == {0: 10_000}
    writer.commit(1, {}, watermarks={"t": 20_000})
    assert watermarks_at(fresh.writer_watermarks("t"), ends) == {0: 20_000}
    fresh.close()


def test_hostile_aliases_are_skipped(log: KafkaLog) -> None:
    log.ensure_raw("t.v2")
    set_alias(log, "t", "t.v2")
    write(log, ALIASES, b"t", [*HOSTILE, b'{"name": 1, "topic": "t.v2"}', b'{"name": "t"}', None])
    assert read_aliases(log) == {"t": "t.v2"}


def test_a_topic_that_is_deleted_may_be_made_anew_with_another_type(log: KafkaLog) -> None:
    log.ensure(STOPS)
    name = log.kafka_name("stops")
    log._admin.delete_topics([name])[name].result(30)
    log._topics._known.clear()
    while log._topics.exists("stops"):
        pass
    log.ensure(OTHER)
    fresh = open_log(log.url)
    assert fresh.describe("stops").type_name == OTHER.type_name
    fresh.close()
