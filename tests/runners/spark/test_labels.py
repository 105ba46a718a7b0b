"""Slots spread evenly over Spark's partitions, whatever their number."""

from collections import Counter

import pytest

from millrace.runners.spark.slots import make_slot_labels, murmur3


@pytest.mark.parametrize(("slots", "partitions"), [(1, 1), (4, 2), (8, 3), (5, 8), (128, 64), (128, 7)])
def test_no_partition_gets_two_slots_more_than_another(slots: int, partitions: int) -> None:
    found = make_slot_labels(slots, partitions)
    loads = Counter(murmur3(label) % partitions for label in found)
    assert len(set(found)) == slots
    assert max(loads.values()) - min(loads[number] for number in range(min(partitions, slots))) <= 1


def test_labels_never_change_because_state_is_found_by_them() -> None:
    assert make_slot_labels(4, 2) == (2, 0, 4, 1)
    assert make_slot_labels(8, 3) == (0, 1, 11, 2, 6, 12, 3, 13)


def test_the_hash_is_sparks() -> None:
    """As `SELECT hash(0), hash(1), hash(2), hash(-1)` says."""
    assert [murmur3(value) for value in (0, 1, 2)] == [933211791, -559580957, 1765031574]
