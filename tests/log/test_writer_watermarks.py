"""How far writers vouch for topics: in the transaction of a commit, and from behind its records."""

import os
import signal
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log import children
from log.children import texts
from log.conftest import Start
from millrace.devtools.brokers import Cluster
from millrace.errors import Fenced
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.writer_watermarks import WriterWatermark, watermarks_at


def at_ends(log: Log, topic: str) -> dict[int, int]:
    """The watermarks for a reader that has read all."""
    return watermarks_at(log.writer_watermarks(topic), log.end_offsets(topic))


def placed(*partitions: int) -> OutgoingRecords:
    """A record in each of these partitions."""
    return OutgoingRecords(pa.array([b"x"] * len(partitions)), partitions=np.array(partitions, np.int32))


def test_nobody_vouches_for_a_new_topic_or_an_appended_one(log: Log) -> None:
    assert log.writer_watermarks("t") == {}
    log.ensure_raw("t")
    log.append("t", texts("a"))
    log.writer("w").commit(0, {"t": texts("b")})
    assert log.writer_watermarks("t") == {}
    assert at_ends(log, "t") == {}


def test_a_watermark_holds_for_those_who_have_read_the_records_of_its_commit(log: Log) -> None:
    log.ensure_raw("t", partitions=2)
    writer = log.writer("w")
    writer.commit(0, {"t": placed(0)}, watermarks={"t": 10_000})
    first = log.end_offsets("t")
    writer.commit(1, {"t": placed(0, 0, 1)}, watermarks={"t": 20_000})
    assert at_ends(log, "t") == {0: 20_000, 1: 20_000}
    known = log.writer_watermarks("t")["w"]
    [newest, oldest] = known
    assert (newest.watermark, oldest.watermark) == (20_000, 10_000)
    assert watermarks_at({"w": [newest, oldest]}, first) == {0: 10_000, 1: 10_000}
    assert watermarks_at({"w": [newest, oldest]}, {0: first[0], 1: log.end_offsets("t")[1]}) == {
        0: 10_000,
        1: 20_000,
    }
    assert watermarks_at({"w": [newest, oldest]}, {0: 0, 1: 0}) == {1: 10_000}, "partition 1 was empty then"


def test_a_commit_without_records_moves_the_watermark(log: Log) -> None:
    log.ensure_raw("t")
    writer = log.writer("w")
    writer.commit(0, {"t": texts("a")}, watermarks={"t": 10_000})
    writer.commit(1, {}, watermarks={"t": 30_000})
    assert at_ends(log, "t") == {0: 30_000}
    assert log.end_offsets("t") == open_log(log.url).end_offsets("t")


def test_records_without_a_watermark_count_for_the_next_one(log: Log) -> None:
    log.ensure_raw("t")
    writer = log.writer("w")
    writer.commit(0, {"t": texts("a")}, watermarks={"t": 10_000})
    before = log.end_offsets("t")
    writer.commit(1, {"t": texts("b", "c")})
    writer.commit(2, {}, watermarks={"t": 20_000})
    assert watermarks_at(log.writer_watermarks("t"), before) == {0: 10_000}
    assert at_ends(log, "t") == {0: 20_000}


def test_readers_of_the_topic_see_nothing_new(log: Log) -> None:
    log.ensure_raw("t")
    writer = log.writer("w")
    names = log.list_topics()
    writer.commit(0, {"t": texts("a")}, watermarks={"t": 10_000})
    assert log.list_topics() == names == ["t"]
    assert log.read("t", 0, 0, 1).values.to_pylist() == [b"a"]


def test_of_several_writers_the_least_counts(log: Log) -> None:
    log.ensure_raw("t")
    one, other = log.writer("one"), log.writer("other")
    one.commit(0, {"t": texts("a")}, watermarks={"t": 30_000})
    other.commit(0, {"t": texts("b")}, watermarks={"t": 20_000})
    assert at_ends(log, "t") == {0: 20_000}
    other.commit(1, {}, watermarks={"t": 40_000})
    assert at_ends(log, "t") == {0: 30_000}


