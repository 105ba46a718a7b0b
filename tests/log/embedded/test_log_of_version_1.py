"""A log in the format of before partitioners were recorded: it is read, and its topics go on as they began.

`fixtures/log-version-1.zip` holds `inputs.db` and `results.db` as that version wrote them: in each, 12
positions of vehicles 22/1100 to 22/1111 in a topic of three partitions. Those of `results.db` are the commit
4 of the writer `run.state`.
"""

import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from millrace.errors import LogDamaged
from millrace.log import OutgoingRecords
from millrace.log.codecs.codec import decode, encode
from millrace.log.embedded.log import EmbeddedLog
from millrace.log.embedded.sqlite import VERSION
from millrace.log.embedded.verify import VerificationCounts, verify_log
from millrace.log.partitioning import place_keys
from millrace.log.writer_watermarks import watermarks_at
from millrace.topics import Topic


@dataclass
class Position:
    vehicle: str
    speed: float


INPUT = Topic("input.positions", Position, "vehicle", partitions=3)
TABLE = Topic("table.positions", Position, "vehicle", partitions=3, compact=True)
VEHICLES = [f"22/{number}" for number in range(1100, 1112)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with zipfile.ZipFile(Path(__file__).parent / "fixtures" / "log-version-1.zip") as archive:
        archive.extractall(tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(folder, create=False)
    yield opened
    opened.close()


def positions(speed: float) -> pl.DataFrame:
    return pl.DataFrame({"vehicle": VEHICLES, "speed": [speed] * 12, "event_time": [50_000] * 12})


def rows(log: EmbeddedLog, topic: Topic) -> pl.DataFrame:
    """All rows of a topic, with their partitions."""
    decoded = [
        decode(topic, partition, log.read(topic.name, partition, 0, end)).rows.with_columns(
            partition=pl.lit(partition, pl.Int64)
        )
        for partition, end in log.end_offsets(topic.name).items()
        if end
    ]
    return pl.concat(decoded)


def numbers_by(partitioner: str) -> dict[str, int]:
    keys = pa.array(VEHICLES).cast(pa.binary())
    return dict(zip(VEHICLES, place_keys(keys, 3, partitioner).tolist(), strict=True))  # type: ignore[arg-type] # either


@pytest.mark.parametrize("topic", [INPUT, TABLE])
def test_all_its_records_are_read(log: EmbeddedLog, topic: Topic) -> None:
    found = rows(log, topic).sort("vehicle")
    assert found["vehicle"].to_list() == VEHICLES
    assert found["speed"].to_list() == [float(number) for number in range(12)]
    assert found["event_time"].to_list() == [1000 * number for number in range(12)]
    assert log.list_topics() == ["dead.input.positions", "input.positions", "table.positions"]


@pytest.mark.parametrize("topic", [INPUT, TABLE])
def test_an_update_of_a_key_goes_to_the_partition_of_its_last_record(log: EmbeddedLog, topic: Topic) -> None:
    assert numbers_by("millrace-hash") != numbers_by("murmur2")
    log.ensure(topic)
    log.append(topic.name, encode(topic, positions(99.0)))
    homes = rows(log, topic).group_by("vehicle").agg(pl.col("partition").unique(), pl.len())
    assert homes["len"].to_list() == [2] * 12
    assert {row["vehicle"]: row["partition"] for row in homes.to_dicts()} == {
        vehicle: [number] for vehicle, number in numbers_by("millrace-hash").items()
    }
    assert log.describe(topic.name).partitioner == "millrace-hash"


def test_its_writer_continues_after_the_last_commit(log: EmbeddedLog) -> None:
    writer = log.writer("run.state")
    assert writer.last_marker == 4
    writer.commit(5, {TABLE.name: encode(TABLE, positions(99.0))})
    assert sum(log.end_offsets(TABLE.name).values()) == 24


def test_a_new_topic_in_it_places_keys_by_murmur2(log: EmbeddedLog, folder: Path) -> None:
    log.ensure_raw("input.new", partitions=3)
    log.append("input.new", OutgoingRecords(pa.array([b"x"] * 12), pa.array(VEHICLES).cast(pa.binary())))
    log.close()
    again = EmbeddedLog(folder)
    assert again.describe("input.new").partitioner == "murmur2"
    assert again.describe("input.positions").partitioner == "millrace-hash"
    homes = {
        key.decode(): partition
        for partition, end in again.end_offsets("input.new").items()
        for key in again.read("input.new", partition, 0, end).keys.to_pylist()
    }
    assert homes == numbers_by("murmur2")
    again.close()


def test_the_version_that_wrote_it_refuses_it_from_now_on(log: EmbeddedLog, folder: Path) -> None:
    """Else it would place the keys of new topics by the hash of before."""
    log.close()
    for file in ("inputs.db", "results.db"):
        with sqlite3.connect(folder / file) as db:
            assert db.execute("pragma user_version").fetchone()[0] == VERSION == 3


def test_nothing_in_it_is_called_damaged(log: EmbeddedLog, folder: Path) -> None:
    log.close()
    counts = VerificationCounts()
    assert list(verify_log(folder, counts)) == []
    assert counts.chunks == 6


def test_a_partitioner_that_is_not_known_is_refused(log: EmbeddedLog, folder: Path) -> None:
    log.close()
    with sqlite3.connect(folder / "inputs.db") as db:
        db.execute("update topic set partitioner = 'murmur3'")
    with pytest.raises(LogDamaged, match=r"its partitioner 'murmur3' is not known here"):
        EmbeddedLog(folder).append("input.positions", encode(INPUT, positions(1.0)))


def test_a_file_of_version_2_gets_the_table_of_watermarks(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    EmbeddedLog(folder).close()
    for file in ("inputs.db", "results.db"):
        with closing(sqlite3.connect(folder / file)) as db, db:
            db.execute("drop table watermark")
            db.execute("pragma user_version=2")
    opened = EmbeddedLog(folder, create=False)
    opened.ensure_raw("t")
    opened.writer("w").commit(0, {}, watermarks={"t": 5})
    assert watermarks_at(opened.writer_watermarks("t"), {0: 0}) == {0: 5}
    opened.close()
