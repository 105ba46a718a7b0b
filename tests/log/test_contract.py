"""What every log promises, whichever implementation keeps it."""

import os
import random
import signal
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

from log import children
from log.children import texts
from log.conftest import Start, within
from millrace.errors import Fenced, LogError, OffsetGone, TopicMismatch, TopicMissing
from millrace.log import Log, OutgoingRecords, Records, open_log
from millrace.topics import Topic


@dataclass
class Position:
    vehicle: str
    speed: float


@dataclass
class Arrival:
    vehicle: str


POSITIONS = Topic("input.positions", Position, "vehicle", partitions=3)


def everything(log: Log, topic: str) -> dict[int, list[str]]:
    """The values of each partition, in order."""
    begins, ends = log.start_offsets(topic), log.end_offsets(topic)
    return {p: [v.decode() for v in log.read(topic, p, begins[p], ends[p]).values.to_pylist()] for p in ends}


def flat(log: Log, topic: str) -> list[str]:
    return [value for values in everything(log, topic).values() for value in values]


# Topics


def test_a_new_log_has_no_topics(log: Log) -> None:
    assert log.list_topics() == []


def test_a_topic_is_created_once_and_then_found_by_everyone(log: Log, url: str) -> None:
    log.ensure(replace(POSITIONS, retention="1h"))
    log.ensure_raw("dead.input.positions")
    other = open_log(url)
    other.ensure(POSITIONS)
    assert other.list_topics() == ["dead.input.positions", "input.positions"]
    info = other.describe("input.positions")
    assert (info.codec, info.type_name, info.envelope, len(info.partitions)) == (
        "binary",
        "millrace.type.Position",
        True,
        3,
    )
    raw = other.describe("dead.input.positions")
    assert (raw.codec, raw.type_name, len(raw.partitions)) == ("raw", "", 1)
    other.close()


def test_the_latest_declaration_of_retention_counts(log: Log) -> None:
    log.ensure(replace(POSITIONS, retention="1h"))
    assert log.describe("input.positions").retention == 3_600_000
    log.ensure(POSITIONS)
    assert log.describe("input.positions").retention is None
    log.ensure_raw("status.run", retention=60_000)
    assert log.describe("status.run").retention == 60_000
    log.ensure_raw("status.run")
    assert log.describe("status.run").retention is None


@dataclass
class Reordered:
    speed: float
    vehicle: str


@dataclass
class Extended:
    vehicle: str
    speed: float
    heading: float


def _called_position(kind: type) -> type:
    kind.__qualname__ = kind.__name__ = "Position"
    return kind


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (replace(POSITIONS, partitions=4), "exists with partitions 3, but is declared with 4"),
        (replace(POSITIONS, codec="json"), "exists with codec 'binary', but is declared with 'json'"),
        (
            replace(POSITIONS, type=Arrival),
            "exists with type 'millrace.type.Position', but is declared with 'millrace.type.Arrival'",
        ),
        (replace(POSITIONS, type=_called_position(Reordered)), "append new fields at the end"),
        (replace(POSITIONS, envelope=False, time="vehicle"), "exists with envelope True"),
    ],
)
def test_a_topic_declared_otherwise_than_it_exists_is_refused(
    log: Log, declared: Topic, message: str
) -> None:
    log.ensure(POSITIONS)
    with pytest.raises(TopicMismatch) as caught:
        log.ensure(declared)
    assert message in str(caught.value)


def test_a_field_may_be_added_at_the_end(log: Log) -> None:
    log.ensure(POSITIONS)
    log.ensure(replace(POSITIONS, type=_called_position(Extended)))
    assert log.list_topics() == [POSITIONS.name]


def test_a_missing_topic_is_named_with_those_that_exist(log: Log) -> None:
    log.ensure_raw("there")
    for use in (
        lambda: log.describe("gone"),
        lambda: log.append("gone", texts("a")),
        lambda: log.read("gone", 0, 0, 1),
        lambda: log.end_offsets("gone"),
        lambda: log.start_offsets("gone"),
        lambda: log.writer("w").commit(0, {"gone": texts("a")}),
        lambda: next(log.tail("gone")),
    ):
        with pytest.raises(TopicMissing, match=r"no topic 'gone' .*; there are there"):
            use()


# Append and read