def test_a_withdrawn_writer_holds_nobody_back(log: Log) -> None:
    log.ensure_raw("t")
    for name, watermark in (("gone", 20_000), ("there", 30_000)):
        log.writer(name).commit(0, {"t": texts(name)}, watermarks={"t": watermark})
    log.withdraw_watermarks("t", "gone")
    log.withdraw_watermarks("t", "never was")
    assert at_ends(log, "t") == at_ends(open_log(log.url), "t") == {0: 30_000}


def test_a_writer_goes_on_behind_the_records_of_its_earlier_incarnation(log: Log) -> None:
    log.ensure_raw("t")
    log.writer("w").commit(0, {"t": texts("a", "b")}, watermarks={"t": 10_000})
    log.writer("w").commit(1, {}, watermarks={"t": 20_000})
    newest = next(iter(log.writer_watermarks("t")["w"]))
    assert newest.offsets[0] >= 2
    assert at_ends(log, "t") == {0: 20_000}


def test_of_a_fenced_commit_nothing_is_there(log: Log) -> None:
    log.ensure_raw("t")
    old = log.writer("w")
    log.writer("w").commit(0, {"t": texts("new")}, watermarks={"t": 10_000})
    with pytest.raises(Fenced):
        old.commit(1, {"t": texts("old")}, watermarks={"t": 99_000})
    assert at_ends(log, "t") == {0: 10_000}


def test_another_process_sees_what_was_committed_since(log: Log) -> None:
    log.ensure_raw("t")
    reader, writer = open_log(log.url), log.writer("w")
    for number in range(5):
        writer.commit(number, {"t": texts("a")} if number % 2 else {}, watermarks={"t": number * 1_000})
        assert at_ends(reader, "t") == {0: number * 1_000}
    reader.close()


@pytest.mark.kafka
@pytest.mark.parametrize("place", ["begun", "produced", "marked", "committed"])
def test_whenever_a_writer_is_killed_its_watermark_is_that_of_its_last_commit(
    brokers: Cluster, start: Start, place: str
) -> None:
    """On the embedded log: `embedded/test_log.py`, killed at every statement."""
    url = f"{brokers.url}/killed-{place}-{os.getpid()}"
    log = open_log(url)
    log.ensure_raw("t")
    child = start(children.commit_until, url, "w", {"t": 1}, f"{place}:3")
    child.join()
    assert child.exitcode == -signal.SIGKILL
    last = log.writer("w").last_marker
    end = log.end_offsets("t")
    assert at_ends(log, "t") == {0: last}
    assert log.read("t", 0, 0, end[0]).values.to_pylist()[-1] == f"{last}.0".encode()
    log.close()


# Which of them hold

HISTORIES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 9)), max_size=5),
    max_size=3,
)


@given(HISTORIES, st.integers(0, 9), st.integers(0, 9))
def test_the_least_of_the_newest_that_hold(
    histories: Mapping[str, list[tuple[int, int, int]]], first: int, second: int
) -> None:
    known = {
        writer: [WriterWatermark("t", writer, time, [*offsets]) for time, *offsets in newest_first]
        for writer, newest_first in histories.items()
    }
    expected = {}
    for partition, end in ((0, first), (1, second)):
        holding = [
            [time for time, *offsets in newest_first if offsets[partition] <= end]
            for newest_first in histories.values()
        ]
        if holding and all(holding):
            expected[partition] = min(times[0] for times in holding)
    assert watermarks_at(known, {0: first, 1: second}) == expected


@pytest.mark.parametrize(
    "record", [WriterWatermark("t", "w", 10**30, [0]), WriterWatermark("t", "w", 0, [-1])]
)
def test_numbers_that_cannot_be_are_refused(record: WriterWatermark) -> None:
    with pytest.raises(ValueError, match="not times or offsets"):
        record.check()


def test_a_writer_whose_watermark_does_not_hold_yet_is_waited_for() -> None:
    history = {"a": [WriterWatermark("t", "a", 5, [0])], "b": [WriterWatermark("t", "b", 7, [3])]}
    assert watermarks_at(history, {0: 2}) == {}
    assert watermarks_at(history, {0: 3}) == {0: 5}


def test_a_partition_that_a_record_does_not_name_has_no_watermark() -> None:
    assert watermarks_at({"w": [WriterWatermark("t", "w", 5, [0])]}, {0: 0, 1: 0}) == {0: 5}
