"""Every record of a range is read once, however a client hands out records and the ends of partitions."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from millrace.log import Records
from millrace.log.kafka.broker_errors import BrokerErrors
from millrace.log.kafka.consumers import Event
from millrace.log.kafka.reader import PartitionReader
from strategies import examples


class FakeConsumer:
    """A partition with gaps, handed out in pieces; the end comes with the last record, or alone after it."""

    def __init__(self, offsets: Sequence[int], end: int, pieces: Sequence[int], end_alone: bool) -> None:
        self._offsets, self._end, self._end_alone = offsets, end, end_alone
        self._pieces = list(pieces)
        self._next, self._has_reported = 0, False

    def assign(self, _topic: str, _partition: int, offset: int) -> None:
        self._next, self._has_reported = offset, False

    def consume(self, limit: int, wait: float) -> tuple[Records, list[Event]]:
        piece = min(limit, self._pieces.pop() if self._pieces else limit)
        left = [offset for offset in self._offsets if offset >= self._next]
        found = left[:piece]
        self._next = found[-1] + 1 if found else self._next
        is_end = len(found) == len(left) and not self._has_reported and not (found and self._end_alone)
        self._has_reported |= is_end
        events = [Event(KafkaError(KafkaError._PARTITION_EOF), self._end)] if is_end else []
        return to_records(found), events

    def close(self) -> None:
        pass


def to_records(offsets: Sequence[int]) -> Records:
    column = np.array(offsets, np.int64)
    return Records(
        column,
        column,
        pa.nulls(len(offsets), pa.binary()),
        pa.array([b"%d" % offset for offset in offsets], pa.binary()),
    )


def reader(consumer: FakeConsumer) -> PartitionReader:
    return PartitionReader(consumer, "t", 0, BrokerErrors("servers", 1_000))


def test_records_that_came_with_the_end_of_the_partition_are_not_lost() -> None:
    """All of it comes at once: ten records of the first range and those of the second."""
    offsets = [*range(10), *range(100, 190)]
    ranges = reader(FakeConsumer(offsets, 191, [], end_alone=False))
    parts = [ranges.read(start, end, lambda: 191) for start, end in ((0, 100), (100, 150), (150, 191))]
    assert [offset for part in parts for offset in part.offsets] == offsets


@examples(300)
@given(
    offsets=st.sets(st.integers(0, 60), min_size=1).map(sorted),
    gap=st.integers(1, 3),
    cuts=st.sets(st.integers(0, 60), max_size=8),
    pieces=st.lists(st.integers(1, 30), max_size=8),
    end_alone=st.booleans(),
)
def test_ranges_hold_all_records_once_whatever_comes_together(
    offsets: list[int], gap: int, cuts: set[int], pieces: list[int], end_alone: bool
) -> None:
    end = offsets[-1] + gap
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < end), end]
    ranges = reader(FakeConsumer(offsets, end, pieces, end_alone))
    for start, stop in pairwise(bounds):
        part = ranges.read(start, stop, lambda: end)
        assert part.offsets.tolist() == [offset for offset in offsets if start <= offset < stop]
        assert part.values.to_pylist() == [b"%d" % offset for offset in part.offsets]
    again = ranges.read(0, end, lambda: end)
    assert again.offsets.tolist() == offsets


@examples(100)
@given(
    offsets=st.sets(st.integers(0, 60), min_size=1).map(sorted),
    first=st.integers(1, 60),
    pieces=st.lists(st.integers(1, 30), max_size=8),
    end_alone=st.booleans(),
)
def test_what_is_available_follows_what_a_range_left(
    offsets: list[int], first: int, pieces: list[int], end_alone: bool
) -> None:
    end = offsets[-1] + 1
    first = min(first, end)
    ranges = reader(FakeConsumer(offsets, end, pieces, end_alone))
    found, position = ranges.read(0, first, lambda: end).offsets.tolist(), first
    while position < end:
        records, position = ranges.read_available(position, 0)
        found += records.offsets.tolist()
        assert found == [offset for offset in offsets if offset < position]
    assert found == offsets


@examples(300)
@given(
    offsets=st.sets(st.integers(0, 60), min_size=1).map(sorted),
    ranges=st.lists(st.tuples(st.integers(0, 61), st.integers(0, 61)), min_size=1, max_size=8),
    pieces=st.lists(st.integers(1, 30), max_size=8),
    end_alone=st.booleans(),
)
def test_ranges_may_skip_repeat_and_go_back(
    offsets: list[int], ranges: list[tuple[int, int]], pieces: list[int], end_alone: bool
) -> None:
    end = offsets[-1] + 1
    partition = reader(FakeConsumer(offsets, end, pieces, end_alone))
    for one, other in ranges:
        start, stop = min(one, other, end), min(max(one, other), end)
        part = partition.read(start, stop, lambda: end)
        assert part.offsets.tolist() == [offset for offset in offsets if start <= offset < stop]