def test_an_empty_topic_begins_and_ends_at_zero(log: Log) -> None:
    log.ensure(POSITIONS)
    assert log.start_offsets("input.positions") == log.end_offsets("input.positions") == {0: 0, 1: 0, 2: 0}
    assert len(log.read("input.positions", 1, 0, 0)) == 0
    held = log.describe("input.positions").partitions
    assert [p.records for p in held] in ([0, 0, 0], [None, None, None]), "Kafka tells offsets, not records"
    assert all(not p.bytes for p in held)


def test_records_come_back_whole_and_in_order(log: Log) -> None:
    log.ensure_raw("t")
    keys, headers = pa.array([b"k", None, b""]), [(("reason", b"late"), ("n", b"\xff")), (), (("x", b""),)]
    log.append("t", OutgoingRecords(pa.array([b"a", b"", None], pa.binary()), keys, headers), now=1000)
    log.append("t", texts("d"), now=2000)
    got = log.read("t", 0, 0, 4)
    assert got.offsets.tolist() == [0, 1, 2, 3]
    assert got.timestamps.tolist() == [1000, 1000, 1000, 2000]
    assert got.values.to_pylist() == [b"a", b"", None, b"d"]
    assert got.keys.to_pylist() == [b"k", None, b"", None]
    assert got.headers == [*headers, ()]


def test_any_range_can_be_read(log: Log) -> None:
    log.ensure_raw("t")
    sizes = [1, 2, 9000, 1, 1, 30, 5]
    for size in sizes:
        log.append("t", texts(*(f"{size}.{i}" for i in range(size))))
    expected = [f"{size}.{i}".encode() for size in sizes for i in range(size)]
    cuts = random.Random(4)
    for _ in range(50):
        start, end = sorted(cuts.choices(range(len(expected) + 1), k=2))
        got = log.read("t", 0, start, end)
        assert got.values.to_pylist() == expected[start:end]
        assert got.offsets.tolist() == list(range(start, end))


def test_an_empty_batch_can_be_appended(log: Log) -> None:
    log.ensure(POSITIONS)
    log.append("input.positions", texts())
    assert log.end_offsets("input.positions") == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize(("start", "end"), [(0, 4), (3, 4), (4, 5), (-1, 2), (2, 1)])
def test_a_range_that_was_never_written_is_refused(log: Log, start: int, end: int) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a", "b", "c"))
    with pytest.raises(OffsetGone, match=r"t\[0\] holds offsets 0 to 3"):
        log.read("t", 0, start, end)


def test_a_partition_that_does_not_exist_is_refused(log: Log) -> None:
    log.ensure_raw("t", partitions=2)
    with pytest.raises(LogError, match="t has partitions 0 to 1, not 2"):
        log.read("t", 2, 0, 1)
    with pytest.raises(LogError, match="a record is meant for 2; nothing was appended"):
        log.append("t", OutgoingRecords(pa.array([b"a", b"b"]), partitions=np.array([0, 2], np.int32)))
    assert flat(log, "t") == []


def test_equal_keys_share_a_partition_and_keep_their_order(log: Log) -> None:
    log.ensure_raw("t", partitions=8)
    for turn in range(3):
        keys = [f"k{i % 20}" for i in range(100)]
        values = [f"{key}:{turn:02}:{i:03}" for i, key in enumerate(keys)]
        log.append("t", OutgoingRecords(pa.array(values).cast(pa.binary()), pa.array(keys).cast(pa.binary())))
    homes: dict[str, set[int]] = {}
    for partition, values in everything(log, "t").items():
        for key in {value.split(":")[0] for value in values}:
            homes.setdefault(key, set()).add(partition)
            own = [value for value in values if value.split(":")[0] == key]
            assert own == sorted(own)
    assert len(homes) == 20
    assert all(len(home) == 1 for home in homes.values())
    assert len(set.union(*homes.values())) > 1


def test_records_without_a_key_are_dealt_out_in_turn(log: Log) -> None:
    log.ensure_raw("t", partitions=4)
    for i in range(8):
        log.append("t", texts(str(i)))
    log.append("t", texts(*map(str, range(8, 20))))
    assert log.end_offsets("t") == {0: 5, 1: 5, 2: 5, 3: 5}


def test_a_chosen_partition_overrules_the_key(log: Log) -> None:
    log.ensure_raw("t", partitions=3)
    chosen = np.array([2, 0, 2], np.int32)
    log.append(
        "t", OutgoingRecords(pa.array([b"a", b"b", b"c"]), pa.array([b"k", b"k", b"k"]), partitions=chosen)
    )
    assert everything(log, "t") == {0: ["b"], 1: [], 2: ["a", "c"]}


def test_appended_records_outlive_the_process_that_appended_them(log: Log, url: str) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a"))
    log.close()
    again = open_log(url, create=False)
    assert flat(again, "t") == ["a"]
    again.close()


# Commits


def test_a_commit_is_in_all_topics_and_its_marker_is_kept(log: Log) -> None:
    log.ensure_raw("a", partitions=2)
    log.ensure_raw("b")
    writer = log.writer("query")
    assert writer.last_marker == -1
    writer.commit(0, {"a": texts("x", "y"), "b": texts("z")})
    writer.commit(7, {})
    assert writer.last_marker == 7
    assert log.writer("query").last_marker == 7
    assert log.writer("another").last_marker == -1
    assert (sorted(flat(log, "a")), flat(log, "b")) == (["x", "y"], ["z"])


def test_a_commit_that_fails_halfway_leaves_nothing(log: Log) -> None:
    log.ensure_raw("a")
    log.ensure_raw("b")
    writer = log.writer("query")
    with pytest.raises(LogError):
        writer.commit(
            0, {"a": texts("x"), "b": OutgoingRecords(pa.array([b"z"]), partitions=np.array([5], np.int32))}
        )
    with pytest.raises(TopicMissing):
        writer.commit(0, {"a": texts("x"), "missing": texts("y")})
    assert (flat(log, "a"), flat(log, "b"), log.writer("query").last_marker) == ([], [], -1)


@pytest.mark.parametrize("marker", [4, 3, -1])
def test_a_marker_that_is_not_newer_is_refused(log: Log, marker: int) -> None:
    log.ensure_raw("a")
    writer = log.writer("query")
    writer.commit(4, {"a": texts("x")})
    with pytest.raises(LogError, match=f"marker {marker} is not after 4"):
        writer.commit(marker, {"a": texts("x")})
    assert flat(log, "a") == ["x"]


def test_an_older_writer_of_the_same_name_is_fenced(log: Log, url: str) -> None:
    log.ensure_raw("a")
    older = log.writer("query")
    older.commit(0, {"a": texts("0")})
    elsewhere = open_log(url)
    newer = elsewhere.writer("query")
    assert newer.last_marker == 0
    with pytest.raises(Fenced, match="another writer named 'query' has taken over"):
        older.commit(1, {"a": texts("older")})
    newer.commit(1, {"a": texts("newer")})
    with pytest.raises(Fenced):
        older.commit(2, {"a": texts("older")})
    assert flat(log, "a") == ["0", "newer"]
    elsewhere.close()


def test_writers_of_different_names_are_independent(log: Log) -> None:
    log.ensure_raw("a")
    one, two = log.writer("one"), log.writer("two")
    one.commit(0, {"a": texts("1")})
    two.commit(0, {"a": texts("2")})
    one.commit(1, {"a": texts("3")})
    assert flat(log, "a") == ["1", "2", "3"]


# Several processes


def test_processes_that_append_at_once_lose_nothing_and_keep_their_order(
    log: Log, url: str, start: Start
) -> None:
    log.ensure_raw("input.t", partitions=3)
    running = [start(children.append_many, url, "input.t", who, 40, 7) for who in range(3)]
    for process in running:
        process.join()
        assert process.exitcode == 0
    found: dict[str, list[int]] = {}
    for value in flat(log, "input.t"):
        who, number = value.split("/")
        found.setdefault(who, []).append(int(number))
    assert found == {str(who): list(range(280)) for who in range(3)}


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_whole_commits_only(log: Log, url: str, start: Start) -> None:
    sizes = {"a": 3, "b": 40, "late.x": 1}
    for topic in sizes:
        log.ensure_raw(topic, partitions=2)
    moments = random.Random(7)
    kills = 25 if url.startswith("embedded") else 6
    for _ in range(kills):
        before = sum(log.end_offsets("a").values())
        process = start(children.commit_for_ever, url, "query", sizes)
        with within() as waiting:
            while waiting(sum(log.end_offsets("a").values()) <= before):
                pass
            until = sum(log.end_offsets("a").values()) + 3 * moments.randrange(4)
            while waiting(sum(log.end_offsets("a").values()) < until):
                pass
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    last = log.writer("query").last_marker
    assert last >= kills - 1
    for topic, size in sizes.items():
        assert sorted(flat(log, topic)) == sorted(
            f"{marker}.{i}" for marker in range(last + 1) for i in range(size)
        )


# Tail


def test_a_tail_yields_existing_records_and_then_new_ones(log: Log) -> None:
    log.ensure_raw("t")
    log.append("t", texts("a", "b"))
    coming = iter(["c", "d"])

    def wait() -> bool:
        value = next(coming, None)
        if value is not None:
            log.append("t", texts(value))
        return value is not None

    seen = [
        (p, records.values.to_pylist(), records.offsets.tolist())
        for p, records in log.tail("t", start="begin", wait=wait)
    ]
    assert seen == [(0, [b"a", b"b"], [0, 1]), (0, [b"c"], [2]), (0, [b"d"], [3])]


def test_a_tail_can_start_at_the_end_or_at_given_offsets(log: Log) -> None:
    log.ensure_raw("t", partitions=2)
    log.append("t", texts("a", "b", "c", "d"))
    assert list(log.tail("t", start="end", wait=lambda: False)) == []
    got: list[tuple[int, Records]] = list(log.tail("t", start={0: 1, 1: 2}, wait=lambda: False))
    assert [(p, records.offsets.tolist()) for p, records in got] == [(0, [1])]


# Retention


def test_records_older_than_the_retention_are_removed_and_offsets_stay(log: Log) -> None:
    log.ensure(replace(POSITIONS, name="kept", partitions=1))
    log.ensure(replace(POSITIONS, name="short", partitions=1, retention="1s"))
    for topic in ("kept", "short"):
        for second in range(5):
            log.append(topic, texts(*(["x" * 100] * 100)), now=second * 1000)
    log.expire(4500)
    assert (log.start_offsets("kept"), log.end_offsets("kept")) == ({0: 0}, {0: 500})
    assert (log.start_offsets("short"), log.end_offsets("short")) == ({0: 400}, {0: 500})
    assert log.read("short", 0, 400, 500).timestamps.tolist() == [4000] * 100
    with pytest.raises(OffsetGone, match=r"short\[0\] holds offsets 400 to 500, not all of 399 to 410"):
        log.read("short", 0, 399, 410)
    info = log.describe("short").partitions[0]
    assert (info.begin, info.end) == (400, 500)
    assert info.records in (100, None), "Kafka tells offsets, not records"
    kept = log.describe("kept").partitions[0]
    assert info.bytes is None or kept.bytes is None or info.bytes * 4 < kept.bytes


def test_retention_advances_at_most_by_the_time_since_the_newest_record(log: Log) -> None:
    log.ensure(replace(POSITIONS, name="short", partitions=2, retention="1s"))
    log.ensure(replace(POSITIONS, name="empty", partitions=1, retention="1s"))
    for second in range(5):
        log.append("short", texts("x" * 10_000), now=second * 1000)
    year = 365 * 86_400_000
    log.expire(year, elapsed=0)
    assert sum(log.end_offsets("short").values()) - sum(log.start_offsets("short").values()) == 2, (
        "at 4 s, where the clock says a year"
    )
    log.expire(year, elapsed=500)
    assert sum(log.end_offsets("short").values()) - sum(log.start_offsets("short").values()) == 1
    log.expire(4_600, elapsed=year)
    assert sum(log.end_offsets("short").values()) - sum(log.start_offsets("short").values()) == 1, (
        "the clock counts, too"
    )
    log.expire(year, elapsed=year)
    assert log.start_offsets("short") == log.end_offsets("short")


def test_a_topic_of_bytes_has_a_retention_too(log: Log) -> None:
    log.ensure_raw("status.run", retention=1_000)
    for second in range(5):
        log.append("status.run", texts("x" * 10_000), now=second * 1000)
    log.expire(4500)
    assert (log.start_offsets("status.run"), log.end_offsets("status.run")) == ({0: 4}, {0: 5})


def test_a_topic_that_expired_whole_continues_at_its_offset(log: Log) -> None:
    log.ensure(replace(POSITIONS, name="short", partitions=1, retention="1s"))
    log.append("short", texts("a", "b"), now=0)
    log.expire(10_000)
    assert log.start_offsets("short") == log.end_offsets("short") == {0: 2}
    assert not log.describe("short").partitions[0].bytes
    log.append("short", texts("c"), now=10_000)
    assert log.read("short", 0, 2, 3).values.to_pylist() == [b"c"]
